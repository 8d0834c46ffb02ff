"""Servers at a URL: streamable HTTP, and the older HTTP with server-sent events.

The transports are the mcp library's. The HTTP client is ours, because the library reads a JSON body of any size, and
any number of values in an event.
"""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from agentmagic.providers.proxies import async_client
from agentmagic.tools.mcp import limits, server_errors
from agentmagic.tools.mcp.config import Http
from agentmagic.tools.mcp.stdio import repair

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_END = 4
_FORGETTING = frozenset({400, 404})
_ABOUT_SESSION = re.compile(r"session|not initialized", re.IGNORECASE)


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


def replace_answer(response: "httpx2.Response", words: str) -> None:
    """Put a JSON-RPC error in the place of an answer, because the library says little about one that is not MCP."""
    import httpx2

    error = {"code": server_errors.HTTP_FAILED, "message": words}
    response.stream = httpx2.ByteStream(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode())
    response.headers["Content-Type"] = "application/json"
    # The library passes on the error in a body under a status of failure only.
    response.status_code = max(response.status_code, HTTPStatus.BAD_REQUEST)


async def _explain(response: "httpx2.Response", url: str) -> None:
    """Replace an answer to a POST that is not MCP, or that says that the server has forgotten our session."""
    import httpx2

    if (problem := server_errors.http_problem(url, response.status_code, response.headers)) is None:
        return
    unread, body = response.stream, b""
    if isinstance(unread, httpx2.AsyncByteStream):
        with suppress(httpx2.StreamError):
            if response.headers.get("Content-Type", "").startswith("application/json"):
                body = b"".join([chunk async for chunk in unread])
        await unread.aclose()
    said = _error_in(body)
    # Some servers answer 400 to a session that they do not know, with words of their own.
    in_session = "mcp-session-id" in response.request.headers and response.status_code in _FORGETTING
    if in_session and (said is None or _ABOUT_SESSION.search(said)):
        replace_answer(response, server_errors.FORGOTTEN)
    elif said is None:
        replace_answer(response, problem)
    else:
        response.stream = httpx2.ByteStream(body)


def _error_in(body: bytes) -> str | None:
    """Return the message of a JSON-RPC error, or None if the body holds none."""
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return message if isinstance(message, str) else None


def _make_client(server: Http, auth: "httpx2.Auth | None") -> "httpx2.AsyncClient":
    """Return a client, to be entered once, whose answers are bounded."""
    import httpx2

    async def inspect(response: "httpx2.Response") -> None:
        await bound(response)
        # Only a POST counts: a server without a stream to GET or a session to DELETE is in order.
        if response.request.method == "POST" and not server.sse:
            await _explain(response, server.url)

    headers = {"Accept-Encoding": "identity"} | dict(server.headers)
    timeout = httpx2.Timeout(limits.HTTP_SECONDS, read=None)
    return async_client(headers=headers, timeout=timeout, event_hooks={"response": [inspect]}, auth=auth)


@asynccontextmanager
async def connect(server: Http, auth: "httpx2.Auth | None" = None) -> AsyncGenerator["TransportStreams"]:
    """Yield the streams of messages from and to a server."""
    client = _make_client(server, auth)
    if server.sse:
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
