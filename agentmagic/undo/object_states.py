"""What one object of the notebook holds itself, in a form that can be compared and put back into the same object.

A state refers to the objects inside and never copies them. The states of all objects that variables reach are
therefore a picture of the variables, and putting all of them back keeps identities and aliases.
"""

import gc
import pickle
import sys
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection
from ctypes import addressof, c_char
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from io import BufferedRandom, BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from itertools import count
from operator import is_
from pathlib import PurePath
from random import Random
from types import CellType, FunctionType, MappingProxyType, MemberDescriptorType, MethodType, SimpleNamespace
from typing import Any, cast

from agentmagic.text import a_type

Place = tuple[int, int]
"""A part of the memory: its address, and how many bytes it has."""
_POINTER = 8
"""Bytes that a class takes for each slot, for the `__dict__` of its objects, and for weak references to them."""
_UNSET: Any = object()
HEAP_TYPE = 1 << 9
_OUTSIDE = frozenset({"agentmagic", "IPython", "ipykernel", "ipywidgets", "anywidget", "logging", "asyncio", "pathlib"})
"""Packages whose objects are no data of the notebook."""
_NAMES = """
int float complex bool str bytes NoneType ellipsis NotImplementedType range type module builtin_function_or_method
method_descriptor wrapper_descriptor method-wrapper getset_descriptor member_descriptor code date datetime time
timedelta timezone ZoneInfo Decimal Fraction UUID Pattern Match weakref ReferenceType WeakMethod lock RLock ufunc
TypeVar UnionType GenericAlias _GenericAlias _lru_cache_wrapper Timestamp Timedelta Period Interval NaTType NAType
PyCapsule PyLazyFrame PyExpr PySeries PyDataFrame _memoryviewslice _ArrayFunctionDispatcher _tuplegetter
SchemaSerializer SchemaValidator RendererAgg
"""
_UNCHANGING = frozenset(_NAMES.split())
"""Names of types whose objects cannot be changed, or hold no data of the notebook."""
_OFFSETS = "pandas._libs.tslibs.offsets"
"""Module of the frequencies of times, such as `Day`, which cannot be changed."""
_BASES: tuple[type[Any], ...] = (list, deque, OrderedDict, defaultdict, Counter, dict, set, tuple, bytearray, array)


@dataclass(eq=False, slots=True)
class ObjectState:
    """What `thing` held: `refs` are objects, which are compared by identity, `data` is compared by value.

    `problem` says why this cannot be put back. A thing with a problem may also have changed unseen. `shielded` are
    arrays that the thing copies before it writes to them.
    """

    thing: Any
    refs: tuple[Any, ...] = ()
    data: Any = None
    problem: str = ""
    shielded: tuple[Any, ...] = ()

    def same(self, other: "ObjectState") -> bool:
        """Return whether the thing held the same at both times."""
        return type(self) is type(other) and self.data == other.data and self.same_refs(other)

    def same_refs(self, other: "ObjectState") -> bool:
        """Return whether the thing held the very same objects at both times."""
        return len(self.refs) == len(other.refs) and all(map(is_, self.refs, other.refs))

    @property
    def content(self) -> "ObjectState":
        """What the thing holds beside its attributes."""
        return self

    def obstacle(self, now: "ObjectState") -> str:  # noqa: ARG002  (for subclasses)
        """Return why this cannot be put back into the thing as it is now, or ""."""
        return self.problem

    @property
    def hashed(self) -> Collection[Any]:
        """The objects inside that are found by their hash, which has to be the one of then when they are put back."""
        return ()

    def put(self) -> None:
        """Make the thing hold this again."""

    def refresh(self) -> None:
        """Forget what the thing derived from what it holds. It is called when something in it has been put back."""

    def owned(self) -> Collection[Place]:
        """Return the memory that can be written to through the thing, and that other objects may take over."""
        return ()

    def borrowed(self) -> Collection[Place]:
        """Return the memory that the thing reads, and that another object may own."""
        return ()


class _Items(ObjectState):
    """The items of a list or deque."""

    def put(self) -> None:
        if issubclass(type(self.thing), list):
            list[Any].__setitem__(self.thing, slice(None), self.refs)
            return
        deque[Any].clear(self.thing)
        deque[Any].extend(self.thing, self.refs)


class _Members(ObjectState):
    """The members of a set, in any order."""

    def same(self, other: ObjectState) -> bool:
        return set(map(id, self.refs)) == set(map(id, other.refs))

    @property
    def hashed(self) -> Collection[Any]:
        return self.refs

    def put(self) -> None:
        set[Any].clear(self.thing)
        set[Any].update(self.thing, self.refs)


class _Entries(ObjectState):
    """The entries of a dictionary: all keys, then all values, then the factory of a defaultdict."""

    @property
    def hashed(self) -> Collection[Any]:
        return self.refs[: len(self.refs) // 2]

    def put(self) -> None:
        base: Any = OrderedDict if issubclass(type(self.thing), OrderedDict) else dict
        number = len(self.refs) // 2
        base.clear(self.thing)
        for key, value in zip(self.refs[:number], self.refs[number : 2 * number], strict=True):
            base.__setitem__(self.thing, key, value)
        if issubclass(type(self.thing), defaultdict):
            self.thing.default_factory = self.refs[-1]


class _Buffer(ObjectState):
    """The numbers of a bytearray or array."""

    def put(self) -> None:
        self.thing[:] = self.data

    def owned(self) -> Collection[Place]:
        size = memoryview(self.thing).nbytes
        return [(addressof(c_char.from_buffer(self.thing)), size)] if size else []


class _Attributes(ObjectState):
    """The class, the `__dict__` and the slots of an object; `data` are the slots, and the content of its base."""

    @property
    def content(self) -> ObjectState:
        return self.data[1] or _EMPTY

    def same(self, other: ObjectState) -> bool:
        if not isinstance(other, _Attributes):
            return False
        return self.data[0] == other.data[0] and self.same_refs(other) and self.content.same(other.content)

    def obstacle(self, now: ObjectState) -> str:
        return self.problem or self.content.obstacle(now.content)

    @property
    def hashed(self) -> Collection[Any]:
        return self.content.hashed

    def owned(self) -> Collection[Place]:
        return self.content.owned()

    def borrowed(self) -> Collection[Place]:
        return self.content.borrowed()

    def put(self) -> None:
        slots = self.data[0]
        if type(self.thing) is not self.refs[0]:
            self.thing.__class__ = self.refs[0]
        if self.refs[1] is not None and _dict_of(self.thing) is not self.refs[1]:
            object.__setattr__(self.thing, "__dict__", self.refs[1])
        for slot, value in zip(slots, self.refs[2:], strict=False):
            if value is not _UNSET:
                slot.__set__(self.thing, value)
            elif _slot(slot, self.thing) is not _UNSET:
                slot.__delete__(self.thing)
        self.content.put()


_EMPTY = ObjectState(None)


class _ClassBody(ObjectState):
    """The attributes of a class of the notebook; `data` are their names."""

    def put(self) -> None:
        for name in set(_body(self.thing)) - set(self.data):
            type.__delattr__(self.thing, name)
        for name, value in zip(self.data, self.refs, strict=True):
            if self.thing.__dict__.get(name, _UNSET) is not value:
                type.__setattr__(self.thing, name, value)


class _Definition(ObjectState):
    """What of a function can be changed; the variables that it closes over are in cells."""

    def put(self) -> None:
        for name, value in zip(_OF_FUNCTION, self.refs, strict=False):
            if getattr(self.thing, name) is not value:
                setattr(self.thing, name, value)


_OF_FUNCTION = ("__code__", "__defaults__", "__kwdefaults__", "__dict__")


class _CellState(ObjectState):
    """A variable that functions close over."""

    def put(self) -> None:
        if self.refs:
            self.thing.cell_contents = self.refs[0]
        else:
            del self.thing.cell_contents


class Randomness(ObjectState):
    """A generator of random numbers; `data` is its pickled state."""

    def put(self) -> None:
        """Make the generator go on from there again."""
        self.set_state(pickle.loads(self.data))  # noqa: S301  (made in this process, and never leaves it)

    def set_state(self, state: Any) -> None:
        """Set the state of the generator."""
        self.thing.setstate(state)


class _Counter(ObjectState):
    """A counter of `itertools`, which can only be seen to be where it was; `data` says where."""

    def obstacle(self, now: ObjectState) -> str:  # noqa: ARG002  (that it went on is enough)
        return _problem(self.thing)


class _FilePosition(ObjectState):
    """The position of a file on disk as `data`, None once it is closed; the content is no part of the variables."""

    def obstacle(self, now: ObjectState) -> str:  # noqa: ARG002  (that it moved is enough)
        return "it holds a file that was read, written or closed"


def python_state(thing: Any, home: str) -> ObjectState | None:
    """Return the state of an object, or None if it cannot be changed and holds nothing that can.

    `home` is the module of the notebook, whose classes belong to its variables.
    """
    kind = cast("type[Any]", type(thing))
    if issubclass(kind, type):
        return _class_body(thing) if thing.__module__ == home and thing.__flags__ & HEAP_TYPE else None
    if is_unchanging(kind):
        return None
    if kind in (tuple, frozenset):
        return ObjectState(thing, tuple(thing)) if changing(thing) else None
    if (row := _ROWS.get(kind)) is not None:
        return row(thing)
    base = next((base for base in _BASES if issubclass(kind, base)), object)
    if not _is_plain(cast("type[Any]", type(thing)), base):
        return _unkept(thing)
    return with_attributes(thing, None if base is object else _ROWS[base](thing))


@cache
def is_unchanging(kind: type[Any]) -> bool:
    """Return whether objects of a type cannot be changed and hold nothing that can, or are no data of the notebook."""
    if kind.__module__.partition(".")[0] in _OUTSIDE or issubclass(kind, (Enum, PurePath)):
        return True
    numbers = sys.modules.get("numpy")
    if numbers is not None and issubclass(kind, (numbers.generic, numbers.dtype)):
        return not issubclass(kind, numbers.void)  # a record can be written to
    arrow = sys.modules.get("pyarrow.lib")
    if arrow is not None and issubclass(kind, (arrow.DataType, arrow.Field, arrow.Schema, arrow.Scalar)):
        return True
    named = kind.__name__ in _UNCHANGING or kind.__name__.endswith("Dtype") or kind.__module__ == _OFFSETS
    return named and kind.__module__ != "__main__"


def changing(things: Collection[Any]) -> list[Any]:
    """Return those of the objects that can be changed, or may hold others that can."""
    kinds = {kind for kind in set(map(type, things)) if kind is type or _may_change(kind)}
    return [one for one in things if type(one) in kinds] if kinds else []


def _may_change(kind: type[Any]) -> bool:
    try:
        return not is_unchanging(kind)
    except Exception:  # noqa: BLE001  (a class may have a class of its own, whose attributes raise anything)
        return True


def _entries(thing: Any) -> ObjectState:
    entries = dict(thing)  # one step, so that no other thread changes it meanwhile
    factory = (thing.default_factory,) if isinstance(thing, defaultdict) else ()
    return _Entries(thing, (*entries.keys(), *entries.values(), *factory))


def _cell(thing: CellType) -> ObjectState:
    try:
        return _CellState(thing, (thing.cell_contents,))
    except ValueError:  # empty
        return _CellState(thing)


def _function(thing: FunctionType) -> ObjectState:
    return _Definition(thing, (*(getattr(thing, name) for name in _OF_FUNCTION), *(thing.__closure__ or ())))


def _referents(thing: Any) -> ObjectState:
    return ObjectState(thing, tuple(gc.get_referents(thing)))


def _unkept(thing: Any) -> ObjectState:
    return ObjectState(thing, problem=_problem(thing))


def _problem(thing: Any) -> str:
    return f"it holds {a_type(thing)}, whose state cannot be kept"


def _file(thing: Any) -> ObjectState:
    # A wrapper's own `tell` would write what is pending, or wait for a thread that reads; this one does neither.
    try:
        binary = getattr(thing, "buffer", thing)
        raw = getattr(binary, "raw", binary) if type(binary) in _BUFFERED else binary
        return _FilePosition(thing, data=raw.tell()) if type(raw) is FileIO else _unkept(thing)
    except OSError:  # a pipe
        return _unkept(thing)
    except ValueError:  # closed, or detached
        return _FilePosition(thing)


_BUFFERED = (BufferedReader, BufferedWriter, BufferedRandom)
_ROWS: dict[type[Any], Callable[[Any], ObjectState]] = {
    list: lambda thing: _Items(thing, tuple(thing)),
    deque: lambda thing: _Items(thing, tuple(thing)),
    set: lambda thing: _Members(thing, tuple(thing)),
    bytearray: lambda thing: _Buffer(thing, data=bytes(thing)),
    array: lambda thing: _Buffer(thing, data=thing[:]),
    count: lambda thing: _Counter(thing, data=repr(thing)),
    CellType: _cell,
    FunctionType: _function,
    Random: lambda thing: Randomness(thing, data=pickle.dumps(thing.getstate())),
    **dict.fromkeys((dict, OrderedDict, defaultdict, Counter), _entries),
    **dict.fromkeys((MethodType, partial, property, staticmethod, classmethod, slice, MappingProxyType), _referents),
    **dict.fromkeys((tuple, SimpleNamespace), _referents),
    **dict.fromkeys((FileIO, TextIOWrapper, *_BUFFERED), _file),
    memoryview: lambda thing: ObjectState(thing, (thing.obj,)),
}


def _class_body(thing: type[Any]) -> ObjectState:
    body = _body(thing)
    return _ClassBody(thing, tuple(body.values()), tuple(body))


def _body(thing: type[Any]) -> dict[str, Any]:
    return {name: value for name, value in vars(thing).items() if name not in _OF_CLASS}


_OF_CLASS = frozenset({"__dict__", "__weakref__", "_abc_impl", "__abstractmethods__", "__annotations_cache__"})


def _dict_of(thing: Any) -> Any:
    return object.__getattribute__(thing, "__dict__")  # runs no code of the user


def with_attributes(thing: Any, content: ObjectState | None) -> ObjectState:
    """Return the state of an object that has attributes beside the content of its base."""
    kind = cast("type[Any]", type(thing))
    own = _dict_of(thing) if kind.__dictoffset__ else None
    slots = _slots(kind)
    values = [_slot(slot, thing) for slot in slots]
    inner = content.refs if content is not None else ()
    problem = content.problem if content is not None else ""
    return _Attributes(thing, (kind, own, *values, *inner), (slots, content), problem)


@cache
def _slots(kind: type[Any]) -> tuple[MemberDescriptorType, ...]:
    plain = [one for one in kind.__mro__ if one.__flags__ & HEAP_TYPE]
    return tuple(slot for one in plain for slot in vars(one).values() if isinstance(slot, MemberDescriptorType))


def _slot(slot: MemberDescriptorType, thing: Any) -> Any:
    try:
        return slot.__get__(thing)
    except AttributeError:
        return _UNSET


@cache
def _is_plain(kind: type[Any], base: type[Any]) -> bool:
    """Return whether objects of a class hold nothing but attributes, slots, and the content of a known base.

    A class that was written in C is larger, as `pickle` knows too.
    """
    room = base.__basicsize__ + _POINTER * len(_slots(kind))
    room += _POINTER * (kind.__dictoffset__ > 0 and not base.__dictoffset__)
    room += _POINTER * (kind.__weakrefoffset__ > 0 and not base.__weakrefoffset__)
    return kind.__basicsize__ <= room and bool(kind.__flags__ & HEAP_TYPE or kind is object)
