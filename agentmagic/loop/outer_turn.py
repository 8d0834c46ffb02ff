"""What a turn passes to the turns of its agent tools: access to the user, rules, budgets, and where events go."""

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
"""How many turns of agents may be nested inside a turn."""
GRACE_AROUND = GRACE * 2
"""Seconds that a cancelled call of an agent tool gets to end.

The turn inside gives GRACE seconds to its own calls, and then ends.
"""


@dataclass(frozen=True, slots=True)
class OuterTurn:
    """What an inner turn, the turn of an agent tool, knows of the outer turn that called the tool.

    `depth` is the number of turns around the outer turn. `project` are the project files that the outer turn's model
    knows, and `account` pays for its session's requests. `tell` receives the events of the inner turn, `ask` puts a
    question of the inner turn to the user, and `keep` receives the changes that the inner turn's tools made. `gate` has
    the permission rules that also hold for inner calls, and `purse` pays for inner requests. `steps` says whether the
    inner turn pauses before its requests and calls.
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

    async def ask_question(self, question: ApprovalAsked | QuestionAsked) -> Intent | None:
        """Ask the user a question of the inner turn. The timeout of the outer turn is paused meanwhile."""
        with self.gate.deadline.pause_in_block():
            return await self.ask(question)


class InnerPurse(Purse):
    """Pays for the requests of an inner turn from the purse (a shared budget) of the outer turn.

    The budgets of the outer turn hold too. `check` raises BudgetExhausted if the outer turn may send no further
    request; its argument says whether the price of the model is known. `spend` counts the usage of a request.
    """

    def __init__(
        self, purse: Purse, check: Callable[[bool], None], spend: Callable[[Usage], None], *, priced: bool = True
    ) -> None:
        self._purse = purse
        self._check = check
        self._spend = spend
        self._priced = priced

    def of(self, *, priced: bool) -> "InnerPurse":
        """Return a copy of this purse for an inner turn's model; `priced` says whether the model's price is known."""
        return InnerPurse(self._purse, self._check, self._spend, priced=priced)

    @asynccontextmanager
    async def paying(self, request: Request) -> AsyncGenerator[Payment]:
        """Pay for a request that is sent inside this context. Raises BudgetExhausted if it may not be sent."""
        self._check(self._priced)
        async with self._purse.paying(request) as payment:
            try:
                yield payment
            finally:
                self._spend(payment.usage)
