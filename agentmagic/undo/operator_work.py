"""Bounds the work of operators, such as `a ** b`, by the sizes of their operands."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, prod

from agentmagic.undo.extents import (
    BOOL,
    FLOAT,
    HELD,
    NUMBER,
    NUMBERS,
    PLAIN,
    POLARS,
    Extent,
    join,
    list_of,
    measure,
    text_of,
    unknown,
)
from agentmagic.undo.workload import (
    Bounded,
    Given,
    by_cell,
    looped,
    most_of,
    numbers_in,
    raised,
    repeat,
    shown_size,
    to_array,
)

_EXACT: Mapping[str, Callable[[int, int], int]] = {
    "Add": int.__add__,
    "Sub": int.__sub__,
    "Mult": int.__mul__,
    "Pow": int.__pow__,
}


def combine(operation: str, left: Extent, right: Extent) -> Bounded:  # noqa: PLR0911  (one arm for each kind)
    """Return the bound of an operator with two operands, by the name of its syntax node: "Add"."""
    if operation == "Pow":
        return power(left, right)
    if operation == "LShift":
        return _shift_left(left, right)
    if operation == "MatMult":
        return matrix_product(left, right)
    if left.is_held or right.is_held:
        return broadcast(operation, left, right)
    if operation == "Mult":
        return _multiply(left, right)
    if operation == "Mod" and left.kind not in NUMBERS:
        return _format(left, right)
    if left.kind in NUMBERS and right.kind in NUMBERS:
        return _calculate(operation, left, right)
    work = left.work + right.work
    kind = left.kind if left.kind == right.kind and left.kind in ("text", "list", "flag", "range") else ""
    inner = join([left.inner, right.inner]) if left.inner and right.inner else None
    shape = (left.length + right.length,) if kind in ("text", "list") else None
    shape = () if kind == "flag" else shape
    return work, Extent(kind, shape, left.size + right.size, left.bits + right.bits, inner=inner)


def _calculate(operation: str, left: Extent, right: Extent) -> Bounded:
    """Bound a calculation with two numbers."""
    if "float" in (left.kind, right.kind):
        return 1.0, FLOAT
    if (exact := exactly(operation, left, right)) is not None:
        return 1.0, exact
    grows = operation == "Mult" or "exact" in (left.kind, right.kind)
    bits = left.bits + right.bits if grows else max(left.bits, right.bits) + 1
    digits = (left.bits / 30) * (right.bits / 30) if operation in ("Mult", "Div", "FloorDiv", "Mod") else bits / 30
    kind = "float" if operation == "Div" and {left.kind, right.kind} <= {"int", "bool"} else "int"
    kind = (
        kind
        if {left.kind, right.kind} <= {"int", "bool"}
        else "exact"
        if "exact" in (left.kind, right.kind)
        else "number"
    )
    return 1 + digits * 0.05, Extent(kind, size=1 + bits / 64, bits=max(1.0, bits))


def exactly(operation: str, left: Extent, right: Extent) -> Extent | None:
    """Return the extent of a calculation with two whole numbers that are known and short, or None."""
    function = _EXACT.get(operation)
    one, other = left.exact, right.exact
    if function is None or type(one) is not int or type(other) is not int or max(left.bits, right.bits) > 1000:  # noqa: PLR2004
        return None
    return measure(function(one, other)) if operation != "Pow" or other >= 0 else None


def _multiply(left: Extent, right: Extent) -> Bounded:
    """Bound a product of two values. That of a container and a number is a repetition."""
    if left.kind in NUMBERS and right.kind in NUMBERS:
        return _calculate("Mult", left, right)
    several, times = (right, left) if left.kind in NUMBERS else (left, right)
    if several.kind not in NUMBERS and times.kind in NUMBERS | {""}:
        work, result = repeat(several, max(1.0, times.bound))
        if times.kind == "":
            other, swapped = repeat(times, max(1.0, several.bound if several.kind == "" else 1.0))
            work, result = max(work, other), join([result, swapped])
        return work, replace(result, bits=left.bits + right.bits)
    return left.work + right.work, unknown(left.size + right.size, left.bits + right.bits)


def _shift_left(left: Extent, right: Extent) -> Bounded:
    if left.is_held or right.is_held:
        is_plain = left.weight < 1 and right.weight < 1
        work, result = broadcast("Add", left, right)
        return (work if is_plain else work * max(1.0, right.bound)), result
    bits = left.bits + right.bound
    return 1 + bits / 64, Extent("int", size=1 + bits / 64, bits=bits)


def power(left: Extent, right: Extent) -> Bounded:
    """Return the bound of a power. Whole numbers grow with the exponent, machine numbers do not."""
    is_held = left.is_held or right.is_held
    if is_held and all(map(holds_numbers, (left, right))):
        work, result = broadcast("Add", left, right)
        return 3 * work, result
    if "float" in (left.kind, right.kind) and not is_held:
        return 1.0, FLOAT
    bits = max(1.0, left.bits) * max(1.0, most_of(right))
    if bits <= 1000 and (exact := exactly("Pow", left, right)) is not None:  # noqa: PLR2004
        return 1.0, exact
    cells = max(1.0, left.size) * max(1.0, right.size if right.is_held or right.shape != () else 1.0)
    work = cells * (1 + raised(bits / 30, 1.6) * 0.02)
    is_whole = {left.kind, right.kind} <= {"int", "bool"} and isinstance(right.exact, int) and right.exact >= 0
    kind = "int" if is_whole else "number" if {left.kind, right.kind} <= NUMBERS - {"exact"} else ""
    kind = left.kind if left.kind in HELD else kind
    return work, Extent(kind, left.shape, cells * (1 + bits / 64), bits, labels=left.labels)


def broadcast(operation: str, left: Extent, right: Extent) -> Bounded:
    """Return the bound of an operator on arrays, series or frames."""
    inner = join([_cell(left), _cell(right)])
    plain = all(holds_numbers(one) for one in (left, right))
    inner = (
        (NUMBER if inner.kind != "float" else FLOAT)
        if plain
        else unknown(_cell(left).size + _cell(right).size, left.bits + right.bits)
    )
    inner = (
        BOOL
        if operation == "Compare"
        or (left.inner is BOOL and right.inner is BOOL and operation in ("BitAnd", "BitOr", "BitXor"))
        else inner
    )
    weight = PLAIN if plain or inner is BOOL else 1.0
    kinds = [one.kind for one in (left, right) if one.is_held]
    shape, labels = _common_shape(left, right)
    cells = left.cells * right.cells if shape is None else prod(shape)
    kind = kinds[0] if len(set(kinds)) == 1 else "frame" if set(kinds) == {"frame", "series"} else ""
    if kind in POLARS and not (all(one.kind == kind or one.kind in NUMBERS | {"text"} for one in (left, right))):
        kind = ""
    if kind == "polars expression":
        return left.size + right.size, Extent(kind, None, left.size + right.size + 1, 128, PLAIN)
    size, work_weight = cells, max(weight, PLAIN)
    if inner is not BOOL and not plain:
        size = cells * (1 + inner.size)
        if operation == "Mult":
            size = left.size * right.bound if not right.is_held else cells * inner.size * max(left.bound, right.bound)
            size = max(cells, right.size * left.bound if not left.is_held else size)
        if operation == "Mod" and not plain:
            size *= raised(10.0, max(_cell(left).size, 1.0))
    work = left.work + right.work + size * work_weight
    return work, Extent(
        kind,
        shape,
        size,
        max(left.bits, right.bits) + (0 if plain else min(left.bits, right.bits)),
        weight,
        inner,
        labels=labels,
    )


def _cell(one: Extent) -> Extent:
    if one.shape == () or one.kind in NUMBERS | {"text"}:
        return replace(one, exact=None)
    return one.inner or unknown(one.size, one.bits)


def holds_numbers(one: Extent) -> bool:
    """Return whether a value is a machine number, or holds such numbers only."""
    if one.is_plain:
        return True
    cell = one.inner if one.kind == "list" else one
    return cell is not None and cell.kind in NUMBERS - {"exact"} and cell.bits <= 64  # noqa: PLR2004


def _common_shape(left: Extent, right: Extent) -> tuple[tuple[float, ...] | None, str]:  # noqa: PLR0911
    """Return the shape of a combination of two values, and the labels of its rows."""
    for one, other in ((left, right), (right, left)):
        if other.shape == () or (other.kind == "text" and not other.is_held):
            return one.shape, one.labels
    if left.shape is None or right.shape is None:
        return None, ""
    kinds = {left.kind, right.kind}
    if left.labels and left.labels == right.labels and left.kind == right.kind:
        return tuple(map(max, left.shape, right.shape)) if len(left.shape) == len(right.shape) else None, left.labels
    if kinds <= {"array", "list", "polars series", "range"} or (
        kinds & {"array", "list"} and kinds <= {"series", "array", "list"}
    ):
        short, long = sorted((left.shape, right.shape), key=len)
        padded = (*([1.0] * (len(long) - len(short))), *short)
        return tuple(map(max, padded, long)), left.labels or right.labels
    if kinds == {"frame", "series"}:
        frame, series = (left, right) if left.kind == "frame" else (right, left)
        if frame.columns is not None or series.length * frame.width <= 1000:  # noqa: PLR2004
            return (frame.length, frame.width + series.length), frame.labels
    if kinds <= {"frame", "series"}:
        return (left.length * right.length, max(left.width, right.width)), ""
    return None, ""


def compare(operation: str, left: Extent, right: Extent) -> Bounded:
    """Return the bound of a comparison, or of a search for an item."""
    if operation in ("In", "NotIn"):
        is_quick = right.kind in ("dict", "text") or (right.kind == "range" and left.kind in ("int", "bool"))
        return left.work + right.work + (0 if is_quick else looped(right) + right.size), BOOL
    if operation in ("Is", "IsNot"):
        return 1.0, BOOL
    if left.is_held or right.is_held:
        return broadcast("Compare", left, right)
    return 1 + min(left.work, right.work) + min(left.size, right.size), BOOL


def matrix_product(left: Extent, right: Extent) -> Bounded:
    """Return the bound of a product of matrices, rows x columns x columns."""
    if "frame" in (left.kind, right.kind):
        (work, left), (more, right) = (to_array(one) if one.is_held else (0.0, one) for one in (left, right))
        product, result = matrix_product(left, right)
        return work + more + product, result
    if left.shape is None or right.shape is None:
        size = left.size * right.size
        return size * 0.1, Extent("", None, size, 64, PLAIN)
    columns = right.width if len(right.shape) > 1 else 1.0
    rows = left.length if len(left.shape) > 1 else 1.0
    rows, columns = max(1.0, rows), max(1.0, columns)
    cells = rows * columns if len(left.shape) <= 2 and len(right.shape) <= 2 else left.size * right.size  # noqa: PLR2004
    inner = max(left.width if len(left.shape) > 1 else left.length, 1.0)
    is_plain = left.weight < 1 and right.weight < 1
    work = left.work + right.work + cells * inner * (0.01 if is_plain else 1 + (left.bits + right.bits) / 1000)
    shape = (rows, columns) if len(left.shape) > 1 and len(right.shape) > 1 else (max(rows, columns),)
    weight = PLAIN if is_plain else 1.0
    kind = "array" if {left.kind, right.kind} == {"array"} else ""
    return work, Extent(
        kind, shape if cells > 1 else (), cells, left.bits + right.bits, weight, NUMBER if is_plain else None
    )


def _format(left: Extent, right: Extent) -> Bounded:
    """Bound `text % values`: the widths in the text, and the texts of the values."""
    if left.kind == "" and left.size <= 1:
        return 1 + right.work, unknown(1, max(left.bits, right.bits))
    if not isinstance(left.exact, str):
        return inf if left.size > 3 else 1000 + right.work, text_of(1000 + right.size)  # noqa: PLR2004
    width = inf if "*" in left.exact else numbers_in(left.exact)
    size = left.size + width + shown_size(right) * left.exact.count("%")
    return right.work + size * 0.1, text_of(size)


def negate(operation: str, one: Extent) -> Bounded:
    """Return the bound of an operator with one operand, by the name of its syntax node: "Not"."""
    if operation == "Not":
        return 1.0, BOOL
    exact = -one.exact if operation == "USub" and isinstance(one.exact, (int, float)) else None
    if one.is_held:
        work, result = by_cell(one, Given())
        return work, replace(result, inner=BOOL if one.inner is BOOL else result.inner)
    kind = "int" if one.kind == "bool" else one.kind if one.kind in NUMBERS else ""
    return 1.0, replace(one, kind=kind, bits=one.bits + 1, exact=exact)


def literal_of(items: list[Extent], stars: list[bool]) -> Bounded:
    """Return the bound of a list of these items, some with stars."""
    if not any(stars):
        return float(len(items)), list_of(items)
    length = sum(one.length if star else 1.0 for one, star in zip(items, stars, strict=True))
    inner = join(one.item() if star else one for one, star in zip(items, stars, strict=True))
    size = 1 + sum(one.size + one.length for one in items)
    return length + size * 0.1, Extent("list", (length,), size, inner.bits, inner=inner)
