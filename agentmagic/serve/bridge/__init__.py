"""`python -m agentmagic bridge`: connects MCP clients that start a program and use its stdio to a served kernel."""
