"""The MCP server of a kernel: streamable HTTP on the loopback address, in the event loop of the engine thread.

A token gives access to one desk (the tools and pages of a session). It permits no call: calls are approved as usual.
"""

import asyncio
import hmac
import logging
import secrets
import socket
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from agentmagic.errors import MissingExtra
from agentmagic.runtime.engine import engine
from agentmagic.secrets import register_secret
from agentmagic.serve import limits
from agentmagic.serve.desk import Desk
from agentmagic.serve.http_connection import connection_class
from agentmagic.serve.protocol import CLIENT_GONE, protocol
from agentmagic.tools.mcp.limits import ValueCounter

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server as Protocol
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import Message, Receive, Scope, Send

HOST = "127.0.0.1"
PATH = "/mcp"


TOO_LARGE = f"A request has up to {limits.REQUEST_BYTES >> 20} MiB and {limits.VALUES:,} values. Send less in a call."
TOO_MANY = f"{limits.REQUESTS} requests are being answered already. Send this one again when some of them are."
TOO_MUCH = "The requests that are being answered are too large together. Send this one again when they are."


class _HttpRefusal(Exception):
    """Raised to answer an HTTP request with an error status and a message."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


@dataclass(slots=True)
class _OpenDesk:
    token: str = field(repr=False)
    manager: "StreamableHTTPSessionManager"
    end: asyncio.Event
    task: asyncio.Task[None] | None = None


class Server:
    """Serves desks (the tools and pages of sessions) at one address, each with its own token.

    The methods are called on the engine thread. The server listens from the first `open` until `aclose`.
    """

    def __init__(self) -> None:
        self._desks: list[_OpenDesk] = []
        self._socket: socket.socket | None = None
        self._http: Any = None
        self._serving: asyncio.Task[None] | None = None
        self._requests = 0
        self._bytes = 0

    @property
    def url(self) -> str:
        """The URL of the MCP endpoint, "" before the first desk is open."""
        return "" if self._socket is None else f"http://{HOST}:{self._socket.getsockname()[1]}{PATH}"

    async def open(self, desk: Desk) -> str:
        """Serve a desk (a session's tools and pages); return its token. Raises MissingExtra if `mcp` is missing."""
        await self._listen()
        token = secrets.token_urlsafe(32)
        register_secret(token)
        manager = _manager(protocol(desk), self.url)
        open_desk = _OpenDesk(token, manager, asyncio.Event())
        self._desks.append(open_desk)
        ready = asyncio.Event()
        open_desk.task = asyncio.create_task(_keep_open(open_desk, ready))
        await ready.wait()
        return token

    async def close(self, token: str) -> None:
        """Stop serving a session's desk: end its calls, and make its token invalid."""
        open_desk = next((one for one in self._desks if one.token == token), None)
        if open_desk is not None and open_desk.task is not None:
            self._desks.remove(open_desk)
            open_desk.end.set()
            await asyncio.wait([open_desk.task], timeout=limits.CLOSING)

    async def aclose(self) -> None:
        """Stop serving all sessions' desks, and stop listening; can be called twice."""
        for open_desk in tuple(self._desks):
            await self.close(open_desk.token)
        serving, self._serving = self._serving, None
        if serving is not None:
            self._http.should_exit = True
            done, _ = await asyncio.wait([serving], timeout=limits.CLOSING)
            if not done:
                serving.cancel()
        listening, self._socket = self._socket, None
        if listening is not None:
            listening.close()

    async def _listen(self) -> None:
        if self._serving is not None:
            return
        connection = await engine().in_pool(_load)
        from uvicorn import Config
        from uvicorn import Server as HttpServer

        listening = self._socket = socket.create_server((HOST, 0))
        config = Config(
            cast("Any", self._answer),
            interface="asgi3",
            http=connection,
            proxy_headers=False,
            log_config=None,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        self._http = HttpServer(config)
        # uvicorn installs no signal handlers here, because the engine thread is not the main thread.
        self._serving = asyncio.create_task(self._http.serve(sockets=[listening]))

    async def _answer(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            return
        desk = self._desk_of(scope)
        if desk is None:
            await _refuse(send, 401, "The token is not the one of this kernel. python -m agentmagic bridge has it.")
        elif scope["path"] != PATH:
            await _refuse(send, 404, f"The endpoint is {PATH}.")
        else:
            try:
                await self._forward(desk, scope, receive, send)
            except _HttpRefusal as refusal:
                await _refuse(send, refusal.status, str(refusal))

    async def _forward(self, desk: _OpenDesk, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Let a desk (the tools and pages of a session) answer a request.

        Raises _HttpRefusal if the request is too large, or if too many requests are open.
        """
        client_gone = scope[CLIENT_GONE] = asyncio.Event()
        body, read = bytearray(), scope["method"] != "POST"

        async def receive_again() -> "Message":
            nonlocal read
            if read:
                return await receive()
            read = True
            return {"type": "http.request", "body": bytes(body), "more_body": False}

        if self._requests >= limits.REQUESTS:
            raise _HttpRefusal(503, TOO_MANY)
        self._requests += 1
        try:
            if not read:
                await self._read(scope, receive, body)
            await desk.manager.handle_request(scope, receive_again, send)
        finally:
            self._requests -= 1
            self._bytes -= len(body)
            client_gone.set()

    async def _read(self, scope: "Scope", receive: "Receive", body: bytearray) -> None:
        """Read the body of a request into `body`. Raises _HttpRefusal if it passes a limit.

        The JSON values in it are counted too, because parsing many small values takes seconds and gigabytes.
        """
        content_length = next((int(value) for name, value in scope["headers"] if name == b"content-length"), 0)
        if content_length > limits.REQUEST_BYTES:
            raise _HttpRefusal(413, TOO_LARGE)
        values, more = ValueCounter(), True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                raise _HttpRefusal(400, "The request was broken off.")
            chunk, more = message.get("body", b""), message.get("more_body", False)
            body += chunk
            self._bytes += len(chunk)
            values.feed(chunk)
            if len(body) > limits.REQUEST_BYTES or values.count > limits.VALUES:
                raise _HttpRefusal(413, TOO_LARGE)
            if self._bytes > limits.ALL_BYTES:
                raise _HttpRefusal(503, TOO_MUCH)

    def _desk_of(self, scope: "Scope") -> _OpenDesk | None:
        """Return the desk (a session's tools and pages) for the token of a request; None if the token is not valid."""
        authorization = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, token = authorization.partition(b" ")
        match = None
        for desk in self._desks:  # no early exit, so that the duration reveals nothing about tokens
            if kind.lower() == b"bearer" and hmac.compare_digest(desk.token.encode(), token.strip()):
                match = desk
        return match


def _load() -> type[asyncio.Protocol]:
    """Import the packages for serving, which takes a second. Return the class of HTTP connections for uvicorn.

    Raises MissingExtra if a package is missing.
    """
    try:
        import_module("mcp.server.streamable_http_manager")
        connection = connection_class()
    except ImportError as error:
        raise MissingExtra("Serving the notebook", "mcp") from error
    for name in ("mcp", "uvicorn"):  # otherwise Python prints these loggers' warnings about bad requests in the cell
        logging.getLogger(name).addHandler(logging.NullHandler())
    return connection


async def _keep_open(desk: _OpenDesk, ready: asyncio.Event) -> None:
    """Run the MCP sessions of a desk (the tools and pages of a session) until the desk is closed.

    The session manager must be entered and left in the same task, which is the task of this coroutine.
    """
    try:
        async with desk.manager.run():
            ready.set()
            await desk.end.wait()
    finally:
        ready.set()


async def _refuse(send: "Send", status: int, words: str) -> None:
    body = words.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    if status == 401:  # noqa: PLR2004
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _manager(protocol: "Protocol[Any]", url: str) -> "StreamableHTTPSessionManager":
    """Return the manager of the MCP sessions of clients that use one served session.

    The manager rejects requests for another host name, even if that name resolves to this machine (DNS rebinding).
    """
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.transport_security import TransportSecuritySettings

    address = url.removeprefix("http://").removesuffix(PATH)
    port = address.rpartition(":")[2]
    hosts = [address, f"localhost:{port}"]
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{one}" for one in hosts])
    return StreamableHTTPSessionManager(
        protocol,
        security_settings=security,
        max_request_body_size=limits.REQUEST_BYTES,
        max_sessions=limits.SESSIONS,
        session_idle_timeout=limits.IDLE,
    )
