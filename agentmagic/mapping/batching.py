"""Asks rows in batches of the provider, at half the price: sent, waited for, collected, also by another kernel."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace

from agentmagic.errors import ProviderError, Unavailable, UsageError
from agentmagic.events import Fold
from agentmagic.loop.budgets import BudgetExhausted
from agentmagic.loop.step import Steps
from agentmagic.mapping.file import LONGEST_ERROR, BatchSent, RowEnded
from agentmagic.mapping.ledger import Ledger
from agentmagic.mapping.prompts import RowPrompt
from agentmagic.mapping.purse import Costs
from agentmagic.mapping.turns import RowTurns
from agentmagic.messages import Usage
from agentmagic.providers.base import Request
from agentmagic.providers.batch import PRICE, BatchAnswer, Batches, Collected, batches_of, split
from agentmagic.runtime.engine import void
from agentmagic.secrets import redact
from agentmagic.text import clip, counted

FIRST_LOOK, LONGEST_WAIT = 5.0, 60.0
"""Seconds until a batch is first looked at, and at most between two looks; a batch takes minutes to hours."""
PATIENT = 1.5
"""By how much the time between two looks grows."""


class BatchedRows:
    """The rows of a map that wait for a batch, or are in one.

    Raises UsageError for a model without batches, and for a map whose batches could not be found again.
    """

    def __init__(self, ledger: Ledger, costs: Costs, turns: RowTurns, tools: Sequence[str]) -> None:
        self.waiting: list[RowPrompt] = []
        self._ledger = ledger
        self._costs = costs
        self._turns = turns
        self._aside: dict[str, Usage] = {}
        """What is set aside for the rows in batches, by their keys."""
        work = ledger.work
        if work.path is None:
            raise UsageError("A batch takes up to a day, and its id is kept in a file. Name one: to=FILE (--to).")
        if tools:
            raise UsageError(
                f"A batch has rows of one request, and calls of tools ({tools[0]}) need more. Leave them out with "
                "tools=[] (--no-tools), or leave batch out."
            )
        batches = batches_of(work.turn.model)
        if batches is None:
            others = "choose a model of OpenAI, Anthropic or Gemini"
            raise UsageError(f"{work.turn.model.name} takes no batches. Leave batch out, or {others}.")
        self._batches: Batches = batches

    async def ask(self) -> None:
        """Collect the batches of an earlier run, and send and collect the other rows."""
        file, rows = self._ledger.file, {prompt.key: prompt for prompt in self.waiting}
        assert file is not None  # noqa: S101  (opened before the rows are read)
        under_way = {name: keys & rows.keys() for name, keys in file.batches.items() if keys & rows.keys()}
        earlier = {key for keys in under_way.values() for key in keys}
        left = [prompt for prompt in self.waiting if prompt.key not in earlier]
        for key in earlier:
            self._aside[key] = self._worst(rows[key])
            self._costs.shared.owe(self._aside[key])
        if left and not self._costs.measured.is_set():  # under a cap, one row tells how tokens count
            await self._turns.start(left.pop(0))
            await self._costs.measured.wait()
        try:
            while left or under_way:
                fitting, words = self._fitting(left)
                under_way |= await self._send(fitting)
                left = left[len(fitting) :]
                if not under_way:
                    raise BudgetExhausted(words)
                self._ledger.running += sum(map(len, under_way.values()))
                for name, keys in under_way.items():
                    await self._collect(name, {key: rows[key] for key in keys})
                under_way = {}
        except asyncio.CancelledError:
            self._leave(rows)
            raise

    def _fitting(self, left: Sequence[RowPrompt]) -> tuple[list[RowPrompt], str]:
        """Return the first rows that the budgets allow, which is set aside for them, and why no more are."""
        fitting: list[RowPrompt] = []
        for prompt in left:
            worst = self._worst(prompt)
            if words := self._costs.shared.reserve(worst):
                return fitting, words
            self._aside[prompt.key] = worst
            fitting.append(prompt)
        return fitting, ""

    def _worst(self, prompt: RowPrompt) -> Usage:
        worst = self._costs.worst(prompt)
        return worst if worst.cost is None else replace(worst, cost=worst.cost * PRICE)

    async def _send(self, prompts: Sequence[RowPrompt]) -> dict[str, set[str]]:
        """Send rows, and return their keys by the ids of their batches."""
        sent: dict[str, set[str]] = {}
        rows = {prompt.key: prompt for prompt in prompts}
        async for piece in split(self._batches, [(prompt.key, self._request(prompt)) for prompt in prompts]):
            keys = tuple(key for key, _ in piece)
            self._ledger.write(*(self._ledger.asked(rows[key]) for key in keys))
            try:
                name = await self._batches.submit(piece)
            except ProviderError as error:
                if not error.retryable:  # it was refused, so none of its rows is in doubt
                    self._ledger.write(*(self._failed(rows[key], error) for key in keys))
                raise
            self._ledger.write(BatchSent(name, keys))
            sent[name] = set(keys)
        return sent

    def _request(self, prompt: RowPrompt) -> Request:
        assert prompt.prompt is not None  # noqa: S101  (rows without one are not asked)
        turn = replace(self._ledger.work.turn, prompt=prompt.prompt)
        return Steps(turn, {}, Fold(), void).first_request()

    async def _collect(self, name: str, rows: dict[str, RowPrompt]) -> None:
        """Wait for a batch, and begin the turn of each of its rows with the answer."""
        await self._done(name, len(rows))
        async for key, answer in self._answers(name, rows):
            prompt = rows.pop(key)
            self._ledger.running -= 1
            await self._take(prompt, answer)

    async def _done(self, name: str, number: int) -> None:
        """Wait until a batch is done. Raises ProviderError if the provider does not know it."""
        wait = FIRST_LOOK
        self._ledger.tally.notices.append(
            f"The batch {name} has {counted(number, 'row')} and may take up to a day. You can stop, or shut the "
            "kernel: running the map again collects it."
        )
        while True:
            with suppress(Unavailable):  # looked at again later
                if (await self._batches.state(name)).done:
                    return
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, wait * PATIENT)

    async def _answers(self, name: str, rows: dict[str, RowPrompt]) -> AsyncIterator[tuple[str, BatchAnswer]]:
        """Yield the answers of a batch; after a break, those that are left."""
        wait = FIRST_LOOK
        while rows:
            try:
                async for key, answer in self._batches.results(name, tuple(rows)):
                    yield key, answer
            except Unavailable:
                await asyncio.sleep(wait)
                wait = min(LONGEST_WAIT, wait * PATIENT)

    async def _take(self, prompt: RowPrompt, answer: BatchAnswer) -> None:
        worst = self._aside.pop(prompt.key)
        if isinstance(answer, ProviderError):
            self._costs.shared.give_back(worst, answer.usage or Usage())
            ended = self._failed(prompt, answer)
            self._ledger.write(ended)
            self._ledger.note(prompt, ended)
            return
        purse = self._turns.purse(prompt)
        purse.hold(worst)
        await self._turns.begin(prompt, purse, Collected(self._ledger.work.turn.model, answer))

    def _failed(self, prompt: RowPrompt, error: ProviderError) -> RowEnded:
        words = clip(redact(str(error)), LONGEST_ERROR)
        return RowEnded(prompt.key, self._ledger.label(prompt), "failed", error=words)

    def _leave(self, rows: dict[str, RowPrompt]) -> None:
        """Say of rows that the provider goes on with that they are in a batch."""
        file = self._ledger.file
        sent = {key for keys in file.batches.values() for key in keys} if file is not None else set[str]()
        for key in sent & self._aside.keys():  # those whose answer was taken have a turn of their own
            self._ledger.note(rows[key], RowEnded(key, self._ledger.label(rows[key]), "in a batch"))
