"""Pays for the requests of a row."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from agentmagic.loop.budgets import Payment, Purse, SharedPurse
from agentmagic.messages import Usage
from agentmagic.providers.base import Request


class RowPurse(Purse):
    """Pays for the requests of one row out of a shared purse.

    `worst` tells the most that a request may use, `on_first` is called before the first request is sent, and `on_paid`
    with what was set aside for a request and what it has used.
    """

    def __init__(
        self,
        shared: SharedPurse,
        worst: Callable[[Request], Usage],
        on_first: Callable[[], None],
        on_paid: Callable[[Usage, Usage], None],
    ) -> None:
        self.sent = False
        self._shared = shared
        self._worst = worst
        self._on_first = on_first
        self._on_paid = on_paid
        self._aside: Usage | None = None

    async def open(self, worst: Usage) -> None:
        """Set aside what the first request may use. Raises BudgetExhausted."""
        await self._shared.set_aside(worst)
        self._aside = worst

    def hold(self, worst: Usage) -> None:
        """Take over what was set aside for a request that was sent already."""
        self._aside, self.sent = worst, True

    def close(self, used: Usage = Usage()) -> None:  # noqa: B008
        """Free what is set aside."""
        aside, self._aside = self._aside, None
        if aside is not None:
            self._shared.give_back(aside, used)

    @asynccontextmanager
    async def paying(self, request: Request) -> AsyncGenerator[Payment]:
        """Pay for a request of the row."""
        if self._aside is None:
            await self.open(self._worst(request))
        payment = Payment()
        try:
            if not self.sent:
                self._on_first()
                self.sent = True
            yield payment
            self._on_paid(self._aside or Usage(), payment.usage)
        except asyncio.CancelledError:
            payment.usage = self._aside or Usage()  # the answer may be paid all the same
            raise
        finally:
            self.close(payment.usage)
