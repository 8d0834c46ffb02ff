"""HTTP clients that models share, and the limits on what servers send to them.

Making a client takes 40 ms, most of it for the TLS context, and a new connection takes several round trips. All models
of an event loop with the same address, key and options therefore share one client.
"""

import asyncio
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from agentmagic.errors import StreamBroken

if TYPE_CHECKING:
    import ssl

    import httpx2

K = TypeVar("K", bound=Hashable)
C = TypeVar("C")

CONNECT_TIMEOUT = 30.0
SILENCE_TIMEOUT = 600.0
"""Seconds without a byte after which a connection counts as dead. A turn has a shorter limit of its own."""

LONGEST_EVENT = 16 * 2**20
LONGEST_RESPONSE = 256 * 2**20
"""Bytes of one event (a line, or all lines up to an empty one) and of one response; a longer one is broken off."""

_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables that an HTTP client reads when it is made."""


@dataclass(slots=True)
class _Shared:
    """A client, or the task that makes it, and how many models hold it."""

    client: "asyncio.Future[Any]"
    holders: int = 0


_shared: dict[tuple[asyncio.AbstractEventLoop, Hashable], _Shared] = {}


class ClientLease(Generic[K, C]):
    """A model's share of a client, which is closed when no model holds it.

    `find` returns what the client is made of: address, key and options. `make` makes the client of it. Both are called
    in a thread: importing an SDK takes a second, and a keyring may ask the user. `close` closes a client. Leases with
    the same `make`, a function of a module, share their clients.
    """

    def __init__(self, find: Callable[[], K], make: Callable[[K], C], close: Callable[[C], Awaitable[None]]) -> None:
        self._find = find
        self._make = make
        self._close = close
        self._found: K | None = None
        self._held: tuple[asyncio.AbstractEventLoop, Hashable] | None = None

    async def client(self) -> C:
        """Return the client for this event loop. Raises what `find` and `make` raise."""
        if self._found is None:
            self._found = await asyncio.to_thread(self._find)
        place = (asyncio.get_running_loop(), (self._make, self._found, _network()))
        if self._held != place:
            await self.release()
            if place not in _shared:
                _shared[place] = _Shared(asyncio.ensure_future(asyncio.to_thread(self._make, self._found)))
            _shared[place].holders += 1
            self._held = place
        try:
            # Shielded: a cancelled request leaves the client to the next one.
            return await asyncio.shield(_shared[place].client)
        except Exception:
            await self.release()
            raise

    def forget(self) -> None:
        """Look for address and key again at the next request: the user may have set others."""
        self._found = None

    async def release(self) -> None:
        """Give the client back; a later request takes one again."""
        place, self._held = self._held, None
        if place is None:
            return
        shared = _shared[place]
        shared.holders -= 1
        if shared.holders == 0:
            del _shared[place]
            # The connections of a loop that is gone cannot be closed from another one.
            if place[0] is asyncio.get_running_loop():
                with suppress(Exception):  # the client could not be made
                    await self._close(await shared.client)


def http_client(**options: Any) -> "httpx2.AsyncClient":
    """Return a new HTTP client whose responses are limited; options are those of httpx2."""
    import httpx2

    timeout = httpx2.Timeout(SILENCE_TIMEOUT, connect=CONNECT_TIMEOUT)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    client = httpx2.AsyncClient(verify=tls_context(), timeout=timeout, limits=limits, follow_redirects=True, **options)
    client.event_hooks["response"].insert(0, _limit)
    return client


def tls_context() -> "ssl.SSLContext":
    """Return the TLS context of all clients: loading the certificates takes 30 ms."""
    return _tls_context(_network())


@cache
def _tls_context(_network: tuple[str | None, ...]) -> "ssl.SSLContext":
    import httpx2

    return httpx2.create_ssl_context()


def _network() -> tuple[str | None, ...]:
    return tuple(os.environ.get(name) or os.environ.get(name.lower()) for name in _NETWORK)


async def _limit(response: "httpx2.Response") -> None:
    """Limit what is read of a response, after decompression."""
    read, lines = type(response).aiter_bytes, "event-stream" not in response.headers.get("content-type", "")
    # Weak: in a cycle with its response, an unread stream would be closed by the garbage collector, in any thread.
    owner = weakref.ref(response)

    def limited(chunk_size: int | None = None) -> AsyncGenerator[bytes]:
        return _limited(read(cast("httpx2.Response", owner()), chunk_size), lines=lines)

    response.aiter_bytes = limited


async def _limited(chunks: AsyncGenerator[bytes], *, lines: bool) -> AsyncGenerator[bytes]:
    """Yield the chunks of a response. Raises StreamBroken if an event, or the whole, is too long."""
    ends = (b"\n",) if lines else (b"\n\n", b"\r\n\r\n", b"\r\r")
    whole = event = 0
    last = b""
    async with aclosing(chunks):
        async for chunk in chunks:
            whole += len(chunk)
            seen = last + chunk  # the end of an event may be cut in two
            ended = max(map(seen.rfind, ends))
            event = len(seen) - ended if ended >= 0 else event + len(chunk)
            last = seen[-3:]
            if event > LONGEST_EVENT or whole > LONGEST_RESPONSE:
                failure = StreamBroken(
                    f"The server sent {whole / 2**20:.0f} MB, of which the last {event / 2**20:.0f} MB have no end, "
                    "and the answer was broken off. Check the base URL."
                )
                failure.retryable = False
                raise failure
            yield chunk
