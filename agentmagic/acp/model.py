"""An outside agent as the loop sees a model: one step of its turn at a time, in an order that a tape can keep.

The agent owns its loop. It is sent a prompt once, and streams until its turn is over; `stream` hands out the steps of
that, and the calls between two steps are followed by `calls`.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from agentmagic.acp import bounds
from agentmagic.acp.agents import outside_agent
from agentmagic.acp.calls import OutsideCalls
from agentmagic.acp.connection import AgentConnection, PermissionRequest
from agentmagic.acp.desk import TurnDesk
from agentmagic.acp.prompts import INSTRUCTIONS, blocks_of, earlier, text_block
from agentmagic.acp.updates import CallNews, CostNews, LateCall, News, PlanNews, UpdateReader, usage_of
from agentmagic.errors import BadRequest
from agentmagic.events import PartFinished
from agentmagic.host import installed
from agentmagic.messages import Message, Part, ProviderData, Reasoning, Text, ToolCall, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished, ModelSettings, Request
from agentmagic.runtime.engine import engine
from agentmagic.runtime.timeouts import look_at
from agentmagic.tools.base import Tool

PROVIDER = "acp"


class FollowingTurn(Protocol):
    """The turn that asks the agent: it follows the calls, shows the plan, and keeps the budgets."""

    calls: OutsideCalls
    tools: dict[str, Tool]

    @property
    def session(self) -> tuple[str, Sequence[Message]]:
        """The session that the agent had in the kernel before, with the messages that it knows; "" without one."""
        ...

    def alive(self) -> None:
        """Take in that something was heard of the agent."""
        ...

    def fresh(self, call_id: str) -> str:
        """Return the id of a call, or another one if an earlier call has it."""
        ...

    def planned(self, plan: PlanNews) -> None:
        """Show the agent's plan."""
        ...

    def charge(self, dollars: float) -> None:
        """Take in what the prompt has cost so far."""
        ...

    def warn(self, words: str) -> None:
        """Emit a warning."""
        ...


@dataclass(slots=True)
class _RunningPrompt:
    """A prompt that the agent works on."""

    reader: UpdateReader
    steps: "asyncio.Queue[ModelEvent | Exception]"
    task: "asyncio.Task[None] | None" = None
    quiet: asyncio.TimerHandle | None = None
    is_marked: bool = False

    def wake(self) -> None:
        """Stop the clock of the quiet."""
        if self.quiet is not None:
            self.quiet.cancel()
            self.quiet = None


class OutsideModel:
    """An outside agent with its process and its session, for the turns of one session of ours.

    `turn` is the one that asks it. Its own settings are the agent's: it honours none of ours.
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
        self._ending: asyncio.Task[None] | None = None
        self._known: Sequence[Message] = ()
        self._session = ""
        self._told = ""
        self._total: float | None = 0.0
        self._before: float | None = 0.0
        self._costs = False

    def honours(self, settings: ModelSettings) -> tuple[str, ...]:
        """Return no names."""
        del settings
        return ()

    def metered(self, usage: Usage) -> Usage:
        """Return the usage as the agent has reported it."""
        return usage

    async def prepare(self) -> None:
        """Start the agent, if it does not run. Raises ProviderError and MissingExtra."""
        await self._settled()
        if self._connection is not None and not self._connection.over:
            return
        if self._connection is not None:
            await self._connection.aclose()
        connection, self._connection = AgentConnection(self.agent), None
        try:
            self._folder = await engine().in_pool(lambda: installed().folder)
            await connection.start(self._folder)
        except BaseException:
            self._ending = asyncio.create_task(connection.aclose())  # Stop does not wait for its end
            self._ending.add_done_callback(look_at)
            raise
        self._connection = connection

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent]:
        """Yield the next step of the agent's turn; a request that ends with a prompt begins the turn.

        Raises ProviderError, and BadRequest for a request that no turn of the agent makes.
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
                event, prompt.is_marked = _marked(event, self._session), True
            yield event
            if isinstance(event, ModelFinished):
                return

    def remember(self, messages: Sequence[Message]) -> None:
        """Note what the agent's session knows of the conversation, at the end of a turn."""
        self._known = tuple(messages)

    def stop(self) -> None:
        """Cancel the prompt, if there is one; the process is ended if the agent does not end its turn in time."""
        prompt, self._prompt = self._prompt, None
        connection = self._connection
        if prompt is None or connection is None or prompt.task is None or prompt.task.done():
            return
        connection.hear = None
        prompt.wake()
        self._ending = asyncio.create_task(self._end(connection, prompt.task))
        self._ending.add_done_callback(look_at)

    async def aclose(self) -> None:
        """End the agent's process, and close its desk; may be called twice."""
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

    async def _settled(self) -> None:
        """Wait until a cancelled prompt has ended."""
        if self._ending is not None:
            await asyncio.wait([self._ending])
            self._ending = None

    # -- a prompt ------------------------------------------------------------------------------

    async def _begin(self, request: Request, turn: FollowingTurn) -> None:
        await self.prepare()
        connection = self._connection
        assert connection is not None  # noqa: S101  (of `prepare`)
        *before, prompt = request.messages
        unseen = await self._open(connection, before, turn)
        told, self._told = self._told, request.instructions
        words = f"{INSTRUCTIONS}\n\n{self._told}" if self._told and self._told != told else ""
        blocks = [*text_block(words, earlier(unseen)), *blocks_of(prompt.parts, connection.can)]
        tools = [tool.name for tool in request.tools]
        reader = UpdateReader(self.name, tools, turn.fresh, self._folder)
        made = self._prompt = _RunningPrompt(reader, asyncio.Queue())
        turn.calls.reader = made.reader
        turn.calls.tell = self._tell
        self._before, self._costs = self._total, False
        connection.hear = self._hear
        made.task = asyncio.create_task(self._ask(connection, made, blocks))
        self._known = request.messages

    async def _open(
        self, connection: AgentConnection, before: Sequence[Message], turn: FollowingTurn
    ) -> Sequence[Message]:
        """Have the agent's session open, and return the messages before the prompt that it does not know."""
        session, known = (self._session, self._known) if self._session else turn.session
        goes_on = session and tuple(before[: len(known)]) == tuple(known)
        self._desk.serve(turn.tools, turn.calls)
        if connection.session and goes_on and (self._serves or not turn.tools):
            return before[len(known) :]
        servers = await self._desk.servers(connection.can) if turn.tools else ()
        if turn.tools and not servers:
            turn.warn(f"{self.name} takes no MCP servers over HTTP, so it has none of the tools of this turn.")
        self._serves = bool(turn.tools)
        resumed = await connection.open(self._folder, servers, session if goes_on else "")
        if not resumed:
            self._total, self._told = 0.0, ""
        elif not self._session:  # an earlier kernel was told what the session had cost
            self._total = None
        self._session = connection.session
        return before[len(known) :] if resumed else before

    async def _ask(self, connection: AgentConnection, prompt: _RunningPrompt, blocks: Sequence[Any]) -> None:
        try:
            response = await connection.prompt(blocks)
            usage = usage_of(response, self._spent)
            self._pass(prompt, prompt.reader.finish(response.stop_reason, usage))
        except Exception as error:  # noqa: BLE001  (the turn raises it)
            prompt.steps.put_nowait(error)

    @property
    def _spent(self) -> float | None:
        """What the prompt has cost, None if the agent has not reported it."""
        if self._total is None or self._before is None or not self._costs:
            return None
        return max(self._total - self._before, 0.0)

    def _hear(self, report: Any) -> None:
        prompt = self._prompt
        if prompt is None:
            return
        prompt.wake()
        if self.turn is not None:
            self.turn.alive()
        try:
            if isinstance(report, PermissionRequest):
                self._permission(prompt, report)
            else:
                self._pass(prompt, prompt.reader.feed(report))
        except Exception as error:  # noqa: BLE001  (the turn raises it)
            prompt.steps.put_nowait(error)
            return
        if prompt.reader.waits:
            loop = asyncio.get_running_loop()
            prompt.quiet = loop.call_later(bounds.QUIET, lambda: self._pass(prompt, prompt.reader.close()))

    def _permission(self, prompt: _RunningPrompt, request: PermissionRequest) -> None:
        turn, reader = self.turn, prompt.reader
        self._pass(prompt, reader.call(request.call))
        reported = reader.reported(request.call.tool_call_id)
        if turn is None or reported is None or reported.tool:
            kinds = {
                one.kind: one.option_id for one in request.options
            }  # our own tool is asked about when it is called
            request.answer.set_result(kinds.get("allow_once") or kinds.get("allow_always"))
            return
        self._pass(prompt, reader.close(reported))
        turn.calls.ask(reported, request)

    def _tell(self, news: Iterable[News]) -> None:
        if self._prompt is not None:
            self._pass(self._prompt, news)

    def _pass(self, prompt: _RunningPrompt, news: Iterable[News]) -> None:
        turn = self.turn
        for one in news:
            match one:
                case _ if turn is None:
                    return
                case LateCall():
                    turn.calls.late(one)
                case CallNews():
                    turn.calls.news(one)
                case PlanNews():
                    turn.planned(one)
                case CostNews():
                    self._total, self._costs = one.dollars, True
                    turn.charge(self._spent or 0.0)
                case _:
                    prompt.steps.put_nowait(one)


def _marked(event: PartFinished, session: str) -> PartFinished:
    """Return the first part of an answer with the id of the agent's session, by which a later kernel resumes it."""
    assert isinstance(event.part, (Text, Reasoning, ToolCall))  # noqa: S101  (of `UpdateReader`)
    return replace(event, part=replace(event.part, provider_data=ProviderData(PROVIDER, {"session": session})))


def session_in(part: Part) -> str:
    """Return the id of the agent's session that a part of an answer holds, "" for none."""
    match getattr(part, "provider_data", None):
        case ProviderData(provider="acp", data={"session": str() as session}):
            return session
        case _:
            return ""


def make(name: str) -> OutsideModel:
    """Return the model of an outside agent. Raises UnknownModel for a command that cannot be read."""
    return OutsideModel(name)
