"""Chooses the function that makes an object's state (`ObjectState`) by the object's type, and caches the choice."""

import gc
import sys
from collections.abc import Callable, Collection
from enum import Enum
from functools import cache, partial
from types import CellType, FunctionType, MappingProxyType, MethodType, ModuleType, SimpleNamespace
from typing import Any, cast

from agentmagic.undo import array_states, code_states, live_states, table_states
from agentmagic.undo.object_states import (
    CONTAINERS,
    HEAP_TYPE,
    Fixed,
    ObjectState,
    combine_containers,
    is_simple,
    with_attributes,
)
from agentmagic.undo.own import OUTSIDE, is_own

Maker = Callable[[Any], ObjectState | None]

MOST_TYPES = 5000
"""Largest number of types in the cache `MAKERS`."""

_NAMES = {
    "builtins": "int float complex bool str bytes NoneType ellipsis NotImplementedType range "
    "builtin_function_or_method method_descriptor wrapper_descriptor method-wrapper classmethod_descriptor "
    "getset_descriptor member_descriptor code weakref weakproxy frame traceback PyCapsule PyLazyFrame PyExpr PySeries "
    "PyDataFrame",
    "datetime": "date datetime time timedelta timezone",
    "zoneinfo": "ZoneInfo",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "uuid": "UUID",
    "os": "_Environ",
    "re": "Pattern Match",
    "weakref": "ReferenceType WeakMethod KeyedRef",
    "_abc": "_abc_data",
    "collections": "_tuplegetter",
    "_collections": "_tuplegetter",
    "types": "UnionType GenericAlias",
    "typing": "TypeVar ParamSpec TypeVarTuple TypeAliasType _GenericAlias _UnionGenericAlias _SpecialForm Union",
    "_cython": "_memoryviewslice",
    "numpy": "ufunc _ArrayFunctionDispatcher",
    "pandas": "Timestamp Timedelta Period Interval NaTType NAType",
    "polars": "PyLazyFrame PyExpr PySeries PyDataFrame",
    "pydantic_core": "SchemaSerializer SchemaValidator",
    "matplotlib": "RendererAgg FT2Font",
}
_UNCHANGING = frozenset((package, name) for package, names in _NAMES.items() for name in names.split())
"""Types that undo ignores, with their packages: they are immutable, not data of the notebook, or states of packages."""
_OFFSETS = "pandas._libs.tslibs.offsets"
"""Module of the time offsets of pandas, such as `Day`, which are immutable."""

_ROWS: dict[type[Any], Maker] = {
    **live_states.ROWS,
    CellType: code_states.cell_state,
    FunctionType: code_states.function_state,
    **dict.fromkeys(
        (MethodType, partial, property, staticmethod, classmethod, slice, MappingProxyType, SimpleNamespace),
        lambda thing: ObjectState(thing, tuple(gc.get_referents(thing))),
    ),
}


MAKERS: dict[type[Any], Maker | None] = {}
"""The results of `maker_of`, by type."""


def maker_of(kind: type[Any]) -> Maker | None:
    """Return the function that makes states for a type, or None if undo ignores objects of this type."""
    try:
        return MAKERS[kind]
    except KeyError:
        if len(MAKERS) > MOST_TYPES:  # clear the cache, so that classes of the user can be freed
            MAKERS.clear()
        return MAKERS.setdefault(kind, _maker(kind))


def can_change(things: Collection[Any]) -> bool:
    """Return whether one of these objects can change, or can hold an object that can change."""
    return any(map(_may_change, set(map(type, things))))


@cache
def library_maker(kind: type[Any]) -> Maker | None:  # noqa: PLR0911  (one return for each type)
    """Return the function that makes states for a type of NumPy, pandas and so on, or None for another type."""
    origins = ((base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__)
    match next((origin for origin in origins if origin[0] in _LIBRARIES), ("", "")):
        case "numpy", _:
            return _numpy_maker(kind)
        case "pyarrow", _:
            library = sys.modules["pyarrow.lib"]
            data = (library.Buffer, library.Array, library.ChunkedArray, library.Table, library.RecordBatch)
            return array_states.arrow_state if issubclass(kind, data) else None
        case "pandas", "DataFrame" | "Series":
            return table_states.table_state
        case "pandas", name if name.endswith("Index"):
            return table_states.index_state
        case "pandas", _ if issubclass(kind, sys.modules["pandas"].api.extensions.ExtensionArray):
            return table_states.extension_state
        case "pandas", _ if kind.__module__.startswith("pandas.") and kind.__dictoffset__:
            return table_states.holder_state
        case "polars", "DataFrame" | "Series":
            return table_states.polars_state
        case "sklearn", _:
            return live_states.compiled_maker(kind)
        case _:
            return None


_LIBRARIES = frozenset({"numpy", "pandas", "polars", "pyarrow", "sklearn"})


def _numpy_maker(kind: type[Any]) -> Maker | None:
    numbers = sys.modules["numpy"]
    if issubclass(kind, numbers.ndarray):
        return array_states.array_state
    if issubclass(kind, (numbers.random.Generator, numbers.random.RandomState, numbers.random.BitGenerator)):
        return live_states.random_state
    return array_states.dtype_state if issubclass(kind, numbers.dtype) else None


def copy_into(thing: Any, value: Any) -> bool:
    """Copy the content of `value` into `thing`, a container, array or table of the same type.

    Return False if that is impossible.
    """
    kind = cast("type[Any]", type(value))
    numbers = sys.modules.get("numpy")
    if type(thing) is not kind:
        return False
    if numbers is not None and kind is numbers.ndarray:
        fits = thing.shape == value.shape and thing.dtype == value.dtype and thing.flags.writeable
        if fits:
            thing[...] = value
        return bool(fits)
    make = CONTAINERS.get(kind) or library_maker(kind)
    state = make(value) if make is not None else None
    if state is None or isinstance(state, Fixed):
        return False
    state.thing = thing
    state.restore()
    return True


def _may_change(kind: type[Any]) -> bool:
    try:
        return maker_of(kind) is not None
    except Exception:  # noqa: BLE001  (a class may have a class of its own, whose attributes raise anything)
        return True


def _maker(kind: type[Any]) -> Maker | None:
    if issubclass(kind, type):
        return code_states.class_state
    if issubclass(kind, ModuleType):
        return code_states.module_state
    for name in (f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__):
        if name in live_states.NAMED and not kind.__module__.startswith(("agentmagic.", "ipyparallel.")):
            return live_states.NAMED[name]
    if is_unchanging(kind):
        return None
    return library_maker(kind) or _ROWS.get(kind) or _python_maker(kind)


def _python_maker(kind: type[Any]) -> Maker:
    if kind in CONTAINERS:
        make = CONTAINERS[kind]
        return (lambda thing: combine_containers(make(thing), is_unchanging)) if kind in (list, dict) else make
    if issubclass(kind, BaseException):
        return lambda thing: with_attributes(thing, live_states.exception_state(thing))
    if kind.__name__ == "_lru_cache_wrapper":
        return code_states.cache_state
    base = next((container for container in CONTAINERS if issubclass(kind, container)), _solid(kind))
    if not is_simple(kind, base):
        return live_states.pickled_state
    content = CONTAINERS.get(base) or _ROWS.get(base)
    return lambda thing: with_attributes(thing, content(thing) if content is not None else None)


def _solid(kind: type[Any]) -> type[Any]:
    """Return the first base class written in C, or `object` if undo can neither ignore nor watch its content."""
    solid = next(base for base in kind.__mro__ if not base.__flags__ & HEAP_TYPE)
    return solid if is_unchanging(solid) or solid in _ROWS else object


@cache
def is_unchanging(kind: type[Any]) -> bool:  # noqa: PLR0911  (one return for each kind of types)
    """Return whether undo may ignore objects of this type.

    They are no data of the user, or they are immutable together with all objects inside them.
    """
    package = kind.__module__.partition(".")[0]
    if package in OUTSIDE:
        return True
    if is_own(kind.__module__):
        return False
    if issubclass(kind, Enum):
        return True
    numbers = sys.modules.get("numpy")
    if numbers is not None and issubclass(kind, numbers.generic):
        return not issubclass(kind, numbers.void)  # a record (`numpy.void`) can be written to
    if numbers is not None and issubclass(kind, numbers.dtype):
        return kind is not numbers.dtypes.VoidDType  # the field names of a record type can be changed
    arrow = sys.modules.get("pyarrow.lib")
    if arrow is not None and issubclass(kind, (arrow.DataType, arrow.Field, arrow.Schema, arrow.Scalar)):
        return True
    if package in ("numpy", "pandas") and kind.__name__.endswith("Dtype"):
        return True
    return (package, kind.__name__) in _UNCHANGING or kind.__module__ == _OFFSETS
