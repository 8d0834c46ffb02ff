"""Limit what model requests cost: the meters of a turn, which count usage and say whether a request may be sent."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from agentmagic.bill import DAILY, MONTHLY, Period, Spending, dollars, ledger, today, work_folder
from agentmagic.classroom import class_settings
from agentmagic.messages import Usage
from agentmagic.providers.base import Request
from agentmagic.providers.registry import is_free
from agentmagic.text import plural

_VARIABLES: tuple[tuple[str, Period], ...] = ((DAILY, "day"), (MONTHLY, "month"))
_SETTINGS: tuple[tuple[str, Period], ...] = (("daily_budget", "day"), ("monthly_budget", "month"))
"""The class settings that limit the costs of a period."""
WARN_AT = 0.8
"""The share of a budget at which the user is warned."""
NOTHING, UNKNOWN_COST = Usage(), Usage(cost=None)
LESS = "With a smaller max_output_tokens, a request takes less of it."


class BudgetExhausted(Exception):
    """Raised when a budget is used up. The agent loop catches it and ends the turn with stop_reason "budget"."""

    code = "budget"


@dataclass(slots=True)
class Meter:
    """A limit on cost (US dollars) and tokens (input and output), and the usage that counts towards it.

    `of` names what is limited: "turn", "session" or "kernel", for example. `spent` begins with the usage before this
    turn that counts. If a teacher or administrator set the limit, `class_setting` names that setting. If the usage is
    counted elsewhere, `live` returns all of it, including this turn's.
    """

    of: str
    max_cost: float | None = None
    max_tokens: int | None = None
    spent: Usage = NOTHING
    class_setting: str = ""
    live: Callable[[], Usage] | None = None

    @property
    def is_limited(self) -> bool:
        """Whether a limit is set at all."""
        return self.max_cost is not None or self.max_tokens is not None

    def spend(self, usage: Usage) -> None:
        """Count the usage of a request."""
        self.spent += usage

    def why_refused(self, worst: Usage = NOTHING) -> str | None:
        """Return a sentence that says why a request that uses at most `worst` may not be sent, or None if it may.

        The cost of `worst` is None if the price of the model is unknown.
        """
        spent = self.spent if self.live is None else self.live()
        used, tokens = spent.input_tokens + spent.output_tokens, worst.input_tokens + worst.output_tokens
        if self.max_tokens is not None and used >= self.max_tokens:
            return f"The {self.of} has taken {used:,} tokens; max_tokens is {self.max_tokens:,}. {self._advice}"
        if self.max_cost is not None and (reason := self._why_too_dear(self.max_cost, spent.cost, worst.cost)):
            return reason
        if self.max_tokens is not None and tokens > (room := self.max_tokens - used):
            return f"A request may take {tokens:,} tokens, and {room:,} are left of max_tokens. {self._advice} {LESS}"
        return None

    def _why_too_dear(self, limit: float, spent: float | None, worst: float | None) -> str | None:
        if spent is None or worst is None:
            return f"What the {self.of} costs is unknown, so max_cost cannot be kept. {self._pricing}"
        if spent >= limit:
            return f"The {self.of} has cost ${spent:.4f}; max_cost is ${limit:.4f}. {self._advice}"
        if worst > (rest := limit - spent):
            return f"A request may cost ${worst:.4f}, and ${rest:.4f} are left of max_cost. {self._advice} {LESS}"
        return None

    def why_stopped(self, cost: float) -> str | None:
        """Return why a request that has cost so many US dollars so far must be stopped, or None if it may go on."""
        spent = self.spent if self.live is None else self.live()
        known = replace(spent, cost=(spent.cost or 0.0) + cost)  # an unknown earlier cost counts as 0
        return replace(self, spent=known, live=None).why_refused()

    def warning(self) -> str:
        """Return a warning for the user, or "" if there is nothing to warn of; each warning is returned once."""
        return ""

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


@dataclass(slots=True)
class PeriodMeter(Meter):
    """The budget of a day or a month, which many sessions share. The ledger counts the costs of all of them.

    `of` is the name of the setting or variable that sets the budget. `folder` is the folder to which it applies, or
    None if it applies to all folders, as a classroom budget does. `class_setting` names the setting and its file if
    classroom settings have set the budget. `spent` is the usage of this turn alone.
    """

    period: Period = field(kw_only=True)
    folder: str | None = field(default=None, kw_only=True)

    def why_refused(self, worst: Usage = NOTHING) -> str | None:
        """Return a sentence that says why a request that costs at most `worst` may not be sent, or None if it may."""
        spending = self._costs().cost
        if problem := ledger().problem:
            return (
                f"{problem}, so {self.of} cannot be kept and no request was sent. Make the file writable and try again."
            )
        if self.spent.cost is None or worst.cost is None:
            return f"The price of this model is unknown, so {self.of} cannot be kept. {self._pricing}"
        if spending >= self._limit:
            return f"${spending:.4f} were spent {self._when}; {self.of} is ${self._limit:.4f}. {self._advice}"
        if worst.cost > (rest := self._limit - spending):
            start = f"A request may cost ${worst.cost:.4f}, and ${rest:.4f} are left of {self.of}."
            return f"{start} {self._advice} {LESS}"
        return None

    def why_stopped(self, cost: float) -> str | None:
        """Return why a request that has cost so many US dollars so far must be stopped, or None if it may go on."""
        return replace(self, spent=NOTHING).why_refused(Usage(cost=cost))  # the ledger has no running request

    def warning(self) -> str:
        """Return a warning if 80% (WARN_AT) of the budget is spent, but only once a day or month, or else return ""."""
        total, key = self._costs(), (f"{self.of} {self._limit}", today()[: 10 if self.period == "day" else 7])
        if total.cost < WARN_AT * self._limit or key in ledger().shown_warnings:
            return ""
        ledger().shown_warnings.add(key)
        return (
            f"${total.cost:.2f} of the ${self._limit:.2f} of {self.class_setting or self.of} are spent {self._when}"
            f"{_unpriced_note(total)}. At 100 % no further request is sent."
        )

    def __str__(self) -> str:
        total = self._costs()
        remaining = max(0.0, self._limit - total.cost)
        return f"${remaining:.2f} of ${self._limit:.2f} are left {self._when} ({self.of}){_unpriced_note(total)}"

    def _costs(self) -> Spending:
        return ledger().costs(self.period, self.folder)

    @property
    def _limit(self) -> float:
        return self.max_cost or 0.0

    @property
    def _when(self) -> str:
        return "today" if self.period == "day" else "this month"

    @property
    def _pricing(self) -> str:
        if class_settings().fixes_prices:
            return "Ask the administrator for `prices`, or choose a model that has one: %agent models."
        return "Register the price with register_model, or choose a model that has one: %agent models."

    @property
    def _advice(self) -> str:
        if self.class_setting:
            return f"No further request was sent; the limit is {self.class_setting}."
        period = "tomorrow" if self.period == "day" else "next month"
        return f"No further request was sent; go on {period}, or raise {self.of}."


class Reservations(Protocol):
    """Reserves the costs of requests in meters that turns at the same time share, as the rows of a map do."""

    async def set_aside(self, request: Request) -> Usage:
        """Reserve the most that a request can use, and return it. Raises BudgetExhausted if too little is left."""
        ...

    def give_back(self, request: Request, aside: Usage, used: Usage | None) -> None:
        """Release what was set aside, and count what was used. `used` is None if the request was cancelled."""
        ...


def _unpriced_note(total: Spending) -> str:
    return f"; not in it: {plural(total.unpriced, 'request')} of unknown price" if total.unpriced else ""


def period_meters(model: str = "") -> tuple[PeriodMeter, ...]:
    """Return the daily and monthly budgets that apply here, without any for a `model` that costs nothing.

    Raises UsageError if a variable for one is not a number.
    """
    if model and is_free(model):
        return ()
    bounds, meters = class_settings(), list[PeriodMeter]()
    for variable, period in _VARIABLES:
        if (limit := dollars(variable)) is not None:
            meters.append(PeriodMeter(variable, limit, period=period, folder=work_folder()))
    for name, period in _SETTINGS:
        if (limit := getattr(bounds, name)) is not None:
            setting, source = name.replace("_", "-"), bounds.setting_with_file(name)
            meters.append(PeriodMeter(setting, limit, class_setting=source, period=period))
    return tuple(meters)


def keep(meters: Iterable[Meter], worst: Usage = NOTHING) -> None:
    """Raise BudgetExhausted if a meter does not allow a request that uses at most `worst`."""
    for meter in meters:
        if reason := meter.why_refused(worst):
            raise BudgetExhausted(reason)
