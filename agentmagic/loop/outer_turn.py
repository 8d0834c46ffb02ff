"""What a turn gives to the turns of its agent tools: its user, its rules, its money, and a place for their events."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from agentmagic.approval.approvals import Ask, Gate
from agentmagic.bill import Account
from agentmagic.context.rules import Project
from agentmagic.events import ApprovalAsked, Event, Intent, QuestionAsked
from agentmagic.loop.budgets import Payment, Purse
from agentmagic.messages import Usage
from agentmagic.providers.base import Request
from agentmagic.providers.traffic import TurnTraffic
from agentmagic.runtime.timeouts import GRACE
from agentmagic.undo.changes import Changes
from agentmagic.undo.watcher import Watcher

DEEPEST_TURN = 3
"""How deep agents may be asked within agents."""
GRACE_AROUND = GRACE * 2
"""Seconds that a cancelled call of an agent tool gets: the turn inside gives GRACE to its own calls, and then ends."""


@dataclass(frozen=True, slots=True)
class OuterTurn:
    """The turn of a call, as the turn inside the call knows it.

    `depth` is the number of turns that it is inside itself. `project` are the files that its model is told of, and
    `account` is its session's. `tell` takes the events of the inner turn, `ask` puts a question of it to the user, and
    `keep` takes what its tools have changed. `gate` has the rules that hold for inner calls too, and `purse` pays for
    inner requests. `steps` says whether the turn pauses before its requests and calls.
    """

    depth: int
    project: Project
    account: Account
    gate: Gate
    tell: Callable[[Event], None]
    ask: Ask
    purse: "InnerPurse"
    watcher: Watcher
    traffic: TurnTraffic
    keep: Callable[[Sequence[Changes]], None]
    steps: bool = False

    async def put(self, question: ApprovalAsked | QuestionAsked) -> Intent | None:
        """Put a question of the inner turn to the user; the time of this turn is paused meanwhile."""
        with self.gate.deadline.paused():
            return await self.ask(question)


class InnerPurse(Purse):
    """Pays for the requests of an inner turn, within the budgets of the turn around it and with what pays for that.

    `check` raises BudgetExhausted if that turn may send no further request, to a model whose price is known or not.
    `spend` counts what a request has cost.
    """

    def __init__(
        self, purse: Purse, check: Callable[[bool], None], spend: Callable[[Usage], None], *, priced: bool = True
    ) -> None:
        self._purse = purse
        self._check = check
        self._spend = spend
        self._priced = priced

    def of(self, *, priced: bool) -> "InnerPurse":
        """Return the purse for a model whose price is known or not."""
        return InnerPurse(self._purse, self._check, self._spend, priced=priced)

    @asynccontextmanager
    async def paying(self, request: Request) -> AsyncGenerator[Payment]:
        """Pay for a request that is sent in the block. Raises BudgetExhausted if it may not be sent."""
        self._check(self._priced)
        async with self._purse.paying(request) as payment:
            try:
                yield payment
            finally:
                self._spend(payment.usage)
