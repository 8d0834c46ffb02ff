"""What a person sees: events become blocks, blocks become HTML or plain text.

`transcript` is the fold that both share; `html` makes one static fragment that any front end can show,
`text` what a terminal prints.
"""
