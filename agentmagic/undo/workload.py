"""The kinds of work of methods and functions: the work of each, and what is certain of its result.

The unit is the work for one element of a Python container, 0.1 to 0.3 µs on a machine of 2026. Weights were measured
with pandas 3.1, polars 2.1 and NumPy 2.4 on frames of a million rows and twenty columns. Each kind takes the object of
a method, or the first argument of a function, and the other arguments.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, log2

from agentmagic.undo.extents import (
    BOOL,
    FLOAT,
    HELD,
    NUMBER,
    NUMBERS,
    OTHER,
    PLAIN,
    POLARS,
    Extent,
    join,
    list_of,
    repeated,
    text_of,
    unknown,
)
from agentmagic.undo.operators import Bounded, combine, head_of, repeat, turned
from agentmagic.undo.texts import raised

MOST_ELEMENTS = 10_000_000
"""Work above which a program is asked about: ten million elements where nothing better is known, 1 to 3 s."""


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


def call_work(*objects: Extent) -> float:
    """Return the work of calling a library, whatever the size of its data: 50 to 500 µs in pandas and polars."""
    each = {"array": 10.0, "": 100.0}
    return sum(1000.0 if one.kind in HELD - {"array"} else each.get(one.kind, 0.0) for one in objects)


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
    if one.is_held and one.inner is not None and one.inner.kind == "text":
        return replace(one, kind="array", weight=1.0)
    if one.is_held or one.shape == () or one.kind == "text":
        return one
    is_plain = one.inner is not None and one.inner.kind in NUMBERS - {"exact"} and one.bits <= 64  # noqa: PLR2004
    return replace(
        one,
        kind="array" if is_plain else "",
        weight=PLAIN if is_plain else 1.0,
        inner=replace(NUMBER, bits=one.bits) if is_plain else None,
        shape=one.shape if is_plain else None,
    )


# -- passes over the elements --------------------------------------------------------------------------------


def like(of: Extent, size: float, *, is_same: bool = True) -> Extent:
    """Return the extent of as many elements of the same types, in another form or, with `is_same`, the same one."""
    kind = of.kind if (is_same and of.kind in HELD) or of.kind in POLARS else ""
    shape, inner = of.shape if is_same else None, of.inner if of.is_plain else None
    return Extent(kind, shape, size, of.bits, of.weight, inner, columns=of.columns if of.kind == "groups" else None)


def across(of: Extent, axis: Extent | None) -> float:
    """Return the work of an array of a frame along whose rows a method goes. Several types make objects."""
    return 0.0 if of.kind != "frame" or axis is None or axis.exact == 0 else turned(of, "array")[0]


def passes(of: Extent, given: Given, factor: float = 1.0) -> Bounded:
    """Look at each element once. The result holds nothing but elements of what is given, in another form."""
    held = [one for one in given.all if one.shape != () and one.kind != "text"]
    size = of.size + given.size + of.cells * max((one.size for one in given.all if one not in held), default=0.0)
    of = replace(
        of, weight=max([of.weight, *(one.weight for one in held)]), bits=max(of.bits, *map(_bits, given.all), 1)
    )
    rows = of.length * 1000 if of.kind == "frame" and given.all else 0  # perhaps row by row
    return factor * (of.work + given.work) + rows, like(of, 4 * size, is_same=False)


def _bits(one: Extent) -> float:
    return one.bits


def subset(of: Extent, given: Given, factor: float = 1.0) -> Bounded:
    """Choose some of the cells."""
    kind = of.kind if of.kind in HELD or of.kind == "text" else ""
    return factor * (of.work + given.work), replace(of, kind=kind, labels="", exact=None)


def equal_rows(of: Extent, given: Given, *, is_truth: bool = False) -> Bounded:
    """Find equal rows by all columns of a frame, or by those that are named."""
    named = given.get(0, "subset")
    columns = of.width if named is None else min(of.width, max(1.0, named.length if named.kind == "list" else 1.0))
    work = given.work + of.work * (2.5 if of.width <= 1 else 1 + 4 * columns / of.width)
    truth = Extent("", (of.length,), of.length, 1, PLAIN, BOOL, labels=of.labels)
    return work, truth if is_truth else subset(of, given)[1]


def rank(of: Extent, given: Given) -> Bounded:
    """Sort each column. Several types make objects."""
    work, one = turned(of, "array")
    return work + sort(replace(one, shape=(of.cells,)), given)[0], sort(of, given)[1]


def sort(of: Extent, given: Given) -> Bounded:
    """Sort, n log n. Texts are compared up to the first difference."""
    each = 1.0 if of.weight < 1 or of.inner is None or of.inner.kind in NUMBERS else 1 + of.inner.size / 20
    work = of.length * log2(2 + of.length) * 0.5 * max(of.weight, PLAIN) * each + of.work + given.work
    if of.kind in POLARS | {"frame"}:
        return work, subset(of, given)[1]
    return work, like(of, of.size + given.size, is_same=not given.all)


def cells(of: Extent, given: Given) -> Bounded:
    """Change each cell by itself, or fill it with a value that is given."""
    others = [one for one in given.all if one.is_held and one.labels != of.labels]
    is_plain = of.is_plain and all(one.kind in NUMBERS or one.is_plain or one.kind == "other" for one in given.all)
    each = max((one.size for one in given.all if not one.is_held), default=0)
    size = of.size + sum(one.size for one in given.all if one.is_held) + (0 if is_plain else of.cells * each)
    if others and of.kind != "array":  # rows with equal labels meet
        size *= max(one.length for one in others)
        return of.work + given.work + size, unknown(size, max(of.bits, *map(_bits, given.all)))
    kind = of.kind if of.kind in NUMBERS | HELD | {"text"} else ""
    inner, columns = of.inner if is_plain else None, None if given.all else of.columns
    texts = of.cells if of.inner is not None and of.inner.kind == "text" else 0.0
    bits = max(of.bits, *map(_bits, given.all), 1)
    result = replace(of, kind=kind, size=size, bits=bits, inner=inner, columns=columns, keys=None, exact=None)
    if given.names:  # new columns, or other labels
        shape = (of.length, of.width + len(given.names)) if of.kind == "frame" else of.shape
        result = replace(result, shape=shape, labels="" if "freq" in given.names else of.labels)
    return of.work + given.work + texts + across(of, given.names.get("axis")), result


def shifted(of: Extent, given: Given) -> Bounded:
    """Shift all cells by one number of rows. Groups are shifted one by one, several numbers one after the other."""
    work, result = cells(of, given)
    if any(one.shape != () and one.kind not in ("text", *POLARS) for one in given.all):
        return inf, result
    return work + (of.length * given.numbers if of.kind == "groups" else 0), result


def numbers(of: Extent, given: Given) -> Bounded:
    """Calculate a number for each number."""
    work, result = cells(of, given)
    if of.is_plain or of.kind in NUMBERS:
        return work + 0.3 * of.cells, FLOAT if of.kind in NUMBERS and not given.all else result
    return work + 0.3 * of.cells, replace(result, kind="", bits=2 * result.bits, size=2 * result.size)


def truth(of: Extent, given: Given, factor: float = 1.0) -> Bounded:
    """Find out a truth for each cell, by itself or with a table of values."""
    work = factor * (cells(of, NONE)[0] + given.work * (of.width if of.kind == "frame" else 1))
    if not of.is_held:
        return work, BOOL if of.kind in NUMBERS | {"text"} else unknown(of.cells, 1)
    columns = {name: truth(one, NONE)[1] for name, one in of.columns.items()} if of.columns else None
    kind = of.kind if of.kind in HELD else ""
    return work, Extent(kind, of.shape, of.cells, 1, PLAIN, BOOL, columns=columns, labels=of.labels)


def running(of: Extent, given: Given) -> Bounded:
    """Make a sum or product of all items up to each one. Those of texts and long numbers grow."""
    if of.is_plain or of.kind in ("groups", *POLARS):
        return cells(of, given)
    texts = [one for one in (of.columns or {"": of}).values() if one.inner is None or one.inner.kind == "text"]
    if of.kind == "frame" and of.weight < 1 and not texts:  # column by column
        return 2 * of.work + across(of, given.get(0, "axis")), cells(of, NONE)[1]
    size = of.length * (of.size + of.bits * of.length / 64)
    return size, unknown(size, of.bits * of.length)


def reduction(of: Extent, given: Given) -> Bounded:
    """Make one value of each row, column or group."""
    axis = given.get(0, "axis")
    work = of.work + given.work + across(of, axis)
    if of.weight >= 1:  # sums of texts are copied, whole numbers grow
        is_short = of.inner is not None and of.inner.kind in NUMBERS - {"exact"}
        bits = of.bits * of.length
        work += of.length * bits / 640 + (0 if is_short else of.length * of.size * 0.01)
        return work, unknown(of.size + bits / 64, bits)
    if of.kind in ("polars frame", "polars expression", "polars groups", "groups"):
        kind = {"groups": "", "polars groups": "polars frame"}.get(of.kind, of.kind)
        return work, replace(of, kind=kind, labels="", exact=None)
    if len(of.shape or ()) == 1:
        return work, NUMBER if of.is_plain else unknown(of.size)
    is_down = of.kind == "frame" if axis is None else axis.exact == 0
    if of.kind in ("frame", "array") and len(of.shape or ()) == 2 and is_down:  # noqa: PLR2004
        kind, inner = "series" if of.kind == "frame" else "array", NUMBER if of.is_plain else unknown(of.cell_size)
        return work, Extent(kind, (of.width,), of.width * inner.size, 64, PLAIN if of.is_plain else 1.0, inner)
    return work, like(of, of.size, is_same=False)


def product_of_items(of: Extent, given: Given) -> Bounded:
    """Multiply all items. That of objects can be a whole number of any length."""
    if of.is_plain or of.kind in POLARS:
        return reduction(of, given)
    bits = sum(one.bits * max(1.0, one.length) for one in (of, *given.all))
    return of.work + given.work + raised(bits / 30, 2) * 0.02, unknown(1 + bits / 64, bits)


def distinct(of: Extent, given: Given) -> Bounded:
    """Count distinct values."""
    work, result = reduction(replace(of, size=of.cells, weight=PLAIN, inner=NUMBER), given)
    rows = of.length * 1000 if across(of, given.get(0, "axis")) else 0
    return 2 * of.work + work + rows, result


def description(of: Extent, given: Given) -> Bounded:
    """Sort each column; of groups, 0.3 ms for each."""
    if of.kind in ("groups", "") or of.shape is None:
        return of.work + of.length * 3000, unknown(of.size * 10)
    rows, inner = 13 + given.size, NUMBER if of.is_plain else unknown(of.cell_size)
    result = repeated(inner, rows * of.width)
    return 2.5 * of.work + of.width * 1000, replace(result, kind="", shape=(rows, of.width))


def pairs(of: Extent, given: Given) -> Bounded:
    """Compare each column with each, 5 ns for a row and a pair; of arrays, each row."""
    if of.kind == "groups" or of.shape is None:
        return (of.length * 3000 + of.size) * of.width, unknown(of.size * of.width)
    if of.kind == "series" and any(one.labels != of.labels for one in given.all if one.is_held):
        return of.length * given.size, FLOAT
    lines = of.width if of.kind in ("frame", "series") else max(of.length, of.width) if len(of.shape) > 1 else 2.0
    work = (of.work + given.work) * (lines + 1) * PLAIN + reduction(of, NONE)[0] * (of.kind != "frame")
    return work, Extent("", (lines, lines), lines * lines, 64, PLAIN, FLOAT) if of.kind != "series" else FLOAT


def quantile(of: Extent, given: Given) -> Bounded:
    """Find the values at some places of the order."""
    work, result = reduction(of, given)
    asked = max([1.0, *(one.length for one in given.all)])
    return 5 * work + 50 * asked * of.width, result if asked <= 1 else like(result, asked * result.size, is_same=False)


def head(of: Extent, given: Given) -> Bounded:
    """Take the first or last rows, five if no number is given."""
    number = given.get(0, "n")
    return 1.0 + given.work, head_of(of, 10.0 if number is None else number.most)


def relabel(of: Extent, given: Given) -> Bounded:
    """Give the same elements another shape or other labels, for a frame also from its columns, or as columns."""
    labels = given.size * (of.length + of.width) if given.size > 100 else 0  # noqa: PLR2004
    result = like(of, 2 * of.size + 3 * of.length + given.size + labels, is_same=False)
    if of.kind == "frame" and of.shape is not None:
        result = replace(result, kind="frame", shape=(of.length, 2 * of.width + 10))
    return of.work + given.work + labels, replace(result, kind="array") if of.kind == "array" else result


def convert(of: Extent, given: Given, factor: float = 15.0) -> Bounded:
    """Make values of another type. Objects and texts cost 1.5 µs each, dates in an unknown form 50 µs."""
    to, form = given.get(0, "dtype"), given.get(9, "format")
    name = str(to.exact).lower() if to is not None and to.kind in ("type", "text") else ""
    if factor > 100:  # of dates  # noqa: PLR2004
        is_known = of.is_plain or (form is not None and "%" in str(form.exact))
        result = replace(like(of, of.cells), weight=PLAIN, inner=NUMBER, labels=of.labels)
        return of.work + of.cells * (5 if is_known else factor), NUMBER if of.kind == "text" else result
    if of.is_plain and re.search(r"^(\w+\.)?(u?int|float|bool)(\d+|_)?$", name):
        return of.work, replace(of, columns=None, inner=NUMBER, exact=None)
    size = of.size * 30 * _letters(given)
    kind = of.kind if of.kind in HELD else ""
    return of.cells * factor + size, Extent(kind, of.shape, size, of.bits, labels=of.labels)


def objects(of: Extent, given: Given, factor: float = 4.0) -> Bounded:
    """Make a Python object of each cell."""
    size = of.size * 2 + of.length
    if len(of.shape or ()) == 1 and of.kind in ("series", "array", "polars series") and of.inner is not None:
        inner = replace(of.inner, kind="" if of.inner.kind == "number" else of.inner.kind, exact=None)
        return factor * of.size, Extent("list", of.shape, size, of.bits, inner=inner)
    return factor * of.size + given.work, unknown(size, of.bits)


def array(of: Extent, given: Given) -> Bounded:
    """Make an array, or return the values of a dict."""
    if of.kind == "dict" and of.inner:
        return 1.0, repeated(of.inner, of.length)
    if given.all:
        return convert(of, given)
    return turned(of, "array") if of.is_held or of.shape == () else (of.size, replace(of, exact=None))


def members(of: Extent, _given: Given) -> Bounded:
    """Make pairs of keys and values, or of the name and the column of a frame."""
    if of.kind == "dict" and of.inner and of.keys:
        return of.length, repeated(list_of([of.keys, of.inner]), of.length)
    if of.kind == "frame":
        inner = join(of.columns.values()) if of.columns else replace(of, kind="series", shape=(of.length,))
        return of.width * 100, replace(repeated(list_of([of.keys or OTHER, inner]), of.width), size=of.size)
    return 2 * of.size + 1, unknown(of.size * 2 + 1, of.bits)


# -- what grows with numbers or products ---------------------------------------------------------------------


def repetition(of: Extent, given: Given) -> Bounded:
    """Make as many elements as numbers say: repetitions, widths of texts, steps."""
    if of.kind in NUMBERS:
        of = Extent("array", (1.0,), 1.0, of.bits, PLAIN, NUMBER)
    work, result = repeat(replace(of, size=of.size + of.cells), given.numbers if given.all else 8.0)
    return of.work + given.work + 5 * work, result


def made(of: Extent, given: Given) -> Bounded:
    """Make a new array of as many elements as the first argument says; the others are its values."""
    size = times((of,)) * max([1.0, *(one.size for one in given.all)]) * _letters(given)
    is_plain = all(one.kind in NUMBERS for one in given.all)
    shape = (size,) if of.kind in NUMBERS else None
    return size, Extent("array", shape, size, 64, PLAIN, NUMBER) if is_plain else unknown(size)


def square(of: Extent, given: Given) -> Bounded:
    """Make a matrix as wide as the first argument is long, or as it says."""
    if len(of.shape or ()) > 1:
        return of.size, like(of, of.size, is_same=False)
    side = (of.most if of.kind in NUMBERS else of.size) + given.numbers
    weight, inner = (PLAIN, NUMBER) if of.kind in NUMBERS or of.is_plain else (1.0, None)
    return side * side, Extent("array", (side, side), side * side, of.bits, weight, inner)


def spaced(of: Extent, given: Given) -> Bounded:
    """Make the numbers between two, fifty if no number is given."""
    number = given.get(1, "num")
    size = (50.0 if number is None else number.most) * max([1.0, of.size, *(one.size for one in given.args[:1])])
    return size, Extent("array", (size,) if of.kind in NUMBERS else None, size, 64, PLAIN, NUMBER)


def arange(of: Extent, given: Given) -> Bounded:
    """Make the numbers up to an end, which is divided by the step, if the step is known."""
    step = given.get(1, "step")
    ends = (of, *given.args[:1], *(one for name, one in given.names.items() if name in ("start", "stop", "end")))
    least = 1.0 if step is None or step.kind == "int" else abs(step.exact) if isinstance(step.exact, float) else 0.0
    length = sum(one.most for one in ends) / least + 1 if least and all(one.kind in NUMBERS for one in ends) else inf
    return length, Extent("array", (length,), length, 64, PLAIN, NUMBER)


def elements(of: Extent, given: Given) -> Bounded:
    """Make as many elements as the numbers inside say."""
    size = of.size * of.most + given.numbers
    return size, unknown(size, of.bits)


def bins(of: Extent, given: Given) -> Bounded:
    """Count by value, or by bins: 10 µs for each."""
    number = given.get(0, "bins", "q")
    asked = 10.0 if number is None else number.most if number.kind in NUMBERS | {""} else number.size
    kind = {"series": "series", "polars series": "polars frame"}.get(of.kind, "")
    result = Extent(kind, of.shape if kind == "series" else None, of.size * 3 + asked, of.bits, of.weight)
    return 5 * of.work + given.work + asked * 100, result


def product(of: Extent, given: Given) -> Bounded:
    """Combine each row with each other one, unless `validate` allows one match for a row only."""
    if of.kind == "text":  # `join` of texts
        size = given.size + of.size * sum(one.length for one in given.args)
        return 1 + given.work + size * 0.02, text_of(size)
    check, work, kind = given.names.get("validate", OTHER).exact, of.work + given.work, of.kind
    simple = {"text", "other"} | NUMBERS
    for other in [one for one in given.all if one.is_held or not {one.kind, (one.inner or one).kind} & simple] or [of]:
        length = other.length if other.kind in HELD else other.size
        size = of.size * length + other.size * of.length
        if check in ("1:1", "one_to_one", "1:m", "m:1", "one_to_many", "many_to_one"):
            size = (of.length + length) * (of.width + other.width) * (1 + of.cell_size + other.cell_size)
        of = Extent("", None, size, max(of.bits, other.bits) + 64, max(of.weight, other.weight))
    return work + of.size * of.weight, replace(of, kind=kind if kind in POLARS else "")


def widened(of: Extent, given: Given) -> Bounded:
    """Make a column for each value of a column: rows times rows."""
    rows = max([of.length, *(one.length for one in given.all if one.is_held)])
    size = rows * rows * of.width
    return of.work * 2 + size * PLAIN, like(of, size * (1 if of.is_plain else of.cell_size), is_same=False)


def spread(of: Extent, given: Given) -> Bounded:
    """Make a row of each cell or item, or for each label that is given, with the cells that stay."""
    added = sum(max(one.length, one.size) for one in given.all)
    size = (of.size + added) * (1 + of.width) * (1 if of.is_plain else 1 + of.cell_size)
    is_same = of.kind in POLARS or (of.is_plain and of.inner is not None and of.inner.kind in ("float", "bool"))
    weight = max([of.weight if is_same else 1.0, *(one.weight for one in given.all if one.is_held)])
    return of.work + given.work + size * weight, Extent("", None, size, of.bits, weight)


def stacked(of: Extent, given: Given) -> Bounded:
    """Put arrays or frames together. With labels on the other axis, rows can be multiplied."""
    inner, axis = of.inner if of.kind == "list" and of.inner else of, given.get(0, "axis")
    size = of.size + given.size
    if axis is not None and axis.exact != 0 and inner.kind not in POLARS | {"array"} and not inner.labels:
        size = raised(max(1.0, inner.length), max(1.0, of.length)) * inner.width * of.length * inner.cell_size
    result = like(inner, size, is_same=False)
    return size * inner.weight * 0.6 + given.size, replace(result, kind="frame") if inner.kind == "frame" else result


def matrix(of: Extent, given: Given) -> Bounded:
    """Run an algorithm on a matrix, rows x columns x the smaller of both: up to 20 ns for each step."""
    rows, columns = (max(of.shape), min(of.shape)) if len(of.shape or ()) == 2 and of.shape else (of.size, of.size)  # noqa: PLR2004
    size = 3 * (rows * rows + given.size)
    return (of.size + given.size) * columns * (0.2 if of.is_plain else 1) + size, like(of, size, is_same=False)


def fit(of: Extent, given: Given) -> Bounded:
    """Fit a polynomial."""
    degree = given.get(1, "deg")
    terms = 2.0 if degree is None else degree.most + 1
    return (of.size + given.size) * terms * terms, Extent("array", (terms,), terms, 64, PLAIN, NUMBER)


def operator(of: Extent, given: Given, operation: str) -> Bounded:
    """Combine all arguments by an operator."""
    others = [*given.args, *(one for name, one in given.names.items() if name == "other")]
    work, result = given.work if others else inf, of
    for other in others:
        more, result = combine(operation, result, other)
        work += more
    if operation == "Eq" and max(one.weight for one in (of, *others)) >= 1:  # each object may be sought in all
        work += of.size * given.size
    return 2 * work, list_of([result, result]) if operation == "FloorDiv" and of.kind in NUMBERS else result
