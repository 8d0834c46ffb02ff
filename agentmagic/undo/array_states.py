"""What an array of NumPy holds, in the form of `object_states`: its form, and as much of its memory as is kept."""

import pickle
import sys
from collections.abc import Callable
from hashlib import sha1
from typing import Any

from agentmagic.undo.object_states import ObjectState, Place, Randomness, with_attributes

Maker = Callable[[Any], ObjectState | None]

LONGEST = 1_000_000
"""Elements of an array of objects that are looked at."""
_PART = 2**20
"""Numbers that are compared at once."""


class _ArrayView(ObjectState):
    """The form of an array whose memory is that of its base; `data` ends with its fields and if it is writeable."""

    def obstacle(self, now: ObjectState) -> str:
        return "" if now.data[:-2] == self.data[:-2] else "the form of an array was changed in place"

    def put(self) -> None:
        _put_fields(self.thing.dtype, self.data[-2])
        _set_writeable(self.thing, self.data[-1])


class _OwnedArray(_ArrayView):
    """An array that owns its memory, and the `copy` that is put back: an array of objects has one at once."""

    copy: Any = None

    @property
    def array(self) -> Any:
        """The array, through which the memory is read and written."""
        return self.thing

    def put(self) -> None:
        """Write the copy into the array."""
        array = self.array
        try:
            _set_writeable(array, True)
        except ValueError:  # the memory belongs to another object, which is put back itself, or `verify` names this one
            return
        _put_fields(array.dtype, self.data[-2])
        _copy(self.copy, array)
        _set_writeable(array, self.data[-1])


def _set_writeable(array: Any, value: bool) -> None:
    if array.flags.writeable != value:  # NumPy refuses to set the flag of memory of Arrow, even to what it is
        array.flags.writeable = value


def _copy(source: Any, target: Any) -> None:
    """Copy the memory of an array into one of the same form, with what lies between the fields of its records."""
    if target.dtype.names is None:
        target[...] = source
    else:
        _bytes(target)[...] = _bytes(source)


def _put_fields(dtype: Any, fields: Any) -> None:
    if fields is not None and dtype.names != fields:
        dtype.names = fields


class Memory(_OwnedArray):
    """An array of numbers. `keep` decides how much of its memory is kept; before, nothing of it is."""

    digest: bytes | None = None

    @property
    def memory(self) -> ObjectState:
        """This."""
        return self

    def keep(self, *, copy: bool) -> None:
        """Keep a copy of the memory, or a digest of it."""
        if copy:
            self.copy = self.array.copy(order="K")
            if self.copy.dtype.names is not None:
                _copy(self.array, self.copy)
        else:
            self.digest = _digest(self.array)

    def unchanged(self) -> bool:
        """Compare the form, and the memory if it is kept."""
        if self._form() != self.data:
            return False
        if self.copy is not None:
            return _equal(self.array, self.copy)
        return self.digest is None or _digest(self.array) == self.digest

    def _form(self) -> tuple[Any, ...]:
        return form_of(self.thing)

    def same(self, other: ObjectState) -> bool:
        """Compare the form, and digests if both are known: else nothing could write to the memory."""
        if not (isinstance(other, Memory) and self.data == other.data):
            return False
        one, two = self.sum(), other.sum()
        return one is None or two is None or one == two

    def sum(self) -> bytes | None:
        """Return the digest; a copy has one from then on."""
        if self.digest is None and self.copy is not None:
            self.digest = _digest(self.copy)
        return self.digest

    def obstacle(self, now: ObjectState) -> str:
        """Return why the memory cannot be put back, or ""."""
        return super().obstacle(now) or ("" if self.copy is not None else "an array in it was too large to be copied")

    def owned(self) -> tuple[Place, ...]:
        """Return where the memory is."""
        return ((self.data[0], self.array.nbytes),)


class _FieldNames(ObjectState):
    """The type of the records of an array; `data` are the names of its fields."""

    def put(self) -> None:
        _put_fields(self.thing, self.data)


def numpy_maker(kind: type[Any]) -> Maker | None:
    """Return what makes the states of arrays, generators of random numbers and types of records; None for others."""
    numbers = sys.modules["numpy"]
    if issubclass(kind, numbers.ndarray):
        return _array
    if issubclass(kind, (numbers.random.Generator, numbers.random.RandomState, numbers.random.BitGenerator)):
        return lambda thing: RandomNumbers(thing, data=pickle.dumps(_state_of(thing)))
    if issubclass(kind, numbers.dtype):
        return lambda thing: _FieldNames(thing, data=thing.names)
    return None


class RandomNumbers(Randomness):
    """A generator of random numbers of NumPy."""

    def set_state(self, state: Any) -> None:
        """Make the generator go on from there again."""
        if hasattr(self.thing, "set_state"):
            self.thing.set_state(state)
        else:
            getattr(self.thing, "bit_generator", self.thing).state = state


def _state_of(generator: Any) -> Any:
    if hasattr(generator, "get_state"):
        return generator.get_state(legacy=False)
    return getattr(generator, "bit_generator", generator).state


def _array(thing: Any) -> ObjectState:
    ndarray = sys.modules["numpy"].ndarray
    if type(thing) is ndarray:
        return _content(thing, thing)
    # A masked array, a record array, a matrix: its attributes, and its memory through a plain view of it.
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
    """Return what of an array can be changed beside its numbers, and where its memory is."""
    dtype = array.dtype
    kind = dtype.str if dtype.names is None else [part[1:] for part in dtype.descr]
    fields = None if dtype.names is None else tuple(dtype.names)
    return (array.__array_interface__["data"][0], array.shape, array.strides, kind, fields, array.flags.writeable)


def root_of(array: Any) -> Any:
    """Return the array that owns the memory of another one."""
    while isinstance(base := _base_of(array), sys.modules["numpy"].ndarray):
        array = base
    return array


def _base_of(array: Any) -> Any:
    """Return the object whose memory an array uses; a sliding window has one of NumPy in between."""
    base = array.base
    return base.base if type(base).__name__ == "DummyArray" else base


def _equal(array: Any, copy: Any) -> bool:
    """Return whether the memory of an array is that of its copy, bit by bit."""
    one, other = (_bytes(each) for each in (array, copy))
    return all(bool((one[at : at + _PART] == other[at : at + _PART]).all()) for at in range(0, one.size, _PART))


def _bytes(array: Any) -> Any:
    """Return the memory of an array as whole numbers, in the order in which it lies."""
    numbers = sys.modules["numpy"]
    flat = array.ravel(order="K")
    contiguous = flat if flat.flags.c_contiguous else flat.copy()
    if not (contiguous.size and contiguous.itemsize):
        return numbers.empty(0, numbers.uint8)
    whole = contiguous.view(numbers.uint8)
    return whole if whole.size % 8 else whole.view(numbers.uint64)


def _digest(array: Any) -> bytes:
    """Return a digest of an array's memory."""
    return sha1(_bytes(array), usedforsecurity=False).digest()
