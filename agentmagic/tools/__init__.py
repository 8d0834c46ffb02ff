"""Where tools come from: `base` says what a tool is, `functions` and `mcp` are sources of them."""
