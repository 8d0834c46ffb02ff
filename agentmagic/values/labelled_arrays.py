"""Writes a Dataset or DataArray of xarray for a model: its dimensions, and each variable with type and range."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

from agentmagic.text import single_line
from agentmagic.values import frames

LONGEST_ATTRIBUTES = 400
"""Largest number of characters for the attributes."""
LONGEST_UNITS = 40


def is_labelled_array(value: Any) -> bool:
    """Return whether a value is a Dataset or a DataArray of xarray."""
    xarray = sys.modules.get("xarray")
    return xarray is not None and issubclass(type(value), (xarray.Dataset, xarray.DataArray))


def size(value: Any) -> str:
    """Return the type and the dimensions: "Dataset, time: 365, x: 2"."""
    return ", ".join([type(value).__name__, *(f"{name}: {length:,}" for name, length in value.sizes.items())])


def table(value: Any, characters: int, write: Callable[[Any], str]) -> str:
    """Return a Dataset or DataArray as text, without reading a file or computing values."""
    lines = [frames.table_row(cells) for cells in _rows(value)]
    visible_lines = list(frames.fitting(lines, characters))
    rest = len(lines) - len(visible_lines)
    attributes = single_line(write(dict(value.attrs)), LONGEST_ATTRIBUTES) if value.attrs else ""
    return "\n".join(
        [
            f"{size(value)}.{f' Attributes: {attributes}' if attributes else ''}",
            *("", *frames.table_head("variable", "dimensions", "type", "missing", "values"), *visible_lines),
            *(("", f"{rest:,} of the {len(lines):,} variables are left out: .variables has them all.") if rest else ()),
        ]
    )


def schema(value: Any) -> str:
    """Return the names, dimensions and types of the variables, without values."""
    lines = (f"{name}: {kind} ({dimensions})" for name, dimensions, kind, *_ in _rows(value, figures=False))
    return "\n".join([f"{size(value)}. Variables and types:", *lines])


def _rows(value: Any, *, figures: bool = True) -> Iterator[tuple[str, ...]]:
    """Yield a table row (a tuple of cells) for each variable, the coordinates first."""
    own = value.data_vars if hasattr(value, "data_vars") else {value.name or frames.NO_NAME: value}
    for suffix, variables in ((" (coordinate)", value.coords), ("", own)):
        for name, array in variables.items():
            missing, values = _statistics(array.variable) if figures else ("", "")
            yield f"{name}{suffix}", ", ".join(map(str, array.dims)), str(array.dtype), missing, values


def _statistics(variable: Any) -> tuple[str, str]:
    units = variable.attrs.get("units")
    units_text = f"units: {single_line(str(units), LONGEST_UNITS)}" if isinstance(units, str) else ""
    if not getattr(variable, "_in_memory", False):  # not in memory: in a file or a dask array
        return "", units_text or "not loaded"
    part, every = frames.sample(variable.values)
    missing, values = frames.array_statistics(part)
    return str(missing), ", ".join(filter(None, (f"{values}{every}" if values else "", units_text)))
