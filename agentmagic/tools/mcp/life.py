"""One life of a connection: a task of its own enters the mcp client, waits for the end, and leaves it.

One task, for the mcp library's `Client` ends in an error where another task leaves it than entered it, and
cancels the task that entered when the transport breaks. Calls come from any task. The owner has an empty context
of its own, so that a connection outlives the cell that opened it.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from agentmagic.errors import ServerError
from agentmagic.secrets import redact
from agentmagic.tools.mcp import client, faults, stdio
from agentmagic.tools.mcp.asking import Asking
from agentmagic.tools.mcp.config import ServerConfig
from agentmagic.tools.mcp.oauth import Authorization
from agentmagic.tools.mcp.screen import Screen
from agentmagic.tools.mcp.tokens import Grant
from agentmagic.tools.mcp.waiting import Timer, Waiting

if TYPE_CHECKING:
    from mcp import Client

T = TypeVar("T")
LifeState = Literal["starting", "ready", "died", "failed"]

CLOSE = 4.0
"""Seconds to leave a connection in good order; after that it is cut."""

CUT = 0.5
"""Seconds a connection that is cut may take to notice."""


class Life:
    """A connection from entering to leaving; it begins when it is made, on the event loop, and only once.

    `state` is "failed" where it never was ready and "died" where it was, `error` says why; `on_change` is called
    with the life when they change, `on_tools_changed` when the server says that its tools did. `unwatched` is
    whether it will not say so any more. `unauthorized` is why the server was given no token, "" for no trouble.
    """

    def __init__(  # noqa: PLR0913  (what a connection is made of)
        self,
        server: str,
        config: ServerConfig,
        asking: Asking,
        waiting: Waiting,
        grant: Grant | None,
        *,
        on_change: "Callable[[Life], None]",
        on_tools_changed: Callable[[], None],
    ) -> None:
        self.state: LifeState = "starting"
        self.error = ""
        self.tail = stdio.Tail()
        self.screen = Screen()
        self.unwatched = False
        self.unauthorized = ""
        self._server = server
        self._config = config
        self._asking = asking
        self._waiting = waiting
        self._authorization = Authorization(grant, waiting, self._note_problem) if grant else None
        self._on_change = on_change
        self._on_tools_changed = on_tools_changed
        self._status = 0
        self._end = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # The failure may have nobody waiting for it any more.
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        self.owner = asyncio.create_task(self._own(), name=f"agentmagic-mcp-{server}", context=contextvars.Context())

    @property
    def over(self) -> bool:
        """Whether it can be used no more."""
        return self._end.is_set() or self.owner.done()

    @property
    def declined(self) -> bool:
        """Whether a person was asked to authorize us and did not."""
        return self._authorization is not None and self._authorization.in_vain != ""

    @property
    def client(self) -> "Client":
        """The library's client, once it is ready."""
        return self._ready.result()

    async def until_ready(self) -> None:
        """Wait until it can be used. Raises ServerError where it comes to nothing."""
        await asyncio.shield(self._ready)

    async def answered(self, answer: Awaitable[T]) -> T:
        """Wait for an answer in a task that the owner ends: neither a wedged transport nor its end keeps the caller.

        Raises what `answer` raises, and ConnectionAbortedError where the connection ended first.
        """
        task = asyncio.ensure_future(answer)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.cancelled():
            raise ConnectionAbortedError
        return task.result()

    def end(self) -> None:
        """Use it no more; its owner leaves it."""
        self._end.set()

    async def leave(self) -> None:
        """End it, and wait until it is left, `CLOSE` and `CUT` seconds at most."""
        self.end()
        if not self._ready.done():
            self.owner.cancel()
        await asyncio.wait((self.owner,), timeout=CLOSE)
        if not self.owner.done():
            self.owner.cancel()
            await asyncio.wait((self.owner,), timeout=CUT)
        self._fail("it was disconnected")  # an owner that was cancelled before it began told nobody

    def unusable(self, reason: str) -> ServerError:
        """Return the error that says so, with the server's last words."""
        words = self.tail.gist()
        last = f" Its last words: {words}" if words else ""
        return ServerError(redact(f"The MCP server {self._server!r} cannot be used: {reason}.{last}"))

    def reason(self, error: Exception) -> str:
        """Say why the server cannot be used, by what was raised."""
        return self.unauthorized or faults.reason(self._config.transport, error, self._status)

    async def _own(self) -> None:
        """Enter the client, wait for the end, leave it."""
        patience = Timer(self._config.connect_timeout, self._give_up)
        reason = "it ended"
        try:
            async with AsyncExitStack() as entering:
                with self._waiting.clock(patience):
                    entered = await entering.enter_async_context(self._client())
                patience.cancel()
                entered.session.validate_tool_result = client.accept
                self._become("ready")
                self._ready.set_result(entered)
                await self._until_end(entered)
        except asyncio.CancelledError:
            reason = "it was disconnected"
        except Exception as error:  # noqa: BLE001  (whatever a transport raises, this connection is over)
            reason = self.reason(error)
        finally:
            patience.cancel()
            self.end()
            self._fail(reason)
            for call in self._calls:
                call.cancel()

    def _client(self) -> "Client":
        return client.make(
            self._config,
            self._asking,
            self.screen,
            tail=self.tail,
            on_end=self.end,
            on_status=self._note_status,
            on_changed=self._on_tools_changed,
            authorization=self._authorization,
        )

    def _note_status(self, status: int) -> None:
        self._status = status

    def _note_problem(self, problem: str) -> None:
        self.unauthorized = problem

    async def _until_end(self, entered: "Client") -> None:
        async with asyncio.TaskGroup() as beside:
            watchers = (beside.create_task(self._watch(entered)), beside.create_task(client.ask_for_log(entered)))
            await self._end.wait()
            for watcher in watchers:
                watcher.cancel()

    async def _watch(self, entered: "Client") -> None:
        self.unwatched = await client.watch_tools(entered, self._on_tools_changed)

    def _give_up(self) -> None:
        """Tell those who wait at once: winding the server down may take seconds more."""
        if self._ready.done():
            return
        self._fail(f"it did not answer within {self._config.connect_timeout:g} s")
        self.end()
        self.owner.cancel()

    def _fail(self, reason: str) -> None:
        """Tell why it is over; the first reason counts."""
        if self.state == "ready":
            self._become("died", str(self.unusable(reason)))
        elif self.state == "starting":
            error = self.unusable(reason)
            self._become("failed", str(error))
            self._ready.set_exception(error)

    def _become(self, state: LifeState, error: str = "") -> None:
        self.state, self.error = state, error
        self._on_change(self)
