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
from agentmagic.undo.object_states import HEAP_TYPE, UNSET, NoCopy, ObjectState, dict_of
from agentmagic.undo.own import OUTSIDE, is_own

_ABC: Any = import_module("_abc")
"""The C module of `abc`, which stores the classes registered with abstract classes."""


class _Definition(ObjectState):
    """The state of a function: the attributes that code can change. Closure variables have a `_CellState` each."""

    def is_unchanged(self) -> bool:
        return all(getattr(self.thing, name) is value for name, value in zip(_OF_FUNCTION, self.refs, strict=False))

    def restore(self) -> None:
        for name, value in zip(_OF_FUNCTION, self.refs, strict=False):
            if getattr(self.thing, name) is not value:
                setattr(self.thing, name, value)


_OF_FUNCTION = ("__code__", "__defaults__", "__kwdefaults__", "__dict__")


class _CellState(ObjectState):
    """The state of a closure cell: one variable of a function that inner functions use."""

    def restore(self) -> None:
        if self.refs:
            self.thing.cell_contents = self.refs[0]
        else:
            del self.thing.cell_contents


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


class _Names(ObjectState):
    """The state of a class or module of the user: `refs` are the values of its attributes.

    `data` has the names of the attributes and, for an abstract class, the classes that are registered with it.
    """

    def same(self, other: ObjectState) -> bool:
        return _pairs(self) == _pairs(other) and self.data[1] == other.data[1]

    def restore(self) -> None:
        names, classes = self.data
        now = _own_names(self.thing)
        for name in now.keys() - set(names):
            _delete(self.thing, name)
        for name, value in zip(names, self.refs, strict=False):
            if now.get(name, UNSET) is not value:
                _set(self.thing, name, value)
        if classes != _registered_classes(self.thing):
            _ABC._reset_registry(self.thing)  # noqa: SLF001  (the registry of an abstract class has no other door)
            _ABC._reset_caches(self.thing)  # noqa: SLF001
            for registered_class in classes:
                self.thing.register(registered_class)


def _pairs(state: ObjectState) -> set[tuple[str, int]]:
    names: tuple[str, ...] = state.data[0]
    return set(zip(names, map(id, state.refs), strict=True))


class _PackageNames(ObjectState):
    """The state of a class or module of a package: attributes that a notebook may replace. `data` are their names."""

    @property
    def inner(self) -> Collection[Any]:
        if isinstance(self.thing, type):
            return ()
        return [value for value in self.refs if isinstance(value, type) and value.__flags__ & HEAP_TYPE]

    def same(self, other: ObjectState) -> bool:
        return not self._differences(other)

    def _differences(self, other: ObjectState) -> dict[str, Any]:
        """Return the earlier values of attributes that differ in `other`: `UNSET` for those that only `other` has."""
        before = dict(zip(self.data, self.refs, strict=True))
        after = dict(zip(other.data, other.refs, strict=True))
        if before == after:  # fast, because dict equality checks identity first
            return {}
        differences = {name: value for name, value in before.items() if after.get(name, UNSET) is not value}
        differences |= {name: UNSET for name, value in after.items() if name not in before and self._is_new(value)}
        return {name: value for name, value in differences.items() if not _is_of_packages(after.get(name))}

    def _is_new(self, value: Any) -> bool:
        """Return whether the user, not a package at its first use, has made a new attribute with this value."""
        if not isinstance(self.thing, type) or not isinstance(value, (type, FunctionType, BuiltinFunctionType)):
            return _is_users(value)
        packages = (str(one.__module__).partition(".")[0] for one in (self.thing, value))
        return _is_users(value) or len(set(packages)) > 1  # a package adds only functions of its own to its classes

    def restore(self) -> None:
        now = _package_names(self.thing)
        for name, value in self._differences(now).items():
            if value is UNSET:
                _delete(self.thing, name)
            else:
                _set(self.thing, name, value)


def _is_of_packages(value: Any) -> bool:
    """Return whether a package, not the user, set an attribute to this value.

    Such a value is a module, or a function with which a package such as IPython replaces another function.
    """
    is_function = type(value) is FunctionType
    return isinstance(value, ModuleType) or (is_function and value.__module__.partition(".")[0] in OUTSIDE)


def _set(thing: Any, name: str, value: Any) -> None:
    _kind_of(thing).__setattr__(thing, name, value)


def _delete(thing: Any, name: str) -> None:
    _kind_of(thing).__delattr__(thing, name)


def _kind_of(thing: Any) -> Any:
    """Return the built-in type that can set the attributes of a class or module without running user code."""
    return type if isinstance(thing, type) else ModuleType


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
    return _Definition(thing, (*(getattr(thing, name) for name in _OF_FUNCTION), *(thing.__closure__ or ())))


def cell_state(thing: CellType) -> ObjectState:
    """Return the state of a closure cell: one variable of a function that inner functions use."""
    try:
        return _CellState(thing, (thing.cell_contents,))
    except ValueError:  # the closure cell is empty
        return _CellState(thing)


def cache_state(thing: Any) -> ObjectState:
    """Return the state of a function that `functools` has given a cache."""
    return _Cache(thing, (thing.__dict__, thing.__wrapped__), thing.cache_info())


def class_state(thing: type[Any]) -> ObjectState | None:
    """Return the state of a class, or None for a class written in C."""
    if not thing.__flags__ & HEAP_TYPE:
        return None
    return _names(thing) if is_own(thing.__module__) else _package_names(thing)


def module_state(thing: ModuleType) -> ObjectState | None:
    """Return the state of a module: all attributes of the user's, and those of a package that code can replace."""
    return _names(thing) if is_own(thing.__name__) else _package_names(thing)


def _names(thing: Any) -> ObjectState:
    attributes = _own_names(thing)
    return _Names(thing, tuple(attributes.values()), (tuple(attributes), _registered_classes(thing)))


def _own_names(thing: Any) -> dict[str, Any]:
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


def _package_names(thing: Any) -> ObjectState:
    internal_names = _OF_INTERPRETER.get(thing.__name__, ())
    attributes = {
        name: value
        for name, value in _namespace_of(thing).items()
        if _is_public(name, value) and name not in internal_names
    }
    return _PackageNames(thing, tuple(attributes.values()), tuple(attributes))


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
