"""Asks the rows of a map, each in its own turn and task, and saves their outcomes."""

import asyncio
from dataclasses import replace
from functools import partial

from agentmagic.errors import AuthenticationFailed, AuthenticationMissing, RateLimited
from agentmagic.events import Event, ToolFinished, TurnStarted, is_delta
from agentmagic.loop.inner_turn import turn_of_row
from agentmagic.loop.turn import Channel, Outcome, run_turn
from agentmagic.mapping.costs import Costs, RowCosts
from agentmagic.mapping.failed_calls import failed_calls
from agentmagic.mapping.file import LONGEST_ERROR, RowEnded, RowLog, RowStatus
from agentmagic.mapping.ledger import Ledger
from agentmagic.mapping.outcomes import MapRow
from agentmagic.mapping.prompts import RowPrompt
from agentmagic.mapping.work import MapFailed
from agentmagic.messages import Media, Text, Usage, as_text
from agentmagic.providers.base import Model
from agentmagic.providers.finish_reasons import unknown_end
from agentmagic.providers.gate import gate_of
from agentmagic.serialization import json_form
from agentmagic.text import clip, single_line

MOST_ROWS = 10_000
"""Maximum number of rows that are asked at a time, if no other limit applies."""
ALIKE = 10
"""If the first rows, this many, all fail with the same error, the other rows are not asked."""
CUT_OFF = (
    "The answer was cut off at the limit of output. Raise max_output_tokens (--set max_output_tokens=N), or ask for "
    "less in a row. Then run the map again: it asks these rows again."
)
NO_ANSWER_WITHIN_LIMIT = "The limit of {} steps was reached before an answer was found. Raise max_iterations."
LONGEST_REFUSAL = 200
"""Maximum number of characters of a model's refusal in the error of its row."""
HOPELESS = (AuthenticationMissing, AuthenticationFailed)
"""Errors that every other row would get too."""


class RowTurns:
    """The turns of the rows that are being asked. `doubts` has keys of rows that may have been paid for before."""

    def __init__(self, ledger: Ledger, costs: Costs) -> None:
        self.doubts = set[str]()
        self._ledger = ledger
        self._costs = costs
        self._work = ledger.work
        self._schema = ledger.work.turn.agent.output_schema
        self._tasks: set[asyncio.Task[None]] = set()
        self._bound = asyncio.Semaphore(self._work.settings.concurrency or _default_limit(self._work.turn.model.name))

    def __bool__(self) -> bool:
        return bool(self._tasks)

    async def start(self, prompt: RowPrompt) -> None:
        """Start asking a row as soon as `concurrency`, the provider's rate limits and the budgets allow it."""
        model = self._work.turn.model
        if self._tasks:
            await self._costs.is_measured.wait()  # the usage of the first row shows how the provider counts tokens
        await gate_of(model).room()
        await self._bound.acquire()  # do not reserve money while this waits: the running rows may need it
        try:
            worst = self._costs.worst(prompt)
            await self._costs.set_aside(worst)
        except BaseException:
            self._bound.release()
            raise
        self._begin(prompt, self.costs_of(prompt, worst), model)

    def costs_of(self, prompt: RowPrompt, worst: Usage) -> RowCosts:
        """Return the costs of a row, for whose first request `worst` is reserved.

        Before the first request, the file gets a line that the row has begun, so that a crash leaves a trace.
        """
        return RowCosts(self._costs, worst, partial(self._ledger.note_sent, prompt))

    async def begin(self, prompt: RowPrompt, row: RowCosts, model: Model) -> None:
        """Start the turn of a row with this model, as soon as fewer rows are running than `concurrency` allows."""
        await self._bound.acquire()
        self._begin(prompt, row, model)

    def _begin(self, prompt: RowPrompt, row: RowCosts, model: Model) -> None:
        task = asyncio.create_task(self._row(prompt, row, model))
        self._tasks.add(task)
        self._ledger.running += 1
        self._ledger.tell_soon()
        task.add_done_callback(self._over)

    async def wait(self) -> None:
        """Wait until no row is being asked."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cancel(self) -> None:
        """Cancel the turns of all rows that are being asked."""
        for task in self._tasks:
            task.cancel()

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._ledger.running -= 1
        self._bound.release()

    async def _row(self, prompt: RowPrompt, costs: RowCosts, model: Model) -> None:
        """Ask one row in its own turn, and write its events and outcome to the file."""
        assert prompt.prompt is not None  # noqa: S101  (of the caller)
        events: list[Event] = []

        def keep(event: Event) -> None:
            if not is_delta(event):
                events.append(event)

        turn = turn_of_row(self._work.turn, model=model, prompt=prompt.prompt, values=prompt.values, row=costs)
        try:
            outcome = await self._work.within(run_turn(turn, Channel(events, keep)))
        finally:
            costs.close()
        self._work.on_usage(outcome.result.usage)
        results = (event.result for event in events if isinstance(event, ToolFinished))
        self._ledger.note_denied(result.name for result in results if result.status == "denied")
        record = self._outcome(prompt, outcome, sent=costs.is_sent)
        if record.status == "not asked" and prompt.place in self._ledger.earlier:
            return  # the outcome of the earlier run still holds
        row = self._ledger.note(prompt, record, outcome.result.value if record.status == "answered" else None)
        if prompt.key in self.doubts or record.status == "in doubt":
            self._ledger.doubtful.append(row)
        self._ledger.write(RowLog(prompt.key, tuple(map(_event_for_file, events))), record)
        self._judge(row, outcome.error)

    def _outcome(self, prompt: RowPrompt, outcome: Outcome, *, sent: bool) -> RowEnded:
        result = outcome.result
        status, error = self._status(outcome, sent=sent)
        is_value = self._schema is not None and status == "answered"
        value = json_form(result.value) if is_value and result.value is not None else None
        return RowEnded(
            prompt.key,
            self._ledger.label(prompt),
            status,
            value,
            result.final_text if value is None and status == "answered" else "",
            clip(error, LONGEST_ERROR),
            result.usage,
            result.iterations_used,
            round(result.seconds, 3),
            failed_calls(result.events),
        )

    def _status(self, outcome: Outcome, *, sent: bool) -> tuple[RowStatus, str]:
        """Return the status of a row, and the error message if the row has no answer."""
        result = outcome.result
        if result.stop_reason == "cancelled":
            return ("in doubt", "It was stopped while it was asked.") if sent else ("not asked", "")
        if result.stop_reason == "budget":
            return "failed" if sent else "not asked", result.error
        if any(isinstance(event, ToolFinished) and event.result.in_doubt for event in result.events):
            return "in doubt", result.error or "A worker was lost; what its tool did is not known."
        failure = self._failure(outcome)
        return ("failed", failure) if failure else ("answered", "")

    def _failure(self, outcome: Outcome) -> str:
        """Return why a turn that has ended has no whole answer, by what the provider said about its end, or ""."""
        result, ending = outcome.result, outcome.ending
        if ending is not None and (ending.unknown or ending.cut):
            return unknown_end(ending.reason) if ending.unknown else CUT_OFF
        if ending is not None and ending.refused:
            return f"The model refused to answer: {single_line(result.final_text, LONGEST_REFUSAL)}"
        if outcome.error is not None or result.stop_reason == "no_tools":
            return result.error or "The model called a tool, and there are none."
        if result.stop_reason == "limit" and ending is None:
            return NO_ANSWER_WITHIN_LIMIT.format(self._work.turn.agent.max_iterations)
        if self._schema is not None and ending is None:
            return "The turn ended without an answer of the form that was asked for."
        return ""

    def _judge(self, row: MapRow, error: Exception | None) -> None:
        """After a row failed, end the map if other rows would get the same error, or if `on_error` is "stop"."""
        if row.status not in ("failed", "not asked") or not row.error or self._ledger.error is not None:
            return
        hopeless = isinstance(error, HOPELESS) or (isinstance(error, RateLimited) and not error.retryable)
        alike = (
            self._ledger.tally.asked_count >= ALIKE
            and self._ledger.tally.errors[row.error] == self._ledger.tally.asked_count
        )
        if hopeless or alike or self._work.settings.on_error == "stop":
            why = f"All of the first {ALIKE} rows failed alike. " if alike and not hopeless else ""
            self._ledger.end(MapFailed(f"{why}Row {clip(str(row.index), 80)} failed: {row.error}"))


def _event_for_file(event: Event) -> Event:
    """Return an event for the map's file, with a description in place of each image or document in the prompt."""
    if not isinstance(event, TurnStarted) or not any(isinstance(part, Media) for part in event.prompt.parts):
        return event
    parts = tuple(Text(as_text(part)) if isinstance(part, Media) else part for part in event.prompt.parts)
    return replace(event, prompt=replace(event.prompt, parts=parts))


def _default_limit(model: str) -> int:
    """Return how many rows are asked at a time by default: 1 if the model runs in this process, else 10,000."""
    return 1 if model.partition(":")[0] in ("scripted", "local") else MOST_ROWS
