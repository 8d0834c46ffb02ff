"""Turn a session's events into blocks, and blocks into HTML, JSON or plain text.

`transcript` makes blocks from events: prompts, texts, tool calls, notices and so on. `blocks` has the block classes and
the protocol of their renderers. The renderer in `html` writes static HTML for any front end, the one in `terminal`
plain text. `block_json` returns the JSON from which a browser page draws the live view. `agentmagic.export` has others.
"""
