"""Bounds the work of functions of NumPy by the sizes of their arguments."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf, log2, sqrt

from agentmagic.undo.extents import FLOAT, NUMBER, NUMBERS, OTHER, PANDAS, PLAIN, POLARS, Extent, list_of, unknown
from agentmagic.undo.operator_work import broadcast, combine, matrix_product, power
from agentmagic.undo.workload import (
    Bounded,
    FunctionBound,
    Given,
    by_cell,
    letters_of,
    most_of,
    predicate,
    raised,
    reduction,
    repeat,
    to_array,
)


def held(one: Extent) -> Extent:
    """Return the extent of a value after a function of NumPy made an array of it."""
    if one.kind == "frame":
        return to_array(one)[1]
    return one if one.is_held or one.shape == () else _as_array(Given((one,)))[1]


def _as_array(given: Given) -> Bounded:
    first = given.args[0] if given.args else OTHER
    has_type = given.get(1, "dtype") is not None
    is_flat = first.inner is not None and first.inner.kind in ("int", "float", "bool", "number") and first.bits <= 64  # noqa: PLR2004
    if first.is_held and first.weight < 1 and not has_type:
        return to_array(first)
    if is_flat and not has_type and (first.shape is None or len(first.shape) == 1):
        return first.size, Extent("array", first.shape, first.cells, first.bits, PLAIN, NUMBER)
    size = first.size * letters_of(given.get(1, "dtype"))
    return size * 2 + given.work, Extent("", None, size, first.bits, 1.0)


def _number_pass(given: Given) -> Bounded:
    """Bound a function of NumPy that calculates a number for each number."""
    first = given.args[0] if given.args else OTHER
    if first.kind in NUMBERS:
        return given.work, FLOAT
    plain = first.weight < 1 or (first.inner is not None and first.inner.kind in NUMBERS - {"exact"})
    kind = (
        first.kind if first.kind in ("array", "series", "frame") else "array" if first.kind in ("list", "range") else ""
    )
    size = first.cells if first.shape is not None else first.size
    bits, weight = first.bits, PLAIN if plain else 1.0
    return given.work + size * 0.3, Extent(
        kind, first.shape, size, bits, weight, NUMBER if plain else None, labels=first.labels
    )


def _two(given: Given) -> Bounded:
    if len(given.args) < 2:  # noqa: PLR2004
        return inf, OTHER
    return broadcast("Add", *(held(one) for one in given.args[:2]))


def _compared_arrays(given: Given) -> Bounded:
    if len(given.args) < 2:  # noqa: PLR2004
        return inf, OTHER
    left, right = held(given.args[0]), held(given.args[1])
    work, result = broadcast("Compare", left, right)
    objects = left.size * right.size if max(left.weight, right.weight) >= 1 else 0
    return work + given.work + objects, result


def _chosen(given: Given) -> Bounded:
    """Bound `numpy.where`."""
    work, result = 0.0, held(given.args[0]) if given.args else OTHER
    for other in given.args[1:]:
        more, result = broadcast("Add", result, held(other))
        work += more
    return given.work + work, result


def _power_of(given: Given) -> Bounded:
    return power(held(given.args[0]), held(given.args[1])) if len(given.args) > 1 else (inf, OTHER)


def _multiplied_arrays(given: Given) -> Bounded:
    return combine("Mult", *map(held, given.args[:2])) if len(given.args) > 1 else (inf, OTHER)


def _outer(given: Given) -> Bounded:
    size = 1.0
    for one in given.args:
        size *= max(1.0, one.size if one.kind != "range" else one.length)
    return size * max([PLAIN, *(one.weight for one in given.args)]), Extent(
        "", None, size, 64, max([PLAIN, *(one.weight for one in given.args)])
    )


def _crossed(given: Given) -> Bounded:
    size = _outer(given)[1].size
    return size * 0.3, Extent("", None, size * 3, 64, 1.0)


def _dotted(given: Given) -> Bounded:
    return matrix_product(held(given.args[0]), held(given.args[1])) if len(given.args) > 1 else (inf, OTHER)


def _grid(given: Given) -> Bounded:
    size = _outer(given)[1].size * max(1.0, len(given.args))
    return size, unknown(size)


def _new_array(given: Given) -> Bounded:
    """Bound a new array by the numbers of its shape."""
    shape = given.get(0, "shape", "N", "n")
    fill = given.args[1] if len(given.args) > 1 else OTHER
    if shape is None:
        return inf, OTHER
    if shape.kind in ("list", ""):
        size = raised(max(1.0, most_of(shape)), max(1.0, shape.length))
        axes = None
    else:
        size = max(1.0, most_of(shape))
        axes = (size,)
    plain = given.get(None, "dtype") is None and fill.kind in NUMBERS | {"other"}
    size *= letters_of(given.get(None, "dtype"))
    return size * 0.5 + given.work, Extent(
        "array" if axes else "",
        axes,
        size * max(1.0, fill.size if fill.kind == "text" else 1),
        64,
        PLAIN if plain else 1.0,
        NUMBER if plain else None,
    )


def _square(given: Given) -> Bounded:
    rows = given.bound(0, "N", "n")
    columns = given.bound(1, "M", default=rows) if len(given.args) > 1 else rows
    return rows * columns * 0.5, Extent("array", (rows, columns), rows * columns, 64, PLAIN, FLOAT)


def arange(given: Given) -> Bounded:
    """Bound `arange`: its end divided by its step, if the step is known."""
    numbers = [*given.args]
    step = given.get(2, "step")
    if any(one.kind not in NUMBERS for one in numbers[:2]) or not numbers:
        return inf, OTHER
    least = (
        1.0
        if step is None or step.kind in ("int", "bool")
        else abs(step.exact)
        if isinstance(step.exact, float)
        else 0.0
    )
    length = sum(most_of(one) for one in numbers[:2]) / least + 1 if least else inf
    plain = given.get(None, "dtype") is None
    return length * 0.5, Extent(
        "array", (length,), length, max(one.bits for one in numbers), PLAIN if plain else 1.0, NUMBER if plain else None
    )


def _spaced(given: Given) -> Bounded:
    number = given.bound(2, "num", default=50)
    number *= max([1.0, *(one.size for one in given.args[:2])])
    return number * 0.5, Extent(
        "array", (number,) if all(one.shape == () for one in given.args[:2]) else None, number, 64, PLAIN, FLOAT
    )


def _tiled(given: Given) -> Bounded:
    return repeated_by(held(given.args[0]), Given(given.args[1:], given.names)) if given.args else (inf, OTHER)


def _pairs_of_rows(given: Given) -> Bounded:
    """Bound `corrcoef` and `cov`: each row of an array with each."""
    work = 0.0
    rows = 0.0
    for one in map(held, given.args):
        rows += 1.0 if one.shape is not None and len(one.shape) == 1 else max(one.length, one.width)
        work += one.size * (1 if one.shape is not None and len(one.shape) == 1 else rows) * 0.1 * max(1, one.weight)
    return work + rows * rows, Extent("array", (rows, rows), rows * rows, 64, PLAIN, FLOAT)


def _linear_algebra(given: Given) -> Bounded:
    """Bound an algorithm on a matrix, rows x columns x the smaller of both: up to 20 ns for each step."""
    work, size = 0.0, 0.0
    for one in map(held, given.args):
        least = sqrt(one.size) if one.shape is None or len(one.shape) > 2 else min(one.length, one.width)  # noqa: PLR2004
        work += one.size * max(1.0, least if one.shape is None or len(one.shape) > 1 else 1.0) * 0.2
        size += one.size + (
            raised(max(one.length, one.width), 2) if one.shape is not None and len(one.shape) > 1 else one.size
        )
    return work + size, Extent("", None, size * 3, 64, PLAIN, FLOAT)


def _diagonal(given: Given) -> Bounded:
    one = held(given.args[0]) if given.args else OTHER
    is_flat = one.shape is None or len(one.shape) <= 1
    size = raised(one.length + given.bound(1, "k", default=0), 2) if is_flat else one.size
    return size * 0.1, Extent("array", None, size, one.bits, one.weight, one.inner)


def _parts(given: Given) -> Bounded:
    """Bound the parts of an array: as many as the number, or the list of places, says."""
    source = held(given.args[0]) if given.args else OTHER
    number = given.bound(1, "indices_or_sections") + (given.args[1].size if len(given.args) > 1 else 0)
    return source.work + number * 10, unknown(source.size + number)


def _histogram(given: Given) -> Bounded:
    bins = given.bound(1, "bins", default=10)
    parts = given.args[1].size if len(given.args) > 1 else 1
    size = bins * 2 + parts
    source = given.args[0] if given.args else OTHER
    return source.work * 5 + size, list_of([unknown(size), unknown(size)])


def _counts_up_to(given: Given) -> Bounded:
    source = given.args[0] if given.args else OTHER
    most = most_of(held(source)) + given.bound(None, "minlength", default=0)
    return source.work + most * 0.5, Extent("array", (most,), most, 64, PLAIN, NUMBER)


def _quantiles_of(given: Given) -> Bounded:
    source = held(given.args[0]) if given.args else OTHER
    asked = max([1.0, *(one.length for one in given.args[1:])])
    size = asked * max(1.0, source.width if source.shape is not None and len(source.shape) > 1 else 1.0)
    return source.work * 5 + asked, FLOAT if size <= 1 and not given.names else Extent("", None, size, 64, PLAIN, FLOAT)


def _reduced(given: Given) -> Bounded:
    source = held(given.args[0]) if given.args else OTHER
    return reduction(source, Given(given.args[1:], given.names))


def _product_of(given: Given) -> Bounded:
    source = held(given.args[0]) if given.args else OTHER
    return product_of_items(source, Given(given.args[1:], given.names))


def _running_of(given: Given) -> Bounded:
    source = held(given.args[0]) if given.args else OTHER
    return running_product(source, Given())


def _same_numbers(given: Given) -> Bounded:
    source = held(given.args[0]) if given.args else OTHER
    work = source.work * 5 + given.work + source.length * log2(2 + source.length) * max(source.weight, PLAIN)
    times = given.bound(None, "n", default=1)
    shape = source.shape if not given.names and source.shape is not None and len(source.shape) == 1 else None
    return work * times, replace(
        source,
        kind="array" if source.kind in ("series", "array") else "",
        shape=shape,
        size=source.size + given.size,
        columns=None,
        labels="",
        exact=None,
    )


def _flat_numbers(given: Given) -> Bounded:
    source = held(given.args[0]) if given.args else OTHER
    return source.work * 2, Extent("", None, source.size * 2, 64, source.weight, source.inner)


def _differences(given: Given) -> Bounded:
    work, result = _same_numbers(given)
    return work * given.bound(1, "n", default=1), result


def _fitted(given: Given) -> Bounded:
    degree = given.bound(2, "deg", default=1) + 1
    size = given.size * degree
    return given.work * 5 + size * degree, Extent("array", (degree,), degree, 64, PLAIN, FLOAT)


def _broadcast_to(given: Given) -> Bounded:
    shape = given.args[1] if len(given.args) > 1 else given.get(None, "shape")
    if shape is None:
        return inf, OTHER
    size = raised(max(1.0, most_of(shape)), max(1.0, shape.length))
    return 1.0 + size * 0.1, Extent("", None, size, 64, 1.0)


def _predicated(given: Given) -> Bounded:
    return predicate(held(given.args[0]), Given(given.args[1:], given.names)) if given.args else (inf, OTHER)


def repeated_by(of: Extent, given: Given) -> Bounded:
    """Return the bound of a repetition of all elements by the numbers that are given."""
    times = 1.0
    for one in given.all:
        times *= max(1.0, most_of(one)) * max(1.0, one.length if one.kind in ("list", "") else 1.0)
    return repeat(of, times)


def product_of_items(of: Extent, given: Given) -> Bounded:
    """Return the bound of a product. That of objects can be a whole number of any length."""
    work, result = reduction(of, given)
    if of.weight < 1:
        return work, result
    bits = of.bits * of.length
    return work + of.length * bits / 30, replace(result, bits=bits, size=result.size + bits / 64)


def running_product(of: Extent, given: Given) -> Bounded:
    """Return the bound of a product of all items before each item."""
    work, result = by_cell(of, given)
    size = of.size if of.weight < 1 else of.length * (of.size + of.bits * of.length / 64)
    return work + (size if of.weight >= 1 else 0), replace(result, size=size, inner=of.inner if of.weight < 1 else None)


def _stacked(given: Given) -> Bounded:
    """Bound arrays or frames put together."""
    several = given.args[0] if given.args else OTHER
    inner = several.inner or several
    inner = inner if several.kind == "list" else several
    size = several.size + given.size
    is_square = (
        given.get(1, "axis") is not None or given.get(None, "keys") is not None or given.get(None, "join") is not None
    )
    if inner.kind in PANDAS and is_square:
        axis = given.get(1, "axis")
        same = inner.labels != "" and axis is not None and given.get(None, "keys") is None
        size = (
            size
            if same or axis is None
            else raised(inner.length, max(1.0, several.length)) * max(1.0, inner.width) * max(1.0, several.length)
        )
    kind = inner.kind if inner.kind in POLARS else "frame" if inner.kind == "frame" else ""
    shape = (
        (size,)
        if several.kind == "list" and inner.kind in ("array", "series") and len(inner.shape or ()) == 1
        else None
    )
    weight = inner.weight
    return several.size * inner.weight * 0.3 + size * weight * 0.3 + given.size * 0.1, Extent(
        kind, shape, size, inner.bits, weight, inner.inner
    )


def _stacked_arrays(given: Given) -> Bounded:
    """Bound arrays put together by NumPy, which makes arrays of frames first."""
    several = given.args[0] if given.args else OTHER
    inner = held(several.inner).without_polars() if several.inner is not None else None
    return _stacked(Given((replace(several, inner=inner), *given.args[1:]), given.names))


ARRAY_FUNCTIONS: Mapping[str, Mapping[FunctionBound, str]] = {
    "pandas": {
        _number_pass: "to_numeric",
        _predicated: "isna isnull notna notnull",
        _stacked: "concat",
    },
    "numpy": {
        _as_array: "array asarray",
        _new_array: "empty zeros ones full",
        _square: "eye identity",
        _same_numbers: "zeros_like ones_like empty_like full_like unique sort argsort flip   gradient roll "
        "trapezoid delete append insert expand_dims setdiff1d intersect1d union1d "
        "searchsorted digitize interp ",
        _stacked_arrays: "vstack hstack column_stack concatenate stack",
        _number_pass: "sqrt exp log log2 log10 log1p expm1 abs absolute sin cos tan arcsin arccos arctan sinh cosh "
        "tanh square sign floor ceil rint deg2rad rad2deg exp2 nan_to_num round around clip",
        _predicated: "isnan isfinite isinf logical_not",
        _grid: "meshgrid",
        _parts: "split array_split",
        _diagonal: "diag triu tril",
        _flat_numbers: "transpose ravel nonzero argwhere reshape squeeze shape size ndim",
        _running_of: "cumsum cumprod",
        _differences: "diff",
        _dotted: "dot matmul inner",
        _outer: "outer kron convolve polyval",
        _crossed: "cross",
        _histogram: "histogram",
        _quantiles_of: "percentile quantile nanpercentile",
        _pairs_of_rows: "corrcoef cov",
        _tiled: "tile repeat",
        _counts_up_to: "bincount",
        _compared_arrays: "isin logical_and logical_or isclose allclose array_equal",
        _two: "add subtract divide mod maximum minimum hypot arctan2",
        _multiplied_arrays: "multiply",
        _power_of: "power",
        _chosen: "where",
        _reduced: "sum mean median std var min max amin amax ptp average nansum nanmean nanmedian nanstd nanvar "
        "nanmin nanmax argmax argmin nanargmax nanargmin all any count_nonzero trace",
        _product_of: "prod",
        _broadcast_to: "broadcast_to",
        arange: "arange",
        _spaced: "linspace logspace geomspace",
        _fitted: "polyfit",
    },
    "numpy.linalg": {
        _linear_algebra: "inv det eig eigh eigvals svd qr pinv matrix_rank cond solve lstsq",
        _reduced: "norm",
    },
    "polars": {
        _stacked: "concat",
    },
}
"""The functions of each kind of work, by module."""
