"""The recipe of an agent: a frozen value that any number of sessions may be made of."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

from agentmagic.approval.policy import Permit, policy_of
from agentmagic.errors import UsageError
from agentmagic.messages import Message
from agentmagic.output_schema import Form, form_of
from agentmagic.providers.base import Model
from agentmagic.tools.base import Tool, Toolset
from agentmagic.tools.functions import function_tool

MAX_ITERATIONS = 10
TIMEOUT = 120.0
TOOL_CHOICES = ("auto", "none", "required")
MAX_REPEATS = 3
COMPACT_AT = 0.8
MAX_RESULT = 20_000

ToolSource = Callable[..., Any] | Tool | Toolset
BeforeFinish = Callable[[Message], str | Awaitable[str | None] | None]
Output = type[Any] | Mapping[str, Any]


@dataclass(frozen=True)
class Agent:
    """A recipe: which model, told what, with which tools, within which limits.

    `model` is "provider:model", a `Model`, or None for the first provider whose key is set.
    `tools` are functions, `Tool`s and toolsets; `mcp` are servers (a command, a URL, an entry or a whole
    object of the `mcpServers` form, or a server object). `max_iterations` bounds the model requests of a
    turn, `timeout` its seconds (None for no limit). `tool_choice` is auto, none, required or a tool's
    name; the last two hold for the first step of a turn. `permission` is what becomes of calls that no
    rule speaks about, a `Policy` with rules, or a function of the call and the tool's definition. `on_limit`
    says whether a turn at its limit is closed by a last answer ("answer")
    or just ends ("stop"). `deps` reaches tools as `ToolContext.deps`.

    `max_cost` (US dollars) and `max_tokens` (input and output) end a turn before its next request once they
    are spent. `max_repeats` is how often in a row the same call may be made before the model is told.
    `before_finish` is called with the answer when the model would stop, and may return a prompt to go on
    with, at most 3 times a turn. `output` is a type that pydantic can validate or a JSON Schema: the answer is
    then JSON, and its value the result's `value`. `compact_at` is the share of the model's window at which
    older turns are summarised (None for never), `max_result` the characters of one tool result that the model
    is sent; the rest it can read with a tool (None for all).

    Raises UsageError for a value that cannot be; nothing is connected and no key is looked for.
    """

    model: str | Model | None = None
    instructions: str = ""
    tools: Sequence[ToolSource] = ()
    mcp: Any = field(default=(), repr=False)
    max_iterations: int = MAX_ITERATIONS
    timeout: float | None = TIMEOUT
    tool_choice: str = "auto"
    permission: Permit = "ask"
    on_limit: Literal["answer", "stop"] = "answer"
    deps: Any = field(default=None, repr=False)
    max_cost: float | None = None
    max_tokens: int | None = None
    max_repeats: int = MAX_REPEATS
    before_finish: BeforeFinish | None = field(default=None, repr=False)
    output: Output | None = None
    compact_at: float | None = COMPACT_AT
    max_result: int | None = MAX_RESULT

    def __post_init__(self) -> None:
        if callable(self.tools) or isinstance(self.tools, (Tool, Toolset)):
            message = f"tools is {self.tools!r}. Put it into a list: tools=[...]."
            raise UsageError(message)
        object.__setattr__(self, "tools", tuple(self.tools))
        for source in self.tools:
            _check_source(source)
        if self.mcp:
            from agentmagic.tools.mcp import config

            config.read(self.mcp)
        if not isinstance(cast("object", self.model), (str, Model, type(None))):
            message = f'model is {self.model!r}. Write "provider:model", for example "openai:gpt-5.4".'
            raise UsageError(message)
        _check_whole("max_iterations", self.max_iterations, 1, "A turn needs a whole number of steps, at least 1.")
        _check_whole("max_repeats", self.max_repeats, 2, "Give a whole number, at least 2.")
        _ = self.form  # or raises UsageError
        check_limit("timeout", self.timeout, "seconds")
        check_limit("max_cost", self.max_cost, "US dollars")
        check_limit("max_tokens", self.max_tokens, "a number of tokens")
        check_limit("max_result", self.max_result, "a number of characters")
        check_limit("compact_at", self.compact_at, "a share of the model's window, 0.8 for example,")
        policy_of(self.permission)
        if self.on_limit not in ("answer", "stop"):
            message = f'on_limit is {self.on_limit!r}. Choose "answer" or "stop".'
            raise UsageError(message)

    @cached_property
    def form(self) -> Form | None:
        """The form that answers must have, made of `output` once."""
        return None if self.output is None else form_of(self.output)


def check_limit(name: str, value: object, unit: str) -> None:
    """Raise UsageError for a limit that is neither a number above 0 nor None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
        message = f"{name} is {value!r}. Give {unit} above 0, or None for no limit."
        raise UsageError(message)


def _check_whole(name: str, value: object, least: int, advice: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        message = f"{name} is {value!r}. {advice}"
        raise UsageError(message)


def _check_source(source: object) -> None:
    if isinstance(source, (Tool, Toolset)):
        return
    if not callable(source) or isinstance(source, type):
        message = f"{source!r} is no tool. Give functions, Tool objects or toolsets; MCP servers go into mcp=[...]."
        raise UsageError(message)
    function_tool(source)
