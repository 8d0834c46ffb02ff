"""Makes columns of data frames from lists of values, so that each value stays what it is.

A column has one type. The libraries' own choice makes floats of whole numbers if a value is missing, so that numbers
over 2**53 lose digits, and polars makes texts of the numbers beside a text.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from importlib import import_module
from itertools import starmap
from numbers import Integral
from typing import Any, NamedTuple, cast

_WHOLE_TYPES = ((-(2**63), 2**63, "Int64"), (0, 2**64, "UInt64"))
"""For whole numbers with missing values: the smallest number, the number after the largest, and the type of pandas."""
_OF_PANDAS = {"integer": "Int64", "boolean": "boolean"}
_OF_POLARS = {"integer": "Int64", "boolean": "Boolean", "number": "Float64", "string": "String"}
"""Types for columns without any value, by the type in a JSON Schema."""


class Column(NamedTuple):
    """The values of a column, in which None is a missing value. `type_` is their type in a JSON Schema, or ""."""

    values: Sequence[Any]
    type_: str = ""


def schema_type(schema: Mapping[str, Any]) -> str:
    """Return the type of the values under a JSON Schema, apart from null, or "" if there is not just one."""
    choices: Sequence[Mapping[str, Any]] = schema.get("anyOf") or schema.get("oneOf") or (schema,)
    types = set[str]()
    for choice in choices:
        found: str | list[str] = choice.get("type", "")
        types.update([found] if isinstance(found, str) else found)
    types.discard("null")
    return types.pop() if len(types) == 1 else ""


def columns_of(records: Sequence[Mapping[str, Any]], schemas: Mapping[str, Any] | None = None) -> dict[str, Column]:
    """Return a column for each field of the records. `schemas` are the JSON Schemas of the fields that are known.

    Without other fields, the columns are those of `schemas`, in this order.
    """
    schemas = schemas or {}
    found = dict.fromkeys(name for fields in records for name in fields)
    names = schemas if found.keys() <= schemas.keys() else found
    return {
        str(name): Column([fields.get(name) for fields in records], schema_type(schemas.get(name, {})))
        for name in names
    }


def pandas_frame(columns: Mapping[Any, Column], index: Any = None) -> Any:
    """Return a pandas frame. Whole numbers and booleans get a nullable type if one of them is missing."""
    pandas: Any = import_module("pandas")
    series = {
        name: pandas.Series(list(column.values), index=index, dtype=_pandas_type(column))
        for name, column in columns.items()
    }
    return pandas.DataFrame(series, index=index)


def _pandas_type(column: Column) -> str | None:
    """Return the type that keeps all values, or None if the choice of pandas does."""
    known = [value for value in column.values if value is not None]
    types = set(map(type, known))
    if not types:
        return _OF_PANDAS.get(column.type_)
    if types == {int, float}:
        return None if all(map(_is_float, known)) else "object"
    if len(known) == len(column.values):
        return None
    if types == {bool}:
        return "boolean"
    if bool in types or not all(issubclass(one, Integral) for one in types):
        return None
    low, high = min(known), max(known)
    return next((name for least, end, name in _WHOLE_TYPES if least <= low and high < end), "object")


def _is_float(number: float) -> bool:
    """Return whether a float can have the value of this number."""
    try:
        return number != number or float(number) == number  # noqa: PLR0124  (NaN is not itself)
    except OverflowError:
        return False


def polars_series(name: str, column: Column) -> Any:
    """Return a polars series. It holds Python objects if polars would refuse or change one of the values."""
    polars: Any = import_module("polars")
    values: list[Any] = [value.value if isinstance(value, Enum) else value for value in column.values]
    if all(value is None for value in values):
        return polars.Series(name, values, dtype=getattr(polars, _OF_POLARS.get(column.type_, "Null")))
    try:
        series = polars.Series(name, values, strict=False)
        is_same = _same(values, series.to_list())
    except Exception:  # noqa: BLE001  (the values can be of any kind, and polars has errors of its own)
        is_same, series = False, None
    return series if is_same else polars.Series(name, values, dtype=polars.Object)


def _same(value: Any, kept: Any) -> bool:
    """Return whether a series kept a value. The series may have added missing fields to a record."""
    if isinstance(value, dict) and isinstance(kept, dict):
        fields = cast("dict[Any, Any]", value)
        return all(name in kept and _same(inner, kept[name]) for name, inner in fields.items())
    if isinstance(value, list | tuple) and isinstance(kept, list):
        items, kept_items = cast("Sequence[Any]", value), cast("list[Any]", kept)
        return len(items) == len(kept_items) and all(starmap(_same, zip(items, kept_items, strict=True)))
    return bool(value == kept or (value != value and kept != kept))  # noqa: PLR0124  (NaN is not itself)
