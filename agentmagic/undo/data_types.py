"""The types of Python, NumPy, pandas and polars whose values are data: reading them runs no code of the user."""

import sys
from collections import deque
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, cast

MOST_CELLS = 250_000
"""Largest number of values checked inside a variable, which takes about 5 ms."""
_MOST_CONTAINERS = 2000

_SCALARS = frozenset({int, float, complex, bool, str, bytes, type(None), type(...), range, object})
TYPES = {
    "list": "builtins.list builtins.tuple builtins.set builtins.frozenset collections.deque",
    "dict": "builtins.dict collections.OrderedDict collections.Counter",
    "slice": "builtins.slice",
    "scalar": "pandas.Timestamp pandas.Timedelta pandas.Period pandas.Interval pandas.NaT pandas.NA datetime.date "
    "datetime.time datetime.datetime datetime.timedelta datetime.timezone decimal.Decimal fractions.Fraction",
    "array": "numpy.ndarray numpy.bool_ numpy.int8 numpy.int16 numpy.int32 numpy.int64 numpy.uint8 numpy.uint16 "
    "numpy.uint32 numpy.uint64 numpy.float16 numpy.float32 numpy.float64 numpy.longdouble numpy.complex64 "
    "numpy.complex128 numpy.str_ numpy.bytes_ numpy.datetime64 numpy.timedelta64",
    "frame": "pandas.DataFrame",
    "series": "pandas.Series pandas.Index pandas.RangeIndex pandas.MultiIndex pandas.DatetimeIndex "
    "pandas.TimedeltaIndex pandas.PeriodIndex pandas.IntervalIndex pandas.CategoricalIndex pandas.Categorical",
    "polars": "polars.DataFrame polars.Series",
    "made": "polars.LazyFrame polars.Expr pandas.api.typing.DataFrameGroupBy pandas.api.typing.SeriesGroupBy "
    "pandas.api.typing.Rolling pandas.api.typing.Resampler",
}
"""Types of data, by the way in which their contents are checked.

Values of types in the last row can hold functions: a program may create them, but not read them from a variable.
"""


@cache
def _kinds(_modules: frozenset[str]) -> Mapping[type, str]:
    """Return the kind ("list", "frame" ...) of each data type of loaded libraries. `_modules` is only the cache key."""
    kinds: dict[type, str] = dict.fromkeys(_SCALARS, "scalar")
    for kind, paths in TYPES.items():
        for path in paths.split():
            module, _, name = path.rpartition(".")
            member = member_of(module, name)
            data_type = member if isinstance(member, type) else type(member)
            if member is not None and root_package(data_type.__module__) in (root_package(module), "builtins"):
                kinds[data_type] = kind
    return kinds


def known_kinds() -> Mapping[type, str]:
    """Return the kind ("list", "frame" ...) of each data type of the libraries that are loaded now."""
    return _kinds(frozenset({"pandas", "numpy", "polars", "decimal", "fractions"} & sys.modules.keys()))


def member_of(module: str, name: str) -> object:
    """Return the value of a name in a loaded module, or None. The module's own `__getattr__` is not called."""
    return vars(sys.modules[module]).get(name) if module in sys.modules else None


@lru_cache(4096)
def root_package(module: object) -> str:
    """Return the first part of the dotted name of a module."""
    return str(module).partition(".")[0]


def is_data(value: object) -> bool:
    """Return whether reading a value runs no code of the user: all types in it are Python's or a data library's own."""
    kinds, cells, pending = known_kinds(), MOST_CELLS, [value]
    for _ in range(_MOST_CONTAINERS):
        if not pending:
            return True
        container = pending.pop()
        if type(container) not in kinds or (inner := _inside(container, kinds[type(container)])) is None:
            return False
        cells -= len(inner)
        if cells < 0:
            return False
        if not _SCALARS.issuperset(map(type, inner)):
            pending += [item for item in inner if type(item) not in _SCALARS]
    return False


def is_container(value: object) -> bool:
    """Return whether a value is a container of Python or an array."""
    return isinstance(value, (list, dict, set, deque, bytearray)) or known_kinds().get(type(value)) == "array"


def _inside(value: Any, kind: str) -> list[Any] | None:  # noqa: PLR0911  (one arm for each kind)
    """Return those values inside a value that must still be checked, or None if the value is not only data."""
    match kind:
        case "list":
            return list(value)
        case "dict":
            return [*value, *value.values()]
        case "polars":
            dtypes = value.dtypes if hasattr(value, "dtypes") else [value.dtype]
            return None if any("Object" in str(one) for one in dtypes) else []
        case "array":
            return [] if not value.dtype.hasobject else None if value.dtype.names else value.ravel().tolist()
        case "frame" if _has_only_data(value):  # no attributes set by the user, because they look like columns
            columns = [value.iloc[:, place] for place, dtype in enumerate(value.dtypes) if not _is_plain(dtype)]
            return [value.index, value.columns, value.attrs, *columns]  # pandas copies `attrs` with the frame
        case "series":
            return _inside_series(value)
        case "slice":
            return [value.start, value.stop, value.step]
        case "scalar" if _is_known_zone(getattr(value, "tzinfo", None)):
            return []
        case _:
            return None


def _has_only_data(value: object) -> bool:
    return vars(value).keys() <= {"_mgr", "_item_cache", "_attrs", "_flags", "_name", "_is_copy", "_cacher"}


def _inside_series(value: Any) -> list[Any] | None:
    kind = cast("type[Any]", type(value))
    inner = [value.name] if hasattr(kind, "name") else []
    if hasattr(kind, "_constructor_expanddim"):  # a series, whose labels look like attributes
        if not _has_only_data(value):
            return None
        inner += [value.index, value.attrs]
    if hasattr(kind, "levels"):
        return [*inner, *value.names, *value.levels]
    if _is_plain(value.dtype):
        return inner
    if hasattr(value.dtype, "categories"):
        return [*inner, value.dtype.categories]
    return [*inner, *value.tolist()] if str(value.dtype) == "object" and len(value) <= MOST_CELLS else None


def _is_plain(dtype: Any) -> bool:
    """Return whether a column of this dtype holds no objects, and the dtype is one of NumPy or pandas."""
    is_own = root_package(type(dtype).__module__) in ("numpy", "pandas")
    is_own &= not getattr(dtype, "hasobject", False) and not hasattr(dtype, "categories")
    return is_own and _is_known_zone(getattr(dtype, "tz", None))


def _is_known_zone(zone: object) -> bool:
    return zone is None or root_package(type(zone).__module__) in ("datetime", "zoneinfo", "pytz", "dateutil")


def keeps_binding(value: object, path: str, module_name: str) -> bool:
    """Return whether an import from a loaded module would leave a name bound to `value`, its present value.

    `path` is the dotted path of what is imported.
    """
    module, _, name = path.rpartition(".")
    return (
        module_name in sys.modules and value is not None and value is (sys.modules.get(path) or member_of(module, name))
    )
