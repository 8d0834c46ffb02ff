"""Implements a session with an MCP server. One task owns it, and opens and closes the mcp library's client.

The library's `Client` is a context manager that the same task must enter and leave, and it cancels that task if the
transport breaks. Therefore one task owns the client. Any other task can send requests with the client.
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
from agentmagic.tools.mcp.filters import MessageFilter, MessageStream, filter_streams
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

LOG_LEVEL = "info"  # Servers are asked for log lines of this level and above.
MODE = "auto"  # The client uses the server's protocol version. A test sets an older version here.


def warm() -> None:
    """Import the mcp library, which takes about a second. Can run in a thread before the library is needed.

    Raises MissingExtra if the library is not installed.
    """
    try:
        import_module("mcp.client.streamable_http")
    except ImportError as error:
        raise MissingExtra("MCP servers", "mcp") from error
    for name in ("mcp", "client"):
        # The mcp library logs invalid messages of servers. Without a handler, Python would print these in cells.
        logging.getLogger(name).addHandler(logging.NullHandler())


class SessionTask:
    """One session with an MCP server. It starts on the running event loop when the object is created.

    `state` is "failed" if the session never became ready, and "died" if it ended after it was ready. `error` is the
    reason. `on_change` is called with the session when `state` and `error` change, and `on_tools_changed` when the
    server reports that its tools changed. `unwatched` is true if changes of the tools are not reported.
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
        # An in-process server reports a change of its tools only in the thread that changes them.
        self.unwatched = isinstance(config.transport, InProcess)
        self._config = config
        self._requests = requests
        self._pending = requests.pending
        self._authorization = Authorization(grant, self._pending) if grant else None
        self._on_change = on_change
        self._on_tools_changed = on_tools_changed
        # The thread in which an in-process server runs, or None for other servers.
        self._thread = UserLoop() if isinstance(config.transport, InProcess) else None
        self._has_cancelled_call = False
        self._is_expired = False
        self._end = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        # The callback retrieves the exception, which asyncio would log if no other code waits for the future.
        self._ready.add_done_callback(lambda ready: ready.cancelled() or ready.exception())
        # The context is empty: the task outlives the cell that opened the session and must not see its variables.
        name = f"agentmagic-mcp-{self._pending.server}"
        self.owner = asyncio.create_task(self._own(), name=name, context=contextvars.Context())

    @property
    def over(self) -> bool:
        """Whether the session has ended or expired, so that it accepts no further requests."""
        return self._is_expired or self._end.is_set() or self.owner.done()

    @property
    def declined(self) -> bool:
        """Whether the user was asked to authorize agentmagic with the server (OAuth), but did not authorize it."""
        return self._authorization is not None and self._authorization.failed_attempt != ""

    @property
    def unauthorized(self) -> str:
        """The reason why the last request had no valid token, or "" if it had one or the server needs none."""
        return self._authorization.problem if self._authorization else ""

    @property
    def client(self) -> "Client":
        """The mcp library's client. Raises InvalidStateError before the session is ready."""
        return self._ready.result()

    async def until_ready(self) -> None:
        """Wait until the session is ready. Raises ServerError if it fails to start."""
        await asyncio.shield(self._ready)

    async def check(self) -> None:
        """End the session if a cancelled call still blocks the thread of an in-process server."""
        if self._thread is not None and self._has_cancelled_call:
            self._has_cancelled_call = False
            if not await self._thread.answers():
                logger.warning(BLOCKED.format(self._pending.server))
                self.end()

    async def wait_for(self, answer: Awaitable[T]) -> T:
        """Await `answer` and return its result. The wait ends with the session, even if the transport is stuck.

        Raises the exception of `answer`, or ConnectionAbortedError if the session ends first.
        """
        task = asyncio.ensure_future(answer)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.cancel()
            self._has_cancelled_call = True
            raise
        if task.cancelled():
            raise ConnectionAbortedError
        return task.result()

    def expire(self) -> None:
        """Mark the session as expired: the server does not know it any more, so no further calls are sent in it."""
        self._is_expired = True

    async def settle(self) -> None:
        """Wait up to `CLOSE_SECONDS` for the open calls of an expired session, which the server may still answer."""
        if self._is_expired and self._calls:
            await asyncio.wait(tuple(self._calls), timeout=limits.CLOSE_SECONDS)

    def end(self) -> None:
        """Tell the owner task to end the session, and return at once."""
        self._end.set()

    async def leave(self) -> None:
        """End the session and wait until the client is closed, at most `CLOSE_SECONDS` plus `CANCEL_SECONDS`."""
        self.end()
        if not self._ready.done():
            self.owner.cancel()
        await asyncio.wait((self.owner,), timeout=limits.CLOSE_SECONDS)
        if not self.owner.done():
            self.owner.cancel()
            await asyncio.wait((self.owner,), timeout=limits.CANCEL_SECONDS)
        self._fail("it was disconnected")  # The owner task calls `_fail` too, unless it was cancelled before it began.

    def unusable(self, reason: str) -> ServerError:
        """Return a ServerError that says why the server cannot be used, with the last lines of its output."""
        output = self.tail.gist()
        last = f" Its last words: {output}" if output else ""
        return ServerError(redact(f"The MCP server {self._pending.server!r} cannot be used: {reason}.{last}"))

    def reason(self, error: Exception) -> str:
        """Return a phrase that says why the server cannot be used: no access token exists, or `error` occurred."""
        return self.unauthorized or server_errors.reason(self._config.transport, error)

    async def _own(self) -> None:
        """Open the mcp library's client, wait until the session should end, and close the client.

        This is the coroutine of the task `owner`.
        """
        patience = Timer(self._config.connect_timeout, self._give_up)
        reason = "it ended"
        try:
            async with AsyncExitStack() as entering:
                with self._pending.clock(patience):
                    client = await self._enter(entering, self._config.transport)
                patience.cancel()
                client.session.validate_tool_result = _accept
                self._set_state("ready")
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
        """Connect to the server and return the mcp library's client, which `entering` will close.

        If connecting to a URL that ends in "/sse" fails, the older transport with server-sent events is tried.
        """
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
        """Return a new client of the mcp library. It can be used in an `async with` block only once."""
        from mcp import Client, types

        async def on_message(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification):
                self._on_tools_changed()

        match transport:
            case Stdio() as program:
                server: Any = filter_streams(stdio.connect(program, self.tail, self.end), self.filter)
            case Http() as address:
                auth = self._authorization.as_auth() if self._authorization else None
                server = filter_streams(http_transport.connect(address, auth), self.filter)
            case InProcess(server=server):
                server = getattr(server, "_lowlevel_server", server)  # The library's MCPServer wraps such a server.
                if self._thread and hasattr(server, "create_initialization_options"):  # Transports have no such method.
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
        """Listen for changes of the tools. Servers with protocol 2026-07-28 report them only to clients that listen."""
        capability = client.server_capabilities.tools
        if capability is None or not capability.list_changed or not _is_modern(client):
            return
        with suppress(Exception):  # If listening fails or ends, `unwatched` makes each turn list the tools again.
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._on_tools_changed()
        self.unwatched = True

    def _give_up(self) -> None:
        """Set the state "failed" because the start took too long. Then end the session, which can take some seconds."""
        if self._ready.done():
            return
        self._fail(f"it did not answer within {self._config.connect_timeout:g} s")
        self.end()
        self.owner.cancel()

    def _fail(self, reason: str) -> None:
        """Set the final state of the session with its reason. A second call has no effect."""
        if self.state == "ready":
            self._set_state("died", str(self.unusable(reason)))
        elif self.state == "starting":
            error = self.unusable(reason)
            self._set_state("failed", str(error))
            self._ready.set_exception(error)

    def _set_state(self, state: SessionState, error: str = "") -> None:
        self.state, self.error = state, error
        self._on_change(self)


BLOCKED = (
    "A call of the MCP server {!r} was given up, blocks the server's thread, and may still be running. The server is "
    "connected again in another thread. Declare the tool with `def` instead of `async def`."
)


class _Sender(MessageStream):
    """The sending end of a stream of messages whose receiver runs on another event loop, in another thread."""

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
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # The receiver has closed the stream.
                function(*arguments)

        with suppress(RuntimeError):  # The receiver's event loop is closed.
            self._loop.call_soon_threadsafe(work)


@asynccontextmanager
async def _in_thread(server: "Server[Any]", thread: UserLoop) -> AsyncGenerator["TransportStreams"]:
    """Run an in-process server in a thread of its own, so that a blocking tool blocks only this server.

    Yield two streams of messages: from the server and to the server.
    """
    import anyio

    here = asyncio.get_running_loop()
    to_client, from_server = anyio.create_memory_object_stream[Any](math.inf)
    to_server, from_client = anyio.create_memory_object_stream[Any](math.inf)
    server_loop: asyncio.Future[asyncio.AbstractEventLoop] = here.create_future()

    async def serve() -> None:
        here.call_soon_threadsafe(server_loop.set_result, asyncio.get_running_loop())
        async with _Sender(to_client, here) as answers:
            await server.run(from_client, answers, server.create_initialization_options())

    async with asyncio.TaskGroup() as group:
        serving = group.create_task(thread.run(serve, "the server", void))
        requests = _Sender(to_server, await server_loop)
        try:
            yield from_server, requests
        finally:
            await requests.aclose()  # A server ends when its input stream is closed.
            if await thread.answers():
                await asyncio.wait([serving], timeout=limits.EXIT_SECONDS)
            serving.cancel()
            thread.close()


async def _ask_for_log(client: "Client") -> None:
    """Ask a server with an older protocol for its log. With newer protocols, each request asks for it."""
    from mcp import types

    if client.server_capabilities.logging is None or _is_modern(client):
        return
    request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=LOG_LEVEL))
    with suppress(Exception):  # A server that refuses sends no log.
        await client.session.send_request(request, types.EmptyResult)


async def _accept(name: str, result: "types.CallToolResult") -> None:
    """Accept any tool result. This replaces the mcp library's check of results against a schema from the server.

    A regular expression in such a schema could hold the GIL for seconds.
    """


def _is_modern(client: "Client") -> bool:
    from mcp.types.version import MODERN_PROTOCOL_VERSIONS

    return client.protocol_version in MODERN_PROTOCOL_VERSIONS
