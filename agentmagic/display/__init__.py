"""What the user sees: events become blocks, and blocks become HTML, JSON or plain text.

`transcript` folds events into blocks. `blocks` has the kinds of block and the protocol of their renderers, of which
`html` makes a static fragment for any front end, `terminal` plain text, and `block_json` the fields for the live view.
"""
