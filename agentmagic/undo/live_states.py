"""Makes the states (`ObjectState`) of rare kinds: files, locks, generators, widgets, loggers, exceptions, objects of C.

For many of these objects, undo can only check whether they changed. A changed object is reported and left alone.
"""

import pickle
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache
from hashlib import sha1
from io import BufferedRandom, BufferedReader, BufferedWriter, BytesIO, FileIO, StringIO, TextIOWrapper
from itertools import count
from random import Random
from threading import Thread
from types import GeneratorType
from typing import Any, cast

from agentmagic.text import a_type
from agentmagic.undo.array_states import form_of
from agentmagic.undo.object_states import (
    HEAP_TYPE,
    UNSET,
    Fields,
    Fixed,
    Named,
    NoCopy,
    ObjectState,
    dict_of,
    with_attributes,
)
from agentmagic.undo.own import is_own
from agentmagic.undo.package_states import settings_of

LARGEST_PICKLE = 2**20
"""Largest pickle, in bytes, that is made of an object of an unknown type."""


class _FilePosition(NoCopy):
    """The state of an open file: `data` is its position, or None if closed. The content is not watched."""

    def obstacle(self, now: ObjectState) -> str:  # noqa: ARG002  (that it moved is enough)
        return "it holds a file that was read, written or closed"


class _Exception(Fields):
    """The state of an exception: its arguments, its cause and its context."""

    @staticmethod
    def read(thing: BaseException) -> dict[str, Any]:
        return {"args": thing.args, "__cause__": thing.__cause__, "__context__": thing.__context__}


class _MemoryFile(ObjectState):
    """The state of a stream in memory, such as a `StringIO`; `data` is its content and position."""

    def restore(self) -> None:
        content, position = self.data
        self.thing.seek(0)
        self.thing.truncate()
        self.thing.write(content)
        self.thing.seek(position)


class _Logger(Named):
    """The state of a logger: its attributes, except its place in the logger hierarchy."""

    @staticmethod
    def read(thing: Any) -> dict[str, Any]:
        return {name: value for name, value in dict_of(thing).items() if name not in ("parent", "manager", "_cache")}

    def restore(self) -> None:
        super().restore()
        self.thing.manager._clear_cache()  # noqa: SLF001  (as `setLevel` does)


class _Settings(Named):
    """The state of an `RcParams` of matplotlib that a variable holds. The first figure can add settings to it."""

    @staticmethod
    def read(thing: Any) -> dict[str, Any]:
        return settings_of(thing)

    def differences(self, now: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in super().differences(now).items() if name in self.parts and name in now}

    def put(self, name: str, value: Any) -> None:
        dict[str, Any].__setitem__(self.thing, name, value)


class _Traits(Named):
    """The state of a widget: its traits, and its other attributes, without those that it manages itself.

    Restoring a trait also updates the widget in the browser.
    """

    @staticmethod
    def read(thing: Any) -> dict[str, Any]:
        parts = thing._trait_values | dict_of(thing)  # noqa: SLF001  (reading a trait could run code of its class)
        return {name: value for name, value in parts.items() if name not in _OF_WIDGET and not name.startswith("_")}

    def differences(self, now: Mapping[str, Any]) -> dict[str, Any]:
        """Return the earlier values of the parts that are different in `now`. An unset trait has its default value."""
        found = super().differences(now)
        unset = [name for name, value in found.items() if value is UNSET and self.thing.has_trait(name)]
        found |= {name: self.thing.trait_defaults(name) for name in unset}
        return {name: value for name, value in found.items() if name not in unset or now[name] != value}

    def put(self, name: str, value: Any) -> None:
        if self.thing.has_trait(name):
            self.thing.set_trait(name, value)
        else:
            super().put(name, value)


_OF_WIDGET = frozenset({"comm", "layout", "style", "keys", "log", "parent", "config"})


class _Iterator(ObjectState):
    """The state of an iterator over a sequence; `data` is its position, or None if it has ended.

    An ended iterator cannot be restored.
    """

    def obstacle(self, now: ObjectState) -> str:
        return NoCopy.obstacle(self, now) if now.data is None or self.data is None else ""  # type: ignore[arg-type]

    def restore(self) -> None:
        self.thing.__setstate__(self.data)


def _iterator(thing: Any) -> ObjectState:
    _, arguments, *place = thing.__reduce__()
    sequences = [
        argument for argument in arguments if type(argument) in (list, tuple)
    ]  # a range is left out, because each call of `__reduce__` makes a new one
    return _Iterator(thing, tuple(sequences) if place else (), place[0] if place else None)


def file_state(thing: Any) -> ObjectState | None:
    """Return the state of a file, or None for a pipe or terminal, where data cannot be read twice."""
    # Call `tell` of the raw file: `tell` of a wrapper would flush pending data, or wait for a thread that reads.
    try:
        binary = getattr(thing, "buffer", thing)
        raw = getattr(binary, "raw", binary) if type(binary) in _BUFFERED else binary
        return _FilePosition(thing, data=raw.tell()) if type(raw) is FileIO else unknown_state(thing)
    except OSError:  # the file is a pipe
        return None
    except ValueError:  # the file is closed or detached
        return _FilePosition(thing)


_BUFFERED = (BufferedReader, BufferedWriter, BufferedRandom)


def _stream(thing: Any) -> ObjectState:
    return NoCopy(thing) if thing.closed else _MemoryFile(thing, data=(thing.getvalue(), thing.tell()))


def _lock(thing: Any) -> ObjectState:
    return NoCopy(thing, data=repr(thing).partition(" at ")[0])


def _generator(thing: Any) -> ObjectState:
    frame = thing.gi_frame
    return NoCopy(thing, () if frame is None else tuple(frame.f_locals.values()), frame and frame.f_lasti)


class _Random(ObjectState):
    """The state of a random number generator of Python or NumPy; `data` is a pickle of its internal state."""

    def restore(self) -> None:
        """Restore the state of the generator, so that it draws the same numbers again."""
        state = pickle.loads(self.data)  # noqa: S301  (made in this process, and never leaves it)
        if isinstance(self.thing, Random):
            self.thing.setstate(state)
        elif hasattr(self.thing, "set_state"):
            self.thing.set_state(state)
        else:
            getattr(self.thing, "bit_generator", self.thing).state = state


def random_state(thing: Any) -> ObjectState:
    """Return the state of a random number generator of Python or NumPy, for undo."""
    if isinstance(thing, Random):
        return _Random(thing, (dict_of(thing),), pickle.dumps(thing.getstate()))
    source = getattr(thing, "_bit_generator", None)  # several generators can share one
    is_old = hasattr(thing, "get_state")
    state = thing.get_state(legacy=False) if is_old else getattr(thing, "bit_generator", thing).state
    return _Random(thing, () if source is None else (source,), pickle.dumps(state))


def exception_state(thing: BaseException) -> ObjectState:
    """Return the state of an exception, for undo."""
    return _Exception.of(thing)


ROWS: dict[type[Any], Callable[[Any], ObjectState | None]] = {
    count: lambda thing: NoCopy(thing, data=repr(thing)),
    GeneratorType: _generator,
    Random: random_state,
    memoryview: lambda thing: Fixed(thing, (thing.obj,)),
    **dict.fromkeys(map(type, (iter([]), iter(()), iter(""), iter(range(0)))), _iterator),
    **dict.fromkeys((FileIO, TextIOWrapper, *_BUFFERED), file_state),
    **dict.fromkeys((BytesIO, StringIO), _stream),
}


class _ThreadState(NoCopy):
    """The state of a thread of Python: its attributes, except those that change while it runs.

    `data` has the names of the attributes, and whether the thread was started. `others` are its function and arguments.
    """

    others: tuple[Any, ...] = ()

    @property
    def inner(self) -> Collection[Any]:
        return (*self.refs, *self.others)

    def obstacle(self, now: ObjectState) -> str:
        is_started = now.data[1] != self.data[1]
        return "it holds a thread that was started" if is_started else super().obstacle(now)


def _thread(thing: Any) -> ObjectState:
    attributes = {name: value for name, value in dict_of(thing).items() if name not in _of_running()}
    state = _ThreadState(thing, tuple(attributes.values()), (tuple(attributes), thing._started.is_set()))  # noqa: SLF001
    state.others = tuple(value for name, value in dict_of(thing).items() if name in ("_target", "_args", "_kwargs"))
    return state


@cache
def _of_running() -> frozenset[str]:
    return frozenset(vars(Thread())) - {"_name", "_daemonic"}


NAMED: dict[str, Callable[[Any], ObjectState | None]] = {
    "logging.Logger": _Logger.of,
    "matplotlib.RcParams": _Settings.of,
    "threading.Thread": _thread,
    "traitlets.traitlets.HasTraits": _Traits.of,
    "_thread.lock": _lock,
    "_thread.RLock": _lock,
}
"""Makers of states, by the name of a class or of one of its bases. Names, because the module may not be loaded."""


def pickled_state(thing: Any) -> ObjectState:
    """Return the state of a library object, read from its pickle. If it has no pickle, the state has a `problem`."""
    if any(is_own(base.__module__) for base in cast("type[Any]", type(thing)).__mro__):
        return unknown_state(thing)  # pickling would run code of the user
    digest = _Digest()
    pickler = _ShallowPickler(digest)
    pickler.thing, pickler.inner = thing, []
    try:
        pickler.dump(thing)
    except Exception:  # noqa: BLE001  (most objects of C cannot be pickled)
        return unknown_state(thing)
    return NoCopy(thing, tuple(pickler.inner), digest.sum.digest())


class _ShallowPickler(pickle.Pickler):
    """Pickles one object without the objects inside it. These are collected in `inner`."""

    thing: Any
    inner: list[Any]

    def persistent_id(self, obj: Any) -> Any:
        """Return a number that replaces an inner object, or None for an object that the pickle itself contains."""
        if obj is self.thing or type(obj) in _PARTS:
            return None
        self.inner.append(obj)
        return len(self.inner)


_PARTS = frozenset((int, float, complex, bool, str, bytes, type(None), tuple, list, dict))


class _Digest:
    """A file object that computes a digest of the data written to it, up to 1 MiB (`LARGEST_PICKLE`)."""

    def __init__(self) -> None:
        self.sum = sha1(usedforsecurity=False)
        self._remaining = LARGEST_PICKLE

    def write(self, data: Any) -> int:
        """Add a part of the pickle to the digest, and return its size. Raises ValueError if the pickle is too large."""
        size = memoryview(data).nbytes
        self._remaining -= size
        if self._remaining < 0:
            raise ValueError
        self.sum.update(data)
        return size


class _Compiled(ObjectState):
    """The state of an object written in C. `data` has the forms of its arrays, and a pickle of everything else.

    `refs` are the arrays. They are not compared, because `__getstate__` returns new array objects each time.
    """

    pickle_state: Any = None

    def same(self, other: ObjectState) -> bool:
        return type(self) is type(other) and self.data == other.data

    def obstacle(self, now: ObjectState) -> str:
        return "" if self.pickle_state is not None and now.data[0] == self.data[0] else _problem(self.thing)

    def restore(self) -> None:
        """Restore the arrays and numbers of the object, such as the number of queries that a search tree counts."""
        self.thing.__setstate__(self.pickle_state)


def compiled_maker(kind: type[Any]) -> Callable[[Any], ObjectState] | None:
    """Return the function that makes states of a scikit-learn type written in C, or None for another type.

    The attributes of such an object, for example a tree of a forest, cannot be read, but `__getstate__` returns its
    arrays for pickling. If the object works on these arrays, and they are no copies, they have states of their own.
    """
    c_class = next(base for base in kind.__mro__ if not base.__flags__ & HEAP_TYPE)
    if c_class.__module__.partition(".")[0] != "sklearn":
        return None
    if kind is c_class:
        return lambda thing: _compiled(thing, c_class)
    return lambda thing: with_attributes(thing, _compiled(thing, c_class))


def _compiled(thing: Any, c_class: type[Any]) -> ObjectState:
    if getattr(c_class, "__getstate__", None) is getattr(object, "__getstate__", None):
        return _Compiled(thing, data=((), pickle.dumps(thing)))
    pickle_state = thing.__getstate__()
    arrays, rest = _arrays_and_rest(pickle_state)
    forms = list(map(form_of, arrays))
    if forms != list(map(form_of, _arrays_and_rest(thing.__getstate__())[0])):
        return ObjectState(thing, problem=_problem(thing))  # `__getstate__` returns copies, which undo cannot use
    state = _Compiled(thing, tuple(arrays), (forms, pickle.dumps(rest)))
    state.pickle_state = pickle_state
    return state


def _arrays_and_rest(pickle_state: Any) -> tuple[list[Any], list[Any]]:
    """Split the pickle state of an object into its arrays and all other values."""
    parts: list[Any] = list(pickle_state.values() if hasattr(pickle_state, "values") else pickle_state)
    ndarray = sys.modules["numpy"].ndarray
    return [part for part in parts if isinstance(part, ndarray)], [
        part for part in parts if not isinstance(part, ndarray)
    ]


def _problem(thing: Any) -> str:
    return f"it holds a {type(thing).__name__}, whose state cannot be kept"


def unknown_state(thing: Any) -> ObjectState:
    """Return the state of an object whose changes undo cannot see."""
    return ObjectState(thing, problem=f"it holds {a_type(thing)}, which cannot be watched")
