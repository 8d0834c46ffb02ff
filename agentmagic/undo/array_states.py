"""States of NumPy arrays, for undo: their form (shape, type ...), and a copy or digest of their memory.

The module `object_states` explains states.
"""

import pickle
import sys
from collections.abc import Callable
from hashlib import sha1
from typing import Any

from agentmagic.undo.object_states import MemoryBlock, ObjectState, Randomness, with_attributes

Maker = Callable[[Any], ObjectState | None]

LONGEST = 1_000_000
"""Largest number of elements. An array of objects with more elements is not watched."""
_PART = 2**20
"""Array elements that are compared in one step."""


class _ArrayView(ObjectState):
    """The state of an array that uses the memory of its base array. It has only the form.

    The form is the shape, the type and so on. `data` ends with the field names and the writeable flag.
    """

    def obstacle(self, now: ObjectState) -> str:
        return "" if now.data[:-2] == self.data[:-2] else "the form of an array was changed in place"

    def restore(self) -> None:
        _restore_field_names(self.thing.dtype, self.data[-2])
        _set_writeable(self.thing, self.data[-1])


class _OwnedArray(_ArrayView):
    """The state of an array that owns its memory. `copy` is the content to restore.

    For an array of objects, the copy is made at once. For an array of numbers, `Memory.keep` makes it later.
    """

    copy: Any = None

    @property
    def array(self) -> Any:
        """The array that gives access to the memory."""
        return self.thing

    def restore(self) -> None:
        """Write the copy into the array."""
        array = self.array
        try:
            _set_writeable(array, True)
        except ValueError:
            # The memory belongs to another object. If undo does not restore that object, `_Undoing.verify` reports
            # that this array still differs.
            return
        _restore_field_names(array.dtype, self.data[-2])
        _copy(self.copy, array)
        _set_writeable(array, self.data[-1])


def _set_writeable(array: Any, value: bool) -> None:
    if array.flags.writeable != value:  # for memory of Arrow, NumPy refuses even to set the flag to its present value
        array.flags.writeable = value


def _copy(source: Any, target: Any) -> None:
    """Copy the memory of `source`, with the padding between record fields, into `target`, an array of the same form."""
    if target.dtype.names is None:
        target[...] = source
    else:
        _bytes(target)[...] = _bytes(source)


def _restore_field_names(dtype: Any, fields: Any) -> None:
    if fields is not None and dtype.names != fields:
        dtype.names = fields


class Memory(_OwnedArray):
    """The state of an array of numbers. It has no content until `keep` stores a copy or a digest of the memory."""

    digest: bytes | None = None

    @property
    def memory(self) -> ObjectState:
        """This object, which is also the state of the array's memory."""
        return self

    def keep(self, *, copy: bool) -> None:
        """Store a copy of the memory or, if `copy` is False, only a digest of it."""
        if copy:
            self.copy = self.array.copy(order="K")
            if self.copy.dtype.names is not None:
                _copy(self.array, self.copy)
        else:
            self.digest = _digest(self.array)

    def is_unchanged(self) -> bool:
        """Return whether the form is the same and, if a copy or digest of the content is stored, the content too."""
        if self._form() != self.data:
            return False
        if self.copy is not None:
            return _equal(self.array, self.copy)
        return self.digest is None or _digest(self.array) == self.digest

    def _form(self) -> tuple[Any, ...]:
        return form_of(self.thing)

    def same(self, other: ObjectState) -> bool:
        """Return whether both states have the same form and digest. If a digest is missing, only compare the form.

        A missing digest means that no code could write to the memory.
        """
        if not (isinstance(other, Memory) and self.data == other.data):
            return False
        own_digest, other_digest = self.sum(), other.sum()
        return own_digest is None or other_digest is None or own_digest == other_digest

    def sum(self) -> bytes | None:
        """Return the digest of the memory, or None if nothing is stored. The digest of a copy is computed once."""
        if self.digest is None and self.copy is not None:
            self.digest = _digest(self.copy)
        return self.digest

    def obstacle(self, now: ObjectState) -> str:
        """Return why the memory cannot be restored, or "" if it can."""
        return super().obstacle(now) or ("" if self.copy is not None else "an array in it was too large to be copied")

    def writable_memory(self) -> tuple[MemoryBlock, ...]:
        """Return the address and size of the memory."""
        return ((self.data[0], self.array.nbytes),)


class _FieldNames(ObjectState):
    """The state of the data type of a record array; `data` are its field names, which code can change in place."""

    def restore(self) -> None:
        _restore_field_names(self.thing, self.data)


def numpy_maker(kind: type[Any]) -> Maker | None:
    """Return the function that makes states of arrays, random generators or data types, or None for another type."""
    numbers = sys.modules["numpy"]
    if issubclass(kind, numbers.ndarray):
        return _array
    if issubclass(kind, (numbers.random.Generator, numbers.random.RandomState, numbers.random.BitGenerator)):
        return lambda thing: RandomNumbers(thing, _sources(thing), pickle.dumps(_state_of(thing)))
    if issubclass(kind, numbers.dtype):
        return lambda thing: _FieldNames(thing, data=thing.names)
    return None


class RandomNumbers(Randomness):
    """The state of a random number generator of NumPy."""

    def set_state(self, state: Any) -> None:
        """Set the generator to an earlier state, so that it draws the same numbers again."""
        if hasattr(self.thing, "set_state"):
            self.thing.set_state(state)
        else:
            getattr(self.thing, "bit_generator", self.thing).state = state


def _sources(generator: Any) -> tuple[Any, ...]:
    """Return the bit generator of a random number generator, which several generators can share."""
    source = getattr(generator, "_bit_generator", None)
    return () if source is None else (source,)


def _state_of(generator: Any) -> Any:
    if hasattr(generator, "get_state"):
        return generator.get_state(legacy=False)
    return getattr(generator, "bit_generator", generator).state


def _array(thing: Any) -> ObjectState:
    ndarray = sys.modules["numpy"].ndarray
    if type(thing) is ndarray:
        return _content(thing, thing)
    # For a subclass (masked array, record array, matrix), keep its attributes, and the memory as a plain array.
    return with_attributes(thing, _content(thing, ndarray.view(thing, ndarray)))


def _content(thing: Any, plain: Any) -> ObjectState:
    form, owner = form_of(plain), _base_of(thing)
    is_view = isinstance(owner, sys.modules["numpy"].ndarray)
    base = () if owner is None else (owner,)
    if not plain.dtype.hasobject and plain.dtype.kind != "T":
        return _ArrayView(plain, base, form) if is_view else Memory(plain, base, form)
    if plain.dtype != object:
        return ObjectState(thing, problem=f"it holds an array of {plain.dtype}, which cannot be kept")
    if is_view:
        return _ArrayView(plain, base, form)
    if plain.size > LONGEST:
        return ObjectState(thing, problem=f"it holds an array of more than {LONGEST:,} objects")
    state = _OwnedArray(plain, tuple(plain.ravel(order="K").tolist()), form)
    state.copy = plain.copy(order="K")
    return state


def form_of(array: Any) -> tuple[Any, ...]:
    """Return the address, shape, strides, type, field names and writeable flag of an array, but not its numbers."""
    dtype = array.dtype
    kind = dtype.str if dtype.names is None else [part[1:] for part in dtype.descr]
    fields = None if dtype.names is None else tuple(dtype.names)
    return (array.__array_interface__["data"][0], array.shape, array.strides, kind, fields, array.flags.writeable)


def root_of(array: Any) -> Any:
    """Return the array that owns the memory of a view, or `array` itself if it is not a view."""
    while isinstance(base := _base_of(array), sys.modules["numpy"].ndarray):
        array = base
    return array


def _base_of(array: Any) -> Any:
    """Return the object whose memory an array uses, or None.

    Between a sliding window and its array, NumPy puts a helper object (`DummyArray`), which is skipped.
    """
    base = array.base
    return base.base if type(base).__name__ == "DummyArray" else base


def _equal(array: Any, copy: Any) -> bool:
    """Return whether the memory of an array equals its copy, bit by bit."""
    array_bytes, copy_bytes = (_bytes(each) for each in (array, copy))
    return all(
        bool((array_bytes[at : at + _PART] == copy_bytes[at : at + _PART]).all())
        for at in range(0, array_bytes.size, _PART)
    )


def _bytes(array: Any) -> Any:
    """Return the memory of an array as a flat array of unsigned integers, in memory order."""
    numbers = sys.modules["numpy"]
    flat = array.ravel(order="K")
    contiguous = flat if flat.flags.c_contiguous else flat.copy()
    if not (contiguous.size and contiguous.itemsize):
        return numbers.empty(0, numbers.uint8)
    whole = contiguous.view(numbers.uint8)
    return whole if whole.size % 8 else whole.view(numbers.uint64)


def _digest(array: Any) -> bytes:
    """Return the SHA-1 digest of an array's memory."""
    return sha1(_bytes(array), usedforsecurity=False).digest()
