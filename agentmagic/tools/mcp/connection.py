"""One server, connected: who enters and leaves the mcp client, what a call becomes, when to connect again.

Every connection has a life after a life. In each, one owner task enters the mcp library's `Client`, waits
and leaves it: that library ends in an error where another task leaves, and cancels the task that entered
when the transport breaks. Calls come from any task. The owner has an empty context of its own, so that a
connection outlives the cell that opened it.
"""

import asyncio
import contextvars
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from agentmagic.deadline import Deadline
from agentmagic.errors import ServerError, ToolError
from agentmagic.redact import redact
from agentmagic.tools.base import ToolContext
from agentmagic.tools.mcp import catalogue, client, faults, stdio, trust
from agentmagic.tools.mcp.asking import Asking, InFlight
from agentmagic.tools.mcp.config import ServerConfig
from agentmagic.tools.mcp.host import Host, Typed
from agentmagic.tools.mcp.oauth import Authorization
from agentmagic.tools.mcp.screen import Screen
from agentmagic.tools.mcp.tokens import forget, grant_for
from agentmagic.tools.mcp.waiting import Timer, Waiting
from agentmagic.tools.mcp.words import clean, line

if TYPE_CHECKING:
    from mcp import Client, types

T = TypeVar("T")
State = Literal["stopped", "starting", "ready", "died", "failed", "needs approval"]

CLOSE = 4.0
"""Seconds to leave a connection in good order; after that it is cut."""

CUT = 0.5
"""Seconds a connection that is cut may take to notice."""

LAST_WORDS = 4000
"""Characters of a server's stderr to show."""

LONGEST_PROGRESS = 500
"""Characters of a message about progress."""


@dataclass(slots=True)
class _Life:
    """One connection from entering to leaving."""

    ready: "asyncio.Future[Client]"
    tail: stdio.Tail = field(default_factory=stdio.Tail)
    screen: Screen = field(default_factory=Screen)
    end: asyncio.Event = field(default_factory=asyncio.Event)
    calls: set[asyncio.Task[Any]] = field(default_factory=set[asyncio.Task[Any]])
    owner: asyncio.Task[None] | None = None
    status: int = 0
    unauthorized: str = ""

    @property
    def over(self) -> bool:
        return self.end.is_set() or self.owner is None or self.owner.done()


class Connection:
    """A server by the user's name for it; all methods belong to one event loop.

    `state` is "failed" where it could not be reached and "died" where it was lost; both are tried again,
    once, by the next call. "needs approval" stands for a server of a file that nobody let start yet.
    `error` is the last thing that went wrong, "" if nothing did. `host` answers what the server asks.
    """

    def __init__(
        self, name: str, config: ServerConfig, host: Host | None = None, store: trust.TrustStore | None = None
    ) -> None:
        self.name = name
        self.config = config
        self.on_change: Callable[[], None] = lambda: None
        self._state: State = "stopped"
        self.error = ""
        self.tools: Sequence[types.Tool] | None = None
        self.host = host or Typed()
        self.asking = Asking(name, self.host, config.roots)
        self._waiting = Waiting(name, self.host)
        self._grant = grant_for(config.transport)
        self._store = store or trust.TrustStore()
        self._gate = asyncio.Lock()
        self._life: _Life | None = None
        self._wanted = False
        self._changes = 0
        self._unwatched = False

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
    def left_out(self) -> Mapping[str, str]:
        """Why tools of the last listing are not among the server's tools, by name."""
        return self._life.screen.left_out if self._life else {}

    @property
    def connected(self) -> "Client | None":
        """The library's client, where the server is ready."""
        life = self._life
        return life.ready.result() if life is not None and self.state == "ready" and not life.over else None

    async def list_tools(self) -> "Sequence[types.Tool]":
        """Return the server's tools, connecting it where it is not.

        They are asked for once, until the server says that they changed or is connected anew. Raises
        ServerError where it cannot be started, or does not answer in time.
        """
        self._wanted = True
        self.asking.new_turn()
        life = await self._living()
        if self.tools is not None and not self._unwatched:
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

    async def _ask(self, life: _Life, what: str, send: "Callable[[Client], Awaitable[T]]") -> T:
        deadline = Deadline(self.config.timeout)
        try:
            async with deadline:
                with self._waiting.caller(deadline):
                    return await send(life.ready.result())
        except TimeoutError:
            raise self._unreachable(f"it did not {what} within {self.config.timeout:g} s") from None
        except Exception as error:
            if faults.is_lost(error):
                life.end.set()
            elif faults.is_refusal(error):
                raise ServerError(
                    redact(f"The MCP server {self.name!r} did not {what}: {line(str(error), 500)}.")
                ) from None
            raise self._unreachable(self._reason(error)) from error

    async def call(self, tool: str, arguments: Mapping[str, Any], context: ToolContext) -> "types.CallToolResult":
        """Call a tool once; a call that went out is never sent again.

        There is no limit of time here: cancel it, and the server is told. Raises ToolError where the call
        failed, and ServerError where the server is gone and cannot be brought back to take the call.
        """
        _check_text(arguments)
        try:
            life = await self._living()
        except ServerError:
            if self._wanted:
                raise
            raise ToolError(f"{tool} cannot be called: the server {self.name!r} was disconnected.") from None

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            context.progress(progress, total, line(message or "", LONGEST_PROGRESS))

        in_flight = InFlight(context)
        self.asking.in_flight.append(in_flight)
        send = life.ready.result().call_tool(tool, dict(arguments), progress_callback=on_progress)
        try:
            with self._waiting.caller(context.deadline):
                answer = await self._outcome(life, tool, send)
        except ToolError as error:
            visited = await self.asking.visit_first(error.__cause__)
            raise ToolError(" ".join(filter(None, (str(error), visited, *in_flight.notes)))) from error
        finally:
            self.asking.in_flight.remove(in_flight)
            in_flight.end()
        return _with_notes(answer, in_flight.notes)

    async def aclose(self) -> None:
        """End the connection within `CLOSE` and `CUT` seconds; no process is left behind."""
        self._wanted = False
        self.state, self.tools = "stopped", None
        if self._life is not None:
            await self._leave(self._life)

    async def forget(self) -> None:
        """Delete the token that was granted here, if one was."""
        if self._grant is not None and self._grant.token is not None:
            await forget(self._grant.url)

    async def _living(self) -> _Life:
        """Return the life whose client can be used, a new one where the last is over. Raises ServerError."""
        life = self._life
        if life is None or life.over:
            life = await self._renew(life)
        with self._waiting.caller():
            await asyncio.shield(life.ready)
        return life

    async def _renew(self, last: _Life | None) -> _Life:
        if last is not None:
            await self._leave(last)
        await asyncio.to_thread(client.warm)
        async with self._gate:
            await self._may_start()
        if not self._wanted:
            raise ServerError(f"The server {self.name!r} was disconnected.")
        if self._life is None or self._life.over:  # nobody else was faster
            self._life = self._begin()
        return self._life

    async def _may_start(self) -> None:
        """Ask a person, once, about a server that a file names. Raises ServerError where nobody agreed."""
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

    def approve(self) -> None:
        """Remember that a person let this server start as it is configured now."""
        self._store.approve(self.name, self.config)
        if self.state == "needs approval":
            self.state, self.error = "stopped", ""

    def _begin(self) -> _Life:
        life = _Life(asyncio.get_running_loop().create_future())
        # The failure may have nobody waiting for it any more.
        life.ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        self.state, self.error, self.tools, self._unwatched = "starting", "", None, False
        name = f"agentmagic-mcp-{self.name}"
        life.owner = asyncio.create_task(self._own(life), name=name, context=contextvars.Context())
        return life

    async def _leave(self, life: _Life) -> None:
        life.end.set()
        owner = life.owner
        if owner is None or owner.done():
            return
        if not life.ready.done():
            owner.cancel()
        await asyncio.wait((owner,), timeout=CLOSE)
        if not owner.done():
            owner.cancel()
            await asyncio.wait((owner,), timeout=CUT)

    async def _own(self, life: _Life) -> None:
        """Enter the client, wait for the end, leave it."""
        patience = Timer(self.config.connect_timeout, lambda: self._give_up(life))
        reason = "it ended"
        try:
            async with AsyncExitStack() as entering:
                with self._waiting.clock(patience):
                    entered = await entering.enter_async_context(self._client(life))
                patience.cancel()
                entered.session.validate_tool_result = client.accept
                self.state = "ready"
                life.ready.set_result(entered)
                await self._until_end(life, entered)
        except asyncio.CancelledError:
            reason = "it was disconnected"
        except Exception as error:  # noqa: BLE001  (whatever a transport raises, this connection is over)
            reason = self._reason(error)
        finally:
            patience.cancel()
            life.end.set()
            self._record(life, reason)
            for call in life.calls:
                call.cancel()

    def _record(self, life: _Life, reason: str) -> None:
        was_ready = life.ready.done() and not life.ready.exception()
        if life is self._life and self._wanted:
            self.state = "died" if was_ready else "failed"
            self.error = self.error or str(self._unreachable(reason))
        if not life.ready.done():
            life.ready.set_exception(self._unreachable(reason))

    def _give_up(self, life: _Life) -> None:
        """Tell those who wait at once: winding the server down may take seconds more."""
        if life.ready.done() or life.owner is None:
            return
        error = self._unreachable(f"it did not answer within {self.config.connect_timeout:g} s")
        self.state, self.error = "failed", str(error)
        life.ready.set_exception(error)
        life.end.set()
        life.owner.cancel()

    def _client(self, life: _Life) -> "Client":
        return client.make(
            self.config,
            self.asking,
            life.screen,
            tail=life.tail,
            on_end=life.end.set,
            on_status=lambda status: setattr(life, "status", status),
            on_changed=self._forget_tools,
            authorization=self._authorization(life),
        )

    def _authorization(self, life: _Life) -> Authorization | None:
        if self._grant is None:
            return None
        return Authorization(self._grant, self._waiting, lambda problem: setattr(life, "unauthorized", problem))

    def _forget_tools(self) -> None:
        self._changes += 1
        self.tools = None

    async def _until_end(self, life: _Life, entered: "Client") -> None:
        async with asyncio.TaskGroup() as beside:
            watchers = (beside.create_task(self._watch(entered)), beside.create_task(client.ask_for_log(entered)))
            await life.end.wait()
            for watcher in watchers:
                watcher.cancel()

    async def _watch(self, entered: "Client") -> None:
        self._unwatched = await client.watch_tools(entered, self._forget_tools)

    async def _outcome(
        self, life: _Life, tool: str, answer: "Awaitable[types.CallToolResult]"
    ) -> "types.CallToolResult":
        """Wait for an answer in a task that the owner ends: neither a wedged transport nor its end keeps the caller."""
        task = asyncio.ensure_future(answer)
        life.calls.add(task)
        task.add_done_callback(life.calls.discard)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.cancelled():
            raise self._lost(tool)
        if error := task.exception():
            raise self._failure(life, tool, error) from error
        return task.result()

    def _failure(self, life: _Life, tool: str, error: BaseException) -> ToolError:
        if faults.is_lost(error):
            life.end.set()
            return self._lost(tool)
        if faults.is_misshapen(error):
            return ToolError(f"{tool} answered in a form that is not MCP, so its result cannot be read.")
        return ToolError(f"{tool} failed: {life.unauthorized or clean(str(error)[:2000]) or type(error).__name__}")

    def _lost(self, tool: str) -> ToolError:
        return ToolError(
            f"The server {self.name!r} went away during {tool}; whether the call took effect is unknown. "
            "The server is connected again for the next call."
        )

    def _unreachable(self, reason: str) -> ServerError:
        words = self._life.tail.gist() if self._life else ""
        last = f" Its last words: {words}" if words else ""
        return ServerError(redact(f"The MCP server {self.name!r} cannot be used: {reason}.{last}"))

    def _reason(self, error: BaseException) -> str:
        life = self._life
        if life is not None and life.unauthorized:
            return life.unauthorized
        return faults.reason(self.config.transport, error, life.status if life else 0)


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
