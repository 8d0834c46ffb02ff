"""Offers a session to MCP clients. Each call of a client is a turn, in which the client acts as the model."""

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agentmagic.agent import MAX_RESULT
from agentmagic.approval.approvals import NO_ONE, Approvals
from agentmagic.context.request_view import RequestView
from agentmagic.errors import AgentMagicError, SessionBusy, ToolError, describe
from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Deny,
    Event,
    Intent,
    QuestionAsked,
    ToolProgress,
    ToolStarted,
    innermost,
)
from agentmagic.loop.hosting import take_hosted
from agentmagic.loop.turn import Outcome
from agentmagic.loop.turn_options import TurnDriver
from agentmagic.messages import Text, ToolCall, ToolDef, ToolResult
from agentmagic.providers.wire import clean
from agentmagic.runtime.engine import engine
from agentmagic.serialization import copy_call
from agentmagic.serve import limits
from agentmagic.serve.client_model import ClientModel
from agentmagic.serve.desk import Desk, Exchange, Page
from agentmagic.text import sanitize, single_line
from agentmagic.tools.base import Tool, ToolContext, Toolset, current_tools, failure, list_sources
from agentmagic.tools.functions import function_tool
from agentmagic.tools.output_cache import preview, reader

INSTRUCTIONS = (
    "A Jupyter notebook that a person works in: its variables, cells and outputs are live. Look before you change "
    "anything. run_python runs code in it as if the person typed it, and the person may be asked first: say in the "
    "code's comments what it is for. propose_cell suggests cells that the person keeps or discards. A call waits while "
    "a cell runs or the person decides."
)
CALLS = " calls "
"""Separates the client's name from the tool's name in the prompt of a call's turn."""
BUSY = "Another turn of the notebook's session is under way. The call waits for its end."
QUEUED = "Another call is under way. This one waits for its end."
WAITS = "The person at the notebook is asked. The call waits for the answer."
RUNS = "The call runs. If a cell of the notebook is running, it waits for the end of that."
GONE = "the client no longer waits for the answer"
ABSENT = "Or have the user open the notebook in JupyterLab (in a terminal: run %agent serve --wait), and call again."
"""Advice that is added if nobody is at the notebook to approve a call."""
STOPPED = "The call was stopped by the person at the notebook."
POLL = 0.05
"""Seconds between two attempts to start a turn while the history is being changed."""
HEARTBEAT = 5.0
"""Seconds between two progress messages of a waiting call; many clients give up after 60 s without a message."""

_TOOL_NAME = re.compile(rf"[\w.:/-]{{1,{limits.TOOL_NAME}}}")
"""The form of a tool name. Other names are refused without a turn, so they never enter the history."""


class ServedTurn(Protocol):
    """A running turn; `Run` is one implementation."""

    @property
    def settled(self) -> Future[Outcome]:
        """A future that gets the turn's outcome when the turn has ended."""
        ...

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call `listener` on the engine's thread with every event of the turn."""
        ...

    def wait(self) -> object:
        """Block until the turn ends, and return its result. Raises the error that ended the turn."""
        ...

    def pass_on(self, intent: Intent) -> None:
        """Pass the user's answer to an approval request or a question."""
        ...

    def cancel(self) -> None:
        """End the turn."""
        ...


class TurnStarter(Protocol):
    """The methods of a served session that its `SessionDesk` uses for MCP clients."""

    @property
    def running(self) -> ServedTurn | None:
        """The running turn, None without one."""
        ...

    def sources(self) -> Sequence[Toolset]:
        """Return the toolsets whose tools clients can call."""
        ...

    def start(self, prompt: str, driver: TurnDriver) -> ServedTurn:
        """Start a turn for a client's call. `SessionDesk` calls this in a pool thread, not in the engine's thread.

        Raises SessionBusy and UsageError.
        """
        ...


@dataclass(slots=True)
class _Client:
    """The state of one MCP client: the user's approvals for it, its view of the history, its number of open calls."""

    approvals: Approvals = field(default_factory=Approvals)
    view: RequestView = field(default_factory=RequestView)
    waiting: int = 0


class SessionDesk(Desk):
    """Offers a session to MCP clients. A session runs one turn at a time, so calls run in their order of arrival."""

    instructions = INSTRUCTIONS

    def __init__(self, session: TurnStarter, pages: Sequence[Page]) -> None:
        self.pages = pages
        self._session = session
        self._clients: dict[str, _Client] = {}
        self._lock = asyncio.Lock()

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients that have made calls."""
        return tuple(self._clients)

    async def tools(self) -> Sequence[ToolDef]:
        """Return the definitions of the served tools. Descriptions that mention other tools are adapted to them."""
        tools, _ = await list_sources(self._session.sources())
        offer, _ = current_tools(tools.values())
        take_hosted(offer)
        offer.setdefault((more := reader(lambda _: None)).name, more)
        definitions = [tool.definition for tool in offer.values()]
        return [tool.definition if tool.among is None else tool.among(definitions) for tool in offer.values()]

    async def call(self, exchange: Exchange, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a client's call in a turn of its own. Cancelling this denies open approvals, and ends the turn."""
        call = ToolCall(
            f"call_{uuid.uuid4().hex}", single_line(sanitize(name[: limits.TOOL_NAME]), limits.TOOL_NAME), {}
        )
        if not _TOOL_NAME.fullmatch(name):
            return failure(call, f"There is no tool {call.name!r}. The list of tools has their names.")
        try:
            call = copy_call(replace(call, arguments=arguments))
        except ToolError as error:
            return failure(call, str(error))
        call = replace(call, arguments=clean(call.arguments))  # cleaned like the arguments of a model
        client = self._clients.get(exchange.client)
        if client is None:
            if len(self._clients) >= limits.CLIENTS:
                return failure(call, f"The notebook knows {limits.CLIENTS} clients, and takes no further one.")
            client = self._clients[exchange.client] = _Client()
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
        if self._lock.locked():
            say(QUEUED)
        async with self._lock:
            try:
                turn = await self._begin(client, call, exchange, say)
            except AgentMagicError as error:
                return failure(call, describe(error))
            watch = _Watch(turn, exchange, say)
            turn.listen(watch.feed)
            try:
                await _wait_for_end(turn)
            except asyncio.CancelledError:
                watch.give_up()
                await _wait_for_end(turn)
                raise
            answer = _answer(call, turn.settled.result())
            return replace(answer, content=(*answer.content, Text(ABSENT))) if watch.absent else answer

    async def _begin(
        self, client: _Client, call: ToolCall, exchange: Exchange, say: Callable[[str], None]
    ) -> ServedTurn:
        """Start the turn of a call as soon as no other turn of the session is running."""
        prompt, model = f"{exchange.client}{CALLS}{call.name}", ClientModel(exchange.client, call)
        driver = TurnDriver(model, client.approvals, client.view, exchange.ask)
        say(RUNS)
        while True:
            beginning = asyncio.ensure_future(engine().in_pool(lambda: self._session.start(prompt, driver)))
            try:
                return await asyncio.shield(beginning)
            except SessionBusy:
                say(BUSY)
                if (running := self._session.running) is None:
                    await asyncio.sleep(POLL)
                else:
                    await _wait_for_end(running)
            except asyncio.CancelledError:
                model.withdraw()  # the turn may get to its call before the thread that begins it comes back
                await _end_at_once(beginning)
                raise


async def _wait_for_end(turn: ServedTurn) -> None:
    """Wait for the end of a turn. Cancelling the wait does not end the turn."""
    await asyncio.wait([asyncio.shield(asyncio.wrap_future(turn.settled))])


async def _end_at_once(beginning: "asyncio.Future[ServedTurn]") -> None:
    """Cancel a turn as soon as a thread has started it: its client has gone, so nobody waits for the turn."""
    await asyncio.wait([beginning])
    if beginning.exception() is None:
        beginning.result().cancel()
        await _wait_for_end(beginning.result())


class _Watch:
    """Reports the progress of a turn to its MCP client, from the turn's events; ends a turn whose client has gone."""

    def __init__(self, turn: ServedTurn, exchange: Exchange, say: Callable[[str], None]) -> None:
        self._turn = turn
        self._exchange = exchange
        self._say = say
        self.absent = False
        """Whether nobody was there to approve the call."""
        self._open_approvals: set[str] = set()
        """The ids of approvals that wait for the user."""
        self._runs = False
        self._gone = False

    def feed(self, event: Event) -> None:
        """Process an event of the turn: report it to the client, or end the turn if the client has gone."""
        match innermost(event):
            case ApprovalAsked() as asked:
                self._open_approvals.add(asked.id)
                self._say(WAITS)
            case QuestionAsked():
                self._say(WAITS)
            case ApprovalGiven() as given:
                self._open_approvals.discard(given.id)
                self.absent |= given.reason == NO_ONE
                self._runs = self._runs or given.approved
            case ToolStarted():
                self._runs = True
                self._say(RUNS)
            case ToolProgress() as told:
                self._exchange.progress(told.progress, told.total, told.message)
            case _:
                return
        if self._gone and (self._open_approvals or self._runs):
            self._end()

    def give_up(self) -> None:
        """Deny open approvals and end the turn, because the client has gone."""
        self._gone = True
        self._end()

    def _end(self) -> None:
        """Deny open approvals, which ends a call that has not started. If none are open, cancel the turn, once."""
        for question in self._open_approvals:
            self._turn.pass_on(Deny(question, GONE))
        if not self._open_approvals:
            self._gone = False
            self._turn.cancel()


@asynccontextmanager
async def _heartbeat(exchange: Exchange) -> AsyncGenerator[Callable[[str], None]]:
    """Yield a function that sets a message about what a call waits for; the message is sent again and again."""
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
                async with asyncio.timeout(HEARTBEAT):
                    await news.wait()

    task = asyncio.create_task(tell())
    try:
        yield say
    finally:
        task.cancel()


def _answer(call: ToolCall, outcome: Outcome) -> ToolResult:
    """Return the result of a call for its client: what a model would get, or why the turn ended without a result."""
    parts = (part for message in outcome.result.history_delta for part in message.parts)
    results = [part for part in parts if isinstance(part, ToolResult) and part.call_id == call.id]
    if outcome.result.error:
        return failure(call, outcome.result.error)
    if outcome.result.stop_reason == "cancelled" or not results:
        return failure(call, STOPPED, "interrupted")
    return preview(results[-1], MAX_RESULT)


async def ask_user(question: str, context: ToolContext) -> str:
    """Ask the person at the notebook a question, and return the answer as it was typed.

    Args:
        question: One question, in a sentence or two.
        context: The call.

    Example: Which of the two columns is meant? -> {"question": "Is the price net or gross?"}
    """
    return await context.ask(question)


class AskUser:
    """A toolset with one tool, by which a client asks the user at the notebook a question."""

    is_local = True

    async def tools(self) -> Sequence[Tool]:
        """Return the tool that asks the user."""
        return [function_tool(ask_user)]

    async def aclose(self) -> None:
        """Do nothing: this toolset keeps nothing open."""
