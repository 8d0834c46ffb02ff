"""Bounds the work of functions: one table of kinds of work. A function without a row has no bound."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf, log2
from typing import cast

from agentmagic.undo.array_work import ARRAY_FUNCTIONS, arange, held
from agentmagic.undo.calendar_work import CALENDAR_FUNCTIONS
from agentmagic.undo.extents import (
    BOOL,
    FLOAT,
    NUMBER,
    NUMBERS,
    OF_TEXT,
    OTHER,
    PLAIN,
    Extent,
    join,
    list_of,
    repeated,
    text_of,
    unknown,
    whole,
)
from agentmagic.undo.method_work import hash_of, melted, merged, widened
from agentmagic.undo.operator_work import combine, power
from agentmagic.undo.text_work import TEXT_FUNCTIONS
from agentmagic.undo.workload import (
    Bounded,
    FunctionBound,
    Given,
    by_cell,
    converted,
    formatted,
    hashed_again,
    letters_of,
    looped,
    most_of,
    raised,
    shown,
    shown_size,
)

_FILES = 10_000
"""Number of files in a folder up to which listing it is taken to be quick."""


def _iterate(given: Given) -> Bounded:
    """Bound a container made of the items of all arguments."""
    lengths = [one.length for one in given.args]
    items = [one.item() for one in given.args]
    if not given.args:
        return 1 + given.work, list_of(given.names.values())
    work = sum(looped(one) for one in given.args) + given.work
    if len(given.args) == 1:
        return work, repeated(items[0], lengths[0]) if items[0].kind else Extent(
            "list", (lengths[0],), given.args[0].size * 2 + lengths[0], items[0].bits, inner=items[0]
        )
    pair = list_of(items)
    return work, Extent("list", (max(lengths),), given.size * 2 + sum(lengths) * 2, pair.bits, inner=pair)


def _set(given: Given) -> Bounded:
    work, result = _iterate(given)
    return work + hashed_again(result.length, result.bits), result


def _as_dict(given: Given) -> Bounded:
    work, result = _iterate(Given(given.args))
    item = result.inner or OTHER
    inner = item.inner or unknown(result.size, result.bits)
    work += hashed_again(result.length, result.bits)
    return work + given.work, Extent(
        "dict",
        result.shape,
        result.size + given.size,
        result.bits,
        inner=join([inner, *given.names.values()]),
        keys=unknown(result.size, result.bits),
    )


def _counter(given: Given) -> Bounded:
    """Bound a `Counter`: each item with its number."""
    work, result = _set(given)
    return work * 2, replace(
        repeated(whole(result.length), result.length, "dict", keys=result.inner), size=result.size * 2
    )


def _enumerated(given: Given) -> Bounded:
    work, result = _iterate(Given(given.args[:1]))
    item = list_of([whole(result.length), result.inner or OTHER])
    return work, Extent("list", result.shape, result.size + 2 * result.length, result.bits, inner=item)


def _sorted(given: Given) -> Bounded:
    work, result = _iterate(Given(given.args))
    inner = result.inner or OTHER
    each = 1 if inner.kind in NUMBERS else 1 + inner.size / 20
    return work + result.length * log2(2 + result.length) * 0.3 * each, result


def _sum(given: Given) -> Bounded:
    """Bound a sum: containers are copied for each further one; fractions grow."""
    source = given.args[0] if given.args else OTHER
    item, start = source.item(), given.get(1, "start")
    length, work = source.length, max(source.length, source.work if source.kind != "range" else 0)
    if item.kind in ("int", "bool", "float", "number") and (start is None or start.kind in NUMBERS):
        kind = item.kind if item.kind != "bool" else "int"
        return work, Extent(kind, bits=item.bits + log2(2 + length) + (start.bits if start else 0), size=2 + item.size)
    bits = item.bits * length
    growth = 0.0 if start is None and not item.is_held and item.kind == "" else source.size
    size = source.size + given.size
    work += length * (bits / 64 * 0.05 + growth * 0.1) + (length * item.size if item.is_held else 0)
    return work, Extent(
        "" if start or item.is_held or source.is_held else "exact", None if size > 1 else (), size, bits
    )


def _range(given: Given) -> Bounded:
    bits = max(one.bits for one in given.args) if given.args else 1
    numbers = [one.exact for one in given.args]
    if numbers and all(isinstance(number, int) for number in numbers):
        try:
            length = float(len(range(*cast("list[int]", numbers))))
        except (OverflowError, ValueError, TypeError):
            length = inf
    else:
        length = sum(most_of(one) for one in given.args[:2])
    return 1.0, Extent("range", (length,), 1, bits, inner=Extent("int", size=1 + bits / 64, bits=bits + 1))


def _print(given: Given) -> Bounded:
    extra = sum(one.size for one in given.names.values())
    return sum(map(shown, given.args)) + extra * sum(1 + one.length for one in given.args) * 0.02, OTHER


def _as_text(given: Given) -> Bounded:
    one = given.args[0] if given.args else OTHER
    return shown(one) + given.work, text_of(shown_size(one))


def _as_whole(given: Given) -> Bounded:
    """Bound `int`: the digits of a text, or the whole part of a number."""
    one = given.args[0] if given.args else OTHER
    if one.kind == "float":
        bits = 1024.0 if one.exact is None else int(one.bound).bit_length() if one.bound < inf else 1024.0
        return 1.0, Extent("int", bits=max(1, bits), size=1 + bits / 64)
    bits = max(
        one.bits,
        4.0 * one.size if one.kind in ("text", "") else 1,
        1024.0 if one.kind in ("", "number") and one.exact is None else 1,
    )
    exact = one.exact if isinstance(one.exact, int) else None
    return 1 + raised(one.size if one.kind in ("text", "") else 1, 2) * 0.0005, Extent(
        "int", bits=bits, size=1 + bits / 64, exact=exact
    )


def _rounded(given: Given) -> Bounded:
    one, digits = given.args[0] if given.args else OTHER, given.get(1, "ndigits")
    if one.is_held:
        return one.work, replace(one, exact=None)
    if digits is None or one.kind == "float":
        is_float = one.kind == "float" and digits is not None
        return 1 + one.size, FLOAT if is_float else Extent(
            "number" if one.kind in NUMBERS else "", size=one.size + 17, bits=max(one.bits, 1024)
        )
    bits = 3.4 * most_of(digits) + one.bits
    return one.work + raised(bits / 30, 1.6) * 0.02, Extent(
        one.kind if one.kind in NUMBERS else "", size=one.size + bits / 64, bits=bits, shape=one.shape
    )


def _one_number(given: Given) -> Bounded:
    return 1 + given.work, FLOAT


def _length(given: Given) -> Bounded:
    one = given.args[0] if given.args else OTHER
    return 1.0, whole(max(one.length, 1))


def _truth(given: Given) -> Bounded:
    return 1 + given.work, BOOL


def _extreme(given: Given) -> Bounded:
    """Bound `min` and `max`."""
    items = [given.args[0].item()] if len(given.args) == 1 else [*given.args]
    default = given.get(None, "default")
    work = sum(max(one.length, one.work) for one in given.args) + sum(one.size * 0.05 for one in given.args)
    return work, replace(join([*items, *([default] if default else [])]), exact=None)


def _first(given: Given) -> Bounded:
    one = given.args[0] if given.args else OTHER
    return 1.0, join([one.item(), *given.args[1:]])


def _pow(given: Given) -> Bounded:
    return power(given.args[0], given.args[1]) if len(given.args) == 2 else (inf, OTHER)  # noqa: PLR2004


def _divmod(given: Given) -> Bounded:
    work, result = combine("FloorDiv", *given.args) if len(given.args) == 2 else (inf, OTHER)  # noqa: PLR2004
    return work * 2, list_of([result, result])


def _format_of(given: Given) -> Bounded:
    spec = given.get(1)
    return formatted(given.args[0] if given.args else OTHER, spec)


def _as_bytes(given: Given) -> Bounded:
    one = given.args[0] if given.args else OTHER
    size = (
        one.size * 4 + (most_of(one) if one.kind in NUMBERS | {""} else 0) + (one.length if one.kind == "range" else 0)
    )
    return size * 0.1, text_of(size)


def _factorial(given: Given) -> Bounded:
    most = max((most_of(one) for one in given.args), default=1.0)
    second = most_of(given.args[1]) if len(given.args) > 1 else most
    bits = min(most, max(second, 1.0)) * log2(most + 2)
    return 1 + raised(bits / 30, 1.6) * 0.05, Extent("int", bits=max(1, bits), size=1 + bits / 64)


def _whole_numbers(given: Given) -> Bounded:
    """Bound a product or a multiple of whole numbers."""
    bits = sum(one.bits * max(1.0, one.length) for one in given.all)
    length = sum(max(1.0, one.length) for one in given.all)
    return length + bits * length / 1000 + raised(bits / 30, 2) * 0.02, Extent("number", bits=bits, size=1 + bits / 64)


def _pass_of(given: Given) -> Bounded:
    """Bound a function that looks at each element of its arguments once."""
    if not given.args:
        return 1 + given.work, unknown(1 + given.size)
    first = given.args[0]
    work, result = by_cell(first, Given(given.args[1:], given.names))
    return work, replace(result, exact=None)


def _binned(given: Given) -> Bounded:
    """Bound `cut` and `qcut`: 10 µs for the name of each bin."""
    source = given.args[0] if given.args else OTHER
    number = given.get(1, "bins", "q")
    bins = inf if number is None else max(number.length, most_of(number) if number.kind in NUMBERS | {""} else 1.0)
    cells = source.cells
    return source.work * 5 + bins * 100, Extent(
        "series" if source.kind == "series" else "",
        source.shape,
        cells + bins,
        64,
        OF_TEXT,
        None,
        labels=source.labels,
    )


def _frame_of(given: Given) -> Bounded:
    """Bound a new frame. A dict gives its columns; numbers in it are repeated to the length of its lists."""
    one = given.args[0] if given.args else list_of(given.names.values())
    index = given.get(1, "index")
    length = max([1.0, *(part.length for part in (one, one.inner, index) if part is not None)])
    width = max(1.0, one.length if one.kind == "dict" else one.width)
    size = one.size + length * width + given.size
    if index is not None:
        size += index.length * width * max(1.0, one.inner.size if one.inner else one.size)
    if one.kind == "frame":
        return one.work, replace(one, exact=None)
    return size * 3 + given.work, Extent(
        "frame", (length, width) if one.kind in ("dict", "list") else None, size, max([one.bits, 64]), 1.0
    )


def _series_of(given: Given) -> Bounded:
    one = given.args[0] if given.args else OTHER
    index = given.get(1, "index")
    length = max(one.length if one.kind != "text" else 1.0, index.length if index is not None else 1.0)
    if one.kind == "range":
        return length * 0.5, Extent("series", (length,), length, one.bits, 1.0, one.inner)
    size = one.size + given.size + (index.length * one.size if index is not None else 0)
    is_flat = (
        one.inner is not None
        and one.inner.kind in ("int", "float", "bool", "number")
        and one.bits < 64  # noqa: PLR2004
        and given.get(2, "dtype") is None
    )
    size *= letters_of(given.get(2, "dtype"))
    return size * 2, Extent(
        "series",
        (length,),
        size,
        max(64.0, one.bits),
        PLAIN if is_flat and index is None else 1.0,
        NUMBER if is_flat else one.inner,
    )


def _polars_frame(given: Given) -> Bounded:
    work, result = _frame_of(given)
    return work, replace(result, kind="polars frame", weight=1.0)


def _polars_series(given: Given) -> Bounded:
    size = 1 + given.size
    length = max([1.0, *(one.length for one in given.args)])
    return size * 2, Extent("polars series", (length,), size, 128, 1.0)


def _polars_expression(given: Given) -> Bounded:
    return 50 * converted(given) + given.work, Extent("polars expression", None, 1 + given.size, 128, PLAIN)


def _polars_range(given: Given) -> Bounded:
    work, result = arange(given)
    return work, Extent("polars expression", None, result.length if work < inf else inf, 128, PLAIN)


def _statistic(given: Given) -> Bounded:
    """Bound a function of `statistics`, which calculates with fractions: 2.5 µs for a number."""
    number = given.bound(None, "n", default=1)
    size = sum(max(one.size, one.length) for one in given.args)
    bits = max([64.0, *(one.bits for one in given.args)])
    return size * 20 * (1 + (bits / 64 - 1) * 0.1) + number, Extent("", None, number + size, bits * 2)


def _multimode(given: Given) -> Bounded:
    return given.size * 8, unknown(given.size, max([64.0, *(one.bits for one in given.args)]))


def _listed(_given: Given) -> Bounded:
    return 1.0 * _FILES, Extent("list", (_FILES,), _FILES * 30, inner=text_of(255))


def _one_step(given: Given) -> Bounded:
    return 1 + given.work, NUMBER


def _no_value(given: Given) -> Bounded:
    return 1 + given.work, OTHER


def _slice_of(given: Given) -> Bounded:
    return 1.0, replace(list_of(given.args), kind="slice")


def _merged_frames(given: Given) -> Bounded:
    return merged(given.args[0], Given(given.args[1:], given.names)) if given.args else (inf, OTHER)


def _pivoted(given: Given) -> Bounded:
    return widened(given.args[0], Given(given.args[1:], given.names)) if given.args else (inf, OTHER)


def _melted_frame(given: Given) -> Bounded:
    return melted(given.args[0], Given(given.args[1:], given.names)) if given.args else (inf, OTHER)


def _hashed(given: Given) -> Bounded:
    source = held(given.args[0]) if given.args else OTHER
    work, result = hash_of(source, Given())
    pair = list_of([result, result])
    return work + given.work + source.length * log2(2 + source.length) * 0.1, result if not given.names else pair


_FUNCTIONS: Mapping[str, Mapping[FunctionBound, str]] = {
    "builtins": {
        _length: "len",
        _truth: "any all bool isinstance issubclass callable",
        _as_whole: "int",
        _rounded: "round",
        _one_number: "float complex hash",
        _one_step: "id ord",
        _as_text: "str repr ascii bin hex oct",
        _pow: "pow",
        _iterate: "list tuple reversed iter zip map filter",
        _set: "set frozenset",
        _as_dict: "dict",
        _sorted: "sorted",
        _sum: "sum",
        _enumerated: "enumerate",
        _range: "range",
        _extreme: "min max",
        _first: "next",
        _format_of: "format",
        _divmod: "divmod",
        _as_bytes: "bytes",
        _slice_of: "slice",
        _print: "print display",
        _pass_of: "abs",
        _no_value: "type",
    },
    "IPython.display": {
        _print: "display",
    },
    "pandas": {
        _frame_of: "DataFrame MultiIndex",
        _series_of: "Series Index Categorical",
        _pivoted: "get_dummies crosstab pivot_table",
        _hashed: "unique factorize",
        _merged_frames: "merge",
        _binned: "cut qcut",
        _melted_frame: "melt",
    },
    "pandas.Timestamp": {
        _one_step: "now today",
    },
    "polars": {
        _polars_frame: "DataFrame",
        _polars_series: "Series",
        _polars_range: "arange int_range",
        _polars_expression: "col lit len when sum mean max min count first last element date datetime duration "
        "concat_str coalesce struct all exclude format sum_horizontal max_horizontal min_horizontal "
        "mean_horizontal any_horizontal all_horizontal median std var n_unique corr",
    },
    "math": {
        _one_number: "sqrt exp log log2 log10 log1p expm1 sin cos tan asin acos atan atan2 sinh cosh tanh fabs "
        "hypot dist degrees radians fsum pow fmod copysign erf gamma lgamma cbrt exp2",
        _truth: "isnan isinf isfinite isclose",
        _factorial: "factorial comb perm",
        _whole_numbers: "gcd lcm prod isqrt floor ceil trunc",
        _slice_of: "modf frexp",
    },
    "statistics": {
        _statistic: "mean fmean median stdev pstdev variance pvariance quantiles median_low median_high "
        "harmonic_mean geometric_mean correlation covariance linear_regression",
        _multimode: "mode multimode",
    },
    "datetime": {
        _one_step: "datetime date timedelta time",
    },
    "datetime.datetime": {
        _one_step: "now today utcnow strptime fromisoformat fromtimestamp combine",
    },
    "datetime.date": {
        _one_step: "today fromisoformat fromtimestamp",
    },
    "collections": {
        _counter: "Counter",
    },
    "time": {
        _one_step: "time perf_counter monotonic process_time",
    },
    "os": {
        _listed: "listdir",
    },
    "os.path": {
        _truth: "exists isfile isdir getsize",
    },
}
FUNCTION_WORK: Mapping[str, FunctionBound] = {
    f"{module}.{name}": bound
    for rows in (TEXT_FUNCTIONS, ARRAY_FUNCTIONS, CALENDAR_FUNCTIONS, _FUNCTIONS)
    for module, bounds in rows.items()
    for bound, names in bounds.items()
    for name in names.split()
}
"""The kind of work of each function, by path."""
