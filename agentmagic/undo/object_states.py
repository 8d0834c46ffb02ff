"""What one object of the notebook holds itself, in a form that can be compared and put back into the same object.

A state refers to the objects inside and never copies them. The states of all objects that variables reach are
therefore a picture of the variables, and putting all of them back keeps identities and aliases.
"""

import pickle
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from ctypes import addressof, c_char
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import is_
from types import MemberDescriptorType
from typing import Any, cast

from agentmagic.text import a_type

Place = tuple[int, int]
"""A part of the memory: its address, and how many bytes it has."""
MANY = 500
"""Items from which on small containers of plain values are kept together with the list that holds them."""
HEAP_TYPE = 1 << 9
_POINTER = 8
"""Bytes that a class takes for each slot, for the `__dict__` of its objects, and for weak references to them."""
UNSET: Any = object()


@dataclass(eq=False, slots=True)
class ObjectState:
    """What `thing` held: `refs` are objects, which are compared by identity, `data` is compared by value.

    `problem` says why nothing is known of the thing: it may have changed unseen. `shielded` are arrays that the thing
    copies before it writes to them.
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
        return alike(self.refs, other.refs)

    def unchanged(self) -> bool:
        """Return whether the thing certainly holds this still: a fast look, which may miss that it does."""
        return False

    @property
    def inner(self) -> Collection[Any]:
        """The objects inside that have states of their own."""
        return self.refs

    @property
    def memory(self) -> "ObjectState | None":
        """The state of the memory that the thing owns, or None."""
        return None

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


def alike(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether two sequences hold the very same objects."""
    return len(one) == len(other) and all(map(is_, one, other))


class Fixed(ObjectState):
    """What never changes, and holds objects that may."""

    def unchanged(self) -> bool:
        """Return True."""
        return True


class NoCopy(ObjectState):
    """What can only be seen to be as it was; `data` or `refs` tell that."""

    def obstacle(self, now: ObjectState) -> str:  # noqa: ARG002  (that it changed is enough)
        """Return that the thing was changed."""
        return f"it holds {a_type(self.thing)}, which was changed and cannot be put back"


class _Items(ObjectState):
    """The items of a list or deque."""

    def unchanged(self) -> bool:
        return alike(_items(self.thing), self.refs)

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

    def unchanged(self) -> bool:
        return alike(self.refs, tuple(set[Any].__iter__(self.thing)))

    @property
    def hashed(self) -> Collection[Any]:
        return self.refs

    def put(self) -> None:
        set[Any].clear(self.thing)
        set[Any].update(self.thing, self.refs)


class _Entries(ObjectState):
    """The entries of a dictionary: all keys, then all values, then the factory of a defaultdict."""

    def unchanged(self) -> bool:
        thing = cast("dict[Any, Any]", self.thing)
        factory = (thing.default_factory,) if isinstance(thing, defaultdict) else ()
        found = chain(dict[Any, Any].keys(thing), dict[Any, Any].values(thing), factory)
        return 2 * dict[Any, Any].__len__(thing) + len(factory) == len(self.refs) and all(map(is_, found, self.refs))

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

    @property
    def memory(self) -> ObjectState | None:
        return self.data[1] and self.data[1].memory

    def same(self, other: ObjectState) -> bool:
        if not isinstance(other, _Attributes):
            return False
        return self.data[0] == other.data[0] and self.same_refs(other) and self.content.same(other.content)

    def unchanged(self) -> bool:
        slots, content = self.data
        kind, own, *held = self.refs
        return (
            type(self.thing) is kind
            and (own is None or dict_of(self.thing) is own)
            and all(_slot(slot, self.thing) is value for slot, value in zip(slots, held, strict=False))
            and (content is None or (content.thing is self.thing and content.unchanged()))
        )

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
        if self.refs[1] is not None and dict_of(self.thing) is not self.refs[1]:
            object.__setattr__(self.thing, "__dict__", self.refs[1])
        for slot, value in zip(slots, self.refs[2:], strict=False):
            if value is not UNSET:
                slot.__set__(self.thing, value)
            elif _slot(slot, self.thing) is not UNSET:
                slot.__delete__(self.thing)
        self.content.put()


_EMPTY = ObjectState(None)


class Randomness(ObjectState):
    """A generator of random numbers; `data` is its pickled state."""

    def put(self) -> None:
        """Make the generator go on from there again."""
        self.set_state(pickle.loads(self.data))  # noqa: S301  (made in this process, and never leaves it)

    def set_state(self, state: Any) -> None:
        """Set the state of the generator."""
        self.thing.setstate(state)


class Many(ObjectState):
    """A list or dictionary of many small containers; `data` has its own state, and the class of the containers.

    With `hold`, it keeps how many keys and values each container has, all keys, and all values, which are plain.
    """

    holdings: tuple[list[int], list[Any], list[Any]] | None = None

    def hold(self) -> None:
        """Keep what the containers hold."""
        own, kind = self.data
        self.holdings = _holdings(kind, _containers(own))

    def same(self, other: ObjectState) -> bool:
        """Compare what all containers hold, one after the other."""
        if not (isinstance(other, Many) and self.holdings and other.holdings):
            return False
        (own, kind), (others, other_kind) = self.data, other.data
        (sizes, *held), (other_sizes, *holds) = self.holdings, other.holdings
        return own.same(others) and kind is other_kind and sizes == other_sizes and all(map(alike, held, holds))

    def unchanged(self) -> bool:
        """Look through all containers at once."""
        own, kind = self.data
        if not (own.unchanged() and self.holdings):
            return False
        items = _containers(own)
        return set(map(type, items)) == {kind} and all(map(alike, self.holdings, _holdings(kind, items)))

    @property
    def inner(self) -> Collection[Any]:
        """Nothing, or the class of the containers."""
        return () if self.data[1] in _SMALL else (self.data[1],)

    def put(self) -> None:
        """Put back the list, and those of the containers that differ."""
        own, kind = self.data
        sizes, keys, values = self.holdings or ([], [], [])
        own.put()
        place = 0
        for item, size in zip(_containers(own), sizes, strict=True):
            inner = dict_of(item) if kind not in _SMALL else item
            part = slice(place, place + size)
            place += size
            if kind is tuple:
                continue
            if kind is list:
                item[:] = values[part]
            elif not (alike(list(inner), keys[part]) and alike(list(inner.values()), values[part])):
                inner.clear()
                inner.update(zip(keys[part], values[part], strict=True))


_SMALL = (dict, list, tuple)


def many(own: ObjectState, is_plain: Callable[[type[Any]], bool]) -> ObjectState:
    """Return the state of a list or dictionary, with that of its items if they are many small containers."""
    if len(own.refs) < MANY:
        return own
    items = _containers(own)
    kinds = set(map(type, items))
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None or not (kind in _SMALL or (is_simple(kind) and kind.__dictoffset__ and not _slots(kind))):
        return own
    keys, values = _held(kind, items)
    if not all(map(is_plain, set(map(type, values)))) or not all(map(is_plain, set(map(type, keys)))):
        return own
    return Many(own.thing, own.refs, (own, kind))


def _containers(own: ObjectState) -> Sequence[Any]:
    return own.refs[len(own.refs) // 2 :] if isinstance(own, _Entries) else own.refs


def _holdings(kind: type[Any], items: Iterable[Any]) -> tuple[list[int], list[Any], list[Any]]:
    """Return how many values each container has, all keys, and all values."""
    inner = items if kind in _SMALL else map(dict_of, items)
    keys, values = _held(kind, items)
    return list(map(len, cast("Iterable[list[Any]]", inner))), list(keys), list(values)


def _held(kind: type[Any], items: Iterable[Any]) -> tuple[Iterable[Any], Iterable[Any]]:
    """Return the keys and the values of all containers, to be read once."""
    if kind in (list, tuple):
        return (), chain.from_iterable(items)
    if kind is dict:
        return chain.from_iterable(items), chain.from_iterable(map(_VALUES, items))
    return chain.from_iterable(map(dict_of, items)), chain.from_iterable(map(_VALUES, map(dict_of, items)))


_VALUES: Callable[[Any], Iterable[Any]] = dict[Any, Any].values


# -- makers of states --------------------------------------------------------------------------------


def _items(thing: Any) -> tuple[Any, ...]:
    base: Any = list if issubclass(type(thing), list) else deque
    return tuple(base.__iter__(thing))  # runs no code of a class of the user


def _entries(thing: Any) -> ObjectState:
    entries = dict(thing)  # one step, so that no other thread changes it meanwhile
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
"""Python's containers, a class before its bases."""


def dict_of(thing: Any) -> Any:
    """Return the `__dict__` of an object; it runs no code of the user."""
    return object.__getattribute__(thing, "__dict__")


def with_attributes(thing: Any, content: ObjectState | None) -> ObjectState:
    """Return the state of an object that has attributes beside the content of its base."""
    kind = cast("type[Any]", type(thing))
    own = dict_of(thing) if kind.__dictoffset__ else None
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
        return UNSET


@cache
def is_simple(kind: type[Any], base: type[Any] = object) -> bool:
    """Return whether objects of a class hold nothing but attributes, slots, and the content of a known base.

    A class that was written in C is larger, as `pickle` knows too.
    """
    room = base.__basicsize__ + _POINTER * len(_slots(kind))
    room += _POINTER * (kind.__dictoffset__ > 0 and not base.__dictoffset__)
    room += _POINTER * (kind.__weakrefoffset__ > 0 and not base.__weakrefoffset__)
    return kind.__basicsize__ <= room and bool(kind.__flags__ & HEAP_TYPE or kind is object)
