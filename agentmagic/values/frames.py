"""Writes data frames, series and arrays for a model: columns with types and ranges, and as many rows as there is room.

Narwhals reads the frames of pandas, polars and others. No frame is copied as a whole, and the figures of a large one
are those of a part of its rows, so that ten million rows take as long as a hundred thousand.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, time, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from agentmagic.text import counted, one_line

if TYPE_CHECKING:
    import narwhals as nw

LIBRARIES = frozenset(
    {"pandas", "polars", "pyarrow", "modin", "cudf", "dask", "duckdb", "_duckdb", "ibis", "pyspark", "sqlframe"}
)
"""Packages whose frames are read; no attribute of an object of any other package is looked at."""

MEASURED = 200_000
"""Cells that missing values and ranges are taken of."""
MOST_ROWS = 200
"""Rows that are written of a frame if no number is asked for, however narrow it is."""
LONGEST_CELL = 80
"""Characters of a cell."""
FEWEST_ROWS = 3
"""Rows for which columns leave room, if there are so many columns that not all can be written."""
MISSING = ("NaTType", "NAType")
"""The types of missing values in pandas."""
CORNER = 3
"""Items of each side of an array that are written."""

WriteCell = Callable[[Any], str]
"""Writes a value that is neither a number nor a text on one line."""


def is_frame(value: Any) -> bool:
    """Return whether a value is a data frame or a series that can be written."""
    return bool(LIBRARIES & _packages(value)) and _opened(value) is not None


def is_array(value: Any) -> bool:
    """Return whether a value is an array of NumPy with a dimension."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(type(value), numpy.ndarray) and value.ndim > 0


def size(value: Any) -> str:
    """Return the type and the size of a frame, series or array: "DataFrame, 7 rows x 2 columns"."""
    name = type(value).__name__
    if is_array(value):
        return f"{name} {'x'.join(map(str, value.shape))} of {value.dtype}"
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple):
        return f"{name}, not computed yet"
    rows, *columns = cast("tuple[int, ...]", shape)
    return ", ".join([name, " x ".join([counted(rows, "row"), *(counted(one, "column") for one in columns)])])


def columns(value: Any, characters: int) -> str:
    """Return the names and types of the columns of a frame or series, and no value of it."""
    frame = _opened(value)
    named = frame.collect_schema().items() if hasattr(frame, "collect_schema") else [(_name(frame), frame.dtype)]
    lines = [f"{one_line(str(name), LONGEST_CELL)}: {dtype}" for name, dtype in named]
    return "\n".join([f"{size(value)}. Columns and types:", *_kept(lines, characters)])


def table(value: Any, characters: int, rows: int | None, write: WriteCell) -> str:
    """Return a frame or series as text: its columns, and as many rows as fit, or `rows` of them."""
    frame = _opened(value)
    if not hasattr(frame, "shape"):  # a lazy frame: to compute it could take hours
        return columns(value, characters)
    whole = cast("nw.DataFrame[Any]", frame if hasattr(frame, "columns") else frame.alias(_name(frame)).to_frame())
    total = whole.shape[0]
    step = -(-total * whole.shape[1] // MEASURED) or 1
    part = _with_index(whole.gather_every(step) if step > 1 else whole)
    note = f" Missing values, ranges and counts are those of every {step:,}th row." if step > 1 else ""
    described = list(_within((_row(_column(part, name)) for name in part.columns), characters // 2))
    head = _with_index(whole.head(rows if rows is not None else MOST_ROWS))
    shown = head.columns[: len(described)]
    lines = (_row(_cell(cell, write) for cell in row) for row in head.select(shown).iter_rows())
    taken = list(_within(lines, characters - sum(map(len, described)), FEWEST_ROWS))
    what = "All rows" if len(taken) == total else f"The first {counted(len(taken), 'row')} of {total:,}"
    more = f" (of the first {counted(len(shown), 'column')})" if len(shown) < len(head.columns) else ""
    return "\n".join(
        [
            f"{size(value)}.{note}",
            *("", _row(("column", "type", "missing", "values")), _row(["---"] * 4), *described),
            *("", f"{what}{more}:", ""),
            *(_row(one_line(name, LONGEST_CELL) for name in shown), _row(["---"] * len(shown)), *taken),
        ]
    )


def array(value: Any, write: WriteCell) -> str:
    """Return the shape, type, range and corner of an array."""
    import numpy as np

    step = max(1, round((value.size / MEASURED) ** (1 / value.ndim)))
    part = value[(slice(None, None, step),) * value.ndim]
    spread = ""
    if part.size and value.dtype.kind in "iufb":
        finite = part[np.isfinite(part)] if value.dtype.kind == "f" else part
        missing = part.size - finite.size
        every = f" (of every {step:,}th item of each side)" if step > 1 else ""
        if finite.size:
            low, high = _number(finite.min().item()), _number(finite.max().item())
            spread = f", {low} to {high}, mean {_number(float(finite.mean()))}{every}"
        spread += f", {missing:,} not finite" if missing else ""
    if value.dtype.kind == "O":  # its items are the user's, and may have a repr that does not end
        corner = write(value[(slice(CORNER),) * value.ndim].tolist())
    else:
        corner = np.array2string(value, threshold=4 * CORNER**2, edgeitems=CORNER)
    return f"{size(value)}{spread}\n{corner}"


def _packages(value: Any) -> set[str]:
    if issubclass(type(value), type):  # not `isinstance`, which asks a proxy for its `__class__`
        return set()
    return {kind.__module__.partition(".")[0] for kind in type(value).__mro__}


def _opened(value: Any) -> Any:
    """Return a value as narwhals reads it, or None if it is nothing that narwhals reads."""
    import narwhals as nw

    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(value, pandas.DataFrame):  # its names may be no texts, or be there twice
        value = value.set_axis(list(_distinct(map(_label, value.columns))), axis=1)
    opened = cast("Any", nw).from_native(value, pass_through=True, allow_series=True)
    return cast("Any", opened) if isinstance(opened, (nw.DataFrame, nw.LazyFrame, nw.Series)) else None


def _label(name: Any) -> str:
    return " / ".join(map(str, cast("tuple[Any, ...]", name))) if isinstance(name, tuple) else str(name)


def _distinct(names: Iterable[str]) -> Iterator[str]:
    taken: set[str] = set()
    for name in names:
        free = next(new for number in count(1) if (new := name if number == 1 else f"{name} ({number})") not in taken)
        taken.add(free)
        yield free


def _name(series: Any) -> str:
    return str(series.name or "value")


def _with_index(part: "nw.DataFrame[Any]") -> "nw.DataFrame[Any]":
    """Return rows of a frame with the index of pandas as its first columns, unless it only counts the rows."""
    import narwhals as nw

    native: Any = part.to_native()
    index = getattr(native, "index", None)
    if index is None or (type(index).__name__ == "RangeIndex" and index.name is None):
        return part
    names = [_label(name) if name is not None else "index" for name in index.names]
    new = list(_distinct([*part.columns, *names]))[len(part.columns) :]
    return nw.from_native(native.reset_index(names=new), eager_only=True)


def _column(part: "nw.DataFrame[Any]", name: str) -> Sequence[str]:
    """Return the name, type, missing values and range of a column; values of a user's own types are not compared."""
    series = part[name]
    native: Any = series.to_native()
    kind = str(getattr(native, "dtype", series.dtype))
    try:
        missing, values = _figures(series)
    except Exception:  # noqa: BLE001  (of whichever library: a type that it cannot compare, for example)
        missing, values = "", ""
    return one_line(name, LONGEST_CELL), kind, missing, values


def _figures(series: "nw.Series[Any]") -> tuple[str, str]:
    dtype, whole, series = series.dtype, len(series), series.drop_nulls()
    if dtype.is_float():  # a NaN is a missing value in pandas, and none in polars
        series = series.filter(~series.is_nan())
    missing = whole - len(series)
    if not len(series):
        return str(missing), ""
    if dtype.is_numeric() or dtype.is_temporal():
        return str(missing), f"{_cell(series.min(), str)} to {_cell(series.max(), str)}"
    if str(dtype) == "Boolean":
        return str(missing), f"{series.sum():,} true"
    if str(dtype).startswith(("String", "Categorical", "Enum")):
        return str(missing), f"{series.n_unique():,} distinct"
    return str(missing), ""


def _cell(value: Any, write: WriteCell) -> str:
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()
    match value:
        case _ if value is None or type(value).__name__ in MISSING:
            return ""
        case float():
            return "" if value != value else _number(value)  # noqa: PLR0124  (NaN)
        case str():
            return one_line(value.replace("|", "\\|"), LONGEST_CELL)
        case bool() | int() | date() | time() | timedelta():
            return str(value)
        case _:
            return one_line(write(value).replace("|", "\\|"), LONGEST_CELL)


def _number(value: float) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _within(lines: Iterable[str], characters: int, least: int = 1) -> Iterator[str]:
    """Yield lines until their characters are used up, the first `least` in any case."""
    for number, line in enumerate(lines):
        characters -= len(line) + 1
        if characters < 0 and number >= least:
            return
        yield line


def _kept(lines: Sequence[str], characters: int) -> list[str]:
    """Return the lines that there is room for, and one that says how many columns are left out."""
    kept = list(_within(lines, characters))
    left = len(lines) - len(kept)
    return [*kept, f"({counted(left, 'more column')} not shown)"] if left else kept
