"""The state of one object of the notebook: its own content, in a form that can be compared and restored in place.

A state refers to the objects inside the object, and never copies them. So the states of all objects that the variables
reach form a snapshot of the variables. Restoring changes the objects themselves, so variables that share an object
still share it.
"""

from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from ctypes import addressof, c_char
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import is_
from types import MemberDescriptorType
from typing import Any, cast

from agentmagic.text import a_type

MemoryBlock = tuple[int, int]
"""A block of memory: its address, and its size in bytes."""
MANY = 500
"""Least number of items for which a list or dict and the small containers in it share one state, a `Many`."""
HEAP_TYPE = 1 << 9
"""The flag of classes whose attributes can be set, Py_TPFLAGS_HEAPTYPE."""
_POINTER = 8
"""Size in bytes of a slot, and of the pointers to `__dict__` and to the weak references, in an object."""
UNSET: Any = object()


@dataclass(eq=False, slots=True)
class ObjectState:
    """The content of one object, `thing`, at one time.

    `refs` are the objects inside it, which are compared by identity. `data` is the rest, which is compared by value.

    `problem` is the reason why the content is unknown, so that the object may have changed unseen.
    `arrays_copied_on_write` are arrays that the object copies before it writes to them.
    """

    thing: Any
    refs: tuple[Any, ...] = ()
    data: Any = None
    problem: str = ""
    arrays_copied_on_write: tuple[Any, ...] = ()

    def same(self, other: "ObjectState") -> bool:
        """Return whether the object has the same content in this state and in `other`."""
        return type(self) is type(other) and self.data == other.data and self.same_refs(other)

    def same_refs(self, other: "ObjectState") -> bool:
        """Return whether `refs` has the same objects, compared by identity, in this state and in `other`."""
        return identical(self.refs, other.refs)

    def is_unchanged(self) -> bool:
        """Return whether the object certainly still has this content. A fast check; False can also mean "unknown"."""
        return False

    @property
    def inner(self) -> Collection[Any]:
        """The objects inside this object that have states of their own."""
        return self.refs

    @property
    def memory(self) -> "ObjectState | None":
        """The state of the array memory that the object owns, or None if it owns none."""
        return None

    @property
    def content(self) -> "ObjectState":
        """The state of the object without its attributes."""
        return self

    def obstacle(self, now: "ObjectState") -> str:  # noqa: ARG002  (for subclasses)
        """Return why this content cannot be restored in the object, whose present state is `now`, or "" if it can."""
        return self.problem

    @property
    def hashed_objects(self) -> Collection[Any]:
        """The inner objects that are found by their hash, such as the keys of a dict.

        They are restored before this object, because they must have their earlier hash when they are put into it.
        """
        return ()

    def restore(self) -> None:
        """Restore this content in the object."""

    def refresh(self) -> None:
        """Clear the caches of the object. Called after the object, or an object inside it, was restored."""

    def writable_memory(self) -> Collection[MemoryBlock]:
        """Return the memory that can be written to through the object, and that other objects may use too."""
        return ()

    def readable_memory(self) -> Collection[MemoryBlock]:
        """Return the memory that the object reads, and that another object may own."""
        return ()


def identical(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether two sequences hold the same objects (by `is`, not `==`) in the same order."""
    return len(one) == len(other) and all(map(is_, one, other))


class Fixed(ObjectState):
    """The state of an object that never changes, but holds objects that can."""

    def is_unchanged(self) -> bool:
        """Return True, because the object never changes."""
        return True


class NoCopy(ObjectState):
    """The state of an object that can be compared, by `data` and `refs`, but not restored."""

    def obstacle(self, now: ObjectState) -> str:  # noqa: ARG002  (that it changed is enough)
        """Return a text that says that the object was changed and cannot be restored."""
        return f"it holds {a_type(self.thing)}, which was changed and cannot be put back"


class Named(ObjectState):
    """The state of an object with named parts, such as attributes: `data` are the names, `refs` begin with the values.

    Subclasses say which parts count (`read`), and how one is set and removed. These are attributes in the `__dict__`
    of the object, if a subclass does not say otherwise.
    """

    @staticmethod
    def read(thing: Any) -> dict[str, Any]:
        """Return the present parts of an object by name."""
        return dict_of(thing)

    @classmethod
    def of(cls, thing: Any, *others: Any) -> ObjectState:
        """Return the state of an object. `others` are more objects inside it, which do not change."""
        parts = cls.read(thing)
        return cls(thing, (*parts.values(), *others), tuple(parts))

    @property
    def parts(self) -> dict[str, Any]:
        """The parts by name."""
        return dict(zip(self.data, self.refs, strict=False))

    def same(self, other: ObjectState) -> bool:
        """Return whether all parts and others are the same objects in both states, in any order of the parts."""
        if not isinstance(other, Named) or not identical(self.refs[len(self.data) :], other.refs[len(other.data) :]):
            return False
        return (self.data == other.data and self.same_refs(other)) or not self.differences(other.parts)

    def differences(self, now: Mapping[str, Any]) -> dict[str, Any]:
        """Return the earlier values of the parts that are different in `now`: `UNSET` for those that only `now` has."""
        before = self.parts
        changed = {name: value for name, value in before.items() if now.get(name, UNSET) is not value}
        return dict.fromkeys(now.keys() - before.keys(), UNSET) | changed

    def restore(self) -> None:
        """Set and remove the parts that are different now."""
        for name, value in self.differences(self.read(self.thing)).items():
            if value is UNSET:
                self.drop(name)
            else:
                self.put(name, value)

    def put(self, name: str, value: Any) -> None:
        """Set a part of the object."""
        dict_of(self.thing)[name] = value

    def drop(self, name: str) -> None:
        """Remove a part of the object."""
        del dict_of(self.thing)[name]


class Fields(Named):
    """The state of an object written in C with attributes that code can set, such as a function or an exception."""

    def is_unchanged(self) -> bool:
        """Return whether all attributes are the same objects."""
        parts = self.read(self.thing)
        return tuple(parts) == self.data and all(map(is_, parts.values(), self.refs))

    def put(self, name: str, value: Any) -> None:
        """Set an attribute."""
        setattr(self.thing, name, value)

    def drop(self, name: str) -> None:
        """Remove an attribute."""
        delattr(self.thing, name)


class _Items(ObjectState):
    """The state of a list or deque: its items."""

    def is_unchanged(self) -> bool:
        return identical(_items(self.thing), self.refs)

    def restore(self) -> None:
        if issubclass(type(self.thing), list):
            list[Any].__setitem__(self.thing, slice(None), self.refs)
            return
        deque[Any].clear(self.thing)
        deque[Any].extend(self.thing, self.refs)


class _Members(ObjectState):
    """The state of a set: its members, whose order does not matter."""

    def same(self, other: ObjectState) -> bool:
        return set(map(id, self.refs)) == set(map(id, other.refs))

    def is_unchanged(self) -> bool:
        return identical(self.refs, tuple(set[Any].__iter__(self.thing)))

    @property
    def hashed_objects(self) -> Collection[Any]:
        return self.refs

    def restore(self) -> None:
        set[Any].clear(self.thing)
        set[Any].update(self.thing, self.refs)


class _Entries(ObjectState):
    """The state of a dictionary: `refs` are all keys, then all values, then the factory of a defaultdict."""

    def is_unchanged(self) -> bool:
        thing = cast("dict[Any, Any]", self.thing)
        factory = (thing.default_factory,) if isinstance(thing, defaultdict) else ()
        objects = chain(dict[Any, Any].keys(thing), dict[Any, Any].values(thing), factory)
        return 2 * dict[Any, Any].__len__(thing) + len(factory) == len(self.refs) and all(map(is_, objects, self.refs))

    @property
    def hashed_objects(self) -> Collection[Any]:
        return self.refs[: len(self.refs) // 2]

    def restore(self) -> None:
        base: Any = OrderedDict if issubclass(type(self.thing), OrderedDict) else dict
        number = len(self.refs) // 2
        base.clear(self.thing)
        for key, value in zip(self.refs[:number], self.refs[number : 2 * number], strict=True):
            base.__setitem__(self.thing, key, value)
        if issubclass(type(self.thing), defaultdict):
            self.thing.default_factory = self.refs[-1]


class _Buffer(ObjectState):
    """The state of a bytearray or `array.array`; `data` is its content."""

    def restore(self) -> None:
        self.thing[:] = self.data

    def writable_memory(self) -> Collection[MemoryBlock]:
        size = memoryview(self.thing).nbytes
        return [(addressof(c_char.from_buffer(self.thing)), size)] if size else []


class _Attributes(ObjectState):
    """The state of an object with attributes: its class, `__dict__` and slots.

    `data` has the slots, and the state of the object's built-in content, or None. In an object of a subclass of
    `list`, for example, the built-in content is the items of the list.
    """

    @property
    def content(self) -> ObjectState:
        return self.data[1] or _EMPTY

    @property
    def memory(self) -> ObjectState | None:
        return self.data[1] and self.data[1].memory

    def same(self, other: ObjectState) -> bool:
        if not isinstance(other, _Attributes):
            return False
        return self.data[0] == other.data[0] and self.same_refs(other) and self.content.same(other.content)

    def is_unchanged(self) -> bool:
        slots, content = self.data
        kind, own, *slot_values = self.refs
        return (
            type(self.thing) is kind
            and (own is None or dict_of(self.thing) is own)
            and all(_slot(slot, self.thing) is value for slot, value in zip(slots, slot_values, strict=False))
            and (content is None or (content.thing is self.thing and content.is_unchanged()))
        )

    def obstacle(self, now: ObjectState) -> str:
        return self.problem or self.content.obstacle(now.content)

    @property
    def hashed_objects(self) -> Collection[Any]:
        return self.content.hashed_objects

    def writable_memory(self) -> Collection[MemoryBlock]:
        return self.content.writable_memory()

    def readable_memory(self) -> Collection[MemoryBlock]:
        return self.content.readable_memory()

    def restore(self) -> None:
        slots = self.data[0]
        if type(self.thing) is not self.refs[0]:
            self.thing.__class__ = self.refs[0]
        if self.refs[1] is not None and dict_of(self.thing) is not self.refs[1]:
            object.__setattr__(self.thing, "__dict__", self.refs[1])
        for slot, value in zip(slots, self.refs[2:], strict=False):
            if value is not UNSET:
                slot.__set__(self.thing, value)
            elif _slot(slot, self.thing) is not UNSET:
                slot.__delete__(self.thing)
        self.content.restore()


_EMPTY = ObjectState(None)


class Many(ObjectState):
    """One state for a list or dictionary and the many small containers in it.

    `data` has the state of the list or dictionary alone, and the class of the containers. `hold` stores the size of
    each container, and the keys and values of all. Keys and values are plain and never change, so they need
    no states of their own.
    """

    holdings: tuple[list[int], list[Any], list[Any]] | None = None

    def hold(self) -> None:
        """Store the content of the small containers."""
        own, kind = self.data
        self.holdings = _holdings(kind, _containers(own))

    def same(self, other: ObjectState) -> bool:
        """Return whether the list or dictionary, and all containers in it, have the same content in both states.

        Return False if `hold` was not called for both states.
        """
        if not (isinstance(other, Many) and self.holdings and other.holdings):
            return False
        (own, kind), (others, other_kind) = self.data, other.data
        (sizes, *contents), (other_sizes, *other_contents) = self.holdings, other.holdings
        return (
            own.same(others)
            and kind is other_kind
            and sizes == other_sizes
            and all(map(identical, contents, other_contents))
        )

    def is_unchanged(self) -> bool:
        """Return whether the list or dictionary and all containers in it are unchanged, in one pass over all."""
        own, kind = self.data
        if not (own.is_unchanged() and self.holdings):
            return False
        items = _containers(own)
        return set(map(type, items)) == {kind} and all(map(identical, self.holdings, _holdings(kind, items)))

    @property
    def inner(self) -> Collection[Any]:
        """The class of the small containers, or nothing if it is a built-in class."""
        return () if self.data[1] in _SMALL else (self.data[1],)

    def restore(self) -> None:
        """Restore the list or dictionary, and those containers in it that differ."""
        own, kind = self.data
        sizes, keys, values = self.holdings or ([], [], [])
        own.restore()
        place = 0
        for item, size in zip(_containers(own), sizes, strict=True):
            inner = dict_of(item) if kind not in _SMALL else item
            part = slice(place, place + size)
            place += size
            if kind is tuple:
                continue
            if kind is list:
                item[:] = values[part]
            elif not (identical(list(inner), keys[part]) and identical(list(inner.values()), values[part])):
                inner.clear()
                inner.update(zip(keys[part], values[part], strict=True))


_SMALL = (dict, list, tuple)


def combine_containers(own: ObjectState, is_plain: Callable[[type[Any]], bool]) -> ObjectState:
    """Return the state of a list or dict: a `Many` if it holds many small containers of plain values, else `own`."""
    if len(own.refs) < MANY:
        return own
    items = _containers(own)
    kinds = set(map(type, items))
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None or not (kind in _SMALL or (is_simple(kind) and kind.__dictoffset__ and not _slots(kind))):
        return own
    keys, values = _keys_and_values(kind, items)
    if not all(map(is_plain, set(map(type, values)))) or not all(map(is_plain, set(map(type, keys)))):
        return own
    return Many(own.thing, own.refs, (own, kind))


def _containers(own: ObjectState) -> Sequence[Any]:
    return own.refs[len(own.refs) // 2 :] if isinstance(own, _Entries) else own.refs


def _holdings(kind: type[Any], items: Iterable[Any]) -> tuple[list[int], list[Any], list[Any]]:
    """Return the size of each container, all their keys, and all their values."""
    inner = items if kind in _SMALL else map(dict_of, items)
    keys, values = _keys_and_values(kind, items)
    return list(map(len, cast("Iterable[list[Any]]", inner))), list(keys), list(values)


def _keys_and_values(kind: type[Any], items: Iterable[Any]) -> tuple[Iterable[Any], Iterable[Any]]:
    """Return the keys and the values of all containers, as iterables that can be read once."""
    if kind in (list, tuple):
        return (), chain.from_iterable(items)
    if kind is dict:
        return chain.from_iterable(items), chain.from_iterable(map(_VALUES, items))
    return chain.from_iterable(map(dict_of, items)), chain.from_iterable(map(_VALUES, map(dict_of, items)))


_VALUES: Callable[[Any], Iterable[Any]] = dict[Any, Any].values


# -- makers of states --------------------------------------------------------------------------------


def _items(thing: Any) -> tuple[Any, ...]:
    base: Any = list if issubclass(type(thing), list) else deque
    return tuple(base.__iter__(thing))  # runs no code of the user's class


def _entries(thing: Any) -> ObjectState:
    entries = dict(thing)  # copied in one step: no other thread can change it meanwhile
    factory = (thing.default_factory,) if isinstance(thing, defaultdict) else ()
    return _Entries(thing, (*entries.keys(), *entries.values(), *factory))


CONTAINERS: dict[type[Any], Callable[[Any], ObjectState]] = {
    list: lambda thing: _Items(thing, _items(thing)),
    deque: lambda thing: _Items(thing, _items(thing)),
    OrderedDict: _entries,
    defaultdict: _entries,
    Counter: _entries,
    dict: _entries,
    set: lambda thing: _Members(thing, tuple(thing)),
    tuple: lambda thing: Fixed(thing, tuple(thing)),
    frozenset: lambda thing: Fixed(thing, tuple(thing)),
    bytearray: lambda thing: _Buffer(thing, data=bytes(thing)),
    array: lambda thing: _Buffer(thing, data=thing[:]),
}
"""Makers of states for Python's containers. A subclass stands before its base class."""


def dict_of(thing: Any) -> Any:
    """Return the `__dict__` of an object without running code of the user."""
    return object.__getattribute__(thing, "__dict__")


def with_attributes(thing: Any, content: ObjectState | None) -> ObjectState:
    """Return the state of an object with attributes. `content` is the state of its built-in content, if it has any."""
    kind = cast("type[Any]", type(thing))
    own = dict_of(thing) if kind.__dictoffset__ else None
    slots = _slots(kind)
    values = [_slot(slot, thing) for slot in slots]
    inner = content.refs if content is not None else ()
    problem = content.problem if content is not None else ""
    return _Attributes(thing, (kind, own, *values, *inner), (slots, content), problem)


@cache
def _slots(kind: type[Any]) -> tuple[MemberDescriptorType, ...]:
    python_bases = [base for base in kind.__mro__ if base.__flags__ & HEAP_TYPE]
    return tuple(
        slot for base in python_bases for slot in vars(base).values() if isinstance(slot, MemberDescriptorType)
    )


def _slot(slot: MemberDescriptorType, thing: Any) -> Any:
    try:
        return slot.__get__(thing)
    except AttributeError:
        return UNSET


@cache
def is_simple(kind: type[Any], base: type[Any] = object) -> bool:
    """Return whether objects of a class hold only attributes, slots, and the content of the class `base`.

    This is tested by their size in memory: objects of a class written in C are larger. `pickle` has a similar test.
    """
    room = base.__basicsize__ + _POINTER * len(_slots(kind))
    room += _POINTER * (kind.__dictoffset__ > 0 and not base.__dictoffset__)
    room += _POINTER * (kind.__weakrefoffset__ > 0 and not base.__weakrefoffset__)
    return kind.__basicsize__ <= room and bool(kind.__flags__ & HEAP_TYPE or kind is object)
