"""What a browser shows of a session, live: its turns in a cell, or the whole of it in a chat panel.

`feed` turns events into small numbered messages, `actions` turns what a person clicks back into values, and
`view` is the widget between the two and the page. `chat` is the panel: it follows a session and carries out what is
done there, and `notebook` what it needs around it. The page's side is in `js/`, its built form in `static/`.
"""
