"""Makes the states (`ObjectState`) of pyarrow objects, and finds objects that share memory with writable arrays.

Arrow and polars never write to their data, so undo keeps a reference to their objects instead of a copy. But both can
use the memory of a NumPy array without copying it. If code writes to such an array, the Arrow data change with it.
"""

import sys
from bisect import bisect_right
from collections.abc import Collection, Iterator
from itertools import accumulate
from typing import Any

from agentmagic.undo.array_states import Memory, form_of
from agentmagic.undo.object_states import Fixed, MemoryBlock, ObjectState, with_attributes


class _ArrowData(Fixed):
    """The state of an array or a table of Arrow, which cannot be changed."""

    def readable_memory(self) -> Collection[MemoryBlock]:
        return arrow_memory(self.thing)


class _ArrowBuffer(Memory):
    """The state of a writable buffer of Arrow."""

    @property
    def array(self) -> Any:
        return _bytes_of(self.thing)

    def _form(self) -> tuple[Any, ...]:
        return form_of(self.array)


def is_data_of_arrow(kind: type[Any]) -> bool:
    """Return whether objects of this pyarrow type hold data."""
    library = sys.modules["pyarrow.lib"]
    return issubclass(kind, (library.Buffer, library.Array, library.ChunkedArray, library.Table, library.RecordBatch))


def arrow_state(thing: Any) -> ObjectState:
    """Return the state of a pyarrow object that holds data."""
    if isinstance(thing, sys.modules["pyarrow.lib"].Buffer):
        is_writable = thing.is_mutable and thing.size
        return _ArrowBuffer(thing, (), form_of(_bytes_of(thing))) if is_writable else _ArrowData(thing)
    # An array of an extension type can have a class that the user wrote, with attributes.
    return with_attributes(thing, _ArrowData(thing)) if type(thing).__dictoffset__ else _ArrowData(thing)


def _bytes_of(buffer: Any) -> Any:
    return sys.modules["numpy"].frombuffer(buffer, "u1")


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
