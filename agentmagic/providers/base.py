"""What every model is: a request goes in, part events and one closing event stream out."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Message, ToolDef, Usage


@dataclass(frozen=True, slots=True)
class Request:
    """One model request, in no provider's terms.

    `messages` is a valid history: every tool call is answered by the next message, of role "tool".
    `tool_choice` is "auto", "none", "required" or the name of one of `tools`.
    """

    messages: tuple[Message, ...]
    instructions: str = ""
    tools: tuple[ToolDef, ...] = ()
    tool_choice: str = "auto"


@dataclass(frozen=True, slots=True)
class ModelFinished:
    """The response is complete; `reason` is the provider's own word for why it ended.

    `usage` counts this one request; its cost is left for the registry to fill in.
    """

    type: ClassVar[str] = "model_finished"
    usage: Usage
    reason: str = ""


ModelEvent = PartStarted | PartDelta | PartFinished | ModelFinished


@runtime_checkable
class Model(Protocol):
    """A model of a provider.

    `name` is "provider:model". `stream` yields the parts of one response, each started, then its
    deltas, then finished with the whole part, indices counting from 0 in order of appearance, and last
    of all one `ModelFinished`. A response that breaks off before its closing event raises
    `StreamBroken`; every other failure is a `ProviderError` too. It does not retry. Cancelling the
    task that iterates ends the request at once.
    """

    @property
    def name(self) -> str:
        """The full name, "provider:model"."""
        ...

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Send the request and yield what comes back."""
        ...

    async def aclose(self) -> None:
        """Close what the model holds open; it may be called twice."""
        ...
