"""One session with a server: a task of its own enters the mcp library's client, waits for the end, and leaves it.

The library's `Client` fails if another task leaves it than entered it, and cancels the task that entered when the
transport breaks. So one task owns it; requests come from any task.
"""

import asyncio
import contextvars
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

from agentmagic.errors import ConfigError, MissingExtra, ServerError
from agentmagic.log import logger
from agentmagic.runtime.engine import UserLoop, void
from agentmagic.secrets import redact
from agentmagic.tools.mcp import http_transport, limits, server_errors, stdio
from agentmagic.tools.mcp.config import Http, InProcess, ServerConfig, Stdio, Transport, Unreadable
from agentmagic.tools.mcp.filters import MessageFilter, MessageStream, filtered
from agentmagic.tools.mcp.oauth import Authorization
from agentmagic.tools.mcp.pending import Timer
from agentmagic.tools.mcp.server_requests import ServerRequests
from agentmagic.tools.mcp.token_store import Grant

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectSendStream
    from mcp import Client, types
    from mcp.client._transport import TransportStreams
    from mcp.server import Server

T = TypeVar("T")
SessionState = Literal["starting", "ready", "died", "failed"]

LOG_LEVEL = "info"  # the least important log lines that a server is asked for
MODE = "auto"  # the client settles on a protocol by what the server speaks; a test forces the older one


def warm() -> None:
    """Import the mcp library, which takes a second; a thread may call this before the library is needed.

    Raises MissingExtra if the library is not installed.
    """
    try:
        import_module("mcp.client.streamable_http")
    except ImportError as error:
        raise MissingExtra("MCP servers", "mcp") from error
    for name in ("mcp", "client"):
        # The library logs what servers send wrong, with tracebacks. Without a handler Python prints them into the cell.
        logging.getLogger(name).addHandler(logging.NullHandler())


class SessionTask:
    """A session from entering to leaving; it begins when it is made, on the event loop, and only once.

    `state` is "failed" if the session never was ready and "died" if it was; `error` says why. `on_change` is called
    with the session when they change, `on_tools_changed` when the server says that its tools did. `unwatched` means
    that the server will not say so any more.
    """

    def __init__(
        self,
        config: ServerConfig,
        requests: ServerRequests,
        grant: Grant | None,
        *,
        on_change: "Callable[[SessionTask], None]",
        on_tools_changed: Callable[[], None],
    ) -> None:
        self.state: SessionState = "starting"
        self.error = ""
        self.tail = stdio.Tail()
        self.filter = MessageFilter()
        # A server of this process tells only the listeners of the thread that changed its tools.
        self.unwatched = isinstance(config.transport, InProcess)
        self._config = config
        self._requests = requests
        self._pending = requests.pending
        self._authorization = Authorization(grant, self._pending) if grant else None
        self._on_change = on_change
        self._on_tools_changed = on_tools_changed
        # The thread of a server of this process; None for others.
        self._thread = UserLoop() if isinstance(config.transport, InProcess) else None
        self._left_call = False
        self._expired = False
        self._end = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # Take the exception: if no caller waits any more, asyncio would report it as never retrieved.
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        # An empty context, so that the session outlives the cell that opened it and sees none of its variables.
        name = f"agentmagic-mcp-{self._pending.server}"
        self.owner = asyncio.create_task(self._own(), name=name, context=contextvars.Context())

    @property
    def over(self) -> bool:
        """Whether the session cannot be used any more."""
        return self._expired or self._end.is_set() or self.owner.done()

    @property
    def declined(self) -> bool:
        """Whether the user was asked to authorize us and did not."""
        return self._authorization is not None and self._authorization.in_vain != ""

    @property
    def unauthorized(self) -> str:
        """Why the server gave us no token for the last request, "" if it gave one or wants none."""
        return self._authorization.problem if self._authorization else ""

    @property
    def client(self) -> "Client":
        """The library's client, once it is ready."""
        return self._ready.result()

    async def until_ready(self) -> None:
        """Wait until the session can be used. Raises ServerError if it fails."""
        await asyncio.shield(self._ready)

    async def check(self) -> None:
        """End the session if a call that was given up still blocks the thread of a server of this process."""
        if self._thread is not None and self._left_call:
            self._left_call = False
            if not await self._thread.answers():
                logger.warning(BLOCKED.format(self._pending.server))
                self.end()

    async def answered(self, answer: Awaitable[T]) -> T:
        """Wait for an answer in a task that the owner cancels, so that a stuck transport cannot hold the caller.

        Raises the error of `answer`, and ConnectionAbortedError if the session ended first.
        """
        task = asyncio.ensure_future(answer)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            self._left_call = True
            raise
        if task.cancelled():
            raise ConnectionAbortedError
        return task.result()

    def expire(self) -> None:
        """Make no more calls in the session, because the server does not know it any more."""
        self._expired = True

    async def settle(self) -> None:
        """Wait for the calls of a session that has expired, `CLOSE_SECONDS` at most: the server may answer each."""
        if self._expired and self._calls:
            await asyncio.wait(tuple(self._calls), timeout=limits.CLOSE_SECONDS)

    def end(self) -> None:
        """Do not use the session any more; its owner leaves it."""
        self._end.set()

    async def leave(self) -> None:
        """End the session and wait until it is left, `CLOSE_SECONDS` and `CANCEL_SECONDS` at most."""
        self.end()
        if not self._ready.done():
            self.owner.cancel()
        await asyncio.wait((self.owner,), timeout=limits.CLOSE_SECONDS)
        if not self.owner.done():
            self.owner.cancel()
            await asyncio.wait((self.owner,), timeout=limits.CANCEL_SECONDS)
        self._fail("it was disconnected")  # an owner that was cancelled before its first step has not done so

    def unusable(self, reason: str) -> ServerError:
        """Return the error that the server cannot be used, with its last words."""
        words = self.tail.gist()
        last = f" Its last words: {words}" if words else ""
        return ServerError(redact(f"The MCP server {self._pending.server!r} cannot be used: {reason}.{last}"))

    def reason(self, error: Exception) -> str:
        """Return in words why the server cannot be used."""
        return self.unauthorized or server_errors.reason(self._config.transport, error)

    async def _own(self) -> None:
        """Enter the client, wait for the end, leave the client."""
        patience = Timer(self._config.connect_timeout, self._give_up)
        reason = "it ended"
        try:
            async with AsyncExitStack() as entering:
                with self._pending.clock(patience):
                    client = await self._enter(entering, self._config.transport)
                patience.cancel()
                client.session.validate_tool_result = _accept
                self._become("ready")
                self._ready.set_result(client)
                async with asyncio.TaskGroup() as beside:
                    watchers = (beside.create_task(self._watch_tools(client)), beside.create_task(_ask_for_log(client)))
                    await self._end.wait()
                    for watcher in watchers:
                        watcher.cancel()
        except asyncio.CancelledError:
            reason = "it was disconnected"
        except Exception as error:  # noqa: BLE001  (any error of a transport ends this session, and only this one)
            reason = self.reason(error)
        finally:
            patience.cancel()
            self.end()
            self._fail(reason)
            for call in self._calls:
                call.cancel()

    async def _enter(self, entering: AsyncExitStack, transport: Transport) -> "Client":
        """Enter a client; an address that ends in "/sse" is tried as that of an old server too."""
        try:
            return await entering.enter_async_context(self._client(transport))
        except Exception as error:
            if not isinstance(transport, Http) or transport.sse or not urlsplit(transport.url).path.endswith("/sse"):
                raise
            try:
                return await self._enter(entering, replace(transport, sse=True))
            except Exception:  # noqa: BLE001  (the first error tells more)
                raise error from None

    def _client(self, transport: Transport) -> "Client":
        """Return a client, to be entered once."""
        from mcp import Client, types

        async def on_message(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                self._on_tools_changed()

        match transport:
            case Stdio() as program:
                server: Any = filtered(stdio.connect(program, self.tail, self.end), self.filter)
            case Http() as address:
                auth = self._authorization.as_auth() if self._authorization else None
                server = filtered(http_transport.connect(address, auth), self.filter)
            case InProcess(server=server):
                server = getattr(server, "_lowlevel_server", server)  # of an MCPServer
                if self._thread and hasattr(server, "create_initialization_options"):  # else it is a transport
                    server = _in_thread(server, self._thread)
            case Unreadable(problem=problem):
                raise ConfigError(problem)
        return Client(
            server,
            mode=MODE,
            cache=None,
            log_level=LOG_LEVEL,
            message_handler=on_message,
            **self._requests.callbacks(),
        )

    async def _watch_tools(self, client: "Client") -> None:
        """Listen for changed tools; the protocol of 2026-07-28 sends them only to clients that listen."""
        offered = client.server_capabilities.tools
        if offered is None or not offered.list_changed or not _is_modern(client):
            return
        with suppress(Exception):  # refused, or lost midway: then the tools are listed each time
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._on_tools_changed()
        self.unwatched = True

    def _give_up(self) -> None:
        """Fail at once: winding the server down may take seconds more."""
        if self._ready.done():
            return
        self._fail(f"it did not answer within {self._config.connect_timeout:g} s")
        self.end()
        self.owner.cancel()

    def _fail(self, reason: str) -> None:
        """Set the final state; the first reason counts."""
        if self.state == "ready":
            self._become("died", str(self.unusable(reason)))
        elif self.state == "starting":
            error = self.unusable(reason)
            self._become("failed", str(error))
            self._ready.set_exception(error)

    def _become(self, state: SessionState, error: str = "") -> None:
        self.state, self.error = state, error
        self._on_change(self)


BLOCKED = (
    "A call of the MCP server {!r} was given up, blocks the server's thread, and may still be running. The server is "
    "connected again in another thread. Declare the tool with `def` instead of `async def`."
)


class _Sender(MessageStream):
    """The sending end of a stream whose receiver belongs to another event loop."""

    def __init__(self, inner: "MemoryObjectSendStream[Any]", loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(inner)
        self._loop = loop

    async def aclose(self) -> None:
        self._do(self._inner.close)

    async def send(self, item: Any) -> None:
        self._do(self._inner.send_nowait, item)

    def _do(self, function: Callable[..., None], *arguments: Any) -> None:
        import anyio

        def work() -> None:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the receiver has left
                function(*arguments)

        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(work)


@asynccontextmanager
async def _in_thread(server: "Server[Any]", thread: UserLoop) -> AsyncGenerator["TransportStreams"]:
    """Run a server of this process in a thread, where a tool that blocks stops nothing else. Yield streams to it."""
    import anyio

    here = asyncio.get_running_loop()
    to_client, from_server = anyio.create_memory_object_stream[Any](math.inf)
    to_server, from_client = anyio.create_memory_object_stream[Any](math.inf)
    started: asyncio.Future[asyncio.AbstractEventLoop] = here.create_future()

    async def serve() -> None:
        here.call_soon_threadsafe(started.set_result, asyncio.get_running_loop())
        async with _Sender(to_client, here) as answers:
            await server.run(from_client, answers, server.create_initialization_options())

    async with asyncio.TaskGroup() as group:
        serving = group.create_task(thread.run(serve, "the server", void))
        requests = _Sender(to_server, await started)
        try:
            yield from_server, requests
        finally:
            await requests.aclose()  # a server ends when its input does
            if await thread.answers():
                await asyncio.wait([serving], timeout=limits.EXIT_SECONDS)
            serving.cancel()
            thread.close()


async def _ask_for_log(client: "Client") -> None:
    """Ask a server of the older protocols for its log; later ones are asked with each request."""
    from mcp import types

    if client.server_capabilities.logging is None or _is_modern(client):
        return
    request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=LOG_LEVEL))
    with suppress(Exception):  # a server that refuses keeps its log to itself
        await client.session.send_request(request, types.EmptyResult)


async def _accept(name: str, result: "types.CallToolResult") -> None:
    """Replace the library's check of a result's schema: a pattern from the server could hold the GIL for seconds."""


def _is_modern(client: "Client") -> bool:
    from mcp.types.version import MODERN_PROTOCOL_VERSIONS

    return client.protocol_version in MODERN_PROTOCOL_VERSIONS
