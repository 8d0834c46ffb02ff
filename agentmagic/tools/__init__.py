"""Tools and their sources: `base` defines what a tool is; `functions`, `notebook`, `web` and `mcp` provide tools."""
