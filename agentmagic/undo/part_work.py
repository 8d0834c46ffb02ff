"""Bounds the work of reading parts of values: items, slices and attributes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from agentmagic.undo.extents import BOOL, HELD, NUMBER, NUMBERS, OTHER, PLAIN, Extent, join, text_of, unknown, whole
from agentmagic.undo.workload import Bounded, Given, cell_size, head_of, to_array, turned


def item_of(of: Extent, key: Extent) -> Bounded:  # noqa: PLR0911  (one arm for each kind)
    """Return the bound of `value[key]`."""
    if of.columns is not None and (found := _column_of(of, key)) is not None:
        return 1.0, found
    is_single = key.shape == () or key.kind == "text"
    if key.kind == "slice":
        kind = of.kind if of.kind in HELD | {"text", "list", "range"} else ""
        if isinstance(key.exact, int) and of.kind in ("frame", "series", "array", "text", "list", "range"):
            return head_of(replace(of, columns=of.columns if of.kind == "frame" else None), Given((key,)))
        return 1 + of.work * (1 if of.weight >= 1 else 0.1), replace(of, kind=kind, labels="", exact=None)
    if of.kind == "text":
        return 1.0, text_of(1 if is_single else of.length)
    if of.kind in ("list", "range", "dict") and of.inner is not None and is_single:
        return 1 + key.work, replace(of.inner, exact=None)
    if of.kind in ("groups", "polars groups") and is_single:
        return 1 + key.work, replace(of, columns=None)
    if of.kind in ("series", "array") and of.shape is not None and len(of.shape) == 1 and of.inner and is_single:
        inner = of.inner if key.kind in NUMBERS else replace(of, labels="")
        return 1 + (of.length * 0.1 if key.kind == "text" else 0), replace(inner, exact=None)
    if is_single:
        kind = "polars series" if of.kind == "polars frame" and key.kind == "text" else ""
        kind = of.kind if of.kind == "polars expression" else kind
        return 1 + of.work * 0.1, Extent(
            kind, None if of.size > 1 else (), of.size, of.bits, of.weight, None, labels=of.labels
        )
    return _items_at(of, key)


def text_named(text: str) -> Extent:
    """Return the extent of a constant text."""
    return replace(text_of(len(text)), exact=text)


def _column_of(of: Extent, key: Extent) -> Extent | None:
    """Return the column, key or place that a constant names, or what holds for each of them; None if none is known."""
    columns = of.columns or {}
    match of.kind, key.exact:
        case "list", int(place) if not isinstance(key.exact, bool):
            return columns.get(len(columns) + place if place < 0 else place, OTHER)
        case (("frame" | "polars frame" | "dict"), str(name)):
            return columns.get(name, OTHER)
        case (("groups"), str(name)) if name in columns:
            return replace(columns[name], kind="groups", labels="")
        case (("frame" | "polars frame"), None) if key.kind == "text":
            return join(columns.values())
        case _:
            return None


def frame_with(of: Extent, names: list[Any]) -> Extent:
    """Return the extent of a frame with some of the columns of another one."""
    columns = {name: (of.columns or {}).get(name, OTHER) for name in names}
    size = sum(one.size for one in columns.values())
    weight = max([PLAIN, *(one.weight for one in columns.values())])
    inner = join(one.inner or unknown(one.size, one.bits) for one in columns.values())
    shape = (of.length, float(len(names)))
    return Extent(of.kind, shape, size + 1, of.bits, weight, inner, of.keys, columns, of.labels)


def _items_at(of: Extent, key: Extent) -> Bounded:
    """Bound the items at many places: those where a mask is true, or those of a list of labels."""
    if key.inner is BOOL or (key.inner is not None and key.inner.kind == "bool" and key.weight < 1):
        kind = of.kind if of.kind in HELD else ""
        shape = of.shape if kind in ("series", "frame") or len(of.shape or ()) == 1 else None
        return of.work + key.work, replace(of, kind=kind, shape=shape, labels="", exact=None)
    if key.kind == "frame":
        key = to_array(key)[1]
    length = max(1.0, key.length if key.shape is not None else key.size)
    if of.kind in ("frame", "groups") and of.columns is not None and key.columns is not None and key.kind == "list":
        names = [one.exact for one in key.columns.values()]
        if all(isinstance(name, str) for name in names):
            result = frame_with(of, names)
            return 1 + result.work, result
    if of.kind == "frame" and key.kind == "list" and key.inner and key.inner.kind == "text":
        each = max((one.size for one in of.columns.values()), default=0) if of.columns is not None else of.size
        inner, weight = of.inner, of.weight
        size = length * each
        return 1 + size * weight, Extent(
            "frame",
            (of.length, length * (1 if of.columns is not None else of.width)),
            size,
            of.bits,
            weight,
            inner,
            of.keys,
            of.columns,
            of.labels,
        )
    if of.kind in ("polars frame", "groups", "polars groups") and key.kind == "list":
        return 1 + of.work, replace(of, columns=None)
    size = of.size * length
    return 1 + of.work + key.work + size * of.weight, Extent("", None, size, of.bits, of.weight, of.inner)


def located(of: Extent, key: Extent) -> Bounded:
    """Return the bound of `frame.loc[rows, columns]` and `array[rows, columns]`."""
    keys = [key.columns[place] for place in range(len(key.columns))] if key.kind == "list" and key.columns else [key]
    is_tuple, rows = len(keys) > 1, keys[0]
    if of.kind == "array" and of.shape is not None and all(one.kind in ("slice", "int", "number") for one in keys):
        axes = [
            axis for axis, one in zip(of.shape, [*keys, *[Extent("slice")] * 9], strict=False) if one.kind == "slice"
        ]
        inner = of.inner or unknown(of.size)
        return 1 + of.work * 0.1, replace(of, shape=tuple(axes), labels="") if axes else inner
    if of.kind == "frame" and of.shape is not None:
        if is_tuple and of.columns is not None and isinstance(keys[1].exact, str):
            of = of.columns.get(keys[1].exact, OTHER)
        elif is_tuple and keys[1].kind == "list":
            of = _items_at(of, keys[1])[1]
        elif is_tuple:
            of = replace(of, columns=None)
        if rows.kind == "slice" or (rows.inner is not None and rows.inner.kind == "bool"):
            return item_of(of, rows)
        if rows.kind in NUMBERS and not is_tuple:
            size = of.width * (1 + cell_size(of))
            plain = of.inner is not None and of.inner.kind in NUMBERS
            return 100 + of.width, Extent("series", (of.width,), size, of.bits, 1.0, of.inner if plain else None)
    times = 1.0
    for one in keys:
        times *= max(1.0, one.length) if one.kind not in ("slice", "text") and one.inner is not BOOL else 1.0
    size = of.size * times
    return 1 + of.work * 0.2 + sum(one.work for one in keys) + size * of.weight * 0.1, Extent(
        "", None if size > 1 else (), size, of.bits, of.weight, of.inner if of.kind != "frame" else None
    )


def attribute_of(of: Extent, name: str) -> Bounded:
    """Return the bound of an attribute, such as `frame.columns`."""
    if of.columns is not None and name in of.columns and (found := _column_of(of, text_named(name))) is not None:
        return 1.0, found
    bound = _ATTRIBUTES.get(name)
    if bound is not None:
        return bound(of)
    return 1 + of.work * 0.1, Extent("", None, of.size, of.bits, of.weight, None, labels=of.labels)


def _itself(of: Extent) -> Bounded:
    return 1.0, of


def _shape(of: Extent) -> Bounded:
    return 1.0, Extent("list", (2,), 3, inner=whole(max(of.length, of.width)))


def _number(of: Extent) -> Bounded:
    """Bound a number of rows, columns, cells or bytes."""
    return 1.0, whole(of.size * 100 + 10)


def _rows(of: Extent) -> Bounded:
    return 1.0, whole(of.length)


def _columns_number(of: Extent) -> Bounded:
    return 1.0, whole(max(of.width, 10))


def _column_labels(of: Extent) -> Bounded:
    inner = of.keys or unknown(min(of.size, 1000.0))
    kind = {"frame": "series", "polars frame": "list"}.get(of.kind)
    if kind is None:
        return _types(of)
    return of.width, Extent(kind, (of.width,), of.width * (1 + inner.size), 64, 1.0, inner)


def _types(of: Extent) -> Bounded:
    inner = of.keys or unknown(of.size)
    return of.width * 10, unknown(of.width * (1 + inner.size) + 1)


def _type_of(of: Extent) -> Bounded:
    return 1.0, replace(OTHER, size=of.width)


def _truth(of: Extent) -> Bounded:
    return 4 * of.work, BOOL


def _numbers(of: Extent) -> Bounded:
    """Bound a number for each cell, such as its year."""
    if of.is_held:
        kind = of.kind if of.kind in ("series", "array") else ""
        return of.work, Extent(kind, of.shape, of.cells, 64, PLAIN, NUMBER, labels=of.labels)
    return 1.0, Extent("number" if of.kind in NUMBERS else "", size=of.size, bits=of.bits)


def _index(of: Extent) -> Bounded:
    return 1.0, Extent("series", (of.length,), of.size, of.bits, of.weight, None)


_ATTRIBUTES: Mapping[str, Callable[[Extent], Bounded]] = {
    name: bound
    for bound, names in {
        _itself: "str dt cat list arr struct loc iloc at iat",
        _shape: "shape",
        _number: "size nbytes itemsize",
        _rows: "height",
        _columns_number: "ndim nlevels width",
        _column_labels: "columns",
        _types: "dtypes schema",
        _type_of: "dtype inferred_type tz ordered __name__ __qualname__ __module__",
        to_array: "values",
        _truth: "empty hasnans is_unique is_monotonic_increasing is_monotonic_decreasing",
        _numbers: "real imag numerator denominator start stop step days seconds year month day hour minute second "
        "microsecond dayofweek weekday quarter dayofyear days_in_month is_month_end is_month_start is_leap_year codes",
        _index: "index",
        turned: "T",
    }.items()
    for name in names.split()
}


def sliced(parts: list[Extent | None]) -> Extent:
    """Return the extent of a slice. `exact` is an upper bound of its length, if that is known."""
    first, last = (one.exact if one is not None else None for one in parts[:2])
    length = None
    if isinstance(last, int) and last >= 0 and (first is None or (isinstance(first, int) and first >= 0)):
        length = max(0, last - (first if isinstance(first, int) else 0))
    elif parts[1] is None and isinstance(first, int) and first < 0:
        length = -first
    return Extent("slice", exact=length)
