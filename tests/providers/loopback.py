"""A loopback HTTP server that plays exchanges in order, for providers that are tested through their real SDK."""

import asyncio
import json
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from agentmagic.providers.base import Model, ModelEvent, Request

WIRE = "AGENTMAGIC_WIRE"
"""The environment variable that names the folder of recorded traffic."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One answer of the server, and, where it was recorded, the request that it answered.

    `body` is sent as it is, in HTTP chunks; a surrogate such as U+DCE9 is sent as the byte E9. With
    `stall_at` the server sends that many bytes, sets `Loopback.stalled` and waits for
    `Loopback.release()`; with `cut_at` it sends that many and drops the connection without ending the
    body. With `dropped` it drops the connection without a word.
    """

    body: str
    status: int = 200
    content_type: str = "text/event-stream; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    stall_at: int | None = None
    cut_at: int | None = None
    dropped: bool = False
    request: Any = None


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it reached the server; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


class Loopback:
    """Serves the exchanges one by one on a port of 127.0.0.1, from `__enter__` to `__exit__`.

    `stalled` is set once a body stands still, `dropped` once the client has closed the connection of
    such a body; `connections` counts those that clients opened. A request beyond the last exchange is
    answered with status 500.
    """

    def __init__(self, exchanges: Iterable[Exchange]) -> None:
        self.requests: list[Received] = []
        self.connections = 0
        self.stalled = threading.Event()
        self.dropped = threading.Event()
        self._left = deque(exchanges)
        self._open: set[socket.socket] = set()
        self._wake, self._waker = socket.socketpair()
        handler = type("Handler", (_Connection,), {"loopback": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        """The address of the server, without a path and a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def release(self) -> None:
        """Let a body that stands still go on, now and at every later stall."""
        self._waker.send(b"!")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        for connection in tuple(self._open):
            _shut(connection)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._wake.close()
        self._waker.close()

    def connected(self, connection: socket.socket) -> None:
        """Count a connection, and note it so that leaving the server ends it."""
        self.connections += 1
        self._open.add(connection)

    def disconnected(self, connection: socket.socket) -> None:
        """Forget a connection."""
        self._open.discard(connection)

    def answer(self, received: Received) -> Exchange:
        """Return what a request is answered with: the next exchange of the list, whatever it asks."""
        if self._left:
            return self._left.popleft()
        return Exchange('{"error": {"message": "no exchange is left"}}', 500, "application/json")

    def stall(self, connection: socket.socket) -> bool:
        """Wait until released (True) or until the client closes the connection (False)."""
        self.stalled.set()
        ready, _, _ = select.select([connection, self._wake], [], [])
        if connection in ready:
            self.dropped.set()
            return False
        return True


class _Connection(BaseHTTPRequestHandler):
    loopback: Loopback
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the end of a body waits 40 ms for the client to acknowledge its start

    def setup(self) -> None:
        super().setup()
        self.loopback.connected(self.connection)

    def finish(self) -> None:
        self.loopback.disconnected(self.connection)
        super().finish()

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            self.close_connection = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.command, self.path, headers, body)
        if self.path == "/api/chat" and b'"messages":[]' in body:  # Ollama is to load a model: that takes no step
            self._send(Exchange('{"done": true, "done_reason": "load"}\n', content_type="application/x-ndjson"))
            return
        self.loopback.requests.append(received)
        exchange = self.loopback.answer(received)
        if exchange.dropped:
            self.close_connection = True
            _shut(self.connection)
            return
        self._send(exchange)

    def do_GET(self) -> None:
        self.do_POST()

    def do_CONNECT(self) -> None:  # as a proxy
        self.do_POST()

    def _send(self, exchange: Exchange) -> None:
        self.send_response(exchange.status)
        self.send_header("content-type", exchange.content_type)
        self.send_header("transfer-encoding", "chunked")
        for name, value in exchange.headers.items():
            self.send_header(name, value)
        self.end_headers()
        data = exchange.body.encode(errors="surrogateescape")
        if exchange.cut_at is not None:
            self._send_chunk(data[: exchange.cut_at])
            self.close_connection = True
            _shut(self.connection)
            return
        if exchange.stall_at is not None:
            self._send_chunk(data[: exchange.stall_at])
            data = data[exchange.stall_at :]
            if not self.loopback.stall(self.connection):
                self.close_connection = True
                return
        self._send_chunk(data)
        self.wfile.write(b"0\r\n\r\n")

    def _send_chunk(self, data: bytes) -> None:
        if data:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the name http.server gives it)
        """Write nothing: the tests look at `requests`."""


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def sse(*chunks: Any, done: bool = False) -> str:
    """Write chunks as an event stream: text as it is, all else as JSON; `done` adds OpenAI's `[DONE]`."""
    lines = [f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join(lines) + ("data: [DONE]\n\n" if done else "")


def recorded(name: str) -> list[Exchange]:
    """Return the exchanges of a recording, or skip the test where the recordings are not at hand."""
    folder = os.environ.get(WIRE)
    if not folder:
        pytest.skip(f"{WIRE} does not name a folder of recorded traffic")
    path = Path(folder) / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"there is no recording {path.name} in {WIRE}")
    return [
        Exchange(entry["body"], entry["status"], entry["content_type"], request=entry["request"])
        for entry in json.loads(path.read_text(encoding="utf-8"))["exchanges"]
    ]


def ask(model: Model, request: Request) -> list[ModelEvent]:
    """Ask a model once, on an event loop of its own, and close it."""

    async def events() -> list[ModelEvent]:
        try:
            return [event async for event in model.stream(request)]
        finally:
            await model.aclose()

    return asyncio.run(events())
