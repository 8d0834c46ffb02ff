"""Columns of pandas and polars keep the values that they are made from."""

import datetime as dt
import enum
import math
from decimal import Decimal

import pandas as pd
import polars as pl
import pytest

from agentmagic.values.columns import Column, columns_of, pandas_frame, polars_series, schema_type

LONG = 2**53 + 1
"""The first whole number that is no float."""


class Side(enum.Enum):
    LEFT = "left"


class Rank(enum.IntEnum):
    FIRST = 1


KEPT = [
    ([LONG, None], "Int64", "Int64"),
    ([7, 8], "int64", "Int64"),
    ([LONG, 7], "int64", "Int64"),
    ([2**63, None], "UInt64", "UInt64"),
    ([-(2**63), 2**63 - 1, None], "Int64", "Int64"),
    ([2**63, -1, None], "object", "Int128"),
    ([2**70, None], "object", "Int128"),
    ([10**40, 0.5], "object", "Object"),
    ([10**400, None], "object", "Object"),
    ([LONG, 0.5], "object", "Object"),
    ([LONG, 0.5, None], "object", "Object"),
    ([7, 0.5], "float64", "Float64"),
    ([7, math.inf, math.nan], "float64", "Float64"),
    ([0.5, None], "float64", "Float64"),
    ([True, None], "boolean", "Boolean"),
    ([True, False], "bool", "Boolean"),
    ([1, "a"], "object", "Object"),
    (["a", None], "str", "String"),
    ([[1], ["a"]], "object", "Object"),
    ([[LONG], None, [0.5]], "object", "Object"),
    ([[1], None], "object", "List(Int64)"),
    ([{"n": LONG}, {"n": 0.5}], "object", "Object"),
    ([{"n": 1}, {"m": 2}], "object", "Struct({'n': Int64, 'm': Int64})"),
    ([{"n": 1}, [1]], "object", "Object"),
    ([Decimal("1.10"), None], "object", "Decimal(precision=38, scale=2)"),
    ([dt.date(2024, 2, 29), None], "object", "Date"),
    ([Rank.FIRST, None], "Int64", "Int64"),
    ([], "object", "Null"),
]
"""Values, and the types of their columns in pandas and polars."""


def is_kept(value, kept):
    """Return whether the value is the same in a column, where None can be a missing value of the library."""
    if value is None:
        return kept is None or kept is pd.NA or kept != kept  # noqa: PLR0124  (NaN is not itself)
    if isinstance(value, dict):
        return all(kept[name] == inner for name, inner in value.items())
    return kept == value or (value != value and kept != kept)  # noqa: PLR0124


@pytest.mark.parametrize(("values", "pandas_type", "polars_type"), KEPT, ids=str)
def test_a_column_keeps_its_values(values, pandas_type, polars_type):
    frame = pandas_frame({"a": Column(values)})
    series = polars_series("a", Column(values))
    assert (str(frame["a"].dtype), str(series.dtype)) == (pandas_type, polars_type)
    assert all(map(is_kept, values, frame["a"].tolist()))
    assert all(map(is_kept, values, series.to_list()))
    assert len(frame) == len(series) == len(values)


def test_a_choice_from_an_enumeration_is_its_value_in_polars():
    assert polars_series("a", Column([Side.LEFT, None])).to_list() == ["left", None]


@pytest.mark.parametrize(
    ("schema", "type_", "pandas_type", "polars_type"),
    [
        ({"type": "integer"}, "integer", "Int64", pl.Int64),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer", "Int64", pl.Int64),
        ({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, "boolean", "boolean", pl.Boolean),
        ({"type": ["number", "null"]}, "number", "object", pl.Float64),
        ({"type": "string"}, "string", "object", pl.String),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "", "object", pl.Null),
        ({"type": "null"}, "", "object", pl.Null),
        ({"$ref": "#/$defs/Point"}, "", "object", pl.Null),
        ({}, "", "object", pl.Null),
    ],
)
def test_the_schema_decides_about_a_column_without_a_value(schema, type_, pandas_type, polars_type):
    column = columns_of([{}, {}], {"a": schema})["a"]
    assert (column.type_, schema_type(schema)) == (type_, type_)
    assert str(pandas_frame({"a": column})["a"].dtype) == pandas_type
    assert polars_series("a", column).dtype == polars_type


@pytest.mark.parametrize(
    ("records", "names"),
    [
        ([], ["a", "b"]),
        ([{"b": 1}], ["a", "b"]),
        ([{"b": 1}, {"a": 1}], ["a", "b"]),
        ([{"alias": 1}], ["alias"]),
        ([{"b": 1, "c": 2}], ["b", "c"]),
    ],
)
def test_columns_are_those_of_the_schema_unless_records_have_other_fields(records, names):
    assert list(columns_of(records, {"a": {}, "b": {}})) == names
