"""What a model is told of frames, arrays and scalars: enough to write code for them without looking again."""

import re
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from agentmagic.messages import Text
from agentmagic.undo import variables
from agentmagic.values.describe import describe, schema, summary, to_outputs
from agentmagic.values.frames import rows_of

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
KEYS = pd.DataFrame(
    [[1, 2.5, "a"], [3, None, "b"]],
    pd.MultiIndex.from_tuples([("N", 1), ("S", 2)], names=["side", None]),
    pd.MultiIndex.from_tuples([("x", "u"), ("x", 1), ("y", "u|v")], names=["what", "unit"]),
)
ODD_KEYS = pd.DataFrame([[1] * 7], columns=[0, "0", "a (cm)", " a", "", pd.Timestamp("2026-01-02"), "über"])
STATES = pd.Series(pd.Categorical(["low", "high", "low"], ["low", "mid", "high"], ordered=True), name="state")
ODD_VALUES = pd.DataFrame(
    {
        "text": [" >50K", "a, b", None],
        "mixed": [1, "1", True],
        "flag": [True, None, False],
        "price": [Decimal("1.50"), None, Decimal(12)],
        "day": [date(2026, 1, 2), None, date(2026, 3, 4)],
        "at": [time(1), time(2), None],
        "quarter": pd.period_range("2026Q1", periods=3, freq="Q"),
        "bin": pd.arrays.IntervalArray.from_breaks([0, 1, 2, 3]),
        "when": pd.date_range("2026-01-01", periods=3, tz="Europe/Oslo"),
        "took": pd.to_timedelta(["1h", None, "2 days"]),
        "own": [{1}, [2], object()],
    }
)
POLARS = pl.DataFrame(
    {
        "state": pl.Series(["b", "a", "b"], dtype=pl.Enum(["b", "a", "c"])),
        "total": pl.Series([Decimal("1.50"), Decimal("9.99"), None], dtype=pl.Decimal(10, 2)),
        "at": pl.Series([datetime(2026, 1, 1, 8, tzinfo=UTC), None, datetime(2026, 1, 2, tzinfo=UTC)]),
        "took": [timedelta(hours=1), timedelta(days=2), None],
        "tags": [["x"], [], ["y", "z"]],
    }
)
ARROW = pd.DataFrame({"n": [1, None], "s": ["x", "y"], "d": [date(2026, 1, 2), None]}).convert_dtypes(
    dtype_backend="pyarrow"
)

HOURS = ("2026-01-01 08:00:00+00:00", "2026-01-02 00:00:00+00:00")
OFTEN = ", ".join(["'k' (2)", *(f"'{letter}' (1)" for letter in "abcdefghi")])

LINES = {
    "keys": (
        KEYS,
        [
            "DataFrame, 2 rows x 3 columns. Levels of the column keys: what, unit.",
            "| index level | type | missing | values |",
            "| side | str | 0 | 'N' (1), 'S' (1) |",
            "| (no name) | int64 | 0 | 1 to 2 |",
            "| ('x', 'u') | int64 | 0 | 1 to 3 |",
            "| ('x', 1) | float64 | 1 | 2.5 to 2.5 |",
            "| ('y', 'u\\|v') | str | 0 | 'a' (1), 'b' (1) |",
            "| side (index) | (index) | ('x', 'u') | ('x', 1) | ('y', 'u\\|v') |",
            "| S | 2 | 3 |  | b |",
        ],
    ),
    "odd keys": (
        ODD_KEYS,
        ["| 0 | '0' | a (cm) | ' a' | '' | Timestamp('2026-01-02 00:00:00') | über |"],
    ),
    "an index that does not start at 0": (
        pd.DataFrame({"a": range(9)}).iloc[3:5],
        ["| (no name) | int64 | 0 | 3 to 4 |"],
    ),
    "keys that are there twice": (
        pd.DataFrame([[1, "x"]], columns=["a", "a"]),
        ["DataFrame, 1 row x 2 columns. Keys of several columns: a.", "| a | str | 0 | 'x' (1) |"],
    ),
    "categories": (STATES, ["| state | category, ordered | 0 | 'low' (2), 'mid' (0), 'high' (1) |"]),
    "odd values": (
        ODD_VALUES,
        [
            "| text | str | 1 | ' >50K' (1), 'a, b' (1) |",
            "| flag | object | 1 | True (1), False (1) |",
            "| price | object | 1 | 1.50 to 12 |",
            "| day | object | 1 | 2026-01-02 to 2026-03-04 |",
            "| at | object | 1 | 01:00:00 to 02:00:00 |",
            "| quarter | period[Q-DEC] | 0 | 2026Q1 to 2026Q3 |",
            "| bin | interval[int64, right] | 0 | (0, 1] to (2, 3] |",
            "| when | datetime64[us, Europe/Oslo] | 0 | 2026-01-01 00:00:00+01:00 to 2026-01-03 00:00:00+01:00 |",
            "| took | timedelta64[us] | 1 | 0 days 01:00:00 to 2 days 00:00:00 |",
            "| own | object | 0 |  |",
        ],
    ),
    "polars": (
        POLARS,
        [
            "| state | Enum | 0 | 'b' (2), 'a' (1), 'c' (0) |",
            "| total | Decimal(precision=10, scale=2) | 1 | 1.50 to 9.99 |",
            f"| at | Datetime(time_unit='us', time_zone='UTC') | 1 | {' to '.join(HOURS)} |",
            "| took | Duration(time_unit='us') | 1 | 1:00:00 to 2 days, 0:00:00 |",
            "| tags | List(String) | 0 |  |",
        ],
    ),
    "types of Arrow": (
        ARROW,
        [
            "| n | int64[pyarrow] | 1 | 1 to 1 |",
            "| s | string[pyarrow] | 0 | 'x' (1), 'y' (1) |",
        ],
    ),
    "a table of Arrow": (pa.table({"a|b": ["x", None]}), ["| a\\|b | string | 1 | 'x' (1) |", "| x |"]),
    "more values than are written": (
        pd.Series([*"abcdefghijk", "k"], name="key"),
        [f"| key | str | 0 | 11 distinct, most often {OFTEN} |"],
    ),
    "values that are all distinct": (
        pd.Series([f"P{number}" for number in range(50)], name="id"),
        ["| id | str | 0 | 50 distinct: 'P0', 'P1', 'P2', … |"],
    ),
    "long values": (
        pd.Series(["x" * 1000, "y" * 1000], name="text"),
        [f"| text | str | 0 | '{'x' * 30}…' (1), '{'y' * 30}…' (1) |"],
    ),
    "a styled frame": (
        pd.DataFrame({"a": [1, 2]}).style,
        ["DataFrame, 2 rows x 1 column.", "| a | int64 | 0 | 1 to 2 |"],
    ),
    "no columns": (pd.DataFrame(index=["x", "y"]), ["DataFrame, 2 rows x 0 columns."]),
    "a structured array": (
        np.array([(1, "a"), (2, "b")], dtype=[("n", "i4"), ("s", "U1")]),
        ["n: int32, 1 to 2, mean 1.5", "s: <U1, 'a' (1), 'b' (1)"],
    ),
    "a masked array": (
        np.ma.array([[1, 5], [9, 2]], mask=[[False, False], [True, False]]),
        ["MaskedArray 2x2 of int64, 1 to 5, mean 2.666666667, 1 missing"],
    ),
    "a column of Arrow, and a series without a name": (
        pa.chunked_array([["x"]]),
        ["| (no name) | string | 0 | 'x' (1) |"],
    ),
    "an array of days": (
        np.array(["2026-01-01", "NaT", "2026-02-01"], "M8[D]"),
        ["ndarray 3 of datetime64[D], 2026-01-01 to 2026-02-01, 1 missing"],
    ),
}


@pytest.mark.parametrize(("value", "lines"), LINES.values(), ids=LINES.keys())
def test_a_description_has_real_keys_and_types_the_index_apart_and_the_values_or_their_range(value, lines):
    described = describe(value).split("\n")
    assert [line for line in lines if line not in described] == []


def test_a_short_description_of_a_frame_names_the_values_that_its_first_rows_do_not_show():
    frame = pd.DataFrame({"species": ["setosa"] * 50 + ["versicolor"] * 50 + ["virginica"] * 50, "length": range(150)})
    text = describe(frame)
    assert "'setosa' (50), 'versicolor' (50), 'virginica' (50)" in text
    assert len(text) < 1_200


def test_columns_that_are_left_out_are_counted_the_last_ones_are_kept_and_it_is_said_how_to_see_them():
    frame = pd.DataFrame(np.zeros((5, 300)), columns=[f"gene_{number}" for number in range(300)])
    frame["diagnosis"] = "benign"
    text = describe(frame)
    left = 301 - text.count("| float64 |") - 1
    assert left > 200
    assert f"\n{left} of the 301 columns are left out: .columns and .dtypes show them all.\n" in text
    assert "| diagnosis | str | 0 | 'benign' (5) |" in text
    assert ".columns and .dtypes show them all." in schema(frame, 100)


@pytest.mark.parametrize("period", [2, 7, 12, 24])
def test_the_rows_that_are_measured_show_every_phase_of_a_periodic_frame(period):
    size = 200_000 * period // 4
    phases = np.arange(size) % period
    frame = pd.DataFrame(dict.fromkeys("abc", phases) | {"late": phases == period - 1})
    text = describe(frame)
    assert f"1 row in {period:,}" in text
    assert f"| a | int64 | 0 | 0 to {period - 1} |" in text
    assert re.search(r"late \| bool \| 0 \|.*False \(\d.*", text)
    assert re.search(r"late \| bool \| 0 \|.*True \([1-9].*", text)
    assert f", 0 to {period - 1}, mean" in describe(np.arange(200_000 * period) % period)


@pytest.mark.parametrize(("total", "step"), [(1, 2), (2, 2), (3, 2), (1_000, 12), (1_000, 7)])
def test_rows_are_drawn_from_all_parts_with_both_ends_and_are_the_same_each_time(total, step):
    rows = rows_of(total, step)
    assert rows == rows_of(total, step) == sorted(set(rows))
    assert (rows[0], rows[-1]) == (0, total - 1)
    assert max([0, *(later - before for before, later in pairwise(rows))]) < 2 * step


def test_a_schema_has_the_types_as_the_library_names_them_and_the_levels_of_the_index():
    assert schema(KEYS).endswith(
        "\n('x', 'u'): int64\n('x', 1): float64\n('y', 'u|v'): str\nIndex:\nside: str\n(no name): int64"
    )
    assert "state: Enum(categories=['b', 'a', 'c'])\n" in schema(POLARS)
    assert schema(POLARS.lazy()).endswith("tags: List(String)")
    assert schema(STATES).endswith("\nstate: category, ordered")
    assert schema(pa.table({"a": [1]})).endswith("\na: int64")
    assert schema(pd.DataFrame({"schema": ["x"], "collect_schema": 1})).endswith("\nschema: str\ncollect_schema: int64")


SCALARS = [
    (np.int64(2), "2"),
    (np.float32(0.1), "0.1"),
    (np.bool_(True), "True"),
    (np.array(5), "5"),
    (np.datetime64("2026-01-02T03:04"), "2026-01-02T03:04"),
    (pd.Timestamp("2026-01-02 03:04"), "2026-01-02 03:04:00"),
    (pd.Timestamp("2026-01-02"), "2026-01-02"),
    (pd.Timedelta("1h"), "0 days 01:00:00"),
    (pd.Period("2026Q1"), "2026Q1"),
    (pd.NaT, "NaT"),
    (pd.NA, "<NA>"),
    (pa.scalar(3), "3"),
]


@pytest.mark.parametrize(("value", "text"), SCALARS, ids=[repr(value) for value, _ in SCALARS])
def test_a_scalar_of_a_library_is_written_without_its_type_inside_others_too(value, text):
    assert describe(value) == text
    assert describe([value, (value,), {"a": value}]) == f"[{text}, ({text},), {{'a': {text}}}]"


def test_a_list_of_variables_has_scalars_without_their_type_in_the_value_and_real_keys():
    assert variables.summary("most", np.int64(2)) == "most: int64 = 2"
    assert variables.summary("prices", KEYS) == (
        "prices: DataFrame, 2 rows x 3 columns, columns ('x', 'u'), ('x', 1), ('y', 'u|v')"
    )


def test_texts_of_a_library_keep_their_quotes_inside_others_and_times_of_python_stand_alone_as_printed():
    assert describe({np.str_("a"): np.str_("b")}) == "{'a': 'b'}"
    assert describe(Decimal("1.50")) == "1.50"
    assert describe(date(2026, 1, 2)) == "2026-01-02"
    assert describe([Decimal("1.50")]) == "[Decimal('1.50')]"
    assert "Decimal" not in describe(pa.scalar(Decimal("1.50")))
    assert len(describe(pa.scalar([*range(100_000)]), 100)) < 1_000


def test_a_styled_frame_is_its_frame_in_results_and_lists_too_and_is_shown_styled():
    styled = pd.DataFrame({"a": [1, 2]}).style.set_caption("Sales")
    ((part, html),) = to_outputs(styled)
    assert part == Text("   a\n0  1\n1  2")
    assert "Sales" in html
    assert [part for part, _ in to_outputs(["Look:", styled])] == [Text("Look:"), part]
    assert summary(styled) == "DataFrame, 2 rows x 1 column"
    assert variables.summary("styled", styled) == "styled: DataFrame, 2 rows x 1 column"


# -- xarray ------------------------------------------------------------------------------------------


class Dataset:
    """As much of a Dataset of xarray as is looked at."""

    def __init__(self, coords, variables, attrs):
        self.coords, self.data_vars, self.attrs = coords, variables, attrs
        self.sizes = {"time": 3, "x": 2}


class DataArray:
    """As much of a DataArray as is looked at; one that is not in memory has no values."""

    name = "t"

    def __init__(self, dims, values, units=None, *, loaded=True):
        self.dims, self.dtype = dims, values.dtype
        attrs = {"units": units} if units else {}
        self.variable = SimpleNamespace(attrs=attrs, _in_memory=loaded, **({"values": values} if loaded else {}))
        self.attrs, self.coords, self.sizes = attrs, {}, dict(zip(dims, values.shape, strict=True))


@pytest.fixture
def xarray(monkeypatch):
    module = ModuleType("xarray")
    module.Dataset, module.DataArray = Dataset, DataArray
    monkeypatch.setitem(sys.modules, "xarray", module)


@pytest.mark.usefixtures("xarray")
def test_a_dataset_of_xarray_is_its_dimensions_and_its_variables_and_nothing_is_loaded():
    days = DataArray(("time",), np.array(["2026-01-01", "2026-01-02", "2026-01-03"], "M8[us]"))
    heat = DataArray(("time", "x"), np.array([[1.5, np.nan], [2, 3], [4, 5]]), "celsius")
    later = DataArray(("x",), np.zeros(2, "float32"), "mm", loaded=False)
    data = Dataset({"time": days}, {"heat": heat, "rain": later}, {"source": "tutorial"})
    assert summary(data) == "Dataset, time: 3, x: 2"
    assert describe(data).split("\n") == [
        "Dataset, time: 3, x: 2. Attributes: {'source': 'tutorial'}",
        "",
        "| variable | dimensions | type | missing | values |",
        "| --- | --- | --- | --- | --- |",
        "| time (coordinate) | time | datetime64[us] | 0 | 2026-01-01 to 2026-01-03 |",
        "| heat | time, x | float64 | 1 | 1.5 to 5, mean 3.1, units: celsius |",
        "| rain | x | float32 |  | units: mm |",
    ]
    assert schema(data).endswith(
        "Variables and types:\ntime (coordinate): datetime64[us] (time)\nheat: float64 (time, x)\nrain: float32 (x)"
    )
    assert "| t | x | float32 |  | not loaded |" in describe(DataArray(("x",), np.zeros(2, "float32"), loaded=False))
    many = Dataset({}, {f"v{number}": heat for number in range(500)}, {})
    assert "of the 500 variables are left out: .variables has them all." in describe(many)
