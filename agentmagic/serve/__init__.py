"""The notebook as an MCP server, and the bridge to it for clients that speak only stdio."""
