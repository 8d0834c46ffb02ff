"""What requests may cost: caps that a turn keeps, and the purse that many turns share."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from agentmagic.bill import PeriodCap, period_caps
from agentmagic.classroom import class_settings
from agentmagic.messages import Usage
from agentmagic.providers.base import Request
from agentmagic.providers.registry import is_free

LESS = "With a smaller max_output_tokens, a request takes less of it."


class BudgetExhausted(Exception):
    """Raised when a budget is used up. The loop catches it and ends the turn with stop_reason "budget"."""

    code = "budget"


@dataclass(frozen=True, slots=True)
class Budget:
    """A cap on cost (US dollars) and tokens (input and output), and what was spent under it before.

    `of` names what the cap is for: "turn", "session" or "kernel". `bound` names the setting of a class that is the cap.
    `live` tells what was spent by now, this turn included, if that is counted elsewhere.
    """

    of: str
    max_cost: float | None = None
    max_tokens: int | None = None
    before: Usage = Usage()  # noqa: RUF009  (a frozen value)
    bound: str = ""
    live: Callable[[], Usage] | None = None

    def exhausted(self, usage: Usage) -> str | None:
        """Return in a sentence why no further request may be sent after this usage, or None."""
        spent = self._spent(usage)
        tokens_spent = spent.input_tokens + spent.output_tokens
        if self.max_tokens is not None and tokens_spent >= self.max_tokens:
            return f"The {self.of} has taken {tokens_spent:,} tokens; max_tokens is {self.max_tokens:,}. {self._advice}"
        if self.max_cost is None:
            return None
        if spent.cost is None:
            return f"What the {self.of} costs is unknown, so max_cost cannot be kept. {self._pricing}"
        if spent.cost >= self.max_cost:
            return f"The {self.of} has cost ${spent.cost:.4f}; max_cost is ${self.max_cost:.4f}. {self._advice}"
        return None

    def refusal(self, usage: Usage, cost: float, tokens: int) -> str | None:
        """Return in a sentence why a request that may use so much cannot be sent after this usage, or None."""
        if words := self.exhausted(usage):
            return words
        spent = self._spent(usage)
        taken = spent.input_tokens + spent.output_tokens
        if self.max_tokens is not None and tokens > (left := self.max_tokens - taken):
            return f"A request may take {tokens:,} tokens, and {left:,} are left of max_tokens. {self._advice} {LESS}"
        if self.max_cost is not None and cost > (rest := self.max_cost - (spent.cost or 0.0)):
            return f"A request may cost ${cost:.4f}, and ${rest:.4f} are left of max_cost. {self._advice} {LESS}"
        return None

    def warning(self) -> str:
        """Return what the user should be warned of now, once; "" for nothing."""
        return ""

    def _spent(self, usage: Usage) -> Usage:
        if self.live is None:
            return self.before + usage
        return self.live() if usage.cost is not None else replace(self.live(), cost=None)

    @property
    def _pricing(self) -> str:
        if class_settings().fixes_prices:
            return "Ask the administrator for `prices`, or choose a model that has one: %agent models."
        return "Register the model's price with register_model, or use max_tokens."

    @property
    def _advice(self) -> str:
        if self.bound:
            return f"No further request was sent; the limit is {self.bound}."
        return "No further request was sent; raise the limit to go on."


@dataclass(frozen=True, slots=True)
class PeriodBudget(Budget):
    """The budget of a day or a month, which the ledger keeps for all sessions that share it."""

    cap: PeriodCap = field(kw_only=True)

    def exhausted(self, usage: Usage) -> str | None:
        """Return in a sentence why no further request may be sent, or None; the ledger knows what was used."""
        return self.refusal(usage, 0.0, 0)

    def refusal(self, usage: Usage, cost: float, tokens: int) -> str | None:  # noqa: ARG002
        """Return in a sentence why a request that may cost so much cannot be sent, or None."""
        cap = self.cap
        spent = cap.spent().cost
        if problem := cap.problem():
            return problem
        if usage.cost is None:
            return f"The price of this model is unknown, so {cap.setting} cannot be kept. {self._pricing}"
        if spent >= cap.limit:
            return f"${spent:.4f} were spent {cap.when}; {cap.setting} is ${cap.limit:.4f}. {self._advice}"
        if cost > (rest := cap.limit - spent):
            return f"A request may cost ${cost:.4f}, and ${rest:.4f} are left of {cap.setting}. {self._advice} {LESS}"
        return None

    def warning(self) -> str:
        """Return a sentence when most of the budget is spent, once."""
        return self.cap.warning()

    @property
    def _pricing(self) -> str:
        if class_settings().fixes_prices:
            return "Ask the administrator for `prices`, or choose a model that has one: %agent models."
        return "Register the price with register_model, or choose a model that has one: %agent models."

    @property
    def _advice(self) -> str:
        if self.cap.bound:
            return f"No further request was sent; the limit is {self.cap.bound}."
        period = "tomorrow" if self.cap.period == "day" else "next month"
        return f"No further request was sent; go on {period}, or raise {self.cap.setting}."


def period_budgets(model: str) -> tuple[PeriodBudget, ...]:
    """Return the budgets of days and months that hold for a model: none for one that costs nothing."""
    return () if is_free(model) else tuple(PeriodBudget(cap.period, cap.limit, cap=cap) for cap in period_caps())


@dataclass(slots=True)
class Payment:
    """What one request has cost, once that is known."""

    usage: Usage = Usage()  # noqa: RUF009  (a frozen value)


class Purse:
    """Pays for requests; this one pays for any."""

    @asynccontextmanager
    async def paying(self, request: Request) -> AsyncGenerator[Payment]:  # noqa: ARG002
        """Pay for a request that is sent in the block. Raises BudgetExhausted if it may not be sent."""
        yield Payment()


class SharedPurse:
    """Sets money and tokens aside for the requests of many turns at a time, within budgets.

    The worst that a request may use is set aside before it is sent. A request for which too little is left waits until
    others have used less than was set aside for them. It is used on one event loop.
    """

    def __init__(self, budgets: Sequence[Budget]) -> None:
        self.spent = Usage()
        self._budgets = tuple(budgets)
        self._cost = 0.0
        self._tokens = 0
        self._open = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def set_aside(self, worst: Usage) -> None:
        """Set aside what a request may use. Raises BudgetExhausted if less is left, and no request is under way."""
        while words := self.reserve(worst):
            if not self._open:
                raise BudgetExhausted(words)
            changed = asyncio.get_running_loop().create_future()
            self._waiting.append(changed)
            await changed

    def reserve(self, worst: Usage) -> str | None:
        """Set aside what a request may use, or return why less is left now."""
        if (words := self._refusal(worst)) is None:
            self._count(worst, 1)
        return words

    def owe(self, worst: Usage) -> None:
        """Set aside what a request may use that was sent already."""
        self._count(worst, 1)

    def give_back(self, worst: Usage, used: Usage) -> None:
        """Free what was set aside, and count what was used of it."""
        self._count(worst, -1)
        self.spent += used
        waiting, self._waiting = self._waiting, []
        for changed in waiting:
            if not changed.done():  # a turn that was cancelled waits no more
                changed.set_result(None)

    def _count(self, worst: Usage, sign: int) -> None:
        self._open += sign
        self._cost = self._cost + sign * (worst.cost or 0.0) if self._open else 0.0
        self._tokens += sign * (worst.input_tokens + worst.output_tokens)

    def _refusal(self, worst: Usage) -> str | None:
        """Return why a request cannot be sent now beside those that are under way, or None."""
        cost = self._cost + (worst.cost or 0.0)
        tokens = self._tokens + worst.input_tokens + worst.output_tokens
        spent = self.spent if worst.cost is not None else replace(self.spent, cost=None)
        return next(filter(None, (one.refusal(spent, cost, tokens) for one in self._budgets)), None)
