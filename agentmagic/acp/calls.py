"""The tool calls in an outside agent's turn. The agent runs its own tools; agentmagic runs those that it offers."""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from agentmagic import log
from agentmagic.acp import bounds
from agentmagic.acp.agents import OutsideAgent
from agentmagic.acp.connection import PermissionRequest
from agentmagic.acp.reports import CallReport, has_command, says_what_runs
from agentmagic.acp.updates import CallNews, LateCall, News, UpdateReader
from agentmagic.approval.approvals import Granted, Refused
from agentmagic.errors import ProviderError, ToolError
from agentmagic.events import AgentOption, Approve, CallChanged, Deny, Event, ToolFinished
from agentmagic.loop.tool_calls import CallOutcome, ToolExecutor
from agentmagic.messages import ToolCall, ToolDef, ToolResult
from agentmagic.runtime.engine import void
from agentmagic.runtime.timeouts import is_cancelling
from agentmagic.serialization import copy_call, same_json
from agentmagic.text import json_line
from agentmagic.tools.base import Tool, ToolContext, Toolset, failure

BY_AGENT = "by the agent"
"""The decision in the audit log for a call that the agent ran without asking for permission."""
CODE = "execute"
"""The name under which a policy's rules find an act that can run code: only the user, or a rule with exactly this name,
can allow it."""
UNASKED = "{} did this without asking: {}. It is forbidden here, so the turn has ended. {}"
FILES = frozenset(["file_path", "filePath", "filepath", "path", "notebook_path", "abs_path", "uri", "url"])
"""Names of inputs that hold the file, or the page, of a call that runs no code."""
WRITTEN = frozenset(
    ["cell_id", "cell_type", "content", "diff", "edit_mode", "limit", "line", "new_source", "newString", "new_string"]
) | frozenset(["offset", "oldString", "old_string", "pages", "pattern", "prompt", "replaceAll", "replace_all"])
"""Names of inputs that say what is done with the file of a call, and that cannot name another file."""
HEADS = ("New: ", "Changed: ")
"""How the lines begin that name the files in the changes that a call makes."""
ABOUT = frozenset(("title", "details", "description"))
"""Arguments that only tell the user about a call."""
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

    `requests`: the agent's permission requests for the call, each with what it wants to do, as it was known when the
    request came; `was_asked`: there was one. `desk`: the call as it came over MCP, or None if its tool is not
    agentmagic's. `late`: calls that began inside this one. `progress`: the latest progress text. `runs_beside`: it was
    reported to run, and another call has its result. `is_followed`: no refusal ends it any more, but only its result.
    `changed` is set each time one of the other fields changes.
    """

    id: str
    report: CallReport | None = None
    requests: deque[tuple[ToolCall, PermissionRequest]] = field(
        default_factory=deque[tuple[ToolCall, PermissionRequest]]
    )
    desk: DeskCall | None = None
    late: deque[ToolCall] = field(default_factory=deque[ToolCall])
    progress: str = ""
    runs: bool = False
    result: ToolResult | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    was_asked: bool = False
    runs_beside: bool = False
    is_followed: bool = False

    @property
    def has_output(self) -> bool:
        """Whether the agent has reported a part of the call's output."""
        return self.report is not None and self.report.output is not None

    async def wait_until_begun(self) -> None:
        """Wait until the agent asks for permission for this call, makes it over MCP, runs it, or has finished it.

        A call inside this one is a sign that this one runs: it is carried out by the code that waits here.

        Some agents report that a call runs before they ask for permission, so such a report counts only if no request
        follows it within `QUIET` seconds, or before another call has its result.
        """
        while not (self.requests or self.desk or self.result or self.runs_beside or self.late):
            if not await self.wait_for_change(bounds.QUIET if self.runs else None) and self.runs:
                return

    async def wait_for_change(self, seconds: float | None = None) -> bool:
        """Wait for the next change of this call, for at most `seconds`. Return whether a change has come."""
        try:
            async with asyncio.timeout(seconds):
                await self.changed.wait()
        except TimeoutError:
            return False
        self.changed.clear()
        return True

    async def requested(self) -> ToolCall:
        """Return what the first permission request is about, as the agent has said so far.

        Some agents ask before they send the input of the call. Wait for it for at most `QUIET` seconds.
        """
        requested, _ = self.requests[0]
        if self.report is not None and not self.report.has_input:
            self.changed.clear()  # the request itself has set it
            await self.wait_for_change(bounds.QUIET)
            if len(self.requests) == 1:  # the input of a further request is not what this one is about
                requested = self.report.call()
        return requested


class OutsideCalls:
    """The tool calls of an outside agent's turn, while the agent runs.

    `reader` reads what the agent reports on the current prompt. `emit` tells the turn about calls made over MCP.
    `was_refused`: a permission request of the agent was refused in this turn.
    """

    def __init__(self) -> None:
        self.reader: UpdateReader | None = None
        self.was_refused = False
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
        """Store the agent's permission request for a call, with what the call would do as the agent says now."""
        live = self._live_call(report.id)
        live.report = report
        live.was_asked = True
        live.requests.append((report.call(), request))
        live.changed.set()

    def decided(self, live: LiveCall) -> None:
        """Mark the first permission request for a call as answered, so that calls that came meanwhile go on."""
        live.requests.popleft()
        if self.reader is not None and self.emit is not None and live.report is not None and not live.requests:
            self.emit(self.reader.decided(live.report))

    def refuse(self, call: ToolCall) -> None:
        """Refuse the open permission requests for a call that is not followed any more."""
        live = self._live_call(call.id)
        self._unclaimed = [one for one in self._unclaimed if one[1] is not live]
        if live.requests:
            self.was_refused = True
            self.finish(live)
        while live.requests:
            live.requests[0][1].choose(Deny(""))
            self.decided(live)

    def update(self, news: CallNews) -> None:
        """Store the progress or the result of a call."""
        live = self._live_call(news.call_id)
        live.runs, live.progress, live.result = True, news.progress, news.result or live.result
        live.changed.set()
        for other in self._live.values() if live.result else ():
            if other.runs:
                other.runs_beside = True
                other.changed.set()

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
            for _, request in live.requests:
                request.send("")
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

    def requested(self, call: ToolCall, changed: bool, options: Sequence[AgentOption]) -> None:
        """Record that the agent asked for permission for a call, and whether its arguments had changed before."""
        ...

    def requests(self, call: ToolCall) -> Sequence[tuple[ToolCall, Sequence[AgentOption]]]:
        """Return the recorded permission requests for a call, each with the call's arguments and the options."""
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

    `agent` is the agent's row in the table of agents. `tape` records calls, or replays recorded ones. `end_turn` ends
    the turn with an error.
    """

    calls: OutsideCalls = field(kw_only=True)
    agent: OutsideAgent = field(kw_only=True)
    tape: CallTape | None = None
    end_turn: Callable[[ProviderError], None] = void
    _result_ids: set[str] = field(default_factory=set[str])

    @property
    def server(self) -> str:
        """The name under which the calls that the agent runs itself are shown."""
        return self.agent.label

    @property
    def code_tool(self) -> Tool:
        """A `Tool` that stands for the commands that the agent carries out itself."""
        return self._tool(ToolCall("", CODE, {}), None)

    def __post_init__(self) -> None:
        emit = self.emit

        def noting(event: Event) -> None:
            if isinstance(event, ToolFinished):
                self._result_ids.add(event.result.call_id)
            emit(event)

        self.emit = noting

    @property
    def proposer(self) -> str:
        """The outside agent, also for its calls of agentmagic tools."""
        return self.server

    async def _call(self, call: ToolCall, depth: int = 0, within: str = "") -> CallOutcome:
        live = self.calls.claim(call)
        if live is not None:
            await live.wait_until_begun()
        if live is None and call.name in self.tools:
            return await super()._call(call, depth, within)
        if live is None or live.desk is None:
            return await self._follow(call, live, depth, within)
        desk = live.desk
        desk_call = replace(call, name=desk.name, arguments=desk.arguments)
        task = asyncio.ensure_future(super()._call(desk_call, depth, within))
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

    async def _follow(self, call: ToolCall, live: LiveCall | None, depth: int, within: str) -> CallOutcome:
        """Follow one call that the agent runs itself: decide on its permission request, if any; wait for the result."""
        entry = log.Audit(self.server, call.name, call.arguments, caller=self.server, within=within)
        try:
            permit: Granted | Refused = Granted(call, BY_AGENT)
            recorded = deque[tuple[ToolCall, Sequence[AgentOption]]]()
            if live is not None and live.requests:
                call, permit = await self._permit(call, live)
                while isinstance(permit, Refused) and live.requests:  # a no ends only the request that it answers
                    self._audit_request(call, permit)
                    call, permit = await self._permit(call, live)
            elif live is None and self.tape is not None:
                recorded.extend(self.tape.requests(call))
                while recorded and (permit.decision == BY_AGENT or isinstance(permit, Refused)):
                    requested, options = recorded.popleft()
                    call, permit = requested, await self._admit(call, requested, options)
            entry.tool, entry.arguments, entry.decision = call.name, call.arguments, permit.decision
            if isinstance(permit, Refused):
                entry.outcome = permit.status
                return self._refuse(call, permit.result(call), inner=depth > 0)
            return await self._run(self._tool(call, live, recorded), permit, entry, depth)
        finally:
            log.audit(entry)

    async def _permit(self, call: ToolCall, live: LiveCall) -> tuple[ToolCall, Granted | Refused]:
        """Decide on the agent's next permission request for a call, and send the agent the decision.

        `call` is the call as it is in the history now. Return the call that was decided about, and the decision.
        """
        requested = replace(await live.requested(), id=call.id)
        _, request = live.requests[0]
        permit = await self._admit(call, requested, request.options)
        if isinstance(permit, Granted):
            request.choose(Approve("", option=permit.option))
        else:
            request.choose(Deny("", option=permit.option))
            self.calls.was_refused = True
            if not live.is_followed and len(live.requests) == 1:
                self.calls.finish(live)
        self.calls.decided(live)
        return requested, permit

    def _audit_request(self, call: ToolCall, permit: Granted | Refused) -> None:
        """Write one of several permission requests for a call into the audit log; the last has the call's own line."""
        entry = log.Audit(self.server, call.name, call.arguments, permit.decision, "asked again", caller=self.server)
        log.audit(entry)

    async def _admit(self, call: ToolCall, requested: ToolCall, options: Sequence[AgentOption]) -> Granted | Refused:
        """Pass a permission request through the gate. If it is for other arguments than `call` has, tell that first."""
        changed = call.name != requested.name or not same_json(dict(requested.arguments), dict(call.arguments))
        if changed:
            self.emit(CallChanged(copy_call(requested)))
        if self.tape is not None and not self.tape.frozen:
            self.tape.requested(requested, changed, options)
        return await self.gate.admit(self._tool(requested, None), requested, self.server, options)

    async def _check_unasked(self, call: ToolCall) -> None:
        """End the turn if the agent did something without asking that the policy or a bound denies."""
        if why := await self.gate.forbids(self._tool(call, None), call):
            error = ProviderError(UNASKED.format(self.server, call.name, why))
            self.end_turn(error)  # an error of a call is only its result, and does not end the turn
            raise error

    def _tool(
        self, call: ToolCall, live: LiveCall | None, recorded: Iterable[tuple[ToolCall, Sequence[AgentOption]]] = ()
    ) -> Tool:
        """Return a `Tool` that stands for an action that the agent carries out itself.

        Its call needs permission, and the user cannot change the arguments. `recorded` are the permission requests that
        the agent made while the recorded call ran.
        """

        async def follow(call: ToolCall, context: ToolContext) -> ToolResult:
            if live is None:
                raise ToolError(NO_TURN)
            return await self._wait(call, live, context)

        async def on_tape(call: ToolCall, context: ToolContext) -> ToolResult:
            assert self.tape is not None  # noqa: S101  (the caller has looked)
            known = call
            if self.tape.frozen and not self.tape.requests(call):
                await self._check_unasked(call)
            for requested, options in recorded:
                await self._admit(known, requested, options)
                known = requested
            return await self.tape.call(tool, _NoTools(), call, context)

        code = runs_code(call, self.agent)
        lasting = ToolDef(
            CODE if code else call.name, f"What {self.server} does itself.", {"type": "object"}, self.server
        )
        definition = replace(lasting, own_name=call.name)  # a rule that denies the kind holds, whoever chose the kind
        scope = partial(always_scope, code=code)
        tool = Tool(definition, follow, None, ask=True, code=code, lasting=lasting, fixed=True, scope=scope)
        return tool if self.tape is None else replace(tool, invoke=on_tape)

    async def _wait(self, call: ToolCall, live: LiveCall, context: ToolContext) -> ToolResult:
        """Report the progress of a call, and start the calls inside it, until the agent sends the call's result."""
        inner_calls: list[asyncio.Task[Any]] = []
        known, is_checked, live.is_followed = call, False, True
        await asyncio.sleep(0)  # let all calls of this step begin before one of them ends, as they do in a replay
        try:
            while True:
                while live.late:
                    late = live.late.popleft()
                    task = asyncio.create_task(self._follow_inside(late, context))
                    task.add_done_callback(lambda _: live.changed.set())
                    inner_calls.append(task)
                while live.requests:
                    known, permit = await self._permit(known, live)
                    self._audit_request(known, permit)
                if not live.was_asked and not is_checked and (live.result is not None or live.has_output):
                    is_checked = True
                    await self._check_unasked(known)
                if live.late or live.requests:  # they came during the check
                    continue
                if live.result is not None and all(task.done() for task in inner_calls):
                    break
                if live.progress:
                    context.progress(0.0, None, live.progress)
                    live.progress = ""
                await live.wait_for_change()
            await asyncio.gather(*inner_calls, return_exceptions=True)
        finally:
            for task in inner_calls:
                task.cancel()
        return replace(live.result, call_id=call.id, name=known.name)

    async def _follow_inside(self, late: ToolCall, context: ToolContext) -> None:
        """Follow a call that began inside another one; its requests get an answer even if it cannot be followed."""
        try:
            await context.call_tool(late.name, late.arguments)
        finally:
            if not is_cancelling():
                self.calls.refuse(late)

    def _with_warning(self, call: ToolCall, result: ToolResult) -> ToolResult:
        return super()._with_warning(call, result) if call.name in self.tools else result


def runs_code(call: ToolCall, agent: OutsideAgent) -> bool:
    """Return whether an outside agent's own call can run code: always, unless its program says by the kind what it is.

    A call whose input has a command is code whatever its kind.
    """
    return call.name not in agent.kinds or has_command(call.arguments)


def always_scope(arguments: Mapping[str, Any], *, code: bool) -> str | None:
    """Return what "always" is bound to for an outside agent's own call: the same input, or the same file if not `code`.

    Return None if the call does not say what will run. The title and the description of a command are texts for the
    user. An input with an unknown name may be about another file, so the answer is then bound to the whole input.
    """
    if not says_what_runs(arguments, code=code):
        return None
    files = {name: value for name, value in arguments.items() if name in FILES}
    lines = str(arguments.get("changes", "")).splitlines()
    changed = sorted({line.partition(": ")[2] for line in lines if line.startswith(HEADS)})
    others = set(arguments) - FILES - WRITTEN - ABOUT - ({"changes"} if changed else set[str]())
    if code or not files or others:
        about = ABOUT if has_command(arguments) else frozenset[str]()  # in other inputs, a title can be what is written
        return json_line({name: arguments[name] for name in arguments if name not in about})
    return json_line(files | ({"changes": changed} if changed else {}))
