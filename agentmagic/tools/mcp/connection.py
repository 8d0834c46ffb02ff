"""One server as its user sees it: its state, its tools, what a call becomes, when to connect again.

Every connection has a life after a life: one that is over is followed by another when the server is next needed.
"""

import asyncio
import json
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from agentmagic.errors import ServerError, ToolError
from agentmagic.runtime.timeouts import Deadline
from agentmagic.secrets import redact
from agentmagic.tools.base import ToolContext
from agentmagic.tools.mcp import catalogue, client, faults, trust
from agentmagic.tools.mcp.asking import Asking, InFlight
from agentmagic.tools.mcp.config import ServerConfig, Unreadable
from agentmagic.tools.mcp.host import Host, Typed
from agentmagic.tools.mcp.life import Life
from agentmagic.tools.mcp.tokens import forget, grant_for
from agentmagic.tools.mcp.waiting import Waiting
from agentmagic.tools.mcp.words import clean, line

if TYPE_CHECKING:
    from mcp import Client, types

T = TypeVar("T")
State = Literal["stopped", "starting", "ready", "died", "failed", "needs approval"]

LAST_WORDS = 4000
"""Characters of a server's stderr to show."""

LONGEST_PROGRESS = 500
"""Characters of a message about progress."""


class Connection:
    """A server by the user's name for it; all methods belong to one event loop.

    `state` is "failed" where it could not be reached and "died" where it was lost; both are tried again,
    once, by the next call. "needs approval" stands for a server of a file that nobody let start yet.
    `error` is the last thing that went wrong, "" if nothing did. `failed_before` is true from a failed start until
    the server is ready or was closed. `host` answers what the server asks.
    """

    def __init__(
        self, name: str, config: ServerConfig, host: Host | None = None, store: trust.TrustStore | None = None
    ) -> None:
        self.name = name
        self.on_change: Callable[[], None] = lambda: None
        self._state: State = "stopped"
        self.error = ""
        self.failed_before = False
        self.tools: Sequence[types.Tool] | None = None
        self.host = host or Typed()
        self._waiting = Waiting(name, self.host)
        self._configure(config)
        self._store = store or trust.TrustStore()
        self._gate = asyncio.Lock()
        self._life: Life | None = None
        self._wanted = False
        self._changes = 0

    def _configure(self, config: ServerConfig) -> None:
        self.config = config
        self.asking = Asking(self.name, self.host, config.roots)
        self._grant = grant_for(config.transport)

    @property
    def state(self) -> State:
        """How the connection is doing; `on_change` is called when that changes."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state
        self.on_change()

    @property
    def stderr(self) -> str:
        """The last words of the server: the end of its stderr, and what it printed that was no message."""
        return self._life.tail.text()[-LAST_WORDS:] if self._life else ""

    @property
    def declined(self) -> bool:
        """Whether a person was asked to authorize us with the server and did not."""
        return self._life is not None and self._life.declined

    @property
    def unauthorized(self) -> bool:
        """Whether the server gave us no token, so that the next start may ask a person."""
        return self._life is not None and self._life.unauthorized != ""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why tools of the last listing are not among the server's tools, by name."""
        return self._life.screen.left_out if self._life else {}

    @property
    def connected(self) -> "Client | None":
        """The library's client, where the server is ready."""
        life = self._life
        return life.client if life is not None and self.state == "ready" and not life.over else None

    async def list_tools(self) -> "Sequence[types.Tool]":
        """Return the server's tools, connecting it where it is not.

        They are asked for once, until the server says that they changed or is connected anew. Raises
        ServerError where it cannot be started, or does not answer in time.
        """
        self._wanted = True
        self.asking.new_turn()
        life = await self._living()
        if self.tools is not None and not life.unwatched:
            return self.tools
        changes = self._changes
        tools = await self.ask_for("list its tools", catalogue.tools)
        self.tools = tools if changes == self._changes and life is self._life else None
        return tools

    async def ask_for(self, what: str, send: "Callable[[Client], Awaitable[T]]") -> T:
        """Send a request that changes nothing, within the time of a call, connecting the server where it is not.

        A server that turns out to be gone is connected again, once. `what` completes "it did not ...". Raises
        ServerError.
        """
        self._wanted = True
        life = await self._living()
        try:
            return await self._ask(life, what, send)
        except ServerError:
            if not life.over:
                raise
        return await self._ask(await self._living(), what, send)

    async def _ask(self, life: Life, what: str, send: "Callable[[Client], Awaitable[T]]") -> T:
        deadline = Deadline(self.config.timeout)
        try:
            async with deadline:
                with self._waiting.caller(deadline):
                    return await send(life.client)
        except TimeoutError:
            raise life.unusable(f"it did not {what} within {self.config.timeout:g} s") from None
        except Exception as error:
            if faults.is_lost(error):
                life.end()
            elif faults.is_refusal(error):
                raise ServerError(
                    redact(f"The MCP server {self.name!r} did not {what}: {line(str(error), 500)}.")
                ) from None
            raise life.unusable(life.reason(error)) from error

    async def call(self, tool: str, arguments: Mapping[str, Any], context: ToolContext) -> "types.CallToolResult":
        """Call a tool once; a call that went out is never sent again.

        There is no limit of time here: cancel it, and the server is told. Raises ToolError where the call
        failed, and ServerError where the server is gone and cannot be brought back to take the call.
        """
        _check_text(arguments)
        try:
            life = await self._living()
        except ServerError as error:
            if self._wanted:
                raise ServerError(self.with_remedy(error)) from error
            raise ToolError(f"{tool} cannot be called: the server {self.name!r} was disconnected.") from None

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            context.progress(progress, total, line(message or "", LONGEST_PROGRESS))

        in_flight = InFlight(context)
        self.asking.in_flight.append(in_flight)
        send = life.client.call_tool(tool, dict(arguments), progress_callback=on_progress)
        try:
            with self._waiting.caller(context.deadline):
                answer = await life.answered(send)
        except Exception as error:
            words = self._failure(life, tool, error)
            visited = await self.asking.visit_first(error)
            raise ToolError(" ".join(filter(None, (words, visited, *in_flight.notes)))) from error
        finally:
            self.asking.in_flight.remove(in_flight)
            in_flight.end()
        return _with_notes(answer, in_flight.notes)

    async def aclose(self) -> None:
        """End the connection, within seconds; no process is left behind."""
        self._wanted = self.failed_before = False
        self.state, self.tools = "stopped", None
        if self._life is not None:
            await self._life.leave()

    async def forget(self) -> None:
        """Delete the token that was granted here, if one was."""
        if self._grant is not None and self._grant.token is not None:
            await forget(self._grant.url)

    def with_remedy(self, error: ServerError) -> str:
        """Return the words of an error of this server, with the commands that mend it."""
        words, name = str(error), shlex.quote(self.name)
        retry = "" if self.state == "needs approval" else f"%mcp restart {name} tries again, "
        return f"{words}{'' if words.endswith('.') else '.'} {retry}%mcp remove {name} forgets the server."

    async def _living(self) -> Life:
        """Return the life whose client can be used, a new one where the last is over. Raises ServerError."""
        life = self._life
        if life is None or life.over:
            life = await self._renew(life)
        with self._waiting.caller():
            await life.until_ready()
        return life

    async def _renew(self, last: Life | None) -> Life:
        if last is not None:
            await last.leave()
        await asyncio.to_thread(client.warm)
        async with self._gate:
            await self._may_start()
        if not self._wanted:
            raise ServerError(f"The server {self.name!r} was disconnected.")
        if self._life is None or self._life.over:  # nobody else was faster
            self._life = self._begin()
        return self._life

    async def _may_start(self) -> None:
        """Ask a person, once, about a server that a file names. Raises ServerError where nobody agreed.

        An entry that could not be read is read again first, in case a variable was set meanwhile.
        """
        if isinstance(entry := self.config.transport, Unreadable):
            config = entry.again()
            self._configure(replace(config, allow=(*config.allow, *self.config.allow)))
        self._check_readable()
        origin = self.config.origin
        if origin is None or await asyncio.to_thread(self._store.approved, origin):
            return
        shown = await asyncio.to_thread(trust.question, self.name, self.config, self._store)
        if await self.host.may_start(self.name, shown):
            await asyncio.to_thread(self.approve)
            return
        self.state = "needs approval"
        self.error = (
            f"The MCP server {self.name!r} was not started, for nobody has approved it yet: {shown}\n"
            f"%mcp approve {self.name} lets it start; McpServers.approve does so in code."
        )
        raise ServerError(self.error)

    def _check_readable(self) -> None:
        if isinstance(entry := self.config.transport, Unreadable):
            self.error = redact(f"The MCP server {self.name!r} cannot be used: {entry.problem}")
            self.state = "failed"
            raise ServerError(self.error)

    def approve(self) -> None:
        """Remember that a person let this server start as it is configured now.

        Raises ServerError if its entry cannot be read, or the approval cannot be kept.
        """
        self._check_readable()
        self._store.approve(self.name, self.config)
        if self.state == "needs approval":
            self.state, self.error = "stopped", ""

    def _begin(self) -> Life:
        self.error, self.tools, self.state = "", None, "starting"
        return Life(
            self.name,
            self.config,
            self.asking,
            self._waiting,
            self._grant,
            on_change=self._follow,
            on_tools_changed=self._forget_tools,
        )

    def _follow(self, life: Life) -> None:
        if life is self._life and self._wanted:
            self.failed_before = life.state == "failed" or (self.failed_before and life.state != "ready")
            self.error, self.state = life.error, life.state  # in this order: `on_change` tells of both

    def _forget_tools(self) -> None:
        self._changes += 1
        self.tools = None

    def _failure(self, life: Life, tool: str, error: Exception) -> str:
        if faults.is_lost(error):
            life.end()
            return (
                f"The server {self.name!r} went away during {tool}; whether the call took effect is unknown. "
                "The server is connected again for the next call."
            )
        if faults.is_misshapen(error):
            return f"{tool} answered in a form that is not MCP, so its result cannot be read."
        return f"{tool} failed: {life.unauthorized or clean(str(error)[:2000]) or type(error).__name__}"


def _with_notes(answer: "types.CallToolResult", notes: Sequence[str]) -> "types.CallToolResult":
    """Tell model and person what the server asked for and did not get."""
    from mcp import types

    answer.content += [types.TextContent(type="text", text=f"[agentmagic: {note}]") for note in notes]
    return answer


def _check_text(arguments: Mapping[str, Any]) -> None:
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ToolError("The arguments hold half a character (a lone surrogate); send them again without it.") from None
