"""Collects the outcomes of a map's rows, for its result, file and progress reports."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from agentmagic.errors import AgentMagicError
from agentmagic.events import MapProgress
from agentmagic.mapping.failed_calls import denial_notice
from agentmagic.mapping.file import Line, MapFile, RowAsked, RowEnded
from agentmagic.mapping.outcomes import MapRow
from agentmagic.mapping.prompts import RowPrompt, digest
from agentmagic.mapping.tally import Origin, Tally
from agentmagic.mapping.work import MapFailed, MapWork
from agentmagic.plain_files import write_failure
from agentmagic.runtime.engine import void
from agentmagic.text import clip

INTERVAL = 0.1
"""Minimum number of seconds between two progress reports (ten a second)."""


class Ledger:
    """Collects the outcomes of the rows of a map. It is used on the engine thread.

    `rows` are the rows that have an outcome, by their number in the input. `finished` are the same rows in the order in
    which they ended. `earlier` are the rows that an earlier run has asked without an answer, each with its prompt and
    outcome; this outcome holds until the row is asked again. `doubtful` are the rows that may have been paid for twice.
    `pieces` are short pieces of the failed rows, by their number. `asking_tools` are the names of the tools whose calls
    need an approval. `running` counts the rows being asked, and `is_sent` says whether this run has sent a request.
    `error` is the error that made the map fail; `end` sets it and cancels the map's task `main`. `request` is a digest
    of the request that all rows share. Three functions are called: `on_row` when a row has an outcome, `on_outcome`
    with this outcome, and `on_progress` with each progress report.
    """

    def __init__(self, work: MapWork, on_progress: Callable[[MapProgress], None], on_row: Callable[[], None]) -> None:
        self.work = work
        self.rows: dict[int, MapRow] = {}
        self.finished: list[MapRow] = []
        self.earlier: dict[int, tuple[RowPrompt, RowEnded]] = {}
        self.doubtful: list[MapRow] = []
        self.pieces: dict[int, str] = {}
        self.asking_tools: frozenset[str] = frozenset()
        self._denied_tools: list[str] = []
        self.tally = Tally(total=work.rows.total, notices=list(work.notices))
        self.running = 0
        self.is_sent = False
        self.file: MapFile | None = None
        self.error: AgentMagicError | None = None
        self.on_outcome: Callable[[RowEnded], object] = void
        self._on_progress = on_progress
        self._on_row = on_row
        self._schema = work.turn.agent.output_schema
        self.main: asyncio.Task[Any] | None = None
        self.request = ""
        self._report: asyncio.TimerHandle | None = None

    def keep(self, prompt: RowPrompt, outcome: RowEnded) -> bool:
        """Add a row's outcome from an earlier run. If its answer does not fit the output schema, only return False."""
        value = None
        if self._schema is not None and outcome.status == "answered":
            try:
                data = {self._schema.wrapped_in: outcome.value} if self._schema.wrapped_in else outcome.value
                value = self._schema.read(outcome.answer) if outcome.answer else self._schema.convert(data)
            except ValueError:
                return False
        row = self.note(prompt, outcome, value, origin="kept")
        if self.file is not None and row.key in self.file.repeated_keys:
            self.doubtful.append(row)
        return True

    def note(self, prompt: RowPrompt, outcome: RowEnded, value: Any = None, *, origin: Origin = "asked") -> MapRow:
        """Add the outcome of a row to the map's result, and return the row."""
        row = self._row(prompt, outcome, value)
        self.rows[prompt.place] = row
        self.finished.append(row)
        if row.error:
            self.pieces[row.place] = self.work.prompts.piece(prompt)
        self.tally.note(row, origin)
        self.on_outcome(outcome)
        self._on_row()
        self.tell_soon()
        return row

    def _row(self, prompt: RowPrompt, outcome: RowEnded, value: Any) -> MapRow:
        text = outcome.answer if outcome.status == "answered" else None
        return MapRow(
            prompt.place,
            self.work.rows.label(prompt.place),
            outcome.key,
            outcome.status,
            text if self._schema is None else value,
            outcome.error,
            outcome.usage,
            outcome.steps,
            outcome.seconds,
            outcome.notice,
        )

    def known_rows(self) -> tuple[MapRow, ...]:
        """Return the rows that have an outcome of this run or of an earlier one, in the order of the input."""
        rows = {place: self._row(*known, None) for place, known in self.earlier.copy().items()} | self.rows
        return tuple(row for _, row in sorted(rows.items()))

    def note_earlier(self) -> None:
        """At the end of the map, add the rows that were not asked again, with the outcome of an earlier run."""
        for place, (prompt, outcome) in sorted(self.earlier.items()):
            if place not in self.rows:
                row = self.note(prompt, outcome, origin="earlier")
                if outcome.status == "in doubt":
                    self.doubtful.append(row)

    def label(self, prompt: RowPrompt) -> str:
        """Return the label of a row, cut to 100 characters."""
        return clip(str(self.work.rows.label(prompt.place)), 100)

    def note_denied(self, names: Iterable[str]) -> None:
        """Tell the user about tools whose calls were denied, because they need an approval that a row cannot get."""
        new = [name for name in dict.fromkeys(names) if name in self.asking_tools and name not in self._denied_tools]
        if new:
            notices, before = self.tally.notices, denial_notice(self._denied_tools)
            place = notices.index(before) if before in notices else len(notices)
            self._denied_tools += new
            notices[place : place + 1] = [denial_notice(self._denied_tools)]

    def note_sent(self, *prompts: RowPrompt) -> None:
        """Write to the map's file that rows are asked, before their first requests are sent."""
        self.is_sent = True
        self.write(*map(self._asked_line, prompts))

    def _asked_line(self, prompt: RowPrompt) -> RowAsked:
        """Return the line that is written to the map's file before a row is asked."""
        return RowAsked(prompt.key, self.label(prompt), digest(self.request, prompt.key))

    def write(self, *lines: Line) -> None:
        """Append lines to the map's file. If it cannot be written, end the map; answered rows stay in the result."""
        assert self.file is not None  # noqa: S101  (opened by the driver before rows are asked)
        try:
            self.file.write(*lines)
        except (OSError, ValueError) as error:
            where = self.work.path or "The temporary file of the map"
            failure = MapFailed(
                f"{where} cannot be written: {write_failure(error, 'Name another file.')} No further row is asked; the "
                "result has the rows until here. Run the cell again for the others."
            )
            self.end(failure)
            raise

    def end(self, error: AgentMagicError) -> None:
        """End the map with an error. Does nothing if the map has an error already."""
        if self.error is None:
            self.error = error
            if self.main is not None:
                self.main.cancel()

    def tell_soon(self) -> None:
        """Report the map's progress a tenth of a second later. If a report is waiting already, do nothing."""
        if self._report is None:
            self._report = asyncio.get_running_loop().call_later(INTERVAL, self.tell)

    def tell(self) -> None:
        """Report the map's progress now, to `on_progress`."""
        if self._report is not None:
            self._report.cancel()
            self._report = None
        self._on_progress(self.progress())

    def progress(self) -> MapProgress:
        """Return the current progress of the map."""
        file = "" if self.work.path is None else str(self.work.path)
        return self.tally.progress(self.running, file, self.pieces)
