"""What every model is: a request goes in, part events and one closing event stream out."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.json_schema import misfit
from agentmagic.messages import Message, ToolDef, Usage

_FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)\n[^\S\n]*```", re.DOTALL)


def _as_it_is(data: Any) -> Any:
    return data


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The form of an answer: a JSON Schema of type object, and a name for it that providers take.

    `convert` makes the value of the JSON data, and raises ValueError for data that has none.
    """

    name: str
    schema: Mapping[str, Any]
    convert: Callable[[Any], Any] = _as_it_is

    @property
    def instructions(self) -> str:
        """The form in words, for models that cannot be held to a schema."""
        schema = json.dumps(self.schema, ensure_ascii=False)
        return f"Your final answer is one JSON object and nothing else, valid under this JSON Schema: {schema}"

    def read(self, text: str) -> Any:
        """Return the value of an answer. Raises ValueError, with a text for the model, if it does not fit."""
        # Models often put JSON into a fenced block, with or without words around it.
        fenced = _FENCED.search(text)
        try:
            data = json.loads(fenced[1] if fenced and not text.lstrip().startswith("{") else text)
        except (ValueError, RecursionError):
            message = "it is not JSON"
            raise ValueError(message) from None
        if problem := misfit(self.schema, data):
            raise ValueError(problem)
        return self.convert(data)


@dataclass(frozen=True, slots=True)
class Request:
    """One model request, in no provider's terms.

    `messages` is a valid history: every tool call is answered by the next message, of role "tool".
    `tool_choice` is "auto", "none", "required" or the name of one of `tools`. `output` asks for an answer
    that is JSON of that form; whoever sends the request checks the answer, since not every model obeys.
    """

    messages: tuple[Message, ...]
    instructions: str = ""
    tools: tuple[ToolDef, ...] = ()
    tool_choice: str = "auto"
    output: OutputSchema | None = None


@dataclass(frozen=True, slots=True)
class ModelFinished:
    """The response is complete; `reason` is the provider's own word for why it ended.

    `usage` counts this one request; its cost is left for the registry to fill in. `cut` says that the
    response stopped at a limit of length, so that its last part may be incomplete. `usage` may count a
    conversation more than once, where a response takes several generations; `once` is then False.
    """

    type: ClassVar[str] = "model_finished"
    usage: Usage
    reason: str = ""
    cut: bool = False
    once: bool = True


ModelEvent = PartStarted | PartDelta | PartFinished | ModelFinished


@runtime_checkable
class Model(Protocol):
    """A model of a provider.

    `name` is "provider:model". `stream` yields the parts of one response, each started, then its
    deltas, then finished with the whole part, indices counting from 0 in order of appearance, and last
    of all one `ModelFinished`. A response that breaks off before its closing event raises
    `StreamBroken`, one whose tool call cannot be read `MalformedCall`; every other failure is a
    `ProviderError` too. It does not retry. Cancelling the task that iterates ends the request at once.
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


@runtime_checkable
class Preparing(Protocol):
    """A model that has to be fetched or loaded before its first request; a turn's time does not run meanwhile."""

    async def prepare(self) -> None:
        """Get ready; at once where it is."""
        ...


@runtime_checkable
class FewTools(Protocol):
    """A model that can handle only so many tools."""

    def choose(self, tools: Sequence[ToolDef], question: str) -> Sequence[ToolDef]:
        """Return those of the tools that a turn with this question should have."""
        ...


@runtime_checkable
class Hosted(Protocol):
    """A model at an address, which decides what its tokens cost."""

    @property
    def base_url(self) -> str:
        """The address requests are sent to."""
        ...


class Memo:
    """Encodes a growing history, each message once.

    A request repeats the messages of the one before it; what they were encoded to is kept for as long as
    they come again. `encode` makes one message into any number of API objects, which are not to be changed.
    """

    def __init__(self, encode: Callable[[Message], Iterable[dict[str, Any]]]) -> None:
        self._encode = encode
        self._kept: dict[int, tuple[Message, tuple[dict[str, Any], ...]]] = {}

    def __call__(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return what the messages are in the API's terms."""
        kept = {id(message): self._known(message) for message in messages}
        self._kept = kept
        return [encoded for message in messages for encoded in kept[id(message)][1]]

    def _known(self, message: Message) -> tuple[Message, tuple[dict[str, Any], ...]]:
        # The message is kept beside its encoding, so that its id cannot come to mean another.
        known = self._kept.get(id(message))
        return known or (message, tuple(self._encode(message)))
