"""What is certain of a value before a program runs: its kind, and upper bounds of its sizes.

Sizes of variables are read from lengths, shapes and numbers of bytes. This runs no code of the user, because
`data_types.is_data` has checked all types before.
"""

import sys
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import inf, prod
from typing import Any, cast

from agentmagic.undo.data_types import MOST_CELLS, known_kinds

PLAIN, OF_TEXT = 0.1, 0.11
"""Work for one number, and for one text, that NumPy, pandas or polars hold in their own memory."""
_MOST_PLACES = 10
"""Length of a literal up to which the extent of each of its items is known."""
_MOST_TEXTS = 2_000_000
"""Length of a column up to which its longest text is found."""
_MOST_COLUMNS = 3000
"""Number of columns up to which the size of a frame is read, 5 µs each."""
_MOST_TEXT_COLUMNS = 300
"""Number of columns of text whose sizes are read, 30 µs each."""

NUMBERS = frozenset({"int", "bool", "float", "number", "exact"})
POLARS = frozenset({"polars frame", "polars series", "polars expression", "polars groups"})
PANDAS = frozenset({"frame", "series", "groups"})
HELD = PANDAS | POLARS | {"array"}
"""Kinds whose contents a data library holds."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What is certain of a value before the program runs.

    `kind` is certain, or "" if unknown. `shape` has upper bounds of the length of each axis; None if their number is
    unknown. `size` bounds the number of elements inside, with the characters of texts. `bits` bounds whole numbers.
    `weight` is the work for one element; below 1, the value is certainly held by a data library, without Python
    objects. `inner` holds for each item, `keys` for each key. `columns` holds for each column of a frame whose column
    labels are unique, or for each key or place of a short container. Two values with the same `labels` have the same
    row labels. `exact` is the value of a constant.
    """

    kind: str = ""
    shape: tuple[float, ...] | None = ()
    size: float = 1.0
    bits: float = 64.0
    weight: float = 1.0
    inner: "Extent | None" = None
    keys: "Extent | None" = None
    columns: "Mapping[Hashable, Extent] | None" = None
    labels: str = ""
    exact: object = None

    @property
    def length(self) -> float:
        """An upper bound of `len`."""
        return self.size if self.shape is None else self.shape[0] if self.shape else 1.0

    @property
    def cells(self) -> float:
        """An upper bound of the number of values in a frame or array, without what is inside them."""
        return self.size if self.shape is None else prod(self.shape)

    @property
    def width(self) -> float:
        """An upper bound of the number of columns."""
        return self.size if self.shape is None else prod(self.shape[1:])

    @property
    def work(self) -> float:
        """The work of looking at each element once."""
        return 1.0 if self.kind == "range" else 1 + self.size * (0.02 if self.kind == "text" else self.weight)

    @property
    def is_held(self) -> bool:
        """Whether a data library certainly holds the contents."""
        return self.weight < 1 or self.kind in HELD

    @property
    def bound(self) -> float:
        """An upper bound of the absolute value of a whole number, or of those inside."""
        if isinstance(self.exact, (int, float)):
            return abs(self.exact) if -1e300 < self.exact < 1e300 else inf  # noqa: PLR2004
        return 2.0**self.bits if self.bits < 1000 else inf  # noqa: PLR2004

    @property
    def is_plain(self) -> bool:
        """Whether a data library holds the contents, and all are machine numbers."""
        return self.weight < 1 and self.inner is not None and self.inner.kind in NUMBERS

    def without_polars(self) -> "Extent":
        """Return the extent of a value that may belong to another library."""
        return replace(self, kind="") if self.kind in POLARS else self

    def item(self) -> "Extent":
        """Return what is certain of an item over which a loop goes."""
        if self.kind == "text":
            return Extent("text", (1,))
        if self.kind == "dict" and self.keys is not None:
            return self.keys
        if self.shape is not None and len(self.shape) > 1 and self.kind == "array":
            return replace(self, shape=self.shape[1:], size=self.size, labels="", exact=None)
        if self.inner is not None and self.kind not in ("frame", "polars frame", "groups", "polars groups"):
            return self.inner
        return unknown(self.size, self.bits)


def unknown(size: float = 1.0, bits: float = 64.0) -> Extent:
    """Return the extent of a value of which nothing but its size is certain."""
    return Extent("", None if size > 1 else (), size, bits)


FLOAT, NUMBER, BOOL, OTHER = Extent("float"), Extent("number"), Extent("bool", bits=1), Extent("other", bits=1)


_FIXED: Mapping[type, Extent] = {float: FLOAT, complex: FLOAT, bool: BOOL, type(None): OTHER}


def whole(most: float) -> Extent:
    """Return the extent of a whole number from 0 to `most`, such as a length."""
    bits = inf if most == inf else max(1, int(most).bit_length())
    return Extent("int", size=1 + bits / 64, bits=bits)


def text_of(length: float) -> Extent:
    """Return the extent of a text with at most `length` characters."""
    return Extent("text", (length,), max(1.0, length))


def list_of(items: Iterable[Extent]) -> Extent:
    """Return the extent of a container with these items."""
    items = [*items]
    inner, columns = join(items), dict[Hashable, Extent](enumerate(items)) if len(items) <= _MOST_PLACES else None
    size = 1 + sum(item.size + 1 for item in items)
    return Extent("list", (len(items),), size, inner.bits, inner=inner, columns=columns)


def dict_of(keys: Iterable[Extent], values: Iterable[Extent], *, stars: bool = False) -> Extent:
    """Return the extent of a dict. With `stars`, some values are dicts whose items it takes over."""
    keys, values = [*keys], [*values]
    size = 1 + sum(one.size + 1 for one in (*keys, *values))
    bits = max([1.0, *(one.bits for one in (*keys, *values))])
    if stars:
        return Extent("dict", (size,), size, bits, inner=unknown(size, bits), keys=unknown(size, bits))
    return Extent("dict", (len(values),), size, bits, inner=join(values), keys=join(keys))


def repeated(inner: Extent, length: float, kind: str = "list", keys: Extent | None = None) -> Extent:
    """Return the extent of a container with `length` items, each at most as large as `inner`."""
    size = 1 + length * (1 + inner.size + (keys.size if keys else 0))
    return Extent(kind, (length,), size, inner.bits, inner=inner, keys=keys)


def join(extents: Iterable[Extent]) -> Extent:
    """Return what holds for each of these values."""
    extents = [*extents]
    if not extents:
        return OTHER
    first = extents[0]
    if all(one is first or one == first for one in extents):
        return first
    shapes = [one.shape for one in extents if one.shape is not None]
    has_shape = len(shapes) == len(extents) and len({len(shape) for shape in shapes}) == 1
    inner = [one.inner for one in extents if one.inner is not None]
    keys = [one.keys for one in extents if one.keys is not None]
    size = max(max(one.size, one.length) for one in extents)
    is_light = all(one.weight < 1 for one in extents)
    weight = max(one.size * one.weight for one in extents) / size if is_light and size < inf else 1.0
    return Extent(
        first.kind if all(one.kind == first.kind for one in extents) else "",
        tuple(map(max, *shapes)) if has_shape and len(shapes) > 1 else None,
        size,
        max(one.bits for one in extents),
        weight if weight < 1 else max(one.weight for one in extents),
        join(inner) if len(inner) == len(extents) else None,
        join(keys) if len(keys) == len(extents) else None,
    )


# -- variables -----------------------------------------------------------------------------------------------


def measure(value: Any, name: str = "") -> Extent:  # noqa: PLR0911  (one arm for each kind)
    """Return the extent of data, such as the value of a variable. Raises RecursionError if it is nested too deeply."""
    kind = cast("type[Any]", type(value))
    match known_kinds().get(kind):
        case "list":
            return _of_items([*value], "list")
        case "dict":
            one, size = _of_several([value], kind, "dict")
            return replace(one, size=size)
        case "polars":
            return _of_polars(value)
        case "array":
            return _of_array(value)
        case "frame":
            return _of_frame(value, name)
        case "series":
            return _of_series(value, name)
        case "slice":
            return replace(list_of(map(measure, (value.start, value.stop, value.step))), kind="slice")
        case _:
            return _of_scalar(value)


def _of_scalar(value: Any) -> Extent:  # noqa: PLR0911  (one arm for each kind)
    match value:
        case bool():
            return BOOL
        case int():
            bits = max(1, value.bit_length())
            return Extent("int", size=1 + bits / 64, bits=bits, exact=value)
        case float():
            return replace(FLOAT, exact=value)
        case complex():
            return FLOAT
        case str() | bytes():
            return replace(text_of(len(value)), exact=value)
        case range():
            most = max(abs(value.start), abs(value.stop)).bit_length()
            length = max(0, (value.stop - value.start) // value.step + 1)
            return Extent(
                "range",
                (_as_float(length),),
                _as_float(length),
                most,
                inner=Extent("int", size=1 + most / 64, bits=most),
            )
        case Decimal():
            _, digits, exponent = value.as_tuple()
            bits = 4 * (len(digits) + (abs(exponent) if isinstance(exponent, int) else 0) + 30)
            return Extent("exact", size=1 + bits / 64, bits=bits)
        case Fraction():
            bits = value.numerator.bit_length() + value.denominator.bit_length()
            return Extent("exact", size=1 + bits / 64, bits=bits)
        case _:
            return OTHER if value is None or value is ... or type(value) is object else NUMBER


def _as_float(number: int) -> float:
    return float(number) if number.bit_length() < 1000 else inf  # noqa: PLR2004


def _of_items(items: list[Any], kind: str) -> Extent:
    """Return the extent of a container. Items of one type are measured together."""
    size, found = 1.0 + len(items), list[Extent]()
    kinds, types = known_kinds(), set(map(type, items))
    for one_type in types:
        if (fixed := _FIXED.get(one_type)) is not None:  # needs no list of its own
            found.append(fixed)
            size += len(items)
            continue
        same = items if len(types) == 1 else [item for item in items if type(item) is one_type]
        one, total = _of_several(same, one_type, kinds.get(one_type, ""))
        found.append(one)
        size += total
    inner = replace(join(found), exact=None)
    return Extent(kind, (len(items),), size, inner.bits, inner=inner)


def _of_several(same: list[Any], one_type: type, kind: str) -> tuple[Extent, float]:
    """Return what holds for each of several values of one type, and the sum of their sizes."""
    if one_type is int:
        bits = max(1, max(same).bit_length(), min(same).bit_length())
        return Extent("int", size=1 + bits / 64, bits=bits), len(same) * (1 + bits / 64)
    if one_type in (str, bytes):
        lengths = [*map(len, same)]
        return text_of(max(lengths)), float(sum(lengths))
    longest = float(max(map(len, same))) if kind in ("list", "dict") else 0.0
    if kind == "list":
        inner = _of_items([item for one in same for item in one], "list")
        return repeated(inner.inner or OTHER, longest), inner.size + len(same)
    if kind == "dict":
        keys = _of_items([key for one in same for key in one], "list")
        values = _of_items([value for one in same for value in one.values()], "list")
        one = repeated(values.inner or OTHER, longest, "dict", keys.inner)
        first = same[0].keys()
        if len(first) <= _MOST_PLACES and all(other.keys() == first for other in same):
            columns = {key: _of_items([other[key] for other in same], "list").inner or OTHER for key in first}
            return replace(one, columns=columns), keys.size + values.size
        return one, keys.size + values.size
    several = [measure(item) for item in same]
    return join(several), sum(one.size for one in several)


def _of_array(value: Any) -> Extent:
    shape = tuple(map(float, value.shape))
    if value.dtype.hasobject:
        return replace(_of_items(value.ravel().tolist(), "array"), shape=shape)
    if value.dtype.kind in "SUV":
        letters = value.dtype.itemsize
        return Extent("array" if shape else "text", shape or (letters,), value.size * letters, inner=text_of(letters))
    if not shape:
        return _of_number(value.item()) if value.dtype.kind in "iu" else FLOAT if value.dtype.kind in "fc" else NUMBER
    inner = _of_dtype(value.dtype)
    return Extent("array", shape, float(value.size), inner.bits, PLAIN, inner)


def _of_number(value: int) -> Extent:
    return Extent("number", bits=max(1, value.bit_length()), exact=value)


def _of_dtype(dtype: Any) -> Extent:
    kind = getattr(dtype, "kind", "")
    if kind in "iu" and kind:
        return replace(NUMBER, bits=min(64, 8 * getattr(dtype, "itemsize", 8)))
    return BOOL if kind == "b" else FLOAT if kind in ("f", "c") else NUMBER


def _of_series(value: Any, name: str = "") -> Extent:
    kind = cast("type[Any]", type(value))
    length, labels = float(len(value)), f"rows of {name}" if name and hasattr(kind, "index") else ""
    if hasattr(kind, "levels"):  # a MultiIndex, whose labels are tuples
        levels = [_of_series(level) for level in value.levels]
        inner = list_of(join([level.inner or OTHER]) for level in levels)
        return Extent("series", (length,), length * inner.size, inner.bits, inner=inner)
    dtype = value.dtype
    if hasattr(dtype, "categories"):
        inner = _of_series(dtype.categories).inner or OTHER
        return Extent("series", (length,), length * inner.size, inner.bits, OF_TEXT, inner, labels=labels)
    if str(dtype) == "object" or _is_of_python(dtype):
        items = _of_items(value.tolist(), "series") if length <= MOST_CELLS else unknown(inf)
        return replace(items, kind="series", shape=(length,), labels=labels)
    if hasattr(dtype, "storage") or hasattr(dtype, "pyarrow_dtype"):  # texts, or what Arrow holds
        total, longest = _of_texts(value)
        inner = text_of(longest) if hasattr(dtype, "storage") else unknown(1 + longest, 128)
        weight = OF_TEXT * (length + total / 20 + 1) / (length + total + 1)
        return Extent("series", (length,), length + total, inner.bits, weight, inner, labels=labels)
    return _of_plain(dtype, length, labels)


def _of_texts(value: Any) -> tuple[float, float]:
    """Return the bytes of all texts in a column that Arrow holds, and those of the longest, 3 ms for a million."""
    compute: Any = sys.modules.get("pyarrow.compute")
    size = float(getattr(getattr(value, "array", value), "nbytes", inf))
    if compute is None or len(value) > _MOST_TEXTS or not hasattr(value.dtype, "storage"):
        return size, size
    lengths = compute.binary_length(getattr(value, "array", value).__arrow_array__())
    return float(compute.sum(lengths).as_py() or 0), float(compute.max(lengths).as_py() or 0)


def _is_of_python(dtype: Any) -> bool:
    return getattr(dtype, "storage", "") == "python"


@lru_cache(64)
def _of_plain(dtype: Any, rows: float, labels: str) -> Extent:
    inner = _of_dtype(dtype)
    return Extent("series", (rows,), rows, inner.bits, PLAIN, inner, labels=labels)


def _of_frame(value: Any, name: str) -> Extent:
    rows, labels = float(len(value.index)), f"rows of {name}" if name else ""
    index, columns, texts = _of_series(value.index), list[Extent](), 0
    if value.shape[1] > _MOST_COLUMNS:
        return unknown(inf)
    for place, dtype in enumerate(value.dtypes):
        is_plain = not any(hasattr(dtype, part) for part in ("storage", "pyarrow_dtype", "categories"))
        if is_plain and str(dtype) != "object":
            columns.append(_of_plain(dtype, rows, labels))
            continue
        texts += 1
        column = value.iloc[:, place] if texts <= _MOST_TEXT_COLUMNS else None
        columns.append(unknown(inf) if column is None else replace(_of_series(column), labels=labels))
    names = _of_series(value.columns)
    total = index.size + names.size + sum(column.size for column in columns)
    work = index.size * PLAIN + names.size + sum(column.size * column.weight for column in columns)
    inner = join(column.inner or unknown(column.size) for column in columns)
    by_name = dict(zip(value.columns.tolist(), columns, strict=True))
    return Extent(
        "frame",
        (rows, float(len(columns))),
        total,
        max([64.0, *(column.bits for column in columns)]),
        max(PLAIN, min(1.0, work / total)) if max([PLAIN, *(one.weight for one in columns)]) < 1 else 1.0,
        inner,
        names.inner,
        by_name if len(by_name) == len(columns) else None,
        labels,
    )


def _of_polars(value: Any) -> Extent:
    if not hasattr(value, "dtypes"):
        return _of_polars_series(value)
    columns = value.get_columns()
    several = {column.name: _of_polars_series(column) for column in columns[:_MOST_TEXT_COLUMNS]}
    size = float(value.estimated_size()) if len(several) < len(columns) else sum(one.size for one in several.values())
    inner = join(one.inner or OTHER for one in several.values()) if len(several) == len(columns) else None
    shape = (float(value.height), float(value.width))
    total = 1 + size + sum(len(name) for name in value.columns)
    return Extent("polars frame", shape, total, 128, PLAIN, inner, text_of(total), several)


def _of_polars_series(value: Any) -> Extent:
    length, name = float(len(value)), str(value.dtype.base_type())
    if name == "String":
        total = float(value.estimated_size())
        longest = float(value.str.len_bytes().max() or 0) if length <= _MOST_TEXTS else total
        weight = OF_TEXT * (length + total / 20 + 1) / (length + total + 1)
        return Extent("polars series", (length,), length + total, 128, weight, text_of(longest))
    is_nested = value.dtype.is_nested() or name in ("Binary", "Decimal", "Int128")
    size = length + (value.estimated_size() if is_nested else 0)
    inner = unknown(size, 128) if is_nested else FLOAT if name.startswith("Float") else NUMBER
    return Extent("polars series", (length,), size, 128, PLAIN, inner)
