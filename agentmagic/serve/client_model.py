"""An MCP client in the role of a turn's model: it has already made one call, and the turn runs only that call."""

import asyncio
from collections.abc import AsyncIterator

from agentmagic.errors import BadRequest
from agentmagic.events import SERVED, PartFinished, PartStarted
from agentmagic.messages import ToolCall, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished, ModelSettings, Request


class ClientModel:
    """The model of a turn in which an MCP client of the served notebook makes one call.

    It answers the turn's first request with `call`. In a replay no model is asked, so `call` can be None.
    """

    def __init__(self, client: str, call: ToolCall | None) -> None:
        self.name = f"{SERVED}{client}"
        self._call = call
        self._withdrawn = False

    def withdraw(self) -> None:
        """Make no call in the turn, which is cancelled soon: the client has gone. Called on the engine's event loop."""
        self._withdrawn = True

    def honours(self, settings: ModelSettings) -> tuple[str, ...]:
        """Return the names of all settings, so that no warning says that this model ignores some of them."""
        return settings.given

    def price_usage(self, usage: Usage) -> Usage:  # noqa: ARG002
        """Return an empty usage: no provider is called, so the call costs the user of the notebook nothing."""
        return Usage()

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Yield the client's call. Raises BadRequest for a request that needs a real model, such as for a summary."""
        if self._withdrawn:
            await asyncio.get_running_loop().create_future()  # until the turn is cancelled
        call, self._call = self._call, None
        if call is None or request.output is not None:
            raise BadRequest(f"{self.name} makes calls, and answers no questions.")
        yield PartStarted(0, "tool_call", call.name)
        yield PartFinished(0, call)
        yield ModelFinished(Usage(), "stop", last=True)

    async def aclose(self) -> None:
        """Do nothing: the MCP server closes the connection to the client."""
