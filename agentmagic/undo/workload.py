"""The kinds of work of methods and functions: the work of each, and what is certain of its result.

The unit is the work for one element of a Python container, 0.1 to 0.3 µs on a machine of 2026. Weights were measured
with pandas 3.1, polars 2.1 and NumPy 2.4 on frames of a million rows and twenty columns. Each kind takes the object of
a method, or the first argument of a function, and the other arguments.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, log2
from typing import cast

from agentmagic.undo.extents import (
    BOOL,
    FLOAT,
    HELD,
    NUMBER,
    NUMBERS,
    OF_TEXT,
    OTHER,
    PLAIN,
    POLARS,
    Extent,
    join,
    list_of,
    range_of,
    repeated,
    text_of,
    unknown,
    whole,
)
from agentmagic.undo.operators import Bounded, broadcast, combine, head_of, item_of, repeat, turned
from agentmagic.undo.texts import formatted, matching_work, raised, shown, shown_size

MOST_ELEMENTS = 10_000_000
"""Work above which a program is asked about: ten million elements where nothing better is known, 1 to 3 s."""
_PERIODS = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "D": 86400, "B": 86400,
    "W": 6e5, "w": 6e5, "ME": 2.4e6, "MS": 2.4e6, "M": 2.4e6, "mo": 2.4e6, "QE": 7e6, "QS": 7e6, "Q": 7e6, "q": 7e6,
    "YE": 3e7, "YS": 3e7, "Y": 3e7, "y": 3e7,
}  # fmt: skip
"""Lengths of the periods that texts such as "2h" name in pandas and polars, in seconds, rounded down."""
_YEAR, _YEARS = 3.2e7, 10_000
"""Seconds of a year, and the years that a calendar can span if its ends are not known."""


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a call, without the first one of a function."""

    args: tuple[Extent, ...] = ()
    names: Mapping[str, Extent] = field(default_factory=dict[str, Extent])

    @property
    def all(self) -> tuple[Extent, ...]:
        """All arguments."""
        return *self.args, *self.names.values()

    @property
    def size(self) -> float:
        """An upper bound of the number of elements in all arguments."""
        return sum(one.size for one in self.all)

    @property
    def work(self) -> float:
        """The work of looking at each element of each argument once."""
        return sum(one.work for one in self.all)

    @property
    def numbers(self) -> float:
        """An upper bound of the product of all whole numbers in all arguments, such as a new shape."""
        return times(self.all)

    def without_first(self) -> tuple[Extent, "Given"]:
        """Return the first argument and the others. Without one, all that is given by name stands for it."""
        if self.args:
            return self.args[0], Given(self.args[1:], self.names)
        return join(self.names.values()) if self.names else OTHER, self

    def get(self, position: int, *names: str) -> Extent | None:
        """Return an argument by its position or name, or None."""
        if 0 <= position < len(self.args):
            return self.args[position]
        return next((self.names[name] for name in names if name in self.names), None)


Kind = Callable[[Extent, Given], Bounded]
NONE = Given()


def times(several: tuple[Extent, ...]) -> float:
    """Return an upper bound of the product of all whole numbers in these values."""
    result = 1.0
    for one in several:
        result *= raised(max(1.0, one.most), 1.0 if one.kind in NUMBERS or one.shape == () else max(1.0, one.length))
    return result


def converted(given: Given) -> float:
    """Return the work of polars to read arguments of other libraries, item by item."""
    return 20 * sum(one.size for one in given.all if one.kind not in POLARS | NUMBERS | {"text", "other"})


def hashed_again(length: float, bits: float) -> float:
    """Return the work of a set or dict with this many items: whole numbers over 61 bits can all have the same hash."""
    return raised(length, 2) * PLAIN if bits > 64 else 0.0  # noqa: PLR2004


def _letters(given: Given) -> float:
    """Return how many characters the items of an array have by its type, such as "U100"."""
    to = given.names.get("dtype")
    if to is None or to.kind == "type":
        return 1.0
    return max([1.0, *map(float, re.findall(r"\d+", to.exact))]) if isinstance(to.exact, str) else inf


def as_array(one: Extent) -> Extent:
    """Return the extent of a value after a function of NumPy made an array of it."""
    if one.kind == "frame":
        return turned(one, "array")[1]
    if one.is_held or one.shape == () or one.kind == "text":
        return one
    is_plain = one.inner is not None and one.inner.kind in NUMBERS - {"exact"} and one.bits <= 64  # noqa: PLR2004
    return replace(one, kind="array" if is_plain else "", weight=PLAIN if is_plain else 1.0, inner=replace(NUMBER, bits=one.bits) if is_plain else None, shape=one.shape if is_plain else None)


# -- passes over the elements --------------------------------------------------------------------------------


def _pass(of: Extent, given: Given, factor: float = 1.0) -> Bounded:
    """Look at each element once. The result holds nothing but elements of what is given, in another form."""
    cell = max((one.size for one in given.all if one.shape == () or one.kind == "text"), default=0.0)
    size, bits = of.size + given.size + of.cells * cell, max(one.bits for one in (of, *given.all))
    weight = max([of.weight, *(one.weight for one in given.all if one.shape != () and one.kind != "text")])
    kind = of.kind if of.kind in POLARS else ""
    inner = of.inner if of.is_plain and weight < 1 else None
    columns = of.columns if of.kind == "groups" else None
    shape = of.shape if not given.all else None
    return factor * (of.work + given.work), Extent(kind, shape, size, bits, weight, inner, columns=columns)


def _subset(of: Extent, given: Given, factor: float = 1.0) -> Bounded:
    """Choose some of the cells."""
    kind = of.kind if of.kind in HELD or of.kind == "text" else ""
    return factor * (of.work + given.work), replace(of, kind=kind, labels="", exact=None)


def _equal_rows(of: Extent, given: Given, *, is_truth: bool = False) -> Bounded:
    """Find equal rows by all columns of a frame, or by those that are named."""
    named = given.get(0, "subset")
    columns = of.width if named is None else min(of.width, max(1.0, named.length if named.kind == "list" else 1.0))
    work = given.work + of.work * (2.5 if of.width <= 1 else 1 + 4 * columns / of.width)
    kind = "polars series" if of.kind in POLARS else "series"
    truth = Extent(kind, (of.length,), of.length, 1, PLAIN, BOOL, labels=of.labels)
    return work, truth if is_truth else _subset(of, given)[1]


def _sort(of: Extent, given: Given) -> Bounded:
    """Sort, n log n. Texts are compared up to the first difference."""
    each = 1.0 if of.weight < 1 or of.inner is None or of.inner.kind in NUMBERS else 1 + of.inner.size / 20
    work = of.length * log2(2 + of.length) * 0.5 * max(of.weight, PLAIN) * each
    kind = of.kind if of.kind in HELD and not given.names.keys() & {"return_counts", "return_index"} else ""
    size = of.size + given.size
    result = replace(of, kind=kind, shape=of.shape if not given.all else None, size=size, labels="", exact=None)
    kept = replace(of, kind=kind, labels="", exact=None) if of.kind in ("frame", *POLARS) else result
    return work + of.work + given.work, kept


def _cells(of: Extent, given: Given, factor: float = 1.0) -> Bounded:
    """Change each cell by itself, or fill it with a value that is given."""
    others = [one for one in given.all if one.shape != () and one.kind != "text" and one.labels != of.labels]
    plain = of.is_plain and all(one.kind in NUMBERS or one.is_plain or one.kind == "other" for one in given.all)
    cell = 0 if plain else max((one.size for one in given.all), default=0)
    size, bits = of.size + of.cells * cell, max(one.bits for one in (of, *given.all))
    work = of.work + given.work + _texts(of)
    if others and not (of.kind == "array" and all(one.kind in ("array", "list") for one in others)):
        size *= max(1.0, *(one.length for one in others if one.kind in HELD), 1.0)
        return factor * (work + size * of.weight), Extent("", None, size, bits, of.weight)
    if of.kind in NUMBERS or of.kind == "text":
        return work, replace(of, exact=None)
    kind = of.kind if of.kind in HELD else ""
    inner = of.inner if plain else None
    columns = of.columns if not given.all else None
    return factor * work, replace(of, kind=kind, size=size, bits=bits, inner=inner, columns=columns, keys=None, exact=None)


def _texts(of: Extent) -> float:
    """Return the number of texts in a column, each of which costs as much as an element of Python."""
    return of.cells if of.inner is not None and of.inner.kind == "text" else 0.0


def _numbers(of: Extent, given: Given) -> Bounded:
    """Calculate a number for each number."""
    if of.kind in NUMBERS and not given.all:
        return of.work, FLOAT
    work, result = _cells(of, given)
    return work + 0.3 * of.cells, replace(result, kind="" if result.kind in NUMBERS else result.kind, bits=2 * result.bits, size=2 * result.size if not of.is_plain else result.size)


def _truth(of: Extent, given: Given, factor: float = 1.0) -> Bounded:
    """Find out a truth for each cell, by itself or with a table of values."""
    work = factor * (of.work + given.work) + _texts(of)
    if not of.is_held:
        return work, BOOL if of.kind in NUMBERS | {"text"} else unknown(of.cells, 1)
    columns = {name: _truth(one, NONE)[1] for name, one in of.columns.items()} if of.columns else None
    kind = of.kind if of.kind in HELD else ""
    return work, Extent(kind, of.shape, of.cells, 1, PLAIN, BOOL, columns=columns, labels=of.labels)


def _running(of: Extent, given: Given) -> Bounded:
    """Make a sum or product of all items up to each one. Those of texts and long numbers grow."""
    work, result = _cells(of, given)
    if of.is_plain or of.kind in ("groups", *POLARS):
        return work, result
    size = of.length * (of.size + of.bits * of.length / 64)
    return work + size, replace(result, size=size, bits=of.bits * of.length, inner=None, columns=None, weight=1.0)


def _reduction(of: Extent, given: Given, factor: float = 1.0) -> Bounded:
    """Make one value of each row, column or group."""
    work = factor * (of.work + given.work)
    if of.weight >= 1 and (of.inner is None or of.inner.kind not in NUMBERS - {"exact"}):  # sums of texts are copied
        work += of.length * of.size * 0.01
    if of.weight >= 1:
        bits = of.bits * of.length
        return work + of.length * bits / 640, unknown(of.size + bits / 64, bits)
    if of.kind in ("polars frame", "polars expression", "polars groups", "groups"):
        kind = {"groups": "", "polars groups": "polars frame"}.get(of.kind, of.kind)
        return work, replace(of, kind=kind, labels="", exact=None)
    if of.shape is not None and len(of.shape) == 1:
        return work, NUMBER if of.is_plain else unknown(of.size)
    axis = given.get(0, "axis")
    if of.kind in ("frame", "array") and len(of.shape or ()) == 2 and (of.kind == "frame" if axis is None else axis.exact == 0):  # noqa: PLR2004
        kind, inner = "series" if of.kind == "frame" else "array", NUMBER if of.is_plain else unknown(of.cell_size)
        return work, Extent(kind, (of.width,), of.width * inner.size, of.bits, PLAIN if of.is_plain else 1.0, inner)
    return work, Extent("", None, of.size, of.bits, of.weight, of.inner)


def _product_of_items(of: Extent, given: Given) -> Bounded:
    work, result = _reduction(of, given)
    if of.is_plain or of.kind in POLARS:
        return work, result
    bits = sum(one.bits * max(1.0, one.length) for one in (of, *given.all))
    return work + raised(bits / 30, 2) * 0.02, unknown(1 + bits / 64, bits)


def _distinct(of: Extent, given: Given) -> Bounded:
    """Count distinct values."""
    work, result = _reduction(replace(of, size=of.cells, weight=PLAIN, inner=NUMBER), given)
    return 2 * of.work + work, result


def _count(of: Extent, given: Given) -> Bounded:
    """Count or find items, or what matches a pattern in each text of a column."""
    if of.is_held:
        return _match(of, given) if given.args and of.kind not in POLARS else _reduction(of, given)
    sought = max([1.0, *(one.size for one in given.args[:1])])
    return 2 * (of.work + given.work) + of.length * sought * 0.02, whole(64)


def _description(of: Extent, given: Given) -> Bounded:
    """Sort each column; of groups, 0.3 ms for each."""
    if of.kind in ("groups", "") or of.shape is None:
        return of.work + of.length * 3000, unknown(of.size * 10)
    kind, rows = of.kind if of.kind in ("frame", "polars frame") else "", 13 + given.size
    inner = NUMBER if of.is_plain else unknown(of.cell_size)
    size = rows * of.width * (1 + inner.size)
    return 2.5 * of.work + of.width * 1000, Extent(kind, (rows, of.width), size, of.bits, PLAIN if of.is_plain else 1.0, inner, of.keys)


def _pairs(of: Extent, given: Given) -> Bounded:
    """Compare each column with each, 5 ns for a row and a pair; of arrays, each row."""
    if of.kind == "groups" or of.shape is None:
        return (of.length * 3000 + of.size) * of.width, unknown(of.size * of.width)
    if len(of.shape) == 1:
        work, result = of.work + given.work, FLOAT if of.kind == "series" else Extent("array", (2, 2), 4, 64, PLAIN, NUMBER)
        return work + (0 if all(one.labels == of.labels or one.kind not in HELD or of.kind == "array" for one in given.all) else of.length * given.size), result
    lines = of.width if of.kind == "frame" else max(of.length, of.width)
    work = (of.work + given.work) * (lines + 1) * PLAIN
    return work, Extent(of.kind if of.kind == "frame" else "", (lines, lines), lines * lines, 64, PLAIN, FLOAT, of.keys)


def _quantile(of: Extent, given: Given) -> Bounded:
    """Find the values at some places of the order."""
    work, result = _reduction(of, given)
    asked = max([1.0, *(one.length for one in given.all)])
    return 5 * work + asked * of.width, result if asked <= 1 else Extent("", None, asked * result.size, 64, of.weight, result.inner)


def _head(of: Extent, given: Given) -> Bounded:
    number = given.get(0, "n")
    return 1.0 + given.work, head_of(of, 10.0 if number is None else number.most)


def _shape(of: Extent, given: Given) -> Bounded:
    """Give the same elements another shape or other labels."""
    labels = given.size * (of.length + of.width) if given.size > 100 else 0  # noqa: PLR2004
    kind = of.kind if of.kind in ("array", *POLARS) else ""
    return of.work + given.work + labels, replace(of, kind=kind, shape=None, size=2 * of.size + 3 * of.length + given.size + labels, keys=None, columns=None, labels="", exact=None)


def _named(of: Extent, given: Given) -> Bounded:
    """Give a frame other labels, also from its columns, or its labels as columns."""
    work, result = _shape(of, given)
    if of.kind != "frame" or of.shape is None:
        return work, result
    return work, replace(result, kind="frame", shape=(of.length, 2 * of.width + 10))


def _convert(of: Extent, given: Given, factor: float = 15.0) -> Bounded:
    """Make values of another type. Objects and texts cost 1.5 µs each, dates in an unknown form 50 µs."""
    to, form = given.get(0, "dtype"), given.get(9, "format")
    name = str(to.exact) if to is not None and to.kind == "text" else ""
    if of.is_plain and to is not None and (to.kind == "type" or re.match("int|float|bool|uint|Int|Float", name)):
        if not name or name[-1:].isdigit() or name.endswith(("t", "l")):
            is_text = to.kind == "type" and to.exact is not True
            return (of.work, replace(of, columns=None, inner=NUMBER)) if not is_text else (of.cells * factor, replace(of, kind=of.kind, inner=None, columns=None, size=of.size * 30, weight=1.0))
    if form is not None and "%" in str(form.exact):
        factor = min(factor, 15.0)
    kind = of.kind if of.kind in HELD else ""
    return of.cells * (1 if of.is_plain and factor > 15 else factor) + of.work + given.work, Extent(kind, of.shape, of.size * 30, of.bits, 1.0, labels=of.labels)  # noqa: PLR2004


def _dates(of: Extent, given: Given) -> Bounded:
    """Read dates from texts."""
    work, result = _convert(of, given, 500.0)
    plain = Extent(of.kind if of.kind == "series" else "", of.shape, of.cells, 64, PLAIN, NUMBER, labels=of.labels)
    return work, plain if of.shape != () and of.kind != "text" else NUMBER


def _objects(of: Extent, given: Given) -> Bounded:
    """Make a Python object of each cell."""
    inner, is_list = of.inner, len(of.shape or ()) == 1 and of.kind in ("series", "array", "polars series")
    size = of.size * 2 + of.length
    if is_list and inner is not None:
        inner = replace(inner, kind="" if inner.kind == "number" else inner.kind, exact=None)
        return 4 * of.size, Extent("list", of.shape, size, of.bits, inner=inner)
    return 4 * of.size + given.work, unknown(size, of.bits)


def _rows(of: Extent, given: Given) -> Bounded:
    """Make a series of each row, 20 µs for each."""
    return of.length * 200 + _objects(of, given)[0], repeated(unknown(of.size), of.length)


def _array(of: Extent, given: Given) -> Bounded:
    """Make an array, or return the values of a dict."""
    if of.kind == "dict" and of.inner:
        return 1.0, repeated(of.inner, of.length)
    if given.names or given.args:
        work, result = _convert(of, given)
        return work * _letters(given), replace(result, size=result.size * _letters(given))
    return turned(of, "array") if of.is_held or of.shape == () else (of.size, replace(of, exact=None))


def _members(of: Extent, given: Given) -> Bounded:
    """Make pairs of keys and values, or of the name and the column of a frame."""
    if of.kind == "dict" and of.inner and of.keys:
        return of.length, repeated(list_of([of.keys, of.inner]), of.length)
    if of.kind == "frame":
        inner = join(of.columns.values()) if of.columns else replace(of, kind="series", shape=(of.length,))
        pair = list_of([of.keys or unknown(of.size), inner])
        return of.width * 100, Extent("list", (of.width,), of.size + of.width, of.bits, inner=pair)
    return 2 * of.size + 1, unknown(of.size * 2 + 1, of.bits)


def _keys(of: Extent, _given: Given) -> Bounded:
    return 1.0, repeated(of.keys, of.length) if of.keys and of.kind == "dict" else unknown(of.size, of.bits)


def _get(of: Extent, given: Given) -> Bounded:
    work, found = item_of(of, given.args[0] if given.args else OTHER)
    return work + given.work, join([found, given.args[1] if len(given.args) > 1 else OTHER])


# -- what grows with numbers or products ---------------------------------------------------------------------


def _repeat(of: Extent, given: Given) -> Bounded:
    """Make as many elements as numbers say: repetitions, widths of texts, steps."""
    default = 8.0 if of.kind == "text" and not given.all else 1.0
    if of.kind in NUMBERS:
        of = Extent("array", (1.0,), 1.0, of.bits, PLAIN, NUMBER)
    work, result = repeat(replace(of, size=of.size + of.cells), max(default, given.numbers))
    return of.work + given.work + 5 * work, result


def _made(of: Extent, given: Given, power: float = 1.0) -> Bounded:
    """Make a new array of as many elements as the first argument says; the others are its values."""
    size = raised(times((of,)), power) * max([1.0, *(one.size for one in given.all)])
    size *= _letters(given)
    is_plain = all(one.kind in NUMBERS for one in given.all)
    shape = (size,) if of.kind in NUMBERS and power == 1 else (times((of,)),) * 2 if power > 1 else None
    return size * (0.5 if is_plain else 1.0), Extent("array", shape, size, 64, PLAIN if is_plain else 1.0, NUMBER if is_plain else None)


def _diagonal(of: Extent, given: Given) -> Bounded:
    size = raised(of.size + given.numbers, 2) if len(of.shape or ()) <= 1 else of.size
    return size, Extent("", None, size, of.bits, of.weight, of.inner)


def _spaced(of: Extent, given: Given) -> Bounded:
    number = given.get(1, "num")
    size = (50.0 if number is None else number.most) * max([1.0, of.size, *(one.size for one in given.args[:1])])
    return size, Extent("array", (size,) if of.kind in NUMBERS else None, size, 64, PLAIN, NUMBER)


def _arange(of: Extent, given: Given) -> Bounded:
    """Bound `arange`: its end divided by its step, if the step is known."""
    step = given.get(1, "step")
    ends = (of, *given.args[:1], *(one for name, one in given.names.items() if name in ("start", "stop")))
    least = 1.0 if step is None or step.kind == "int" else abs(step.exact) if isinstance(step.exact, float) else 0.0
    length = sum(one.most for one in ends) / least + 1 if least and all(one.kind in NUMBERS for one in ends) else inf
    return length, Extent("array", (length,), length, 64, PLAIN, NUMBER)


def _elements(of: Extent, given: Given) -> Bounded:
    """Make as many elements as the numbers inside say."""
    size = of.size * of.most + given.numbers
    return size, unknown(size, of.bits)


def _bins(of: Extent, given: Given) -> Bounded:
    """Count by value, or by bins: 10 µs for each."""
    number = given.get(0, "bins", "q")
    bins = 10.0 if number is None else number.most if number.kind in NUMBERS | {""} else number.size
    work, result = _pass(of, NONE, 5.0)
    shape = of.shape if of.kind == "series" else None
    kind = of.kind if of.kind == "series" else "polars frame" if of.kind == "polars series" else ""
    return work + given.work + bins * 100, replace(result, size=of.size * 2 + of.cells + bins, kind=kind, shape=shape, inner=None, weight=min(1.0, max(of.weight, OF_TEXT)))


def _calendar(of: Extent, given: Given) -> Bounded:
    """Make a row for each period of a calendar: `periods` of them, or those of 10,000 years."""
    periods = given.get(9, "periods")
    period = next((one for one in given.args if one.kind == "text" and _seconds(one)), None)
    period = given.get(9, "freq", "rule", "every", "interval") or period
    ends = [one for one in (of, *given.args[:1], *(given.names[name] for name in ("start", "end") if name in given.names)) if one.kind == "text"]
    years = [int(year[0]) for one in ends if (year := re.match(r"\d{4}(?!\d)", str(one.exact)))]
    span = _YEAR * (max(years) - min(years) + 1 if len(years) > 1 else _YEARS)
    seconds = _seconds(period) if period is not None else 86400.0 if of.kind not in HELD else 0.0
    rows = periods.most if periods is not None else span / seconds if seconds else inf
    kind = "groups" if of.kind in HELD - POLARS else "series"
    size = of.size + rows * max(1.0, of.width)
    shape = (rows,) if kind == "series" else None
    return of.work + size * 0.5, Extent(kind, shape, size, 64, of.weight if kind == "groups" else PLAIN, of.inner if kind == "groups" else NUMBER)


def _seconds(period: Extent) -> float:
    """Return the length of a period such as "2h" in seconds, or 0 if it is not known."""
    found = re.fullmatch(r"(\d*)([A-Za-z]+)(-[A-Z]+)?", str(period.exact)) if period.kind == "text" else None
    return max(1, int(found[1] or 1)) * _PERIODS.get(found[2], 0) if found else 0.0


def _product(of: Extent, given: Given) -> Bounded:
    """Combine each row with each other one, unless `validate` allows one match for a row only."""
    if of.kind == "text":  # `join` of texts
        size = given.size + of.size * sum(one.length for one in given.args)
        return 1 + given.work + size * 0.02, text_of(size)
    checked = given.names.get("validate", OTHER).exact in ("1:1", "one_to_one", "1:m", "m:1", "one_to_many", "many_to_one")
    work, kind = of.work + given.work, of.kind if of.kind in POLARS else ""
    for other in [one for one in given.all if one.kind not in {"text", "other"} | NUMBERS and one.inner not in (None, BOOL) or one.is_held] or [of]:
        length = other.length if other.kind in HELD else other.size
        size = of.size * length + other.size * of.length
        if checked:
            size = (of.length + length) * (of.width + other.width) * (1 + of.cell_size + other.cell_size)
        of = Extent(kind, None, size, max(of.bits, other.bits) + 64, max(of.weight, other.weight))
    return work + of.size * of.weight, of


def _widened(of: Extent, given: Given) -> Bounded:
    """Make a column for each value of a column: rows times rows."""
    rows = max([of.length, *(one.length for one in given.all if one.is_held)])
    size = rows * rows * of.width
    inner = of.inner if of.is_plain else None
    return of.work * 2 + given.work + size * PLAIN, Extent(of.kind if of.kind in POLARS else "", None, size * (1 if inner else of.cell_size), 64, max(of.weight, PLAIN), inner)


def _melted(of: Extent, given: Given) -> Bounded:
    """Make a row of each cell or item, with the cells of the columns that stay."""
    size = of.size * (1 + max(of.width, 1.0 if of.is_plain else of.cell_size)) + given.size
    return of.work + given.work + size * of.weight, Extent("", None, size, of.bits, of.weight)


def _reindex(of: Extent, given: Given) -> Bounded:
    size = (of.size + sum(max(one.length, one.size) for one in given.all)) * (1 + of.width) * (1 if of.is_plain else of.cell_size)
    return of.work + given.work + size * of.weight, Extent("", None, size, of.bits, max(of.weight, *(one.weight for one in given.all), PLAIN))


def _stacked(of: Extent, given: Given) -> Bounded:
    """Put arrays or frames together. With labels on the other axis, rows can be multiplied."""
    inner = of.inner if of.kind == "list" and of.inner else of
    axis = given.get(0, "axis")
    size = of.size + given.size
    if inner.kind not in POLARS | {"array"} and (axis is not None and axis.exact != 0) and not inner.labels:
        size = raised(max(1.0, inner.length), max(1.0, of.length)) * max(1.0, inner.width) * of.length * inner.cell_size
    kind = inner.kind if inner.kind in POLARS | {"frame"} else ""
    weight = inner.weight
    return size * weight * 0.6 + given.size, Extent(kind, None, size, inner.bits, weight, inner.inner if inner.is_plain else None)


def _matrix(of: Extent, given: Given) -> Bounded:
    """Run an algorithm on a matrix, rows x columns x the smaller of both: up to 20 ns for each step."""
    least = raised(of.size, 0.5) if len(of.shape or ()) != 2 else min(of.length, of.width)  # noqa: PLR2004
    size = of.size + raised(max(of.length, of.width) if len(of.shape or ()) == 2 else of.size, 2) + given.size  # noqa: PLR2004
    return (of.size + given.size) * least * (0.2 if of.is_plain else 1) + size, Extent("", None, 3 * size, 64, PLAIN if of.is_plain else 1.0, NUMBER if of.is_plain else None)


def _fit(of: Extent, given: Given) -> Bounded:
    degree = given.get(1, "deg")
    terms = 2.0 if degree is None else degree.most + 1
    return (of.size + given.size) * terms * terms, Extent("array", (terms,), terms, 64, PLAIN, NUMBER)


def _where(of: Extent, given: Given) -> Bounded:
    work, result = of.work + given.work, of
    for other in given.args:
        more, result = broadcast("Add", result, other)
        work += more
    return work, result


def _operator(of: Extent, given: Given, operation: str) -> Bounded:
    others = [*given.args, *(one for name, one in given.names.items() if name == "other")]
    work, result = combine(operation, of, others[0]) if others else (inf, OTHER)
    if operation == "Eq" and max(one.weight for one in (of, *others)) >= 1:  # each object may be sought in all
        work += of.size * given.size
    return 2 * work + given.work, list_of([result, result]) if operation == "FloorDiv" and of.kind in NUMBERS else result


# -- groups and expressions ----------------------------------------------------------------------------------


def _groups(of: Extent, given: Given) -> Bounded:
    kind = "polars groups" if of.kind == "polars frame" else of.kind if of.kind in POLARS else "groups"
    return 2 * of.work + given.work, replace(of, kind=kind, labels="", exact=None)


def _parts(of: Extent, given: Given) -> Bounded:
    """Make a frame of each group, 100 µs each."""
    work, result = _pass(of, given)
    return work + of.length * 1000, result


def _imploded(of: Extent, given: Given) -> Bounded:
    """Make a list of all values, which can stand in each row."""
    work, result = _pass(of, given)
    return work, replace(result, size=inf) if of.kind == "polars expression" else result


def _expression(of: Extent, given: Given) -> Bounded:
    """Combine expressions of polars: each of their operations goes over all rows."""
    operations = sum(1 + one.size for one in given.all)
    if of.kind not in POLARS or of.kind == "polars expression":
        size = 1 + operations + (of.size if of.kind == "polars expression" else 0)
        return size, Extent("polars expression" if of.kind == "polars expression" else "", None, size, 128, PLAIN)
    size = of.size * (1 + operations)
    return size * max(of.weight, PLAIN), Extent("polars frame", None, size, 128, of.weight)


def _polars(of: Extent, given: Given) -> Bounded:
    size = 1 + of.size + given.size
    return size, Extent("polars expression", None, size, 128, PLAIN)


def aggregated(of: Extent, rounds: float, *, by_column: bool) -> Bounded:
    """Return the bound of methods that go over a frame, series or its groups some times, or over one column each."""
    work, _ = _reduction(of, NONE)
    if by_column and of.columns is not None:
        work = max([1.0, *(_reduction(one, NONE)[0] for one in of.columns.values())])
    size = of.size * (rounds if of.kind == "groups" or of.shape is None else 1)
    kind = "frame" if of.kind == "frame" else ""
    return work * max(1.0, rounds) * (3 if of.kind == "groups" else 1) + 1000, Extent(kind, None, size, of.bits, of.weight, of.inner if of.is_plain else None)


def queried(of: Extent, parts: float) -> Bounded:
    """Return the bound of an expression that pandas evaluates for each row."""
    each = max([PLAIN, *(one.weight for one in of.columns.values())]) if of.columns else of.weight
    return of.work + of.length * parts * each, replace(of, kind="frame" if of.kind == "frame" else "", labels="")


# -- texts ---------------------------------------------------------------------------------------------------


def _text(of: Extent, given: Given, factor: float = 150.0) -> Bounded:
    """Make a text of all elements. Numbers and texts that are given, such as an indent, can stand before each one."""
    each = max([1.0, *(max(one.most, one.size) for one in given.all)])
    size = (of.size + of.length + 50) * each
    return size * factor + raised(of.bits / 30, 2), text_of(size * 40 + of.bits)


def _shown(of: Extent, given: Given) -> Bounded:
    return shown(of) + given.work, text_of(shown_size(of))


def _split(of: Extent, given: Given) -> Bounded:
    """Make a list of parts of each text."""
    if of.kind == "text":
        return of.size * 0.5 + given.work, Extent("list", (of.size + 1,), of.size * 2 + 2, inner=text_of(of.size))
    work, _ = _match(of, given)
    return work + of.cells * 10 + of.size, unknown(of.size * 2 + 2)


def _match(of: Extent, given: Given) -> Bounded:
    """Search for a regular expression in each text of a column; polars does so in linear time."""
    if of.kind in POLARS:
        return of.work * 5 + given.work, replace(of, inner=None, columns=None, exact=None)
    patterns = [one for one in (*given.args[:1], *(one for name, one in given.names.items() if name in ("pat", "pattern"))) if one.kind != "other"]
    work = max([0.0, *(matching_work(one, of, of.cell_size) for one in patterns)])
    if any(one.kind != "flag" and one.most > 0 for name, one in given.names.items() if name == "flags") or len(given.args) > 1 and given.args[1].kind not in ("text", "other", "bool"):
        work = inf
    size = (of.size + 1) * (2 + max([0.0, *(one.size for one in patterns)]))
    return of.cells * 2 + of.work + work, Extent("", of.shape, size, 64, 1.0, labels=of.labels)


def _contains(of: Extent, given: Given) -> Bounded:
    return _match(of, given)[0] if given.all else inf, _truth(of, NONE)[1]


def _replace(of: Extent, given: Given) -> Bounded:
    """Replace parts of texts: each character can become the new text. In columns, parts can be regular expressions."""
    new = max([1.0, *(one.size for one in given.args[1:]), *(one.size for one in (*given.args[:1], *given.names.values()) if one.kind not in ("text", "bool"))])
    new = max([new, *(one.size for name, one in given.names.items() if name == "value")])
    if of.kind == "text":
        size = (of.size + 1) * new
        return of.work + given.work + size * 0.02, text_of(size)
    regex = given.names.get("regex")
    patterns = [one for one in (*given.args[:1], regex) if one is not None and one is not BOOL and one.kind != "bool"]
    work = max([0.0, *(matching_work(one, of, of.cell_size) for one in patterns)]) if regex is not None and regex.exact is not False else 0.0
    size = (of.size + of.cells) * new
    kind = of.kind if of.kind in POLARS else ""
    return of.work + given.work + work + size, Extent(kind, None, size, of.bits)


def _regex(of: Extent, given: Given, place: int = 0) -> Bounded:
    """Run a function of `re`. `place` is the position of the text after the pattern; before it stands a new text."""
    text, flags = given.get(place, "string"), given.names.get("flags")
    given_flags = [one for one in (*given.args[place + 1 :], flags) if one is not None]
    if text is None or any(one.kind not in ("flag", "other") for one in given_flags):
        return inf, OTHER
    work = matching_work(of, replace(text, kind="text"), text.size) if text.kind == "text" or text.size < inf else inf
    new = given.args[0] if place else of
    is_plain = isinstance(new.exact, str) and "\\" not in new.exact
    size = (text.size + 1) * (new.size + 1) * (1 if is_plain or not place else text.size + 1)
    return work + size * 0.02, text_of(size) if place else Extent("", None, size * 2)


def _loads(of: Extent, given: Given) -> Bounded:
    return of.size + given.work + raised(of.size / 10, 2) * 0.001, unknown(of.size, 64 + 4 * of.size)


# -- built-in functions --------------------------------------------------------------------------------------


def _number(of: Extent, given: Given) -> Bounded:
    return 1 + of.work + given.work, NUMBER


def _float(of: Extent, given: Given) -> Bounded:
    return 1 + of.work + given.work, FLOAT


def _bool(of: Extent, given: Given) -> Bounded:
    return 1 + of.work + given.work, BOOL


def _length(of: Extent, _given: Given) -> Bounded:
    return 1.0, replace(whole(log2(2 + of.length) + 1 if of.length < inf else inf), exact=None)


def _small(of: Extent, given: Given) -> Bounded:
    """Make a short text or value."""
    size = 1000 + (of.size + given.size) * 100
    return size * PLAIN, text_of(size)


def _files(_of: Extent, _given: Given) -> Bounded:
    return 10_000.0, repeated(text_of(100), 10_000.0)


def _slice(of: Extent, given: Given) -> Bounded:
    return 1.0, replace(list_of([of, *given.args]), kind="slice")


def _print(of: Extent, given: Given) -> Bounded:
    between = sum(one.size for one in given.names.values())
    several = (of, *given.args)
    return sum(map(shown, several)) + between * sum(1 + one.length for one in several), OTHER


def _iterate(of: Extent, given: Given) -> Bounded:
    """Make a container of the items of all arguments."""
    several = (of, *given.args)
    items, length = [one.item() for one in several], max(one.length for one in several)
    item = items[0] if len(several) == 1 else list_of(items)
    work = sum(one.length + one.work for one in several) + given.work
    return work, Extent("list", (length,), 2 * sum(one.size + one.length for one in several) + 1, item.bits, inner=item)


def _set(of: Extent, given: Given) -> Bounded:
    work, result = _iterate(of, given)
    return work + hashed_again(result.length, result.bits), result


def _enumerate(of: Extent, given: Given) -> Bounded:
    work, result = _iterate(of, NONE)
    return work + given.work, replace(result, size=3 * result.size, inner=list_of([whole(64), of.item()]))


def _dict(of: Extent, given: Given) -> Bounded:
    if of.kind == "dict":
        return of.work + given.work, replace(of, size=of.size + given.size, keys=None, inner=unknown(of.size + given.size, of.bits)) if given.all else of
    work, result = _set(of, given)
    size, bits = 2 * (of.size + given.size), max(one.bits for one in (of, *given.all))
    item = of.item().inner if of.shape != () else join([*given.names.values()])
    inner = join([item, *given.names.values()]) if item else unknown(size, bits)
    return work, Extent("dict", (of.length + len(given.all),), size + 1, bits, inner=inner, keys=join([item, text_of(99)]) if item and of.shape != () else unknown(size, bits))


def _counter(of: Extent, given: Given) -> Bounded:
    work, result = _set(of, given)
    return 2 * work, repeated(whole(64), result.length, result.inner)


def _sorted(of: Extent, given: Given) -> Bounded:
    work, result = _iterate(of, NONE)
    inner = of.item()
    each = 1 if inner.kind in NUMBERS else 1 + inner.size / 20
    return work + given.work + result.length * log2(2 + result.length) * 0.3 * each, result


def _sum(of: Extent, given: Given) -> Bounded:
    """Add all items: containers are copied for each further one; fractions grow."""
    item, start = of.item(), given.get(0, "start") or Extent("int", exact=0)
    if {item.kind, start.kind} <= {"int", "bool", "float", "number"}:
        kind = item.kind if item.kind != "bool" else "int"
        return of.work + of.length, whole(item.bits + log2(2 + of.length) + start.bits, kind)
    bits, size = item.bits * of.length, of.size + given.size
    kind = "exact" if item.kind == "exact" and start.kind in NUMBERS else ""
    work = of.work + of.length * (1 + bits / 1000) + (0 if kind or item.size <= 3 else of.length * size * PLAIN)  # noqa: PLR2004
    return work, Extent(kind, () if kind else None, size + bits / 64, bits)


def _range(of: Extent, given: Given) -> Bounded:
    several = (of, *given.args)
    numbers = [one.exact for one in several]
    if all(type(number) is int for number in numbers) and 0 not in numbers[2:]:
        return 1.0, range_of(range(*cast("list[int]", numbers)))
    length = sum(one.most for one in several[:2])
    bits = max(one.bits for one in several)
    return 1.0, Extent("range", (length,), length + 1, bits, inner=whole(bits))


def _whole(of: Extent, given: Given) -> Bounded:
    """Make a whole number: the digits of a text, or the whole part of a number."""
    if isinstance(of.exact, int):
        return 1.0, of
    bits = max(of.bits, 1024.0, 6.0 * of.size if of.kind not in NUMBERS else 1.0)
    if of.kind == "float" and isinstance(of.exact, float) and abs(of.exact) < 2.0**62:
        bits = log2(2 + abs(of.exact)) + 1
    return 1 + raised(bits / 30, 2) * 0.02, whole(bits)


def _round(of: Extent, given: Given) -> Bounded:
    digits = given.get(0, "ndigits")
    if of.is_held:
        return of.work, replace(of, exact=None)
    if of.kind == "float" and digits is not None:
        return 1.0, FLOAT
    bits = max(1024.0, of.bits) + (3.4 * digits.most if digits is not None and of.kind != "float" else 0)
    return of.work + raised(bits / 30, 1.6) * 0.02, whole(bits, "number") if of.kind in NUMBERS else unknown(of.size + bits / 64, bits)


def _extreme(of: Extent, given: Given) -> Bounded:
    items = [of.item()] if not given.args else [of, *given.args]
    result = join([*items, *(given.names[name] for name in ("default",) if name in given.names)])
    return of.length + of.work + 2 * given.work, replace(result, exact=None)


def _next(of: Extent, given: Given) -> Bounded:
    return 1.0, join([of.item(), *given.args])


def _bytes(of: Extent, given: Given) -> Bounded:
    size = of.size * 4 + (of.most if of.kind in NUMBERS | {""} else 0)
    return size * PLAIN + given.work, text_of(size)


def _format(of: Extent, given: Given) -> Bounded:
    return formatted(of, given.get(0))


def _factorial(of: Extent, given: Given) -> Bounded:
    most = max(one.most for one in (of, *given.args))
    bits = min(most, max(1.0, given.args[0].most) if given.args else most) * log2(most + 2) if most < inf else inf
    return 1 + raised(bits / 30, 1.6) * 0.05, whole(bits)


def _statistic(of: Extent, given: Given) -> Bounded:
    """Calculate with fractions: 2.5 µs for a number."""
    number = given.get(9, "n")
    size = of.size + given.size + (number.most if number is not None else 1)
    return size * 20 * (1 + of.bits / 640), unknown(size, of.bits * 2)


def _frame(of: Extent, given: Given, kind: str = "frame") -> Bounded:
    """Make a frame. The values of a dict are its columns; numbers in it are repeated to the length of its lists."""
    if of.kind == kind and not given.all:
        return of.work, replace(of, exact=None)
    index, several = given.get(0, "index"), (of, *(one.inner for one in (of,) if one.inner), *given.all)
    length = max(one.length for one in several)
    width = of.length if of.kind == "dict" else of.width * (of.cell_size if of.kind == "list" else 1)
    cell = max(1.0, of.size if index is not None else 1.0)
    size = of.size + length * width * cell + given.size
    return size * 3, Extent(kind, (length, max(1.0, width)), size, max(64, of.bits), 1.0)


def _series(of: Extent, given: Given, kind: str = "series") -> Bounded:
    """Make a series."""
    of = given.args[0] if kind in POLARS and given.args else of
    index = given.get(0, "index")
    length = max([1.0 if of.kind == "text" else of.length, *(one.length for one in given.all)])
    size = of.size * (max(1.0, index.length) if index is not None and of.length <= 1 else 1) + given.size + length
    is_plain = of.inner is not None and of.inner.kind in NUMBERS - {"exact"} and of.bits <= 64 and not given.names.keys() - {"name"}  # noqa: PLR2004
    is_plain = is_plain and not given.args
    return size * 2, Extent(kind, (length,), size, max(64.0, of.bits), PLAIN if is_plain else 1.0, NUMBER if is_plain else None)


KINDS: Mapping[str, Kind] = {
    "number": _number, "float": _float, "bool": _bool, "length": _length, "small": _small, "files": _files,
    "slice": _slice, "print": _print, "iterate": _iterate, "enumerate": _enumerate, "dict": _dict,
    "counter": _counter, "sorted": _sorted, "sum": _sum, "range": _range, "whole": _whole, "round": _round,
    "extreme": _extreme, "next": _next, "bytes": _bytes, "format": _format, "factorial": _factorial,
    "statistic": _statistic, "frame": _frame, "series": _series, "polars": _polars,
    "polars frame": partial(_frame, kind="polars frame"), "polars series": partial(_series, kind="polars series"),
    "pass": _pass, "hash": partial(_pass, factor=2.5), "subset": _subset, 
    "equal rows": _equal_rows, "truth of rows": partial(_equal_rows, is_truth=True), "parts": _parts, "imploded": _imploded, "sort": _sort, "set": _set, "cells": _cells, "numbers": _numbers, "truth": _truth, "hash truth": partial(_truth, factor=2.5),
    "running": _running, "reduction": _reduction, "items product": _product_of_items, "distinct": _distinct,
    "count": _count, "description": _description, "pairs": _pairs, "quantile": _quantile, "head": _head,
    "shape": _shape, "named": _named, "convert": _convert, "dates": _dates, "objects": _objects, "rows": _rows,
    "array": _array, "members": _members, "keys": _keys, "get": _get, "repeat": _repeat, "made": _made,
    "square": partial(_made, power=2.0), "diagonal": _diagonal, "spaced": _spaced, "arange": _arange,
    "elements": _elements, "bins": _bins, "calendar": _calendar, "product": _product, "widened": _widened,
    "melted": _melted, "reindex": _reindex, "stacked": _stacked, "matrix": _matrix, "fit": _fit, "where": _where,
    "add": partial(_operator, operation="Add"), "multiply": partial(_operator, operation="Mult"),
    "power": partial(_operator, operation="Pow"), "dot": partial(_operator, operation="MatMult"),
    "divide": partial(_operator, operation="FloorDiv"), "compare": partial(_operator, operation="Eq"),
    "groups": _groups, "expression": _expression, "turned": lambda of, _: turned(of, of.kind),
    "text": _text, "csv": partial(_text, factor=20.0), "shown": _shown, "split": _split, "match": _match,
    "contains": _contains, "replace": _replace, "regex": _regex, "substitute": partial(_regex, place=1),
    "loads": _loads, "polars range": lambda of, given: (_arange(of, given)[0], _polars(_arange(of, given)[1], given)[1]),
}  # fmt: skip
"""The kinds of work that the table in `operations` names."""
