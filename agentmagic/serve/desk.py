"""What the server asks of what it serves: one protocol, and what a call says of its client."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agentmagic.messages import ToolDef, ToolResult


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call of a client.

    `client` is the name that the client gives itself, cleaned. `progress` sends it how far the call is, with a total
    if there is one, and a sentence. `ask` puts a question to the client's user, and returns the answer, or None
    without one.
    """

    client: str
    progress: Callable[[float, float | None, str], None]
    ask: Callable[[str], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class Page:
    """A text that clients can read, by its address."""

    uri: str
    name: str
    description: str
    media_type: str
    read: Callable[[], Awaitable[str]]


class Desk(Protocol):
    """What one token opens: tools and pages, whose calls come from any number of clients."""

    instructions: str
    pages: Sequence[Page]

    async def tools(self) -> Sequence[ToolDef]:
        """Return the tools that can be called."""
        ...

    async def call(self, exchange: Exchange, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Carry out a call. Cancelling it ends the call."""
        ...
