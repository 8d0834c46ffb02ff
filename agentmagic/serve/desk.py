"""The interface of a desk, an object whose tools and text pages the MCP server offers to clients."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentmagic.messages import ToolDef, ToolResult


@dataclass(frozen=True, slots=True)
class Exchange:
    """The MCP client's side of one tool call.

    `client` is the name that the client gives itself, made safe to show. `progress(done, total, message)` reports the
    progress to the client; the total can be None. `ask` asks the client's user a question, and returns the answer, or
    None without an answer.
    """

    client: str
    progress: Callable[[float, float | None, str], None]
    ask: Callable[[str], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Page:
    """A text that clients can read as an MCP resource, at the address `uri`."""

    uri: str
    name: str
    description: str
    media_type: str
    read: Callable[[], Awaitable[str]]


class Desk(Protocol):
    """Tools and text pages that any number of MCP clients can use with one token.

    They are those of a served session, or the tools of an outside agent's turn.
    """

    instructions: str
    pages: Sequence[Page]

    async def tools(self) -> Sequence[ToolDef]:
        """Return the tools that can be called."""
        ...

    async def call(self, exchange: Exchange, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a tool call of a client, and return its result. Cancelling this coroutine ends the call."""
        ...
