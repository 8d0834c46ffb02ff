"""What models were sent and what came back, kept in memory for the inspector.

Only references are kept. Nothing is decoded, blanked or written out before the user looks at it.
"""

from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentmagic.errors import ProviderError, said
from agentmagic.messages import Part
from agentmagic.providers.base import ModelFinished, Request

if TYPE_CHECKING:
    import httpx2

KEPT_TURNS = 20
LONGEST_BODY = 4 * 2**20
MOST_OF_A_TURN = 16 * 2**20
MOST_OF_ALL = 64 * 2**20
"""Bytes that are kept of one body, of the bodies of one turn, and of those of a session."""

_current: ContextVar["ModelExchange | None"] = ContextVar("model_exchange", default=None)
"""The exchange whose request this task sends: the SDKs give no access to theirs."""


@dataclass(slots=True)
class HttpExchange:
    """One HTTP request and its response, as bytes; `status` is 0 without a response.

    `whole` is False if a body was too long to keep: `sent` is then empty, and `received` ends early.
    """

    method: str
    url: str
    sent: bytes
    status: int = 0
    received: list[bytes] = field(default_factory=list[bytes])
    size: int = 0
    whole: bool = True

    def receive(self, chunk: bytes) -> None:
        """Keep a chunk of the response."""
        self.whole = self.whole and self.size + len(chunk) <= LONGEST_BODY + len(self.sent)
        if self.whole:
            self.received.append(chunk)
            self.size += len(chunk)


@dataclass(slots=True)
class ModelExchange:
    """One request of a turn and the answer to it, with all its tries.

    `purpose` says what a request beside the conversation is for; `step` counts the others. `http` is what was sent,
    a request for each try; a model that is not asked over HTTP has none. `dropped` says that it was not kept. `parts`
    are those of the answer, by index.
    """

    request: Request
    step: int
    purpose: str = ""
    http: list[HttpExchange] = field(default_factory=list[HttpExchange])
    dropped: bool = False
    parts: dict[int, Part] = field(default_factory=dict[int, Part])
    finished: ModelFinished | None = None
    error: str = ""

    def drop(self) -> None:
        """Forget what was sent; the request and the answer in our own form stay."""
        self.dropped = self.dropped or bool(self.http)
        self.http.clear()


class TurnTraffic:
    """The exchanges of one turn, in the order in which they began."""

    def __init__(self) -> None:
        self.exchanges: list[ModelExchange] = []

    @property
    def size(self) -> int:
        """The bytes that are kept."""
        return sum(one.size for exchange in self.exchanges for one in exchange.http)

    @contextmanager
    def exchange(self, request: Request, step: int, purpose: str = "") -> Generator[ModelExchange]:
        """Keep what the block sends for a request."""
        made = ModelExchange(request, step, purpose)
        self.exchanges.append(made)
        token = _current.set(made)
        try:
            yield made
        except ProviderError as error:
            made.error = said(error)
            raise
        finally:
            _current.reset(token)
            self.trim(MOST_OF_A_TURN)

    def trim(self, most: int) -> None:
        """Forget the oldest bodies over a number of bytes: a later request repeats the messages of those before it."""
        size = self.size
        for exchange in self.exchanges:
            if size <= most:
                return
            size -= sum(one.size for one in exchange.http)
            exchange.drop()


class Traffic:
    """The traffic of the last turns of a session; `turn` is what the session calls a turn."""

    def __init__(self) -> None:
        self._turns = deque[tuple[object, TurnTraffic]](maxlen=KEPT_TURNS)

    def keep(self, turn: object, traffic: TurnTraffic) -> None:
        """Keep the traffic of a turn that has ended."""
        self._turns.append((turn, traffic))
        room = MOST_OF_ALL
        for _, one in reversed(self._turns):
            one.trim(room)
            room = max(0, room - one.size)

    def of(self, turn: object) -> TurnTraffic | None:
        """Return the traffic of a turn, the same object, or None if it is not kept."""
        return next((traffic for one, traffic in self._turns if one is turn), None)

    def __iter__(self) -> Iterator[TurnTraffic]:
        return (traffic for _, traffic in self._turns)


async def note_request(request: "httpx2.Request") -> None:
    """Keep a request that is about to be sent; a hook of an HTTP client."""
    if (exchange := _current.get()) is not None:
        body = None
        with suppress(RuntimeError):  # of a file, which is read while it is sent
            body = request.content
        whole = body is not None and len(body) <= LONGEST_BODY
        kept = body if body and whole else b""
        made = HttpExchange(request.method, str(request.url), kept, size=len(kept), whole=whole)
        exchange.http.append(made)


def answered(response: "httpx2.Response") -> HttpExchange | None:
    """Return where the chunks of a response are kept, None if nothing is kept of its request."""
    exchange = _current.get()
    if exchange is None or not exchange.http:
        return None
    exchange.http[-1].status = response.status_code
    return exchange.http[-1]
