"""Snapshots (`Picture`) of a namespace: the value of each name, and the state of each object that the values reach."""

import gc
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from agentmagic.errors import describe
from agentmagic.log import logger
from agentmagic.text import a_type
from agentmagic.undo.array_states import memory_writers
from agentmagic.undo.live_states import unknown_state
from agentmagic.undo.object_states import UNSET, Many, ObjectState
from agentmagic.undo.own import is_own, user_variables
from agentmagic.undo.program import names_of
from agentmagic.undo.states import MAKERS, Maker, maker_of

if TYPE_CHECKING:
    from agentmagic.undo.array_states import Memory

LIMIT = 256 * 2**20
"""Largest total size, in bytes, of the arrays that are copied before a program runs."""
SMALL = 2**16
"""Size in bytes up to which an array is copied even if the code can reach it only through copy-on-write."""
COMPARED = 2**28
"""Largest total size, in bytes, of the arrays that are compared by a digest because they are not copied."""
SHIELDED = 2**25
"""Size in bytes up to which an array behind copy-on-write is compared, even if the code cannot bypass the copy."""
PAST_COPIES = frozenset(
    ["base", "blocks", "ctypes", "memoryview", "setflags", "writeable", "_data", "_mgr", "_ndarray", "_values"]
)
"""Names that code needs to write to the array of a table directly, without the copy that the table makes first."""
MOST = 20_000
"""Largest number of objects in the snapshot for one program."""
MOST_BESIDE = 2_000
"""Largest number of objects that are searched for other names that reach a changed object."""
TOO_LARGE = "it holds arrays that are too large to be compared"
TOO_MANY = f"it holds more objects than can be watched ({MOST:,})"


@dataclass(eq=False, repr=False)
class Picture:
    """A snapshot of a namespace: its bindings, and the states of the objects that code can change, by object id.

    `unwatched` are the names with an object that was not looked at, each with the reason. `beside` are the ids of
    objects that the code cannot change, although it can change objects inside them.
    """

    bindings: dict[str, Any]
    states: dict[int, ObjectState] = field(default_factory=dict[int, ObjectState])
    unwatched: dict[str, str] = field(default_factory=dict[str, str])
    beside: set[int] = field(default_factory=set[int])

    def names_reaching(self, ids: Collection[int]) -> set[str]:
        """Return the names whose values are one of these objects, or contain one at any depth."""
        reaching = self.ids_reaching(ids)
        return {name for name, value in self.bindings.items() if id(value) in reaching}

    def ids_reaching(self, ids: Collection[int]) -> set[int]:
        """Return these ids, and the ids of all objects that contain one of these objects at any depth."""
        return _closure(ids, self._outer) if ids else set()

    def reachable_ids(self, names: Iterable[str]) -> set[int]:
        """Return the ids of the values of these names, and of all objects inside the values at any depth."""
        roots = {id(self.bindings[name]) for name in names if name in self.bindings}
        return _closure(roots & self.states.keys(), self._inner)

    @cached_property
    def _inner(self) -> dict[int, list[int]]:
        return _inner(self.states.values())

    @cached_property
    def _outer(self) -> dict[int, list[int]]:
        return _outer(self._inner)

    def touched_names(self, later: "Picture") -> set[str]:
        """Return the names that are bound to another object in a later snapshot, or that reach a changed object."""
        names = self.rebound_names(later)
        if changed_ids := self.changed_ids(later):
            others = (state for object_id, state in later.states.items() if self.states.get(object_id) is not state)
            reaching = _closure(changed_ids, _outer(_inner([*self.states.values(), *others])))
            bindings = chain(self.bindings.items(), later.bindings.items())
            names |= {name for name, value in bindings if id(value) in reaching}
        return names

    def with_states(self, states: Mapping[int, ObjectState], beside: Collection[int] = ()) -> "Picture":
        """Return this snapshot with more states. Those of the ids in `beside` were taken after the code ran."""
        return replace(self, states={**self.states, **states}, beside=self.beside | set(beside))

    def changed_ids(self, later: "Picture") -> set[int]:
        """Return the ids of the objects whose states differ in the later snapshot."""
        return {
            object_id
            for object_id, state in self.states.items()
            if object_id not in self.beside
            and (other := later.states.get(object_id)) is not None
            and other is not state
            and not _same(state, other)
        }

    def copy_arrays(self, ids: Iterable[int], limit: int) -> None:
        """Copy the memory of arrays that have only a digest so far, up to `limit` bytes in all."""
        for object_id in ids:
            memory = cast("Memory | None", self.states[object_id].memory)
            if memory is not None and memory.copy is None and memory.thing.nbytes <= limit:
                memory.keep(copy=True)
                limit -= memory.thing.nbytes

    def rebound_names(self, later: "Picture") -> set[str]:
        """Return the names that are bound to another object in a later snapshot, or that only one of the two has."""
        names = self.bindings.keys() | later.bindings.keys()
        return {name for name in names if self.bindings.get(name, UNSET) is not later.bindings.get(name, UNSET)}


def _same(state: ObjectState, other: ObjectState) -> bool:
    try:
        return state.same(other)
    except Exception:  # noqa: BLE001  (types of other code are compared; `verify` names what stays different)
        return False


def _inner(states: Collection[ObjectState]) -> dict[int, list[int]]:
    """Return a dict from the id of each object to the ids of the objects inside it.

    The ids of objects that can write to the object's memory are included too.
    """
    ids = {id(state.thing) for state in states}
    inner_ids = {object_id: list[int]() for object_id in ids}
    for state in states:
        inner_ids[id(state.thing)] += [
            object_id for object_id in map(id, chain(state.refs, state.arrays_copied_on_write)) if object_id in ids
        ]
    for object_id, others in memory_writers(states).items():
        inner_ids[object_id] += others
    return inner_ids


def _outer(inner: Mapping[int, Iterable[int]]) -> dict[int, list[int]]:
    """Return a dict from the id of each object to the ids of those that directly contain it: `_inner` reversed."""
    outer_ids: defaultdict[int, list[int]] = defaultdict(list)
    for object_id, others in inner.items():
        for inner_id in others:
            outer_ids[inner_id].append(object_id)
    return outer_ids


def _closure(starts: Iterable[int], following: Mapping[int, Iterable[int]]) -> set[int]:
    closure = set(starts)
    waiting = list(closure)
    while waiting:
        for object_id in following.get(waiting.pop(), ()):
            if object_id not in closure:
                closure.add(object_id)
                waiting.append(object_id)
    return closure


class Camera:
    """Takes a `Picture`: a snapshot of at most `most` objects that code can change.

    The code can reach these objects from names, or from other objects (roots). `everything` is True if the code can
    reach all names. `writes_past_copies` is True if the code can write to the array inside a table directly, without
    the copy that the table makes first. Functions that the code can call also set these flags.
    """

    def __init__(self, namespace: Mapping[str, Any], most: int = MOST, picture: Picture | None = None) -> None:
        self.picture = picture or Picture(user_variables(namespace))
        self.everything = False
        self.writes_past_copies = False
        self._namespace = namespace
        self._names: dict[str, None] = {}
        self._visited_names = set[str]()
        self._remaining = most
        self._ids_behind_copies = set[int]()
        """The ids of arrays that are reached only through objects that copy them before they write."""
        self._arrays_behind_copies: list[Any] = []
        """Arrays behind such objects that are still to be looked at."""
        self._new: list[int] = []
        """The ids of objects whose memory is not stored yet."""
        self._follow = True

    @property
    def names(self) -> set[str] | None:
        """The names that the code may change, or None if it may change all."""
        return None if self.everything else set(self._names)

    def look(
        self,
        names: Iterable[str] | None,
        roots: Iterable[Any] = (),
        *,
        without: Collection[str] = (),
        follow: bool = True,
    ) -> "Camera":
        """Add the states of all objects that `names` and `roots` reach to the snapshot. Return this `Camera`.

        `names` is None for all names; those in `without` are skipped. If `follow` is True, the code can call the
        functions that are found, so the variables that they use are looked at too.
        """
        self._visited_names.update(without)
        self.everything |= names is None
        self._follow = follow
        self._names |= dict.fromkeys(names or ())
        self._walk(list(roots), self._remaining)
        bindings = self.picture.bindings
        rest: list[tuple[str, list[Any]]] = []
        while names := [
            one for one in (bindings if self.everything else self._names) if one not in self._visited_names
        ]:
            self._visited_names.update(names)
            # One name may use at most half of the remaining objects, so that the others are looked at too.
            rest += [(name, self._walk([bindings[name]], self._remaining // 2)) for name in names if name in bindings]
        for name, waiting in rest:
            if self._walk(waiting, self._remaining):
                self.picture.unwatched[name] = TOO_MANY
        return self

    def again(self, earlier: Iterable[Picture]) -> "Camera":
        """Reuse the states in earlier snapshots for unchanged objects, and take new states of the others.

        `earlier` has the latest snapshot first: if several snapshots have a state of an object, the first
        snapshot counts. Return this `Camera`.
        """
        states, waiting = self.picture.states, list[Any]()
        for picture in earlier:
            for object_id, state in picture.states.items():
                if object_id in states:
                    continue
                if _is_unchanged(state):
                    states[object_id] = state
                else:
                    waiting += self._add(state.thing, _maker(state.thing) or unknown_state)
        self._remaining = max(self._remaining - len(states), MOST_BESIDE)
        self._walk(waiting, self._remaining)
        return self

    def _walk(self, waiting: list[Any], most: int) -> list[Any]:
        """Add states of the `waiting` objects and of all that they reach, at most `most`. Return the objects left."""
        states, behind, shielded_arrays = self.picture.states, self._ids_behind_copies, self._arrays_behind_copies
        remaining, lookup = most, cast("Callable[[Any, Any], Maker | None]", MAKERS.get)
        while waiting or shielded_arrays:
            is_plain = bool(waiting)
            thing = (waiting or shielded_arrays).pop()
            if (make := lookup(type(thing), UNSET)) is None:
                continue
            if (object_id := id(thing)) in states:
                if is_plain:
                    behind.discard(object_id)
                continue
            if make is UNSET and (make := _maker(thing)) is None:
                continue
            if remaining <= 0:
                waiting.append(thing)
                break
            remaining -= 1
            waiting += self._add(thing, make)
            if not is_plain:
                behind.add(object_id)
        self._remaining -= most - remaining
        return waiting

    def _add(self, thing: Any, make: Maker) -> Iterable[Any]:
        """Add the state of an object. Return the objects inside, and the variables that it uses if it is a function."""
        if (state := _state(make, thing)) is None:
            return ()
        self.picture.states[id(thing)] = state
        if state.arrays_copied_on_write:
            self._arrays_behind_copies += state.arrays_copied_on_write
        if state.memory is not None:
            self._new.append(id(thing))
        if self._follow:
            if type(thing) is FunctionType:
                return [*state.inner, *self._globals(thing)]
            if type(state) is Many:
                state.hold()
        return state.inner

    def _globals(self, function: FunctionType) -> list[Any]:
        """Return the global variables that a function of the user can use.

        For a function that was defined in the watched namespace, add the names to `_names`, and return an empty list.
        """
        variables = function.__globals__
        if variables is not self._namespace and not is_own(str(variables.get("__name__"))):
            return []
        names = names_of(function.__code__)
        if names is None:
            self.everything = True
        elif variables is self._namespace:
            self._names |= dict.fromkeys(sorted(names))
        self.writes_past_copies |= not PAST_COPIES.isdisjoint(names or ())
        return [] if variables is self._namespace else [variables[name] for name in names or () if name in variables]

    def develop(self, limit: int) -> Picture:
        """Store the memory of arrays, and return the snapshot.

        A copy is stored if `limit` bytes suffice, except for a large array that code reaches only through
        copy-on-write. Otherwise a digest is stored. Nothing is stored for an array of more than SHIELDED bytes that
        code cannot write to. If the digests would read more than COMPARED bytes, the state gets the `problem`
        TOO_LARGE.
        """
        digest_limit, states = COMPARED, self.picture.states
        is_deep = self.everything or self.writes_past_copies
        for object_id in self._new:
            memory = cast("Memory", states[object_id].memory)
            size = memory.thing.nbytes
            is_writable = object_id not in self._ids_behind_copies or size <= SMALL
            copy = is_writable and size <= limit
            if not (is_writable or is_deep or size <= SHIELDED):
                continue
            if not copy and size > digest_limit:
                states[object_id].problem = TOO_LARGE
                continue
            limit, digest_limit = (limit - size, digest_limit) if copy else (limit, digest_limit - size)
            try:
                memory.keep(copy=copy)
            except Exception as error:  # noqa: BLE001  (also a MemoryError)
                states[object_id] = _unreadable(states[object_id].thing, error, states[object_id].refs)
        self._new.clear()
        return self.picture


@contextmanager
def no_garbage_collection() -> Generator[None]:
    """Turn off garbage collection while code runs that creates many objects at once and keeps them all."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _is_unchanged(state: ObjectState) -> bool:
    try:
        return state.is_unchanged()
    except Exception:  # noqa: BLE001  (an object of other code may raise anything)
        return False


def _maker(thing: Any) -> Maker | None:
    try:
        return maker_of(cast("type[Any]", type(thing)))
    except Exception as error:  # noqa: BLE001  (a class may have a class of its own, whose attributes raise anything)
        reason = error
        return lambda thing: _unreadable(thing, reason)


def _state(make: Maker, thing: Any) -> ObjectState | None:
    try:
        return make(thing)
    except Exception as error:  # noqa: BLE001  (an object of other code may raise anything: only that one is lost)
        return _unreadable(thing, error)


def _unreadable(thing: Any, error: Exception, refs: tuple[Any, ...] = ()) -> ObjectState:
    try:
        label = a_type(thing)
    except Exception:  # noqa: BLE001  (the class of a class may refuse to give its name)
        label = "an object"
    logger.debug("%s cannot be kept", label, exc_info=error)
    reason = describe(error) or type(error).__name__
    return ObjectState(thing, refs, problem=f"it holds {label}, which cannot be read: {reason}")
