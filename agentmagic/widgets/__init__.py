"""What a browser shows of a session, live: its turns in a cell, or the whole of it in a chat panel.

`feed` turns events into small numbered messages, `actions` turns what a person clicks back into values, and
`view` is the widget between the two and the page. The page's side is in `js/`, its built form in `static/`.
"""
