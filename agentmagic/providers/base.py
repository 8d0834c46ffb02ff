"""The seam between agentmagic and a provider: the model protocol, the request, and the row that describes a provider.

A request goes into a model; part events and one closing event come out.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Protocol, cast, get_args, runtime_checkable

from agentmagic.errors import UsageError
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.json_schema import misfit
from agentmagic.messages import HostedTool, Message, ToolCall, ToolDef, ToolResult, Usage

_FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)\n[^\S\n]*```", re.DOTALL)
WRAPPED = "value"
"""The property that holds a value which is no object, in the object that a model answers."""


def _as_it_is(data: Any) -> Any:
    return data


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The form of an answer: a JSON Schema of type object, and a name for it that providers take.

    `convert` makes the value of the JSON data, and raises ValueError for data that has none. `wrapped_in` is the one
    property of the object if the value asked for is no object: an answer that is the bare value is taken too.
    """

    name: str
    schema: Mapping[str, Any]
    convert: Callable[[Any], Any] = _as_it_is
    wrapped_in: str = ""

    @property
    def instructions(self) -> str:
        """The form in words, for models that cannot be held to a schema."""
        schema = json.dumps(self.schema, ensure_ascii=False)
        return f"Your final answer is one JSON object and nothing else, valid under this JSON Schema: {schema}"

    def read(self, text: str) -> Any:
        """Return the value of an answer. Raises ValueError, with a text for the model, if it does not fit."""
        data = answer_data(text)
        problem = misfit(self.schema, data)
        if problem and self.wrapped_in and not misfit(self.schema, {self.wrapped_in: data}):
            data, problem = {self.wrapped_in: data}, None
        if problem:
            raise ValueError(problem)
        return self.convert(data)


def answer_data(text: str) -> Any:
    """Return the data of an answer in JSON. Raises ValueError if it is none."""
    # Models often put JSON into a fenced block, with or without words around it.
    fenced = _FENCED.search(text)
    try:
        return json.loads(fenced[1] if fenced and not text.lstrip().startswith(("{", "[")) else text)
    except (ValueError, RecursionError):
        message = "it is not JSON"
        raise ValueError(message) from None


Effort = Literal["none", "low", "medium", "high"]

_INNER = "generationConfig"
"""The field of Gemini's requests that has fields of its own, one of which may name another model."""
SAMPLING = frozenset(
    f"{_INNER} candidateCount chat_template_kwargs enable_thinking frequencyPenalty frequency_penalty logit_bias "
    "logprobs maxOutputTokens max_completion_tokens max_output_tokens max_tokens min_p options output_config "
    "parallel_tool_calls presencePenalty presence_penalty reasoning reasoning_effort repetition_penalty "
    "responseLogprobs safetySettings seed service_tier stop stopSequences stop_sequences stream_options temperature "
    "text think thinking thinkingConfig thinking_budget top_k top_logprobs top_p topK topP truncation "
    "verbosity".split()
)
"""The fields of `extra` that can do no more than shape the answer, at any provider: they name no tool, server or model.

`options` are those of Ollama. Whoever adds one looks at what gateways make of it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """How a model is to answer; None leaves a setting to the provider.

    `max_output_tokens` bounds one response, reasoning included. `reasoning` is the effort: "none", "low", "medium" or
    "high". `extra` has fields of the provider's own, which are merged into the body of each request; a field that is
    None is left out of it.

    `a | b` has the settings of `b`, and those of `a` that `b` does not give. Raises UsageError for an invalid value.
    """

    temperature: float | None = None
    max_output_tokens: int | None = None
    reasoning: Effort | None = None
    seed: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)

    def __post_init__(self) -> None:
        _check_setting("temperature", self.temperature, (int, float), 0, "a number from 0 on")
        _check_setting("max_output_tokens", self.max_output_tokens, (int,), 1, "a whole number from 1 on")
        _check_setting("seed", self.seed, (int,), 0, "a whole number from 0 on")
        if self.reasoning is not None and self.reasoning not in get_args(Effort):
            message = f"reasoning is {self.reasoning!r}. Choose one of {', '.join(get_args(Effort))}."
            raise UsageError(message)
        try:
            written = json.dumps(self.extra, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            written = ""
        if not written.startswith("{"):
            message = f"extra is {self.extra!r:.80}. Give a dict of JSON values."
            raise UsageError(message)

    def __or__(self, other: "ModelSettings") -> "ModelSettings":
        chosen: dict[str, Any] = {name: getattr(other if name in other.given else self, name) for name in SETTINGS}
        chosen["extra"] = merged(self.extra, other.extra, nulls=True)
        return ModelSettings(**chosen)

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the settings that are not left to the provider."""
        return tuple(name for name in SETTINGS if getattr(self, name) not in (None, {}))

    @property
    def beyond_sampling(self) -> list[str]:
        """The names of fields of `extra` that are not in `SAMPLING`, and could have a server do anything."""
        inner = self.extra.get(_INNER)
        names = {*self.extra, *(cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else ())}
        return sorted(names - SAMPLING)

    def under(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the given settings among `names`, each under the name that it has there."""
        return {names[name]: getattr(self, name) for name in self.given if name in names}

    def only(self, names: Collection[str]) -> "ModelSettings":
        """Return the settings of these names."""
        return ModelSettings(**{name: getattr(self, name) for name in self.given if name in names})


SETTINGS: tuple[str, ...] = tuple(one.name for one in fields(ModelSettings))


def _check_setting(name: str, value: Any, kinds: tuple[type, ...], least: int, advice: str) -> None:
    if value is None or (isinstance(value, kinds) and not isinstance(value, bool) and least <= value < float("inf")):
        return
    message = f"{name} is {value!r}. Give {advice}, or None to leave it to the provider."
    raise UsageError(message)


def merged(body: Mapping[str, Any], extra: Mapping[str, Any], *, nulls: bool = False) -> dict[str, Any]:
    """Return a JSON object with the fields of another one added: objects are merged, other values replaced.

    A field that is None in the other one is left out, unless `nulls` are kept.
    """
    both = dict(body)
    for key, value in extra.items():
        if isinstance(value, Mapping):
            old = both.get(key)
            one = cast("Mapping[str, Any]", old if isinstance(old, Mapping) else {})
            both[key] = merged(one, cast("Mapping[str, Any]", value), nulls=nulls)
        elif value is None and not nulls:
            both.pop(key, None)
        else:
            both[key] = value
    return both


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """A question of a planned turn, for a model that has prompts of its own for it.

    Other models read the last message of the request, which asks the same in words. `kind` is the name of the
    request's `output`, but "parameters" for the arguments of a call. `question` is what the user asked. `tool` is the
    tool of the task, and `made` are the calls so far, each with its result; the last one is judged.
    """

    kind: Literal["route", "plan", "parameters", "judgement"]
    question: str
    tool: ToolDef | None = None
    made: tuple[tuple[ToolCall, ToolResult], ...] = ()


@dataclass(frozen=True, slots=True)
class ProjectText:
    """A file of the user's project that a model is told of; `text` stands in the instructions.

    `file` is its path from the project's root, `kind` "rules" or "skill". `digest` is one of all that was read for it.
    """

    kind: str
    file: str
    digest: str
    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """One model request, independent of the provider.

    `messages` is a valid history: every tool call is answered by the next message, of role "tool".
    `tool_choice` is "auto", "none", "required" or the name of one of `tools`. `output` asks for an answer that is JSON
    of that form. Not every model obeys, so the loop checks the answer. `settings` has only settings that the model
    `honours`. `decision` says what a planned turn asks. `hosted` are tools of the provider's own, which it `hosts`.
    `project` are the files whose texts stand in the instructions.
    """

    messages: tuple[Message, ...]
    instructions: str = ""
    tools: tuple[ToolDef, ...] = ()
    tool_choice: str = "auto"
    output: OutputSchema | None = None
    settings: ModelSettings = ModelSettings()
    decision: PlanQuestion | None = None
    hosted: tuple[HostedTool, ...] = ()
    project: tuple[ProjectText, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelFinished:
    """The response is complete; `reason` is the provider's own word for why it ended.

    `usage` counts this one request; the registry fills in its cost. `cut` is True if the response stopped at a limit of
    length, so that its last part may be incomplete. `once` is False if the response took several generations, and
    `usage` counts the conversation more than once. `last` says that the turn is over when its calls are carried out: no
    answer follows. `model` is the model that answered, as the provider names it, "" if it does not.
    """

    type: ClassVar[str] = "model_finished"
    usage: Usage
    reason: str = ""
    cut: bool = False
    once: bool = True
    last: bool = field(default=False, repr=False)  # of no model
    model: str = field(default="", repr=False, compare=False)


ModelEvent = PartStarted | PartDelta | PartFinished | ModelFinished


@runtime_checkable
class Model(Protocol):
    """A model of a provider.

    `name` is "provider:model". `stream` yields the parts of one response, and then one `ModelFinished`. Each part is a
    `PartStarted`, its deltas, and a `PartFinished` with the whole part; indices count from 0 in order of appearance.
    What begins as text may be finished as reasoning.

    A response that breaks off before its closing event raises `StreamBroken`, one with an unreadable tool call
    `MalformedCall`. Every other failure is another `ProviderError`. `stream` does not retry. Cancelling the task that
    iterates ends the request at once.
    """

    @property
    def name(self) -> str:
        """The full name, "provider:model"."""
        ...

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Send the request and yield the events of the answer."""
        ...

    async def aclose(self) -> None:
        """Close open connections; may be called twice."""
        ...


@runtime_checkable
class Preparing(Protocol):
    """A model that is fetched or loaded before its first request; a turn's time limit is paused meanwhile."""

    async def prepare(self) -> None:
        """Get ready; returns at once if the model is ready."""
        ...


@runtime_checkable
class Advising(Protocol):
    """A model that may know of a better choice."""

    def advice(self) -> str:
        """Return a sentence for the user, or nothing; takes 50 ms at most, once per process."""
        ...


@runtime_checkable
class FewTools(Protocol):
    """A model that can handle only so many tools."""

    def choose(self, tools: Sequence[ToolDef], question: str) -> Sequence[ToolDef]:
        """Return the tools that a turn with this question should have."""
        ...


@runtime_checkable
class Hosted(Protocol):
    """A model at an address; the address decides what its tokens cost."""

    @property
    def base_url(self) -> str:
        """The address that requests are sent to."""
        ...


@runtime_checkable
class Adjustable(Protocol):
    """A model that takes settings. The user is told of the settings that a model cannot honour."""

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of the settings that the model honours if it is given these; others are left out."""
        ...


@runtime_checkable
class Hosting(Protocol):
    """A model whose provider carries out some tools itself, within an answer."""

    def hosts(self, tool: HostedTool) -> bool:
        """Return whether the provider carries out this tool, with what is asked of it."""
        ...


@runtime_checkable
class Metered(Protocol):
    """A model that knows what its answers cost: as when they were recorded, or in a batch."""

    def metered(self, usage: Usage) -> Usage:
        """Return the usage of one request, with its cost."""
        ...


@runtime_checkable
class Taped(Protocol):
    """A model on tape; `real` is the model that is asked, or None if the tape answers.

    `live` says whether the last request was sent to a model: a tape may go on live at the first change.
    """

    live: bool

    @property
    def real(self) -> "Model | None":
        """The model behind the tape."""
        ...

    async def rest(self, seconds: float) -> None:
        """Wait before a request is sent again."""
        ...


def is_played(model: "Model") -> bool:
    """Return whether the last answer of a model came from a cassette, and so has cost nothing."""
    return isinstance(model, Taped) and not model.live


def honoured(model: Model, settings: ModelSettings) -> ModelSettings:
    """Return the settings that a model honours; none if it is not `Adjustable`."""
    return settings.only(model.honours(settings) if isinstance(model, Adjustable) else ())


def hosts(model: Model, tool: HostedTool | None) -> bool:
    """Return whether a model's provider carries out a tool itself; no tool of ours is one."""
    return tool is not None and isinstance(model, Hosting) and model.hosts(tool)


Kind = Literal["images", "documents", "audio", "video"]
"""A kind of media that a model can read beside text; documents are PDF and text files."""

KINDS: frozenset[Kind] = frozenset(("images", "documents", "audio", "video"))
READS: frozenset[Kind] = frozenset(("images", "documents"))

UNKNOWN_WINDOW = 32_000
"""The window, in tokens, of a model about which nothing is known.

A server that runs an open model often gives it a smaller window than the model could have, and some servers cut a
longer prompt without notice. A large guess is therefore worse than a small one. A much smaller one would leave no room
for tools and results.
"""

LONGEST_OUTPUT = 128_000
"""The most tokens of one answer of any model that its maker tells of (GPT-5); used for models that tell nothing."""

FREE = ""
"""Stands for the id in the price table if the provider's tokens cost nothing."""


@dataclass(frozen=True, slots=True)
class Family:
    """Models whose names begin alike, and what is known of all of them.

    `window` is used if the price table has none; None means no limit. `maker` is the id of the maker in the price
    table, which is searched too. `answer` is the part of the listed window that a prompt may not use. `output` is the
    most tokens of one answer, if a request does not bound it.
    """

    names: re.Pattern[str]
    takes: frozenset[Kind] = frozenset()
    window: int | None = UNKNOWN_WINDOW
    maker: str = ""
    answer: int = 0
    output: int = LONGEST_OUTPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """The description of a provider; its module or package lists it in `PROVIDERS`.

    `make` is "module:function" (or class), called with the part of a model's name after the colon. `default` is the
    model to use if none is named. `keys` are the environment variables with its key, and `key_begins` is how such a key
    begins. `base_url` is the variable with the address of another server. `package` is its SDK, and `extra` the extra
    that installs it. `prices` is the provider's id in the price table; FREE if its tokens cost nothing, None if their
    price is unknown. `families` are the models that it makes, whichever server runs them. `all_models` describes all
    models that it serves, under any name. `installed` asks a server that has models of its own for their names, which
    takes at most a second, and returns none if the server does not run.
    """

    name: str
    make: str
    about: str
    default: str = ""
    keys: tuple[str, ...] = ()
    key_begins: str = ""
    base_url: str = ""
    package: str = ""
    extra: str = ""
    prices: str | None = None
    families: tuple[Family, ...] = ()
    all_models: Family | None = None
    installed: Callable[[], Sequence[str]] | None = None
