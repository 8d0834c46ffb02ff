"""Sends the rows of a map to the provider's batch API, at half the price.

The answers can be collected later, also by another kernel.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace

from agentmagic.errors import ProviderError, Unavailable, UsageError
from agentmagic.events import Fold
from agentmagic.loop.budgets import BudgetExhausted
from agentmagic.loop.inner_turn import turn_of_row
from agentmagic.loop.step import Steps
from agentmagic.mapping.costs import Costs
from agentmagic.mapping.file import LONGEST_ERROR, BatchSent, RowEnded
from agentmagic.mapping.ledger import Ledger
from agentmagic.mapping.prompts import RowPrompt
from agentmagic.mapping.turns import RowTurns
from agentmagic.messages import Usage
from agentmagic.providers.base import Request
from agentmagic.providers.batch import PRICE, BatchAnswer, BatchedModel, Batches, batches_of, split
from agentmagic.runtime.engine import void
from agentmagic.secrets import redact
from agentmagic.text import clip, plural

FIRST_LOOK, LONGEST_WAIT = 5.0, 60.0
"""Seconds until a batch is first checked, and at most between two checks; a batch takes minutes to hours."""
WAIT_FACTOR = 1.5
"""The factor by which the time between two checks grows."""


class BatchedRows:
    """The rows of a map that are in a batch of the provider, or wait to be sent in one.

    Raises UsageError if the provider has no batch API, if the map has tools, or if it has no file for the batch ids.
    """

    def __init__(self, ledger: Ledger, costs: Costs, turns: RowTurns, tools: Sequence[str]) -> None:
        self.waiting: list[RowPrompt] = []
        self._ledger = ledger
        self._costs = costs
        self._turns = turns
        self._reserved_usage: dict[str, Usage] = {}
        """The usage reserved for each row that is in a batch, by the row's key."""
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
        """Send the rows that are not in a batch of an earlier run, and collect the answers of all batches."""
        file, rows = self._ledger.file, {prompt.key: prompt for prompt in self.waiting}
        assert file is not None  # noqa: S101  (opened before the rows are read)
        under_way = {name: keys & rows.keys() for name, keys in file.batches.items() if keys & rows.keys()}
        earlier = {key for keys in under_way.values() for key in keys}
        remaining = [prompt for prompt in self.waiting if prompt.key not in earlier]
        self._ledger.is_sent = bool(earlier)
        for key in earlier:
            self._reserved_usage[key] = self._worst(rows[key])
            self._costs.owe(self._reserved_usage[key])
        if remaining and not self._costs.is_measured.is_set():  # ask one row first, to learn how tokens are counted
            await self._turns.start(remaining.pop(0))
            await self._costs.is_measured.wait()
        try:
            while remaining or under_way:
                fitting, reason = self._reserve(remaining)
                under_way |= await self._send(fitting)
                remaining = remaining[len(fitting) :]
                if not under_way:
                    raise BudgetExhausted(reason)
                self._ledger.running += sum(map(len, under_way.values()))
                for name, keys in under_way.items():
                    await self._collect(name, {key: rows[key] for key in keys})
                under_way = {}
        except asyncio.CancelledError:
            self._note_rows_in_batches(rows)
            raise

    def _reserve(self, prompts: Sequence[RowPrompt]) -> tuple[list[RowPrompt], str]:
        """Reserve usage for as many rows as the budgets allow. Return these rows, and why the next row does not fit."""
        fitting: list[RowPrompt] = []
        for prompt in prompts:
            worst = self._worst(prompt)
            if reason := self._costs.reserve(worst):
                return fitting, reason
            self._reserved_usage[prompt.key] = worst
            fitting.append(prompt)
        return fitting, ""

    def _worst(self, prompt: RowPrompt) -> Usage:
        worst = self._costs.worst(prompt)
        return worst if worst.cost is None else replace(worst, cost=worst.cost * PRICE)

    async def _send(self, prompts: Sequence[RowPrompt]) -> dict[str, set[str]]:
        """Send rows in batches. Return the keys of the rows by batch id."""
        batches: dict[str, set[str]] = {}
        rows = {prompt.key: prompt for prompt in prompts}
        requests = [(prompt.key, await self._request(prompt)) for prompt in prompts]
        async for piece in split(self._batches, requests):
            keys = tuple(key for key, _ in piece)
            self._ledger.note_sent(*(rows[key] for key in keys))
            try:
                name = await self._batches.submit(piece)
            except ProviderError as error:
                if not error.retryable:  # the provider refused the batch: record that its rows failed
                    self._ledger.write(*(self._failure(rows[key], error) for key in keys))
                raise
            self._ledger.write(BatchSent(name, keys))
            batches[name] = set(keys)
        return batches

    async def _request(self, prompt: RowPrompt) -> Request:
        assert prompt.prompt is not None  # noqa: S101  (rows without one are not asked)
        shared = self._ledger.work.turn
        turn = turn_of_row(shared, model=shared.model, prompt=prompt.prompt, values=prompt.values, row=None)
        return await Steps(turn, {}, Fold(), void).first_request()

    async def _collect(self, name: str, rows: dict[str, RowPrompt]) -> None:
        """Wait for a batch, then start the turn of each of its rows with the answer from the batch."""
        await self._wait_until_done(name, len(rows))
        async for key, answer in self._answers(name, rows):
            prompt = rows.pop(key)
            self._ledger.running -= 1
            await self._take(prompt, answer)

    async def _wait_until_done(self, name: str, number: int) -> None:
        """Wait until a batch is done. Raises ProviderError if the provider does not know the batch."""
        wait, notices = FIRST_LOOK, self._ledger.tally.notices
        notice = (
            f"The batch {name} has {plural(number, 'row')} and may take up to a day. You can stop, or shut the "
            "kernel: running the map again collects it."
        )
        notices.append(notice)
        while True:
            with suppress(Unavailable):  # if the provider is unavailable, check again later
                if (await self._batches.state(name)).done:
                    notices.remove(notice)
                    return
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, wait * WAIT_FACTOR)

    async def _answers(self, name: str, rows: dict[str, RowPrompt]) -> AsyncIterator[tuple[str, BatchAnswer]]:
        """Yield the answers of a batch. If the provider is unavailable, wait and continue with the remaining rows."""
        wait = FIRST_LOOK
        while rows:
            try:
                async for key, answer in self._batches.results(name, tuple(rows)):
                    yield key, answer
            except Unavailable:
                await asyncio.sleep(wait)
                wait = min(LONGEST_WAIT, wait * WAIT_FACTOR)

    async def _take(self, prompt: RowPrompt, answer: BatchAnswer) -> None:
        worst = self._reserved_usage.pop(prompt.key)
        if isinstance(answer, ProviderError):
            self._costs.give_back(worst, answer.usage or Usage())
            outcome = self._failure(prompt, answer)
            self._ledger.write(outcome)
            self._ledger.note(prompt, outcome)
            return
        row = self._turns.costs_of(prompt, worst)
        row.is_sent = True
        await self._turns.begin(prompt, row, BatchedModel(self._ledger.work.turn.model, answer))

    def _failure(self, prompt: RowPrompt, error: ProviderError) -> RowEnded:
        message = clip(redact(str(error)), LONGEST_ERROR)
        return RowEnded(prompt.key, self._ledger.label(prompt), "failed", error=message)

    def _note_rows_in_batches(self, rows: dict[str, RowPrompt]) -> None:
        """Add the outcome "in a batch" to the map's result for rows that the provider still works on."""
        file = self._ledger.file
        batch_keys = {key for keys in file.batches.values() for key in keys} if file is not None else set[str]()
        for key in batch_keys & self._reserved_usage.keys():  # the provider still works on these rows
            self._ledger.note(rows[key], RowEnded(key, self._ledger.label(rows[key]), "in a batch"))
