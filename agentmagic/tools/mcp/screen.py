"""What stands between a server and the mcp library: it mends and slows what the library could not bear.

It sees every message both ways. A list of tools is mended one by one, a result of protocol 2026-07-28
without its `resultType` counts as complete, an answer that nobody waits for goes no further, and of a flood of
notifications only some go on. A server object of this process has no screen: it is not a stranger.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from agentmagic.tools.mcp import listing, notices
from agentmagic.tools.mcp.pace import Pace, Rest

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams, WriteStream
    from mcp.shared.message import SessionMessage

BURST = 5
"""How many notifications of one kind may come at once."""

LOG_BURST = 200
"""How many lines of a log may come at once."""

MOST_HELD = 64
"""Kinds of notifications of which the last is held back while they come too fast."""

MOST_REQUESTS = 32
"""Requests of a server that may come at once, or wait for our answer; more are dropped, for each costs memory."""

_KNOWN = frozenset(
    {"ping", "roots/list", "elicitation/create", "sampling/createMessage"}
    | {"notifications/message", "notifications/tools/list_changed", "notifications/prompts/list_changed"}
    | {"notifications/resources/list_changed", "notifications/resources/updated", "notifications/elicitation/complete"}
)
"""Methods that are counted each for itself; whatever others a server thinks of are counted as one."""

_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_MOST = {"content": 1001, "contents": 1001, "messages": 200, "prompts": 500, "resources": 500, "resourceTemplates": 500}
"""Entries of the lists in a result that go on: the library takes 0.1 ms for each."""

_COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


@dataclass(frozen=True, slots=True)
class _Asked:
    method: str
    modern: bool
    first_page: bool


class Screen:
    """Knows what was asked of a server, and mends its answers in place."""

    def __init__(self) -> None:
        self.left_out: dict[str, str] = {}
        self.requests: set[str] = set()
        self._asked: dict[str, _Asked] = {}
        self._listed = 0

    def sending(self, message: Any) -> None:
        """Take note of what goes out."""
        params: dict[str, Any] = getattr(message, "params", None) or {}
        if message.method == "notifications/cancelled":
            self._asked.pop(_key(params.get("requestId")), None)
        elif (identifier := getattr(message, "id", None)) is not None:
            modern = _VERSION_KEY in (params.get("_meta") or {})
            self._asked[_key(identifier)] = _Asked(message.method, modern, "cursor" not in params)

    def answering(self, message: Any) -> None:
        """Take note that a request of the server was answered."""
        self.requests.discard(_key(message.id))

    def awaits(self, identifier: Any) -> bool:
        """Whether an answer to a request, or progress with it, is still waited for."""
        return _key(identifier) in self._asked

    def withdrawn(self, params: Mapping[str, Any]) -> bool:
        """Forget a request that the server takes back, for it gets no answer; return whether there was one."""
        key = _key(params.get("requestId"))
        known = key in self.requests
        self.requests.discard(key)
        return known

    def receiving(self, message: Any) -> bool:
        """Mend an answer in place; return whether anybody waits for it."""
        asked = self._asked.pop(_key(message.id), None)
        if asked is None:
            return False
        if (result := getattr(message, "result", None)) is not None:
            self._mend(result, asked)
        return True

    def _mend(self, result: dict[str, Any], asked: _Asked) -> None:
        if asked.modern:
            for key, value in _COMPLETE.items():
                result.setdefault(key, value)
        for key, most in _MOST.items():
            if isinstance(result.get(key), list):
                del result[key][most:]
        if asked.method == "tools/list" and isinstance(result.get("tools"), list):
            self._mend_tools(result, asked)

    def _mend_tools(self, result: dict[str, Any], asked: _Asked) -> None:
        if asked.first_page:
            self.left_out, self._listed = {}, 0
        result["tools"] = listing.mend(result["tools"], self.left_out, listing.MOST_TOOLS - self._listed)
        self._listed += len(result["tools"])
        if self._listed >= listing.MOST_TOOLS:
            result.pop("nextCursor", None)


@asynccontextmanager
async def screened(
    transport: "AbstractAsyncContextManager[TransportStreams]", screen: Screen
) -> AsyncGenerator["TransportStreams"]:
    """Enter a transport and yield its streams with the screen before them."""
    async with transport as (incoming, outgoing):
        yield _Incoming(incoming, screen), _Outgoing(outgoing, screen)


class _Incoming:
    """A stream of messages from a server: of notifications that come too fast, each kind's last is held back."""

    def __init__(self, inner: "ReadStream[SessionMessage | Exception]", screen: Screen) -> None:
        self._inner = inner
        self._screen = screen
        self._others = Pace(BURST)
        self._log = Pace(LOG_BURST)
        self._asked = Pace(MOST_REQUESTS)
        self._held: dict[str, SessionMessage] = {}
        self._next: SessionMessage | None = None
        self._rest = Rest()

    async def receive(self) -> "SessionMessage | Exception":
        """Return the next message; raises what the stream within raises at its end."""
        if self._next is not None:
            item, self._next = self._next, None
            return item
        while True:
            if (due := self._due()) is not None:
                return due
            try:
                async with asyncio.timeout(self._patience()):
                    item = await self._inner.receive()
            except TimeoutError:
                continue
            if (passed := self._sift(item)) is not None:
                return passed
            await self._rest.over()

    def _sift(self, item: "SessionMessage | Exception") -> "SessionMessage | Exception | None":
        """Return what goes on now: the message, the one that has to come before it, or None."""
        if isinstance(item, Exception):
            return item
        message: Any = item.message
        if not hasattr(message, "method"):
            return self._after_progress(item) if self._screen.receiving(message) else None
        if hasattr(message, "id"):
            return item if self._heard(message) else None
        if message.method == "notifications/cancelled":
            return item if self._screen.withdrawn(message.params or {}) else None
        return self._noticed(item)

    def _noticed(self, item: "SessionMessage") -> "SessionMessage | None":
        """Return a notification that goes on now; one that comes too fast is held back."""
        kind = self._kind(item.message)
        if kind is None:
            return None
        if self._pace(kind).take(kind):
            self._held.pop(kind, None)
            return item
        if kind in self._held or len(self._held) < MOST_HELD:
            self._held[kind] = item
        return None

    def _kind(self, message: Any) -> str | None:
        """Name what a notification is counted as; None for one that is of no use to anybody."""
        params: dict[str, Any] = message.params or {}
        if not notices.is_sound(message.method, params):
            return None
        if message.method == "notifications/progress":
            token = params["progressToken"]
            return f"progress {_key(token)}" if self._screen.awaits(token) else None
        return _counted(message.method)

    def _pace(self, kind: str) -> Pace:
        return self._log if kind == "notifications/message" else self._others

    def _due(self) -> "SessionMessage | None":
        for kind in self._held:
            if self._pace(kind).take(kind):
                return self._held.pop(kind)
        return None

    def _patience(self) -> float | None:
        return min((self._pace(kind).wait(kind) for kind in self._held), default=None)

    def _after_progress(self, item: "SessionMessage") -> "SessionMessage":
        """Let the last progress of a call come before its answer."""
        last = self._held.pop(f"progress {_key(getattr(item.message, 'id', None))}", None)
        if last is None:
            return item
        self._next = item
        return last

    def _heard(self, request: Any) -> bool:
        """Whether a request of the server goes on."""
        open_ones, key = self._screen.requests, _key(request.id)
        if key in open_ones or len(open_ones) >= MOST_REQUESTS or not self._asked.take(_counted(request.method)):
            return False
        open_ones.add(key)
        return True

    async def aclose(self) -> None:
        """Close the stream within."""
        await self._inner.aclose()

    def __aiter__(self) -> "ReadStream[SessionMessage | Exception]":
        return self

    async def __anext__(self) -> "SessionMessage | Exception":
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


class _Outgoing:
    """A stream of messages to a server, which the screen is told of."""

    def __init__(self, inner: "WriteStream[SessionMessage]", screen: Screen) -> None:
        self._inner = inner
        self._screen = screen

    async def send(self, item: "SessionMessage", /) -> None:
        """Send a message."""
        is_answer = not hasattr(item.message, "method")
        if not is_answer:
            self._screen.sending(item.message)
        await self._inner.send(item)
        if is_answer:
            self._screen.answering(item.message)

    async def aclose(self) -> None:
        """Close the stream within."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


def _key(identifier: Any) -> str:
    """Return what a request is known by: servers send its number back as a text too."""
    return str(identifier)[:100]


def _counted(method: str) -> str:
    return method if method in _KNOWN else "other"
