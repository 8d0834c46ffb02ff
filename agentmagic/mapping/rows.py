"""The rows of a map, from frames, lists or iterators, and a frame with their answers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import starmap
from typing import Any, cast

from agentmagic.errors import UsageError
from agentmagic.text import a_type, join_names
from agentmagic.values.columns import Column, columns_of, pandas_frame, polars_series
from agentmagic.values.frames import is_frame

ROW = "row"
"""The name of the whole row in a prompt: its dict of values, or the value itself if a row is a single value."""

Values = Mapping[str, Any]
Answers = Mapping[str, Column]
"""Columns to add to the rows, by name."""


class Rows:
    """The rows of a map. Each row is a mapping of names to values.

    `names` are the column names that a prompt can use. `total` is the number of rows; it is None for an iterator until
    all rows were read. Rows of an iterator are stored as they are read.
    """

    def __init__(self, names: Sequence[str], total: int | None) -> None:
        self.names = tuple(names)
        self.total = total

    def read(self, names: Iterable[str]) -> Iterator[Values]:
        """Yield each row's values by name. They include those of `names` that the row has, and maybe other names."""
        raise NotImplementedError

    def label(self, place: int) -> Any:
        """Return the label of row number `place`: from the index of a data frame, or else the number itself."""
        return place

    def frame(self, places: Sequence[int], answers: Answers) -> Any:
        """Return a data frame of the rows with these numbers. The answers are added as columns."""
        raise NotImplementedError


def rows_of(rows: object) -> Rows:
    """Return the rows of a frame or series of pandas or polars, of a list, or of an iterable. Raises UsageError."""
    library = type(rows).__module__.partition(".")[0]
    if library in ("pandas", "polars") and is_frame(rows) and hasattr(rows, "shape"):
        return _FrameRows(rows)
    if type(rows).__name__ == "LazyFrame":
        raise UsageError("rows is a LazyFrame, whose rows are not there yet. Give rows.collect().")
    if isinstance(rows, (str, bytes, Mapping)) or not isinstance(rows, Iterable) or is_frame(rows):
        raise UsageError(
            f"rows is {a_type(cast('object', rows))}. Give a data frame of pandas or polars, a list of dicts or of "
            "values, or an iterable of them."
        )
    return _ListedRows(cast("Iterable[Any]", rows))


class _FrameRows(Rows):
    """The rows of a data frame, or of a series, which has one column."""

    def __init__(self, frame: Any) -> None:
        self._is_polars = type(frame).__module__.startswith("polars")
        if len(frame.shape) == 1:
            frame = frame.to_frame(ROW if frame.name in (None, "") else frame.name)
        self._frame = frame
        names: list[str] = [str(name) for name in frame.columns]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"The frame has more than one column of the name {join_names(twice)}. Rename them first.")
        super().__init__(names, len(frame))
        self._columns = dict(zip(names, frame.columns, strict=True))

    def read(self, names: Iterable[str]) -> Iterator[Values]:
        name_set = set(names)
        whole = ROW in name_set and ROW not in self._columns
        columns = {name: self._frame[key].to_list() for name, key in self._columns.items() if whole or name in name_set}
        for place in range(len(self._frame)):
            values = {name: column[place] for name, column in columns.items()}
            yield {**values, ROW: values} if whole else values

    def label(self, place: int) -> Any:
        return place if self._is_polars else self._frame.index[place]

    def frame(self, places: Sequence[int], answers: Answers) -> Any:
        if self._is_polars:
            return self._frame[list(places)].with_columns(list(starmap(polars_series, answers.items())))
        selection = self._frame if list(places) == list(range(len(self._frame))) else self._frame.iloc[list(places)]
        return selection.assign() if not answers else _with_columns(selection, answers)


def _with_columns(frame: Any, answers: Answers) -> Any:
    """Return a copy of a pandas frame, with the answers added as columns."""
    pandas: Any = import_module("pandas")
    return pandas.concat([frame, pandas_frame(answers, frame.index)], axis=1)


class _ListedRows(Rows):
    """The rows of a list or another iterable: dicts, whose keys are names, or values of any kind."""

    def __init__(self, rows: Iterable[Any]) -> None:
        is_list = isinstance(rows, Sequence)
        self._rows: list[Any] = list(rows) if is_list else []
        self._rest = iter(()) if is_list else iter(rows)
        if not self._rows and (first := next(self._rest, self)) is not self:
            self._rows.append(first)
        first: Any = self._rows[0] if self._rows else {}
        names = [str(key) for key in cast("Mapping[Any, Any]", first)] if isinstance(first, Mapping) else [ROW]
        super().__init__(names, len(self._rows) if is_list or not self._rows else None)

    def read(self, names: Iterable[str]) -> Iterator[Values]:  # noqa: ARG002  (each row has what it has)
        yield from map(_values, tuple(self._rows))
        for row in self._rest:
            self._rows.append(row)
            yield _values(row)
        self.total = len(self._rows)

    def frame(self, places: Sequence[int], answers: Answers) -> Any:
        if find_spec("pandas") is None:
            raise UsageError("A frame of these rows needs pandas, which is not installed. The result has them as rows.")
        rows = [self._rows[place] for place in places]
        records = [cast("Values", row) if isinstance(row, Mapping) else {ROW: row} for row in rows]
        return _with_columns(pandas_frame(columns_of(records), list(places)), answers)


def _values(row: Any) -> Values:
    if not isinstance(row, Mapping):
        return {ROW: row}
    values = {str(key): value for key, value in cast("Mapping[Any, Any]", row).items()}
    return values if ROW in values else {**values, ROW: values}


def is_missing(value: Any) -> bool:
    """Return whether a value stands for a missing value: None, NaN, or NA or NaT of pandas."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value  # noqa: PLR0124  (NaN alone is not itself)
