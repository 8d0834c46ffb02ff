"""What stands between a server and the mcp library: it mends and slows what the library could not bear.

It sees every message both ways. A list of tools is mended one by one, a result of protocol 2026-07-28
without its `resultType` counts as complete, and of a flood of notifications only some go on. A server
object of this process has no screen: it is not a stranger.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from agentmagic.tools.mcp import listing, notices

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams, WriteStream
    from mcp.shared.message import SessionMessage

RATE = 20.0
"""Notifications of one kind, as the progress of one call, that go on in a second."""

BURST = 5
"""How many of them may come at once."""

LOG_BURST = 200
"""How many lines of a log may come at once."""

MOST_HELD = 64
"""Kinds of notifications of which the last is held back while they come too fast."""

BREATHER = 0.05
"""Seconds of rest after each `BREATH` notifications that were too many, so that a flood costs little work."""

BREATH = 500

MOST_REQUESTS = 32
"""Requests of a server that may come at once, or wait for our answer; more are dropped, for each costs memory."""

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
        self.requests = 0
        self._asked: dict[int | str, _Asked] = {}
        self._listed = 0

    def sending(self, message: Any) -> None:
        """Take note of what goes out."""
        params: dict[str, Any] = getattr(message, "params", None) or {}
        if message.method == "notifications/cancelled":
            self._asked.pop(params.get("requestId", ""), None)
        elif (identifier := getattr(message, "id", None)) is not None:
            modern = _VERSION_KEY in (params.get("_meta") or {})
            self._asked[identifier] = _Asked(message.method, modern, "cursor" not in params)

    def receiving(self, message: Any) -> None:
        """Mend an answer in place."""
        asked = self._asked.pop(getattr(message, "id", None) or "", None)
        result: dict[str, Any] | None = getattr(message, "result", None)
        if asked is None or result is None:
            return
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


class Pace:
    """How many more of each kind may pass now; a kind that is not asked about for long is forgotten."""

    def __init__(self, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, kind: str) -> bool:
        """Whether one more may pass."""
        left, now = self._refilled(kind)
        self._left[kind] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > 4 * MOST_HELD:
            self._left.pop(next(iter(self._left)))
        return left >= 1

    def wait(self, kind: str) -> float:
        """Seconds until one more may pass."""
        left, _ = self._refilled(kind)
        return max(0.0, (1 - left) / RATE)

    def _refilled(self, kind: str) -> tuple[float, float]:
        now = self._clock()
        left, then = self._left.get(kind, (self._burst, now))
        return min(self._burst, left + (now - then) * RATE), now


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
        self._dropped = 0

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
            if (passed := await self._sift(item)) is not None:
                return passed

    async def _sift(self, item: "SessionMessage | Exception") -> "SessionMessage | Exception | None":
        """Return what goes on now: the message, the one that has to come before it, or None."""
        if isinstance(item, Exception):
            return item
        kind = _kind(item.message)
        if kind is None:
            self._screen.receiving(item.message)
            return self._after_progress(item)
        if hasattr(item.message, "id"):
            return item if await self._heard(kind) else None
        if not _is_sound(item.message):
            await self._rest()
        elif self._pace(kind).take(kind):
            self._held.pop(kind, None)
            return item
        else:
            await self._hold(kind, item)
        return None

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
        last = self._held.pop(f"progress {getattr(item.message, 'id', None)}", None)
        if last is None:
            return item
        self._next = item
        return last

    async def _heard(self, kind: str) -> bool:
        """Whether a request of the server goes on."""
        if self._screen.requests < MOST_REQUESTS and self._asked.take(kind):
            self._screen.requests += 1
            return True
        await self._rest()
        return False

    async def _hold(self, kind: str, item: "SessionMessage") -> None:
        if kind in self._held or len(self._held) < MOST_HELD:
            self._held[kind] = item
        await self._rest()

    async def _rest(self) -> None:
        self._dropped += 1
        if self._dropped % BREATH == 0:
            await asyncio.sleep(BREATHER)

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
        if hasattr(item.message, "method"):
            self._screen.sending(item.message)
        await self._inner.send(item)
        if not hasattr(item.message, "method"):
            self._screen.requests -= 1

    async def aclose(self) -> None:
        """Close the stream within."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


def _is_sound(message: Any) -> bool:
    return notices.is_sound(message.method, message.params or {})


def _kind(message: Any) -> str | None:
    """Name what notifications and requests are counted as, or None for what must go through."""
    method = getattr(message, "method", None)
    if method is None or method == "notifications/cancelled":
        return None
    params: dict[str, Any] = message.params or {}
    if method == "notifications/progress":
        return f"progress {str(params.get('progressToken'))[:100]}"
    return str(method)[:100]
