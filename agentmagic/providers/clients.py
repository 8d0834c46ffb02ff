"""The base class of all models on a server. It finds address and key, shares HTTP clients, and limits response sizes.

Making an HTTP client takes 40 ms, most of it for the TLS context, and a new connection takes several round trips.
Therefore, models with the same address, key and options share one HTTP client, if they run in the same event loop.
"""

import asyncio
import hashlib
import json
import re
import time
import weakref
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Hashable, Iterable, Mapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast
from urllib.parse import urlsplit

from agentmagic import settings
from agentmagic.classroom import class_settings
from agentmagic.errors import AuthenticationFailed, BadRequest, ProviderError, StreamBroken, Unavailable
from agentmagic.messages import Usage
from agentmagic.providers.addresses import adding_query, shown, split_query, tidy, without_ending
from agentmagic.providers.base import ModelEvent, Provider, Request
from agentmagic.providers.error_bodies import find_error
from agentmagic.providers.failures import (
    connection_broken,
    field_notice,
    find_refused_field,
    sentence,
    stream_broken,
    usable_key,
    usable_url,
    wrong_content_type,
)
from agentmagic.providers.proxies import RouteFault, async_client, network, sync_client
from agentmagic.providers.rate_limits import note_limits, note_sent
from agentmagic.providers.refused_parts import RefusedParts, names_part
from agentmagic.providers.streams import DONE, read_events, read_json
from agentmagic.providers.traffic import HttpExchange, exchange_of, note_request
from agentmagic.providers.wire import object_of, objects_of, text_of
from agentmagic.secrets import learn, learn_address

if TYPE_CHECKING:
    import httpx2

K = TypeVar("K", bound=Hashable)
C = TypeVar("C")

CONNECT_TIMEOUT = 30.0
SILENCE_TIMEOUT = 600.0
"""Seconds without a byte after which a connection counts as dead. The time limit of a turn is shorter."""

LONGEST_EVENT = 16 * 2**20
LONGEST_RESPONSE = 256 * 2**20
"""The most bytes of one event (one line, or all lines up to an empty line) and of one response.

A longer event or response is aborted with `StreamBroken`.
"""

LIST_BYTES = 1_000_000
MOST_NAMES = 200
LONGEST_NAME = 200
"""Limits for a server's list of models: its bytes, the models that are used, and the characters of a name."""

_KEY_HEADERS = ("x-api-key", "x-goog-api-key")
"""The headers other than `Authorization` in which the SDKs can send a key."""


_REFUSALS = frozenset(range(400, 500)) - {401, 402, 403, 404, 407, 408, 409, 413, 429}
"""HTTP statuses of errors that can name a field of the request. Other statuses are about keys, quotas, names and load.
"""


@dataclass(slots=True)
class _SharedClient:
    """An HTTP client that several models share. It has the client's future, and the number of models that use it."""

    client: "asyncio.Future[Any]"
    holders: int = 0


_clients: dict[tuple[asyncio.AbstractEventLoop, Hashable], _SharedClient] = {}


class ClientLease(Generic[K, C]):
    """A model's share of an HTTP client. The client is closed when the last model has released its share.

    `find` returns the parameters of the client: address, key and options. `make` makes the client from them. Both are
    called in a thread: importing an SDK takes a second, and a keyring can prompt the user. `close` closes a client.
    Leases share a client if they have the same `make`, a module-level function, and equal parameters.
    """

    def __init__(self, find: Callable[[], K], make: Callable[[K], C], close: Callable[[C], Awaitable[None]]) -> None:
        self._find = find
        self._make = make
        self._close = close
        self._params: K | None = None
        self._slot: tuple[asyncio.AbstractEventLoop, Hashable] | None = None

    async def client(self) -> C:
        """Return the HTTP client for the running event loop, or make it. Raises what `find` and `make` raise."""
        if self._params is None:
            self._params = await asyncio.to_thread(self._find)
        slot = (asyncio.get_running_loop(), (self._make, self._params, network()))
        if self._slot != slot:
            await self.release()
            if slot not in _clients:
                _clients[slot] = _SharedClient(asyncio.ensure_future(asyncio.to_thread(self._make, self._params)))
            _clients[slot].holders += 1
            self._slot = slot
        try:
            # With `shield`, the HTTP client is made even if this request is cancelled, so the next request can use it.
            return await asyncio.shield(_clients[slot].client)
        except Exception:
            await self.release()
            raise

    def forget(self) -> None:
        """Forget the address and key, so that the next request calls `find` again. The user can have changed them."""
        self._params = None

    async def release(self) -> None:
        """Give up this share of the client, and close it if no other model uses it. A later request makes it again."""
        slot, self._slot = self._slot, None
        if slot is None:
            return
        shared = _clients[slot]
        shared.holders -= 1
        if shared.holders == 0:
            del _clients[slot]
            # Only the event loop that opened the connections can close them. If that loop has ended, they stay open.
            if slot[0] is asyncio.get_running_loop():
                with suppress(Exception):  # awaiting the future raises if the client could not be made
                    await self._close(await shared.client)


class Decoder(Protocol):
    """Turns the chunks of one response into model events. `feed` is called for each chunk, `close` after the last one.

    Both methods raise a ProviderError if the server reports a failure. `close` raises StreamBroken if the response
    ended before its closing chunk.
    """

    rest: float | None
    """The seconds to wait for each further chunk after the answer is complete; None while it is not complete.

    The value is `SETTLE` if token counts can still follow, and `AFTER_END` after the last chunk that the API defines.
    """

    @property
    def usage_so_far(self) -> Usage | None:
        """The tokens that the answer has used so far, or None if the server has not reported them."""
        ...

    def feed(self, chunk: object) -> Iterable[ModelEvent]:
        """Return the model events in a chunk of the response. The chunk is unchecked: it can be any JSON."""
        ...

    def close(self, *, done: bool = False) -> Iterable[ModelEvent]:
        """Return the last model events, at the end of the response; `done` is True if the server sent `[DONE]`."""
        ...


@contextmanager
def adding_usage(decoder: Decoder) -> Generator[None]:
    """Add the decoder's `usage_so_far` to a ProviderError of the `with` block: a failed answer is billed too."""
    try:
        yield
    except ProviderError as failure:
        failure.usage = failure.usage or decoder.usage_so_far
        raise


class RemoteModel(Generic[K, C]):
    """The base class of models on a server: name, address, key, and a share of an HTTP client.

    `row` is the description of the provider, which names environment variables for the address and the key. They are
    read at the first request, and again if the address has changed or the key was refused. `base_url` and `api_key`
    take precedence over them.

    If a server refuses a field of a request, later requests to this server leave the field out: `without` has the names
    of these fields. `refusable` maps a field to a pattern that matches the server's error for this field; `body` leaves
    the field out. `find_refused_field` finds other refused fields, and `omit_fields` removes them from the body.
    """

    row: ClassVar[Provider]
    vendor: ClassVar[str]
    own_url: ClassVar[str] = ""
    example: ClassVar[str] = "https://host"
    refusable: ClassVar[Mapping[str, re.Pattern[str]]] = {}
    mark: ClassVar[str] = ""
    """The field that each chunk of an answer has. A chunk without it can be an error."""
    added: ClassVar[re.Pattern[str]] = re.compile(r"(?!)")
    """The end of a path that the client adds by itself, so that it is taken off an address which has it already."""

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self.model = model
        self._without: dict[str, dict[str, str]] = {}  # the refused fields, by the address of the server
        self._refused = defaultdict[str, RefusedParts](RefusedParts)  # by the address of the server too
        self._base_url = base_url
        self._api_key = api_key
        self._lease = ClientLease(self._find, self._connect, _close)
        self._lease_url = ""
        if api_key:
            learn("api_key", api_key, certain=True)

    @property
    def name(self) -> str:
        """The full name, "provider:model"."""
        return f"{self.row.name}:{self.model}"

    @property
    def base_url(self) -> str:
        """The address that requests are sent to. It is the constructor's `base_url`, or else from the environment."""
        return tidy(self._base_url or settings.variable(self.row.base_url) or "") or self.own_url

    @property
    def reached_at(self) -> str:
        """The address that requests reach. It differs from `base_url` if the SDK chooses the address."""
        return self.base_url

    @property
    def is_own(self) -> bool:
        """Whether requests go to the provider's own server, and not to another server that speaks the same API."""
        with suppress(ValueError):  # an incomplete IPv6 address; the first request raises the error that explains it
            return urlsplit(self.base_url).hostname == urlsplit(self.own_url).hostname
        return False

    @property
    def who(self) -> str:
        """The name of the server in error messages."""
        return self.vendor if self.is_own else shown(self.base_url)

    @property
    def without(self) -> dict[str, str]:
        """The fields that this server has refused, each with the field to send in its place, or "" if none exists."""
        return self._without.setdefault(self.base_url, {})

    @property
    def refused(self) -> RefusedParts:
        """The parts of histories that this server has refused."""
        return self._refused[self.base_url]

    def body(self, request: Request) -> dict[str, Any]:
        """Return the JSON that is sent for a request."""
        raise NotImplementedError

    @contextmanager
    def _sending(self, request: Request) -> Generator[dict[str, Any]]:
        """Yield the body of a request, which the `with` block sends, and learn which parts of it the server refuses."""
        body = self.body(request)
        try:
            yield body
        except (BadRequest, Unavailable) as failure:
            is_refusal = isinstance(failure, BadRequest) and failure.status in _REFUSALS
            if not failure.begun and not failure.mended and (is_refusal or names_part(str(failure))):
                failure.mended = self.refused.learn(str(failure), request, body)
            raise
        self.refused.accept(request)

    @property
    def key_digest(self) -> str:
        """A hash of the API key, by which models with the same key are recognized; "" without a key.

        It is also "" for a key in the system's keyring, because reading the keyring can take a while. The keyring has
        only one key for each provider.
        """
        key = self._api_key or settings.find_key(self.row.keys, keyring=False) or ""
        return hashlib.sha256(key.encode(errors="replace")).hexdigest() if key else ""

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        await self._lease.release()

    async def _client(self) -> C:
        """Return the HTTP client for a request. It is another one if the address has changed since the last request.

        Raises UsageError for an address that a teacher's or an administrator's limits do not allow.
        """
        where = self.reached_at
        class_settings().check_address(self.name, where)
        if self._lease_url != where:
            self._lease.forget()
            self._lease_url = where
        return await self._lease.client()

    def _find(self) -> K:
        """Return the address and the key. Raises BadRequest, AuthenticationMissing and AuthenticationFailed."""
        return cast("K", (self._usable_url(), self._find_key()))

    def _usable_url(self) -> str:
        url = usable_url(self.reached_at, self.row.base_url, self.example)
        if learn_address(url) and self.is_own:  # Gateways can want a key in each address.
            raise BadRequest(
                f"The base URL of {self.vendor} holds a key after the question mark, where others can read it. Set "
                f"{' or '.join(self.row.keys)} to the key, and take it out of the base URL ({self.row.base_url})."
            )
        return without_ending(url, self.added)

    def _find_key(self) -> str:
        return usable_key(self.vendor, self._api_key, self.row.keys)

    @staticmethod
    def _connect(access: K) -> C:
        """Return a new HTTP client for an address and a key."""
        raise NotImplementedError

    def _note_refusal(self, failure: ProviderError, body: dict[str, Any], error: object = None) -> ProviderError:
        """Change later requests if the server refused the key or a field of the request `body`. Return `failure`.

        After a refused key, the next request looks for the key again. A refused field is left out of later requests,
        and `failure.mended` is set to a notice for the user. The field's name is searched in `error`, which is the
        server's error as JSON of any form, or else in the message of `failure`.
        """
        if isinstance(failure, AuthenticationFailed):
            self._lease.forget()  # the next request looks for the key again: the user can have set another one
        if isinstance(failure, BadRequest) and failure.status in _REFUSALS:
            failure.mended = self.refused.follow_cure(str(failure), has_tools=bool(body.get("tools")))
            if failure.mended:
                return failure
            fields = ((name, pattern) for name, pattern in self.refusable.items() if name in body.keys() - self.without)
            field = next((name for name, pattern in fields if pattern.search(str(failure))), "")
            name, other = (field, "") if field else find_refused_field(str(failure) if error is None else error, body)
            if name:
                self.without[name] = other
                failure.mended = field_notice(name, other)
        return failure

    @contextmanager
    def _reading(self) -> Generator[None]:
        """Turn an HTTP error into StreamBroken, if it is raised while the `with` block reads a response."""
        import httpx2

        try:
            yield
        except httpx2.HTTPError as error:
            raise connection_broken(self.who, error) from error

    async def _events(
        self,
        response: "httpx2.Response",
        decoder: Decoder,
        body: dict[str, Any],
        reader: "Callable[[httpx2.Response], AsyncGenerator[list[bytes]]]" = read_events,
    ) -> AsyncGenerator[ModelEvent]:
        """Yield the model events of a streamed response; `reader` yields the response in chunks.

        `body` is the body of the request. If the response is a refusal, the refused field is searched in `body`.
        After a complete answer, more chunks are awaited only briefly, and a broken connection is not an error.
        """
        done, begun = False, False
        try:
            with adding_usage(decoder), self._reading():
                async with aclosing(response), aclosing(reader(response)) as reads:
                    async for chunks in reads:
                        for data in chunks:
                            if data is DONE:
                                done = True
                                break
                            for event in decoder.feed(self._chunk(data)):
                                begun = True
                                yield event
                        if decoder.rest is not None:
                            break
                    async for event in self._settle(reads, decoder):
                        yield event
        except ProviderError as failure:
            failure.begun = begun
            if not begun:
                self._note_refusal(failure, body)
            raise
        with adding_usage(decoder):
            for event in self._end(response, decoder, begun=begun, done=done):
                yield event

    def _end(self, response: "httpx2.Response", decoder: Decoder, *, begun: bool, done: bool) -> Iterable[ModelEvent]:
        """Return the last model events, at the end of a response.

        `begun` is True if the response had model events. `done` is True if the server sent `[DONE]`. Raises
        BadRequest if the response had no events and was not an event stream.
        """
        if not begun and not done and decoder.rest is None:
            self._check_type(response)
        return decoder.close(done=done)

    async def _settle(self, reads: AsyncGenerator[list[bytes]], decoder: Decoder) -> AsyncGenerator[ModelEvent]:
        """Yield the model events that come after a complete answer, until no chunk comes for `decoder.rest` seconds."""
        import httpx2

        last = time.monotonic()
        while decoder.rest is not None:
            try:
                async with asyncio.timeout(max(last + decoder.rest - time.monotonic(), 0)):
                    chunks = await anext(reads, None)
            except (TimeoutError, httpx2.HTTPError):
                return
            if chunks is None:
                return
            if chunks:
                last = time.monotonic()
            for data in chunks:
                for event in decoder.feed(self._chunk(data)) if data is not DONE else ():
                    yield event

    async def whole(self, response: "httpx2.Response") -> object:
        """Read a response and return its JSON. Raises StreamBroken if it is not JSON, or the connection breaks."""
        with self._reading():
            async with aclosing(response):
                return self._parse(await response.aread())

    def _chunk(self, data: bytes) -> object:
        """Return the JSON of one chunk of a response. Raises a ProviderError if an error came in place of a chunk."""
        chunk = self._parse(data)
        if object_of(chunk).get(self.mark) is None and (error := find_error(chunk)):
            raise self._reported(error)
        return chunk

    def _reported(self, error: dict[str, Any]) -> ProviderError:
        """Return the exception for an error as `find_error` returns it."""
        return stream_broken(text_of(error.get("message")))

    def _parse(self, data: bytes) -> object:
        """Return the JSON in `data`. Raises StreamBroken, with the beginning of `data`, if it is not JSON."""
        try:
            return read_json(data.decode())
        except (ValueError, RecursionError) as error:  # not JSON, not UTF-8, or nested too deeply
            message = sentence(data[:200].decode(errors="replace"))
            raise stream_broken(f"{self.who} sent something that cannot be read. It says: {message}") from error

    def _check_type(self, response: "httpx2.Response") -> None:
        """Raise BadRequest if the content type of a response is not an event stream."""
        kind = str(response.headers.get("content-type", ""))
        if kind and "event-stream" not in kind:
            exchange = exchange_of(response) if "json" in kind else None  # JSON is often an error with status 200
            text = b"".join(exchange.chunks).decode(errors="replace") if exchange else ""
            raise wrong_content_type(self.who, kind, self.row.base_url, response.status_code, text)


def _close(client: Any) -> Awaitable[None]:
    return client.aclose() if hasattr(client, "aclose") else client.close()


def http_client(
    kind: "type[httpx2.AsyncClient] | None" = None, *, address: str = "", **options: Any
) -> "httpx2.AsyncClient":
    """Return a new HTTP client that limits the size of responses; `options` are those of httpx2.

    If `address` has a query, it is added to each request to that server.

    If a teacher or administrator allows only some addresses, redirects are not followed, because a redirect could
    lead to a server that is not allowed.
    """
    import httpx2

    timeout = httpx2.Timeout(SILENCE_TIMEOUT, connect=CONNECT_TIMEOUT)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
    follows = class_settings().addresses is None
    client = async_client(kind, timeout=timeout, limits=limits, follow_redirects=follows, **options)
    if query := split_query(address)[1]:
        client.event_hooks["request"].append(adding_query(query, httpx2.URL(address).host))
    client.event_hooks["request"] += [_keep_keys, note_request, note_sent]
    client.event_hooks["response"][:0] = [_limit, note_limits]
    return client


async def _keep_keys(request: "httpx2.Request") -> None:
    """Remove the API keys from a request that goes to another server because of a redirect.

    httpx2 itself removes only the header `Authorization`. This is an event hook of the HTTP clients.
    """
    # httpx2 copies `extensions` from the original request to the redirected one, so the first host is known in both.
    first = request.extensions.setdefault("agentmagic.server", request.url.netloc)
    if request.url.netloc != first:
        for name in _KEY_HEADERS:
            request.headers.pop(name, None)


def listed_names(url: str, where: tuple[str, str], seconds: float, key: str = "") -> list[str]:
    """Return the names of the models that a server lists, or an empty list if no complete list arrives in time.

    `where` has the JSON key of the list in the response, and the key of the name in each entry of the list.
    """
    if find_spec("httpx2") is None:
        return []
    import httpx2

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body, until = b"", time.monotonic() + seconds
    try:
        with (
            sync_client(url, timeout=seconds) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            answer.raise_for_status()
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > LIST_BYTES or time.monotonic() > until:
                    return []
        names = [text_of(entry.get(where[1])) for entry in objects_of(object_of(json.loads(body)).get(where[0]))]
    except (httpx2.HTTPError, httpx2.InvalidURL, RouteFault, ValueError, RecursionError):
        return []
    return [name for name in names if name and name.isprintable() and len(name) <= LONGEST_NAME][:MOST_NAMES]


async def _limit(response: "httpx2.Response") -> None:
    """Limit how much of a response is read, after decompression. This is an event hook of the HTTP clients."""
    read, lines = type(response).aiter_bytes, "event-stream" not in response.headers.get("content-type", "")
    exchange = exchange_of(response)
    # A weak reference, so that the response does not refer to itself. Otherwise only the garbage collector could free
    # the response, and it could close it in any thread.
    owner = weakref.ref(response)

    def limited(chunk_size: int | None = None) -> AsyncGenerator[bytes]:
        return _limit_chunks(read(cast("httpx2.Response", owner()), chunk_size), exchange, lines=lines)

    response.aiter_bytes = limited


async def _limit_chunks(
    chunks: AsyncGenerator[bytes], exchange: HttpExchange | None = None, *, lines: bool
) -> AsyncGenerator[bytes]:
    """Yield the chunks of a response, and record them in `exchange`.

    Raises StreamBroken if the whole response, or one event in it, is too long. With `lines`, each line is an event.
    """
    ends = (b"\n",) if lines else (b"\n\n", b"\r\n\r\n", b"\r\r")
    whole = event = 0
    last = b""
    async with aclosing(chunks):
        async for chunk in chunks:
            whole += len(chunk)
            tail = last + chunk  # `last` is searched too, because two chunks can share an event's end mark
            end = max(map(tail.rfind, ends))
            event = len(tail) - end if end >= 0 else event + len(chunk)
            last = tail[-3:]
            if event > LONGEST_EVENT or whole > LONGEST_RESPONSE:
                failure = StreamBroken(
                    f"The server sent {whole / 2**20:.0f} MB, of which the last {event / 2**20:.0f} MB have no end, "
                    "and the answer was broken off. Check the base URL."
                )
                failure.retryable = False
                raise failure
            if exchange is not None:
                exchange.receive(chunk)
            yield chunk
