"""The bridge's connection to one served kernel: MCP over streamable HTTP, message by message.

This module does not `import mcp`, which takes over a second: the client waits until the bridge has started.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, cast

from agentmagic.errors import AgentMagicError
from agentmagic.serve.bridge.envelope import LARGEST, Envelope, make, read
from agentmagic.serve.bridge.selection import label
from agentmagic.serve.kernels import ServedKernel

if TYPE_CHECKING:
    import asyncio

    import httpx2

SECONDS = 30.0
"""Timeout to connect, to send, and for answers to the bridge's own messages. A tool call has no timeout."""
FAREWELL = 1.0
"""Timeout for telling the kernel that the client has gone, in seconds."""


class LinkBroken(AgentMagicError):
    """Raised by the bridge if the kernel's answer to a message does not arrive.

    `kind` is "dropped" if only this answer is missing, "lost" if one HTTP connection broke, "ended" if the whole
    connection to the kernel is over, and "refused" if the kernel rejected the bridge.
    """

    code = "bridge-link"

    def __init__(self, message: str, kind: Literal["dropped", "lost", "ended", "refused"]) -> None:
        super().__init__(message)
        self.kind = kind


class KernelLink:
    """Sends messages to a served kernel, and yields the messages that come back."""

    def __init__(self, kernel: ServedKernel) -> None:
        import httpx2

        self.kernel = kernel
        self.capabilities: dict[str, Any] = {}
        self.is_open = False
        """Whether the handshake is complete, so that the kernel may send requests."""
        self.listener: asyncio.Task[None] | None = None
        """The task that reads messages sent by the kernel on its own; it ends with the connection."""
        self._headers: dict[str, str] = {}
        self._http = httpx2.AsyncClient(
            headers={
                "authorization": f"Bearer {kernel.token}",
                "accept": "application/json, text/event-stream",
                "accept-encoding": "identity",
                "content-type": "application/json",
            },
            timeout=httpx2.Timeout(SECONDS, read=None, pool=None),
            # The server (uvicorn) closes an idle connection after 5 seconds. Do not reuse a connection near that time.
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=2.0),
            trust_env=False,  # use no proxy: the kernel is on this machine
        )

    @property
    def is_closed(self) -> bool:
        """Whether `aclose` has closed the HTTP connections."""
        return self._http.is_closed

    async def ask(self, request: Envelope) -> AsyncIterator[Envelope]:
        """Send a request, and yield the kernel's messages up to its answer. Raises LinkBroken."""
        headers = request.headers or self._headers
        async with self._request("POST", content=request.line, headers=headers) as response:
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                async with aclosing(self._events(response)) as events:
                    async for message in events:
                        yield _for_request(request, message)
                        if message.is_answer:
                            return
                raise LinkBroken(self._lost_message("broke off before the answer came"), "lost")
            # Without a version, NOT_FOUND means that the session is over. With one (stateless), the body has an answer.
            if response.status_code == HTTPStatus.NOT_FOUND and request.version is None:
                raise self._refusal(response)
            answer = read(await self._body(response))
            if answer is None or not answer.is_answer:
                raise self._refusal(response)
            yield _for_request(request, answer)

    async def begin(self, params: dict[str, Any]) -> dict[str, Any]:
        """Send `initialize` with the MCP client's parameters, and return the kernel's result. Raises LinkBroken."""
        request = make(method="initialize", id="bridge", params=params)
        self._end_session()
        async with self._request("POST", content=request.line) as response:
            is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
            answer = await self._first_answer(response) if is_stream else read(await self._body(response))
            if answer is None or not answer.is_answer:
                raise self._refusal(response)
            session = response.headers.get("mcp-session-id")
        if answer.result is None:
            raise LinkBroken(str((answer.error or {}).get("message", ""))[:500], "refused")
        version, capabilities = answer.result.get("protocolVersion"), answer.result.get("capabilities")
        self._headers = {"mcp-protocol-version": str(version)} | ({"mcp-session-id": session} if session else {})
        self.capabilities = cast("dict[str, Any]", capabilities) if isinstance(capabilities, dict) else {}
        return answer.result

    async def tell(self, message: Envelope) -> None:
        """Send a notification or an answer. Raises LinkBroken."""
        async with self._request("POST", content=message.line, headers=self._headers, timeout=SECONDS) as response:
            if response.status_code >= HTTPStatus.BAD_REQUEST:
                raise self._refusal(response)

    async def listen(self) -> AsyncIterator[Envelope]:
        """Yield the messages that the kernel sends without a request, if the kernel offers a stream of them."""
        async with self._request("GET", headers=self._headers) as response:
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                async for message in self._events(response):
                    yield message
                raise LinkBroken(self._lost_message("broke off"), "lost")

    async def aclose(self) -> None:
        """End the MCP session in the kernel, and close the HTTP connections."""
        headers = self._headers
        self._end_session()
        with suppress(LinkBroken):
            if "mcp-session-id" in headers:
                async with self._request("DELETE", headers=headers, timeout=FAREWELL):
                    pass
        await self._http.aclose()

    def _end_session(self) -> None:
        if self.listener is not None:
            self.listener.cancel()
        self._headers, self.is_open, self.listener = {}, False, None

    @asynccontextmanager
    async def _request(self, method: str, **options: Any) -> "AsyncGenerator[httpx2.Response]":
        import httpx2

        if self.is_closed:
            raise LinkBroken(self._lost_message("is closed"), "ended")
        try:
            async with self._http.stream(method, self.kernel.url, **options) as response:
                if response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                    raise self._refusal(response)
                yield response
        except httpx2.SSEError as error:
            raise _too_long() from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise LinkBroken(self._lost_message("cannot be opened"), "ended") from error
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise LinkBroken(self._lost_message("broke off before the answer came"), "lost") from error

    async def _events(self, response: "httpx2.Response") -> AsyncGenerator[Envelope]:
        import httpx2

        async for event in httpx2.EventSource(response, max_event_size=LARGEST):
            if event.event == "message" and event.data and (message := read(event.data.encode())):
                yield message

    async def _first_answer(self, response: "httpx2.Response") -> Envelope | None:
        async with aclosing(self._events(response)) as events:
            async for message in events:
                if message.is_answer:
                    return message
        return None

    async def _body(self, response: "httpx2.Response") -> bytes:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > LARGEST:
                raise _too_long()
        return bytes(body)

    def _refusal(self, response: "httpx2.Response") -> LinkBroken:
        """Return the error for a response that has an HTTP status but contains no MCP answer."""
        name = label(self.kernel)
        match response.status_code:
            case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
                why = f"The kernel of {name} refused the token in its file. Run %agent serve in it again."
                return LinkBroken(why, "refused")
            case HTTPStatus.NOT_FOUND if "mcp-session-id" in self._headers:
                why = f"The kernel of {name} had closed the session of this client. A new session begins. Call again."
                return LinkBroken(why, "ended")
            case status:
                return LinkBroken(f"The kernel of {name} gave no answer, only HTTP status {status}.", "dropped")

    def _lost_message(self, event: str) -> str:
        name = label(self.kernel)
        return f"The connection to the kernel of {name} {event}. Look at what was done in it before you call again."


def _for_request(request: Envelope, message: Envelope) -> Envelope:
    """Return a message that came back for a request. An answer gets the request's id, if it has none or another."""
    return message.with_fields(id=request.id) if message.is_answer and message.id != request.id else message


def _too_long() -> LinkBroken:
    return LinkBroken(f"The answer is over {LARGEST} bytes, and was dropped.", "dropped")
