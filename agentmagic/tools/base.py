"""Classes that the agent loop and the tools share: `Tool`, `ToolContext` and `Toolset`."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from agentmagic.errors import ServerError, ToolError, UsageError, describe
from agentmagic.events import CellProposed
from agentmagic.host import Capture, Output
from agentmagic.messages import (
    Content,
    HostedTool,
    Message,
    ResultStatus,
    ToolCall,
    ToolDef,
    ToolResult,
    parts_of,
)
from agentmagic.runtime.engine import void
from agentmagic.runtime.timeouts import Deadline
from agentmagic.secrets import redact

T = TypeVar("T")

PRINTED = "Printed:\n"
"""How the part of a result begins that has what a tool printed."""
NO_OUTPUT = "(no output; print what you need to know)"
"""The result of a program that printed nothing and has no value."""

TIMEOUT = 60.0
"""The default time limit of a call, in seconds."""
STILL_RUNNING = "It runs in a thread, which cannot be stopped, and may still be running."


class TaskComplete(Exception):
    """Raised by a tool to end the turn. The message becomes the final text of the turn."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Done:
    """Returned by a tool to end the turn. The message becomes the final text of the turn."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer of a model to a request that a tool sent. `cut` is true if the token limit ended the answer early."""

    text: str
    model: str
    cut: bool = False


Complete = Callable[[Sequence[Message], str, int], Awaitable[Completion]]
"""Sends messages and instructions to a model and returns its answer. The last argument limits its tokens."""
CallTool = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Calls another tool on behalf of a running tool: accepts the other tool's name and its arguments."""
NO_VALUE: Any = object()


Watch = Callable[[object], AbstractContextManager[Any]]
"""Accepts a function, and returns a context manager that watches the notebook's variables while the function runs."""


def no_watch(_function: object) -> AbstractContextManager[Any]:
    """Return a context manager that does nothing, for calls whose effect on variables is not watched."""
    return nullcontext()


class ToolContext:
    """Connects one running tool call to its turn. A tool's function gets it in a parameter annotated `ToolContext`.

    `deps` is the value that was passed to the Agent. `tools` are the tools that `call_tool` can call. `tell` shows the
    user a notice, and `propose` shows the user a proposed cell. `left` is a sentence about work that continues after
    the call was cancelled, or "". `error` is the exception of the tool, `value` is the return value of its function,
    and `exited` says whether the tool ended with `exit` or `sys.exit`. `capture` collects everything that the tool
    prints, displays and plots, or is None if this output cannot be separated from other output. `reached` is the
    progress that was reported last, with its total. `watch` accepts a function of the user and returns the context
    manager in which it runs. If the tool is an agent, `around` is the turn of this call, in which the tool runs an
    inner turn, and `tape` makes the object that records or replays the inner turn. `outer` is a deadline that is paused
    while the time limit of this call is paused. `rich` has the HTML that the user sees for each part of the result, or
    "" for parts without HTML.
    """

    def __init__(  # noqa: PLR0913  (what the turn offers)
        self,
        call: ToolCall,
        *,
        deps: Any = None,
        ask: Callable[[str], Awaitable[str]],
        progress: Callable[[str, float, float | None, str], None],
        complete: Complete | None = None,
        tell: Callable[[str], None] = void,
        propose: Callable[[CellProposed], None] = void,
        call_tool: CallTool | None = None,
        tools: Sequence[ToolDef] = (),
        watch: Watch = no_watch,
    ) -> None:
        self.call = call
        self.deps = deps
        self.tools = tools
        self.watch = watch
        self.value = NO_VALUE
        self._ask = ask
        self._progress = progress
        self._complete = complete
        self._call_tool = call_tool
        self.tell = tell
        self.propose = propose
        self.deadline = Deadline(None)
        self.outer: Deadline | None = None
        self.around: object = None
        self.tape: Callable[..., Any] | None = None
        self.left = ""
        self.error: BaseException | None = None
        self.exited = False
        self.capture: Capture | None = None
        self.rich: tuple[str, ...] = ()
        self.reached: tuple[float, float | None] = (0.0, None)
        self._cancelled = False

    @property
    def output(self) -> Sequence[Output]:
        """The text, displays and figures that the tool has produced so far."""
        return self.capture.parts() if self.capture else ()

    def close_figures(self) -> None:
        """Move the figures that the tool left open into its output, and close them. Call in the main thread."""
        if self.capture is not None:
            self.capture.draw()

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled. A long synchronous tool should check this regularly."""
        return self._cancelled

    def cancel(self) -> None:
        """Mark the call as cancelled."""
        self._cancelled = True

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Report the call's progress, from any thread. Raises TypeError or ValueError if a value is not a number."""
        self.reached = float(progress), None if total is None else float(total)
        self._progress(self.call.id, *self.reached, str(message))

    def overheard(self, hear: Callable[..., None]) -> None:
        """Call `hear` before each later report or question of the tool, with its kind and its arguments.

        The kinds are "progress", "tell", "propose", "ask" and "complete".
        """

        def with_hear(kind: str, function: Callable[..., T]) -> Callable[..., T]:
            def wrapper(*arguments: Any) -> T:
                hear(kind, *arguments)
                return function(*arguments)

            return wrapper

        report = self._progress

        def hear_and_report(call_id: str, *progress: Any) -> None:
            hear("progress", *progress)
            report(call_id, *progress)

        self._progress = hear_and_report
        self.tell = with_hear("tell", self.tell)
        self.propose = with_hear("propose", self.propose)
        self._ask = with_hear("ask", self._ask)
        self._complete = self._complete and with_hear("complete", self._complete)

    async def ask(self, question: str) -> str:
        """Ask the user a question and return the answer. Meanwhile, the time limits of the call and the turn pause.

        Raises ToolError if there is no user to answer.
        """
        with self.deadline.pause_in_block():
            return await self._ask(question)

    async def complete(self, messages: Sequence[Message], instructions: str = "", *, max_tokens: int) -> Completion:
        """Send a request outside the conversation to the turn's model, within the turn's time limit and budgets.

        Raises ToolError if there is no model or a budget is used up, and ProviderError if the request fails.
        """
        if self._complete is None:
            raise ToolError("There is no model here to answer.")
        return await self._complete(list(messages), instructions, max_tokens)

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call another tool of the turn, under the same permissions, and return its value.

        The value is the return value of a Python function, or the structured content of an MCP server's result. Of any
        other result, it is the text. The other call has a time limit of its own, and until it ends, the limit of the
        calling tool is paused. Raises ToolError if the other call fails or is denied.
        """
        if self._call_tool is None:
            raise ToolError("There are no other tools to call here.")
        with self.deadline.pause_in_block():
            return await self._call_tool(name, arguments)


Invoke = Callable[[ToolCall, ToolContext], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class Effects:
    """What a call would do: `lines` tell the user. If `only_reads` is true, the call changes nothing, and ends."""

    lines: tuple[str, ...] = ()
    only_reads: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool in the form that the agent loop uses.

    `invoke` runs a call and may raise any exception, which `call_tool` turns into a result. `timeout` is in seconds.
    With `parallel=False` no other tool call in the same answer of the model runs at the same time. `ask` says whether
    the user is asked before a call if no rule of the permission policy matches. `code` marks a tool that runs code
    written by the model: only the user or a rule with the tool's exact name can allow it, but not a pattern, a
    default or an environment variable. The user's answer "always" then allows only calls with the same arguments.
    `scope` returns the text that such an answer is bound to instead: it allows only calls with the same text, and the
    user cannot give it if the text is None. `effects` returns what a call would do, which the user sees before
    approval. `among` returns the tool's
    definition for a turn with the given tools. `now` returns the definition at the beginning of a turn, and raises
    UsageError if the tool cannot be offered in this turn. An approval by the user is bound to the definition in
    `lasting`, because the result of `now` can change. `trusted` marks a tool of an MCP server that the user trusts, and
    `reads` marks a tool of which such a server says that it only reads. The user cannot change the arguments of a
    `fixed` tool before approving a call. A `hosted` tool is run by the model provider while it writes an answer, and
    never by agentmagic: the user is asked once in a session. An `agent` tool runs an agent, in an inner turn inside the
    turn of the call. The inner turn has its own deadline, events and recording.
    """

    definition: ToolDef
    invoke: Invoke
    timeout: float | None = TIMEOUT
    parallel: bool = True
    ask: bool = False
    code: bool = False
    effects: Callable[[Mapping[str, Any]], Effects] | None = None
    scope: Callable[[Mapping[str, Any]], str | None] | None = None
    among: Callable[[Sequence[ToolDef]], ToolDef] | None = None
    now: Callable[[], ToolDef] | None = None
    lasting: ToolDef | None = None
    trusted: bool = False
    reads: bool = False
    fixed: bool = False
    hosted: HostedTool | None = None
    agent: bool = False

    @property
    def name(self) -> str:
        """The name by which the model calls the tool."""
        return self.definition.name


@runtime_checkable
class Toolset(Protocol):
    """A source of tools. Its tools are listed at the start of each turn. Its creator must close it with `aclose`."""

    async def tools(self) -> Sequence[Tool]:
        """Return the tools that the source offers now.

        Raises ServersUnreachable if only some of the tools are available, and ServerError if none are.
        """
        ...

    async def aclose(self) -> None:
        """Close open connections and processes. A second call does nothing."""
        ...


@runtime_checkable
class Local(Protocol):
    """A source of tools that run in this process. Listing the tools starts no server. `is_local` is True."""

    is_local: bool


@runtime_checkable
class Choosing(Protocol):
    """A toolset that selects some of the tools of other sources, and offers only these."""

    @property
    def sources(self) -> Sequence[Toolset]:
        """The sources of which this source offers some tools."""
        ...

    def over(self, sources: Sequence[Toolset]) -> Toolset:
        """Return a toolset that makes the same selection from other sources."""
        ...


@runtime_checkable
class Connecting(Protocol):
    """A toolset whose method `tools` may have to connect to MCP servers."""

    async def connected_tools(self) -> tuple[Sequence[Tool], Sequence[str]]:
        """Return the tools that are known without connecting to a server, and the names of the missing servers."""
        ...


@runtime_checkable
class Noting(Protocol):
    """A source with notices about the tools that it listed last, for example that some are left out."""

    @property
    def notices(self) -> Sequence[str]:
        """The notices, each a sentence for the user."""
        ...


def notices_of(source: Toolset) -> Sequence[str]:
    """Return the notices of a source about the tools that it listed last."""
    return source.notices if isinstance(source, Noting) else ()


class ServersUnreachable(ServerError):
    """Raised when some servers of a source of tools cannot be reached.

    `tools` are the tools of the servers that were reached. `problems` has a text for each server that failed, with its
    name, the reason and the command that fixes the problem.
    """

    def __init__(self, message: str, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        super().__init__(message)
        self.tools = tools
        self.problems = problems


async def list_source(source: Toolset) -> tuple[Sequence[Tool], Sequence[str]]:
    """Return the available tools of a source, and an error text for each of its servers that cannot be reached."""
    try:
        return await source.tools(), ()
    except ServersUnreachable as error:
        return error.tools, error.problems
    except ServerError as error:
        return (), (describe(error),)


_FIGURES = re.compile(r"\d+")


def new_problems(
    problems: Sequence[str],
    seen_kinds: dict[tuple[str, ...], set[str]],
    path: tuple[str, ...] = (),
    *,
    complete: bool = True,
) -> list[str]:
    """Return the server problems that the user has not seen yet, and add all `problems` to `seen_kinds`.

    `seen_kinds` has the texts of problems without numbers, because numbers such as times differ between messages. They
    are kept by the `path` of the agent (the names of the nested agent tools) that misses the servers. If `complete` is
    true, `problems` has all current problems of this agent, and its other problems are removed from `seen_kinds`. The
    user then sees such a problem again if it returns.
    """
    by_kind = {_FIGURES.sub("0", problem): problem for problem in problems}
    seen = set[str]().union(*seen_kinds.values())
    kinds = seen_kinds.setdefault(path, set())
    if complete:
        kinds.clear()
    kinds.update(by_kind)
    return [problem for kind, problem in by_kind.items() if kind not in seen]


async def list_connected(source: Toolset) -> tuple[Sequence[Tool], Sequence[str]]:
    """Return a source's tools that are known without connecting to a server, and the names of the missing servers."""
    return await source.connected_tools() if isinstance(source, Connecting) else (await source.tools(), ())


async def list_sources(sources: Iterable[Toolset]) -> tuple[dict[str, Tool], list[str]]:
    """Return the tools of all sources by name, and an error text for each server that cannot be reached.

    If several tools have the same name, the first one is returned.
    """
    listings = await asyncio.gather(*map(list_source, sources))
    tools = {tool.name: tool for source_tools, _ in reversed(listings) for tool in reversed(source_tools)}
    return dict(reversed(tools.items())), [problem for _, missing in listings for problem in missing]


def current_tools(tools: Iterable[Tool]) -> tuple[dict[str, Tool], list[str]]:
    """Return the tools that can be offered in a turn that starts now, and the reasons why the others cannot.

    The tools are in a dict by name, with their current definitions.
    """
    available: dict[str, Tool] = {}
    missing: list[str] = []
    for tool in tools:
        try:
            now = tool if tool.now is None else replace(tool, definition=tool.now(), lasting=tool.definition)
            available[tool.name] = now
        except UsageError as error:
            missing.append(str(error))
    return available, missing


def result(call: ToolCall, *content: str | Content, status: ResultStatus = "ok", done: str | None = None) -> ToolResult:
    """Return the result of a call, made from strings and message parts. A text in `done` ends the turn with it."""
    return ToolResult(call.id, call.name, parts_of(content), status, done=done)


def failure(call: ToolCall, message: str, status: ResultStatus = "error") -> ToolResult:
    """Return an error result with one sentence for the model, in which secrets are blanked."""
    return result(call, redact(message), status=status)
