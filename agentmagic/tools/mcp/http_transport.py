"""Connects to MCP servers at a URL, with streamable HTTP or the older HTTP with server-sent events (SSE).

The transports are those of the mcp library. agentmagic gives them an HTTP client that limits the size of responses,
because the library itself limits neither the size of a JSON body nor the number of JSON values in one event.
"""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
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
_RESENT = frozenset({307, 308})  # Redirects after which the mcp library repeats the request unchanged.


class BodyTooLarge(Exception):
    """Raised when the body of an HTTP response exceeds the limits of bytes or of JSON values."""

    def __init__(self, longest: int) -> None:
        super().__init__(f"the answer is over {longest} bytes or {limits.MESSAGE_VALUES} values and was dropped")


class Body:
    """Buffers the body of an HTTP response, and releases only complete events or JSON texts within the limits."""

    def __init__(self, *, events: bool, longest: int | None = None) -> None:
        self._events = events
        self._longest = longest or limits.MESSAGE_BYTES
        self._waiting = bytearray()
        self._values = limits.ValueCounter()

    def feed(self, chunk: bytes) -> bytes:
        """Add the next bytes of the body, and return all events that are complete.

        Raises BodyTooLarge if the incomplete rest, which is kept for the next call, exceeds a limit.
        """
        start = max(0, len(self._waiting) - _LONGEST_END)  # The end of an event can be split across two chunks.
        self._waiting += chunk
        ends = [match.end() for match in _EVENT_END.finditer(self._waiting, start)] if self._events else []
        complete = b""
        if ends:
            complete = self._take(ends[-1])
            self._values, chunk = limits.ValueCounter(), bytes(self._waiting)
        self._values.feed(chunk)
        if len(self._waiting) > self._longest or self._values.too_many:
            raise BodyTooLarge(self._longest)
        return complete

    def rest(self) -> bytes:
        """Return the remaining bytes, after the whole body was added."""
        return self._take(len(self._waiting))

    def _take(self, size: int) -> bytes:
        data = bytes(self._waiting[:size])
        del self._waiting[:size]
        return repair(data)


async def limit_body(response: "httpx2.Response", longest: int | None = None) -> None:
    """Replace the body of an HTTP response, before it is read, with a stream that enforces the limits."""
    import httpx2

    inner = response.stream
    if not isinstance(inner, httpx2.AsyncByteStream):
        return
    # Without this header, the library does not decompress the body: a few bytes could become gigabytes.
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
            except BodyTooLarge as error:
                # On a StreamError, the library ends only this response. On others, it ends the whole connection.
                raise httpx2.StreamError(str(error)) from None

        async def aclose(self) -> None:
            await inner.aclose()

    response.stream = Bounded()


def replace_answer(response: "httpx2.Response", error: Mapping[str, Any]) -> None:
    """Put a JSON-RPC error into an HTTP response in place of its body.

    This is for responses that are not MCP, because the mcp library's own error for them is vague.
    """
    import httpx2

    response.stream = httpx2.ByteStream(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode())
    response.headers["Content-Type"] = "application/json"
    # The library reads the error in the body only if the HTTP status is an error.
    response.status_code = max(response.status_code, HTTPStatus.BAD_REQUEST)


async def _failure(response: "httpx2.Response", url: str) -> dict[str, Any] | None:
    """Return None if an HTTP response can be MCP. If not, close the response and return a JSON-RPC error."""
    import httpx2

    status = response.status_code
    if (problem := server_errors.http_problem(url, status, response.headers)) is None or _is_followed(response):
        return None
    unread, body = response.stream, b""
    if isinstance(unread, httpx2.AsyncByteStream):
        with suppress(httpx2.StreamError):
            if response.headers.get("Content-Type", "").startswith("application/json"):
                body = b"".join([chunk async for chunk in unread])
        await unread.aclose()
    in_session = "mcp-session-id" in response.request.headers
    return server_errors.http_error(status, problem, _error_in(body), in_session=in_session)


def _is_followed(response: "httpx2.Response") -> bool:
    """Return whether the mcp library follows a redirect. It does so only on the same host and port with 307 or 308."""
    if response.status_code not in _RESENT or "Location" not in response.headers:
        return False
    here, there = response.request.url, response.request.url.join(response.headers["Location"])
    return (here.host, here.port) == (there.host, there.port)


def _error_in(body: bytes) -> dict[str, Any] | None:
    """Return the JSON-RPC error in the body of an HTTP response, or None if the body does not contain one."""
    try:
        error = json.loads(body)["error"]
        return error if isinstance(error["message"], str) and isinstance(error["code"], int) else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _make_client(
    server: Http, auth: "httpx2.Auth | None", explain: "Callable[[httpx2.Response], Awaitable[None]]"
) -> "httpx2.AsyncClient":
    """Return an HTTP client that limits the size of each response, and then calls `explain` with the response.

    Like any `httpx2.AsyncClient`, it can be used in an `async with` block only once.
    """
    import httpx2

    async def inspect(response: "httpx2.Response") -> None:
        await limit_body(response)
        await explain(response)

    headers = {"Accept-Encoding": "identity"} | dict(server.headers)
    timeout = httpx2.Timeout(limits.HTTP_SECONDS, read=None)
    return async_client(headers=headers, timeout=timeout, event_hooks={"response": [inspect]}, auth=auth)


@asynccontextmanager
async def connect(server: Http, auth: "httpx2.Auth | None" = None) -> AsyncGenerator["TransportStreams"]:
    """Yield two streams: one of the messages from an MCP server, and one of the messages to it."""
    from mcp.client.streamable_http import streamable_http_client

    if server.sse:
        async with _connect_sse(server, auth) as streams:
            yield streams
        return

    async def explain(response: "httpx2.Response") -> None:
        # Only a POST is checked: a server without an event stream or sessions may refuse a GET or DELETE.
        if response.request.method == "POST" and (error := await _failure(response, server.url)):
            replace_answer(response, error)

    longest = limits.MESSAGE_BYTES
    async with (
        _make_client(server, auth, explain) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=longest) as streams,
    ):
        yield streams


@asynccontextmanager
async def _connect_sse(server: Http, auth: "httpx2.Auth | None") -> AsyncGenerator["TransportStreams"]:
    """Yield two streams of messages, from and to a server that uses HTTP with server-sent events.

    An SSE server answers all POST requests on one stream of events. If a POST fails, the mcp library only logs
    that, and the caller would wait forever. Therefore an error for the request is added to the server's messages.
    """
    import anyio
    import httpx2
    from mcp.client.sse import sse_client
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    sender, incoming = anyio.create_memory_object_stream[Any](0)

    async def explain(response: httpx2.Response) -> None:
        problem = server_errors.http_problem(server.url, response.status_code, response.headers)
        if problem and response.is_success and response.request.method == "GET":
            raise httpx2.HTTPStatusError(problem, request=response.request, response=response)
        if response.request.method != "POST" or response.is_success:
            return
        if error := await _failure(response, server.url):
            request = json.loads(response.request.content)
            response.status_code, response.stream = HTTPStatus.ACCEPTED, httpx2.ByteStream(b"")
            if "id" in request and "method" in request:
                answer = {"jsonrpc": "2.0", "id": request["id"], "error": error}
                await sender.send(SessionMessage(jsonrpc_message_adapter.validate_python(answer)))

    # The mcp library passes its own settings for an HTTP client, which are not used here. It uses the returned client
    # in an `async with` block.
    def factory(*_: Any, **__: Any) -> httpx2.AsyncClient:
        return _make_client(server, auth, explain)

    async def forward(messages: Any) -> None:
        async with sender:
            async for message in messages:
                await sender.send(message)

    async with (
        sender,
        incoming,
        sse_client(server.url, timeout=limits.HTTP_SECONDS, httpx_client_factory=factory) as (messages, outgoing),
        anyio.create_task_group() as group,
    ):
        group.start_soon(forward, messages)
        yield incoming, outgoing
        group.cancel_scope.cancel()
