"""Objects that do something: files, locks, generators, widgets, loggers, exceptions; and what is known of all others.

Most of them can only be seen to be as they were. One that was changed is named, and left alone.
"""

import pickle
import sys
from collections.abc import Callable, Mapping
from hashlib import sha1
from io import BufferedRandom, BufferedReader, BufferedWriter, BytesIO, FileIO, StringIO, TextIOWrapper
from itertools import count
from random import Random
from types import GeneratorType
from typing import Any, cast

from agentmagic.text import a_type
from agentmagic.undo.object_states import UNSET, Fixed, NoCopy, ObjectState, Randomness, dict_of
from agentmagic.undo.own import is_own

LARGEST_PICKLE = 2**20
"""Bytes of what an object of an unknown type gives away to be pickled."""


class _FilePosition(NoCopy):
    """The position of a file on disk as `data`, None once it is closed; the content is no part of the variables."""

    def obstacle(self, now: ObjectState) -> str:  # noqa: ARG002  (that it moved is enough)
        return "it holds a file that was read, written or closed"


class _Exception(ObjectState):
    """An exception: its arguments, its attributes, and the exceptions behind it."""

    def put(self) -> None:
        self.thing.args, _, self.thing.__cause__, self.thing.__context__ = self.refs[:4]


class _MemoryFile(ObjectState):
    """A stream in memory; `data` is its content and its position."""

    def put(self) -> None:
        content, position = self.data
        self.thing.seek(0)
        self.thing.truncate()
        self.thing.write(content)
        self.thing.seek(position)


class _Logger(ObjectState):
    """The attributes of a logger, apart from its place among the loggers; `data` are their names."""

    def put(self) -> None:
        held = dict_of(self.thing)
        for name in _logger_names(self.thing) - set(self.data):
            del held[name]
        held.update(zip(self.data, self.refs, strict=True))
        self.thing.manager._clear_cache()  # noqa: SLF001  (as `setLevel` does)


class _Environment(ObjectState):
    """The variables of the process."""

    def put(self) -> None:
        for name in self.thing.keys() - self.data.keys():
            del self.thing[name]
        self.thing.update(self.data)


class _Traits(ObjectState):
    """The traits of a widget, which tell its page when they are put back, and other attributes.

    `data` are the names of both.
    """

    def same(self, other: ObjectState) -> bool:
        """Compare the traits and attributes; a trait that was not set yet had its default."""
        return self.data[1] == other.data[1] and not self._differences(_by_name(other))

    def _differences(self, now: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was other than it is now."""
        before = _by_name(self)
        found = {name: value for name, value in before.items() if now.get(name, UNSET) is not value}
        new = now.keys() - before.keys()
        defaults = {name: self.thing.trait_defaults(name) for name in new if self.thing.has_trait(name)}
        return found | {name: value for name, value in defaults.items() if now[name] != value}

    def put(self) -> None:
        held, names = dict_of(self.thing), self.data[1]
        for name in _attributes_of(self.thing).keys() - set(names):
            del held[name]
        for name, value in self._differences(_by_name(_traits(self.thing))).items():
            if name in names:
                held[name] = value
            else:
                self.thing.set_trait(name, value)


def _by_name(state: ObjectState) -> dict[str, Any]:
    names: list[str] = [*state.data[0], *state.data[1]]
    return dict(zip(names, state.refs, strict=True))


class _Pickled(NoCopy):
    """An object of another library; `data` is a digest of what it gives away to be pickled, `refs` what is in it."""


class _Iterator(ObjectState):
    """An iterator over a sequence; `data` is its place, None at the end, from which there is no way back."""

    def obstacle(self, now: ObjectState) -> str:
        return NoCopy.obstacle(self, now) if now.data is None or self.data is None else ""  # type: ignore[arg-type]

    def put(self) -> None:
        self.thing.__setstate__(self.data)


def _iterator(thing: Any) -> ObjectState:
    _, given, *place = thing.__reduce__()
    held = [one for one in given if type(one) in (list, tuple)]  # it makes another range each time
    return _Iterator(thing, tuple(held) if place else (), place[0] if place else None)


def file_state(thing: Any) -> ObjectState | None:
    """Return the state of a file, or None for a pipe or a terminal: what went through it is gone."""
    # A wrapper's own `tell` would write what is pending, or wait for a thread that reads; this one does neither.
    try:
        binary = getattr(thing, "buffer", thing)
        raw = getattr(binary, "raw", binary) if type(binary) in _BUFFERED else binary
        return _FilePosition(thing, data=raw.tell()) if type(raw) is FileIO else unkept(thing)
    except OSError:  # a pipe
        return None
    except ValueError:  # closed, or detached
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
    """Return the state of an exception."""
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
    held = dict(thing._trait_values)  # noqa: SLF001  (reading a trait could run code of its class)
    traits = {name: value for name, value in held.items() if name not in _OF_WIDGET and not name.startswith("_")}
    attributes = _attributes_of(thing)
    return _Traits(thing, (*traits.values(), *attributes.values()), (tuple(traits), tuple(attributes)))


def _attributes_of(thing: Any) -> dict[str, Any]:
    """Return the attributes of a widget that are not the widget's own affair."""
    return {name: value for name, value in dict_of(thing).items() if name not in _OF_WIDGET and name[0] != "_"}


_OF_WIDGET = frozenset({"comm", "layout", "style", "keys", "log", "parent", "config"})


def _environment(thing: Any) -> ObjectState:
    return _Environment(thing, data=dict(thing))


class _Settings(ObjectState):
    """The settings of matplotlib; `data` are their names."""

    def same(self, other: ObjectState) -> bool:
        names: tuple[str, ...] = self.data
        now = dict[str, Any](zip(other.data, other.refs, strict=True))
        return all(now.get(name, value) is value for name, value in zip(names, self.refs, strict=True))

    def put(self) -> None:
        for name, value in zip(self.data, self.refs, strict=True):
            dict[str, Any].__setitem__(self.thing, name, value)


def _settings(thing: Any) -> ObjectState:
    """Return the settings of matplotlib, before the first figure without those that IPython sets with it."""
    drawn = getattr(sys.modules.get("matplotlib.pyplot"), "_backend_mod", None) is not None
    held = {
        name: value for name, value in dict[str, Any].items(thing) if drawn or name not in ("backend", "interactive")
    }
    return _Settings(thing, tuple(held.values()), tuple(held))


NAMED: dict[str, Callable[[Any], ObjectState | None]] = {
    "logging.Logger": _logger,
    "matplotlib.RcParams": _settings,
    "os._Environ": _environment,
    "traitlets.traitlets.HasTraits": _traits,
    "_thread.lock": _lock,
    "_thread.RLock": _lock,
}
"""States by the name of a class, or of one of its bases: the module may not be loaded."""


def given_state(thing: Any) -> ObjectState:
    """Return a state by what an object of a library gives away to be pickled, if it gives anything."""
    if any(is_own(base.__module__) for base in cast("type[Any]", type(thing)).__mro__):
        return unkept(thing)  # that would run code of the user
    digest = _Digest()
    pickler = _Given(digest)
    pickler.thing, pickler.inner = thing, []
    try:
        pickler.dump(thing)
    except Exception:  # noqa: BLE001  (most objects of C cannot be pickled)
        return unkept(thing)
    return _Pickled(thing, tuple(pickler.inner), digest.sum.digest())


class _Given(pickle.Pickler):
    """Pickles what is an object's own; the objects inside are only noted."""

    thing: Any
    inner: list[Any]

    def persistent_id(self, obj: Any) -> Any:
        """Return the number of an object inside, or None for a part of the pickle."""
        if obj is self.thing or type(obj) in _PARTS:
            return None
        self.inner.append(obj)
        return len(self.inner)


_PARTS = frozenset((int, float, complex, bool, str, bytes, type(None), tuple, list, dict))


class _Digest:
    """A file that keeps a digest of what is written to it, up to LARGEST_PICKLE."""

    def __init__(self) -> None:
        self.sum = sha1(usedforsecurity=False)
        self._left = LARGEST_PICKLE

    def write(self, data: Any) -> int:
        """Take a part of the pickle. Raises ValueError if it is too large."""
        size = memoryview(data).nbytes
        self._left -= size
        if self._left < 0:
            raise ValueError
        self.sum.update(data)
        return size


def unkept(thing: Any) -> ObjectState:
    """Return the state of an object of which nothing can be known."""
    return ObjectState(thing, problem=f"it holds {a_type(thing)}, which cannot be watched")
