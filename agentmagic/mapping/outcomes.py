"""What a map has come to: a row each, and a data frame of all."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

from agentmagic.errors import UsageError
from agentmagic.events import Event, MapProgress, RunResult, TurnFinished, fold
from agentmagic.mapping.file import MapFile, RowStatus
from agentmagic.mapping.rows import Answers, Rows
from agentmagic.mapping.sample import Estimate
from agentmagic.messages import Usage, value_class
from agentmagic.providers.base import OutputSchema
from agentmagic.text import counted, listed

ANSWER = "answer"
"""The column of answers that have no fields."""


@value_class
class MapRow:
    """What became of one row.

    `index` is its label in the frame, or its `place` in the list. `value` is the answer: a value of the form that was
    asked for, else a text; None without one. `error` says in a sentence why there is none. `key` names the row in the
    file of the map.
    """

    place: int
    index: Any
    key: str
    status: RowStatus
    value: Any = None
    error: str = ""
    usage: Usage = Usage()
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class MapResult:
    """What a map has come to, so far or in the end.

    `rows` are those with an outcome, in the order of the input. `doubtful` rows were asked before and their answer may
    have been paid twice, or a tool of theirs may have run. `estimate` is what all rows may take, after a sample. Rows
    that were never asked are in the frame, without an answer, unless a sample was asked for.
    """

    rows: tuple[MapRow, ...]
    progress: MapProgress
    doubtful: tuple[MapRow, ...]
    estimate: Estimate | None
    _source: Rows
    _schema: OutputSchema | None
    _file: MapFile | None

    def __iter__(self) -> Iterator[MapRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        seen, cost = self.progress, self.usage.cost
        parts = [counted(seen.total or len(self.rows), "row"), f"{seen.answered:,} answered"]
        parts += [f"{seen.failed:,} failed"] if seen.failed else []
        parts += [f"{counted(len(self.doubtful), 'row')} in doubt"] if self.doubtful else []
        parts += [] if not cost else [f"${cost:.4f}"]
        return f"<MapResult: {', '.join(parts)}>"

    @property
    def usage(self) -> Usage:
        """Tokens and cost of all rows, those included that were answered in an earlier run."""
        return self.progress.usage

    @property
    def path(self) -> Path | None:
        """The file that keeps the answers, None if there is none."""
        return None if self._file is None else self._file.path

    @property
    def frame(self) -> Any:
        """The input as a data frame, with the fields of the answers beside it.

        Beside them are `_status`, `_error`, `_cost` (US dollars), `_tokens`, `_steps` and `_run`, the place that
        `run(place=...)` opens. Raises UsageError for a list if pandas is not installed.
        """
        return self._frame(list(self._all()))

    def head(self, rows: int = 10) -> Any:
        """Return the first rows of the frame, which is not made whole for it."""
        return self._frame(list(islice(self._all(), rows)))

    @property
    def failed(self) -> Any:
        """The frame of the rows without an answer that were asked, or that could not be."""
        return self._frame([row for row in self.rows if row.status in ("failed", "in doubt")])

    def run(self, index: Any = None, *, place: int | None = None) -> RunResult:
        """Return the whole run of a row, with its events, which a notebook shows as cards.

        The row is named by its label in the frame or, with `place`, by its number, as in the column `_run`. Raises
        UsageError if there is none, or if it was not asked.
        """
        found = [row for row in self.rows if (row.index == index if place is None else row.place == place)]
        name = index if place is None else place
        if len(found) > 1:
            places = listed([str(row.place) for row in found], 5)
            raise UsageError(f"{len(found)} rows have the index {name!r}. Choose one by its place: {places}.")
        if not found:
            raise UsageError(f"There is no row {name!r} with an outcome.")
        events = self._file.events(found[0].key) if self._file is not None else ()
        if not events and found[0].steps:
            raise UsageError(f"Row {name!r} was replayed: its run is not on the cassette. Ask it live to see its run.")
        if not events:
            raise UsageError(f"Row {name!r} was not asked, so it has no run: {found[0].error or found[0].status}.")
        return _result(events)

    def _all(self) -> Iterator[MapRow]:
        """Yield the rows of the frame: after a sample those that were asked, else all."""
        if self.estimate is not None or self._source.total is None:
            yield from self.rows
            return
        known = {row.place: row for row in self.rows}
        for place in range(self._source.total):
            yield known.get(place) or self._unasked(place)

    def _unasked(self, place: int) -> MapRow:
        return MapRow(place, self._source.label(place), "", "not asked")

    def _frame(self, rows: Sequence[MapRow]) -> Any:
        columns: dict[str, Sequence[Any]] = {**_fields(rows, self._schema)}
        columns |= {
            "_status": [row.status for row in rows],
            "_error": [row.error for row in rows],
            "_cost": [row.usage.cost for row in rows],
            "_tokens": [row.usage.input_tokens + row.usage.output_tokens for row in rows],
            "_steps": [row.steps for row in rows],
            "_run": [row.place for row in rows],
        }
        places = [row.place for row in rows]
        return self._source.frame(places, _renamed(columns, self._source.names))


def _fields(rows: Sequence[MapRow], schema: OutputSchema | None) -> Answers:
    """Return the columns of the answers: one for each field, or one for all if they have none."""
    if schema is None or schema.wrapped_in:
        return {ANSWER: [_plain(row.value) for row in rows]}
    nothing: Mapping[str, Any] = {}
    records = [nothing if row.value is None else record(row.value) for row in rows]
    names = dict.fromkeys(name for one in records for name in one) or dict.fromkeys(schema.schema.get("properties", ()))
    return {str(name): [one.get(name) for one in records] for name in names}


def _plain(value: Any) -> Any:
    """Return a value as a cell of a frame holds it: models and data classes as dicts, within lists too."""
    if isinstance(value, list):
        return [_plain(one) for one in cast("list[Any]", value)]
    is_record = hasattr(value, "model_dump") or (dataclasses.is_dataclass(value) and not isinstance(value, type))
    return record(value) if is_record else value


def _renamed(columns: Answers, taken: Collection[str]) -> Answers:
    """Return columns none of which has the name of an input: such a one gets a 2 behind its name."""
    return {f"{name}_2" if name in taken else name: values for name, values in columns.items()}


def record(item: Any) -> Mapping[str, Any]:
    """Return the fields of a model of pydantic, a data class or a mapping."""
    dump: Callable[[], Mapping[str, Any]] | None = getattr(item, "model_dump", None)
    if dump is not None:
        return dump()
    return dataclasses.asdict(cast("Any", item)) if dataclasses.is_dataclass(item) else item


def _result(events: Sequence[Event]) -> RunResult:
    """Return the result of a turn with its events and messages, which its line does not repeat."""
    last = events[-1]
    assert isinstance(last, TurnFinished)  # noqa: S101  (a row that has ended)
    log = tuple(events[:-1])
    return dataclasses.replace(last.result, events=log, history_delta=fold(log))
