"""A session as what is served: each call of a client is a turn of the session, and the client is its model."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentmagic.agent import MAX_RESULT
from agentmagic.approval.approvals import Approvals
from agentmagic.context.request_view import RequestView
from agentmagic.errors import AgentMagicError, SessionBusy, said
from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Deny,
    Event,
    Intent,
    QuestionAnswered,
    QuestionAsked,
    ToolProgress,
    ToolStarted,
)
from agentmagic.loop.turn import Outcome
from agentmagic.loop.turn_options import Driver
from agentmagic.messages import ToolCall, ToolDef, ToolResult
from agentmagic.runtime.engine import engine
from agentmagic.serve import limits
from agentmagic.serve.client_model import ClientModel
from agentmagic.serve.desk import Desk, Exchange, Page
from agentmagic.tools.base import Tool, ToolContext, Toolset, as_of_now, failure, list_sources
from agentmagic.tools.functions import function_tool
from agentmagic.tools.output_cache import preview, reader

INSTRUCTIONS = (
    "A Jupyter notebook that a person works in: its variables, cells and outputs are live. Look before you change "
    "anything. run_python runs code in it as if the person typed it, and the person may be asked first: say in the "
    "code's comments what it is for. propose_cell suggests cells that the person keeps or discards. A call waits while "
    "a cell runs or the person decides."
)
CALLS = " calls "
"""Stands between the client and the tool in the prompt of a call's turn."""
BUSY = "Another turn of the notebook's session is under way. The call waits for its end."
QUEUED = "Another call is under way. This one waits for its end."
WAITS = "The person at the notebook is asked. The call waits for the answer."
RUNS = "The call runs. If a cell of the notebook is running, it waits for the end of that."
GONE = "the client no longer waits for the answer"
STOPPED = "The call was stopped by the person at the notebook."
POLL = 0.05
"""Seconds between two tries to begin a turn while the history is being changed."""
HEARTBEAT = 5.0
"""Seconds between two notices that a call still waits: many clients give up after 60 s without one."""


class ServedTurn(Protocol):
    """A turn under way, as a `Run` is."""

    @property
    def settled(self) -> Future[Outcome]:
        """Its outcome."""
        ...

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call a function on the engine's thread with every event."""
        ...

    def wait(self) -> object:
        """Wait for the result in synchronous code. Raises the error that ended the turn."""
        ...

    def pass_on(self, intent: Intent) -> None:
        """Answer an approval or a question."""
        ...

    def cancel(self) -> None:
        """End the turn."""
        ...


class TurnStarter(Protocol):
    """What a desk needs of a session."""

    @property
    def running(self) -> ServedTurn | None:
        """The turn that is under way, None without one."""
        ...

    def sources(self) -> Sequence[Toolset]:
        """Return the sources of the tools that are served."""
        ...

    def start(self, prompt: str, driver: Driver) -> ServedTurn:
        """Begin a turn that a client drives, in a thread of the pool. Raises SessionBusy, and UsageError."""
        ...


@dataclass(slots=True)
class _Client:
    """A client by its name: its model, and what the user has approved for it."""

    model: ClientModel
    approvals: Approvals = field(default_factory=Approvals)
    view: RequestView = field(default_factory=RequestView)
    waiting: int = 0


class SessionDesk(Desk):
    """Serves a session. Its turns never interleave, so calls are carried out one after the other, in their order."""

    instructions = INSTRUCTIONS

    def __init__(self, session: TurnStarter, pages: Sequence[Page]) -> None:
        self.pages = pages
        self._session = session
        self._clients: dict[str, _Client] = {}
        self._one = asyncio.Lock()

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients that have made calls."""
        return tuple(self._clients)

    async def tools(self) -> Sequence[ToolDef]:
        """Return the tools, each with a description that knows of the others."""
        tools, _ = await list_sources(self._session.sources())
        offered, _ = as_of_now(tools.values())
        offered.setdefault((more := reader(lambda _: None)).name, more)
        definitions = [tool.definition for tool in offered.values()]
        return [tool.definition if tool.among is None else tool.among(definitions) for tool in offered.values()]

    async def call(self, exchange: Exchange, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Carry out a call in a turn of its own. Cancelling it denies what waits, and ends the turn."""
        call = ToolCall(f"call_{uuid.uuid4().hex}", name, arguments)
        client = self._clients.get(exchange.client)
        if client is None:
            if len(self._clients) >= limits.CLIENTS:
                return failure(call, f"The notebook knows {limits.CLIENTS} clients, and takes no further one.")
            client = self._clients[exchange.client] = _Client(ClientModel(exchange.client))
        if client.waiting >= limits.WAITING:
            return failure(call, f"{limits.WAITING} calls of {exchange.client} wait already. Call again when they end.")
        client.waiting += 1
        try:
            async with _heartbeat(exchange) as say:
                return await self._carry_out(client, call, exchange, say)
        finally:
            client.waiting -= 1

    async def _carry_out(
        self, client: _Client, call: ToolCall, exchange: Exchange, say: Callable[[str], None]
    ) -> ToolResult:
        if self._one.locked():
            say(QUEUED)
        async with self._one:
            client.model.call = call
            driver = Driver(client.model, client.approvals, client.view, exchange.ask)
            try:
                turn = await self._begin(f"{exchange.client}{CALLS}{call.name}", driver, say)
            except AgentMagicError as error:
                return failure(call, said(error))
            watch = _Watch(turn, exchange, say)
            turn.listen(watch.feed)
            try:
                outcome = await asyncio.shield(asyncio.wrap_future(turn.settled))
            except asyncio.CancelledError:
                watch.give_up()
                await asyncio.wait([asyncio.wrap_future(turn.settled)])
                raise
            return _answer(call, outcome)

    async def _begin(self, prompt: str, driver: Driver, say: Callable[[str], None]) -> ServedTurn:
        """Begin a turn as soon as the session has no other one."""
        while True:
            try:
                return await engine().in_pool(lambda: self._session.start(prompt, driver))
            except SessionBusy:
                say(BUSY)
                if (running := self._session.running) is None:
                    await asyncio.sleep(POLL)
                else:
                    await asyncio.wait([asyncio.shield(asyncio.wrap_future(running.settled))])


class _Watch:
    """Tells a client how its call gets on, from the events of the turn."""

    def __init__(self, turn: ServedTurn, exchange: Exchange, say: Callable[[str], None]) -> None:
        self._turn = turn
        self._exchange = exchange
        self._say = say
        self._open: set[str] = set()

    def feed(self, event: Event) -> None:
        """Take an event of the turn."""
        match event:
            case ApprovalAsked() | QuestionAsked():
                self._open.add(event.id)
                self._say(WAITS)
            case ApprovalGiven() | QuestionAnswered():
                self._open.discard(event.id)
            case ToolStarted():
                self._say(RUNS)
            case ToolProgress():
                self._exchange.progress(event.progress, event.total, event.message)
            case _:
                pass

    def give_up(self) -> None:
        """Deny what the user is asked, or else end the turn: its client has gone."""
        for question in tuple(self._open):
            self._turn.pass_on(Deny(question, GONE))
        if not self._open:
            self._turn.cancel()


@asynccontextmanager
async def _heartbeat(exchange: Exchange) -> AsyncGenerator[Callable[[str], None]]:
    """Yield a function that tells the client what its call waits for; the client is told it again and again."""
    words, news = "", asyncio.Event()

    def say(now: str) -> None:
        nonlocal words
        words = now
        news.set()

    async def tell() -> None:
        while True:
            news.clear()
            if words:
                exchange.progress(0, None, words)
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), HEARTBEAT)

    task = asyncio.create_task(tell())
    try:
        yield say
    finally:
        task.cancel()


def _answer(call: ToolCall, outcome: Outcome) -> ToolResult:
    """Return what the client is told of its call: what a model would be sent, or why the turn ended before."""
    parts = (part for message in outcome.result.history_delta for part in message.parts)
    found = [part for part in parts if isinstance(part, ToolResult) and part.call_id == call.id]
    if outcome.result.error:
        return failure(call, outcome.result.error)
    if outcome.result.stop_reason == "cancelled" or not found:
        return failure(call, STOPPED, "interrupted")
    return preview(found[-1], MAX_RESULT)


async def ask_user(question: str, context: ToolContext) -> str:
    """Ask the person at the notebook a question, and return the answer as it was typed.

    Args:
        question: One question, in a sentence or two.
        context: The call.

    Example: Which of the two columns is meant? -> {"question": "Is the price net or gross?"}
    """
    return await context.ask(question)


class Asking:
    """The tool with which a client asks the person at the notebook."""

    is_local = True

    async def tools(self) -> Sequence[Tool]:
        """Return the tool."""
        return [function_tool(ask_user)]

    async def aclose(self) -> None:
        """Do nothing: there is nothing open."""
