"""The variables that a program has changed: kept on the tape if they come back as they were."""

import json
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from agentmagic.errors import CassetteError
from agentmagic.replay import documents
from agentmagic.replay.bound_values import LARGEST_VARIABLE, bind_variables, from_entry, to_entry

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")

SALES = pd.DataFrame(
    {
        "product": ["Desk", "Lamp, small", None],
        "units": [3, 1, 2],
        "share": [0.1, 1 / 3, np.nan],
        "sold": [True, False, True],
        "day": pd.to_datetime(["2026-01-01", None, "2026-03-01"]),
    }
)
CYCLE: list = []
CYCLE.append(CYCLE)
NOTED = pd.DataFrame({"a": [1]})
NOTED.attrs["source"] = "a survey"


def returned(value):
    text = documents.write({"kept": to_entry("x", value)}).removeprefix(documents.SEPARATOR)
    return from_entry(documents.read(text, "x")["kept"])


@pytest.mark.parametrize(
    "value",
    [
        *(3, 2.5, "a\nb", None, [1, {"a": [None, True]}]),
        (1, [(2,)], {}),
        [("Desk", 3, None), ("Lamp", 1, 0.1)],
        {1: "a", (2, "b"): {3}, None: frozenset()},
        {"$tuple": [1]},
        {"mean": np.float64(1 / 3), "most": np.int32(3), "any": np.bool_(True)},
        {"day": date(2026, 1, 2), "at": [datetime(2026, 1, 2, 3, 4, 5, 6, UTC)]},
    ],
    ids=str,
)
def test_values_of_the_types_of_python_return_as_they_were(value):
    back = returned(value)
    assert back == value
    assert repr(back) == repr(value)


@pytest.mark.parametrize("value", [np.float64(1 / 3), np.int32(3), np.arange(6).reshape(2, 3), np.array([np.nan, 1])])
def test_numbers_and_arrays_return_with_their_type(value):
    back = returned(value)
    assert type(back) is type(value)
    assert (back.dtype, back.tobytes()) == (value.dtype, value.tobytes())


@pytest.mark.parametrize(
    "frame",
    [
        SALES,
        SALES.sort_values("units"),
        SALES.groupby(["product", "sold"])[["units"]].sum(),
        SALES.pivot_table(index="product", columns="sold", values="units"),
        SALES[["product"]].astype("category"),
        SALES[["product"]].astype(pd.CategoricalDtype(["Lamp, small", "Desk", "Sofa"], ordered=True)),
        SALES.groupby("sold").agg({"units": ["sum", "mean"]}),
        SALES.set_index(pd.date_range("2026-01-31", periods=3, freq="ME")),
        SALES.assign(day=SALES["day"].dt.tz_localize("UTC")),
    ],
)
def test_frames_return_with_types_and_index(frame):
    back = returned(frame)
    pd.testing.assert_frame_equal(back, frame, check_freq=True)
    assert repr(back) == repr(frame)
    assert type(back.index) is type(frame.index)


@pytest.mark.parametrize("series", [SALES["units"], SALES["product"].value_counts(), pd.Series([1.5], name=None)])
def test_series_return_with_name_and_index(series):
    pd.testing.assert_series_equal(returned(series), series)


@pytest.mark.parametrize(
    "value",
    [
        *(len, {1: len}, CYCLE, "x" * LARGEST_VARIABLE, pd.DataFrame({"a": [[1], [2]]}), np.array([object()])),
        *(datetime(2026, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")), NOTED),
    ],
    ids=["function", "keys", "cycle", "large", "lists", "objects", "zone", "attributes"],
)
def test_what_would_not_return_as_it_was_is_not_kept(value):
    assert to_entry("x", value) is None


def test_a_secret_in_a_frame_is_blanked():
    key = "sk-proj-abcdefghijklmnop0123456789"
    entry = to_entry("x", SALES.assign(key=key))
    assert key not in json.dumps(entry)
    assert set(from_entry(entry)["key"]) == {"[redacted]"}


def test_a_module_that_is_not_loaded_is_named_and_not_imported(tmp_path, monkeypatch):
    (tmp_path / "planted.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(tmp_path)
    namespace = {"gone": 1}
    kept = {"p": {"module": "planted"}, "j": {"module": "json"}, "gone": {"removed": True}, "x": {"value": 1}}
    assert list(bind_variables(kept, namespace)) == ["p"]
    assert namespace == {"j": json, "x": 1}


@pytest.mark.parametrize(
    "kept",
    [
        {"_": {"value": 1}},
        {"__name__": {"value": 1}},
        {"get_ipython": {"value": 1}},
        {"x": {}},
        {"x": {"value": {"$date": "today"}}},
        {"x": {"value": {"$set": [[1]]}}},
        {"x": {"value": 1, "dtype": "S1000000000"}},
        {"x": {"csv": "a\n1\n", "columns": [["a", "int64"], ["b", "none"]], "index": []}},
    ],
)
def test_an_edited_variable_is_refused_by_name(kept):
    namespace = {}
    with pytest.raises(CassetteError, match=rf"The variable '{next(iter(kept))}' on the cassette cannot be read"):
        list(bind_variables(kept, namespace))
    assert namespace == {}
