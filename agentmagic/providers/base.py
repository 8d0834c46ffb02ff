"""The interface between agentmagic and a model provider.

Defines the protocol `Model`, the class `Request`, and the class `Provider`, which describes a provider. A model
receives a request. It yields the events for each part of its answer, and one closing event.
"""

import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Protocol, cast, get_args, runtime_checkable

from agentmagic.errors import UsageError
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.json_schema import misfit
from agentmagic.messages import HostedTool, Message, ToolCall, ToolDef, ToolResult, Usage

_CODE_BLOCK = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)\n[^\S\n]*```", re.DOTALL)
WRAPPER_PROPERTY = "value"
"""The name of the property that holds a requested value that is not an object, as providers require an object."""


def _as_it_is(data: Any) -> Any:
    return data


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """The form in which a model must answer: a JSON Schema of type object, with a name that providers accept.

    `convert` turns the JSON data into the value for the caller, and raises ValueError for data that it cannot convert.
    If the requested value is not an object, the answer is an object with that value as its only property. `wrapped_in`
    is the name of this property; `read` also accepts an answer that is the value alone.
    """

    name: str
    schema: Mapping[str, Any]
    convert: Callable[[Any], Any] = _as_it_is
    wrapped_in: str = ""

    @property
    def instructions(self) -> str:
        """A sentence for the prompt with the answer's schema. It is needed if the provider does not enforce it."""
        schema = json.dumps(self.schema, ensure_ascii=False)
        return f"Your final answer is one JSON object and nothing else, valid under this JSON Schema: {schema}"

    def read(self, text: str) -> Any:
        """Return the value in a model's answer, converted for the caller.

        Raises ValueError, with a message for the model, if the answer is not valid under the schema.
        """
        data = answer_data(text)
        problem = misfit(self.schema, data)
        if problem and self.wrapped_in and not misfit(self.schema, {self.wrapped_in: data}):
            data, problem = {self.wrapped_in: data}, None
        if problem:
            raise ValueError(problem)
        return self.convert(data)


def answer_data(text: str) -> Any:
    """Return the JSON data of an answer. Raises ValueError if the answer is not JSON."""
    # Models often put JSON into a fenced code block, with or without text around the block.
    block = _CODE_BLOCK.search(text)
    try:
        return json.loads(block[1] if block and not text.lstrip().startswith(("{", "[")) else text)
    except (ValueError, RecursionError):
        message = "it is not JSON"
        raise ValueError(message) from None


Effort = Literal["none", "low", "medium", "high"]

_INNER = "generationConfig"
"""The field of Gemini's requests that is an object itself. One of its fields can name another model."""
SAMPLING = frozenset(
    f"{_INNER} candidateCount chat_template_kwargs enable_thinking frequencyPenalty frequency_penalty logit_bias "
    "logprobs maxOutputTokens max_completion_tokens max_output_tokens max_tokens min_p options output_config "
    "parallel_tool_calls presencePenalty presence_penalty reasoning reasoning_effort repetition_penalty "
    "responseLogprobs safetySettings seed service_tier stop stopSequences stop_sequences stream_options temperature "
    "text think thinking thinkingConfig thinking_budget top_k top_logprobs top_p topK topP truncation "
    "verbosity".split()
)
"""The fields of `extra` that only affect how an answer is written, at every provider.

None of them can name a tool, a server or a model. `options` is a field of Ollama's requests. Before you add a field
here, check what gateways do with it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Settings for how a model answers; None leaves a setting to the provider.

    `max_output_tokens` limits one response, reasoning included. `reasoning` is the effort: "none", "low", "medium" or
    "high". `extra` has further fields of the provider's API, which are merged into the body of each request; a field
    with the value None is removed from the body.

    `a | b` has the settings of `b`. A setting that `b` leaves to the provider is taken from `a`. The fields of both
    `extra` are merged. Raises UsageError for an invalid value.
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
            text = json.dumps(self.extra, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            text = ""
        if not text.startswith("{"):
            message = f"extra is {self.extra!r:.80}. Give a dict of JSON values."
            raise UsageError(message)

    def __or__(self, other: "ModelSettings") -> "ModelSettings":
        values: dict[str, Any] = {name: getattr(other if name in other.given else self, name) for name in SETTINGS}
        values["extra"] = merge(self.extra, other.extra, nulls=True)
        return ModelSettings(**values)

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the settings that have a value, and so are not left to the provider."""
        return tuple(name for name in SETTINGS if getattr(self, name) not in (None, {}))

    @property
    def beyond_sampling(self) -> list[str]:
        """The names of fields that are not in `SAMPLING`, from `extra` and from its field `generationConfig`.

        Such a field is not known to be harmless: it could make a server do anything.
        """
        inner = self.extra.get(_INNER)
        names = {*self.extra, *(cast("Mapping[str, Any]", inner) if isinstance(inner, Mapping) else ())}
        return sorted(names - SAMPLING)

    def under(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the values of the settings that are set, each under the provider's name for it.

        `names` maps the attributes of this class to the provider's names. Attributes not in `names` are left out.
        """
        return {names[name]: getattr(self, name) for name in self.given if name in names}

    def only(self, names: Collection[str]) -> "ModelSettings":
        """Return a copy that has only the settings in `names`; all other settings are left to the provider."""
        return ModelSettings(**{name: getattr(self, name) for name in self.given if name in names})


SETTINGS: tuple[str, ...] = tuple(one.name for one in fields(ModelSettings))


def _check_setting(name: str, value: Any, kinds: tuple[type, ...], least: int, advice: str) -> None:
    if value is None or (isinstance(value, kinds) and not isinstance(value, bool) and least <= value < float("inf")):
        return
    message = f"{name} is {value!r}. Give {advice}, or None to leave it to the provider."
    raise UsageError(message)


def merge(body: Mapping[str, Any], extra: Mapping[str, Any], *, nulls: bool = False) -> dict[str, Any]:
    """Return a copy of a request body with the fields of `extra`. Objects are merged, other values are replaced.

    A field that is None in `extra` is removed from the copy, or set to None there if `nulls` is True.
    """
    both = dict(body)
    for key, value in extra.items():
        if isinstance(value, Mapping):
            old = both.get(key)
            one = cast("Mapping[str, Any]", old if isinstance(old, Mapping) else {})
            both[key] = merge(one, cast("Mapping[str, Any]", value), nulls=nulls)
        elif value is None and not nulls:
            both.pop(key, None)
        else:
            both[key] = value
    return both


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """A decision that the model must make in a planned turn, in which the model first writes a list of tasks.

    A model with its own prompts for such decisions reads this object. Other models read the last message of the
    request, which asks for the same decision in words. `kind` says what to decide: how to begin ("route"), the tasks
    ("plan"), the arguments of a call ("parameters"), or whether the last call did its task ("judgement"). Except for
    "parameters", the name of the request's `output` is the same as `kind`. `question` is the user's question. `tool` is
    the tool of the current task. `calls` are the calls so far, each with its result; a "judgement" is about the last.
    """

    kind: Literal["route", "plan", "parameters", "judgement"]
    question: str
    tool: ToolDef | None = None
    calls: tuple[tuple[ToolCall, ToolResult], ...] = ()


@dataclass(frozen=True, slots=True)
class ProjectText:
    """A file of the user's project whose `text` is part of the instructions for the model.

    `file` is its path relative to the project's root. `kind` is "rules" or "skill". `digest` is a hash of all the
    content that `text` was made from.
    """

    kind: str
    file: str
    digest: str
    text: str


@dataclass(frozen=True, slots=True)
class Request:
    """One model request, independent of the provider.

    `messages` is a valid history: after each message with tool calls comes a message of role "tool" that answers all
    of them. `tool_choice` is "auto", "none", "required" or the name of one of `tools`. `output` requests an answer in
    JSON that matches this schema. Not every model obeys, so the agent loop checks the answer. `settings` has only
    settings that the model `honours`. `decision` is set if the request asks for a decision of a planned turn. `hosted`
    are tools that the provider runs on its own servers. `project` are the files whose texts are in `instructions`.
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
    """The event that ends a complete response; `reason` is the provider's own word for why the response ended.

    `usage` counts the tokens of this one request; `registry` adds the cost. `cut` is True if the response stopped at a
    length limit, so that its last part can be incomplete. `once` is False if the provider generated several times for
    this response, so that `usage` counts the conversation more than once. `last` is True if the turn ends after the
    tool calls of this response, without another answer. `model` is the provider's name of the model that answered, or
    "" if it is unknown. `refused` is True if the provider marks the text as a refusal, and not as an answer. `unknown`
    is True if `reason` is a word that `finish_reasons` does not know, so that the response can be incomplete.
    """

    type: ClassVar[str] = "model_finished"
    usage: Usage
    reason: str = ""
    cut: bool = False
    once: bool = True
    # `last` is True only from the model whose tool calls an MCP client of the notebook has chosen.
    last: bool = field(default=False, repr=False)
    model: str = field(default="", repr=False, compare=False)
    refused: bool = field(default=False, repr=False)
    unknown: bool = field(default=False, repr=False)


ModelEvent = PartStarted | PartDelta | PartFinished | ModelFinished


@runtime_checkable
class Model(Protocol):
    """A model of a provider.

    `name` is "provider:model". `stream` yields the events of one response. Each part of the response gives a
    `PartStarted`, a `PartDelta` for each piece, and a `PartFinished` with the whole part. The parts have indices from
    0, in the order in which they start. A part that begins as text can be finished as reasoning. The closing event is a
    `ModelFinished`.

    If a response ends before its closing event, `stream` raises `StreamBroken`. If a tool call cannot be read, it
    raises `MalformedCall`. Every other failure is another `ProviderError`. `stream` does not retry. Cancelling the task
    that iterates ends the request at once.
    """

    @property
    def name(self) -> str:
        """The full name, "provider:model"."""
        ...

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Send the request and yield the events of the answer."""
        ...

    async def aclose(self) -> None:
        """Close open connections. Can be called more than once."""
        ...


busy_with: ContextVar[Callable[[str], None]] = ContextVar("agentmagic_busy_with", default=lambda _text: None)
"""Shows the user what a model that is being prepared is at, such as "loading the weights". From any thread."""


@runtime_checkable
class Preparing(Protocol):
    """A model that must be downloaded or loaded before its first request. The turn's time limit is paused meanwhile.

    The model can tell the user what it is at with `busy_with`.
    """

    async def prepare(self) -> None:
        """Download or load the model. Returns at once if the model is ready."""
        ...


@runtime_checkable
class Advising(Protocol):
    """A model that can advise the user to choose a better model."""

    def advice(self) -> str:
        """Return a sentence for the user about better models, or "". The first call in a process takes up to 50 ms."""
        ...


@runtime_checkable
class FewTools(Protocol):
    """A model that can handle only a small number of tools in one turn."""

    def choose(self, tools: Sequence[ToolDef], question: str) -> Sequence[ToolDef]:
        """Return those `tools` that the model is offered in a turn with this user question."""
        ...


@runtime_checkable
class Hosted(Protocol):
    """A model on a server with an address. The price of its tokens depends on that address."""

    @property
    def base_url(self) -> str:
        """The address that requests are sent to."""
        ...


@runtime_checkable
class Adjustable(Protocol):
    """A model that accepts settings. The user is told which settings the model cannot honour."""

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of those `settings` that the model honours. The caller leaves the others out of requests."""
        ...


@runtime_checkable
class Hosting(Protocol):
    """A model whose provider runs some tools on its own servers while the model answers."""

    def hosts(self, tool: HostedTool) -> bool:
        """Return whether the provider runs this tool itself, with the domains and limits that `tool` requests."""
        ...


@runtime_checkable
class Metered(Protocol):
    """A model that knows the cost of its answers: it replays a recording, or has an answer from a batch."""

    def price_usage(self, usage: Usage) -> Usage:
        """Return the usage of one request, with its cost."""
        ...


@runtime_checkable
class Taped(Protocol):
    """A model whose answers are written to a cassette (a file of requests and answers), or are read from it.

    `live` says whether the last request was sent to the real model. A model that plays a cassette can switch to the
    real model at the first request that differs from the recording.
    """

    live: bool

    @property
    def real(self) -> "Model | None":
        """The model that requests are sent to, or None if the cassette answers."""
        ...

    async def rest(self, seconds: float) -> None:
        """Wait this many seconds before the agent loop sends a failed request again. A replay need not wait."""
        ...


def is_played(model: "Model") -> bool:
    """Return whether the last answer of a model was played from a cassette (a recording), and so has cost nothing."""
    return isinstance(model, Taped) and not model.live


def honoured_settings(model: Model, settings: ModelSettings) -> ModelSettings:
    """Return the settings that a model honours. A model that is not `Adjustable` honours none."""
    return settings.only(model.honours(settings) if isinstance(model, Adjustable) else ())


def hosts(model: Model, tool: HostedTool | None) -> bool:
    """Return whether a model's provider runs `tool` itself. `tool` is None for a tool that only agentmagic runs."""
    return tool is not None and isinstance(model, Hosting) and model.hosts(tool)


Kind = Literal["images", "documents", "audio", "video"]
"""A kind of media that a model can read in addition to text; documents are PDF and text files."""

KINDS: frozenset[Kind] = frozenset(("images", "documents", "audio", "video"))
READS: frozenset[Kind] = frozenset(("images", "documents"))

UNKNOWN_WINDOW = 32_000
"""The window, in tokens, of a model about which nothing is known.

A server that runs an open model often gives it a smaller window than the model could have, and some servers cut a
longer prompt without notice. A large guess is therefore worse than a small one. A much smaller one would leave no room
for tools and results.
"""

LONGEST_OUTPUT = 128_000
"""The largest published limit of tokens in one answer (GPT-5); used for models whose limit is unknown."""

FREE = ""
"""The value of `Provider.prices` if the provider's tokens cost nothing."""


@dataclass(frozen=True, slots=True)
class Family:
    """A group of models whose names match one pattern, and the facts that are true for all of them.

    `takes` are the media that they read. `window` is the context window in tokens if the price table lists none; None
    means no limit. `maker` is the id under which the price table lists the maker of the models. `answer` is the number
    of tokens in the listed context window that only the answer can use, not the prompt. `output` is the most tokens
    that one answer can have if the request sets no limit.
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

    `make` is "module:function" or "module:class". It is called with the part of a model's name after the colon.
    `default` is the model to use if the name has no such part. `keys` are the environment variables that can hold the
    API key, and `key_begins` is the beginning of such a key. `base_url` is the environment variable in which the user
    can set the address of another server. `package` is the SDK's module, and `extra` is the extra of agentmagic that
    installs the SDK. `prices` is the provider's id in the price table, FREE if its tokens cost nothing, or None if
    their price is unknown. `families` describes the models that the provider makes, on any server. `all_models` has
    the facts for every model of the provider, if these facts do not depend on the model's name. `installed` returns
    the names of the models that are installed on a server such as Ollama. It takes a second at most, and returns an
    empty list if no server runs.
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
