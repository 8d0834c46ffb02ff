"""`python -m agentmagic bridge`: a served kernel for MCP clients that start a program and speak to it on stdio."""
