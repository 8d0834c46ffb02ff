"""Carry out the tool calls of a step, in parallel: each call is approved or refused, run, and given a result."""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any

from agentmagic import log, traces
from agentmagic.agent import Agent
from agentmagic.approval.approvals import MODEL, Approvals, Gate, Granted, Refused
from agentmagic.approval.policy import policy_of
from agentmagic.errors import ServerError, ToolError, UsageError
from agentmagic.events import (
    INTERRUPTED,
    CellProposed,
    Event,
    InnerCall,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Reply,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from agentmagic.loop.stepping import Stepper
from agentmagic.loop.turn_context import GRACE_AROUND, OuterTurn
from agentmagic.messages import NOTEBOOK, Media, Message, Text, ToolCall, ToolResult, as_text
from agentmagic.runtime.engine import engine
from agentmagic.runtime.main_thread import running_loop
from agentmagic.runtime.timeouts import GRACE, Deadline, await_all_with_grace
from agentmagic.secrets import redact
from agentmagic.serialization import copy_call
from agentmagic.text import close_names, cut, did_you_mean, join_names
from agentmagic.tools.base import (
    NO_VALUE,
    Completion,
    Tool,
    ToolContext,
    Toolset,
    Watch,
    failure,
    list_sources,
    no_watch,
    notices_of,
)
from agentmagic.tools.calling import call_tool, carry_out, own_traceback, traceback_text, with_output
from agentmagic.tools.output_cache import READER
from agentmagic.undo.changes import Changes
from agentmagic.undo.watcher import Watcher

MOST_INNER = 1000
"""Calls that one running tool may make itself; each is kept in the history's log, and shown."""
DEEPEST_INNER = 5
"""How deep calls may be nested inside calls."""
LONGEST_INNER = 2000
"""Characters of each part of an inner call's result that are kept and shown. The caller gets the whole part."""
LARGEST_INNER = 200_000
"""Bytes of an image in an inner call's result; a larger image is only named."""

Emit = Callable[[Event], None]
Sample = Callable[[str, str, Deadline, Sequence[Message], str, int], Awaitable[Completion]]
"""Lets the model answer a tool.

It gets the call's id, its server, its deadline, messages, instructions and a limit of tokens.
"""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How a tool call ended: its result, and the Python value if the tool is a function."""

    result: ToolResult
    return_value: Any = NO_VALUE

    @property
    def value(self) -> Any:
        """The value for Python code that made the call.

        It is the value that a function returned, the structured content that a server sent, or the result's text.
        """
        if self.return_value is not NO_VALUE:
            return self.return_value
        match self.result.structured:
            case None:
                return self.result.text
            case {"result": value, **rest} if not rest:  # the Python SDK of MCP wraps values that are no objects
                return value
            case structured:
                return structured


@dataclass(slots=True)
class ToolExecutor:
    """Carries out the tool calls of a turn and emits their events.

    `gate` decides which calls run. `sample` lets the model answer a tool that asks it. `deps` is passed to the tools.
    `stepper` pauses before calls that run without a question to the user. A call that was made `max_repeats` times in a
    row is still carried out, and its result says so. `watcher` finds out what the tools change in the notebook, and is
    None if that is not needed; `changes` are the changes of this turn. `row` says that the turn is one row of a map:
    its deadline is then paused while a tool waits until it may run. `caller` is named in the audit log. `around`
    returns the OuterTurn that the turn of an agent tool gets.
    """

    tools: Mapping[str, Tool]
    gate: Gate
    deps: Any
    emit: Emit
    max_repeats: int = 3
    sample: Sample | None = None
    stepper: Stepper | None = None
    watcher: Watcher | None = None
    row: bool = False
    caller: str = ""
    around: Callable[[ToolCall], OuterTurn] | None = None
    changes: list[Changes] = field(default_factory=list[Changes])
    _inner: dict[str, list[asyncio.Task[Any]]] = field(default_factory=dict[str, list[asyncio.Task[Any]]])
    _done: str | None = None
    _running: dict[str, int] = field(default_factory=dict[str, int])
    """The calls under way, each with the number of calls around it."""
    _notices: list[Event] = field(default_factory=list[Event])
    _streaks: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def proposer(self) -> str:
        """Who proposes the calls, for the permission gate: the user's answer "always" holds for this proposer only."""
        return MODEL

    def refuse(self, calls: Sequence[ToolCall], message: str) -> None:
        """Give each call a failure as its result, without running it. `message` tells the model why."""
        for call in calls:
            self.emit(ToolFinished(failure(call, message)))

    async def carry_out(self, calls: Sequence[ToolCall]) -> str | None:
        """Carry out the calls of one step, in parallel if their tools allow it.

        Return the message of a tool that ended the turn, else None. Raises ServerError if a tool server is gone for
        good, after every call has a result.
        """
        # Count in how many consecutive steps each call was made; calls that this step does not make are forgotten.
        self._streaks = {key: self._streaks.get(key, 0) + 1 for key in map(_call_key, calls)}
        for group in self._groups(calls):
            tasks = [asyncio.create_task(self._call(call)) for call in group]
            inside = any(self.tools[call.name].agent for call in group if call.name in self.tools)
            await await_all_with_grace(tasks, GRACE_AROUND if inside else GRACE)
            for task in tasks:
                if error := task.exception():
                    raise error
        return self._done

    def _groups(self, calls: Sequence[ToolCall]) -> Iterator[tuple[ToolCall, ...]]:
        """Split calls into groups that can run in parallel. A tool that must run alone gets a group of its own."""

        def alone(call: ToolCall) -> bool:
            tool = self.tools.get(call.name)
            return tool is not None and not tool.parallel

        for is_alone, group in groupby(calls, alone):
            together = tuple(group)
            yield from ((call,) for call in together) if is_alone else (together,)

    async def _call(self, call: ToolCall, depth: int = 0, within: str = "") -> CallOutcome:
        """Carry out one call: find its tool, ask the user if needed, run it, emit the result, write the audit log.

        Everything that reads the call gets a copy, so that nothing can change the call after its approval. `depth` is
        the number of running calls that led to this one; it is 0 for a call of the model. `within` is the id of the
        call that made this one, "" for a call of the model.
        """
        tool, inner = self.tools.get(call.name), depth > 0
        server = "" if tool is None else tool.definition.server
        caller = self.caller or self.proposer
        entry = log.Audit(server, call.name, call.arguments, caller=caller, within=within)
        try:
            if tool is None:
                entry.decision, entry.outcome = "no such tool", "error"
                return self._refuse(call, failure(call, self._unknown(call.name)), inner=inner)
            try:
                call = copy_call(call)
            except ToolError as error:
                entry.decision, entry.outcome = "not asked", "error"
                return self._refuse(call, failure(call, str(error)), inner=inner)
            permit = await self.gate.admit(tool, call, self.proposer)
            if self.stepper is not None and isinstance(permit, Granted) and permit.decision == "allowed":
                permit = await self.stepper.before_call(tool, permit)
            entry.decision = permit.decision
            if isinstance(permit, Refused):
                entry.outcome = permit.status
                return self._refuse(call, permit.result(call), inner=inner)
            entry.arguments = permit.call.arguments
            return await self._run(tool, permit, entry, depth)
        finally:
            log.audit(entry)

    def _refuse(self, call: ToolCall, result: ToolResult, *, inner: bool) -> CallOutcome:
        self.emit(ToolFinished(result if inner else self._with_warning(call, result)))
        return CallOutcome(result)

    async def _run(self, tool: Tool, permit: Granted, entry: log.Audit, depth: int) -> CallOutcome:
        """Run a call that the permission gate has allowed, in a trace span."""
        with traces.execute_tool(tool.definition, permit.call) as span:
            return await self._carry_out(tool, permit, entry, depth, span)

    async def _carry_out(
        self, tool: Tool, permit: Granted, entry: log.Audit, depth: int, span: traces.TraceSpan
    ) -> CallOutcome:
        call, server, inner = copy_call(permit.call), tool.definition.server, depth > 0
        self.emit(ToolStarted(copy_call(call), server))
        self._running[call.id] = depth
        began, context = time.monotonic(), self._context(tool, call)
        try:
            # `call_tool` checks the arguments first. For a call that the user approved, the gate has checked them.
            run = call_tool if permit.decision == "allowed" else carry_out
            plain = _with_server(await run(tool, call, context), tool)
            result = permit.with_notice(plain if inner else self._with_warning(call, plain))
        except ServerError as error:
            entry.outcome = "server gone"
            self._finish_call(failure(call, str(error)), began)
            raise
        except asyncio.CancelledError:
            # A stopped call gets a plain result at the end of the turn. If it still runs or has output, say so here.
            if context.left or context.output:
                message = f"{call.name} was interrupted. {context.left}" if context.left else INTERRUPTED
                self._finish_call(with_output(failure(call, message, "interrupted"), context), began)
            raise
        finally:
            entry.seconds = time.monotonic() - began
            for task in self._inner.pop(call.id, ()):
                task.cancel()
        entry.outcome = result.status
        traces.record_call(span, plain, context.error)
        rich = ("", *context.rich) if permit.edited else context.rich  # an edited call's result begins with a note
        visible_result = _beginning(result) if inner else result
        self._finish_call(visible_result, began, self._traceback(tool, context), rich if any(rich) else ())
        return CallOutcome(plain, context.value)

    async def _call_inside(self, parent: ToolCall, context: Context, name: str, arguments: Mapping[str, Any]) -> Any:
        """Carry out a call that a running tool makes, and return its value. Raises ToolError if that call fails."""
        tool = self.tools.get(name)
        if tool is not None and tool.code:
            raise ToolError(f"{name} cannot be called from inside another tool.")
        if parent.id not in self._running:
            raise ToolError(f"The call of {parent.name} is over.")
        depth = self._running[parent.id] + 1
        if depth > DEEPEST_INNER:
            raise ToolError(
                f"{name} was not called: {parent.name} runs {DEEPEST_INNER} calls deep within other calls, and no call "
                f"may be deeper. Call {name} from further out."
            )
        tasks = self._inner.setdefault(parent.id, [])
        if len(tasks) >= MOST_INNER:
            raise ToolError(f"{parent.name} has made {MOST_INNER:,} calls, which is the most that one call may make.")
        call = copy_call(ToolCall(f"call_{uuid.uuid4().hex}", name, arguments))
        self.emit(InnerCall(parent.id, copy_call(call)))
        task = asyncio.create_task(self._call(call, depth, parent.id), context=context.copy())
        tasks.append(task)
        try:
            end = await task
        except ServerError as error:
            raise ToolError(str(error)) from None
        finally:
            task.cancel()
        if end.result.is_error:
            raise ToolError(end.result.text)
        return end.value

    def _with_warning(self, call: ToolCall, result: ToolResult) -> ToolResult:
        count = self._streaks.get(_call_key(call), 0)
        if count < self.max_repeats:
            return result
        note = (
            f"Note: this same call, with the same arguments, was made {count} times in a row. "
            "Use what it returned, call with other arguments, or answer."
        )
        return replace(result, content=(*result.content, Text(note, audience="assistant")))

    def _traceback(self, tool: Tool, context: ToolContext) -> str:
        """Return the traceback if the tool that raised is a function of the user, and store it for `%tb` too."""
        if context.error is None or tool.definition.server != NOTEBOOK:
            return ""
        if text := traceback_text(context.error):
            engine().main.store_exception(context.error.with_traceback(own_traceback(context.error)))
        return text

    def _finish_call(self, result: ToolResult, began: float, traceback: str = "", rich: tuple[str, ...] = ()) -> None:
        if result.done is not None and self._done is None:
            self._done = result.done
        self._running.pop(result.call_id, None)
        self.emit(ToolFinished(result, time.monotonic() - began, traceback, rich))

    def _unknown(self, name: str) -> str:
        if close := close_names(name, self.tools, n=3, cutoff=0.5):
            return f"There is no tool {name!r}. Close names: {', '.join(close)}."
        return f"There is no tool {name!r}. Tools: {join_names(self.tools, 10)}."

    def _context(self, tool: Tool, call: ToolCall) -> ToolContext:
        loop, sample, server = asyncio.get_running_loop(), self.sample, tool.definition.server

        def tell(event: ToolProgress | Notice | CellProposed) -> None:
            if running_loop() is loop:
                self._tell(call, event)  # on the loop's thread: emit now, before the call's ToolFinished
            else:
                loop.call_soon_threadsafe(self._tell, call, event)

        def complete(messages: Sequence[Message], instructions: str, max_tokens: int) -> Awaitable[Completion]:
            assert sample is not None  # noqa: S101  (passed on below only if it is there)
            return sample(call.id, server, context.deadline, messages, instructions, max_tokens)

        context = ToolContext(
            call,
            deps=self.deps,
            ask=self._question,
            progress=lambda call_id, done, total, words: tell(ToolProgress(call_id, done, total, words)),
            # A server asks the model from its connection's task, which has no trace span: pass on this call's span.
            complete=None if sample is None else traces.with_span_async(complete),
            tell=lambda words: tell(Notice("info", words)),
            propose=tell,
            call_tool=partial(self._call_inside, call, copy_context()),
            tools=tuple(tool.definition for name, tool in self.tools.items() if not tool.code and name != READER),
            watch=self._watch(call),
        )
        context.outer = self.gate.deadline if self.row else None
        if tool.agent and self.around is not None:
            context.around = self.around(call)
        return context

    def _watch(self, call: ToolCall) -> Watch:
        watcher = self.watcher
        return no_watch if watcher is None else lambda function: watcher.watch(call, function, self.changes)

    def _tell(self, call: ToolCall, event: ToolProgress | Notice | CellProposed) -> None:
        """Emit an event that a running call reports; a notice is emitted only once.

        Events that arrive after the call has its result are dropped: a tool in a thread may still be running then.
        """
        if call.id not in self._running or event in self._notices:
            return
        if isinstance(event, Notice):
            self._notices.append(event)
        self.emit(event)

    async def _question(self, text: str) -> str:
        """Ask the user on behalf of a tool. Raises ToolError if no user can be asked."""
        if (answer := await self.ask_user(text)) is None:
            raise ToolError("No one is there to answer the question.")
        return answer

    async def ask_user(self, text: str) -> str | None:
        """Ask the user a question in free text. Return the answer, or None without one."""
        return await self.ask_question(QuestionAsked(uuid.uuid4().hex, text))

    async def ask_question(self, question: QuestionAsked) -> str | None:
        """Ask the user a question given as an event. Return the answer, or None without one."""
        intent = await self.gate.ask_question(question)
        if not isinstance(intent, Reply):
            return None
        self.emit(QuestionAnswered(question.id, intent.text))
        return intent.text


def _with_server(result: ToolResult, tool: Tool) -> ToolResult:
    """Return a tool result with the name of the MCP server that wrote it.

    The result of a function, and one that already names a server, stay unchanged.
    """
    server = tool.definition.server
    return result if result.server or server == NOTEBOOK else replace(result, server=server)


def _beginning(result: ToolResult) -> ToolResult:
    """Return the beginning of a long result, to be shown and logged."""
    content = tuple(
        part
        if isinstance(part, Media) and len(part.data) <= LARGEST_INNER
        else Text(cut(redact(as_text(part)), LONGEST_INNER), audience=part.audience if isinstance(part, Text) else "")
        for part in result.content[:10]
    )
    return replace(result, content=content, structured=None)


def _call_key(call: ToolCall) -> str:
    """Return a key that is the same for calls with the same name and arguments."""
    return f"{call.name} {json.dumps(dict(call.arguments), sort_keys=True, default=repr)}"


async def call_by_hand(call: ToolCall, toolsets: Sequence[Toolset], agent: Agent, approvals: Approvals) -> ToolResult:
    """Carry out one tool call that the user makes, without a model and without events; its progress is dropped.

    The permission gate decides on the call as on any other, but does not ask the user, who has made the call. Raises
    UsageError if the tool does not exist. Raises ServerError if the tool's server is gone, or if the tool is unknown
    and may belong to a server that is gone.
    """
    tools, problems = await list_sources(toolsets)
    if call.name not in tools and problems:
        raise ServerError(redact("\n".join(problems)))
    if call.name not in tools:
        hint = did_you_mean(call.name, tools)
        message = f"There is no tool {call.name!r}.{hint} Tools: {', '.join(sorted(tools)) or 'none'}."
        why = [notice for source in toolsets for notice in notices_of(source) if call.name in notice]
        raise UsageError(redact(" ".join((message, *why))))
    results: list[ToolResult] = []

    def emit(event: Event) -> None:
        if isinstance(event, ToolFinished):
            results.append(event.result)

    gate = Gate(policy_of(agent.permission), approvals, by_hand=True)
    await ToolExecutor(tools, gate, agent.deps, emit).carry_out([call])
    return results[0]
