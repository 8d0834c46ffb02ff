"""Keeps the requests to models and their responses in memory, for the inspector.

Only references are kept. Nothing is decoded, redacted or written to a file before the user looks at it.
"""

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentmagic.errors import ProviderError, describe
from agentmagic.messages import Part
from agentmagic.providers.base import ModelFinished, Request

if TYPE_CHECKING:
    import httpx2

MOST_TURNS = 20
LONGEST_BODY = 4 * 2**20
MOST_OF_A_TURN = 16 * 2**20
MOST_OF_ALL = 64 * 2**20
"""The most bytes that are kept of one body, of all bodies of one turn, and of all bodies of a session."""

_current: ContextVar["ModelExchange | None"] = ContextVar("model_exchange", default=None)
"""The exchange that this task is sending. A context variable, because the SDKs offer no way to pass it along."""


@dataclass(slots=True)
class HttpExchange:
    """One HTTP request and its response, as bytes; `status` is 0 if there was no response.

    `whole` is False if a body was too long to keep. Then `request_body` is empty, or `chunks` has only the beginning.
    """

    method: str
    url: str
    request_body: bytes
    status: int = 0
    chunks: list[bytes] = field(default_factory=list[bytes])
    size: int = 0
    whole: bool = True

    def receive(self, chunk: bytes) -> None:
        """Keep a chunk of the response, unless the exchange has become too long."""
        self.whole = self.whole and self.size + len(chunk) <= LONGEST_BODY + len(self.request_body)
        if self.whole:
            self.chunks.append(chunk)
            self.size += len(chunk)


@dataclass(slots=True)
class ModelExchange:
    """One request to a model in a turn, and the answer to it, with all tries.

    `step` is the number of the turn's step. A request outside the conversation, such as one for a summary, has a
    `purpose` and the number of the last step. `http` has one HTTP request for each try. It is empty for a model that
    does not use HTTP. `is_dropped` is True if `http` was discarded to save memory. `parts` are the parts of the answer,
    by index.
    """

    request: Request
    step: int
    purpose: str = ""
    http: list[HttpExchange] = field(default_factory=list[HttpExchange])
    is_dropped: bool = False
    parts: dict[int, Part] = field(default_factory=dict[int, Part])
    finished: ModelFinished | None = None
    error: str = ""

    def drop(self) -> None:
        """Discard the HTTP requests and responses. The request and the answer are kept as agentmagic objects."""
        self.is_dropped = self.is_dropped or bool(self.http)
        self.http.clear()


class TurnTraffic:
    """The requests to models in one turn, with their answers, in the order in which they began."""

    def __init__(self) -> None:
        self.exchanges: list[ModelExchange] = []

    @property
    def size(self) -> int:
        """The number of bytes of HTTP bodies that are kept for this turn."""
        return sum(one.size for exchange in self.exchanges for one in exchange.http)

    @contextmanager
    def exchange(self, request: Request, step: int, purpose: str = "") -> Generator[ModelExchange]:
        """Record a model request, and the HTTP requests that the `with` block sends for it."""
        exchange = ModelExchange(request, step, purpose)
        self.exchanges.append(exchange)
        token = _current.set(exchange)
        try:
            yield exchange
        except ProviderError as error:
            exchange.error = describe(error)
            raise
        finally:
            _current.reset(token)
            self.trim(MOST_OF_A_TURN)

    def trim(self, most: int) -> None:
        """Discard the oldest HTTP bodies until at most `most` bytes are left.

        Little is lost, because later requests repeat the messages of earlier ones.
        """
        size = self.size
        for exchange in self.exchanges:
            if size <= most:
                return
            size -= sum(one.size for one in exchange.http)
            exchange.drop()


class Traffic:
    """The requests and answers of the last turns of a session. Any object (`turn`) can identify a turn."""

    def __init__(self) -> None:
        self._turns = deque[tuple[object, TurnTraffic]](maxlen=MOST_TURNS)

    def keep(self, turn: object, traffic: TurnTraffic) -> None:
        """Keep the traffic of a turn that has ended."""
        self._turns.append((turn, traffic))
        room = MOST_OF_ALL
        for _, one in reversed(self._turns):
            one.trim(room)
            room = max(0, room - one.size)

    def of(self, turn: object) -> TurnTraffic | None:
        """Return the requests and answers of the turn that `turn` identifies, or None if they are not kept."""
        return next((traffic for one, traffic in self._turns if one is turn), None)

    def __iter__(self) -> Iterator[TurnTraffic]:
        return (traffic for _, traffic in self._turns)


async def note_request(request: "httpx2.Request") -> None:
    """Record a request that is about to be sent. This is an event hook of the HTTP clients."""
    if (exchange := _current.get()) is not None:
        body = None
        with suppress(RuntimeError):  # the body is a file, which is read while it is sent
            body = request.content
        whole = body is not None and len(body) <= LONGEST_BODY
        sent_body = body if body and whole else b""
        http_exchange = HttpExchange(request.method, str(request.url), sent_body, size=len(sent_body), whole=whole)
        exchange.http.append(http_exchange)


def exchange_of(response: "httpx2.Response") -> HttpExchange | None:
    """Record the status of a response, and return the `HttpExchange` that will keep its chunks.

    Returns None if the request was not recorded.
    """
    exchange = _current.get()
    if exchange is None or not exchange.http:
        return None
    exchange.http[-1].status = response.status_code
    return exchange.http[-1]
