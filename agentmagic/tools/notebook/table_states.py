"""What an array of NumPy, a table of pandas or a frame of polars holds, in the form of `object_states`."""

import pickle
import sys
from collections.abc import Sequence
from functools import cache
from hashlib import sha1
from typing import Any, cast

from agentmagic.tools.notebook.object_states import ObjectState, Randomness

_PLACES, _PLACE = 64, 4096
"""How many places are compared in an array of which nothing else is kept, and the bytes of each."""
_LONGEST = 1_000_000
"""Elements of an array of objects that are looked at."""
_CACHES = frozenset({"_mgr", "_cache", "_id", "_engine", "_flags", "_references"})
"""Attributes of tables and indexes that are no part of their value, or are kept in another way."""
_ARRAYS = ("_ndarray", "_data", "_mask", "_left", "_right", "_sparse_values")
"""Attributes of the arrays of pandas that hold arrays of NumPy."""


class _ArrayView(ObjectState):
    """The form of an array whose memory is that of its base; `data` ends with whether it is writeable."""

    def obstacle(self, now: ObjectState) -> str:
        return "" if now.data[:-1] == self.data[:-1] else "the form of an array was changed in place"

    def put(self) -> None:
        self.thing.flags.writeable = self.data[-1]


class _OwnedArray(_ArrayView):
    """An array that owns its memory, and the `copy` that is put back: an array of objects has one at once."""

    copy: Any = None

    def put(self) -> None:
        """Write the copy into the array."""
        self.thing.flags.writeable = True
        self.thing[...] = self.copy
        super().put()


class Memory(_OwnedArray):
    """An array of numbers. `keep` decides how much of its memory is kept; before, nothing of it is."""

    digest: bytes | None = None
    sample: bytes = b""

    def keep(self, *, copy: bool, digest: bool) -> None:
        """Keep a copy of the memory, a digest of it, or only samples."""
        self.copy = self.thing.copy(order="K") if copy else None
        self.digest = _digest(self.thing) if copy or digest else None
        self.sample = _digest(self.thing, whole=False)

    def same(self, other: ObjectState) -> bool:
        """Compare digests if both have one, else samples."""
        if not (isinstance(other, Memory) and self.data == other.data and self.sample == other.sample):
            return False
        return None in (self.digest, other.digest) or self.digest == other.digest

    def obstacle(self, now: ObjectState) -> str:
        """Return why the memory cannot be put back, or ""."""
        return super().obstacle(now) or ("" if self.copy is not None else "an array in it was too large to be copied")


class _TableState(ObjectState):
    """A frame or series of pandas: axes, attributes, arrays of objects, and a copy that pandas does not write to.

    `data` has the names of the attributes, the number of axes, the form of the blocks, and the copy.
    """

    def same(self, other: ObjectState) -> bool:
        return self.data[:-1] == other.data[:-1] and self.same_refs(other)

    def put(self) -> None:
        names, axes, (_, duplicates), copy = self.data
        self.thing.flags._allows_duplicate_labels = duplicates  # noqa: SLF001  (setting it checks the labels first)
        _put_attributes(self.thing, names, self.refs[axes:])
        manager = copy.copy(deep=False)
        manager.axes = list(self.refs[:axes])
        self.thing.__dict__["_mgr"] = manager


class _Index(ObjectState):
    """An index of pandas, of which only the names can be changed; `data` are the names of its attributes."""

    def put(self) -> None:
        _put_attributes(self.thing, self.data, self.refs)


class _Polars(ObjectState):
    """A frame or series of polars; `data` is a copy, which shares memory that is never written to."""

    def same(self, other: ObjectState) -> bool:
        one, two = self.data, other.data
        if type(one) is not type(two):
            return False
        alike = one.schema == two.schema if hasattr(one, "schema") else (one.name, one.dtype) == (two.name, two.dtype)
        return alike and one.equals(two)

    def put(self) -> None:
        name = "_df" if hasattr(self.thing, "_df") else "_s"
        setattr(self.thing, name, getattr(self.data.clone(), name))


def table_state(thing: Any) -> ObjectState | None:  # noqa: PLR0911  (one return for each type)
    """Return the state of an object of one of these libraries, or None for any other object."""
    match _origin(cast("type[Any]", type(thing))):
        case "numpy", "ndarray":
            return _array(thing)
        case "numpy", "Generator":
            return Randomness(thing, data=pickle.dumps(thing.bit_generator.state))
        case "pandas", "DataFrame" | "Series":
            return _table(thing)
        case "pandas", name if name.endswith("Index"):
            return _index(thing)
        case "pandas", _ if isinstance(thing, sys.modules["pandas"].api.extensions.ExtensionArray):
            return _extension_array(thing)
        case "polars", "DataFrame" | "Series":
            return _polars(thing)
        case _:
            return None


@cache
def _origin(kind: type[Any]) -> tuple[str, str]:
    return kind.__module__.partition(".")[0], kind.__name__


def _array(thing: Any) -> ObjectState:
    form = _form(thing)
    is_view = isinstance(thing.base, type(thing))
    base = () if thing.base is None else (thing.base,)
    if not thing.dtype.hasobject and thing.dtype.kind != "T":
        return _ArrayView(thing, base, form) if is_view else Memory(thing, base, form)
    if thing.dtype != object:
        return ObjectState(thing, problem=f"it holds an array of {thing.dtype}, which cannot be kept")
    if is_view:
        return _ArrayView(thing, base, form)
    if thing.size > _LONGEST:
        return ObjectState(thing, problem=f"it holds an array of more than {_LONGEST:,} objects")
    state = _OwnedArray(thing, tuple(thing.ravel(order="K").tolist()), form)
    state.copy = thing.copy(order="K")
    return state


def _form(array: Any) -> tuple[Any, ...]:
    """Return what of an array can be changed beside its numbers, and where its memory is."""
    return (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype, array.flags.writeable)


def _root(array: Any) -> Any:
    """Return the array that owns the memory of another one."""
    while isinstance(array.base, type(array)):
        array = array.base
    return array


def _table(thing: Any) -> ObjectState:
    manager = thing._mgr  # noqa: SLF001  (pandas has no public way to put a table's content back)
    forms: list[Any] = []
    memory: list[Any] = []
    mixed: list[Any] = []
    for block in manager.blocks:
        arrays = _arrays(block.values)
        forms.append((type(block.values), block.dtype, block.mgr_locs.as_array.tolist(), list(map(_form, arrays))))
        roots = list(map(_root, arrays))
        if block.dtype == object:
            mixed += roots
        elif not _is_text(block.dtype) or arrays[0].size <= _LONGEST:
            memory += roots
        if not arrays:
            return ObjectState(thing, problem=f"it holds a column of {block.dtype}, which cannot be kept")
    attributes = _attributes(thing)
    form = (forms, thing.flags.allows_duplicate_labels)
    data = (tuple(attributes), len(manager.axes), form, manager.copy(deep=False))
    return _TableState(thing, (*manager.axes, *attributes.values(), *mixed), data, shielded=tuple(memory))


def _attributes(thing: Any) -> dict[str, Any]:
    return {name: value for name, value in thing.__dict__.items() if name not in _CACHES}


def _put_attributes(thing: Any, names: Sequence[str], values: Sequence[Any]) -> None:
    for name in _attributes(thing).keys() - set(names):
        del thing.__dict__[name]
    thing.__dict__.update(zip(names, values, strict=False))


def _index(thing: Any) -> ObjectState:
    attributes = _attributes(thing)
    memory = tuple(_root(array) for array in _arrays(thing.__dict__.get("_data")))
    return _Index(thing, tuple(attributes.values()), tuple(attributes), shielded=memory)


def _extension_array(thing: Any) -> ObjectState:
    arrays = _arrays(thing)
    problem = "" if arrays else f"it holds an array of {thing.dtype}, which cannot be kept"
    frequency = getattr(thing, "_freq", None)  # pandas 3 has it in the index instead
    return ObjectState(thing, tuple(arrays), (thing.dtype, frequency), problem)


def _arrays(values: Any) -> list[Any]:
    """Return the arrays of NumPy in which a column is kept, none if the kind of the column is unknown."""
    if type(values) is sys.modules["numpy"].ndarray:
        return [values]
    inner = (getattr(values, name, None) for name in (*_ARRAYS, "_codes"))
    return list({id(array): array for one in inner if one is not None for array in _arrays(one)}.values())


def _is_text(dtype: Any) -> bool:
    return dtype.kind == "O" and str(dtype).startswith("str")


def _polars(thing: Any) -> ObjectState:
    dtypes = getattr(thing, "dtypes", None) or [thing.dtype]
    if any(str(dtype) == "Object" for dtype in dtypes):
        return ObjectState(thing, problem="it holds a column of Python objects, which polars does not copy")
    return _Polars(thing, data=thing.clone())


def _digest(array: Any, *, whole: bool = True) -> bytes:
    """Return a digest of an array's memory, or of places in it."""
    found = sha1(usedforsecurity=False)
    numbers = sys.modules["numpy"]
    flat = array.ravel(order="K")
    contiguous = flat if flat.flags.c_contiguous else flat.copy()
    memory = contiguous.view(numbers.uint8) if contiguous.size and contiguous.itemsize else contiguous
    if whole or memory.size <= _PLACES * _PLACE:
        found.update(memory)
    else:
        step = memory.size // _PLACES
        for start in range(0, memory.size, step):
            found.update(memory[start : start + _PLACE])
    return found.digest()
