"""The notebook as an MCP server: outside agents look at it and work in it, under the user's permission."""
