"""What a browser shows of a session, live: its turns in a cell, or the whole conversation in a chat panel.

`sync` turns events into small numbered messages, `page_messages` decodes the messages of a page, and `view` is the
widget between them. `commands` holds what the panel and the magics share; the panel itself is in `jupyter/panel`. The
code of the page is in `js/`, and its build output in `static/`.
"""
