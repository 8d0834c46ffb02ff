"""An outside agent with the interface of a model: `stream` yields one step of the agent's turn at a time.

The agent runs its own agent loop: it gets one prompt, and reports updates until its turn is over. `stream` divides
these updates into steps, in an order that can be recorded and replayed. Between two steps, the module `calls` follows
the agent's tool calls.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from agentmagic.acp import bounds
from agentmagic.acp.agents import outside_agent
from agentmagic.acp.calls import OutsideCalls
from agentmagic.acp.connection import AgentConnection, PermissionRequest
from agentmagic.acp.desk import TurnDesk
from agentmagic.acp.late_words import LastWord, LateWords
from agentmagic.acp.process import quota_refusal
from agentmagic.acp.prompts import INSTRUCTIONS, content_blocks, earlier_text, text_blocks
from agentmagic.acp.updates import CallNews, CostNews, LateCall, News, PlanNews, UpdateReader, usage_of
from agentmagic.errors import BadRequest
from agentmagic.events import Approve, Deny, PartFinished, option_for
from agentmagic.host import current_host
from agentmagic.messages import Message, Part, ProviderData, Reasoning, Text, ToolCall, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished, ModelSettings, Request
from agentmagic.runtime.engine import engine
from agentmagic.runtime.timeouts import retrieve_exception
from agentmagic.tools.base import Tool

PROVIDER = "acp"


class FollowingTurn(Protocol):
    """The turn that prompts an outside agent. It follows tool calls, shows the plan, and checks budgets."""

    calls: OutsideCalls
    tools: dict[str, Tool]

    @property
    def session(self) -> tuple[str, Sequence[Message]]:
        """The id of the agent's session in an earlier kernel ("" if none), and the messages that this session had."""
        ...

    def note_opening(self) -> None:
        """Record that the agent's session is being opened for the next prompt."""
        ...

    def note_prompt(self) -> None:
        """Record that a prompt is sent to the agent now."""
        ...

    def note_activity(self) -> None:
        """Record that the agent has sent an update, which may extend the deadline of the turn."""
        ...

    def unique_id(self, call_id: str) -> str:
        """Return the call id unchanged, or a new id if an earlier call already uses it."""
        ...

    def show_plan(self, plan: PlanNews) -> None:
        """Show the agent's plan."""
        ...

    def record_cost(self, dollars: float) -> None:
        """Record the cost of the current prompt so far, in US dollars."""
        ...

    def warn_once(self, notices: Iterable[str]) -> None:
        """Emit warnings, each once in a session."""
        ...


@dataclass(slots=True)
class _RunningPrompt:
    """A prompt that an outside agent is working on.

    `steps`: the events that `OutsideModel.stream` yields. `quiet`: the timer that ends a step if the agent sends
    nothing for a while. `is_marked`: whether a part of the answer already carries the id of the agent's session.
    `is_answered`: whether the agent has sent its response to the prompt. Its last words may follow the response.
    """

    reader: UpdateReader
    steps: "asyncio.Queue[ModelEvent | Exception]"
    task: "asyncio.Task[None] | None" = None
    quiet: asyncio.TimerHandle | None = None
    is_marked: bool = False
    is_answered: bool = False
    last_word: LastWord = field(default_factory=LastWord)

    async def wait_for_last_words(self) -> None:
        """Wait until the agent's turn has ended, now that its response to the prompt has come."""
        self.is_answered = True
        loop = asyncio.get_running_loop()
        answered = loop.time()
        await asyncio.sleep(0)  # take in the messages that were read together with the response
        while (left := self.last_word.turn_end(answered) - loop.time()) > 0:  # noqa: ASYNC110  (the time itself is meant)
            await asyncio.sleep(min(left, bounds.SILENCE))  # a new word can bring the end forward or put it off

    def wake(self) -> None:
        """Cancel `quiet`, the timer that would end the step, if it is set."""
        if self.quiet is not None:
            self.quiet.cancel()
            self.quiet = None


class OutsideModel:
    """An outside agent with its process and its agent session, for all turns of one agentmagic session.

    `turn` is the turn that is prompting the agent, or None. `late_words`: what the agent has sent after the end of a
    turn. The agent uses its own model settings, and ignores those of the agentmagic session.
    """

    def __init__(self, name: str) -> None:
        self.agent = outside_agent(name)
        self.name = self.agent.model
        self.turn: FollowingTurn | None = None
        self._desk = TurnDesk()
        self._serves = False
        self._connection: AgentConnection | None = None
        self._folder = Path()
        self._prompt: _RunningPrompt | None = None
        self.late_words = LateWords()
        self._ending: asyncio.Task[None] | None = None
        self._seen: Sequence[Message] = ()
        self._session = ""
        self._instructions = ""
        self._total_cost: float | None = 0.0
        self._cost_before: float | None = 0.0
        self._reports_cost = False

    def honours(self, settings: ModelSettings) -> tuple[str, ...]:
        """Return an empty tuple, because an outside agent honours none of agentmagic's model settings."""
        del settings
        return ()

    def price_usage(self, usage: Usage) -> Usage:
        """Return the usage unchanged, because the agent itself reports its cost."""
        return usage

    async def prepare(self) -> None:
        """Start the agent if it is not running. Raises ProviderError and MissingExtra."""
        await self._wait_for_end()
        if self._connection is not None and not self._connection.is_over:
            return
        if self._connection is not None:
            await self._connection.aclose()
        connection, self._connection = AgentConnection(self.agent), None
        try:
            self._folder = await engine().in_pool(lambda: current_host().folder)
            await connection.start(self._folder)
        except BaseException:
            self._ending = asyncio.create_task(connection.aclose())  # in a task, so that a stopped turn ends at once
            self._ending.add_done_callback(retrieve_exception)
            raise
        self._connection = connection

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent]:
        """Yield the events of the next step. If the request ends with a user's prompt, the agent begins a new turn.

        Raises ProviderError. Raises BadRequest outside a turn, or if the earlier steps of the turn were only replayed
        from a recording.
        """
        turn = self.turn
        if turn is None:
            raise BadRequest(f"{self.name} is an agent with a loop of its own, and can be asked in a turn only.")
        if request.messages[-1].role == "user":
            await self._begin(request, turn)
        prompt = self._prompt
        if prompt is None:
            message = f"{self.name} cannot go on in the middle of a recorded turn. Record the cell again: %agent record"
            raise BadRequest(message)
        while True:
            event = await prompt.steps.get()
            if isinstance(event, Exception):
                raise event
            if not prompt.is_marked and isinstance(event, PartFinished):
                event, prompt.is_marked = _with_session(event, self._session), True
            yield event
            if isinstance(event, ModelFinished):
                return

    def remember(self, messages: Sequence[Message]) -> None:
        """Record which messages the agent's session has seen; called at the end of a turn."""
        self._seen = tuple(messages)

    def stop(self) -> None:
        """Cancel the running prompt, if any; if the agent does not end its turn in time, end its process."""
        prompt, self._prompt = self._prompt, None
        connection = self._connection
        if prompt is None or connection is None:
            return
        connection.listener = None
        prompt.wake()
        if prompt.task is None or prompt.task.done():
            return
        if prompt.is_answered:  # the agent has ended its turn: do not wait for its last words
            prompt.task.cancel()
            return
        self._ending = asyncio.create_task(self._end(connection, prompt.task))
        self._ending.add_done_callback(retrieve_exception)

    async def aclose(self) -> None:
        """End the agent's process, and close the MCP endpoint that serves it tools; can be called twice."""
        self.stop()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()
        await self._desk.aclose()

    async def _end(self, connection: AgentConnection, task: "asyncio.Task[None]") -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(bounds.ENDING):
                await connection.cancel()
                await asyncio.wait([task])
        if not task.done():
            task.cancel()
            await connection.aclose()

    async def _wait_for_end(self) -> None:
        """Wait until a cancelled prompt has ended."""
        if self._ending is not None:
            await asyncio.wait([self._ending])
            self._ending = None

    # -- a prompt ------------------------------------------------------------------------------

    async def _begin(self, request: Request, turn: FollowingTurn) -> None:
        turn.note_opening()
        await self.prepare()
        connection = self._connection
        assert connection is not None  # noqa: S101  (of `prepare`)
        *before, prompt = request.messages
        unseen = await self._open(connection, before, turn)
        previous, self._instructions = self._instructions, request.instructions
        instructions = (
            f"{INSTRUCTIONS}\n\n{self._instructions}" if self._instructions and self._instructions != previous else ""
        )
        blocks = [
            *text_blocks(instructions, earlier_text(unseen)),
            *content_blocks(prompt.parts, connection.capabilities),
        ]
        tools = [tool.name for tool in request.tools]
        reader = UpdateReader(self.agent, tools, turn.unique_id, self._folder)
        running = self._prompt = _RunningPrompt(reader, asyncio.Queue())
        turn.calls.reader = running.reader
        turn.calls.emit = self._emit
        self._cost_before, self._reports_cost = self._total_cost, False
        self.late_words.begin_prompt()
        connection.listener, connection.late_listener = self._hear, self._hear_late
        turn.note_prompt()
        running.task = asyncio.create_task(self._ask(connection, running, blocks))
        self._seen = request.messages

    async def _open(
        self, connection: AgentConnection, before: Sequence[Message], turn: FollowingTurn
    ) -> Sequence[Message]:
        """Open or resume the agent's session, unless it is open already and can be used for this turn.

        Return those messages in `before` that the agent has not seen.
        """
        session, seen = (self._session, self._seen) if self._session else turn.session
        goes_on = session and tuple(before[: len(seen)]) == tuple(seen)
        self._desk.serve(turn.tools, turn.calls)
        if connection.session and goes_on and (self._serves or not turn.tools):
            return before[len(seen) :]
        servers = await self._desk.servers(connection.capabilities) if turn.tools else ()
        if turn.tools and not servers:
            turn.warn_once([f"{self.name} takes no MCP servers over HTTP, so it has none of the tools of this turn."])
        self._serves = bool(turn.tools)
        connection.late_listener = None  # updates about the opening of a session, or of another session, are not late
        resumed = await connection.open(self._folder, servers, session if goes_on else "")
        if not resumed:
            self._total_cost, self._instructions = 0.0, ""
        elif not self._session:  # the session's cost so far is unknown: it was reported to an earlier kernel
            self._total_cost = None
        self._session = connection.session
        return before[len(seen) :] if resumed else before

    async def _ask(self, connection: AgentConnection, prompt: _RunningPrompt, blocks: Sequence[Any]) -> None:
        try:
            response = await connection.prompt(blocks)
            if self._prompt is not prompt:  # the turn was stopped
                return
            await prompt.wait_for_last_words()
            for report in self.late_words.end_prompt():
                self._pass_on(prompt, prompt.reader.feed(report))
            connection.listener = None
            usage = usage_of(response, self._prompt_cost)
            self._pass_on(prompt, prompt.reader.finish(response.stop_reason, usage))
        except Exception as error:  # noqa: BLE001  (the turn raises it)
            prompt.steps.put_nowait(quota_refusal(self.agent, error, prompt.reader.last_text))

    def _hear(self, report: Any) -> None:
        """Take an update or a permission request of the running prompt; an update of an earlier prompt is set aside."""
        prompt = self._prompt
        if isinstance(report, PermissionRequest):
            self.late_words.note(report.call)
        elif prompt is not None and self.late_words.hold(report):
            prompt.last_word.hear_held(asyncio.get_running_loop().time())
            return
        self._on_update(report)

    def _hear_late(self, report: Any) -> None:
        """Take an update or a permission request that came after the end of a turn."""
        if isinstance(report, PermissionRequest):
            self._refuse_late(report)
        else:
            self.late_words.add(report.update)

    @property
    def _prompt_cost(self) -> float | None:
        """The cost of the running prompt in US dollars, None if unknown, as at first in a resumed session."""
        if self._total_cost is None or self._cost_before is None or not self._reports_cost:
            return None
        return max(self._total_cost - self._cost_before, 0.0)

    def _on_update(self, report: Any) -> None:
        prompt = self._prompt
        if prompt is None:
            if isinstance(report, PermissionRequest):
                self._refuse_late(report)
            return
        prompt.wake()
        if self.turn is not None:
            self.turn.note_activity()
        try:
            if isinstance(report, PermissionRequest):
                self._on_permission_request(prompt, report)
            else:
                self._pass_on(prompt, prompt.reader.feed(report))
        except Exception as error:  # noqa: BLE001  (the turn raises it)
            if isinstance(report, PermissionRequest):
                report.choose(Deny(""))
            prompt.steps.put_nowait(error)
            return
        if prompt.reader.is_step_whole:
            loop = asyncio.get_running_loop()
            prompt.quiet = loop.call_later(bounds.QUIET, lambda: self._pass_on(prompt, prompt.reader.close()))

    def _on_permission_request(self, prompt: _RunningPrompt, request: PermissionRequest) -> None:
        turn, reader = self.turn, prompt.reader
        if turn is None or prompt.is_answered:
            self._refuse_late(request)
            return
        once = option_for(request.options, Approve(""))
        if once is not None and reader.is_ours(request.call):
            # The user is asked, if need be, when the agent calls the tool over MCP: see `OutsideCalls.call_tool`.
            request.send(once.id)
            return
        self._pass_on(prompt, reader.request(request.call))
        report = reader.report_of(request.call.tool_call_id)
        assert report is not None  # noqa: S101  (of `request`)
        turn.calls.add_request(report, request)

    def _refuse_late(self, request: PermissionRequest) -> None:
        """Refuse a permission request that comes while no turn runs; the next turn tells the user."""
        request.choose(Deny(""))
        self.late_words.add_request(request.call)

    def _emit(self, news: Iterable[News]) -> None:
        if self._prompt is not None:
            self._pass_on(self._prompt, news)

    def _pass_on(self, prompt: _RunningPrompt, news: Iterable[News]) -> None:
        turn, now = self.turn, asyncio.get_running_loop().time()
        for one in news:
            prompt.last_word.hear(one, now)
            match one:
                case _ if turn is None:
                    return
                case LateCall():
                    turn.calls.add_late_call(one)
                case CallNews():
                    turn.calls.update(one)
                case PlanNews():
                    turn.show_plan(one)
                case CostNews():
                    self._total_cost, self._reports_cost = one.dollars, True
                    turn.record_cost(self._prompt_cost or 0.0)
                case _:
                    prompt.steps.put_nowait(one)


def _with_session(event: PartFinished, session: str) -> PartFinished:
    """Return the event with the agent's session id in its part, so that a later kernel can resume the session."""
    assert isinstance(event.part, (Text, Reasoning, ToolCall))  # noqa: S101  (of `UpdateReader`)
    return replace(event, part=replace(event.part, provider_data=ProviderData(PROVIDER, {"session": session})))


def session_in(part: Part) -> str:
    """Return the id of the agent's session that is stored in a part of an answer, or "" if none exists."""
    match getattr(part, "provider_data", None):
        case ProviderData(provider="acp", data={"session": str() as session}):
            return session
        case _:
            return ""


def make(name: str) -> OutsideModel:
    """Return the outside agent `name` as a model. Raises UnknownModel if the agent's command cannot be parsed."""
    return OutsideModel(name)
