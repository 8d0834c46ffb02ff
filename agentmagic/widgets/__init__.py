"""What a browser shows of a session, live: its turns in a cell, or the whole conversation in a chat panel.

`sync` turns events into small numbered messages, `page_messages` decodes what a page sends back, and `view` is the
widget between them. `chat` is the panel: it follows a session and carries out what the user does. `commands` holds
what panel and magics share. The page's side is in `js/`, its built form in `static/`.
"""
