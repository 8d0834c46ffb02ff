"""Decides when each request to a provider can be sent.

A map sends many requests. They should come as fast as the provider allows, but not faster.
So requests are sent at a limited rate, and only a limited number is under way at the same time.

If the server names a rate limit, that is the rate. Otherwise the rate grows as long as no request is refused, and
shrinks by the share of refused requests. If the same share is refused afterwards, the rate was not the cause, and the
old rate is restored. If every request is refused, one request at a time tests whether the server accepts requests
again. The rate is then set to the average rate of the requests that were accepted. The number of requests under way
grows as long as that brings more answers per second, and shrinks like the rate if the server is overloaded.
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
from agentmagic.providers.rate_limits import HEADERS, RateLimit, on_request, on_response, read_limits
from agentmagic.providers.registry import address_of

CATCH_UP = 0.02
"""After a delay of the event loop, requests are sent faster to catch up, but for this many seconds of it at most."""
FIRST_PAUSE, LONGEST_PAUSE, LONGEST_REQUESTED = 0.5, 8.0, 120.0
"""Seconds between tries while every request is refused: at first, and at most, doubled each time.

The third value is the longest pause in seconds that a server can request.
"""
ROOM = 8
"""The least number of rows that can wait at the gate."""
REFUSALS_IN_A_ROW = 3, 8, 1.0
"""When the server counts as refusing everything: after this many refusals without an acceptance between them.

The first number is enough if the refusals last as long as the rate needs to send that many requests, and also as long
as it needs to send the second number of requests, or the seconds of the third number if they are fewer.
"""
REFUSAL = 3
"""A request that is not refused within this many times the usual time of a refusal counts as accepted."""
LATE = 5.0
"""Seconds after which a row that has begun, but sent no request to the gate, is no longer expected."""
RECENT = 32
"""The number of recently used gates that are kept, so that their learned rates are not lost."""


class _Pace:
    """Computes when the next request can be sent, at a `rate` of requests or tokens per second."""

    def __init__(self) -> None:
        self.rate = math.inf
        self.due = 0.0

    def charge(self, amount: float, now: float, *, late: bool) -> None:
        """Count a request that is sent now; `late` says whether it waited for `due`, so that a delay is caught up."""
        self.due = max(self.due, now - CATCH_UP * late) + amount / self.rate


class _Tokens(_Pace):
    """The pace for a limit on tokens. `share` is the average of a request's real tokens divided by its estimate."""

    def __init__(self) -> None:
        super().__init__()
        self.share = 1.0


class Ticket:
    """Permission to send one request. `async with gate.ticket(...)` waits until the request can be sent."""

    def __init__(self, gate: "ProviderGate", tokens: int, *, row: bool) -> None:
        self.tokens, self.row = tokens, row
        self.charges: dict[str, float] = {}
        self.epochs: tuple[int, int] = (0, 0)
        self.sent_at = 0.0
        self.decided = False  # whether the server has accepted or refused the request
        self.blameless = False  # whether it was refused although it was within the server's limits
        self._gate = gate

    async def __aenter__(self) -> Self:
        await self._gate.enter(self)
        self._tokens = on_request.set(self._note_sent), on_response.set(self._read_response)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        on_request.reset(self._tokens[0])
        on_response.reset(self._tokens[1])
        self._gate.leave(self, error)

    def charge_usage(self, usage: Usage) -> None:
        """Replace the estimate of the request's tokens by the real usage."""
        self._gate.correct(self, usage)

    def _note_sent(self) -> None:
        self._gate.note_sent(self)

    def _read_response(self, status: int, headers: Mapping[str, str]) -> None:
        self._gate.read_response(self, status, read_limits(headers))


class ProviderGate:
    """The rate limiter for the requests to one model under one API key. All calls must come from one event loop.

    `owner` is the model object, if the limiter is for this object alone.
    """

    def __init__(self, owner: object = None) -> None:
        self._owner = owner  # kept alive: `gate_of` finds the gate by `id(owner)`, which could be given to a new object
        self._open_to_all = isinstance(owner, Taped)  # requests that a recording answers never wait
        self._rate = Ceiling(math.inf, 1 / 60)
        self._window = Window()
        self._requests = _Pace()
        self._tokens: dict[str, _Tokens] = {}
        self._under_way = 0
        self._persons = deque[tuple[asyncio.Future[None], Ticket]]()
        self._rows = deque[tuple[asyncio.Future[None], Ticket]]()
        self._rooms = deque[asyncio.Future[None]]()
        self._coming = deque[float]()
        # the usual seconds from sending a request to the end of its answer (`_latency`), or to its refusal (`_lag`)
        self._latency = self._lag = 0.2
        self._answers = 0
        self._in_a_row = 0  # refused requests since the last accepted one
        self._first_refusal = 0.0
        self._shut = False
        self._too_fast = False  # if `_shut`: True if we sent too many requests, False if the server is overloaded
        self._probe: Ticket | None = None
        self._pause = FIRST_PAUSE
        self._shut_until = 0.0
        self._undecided_tickets = deque[Ticket]()
        self._open_since = 0.0
        self._idle_until = 0.0  # when the last request was sent that no other request was under way with
        self._sent_count = 0  # the number of requests since `_open_since` that were not refused
        self._timer: asyncio.TimerHandle | None = None
        # whether a request waits for the time `_due()`, and not for anything else: then it may be sent late
        self._is_due_awaited = False

    @property
    def rate(self) -> float:
        """The requests per minute that may be sent now; infinite until the server names a limit or refuses requests."""
        return self._requests.rate * 60

    def ticket(self, tokens: int, *, row: bool = False) -> Ticket:
        """Return an asynchronous context manager for one request, which waits until the request can be sent.

        The caller sends it inside the `async with`, and only once. `tokens` is an estimate of its input and output
        tokens. `row` is True if the request is for one row of a map. Any other request
        waits only while rows are waiting, and is sent before them.
        """
        return Ticket(self, tokens, row=row)

    async def room(self) -> None:
        """Wait until a row of a map can begin, so that its request will not wait long."""
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
        """Wait until the request that `ticket` stands for can be sent."""
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
            if future.done() and not future.cancelled():  # permission came, but the task was cancelled before it ran
                ticket.decided = True
                self._sent_count -= 1
                self.leave(ticket, None, was_sent=False)
            else:
                with suppress(ValueError):  # `_pump` has removed it already
                    queue.remove((future, ticket))
                self._pump()
            raise

    def note_sent(self, ticket: Ticket) -> None:
        """Record that the request of `ticket` is really sent now.

        To load the client for a first request can take seconds. These are not part of the time until a refusal.
        """
        if self._open_since == self._idle_until == ticket.sent_at:
            self._open_since = self._now()
        ticket.sent_at = self._now()

    def leave(self, ticket: Ticket, error: BaseException | None, *, was_sent: bool = True) -> None:
        """Record that the request of `ticket` has ended, and learn from it whether the server accepted it.

        `error` is the exception that ended the request, or None if it succeeded.
        """
        now = self._now()
        self._under_way -= 1
        if was_sent and not self._open_to_all and (error is None or isinstance(error, ProviderError)):
            self._count(ticket, error, now)
        if ticket is self._probe:
            self._probe = None
        self._pump()

    def read_response(self, ticket: Ticket, status: int, limits: Mapping[str, RateLimit]) -> None:
        """Learn from the status and headers of a response: the server's limits, and whether it accepted the request."""
        for name, limit in limits.items():
            if "tokens" in name:
                self._tokens.setdefault(name, _Tokens()).rate = limit.limit / 60
            else:
                self._rate.limit = limit.limit / 60
                self._rate.value = min(self._rate.value, self._rate.limit)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            ticket.blameless = self._is_within_limits(ticket, limits)
        if status < HTTPStatus.MULTIPLE_CHOICES:
            self._accept(ticket, self._now())
        self._set_rate()

    def _is_within_limits(self, ticket: Ticket, limits: Mapping[str, RateLimit]) -> bool:
        """Return whether a refused request was within all limits that the server names. Then our rate is not the cause.

        `limits` are the limits in the headers of the refusal. The result is also False if there is no limit on
        requests. It is False too if our rate is at most half of this limit, because the server could then count over
        another time than a minute.
        """
        need = {name: ticket.charges.get(name, 1) for name in limits}
        is_enough = all(one.remaining is not None and one.remaining > need[name] for name, one in limits.items())
        return bool(limits) and is_enough and self._rate.value > self._rate.limit / 2

    def correct(self, ticket: Ticket, usage: Usage) -> None:
        """Replace the estimate of a request's tokens by the real number, which then counts toward the token limits."""
        for name, tokens in self._tokens.items():
            count = HEADERS[name](usage)
            if name in ticket.charges:
                tokens.due += (count - ticket.charges[name]) / tokens.rate
            if ticket.tokens:
                tokens.share += (count / ticket.tokens - tokens.share) / FEW

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
        """Return the time from which all limits (on requests and on tokens) allow the next request."""
        return max([self._requests.due, *(pace.due for pace in self._tokens.values())])

    def _admit(self, ticket: Ticket, now: float) -> None:
        if not self._under_way and not self._rows:  # idle until now: count accepted requests from here on
            self._open_since = self._idle_until = now
            self._sent_count = 0
        self._under_way += 1
        ticket.sent_at = now
        if not self._shut:
            ticket.epochs = self._rate.send(now), self._window.send(now)
        self._requests.charge(1, now, late=self._is_due_awaited)
        for name, tokens in self._tokens.items():
            ticket.charges[name] = ticket.tokens * tokens.share
            tokens.charge(ticket.charges[name], now, late=self._is_due_awaited)
        self._undecided_tickets.append(ticket)
        if self._shut:
            self._probe = ticket
        self._sent_count += 1

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
        """Count a request as accepted if it was not refused within the usual time of a refusal.

        An answer takes longer than a refusal, so this method does not wait for the end of the answer.
        """
        while self._undecided_tickets and (
            self._undecided_tickets[0].decided or now >= self._undecided_tickets[0].sent_at + REFUSAL * self._lag
        ):
            ticket = self._undecided_tickets.popleft()
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
        self._sent_count -= 1
        if self._in_a_row == 1:
            self._first_refusal = ticket.sent_at
        pause = min(error.retry_after or 0.0, LONGEST_REQUESTED)
        too_fast = isinstance(error, RateLimited)
        if self._shut:
            if self._probe in (None, ticket) and now >= self._shut_until:
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
                self._shut_until = now + (pause or self._pause)
        elif (too_fast and self._rate.value == math.inf) or self._refuses_all(now):
            self._shut, self._too_fast, self._pause = True, too_fast, FIRST_PAUSE
            self._shut_until = now + (pause or self._pause)

    def _refuses_all(self, now: float) -> bool:
        """Return whether requests were refused in a row so often, and for so long, that it cannot be chance."""
        few, many, seconds = REFUSALS_IN_A_ROW
        # Requests that were sent a moment ago may still be refused, so the time since then is not counted.
        known_seconds = now - self._first_refusal - REFUSAL * self._lag
        rate = self._requests.rate
        return self._in_a_row >= few and known_seconds >= max(few / rate, min(many / rate, seconds))

    def _open(self, now: float) -> None:
        self._shut = False
        if self._too_fast and (self._sent_count >= FEW or self._rate.value == math.inf):
            measured = self._sent_count / max(now - self._open_since, EPOCH)
            self._rate.set_measured(min(self._rate.value, measured), self._sent_count)
        if self._sent_count >= FEW:
            self._open_since, self._sent_count = now, 0
        self._rate.restart(now)
        self._window.restart(now)
        self._set_rate()
        self._requests.due = now

    def _set_rate(self) -> None:
        self._requests.rate = min(self._rate.value, self._rate.limit)

    def _pump(self) -> None:
        """Give permission to all waiting requests that can be sent now, and set a timer for the next one."""
        now = self._now()
        self._assume(now)
        for queue in (self._persons, self._rows):
            while queue:
                future, ticket = queue[0]
                if not future.cancelled():  # a cancelled request is only removed from the queue
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
        """Let waiting rows of a map begin, as long as few begun rows wait to send a request. Rows wait in `room`."""
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
        self._is_due_awaited = False
        if self._persons or (self._rows and self._under_way < int(self._window.value)):
            if not self._shut or self._persons:
                times.append(self._due())
                self._is_due_awaited = True
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
"""Keeps the most recent gates alive with their learned rates. A gate in use is also kept alive by its tickets."""


def gate_of(model: Model) -> ProviderGate:
    """Return the rate limiter of a model. Models with the same name, address and key share one, in each event loop.

    A model without an address has its own limiter. For a model that plays a recording, the limiter never waits.
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
