"""An outside program as the model of a turn: it has made one call already, which is all that it asks for."""

from collections.abc import AsyncIterator

from agentmagic.errors import BadRequest
from agentmagic.events import SERVED, PartFinished, PartStarted
from agentmagic.messages import ToolCall, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished, ModelSettings, Request


class ClientModel:
    """The model of a turn in which a client makes a call.

    The request of the turn is answered with the `call`, once. A replay, which asks no model, may have none.
    """

    def __init__(self, client: str, call: ToolCall | None) -> None:
        self.name = f"{SERVED}{client}"
        self._call = call

    def honours(self, settings: ModelSettings) -> tuple[str, ...]:
        """Return all names: a client is no model, and nothing is said of the settings of the agent's."""
        return settings.given

    def metered(self, usage: Usage) -> Usage:  # noqa: ARG002
        """Return no usage: no provider is asked for a call, and it costs the user of the notebook nothing."""
        return Usage()

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Yield the call. Raises BadRequest for any other request: a summary, or an answer to a tool."""
        call, self._call = self._call, None
        if call is None or request.output is not None:
            raise BadRequest(f"{self.name} makes calls, and answers no questions.")
        yield PartStarted(0, "tool_call", call.name)
        yield PartFinished(0, call)
        yield ModelFinished(Usage(), "stop", last=True)

    async def aclose(self) -> None:
        """Do nothing: the server closes the connection."""
