"""Budget accounting for a map (one prompt for many rows): reserves cost and tokens for the requests of its rows."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from math import ceil

from agentmagic.context.request_view import tokens_of_request
from agentmagic.loop.budgets import Budget, Payment, Purse, SharedPurse
from agentmagic.loop.turn_context import TurnContext
from agentmagic.mapping.prompts import RowPrompt
from agentmagic.messages import Usage
from agentmagic.providers.base import Request, honoured_settings
from agentmagic.providers.registry import address_of, priced


class Costs:
    """Estimates the largest possible cost of a map's requests (one prompt for many rows), and reserves it in budgets.

    The first of the `budgets` is the map's own. `common` is the number of tokens in the part that is the same in every
    request. `shared` is the account from which all rows reserve. `is_measured` is set after the first request, whose
    usage shows how the provider counts tokens, or at once if no limit is set.
    """

    def __init__(self, turn: TurnContext, common: int, budgets: Sequence[Budget]) -> None:
        self.shared = SharedPurse(budgets)
        self.is_measured = asyncio.Event()
        self._turn = turn
        self._common = common
        self._scale = 1.0
        self._has_cost_cap = budgets[0].max_cost is not None
        self._is_capped = any(budget.max_cost is not None or budget.max_tokens is not None for budget in budgets)
        if not self._is_capped:
            self.is_measured.set()
        self._longest = honoured_settings(turn.model, turn.agent.settings).max_output_tokens or turn.facts.output

    @property
    def notice(self) -> str:
        """A notice that tells the user how the map's cost limit makes it slower. It is "" if it does not."""
        if not self._has_cost_cap or self._longest != (most := self._turn.facts.output):
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


class RowPurse(Purse):
    """Reserves the cost of one row's requests in the map's budgets. `on_first` is called before the first request."""

    def __init__(self, costs: Costs, on_first: Callable[[], None]) -> None:
        self.is_sent = False
        self._costs = costs
        self._on_first = on_first
        self._reserved_usage: Usage | None = None

    async def open(self, worst: Usage) -> None:
        """Reserve `worst`, the largest usage of the row's first request. Raises BudgetExhausted if it does not fit."""
        await self._costs.shared.set_aside(worst)
        self._reserved_usage = worst

    def hold(self, worst: Usage) -> None:
        """Take over the usage that was reserved for the row's request when the request was sent in a batch."""
        self._reserved_usage, self.is_sent = worst, True

    def close(self) -> None:
        """Release the usage reserved for the row's first request, if the request was not sent."""
        if (aside := self._take()) is not None:
            self._give_back(aside, Usage())

    @asynccontextmanager
    async def paying(self, request: Request) -> AsyncGenerator[Payment]:
        """Reserve a request's largest cost for a `with` block, then set the true cost. Blocks can run concurrently."""
        if (aside := self._take()) is None:
            await self._costs.shared.set_aside(aside := self._costs.worst_of(request))
        payment = Payment()
        try:
            if not self.is_sent:
                self._on_first()
                self.is_sent = True
            yield payment
        except asyncio.CancelledError:
            payment.usage = aside  # count the reserved cost: the provider may charge for a cancelled request
            raise
        else:
            self._costs.learn(request, payment.usage)
        finally:
            self._give_back(aside, payment.usage)

    def _take(self) -> Usage | None:
        aside, self._reserved_usage = self._reserved_usage, None
        return aside

    def _give_back(self, aside: Usage, usage: Usage) -> None:
        self._costs.shared.give_back(aside, usage)
        self._costs.is_measured.set()
