"""The recipe of an agent: a frozen value that any number of sessions may use, and what its sessions open for it."""

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
from agentmagic.providers.base import WRAPPED, Advising, Model, ModelSettings, OutputSchema, ProjectText, honoured
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
"""How often an answer that does not fit its schema is sent back to be repaired."""

_BOUND_BY_EXTRA = ("models", "addresses", "servers", "web", "code", "permission")
"""The settings of a class that a field of a request could get around."""

PROMPT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "description": "The task, with all that the agent has to know."}},
    "required": ["prompt"],
    "additionalProperties": False,
}
"""The arguments of an agent tool."""

BeforeFinish = Callable[[Message], str | Awaitable[str | None] | None]
Output = type[Any] | Mapping[str, Any]


def check_limit(name: str, value: object, unit: str) -> None:
    """Raise UsageError for a limit that is neither a finite number above 0 nor None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise UsageError(f"{name} is {value!r}. Give {unit} above 0, or None for no limit.")


def _check_whole(name: str, value: object, least: int, advice: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"{name} is {value!r}. {advice}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """When a failed model request is sent again: `tries` in all, the first one included.

    `first_wait` is the seconds before the second try, doubled for each later one up to `longest_wait`, with up to a
    second of jitter. A server that names a wait (`Retry-After`) is obeyed up to `longest_retry_after` seconds; if it
    asks for more, the turn fails at once. `statuses` are the HTTP statuses to try again on; None means 408, 409, 429
    and those from 500 on. Failures without a status, such as a broken stream, do not depend on it.

    Raises UsageError for an invalid value.
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
    """A recipe: which model, with which instructions and tools, within which limits.

    `model` is "provider:model", a `Model`, or None for the first provider whose key is set.
    `tools` are functions, `Tool`s, toolsets and other agents (`as_tool`). `mcp` are servers: a command, a URL, an entry
    or a whole object of the `mcpServers` form, a file of it, or a server object. Files are read when the servers are
    first needed. `max_iterations` bounds the model requests of a turn, `timeout` its seconds (None for no limit).
    `tool_choice` is auto, none, required or a tool's name; the last two hold for the first step of a turn. `permission`
    decides calls: a word for those that no rule fits, a `Policy` with rules, or a function of the call and the tool's
    definition. `on_limit` says whether a turn at its limit is closed by a last answer ("answer") or just ends ("stop").
    `deps` reaches tools as `ToolContext.deps`.

    `max_cost` (US dollars) and `max_tokens` (input and output) end a turn before its next request when they are
    used up. `max_repeats` is how often in a row the same call may be made before the model is told.
    `before_finish` is called with the answer when the model would stop, and may return a prompt to go on with, at
    most 3 times a turn. `output` is a type that pydantic can validate or a JSON Schema: the answer is then JSON, and
    its value the result's `value`. `compact_at` is the share of the model's window at which older turns are
    summarised (None for never). `max_result` is the number of characters of one tool result that the model is sent
    (None for all); it can read the rest with a tool. `settings` are temperature, limit of output, reasoning and the
    like, `retry` says which failed requests are sent again, and when. With `rules` the model is told what the project
    around the notebook says in AGENTS.md and in its skills, once the user has approved it.

    Raises UsageError for an invalid value. Nothing is connected, no file is read and no key is looked for.
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
        _ = self.output_schema  # raises UsageError
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
        """The schema of answers, made of `output` once."""
        return None if self.output is None else output_schema(self.output)

    @property
    def whole_instructions(self) -> str:
        """The instructions, with the form of the answer in words if it has one."""
        return self.instructed(())

    def instructed(self, project: Sequence[ProjectText]) -> str:
        """Return the whole instructions, with what the files of a project say."""
        schema, said = self.output_schema, with_project(self.instructions, project)
        return said if schema is None else f"{said}\n\n{schema.instructions}".lstrip()

    def own_tools(self) -> list[Tool]:
        """Return the functions and `Tool`s of the recipe as tools; agents, toolsets and servers are not among them."""
        single = [source for source in self.tools if not isinstance(source, (AgentTool, Toolset))]
        return [source if isinstance(source, Tool) else function_tool(source) for source in single]

    @property
    def agent_tools(self) -> "list[AgentTool]":
        """The other agents that this one may ask."""
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

        The model of the other agent calls `name` with a prompt, as `description` tells it to, and gets the answer. Each
        call begins a new conversation, in a turn inside the turn of the call. What it spends counts there too, and is
        bounded by the budgets and the time of that turn, and by `max_cost` (US dollars) and `max_tokens` for each call.
        The user is asked about what this agent does by its own permission. With `ask` the user is also asked before the
        agent is. An agent may ask others, 3 deep at most.

        Raises UsageError for a name that models cannot call, an empty description, and a limit that is not above 0.
        """
        return AgentTool(self, name, description, max_cost=max_cost, max_tokens=max_tokens, ask=ask)


@dataclass(frozen=True, slots=True)
class AgentTool:
    """An agent as a tool of other agents: a description that each session opens; `Agent.as_tool` has more.

    Raises UsageError for an invalid value.
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
        """The tool as a model sees it."""
        return ToolDef(self.name, self.description, PROMPT_SCHEMA)

    def tool(self, invoke: Invoke, now: Callable[[], ToolDef]) -> Tool:
        """Return the tool that asks the agent by `invoke`; `now` is that of `Tool`."""
        # Without a time limit of the call: the turn inside has its own, and ends itself when it is cancelled.
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
    """Raise ConfigError for a server that cannot be. Files are left unread: they may change before the first turn."""
    from agentmagic.tools.mcp import config

    for entry in mcp if isinstance(mcp, list | tuple) else (mcp,):
        if not (isinstance(entry, Path) or (isinstance(entry, str) and entry.endswith(".json"))):
            config.read(entry)


# -- the schema of answers -------------------------------------------------------------------------------

_SHARED = ("$defs", "definitions")
"""The definitions of a schema, which stay at its root, where `$ref` looks for them."""


def output_schema(output: Any) -> OutputSchema:
    """Make the schema of answers from a type that pydantic can validate, or from a JSON Schema.

    Raises UsageError for anything else.
    """
    if isinstance(output, str):  # pydantic would take it for the name of a type
        message = f"output is {output!r:.80}, a text. Give the type itself, for example output=str, or a JSON Schema."
        raise UsageError(message)
    if isinstance(output, Mapping):
        schema = dict(cast("Mapping[str, Any]", output))
        name, adapter = str(schema.get("title", "answer")), None
    else:
        name, adapter = getattr(output, "__name__", "answer"), _adapter(output)
        schema = adapter.json_schema()
    # Providers look at the root, so a root that only refers to a definition is replaced by that definition.
    target = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if target in schema.get("$defs", {}):
        schema = {**schema["$defs"][target], "$defs": schema["$defs"]}
    wrapped = schema.get("type") != "object"
    whole = _wrap(schema) if wrapped else schema
    if problem := check_schema("output", whole):
        raise UsageError(problem)
    legal = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:64] or "answer"  # OpenAI's rule for names, the strictest
    return OutputSchema(legal, whole, partial(_convert, adapter, wrapped), WRAPPED if wrapped else "")


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
    """Put a schema below the one property of an object; its definitions stay at the root."""
    inner = {key: value for key, value in schema.items() if key not in (*_SHARED, "$id", "$schema")}
    whole = {"type": "object", "properties": {WRAPPED: inner}, "required": [WRAPPED], "additionalProperties": False}
    return cast("dict[str, Any]", _moved(whole | {key: schema[key] for key in _SHARED if key in schema}))


def _moved(schema: Any) -> Any:
    """Change references to the root so that they point to its new place."""
    if isinstance(schema, list):
        return [_moved(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    entries = cast("dict[str, Any]", schema)
    moved = {key: _moved(item) for key, item in entries.items()}
    return moved | {"$ref": f"#/properties/{WRAPPED}"} if entries.get("$ref") == "#" else moved


def _convert(adapter: "TypeAdapter[Any] | None", wrapped: bool, data: Any) -> Any:
    """Return the value of an answer's data. Raises ValueError if the type's own validation refuses it."""
    inner = data[WRAPPED] if wrapped else data
    if adapter is None:
        return inner
    from pydantic import ValidationError

    try:
        # From JSON rather than from objects: strict types then still take a date or a tuple.
        return adapter.validate_json(json.dumps(inner))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise ValueError(f"{where or 'the value'}: {first['msg']}") from None


def _check_class(agent: Agent, model: Model) -> None:
    """Raise UsageError for a model that the class does not allow, whatever calls itself so."""
    bounds = class_settings()
    written = settings.model_override() or agent.model
    name = written if isinstance(written, str) and is_outside(written) else model.name  # which lacks its folders
    bounds.check_model(name, settings.MODEL if settings.model_override() else "")
    web.check_model(model.name)
    _check_extra(agent.settings.beyond_sampling)
    setting = next((one for one in ("models", "addresses") if getattr(bounds, one) is not None), None)
    if setting is not None and not is_made_by_provider(model):
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        has = f"{bounds.whose(setting)} has {bounds.words(setting)}"
        raise UsageError(
            f"The model {model.name} is an object of {kind}, which is not of that provider, and {has}. "
            "Name the model as a text."
        )
    check_address(model)


def _check_extra(names: Sequence[str]) -> None:
    """Raise UsageError for fields of `extra` that may switch on what a class bounds: nobody is asked about them."""
    bounds = class_settings()
    bound = next((one for one in _BOUND_BY_EXTRA if getattr(bounds, one) is not None), None)
    if names and bound is not None:
        raise UsageError(
            f"The setting extra has {names[0]!r}, which may do more than shape the answer, and {bounds.whose(bound)} "
            f"has {bounds.words(bound)}. Leave it out."
        )


# -- what sessions open ----------------------------------------------------------------------------------


class Connections:
    """The models and servers that a session has opened for its agents, each opened once, and its loop for user code.

    They are apart from the session, so that they can be closed after the session was garbage-collected.
    """

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self._servers: list[tuple[Any, Toolset]] = []
        self._told: set[str] = set()
        self._user_loop = UserLoop()

    async def with_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work of the session, whose coroutine functions of the user run on the session's own loop."""
        session_loop.set(self._user_loop)
        return await work

    def model(self, agent: Agent) -> Model:
        """Return the model that an agent would use: `AGENTMAGIC_MODEL` before the recipe's before the default.

        Raises UnknownModel, MissingExtra, AuthenticationMissing if none is chosen and no key is set, and UsageError for
        a model that the class does not allow.
        """
        chosen = settings.model_override() or agent.model or choose_default()
        if isinstance(chosen, str) and chosen not in self._models:
            self._models[chosen] = resolve(chosen)
        model = self._models[chosen] if isinstance(chosen, str) else chosen
        _check_class(agent, model)
        return model

    def notes(self, agent: Agent, model: Model) -> list[str]:
        """Return what the user should know of an agent's model, each note once.

        These are the model's own advice, and the agent's settings that the model does not honour.
        """
        known = honoured(model, agent.settings).given
        left_out = [name for name in agent.settings.given if name not in known]
        notes = [f"{model.name} takes no {name}, so it is asked without that setting." for name in left_out]
        policy, bounds = policy_of(agent.permission), class_settings()
        if bounds.permission and "allow" in (policy.default, *(rule.verdict for rule in policy.rules)):
            notes.append(
                f"The agent's permission lets tools run unasked, and {bounds.whose('permission')} does not: "
                f"{bounds.words('permission')}."
            )
        if isinstance(model, Advising) and (advice := model.advice()):
            notes.append(advice)
        new = [note for note in notes if note not in self._told]
        self._told.update(new)
        return new

    def toolsets(self, agent: Agent) -> tuple[Toolset, ...]:
        """Return the sources of tools of an agent: functions, toolsets, servers; not the agents that it may ask.

        Raises ConfigError for a bad file.
        """
        own = agent.own_tools()
        sources = [source for source in agent.tools if isinstance(source, Toolset)]
        servers = [self._opened(agent.mcp)] if agent.mcp else []
        return (*([Functions(own)] if own else []), *sources, *servers)

    def _opened(self, mcp: "Entry | Sequence[Entry]") -> Toolset:
        for known, servers in self._servers:
            if known is mcp or known == mcp:
                return servers
        from agentmagic.tools.mcp import McpServers, config

        servers = McpServers(config.read(mcp))
        self._servers.append((mcp, servers))
        return servers

    def close_after(self, owner: object) -> None:
        """Close everything when the owner is garbage-collected, or else before the process ends."""
        engine().at_close(self.aclose)
        weakref.finalize(owner, self._close_later).atexit = False

    def _close_later(self) -> None:
        engine().submit(self.aclose())

    async def aclose(self) -> None:
        """Close everything, on the engine. If one thing cannot be closed, the others are closed all the same."""
        engine().forget(self.aclose)
        self._user_loop.close()
        opened = (*self._models.values(), *(servers for _, servers in self._servers))
        errors = await asyncio.gather(*(one.aclose() for one in opened), return_exceptions=True)
        for error in filter(None, errors):
            raise error
