"""An MCP endpoint (the desk) where an outside agent calls agentmagic tools. Calls need permission as usual."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agentmagic.acp.agents import SERVER
from agentmagic.acp.calls import OutsideCalls
from agentmagic.messages import ToolDef, ToolResult
from agentmagic.serve.desk import Exchange, Page
from agentmagic.serve.serving import shared_server
from agentmagic.tools.base import Tool

if TYPE_CHECKING:
    from acp.schema import AgentCapabilities


class TurnDesk:
    """An MCP endpoint that serves the tools of the running turn to an outside agent. Between turns, calls fail."""

    instructions = "Tools of the user's notebook. The user may be asked before a call."
    pages: Sequence[Page] = ()

    def __init__(self) -> None:
        self._tools: Mapping[str, Tool] = {}
        self._calls = OutsideCalls()
        self._token = ""

    def serve(self, tools: Mapping[str, Tool], calls: OutsideCalls) -> None:
        """Serve the tools of a turn from now on; `calls` runs the calls as part of that turn."""
        self._tools, self._calls = tools, calls

    async def tools(self) -> Sequence[ToolDef]:
        """Return the tools of the turn."""
        return [tool.definition for tool in self._tools.values()]

    async def call(self, exchange: Exchange, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a call of a tool as part of the turn, and return the result."""
        del exchange
        return await self._calls.call_tool(name, arguments)

    async def servers(self, capabilities: "AgentCapabilities | None") -> Sequence[Any]:
        """Return the MCP servers to offer to the agent: this endpoint, or none if the agent lacks MCP over HTTP."""
        from acp.schema import HttpHeader, HttpMcpServer

        if capabilities is None or capabilities.mcp_capabilities is None or not capabilities.mcp_capabilities.http:
            return []
        if not self._token:
            self._token = await shared_server().open(self)
        headers = [HttpHeader(name="Authorization", value=f"Bearer {self._token}")]
        return [HttpMcpServer(type="http", name=SERVER, url=shared_server().url, headers=headers)]

    async def aclose(self) -> None:
        """Close the MCP endpoint; can be called twice."""
        token, self._token = self._token, ""
        if token:
            await shared_server().close(token)
