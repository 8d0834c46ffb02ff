"""Writes data frames, series and arrays for a model: columns with types, ranges and values, and a few rows.

Narwhals reads the frames of pandas, polars and others. No frame is copied as a whole. The statistics of a large frame
are taken from a sample of its rows, so that ten million rows take as long as a hundred thousand.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain, islice, repeat
from random import Random
from typing import TYPE_CHECKING, Any, cast

from agentmagic.text import plural, single_line

if TYPE_CHECKING:
    import narwhals as nw

LIBRARIES = frozenset(
    {"pandas", "polars", "pyarrow", "modin", "cudf", "dask", "duckdb", "_duckdb", "ibis", "pyspark", "sqlframe"}
)
"""Packages whose frames are read. For an object of any other package, no attribute is read."""

SAMPLE_CELLS = 200_000
"""Approximate number of cells from which missing values, ranges and counts are taken."""
MOST_ROWS = 200
"""Largest number of rows written of a frame, if the caller asks for no number."""
LONGEST_CELL = 80
"""Largest number of characters in a cell."""
FEWEST_ROWS = 3
"""Number of rows that are written even if the columns have used up the room."""
WHOLE = 50
"""Largest number of rows of a frame that is written completely if there is room."""
ROWS_SHARE = 5
"""The rows of a longer frame get 1/ROWS_SHARE of the characters, because the columns say more about the frame."""
LAST_COLUMNS = 3
"""Number of columns at the end that are preferred if not all columns fit. The column to predict is often there."""
MOST_DISTINCT = 10
"""Largest number of distinct values written of a column."""
EXAMPLES = 3
"""Number of values written of a column whose values are all distinct."""
LONGEST_VALUE = 30
"""Largest number of characters written of a distinct value."""
LONGEST_VALUES = 200
"""Largest number of characters for the distinct values of a column."""
MISSING = ("NaTType", "NAType")
"""The types of missing values in pandas."""
_SCALARS = frozenset({"Timestamp", "Timedelta", "Period", "Interval", *MISSING})
_KEYS = frozenset({"builtins", "datetime", "decimal", "numpy", "pandas"})
"""Packages of the values that, as keys, are written by their repr."""
NO_NAME = "(no name)"
INDEX = "(index)"
CORNER = 3
"""Number of items written at each side of an array."""

_BAR = "\\|"
_MIDNIGHT = re.compile(r"[ T]00:00:00(?:\.0+)?$")
_PLAIN_NAME = re.compile(r"[^\W\d](?:[^\n\r\t]*\S)?")
"""Matches a name that cannot be mistaken for a number or a tuple."""
_TIMES = (date, datetime, time, timedelta)
_COUNTABLE_TYPES = frozenset({str, bool, int, bytes})
"""Types whose values are counted. Comparing them runs no code of the user."""
_RANGE_TYPES = frozenset({*_TIMES, Decimal})
"""Types whose values are written as a range."""

WriteCell = Callable[[Any], str]
"""A function that writes a value on one line, if it is neither a number nor a text."""


def is_frame(value: Any) -> bool:
    """Return whether a value is a data frame, a styled data frame or a series that can be written."""
    return bool(LIBRARIES & _packages(value)) and _narwhals_frame(without_style(value)) is not None


def is_array(value: Any) -> bool:
    """Return whether a value is a NumPy array with at least one dimension."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(type(value), numpy.ndarray) and value.ndim > 0


def without_style(value: Any) -> Any:
    """Return the frame of a pandas Styler. Return any other value as it is."""
    return value.data if type(value).__name__ == "Styler" and "pandas" in _packages(value) else value


def size(value: Any) -> str:
    """Return the type and the size of a frame, series or array: "DataFrame, 7 rows x 2 columns"."""
    value = without_style(value)
    name = type(value).__name__
    if is_array(value):
        return f"{name} {'x'.join(map(str, value.shape))} of {value.dtype}"
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple):
        return f"{name}, not computed yet"
    rows, *columns = cast("tuple[int, ...]", shape)
    return ", ".join([name, " x ".join([plural(rows, "row"), *(plural(number, "column") for number in columns)])])


def columns(value: Any, characters: int) -> str:
    """Return the names and types of the columns and the index of a frame or series, without values."""
    value = without_style(value)
    lines = [f"{key}: {kind}" for key, kind in zip(keys_of(value), _kinds(value), strict=False)]
    visible_lines = list(fitting(lines, characters))
    note = [_omission_note(len(lines) - len(visible_lines), len(lines))] if len(visible_lines) < len(lines) else []
    levels = [f"{label}: {_type(series)}" for label, series in _levels(value)]
    index = ["Index:", *levels] if levels else []
    return "\n".join([f"{size(value)}. Columns and types:", *visible_lines, *note, *index])


def table(value: Any, characters: int, rows: int | None, write: WriteCell) -> str:
    """Return a frame or series as text: its index, its columns, and its first `rows` rows, or as many rows as fit."""
    value = without_style(value)
    frame = _narwhals_frame(value)
    if not hasattr(frame, "shape"):  # a lazy frame: computing it could take hours
        return columns(value, characters)
    whole = cast("nw.DataFrame[Any]", frame if hasattr(frame, "columns") else frame.alias("0").to_frame())
    total, width = whole.shape
    step = -(-total * max(width, 1) // SAMPLE_CELLS)
    part = whole[rows_of(total, step)] if step > 1 else whole
    keys = keys_of(value)
    levels = [_column(label, series) for label, series in _levels(value, part)]
    # The last columns come first, so that there is room for them.
    order = dict.fromkeys([*range(max(width - LAST_COLUMNS, 0), width), *range(width)])
    names = whole.columns  # read once, because it is slow if there are many columns
    rest = (_column(keys[place], part[names[place]]) for place in order)
    column_rows = dict(zip(order, fitting(rest, characters // 2 - sum(map(len, levels))), strict=False))
    places = sorted(column_rows)
    head = whole.head(rows if rows is not None else MOST_ROWS).select([names[place] for place in places])
    lines = _row_lines(value, head, [keys[place] for place in places], write)
    share = None if rows is not None else characters // ROWS_SHARE
    length = sum(map(len, levels)) + sum(map(len, column_rows.values()))
    return "\n".join(
        [
            f"{size(value)}.{_about(value, keys, step)}",
            *(("", *table_head("index level", "type", "missing", "values"), *levels) if levels else ()),
            *(("", *table_head("column", "type", "missing", "values")) if places else ()),
            *(column_rows[place] for place in places),
            *(("", _omission_note(width - len(places), width)) if len(places) < width else ()),
            *(_shown_rows(lines, total, characters - length, share) if total and places else ()),
        ]
    )


def _about(value: Any, keys: Sequence[str], step: int) -> str:
    """Return sentences about the keys of the columns, and about the sample of rows if it is not the whole frame."""
    names = [_key(name) for name in getattr(_column_index(value), "names", ()) if name is not None]
    twice = [key for key, number in Counter(keys).items() if number > 1]
    return "".join(
        [
            f" Levels of the column keys: {', '.join(names)}." if names else "",
            f" Keys of several columns: {', '.join(twice[:MOST_DISTINCT])}." if twice else "",
            f" Missing values, ranges and counts are those of 1 row in {step:,}." if step > 1 else "",
        ]
    )


def _row_lines(value: Any, head: "nw.DataFrame[Any]", keys: Sequence[str], write: WriteCell) -> Iterator[str]:
    """Yield the lines of a Markdown table of rows: two head lines, then a line for each row.

    In each line, the cells of the index levels stand first.
    """
    levels = _levels(value, head)
    yield from table_head(*(INDEX if label == NO_NAME else f"{label} {INDEX}" for label, _ in levels), *keys)
    index = zip(*(series.to_list() for _, series in levels), strict=True) if levels else repeat(())
    for row in zip(index, head.iter_rows(), strict=False):
        yield table_row(_cell(cell, write) for cell in chain(*row))


def _shown_rows(lines: Iterator[str], total: int, room: int, share: int | None) -> Iterator[str]:
    """Yield a title, the two head lines, and the rows that fit into `room` characters.

    The rows of a long frame get only `share` characters, unless `share` is None.
    """
    head = list(islice(lines, 2))
    rows = list(fitting(lines, room, FEWEST_ROWS))
    if share is not None and (len(rows) < total or total > WHOLE):
        rows = list(fitting(rows, share, FEWEST_ROWS))
    title = "All rows" if len(rows) == total else f"The first {plural(len(rows), 'row')} of {total:,}"
    yield from ("", f"{title}:", "", *head, *rows)


def rows_of(total: int, step: int) -> list[int]:
    """Return the positions of the first row, the last row, and one random row from each group of `step` rows.

    The positions are the same in each call. They are not evenly spaced, because in periodic data such rows could all be
    alike.
    """
    draw = Random(0).random  # noqa: S311  (it hides nothing)
    positions = (start + int(draw() * step) for start in range(1, total - step, step))
    return list(dict.fromkeys([0, *positions, total - 1]))


# -- columns -----------------------------------------------------------------------------------------


def keys_of(value: Any) -> list[str]:
    """Return the keys of the columns as code must write them, but without the quotes around plain names."""
    if (index := _column_index(value)) is not None:
        return [_key(name) for name in index]
    if hasattr(frame := _narwhals_frame(value), "collect_schema"):
        return list(map(_key, frame.collect_schema().names()))
    return [_key(frame.name) if frame.name not in (None, "") else NO_NAME]


def _column_index(value: Any) -> Any:
    """Return the column index of a pandas frame, whose keys can be any values. Return None for any other value."""
    pandas = sys.modules.get("pandas")
    return value.columns if pandas is not None and isinstance(value, pandas.DataFrame) else None


def _key(name: Any) -> str:
    """Return a key as text: a plain name as it is, any other key as Python writes it, so that 1 and "1" differ."""
    is_text = issubclass(type(name), str)
    return single_line(name if is_text and _PLAIN_NAME.fullmatch(name) else _written_key(name), LONGEST_CELL)


def _written_key(name: Any) -> str:
    """Return a key as Python writes it. For an object of a user's class, return the name of the class.

    The repr of such an object would run code of the user.
    """
    kind = cast("type[Any]", type(name))
    if kind is tuple:
        parts = list(map(_written_key, name))
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    name = name.item() if _is_scalar_of_numpy(name) and name.dtype.kind not in "mM" else name
    return repr(name) if kind.__module__.partition(".")[0] in _KEYS else f"<{kind.__name__}>"


def _kinds(value: Any) -> list[str]:
    """Return the types of the columns, with the names that the library of the frame uses."""
    frame = _narwhals_frame(value)
    native: Any = frame.to_native()
    kind = cast("type[Any]", type(native))  # the type, because attributes of a pandas frame can be columns
    if not hasattr(frame, "collect_schema"):
        return [_type(frame)]
    if hasattr(kind, "collect_schema"):  # polars: `dtypes` of a lazy frame can be slow
        kinds = native.collect_schema().values()
    elif hasattr(kind, "dtypes"):
        kinds = native.dtypes
    else:
        kinds = native.schema.types if hasattr(kind, "schema") else frame.collect_schema().values()
    return list(map(_kind, kinds))


def _kind(dtype: Any) -> str:
    return single_line(str(dtype), LONGEST_CELL) + (", ordered" if getattr(dtype, "ordered", False) is True else "")


def _type(series: "nw.Series[Any]") -> str:
    native: Any = series.to_native()
    dtype = getattr(native, "dtype", None)
    return _kind(dtype if dtype is not None else getattr(native, "type", series.dtype))


def _levels(value: Any, part: "nw.DataFrame[Any] | None" = None) -> "list[tuple[str, nw.Series[Any]]]":
    """Return the levels of a pandas index for the rows in `part`.

    Return an empty list if there is no such index, or if the index only counts the rows.
    """
    import narwhals as nw

    index: Any = getattr(value, "index", None)
    if not (hasattr(index, "names") and hasattr(index, "get_level_values")):
        return []
    if type(index).__name__ == "RangeIndex" and (index.name, index.start, index.step) == (None, 0, 1):
        return []
    native: Any = part.to_native() if part is not None else value
    index = native.index
    names = [_key(name) if name is not None else NO_NAME for name in index.names]
    levels = (index.get_level_values(place) for place in range(len(names)))
    return [
        (name, nw.from_native(level.to_series(index=range(len(level))), series_only=True))
        for name, level in zip(names, levels, strict=True)
    ]


def _column(label: str, series: "nw.Series[Any]") -> str:
    """Return a table row about a column: its type, its missing values, and its range or distinct values.

    Values of a user's types are not compared.
    """
    kind = _type(series)
    try:
        missing, values = _statistics(series)
    except Exception:  # noqa: BLE001  (of whichever library: a type that it cannot compare, for example)
        missing, values = "", ""
    # The text of an Enum type lists the categories, which `values` shows already.
    kind = kind.partition("(")[0] if kind.startswith("Enum(") and values else kind
    return table_row((label, kind, missing, values))


def _statistics(series: "nw.Series[Any]") -> tuple[str, str]:
    dtype, whole = series.dtype, len(series)
    series = series.drop_nulls()
    if dtype.is_float():  # count NaN as missing, which it is in pandas but not in polars
        series = series.filter(~series.is_nan())
    missing = str(whole - len(series))
    if not len(series):
        return missing, ""
    if dtype.is_numeric() or dtype.is_temporal():
        return missing, _range(series.min(), series.max())
    native: Any = series.to_native()
    if str(getattr(native, "dtype", "")).startswith(("period", "interval")):  # pandas types, not known to narwhals
        return missing, _range(native.min(), native.max())
    if not str(dtype).startswith(("String", "Categorical", "Enum", "Boolean", "Object", "Unknown")):
        return missing, ""
    # Narwhals does not keep the order of the categories. A polars Categorical has no order.
    categories: Any = getattr(getattr(native, "dtype", None), "categories", None)
    return missing, values_of(series.to_list(), categories.to_list() if hasattr(categories, "to_list") else ())


def values_of(values: Sequence[Any], categories: Sequence[Any] = ()) -> str:
    """Return the distinct values with their counts, or the range of the values. For a user's own types, return "".

    `categories` are in order, and can include some that do not occur in `values`.
    """
    kinds = set(map(type, values)) | set(map(type, categories))
    if len(kinds) == 1 and kinds <= _RANGE_TYPES:
        return _range(min(values), max(values))
    if not kinds <= _COUNTABLE_TYPES:
        return ""
    counts = Counter(values)
    if len(categories) <= MOST_DISTINCT and counts.keys() <= set(categories):
        counts = Counter({category: counts[category] for category in categories})
        return _value_counts(counts.items(), len(counts))
    if len(counts) <= MOST_DISTINCT:
        return _value_counts(counts.most_common(), len(counts))
    if len(counts) == len(values):
        return f"{len(counts):,} distinct: {', '.join(map(_quote, values[:EXAMPLES]))}, …"
    return f"{len(counts):,} distinct, most often {_value_counts(counts.most_common(MOST_DISTINCT), MOST_DISTINCT)}"


def _value_counts(counts: Iterable[tuple[Any, int]], number: int) -> str:
    """Return values with their counts, as many as fit into 200 characters (LONGEST_VALUES)."""
    texts = list(fitting((f"{_quote(value)} ({count:,})" for value, count in counts), LONGEST_VALUES))
    return ", ".join([*texts, *([f"… {number - len(texts)} more"] if len(texts) < number else [])])


def _quote(value: Any) -> str:
    return repr(value if len(str(value)) <= LONGEST_VALUE else f"{str(value)[:LONGEST_VALUE]}…")


def _range(low: Any, high: Any) -> str:
    return f"{_cell(low, str)} to {_cell(high, str)}"


# -- arrays ------------------------------------------------------------------------------------------


def array(value: Any, write: WriteCell) -> str:
    """Return an array as text: shape, type, range, outer items. A structured array has a range for each field."""
    import numpy as np

    part, every = sample(value)
    if value.dtype.names:
        fields = (f"\n{name}: {value.dtype[name]}{_spread(part[name])}" for name in value.dtype.names[:MOST_ROWS])
        spread = every + "".join(fields)
    else:
        spread = f"{text}{every}" if (text := _spread(part)) else ""
    if value.dtype.hasobject:  # the items are objects of the user, and their repr may never end
        corner = write(value[(slice(CORNER),) * value.ndim].tolist())
    else:
        with np.printoptions(threshold=4 * CORNER**2, edgeitems=CORNER):
            corner = str(value)
    return f"{size(value)}{spread}\n{corner}"


def sample(value: Any) -> tuple[Any, str]:
    """Return an array, or about 200,000 items of a large one (SAMPLE_CELLS), and a phrase about this sample."""
    import numpy as np

    step = max(1, round((value.size / SAMPLE_CELLS) ** (1 / max(value.ndim, 1))))
    sides = (rows_of(side, step) if side > step else range(side) for side in value.shape)
    return (value[np.ix_(*sides)], f" (of 1 item in {step:,} of each side)") if step > 1 else (value, "")


def _spread(value: Any) -> str:
    missing, values = array_statistics(value)
    label = "not finite" if value.dtype.kind == "f" else "missing"
    return f"{f', {values}' if values else ''}{f', {missing:,} {label}' if missing else ''}"


def array_statistics(value: Any) -> tuple[int, str]:
    """Return the number of missing or infinite items of an array, and its range and mean, or its distinct values."""
    import numpy as np

    kind = value.dtype.kind
    if kind not in "iufmM":
        return 0, values_of(value.ravel().tolist()) if kind in "bUSTO" else ""
    present = np.ma.compressed(value)  # without the masked items of a masked array
    present = present[np.isfinite(present)] if kind in "fmM" else present
    missing = value.size - present.size
    if not present.size:
        return missing, ""
    mean = f", mean {_number(float(present.mean()))}" if kind in "iuf" else ""
    return missing, f"{_range(present.min(), present.max())}{mean}"


# -- cells -------------------------------------------------------------------------------------------


def scalar(value: Any) -> str | None:
    """Return a scalar of NumPy, pandas or pyarrow as text without its type, such as "2", or None for other values."""
    kind = cast("type[Any]", type(value))
    package = kind.__module__.partition(".")[0]
    if package == "pyarrow" and hasattr(kind, "as_py") and not value.type.num_fields:  # not a list, which can be long
        value = value.as_py()
    elif not (package == "pandas" and kind.__name__ in _SCALARS) and not _is_scalar_of_numpy(value):
        return None
    elif issubclass(kind, (str, bytes)):
        value = value.item()
    return repr(value) if type(value) in (str, bytes) else _date_text(value)


def _is_scalar_of_numpy(value: Any) -> bool:
    """Return whether a value is a NumPy number, text or time, or a NumPy array without dimensions."""
    is_single = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return is_single and not value.dtype.hasobject


def _packages(value: Any) -> set[str]:
    if issubclass(type(value), type):  # not `isinstance`, which would read `__class__` of a proxy
        return set()
    return {kind.__module__.partition(".")[0] for kind in type(value).__mro__}


def _narwhals_frame(value: Any) -> Any:
    """Return a value as a narwhals frame or series, or None if narwhals cannot read it."""
    import narwhals as nw

    if _column_index(value) is not None:  # narwhals needs unique texts as column names
        value = value.set_axis(list(map(str, range(value.shape[1]))), axis=1)
    frame = cast("Any", nw).from_native(value, pass_through=True, allow_series=True)
    return cast("Any", frame) if isinstance(frame, (nw.DataFrame, nw.LazyFrame, nw.Series)) else None


def _cell(value: Any, write: WriteCell) -> str:
    if _is_scalar_of_numpy(value) and value.dtype.kind not in "mM":
        value = value.item()
    match value:
        case _ if value is None or type(value).__name__ in MISSING:
            return ""
        case float():
            return "" if value != value else _number(value)  # noqa: PLR0124  (NaN)
        case str():
            return single_line(value, LONGEST_CELL)
        case bool() | int() | Decimal() | date() | time() | timedelta():
            return _date_text(value)
        case _:
            return single_line(_date_text(value) if scalar(value) is not None else write(value), LONGEST_CELL)


def _date_text(value: Any) -> str:
    """Return a value as text. A time at midnight is written as the date."""
    is_time = isinstance(value, datetime) or getattr(getattr(value, "dtype", None), "kind", "") == "M"
    return _MIDNIGHT.sub("", str(value)) if is_time else str(value)


def _number(value: float) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def table_row(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cell.replace('|', _BAR) for cell in cells)} |"


def table_head(*names: str) -> Sequence[str]:
    """Return the two head lines of a Markdown table."""
    return table_row(names), table_row(["---"] * len(names))


def fitting(lines: Iterable[str], characters: int, least: int = 1) -> Iterator[str]:
    """Yield as many lines as fit into `characters` characters, but at least the first `least` lines."""
    for number, line in enumerate(lines):
        characters -= len(line) + 1
        if characters < 0 and number >= least:
            return
        yield line


def _omission_note(number: int, whole: int) -> str:
    return f"{number:,} of the {whole:,} columns are left out: .columns and .dtypes show them all."
