"""Bounds the work of methods: one table of kinds of work. A method without a row has no bound."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf, log2

from agentmagic.undo.array_work import product_of_items, repeated_by, running_product
from agentmagic.undo.calendar_work import CALENDAR_METHODS
from agentmagic.undo.extents import (
    BOOL,
    FLOAT,
    HELD,
    NUMBER,
    NUMBERS,
    OTHER,
    PANDAS,
    PLAIN,
    POLARS,
    Extent,
    join,
    list_of,
    repeated,
    text_of,
    unknown,
    whole,
)
from agentmagic.undo.operator_work import combine, matrix_product, power
from agentmagic.undo.part_work import item_of
from agentmagic.undo.text_work import TEXT_METHODS, joined, matched
from agentmagic.undo.workload import (
    Bound,
    Bounded,
    Given,
    by_cell,
    cell_size,
    head_of,
    looped,
    most_of,
    predicate,
    reduction,
    subset,
    to_array,
    turned,
)


def _any_pass(of: Extent, given: Given) -> Bounded:
    """Bound a method that looks at each element once. Its result holds nothing but elements of what is given."""
    kind = of.kind if of.kind in ("polars expression", "text") or of.kind in POLARS else ""
    inner = of.inner if of.weight < 1 and of.inner and of.inner.kind in NUMBERS and not given.args else None
    size = of.size + given.size + of.cells * (max((one.size for one in given.all if one.kind != "series"), default=0))
    shape = None if of.shape is None or of.kind == "text" or given.all else of.shape
    columns, labels = (of.columns, of.labels) if of.kind in ("groups", "polars groups") else (None, "")
    size = size if given.all else of.size
    weight = of.weight if all(one.weight < 1 or one.shape == () or one.kind == "text" for one in given.all) else 1.0
    result = Extent(kind, shape, size, max([of.bits, *(one.bits for one in given.all)]), weight, inner, None, columns)
    return of.work + given.work, replace(result, labels=labels)


def _memory(of: Extent, _given: Given) -> Bounded:
    """Bound a number for each column."""
    return of.work, Extent("series", (of.width + 1,), of.width + 1, 64, PLAIN, NUMBER)


def hash_of(of: Extent, given: Given) -> Bounded:
    """Bound a method that looks each cell up in a table: 50 to 150 ns for a number, more for a row."""
    work, result = _any_pass(of, given)
    return 1.5 * of.work + work, result


def _distinct(of: Extent, given: Given) -> Bounded:
    """Bound a number of distinct values."""
    work, _ = hash_of(of, given)
    _, result = reduction(replace(of, size=of.cells, weight=PLAIN, inner=NUMBER), given)
    return work * 0.8, result


def _same_hash(of: Extent, given: Given) -> Bounded:
    """Bound a search for equal rows: all columns of a frame, or those that are named."""
    work, result = subset(of, given)
    return work + _rows_hashed(of, given), result


def _rows_hashed(of: Extent, given: Given) -> float:
    named = given.get(0, "subset")
    columns = of.width if named is None else min(of.width, max(1.0, named.length if named.kind == "list" else 1.0))
    return of.work * (1.5 if of.width <= 1 else 4 * columns / of.width)


def _hash_predicate(of: Extent, given: Given) -> Bounded:
    work, result = predicate(of, given)
    return work + 1.5 * of.work, result


def _repeated_rows(of: Extent, given: Given) -> Bounded:
    work = of.work + given.work
    return work + _rows_hashed(of, given), Extent(
        "polars series" if of.kind in POLARS else "series", (of.length,), of.length, 1, PLAIN, BOOL, labels=of.labels
    )


def _sort(of: Extent, given: Given) -> Bounded:
    """Bound a sort, n log n."""
    work, result = subset(of, given)
    return work + of.length * log2(2 + of.length) * max(of.weight, PLAIN) * 0.5 * _compared(of), result


def _compared(of: Extent) -> float:
    """Return the work of comparing two items, relative to numbers: texts are compared up to the first difference."""
    is_plain = of.weight < 1 or of.inner is None or of.inner.kind in NUMBERS
    return 1.0 if is_plain or of.inner is None else 1 + of.inner.size / 20


def _sorted_numbers(of: Extent, given: Given) -> Bounded:
    work, result = _sort(of, given)
    return work, replace(result, inner=NUMBER if of.weight < 1 else None)


def _count(of: Extent, given: Given) -> Bounded:
    """Bound a count. Of a text and a list, it is a whole number."""
    if of.is_held:
        return matched(of, given) if given.args and of.kind not in POLARS | {"groups"} else reduction(of, given)
    return 1 + of.work + of.size + looped(of) + given.work, whole(max(of.size, of.length))


def _description(of: Extent, given: Given) -> Bounded:
    """Bound `describe`: a sort of each column; of groups, 0.3 ms for each."""
    if (of.kind in ("groups", "") and of.shape is None) or of.kind == "groups":
        return of.work + of.length * 3000, unknown(of.size * 10)
    quantiles = given.bound(0, "percentiles", default=3) if given.get(0, "percentiles") is None else 3 + given.size
    kind = of.kind if of.kind in ("frame", "polars frame") else ""
    inner = of.inner or unknown(of.size)
    size = (10 + quantiles) * of.width * max(1, inner.size if inner.kind not in NUMBERS else 1)
    shape = (10.0 + quantiles, of.width)
    weight = of.weight if inner.kind in NUMBERS else 1.0
    return 2.5 * of.work + of.width * 1000, Extent(kind, shape, size, of.bits, weight, inner, of.keys, labels="")


def _pairs_of_columns(of: Extent, given: Given) -> Bounded:
    """Bound a correlation of each column with each: 5 ns for a row and a pair."""
    if of.kind == "groups":
        return of.work + of.length * 3000 * of.width, unknown(of.size * of.width)
    columns = max(1.0, of.width)
    cells = columns * columns if of.shape is not None and len(of.shape) > 1 else 1
    work = of.work + given.work + of.cells * (columns + 1 if cells > 1 else 1) * 0.01 / PLAIN * max(of.weight, PLAIN)
    return work, Extent(
        "frame" if of.kind == "frame" else "", (columns, columns) if cells > 1 else (), cells, 64, PLAIN, FLOAT, of.keys
    )


def _largest(of: Extent, given: Given) -> Bounded:
    _, result = head_of(of, given)
    return 2 * of.work + result.work, result


def _shown_text(weight: float) -> Bound:
    """Return the bound of a text made of all cells. `weight` is the work for one."""

    def bound(of: Extent, given: Given) -> Bounded:
        numbers = [most_of(one) for one in given.all if one.kind in ("int", "number", "")]
        texts = [one.size for one in given.all if one.kind == "text"]
        factor = max(1.0, *numbers, *texts, 1.0) if numbers or texts else 1.0
        size = (of.size + of.length + 50) * 40 * factor
        return (of.size + of.length) * weight * factor, text_of(size)

    return bound


def _to_python(weight: float) -> Bound:
    """Return the bound of a method that makes a Python object of each cell."""

    def bound(of: Extent, given: Given) -> Bounded:
        size = of.size * 2 + of.length
        inner = of.inner if of.shape is not None and len(of.shape) == 1 and of.inner else unknown(size, of.bits)
        inner = replace(inner, kind="" if inner.kind == "number" else inner.kind, exact=None)
        is_list = of.shape is not None and len(of.shape) == 1
        kind = "list" if is_list and of.kind in ("series", "array", "polars series") else ""
        result = Extent(kind, of.shape if is_list else None, size, of.bits, inner=inner if is_list else None)
        return of.size * weight + of.length + given.work, result

    return bound


def _rows(of: Extent, _given: Given) -> Bounded:
    """Bound a loop over the rows of a frame, 20 µs for each."""
    row = list_of([NUMBER, unknown(of.size)])
    return of.length * 200 + of.size, Extent("list", (of.length,), of.size * 2, of.bits, inner=row)


def _items(of: Extent, _given: Given) -> Bounded:
    """Bound `items`: of a dict, its keys with their values; of a frame, its columns."""
    if of.kind == "dict" and of.inner and of.keys:
        return 1.0, repeated(list_of([of.keys, of.inner]), of.length)
    if of.kind == "frame":
        pair = list_of([of.keys or unknown(of.size), replace(of, kind="series", shape=(of.length,), columns=None)])
        return of.width * 100, Extent("list", (of.width,), of.size + of.width, of.bits, inner=pair)
    return 2 * of.size + 1, unknown(of.size * 2 + 1, of.bits)


def _keys(of: Extent, _given: Given) -> Bounded:
    keys = of.keys if of.kind == "dict" else None
    return 1.0, repeated(keys, of.length) if keys else unknown(of.size, of.bits)


def _values(of: Extent, _given: Given) -> Bounded:
    """Bound `values`: of a dict, what it holds; of a frame with several types, an object for each cell."""
    if of.kind == "dict" and of.inner:
        return 1.0, repeated(of.inner, of.length)
    return to_array(of)


def merged(of: Extent, given: Given) -> Bounded:
    """Bound a join: each row with each other one, unless `validate` allows one match for a row only."""
    if of.kind == "text":
        return joined(of, given)
    checked = given.get(None, "validate")
    others = [one for one in given.args if one.kind != "text"] or [*given.args] or [*given.names.values()]
    size, length = of.size, of.length
    for other in others:
        other_length = other.length if other.kind in HELD else other.size
        if checked is not None and checked.exact in ("1:1", "one_to_one", "1:m", "m:1", "one_to_many", "many_to_one"):
            rows = length + other_length
            size, length = rows * (of.width + other.width) * (1 + cell_size(of)), rows
        else:
            size, length = size * other_length + other.size * length, length * other_length
    weight = max([of.weight, *(one.weight for one in others)])
    kind = of.kind if of.kind in POLARS else ""
    result = Extent(kind, None, size, max([of.bits, *(one.bits for one in others)]), weight)
    return of.work + given.work + size * weight, result


def widened(of: Extent, given: Given) -> Bounded:
    """Bound a table with a column for each value of a column, such as `pivot`: rows times rows."""
    groups = max([of.length, *(one.length for one in given.all if one.kind in HELD)])
    categories = groups * groups * max(1.0, of.width)
    return of.work * 2 + categories * PLAIN, Extent(
        of.kind if of.kind in POLARS else "", None, categories, of.bits, max(of.weight, PLAIN), of.inner
    )


def _exploded(of: Extent, _given: Given) -> Bounded:
    """Bound a row for each item of each list: its other cells are repeated."""
    size = of.size * (1.0 if of.width <= 1 and of.shape is not None else cell_size(of) + 1)
    return of.work + size * of.weight, replace(of, shape=None, size=size, inner=None, columns=None, labels="")


def _get(of: Extent, given: Given) -> Bounded:
    """Bound `get`: an item, or the default."""
    default = given.args[1] if len(given.args) > 1 else OTHER
    if of.kind == "dict" and of.inner:
        return 1.0, join([of.inner, default])
    return of.work + given.work, join([item_of(of, given.args[0] if given.args else OTHER)[1], default])


def _as_type(of: Extent, given: Given) -> Bounded:
    """Bound `astype`. Objects and texts cost 1.5 µs each."""
    to = given.get(0, "dtype")
    name = str(to.exact) if to is not None and to.kind == "text" else ""
    if (
        to is not None
        and (to.kind == "type" or name)
        and not name.startswith(("str", "obj", "categ", "O", "U", "S", "<", ">", "|"))
        and of.is_plain
    ):
        return of.work, replace(of, columns=None, inner=NUMBER)
    kind = of.kind if of.kind in PANDAS | {"array"} else ""
    return of.cells * 15 + of.size, Extent(kind, of.shape, of.size * 30, of.bits, 1.0, None, labels=of.labels)


def _groups(of: Extent, given: Given) -> Bounded:
    kind = "polars groups" if of.kind == "polars frame" else "groups"
    return of.work + given.work, replace(of, kind=kind, labels="", exact=None)


def _one_by_one(of: Extent, given: Given) -> Bounded:
    """Bound a method that makes a frame for each group, 100 µs each."""
    work, result = _any_pass(of, given)
    return work + of.length * 1000, result


def _imploded(of: Extent, given: Given) -> Bounded:
    """Bound a list of all values, which can stand in each row."""
    work, result = _any_pass(of, given)
    return work, replace(result, size=inf) if of.kind == "polars expression" else result


def _expression(of: Extent, given: Given) -> Bounded:
    """Bound a method of polars that is given expressions: each of their operations goes over all rows."""
    operations = sum(one.size if one.kind == "polars expression" else 1 + one.size for one in given.all)
    lists = 1.0 if of.kind == "polars expression" else max(1.0, of.size)
    weight = 1.0 if of.kind == "polars expression" else of.weight
    kind = (
        of.kind
        if of.kind in ("polars expression", "polars frame")
        else "polars frame"
        if of.kind == "polars groups"
        else ""
    )
    size = of.size + operations if kind == "polars expression" else lists * (1 + operations)
    return 1 + lists * (1 + operations) * weight, Extent(kind, None, size, 128, 1.0 if not kind else of.weight)


def _reindexed(of: Extent, given: Given) -> Bounded:
    length = sum(max(one.length, one.size if one.shape is None else 0) for one in given.all)
    size = of.size + length * max(1.0, of.width) * (1 if of.weight < 1 else cell_size(of))
    return of.work + given.work + size * of.weight, Extent("", None, size, of.bits, of.weight, of.inner)


def _taken(of: Extent, given: Given) -> Bounded:
    return item_of(of, given.args[0] if given.args else OTHER)


def _quantile(of: Extent, given: Given) -> Bounded:
    """Bound quantiles: one value for each that is asked for."""
    asked = max([1.0, *(one.length for one in given.all)])
    work, result = reduction(of, given)
    if asked <= 1:
        return 3 * work, result
    return 3 * work + asked * of.width, Extent("", None, asked * max(1.0, of.width), 64, of.weight, of.inner)


def _bins(of: Extent, given: Given) -> Bounded:
    """Bound counts, by bins if their number is given: 10 µs for each."""
    work, result = hash_of(of, Given())
    bins = given.bound(None, "bins", default=0)
    kind = "polars frame" if of.kind == "polars series" else ""
    return work + bins * 100, replace(result, size=of.size * 2 + bins, kind=kind, shape=None)


def _power(of: Extent, given: Given) -> Bounded:
    other = given.args[0] if given.args else given.get(None, "other") or OTHER
    return power(of, other)


def _arithmetic(of: Extent, given: Given) -> Bounded:
    others = [*given.args, *given.names.values()]
    return combine("Add", of, others[0]) if others else _any_pass(of, given)


def _multiplied(of: Extent, given: Given) -> Bounded:
    others = [*given.args, *given.names.values()]
    return combine("Mult", of, others[0]) if others else _any_pass(of, given)


def _matrix(of: Extent, given: Given) -> Bounded:
    return matrix_product(of, given.args[0] if given.args else given.get(None, "other") or OTHER)


def _set(of: Extent, given: Given) -> Bounded:
    """Bound an operation on sets or labels."""
    work = 4 * (of.work + given.work)
    return work, Extent("", None, of.size + given.size, max([of.bits, *(one.bits for one in given.all)]), 1.0)


def melted(of: Extent, given: Given) -> Bounded:
    """Bound a row for each cell, with the cells of the columns that stay."""
    size = of.size * (max(1.0, of.width) if given.all else 2) + of.size
    is_same = of.weight == PLAIN and of.inner is not None and of.inner.kind in ("float", "bool")
    weight = of.weight if is_same or of.kind in POLARS else 1.0
    return of.work + size * weight, Extent("", None, size, of.bits, weight, None)


def _renamed(of: Extent, given: Given) -> Bounded:
    """Bound new labels, which can be long."""
    labels = given.size * (of.length + of.width) if given.size > 100 else 0  # noqa: PLR2004
    kind = of.kind if of.kind in HELD else ""
    size = of.size + given.size + labels
    return of.work + given.work, replace(of, kind=kind, size=size, columns=None, keys=None, labels="", exact=None)


def _with_labels(of: Extent, given: Given) -> Bounded:
    kind = of.kind if of.kind in ("frame", "series") else ""
    shape = of.shape if of.kind == "frame" else None
    shape = (of.length, of.width + 3) if shape else None
    size = of.size + of.length * 3
    return of.work + given.work + size * of.weight, Extent(
        kind, shape, size, of.bits, of.weight, of.inner, None, of.columns
    )


def _elements(of: Extent, _given: Given) -> Bounded:
    """Bound `Counter.elements`, which repeats each key as often as it was counted."""
    return of.length * of.bound, unknown(of.size * of.bound, of.bits)


def _reshaped(of: Extent, _given: Given) -> Bounded:
    """Bound another shape of the same elements."""
    return 1 + of.work * 0.1, replace(of, shape=None, labels="", columns=None, exact=None)


def _polars_rolling(of: Extent, given: Given) -> Bounded:
    """Bound a window of polars, whose sums are updated row by row."""
    return 5 * of.work * (1 + sum(one.size for one in given.all if one.shape != ())) + given.work, replace(
        of, size=of.size + given.size, exact=None
    )


def _window(of: Extent, given: Given) -> Bounded:
    return of.work * 2 + given.work, replace(of, kind="groups" if of.kind in PANDAS else of.kind, labels="")


def aggregated(of: Extent, rounds: float, *, by_column: bool) -> Bounded:
    """Return the bound of methods that go over a frame, series or its groups some times, or over one column each."""
    work, _ = reduction(of, Given())
    if by_column and of.columns is not None:
        work = max([1.0, *(reduction(one, Given())[0] for one in of.columns.values())])
    kind = "frame" if of.kind == "frame" else ""
    size = of.size * min(rounds, 100) if of.kind == "groups" or of.shape is None else of.size
    work = work * max(1.0, rounds) * (3 if of.kind == "groups" else 1) + 1000
    return work, Extent(kind, None, size if rounds < inf else inf, of.bits, of.weight, of.inner)


def queried(of: Extent, parts: float) -> Bounded:
    """Return the bound of an expression that pandas evaluates for each row."""
    texts = max([PLAIN, *(one.weight for one in (of.columns or {}).values())]) if of.columns else of.weight
    kind = "frame" if of.kind == "frame" else ""
    return of.work + of.length * parts * texts, replace(of, kind=kind, labels="")


METHOD_WORK: Mapping[str, Bound] = {
    name: bound
    for bound, names in {
        **TEXT_METHODS,
        **CALENDAR_METHODS,
        subset: "copy clone dropna drop drop_nulls drop_nans select_dtypes filter lazy collect slice keep nth "
        "infer_objects get_column field squeeze truncate gather_every get_columns n_chunks item xs "
        "get_group droplevel swaplevel get_level_values estimated_size tz_localize tz_convert "
        "normalize convert_dtypes",
        reduction: "first last sem sum mean median std var skew kurt kurtosis min max any all idxmin idxmax "
        "argmin argmax arg_min arg_max ptp trace",
        _memory: "memory_usage",
        _any_pass: "info glimpse floor ceil interpolate to_series date time timetuple toordinal weekday "
        "isoweekday timestamp total_seconds isocalendar astimezone total_days total_hours "
        "total_minutes epoch year month day hour minute second quarter ordinal_day to_date "
        "to_datetime to_time quantize is_integer bit_count as_integer_ratio to_pydatetime "
        "to_timestamp to_period span group groups groupdict unnest to_struct "
        "nonzero ngroup ohlc diagonal rename_axis autocorr suffix prefix alias cast strptime log exp "
        "sqrt sign shift pct_change month_name day_name wrap",
        hash_of: "mode unique factorize",
        _distinct: "nunique n_unique",
        _sorted_numbers: "rank argsort arg_sort searchsorted",
        predicate: "is_null isna isnull notna notnull is_nan is_not_null between is_between startswith endswith "
        "isalpha isdigit isnumeric isdecimal isalnum isspace isupper islower istitle isidentifier "
        "isascii isprintable starts_with ends_with is_first_distinct issubset issuperset isdisjoint "
        "has_nulls is_empty equals",
        by_cell: "abs round cumsum cummax cummin cumcount diff fillna ffill bfill clip where mask cum_sum "
        "cum_max cum_min cum_count fill_null fill_nan combine_first map assign replace_strict",
        _same_hash: "drop_duplicates",
        _repeated_rows: "duplicated is_duplicated",
        _hash_predicate: "isin is_in is_unique",
        _bins: "value_counts most_common total",
        _sort: "sort_values sort_index sort reverse",
        _count: "count len size null_count bit_length len_chars len_bytes",
        _description: "describe",
        _pairs_of_columns: "corr cov corrwith",
        head_of: "head tail limit",
        _largest: "nlargest nsmallest top_k bottom_k",
        _shown_text(60): "to_string",
        _shown_text(150): "to_html to_latex to_markdown",
        _shown_text(20): "to_csv write_csv",
        _shown_text(10): "to_json write_json write_ndjson",
        _to_python(1): "tolist to_list rows row iter_rows to_arrow to_pandas encode decode hex",
        _to_python(4): "to_dict to_dicts itertuples",
        _rows: "iterrows",
        _items: "items",
        _keys: "keys",
        _values: "values to_numpy",
        merged: "merge join",
        widened: "unstack pivot pivot_table get_dummies",
        _exploded: "explode",
        _get: "get",
        _as_type: "astype",
        _one_by_one: "partition_by",
        _imploded: "implode",
        _groups: "groupby group_by",
        _expression: "select with_columns agg over when then otherwise ",
        _window: "rolling expanding ewm",
        _polars_rolling: "rolling_mean rolling_sum rolling_min rolling_max",
        _reindexed: "reindex",
        _taken: "take",
        _quantile: "quantile",
        _power: "pow",
        _arithmetic: "align sub truediv div floordiv mod radd rsub rdiv eq ne lt le gt ge",
        _multiplied: "mul rmul",
        _matrix: "dot",
        _set: "union intersection difference symmetric_difference",
        melted: "melt stack unpivot",
        _renamed: "rename set_index with_row_index",
        _with_labels: "reset_index to_frame",
        turned: "transpose",
        _elements: "elements",
        _reshaped: "reshape ravel flatten swapaxes",
        product_of_items: "prod product",
        running_product: "cumprod",
        repeated_by: "repeat",
    }.items()
    for name in names.split()
}
"""The kind of work of each method."""
