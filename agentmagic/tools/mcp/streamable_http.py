"""A server at a URL: streamable HTTP, through the mcp library's transport and a client of our own settings."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agentmagic.tools.mcp import wire
from agentmagic.tools.mcp.config import Http, Sse
from agentmagic.tools.mcp.stdio import LONGEST_LINE
from agentmagic.tools.mcp.values import MOST_VALUES, Values

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams

CONNECT = 30.0
"""Seconds to connect and to write. Reading has no limit: a silent call would end the whole connection (mcp 2.3)."""

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_END = 4


class TooMuch(Exception):
    """An answer over the limits."""

    def __init__(self, longest: int) -> None:
        super().__init__(f"the answer is over {longest} bytes or {MOST_VALUES} values and was dropped")


class Body:
    """The body of an answer, passed on in whole JSON texts or whole events, each within the limits.

    The mcp library reads a JSON body of any size, and any number of values in an event.
    """

    def __init__(self, *, events: bool, longest: int = LONGEST_LINE) -> None:
        self._events = events
        self._longest = longest
        self._waiting = bytearray()
        self._values = Values()

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes and return those that are complete. Raises TooMuch."""
        looked_at = max(0, len(self._waiting) - _LONGEST_END)
        self._waiting += chunk
        ends = [match.end() for match in _EVENT_END.finditer(self._waiting, looked_at)] if self._events else []
        if ends:
            complete = self._take(ends[-1])
            self._values = Values()
            self._count(bytes(self._waiting))
            return complete
        self._count(chunk)
        return b""

    def rest(self) -> bytes:
        """Return what is left at the end."""
        return self._take(len(self._waiting))

    def _take(self, size: int) -> bytes:
        taken = bytes(self._waiting[:size])
        del self._waiting[:size]
        return wire.mend(taken)

    def _count(self, part: bytes) -> None:
        self._values.feed(part)
        if len(self._waiting) > self._longest or self._values.too_many:
            raise TooMuch(self._longest)


def make_client(
    server: Http | Sse, on_status: Callable[[int], None], auth: "httpx2.Auth | None" = None
) -> "httpx2.AsyncClient":
    """Make a client, to be entered once, whose answers are bounded.

    `on_status` is told the HTTP status of each answer, which the library keeps to itself. Of streamable HTTP
    those to a POST count: that there is no stream to GET, or no session to DELETE, is no failure.
    """
    import httpx2

    async def note(response: "httpx2.Response") -> None:
        if response.request.method == "POST" or isinstance(server, Sse):
            on_status(response.status_code)
        await bound(response)

    headers = {"Accept-Encoding": "identity"} | dict(server.headers)  # compressed, a few bytes can be gigabytes
    timeout = httpx2.Timeout(CONNECT, read=None)
    return httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [note]}, auth=auth)


async def bound(response: "httpx2.Response", longest: int = LONGEST_LINE) -> None:
    """Put the limits between an answer and its reader."""
    import httpx2

    inner = response.stream
    if not isinstance(inner, httpx2.AsyncByteStream):
        return
    # Not left to the library to unpack.
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
                raise httpx2.StreamError(str(error)) from None  # it costs this answer; others would end the connection

        async def aclose(self) -> None:
            await inner.aclose()

    response.stream = Bounded()


@asynccontextmanager
async def connect(
    server: Http, on_status: Callable[[int], None], auth: "httpx2.Auth | None" = None
) -> AsyncGenerator["TransportStreams"]:
    """Yield the streams of messages from and to the server."""
    from mcp.client.streamable_http import streamable_http_client

    async with (
        make_client(server, on_status, auth) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=LONGEST_LINE) as streams,
    ):
        yield streams
