"""The tool calls in an outside agent's turn. The agent runs its own tools; agentmagic runs those that it offers."""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from agentmagic import log
from agentmagic.acp.connection import PermissionRequest
from agentmagic.acp.updates import CallNews, CallReport, LateCall, News, UpdateReader
from agentmagic.approval.approvals import Granted, Refused
from agentmagic.errors import ProviderError, ToolError
from agentmagic.events import Event, ToolFinished
from agentmagic.loop.tool_calls import CallOutcome, ToolExecutor
from agentmagic.messages import ToolCall, ToolDef, ToolResult
from agentmagic.runtime.engine import void
from agentmagic.runtime.timeouts import is_cancelling
from agentmagic.serialization import copy_call, same_json
from agentmagic.tools.base import Tool, ToolContext, Toolset, failure

if TYPE_CHECKING:
    from acp.schema import PermissionOption

BY_AGENT = "by the agent"
"""The decision in the audit log for a call that the agent ran without asking for permission."""
RUNS_CODE = ("execute",)
"""Kinds of calls that run code: only the user, or a rule with exactly this name, can allow them."""
NO_LONGER_WAITS = "{} no longer waits for it."
NO_TURN = "No turn of this agent is running, so no tool can be called."


@dataclass(slots=True)
class DeskCall:
    """A call of an agentmagic tool that an outside agent made over MCP; `answer` is the future for the result."""

    name: str
    arguments: Mapping[str, Any]
    answer: "asyncio.Future[ToolResult]"


@dataclass(slots=True)
class LiveCall:
    """The state of one tool call while the outside agent's turn runs.

    `requests`: the agent's permission requests for the call. `desk`: the call as it came over MCP, or None if its
    tool is not agentmagic's. `late`: calls that began inside this one. `progress`: the latest progress text.
    `changed` is set each time one of the other fields changes.
    """

    id: str
    report: CallReport | None = None
    requests: deque[PermissionRequest] = field(default_factory=deque[PermissionRequest])
    desk: DeskCall | None = None
    late: deque[ToolCall] = field(default_factory=deque[ToolCall])
    progress: str = ""
    runs: bool = False
    result: ToolResult | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_until_begun(self) -> None:
        """Wait until the agent asks for permission for this call, makes it over MCP, runs it, or has finished it."""
        while not (self.requests or self.desk or self.runs or self.result):
            await self.wait_for_change()

    async def wait_for_change(self) -> None:
        """Wait for the next change of this call."""
        await self.changed.wait()
        self.changed.clear()


class OutsideCalls:
    """The tool calls of an outside agent's turn, while the agent runs.

    `reader` reads what the agent reports on the current prompt. `emit` tells the turn about calls made over MCP.
    """

    def __init__(self) -> None:
        self.reader: UpdateReader | None = None
        self.emit: Callable[[Iterable[News]], None] | None = None
        self._live: dict[str, LiveCall] = {}
        self._unclaimed: list[tuple[ToolCall, LiveCall]] = []

    def claim(self, call: ToolCall) -> LiveCall | None:
        """Return the state of a call that the turn is about to carry out; None if the agent is not running."""
        if self.reader is None:
            return None
        for index, (late, live) in enumerate(self._unclaimed):
            if late.name == call.name and same_json(dict(late.arguments), dict(call.arguments)):
                del self._unclaimed[index]
                return live
        return self._live_call(call.id)

    def add_request(self, report: CallReport, request: PermissionRequest) -> None:
        """Store the agent's permission request for a call."""
        live = self._live_call(report.id)
        live.report = report
        live.requests.append(request)
        live.changed.set()

    def update(self, news: CallNews) -> None:
        """Store the progress or the result of a call."""
        live = self._live_call(news.call_id)
        live.runs, live.progress, live.result = True, news.progress, news.result or live.result
        live.changed.set()

    def add_late_call(self, late: LateCall) -> None:
        """Store a call that began inside another call of the agent, while that other call is still running."""
        live, parent = self._live_call(late.call.id), self._live_call(late.parent)
        self._unclaimed.append((late.call, live))
        parent.late.append(late.call)
        parent.changed.set()

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run an agentmagic tool that the agent called over MCP, as part of the turn, and return the result."""
        reader, tell = self.reader, self.emit
        call = ToolCall(f"call_{uuid.uuid4().hex}", name, arguments)
        if reader is None or tell is None:
            return failure(call, NO_TURN)
        try:
            call = copy_call(call)
        except ToolError as error:
            return failure(call, str(error))
        desk = DeskCall(name, call.arguments, asyncio.get_running_loop().create_future())
        try:
            if (report := reader.match_call(name, call.arguments)) is None:
                live = self._live_call(call.id)
                live.desk = desk
                tell(reader.announce_call(call))
                live.report = reader.report_of(call.id)
            else:
                live = self._live_call(report.id)
                live.desk, live.report = desk, report
                live.changed.set()
                tell(reader.close(report))
        except ProviderError as error:
            return failure(call, str(error))
        return await desk.answer

    def end(self) -> None:
        """End the turn: cancel all open permission requests, and fail all unanswered MCP calls."""
        self.reader = None
        for live in self._live.values():
            for request in live.requests:
                if not request.answer.done():
                    request.answer.set_result(None)
            if live.desk is not None and not live.desk.answer.done():
                live.desk.answer.set_result(failure(ToolCall(live.id, live.desk.name, {}), NO_TURN))

    def finish(self, live: LiveCall) -> None:
        """Mark a call as finished; what the agent reports about it later is ignored."""
        if self.reader is not None and live.report is not None:
            self.reader.end(live.report)

    def _live_call(self, call_id: str) -> LiveCall:
        return self._live.setdefault(call_id, LiveCall(call_id))


class CallTape(Protocol):
    """The recording of a turn, with the methods that `OutsideExecutor` uses. A `frozen` recording is only replayed."""

    frozen: bool

    def was_decided(self, call: ToolCall) -> bool:
        """Return whether the recording shows that the user decided about this call, or that the call was not run."""
        ...

    async def call(self, tool: Tool, source: Toolset, call: ToolCall, context: ToolContext) -> ToolResult:
        """Run a call, or return its recorded result."""
        ...


class _NoTools:
    """A toolset without tools."""

    async def tools(self) -> Sequence[Tool]:
        """Return no tools."""
        return ()

    async def aclose(self) -> None:
        """Do nothing."""


@dataclass
class OutsideExecutor(ToolExecutor):
    """Follows the tool calls that an outside agent runs itself, and runs the agent's calls of agentmagic tools.

    Calls that the agent runs itself are shown under the name `server`. `tape` records calls, or replays recorded ones.
    """

    calls: OutsideCalls = field(default_factory=OutsideCalls)
    server: str = ""
    tape: CallTape | None = None
    _result_ids: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        emit = self.emit

        def noting(event: Event) -> None:
            if isinstance(event, ToolFinished):
                self._result_ids.add(event.result.call_id)
            emit(event)

        self.emit = noting

    async def _call(self, call: ToolCall, depth: int = 0) -> CallOutcome:
        live = self.calls.claim(call)
        if live is not None:
            await live.wait_until_begun()
        if live is None and call.name in self.tools:
            return await super()._call(call, depth)
        if live is None or live.desk is None:
            return await self._follow(call, live, depth)
        desk = live.desk
        desk_call = replace(call, name=desk.name, arguments=desk.arguments)
        task = asyncio.ensure_future(super()._call(desk_call, depth))
        desk.answer.add_done_callback(lambda answer: void(answer.cancelled() and task.cancel()))
        try:
            outcome = await task
        except asyncio.CancelledError:
            if is_cancelling():
                raise
            outcome = CallOutcome(failure(desk_call, NO_LONGER_WAITS.format(self.server), "interrupted"))
            if desk_call.id not in self._result_ids:
                self.emit(ToolFinished(outcome.result))
        finally:
            self.calls.finish(live)
        if not desk.answer.done():
            desk.answer.set_result(outcome.result)
        return outcome

    async def _follow(self, call: ToolCall, live: LiveCall | None, depth: int) -> CallOutcome:
        """Follow one call that the agent runs itself: decide on its permission request, if any; wait for the result."""
        tool = self._tool(call, live)
        entry = log.Audit(self.server, call.name, call.arguments)
        try:
            permit: Granted | Refused = Granted(call, BY_AGENT)
            if live is not None and live.requests:
                permit = await self._permit(tool, call, live)
            elif live is None and self.tape is not None and self.tape.was_decided(call):
                permit = await self.gate.admit(tool, call)
            entry.decision = permit.decision
            if isinstance(permit, Refused):
                entry.outcome = permit.status
                if live is not None:
                    self.calls.finish(live)
                return self._refuse(call, permit.result(call), inner=depth > 0)
            return await self._run(tool, permit, entry, depth)
        finally:
            log.audit(entry)

    async def _permit(self, tool: Tool, call: ToolCall, live: LiveCall) -> Granted | Refused:
        """Decide on the agent's permission request for a call, and send the agent the decision."""
        request = live.requests[0]
        permit = await self.gate.admit(tool, call)
        live.requests.popleft()
        if not request.answer.done():
            request.answer.set_result(_option_id(request.options, permit, code=tool.code))
        return permit

    def _tool(self, call: ToolCall, live: LiveCall | None) -> Tool:
        """Return a `Tool` that stands for an action that the agent carries out itself.

        Its call needs permission, and the user cannot change the arguments.
        """

        async def follow(call: ToolCall, context: ToolContext) -> ToolResult:
            if live is None:
                raise ToolError(NO_TURN)
            return await self._wait(tool, call, live, context)

        async def on_tape(call: ToolCall, context: ToolContext) -> ToolResult:
            assert self.tape is not None  # noqa: S101  (the caller has looked)
            return await self.tape.call(tool, _NoTools(), call, context)

        definition = ToolDef(call.name, f"What {self.server} does itself.", {"type": "object"}, self.server)
        code = call.name in RUNS_CODE
        tool = Tool(definition, follow, timeout=None, ask=True, code=code, fixed=True)
        return tool if self.tape is None else replace(tool, invoke=on_tape)

    async def _wait(self, tool: Tool, call: ToolCall, live: LiveCall, context: ToolContext) -> ToolResult:
        """Report the progress of a call, and start the calls inside it, until the agent sends the call's result."""
        inner_calls: list[asyncio.Task[Any]] = []
        await asyncio.sleep(0)  # let all calls of this step begin before one of them ends, as they do in a replay
        try:
            while True:
                while live.late:
                    late = live.late.popleft()
                    inner_calls.append(asyncio.create_task(context.call_tool(late.name, late.arguments)))
                if live.result is not None:
                    break
                if live.requests:
                    await self._permit(tool, call, live)
                if live.progress:
                    context.progress(0.0, None, live.progress)
                    live.progress = ""
                await live.wait_for_change()
            await asyncio.gather(*inner_calls, return_exceptions=True)
        finally:
            for task in inner_calls:
                task.cancel()
        return replace(live.result, call_id=call.id, name=call.name)

    def _with_warning(self, call: ToolCall, result: ToolResult) -> ToolResult:
        return super()._with_warning(call, result) if call.name in self.tools else result


def _option_id(options: "Sequence[PermissionOption]", permit: Granted | Refused, *, code: bool) -> str | None:
    """Return the id of the agent's option that means the decision `permit`, or None if there is no such option."""
    if isinstance(permit, Refused):
        kinds = ("reject_once", "reject_always")
    elif permit.decision.startswith("approved always") and not code:  # code is approved for this program only
        kinds = ("allow_always", "allow_once")
    else:
        kinds = ("allow_once", "allow_always") if not code else ("allow_once",)
    option_ids = {one.kind: one.option_id for one in reversed(options)}
    return next((option_ids[kind] for kind in kinds if kind in option_ids), None)
