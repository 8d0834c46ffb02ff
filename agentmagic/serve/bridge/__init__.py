"""`python -m agentmagic bridge`: connects a served kernel with an MCP client that talks to servers over stdio."""
