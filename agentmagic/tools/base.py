"""What the loop and the tools share: the tool, its context, the toolset."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

from agentmagic.errors import ServerError, ToolError, UsageError, said
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

TIMEOUT = 60.0
"""Seconds that a call may take by default."""
STILL_RUNNING = "It runs in a thread, which cannot be stopped, and may still be running."


class TaskComplete(Exception):
    """Raised by a tool to end the turn; the message is the turn's final text."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Done:
    """Returned by a tool to end the turn; the message is the turn's final text."""

    message: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """A model's answer to a tool; `cut` says whether it reached the limit of tokens."""

    text: str
    model: str
    cut: bool = False


Complete = Callable[[Sequence[Message], str, int], Awaitable[Completion]]
"""Sends messages and instructions to a model and returns its answer, of at most a number of tokens."""
CallTool = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Runs a call that a tool makes: the name of the other tool, and its arguments."""
NO_VALUE: Any = object()


Watch = Callable[[object], AbstractContextManager[Any]]
"""Takes a function, and returns what watches the variables while it runs."""


def unwatched(_function: object) -> AbstractContextManager[Any]:
    """Return what watches nothing."""
    return nullcontext()


class ToolContext:
    """The connection of a running tool to its turn; a function gets it in a parameter annotated `ToolContext`.

    `deps` is the value that the Agent was given. `tools` are the tools that `call_tool` can call. `tell` shows the user
    notices, `propose` a cell. `left` is a sentence on work that goes on after its call was cancelled, else "".
    `error` is what the tool raised, `value` what its function returned, `exited` whether it ended by `exit` or
    `sys.exit`. `capture` takes what the tool prints, displays and plots; it is None if that cannot be told from other
    output. `reached` is the progress reported last, with its total. `watch` returns what is entered around a function
    of the user. `around` is the turn of the call, for the turn of an agent tool inside it, and `tape` makes the tape of
    that turn. `outer` is a deadline that waits while the tool waits for its turn.
    `rich` is the HTML that the user sees in place of each part of the result, "" for none.
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
        watch: Watch = unwatched,
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
        """What the tool has printed, displayed and plotted so far."""
        return self.capture.parts() if self.capture else ()

    def close_figures(self) -> None:
        """Take the figures that the tool has left open into its output now; in the main thread."""
        if self.capture is not None:
            self.capture.draw()

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled; a long synchronous tool should check this regularly."""
        return self._cancelled

    def cancel(self) -> None:
        """Mark the call as cancelled."""
        self._cancelled = True

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Report how far the call has come; thread-safe. Raises TypeError or ValueError if a value is no number."""
        self.reached = float(progress), None if total is None else float(total)
        self._progress(self.call.id, *self.reached, str(message))

    def overheard(self, hear: Callable[..., None]) -> None:
        """Call a function with everything that the tool reports and asks from now on; the kind comes first."""

        def also(kind: str, function: Callable[..., T]) -> Callable[..., T]:
            def heard(*given: Any) -> T:
                hear(kind, *given)
                return function(*given)

            return heard

        report = self._progress

        def heard_progress(call_id: str, *reached: Any) -> None:
            hear("progress", *reached)
            report(call_id, *reached)

        self._progress = heard_progress
        self.tell = also("tell", self.tell)
        self.propose = also("propose", self.propose)
        self._ask = also("ask", self._ask)
        self._complete = self._complete and also("complete", self._complete)

    async def ask(self, question: str) -> str:
        """Ask the user a question and return the answer; the time limits of call and turn are paused meanwhile.

        Raises ToolError if there is no user to answer.
        """
        with self.deadline.paused():
            return await self._ask(question)

    async def complete(self, messages: Sequence[Message], instructions: str = "", *, max_tokens: int) -> Completion:
        """Ask the turn's model for an answer outside the conversation, within the turn's time and budgets.

        Raises ToolError if there is no model or a budget is used up, and ProviderError.
        """
        if self._complete is None:
            raise ToolError("There is no model here to answer.")
        return await self._complete(list(messages), instructions, max_tokens)

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Call another tool of the turn, under the same permissions, and return what it returned.

        That is the value of a function, else the structured content of a server's result, else its text. The time limit
        of this call is paused meanwhile: the other call has its own. Raises ToolError if the call fails or is denied.
        """
        if self._call_tool is None:
            raise ToolError("There are no other tools to call here.")
        with self.deadline.paused():
            return await self._call_tool(name, arguments)


Invoke = Callable[[ToolCall, ToolContext], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the loop knows it.

    `invoke` may raise anything; `call_tool` turns that into a result. `timeout` is in seconds. With `parallel=False` no
    other call of the step runs at the same time. `ask` says whether the user is asked before a call if no rule of the
    policy matches. `code` marks a tool that runs code which the model wrote: only a rule that has its very name or the
    user can allow it, no pattern, no default and no environment variable; an "always" is for the same arguments only.
    `effects` says in lines, for the user who is asked, what a call would do. `among` returns the definition of the tool
    in a turn with these tools, and `now` the one at the beginning of a turn; it raises UsageError if the tool cannot be
    offered in this turn. `lasting` is then the definition to which the user's approval is bound. A `trusted` tool is of
    a server that the user trusts, and `reads` if that server says that the tool only reads. The arguments of a `fixed`
    tool cannot be changed by the user who is asked. A `hosted` tool is carried out by the provider within an answer,
    where that can be, and never called by us: the user is asked once in a session. An `agent` tool asks an agent, in a
    turn inside the turn of the call: that turn has its own deadline, events and tape.
    """

    definition: ToolDef
    invoke: Invoke
    timeout: float | None = TIMEOUT
    parallel: bool = True
    ask: bool = False
    code: bool = False
    effects: Callable[[Mapping[str, Any]], tuple[str, ...]] | None = None
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
        """The name that the model uses."""
        return self.definition.name


@runtime_checkable
class Toolset(Protocol):
    """A source of tools; it is listed at the start of each turn, and closed by the code that made it."""

    async def tools(self) -> Sequence[Tool]:
        """Return the current tools.

        Raises ServersUnreachable if only some of the tools can be had, and ServerError if none can.
        """
        ...

    async def aclose(self) -> None:
        """Close open connections and processes; may be called twice."""
        ...


@runtime_checkable
class Local(Protocol):
    """A source of tools of this process, which lists them without starting anything. `is_local` is True."""

    is_local: bool


@runtime_checkable
class Choosing(Protocol):
    """A source of some tools of other sources."""

    @property
    def sources(self) -> Sequence[Toolset]:
        """The other sources."""
        ...

    def over(self, sources: Sequence[Toolset]) -> Toolset:
        """Return the same choice of tools of other sources."""
        ...


@runtime_checkable
class Connecting(Protocol):
    """A toolset whose `tools` may connect servers."""

    async def listed(self) -> tuple[Sequence[Tool], Sequence[str]]:
        """Return the tools that can be had without connecting a server, and the names of the servers left out."""
        ...


@runtime_checkable
class Noting(Protocol):
    """A source that has something to say of the tools it listed last, for example that some are left out."""

    @property
    def notices(self) -> Sequence[str]:
        """Sentences for the user."""
        ...


def notices_of(source: Toolset) -> Sequence[str]:
    """Return what a source says of the tools that it listed last."""
    return source.notices if isinstance(source, Noting) else ()


class ServersUnreachable(ServerError):
    """Some servers of a source of tools cannot be reached.

    `tools` are those of its other servers. `problems` has a text for each server that failed: its name, the
    reason and the command that mends it.
    """

    def __init__(self, message: str, tools: Sequence[Tool], problems: Sequence[str]) -> None:
        super().__init__(message)
        self.tools = tools
        self.problems = problems


async def list_source(source: Toolset) -> tuple[Sequence[Tool], Sequence[str]]:
    """Return the tools of a source that can be had, and a text for each of its servers that cannot be reached."""
    try:
        return await source.tools(), ()
    except ServersUnreachable as error:
        return error.tools, error.problems
    except ServerError as error:
        return (), (said(error),)


_FIGURES = re.compile(r"\d+")


def not_told(problems: Sequence[str], told: set[str], *, complete: bool = True) -> list[str]:
    """Return the problems of servers that the user was not told of, and note all of them in `told`.

    A problem is the same if only figures in it differ, such as times. With `complete` a problem that is not among
    these is over: if the server fails so again, the user is told again.
    """
    known = {_FIGURES.sub("0", words): words for words in problems}
    new = [words for kind, words in known.items() if kind not in told]
    if complete:
        told.clear()
    told.update(known)
    return new


async def list_connected(source: Toolset) -> tuple[Sequence[Tool], Sequence[str]]:
    """Return the tools of a source that can be had without connecting a server, and the names of servers left out."""
    return await source.listed() if isinstance(source, Connecting) else (await source.tools(), ())


async def list_sources(sources: Iterable[Toolset]) -> tuple[dict[str, Tool], list[str]]:
    """Return the tools of sources by name, and a text for each server that cannot be reached.

    If several tools have one name, the first is returned.
    """
    listed = await asyncio.gather(*map(list_source, sources))
    tools = {tool.name: tool for found, _ in reversed(listed) for tool in reversed(found)}
    return dict(reversed(tools.items())), [problem for _, missing in listed for problem in missing]


def as_of_now(tools: Iterable[Tool]) -> tuple[dict[str, Tool], list[str]]:
    """Return the tools that can be offered now, by name and with their definitions of now, and why others cannot."""
    found: dict[str, Tool] = {}
    missing: list[str] = []
    for tool in tools:
        try:
            now = tool if tool.now is None else replace(tool, definition=tool.now(), lasting=tool.definition)
            found[tool.name] = now
        except UsageError as error:
            missing.append(str(error))
    return found, missing


def result(call: ToolCall, *content: str | Content, status: ResultStatus = "ok", done: str | None = None) -> ToolResult:
    """Return the result of a call, made of strings and parts."""
    return ToolResult(call.id, call.name, parts_of(content), status, done=done)


def failure(call: ToolCall, message: str, status: ResultStatus = "error") -> ToolResult:
    """Return an error result with one sentence for the model; secrets are blanked."""
    return result(call, redact(message), status=status)
