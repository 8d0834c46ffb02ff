"""A source of tools that are offered by MCP servers. The mcp library is imported only when a server is connected."""

from agentmagic.tools.mcp import config
from agentmagic.tools.mcp.config import ServerConfig
from agentmagic.tools.mcp.servers import McpServers, ServerState
from agentmagic.tools.mcp.session_task import warm

__all__ = ["McpServers", "ServerConfig", "ServerState", "config", "warm"]
