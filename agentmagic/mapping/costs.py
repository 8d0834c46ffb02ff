"""The costs of a map: cost and tokens are reserved for the requests of its rows."""

import asyncio
from collections.abc import Callable, Sequence
from math import ceil

from agentmagic.context.request_view import tokens_of_request
from agentmagic.loop.budgets import NOTHING, BudgetExhausted, Meter, keep
from agentmagic.loop.turn_context import TurnContext
from agentmagic.mapping.prompts import RowPrompt
from agentmagic.messages import Usage
from agentmagic.providers.base import Request, honoured_settings
from agentmagic.providers.registry import address_of, priced


class Costs:
    """Estimates the largest possible cost of a map's requests, and reserves it in meters.

    The most that a request can use is reserved before it is sent. If too little remains, the request waits until other
    requests end and release what they did not use. All methods must be called on one event loop.

    The first of the `meters` is the map's own. `common` is the number of tokens in the part that is the same in every
    request. `is_measured` is set after the first request, whose usage shows how the provider counts tokens, or at once
    if no limit is set.
    """

    def __init__(self, turn: TurnContext, common: int, meters: Sequence[Meter]) -> None:
        self.is_measured = asyncio.Event()
        self._turn = turn
        self._common = common
        self._meters = meters
        self._reserved_cost = 0.0
        self._reserved_tokens = 0
        self._open = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._scale = 1.0
        self._is_capped = any(meter.is_limited for meter in meters)
        if not self._is_capped:
            self.is_measured.set()
        self._longest = honoured_settings(turn.model, turn.agent.settings).max_output_tokens or turn.facts.output

    @property
    def notice(self) -> str:
        """A notice that tells the user how the map's cost limit makes it slower. It is "" if it does not."""
        if self._meters[0].max_cost is None or self._longest != (most := self._turn.facts.output):
            return ""
        return (
            f"Without max_output_tokens, the model's own limit of {most:,} tokens is set aside for each request, so "
            "fewer rows are asked at a time."
        )

    def worst(self, prompt: RowPrompt) -> Usage:
        """Return the largest usage (tokens and cost) that the first request of a row can have."""
        return self._worst(self._common + prompt.size)

    def worst_of(self, request: Request) -> Usage:
        """Return the largest usage (tokens and cost) that a request can have, at current prices."""
        return self._worst(tokens_of_request(request))

    def learn(self, request: Request, usage: Usage) -> None:
        """Raise the token estimates if the provider counted more: some languages have more tokens per character."""
        if self._is_capped and usage.requests == 1:
            self._scale = max(self._scale, usage.input_tokens / max(1, tokens_of_request(request)))

    def _worst(self, tokens: int) -> Usage:
        usage = Usage(input_tokens=ceil(tokens * self._scale), output_tokens=self._longest, requests=1)
        return priced(self._turn.model.name, usage, address_of(self._turn.model))

    # -- reserving -----------------------------------------------------------------------------

    async def set_aside(self, worst: Usage) -> None:
        """Reserve the most that a request can use (`worst`), and wait for other requests if too little remains.

        Raises BudgetExhausted if too little remains and no other request is under way.
        """
        while reason := self.reserve(worst):
            if not self._open:
                raise BudgetExhausted(reason)
            change = asyncio.get_running_loop().create_future()
            self._waiting.append(change)
            await change

    def reserve(self, worst: Usage) -> str | None:
        """Reserve the most that a request can use, or return why too little remains now."""
        tokens = self._reserved_tokens + worst.input_tokens + worst.output_tokens
        cost = None if worst.cost is None else self._reserved_cost + worst.cost
        try:
            keep(self._meters, Usage(tokens, cost=cost))
        except BudgetExhausted as refused:
            return str(refused)
        self.owe(worst)
        return None

    def owe(self, worst: Usage) -> None:
        """Reserve the most that a request can use, even if too little remains, because it was sent already."""
        self._count(worst, 1)

    def give_back(self, worst: Usage, used: Usage) -> None:
        """Release the reservation of a request, and count what the request used."""
        self._count(worst, -1)
        for meter in self._meters:
            meter.spend(used)
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if not change.done():  # the future is done already if its turn was cancelled while it waited
                change.set_result(None)

    def _count(self, worst: Usage, sign: int) -> None:
        self._open += sign
        self._reserved_cost = self._reserved_cost + sign * (worst.cost or 0.0) if self._open else 0.0
        self._reserved_tokens += sign * (worst.input_tokens + worst.output_tokens)


class RowCosts:
    """Reserves the cost of one row's requests in the map's meters: the `Reservations` of the row's turn.

    `first` is what is reserved already for the row's first request, and `on_first` is called before that request.
    """

    def __init__(self, costs: Costs, first: Usage, on_first: Callable[[], None]) -> None:
        self.is_sent = False
        self._costs = costs
        self._first: Usage | None = first
        self._on_first = on_first

    async def set_aside(self, request: Request) -> Usage:
        """Reserve the most that a request can use, and return it. Raises BudgetExhausted if too little is left."""
        if not self.is_sent:
            self._on_first()
            self.is_sent = True
        aside, self._first = self._first, None
        if aside is None:
            await self._costs.set_aside(aside := self._costs.worst_of(request))
        return aside

    def give_back(self, request: Request, aside: Usage, used: Usage | None) -> None:
        """Release what was set aside, and count what was used. `used` is None if the request was cancelled.

        A cancelled request counts with what was set aside, because the provider may charge for it.
        """
        if used is not None:
            self._costs.learn(request, used)
        self._give_back(aside, aside if used is None else used)

    def close(self) -> None:
        """Release the usage reserved for the row's first request, if the request was not sent."""
        aside, self._first = self._first, None
        if aside is not None:
            self._give_back(aside, NOTHING)

    def _give_back(self, aside: Usage, used: Usage) -> None:
        self._costs.give_back(aside, used)
        self._costs.is_measured.set()
