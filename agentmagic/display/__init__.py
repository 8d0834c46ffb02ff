"""Turn a session's events into blocks, and blocks into HTML, JSON or plain text.

`transcript` folds events into blocks: prompts, texts, tool calls, notices and so on. `blocks` has the block classes and
the protocol of their renderers. Of these, `html` writes static HTML for any front end, `terminal` plain
text, and `block_json` returns the JSON from which a browser page draws the live view. `agentmagic.export` has others.
"""
