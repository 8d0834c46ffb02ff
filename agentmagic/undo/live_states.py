"""Makes the states (`ObjectState`) of files, locks, generators, widgets, loggers, exceptions, and unknown types.

For most of these objects, undo can only check whether they changed. A changed object is reported and left alone.
"""

import pickle
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
from agentmagic.undo.object_states import UNSET, Fixed, NoCopy, ObjectState, Randomness, dict_of
from agentmagic.undo.own import is_own
from agentmagic.undo.package_states import put_variables, settings_of

LARGEST_PICKLE = 2**20
"""Largest pickle, in bytes, that is made of an object of an unknown type."""


class _FilePosition(NoCopy):
    """The state of an open file: `data` is its position, or None if closed. The content is not watched."""

    def obstacle(self, now: ObjectState) -> str:  # noqa: ARG002  (that it moved is enough)
        return "it holds a file that was read, written or closed"


class _Exception(ObjectState):
    """The state of an exception: its arguments, its attributes, its cause and its context."""

    def restore(self) -> None:
        self.thing.args, _, self.thing.__cause__, self.thing.__context__ = self.refs[:4]


class _MemoryFile(ObjectState):
    """The state of a stream in memory, such as a `StringIO`; `data` is its content and position."""

    def restore(self) -> None:
        content, position = self.data
        self.thing.seek(0)
        self.thing.truncate()
        self.thing.write(content)
        self.thing.seek(position)


class _Logger(ObjectState):
    """The state of a logger: its attributes, except its place in the logger hierarchy. `data` are their names."""

    def restore(self) -> None:
        attributes = dict_of(self.thing)
        for name in _logger_names(self.thing) - set(self.data):
            del attributes[name]
        attributes.update(zip(self.data, self.refs, strict=True))
        self.thing.manager._clear_cache()  # noqa: SLF001  (as `setLevel` does)


class _Environment(ObjectState):
    """The state of `os.environ`: the environment variables of the process."""

    def restore(self) -> None:
        put_variables(self.thing, self.data)


class _Traits(ObjectState):
    """The state of a widget: its traits, and its other attributes; `data` are the names of both.

    Restoring a trait also updates the widget in the browser.
    """

    def same(self, other: ObjectState) -> bool:
        """Return whether both states have equal traits and attributes. An unset trait counts as its default value."""
        return self.data[1] == other.data[1] and not self._differences(_by_name(other))

    def _differences(self, now: Mapping[str, Any]) -> dict[str, Any]:
        """Return the earlier values of the traits and attributes that are different in `now`."""
        before = _by_name(self)
        differences = {name: value for name, value in before.items() if now.get(name, UNSET) is not value}
        new = now.keys() - before.keys()
        defaults = {name: self.thing.trait_defaults(name) for name in new if self.thing.has_trait(name)}
        return differences | {name: value for name, value in defaults.items() if now[name] != value}

    def restore(self) -> None:
        attributes, names = dict_of(self.thing), self.data[1]
        for name in _attributes_of(self.thing).keys() - set(names):
            del attributes[name]
        for name, value in self._differences(_by_name(_traits(self.thing))).items():
            if name in names:
                attributes[name] = value
            else:
                self.thing.set_trait(name, value)


def _by_name(state: ObjectState) -> dict[str, Any]:
    names: list[str] = [*state.data[0], *state.data[1]]
    return dict(zip(names, state.refs, strict=True))


class _Pickled(NoCopy):
    """The state of an object of another library; `data` is a digest of its pickle, `refs` are the objects in it."""


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


def _random(thing: Random) -> ObjectState:
    return Randomness(thing, (dict_of(thing),), pickle.dumps(thing.getstate()))


def exception_state(thing: BaseException) -> ObjectState:
    """Return the state of an exception, for undo."""
    return _Exception(thing, (thing.args, thing.__dict__, thing.__cause__, thing.__context__))


ROWS: dict[type[Any], Callable[[Any], ObjectState | None]] = {
    count: lambda thing: NoCopy(thing, data=repr(thing)),
    GeneratorType: _generator,
    Random: _random,
    memoryview: lambda thing: Fixed(thing, (thing.obj,)),
    **dict.fromkeys(map(type, (iter([]), iter(()), iter(""), iter(range(0)))), _iterator),
    **dict.fromkeys((FileIO, TextIOWrapper, *_BUFFERED), file_state),
    **dict.fromkeys((BytesIO, StringIO), _stream),
}


def _logger(thing: Any) -> ObjectState:
    names = tuple(sorted(_logger_names(thing)))
    return _Logger(thing, tuple(dict_of(thing)[name] for name in names), names)


def _logger_names(thing: Any) -> set[str]:
    return set(dict_of(thing)) - {"parent", "manager", "_cache"}


def _traits(thing: Any) -> ObjectState:
    values = dict(thing._trait_values)  # noqa: SLF001  (reading a trait could run code of its class)
    traits = {name: value for name, value in values.items() if name not in _OF_WIDGET and not name.startswith("_")}
    attributes = _attributes_of(thing)
    return _Traits(thing, (*traits.values(), *attributes.values()), (tuple(traits), tuple(attributes)))


def _attributes_of(thing: Any) -> dict[str, Any]:
    """Return the attributes of a widget, without those that it manages itself."""
    return {name: value for name, value in dict_of(thing).items() if name not in _OF_WIDGET and name[0] != "_"}


_OF_WIDGET = frozenset({"comm", "layout", "style", "keys", "log", "parent", "config"})


def _environment(thing: Any) -> ObjectState:
    return _Environment(thing, data=dict(thing))


class _ThreadState(ObjectState):
    """The state of a thread of Python: its attributes, except those that change while it runs.

    `data` has the names of the attributes, and whether the thread was started. `others` are its function and arguments.
    """

    others: tuple[Any, ...] = ()

    @property
    def inner(self) -> Collection[Any]:
        return (*self.refs, *self.others)

    def restore(self) -> None:
        attributes = dict_of(self.thing)
        for name in _of_thread(self.thing).keys() - set(self.data[0]):
            del attributes[name]
        attributes.update(zip(self.data[0], self.refs, strict=True))

    def obstacle(self, now: ObjectState) -> str:
        return "" if now.data[1] == self.data[1] else "it holds a thread that was started"


def _thread(thing: Any) -> ObjectState:
    attributes = _of_thread(thing)
    state = _ThreadState(thing, tuple(attributes.values()), (tuple(attributes), thing._started.is_set()))  # noqa: SLF001
    state.others = tuple(value for name, value in dict_of(thing).items() if name in ("_target", "_args", "_kwargs"))
    return state


def _of_thread(thread: Any) -> dict[str, Any]:
    return {name: value for name, value in dict_of(thread).items() if name not in _of_running()}


@cache
def _of_running() -> frozenset[str]:
    return frozenset(vars(Thread())) - {"_name", "_daemonic"}


class _Settings(ObjectState):
    """The state of an `RcParams` of matplotlib that a variable holds; `data` are the names of the settings."""

    def same(self, other: ObjectState) -> bool:
        names: tuple[str, ...] = self.data
        now = dict[str, Any](zip(other.data, other.refs, strict=True))
        return all(now.get(name, value) is value for name, value in zip(names, self.refs, strict=True))

    def restore(self) -> None:
        for name, value in zip(self.data, self.refs, strict=True):
            dict[str, Any].__setitem__(self.thing, name, value)


def _settings(thing: Any) -> ObjectState:
    settings = settings_of(thing)
    return _Settings(thing, tuple(settings.values()), tuple(settings))


NAMED: dict[str, Callable[[Any], ObjectState | None]] = {
    "logging.Logger": _logger,
    "matplotlib.RcParams": _settings,
    "os._Environ": _environment,
    "threading.Thread": _thread,
    "traitlets.traitlets.HasTraits": _traits,
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
    return _Pickled(thing, tuple(pickler.inner), digest.sum.digest())


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


def unknown_state(thing: Any) -> ObjectState:
    """Return the state of an object whose changes undo cannot see."""
    return ObjectState(thing, problem=f"it holds {a_type(thing)}, which cannot be watched")
