"""The unit of work, the arguments of calls, and bounds of the work that many operations share.

The unit is the work for one element of a Python container, 0.1 to 0.3 µs on a machine of 2026. Weights were measured
with pandas 3.1, polars 2.1 and NumPy 2.4 on frames of a million rows and twenty columns.
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from agentmagic.undo.extents import BOOL, HELD, NUMBERS, PANDAS, PLAIN, POLARS, Extent, text_of, unknown

MOST_ELEMENTS = 10_000_000
"""Work above which a program is asked about: ten million elements where nothing better is known, 1 to 3 s."""
_SHOWN_CELLS = 100_000
"""Work of showing a frame or array of a library, which shows a few rows and columns."""


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of a call. An argument with a star is given as all its items at once."""

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

    def get(self, position: int | None, *names: str) -> Extent | None:
        """Return an argument by its position or name, or None."""
        by_name = next((self.names[name] for name in names if name in self.names), None)
        is_given = position is not None and position < len(self.args)
        return self.args[position] if is_given and position is not None else by_name

    def bound(self, position: int | None, *names: str, default: float = 1.0) -> float:
        """Return an upper bound of a whole number among the arguments, or of the numbers in it."""
        one = self.get(position, *names)
        return default if one is None else max(1.0, most_of(one))


Bounded = tuple[float, Extent]
"""The work of an operation, and the extent of its result."""
Bound = Callable[[Extent, Given], Bounded]
"""Bounds a method by its object and arguments."""
FunctionBound = Callable[[Given], Bounded]
"""Bounds a function by its arguments."""


def call_work(*objects: Extent) -> float:
    """Return the work of calling a library, whatever the size of its data: 50 to 500 µs in pandas and polars."""
    work = 0.0
    for one in objects:
        work += 1000 if one.kind in PANDAS | POLARS else 10 if one.kind == "array" else 100 if one.kind == "" else 0
    return work


def most_of(one: Extent) -> float:
    """Return an upper bound of a whole number, or of the numbers in a container; 0 for a text or None."""
    if one.kind in ("text", "other"):
        return 0.0
    if one.exact is None and one.shape != () and one.inner is not None:
        return most_of(one.inner)
    return one.bound


def converted(given: Given) -> float:
    """Return the work of polars to read arguments of other libraries, item by item."""
    others = [one for one in given.all if one.kind not in POLARS | NUMBERS | {"text", "other"}]
    return 20 * sum(one.size for one in others)


def raised(base: float, exponent: float) -> float:
    """Return a power, or infinity if it is too large for a number."""
    try:
        return float(base**exponent)
    except OverflowError:
        return inf


def looped(one: Extent) -> float:
    """Return the work of a loop over the items of a value; a group of a frame takes 100 µs."""
    return one.length * (1000 if one.kind in ("groups", "polars groups") else 1)


def hashed_again(length: float, bits: float) -> float:
    """Return the work of a set or dict with this many items: whole numbers over 61 bits can all have the same hash."""
    return raised(length, 2) * 0.1 if bits > 64 else 0.0  # noqa: PLR2004


def letters_of(dtype: Extent | None) -> float:
    """Return how many characters the items of an array have by its type, such as "U100"."""
    if dtype is None or dtype.kind == "type":
        return 1.0
    return max(1.0, numbers_in(dtype.exact)) if isinstance(dtype.exact, str) else inf


def cell_size(of: Extent) -> float:
    """Return an upper bound of the size of one cell."""
    return of.size if of.inner is None else of.inner.size


def to_array(of: Extent) -> Bounded:
    """Return the work and the extent of a frame or series as an array of NumPy."""
    is_plain = of.weight == PLAIN and of.inner is not None and of.inner.kind in ("float", "bool")
    if is_plain or (of.weight < 1 and of.shape is not None and len(of.shape) == 1):
        return of.work, replace(of, kind="array", columns=None, labels=of.labels)
    return of.size, Extent("", of.shape, of.size, of.bits, 1.0, None)


def repeat(of: Extent, times: float) -> Bounded:
    """Return the bound of a value whose elements are repeated."""
    size = max(1.0, of.size) * times
    kind = of.kind if of.kind in ("list", "text", "array", "polars expression") else ""
    shape = (of.length * times,) if of.shape is not None and len(of.shape) == 1 else None
    return size * max(0.1, 0.02 if of.kind == "text" else of.weight), Extent(
        kind, shape, size, of.bits, of.weight, of.inner
    )


def numbers_in(text: str) -> float:
    """Return the sum of the numbers in a text, such as the widths in a format."""
    return float(sum(int(digits) if len(digits) < 12 else 10**15 for digits in re.findall(r"\d+", text)))  # noqa: PLR2004


def shown_size(one: Extent) -> float:
    """Return an upper bound of the length of the text of a value, with `str` or `repr`."""
    if one.kind in ("float", "bool", "other"):
        return 350.0
    if one.kind in ("int", "range"):
        return one.bits / 3 + 2 if one.kind == "int" else one.bits + 30
    if one.kind == "text":
        return one.size * 10 + 2
    return 100_000.0 + one.width * 1000 if one.weight < 1 else (one.size + 1) * 40 + one.bits


def shown(one: Extent) -> float:
    """Return the work of showing a value, as its text and, for a frame, its HTML."""
    if one.kind in ("int", "number", "exact", ""):
        return one.size * 5 + raised(one.bits / 30, 2) * 0.02 if one.weight >= 1 else _shown_by_library(one)
    if one.kind in ("text", "range"):
        return 1 + (one.size * 0.1 if one.kind == "text" else 0)
    return _shown_by_library(one) if one.is_held else 1 + one.size * 5


def _shown_by_library(one: Extent) -> float:
    pandas, numpy = sys.modules.get("pandas"), sys.modules.get("numpy")
    is_all = pandas and (pandas.get_option("display.max_rows") is None or pandas.get_option("display.max_rows") > 1000)  # noqa: PLR2004
    is_all = is_all or (numpy and numpy.get_printoptions()["threshold"] > 10_000)  # noqa: PLR2004
    cells = one.size * 50 if is_all else min(_SHOWN_CELLS, one.size * 60)
    if one.weight >= 1 and one.inner is not None and one.inner.kind not in NUMBERS:
        cells += min(one.size, 100 * max(1.0, min(one.width, 20)) * one.inner.size) * 5
    elif one.weight >= 1 and one.inner is None:
        cells += one.size * 5
    return cells


def formatted(one: Extent, spec: Extent | None) -> Bounded:
    """Return the bound of a value as a text in a format, such as `:>10`."""
    if spec is None:
        return shown(one), text_of(shown_size(one))
    width = numbers_in(spec.exact) if isinstance(spec.exact, str) else raised(10, spec.size)
    size = shown_size(one) + width + spec.size * 10
    return shown(one) + size * 0.02, text_of(size)


def format_of(text: object, given: Given) -> Bounded:
    """Return the bound of `text.format(values)`."""
    width = numbers_in(str(text))
    fields = str(text).count("{") + 1
    size = len(str(text)) + width + fields * sum(map(shown_size, given.all))
    return sum(map(shown, given.all)) * fields + size * 0.02, text_of(size)


def subset(of: Extent, given: Given) -> Bounded:
    """Bound a method whose result has some of the cells."""
    kind = of.kind if of.kind in HELD or of.kind == "text" else ""
    return of.work + given.work, replace(of, kind=kind, labels="", exact=None)


def by_cell(of: Extent, given: Given) -> Bounded:
    """Bound a method that changes each cell by itself, or fills cells."""
    extra = max((one.size for one in given.all if one.kind == "text" or one.weight >= 1), default=0)
    plain = of.weight < 1 and of.inner is not None and of.inner.kind in NUMBERS
    plain &= all(
        one.kind in NUMBERS or (one.weight < 1 and one.inner and one.inner.kind in NUMBERS) for one in given.all
    )
    size = of.size if plain else of.size + of.cells * extra
    if any(one.shape != () and one.kind != "text" and one.labels != of.labels for one in given.all):
        size = of.size * max(1, *(one.length for one in given.all)) + given.size
        return (of.work + given.work + size * of.weight), Extent("", None, size, of.bits, of.weight, of.inner)
    inner = of.inner if plain else None
    kind = of.kind if of.kind in PANDAS | {"array"} or of.kind in POLARS else ""
    return of.work + given.work, replace(of, kind=kind, size=size, inner=inner, columns=None, exact=None)


def predicate(of: Extent, given: Given) -> Bounded:
    """Bound a method that returns a truth value for each cell."""
    work = of.work + given.work
    if not of.is_held:
        return work, BOOL if of.kind == "text" else unknown(of.cells, 1)
    kind = of.kind if of.kind in HELD else ""
    return work, Extent(kind, of.shape, of.cells, 1, PLAIN, BOOL, labels=of.labels, columns=_of_truth(of))


def _of_truth(of: Extent) -> Mapping[Any, Extent] | None:
    if of.columns is None:
        return None
    return {name: Extent(one.kind, one.shape, one.cells, 1, PLAIN, BOOL) for name, one in of.columns.items()}


def reduction(of: Extent, given: Given) -> Bounded:
    """Bound a method that makes one value of each row, column or group."""
    work = of.work + given.work
    if of.kind in ("polars frame", "polars expression", "polars groups", "groups"):
        kind = {"groups": "", "polars groups": "polars frame"}.get(of.kind, of.kind)
        return work, replace(of, kind=kind, labels="", exact=None)
    if of.weight >= 1:  # of objects: sums of texts and lists are copied again and again
        is_number = of.inner is not None and of.inner.kind in NUMBERS - {"exact"}
        work += 0 if is_number else of.length * of.size * 0.01
        bits = of.bits * of.length
        return work + of.length * bits / 64 * 0.01, unknown(of.size, of.bits + of.length if is_number else bits)
    if of.shape is not None and len(of.shape) == 1:
        return work, replace(of.inner, exact=None) if of.inner and of.inner.kind in NUMBERS else unknown(of.size)
    axis = given.get(0, "axis")
    is_down = of.kind == "frame" if axis is None else axis.exact == 0
    if of.shape is not None and len(of.shape) == 2 and is_down:  # noqa: PLR2004
        kind = "series" if of.kind == "frame" else "array"
        inner = of.inner if of.inner and of.inner.kind in NUMBERS else unknown(of.size)
        return work, Extent(kind, (of.width,), of.width * inner.size, of.bits, 1 if inner.size > 1 else PLAIN, inner)
    return work, Extent("", None, of.size, of.bits, of.weight, of.inner)


def turned(of: Extent, _given: Given | None = None) -> Bounded:
    """Bound a frame on its side: with several types, an object is made for each cell."""
    shape = None if of.shape is None else (*of.shape[::-1],)
    is_plain = of.weight < 1 and of.inner is not None and of.inner.kind in ("float", "bool", "int", "number")
    if of.kind == "array" or (is_plain and of.inner and of.inner.kind != "number") or len(of.shape or ()) == 1:
        return 1 + of.length, replace(of, shape=shape, columns=None, labels="")
    return of.size, Extent(of.kind, shape, of.size, of.bits, 1.0, of.inner)


def head_of(of: Extent, given: Given) -> Bounded:
    """Bound the first or last rows, five if no number is given."""
    number = given.bound(0, "n", default=10)
    if of.kind in ("groups", "polars groups", "polars expression") or of.shape is None or number >= of.length:
        return subset(of, given)
    part = number / max(1.0, of.length)
    size = of.size * part if of.weight == PLAIN else min(of.size, number * of.width * (1 + cell_size(of)))
    columns = None if of.columns is None else {name: head_of(one, given)[1] for name, one in of.columns.items()}
    return 1.0 + given.work, replace(
        of, shape=(number, *of.shape[1:]), size=size, columns=columns, labels="", exact=None
    )
