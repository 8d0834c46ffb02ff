"""Makes the states (`ObjectState`) of pandas tables and polars frames, which undo compares and restores."""

import sys
from collections.abc import Collection
from typing import Any, cast

from agentmagic.undo.array_states import LONGEST, arrow_memory, form_of, root_of
from agentmagic.undo.object_states import MemoryBlock, Named, ObjectState

_CACHES = frozenset({"_mgr", "_cache", "_id", "_engine", "_flags", "_references"})
"""Attributes of tables and indexes that are not part of their value, or that are kept in another way."""
_ARRAYS = ("_ndarray", "_data", "_mask", "_left", "_right", "_sparse_values")
"""Attributes of pandas extension arrays that hold NumPy arrays."""


class _Holder(Named):
    """The state of a pandas object: its attributes without caches."""

    @staticmethod
    def read(thing: Any) -> dict[str, Any]:
        return {name: value for name, value in thing.__dict__.items() if name not in _CACHES}

    def refresh(self) -> None:
        """Clear the caches of the pandas object, such as the engine that finds labels."""
        self.thing.__dict__.get("_cache", {}).clear()


class _TableState(_Holder):
    """The state of a pandas frame or series: attributes, axes, arrays of objects, and a copy that pandas never changes.

    `form` is the form of the blocks (arrays of columns), and whether labels can stand twice. `copy` is the copy of the
    manager of the blocks. `columns` are the blocks that Arrow holds, by their place.
    """

    form: tuple[Any, bool] = ((), True)
    copy: Any = None
    columns: dict[int, Any]

    def same(self, other: ObjectState) -> bool:
        return isinstance(other, _TableState) and self.form == other.form and super().same(other)

    def restore(self) -> None:
        self.thing.flags._allows_duplicate_labels = self.form[1]  # noqa: SLF001  (setting it checks the labels first)
        super().restore()
        manager = self.copy.copy(deep=False)
        manager.axes = list(self.refs[len(self.data) :][: len(manager.axes)])
        for place, column in self.columns.items():
            manager.blocks[place].values = column
        self.thing.__dict__["_mgr"] = manager


class _Polars(ObjectState):
    """The state of a frame or series of polars. `data` is a copy.

    The copy shares memory with the original, to which polars never writes.
    """

    def same(self, other: ObjectState) -> bool:
        own_data, other_data = self.data, other.data
        if type(own_data) is not type(other_data):
            return False
        alike = (
            own_data.schema == other_data.schema
            if hasattr(own_data, "schema")
            else (own_data.name, own_data.dtype) == (other_data.name, other_data.dtype)
        )
        return alike and own_data.equals(other_data) and _bits(own_data).equals(_bits(other_data))

    def restore(self) -> None:
        name = "_df" if hasattr(self.thing, "_df") else "_s"
        setattr(self.thing, name, getattr(self.data.clone(), name))

    def readable_memory(self) -> Collection[MemoryBlock]:
        return [place for series in _series_of(self.data) for place in _series_memory(series)]


def _series_of(data: Any) -> list[Any]:
    return data.get_columns() if hasattr(data, "get_columns") else [data]


def _bits(data: Any) -> Any:
    """Return the float columns as integers with the same bits, because 0.0 and -0.0 compare as equal."""
    polars = sys.modules["polars"]
    floats = [series for series in _series_of(data) if series.dtype.is_float()]
    whole = [series.reinterpret(dtype=getattr(polars, str(series.dtype).replace("Float", "Int"))) for series in floats]
    return polars.DataFrame([series.alias(str(place)) for place, series in enumerate(whole)])


def _series_memory(series: Any) -> list[MemoryBlock]:
    """Return the addresses and sizes of the memory of a series, as far as it can belong to a NumPy array."""
    if not (series.dtype.is_numeric() or series.dtype.is_nested()):
        return []
    chunks = series.get_chunks()  # read its pieces, because polars would copy the series as a whole
    if sys.modules.get("pyarrow") is not None:
        return [place for chunk in chunks for place in arrow_memory(chunk.to_arrow())]
    arrays = (chunk.to_numpy() for chunk in chunks if not chunk.null_count())
    return [(array.__array_interface__["data"][0], array.nbytes) for array in arrays]


def table_state(thing: Any) -> ObjectState:
    """Return the state of a frame or series of pandas, for undo."""
    manager = thing._mgr  # noqa: SLF001  (pandas has no public way to put a table's content back)
    forms: list[Any] = []
    memory: list[Any] = []
    objects: list[Any] = []
    columns: dict[int, Any] = {}
    for place, block in enumerate(manager.blocks):
        parts = _parts(block.values)
        if not parts:
            return ObjectState(thing, problem=f"it holds a column of {block.dtype}, which cannot be kept")
        arrow, arrays = [part for part in parts if _is_arrow(part)], [part for part in parts if not _is_arrow(part)]
        forms.append((type(block.values), block.dtype, block.mgr_locs.as_array.tolist(), list(map(form_of, arrays))))
        roots = list(map(root_of, arrays))
        if block.dtype == object:
            objects += roots
        elif not _is_text(block.dtype) or len(block.values) <= LONGEST:
            memory += roots
        memory += arrow
        objects += [part._pa_array for part in arrow]  # noqa: SLF001
        if arrow:
            columns[place] = block.values
    state = cast("_TableState", _TableState.of(thing, *manager.axes, *objects))
    state.form, state.copy = (forms, thing.flags.allows_duplicate_labels), manager.copy(deep=False)
    state.columns, state.arrays_copied_on_write = columns, tuple(memory)
    return state


holder_state = _Holder.of
"""Makes the state of an object of pandas that holds others, such as a group."""


def index_state(thing: Any) -> ObjectState:
    """Return the state of an index of pandas, for undo."""
    state = holder_state(thing)
    parts = _parts(thing.__dict__.get("_data"))
    state.arrays_copied_on_write = tuple(root_of(part) for part in parts if not _is_arrow(part))
    return state


def extension_state(thing: Any) -> ObjectState:
    """Return the state of an extension array of pandas, for undo."""
    if _is_arrow(thing):
        return holder_state(thing)
    parts = _parts(thing)
    problem = "" if parts else f"it holds an array of {thing.dtype}, which cannot be kept"
    frequency = getattr(thing, "_freq", None)  # None in pandas 3: there, the index has the frequency
    return ObjectState(thing, tuple(parts), (thing.dtype, frequency), problem)


def _parts(values: Any) -> list[Any]:
    """Return the NumPy or Arrow arrays that store a column, or an empty list if the kind of column is unknown."""
    if type(values) is sys.modules["numpy"].ndarray or _is_arrow(values):
        return [values]
    inner = (getattr(values, name, None) for name in (*_ARRAYS, "_codes"))
    return list(
        {id(part): part for inner_values in inner if inner_values is not None for part in _parts(inner_values)}.values()
    )


def _is_arrow(values: Any) -> bool:
    """Return whether this is a pandas array with Arrow data, which are never changed but replaced by new data."""
    return "_pa_array" in getattr(values, "__dict__", ())


def _is_text(dtype: Any) -> bool:
    return dtype.kind == "O" and str(dtype).startswith("str")


def polars_state(thing: Any) -> ObjectState:
    """Return the state of a frame or series of polars, for undo."""
    if any(str(series.dtype) == "Object" for series in _series_of(thing)):
        return ObjectState(thing, problem="it holds a column of Python objects, which polars does not copy")
    return _Polars(thing, data=thing.clone())
