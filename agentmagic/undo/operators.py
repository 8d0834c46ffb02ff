"""Bounds the work of operators, such as `a ** b`, and of reading items and attributes, by the sizes of the operands."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from math import inf, prod
from typing import cast

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
    frame_of,
    join,
    list_of,
    measure,
    text_of,
    unknown,
    whole,
)
from agentmagic.undo.texts import formatted, raised, shown_size

Bounded = tuple[float, Extent]
"""The work of an operation, and the extent of its result."""
_EXACT: Mapping[str, Callable[[int, int], int]] = {
    "Add": int.__add__,
    "Sub": int.__sub__,
    "Mult": int.__mul__,
    "Pow": int.__pow__,
}


def combine(operation: str, left: Extent, right: Extent) -> Bounded:  # noqa: PLR0911  (one arm for each kind)
    """Return the bound of an operator with two operands, by the name of its syntax node: "Add"."""
    if operation in ("In", "NotIn", "Is", "IsNot"):
        is_quick = right.kind == "dict" or (right.kind == "range" and left.kind in ("int", "bool"))
        return 1 + left.work + (0 if is_quick else looped(right) + 2 * right.work), BOOL
    if operation in ("Pow", "LShift"):
        return _power(operation, left, right)
    if operation == "MatMult":
        return matrix_product(left, right)
    if left.is_held or right.is_held:
        return broadcast(operation, left, right)
    if operation in ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"):
        return 1 + left.work + right.work, BOOL
    if left.kind in NUMBERS and right.kind in NUMBERS:
        return _calculate(operation, left, right)
    if operation == "Mult":
        return join_bounds(repeat(left, max(1.0, right.most)), repeat(right, max(1.0, left.most)))
    if operation == "Mod":
        return _format(left, right)
    kind = left.kind if left.kind == right.kind and left.kind in ("text", "list", "flag") else ""
    inner = join([left.inner, right.inner]) if left.inner and right.inner else None
    shape = (left.length + right.length,) if kind in ("text", "list") else () if kind == "flag" else None
    return left.work + right.work, Extent(kind, shape, left.size + right.size, left.bits + right.bits, inner=inner)


def looped(one: Extent) -> float:
    """Return the work of a loop over the items of a value; a group of a frame takes 100 µs."""
    return one.length * (1000 if one.kind in ("groups", "polars groups") else 1)


def join_bounds(one: Bounded, other: Bounded) -> Bounded:
    """Return what holds for both of two operations that may be meant. A value that is no number repeats nothing."""
    return max(one[0], other[0]), join([one[1], other[1]])


def _calculate(operation: str, left: Extent, right: Extent) -> Bounded:
    """Bound a calculation with two numbers of Python."""
    kinds = {left.kind, right.kind}
    if "float" in kinds:
        return 1.0, FLOAT
    if (exact := _exactly(operation, left, right)) is not None:
        return 1.0, exact
    grows = operation == "Mult" or "exact" in kinds
    bits = left.bits + right.bits if grows else max(left.bits, right.bits) + 1
    digits = (left.bits / 30) * (right.bits / 30) if operation in ("Mult", "Div", "FloorDiv", "Mod") else bits / 30
    kind = "exact" if "exact" in kinds else "number" if "number" in kinds else "float" if operation == "Div" else "int"
    return 1 + digits * 0.05, whole(bits, kind)


def _exactly(operation: str, left: Extent, right: Extent) -> Extent | None:
    """Return the extent of a calculation with two whole numbers that are known and short, or None."""
    function, one, other = _EXACT.get(operation), left.exact, right.exact
    bits = max(left.bits, right.bits) if operation != "Pow" else left.bits * max(1.0, right.most)
    if function is None or type(one) is not int or type(other) is not int or bits > 1000:  # noqa: PLR2004
        return None
    return measure(function(one, other)) if operation != "Pow" or other >= 0 else FLOAT


def repeat(of: Extent, times: float) -> Bounded:
    """Return the bound of a value whose elements are repeated."""
    if of.kind in NUMBERS:
        return 1.0, of
    size = max(1.0, of.size) * times
    kind = of.kind if of.kind in ("list", "text", "array", "polars expression") else ""
    shape = (of.length * times,) if of.shape is not None and len(of.shape) == 1 else None
    inner = of.inner if of.kind == "list" or of.is_plain else None
    return size * max(PLAIN, of.weight) * (0.02 if of.kind == "text" else 1), Extent(
        kind, shape, size, of.bits, of.weight, inner
    )


def _power(operation: str, left: Extent, right: Extent) -> Bounded:
    """Bound a power or a shift. Whole numbers grow with the exponent, machine numbers do not."""
    is_held = left.is_held or right.is_held
    if is_held and all(map(holds_numbers, (left, right))):
        work, result = broadcast("Add", left, right)
        return 3 * work, result
    if not is_held and "float" in (left.kind, right.kind):
        return 1.0, FLOAT
    if (exact := _exactly(operation, left, right)) is not None:
        return 1.0, exact
    most = max(1.0, right.most)
    bits = max(1.0, left.bits) * most if operation == "Pow" else left.bits + most
    if {left.kind, right.kind} <= NUMBERS - {"exact"}:
        is_whole = {left.kind, right.kind} <= {"int", "bool"} and isinstance(right.exact, int) and right.exact >= 0
        return 1 + raised(bits / 30, 1.6) * 0.02, whole(bits, "int" if is_whole else "number")
    cells = max(1.0, left.size) * max(1.0, right.size)
    return cells * (1 + raised(bits / 30, 1.6) * 0.02), unknown(cells * (1 + bits / 64), bits)


def holds_numbers(one: Extent) -> bool:
    """Return whether a value is a machine number, or holds such numbers only."""
    cell = one.inner if one.kind == "list" else one
    return one.is_plain or (cell is not None and cell.kind in NUMBERS - {"exact"} and cell.bits <= 64)  # noqa: PLR2004


def broadcast(operation: str, left: Extent, right: Extent) -> Bounded:
    """Return the bound of an operator on arrays, series or frames."""
    kinds = [one.kind for one in (left, right) if one.is_held]
    kind = kinds[0] if len(set(kinds)) == 1 else "frame" if set(kinds) == {"frame", "series"} else ""
    if kind in POLARS and not all(one.kind == kind or one.kind in NUMBERS | {"text"} for one in (left, right)):
        kind = ""
    if kind == "polars expression":
        return left.size + right.size, Extent(kind, None, left.size + right.size + 1, 128, PLAIN)
    shape, labels = _common_shape(left, right)
    cells = left.cells * right.cells if shape is None else prod(shape)
    if operation in ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"):
        return left.work + right.work + cells, Extent(kind, shape, cells, 1, PLAIN, BOOL, labels=labels)
    if holds_numbers(left) and holds_numbers(right):
        is_truth = all(one.inner is BOOL or one.kind == "bool" for one in (left, right)) and operation.startswith("Bit")
        inner = BOOL if is_truth else NUMBER
        work = left.work + right.work + cells * PLAIN
        return work, Extent(kind, shape, cells, 64, PLAIN, inner, labels=labels)
    one, other = _cell_of(left), _cell_of(right)
    size = cells * (1 + one.size + other.size)
    if operation == "Mult":  # a text or list can be repeated in each cell
        size = cells * max(one.size * max(1.0, right.most), other.size * max(1.0, left.most))
    if operation == "Mod" and not holds_numbers(left):
        size = inf
    bits = left.bits + right.bits
    return left.work + right.work + size, Extent(
        kind,
        shape,
        size,
        bits,
        1.0,
        unknown(size / max(1.0, cells), bits) if kind != "frame" and size == cells else None,
        labels=labels,
    )


def _cell_of(one: Extent) -> Extent:
    return one if one.shape == () or one.kind == "text" else one.inner or unknown(one.size, one.bits)


def _common_shape(left: Extent, right: Extent) -> tuple[tuple[float, ...] | None, str]:
    """Return the shape of a combination of two values, and the labels of its rows. None is rows times rows."""
    for one, other in ((left, right), (right, left)):
        if other.shape == () or other.kind == "text":
            return one.shape, one.labels
    if left.shape is None or right.shape is None:
        return None, ""
    kinds, one, other = {left.kind, right.kind}, left.shape, right.shape
    if left.labels and left.labels == right.labels and left.kind == right.kind:
        return tuple(map(max, one, other)), left.labels
    if len(kinds & {"frame", "series"}) == 0 or (kinds & {"array", "list"} and len(one) == len(other) == 1):
        short, long = sorted((one, other), key=len)
        padded = (*([1.0] * (len(long) - len(short))), *short)
        return tuple(map(max, padded, long)), left.labels or right.labels
    if kinds == {"frame", "series"}:  # the labels of the series are names of columns
        frame, series = (left, right) if left.kind == "frame" else (right, left)
        return (frame.length, frame.width + series.length), frame.labels
    return (left.length * right.length, max(left.width, right.width)) if "frame" in kinds else None, ""


def matrix_product(left: Extent, right: Extent) -> Bounded:
    """Return the bound of a product of matrices, rows x columns x columns."""
    if "frame" in (left.kind, right.kind):
        (work, left), (more, right) = (turned(one, "array") if one.is_held else (0.0, one) for one in (left, right))
        product, result = matrix_product(left, right)
        return work + more + product, result
    if not (holds_numbers(left) and holds_numbers(right)):  # texts can be repeated, whole numbers can grow
        return inf, unknown(inf)
    one, other = left.shape or (), right.shape or ()
    if not one or not other or max(len(one), len(other)) > 2:  # noqa: PLR2004
        return left.size * right.size, unknown(left.size * right.size)
    shape = (*one[:-1], *other[1:])
    work = left.work + right.work + prod(one) * right.width * 0.01
    if {left.kind, right.kind} != {"array"}:
        return work, unknown(prod(shape))
    return work, Extent("array", shape, prod(shape), 64, PLAIN, NUMBER) if shape else NUMBER


def _format(left: Extent, right: Extent) -> Bounded:
    """Bound `text % values`: the widths in the text, and the texts of the values."""
    if left.kind == "" and left.size <= 3:  # a number, or too short for a width  # noqa: PLR2004
        return 1 + left.work + right.work, unknown(1000 + shown_size(right), max(left.bits, right.bits))
    if not isinstance(left.exact, (str, bytes)) or b"*" in bytes(str(left.exact), "utf-8"):
        return inf, OTHER
    work, one = formatted(right, left)
    return work, text_of(left.size + one.size * str(left.exact).count("%"))


def negate(operation: str, one: Extent) -> Bounded:
    """Return the bound of an operator with one operand, by the name of its syntax node: "Not"."""
    if operation == "Not":
        return 1.0, BOOL
    exact = -one.exact if operation == "USub" and isinstance(one.exact, (int, float)) else None
    if one.is_held:
        return one.work, replace(one, inner=one.inner if one.is_plain else None, columns=None, exact=None)
    kind = "int" if one.kind == "bool" else one.kind if one.kind in NUMBERS else ""
    return 1.0, replace(one, kind=kind, bits=one.bits + 1, exact=exact)


def literal_of(items: list[Extent], stars: list[bool]) -> Bounded:
    """Return the bound of a list of these items, some with stars."""
    if not any(stars):
        names = tuple(one.exact for one in items)
        is_text = all(isinstance(name, str) for name in names)
        return float(len(items)), replace(list_of(items), exact=names if is_text else None)
    pairs = [*zip(items, stars, strict=True)]
    length = sum(one.length if star else 1.0 for one, star in pairs)
    inner = join(one.item() if star else one for one, star in pairs)
    size = 1 + sum(2 * one.size + one.length for one in items)
    return length + size, Extent("list", (length,), size, inner.bits, inner=inner)


# -- items and attributes ------------------------------------------------------------------------------------


def item_of(of: Extent, key: Extent) -> Bounded:  # noqa: PLR0911  (one arm for each kind)
    """Return the bound of `value[key]`."""
    if key.kind == "tuple":
        return _located(of, key)
    is_single = key.shape == () or key.kind == "text"
    if key.kind == "slice":
        return _sliced(of, key)
    if of.kind in ("list", "range", "dict", "text") and is_single:
        return 1 + key.work, replace(of.inner, exact=None) if of.inner else text_of(1) if of.kind == "text" else of
    if (found := _columns_of(of, key)) is not None:
        return 1.0, found
    if of.kind in ("series", "array") and len(of.shape or ()) == 1 and is_single and key.kind in NUMBERS and of.inner:
        return 1.0, replace(of.inner, exact=None) if of.is_plain else replace(of, kind="", labels="", exact=None)
    if is_single or key.inner is BOOL:  # a mask that chooses rows, or one label, which many rows can have
        kind = of.kind if of.kind in HELD and not is_single else ""
        kind = "polars series" if of.kind == "polars frame" and key.kind == "text" else kind
        kind = of.kind if of.kind in ("polars expression", "groups", "polars groups") else kind
        shape = of.shape if kind or (key.inner is BOOL and of.shape != ()) else None
        work = of.work * (PLAIN if is_single else 1) + key.work
        return work, replace(of, kind=kind, shape=shape, columns=of.columns if kind else None, labels="", exact=None)
    if key.kind == "frame":
        return of.work + turned(key, "array")[0], unknown(inf)
    size = of.size * max(1.0, key.cells)
    if of.kind in ("frame", "groups", "polars frame", "polars groups") and key.kind == "list":
        kind, size = of.kind, size if of.kind == "frame" else of.size
        return of.work + size * of.weight * PLAIN, replace(of, kind=kind, shape=None, size=size, columns=None)
    return of.work + key.work + size * of.weight, Extent("", None, size, of.bits, of.weight, None)


def _columns_of(of: Extent, key: Extent) -> Extent | None:
    """Return the extent of the columns that constants name, or of each column if it is not known which; or None."""
    if of.columns is None:
        return None
    if key.kind == "text":
        found = join(of.columns.values()) if key.exact is None else of.columns.get(cast("str", key.exact), OTHER)
        return replace(found, kind="groups", labels="") if of.kind == "groups" and found is not OTHER else found
    if key.kind == "list" and key.exact and of.kind in ("frame", "groups"):
        labels = cast("tuple[Hashable, ...]", key.exact)
        names = {name: of.columns.get(name, OTHER) for name in labels}
        frame = frame_of(of.kind, of.length, names, [*names.values()])
        return replace(frame, labels=of.labels, keys=of.keys)
    return None


def head_of(of: Extent, number: float) -> Extent:
    """Return the extent of the first or last rows."""
    kinds = ("groups", "polars groups", "polars expression")
    if of.kind in kinds or not of.shape or number >= of.length:
        return replace(of, labels="", exact=None)
    part = number / of.length
    size = of.size * part if of.is_plain else min(of.size, number * of.width * (1 + of.cell_size))
    columns = None if of.columns is None else {name: head_of(one, number) for name, one in of.columns.items()}
    return replace(of, shape=(number, *of.shape[1:]), size=size, columns=columns, labels="", exact=None)


def _sliced(of: Extent, key: Extent) -> Bounded:
    if isinstance(key.exact, int) and of.kind in ("frame", "series", "array", "text", "list", "range"):
        return 1.0 + key.exact * of.width, head_of(of, key.exact)
    kind = of.kind if of.kind in HELD | {"text", "list", "range"} else ""
    work = of.work * (0.01 if of.kind == "range" else 1 if of.weight >= 1 else PLAIN)
    return 1 + work, replace(of, kind=kind, labels="", exact=None)


def slice_of(parts: list[Extent | None]) -> Extent:
    """Return the extent of a slice. `exact` is an upper bound of its length, if that is known."""
    first, last = (one.exact if one is not None else None for one in parts[:2])
    first = 0 if parts[0] is None else first
    length = None
    if isinstance(first, int) and isinstance(last, int) and first >= 0 and last >= 0:
        length = max(0, last - first)
    elif parts[1] is None and isinstance(first, int) and first < 0:
        length = -first
    return Extent("slice", exact=length)


def _located(of: Extent, key: Extent) -> Bounded:
    """Bound `frame.loc[rows, columns]` and `array[rows, columns]`. `key.exact` has the extents of the places."""
    keys = cast("tuple[Extent, ...]", key.exact)
    if of.kind == "array" and of.shape and all(one.kind in ("slice", "int") for one in keys):
        axes = [*zip(of.shape, [*keys, *[Extent("slice")] * 99], strict=False)]
        shape = tuple(axis for axis, one in axes if one.kind == "slice")
        return 1 + of.work * PLAIN, replace(of, shape=shape, labels="") if shape else of.inner or unknown(of.size)
    if len(keys) == 1:
        work, found = item_of(replace(of, columns=None), keys[0])
        return work, replace(found, columns=of.columns) if found.kind == "frame" else found
    if of.kind == "frame" and len(keys) == 2 and (found := _columns_of(of, keys[1])) is not None:  # noqa: PLR2004
        return _located(found, replace(key, exact=keys[:1]))
    times = 1.0
    for one in keys:
        times *= max(1.0, one.length) if one.kind not in ("slice", "text", "other") and one.inner is not BOOL else 1.0
    if any(one.shape is None for one in keys):
        times = inf
    size = of.size * times
    return 1 + of.work + sum(one.work for one in keys) + size * of.weight * PLAIN, Extent(
        "", None if size > 1 else (), size, of.bits, of.weight, of.inner if of.is_plain else None
    )


def attribute_of(of: Extent, name: str) -> Bounded:  # noqa: PLR0911  (one arm for each kind)
    """Return the bound of an attribute, such as `frame.columns`."""
    if of.columns is not None and name in of.columns:
        return item_of(of, measure(name))
    match name:
        case "str" | "dt" | "cat" | "list" | "arr" | "struct" | "loc" | "iloc" | "at" | "iat":
            return 1.0, of
        case "shape":
            return 1.0, list_of([whole(64)])
        case "size" | "nbytes" | "ndim" | "nlevels" | "width" | "height" | "itemsize":
            return 1.0, whole(64)
        case "empty" | "hasnans" | "is_unique" | "is_monotonic_increasing" | "is_monotonic_decreasing":
            return 4 * of.work, BOOL
        case "columns" | "dtypes" | "schema" if of.keys or of.columns:
            keys = of.keys or join(map(measure, of.columns or ()))
            return of.width * 10, replace(repeated_labels(of, replace(keys, exact=None)), weight=1.0)
        case "dtype" | "inferred_type" | "tz" | "ordered" | "__name__" | "__qualname__" | "__module__":
            return 1.0, replace(OTHER, size=of.width + 100)
        case "index":
            return 1.0, Extent("series", (of.length,), of.size, of.bits, of.weight)
        case "T" | "values":
            return turned(of, kind=of.kind if name == "T" else "array")
        case _:  # numbers of each cell, such as its year
            inner = NUMBER if of.is_plain else None
            kind = of.kind if of.kind in ("series", "array") else ""
            shape = of.shape if kind or of.shape == () else None
            return 1 + of.work, Extent(kind, shape, of.size, of.bits, of.weight, inner, labels=of.labels)


def repeated_labels(of: Extent, label: Extent) -> Extent:
    """Return the extent of the labels of columns."""
    kind = "series" if of.kind == "frame" else "list" if of.kind == "polars frame" else ""
    return Extent(kind, (of.width,), of.width * (1 + label.size) + 1, label.bits, inner=label)


def turned(of: Extent, kind: str) -> Bounded:
    """Return the bound of a frame or array on its side, or as an array. Several types make an object of each cell."""
    shape = of.shape[::-1] if of.shape and kind == of.kind else of.shape
    if of.is_plain and of.inner and (of.kind != "frame" or of.inner.kind in ("float", "bool")):
        return 1 + of.work * PLAIN, replace(of, kind=kind, shape=shape, columns=None, keys=None, labels="")
    return 1 + of.size, Extent(kind if shape else "", shape, of.size, of.bits, 1.0, of.inner)
