"""Servers at a URL: streamable HTTP, and the older HTTP with server-sent events.

The transports are the mcp library's. The HTTP client is ours, because the library reads a JSON body of any size, and
any number of values in an event.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from agentmagic.tools.mcp import limits
from agentmagic.tools.mcp.config import Http, Sse
from agentmagic.tools.mcp.stdio import repair

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_END = 4


class TooMuch(Exception):
    """Raised for an answer over the limits."""

    def __init__(self, longest: int) -> None:
        super().__init__(f"the answer is over {longest} bytes or {limits.MESSAGE_VALUES} values and was dropped")


class Body:
    """The body of an answer, passed on in whole JSON texts or whole events, each within the limits."""

    def __init__(self, *, events: bool, longest: int | None = None) -> None:
        self._events = events
        self._longest = longest or limits.MESSAGE_BYTES
        self._waiting = bytearray()
        self._values = limits.ValueCounter()

    def feed(self, chunk: bytes) -> bytes:
        """Add the next bytes and return those that are complete. Raises TooMuch."""
        searched = max(0, len(self._waiting) - _LONGEST_END)  # an end may lie across two chunks
        self._waiting += chunk
        ends = [match.end() for match in _EVENT_END.finditer(self._waiting, searched)] if self._events else []
        complete = b""
        if ends:
            complete = self._take(ends[-1])
            self._values, chunk = limits.ValueCounter(), bytes(self._waiting)
        self._values.feed(chunk)
        if len(self._waiting) > self._longest or self._values.too_many:
            raise TooMuch(self._longest)
        return complete

    def rest(self) -> bytes:
        """Return what is left at the end."""
        return self._take(len(self._waiting))

    def _take(self, size: int) -> bytes:
        taken = bytes(self._waiting[:size])
        del self._waiting[:size]
        return repair(taken)


async def bound(response: "httpx2.Response", longest: int | None = None) -> None:
    """Apply the limits to the body of an answer, before anything reads it."""
    import httpx2

    inner = response.stream
    if not isinstance(inner, httpx2.AsyncByteStream):
        return
    # The header is removed, so that the library does not decompress the body: a few bytes can become gigabytes.
    is_compressed = response.headers.pop("Content-Encoding", "identity") != "identity"

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            if is_compressed:
                raise httpx2.StreamError("the answer is compressed, which was not asked for")
            kind = response.headers.get("Content-Type", "").lower()
            body = Body(events=kind.startswith("text/event-stream"), longest=longest)
            try:
                async for chunk in inner:
                    if ready := body.feed(chunk):
                        yield ready
                if rest := body.rest():
                    yield rest
            except TooMuch as error:
                # This type ends the one answer; for others the library ends the connection.
                raise httpx2.StreamError(str(error)) from None

        async def aclose(self) -> None:
            await inner.aclose()

    response.stream = Bounded()


def _make_client(
    server: Http | Sse, on_status: Callable[[int], None], auth: "httpx2.Auth | None"
) -> "httpx2.AsyncClient":
    """Return a client, to be entered once, whose answers are bounded and whose statuses go to `on_status`."""
    import httpx2

    async def note(response: "httpx2.Response") -> None:
        # Of streamable HTTP only a POST counts: a server without a stream to GET or a session to DELETE is in order.
        if response.request.method == "POST" or isinstance(server, Sse):
            on_status(response.status_code)
        await bound(response)

    headers = {"Accept-Encoding": "identity"} | dict(server.headers)
    timeout = httpx2.Timeout(limits.HTTP_SECONDS, read=None)
    return httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [note]}, auth=auth)


@asynccontextmanager
async def connect(
    server: Http | Sse, on_status: Callable[[int], None], auth: "httpx2.Auth | None" = None
) -> AsyncGenerator["TransportStreams"]:
    """Yield the streams of messages from and to a server; `on_status` is called with the status of each answer."""
    client = _make_client(server, on_status, auth)
    if isinstance(server, Sse):
        from mcp.client.sse import sse_client

        # The library enters the client that the factory makes, and would give it settings of its own.
        def factory(*_: Any, **__: Any) -> "httpx2.AsyncClient":
            return client

        async with sse_client(server.url, timeout=limits.HTTP_SECONDS, httpx_client_factory=factory) as streams:
            yield streams
        return
    from mcp.client.streamable_http import streamable_http_client

    longest = limits.MESSAGE_BYTES
    async with (
        client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=longest) as streams,
    ):
        yield streams
