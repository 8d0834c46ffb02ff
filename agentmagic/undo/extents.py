"""What is certain of a value before a program runs: its kind, and upper bounds of its sizes.

Sizes of variables are read from lengths, shapes and numbers of bytes. This runs no code of the user, because
`data_types.is_data` has checked all types before. Whatever is in doubt is infinite.
"""

import sys
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import inf, prod
from typing import Any, cast

from agentmagic.undo.data_types import MOST_CELLS, known_kinds

PLAIN, OF_TEXT = 0.1, 0.11
"""Work for one number, and for one text, that NumPy, pandas or polars hold in their own memory."""
_MOST_TEXTS = 2_000_000
"""Length of a column up to which its longest text is found."""
_MOST_COLUMNS = 3000
"""Number of columns up to which the size of a frame is read, 5 µs each."""
_MOST_TEXT_COLUMNS = 300
"""Number of columns of text whose sizes are read, 30 µs each."""

NUMBERS = frozenset({"int", "bool", "float", "number", "exact"})
POLARS = frozenset({"polars frame", "polars series", "polars expression", "polars groups"})
HELD = POLARS | {"frame", "series", "groups", "array"}
"""Kinds whose contents a data library holds."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What is certain of a value before the program runs.

    `kind` is certain, or "" if unknown. `shape` has upper bounds of the length of each axis; None if their number is
    unknown. `size` bounds the number of elements inside, with the characters of texts. `bits` bounds whole numbers.
    `weight` is the work for one element; below 1, the value is certainly held by a data library, without Python
    objects. `inner` holds for each item, `keys` for each key of a dict, `columns` for each column of a frame whose
    column labels are unique. Two values with the same `labels` have the same row labels. `exact` is the value of a
    constant.
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
        return self.size if self.shape is None else max(1.0, prod(self.shape[1:]))

    @property
    def cell_size(self) -> float:
        """An upper bound of the size of one cell."""
        return self.size if self.inner is None else self.inner.size

    @property
    def work(self) -> float:
        """The work of looking at each element once."""
        return 1 + self.size * (0.02 if self.kind == "text" else self.weight)

    @property
    def is_held(self) -> bool:
        """Whether a data library certainly holds the contents."""
        return self.weight < 1 or self.kind in HELD

    @property
    def is_plain(self) -> bool:
        """Whether a data library holds the contents, and all are machine numbers."""
        return self.weight < 1 and self.inner is not None and self.inner.kind in NUMBERS

    @property
    def most(self) -> float:
        """An upper bound of the absolute value of a whole number, or of those inside; 0 for a text or None."""
        if self.kind in ("text", "other"):
            return 0.0
        if isinstance(self.exact, (int, float)):
            return abs(self.exact) if -1e300 < self.exact < 1e300 else inf  # noqa: PLR2004
        if self.shape != () and self.inner is not None:
            return self.inner.most
        return 2.0**self.bits if self.bits < 1000 else inf  # noqa: PLR2004

    def item(self) -> "Extent":
        """Return what is certain of an item over which a loop goes."""
        if self.kind == "text":
            return Extent("text", (1,))
        if self.kind == "dict" and self.keys is not None:
            return self.keys
        if self.shape is not None and len(self.shape) > 1 and self.kind == "array":
            return replace(self, shape=self.shape[1:], labels="", exact=None)
        if self.inner is not None and self.kind not in ("frame", "polars frame", "groups", "polars groups"):
            return self.inner
        return unknown(self.size, self.bits)


def unknown(size: float = 1.0, bits: float = 64.0) -> Extent:
    """Return the extent of a value of which nothing but its size is certain."""
    return Extent("", None if size > 1 else (), size, bits)


FLOAT, NUMBER, BOOL, OTHER = Extent("float"), Extent("number"), Extent("bool", bits=1), Extent("other", bits=1)


def whole(bits: float, kind: str = "int") -> Extent:
    """Return the extent of a whole number of so many bits."""
    return Extent(kind, size=1 + bits / 64, bits=max(1.0, bits))


def text_of(length: float) -> Extent:
    """Return the extent of a text with at most `length` characters."""
    return Extent("text", (length,), max(1.0, length))


def list_of(items: Iterable[Extent]) -> Extent:
    """Return the extent of a container with these items."""
    items = [*items]
    inner = join(items)
    return Extent("list", (len(items),), 1 + sum(item.size + 1 for item in items), inner.bits, inner=inner)


def repeated(inner: Extent, length: float, keys: Extent | None = None) -> Extent:
    """Return the extent of a container with `length` items, each at most as large as `inner`; with keys, of a dict."""
    size = 1 + length * (1 + inner.size + (keys.size if keys else 0))
    bits = max(inner.bits, keys.bits if keys else 1)
    return Extent("dict" if keys else "list", (length,), size, bits, inner=inner, keys=keys)


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
    inner, keys = [one.inner for one in extents], [one.keys for one in extents]
    size, weight = max(max(one.size, one.length) for one in extents), max(one.weight for one in extents)
    if weight < 1 and size < inf:
        weight = max(one.size * one.weight for one in extents) / size
    return Extent(
        first.kind if all(one.kind == first.kind for one in extents) else "",
        tuple(map(max, *shapes)) if has_shape else None,
        size,
        max(one.bits for one in extents),
        weight,
        None if None in inner else join(filter(None, inner)),
        None if None in keys else join(filter(None, keys)),
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
            return replace(whole(max(1, value.bit_length())), exact=value)
        case float() | complex():
            return replace(FLOAT, exact=value if isinstance(value, float) else None)
        case str() | bytes():
            return replace(text_of(len(value)), exact=value)
        case range():
            return range_of(value)
        case Decimal():
            _, digits, exponent = value.as_tuple()
            return whole(4 * (len(digits) + (abs(exponent) if isinstance(exponent, int) else 0) + 30), "exact")
        case Fraction():
            return whole(value.numerator.bit_length() + value.denominator.bit_length(), "exact")
        case _:
            return OTHER if value is None or value is ... or type(value) is object else NUMBER


def range_of(value: range) -> Extent:
    """Return the extent of a range, whose size is the work of going through it."""
    most = max(abs(value.start), abs(value.stop)).bit_length()
    number = max(0, (value.stop - value.start) // value.step + 1)
    length = float(number) if number.bit_length() < 1000 else inf  # noqa: PLR2004
    return Extent("range", (length,), max(1.0, length), max(1, most), inner=whole(max(1, most)))


def _of_items(items: list[Any], kind: str) -> Extent:
    """Return the extent of a container. Items of one type are measured together."""
    size, found = 1.0 + len(items), list[Extent]()
    kinds, types = known_kinds(), set(map(type, items))
    for one_type in types:
        same = items if len(types) == 1 else [item for item in items if type(item) is one_type]
        one, total = _of_several(same, one_type, kinds.get(one_type, ""))
        found.append(one)
        size += total
    inner = replace(join(found), exact=None)
    return Extent(kind, (len(items),), size, inner.bits, inner=inner)


def _of_several(same: list[Any], one_type: type, kind: str) -> tuple[Extent, float]:
    """Return what holds for each of several values of one type, and the sum of their sizes."""
    if one_type is int:
        one = whole(max(1, max(same).bit_length(), min(same).bit_length()))
        return one, len(same) * one.size
    if one_type in (str, bytes):
        lengths = [*map(len, same)]
        return text_of(max(lengths)), float(sum(lengths))
    if one_type in (float, complex, bool, type(None)):
        return BOOL if one_type is bool else OTHER if one_type is type(None) else FLOAT, float(len(same))
    if kind in ("list", "dict"):
        keys = _of_items([key for one in same for key in one], "list")
        values = _of_items([value for one in same for value in one.values()], "list") if kind == "dict" else keys
        one = repeated(values.inner or OTHER, float(max(map(len, same))), keys.inner if kind == "dict" else None)
        return one, keys.size + (values.size if kind == "dict" else len(same))
    several = [measure(item) for item in same]
    return join(several), sum(one.size for one in several)


def _of_array(value: Any) -> Extent:
    shape = tuple(map(float, value.shape))
    if value.dtype.hasobject:
        return replace(_of_items(value.ravel().tolist(), "array"), shape=shape)
    if value.dtype.kind in "SUV":
        letters = float(value.dtype.itemsize)
        return Extent("array" if shape else "text", shape or (letters,), value.size * letters, inner=text_of(letters))
    if not shape:
        is_whole = value.dtype.kind in "iu"
        return replace(NUMBER, exact=value.item()) if is_whole else FLOAT if value.dtype.kind in "fc" else NUMBER
    return _column(shape, _of_dtype(value.dtype), kind="array")


def _column(
    shape: tuple[float, ...], inner: Extent, size: float | None = None, weight: float = PLAIN, kind: str = "series"
) -> Extent:
    return Extent(kind, shape, prod(shape) if size is None else size, inner.bits, weight, inner)


def _of_dtype(dtype: Any) -> Extent:
    kind = getattr(dtype, "kind", "")
    return BOOL if kind == "b" else FLOAT if kind in ("f", "c") else NUMBER


def _of_series(value: Any, name: str = "") -> Extent:
    kind = cast("type[Any]", type(value))
    length = float(len(value))
    if hasattr(kind, "levels"):  # a MultiIndex, whose labels are tuples
        inner = list_of([_of_series(level).inner or OTHER for level in value.levels])
        return _column((length,), inner, length * inner.size, 1.0)
    column = _of_column(value, value.dtype, length)
    return replace(column, labels=f"rows of {name}" if name and hasattr(kind, "index") else "")


def _of_column(value: Any, dtype: Any, length: float) -> Extent:
    """Return the extent of a column of pandas of this dtype."""
    if hasattr(dtype, "categories"):
        inner = _of_series(dtype.categories).inner or OTHER
        return _column((length,), inner, length * inner.size, OF_TEXT)
    if str(dtype) == "object" or getattr(dtype, "storage", "") == "python":
        items = _of_items(value.tolist(), "series") if length <= MOST_CELLS else unknown(inf)
        return replace(items, kind="series", shape=(length,))
    if hasattr(dtype, "storage") or hasattr(dtype, "pyarrow_dtype"):  # texts, or what Arrow holds
        total, longest = _of_texts(value)
        inner = text_of(longest) if hasattr(dtype, "storage") else unknown(1 + longest, 128)
        return _texts(length, total, inner)
    return _column((length,), _of_dtype(dtype))


def _texts(length: float, total: float, inner: Extent, kind: str = "series") -> Extent:
    """Return the extent of a column of texts with these many bytes, each of which is less work than a text."""
    return _column((length,), inner, length + total, OF_TEXT * (length + total / 20 + 1) / (length + total + 1), kind)


def _of_texts(value: Any) -> tuple[float, float]:
    """Return the bytes of all texts in a column that Arrow holds, and those of the longest, 3 ms for a million."""
    compute: Any = sys.modules.get("pyarrow.compute")
    size = float(getattr(getattr(value, "array", value), "nbytes", inf))
    if compute is None or len(value) > _MOST_TEXTS or not hasattr(value.dtype, "storage"):
        return size, size
    try:
        lengths = compute.binary_length(getattr(value, "array", value).__arrow_array__())
    except NotImplementedError:  # an array of another type, such as one of categories
        return size, size
    return float(compute.sum(lengths).as_py() or 0), float(compute.max(lengths).as_py() or 0)


def _of_frame(value: Any, name: str) -> Extent:
    rows, index, columns, texts = float(len(value.index)), _of_series(value.index), list[Extent](), 0
    if value.shape[1] > _MOST_COLUMNS:
        return unknown(inf)
    for place, dtype in enumerate(value.dtypes):
        is_plain = not any(hasattr(dtype, part) for part in ("storage", "pyarrow_dtype", "categories"))
        if is_plain and str(dtype) != "object":
            columns.append(_column((rows,), _of_dtype(dtype)))
            continue
        texts += 1
        is_read = texts <= _MOST_TEXT_COLUMNS
        columns.append(_of_series(value.iloc[:, place]) if is_read else unknown(inf))
    columns = [replace(column, labels=f"rows of {name}" if name else "") for column in columns]
    frame = frame_of("frame", rows, dict(zip(value.columns.tolist(), columns, strict=True)), columns)
    names, labels = _of_series(value.columns), columns[0].labels if columns else ""
    size, weight = frame.size + index.size + names.size, max(frame.weight, index.weight)
    return replace(frame, size=size, weight=weight, keys=names.inner, labels=labels)


def frame_of(kind: str, rows: float, by_name: Mapping[Hashable, Extent], columns: list[Extent]) -> Extent:
    """Return the extent of a frame with these columns. `by_name` has fewer if some names stand twice."""
    size = sum(one.size for one in columns)
    work = sum(one.size * one.weight for one in columns)
    weight = 1.0 if any(one.weight >= 1 for one in columns) else max(PLAIN, work / size) if size else PLAIN
    inner = join(one.inner or unknown(one.size, one.bits) for one in columns)
    bits = max([64.0, *(one.bits for one in columns)])
    several = by_name if len(by_name) == len(columns) else None
    return Extent(kind, (rows, float(len(columns))), size + 1, bits, weight, inner, columns=several)


def _of_polars(value: Any) -> Extent:
    if not hasattr(value, "dtypes"):
        return _of_polars_series(value)
    columns = [_of_polars_series(column) for column in value.get_columns()]
    frame = frame_of("polars frame", float(value.height), dict(zip(value.columns, columns, strict=True)), columns)
    return replace(frame, size=frame.size + sum(map(len, value.columns)))


def _of_polars_series(value: Any) -> Extent:
    shape, name = (float(len(value)),), str(value.dtype.base_type())
    if name == "String":
        total = float(value.estimated_size())
        longest = float(value.str.len_bytes().max() or 0) if len(value) <= _MOST_TEXTS else total
        return _texts(shape[0], total, text_of(longest), "polars series")
    is_nested = value.dtype.is_nested() or name in ("Binary", "Decimal", "Int128", "Categorical", "Enum")
    inner = unknown(1 + value.estimated_size(), 128) if is_nested else FLOAT if name.startswith("Float") else NUMBER
    return _column(shape, inner, shape[0] + (inner.size if is_nested else 0), kind="polars series")
