"""An outside program as the model of a turn: it has made one call already, which is all that it asks for."""

from collections.abc import AsyncIterator

from agentmagic.errors import BadRequest
from agentmagic.events import PartFinished, PartStarted
from agentmagic.messages import ToolCall, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished, ModelSettings, Request

SERVED = "mcp:"
"""How the name of the model of a served turn begins."""


class ClientModel:
    """The model of the turns that one client makes calls in.

    The request of a turn is answered with the `call`, once.
    """

    def __init__(self, client: str) -> None:
        self.name = f"{SERVED}{client}"
        self.call: ToolCall | None = None

    def honours(self, settings: ModelSettings) -> tuple[str, ...]:
        """Return all names: a client is no model, and nothing is said of the settings of the agent's."""
        return settings.given

    def metered(self, usage: Usage) -> Usage:
        """Return the usage as it is: a call costs the user of the notebook nothing."""
        return usage

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Yield the call. Raises BadRequest for any other request: a summary, or an answer to a tool."""
        call, self.call = self.call, None
        if call is None or request.output is not None:
            raise BadRequest(f"{self.name} makes calls, and answers no questions.")
        yield PartStarted(0, "tool_call", call.name)
        yield PartFinished(0, call)
        yield ModelFinished(Usage(), "stop", last=True)

    async def aclose(self) -> None:
        """Do nothing: the server closes the connection."""
