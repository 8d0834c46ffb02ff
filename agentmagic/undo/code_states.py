"""Makes the states (`ObjectState`) of functions, classes and modules, which undo compares and restores.

For functions, classes and modules of the user, all attributes count. For those of a package, only changes made by the
notebook count: a replaced function or constant, or an attribute that the user added.
"""

import sys
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any, cast

from agentmagic.text import word_set
from agentmagic.undo.object_states import HEAP_TYPE, UNSET, Fields, Named, NoCopy, ObjectState, dict_of
from agentmagic.undo.own import OUTSIDE, is_own

_ABC: Any = import_module("_abc")
"""The C module of `abc`, which stores the classes registered with abstract classes."""


class _FunctionState(Fields):
    """The state of a function: the attributes that code can change. Closure variables have a `_CellState` each."""

    @staticmethod
    def read(thing: Any) -> dict[str, Any]:
        return {name: getattr(thing, name) for name in ("__code__", "__defaults__", "__kwdefaults__", "__dict__")}


class _CellState(Fields):
    """The state of a closure cell: one variable of a function that inner functions use."""

    @staticmethod
    def read(thing: CellType) -> dict[str, Any]:
        try:
            return {"cell_contents": thing.cell_contents}
        except ValueError:  # the closure cell is empty
            return {}


class _Cache(NoCopy):
    """The state of a function with a cache. `data` is what `cache_info` returns.

    `refs` are the attributes and the wrapped function.
    """

    def obstacle(self, now: ObjectState) -> str:
        """Return why the cache cannot be restored, or "" if it was empty: undo can empty it again."""
        return "" if not self.data.currsize else super().obstacle(now)

    def restore(self) -> None:
        """Empty the cache."""
        self.thing.cache_clear()


class _Attributed(Named):
    """The state of a class or module. Its attributes are set without running code of the user."""

    def put(self, name: str, value: Any) -> None:
        self._kind.__setattr__(self.thing, name, value)

    def drop(self, name: str) -> None:
        self._kind.__delattr__(self.thing, name)

    @property
    def _kind(self) -> Any:
        return type if isinstance(self.thing, type) else ModuleType


class _Own(_Attributed):
    """The state of a class or module of the user. `classes` are those that are registered with an abstract class."""

    classes: tuple[type[Any], ...] = ()

    @staticmethod
    def read(thing: Any) -> dict[str, Any]:
        attributes = _namespace_of(thing)
        if isinstance(thing, type):
            return {name: value for name, value in attributes.items() if name not in _OF_CLASS}
        package = cast("str", thing.__name__)
        return {
            name: value
            for name, value in attributes.items()
            # The import of a submodule, which undo does not take back, binds the submodule in its package.
            if name not in _OF_MODULE and not (value is not None and sys.modules.get(f"{package}.{name}") is value)
        }

    @classmethod
    def of(cls, thing: Any, *others: Any) -> ObjectState:
        state = cast("_Own", super().of(thing, *others))
        state.classes = _registered_classes(thing)
        return state

    def same(self, other: ObjectState) -> bool:
        return super().same(other) and isinstance(other, _Own) and self.classes == other.classes

    def restore(self) -> None:
        super().restore()
        if self.classes != _registered_classes(self.thing):
            _ABC._reset_registry(self.thing)  # noqa: SLF001  (the registry of an abstract class has no other door)
            _ABC._reset_caches(self.thing)  # noqa: SLF001
            for registered_class in self.classes:
                self.thing.register(registered_class)


class _OfPackage(_Attributed):
    """The state of a class or module of a package: attributes that a notebook may replace."""

    @staticmethod
    def read(thing: Any) -> dict[str, Any]:
        internal_names = _OF_INTERPRETER.get(thing.__name__, ())
        return {
            name: value
            for name, value in _namespace_of(thing).items()
            if _is_public(name, value) and name not in internal_names
        }

    @property
    def inner(self) -> Collection[Any]:
        if isinstance(self.thing, type):
            return ()
        return [value for value in self.refs if isinstance(value, type) and value.__flags__ & HEAP_TYPE]

    def differences(self, now: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value
            for name, value in super().differences(now).items()
            if not _is_of_packages(now.get(name)) and (value is not UNSET or self._is_new(now[name]))
        }

    def _is_new(self, value: Any) -> bool:
        """Return whether the user, not a package at its first use, has made a new attribute with this value."""
        if not isinstance(self.thing, type) or not isinstance(value, (type, FunctionType, BuiltinFunctionType)):
            return _is_users(value)
        packages = (str(one.__module__).partition(".")[0] for one in (self.thing, value))
        return _is_users(value) or len(set(packages)) > 1  # a package adds only functions of its own to its classes


def _is_of_packages(value: Any) -> bool:
    """Return whether a package, not the user, set an attribute to this value.

    Such a value is a module, or a function with which a package such as IPython replaces another function.
    """
    is_function = type(value) is FunctionType
    return isinstance(value, ModuleType) or (is_function and value.__module__.partition(".")[0] in OUTSIDE)


def _is_users(value: Any) -> bool:
    """Return whether a new attribute with this value was made by the user, not by a package at its first use.

    It may be an object of a package that holds a class or function of the user, such as an accessor of pandas.
    """
    kind = cast("type[Any]", type(value))
    owner = value if isinstance(value, type) or kind is FunctionType else kind
    if is_own(str(owner.__module__)) or (owner is kind and kind.__module__ == "builtins" and not callable(value)):
        return True
    inner = cast("Iterable[Any]", dict_of(value).values() if kind.__dictoffset__ and owner is kind else ())
    return any(isinstance(one, (type, FunctionType)) and is_own(str(one.__module__)) for one in inner)


def function_state(thing: FunctionType) -> ObjectState:
    """Return the state of a function, for undo."""
    return _FunctionState.of(thing, *(thing.__closure__ or ()))


cell_state = _CellState.of
"""Makes the state of a closure cell."""


def cache_state(thing: Any) -> ObjectState:
    """Return the state of a function that `functools` has given a cache."""
    return _Cache(thing, (thing.__dict__, thing.__wrapped__), thing.cache_info())


def class_state(thing: type[Any]) -> ObjectState | None:
    """Return the state of a class, or None for a class written in C."""
    if not thing.__flags__ & HEAP_TYPE:
        return None
    return (_Own if is_own(thing.__module__) else _OfPackage).of(thing)


def module_state(thing: ModuleType) -> ObjectState | None:
    """Return the state of a module: all attributes of the user's, and those of a package that code can replace."""
    return (_Own if is_own(thing.__name__) else _OfPackage).of(thing)


def _namespace_of(thing: Any) -> dict[str, Any]:
    return dict(cast("Mapping[str, Any]", vars(thing)))


_OF_CLASS = frozenset({"__dict__", "__weakref__", "_abc_impl", "__abstractmethods__", "__annotations_cache__"})
_OF_MODULE = frozenset(
    {*("__builtins__", "__cached__", "__file__", "__loader__", "__path__", "__spec__", "__warningregistry__")}
)


def _registered_classes(thing: Any) -> tuple[type[Any], ...]:
    """Return the classes registered with an abstract class."""
    if not isinstance(thing, type) or "_abc_impl" not in vars(thing):
        return ()
    classes: list[type[Any] | None] = [reference() for reference in _ABC._get_dump(thing)[0]]  # noqa: SLF001
    return tuple(sorted(filter(None, classes), key=id))


_OF_INTERPRETER = {
    "sys": word_set(
        "stdin stdout stderr displayhook excepthook ps1 ps2 last_exc last_type last_value last_traceback path"
    ),
    "time": word_set("tzname timezone altzone daylight"),  # set by `tzset`: they belong to the environment variables
    "builtins": word_set("input exit quit open display get_ipython _"),
}
"""Attributes of modules that Python, IPython and agentmagic set: at each cell, program or error."""


def _is_public(name: str, value: Any) -> bool:
    if isinstance(value, ModuleType):
        return False
    return not name.startswith("_") or (name.endswith("__") and isinstance(value, FunctionType))
