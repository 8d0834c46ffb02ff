"""The result of a map: an object for each row, and a data frame of all rows."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

from agentmagic.display import map_words
from agentmagic.errors import UsageError
from agentmagic.events import Event, MapEnd, MapProgress, RunResult, TurnFinished, fold
from agentmagic.mapping.file import MapFile, RowStatus
from agentmagic.mapping.rows import Answers, Rows
from agentmagic.mapping.sample import Estimate
from agentmagic.messages import Usage, value_class
from agentmagic.providers.base import OutputSchema
from agentmagic.text import join_names, plural
from agentmagic.values.columns import Column, columns_of, schema_type

ANSWER = "answer"
"""The name of the column for answers without fields."""


@value_class
class MapRow:
    """The outcome of one row of a map.

    `index` is the row's label in the input frame, or its number (`place`) in the input list. `value` is the answer: a
    value of the requested type, or a text if no type was requested. It is None if there is no answer. `error` says in a
    sentence why there is no answer. `notice` says which calls of tools failed in the row's turn, and why; the row can
    have an answer all the same. `key` identifies the row in the file of the map.
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
    notice: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class MapResult:
    """The result of a map, so far or at the end.

    `rows` are the rows with an outcome, in the order of the input. A row is `doubtful` if it was asked before, so that
    its answer may be paid for twice, or if its tools may have run already. `estimate` is the cost and time of all rows,
    if only a sample of the rows was asked. Without a sample, `frame` also has the rows that were not asked.
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
        progress, cost = self.progress, self.usage.cost
        parts = [plural(progress.total or len(self.rows), "row"), f"{progress.answered:,} answered"]
        parts += [f"{progress.failed:,} failed"] if progress.failed else []
        parts += [f"{plural(len(self.doubtful), 'row')} in doubt"] if self.doubtful else []
        parts += [] if not cost else [f"${cost:.4f}"]
        return f"<MapResult: {'. '.join(filter(None, (', '.join(parts), map_words.ending(progress))))}>"

    @property
    def ended(self) -> MapEnd:
        """Why the map is over: "done", "stopped", "budget" or "failed". It is "" while the map runs."""
        return self.progress.ended

    @property
    def notices(self) -> tuple[str, ...]:
        """The messages for the user, such as the budget that ended the map, or the tools whose calls were denied."""
        return self.progress.notices

    @property
    def usage(self) -> Usage:
        """Tokens and cost of all rows, including rows that were answered in an earlier run."""
        return self.progress.usage

    @property
    def path(self) -> Path | None:
        """The file that stores the answers, or None."""
        return None if self._file is None else self._file.path

    @property
    def frame(self) -> Any:
        """The input as a data frame, with the fields of the answers as further columns.

        The last columns are `_status`, `_error`, `_notice` (calls of tools that failed), `_cost` (US dollars),
        `_tokens`, `_steps` and `_run`. `_run` is the row's number for `run(place=...)`. Raises UsageError if the input
        is a list and pandas is not installed.
        """
        return self._frame(list(self._frame_rows()))

    def head(self, rows: int = 10) -> Any:
        """Return the first rows of the frame, without building the whole frame."""
        return self._frame(list(islice(self._frame_rows(), rows)))

    @property
    def failed(self) -> Any:
        """The data frame of the rows that failed, could not be asked, or may have been asked but have no answer."""
        return self._frame([row for row in self.rows if row.status in ("failed", "in doubt")])

    def run(self, index: Any = None, *, place: int | None = None) -> RunResult:
        """Return the run of the agent that answered a row, with its events. A notebook shows the run as cards.

        Select the row by its label in the frame or, with `place`, by its number in the column `_run`. Raises UsageError
        if there is no such row or more than one, or if the row was not asked.
        """
        matches = [row for row in self.rows if (row.index == index if place is None else row.place == place)]
        name = index if place is None else place
        if len(matches) > 1:
            places = join_names([str(row.place) for row in matches], 5)
            raise UsageError(f"{len(matches)} rows have the index {name!r}. Choose one by its place: {places}.")
        if not matches:
            raise UsageError(f"There is no row {name!r} with an outcome.")
        events = self._file.events(matches[0].key) if self._file is not None else ()
        if not events and matches[0].steps:
            raise UsageError(f"Row {name!r} was replayed: its run is not on the cassette. Ask it live to see its run.")
        if not events:
            raise UsageError(f"Row {name!r} was not asked, so it has no run: {matches[0].error or matches[0].status}.")
        return _result(events)

    def _frame_rows(self) -> Iterator[MapRow]:
        """Yield the rows of the result's data frame: all rows of the input, with or without an outcome.

        After a sample, and if the number of rows is not known, yield only the rows with an outcome.
        """
        if self.estimate is not None or self._source.total is None:
            yield from self.rows
            return
        rows_by_place = {row.place: row for row in self.rows}
        for place in range(self._source.total):
            yield rows_by_place.get(place) or MapRow(place, self._source.label(place), "", "not asked")

    def _frame(self, rows: Sequence[MapRow]) -> Any:
        columns = {
            "_status": [row.status for row in rows],
            "_error": [row.error for row in rows],
            "_notice": [row.notice for row in rows],
            "_cost": [row.usage.cost for row in rows],
            "_tokens": [row.usage.input_tokens + row.usage.output_tokens for row in rows],
            "_steps": [row.steps for row in rows],
            "_run": [row.place for row in rows],
        }
        answers = {**_fields(rows, self._schema), **{name: Column(values) for name, values in columns.items()}}
        places = [row.place for row in rows]
        return self._source.frame(places, _with_free_names(answers, self._source.names))


def _fields(rows: Sequence[MapRow], schema: OutputSchema | None) -> Answers:
    """Return the answers as columns of a frame: one for each field, or a single column if answers have no fields."""
    properties: Mapping[str, Any] = {} if schema is None else schema.schema.get("properties", {})
    if schema is None or schema.wrapped_in:
        type_ = "" if schema is None else schema_type(properties.get(schema.wrapped_in, {}))
        return {ANSWER: Column([_plain(row.value) for row in rows], type_)}
    return columns_of([{} if row.value is None else record(row.value) for row in rows], properties)


def _plain(value: Any) -> Any:
    """Return a value for a data frame: pydantic models and data classes become dicts, also inside lists."""
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[Any]", value)]
    is_record = hasattr(value, "model_dump") or (dataclasses.is_dataclass(value) and not isinstance(value, type))
    return record(value) if is_record else value


def _with_free_names(columns: Answers, input_names: Collection[str]) -> Answers:
    """Return the answer columns. `_2` is added to the name of a column if an input column has this name."""
    return {f"{name}_2" if name in input_names else name: values for name, values in columns.items()}


def record(item: Any) -> Mapping[str, Any]:
    """Return the fields of a pydantic model, a data class or a mapping."""
    dump: Callable[[], Mapping[str, Any]] | None = getattr(item, "model_dump", None)
    if dump is not None:
        return dump()
    return dataclasses.asdict(cast("Any", item)) if dataclasses.is_dataclass(item) else item


def _result(events: Sequence[Event]) -> RunResult:
    """Return the result of a row's turn. It gets the events and messages, which the last event in the file lacks."""
    last = events[-1]
    assert isinstance(last, TurnFinished)  # noqa: S101  (a row that has ended)
    log = tuple(events[:-1])
    return dataclasses.replace(last.result, events=log, history_delta=fold(log))
