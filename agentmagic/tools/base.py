"""What every tool is, and how one call of it becomes one result, whatever happens."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, get_args, runtime_checkable

from agentmagic import json_schema
from agentmagic.errors import ServerError, ToolError, said
from agentmagic.messages import (
    Content,
    Media,
    Message,
    Resource,
    ResultStatus,
    Text,
    ToolCall,
    ToolDef,
    ToolResult,
    parts_of,
)
from agentmagic.runtime.timeouts import Deadline, being_cancelled
from agentmagic.secrets import redact

TIMEOUT = 60.0
"""Seconds a call may take unless its tool says otherwise (LOOP-6)."""
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
    """What a model answered to a tool: its words, its name, and whether the words were cut at the limit."""

    text: str
    model: str
    cut: bool = False


Complete = Callable[[Sequence[Message], str, int], Awaitable[Completion]]
"""Has a model answer messages, under instructions, in at most so many tokens."""


class ToolContext:
    """What a running tool may know and ask of its surroundings.

    A tool that has a parameter annotated `ToolContext` gets one. `deps` is whatever the Agent was given.
    `unstoppable` says that the tool's work goes on when its call is given up.
    """

    def __init__(
        self,
        call: ToolCall,
        *,
        deps: Any = None,
        ask: Callable[[str], Awaitable[str]],
        progress: Callable[[str, float, float | None, str], None],
        complete: Complete | None = None,
    ) -> None:
        self.call = call
        self.deps = deps
        self._ask = ask
        self._progress = progress
        self._complete = complete
        self.deadline = Deadline(None)
        self.unstoppable = False
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether the call was given up; a long synchronous tool should look now and then."""
        return self._cancelled

    def cancel(self) -> None:
        """Mark the call as given up."""
        self._cancelled = True

    def progress(self, progress: float, total: float | None = None, message: str = "") -> None:
        """Tell how far the call has come; safe from any thread.

        Raises TypeError or ValueError for what is no number.
        """
        self._progress(self.call.id, float(progress), None if total is None else float(total), str(message))

    async def ask(self, question: str) -> str:
        """Ask the person; neither the call's nor the turn's time runs while the answer is awaited.

        Raises ToolError where nobody is there to answer.
        """
        with self.deadline.paused():
            return await self._ask(question)

    async def complete(self, messages: Sequence[Message], instructions: str = "", *, max_tokens: int) -> Completion:
        """Have the turn's model answer something beside the conversation, within the turn's time and budgets.

        Raises ToolError where there is no model to answer or a budget is used up, and ProviderError.
        """
        if self._complete is None:
            message = "There is no model here to answer."
            raise ToolError(message)
        return await self._complete(messages, instructions, max_tokens)


Invoke = Callable[[ToolCall, ToolContext], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the loop holds it.

    `invoke` may raise anything; `call_tool` turns that into a result. `timeout` is in seconds.
    `parallel=False` keeps other calls of the step from running beside it. `ask` says whether a person
    is asked before it runs where no rule of the policy speaks. `code` marks a tool that runs code the model
    wrote: it asks, and no default and no variable lets it run, only a rule or a person (SECURITY-1).
    """

    definition: ToolDef
    invoke: Invoke
    timeout: float | None = TIMEOUT
    parallel: bool = True
    ask: bool = False
    code: bool = False

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        return self.definition.name


@runtime_checkable
class Toolset(Protocol):
    """A source of tools: listed once at the start of each turn, closed by whoever made it."""

    async def tools(self) -> Sequence[Tool]:
        """Return the tools there are now.

        Raises ServersUnreachable if only some of the tools can be had, and ServerError if none can.
        """
        ...

    async def aclose(self) -> None:
        """Close what the source holds open; it may be called twice."""
        ...


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


def result(call: ToolCall, *content: str | Content, status: ResultStatus = "ok", done: str | None = None) -> ToolResult:
    """Make the result of a call from strings and parts."""
    return ToolResult(call.id, call.name, parts_of(content), status, done=done)


def failure(call: ToolCall, message: str, status: ResultStatus = "error") -> ToolResult:
    """Make an error result: one sentence for the model, with every known secret blanked."""
    return result(call, redact(message), status=status)


async def call_tool(tool: Tool, call: ToolCall, context: ToolContext) -> ToolResult:
    """Carry out one call; every failure but a lost server is a result.

    Raises ServerError where the tool's server is gone for good, and CancelledError.
    """
    if problem := check_arguments(tool.definition, call.arguments):
        return failure(call, problem)
    context.deadline = Deadline(tool.timeout)
    try:
        async with context.deadline:
            return checked(call, await tool.invoke(call, context))
    except TaskComplete as done:
        return result(call, said(done), done=said(done))
    except ServerError:
        raise
    except asyncio.CancelledError as error:
        context.cancel()
        if being_cancelled():
            raise
        return failure(call, _sentence(error))  # the tool's own doing: nobody cancelled the call
    except BaseException as error:  # noqa: BLE001  (whatever a tool raises, an exit too, the model reads it)
        if isinstance(error, TimeoutError) and context.deadline.expired:
            context.cancel()
            fate = f"was given up. {STILL_RUNNING}" if context.unstoppable else "was stopped."
            return failure(call, f"{call.name} took longer than {tool.timeout:g} s and {fate}", "timeout")
        return failure(call, _sentence(error))


def check_arguments(definition: ToolDef, arguments: Mapping[str, Any]) -> str | None:
    """Say in a sentence why the arguments cannot be used, or return None."""
    if set(arguments) == {"_raw"} and "_raw" not in definition.parameters.get("properties", {}):
        return f"The arguments of {definition.name} were not a JSON object; send them again as one."
    return json_schema.problem(definition.name, definition.parameters, arguments)


def checked(call: ToolCall, value: object) -> ToolResult:
    """Return what a tool returned as the result of its call.

    Raises ToolError for what is no result, or holds something that cannot be kept.
    """
    if not isinstance(value, ToolResult):
        message = f"The tool returned {a_type(value)}, which is no result."
        raise ToolError(message)
    content = (value.content,) if isinstance(cast("object", value.content), str) else tuple(value.content)
    parts = tuple(_part(part) for part in content)
    done = value.done if value.done is None else str(value.done)
    status = value.status if value.status in get_args(ResultStatus) else "error"
    return replace(value, call_id=call.id, name=call.name, content=parts, status=status, done=done)


def _part(part: object) -> Content:
    match part:
        case str():
            return Text(part)
        case Text(text=str()) | Media(media_type=str(), data=bytes(), name=str()):
            return part
        case Resource(uri=str(), name=str(), media_type=str(), text=str()):
            return part
        case _:
            message = f"The tool returned {a_type(part)} among its content, where text, media and resources belong."
            raise ToolError(message)


def a_type(value: object) -> str:
    """Name the type of a value as a sentence does: "a list", "an int"."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _sentence(error: BaseException) -> str:
    words = said(error)
    if isinstance(error, ToolError):
        return words or "The tool failed without saying why."
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
