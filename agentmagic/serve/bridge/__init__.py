"""`python -m agentmagic bridge`: connects an MCP client that talks to a program over stdio with a served kernel."""
