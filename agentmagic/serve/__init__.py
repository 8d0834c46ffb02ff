"""The notebook as an MCP server: outside agents read it and work in it, with the user's permission."""
