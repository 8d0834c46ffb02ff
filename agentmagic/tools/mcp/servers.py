"""Several servers as one toolset."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from agentmagic.errors import ServerError, UsageError
from agentmagic.messages import ToolCall, ToolDef, ToolResult
from agentmagic.schema import check_schema
from agentmagic.tools.base import Tool, ToolContext
from agentmagic.tools.mcp import names
from agentmagic.tools.mcp.config import ServerConfig
from agentmagic.tools.mcp.connection import Connection, State
from agentmagic.tools.mcp.content import to_result

if TYPE_CHECKING:
    from mcp import types

LONGEST_DESCRIPTION = 10_000
"""Characters kept of what a server says about a tool: every request to the model carries it."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """How one server is doing.

    `tools` counts those the model gets; `left_out` says, by name, why others are not among them.
    """

    name: str
    state: State
    tools: int
    left_out: Mapping[str, str]
    error: str
    stderr: str


class McpServers:
    """MCP servers by the user's names for them, connected when first needed and kept until closed.

    A `Toolset`. All coroutines belong to one event loop, the engine's; `servers` may be read anywhere.
    """

    def __init__(self, configs: Mapping[str, ServerConfig] | None = None) -> None:
        self._connections = {name: Connection(name, config) for name, config in (configs or {}).items()}
        self._counts: dict[str, int] = {}
        self._left_out: dict[str, dict[str, str]] = {}

    @property
    def servers(self) -> list[ServerState]:
        """The servers in the order they were added."""
        return [self._state(connection) for connection in list(self._connections.values())]

    async def add(self, name: str, config: ServerConfig) -> None:
        """Add a server and connect it now; one that fails is not kept.

        The same server once more, as a cell that is run again adds it, stays connected and what it allows is
        added. Raises UsageError for a name that another server has, and ServerError.
        """
        if (known := self._connections.get(name)) is not None:
            if known.config.transport == config.transport:
                self.allow(name, config.allow)
                self._usable(name, await known.list_tools())
                return
            raise UsageError(f"There is a server {name!r} already. Remove it first, or choose another name.")
        connection = self._connections[name] = Connection(name, config)
        try:
            self._usable(name, await connection.list_tools())
        except BaseException:
            await self.remove(name)
            raise

    async def remove(self, name: str) -> None:
        """Disconnect a server and forget it. Raises UsageError for an unknown name."""
        self.check(name)
        connection = self._connections.pop(name)
        self._counts.pop(name, None)
        self._left_out.pop(name, None)
        await connection.aclose()

    def check(self, name: str) -> None:
        """Raise UsageError for an unknown name."""
        if name not in self._connections:
            known = ", ".join(self._connections) or "there are none"
            raise UsageError(f"There is no server {name!r}. Servers: {known}.")

    def allow(self, name: str, patterns: Sequence[str]) -> None:
        """Let tools of a server run without asking, by name or `fnmatch` pattern, from the next turn on.

        Raises UsageError for an unknown name.
        """
        self.check(name)
        connection = self._connections[name]
        connection.config = replace(connection.config, allow=(*connection.config.allow, *patterns))

    async def tools(self) -> Sequence[Tool]:
        """Return the tools of all servers, in the order of the servers, connecting those that are not.

        Raises ServerError, once all were tried, where any cannot be reached.
        """
        connections = list(self._connections.values())
        listed = await asyncio.gather(*(one.list_tools() for one in connections), return_exceptions=True)
        errors = [outcome for outcome in listed if isinstance(outcome, BaseException)]
        if errors:
            raise _one_error(errors)
        usable = {
            connection: self._usable(connection.name, outcome)
            for connection, outcome in zip(connections, listed, strict=True)
            if not isinstance(outcome, BaseException)
        }
        shown = names.visible({one.name: [tool.name for tool in tools] for one, tools in usable.items()})
        return [_tool(one, shown[one.name, tool.name], tool) for one, tools in usable.items() for tool in tools]

    async def aclose(self) -> None:
        """Disconnect all servers, side by side; `tools` would connect them again."""
        await asyncio.gather(*(connection.aclose() for connection in list(self._connections.values())))

    def _usable(self, name: str, listed: "Sequence[types.Tool]") -> "list[types.Tool]":
        left_out: dict[str, str] = {}
        usable: dict[str, types.Tool] = {}
        for tool in listed:
            if tool.name in usable:
                continue
            if reason := _unusable(tool):
                left_out[tool.name] = reason
            else:
                usable[tool.name] = tool
        self._left_out[name] = left_out
        self._counts[name] = len(usable)
        return list(usable.values())

    def _state(self, connection: Connection) -> ServerState:
        name = connection.name
        left_out = self._left_out.get(name, {})
        return ServerState(
            name, connection.state, self._counts.get(name, 0), left_out, connection.error, connection.stderr
        )


def _one_error(errors: Sequence[BaseException]) -> BaseException:
    lost = [error for error in errors if isinstance(error, ServerError)]
    if len(lost) < len(errors):
        return next(error for error in errors if not isinstance(error, ServerError))
    return lost[0] if len(lost) == 1 else ServerError("\n".join(str(error) for error in lost))


def _unusable(tool: "types.Tool") -> str | None:
    if tool.input_schema.get("type") != "object":
        return f"The schema of {tool.name} does not describe an object."
    return check_schema(tool.name, tool.input_schema)


def _tool(connection: Connection, shown: str, tool: "types.Tool") -> Tool:
    description = (tool.description or tool.title or "")[:LONGEST_DESCRIPTION]
    definition = ToolDef(shown, description, tool.input_schema, server=connection.name)
    ask = not any(fnmatchcase(tool.name, pattern) for pattern in connection.config.allow)
    return Tool(definition, _invoke(connection, tool.name), timeout=connection.config.timeout, ask=ask)


def _invoke(connection: Connection, tool: str) -> Callable[[ToolCall, ToolContext], Awaitable[ToolResult]]:
    async def invoke(call: ToolCall, context: ToolContext) -> ToolResult:
        answer: Any = await connection.call(tool, call.arguments, context.progress)
        return to_result(call, answer)

    return invoke
