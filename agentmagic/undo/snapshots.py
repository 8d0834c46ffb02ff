"""Keeps variables before code runs, and puts them back: each one exactly as it was, or left alone with a reason.

A picture of the namespace holds what each name was bound to, and the state of each object that the names reach. There
are three: `before` and `after` the code ran, and one of now, when it is undone. What differs between the first two
was changed by the code; what differs between the last two was changed since, and is left alone.
"""

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import CodeType, FunctionType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from agentmagic.errors import said
from agentmagic.host import installed
from agentmagic.log import logger
from agentmagic.messages import ToolCall
from agentmagic.text import a_type
from agentmagic.undo.array_states import Memory
from agentmagic.undo.arrow_states import sharing
from agentmagic.undo.object_states import ObjectState, changing, python_state
from agentmagic.undo.program import analyse
from agentmagic.undo.table_states import table_state

RUN_PYTHON = "run_python"
"""The tool whose program says which names it touches."""
LIMIT = 256 * 2**20
"""Bytes of arrays that are copied before one program runs."""
SMALL = 2**16
"""Bytes of an array that is copied whether the program touches it or not."""
SHIELDED = 2**25
"""Bytes of an array behind copy-on-write that are compared whole, in case that code writes past it."""
MOST = 300_000
"""Objects that are looked at for what a program touches."""
MOST_BESIDE = 10_000
"""Objects that are looked at beside those."""
MOST_CALLS = 100
"""Calls of an unfinished turn whose variables are kept."""

T = TypeVar("T")

_UNBOUND: Any = object()
_HISTORY = re.compile(r"In|Out|exit|quit|open|get_ipython|_+|_i*\d*|_[iod]h|__\w+__")
"""Names of a notebook that IPython binds."""

Variables = MutableMapping[str, Any]


def variables_of(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of a notebook, without the names that IPython binds."""
    names = ((name, value) for name, value in dict(namespace).items() if type(name) is str)
    return {name: value for name, value in names if not _HISTORY.fullmatch(name)}


@dataclass(eq=False)
class Picture:
    """The bindings of a namespace, and the states of the objects in it by id.

    `touched` are the ids of objects that the code may change; `cut` says that there were too many to look at.
    """

    bindings: dict[str, Any]
    states: dict[int, ObjectState] = field(default_factory=dict[int, ObjectState])
    touched: set[int] = field(default_factory=set[int])
    cut: bool = False

    def names_reaching(self, ids: Collection[int]) -> set[str]:
        """Return the names whose values are, or reach, one of these objects."""
        reaching = self.reaching(ids)
        return {name for name, value in self.bindings.items() if id(value) in reaching}

    def reaching(self, ids: Collection[int]) -> set[int]:
        """Return the ids of these objects, and of those that reach one of them."""
        if not ids:
            return set()
        parents: defaultdict[int, list[int]] = defaultdict(list)
        for state in self.states.values():
            for inner in self._inner(state):
                parents[inner].append(id(state.thing))
        return _closure(ids, lambda one: parents.get(one, ()))

    def reached(self, names: Iterable[str]) -> set[int]:
        """Return the ids of the objects that these names reach."""
        roots = [id(self.bindings[name]) for name in names if name in self.bindings]
        return _closure((one for one in roots if one in self.states), lambda one: self._inner(self.states[one]))

    def _inner(self, state: ObjectState) -> Iterator[int]:
        yield from (id(inner) for inner in (*state.refs, *state.shielded) if id(inner) in self.states)
        yield from self._sharing.get(id(state.thing), ())

    @cached_property
    def _sharing(self) -> dict[int, list[int]]:
        return sharing(self.states.values())

    def changed(self, later: "Picture") -> set[int]:
        """Return the ids of objects that are not the same in a later picture."""
        return {
            one
            for one, state in self.states.items()
            if (other := later.states.get(one)) is not None and not _same(state, other)
        }

    def rebound(self, later: "Picture") -> set[str]:
        """Return the names that are bound to something else in a later picture, or only in one."""
        names = self.bindings.keys() | later.bindings.keys()
        return {name for name in names if self.bindings.get(name, _UNBOUND) is not later.bindings.get(name, _UNBOUND)}


def _same(state: ObjectState, other: ObjectState) -> bool:
    try:
        return state.same(other)
    except Exception:  # noqa: BLE001  (types of other code are compared; `verify` names what stays different)
        return False


def _closure(starts: Iterable[int], following: Callable[[int], Iterable[int]]) -> set[int]:
    found = set(starts)
    waiting = list(found)
    while waiting:
        for one in following(waiting.pop()):
            if one not in found:
                found.add(one)
                waiting.append(one)
    return found


class _Camera:
    """Takes a picture of a namespace."""

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._home = str(namespace.get("__name__", "__main__"))
        self.picture = Picture(variables_of(namespace))
        self._plain: set[int] = set()

    def look(self, roots: Iterable[Any], most: int, *, touched: bool) -> None:
        """Take the states of the objects that these reach; first of those that the code may touch."""
        picture, waiting = self.picture, list(roots)
        self._plain.update(map(id, waiting))
        while waiting:
            thing = waiting.pop()
            if id(thing) in picture.states:
                continue
            if not most:
                picture.cut |= touched
                return
            most -= 1
            state = self._state(thing)
            if state is None:
                continue
            picture.states[id(thing)] = state
            inner = changing(state.refs)
            waiting += inner
            self._plain.update(map(id, inner))
            if touched:
                picture.touched.add(id(thing))
                waiting += state.shielded
                waiting += self._globals(thing) if type(thing) is FunctionType else ()

    def _state(self, thing: Any) -> ObjectState | None:
        try:
            return table_state(thing) or python_state(thing, self._home)
        except Exception as error:  # noqa: BLE001  (an object of other code may raise anything: only that one is lost)
            return _unreadable(thing, error)

    def develop(self, limit: int) -> Picture:
        """Keep the memory of arrays: a copy if the code may write to it and the limit allows, else a digest."""
        left = limit
        for one, state in list(self.picture.states.items()):
            if isinstance(memory := state.content, Memory):
                try:
                    left -= self._keep_memory(memory, one, left)
                except Exception as error:  # noqa: BLE001  (also a MemoryError)
                    self.picture.states[one] = _unreadable(state.thing, error, state.refs)
        return self.picture

    def _keep_memory(self, memory: Memory, one: int, left: int) -> int:
        """Keep the memory of the array with an id; return how many bytes were copied."""
        size, touched = memory.array.nbytes, one in self.picture.touched
        written = touched and (one in self._plain or size <= SMALL)
        copy = size <= left and (written or size <= SMALL)
        memory.keep(copy=copy, digest=written or size <= SMALL or (touched and size <= SHIELDED))
        return size if copy else 0

    def _globals(self, function: FunctionType) -> list[Any]:
        """Return the variables of the notebook that a function of the notebook may use."""
        if function.__globals__ is not self._namespace:
            return []
        return [self._namespace[name] for name in _names(function.__code__) if name in self._namespace]


def _unreadable(thing: Any, error: Exception, refs: tuple[Any, ...] = ()) -> ObjectState:
    try:
        named = a_type(thing)
    except Exception:  # noqa: BLE001  (the class of a class may refuse to give its name)
        named = "an object"
    logger.debug("%s cannot be kept", named, exc_info=error)
    why = said(error) or type(error).__name__
    return ObjectState(thing, refs, problem=f"it holds {named}, which cannot be read: {why}")


def _names(code: CodeType) -> set[str]:
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


@dataclass(frozen=True, slots=True)
class Restored:
    """What putting variables back came to: the names that are as they were, and those left alone, each with why.

    `back` is the way back, for redo.
    """

    restored: tuple[str, ...]
    refused: Mapping[str, str]
    back: "Kept"


class Kept:
    """The variables before code ran. `settle` is to be called when it has run, before anything else changes them."""

    def __init__(self, names: frozenset[str] | None, before: Picture, limit: int) -> None:
        self._names = names
        self._limit = limit
        self.before = before
        self.after = before

    @property
    def size(self) -> int:
        """About how many bytes are kept."""
        contents = (state.content for state in self.before.states.values())
        copies = (one.copy.nbytes for one in contents if isinstance(one, Memory) and one.copy is not None)
        return sum(copies) + 100 * len(self.before.states)

    def settle(self, namespace: Mapping[str, Any]) -> "Kept":
        """Take notice of the variables now that the code has run; return this."""
        self.after = self._look(namespace, 0)
        return self

    @property
    def touched(self) -> set[str]:
        """The names that the code made, changed or removed."""
        changed = self.before.changed(self.after)
        rebound = self.before.rebound(self.after)
        return rebound | self.before.names_reaching(changed) | self.after.names_reaching(changed)

    @property
    def matters(self) -> bool:
        """Whether the code changed a variable, or may have changed one unseen."""
        return bool(self.touched) or any(self.before.states[one].problem for one in self.before.touched)

    def restore(self, namespace: Variables) -> Restored:
        """Put back the variables that the code changed, without those that have been changed since."""
        now = self._look(namespace, self._limit)
        undoing = _Undoing(self, now)
        undoing.decide()
        undoing.put_back(namespace)
        back = Kept(self._names, now, self._limit)
        back.after = self._look(namespace, 0)
        undoing.verify(back.after)
        return Restored(tuple(sorted(undoing.wanted)), dict(sorted(undoing.refused.items())), back)

    def _look(self, namespace: Mapping[str, Any], limit: int) -> Picture:
        """Return a picture that has every object of the earlier ones too, also those that no name reaches any more."""
        earlier = [*self.before.states.values(), *self.after.states.values()]
        touched = self.before.touched | self.after.touched
        camera = _Camera(namespace)
        camera.look((state.thing for state in earlier if id(state.thing) in touched), MOST, touched=True)
        camera.look(_chosen(camera.picture.bindings, self._names), MOST, touched=True)
        camera.look((state.thing for state in earlier), MOST, touched=False)
        camera.look(camera.picture.bindings.values(), MOST, touched=False)
        return camera.develop(limit)


def keep(
    namespace: Mapping[str, Any], names: Iterable[str] | None, limit: int = LIMIT, roots: Iterable[object] = ()
) -> Kept:
    """Keep the variables before code runs that may change what these names reach, all names if it is None.

    At most `limit` bytes of arrays are copied. What else the names hold is kept by reference. `roots` are other objects
    that the code uses, such as its function.
    """
    chosen = None if names is None else frozenset(names)
    camera = _Camera(namespace)
    bindings = camera.picture.bindings
    camera.look((*roots, *_chosen(bindings, chosen)), MOST, touched=True)
    camera.look(bindings.values(), MOST_BESIDE, touched=False)
    return Kept(chosen, camera.develop(limit), limit)


def _chosen(bindings: Mapping[str, Any], names: frozenset[str] | None) -> list[Any]:
    return [value for name, value in bindings.items() if names is None or name in names]


class VariableKeeper:
    """Keeps the variables of a notebook before each call that may change them, in the main thread.

    An `owner` stands for the session of a call: what is kept for a session is let go with it.
    """

    def __init__(self, namespace: Variables) -> None:
        self.namespace = namespace
        self._kept: WeakKeyDictionary[object, dict[str, list[Kept | None]]] = WeakKeyDictionary()
        self._busy: object = None
        """The owner of the call that runs."""

    @contextmanager
    def around(self, call: ToolCall, function: object, owner: object) -> Generator[None]:
        """Keep the variables while a tool's function runs; a call within another one is part of that.

        A session that such a call belongs to, if it is another one, cannot put variables back itself.
        """
        owner = owner or self
        if self._busy is not None:
            if self._busy is not owner:
                self._add(owner, call.id, None)
            yield
            return
        self._busy = owner
        kept = None
        try:
            kept = self._safely(lambda: keep(self.namespace, self._names(call), roots=(function,)))
            yield
        finally:
            self._busy = None
            kept = None if kept is None else self._safely(partial(kept.settle, self.namespace))
            self._add(owner, call.id, kept)

    def _add(self, owner: object, call_id: str, kept: Kept | None) -> None:
        calls = self._kept.setdefault(owner, {})
        calls.setdefault(call_id, []).append(kept)
        while len(calls) > MOST_CALLS:
            del calls[next(iter(calls))]

    def take(self, owner: object, call_ids: Iterable[str]) -> list[Kept] | None:
        """Return what was kept before these calls, and let go of it; None if the variables could not be kept."""
        calls = self._kept.get(owner, {})
        found = [kept for one in call_ids for kept in calls.pop(one, ())]
        if not calls:
            self._kept.pop(owner, None)
        if None in found:
            return None
        return [kept for kept in found if kept is not None and kept.matters]

    def _safely(self, function: Callable[[], T]) -> T | None:
        """Return what a function returns, or None if an object makes it fail: the call runs all the same."""
        try:
            return function()
        except Exception:  # noqa: BLE001  (undo says that nothing was kept)
            logger.debug("the variables of the notebook could not be kept", exc_info=True)
            return None

    def _names(self, call: ToolCall) -> Collection[str] | None:
        """Return the names that a call may change: those of its program, or variables that it names."""
        code = call.arguments.get("code")
        if call.name != RUN_PYTHON or not isinstance(code, str):
            return [one for one in call.arguments.values() if isinstance(one, str)]
        program = analyse(code, self.namespace)
        return None if program.unknown else program.reads | program.writes | program.removes


_keepers: list[VariableKeeper] = []


def keeper() -> VariableKeeper | None:
    """Return what keeps the variables of the host's notebook, or None in a script."""
    if (notebook := installed().notebook) is None:
        return None
    if not _keepers or _keepers[0].namespace is not notebook.namespace:
        _keepers[:] = [VariableKeeper(notebook.namespace)]
    return _keepers[0]


def keeping(call: ToolCall, function: object, owner: object) -> AbstractContextManager[None]:
    """Keep the variables of the notebook while a tool's function runs; does nothing outside the main thread."""
    here = keeper() if threading.current_thread() is threading.main_thread() else None
    return nullcontext() if here is None else here.around(call, function, owner)


class _Undoing:
    """Decides which variables can be put back, and does it; `refused` has the reason for each one that cannot."""

    def __init__(self, kept: Kept, now: Picture) -> None:
        self._before, self._after, self._now = kept.before, kept.after, now
        self.wanted = kept.touched
        self.refused: dict[str, str] = {}
        self._stale = self._before.changed(now)
        """The objects that do not hold any more what they held before the code ran."""

    def decide(self) -> None:
        """Refuse what cannot be put back exactly, and all that shares objects with it."""
        before, after, now = self._before, self._after, self._now
        unseen = {one for one in before.touched if before.states[one].problem}
        for name in sorted(before.names_reaching(unseen)):
            reached = before.reached([name]) & unseen
            self._refuse([name], before.states[next(iter(reached))].problem)
        if before.cut or now.cut:
            self._refuse(sorted(before.bindings), "there were too many objects to look at")
        for one in self._stale:
            if why := before.states[one].obstacle(now.states[one]):
                self._refuse(before.names_reaching({one}), why)
        changed = after.changed(now)
        since = after.rebound(now) | now.names_reaching(changed) | after.names_reaching(changed)
        self._refuse(since & self.wanted, "it has been changed since")
        while conflict := self._written() & now.reached(since | self.refused.keys()):
            shared = before.names_reaching(conflict) & self.wanted
            self._refuse(shared, "it shares objects with a variable that is left alone")

    def put_back(self, namespace: Variables) -> None:
        """Put back objects, each in place, and bindings."""
        states = [self._before.states[one] for one in self._written()]
        for state in sorted(states, key=lambda state: bool(changing(state.hashed))):  # keys before what finds them
            try:
                state.put()
            except Exception as error:  # noqa: BLE001  (a class of the user may raise anything)
                self._refuse(self._before.names_reaching({id(state.thing)}), f"it could not be put back: {said(error)}")
        for one in self._before.reaching([id(state.thing) for state in states]):
            self._before.states[one].refresh()
        for name in self.wanted:
            if name in self._before.bindings:
                namespace[name] = self._before.bindings[name]
            else:
                namespace.pop(name, None)

    def verify(self, then: Picture) -> None:
        """Refuse variables that are not as they were after all."""
        wrong = {one for one in self._before.changed(then) if one in self._before.reached(self.wanted)}
        self._refuse(self._before.names_reaching(wrong), "it could not be put back wholly")

    def _written(self) -> set[int]:
        return self._stale & self._before.reached(self.wanted)

    def _refuse(self, names: Iterable[str], why: str) -> None:
        for name in names:
            self.refused.setdefault(name, why)
            self.wanted.discard(name)
