"""Asks the rows of a map, on the engine: as many at a time as pace and budget allow, each in a turn of its own."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import ceil
from typing import Any

from agentmagic.approval.approvals import Gate as ApprovalGate
from agentmagic.approval.policy import policy_of
from agentmagic.context.request_view import RequestView, tokens_by_part, tokens_of_message, tokens_of_tools
from agentmagic.errors import (
    AgentMagicError,
    AuthenticationFailed,
    AuthenticationMissing,
    RateLimited,
    UsageError,
)
from agentmagic.events import Event, MapEnd, MapProgress, ToolFinished, TurnStarted, is_delta
from agentmagic.loop.budgets import Budget, BudgetExhausted, SharedPurse
from agentmagic.loop.retry import words_of
from agentmagic.loop.step import TurnContext
from agentmagic.loop.turn import Channel, Outcome, run_turn
from agentmagic.mapping.batching import BatchedRows
from agentmagic.mapping.file import LONGEST_ERROR, Line, MapFile, Recipe, RowAsked, RowEnded, RowLog, RowStatus
from agentmagic.mapping.outcomes import MapRow
from agentmagic.mapping.playback import Playback
from agentmagic.mapping.prompts import RowPrompt, digest
from agentmagic.mapping.purse import RowPurse
from agentmagic.mapping.sample import choose
from agentmagic.mapping.tally import Tally
from agentmagic.mapping.work import MapFailed, MapWork
from agentmagic.messages import Media, Text, Usage, as_text
from agentmagic.providers.base import Model, Request, honoured
from agentmagic.providers.registry import address_of, priced
from agentmagic.providers.traffic import TurnTraffic
from agentmagic.runtime.engine import engine
from agentmagic.secrets import redact
from agentmagic.serialization import encode, json_form
from agentmagic.text import clip, counted, listed, written_json
from agentmagic.tools.base import Tool, as_of_now, list_sources, not_told

TOGETHER = 64
"""Rows that are read and described at once, in a thread."""
INTERVAL = 0.1
"""Seconds between two reports of progress at least (ten a second)."""
MOST = 10_000
"""Rows that are asked at a time at most, if nothing else bounds them."""
ALIKE = 10
"""Rows that may fail with the same error before one was answered; then the others are not asked."""
HOPELESS = (AuthenticationMissing, AuthenticationFailed)
"""Errors that every further row would meet."""


@dataclass
class Driver:
    """Asks the rows of a map. `changed` is called when a row has ended, and `told` with each report of progress.

    `rows` are the rows that have an outcome, by place; `chosen` the places that are asked, None for all; `sent` counts
    rows that are in a batch.
    """

    work: MapWork
    told: Callable[[MapProgress], None]
    changed: Callable[[], None]
    rows: dict[int, MapRow] = field(default_factory=dict[int, MapRow])
    finished: list[MapRow] = field(default_factory=list[MapRow])
    sizes: list[int] = field(default_factory=list[int])
    chosen: list[int] | None = None
    file: MapFile | None = None
    error: AgentMagicError | None = None
    doubtful: list[MapRow] = field(default_factory=list[MapRow])
    tally: Tally = field(default_factory=Tally)
    sent: int = 0

    def __post_init__(self) -> None:
        self.tally.total = self.work.rows.total
        self.tally.notices.extend(self.work.notices)
        self._tasks: set[asyncio.Task[None]] = set()
        self._main: asyncio.Task[Any] | None = None
        self._report: asyncio.TimerHandle | None = None
        self.shared = SharedPurse(())
        self._schema = self.work.turn.agent.output_schema
        self._common = 0
        self._doubts = set[str]()
        self._recipe = ""
        self._tape = None if self.work.tape is None else Playback(self, self.work.tape)
        self._batched: BatchedRows | None = None
        self._scale = 1.0
        self.measured = asyncio.Event()
        settings = honoured(self.work.turn.model, self.work.turn.agent.settings)
        self._longest = settings.max_output_tokens or self.work.turn.facts.output
        bound = self.work.settings.concurrency or _usual_bound(self.work.turn.model.name)
        self._bound = asyncio.Semaphore(bound or MOST)

    # -- the whole ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ask the rows, until all have an outcome or the map ends before. Cancelling it stops the map."""
        why: MapEnd = "done"
        self._main = asyncio.current_task()
        try:
            tools = await self._begin()
            if self._tape is None or not (why := await self._tape.play(tools)):
                await self._open(tools)
                await self._ask_all()
                why = "done"
        except asyncio.CancelledError:
            why = "stopped"
        except BudgetExhausted as spent:
            why = "budget"
            self.tally.notices.append(str(spent))
        except AgentMagicError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001  (a map ends with its rows so far after any failure)
            self.error = MapFailed(f"The map failed: {words_of(error)}")
            self.error.__cause__ = error
        await self._settle(why)

    async def _settle(self, why: MapEnd) -> None:
        """Wait for the rows under way, which are cancelled if the map was stopped or has failed."""
        while self._tasks:
            if why == "stopped" or self.error is not None:
                for task in self._tasks:
                    task.cancel()
            try:
                await asyncio.wait(self._tasks)
            except asyncio.CancelledError:
                why = "stopped"
        self.tally.end("failed" if self.error is not None else why)
        self.tally.settle(row for _, row in sorted(self.rows.items()))
        if self._tape is not None:
            self._tape.finish()
        if self.file is not None:
            self.file.close()
        self._tell()

    async def _begin(self) -> list[Tool]:
        """List the tools, and say what rows cannot do."""
        turn = self.work.turn
        tools, problems = await list_sources(turn.toolsets)
        self.tally.notices.extend(redact(words) for words in not_told(problems, turn.unreachable))
        offered, _ = as_of_now(tools.values())
        self.tally.notices.extend(_denied(turn, list(offered.values())))
        self._common = tokens_of_tools(turn.agent.instructions, [tool.definition for tool in offered.values()])
        self._common += sum(map(tokens_of_message, turn.history.messages))
        return list(offered.values())

    async def _open(self, tools: Sequence[Tool]) -> None:
        """Open the file and the purse, and begin to record, if rows are recorded."""
        if self._tape is not None:
            self.work = self._tape.live()
        if self.work.settings.batch:
            self._batched = BatchedRows(self, [tool.name for tool in tools])
        recipe = self._recipe_of(tools)
        self._recipe = digest(*recipe.parts.values())
        path, again = self.work.path, self.work.settings.again
        try:
            self.file = await engine().in_pool(partial(MapFile, path, recipe, again=again))
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror or error}. Name another file.") from error
        if self.file.damaged:
            lines = counted(self.file.damaged, "line")
            self.tally.notices.append(f"{path} has {lines} that cannot be read; their rows are asked again.")
        self._open_purse(self.file)
        if self._tape is not None:
            self._tape.start()

    def _recipe_of(self, tools: Sequence[Tool]) -> Recipe:
        """Return what all rows are asked, and a digest of each part of it."""
        turn, prompts = self.work.turn, self.work.prompts
        schema = turn.agent.output_schema
        definitions = [
            (one.name, one.server, one.description, one.parameters) for one in (tool.definition for tool in tools)
        ]
        parts = {
            "prompt": prompts.digest,
            "model": turn.model.name,
            "type": digest("" if schema is None else written_json(schema.schema)),
            "instructions": digest(turn.agent.instructions),
            "tools": digest(*map(written_json, definitions)),
            "settings": digest(repr(turn.agent.settings)),
            "conversation": digest(*map(encode, turn.history.messages)),
        }
        return Recipe(prompts.written, turn.model.name, parts)

    def _open_purse(self, file: MapFile) -> None:
        """Begin with what the rows of the file have cost; rows in doubt may have cost as much as others on average."""
        spent = file.spent
        if self._tape is not None:
            spent += self._tape.spent(file)
        if (lost := file.lost + len(file.doubtful)) and file.ended:
            share = lost / len(file.ended)
            cost = None if spent.cost is None else spent.cost * share
            spent += Usage(int(spent.input_tokens * share), 0, int(spent.output_tokens * share), cost=cost)
        own = Budget("map", self.work.settings.max_cost, self.work.settings.max_tokens, spent)
        budgets = (own, *self.work.budgets)
        self.shared = SharedPurse(budgets)
        if all(budget.max_cost is None and budget.max_tokens is None for budget in budgets):
            self.measured.set()
        if self.work.settings.max_cost is not None and self._longest == (most := self.work.turn.facts.output):
            self.tally.notices.append(
                f"Without max_output_tokens, the model's own limit of {most:,} tokens is set aside for each request, "
                "so fewer rows are asked at a time."
            )

    async def _ask_all(self) -> None:
        assert self.file is not None  # noqa: S101  (opened by `_begin`)
        self._doubts = self.file.doubtful | self.file.repeated
        batched = self._batched
        async for prompt in self.wanted():
            if self._tape is not None and self._tape.keep(prompt):
                continue
            known = self.file.ended.get(prompt.key)
            if known is not None and known.status == "answered" and self.keep(prompt, known):
                continue
            if prompt.prompt is None:
                self.note(prompt, RowEnded(prompt.key, self.label(prompt), "failed", error=prompt.problem))
                continue
            if known is not None and known.status == "in doubt":
                self._doubts.add(prompt.key)
            if batched is None:
                await self.start(prompt)
            else:
                batched.waiting.append(prompt)
        if batched is not None:
            await batched.ask()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _choose(self, number: int) -> None:
        """Choose the rows of a sample, by how long their prompts are."""
        if self.work.rows.total is None:
            raise UsageError("A sample is taken of rows whose number is known. Make a list of the iterable first.")
        self.sizes = [prompt.size async for prompt in self._prompts()]
        self.chosen = choose(self.sizes, number, self.work.settings.seed)
        self.tally.total = len(self.chosen)

    async def wanted(self) -> AsyncIterator[RowPrompt]:
        """Yield the prompts of the rows that are asked."""
        if self.work.settings.sample is not None:
            await self._choose(self.work.settings.sample)
        wanted = None if self.chosen is None else set(self.chosen)
        async for prompt in self._prompts():
            if wanted is None or prompt.place in wanted:
                yield prompt

    async def _prompts(self) -> AsyncIterator[RowPrompt]:
        """Yield the prompts of the rows, which are read in a thread: describing a value may be slow."""
        source = self.work.prompts.read()
        while True:
            together, error = await engine().in_pool(partial(_take, source))
            for prompt in together:
                yield prompt
            if error is not None:
                while self._tasks:  # the rows that were read keep their answers
                    await asyncio.wait(self._tasks)
                raise UsageError(f"The rows cannot be read: {words_of(error)}") from error
            if not together:
                if self.chosen is None:  # now that all rows were read, it is known
                    self.tally.total = self.work.rows.total
                return

    # -- one row -----------------------------------------------------------------------------------

    async def start(self, prompt: RowPrompt) -> None:
        """Begin to ask a row, when the bound, the pace and the budgets let it."""
        if self._tasks:
            await self.measured.wait()  # the first row tells how the provider counts
        purse = self.purse(prompt)
        await purse.open(self.worst_of_row(prompt))
        await self.begin(prompt, purse, self.work.turn.model)

    def purse(self, prompt: RowPrompt) -> RowPurse:
        """Return what pays for the requests of a row."""
        return RowPurse(self.shared, self._worst_of, partial(self.write, self.asked(prompt)), self._paid)

    async def begin(self, prompt: RowPrompt, purse: RowPurse, model: Model) -> None:
        """Begin to ask a row of a model, in a task of its own, when the bound lets it."""
        await self._bound.acquire()
        task = asyncio.create_task(self._row(prompt, purse, model))
        self._tasks.add(task)
        self._tell_soon()
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._bound.release()
        self.measured.set()

    async def _row(self, prompt: RowPrompt, purse: RowPurse, model: Model) -> None:
        """Ask one row, in a turn of its own, and write what became of it."""
        assert self.file is not None  # noqa: S101  (opened by `_begin`)
        assert prompt.prompt is not None  # noqa: S101  (of the caller)
        events: list[Event] = []

        def keep(event: Event) -> None:
            if not is_delta(event):
                events.append(event)

        turn = replace(
            self.work.turn,
            model=model,
            prompt=prompt.prompt,
            values=prompt.values,
            view=RequestView(),
            traffic=TurnTraffic(),
            notices=deque(),
            purse=purse,
        )
        try:
            outcome = await self.work.within(run_turn(turn, Channel(events, keep)))
        finally:
            purse.close()
        self.work.spent(outcome.result.usage)
        ended = self._outcome(prompt, outcome, sent=purse.sent)
        row = self.note(prompt, ended, outcome.result.value)
        if prompt.key in self._doubts or ended.status == "in doubt":
            self.doubtful.append(row)
        self.write(RowLog(prompt.key, tuple(map(_kept, events))), ended)
        self._judge(row, outcome.error)

    def _outcome(self, prompt: RowPrompt, outcome: Outcome, *, sent: bool) -> RowEnded:
        result = outcome.result
        status, error = self._status(outcome, sent=sent)
        shaped = self._schema is not None and result.value is not None
        value = json_form(result.value) if shaped else None
        return RowEnded(
            prompt.key,
            self.label(prompt),
            status,
            value,
            result.final_text if value is None and status == "answered" else "",
            clip(error, LONGEST_ERROR),
            result.usage,
            result.iterations_used,
            round(result.seconds, 3),
        )

    def _status(self, outcome: Outcome, *, sent: bool) -> tuple[RowStatus, str]:
        """Return what became of a row, and why if it has no answer."""
        result = outcome.result
        if result.stop_reason == "cancelled":
            return ("in doubt", "It was stopped while it was asked.") if sent else ("not asked", "")
        if result.stop_reason == "budget":
            return "failed" if sent else "not asked", result.error
        if any(isinstance(event, ToolFinished) and event.result.in_doubt for event in result.events):
            return "in doubt", result.error or "A worker was lost; what its tool did is not known."
        if outcome.error is not None or result.stop_reason == "no_tools":
            return "failed", result.error or "The model called a tool, and there are none."
        if self._schema is not None and result.value is None:
            return "failed", "The turn ended without an answer of the form that was asked for."
        return "answered", ""

    def keep(self, prompt: RowPrompt, known: RowEnded) -> bool:
        """Take the answer of an earlier run; return False for one that does not fit the form any more."""
        value = None
        if self._schema is not None and known.status == "answered":
            try:
                data = {self._schema.wrapped_in: known.value} if self._schema.wrapped_in else known.value
                value = self._schema.read(known.answer) if known.answer else self._schema.convert(data)
            except ValueError:
                return False
        row = self.note(prompt, known, value, kept=True)
        if self.file is not None and row.key in self.file.repeated:
            self.doubtful.append(row)
        return True

    def note(self, prompt: RowPrompt, ended: RowEnded, value: Any = None, *, kept: bool = False) -> MapRow:
        """Take what became of a row into the result."""
        row = MapRow(
            prompt.place,
            self.work.rows.label(prompt.place),
            ended.key,
            ended.status,
            value if self._schema is not None else ended.answer or None,
            ended.error,
            ended.usage,
            ended.steps,
            ended.seconds,
        )
        self.rows[prompt.place] = row
        self.finished.append(row)
        self.tally.note(row, kept=kept)
        if self._tape is not None:
            self._tape.note(ended)
        self.changed()
        self._tell_soon()
        return row

    def label(self, prompt: RowPrompt) -> str:
        """Return how a row is called, in a text of bounded length."""
        return clip(str(self.work.rows.label(prompt.place)), 100)

    def write(self, *lines: Line) -> None:
        """Append to the file. A file that cannot be written ends the map, and what was answered stays in the result."""
        assert self.file is not None  # noqa: S101  (opened by `_begin`)
        try:
            self.file.write(*lines)
        except (OSError, ValueError) as error:
            where = self.work.path or "The temporary file of the map"
            reason = getattr(error, "strerror", None) or error
            failed = MapFailed(
                f"{where} cannot be written: {reason}. No further row is asked; the result has the rows until here. "
                "Make room, and run the cell again."
            )
            self.end(failed)
            raise

    def end(self, error: AgentMagicError) -> None:
        """End the map with an error, unless it has one."""
        if self.error is None:
            self.error = error
            if self._main is not None:
                self._main.cancel()

    def asked(self, prompt: RowPrompt) -> RowAsked:
        """Return the line that says that a row is about to be asked."""
        return RowAsked(prompt.key, self.label(prompt), digest(self._recipe, prompt.key))

    def worst_of_row(self, prompt: RowPrompt) -> Usage:
        """Return the most that the first request of a row may use."""
        return self._worst(self._common + prompt.size)

    def _worst_of(self, request: Request) -> Usage:
        return self._worst(sum(tokens_by_part(request).values()))

    def _worst(self, tokens: int) -> Usage:
        """Return the most that a request of so many tokens may use, at today's prices."""
        turn = self.work.turn
        usage = Usage(input_tokens=ceil(tokens * self._scale), output_tokens=self._longest, requests=1)
        return priced(turn.model.name, usage, address_of(turn.model))

    def _paid(self, worst: Usage, usage: Usage) -> None:
        """Learn how many tokens the provider counts for each that was estimated: some scripts take more than others."""
        if usage.requests == 1 and worst.input_tokens:
            self._scale *= max(1.0, usage.input_tokens / worst.input_tokens)

    def _judge(self, row: MapRow, error: Exception | None) -> None:
        """End the map after an error that every further row would meet, or after any if the user wants it so."""
        if row.status != "failed" or self.error is not None:
            return
        hopeless = isinstance(error, HOPELESS) or (isinstance(error, RateLimited) and not error.retryable)
        alike = self.tally.asked >= ALIKE and self.tally.errors[row.error] == self.tally.asked
        if hopeless or alike or self.work.settings.on_error == "stop":
            why = f"All of the first {ALIKE} rows failed alike. " if alike and not hopeless else ""
            self.end(MapFailed(f"{why}Row {clip(str(row.index), 80)} failed: {row.error}"))

    def _tell_soon(self) -> None:
        if self._report is None:
            self._report = asyncio.get_running_loop().call_later(INTERVAL, self._tell)

    def _tell(self) -> None:
        if self._report is not None:
            self._report.cancel()
            self._report = None
        self.told(self.progress())

    def progress(self) -> MapProgress:
        """Return how far the map has come."""
        return self.tally.progress(len(self._tasks) + self.sent, "" if self.work.path is None else str(self.work.path))


def _take(source: Iterator[RowPrompt]) -> tuple[list[RowPrompt], Exception | None]:
    """Return the next prompts, and the error that reading further rows has raised."""
    taken: list[RowPrompt] = []
    try:
        taken.extend(islice(source, TOGETHER))  # which keeps those before an error
    except Exception as error:  # noqa: BLE001  (an iterator of the user may raise anything)
        return taken, error
    return taken, None


def _kept(event: Event) -> Event:
    """Return an event as the file keeps it: pictures and documents of the prompt, which the rows have, by name only."""
    if not isinstance(event, TurnStarted) or not any(isinstance(part, Media) for part in event.prompt.parts):
        return event
    parts = tuple(Text(as_text(part)) if isinstance(part, Media) else part for part in event.prompt.parts)
    return replace(event, prompt=replace(event.prompt, parts=parts))


def _usual_bound(model: str) -> int | None:
    """Return how many rows a model is asked at a time if it runs in this process: one, None if it does not."""
    return 1 if model.partition(":")[0] in ("scripted", "local") else None


def _denied(turn: TurnContext, tools: Sequence[Tool]) -> list[str]:
    """Return the notice about tools whose calls would be asked about: no one is asked in a row."""
    gate = ApprovalGate(policy_of(turn.agent.permission), turn.approvals)
    names = [one.name for one in tools if gate.decide(one.definition, {}, asks=one.ask, code=one.code).verdict == "ask"]
    if not names:
        return []
    rules = ", ".join(f'Rule("allow", "{name}")' for name in names[:3])
    denied = f"A row cannot ask you, so calls of {listed(names, 5)} are denied."
    return [f"{denied} To let them run, give the agent permission=Policy([{rules}])."]
