"""What an array of NumPy holds, in the form of `object_states`: its form, and as much of its memory as is kept."""

import pickle
import sys
from hashlib import sha1
from typing import Any

from agentmagic.undo.object_states import ObjectState, Place, Randomness, with_attributes

LONGEST = 1_000_000
"""Elements of an array of objects that are looked at."""
_PLACES, _PLACE = 64, 4096
"""How many places are compared in an array of which nothing else is kept, and the bytes of each."""


class _ArrayView(ObjectState):
    """The form of an array whose memory is that of its base; `data` ends with whether it is writeable."""

    def obstacle(self, now: ObjectState) -> str:
        return "" if now.data[:-1] == self.data[:-1] else "the form of an array was changed in place"

    def put(self) -> None:
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
        array[...] = self.copy
        _set_writeable(array, self.data[-1])


def _set_writeable(array: Any, value: bool) -> None:
    if array.flags.writeable != value:  # NumPy refuses to set the flag of memory of Arrow, even to what it is
        array.flags.writeable = value


class Memory(_OwnedArray):
    """An array of numbers. `keep` decides how much of its memory is kept; before, nothing of it is."""

    digest: bytes | None = None
    sample: bytes = b""

    def keep(self, *, copy: bool, digest: bool) -> None:
        """Keep a copy of the memory, a digest of it, or only samples."""
        array = self.array
        self.copy = array.copy(order="K") if copy else None
        self.digest = _digest(array) if copy or digest else None
        self.sample = _digest(array, whole=False)

    def same(self, other: ObjectState) -> bool:
        """Compare digests if both have one, else samples."""
        if not (isinstance(other, Memory) and self.data == other.data and self.sample == other.sample):
            return False
        return None in (self.digest, other.digest) or self.digest == other.digest

    def obstacle(self, now: ObjectState) -> str:
        """Return why the memory cannot be put back, or ""."""
        return super().obstacle(now) or ("" if self.copy is not None else "an array in it was too large to be copied")

    def owned(self) -> tuple[Place, ...]:
        """Return where the memory is."""
        return ((self.data[0], self.array.nbytes),)


def numpy_state(thing: Any) -> ObjectState | None:
    """Return the state of an array or a generator of random numbers, or None for any other object of NumPy."""
    numbers = sys.modules["numpy"]
    if isinstance(thing, numbers.ndarray):
        return _array(thing)
    if isinstance(thing, (numbers.random.Generator, numbers.random.RandomState, numbers.random.BitGenerator)):
        return RandomNumbers(thing, data=pickle.dumps(_state_of(thing)))
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
    return (array.__array_interface__["data"][0], array.shape, array.strides, array.dtype, array.flags.writeable)


def root_of(array: Any) -> Any:
    """Return the array that owns the memory of another one."""
    while isinstance(base := _base_of(array), sys.modules["numpy"].ndarray):
        array = base
    return array


def _base_of(array: Any) -> Any:
    """Return the object whose memory an array uses; a sliding window has one of NumPy in between."""
    base = array.base
    return base.base if type(base).__name__ == "DummyArray" else base


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
