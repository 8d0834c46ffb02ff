"""The live display of a session in a browser: its turns in a cell, or the whole conversation in a chat panel.

`sync` turns events into small numbered messages, `page_messages` decodes the messages that a browser page sends back,
and the widget in `view` sends and receives them. `commands` holds what the chat panel and the magics share; the panel
itself is in `jupyter/panel`. The page's JavaScript is in `js/`, and its build output in `static/`.
"""
