"""Makes the states (`ObjectState`) of pandas tables and polars frames, which undo compares and restores."""

import sys
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from agentmagic.undo.array_states import LONGEST, Maker, form_of, numpy_maker, root_of
from agentmagic.undo.arrow_states import arrow_memory, arrow_state, is_data_of_arrow
from agentmagic.undo.compiled_states import compiled_maker
from agentmagic.undo.object_states import MemoryBlock, ObjectState

_CACHES = frozenset({"_mgr", "_cache", "_id", "_engine", "_flags", "_references"})
"""Attributes of tables and indexes that are not part of their value, or that are kept in another way."""
_ARRAYS = ("_ndarray", "_data", "_mask", "_left", "_right", "_sparse_values")
"""Attributes of pandas extension arrays that hold NumPy arrays."""


class _TableState(ObjectState):
    """The state of a pandas frame or series: axes, attributes, arrays of objects, and a copy that pandas never changes.

    `data` has the names of the attributes, the number of axes, the form of the blocks (arrays of columns), and
    the copy.
    """

    def same(self, other: ObjectState) -> bool:
        return self.data[:-1] == other.data[:-1] and self.same_refs(other)

    def restore(self) -> None:
        names, axes, (_, duplicates), (copy, columns) = self.data
        self.thing.flags._allows_duplicate_labels = duplicates  # noqa: SLF001  (setting it checks the labels first)
        _restore_attributes(self.thing, names, self.refs[axes:])
        manager = copy.copy(deep=False)
        manager.axes = list(self.refs[:axes])
        for place, column in columns.items():
            manager.blocks[place].values = column
        self.thing.__dict__["_mgr"] = manager


class _Holder(ObjectState):
    """The state of another pandas object, such as an index: its attributes without caches; `data` are their names."""

    def restore(self) -> None:
        _restore_attributes(self.thing, self.data, self.refs)

    def refresh(self) -> None:
        """Clear the caches of the pandas object, such as the engine that finds labels."""
        self.thing.__dict__.get("_cache", {}).clear()


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


@cache
def library_maker(kind: type[Any]) -> Maker | None:  # noqa: PLR0911  (one return for each type)
    """Return the function that makes states for a type of NumPy, pandas and so on, or None for another type."""
    match _origin(kind):
        case "numpy", _:
            return numpy_maker(kind)
        case "pyarrow", _:
            return arrow_state if is_data_of_arrow(kind) else None
        case "pandas", "DataFrame" | "Series":
            return _table
        case "pandas", name if name.endswith("Index"):
            return _index
        case "pandas", _ if issubclass(kind, sys.modules["pandas"].api.extensions.ExtensionArray):
            return _extension_array
        case "pandas", _ if kind.__module__.startswith("pandas.") and kind.__dictoffset__:
            return _holder
        case "polars", "DataFrame" | "Series":
            return _polars
        case "sklearn", _:
            return compiled_maker(kind)
        case _:
            return None


def _origin(kind: type[Any]) -> tuple[str, str]:
    """Return the library and the name of the first class in the MRO that belongs to a library in `_LIBRARIES`."""
    origins = ((base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__)
    return next((origin for origin in origins if origin[0] in _LIBRARIES), ("", ""))


_LIBRARIES = frozenset({"numpy", "pandas", "polars", "pyarrow", "sklearn"})


def _table(thing: Any) -> ObjectState:
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
    attributes = _attributes(thing)
    form = (forms, thing.flags.allows_duplicate_labels)
    data = (tuple(attributes), len(manager.axes), form, (manager.copy(deep=False), columns))
    return _TableState(
        thing, (*manager.axes, *attributes.values(), *objects), data, arrays_copied_on_write=tuple(memory)
    )


def _attributes(thing: Any) -> dict[str, Any]:
    return {name: value for name, value in thing.__dict__.items() if name not in _CACHES}


def _restore_attributes(thing: Any, names: Sequence[str], values: Sequence[Any]) -> None:
    for name in _attributes(thing).keys() - set(names):
        del thing.__dict__[name]
    thing.__dict__.update(zip(names, values, strict=False))


def _holder(thing: Any) -> ObjectState:
    attributes = _attributes(thing)
    return _Holder(thing, tuple(attributes.values()), tuple(attributes))


def _index(thing: Any) -> ObjectState:
    attributes = _attributes(thing)
    memory = tuple(root_of(part) for part in _parts(thing.__dict__.get("_data")) if not _is_arrow(part))
    return _Holder(thing, tuple(attributes.values()), tuple(attributes), arrays_copied_on_write=memory)


def _extension_array(thing: Any) -> ObjectState:
    if _is_arrow(thing):
        return _holder(thing)
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


def _polars(thing: Any) -> ObjectState:
    if any(str(series.dtype) == "Object" for series in _series_of(thing)):
        return ObjectState(thing, problem="it holds a column of Python objects, which polars does not copy")
    return _Polars(thing, data=thing.clone())
