"""The tool calls of a step: decided, carried out together, settled, whatever becomes of them."""

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
from agentmagic.approval.approvals import Granted, Permits, Refused
from agentmagic.errors import ServerError, ToolError
from agentmagic.events import Event, QuestionAnswered, QuestionAsked, Reply, ToolFinished, ToolProgress, ToolStarted
from agentmagic.messages import NOTEBOOK, Message, Text, ToolCall, ToolResult
from agentmagic.runtime.engine import running_loop
from agentmagic.runtime.timeouts import await_all_with_grace
from agentmagic.tools.base import STILL_RUNNING, Completion, Tool, ToolContext, call_tool, failure

Emit = Callable[[Event], None]
Sample = Callable[[str, str, Sequence[Message], str, int], Awaitable[Completion]]
"""Has the model answer a tool: by the id of its call, its server, messages, instructions and a limit of tokens."""


@dataclass(slots=True)
class ToolExecutor:
    """Carries out the calls of a turn and tells of each.

    `permits` decides which run, `sample` has the model answer a tool that asks. `deps` reaches the tools. A call that
    was made `max_repeats` times in a row is still carried out, and its result says so (LOOP-18).
    """

    tools: Mapping[str, Tool]
    permits: Permits
    deps: Any
    emit: Emit
    max_repeats: int = 3
    sample: Sample | None = None
    _done: str | None = None
    _running: set[str] = field(default_factory=set[str])
    _streaks: dict[str, int] = field(default_factory=dict[str, int])

    def refuse(self, calls: Sequence[ToolCall], message: str) -> None:
        """Settle calls without running them; the model reads why."""
        for call in calls:
            self.emit(ToolFinished(failure(call, message)))

    async def carry_out(self, calls: Sequence[ToolCall]) -> str | None:
        """Carry the calls of one step out, together where their tools allow it.

        Returns the message of a tool that ended the turn, else None. Raises ServerError where a tool server
        is gone for good, once every call is settled.
        """
        self._count_repeats(calls)
        for group in self._groups(calls):
            await self._together(group)
        return self._done

    def _count_repeats(self, calls: Sequence[ToolCall]) -> None:
        """Count for each call in how many steps in a row it was made."""
        self._streaks = {key: self._streaks.get(key, 0) + 1 for key in map(_same, calls)}

    def _groups(self, calls: Sequence[ToolCall]) -> Iterator[tuple[ToolCall, ...]]:
        """Split calls into runs that may go side by side; a tool that must be alone makes a run of its own."""

        def alone(call: ToolCall) -> bool:
            tool = self.tools.get(call.name)
            return tool is not None and not tool.parallel

        for is_alone, run in groupby(calls, alone):
            together = tuple(run)
            yield from ((call,) for call in together) if is_alone else (together,)

    async def _together(self, calls: Sequence[ToolCall]) -> None:
        tasks = [asyncio.create_task(self._call(call)) for call in calls]
        await await_all_with_grace(tasks)
        for task in tasks:
            if error := task.exception():
                raise error

    async def _call(self, call: ToolCall) -> None:
        """Settle one call: look it up, ask if need be, run it, tell what came of it; a line of the audit is left."""
        tool = self.tools.get(call.name)
        if tool is None:
            log.audit(log.Audit("", call.name, call.arguments, "no such tool", "error"))
            self.emit(ToolFinished(self._warned(call, failure(call, self._unknown(call.name)))))
            return
        entry = log.Audit(tool.definition.server, call.name, call.arguments)
        try:
            permit = await self.permits.of(tool, call)
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
        """Carry out a call that may run."""
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
            if context.unstoppable:
                self._finish_call(failure(call, f"{call.name} was interrupted. {STILL_RUNNING}", "interrupted"), began)
            raise
        finally:
            entry.seconds = time.monotonic() - began
        entry.outcome = result.status
        self._finish_call(result, began)

    def _warned(self, call: ToolCall, result: ToolResult) -> ToolResult:
        count = self._streaks.get(_same(call), 0)
        if count < self.max_repeats:
            return result
        words = (
            f"Note: this same call, with the same arguments, was made {count} times in a row. "
            "Use what it returned, call with other arguments, or answer."
        )
        return replace(result, content=(*result.content, Text(words)))

    def _finish_call(self, result: ToolResult, began: float) -> None:
        if result.done is not None and self._done is None:
            self._done = result.done
        self._running.discard(result.call_id)
        self.emit(ToolFinished(result, time.monotonic() - began))

    def _unknown(self, name: str) -> str:
        if close := get_close_matches(name, self.tools, n=3, cutoff=0.5):
            return f"There is no tool {name!r}. Close names: {', '.join(close)}."
        return f"There is no tool {name!r}. Tools: {', '.join(list(self.tools)[:10]) or 'none'}."

    def _context(self, call: ToolCall, server: str) -> ToolContext:
        loop = asyncio.get_running_loop()

        def progress(call_id: str, done: float, total: float | None, message: str) -> None:
            event = ToolProgress(call_id, done, total, message)
            if running_loop() is loop:
                self._tell_progress(event)  # at once: later would be after the call's ToolFinished
            else:
                loop.call_soon_threadsafe(self._tell_progress, event)

        complete = None if self.sample is None else partial(self.sample, call.id, server)
        return ToolContext(call, deps=self.deps, ask=self._question, progress=progress, complete=complete)

    def _tell_progress(self, event: ToolProgress) -> None:
        """Tell how far a call has come, unless it was settled without its tool, which goes on."""
        if event.call_id in self._running:
            self.emit(event)

    async def _question(self, text: str) -> str:
        asked = QuestionAsked(uuid.uuid4().hex, text)
        intent = await self.permits.put(asked)
        if not isinstance(intent, Reply):
            message = "Nobody is there to answer the question."
            raise ToolError(message)
        self.emit(QuestionAnswered(asked.id, intent.text))
        return intent.text


def _signed(result: ToolResult, tool: Tool) -> ToolResult:
    """Note on a result which server wrote it, if one did and nobody noted it yet."""
    server = tool.definition.server
    return result if result.server or server == NOTEBOOK else replace(result, server=server)


def _same(call: ToolCall) -> str:
    """Return what two calls share that ask for the same."""
    return f"{call.name} {json.dumps(dict(call.arguments), sort_keys=True, default=repr)}"
