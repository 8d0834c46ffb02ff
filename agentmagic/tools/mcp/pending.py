"""Tracks the code that waits for an MCP server. `ServerHost` asks the user questions on the server's behalf.

A caller is code that waits for the server. Authorization prompts are shown only while there is a caller. While a prompt
is open, the timeouts of the callers are paused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import cast

from agentmagic.host import current_host
from agentmagic.messages import Content, Message, as_text
from agentmagic.runtime.engine import engine
from agentmagic.runtime.timeouts import Deadline
from agentmagic.secrets import redact
from agentmagic.text import cut
from agentmagic.tools.base import ToolContext
from agentmagic.tools.mcp import limits
from agentmagic.tools.mcp.elicitation import ask_agreement
from agentmagic.tools.server_names import quoted_server


@dataclass(frozen=True, slots=True)
class AuthorizationPage:
    """The web page on which the user authorizes agentmagic to use an MCP server.

    `note` says where the token will be stored, or what was wrong with the last answer. `scope` has the rights that the
    server requests.
    """

    server: str
    url: str
    note: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A request that an MCP server sends to the user's model. The answer has at most `max_tokens` tokens."""

    server: str
    messages: tuple[Message, ...]
    instructions: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class SamplingAnswer:
    """The answer of the user's model to a `SamplingRequest`."""

    text: str
    model: str
    stop_reason: str = "endTurn"


async def complete_by_turn(request: SamplingRequest, call: ToolContext) -> SamplingAnswer:
    """Send an MCP server's request to the model of the running turn, within the time limit and budgets of the turn."""
    answer = await call.complete(request.messages, request.instructions, max_tokens=request.max_tokens)
    return SamplingAnswer(answer.text, answer.model, "maxTokens" if answer.cut else "endTurn")


@dataclass(frozen=True, slots=True)
class ServerHost:
    """Asks the user questions on behalf of MCP servers. The user types the answers.

    All methods run on the engine's event loop. `complete` gets an answer from a model. Without it, servers are told
    that requests to the model ("sampling") are not supported. `confirm` asks the user whether a server from a file may
    start. Without it, only servers that were approved before can start.
    """

    complete: Callable[[SamplingRequest, ToolContext], Awaitable[SamplingAnswer]] | None = complete_by_turn
    confirm: Callable[[str], Awaitable[bool]] | None = None

    async def may_start(self, server: str, command: str) -> bool:
        """Ask the user whether a server from a file of the project may start. `command` is the text of its entry."""
        if self.confirm is None:
            return False
        return await self.confirm(f"Start the MCP server {server!r}, which the project names?\n{command}")

    async def is_attended(self) -> bool:
        """Return whether a user can open an authorization page now: a cell is waiting, and the user can answer."""
        main, person = engine().main, current_host().person
        return person is not None and main.serving and await main.run(person.attended)

    async def authorize(self, page: AuthorizationPage) -> str:
        """Show an authorization page. Return the final address of the user's browser, or "" if the user declines.

        The question and its answer are not recorded in the history, because the address contains a secret.
        """
        if (person := current_host().person) is None:
            return ""
        rights = f"It asks for these rights: {page.scope}\n" if page.scope else ""
        question = (
            f"The server {quoted_server(page.server)} asks to be authorized. Open this page, if you trust it:\n"
            f"{page.url}\n{rights}{page.note}\n"
            "If your browser could not come back, paste the address it ended up at (nothing gives up): "
        )
        return await engine().main.run(lambda: person.ask(question))

    async def sample(self, request: SamplingRequest, call: ToolContext) -> SamplingAnswer | None:
        """Show a server's request for the user's model to the user, and send it to the model if the user agrees.

        Return the model's answer, or None if the user does not agree.
        """
        if self.complete is None:
            return None
        lines = [("instructions", request.instructions)] if request.instructions else []
        lines += [(message.role, _message_text(message)) for message in request.messages]
        summary = "\n".join(
            f"{who}: {cut(redact(text), limits.SAMPLE_SHOWN // max(len(lines), 1))}" for who, text in lines
        )
        question = (
            f"The server {quoted_server(request.server)} wants your model to answer, in up to "
            f"{request.max_tokens} tokens:\n"
            f"{summary}\nSend it? [y/n]"
        )
        return None if await ask_agreement(question, call) else await self.complete(request, call)


def _message_text(message: Message) -> str:
    """Return the text of a message that a server wants to send to the model. The user reads it before approval.

    Labels stand for images and sound, which are sent to the model too.
    """
    return "".join(as_text(cast("Content", part)) for part in message.parts)


class Timer:
    """Calls a function once, after a number of seconds. The clock can be paused.

    It must be created on the event loop. Unlike a `Deadline`, a timer does not cancel a task. Callers can thus get an
    error before the connection is closed.
    """

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self._call = call
        self._remaining = seconds
        self._handle: asyncio.TimerHandle | None = None
        self.resume()

    def pause(self) -> None:
        """Stop the clock until `resume` is called."""
        if self._handle is not None:
            self._remaining = self._handle.when() - asyncio.get_running_loop().time()
        self.cancel()

    def resume(self) -> None:
        """Start the clock again, with the remaining time."""
        self._handle = asyncio.get_running_loop().call_later(max(0.0, self._remaining), self._call)

    def cancel(self) -> None:
        """Cancel the timer, so that the function is not called."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class PendingCallers:
    """Counts the callers of one MCP server: code that waits for its connection, its lists or a tool call."""

    def __init__(self, server: str, host: ServerHost) -> None:
        self.server = server
        self.host = host
        self._callers = 0
        self._prompts = 0
        self._clocks: list[Deadline | Timer] = []
        self._authorizing: asyncio.Task[str] | None = None

    @contextmanager
    def caller(self, clock: Deadline | None = None) -> Generator[None]:
        """Count one more waiting caller while the `with` block runs. `clock` is paused while the user is asked.

        When the last caller leaves its block, an open authorization is cancelled.
        """
        self._callers += 1
        try:
            with nullcontext() if clock is None else self.clock(clock):
                yield
        finally:
            self._callers -= 1
            if not self._callers and self._authorizing is not None:
                self._authorizing.cancel()

    @contextmanager
    def clock(self, clock: Deadline | Timer) -> Generator[None]:
        """While the `with` block runs, pause `clock` whenever a question to the user is open."""
        self._clocks.append(clock)
        if self._prompts:
            clock.pause()
        try:
            yield
        finally:
            self._clocks.remove(clock)
            if self._prompts:
                clock.resume()

    @contextmanager
    def prompt(self) -> Generator[None]:
        """Pause the clocks of all callers while the `with` block runs. The user is asked a question in this block."""
        # All clocks are paused, because the protocol does not say for which call a server asks a question.
        self._prompts += 1
        if self._prompts == 1:
            for clock in self._clocks:
                clock.pause()
        try:
            yield
        finally:
            self._prompts -= 1
            if not self._prompts:
                for clock in self._clocks:
                    clock.resume()

    async def is_attended(self) -> bool:
        """Return whether some code is waiting for the server, and a user can be asked."""
        return self._callers > 0 and await self.host.is_attended()

    async def authorize(self, url: str, note: str, scope: str = "") -> str:
        """Ask the user to authorize agentmagic at a web page, and return the address that the user pastes.

        Raises CancelledError if no code waits for the server any more.
        """
        if not self._callers:
            raise asyncio.CancelledError
        self._authorizing = asyncio.ensure_future(self.host.authorize(AuthorizationPage(self.server, url, note, scope)))
        try:
            with self.prompt():
                return await self._authorizing
        finally:
            self._authorizing.cancel()
            self._authorizing = None
