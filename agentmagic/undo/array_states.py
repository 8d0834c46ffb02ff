"""States of NumPy arrays, for undo: their form (shape, type ...), and a copy or digest of their memory.

The module `object_states` explains states. Arrow and polars can use the memory of an array too, so the data of Arrow,
and the objects that share memory, are found here.
"""

import sys
from bisect import bisect_right
from collections.abc import Collection, Iterator
from hashlib import sha1
from itertools import accumulate
from typing import Any

from agentmagic.undo.object_states import Fields, Fixed, MemoryBlock, ObjectState, with_attributes

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

    def restore(self) -> None:
        """Write the copy into the array."""
        array = self.thing
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
            self.copy = self.thing.copy(order="K")
            if self.copy.dtype.names is not None:
                _copy(self.thing, self.copy)
        else:
            self.digest = _digest(self.thing)

    def is_unchanged(self) -> bool:
        """Return whether the form is the same and, if a copy or digest of the content is stored, the content too."""
        if form_of(self.thing) != self.data:
            return False
        if self.copy is not None:
            return _equal(self.thing, self.copy)
        return self.digest is None or _digest(self.thing) == self.digest

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
        return ((self.data[0], self.thing.nbytes),)


class _FieldNames(Fields):
    """The state of the data type of a record array, whose field names code can change in place."""

    @staticmethod
    def read(thing: Any) -> dict[str, Any]:
        return {"names": thing.names}


dtype_state = _FieldNames.of
"""Makes the state of a NumPy data type."""


def array_state(thing: Any) -> ObjectState:
    """Return the state of a NumPy array, for undo."""
    ndarray = sys.modules["numpy"].ndarray
    if type(thing) is ndarray:
        return _content(thing, thing)
    # For a subclass (masked array, record array, matrix), keep its attributes, and the memory as a plain array.
    return with_attributes(thing, _content(thing, ndarray.view(thing, ndarray)))


def _content(thing: Any, plain: Any) -> ObjectState:
    form, owner = form_of(plain), _base_of(thing)
    is_view = isinstance(owner, sys.modules["numpy"].ndarray)
    base = () if owner is None else (owner,)
    holds_objects = plain.dtype.hasobject or plain.dtype.kind == "T"
    if holds_objects and plain.dtype != object:
        return ObjectState(thing, problem=f"it holds an array of {plain.dtype}, which cannot be kept")
    if is_view or not holds_objects:
        return (_ArrayView if is_view else Memory)(plain, base, form)
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


# -- memory that objects share ------------------------------------------------------------------------------


class _ArrowData(Fixed):
    """The state of an array or a table of Arrow, which is never changed, so that undo keeps a reference to it.

    But it can use the memory of a NumPy array. If code writes to this array, the data of Arrow change with it.
    """

    def readable_memory(self) -> Collection[MemoryBlock]:
        return arrow_memory(self.thing)


def arrow_state(thing: Any) -> ObjectState:
    """Return the state of a pyarrow object that holds data."""
    if getattr(thing, "is_mutable", False) and thing.size:  # a buffer: its memory is that of an array over it
        return Fixed(thing, (sys.modules["numpy"].frombuffer(thing, "u1"),))
    # An array of an extension type can have a class that the user wrote, with attributes.
    return with_attributes(thing, _ArrowData(thing)) if type(thing).__dictoffset__ else _ArrowData(thing)


def arrow_memory(thing: Any) -> list[MemoryBlock]:
    """Return the addresses and sizes of the memory that Arrow arrays or tables use."""
    if hasattr(thing, "address"):
        return [(thing.address, thing.size)]
    if hasattr(thing, "columns"):
        return [place for column in thing.columns for place in arrow_memory(column)]
    if hasattr(thing, "chunks"):
        return [place for chunk in thing.chunks for place in arrow_memory(chunk)]
    if hasattr(thing, "buffers"):
        places = [(buffer.address, buffer.size) for buffer in thing.buffers() if buffer is not None]
        return places + arrow_memory(getattr(thing, "dictionary", None))
    return []


def memory_writers(states: Collection[ObjectState]) -> dict[int, list[int]]:
    """Return, for the id of an object, the ids of other objects that can write to the memory that it uses."""
    blocks = sorted(
        (start, start + size, id(state.thing)) for state in states for start, size in state.writable_memory() if size
    )
    starts = [start for start, _, _ in blocks]
    furthest = list(accumulate((end for _, end, _ in blocks), max))

    def owners(start: int, end: int) -> Iterator[int]:
        place = bisect_right(starts, end - 1) - 1
        while place >= 0 and furthest[place] > start:
            if blocks[place][1] > start:
                yield blocks[place][2]
            place -= 1

    sharers: dict[int, list[int]] = {}
    for state in states if blocks else ():
        ids = {
            owner_id
            for start, size in (*state.writable_memory(), *_readable_memory(state))
            if size
            for owner_id in owners(start, start + size)
        }
        if ids := ids - {id(state.thing)}:
            sharers[id(state.thing)] = list(ids)
    return sharers


def _readable_memory(state: ObjectState) -> Collection[MemoryBlock]:
    try:
        return state.readable_memory()
    except Exception:  # noqa: BLE001  (a library may not give a column of every type to Arrow)
        return ()
