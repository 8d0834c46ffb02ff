"""The recipe of an agent: a frozen value that any number of sessions may be made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from agentmagic.errors import UsageError
from agentmagic.providers.base import Model
from agentmagic.settings import PERMISSIONS, Permission
from agentmagic.tools.base import Tool, Toolset
from agentmagic.tools.functions import function_tool

MAX_ITERATIONS = 10
TIMEOUT = 120.0
TOOL_CHOICES = ("auto", "none", "required")

ToolSource = Callable[..., Any] | Tool | Toolset


@dataclass(frozen=True)
class Agent:
    """A recipe: which model, told what, with which tools, within which limits.

    `model` is "provider:model", a `Model`, or None for the first provider whose key is set.
    `tools` are functions, `Tool`s and toolsets; `mcp` are servers (a command, a URL, an entry or a whole
    object of the `mcpServers` form, or a server object). `max_iterations` bounds the model requests of a
    turn, `timeout` its seconds (None for no limit). `tool_choice` is auto, none, required or a tool's
    name; the last two hold for the first step of a turn. `permission` is what becomes of calls that no
    rule speaks about. `on_limit` says whether a turn at its limit is closed by a last answer ("answer")
    or just ends ("stop"). `deps` reaches tools as `ToolContext.deps`.

    Raises UsageError for a value that cannot be; nothing is connected and no key is looked for.
    """

    model: str | Model | None = None
    instructions: str = ""
    tools: Sequence[ToolSource] = ()
    mcp: Any = field(default=(), repr=False)
    max_iterations: int = MAX_ITERATIONS
    timeout: float | None = TIMEOUT
    tool_choice: str = "auto"
    permission: Permission = "ask"
    on_limit: Literal["answer", "stop"] = "answer"
    deps: Any = field(default=None, repr=False)

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
        if not isinstance(cast("object", self.max_iterations), int) or self.max_iterations < 1:
            message = f"max_iterations is {self.max_iterations!r}. A turn needs a whole number of steps, at least 1."
            raise UsageError(message)
        if self.timeout is not None and not (_is_number(self.timeout) and self.timeout > 0):
            message = f"timeout is {self.timeout!r}. Give seconds above 0, or None for no limit."
            raise UsageError(message)
        if self.permission not in PERMISSIONS:
            message = f"permission is {self.permission!r}. Choose one of {', '.join(PERMISSIONS)}."
            raise UsageError(message)
        if self.on_limit not in ("answer", "stop"):
            message = f'on_limit is {self.on_limit!r}. Choose "answer" or "stop".'
            raise UsageError(message)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _check_source(source: object) -> None:
    if isinstance(source, (Tool, Toolset)):
        return
    if not callable(source) or isinstance(source, type):
        message = f"{source!r} is no tool. Give functions, Tool objects or toolsets; MCP servers go into mcp=[...]."
        raise UsageError(message)
    function_tool(source)
