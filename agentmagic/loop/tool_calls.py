"""The tool calls of a step: each is decided, run and given a result, the calls of one step in parallel."""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from itertools import groupby
from typing import Any

from agentmagic import log
from agentmagic.agent import Agent
from agentmagic.approval.approvals import Approvals, Gate, Granted, Refused
from agentmagic.approval.policy import policy_of
from agentmagic.errors import ServerError, ToolError, UsageError
from agentmagic.events import (
    Event,
    Notice,
    QuestionAnswered,
    QuestionAsked,
    Reply,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from agentmagic.messages import NOTEBOOK, Message, Text, ToolCall, ToolResult
from agentmagic.runtime.engine import engine, running_loop
from agentmagic.runtime.timeouts import await_all_with_grace
from agentmagic.secrets import redact
from agentmagic.text import listed
from agentmagic.tools.base import (
    Completion,
    Tool,
    ToolContext,
    Toolset,
    call_tool,
    failure,
    list_sources,
    own_traceback,
    traceback_text,
)

Emit = Callable[[Event], None]
Sample = Callable[[str, str, Sequence[Message], str, int], Awaitable[Completion]]
"""Has the model answer a tool. Takes the call's id, its server, messages, instructions and a limit of tokens."""


@dataclass(slots=True)
class ToolExecutor:
    """Carries out the calls of a turn and emits their events.

    `gate` decides which calls run, `sample` has the model answer a tool that asks it. `deps` is passed to the tools.
    A call that was made `max_repeats` times in a row is still carried out, and its result says so (LOOP-18).
    """

    tools: Mapping[str, Tool]
    gate: Gate
    deps: Any
    emit: Emit
    max_repeats: int = 3
    sample: Sample | None = None
    _done: str | None = None
    _running: set[str] = field(default_factory=set[str])
    _told: list[Event] = field(default_factory=list[Event])
    _streaks: dict[str, int] = field(default_factory=dict[str, int])

    def refuse(self, calls: Sequence[ToolCall], message: str) -> None:
        """Give calls a result without running them; the model reads the message."""
        for call in calls:
            self.emit(ToolFinished(failure(call, message)))

    async def carry_out(self, calls: Sequence[ToolCall]) -> str | None:
        """Carry out the calls of one step, in parallel if their tools allow it.

        Returns the message of a tool that ended the turn, else None. Raises ServerError if a tool server is gone
        for good, after every call is settled.
        """
        # In how many steps in a row each call was made; a call that this step does not make is forgotten.
        self._streaks = {key: self._streaks.get(key, 0) + 1 for key in map(_same, calls)}
        for group in self._groups(calls):
            tasks = [asyncio.create_task(self._call(call)) for call in group]
            await await_all_with_grace(tasks)
            for task in tasks:
                if error := task.exception():
                    raise error
        return self._done

    def _groups(self, calls: Sequence[ToolCall]) -> Iterator[tuple[ToolCall, ...]]:
        """Split calls into groups that may run in parallel; a tool that must be alone makes a group of its own."""

        def alone(call: ToolCall) -> bool:
            tool = self.tools.get(call.name)
            return tool is not None and not tool.parallel

        for is_alone, group in groupby(calls, alone):
            together = tuple(group)
            yield from ((call,) for call in together) if is_alone else (together,)

    async def _call(self, call: ToolCall) -> None:
        """Settle one call: look it up, ask the user if need be, run it, emit its result, write a line of the audit."""
        tool = self.tools.get(call.name)
        if tool is None:
            log.audit(log.Audit("", call.name, call.arguments, "no such tool", "error"))
            self.emit(ToolFinished(self._warned(call, failure(call, self._unknown(call.name)))))
            return
        entry = log.Audit(tool.definition.server, call.name, call.arguments)
        try:
            permit = await self.gate.admit(tool, call)
            entry.decision = permit.how
            if isinstance(permit, Refused):
                entry.outcome = permit.status
                self.emit(ToolFinished(self._warned(call, failure(call, permit.words, permit.status))))
            else:
                entry.arguments = permit.call.arguments
                await self._run(tool, permit, entry)
        finally:
            log.audit(entry)

    async def _run(self, tool: Tool, permit: Granted, entry: log.Audit) -> None:
        """Run a call that the gate has let through."""
        call = permit.call
        self.emit(ToolStarted(call, tool.definition.server))
        self._running.add(call.id)
        began = time.monotonic()
        context = self._context(call, tool.definition.server)
        try:
            result = permit.told(self._warned(call, _signed(await call_tool(tool, call, context), tool)))
        except ServerError as error:
            entry.outcome = "server gone"
            self._finish_call(failure(call, str(error)), began)
            raise
        except asyncio.CancelledError:
            # A call that was stopped gets its result when the turn settles; this one is still running.
            if context.left:
                self._finish_call(failure(call, f"{call.name} was interrupted. {context.left}", "interrupted"), began)
            raise
        finally:
            entry.seconds = time.monotonic() - began
        entry.outcome = result.status
        self._finish_call(result, began, self._traceback(tool, context))

    def _warned(self, call: ToolCall, result: ToolResult) -> ToolResult:
        count = self._streaks.get(_same(call), 0)
        if count < self.max_repeats:
            return result
        words = (
            f"Note: this same call, with the same arguments, was made {count} times in a row. "
            "Use what it returned, call with other arguments, or answer."
        )
        return replace(result, content=(*result.content, Text(words)))

    def _traceback(self, tool: Tool, context: ToolContext) -> str:
        """Return the traceback of a function of the user that raised, and leave it for `%tb` too."""
        if context.error is None or tool.definition.server != NOTEBOOK:
            return ""
        if text := traceback_text(context.error):
            engine().main.leave(context.error.with_traceback(own_traceback(context.error)))
        return text

    def _finish_call(self, result: ToolResult, began: float, traceback: str = "") -> None:
        if result.done is not None and self._done is None:
            self._done = result.done
        self._running.discard(result.call_id)
        self.emit(ToolFinished(result, time.monotonic() - began, traceback))

    def _unknown(self, name: str) -> str:
        if close := get_close_matches(name, self.tools, n=3, cutoff=0.5):
            return f"There is no tool {name!r}. Close names: {', '.join(close)}."
        return f"There is no tool {name!r}. Tools: {listed(self.tools, 10)}."

    def _context(self, call: ToolCall, server: str) -> ToolContext:
        loop = asyncio.get_running_loop()

        def tell(event: ToolProgress | Notice) -> None:
            if running_loop() is loop:
                self._tell(call, event)  # at once: a callback would run after the call's ToolFinished
            else:
                loop.call_soon_threadsafe(self._tell, call, event)

        return ToolContext(
            call,
            deps=self.deps,
            ask=self._question,
            progress=lambda call_id, done, total, words: tell(ToolProgress(call_id, done, total, words)),
            complete=None if self.sample is None else partial(self.sample, call.id, server),
            tell=lambda words: tell(Notice("info", words)),
        )

    def _tell(self, call: ToolCall, event: ToolProgress | Notice) -> None:
        """Emit what a call reports, a notice once, unless the call is settled: a tool in a thread may go on then."""
        if call.id not in self._running or event in self._told:
            return
        if isinstance(event, Notice):
            self._told.append(event)
        self.emit(event)

    async def _question(self, text: str) -> str:
        """Ask the user for a tool. Raises ToolError if there is no one to ask."""
        if (answer := await self.ask_user(text)) is None:
            message = "No one is there to answer the question."
            raise ToolError(message)
        return answer

    async def ask_user(self, text: str, suggested: str = "") -> str | None:
        """Put a question to the user, with an answer that may be sent as it is. Return None without an answer."""
        asked = QuestionAsked(uuid.uuid4().hex, text, suggested)
        intent = await self.gate.put(asked)
        if not isinstance(intent, Reply):
            return None
        self.emit(QuestionAnswered(asked.id, intent.text))
        return intent.text


def _signed(result: ToolResult, tool: Tool) -> ToolResult:
    """Note on a result which server wrote it, if a server did and it is not noted yet."""
    server = tool.definition.server
    return result if result.server or server == NOTEBOOK else replace(result, server=server)


def _same(call: ToolCall) -> str:
    """Return a key that two calls share if they ask for the same."""
    return f"{call.name} {json.dumps(dict(call.arguments), sort_keys=True, default=repr)}"


async def call_by_hand(call: ToolCall, toolsets: Sequence[Toolset], agent: Agent, approvals: Approvals) -> ToolResult:
    """Carry out one call that the user makes, without a model and without events; its progress is dropped.

    The gate decides it like any other call, but does not ask: the call itself is the user's yes. Raises UsageError
    if there is no such tool, and ServerError if its server is gone or the tool may be one of a server that is.
    """
    tools, problems = await list_sources(toolsets)
    if call.name not in tools and problems:
        raise ServerError(redact("\n".join(problems)))
    if call.name not in tools:
        message = f"There is no tool {call.name!r}. Tools: {', '.join(sorted(tools)) or 'none'}."
        raise UsageError(message)
    results: list[ToolResult] = []

    def emit(event: Event) -> None:
        if isinstance(event, ToolFinished):
            results.append(event.result)

    gate = Gate(policy_of(agent.permission), approvals, by_hand=True)
    await ToolExecutor(tools, gate, agent.deps, emit).carry_out([call])
    return results[0]
