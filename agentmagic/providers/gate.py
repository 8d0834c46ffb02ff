"""The pace of a provider: when a request may be sent, so that many rows use what the provider allows and no more.

Requests leave at a rate, and at most so many are under way. A limit that the server names is the rate. Where it names
none, the rate grows as long as nothing is refused, and shrinks by the share that is refused; a cut after which the same
share is refused is taken back, since the rate is not the cause then. If everything is refused, one request at a time
tries whether the server takes requests again, and the rate becomes what was accepted on average. The number under way
grows as long as that brings more answers a second, and shrinks as the rate does if the server is overloaded.
"""

import asyncio
import math
import weakref
from collections import deque
from collections.abc import Hashable, Mapping
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Self

from agentmagic.errors import ProviderError, RateLimited, Unavailable
from agentmagic.messages import Usage
from agentmagic.providers.base import Model, Taped
from agentmagic.providers.ceilings import EPOCH, FEW, Ceiling, Window
from agentmagic.providers.clients import RemoteModel
from agentmagic.providers.rate_limits import HEADERS, RateLimit, hear, read_limits
from agentmagic.providers.registry import address_of

CATCH_UP = 0.02
"""Seconds of pace that may be caught up after a delay of the event loop."""
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_ASKED = 0.5, 8.0, 120.0
"""Seconds between tries while everything is refused, doubled each time; and the most that a server may ask for."""
ROOM = 8
"""Rows that may wait at the gate at least."""
IN_A_ROW = 3, 8, 1.0
"""Everything is refused if so many are, one after the other: the first number, or the second in so many seconds."""
REFUSAL = 3
"""Times the usual time of a refusal after which a request that was not refused counts as accepted."""
LATE = 5.0
"""Seconds after which a row that was begun and did not come to the gate is no longer expected."""
RECENT = 32
"""Gates that are kept while nobody uses them, with what they have learned."""


class _Pace:
    """When the next request may leave, at `rate` a second of requests or tokens."""

    def __init__(self) -> None:
        self.rate = math.inf
        self.due = 0.0

    def charge(self, amount: float, now: float) -> None:
        self.due = max(self.due, now - CATCH_UP) + amount / self.rate


class _Tokens(_Pace):
    """The pace of a limit of tokens; `share` is what a request counts against it, by the tokens it was taken for."""

    def __init__(self) -> None:
        super().__init__()
        self.share = 1.0


class Ticket:
    """The leave to send one request, from `async with gate.admitted(...)`."""

    def __init__(self, gate: "ProviderGate", tokens: int, *, row: bool) -> None:
        self.tokens, self.row = tokens, row
        self.charged: dict[str, float] = {}
        self.epochs: tuple[int, int] = (0, 0)
        self.sent_at = 0.0
        self.decided = False  # whether it was accepted or refused
        self.blameless = False  # refused although the limits that the server names were not reached
        self._gate = gate

    async def __aenter__(self) -> Self:
        await self._gate.enter(self)
        self._token = hear.set(self._hear)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hear.reset(self._token)
        self._gate.leave(self, error)

    def used(self, usage: Usage) -> None:
        """Count the tokens that the request has taken in the place of the estimate."""
        self._gate.correct(self, usage)

    def _hear(self, status: int, headers: Mapping[str, str]) -> None:
        self._gate.hear(self, status, read_limits(headers))


class ProviderGate:
    """Admits the requests to one model under one key; all of it runs on one event loop.

    `owner` is the model of a gate that belongs to one object.
    """

    def __init__(self, owner: object = None) -> None:
        self._owner = owner  # kept, so that no other object has its id
        self._open_to_all = isinstance(owner, Taped)  # a replay waits for nothing
        self._rate = Ceiling(math.inf, 1 / 60)
        self._window = Window()
        self._requests = _Pace()
        self._tokens: dict[str, _Tokens] = {}
        self._under_way = 0
        self._persons = deque[tuple[asyncio.Future[None], Ticket]]()
        self._rows = deque[tuple[asyncio.Future[None], Ticket]]()
        self._rooms = deque[asyncio.Future[None]]()
        self._coming = deque[float]()
        self._latency = self._lag = 0.2  # the usual seconds until an answer has ended, and until a refusal
        self._answers = 0
        self._in_a_row = 0  # refusals without an acceptance between them
        self._first_refusal = 0.0
        self._shut = False
        self._too_fast = False  # whether it was shut because of the rate, and not because the server is overloaded
        self._probe: Ticket | None = None
        self._pause = FIRST_PAUSE
        self._shut_until = 0.0
        self._undecided = deque[Ticket]()
        self._open_since = 0.0
        self._sent = 0  # since then
        self._timer: asyncio.TimerHandle | None = None

    @property
    def rate(self) -> float:
        """The requests a minute that are allowed now; infinite before a limit was met."""
        return self._requests.rate * 60

    def admitted(self, tokens: int, *, row: bool = False) -> Ticket:
        """Return what admits one try of a request as an asynchronous context manager.

        `tokens` is an estimate of its input and output. A person's request waits for nothing unless rows do, and goes
        before them.
        """
        return Ticket(self, tokens, row=row)

    async def room(self) -> None:
        """Return when one more row may begin without standing in a long queue here."""
        now = self._now()
        if self._rooms or not self._has_room():
            future = asyncio.get_running_loop().create_future()
            self._rooms.append(future)
            self._pump()
            try:
                await future
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self._coming.pop()
                else:
                    with suppress(ValueError):
                        self._rooms.remove(future)
                self._pump()
                raise
        else:
            self._coming.append(now)

    # -- of tickets ----------------------------------------------------------------------------

    async def enter(self, ticket: Ticket) -> None:
        """Return when the request of a ticket may be sent."""
        now = self._now()
        if ticket.row and self._coming:
            self._coming.popleft()
        queue = self._rows if ticket.row else self._persons
        if not queue and self._may_go(ticket, now):
            self._admit(ticket, now)
            return
        future = asyncio.get_running_loop().create_future()
        queue.append((future, ticket))
        self._pump()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():  # admitted and cancelled in the same moment
                ticket.decided = True
                self._sent -= 1
                self.leave(ticket, None, sent=False)
            else:
                with suppress(ValueError):  # it was passed over
                    queue.remove((future, ticket))
                self._pump()
            raise

    def leave(self, ticket: Ticket, error: BaseException | None, *, sent: bool = True) -> None:
        """Take a ticket back; `error` is how its request ended."""
        now = self._now()
        self._under_way -= 1
        if sent and not self._open_to_all and (error is None or isinstance(error, ProviderError)):
            self._count(ticket, error, now)
        if ticket is self._probe:
            self._probe = None
        self._pump()

    def hear(self, ticket: Ticket, status: int, limits: Mapping[str, RateLimit]) -> None:
        """Take in what a response says: that the request was accepted, and the limits."""
        for name, limit in limits.items():
            if "tokens" in name:
                self._tokens.setdefault(name, _Tokens()).rate = limit.limit / 60
            else:
                self._rate.limit = limit.limit / 60
                self._rate.value = min(self._rate.value, self._rate.limit)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            ticket.blameless = self._is_left(ticket, limits)
        if status < HTTPStatus.MULTIPLE_CHOICES:
            self._accept(ticket, self._now())
        self._set_rate()

    def _is_left(self, ticket: Ticket, limits: Mapping[str, RateLimit]) -> bool:
        """Return whether enough is left of every limit, and the one of requests is a minute's: it holds the rate."""
        need = {name: ticket.charged.get(name, 1) for name in limits}
        left = all(one.remaining is not None and one.remaining > need[name] for name, one in limits.items())
        return bool(limits) and left and self._rate.value > self._rate.limit / 2

    def correct(self, ticket: Ticket, usage: Usage) -> None:
        """Charge what a request has used."""
        for name, tokens in self._tokens.items():
            used = HEADERS[name](usage)
            if name in ticket.charged:
                tokens.due += (used - ticket.charged[name]) / tokens.rate
            if ticket.tokens:
                tokens.share += (used / ticket.tokens - tokens.share) / FEW

    # -- of the pace ---------------------------------------------------------------------------

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    def _may_go(self, ticket: Ticket, now: float) -> bool:
        if self._open_to_all or (not ticket.row and not self._rows):
            return True
        if ticket.row and (self._under_way >= int(self._window.value) or not self._is_open(now)):
            return False
        return now >= self._due()

    def _is_open(self, now: float) -> bool:
        return not self._shut or (now >= self._shut_until and self._probe is None)

    def _due(self) -> float:
        """Return when the next request may leave, as far as the paces go."""
        return max([self._requests.due, *(pace.due for pace in self._tokens.values())])

    def _admit(self, ticket: Ticket, now: float) -> None:
        if not self._under_way and not self._rows:  # what was sent long ago says nothing of the rate
            self._open_since, self._sent = now, 0
        self._under_way += 1
        ticket.sent_at = now
        if not self._shut:
            ticket.epochs = self._rate.send(now), self._window.send(now)
        self._requests.charge(1, now)
        for name, tokens in self._tokens.items():
            ticket.charged[name] = ticket.tokens * tokens.share
            tokens.charge(ticket.charged[name], now)
        self._undecided.append(ticket)
        if self._shut:
            self._probe = ticket
        self._sent += 1

    def _count(self, ticket: Ticket, error: ProviderError | None, now: float) -> None:
        if isinstance(error, RateLimited):
            if error.retryable and ticket.blameless:
                self._accept(ticket, now)
            elif error.retryable:
                self._refuse(ticket, error, now)
                self._rate.refuse(ticket.epochs[0])
        elif isinstance(error, Unavailable):
            if error.retryable:
                self._refuse(ticket, error, now)
                self._window.refuse(ticket.epochs[1])
        else:
            self._accept(ticket, now)
            if error is None:
                self._answers = min(self._answers + 1, FEW)
                self._latency += (now - ticket.sent_at - self._latency) / self._answers
                self._window.answer(now, self._latency)
        if not self._shut:
            self._rate.settle(now, REFUSAL * self._lag)
            self._window.settle(now, REFUSAL * self._lag)
            self._set_rate()

    def _assume(self, now: float) -> None:
        """Count as accepted what was not refused in the time that refusals take: answers take longer."""
        while self._undecided and (
            self._undecided[0].decided or now >= self._undecided[0].sent_at + REFUSAL * self._lag
        ):
            ticket = self._undecided.popleft()
            if not ticket.decided:
                self._accept(ticket, now)

    def _accept(self, ticket: Ticket, now: float) -> None:
        if ticket.decided:
            return
        ticket.decided = True
        if ticket.sent_at >= self._first_refusal:
            self._in_a_row = 0
        if self._shut and ticket is self._probe:
            self._probe = None
            self._open(now)

    def _refuse(self, ticket: Ticket, error: ProviderError, now: float) -> None:
        ticket.decided = True
        self._lag += (now - ticket.sent_at - self._lag) / FEW
        self._in_a_row += 1
        self._sent -= 1
        if self._in_a_row == 1:
            self._first_refusal = ticket.sent_at
        asked = min(error.retry_after or 0.0, LONGEST_ASKED)
        too_fast = isinstance(error, RateLimited)
        if self._shut:
            if self._probe in (None, ticket) and now >= self._shut_until:
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
                self._shut_until = now + (asked or self._pause)
        elif (too_fast and self._rate.value == math.inf) or self._all_refused(now):
            self._shut, self._too_fast, self._pause = True, too_fast, FIRST_PAUSE
            self._shut_until = now + (asked or self._pause)

    def _all_refused(self, now: float) -> bool:
        """Return whether nothing was accepted for so long that it is no chance."""
        few, many, seconds = IN_A_ROW
        known = now - self._first_refusal - REFUSAL * self._lag  # how long is known what became of requests
        rate = self._requests.rate
        return self._in_a_row >= few and known >= max(few / rate, min(many / rate, seconds))

    def _open(self, now: float) -> None:
        self._shut = False
        if self._too_fast and (self._sent >= FEW or self._rate.value == math.inf):
            self._rate.found(min(self._rate.value, self._sent / max(now - self._open_since, EPOCH)))
        if self._sent >= FEW:
            self._open_since, self._sent = now, 0
        self._rate.restart(now)
        self._window.restart(now)
        self._set_rate()
        self._requests.due = now

    def _set_rate(self) -> None:
        self._requests.rate = min(self._rate.value, self._rate.limit)

    def _pump(self) -> None:
        """Admit who may go, and set a timer for the next."""
        now = self._now()
        self._assume(now)
        for queue in (self._persons, self._rows):
            while queue:
                future, ticket = queue[0]
                if not future.cancelled():  # else its task is about to take it out
                    if not self._may_go(ticket, now):
                        break
                    self._admit(ticket, now)
                    future.set_result(None)
                queue.popleft()
        if self._rows and self._under_way >= int(self._window.value):
            self._window.full()
        elif self._rows and now < self._requests.due:
            self._rate.binding = True
        self._make_room(now)
        self._wake(now)

    def _make_room(self, now: float) -> None:
        """Let rows begin that wait for room."""
        while self._coming and now - self._coming[0] > LATE:
            self._coming.popleft()
        while self._rooms and (self._rooms[0].done() or self._has_room()):
            future = self._rooms.popleft()
            if not future.done():
                self._coming.append(now)
                future.set_result(None)

    def _has_room(self) -> bool:
        if self._open_to_all:
            return True
        ahead = len(self._rows) + len(self._coming)
        pace = self._requests.rate
        return ahead < max(ROOM, pace if pace < math.inf else self._window.value - self._under_way)

    def _wake(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        times: list[float] = []
        if self._persons or (self._rows and self._under_way < int(self._window.value)):
            if not self._shut or self._persons:
                times.append(self._due())
            elif self._probe is None:
                times.append(max(self._shut_until, self._due()))
            else:
                times.append(self._probe.sent_at + REFUSAL * self._lag)
        if self._rooms and self._coming:
            times.append(self._coming[0] + LATE)
        if times:
            self._timer = asyncio.get_running_loop().call_at(max(min(times), now + 1e-4), self._pump)


_gates: "weakref.WeakValueDictionary[Hashable, ProviderGate]" = weakref.WeakValueDictionary()
_recent = deque["ProviderGate"](maxlen=RECENT)
"""Keeps what the last gates have learned; a gate that is in use is held by its tickets."""


def gate_of(model: Model) -> ProviderGate:
    """Return the gate of a model: one for all models of this name, address and key on this event loop.

    A model without an address has a gate of its own, and a tape that answers one that makes nobody wait.
    """
    if isinstance(model, Taped):
        model = model.real or model
    address = None if isinstance(model, Taped) else address_of(model)
    key = model.key_digest if isinstance(model, RemoteModel) else ""
    where: Hashable = id(model) if address is None else (address, key)
    place = (asyncio.get_running_loop(), model.name, where)
    gate = _gates.get(place)
    if gate is None:
        gate = _gates[place] = ProviderGate(None if address is not None else model)
    if address is not None and (not _recent or _recent[-1] is not gate):
        with suppress(ValueError):
            _recent.remove(gate)
        _recent.append(gate)
    return gate
