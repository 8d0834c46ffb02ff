"""Limit what model requests cost: the budgets of a turn, and the purse, a budget that many turns can share."""

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
    """Raised when a budget is used up. The agent loop catches it and ends the turn with stop_reason "budget"."""

    code = "budget"


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on cost (US dollars) and tokens (input and output), with the usage before this turn that counts for it.

    `of` names what is limited: "turn", "session" or "kernel", for example. If a teacher or administrator set the limit,
    `class_setting` names that setting. If the usage is counted elsewhere, `live` returns all of it, including this
    turn's.
    """

    of: str
    max_cost: float | None = None
    max_tokens: int | None = None
    before: Usage = Usage()  # noqa: RUF009  (a frozen value)
    class_setting: str = ""
    live: Callable[[], Usage] | None = None

    def why_exhausted(self, usage: Usage) -> str | None:
        """Return a sentence that says why no further request may be sent after this usage, or None."""
        total = self._total(usage)
        tokens = total.input_tokens + total.output_tokens
        if self.max_tokens is not None and tokens >= self.max_tokens:
            return f"The {self.of} has taken {tokens:,} tokens; max_tokens is {self.max_tokens:,}. {self._advice}"
        if self.max_cost is None:
            return None
        if total.cost is None:
            return f"What the {self.of} costs is unknown, so max_cost cannot be kept. {self._pricing}"
        if total.cost >= self.max_cost:
            return f"The {self.of} has cost ${total.cost:.4f}; max_cost is ${self.max_cost:.4f}. {self._advice}"
        return None

    def why_refused(self, usage: Usage, cost: float, tokens: int) -> str | None:
        """Return a sentence that says why a request of this cost and size may not be sent after this usage, or None."""
        if reason := self.why_exhausted(usage):
            return reason
        total = self._total(usage)
        used = total.input_tokens + total.output_tokens
        if self.max_tokens is not None and tokens > (room := self.max_tokens - used):
            return f"A request may take {tokens:,} tokens, and {room:,} are left of max_tokens. {self._advice} {LESS}"
        if self.max_cost is not None and cost > (rest := self.max_cost - (total.cost or 0.0)):
            return f"A request may cost ${cost:.4f}, and ${rest:.4f} are left of max_cost. {self._advice} {LESS}"
        return None

    def warning(self) -> str:
        """Return a warning for the user, or "" if there is nothing to warn of; each warning is returned once."""
        return ""

    def _total(self, usage: Usage) -> Usage:
        if self.live is None:
            return self.before + usage
        return self.live() if usage.cost is not None else replace(self.live(), cost=None)

    @property
    def _pricing(self) -> str:
        if class_settings().fixes_prices:
            return "Ask the administrator for `prices`, or choose a model that has one: %agent models."
        return "Register the model's price with register_model, use max_tokens, or leave max_cost (--max-cost) out."

    @property
    def _advice(self) -> str:
        if self.class_setting:
            return f"No further request was sent; the limit is {self.class_setting}."
        return "No further request was sent; raise the limit to go on."


@dataclass(frozen=True, slots=True)
class PeriodBudget(Budget):
    """The budget of a day or a month, which many sessions share. The ledger counts the spending of all of them."""

    cap: PeriodCap = field(kw_only=True)

    def why_exhausted(self, usage: Usage) -> str | None:
        """Return a sentence that says why no further request may be sent, or None, by the ledger's count."""
        return self.why_refused(usage, 0.0, 0)

    def why_refused(self, usage: Usage, cost: float, tokens: int) -> str | None:  # noqa: ARG002
        """Return a sentence that says why a request of this cost may not be sent, or None."""
        cap = self.cap
        spending = cap.costs().cost
        if problem := cap.problem():
            return problem
        if usage.cost is None:
            return f"The price of this model is unknown, so {cap.setting} cannot be kept. {self._pricing}"
        if spending >= cap.limit:
            return f"${spending:.4f} were spent {cap.when}; {cap.setting} is ${cap.limit:.4f}. {self._advice}"
        if cost > (rest := cap.limit - spending):
            return f"A request may cost ${cost:.4f}, and ${rest:.4f} are left of {cap.setting}. {self._advice} {LESS}"
        return None

    def warning(self) -> str:
        """Return a warning, once, when most of the budget is spent; else ""."""
        return self.cap.warning()

    @property
    def _pricing(self) -> str:
        if class_settings().fixes_prices:
            return "Ask the administrator for `prices`, or choose a model that has one: %agent models."
        return "Register the price with register_model, or choose a model that has one: %agent models."

    @property
    def _advice(self) -> str:
        if self.cap.class_setting:
            return f"No further request was sent; the limit is {self.cap.class_setting}."
        period = "tomorrow" if self.cap.period == "day" else "next month"
        return f"No further request was sent; go on {period}, or raise {self.cap.setting}."


def period_budgets(model: str) -> tuple[PeriodBudget, ...]:
    """Return the daily and monthly budgets that apply to a model; none for a model that costs nothing."""
    return () if is_free(model) else tuple(PeriodBudget(cap.period, cap.limit, cap=cap) for cap in period_caps())


@dataclass(slots=True)
class Payment:
    """The usage of one model request; it is filled in when it is known."""

    usage: Usage = Usage()  # noqa: RUF009  (a frozen value)


class Purse:
    """Decides whether a model request may be sent, and counts its usage. This base class allows every request."""

    @asynccontextmanager
    async def paying(self, request: Request) -> AsyncGenerator[Payment]:  # noqa: ARG002
        """Pay for a request that is sent inside this context. Raises BudgetExhausted if it may not be sent."""
        yield Payment()


class SharedPurse:
    """Reserves money and tokens, within budgets, for the requests of many turns that run at the same time.

    The most that a request can use is reserved before it is sent. If too little remains, the request waits until other
    requests end and release what they did not use. All methods must be called on one event loop.
    """

    def __init__(self, budgets: Sequence[Budget]) -> None:
        self.spent = Usage()
        self._budgets = tuple(budgets)
        self._cost = 0.0
        self._tokens = 0
        self._open = 0
        self._waiting: list[asyncio.Future[None]] = []

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
        if (reason := self._refusal(worst)) is None:
            self._count(worst, 1)
        return reason

    def owe(self, worst: Usage) -> None:
        """Reserve the most that a request can use, even if too little remains, because it was sent already."""
        self._count(worst, 1)

    def give_back(self, worst: Usage, used: Usage) -> None:
        """Release the reservation of a request, and count what the request used."""
        self._count(worst, -1)
        self.spent += used
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if not change.done():  # the future is done already if its turn was cancelled while it waited
                change.set_result(None)

    def _count(self, worst: Usage, sign: int) -> None:
        self._open += sign
        self._cost = self._cost + sign * (worst.cost or 0.0) if self._open else 0.0
        self._tokens += sign * (worst.input_tokens + worst.output_tokens)

    def _refusal(self, worst: Usage) -> str | None:
        """Return why a request cannot be sent now in addition to those under way, or None if it can."""
        cost = self._cost + (worst.cost or 0.0)
        tokens = self._tokens + worst.input_tokens + worst.output_tokens
        usage = self.spent if worst.cost is not None else replace(self.spent, cost=None)
        return next(filter(None, (one.why_refused(usage, cost, tokens) for one in self._budgets)), None)
