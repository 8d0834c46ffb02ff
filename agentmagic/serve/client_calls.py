"""The running tool calls of MCP clients, and the questions that these calls ask the client's own user.

A call runs only as long as its client waits. A client with an MCP session gets a question while its request is open. A
stateless client gets the question, with a state (a random id), as the answer to its request. The client then calls
again with that state and the user's answer. The tool call keeps running meanwhile.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from agentmagic.messages import ToolResult
from agentmagic.runtime.timeouts import retrieve_exception
from agentmagic.serve import limits
from agentmagic.serve.desk import Desk, Exchange
from agentmagic.text import clip

Push = Callable[[str], Awaitable[str | None]]
"""Asks the client's user a question, and returns the answer, or None without an answer."""
ENDED = "The call was ended: the notebook is no longer served."
Notify = Callable[[float, float | None, str], None]


@dataclass(frozen=True, slots=True)
class CallRequest:
    """The tool call that an MCP client requests; a stateless client repeats the request with each answer."""

    client: str
    name: str
    arguments: Mapping[str, Any]


class ClientCall:
    """A running tool call. If `push` is set, it asks the client's user at once; else `questions` collects questions.

    `notify` sends the call's progress to the client. Each further request for this call replaces `notify`.
    """

    def __init__(self, desk: Desk, request: CallRequest, push: Push | None, notify: Notify) -> None:
        self.request = request
        self.notify = notify
        self.questions: dict[str, str] = {}
        self._push = push or self._queue
        self._answers: dict[str, asyncio.Future[str | None]] = {}
        self._numbers = count(1)
        self._has_questions = asyncio.Event()
        self._client_gone = asyncio.Event()
        exchange = Exchange(request.client, self._report, self._ask)
        self.task = asyncio.create_task(desk.call(exchange, request.name, request.arguments))
        self.task.add_done_callback(retrieve_exception)

    async def wait(self, client_gone: asyncio.Event) -> ToolResult | None:
        """Return the result of the call, or None if `questions` wait for answers. If the client has gone, end the call.

        Raises MCPError if the call was ended: its client has gone, or the session is no longer served.
        """
        from mcp import MCPError, types

        waits = [asyncio.ensure_future(event.wait()) for event in (client_gone, self._has_questions)]
        try:
            await asyncio.wait((self.task, *waits), return_when=asyncio.FIRST_COMPLETED)
            has_questions = self._has_questions.is_set() and not client_gone.is_set() and not self.task.done()
        except asyncio.CancelledError:
            await self.end()
            raise
        finally:
            for one in waits:
                one.cancel()
        if has_questions:
            return None
        if not self.task.done():
            await self.end()
        if self.task.cancelled():
            raise MCPError(types.INTERNAL_ERROR, ENDED)
        return self.task.result()

    def answer(self, answers: Mapping[str, str | None]) -> None:
        """Answer open questions. For each question's name, `answers` has a text or None. Unknown names are ignored."""
        for name, text in answers.items():
            if (future := self._answers.get(name)) is not None and not future.done():
                self.questions.pop(name)
                future.set_result(text if text is None else clip(text, limits.ANSWER_TEXT))
        if not self.questions:
            self._has_questions.clear()

    async def end(self) -> None:
        """End the call. Its open questions get the answer None, which denies an approval."""
        self._client_gone.set()
        self.task.cancel()
        await asyncio.wait((self.task,))

    def _report(self, progress: float, total: float | None, message: str) -> None:
        self.notify(progress, total, message)

    async def _ask(self, text: str) -> str | None:
        # Stop waiting when the client has gone, because its turn cannot end while it waits for this answer.
        asking = asyncio.ensure_future(self._push(text))
        client_gone = asyncio.ensure_future(self._client_gone.wait())
        try:
            await asyncio.wait((asking, client_gone), return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()
            client_gone.cancel()

    async def _queue(self, text: str) -> str | None:
        name = f"question_{next(self._numbers)}"
        self.questions[name] = text
        future = self._answers[name] = asyncio.get_running_loop().create_future()
        self._has_questions.set()
        try:
            return await future
        finally:
            del self._answers[name]
            self.questions.pop(name, None)


class ClientCalls:
    """The calls of a served session. A call that waits for a stateless client's answer is stored under a random id."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._open: set[ClientCall] = set()
        self._waiting: dict[str, tuple[ClientCall, asyncio.TimerHandle]] = {}
        self._endings: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def lifespan(self, _server: object) -> AsyncGenerator[None]:
        """Accept calls until the `async with` block ends; then end all calls."""
        try:
            yield
        finally:
            for _, timer in self._waiting.values():
                timer.cancel()
            self._waiting.clear()
            for call in tuple(self._open):
                await call.end()

    def begin(self, request: CallRequest, push: Push | None, notify: Notify) -> ClientCall:
        """Start the tool call that a client requests."""
        call = ClientCall(self._desk, request, push, notify)
        self._open.add(call)
        call.task.add_done_callback(lambda _: self._open.discard(call))
        return call

    def store(self, call: ClientCall) -> str:
        """Store a call that waits for its client's answers, for `ANSWER_SECONDS` seconds.

        Return a random id for the call (the `state` in the protocol), or "" if too many calls wait already.
        """
        if len(self._waiting) >= limits.OPEN_QUESTIONS:
            return ""
        state = secrets.token_urlsafe(32)
        timer = asyncio.get_running_loop().call_later(limits.ANSWER_SECONDS, self._give_up, state)
        self._waiting[state] = call, timer
        return state

    def resume(self, state: str, request: CallRequest) -> ClientCall | None:
        """Remove and return the call of a state (a random id); None if the state is unknown or the request differs."""
        call, timer = self._waiting.get(state, (None, None))
        if call is None or timer is None or call.request != request:
            return None
        timer.cancel()
        del self._waiting[state]
        return call

    def _give_up(self, state: str) -> None:
        ending = asyncio.ensure_future(self._waiting.pop(state)[0].end())
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)
