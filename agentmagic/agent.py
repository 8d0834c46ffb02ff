"""`Agent`, a frozen description of an agent that sessions share, and `Connections`, what a session opens for agents."""

import asyncio
import json
import re
import weakref
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from agentmagic import settings
from agentmagic.approval.policy import PolicyLike, policy_of
from agentmagic.classroom import class_settings
from agentmagic.context.rules import with_project
from agentmagic.errors import UsageError
from agentmagic.events import TRIES
from agentmagic.json_schema import check_schema, readable
from agentmagic.messages import Message, ToolDef
from agentmagic.providers.base import (
    WRAPPER_PROPERTY,
    Advising,
    Model,
    ModelSettings,
    OutputSchema,
    ProjectText,
    honoured_settings,
)
from agentmagic.providers.outside import is_outside
from agentmagic.providers.registry import check_address, choose_default, is_made_by_provider, resolve
from agentmagic.runtime.engine import UserLoop, engine, session_loop
from agentmagic.tools import web
from agentmagic.tools.base import Invoke, Tool, Toolset
from agentmagic.tools.functions import NAME, Functions, function_tool
from agentmagic.tools.output_cache import READER

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from agentmagic.tools.mcp.config import Entry

T = TypeVar("T")

MAX_ITERATIONS = 10
TIMEOUT = 120.0
TOOL_CHOICES = ("auto", "none", "required")
MAX_REPEATS = 3
COMPACT_AT = 0.8
MAX_RESULT = 20_000
REPAIRS = 2
"""How often the model is asked to correct an answer that does not fit its schema."""

_BOUND_BY_EXTRA = ("models", "addresses", "servers", "web", "code", "permission")
"""Class settings that a notebook could bypass with an `extra` field in a model request."""

PROMPT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "description": "The task, with all that the agent has to know."}},
    "required": ["prompt"],
    "additionalProperties": False,
}
"""The JSON Schema of an agent tool's arguments."""

BeforeFinish = Callable[[Message], str | Awaitable[str | None] | None]
Output = type[Any] | Mapping[str, Any]


def check_limit(name: str, value: object, unit: str) -> None:
    """Raise UsageError unless a limit is None or a finite number above 0. `name` and `unit` are for the message."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise UsageError(f"{name} is {value!r}. Give {unit} above 0, or None for no limit.")


def _check_whole(name: str, value: object, least: int, advice: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} is {value!r}. {advice}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """Settings for sending a failed model request again: at most `tries` attempts, the first one included.

    `first_wait` is the wait in seconds before the second attempt. It doubles for each later attempt, up to
    `longest_wait`, with up to a second of jitter. If the server asks for a wait (`Retry-After`), that wait is used
    instead, but if it is longer than `longest_retry_after` seconds, the turn fails at once. `statuses` are the HTTP
    statuses after which a request is sent again; None means 408, 409, 429, and 500 or higher. Failures without a
    status, such as a broken stream, do not depend on `statuses`. Raises UsageError for an invalid value.
    """

    tries: int = TRIES
    first_wait: float = 0.5
    longest_wait: float = 30.0
    longest_retry_after: float = 120.0
    statuses: Collection[int] | None = None

    def __post_init__(self) -> None:
        _check_whole("tries", self.tries, 1, "A request needs a whole number of tries, at least 1.")
        for name in ("first_wait", "longest_wait", "longest_retry_after"):
            seconds = getattr(self, name)
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds >= 0:
                raise UsageError(f"{name} is {seconds!r}. Give seconds, 0 or more.")


@dataclass(frozen=True)
class Agent:
    """An agent: which model answers, with which instructions and tools, within which limits.

    `model` is "provider:model", a `Model`, or None for the first provider whose key is set. `tools` are functions,
    `Tool`s, toolsets and other agents (`as_tool`). `mcp` are MCP servers: a command, a URL, an entry or a whole object
    in the `mcpServers` format, a file in that format (read when first needed), or a server object. `max_iterations`
    limits the model requests of a turn, and `timeout` limits its seconds (None for no limit). At `max_iterations`, a
    turn gets one last request for an answer if `on_limit` is "answer", or just ends if it is "stop". `tool_choice` is
    auto, none, required or a tool's name; required and a name apply to the first step of a turn only. `permission`
    decides which tool calls may run: "allow", "ask" or "deny" as the default, a `Policy` with rules, or a function that
    gets the call and the tool's definition. Tools get `deps` as `ToolContext.deps`.

    When `max_cost` (US dollars) or `max_tokens` (input and output) is used up, the turn ends before its next request.
    The model may make the same call `max_repeats` times in a row before the result also warns it. `before_finish` gets
    the final answer. At most 3 times a turn, it may return a prompt with which the turn continues. `output` is a type
    that pydantic can validate or a JSON Schema: the answer is then JSON, and the result's `value` is the validated
    answer. `compact_at` is the share of the context window at which older turns are summarised (None for never).
    `max_result` is how many characters of a tool result are sent to the model (None for all); the model can read the
    rest with a tool. `settings` has temperature, output limit, reasoning and so on; `retry` says which failed requests
    are sent again, and when. With `rules`, the model gets the AGENTS.md and the skills of the project, once the user
    has approved them. Raises UsageError for an invalid value. Creating an agent connects nothing, reads no file and
    looks for no key.
    """

    model: str | Model | None = None
    instructions: str = ""
    tools: "Sequence[ToolSource]" = ()
    mcp: "Entry | Sequence[Entry]" = field(default=(), repr=False)
    max_iterations: int = MAX_ITERATIONS
    timeout: float | None = TIMEOUT
    tool_choice: str = "auto"
    permission: PolicyLike = "ask"
    on_limit: Literal["answer", "stop"] = "answer"
    deps: Any = field(default=None, repr=False)
    max_cost: float | None = None
    max_tokens: int | None = None
    max_repeats: int = MAX_REPEATS
    before_finish: BeforeFinish | None = field(default=None, repr=False)
    output: Output | None = None
    compact_at: float | None = COMPACT_AT
    max_result: int | None = MAX_RESULT
    settings: ModelSettings = ModelSettings()  # noqa: RUF009  (a frozen value)
    retry: RetrySettings = RetrySettings()
    rules: bool = True

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.tools), Iterable) or isinstance(self.tools, (AgentTool, Tool, Toolset)):
            raise UsageError(f"tools is {self.tools!r}. Put it into a list: tools=[...].")
        _check_kinds(self)
        object.__setattr__(self, "tools", tuple(self.tools))
        for source in self.tools:
            _check_source(source)
        if self.mcp:
            _check_servers(self.mcp)
        if not isinstance(cast("object", self.model), (str, Model, type(None))):
            raise UsageError(f'model is {self.model!r}. Write "provider:model", for example "openai:gpt-5.4".')
        _check_whole("max_iterations", self.max_iterations, 1, "A turn needs a whole number of steps, at least 1.")
        _check_whole("max_repeats", self.max_repeats, 2, "Give a whole number, at least 2.")
        _ = self.output_schema  # computed now, to raise UsageError for an invalid `output`
        check_limit("timeout", self.timeout, "seconds")
        check_limit("max_cost", self.max_cost, "US dollars")
        check_limit("max_tokens", self.max_tokens, "a number of tokens")
        check_limit("max_result", self.max_result, "a number of characters")
        check_limit("compact_at", self.compact_at, "a share of the model's window, 0.8 for example,")
        for name, kind in (("settings", ModelSettings), ("retry", RetrySettings)):
            if not isinstance(getattr(self, name), kind):
                raise UsageError(f"{name} is {getattr(self, name)!r:.80}. Write {name}={kind.__name__}(...).")
        policy_of(self.permission)
        if self.on_limit not in ("answer", "stop"):
            raise UsageError(f'on_limit is {self.on_limit!r}. Choose "answer" or "stop".')

    @cached_property
    def output_schema(self) -> OutputSchema | None:
        """The schema that the agent's answers must fit, computed once from `output`; None if `output` is None."""
        return None if self.output is None else output_schema(self.output)

    @property
    def whole_instructions(self) -> str:
        """The agent's instructions, followed by a description of the answer's form if the field `output` is set."""
        return self.instructed(())

    def instructed(self, project: Sequence[ProjectText]) -> str:
        """Return the instructions, then the texts of a project's files (AGENTS.md), then the answer's form."""
        schema, text = self.output_schema, with_project(self.instructions, project)
        return text if schema is None else f"{text}\n\n{schema.instructions}".lstrip()

    def own_tools(self) -> list[Tool]:
        """Return a `Tool` for each function and `Tool` in `tools`; other agents and toolsets in it are left out."""
        single = [source for source in self.tools if not isinstance(source, (AgentTool, Toolset))]
        return [source if isinstance(source, Tool) else function_tool(source) for source in single]

    @property
    def agent_tools(self) -> "list[AgentTool]":
        """The other agents that this agent can call as tools."""
        return [source for source in self.tools if isinstance(source, AgentTool)]

    def as_tool(
        self,
        name: str,
        description: str,
        *,
        max_cost: float | None = None,
        max_tokens: int | None = None,
        ask: bool = False,
    ) -> "AgentTool":
        """Return this agent as a tool, for the `tools` of another agent.

        The other agent's model calls the tool `name` with a prompt and gets this agent's answer; `description` tells
        the model when to call it. Each call starts a new conversation, in a turn inside the caller's turn. Its cost
        counts for the caller's turn too. The budgets and the timeout of that turn limit the call, and so do `max_cost`
        (US dollars) and `max_tokens`. This agent's own `permission` decides about its tool calls. With `ask`, the user
        is also asked before each call of this agent. Agents can be nested at most 3 deep. Raises UsageError for a name
        that models cannot call, an empty description, and a limit that is not above 0.
        """
        return AgentTool(self, name, description, max_cost=max_cost, max_tokens=max_tokens, ask=ask)


@dataclass(frozen=True, slots=True)
class AgentTool:
    """An agent that other agents can call as a tool. `Agent.as_tool` makes it and explains the fields.

    It is only a description, from which each session makes its own `Tool`. Raises UsageError for an invalid value.
    """

    agent: Agent = field(repr=False)
    name: str
    description: str
    max_cost: float | None = field(default=None, kw_only=True)
    max_tokens: int | None = field(default=None, kw_only=True)
    ask: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.agent), Agent):
            raise UsageError(f"agent is {self.agent!r:.80}. Give an Agent, or write AGENT.as_tool(...).")
        name, description = cast("object", self.name), cast("object", self.description)
        if not isinstance(name, str) or not NAME.fullmatch(name) or name == READER:
            raise UsageError(
                f"{name!r:.80} cannot name an agent tool. Give a name that models can call: at most 64 letters, "
                "digits, _ and -, no digit first, for example researcher."
            )
        if not isinstance(description, str) or not description.strip():
            raise UsageError(
                f"The agent tool {name} has no description. Say what the agent can do: a model asks it by that."
            )
        check_limit("max_cost", self.max_cost, "US dollars")
        check_limit("max_tokens", self.max_tokens, "a number of tokens")

    @property
    def definition(self) -> ToolDef:
        """The tool's name, description and parameter schema that are sent to the calling agent's model."""
        return ToolDef(self.name, self.description, PROMPT_SCHEMA)

    def tool(self, invoke: Invoke, now: Callable[[], ToolDef]) -> Tool:
        """Return a tool that runs this agent by calling `invoke`. `now` returns the tool's present definition."""
        # No timeout for the tool itself: the called agent's turn has one, and ends cleanly when it is cancelled.
        return Tool(self.definition, invoke, timeout=None, ask=self.ask, now=now, agent=True)


ToolSource = Callable[..., Any] | Tool | Toolset | AgentTool


def _check_kinds(agent: Agent) -> None:
    for name in ("instructions", "tool_choice"):
        if not isinstance(value := getattr(agent, name), str):
            message = f"{name} is {value!r:.80}. Give a text, or leave it out."
            raise UsageError(message)
    if not isinstance(cast("object", agent.rules), bool):
        message = f"rules is {agent.rules!r:.80}. Give True or False."
        raise UsageError(message)
    if agent.before_finish is not None and not callable(agent.before_finish):
        message = f"before_finish is {agent.before_finish!r:.80}. Give a function of the answer, or None."
        raise UsageError(message)


def _check_source(source: object) -> None:
    if isinstance(source, Tool) and (problem := check_schema(source.name, source.definition.parameters)):
        raise UsageError(problem)
    if isinstance(source, (AgentTool, Tool, Toolset)):
        return
    if isinstance(source, Agent):
        raise UsageError('An agent in tools needs a name and a description: agent.as_tool("researcher", "Finds ...").')
    if not callable(source) or isinstance(source, type):
        message = f"{source!r} is no tool. Give functions, Tool objects or toolsets; MCP servers go into mcp=[...]."
        raise UsageError(message)
    function_tool(source)


def _check_servers(mcp: "Entry | Sequence[Entry]") -> None:
    """Raise ConfigError for an invalid MCP server entry. Configuration files are read later, before the first turn."""
    from agentmagic.tools.mcp import config

    for entry in mcp if isinstance(mcp, list | tuple) else (mcp,):
        if not (isinstance(entry, Path) or (isinstance(entry, str) and entry.endswith(".json"))):
            config.read(entry)


# -- the schema of answers -------------------------------------------------------------------------------

_SHARED = ("$defs", "definitions")
"""The keys of a schema with shared definitions. They must stay at the root, because each `$ref` points there."""


def output_schema(output: Any) -> OutputSchema:
    """Return the answer schema for a type that pydantic can validate or a JSON Schema, else raise UsageError."""
    if isinstance(output, str):  # refused, since pydantic would read a text as the name of a type
        message = f"output is {output!r:.80}, a text. Give the type itself, for example output=str, or a JSON Schema."
        raise UsageError(message)
    if isinstance(output, Mapping):
        schema = dict(cast("Mapping[str, Any]", output))
        name, adapter = str(schema.get("title", "answer")), None
    else:
        name, adapter = getattr(output, "__name__", "answer"), _adapter(output)
        schema = adapter.json_schema()
    # Providers need "type" at the root of a schema, so a root that is only a `$ref` is replaced by what it refers to.
    target = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if target in schema.get("$defs", {}):
        schema = {**schema["$defs"][target], "$defs": schema["$defs"]}
    is_wrapped = schema.get("type") != "object"
    whole = _wrap(schema) if is_wrapped else schema
    if problem := check_schema("output", whole):
        raise UsageError(problem)
    legal = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:64] or "answer"  # OpenAI's rule for schema names, the strictest
    return OutputSchema(legal, whole, partial(_convert, adapter, is_wrapped), WRAPPER_PROPERTY if is_wrapped else "")


def _adapter(output: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        adapter = TypeAdapter(readable(output))
        adapter.json_schema()
    except (PydanticUserError, NameError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"output is {output!r:.80}, of which no JSON Schema can be made: {reason}") from None
    return adapter


def _wrap(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object whose only property has the given schema; its `$defs` stay at the top level."""
    inner = {key: value for key, value in schema.items() if key not in (*_SHARED, "$id", "$schema")}
    whole = {
        "type": "object",
        "properties": {WRAPPER_PROPERTY: inner},
        "required": [WRAPPER_PROPERTY],
        "additionalProperties": False,
    }
    return cast("dict[str, Any]", _retarget_references(whole | {key: schema[key] for key in _SHARED if key in schema}))


def _retarget_references(schema: Any) -> Any:
    """Return a schema after it was wrapped in a property: each `$ref` to "#" now points to this property."""
    if isinstance(schema, list):
        return [_retarget_references(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    entries = cast("dict[str, Any]", schema)
    result = {key: _retarget_references(item) for key, item in entries.items()}
    return result | {"$ref": f"#/properties/{WRAPPER_PROPERTY}"} if entries.get("$ref") == "#" else result


def _convert(adapter: "TypeAdapter[Any] | None", is_wrapped: bool, data: Any) -> Any:
    """Convert the JSON data of an answer to the agent's `output` type. Raises ValueError if it does not validate."""
    inner = data[WRAPPER_PROPERTY] if is_wrapped else data
    if adapter is None:
        return inner
    from pydantic import ValidationError

    try:
        # Given to pydantic as JSON text, because strict types do not accept a date or a tuple as a Python str or list.
        return adapter.validate_json(json.dumps(inner))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ValueError(f"{where or 'the value'}: {first['msg']}") from None


def has_default_timeout(agent: Agent) -> bool:
    """Return whether neither the user nor a teacher or administrator has set the timeout of an agent's turns."""
    return agent.timeout == TIMEOUT and class_settings().timeout is None


def _check_class(agent: Agent, model: Model) -> None:
    """Raise UsageError if a teacher or administrator forbids the model, or if its object could fake its name."""
    bounds = class_settings()
    choice = settings.model_override() or agent.model
    # An outside agent is a command. Its model's `name` lacks the command's folders, so the text of `choice` is checked.
    name = choice if isinstance(choice, str) and is_outside(choice) else model.name
    bounds.check_model(name, settings.MODEL if settings.model_override() else "")
    web.check_model(model.name)
    _check_extra(agent.settings.beyond_sampling)
    setting = bounds.first_set(("models", "addresses"))
    if setting is not None and not is_made_by_provider(model):
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        has = f"{bounds.scope(setting)} has {bounds.setting_with_file(setting)}"
        raise UsageError(
            f"The model {model.name} is an object of {kind}, which is not of that provider, and {has}. "
            "Name the model as a text."
        )
    check_address(model)


def _check_extra(names: Sequence[str]) -> None:
    """Raise UsageError if the fields `names` of `extra` could bypass a limit that a teacher or administrator set."""
    bounds = class_settings()
    if names and (limit := bounds.first_set(_BOUND_BY_EXTRA)) is not None:
        raise UsageError(
            f"The setting extra has {names[0]!r}, which may do more than shape the answer, and {bounds.scope(limit)} "
            f"has {bounds.setting_with_file(limit)}. Leave it out."
        )


# -- connections of a session ----------------------------------------------------------------------------


class Connections:
    """The models and servers that a session has opened, each only once, and the event loop for the user's coroutines.

    This object is separate from the session, so that it can close them after the session was garbage-collected.
    """

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._servers: list[tuple[Any, Toolset]] = []
        self._user_loop = UserLoop()

    async def with_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`. The user's `async` functions that `work` calls run on the event loop of this session."""
        session_loop.set(self._user_loop)
        return await work

    def model(self, agent: Agent) -> Model:
        """Return the model that an agent would use: that of `AGENTMAGIC_MODEL`, else the agent's, else the default.

        Raises UnknownModel, MissingExtra, AuthenticationMissing (no model and no key), UsageError (model not allowed).
        """
        choice = settings.model_override() or agent.model or choose_default()
        if isinstance(choice, str) and choice not in self._models:
            self._models[choice] = resolve(choice)
        model = self._models[choice] if isinstance(choice, str) else choice
        _check_class(agent, model)
        return model

    def notes(self, agent: Agent, model: Model) -> list[str]:
        """Return notes about an agent's model, which the session shows once.

        A note names a setting that the model ignores, a permission that class settings override, or the model's advice.
        """
        honoured_names = honoured_settings(model, agent.settings).given
        left_out = [name for name in agent.settings.given if name not in honoured_names]
        notes = [f"{model.name} takes no {name}, so it is asked without that setting." for name in left_out]
        policy, bounds = policy_of(agent.permission), class_settings()
        if bounds.permission and "allow" in (policy.default, *(rule.verdict for rule in policy.rules)):
            notes.append(
                f"The agent's permission lets tools run unasked, and {bounds.scope('permission')} does not: "
                f"{bounds.setting_with_file('permission')}."
            )
        if isinstance(model, Advising) and (advice := model.advice()):
            notes.append(advice)
        return notes

    def toolsets(self, agent: Agent) -> tuple[Toolset, ...]:
        """Return an agent's tools and servers as toolsets, without agent tools. Raises ConfigError for a bad file."""
        own = agent.own_tools()
        sources = [source for source in agent.tools if isinstance(source, Toolset)]
        servers = [self._servers_for(agent.mcp)] if agent.mcp else []
        return (*([Functions(own)] if own else []), *sources, *servers)

    def _servers_for(self, mcp: "Entry | Sequence[Entry]") -> Toolset:
        for entry, servers in self._servers:
            if entry is mcp or entry == mcp:
                return servers
        from agentmagic.tools.mcp import McpServers, config

        servers = McpServers(config.read(mcp))
        self._servers.append((mcp, servers))
        return servers

    def close_after(self, owner: object) -> None:
        """Arrange that all connections are closed when `owner` is garbage-collected, or before the process ends."""
        engine().at_close(self.aclose)
        weakref.finalize(owner, self._close_later).atexit = False

    def _close_later(self) -> None:
        engine().submit(self.aclose())

    async def aclose(self) -> None:
        """Close all connections, on the engine's event loop. If one cannot be closed, the others are still closed."""
        engine().forget(self.aclose)
        self._user_loop.close()
        connections = (*self._models.values(), *(servers for _, servers in self._servers))
        errors = await asyncio.gather(*(one.aclose() for one in connections), return_exceptions=True)
        for error in filter(None, errors):
            raise error
