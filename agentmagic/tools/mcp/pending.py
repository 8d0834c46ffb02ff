"""The callers that wait for a server, and the host, which asks the user on the server's behalf meanwhile.

Prompts are shown only while a caller waits for the server, and the callers' timeouts are paused while one is open.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import cast

from agentmagic.host import installed
from agentmagic.messages import Content, Message, as_text
from agentmagic.runtime.engine import engine
from agentmagic.runtime.timeouts import Deadline
from agentmagic.secrets import redact
from agentmagic.text import cut
from agentmagic.tools.base import ToolContext
from agentmagic.tools.mcp import limits
from agentmagic.tools.mcp.elicitation import ask_agreement


@dataclass(frozen=True, slots=True)
class AuthorizationPage:
    """Where the user lets us use a server.

    `note` says where the token will be kept, or what was wrong before; `scope` names the rights that are asked for.
    """

    server: str
    url: str
    note: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """What a server wants a model to answer, in at most `max_tokens` tokens."""

    server: str
    messages: tuple[Message, ...]
    instructions: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class SamplingAnswer:
    """What the model answered."""

    text: str
    model: str
    stop_reason: str = "endTurn"


async def complete_by_turn(request: SamplingRequest, call: ToolContext) -> SamplingAnswer:
    """Have the model of the running turn answer, within the time and the budgets of the turn."""
    answer = await call.complete(request.messages, request.instructions, max_tokens=request.max_tokens)
    return SamplingAnswer(answer.text, answer.model, "maxTokens" if answer.cut else "endTurn")


@dataclass(frozen=True, slots=True)
class ServerHost:
    """Asks the user on behalf of servers, by typed questions; all methods run on the engine.

    `complete` makes a model answer; without it sampling is not offered. `confirm` asks whether a server of a file may
    start; without it no such server starts unless the user approved it before.
    """

    complete: Callable[[SamplingRequest, ToolContext], Awaitable[SamplingAnswer]] | None = complete_by_turn
    confirm: Callable[[str], Awaitable[bool]] | None = None

    async def may_start(self, server: str, command: str) -> bool:
        """Ask whether a server that a file of the project names may be started by this command."""
        if self.confirm is None:
            return False
        return await self.confirm(f"Start the MCP server {server!r}, which the project names?\n{command}")

    async def attended(self) -> bool:
        """Return whether a user can be asked to open an authorization page: one whose cell waits."""
        main, person = engine().main, installed().person
        return person is not None and main.serving and await main.run(person.attended)

    async def authorize(self, page: AuthorizationPage) -> str:
        """Show an authorization page; return the address at which the user's browser ended up, "" for a no.

        The question goes past the running call and past the history, because the address contains a secret.
        """
        if (person := installed().person) is None:
            return ""
        rights = f"It asks for these rights: {page.scope}\n" if page.scope else ""
        question = (
            f"The server {page.server!r} asks to be authorized. Open this page, if you trust it:\n"
            f"{page.url}\n{rights}{page.note}\n"
            "If your browser could not come back, paste the address it ended up at (nothing gives up): "
        )
        return await engine().main.run(lambda: person.ask(question))

    async def sample(self, request: SamplingRequest, call: ToolContext) -> SamplingAnswer | None:
        """Show the user what the model would be sent; return the model's answer, or None if the user says no."""
        if self.complete is None:
            return None
        said = [("instructions", request.instructions)] if request.instructions else []
        said += [(message.role, _shown(message)) for message in request.messages]
        words = "\n".join(f"{who}: {cut(redact(text), limits.SAMPLE_SHOWN // max(len(said), 1))}" for who, text in said)
        question = (
            f"The server {request.server!r} wants your model to answer, in up to {request.max_tokens} tokens:\n"
            f"{words}\nSend it? [y/n]"
        )
        return None if await ask_agreement(question, call) else await self.complete(request, call)


def _shown(message: Message) -> str:
    """Return the text of a server's message, in which images and sound are named: they are sent too."""
    return "".join(as_text(cast("Content", part)) for part in message.parts)


class Timer:
    """Calls a function once, after `seconds` that can be paused; make it on the event loop.

    Unlike a `Deadline` it cancels no task, so callers can be told before the connection has wound down.
    """

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self._call = call
        self._left = seconds
        self._handle: asyncio.TimerHandle | None = None
        self.resume()

    def pause(self) -> None:
        """Let no time pass from here on."""
        if self._handle is not None:
            self._left = self._handle.when() - asyncio.get_running_loop().time()
        self.cancel()

    def resume(self) -> None:
        """Let time pass again."""
        self._handle = asyncio.get_running_loop().call_later(max(0.0, self._left), self._call)

    def cancel(self) -> None:
        """Do not call the function any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class PendingCallers:
    """The callers that wait for one server: for its connection, its listings and its calls."""

    def __init__(self, server: str, host: ServerHost) -> None:
        self.server = server
        self.host = host
        self._callers = 0
        self._prompts = 0
        self._clocks: list[Deadline | Timer] = []
        self._authorizing: asyncio.Task[str] | None = None

    @contextmanager
    def caller(self, clock: Deadline | None = None) -> Generator[None]:
        """Count a caller that waits inside the block; the end of the last one withdraws an open authorization."""
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
        """Pause a clock whenever a prompt is open inside the block."""
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
        """Pause the clocks of all callers while the user is asked inside the block."""
        # All clocks: the protocol does not say on behalf of which call a server asks.
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

    async def attended(self) -> bool:
        """Return whether a caller waits and a user can be asked."""
        return self._callers > 0 and await self.host.attended()

    async def authorize(self, url: str, note: str, scope: str = "") -> str:
        """Have the user authorize us; return the pasted address. Raises CancelledError if no caller waits any more."""
        if not self._callers:
            raise asyncio.CancelledError
        self._authorizing = asyncio.ensure_future(self.host.authorize(AuthorizationPage(self.server, url, note, scope)))
        try:
            with self.prompt():
                return await self._authorizing
        finally:
            self._authorizing.cancel()
            self._authorizing = None
