"""What undo keeps of objects, frames, labels, data of Arrow, models and figures, one kind at a time."""

import io
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

from tests.undo.random_programs import picture, run

pytestmark = pytest.mark.filterwarnings("ignore")

SETUP = """
import io
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import matplotlib
matplotlib.use("agg")
from matplotlib.figure import Figure
from sklearn.ensemble import RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from collections import namedtuple
from types import SimpleNamespace
from typing import NamedTuple
from pydantic import BaseModel

Pair = namedtuple("Pair", "one two")

class Slots:
    __slots__ = ("a",)

class Typed(NamedTuple):
    rows: list

class Month(BaseModel):
    days: list[int]

X, y = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1])
"""


def notebook(**variables: Any) -> dict[str, Any]:
    here = {"__name__": "__main__"}
    exec(SETUP, here)  # noqa: S102
    return here | variables


@pytest.mark.parametrize(
    ("make", "change"),
    [
        ("pd.DataFrame({'city': ['Oslo', None]})", "it.loc[0, 'city'] = 'Rome'; it['n'] = 3; it.index.name = 'row'"),
        ("pd.DataFrame({'n': [1]}, index=pd.MultiIndex.from_tuples([('a', 'b')]))", "it.index.names = ['x', 'y']"),
        ("pd.Series(['x', 'y'], dtype='string[pyarrow]')", "it.array[:] = ['z', 'z']"),
        ("pd.Series([[1], [2]], dtype=pd.ArrowDtype(pa.list_(pa.int64())))", "it.array[:] = it.array[::-1]"),
        ("pd.Series(pd.IntervalIndex.from_breaks(pd.array([0, 1, 2], dtype='int64[pyarrow]')))", "it.iloc[0] = it[1]"),
        ("pd.DataFrame({'k': pd.Categorical(['x', 'y'])})", "it['k'] = it['k'].cat.rename_categories(['p', 'q'])"),
        ("np.ma.array([1.0, 2.0], mask=[0, 1])", "it[1] = 5; it.fill_value = 9"),
        ("pl.DataFrame({'f': [0.0, 1.0]})", "it[0, 'f'] = -0.0; it.insert_column(0, pl.Series('z', [0, 0]))"),
        ("RandomForestClassifier(3).fit(X, y)", "it.estimators_[0].tree_.value[:] = 0.5"),
        ("KNeighborsClassifier(1, algorithm='kd_tree').fit(X, y)", "it.predict(X); it.fit(X + 1, y)"),
        ("Pair([1], [2])", "it.two.append(3)"),
        ("Slots()", "it.a = [1]"),
        ("Typed([2])", "it.rows.append(3)"),
        ("Month(days=[2])", "it.days.append(3); it.days = [4]"),
        ("SimpleNamespace(rows=[2], inner=SimpleNamespace(n=1))", "it.rows.append(3); it.inner.n = 2; it.new = 3"),
        pytest.param(
            "pd.DataFrame({'a': [1]}, index=pd.date_range('2026-01-01', periods=1))",
            "it['b'] = 3; it.index.freq = None",
            marks=pytest.mark.skipif(version("pandas").startswith("3.0"), reason="undo says that it cannot, there"),
        ),
        ("pd.DataFrame({'a': [1, 2]})", "it.index.freq = 'D'; it['b'] = 3"),  # adds an attribute to the index
        ("pd.Series([1, 2], index=pd.date_range('2026-01-31', periods=2, freq='ME'))", "it.iloc[0] = 3"),
        ("{'frames': [pd.DataFrame({'s': ['x']})]}", "it['frames'][0].attrs['k'] = 'v'; it['frames'].append(1)"),
    ],
)
def test_what_a_program_changes_is_put_back_and_done_again(make: str, change: str):
    here = notebook()
    exec(f"it = {make}", here)  # noqa: S102
    before = picture(here["it"], set())
    kept = run(here, change, {"it"})
    after = picture(here["it"], set())
    assert after != before
    undone = kept.restore()
    assert ({*undone.restored} - {"Month"}, undone.refused) == ({"it"}, {})  # pydantic changes its class
    assert picture(here["it"], set()) == before
    assert "it" in undone.back.restore().restored
    assert picture(here["it"], set()) == after


@pytest.mark.parametrize(
    ("make", "read"),
    [
        ("pd.DataFrame({'n': [1, 2]}, index=['a', 'b'])", "len(it.loc[:'a']), it.index.get_loc('a')"),
        ("pd.Series(['x', 'y'], dtype='category')", "it.cat.codes"),
        ("pd.Series(pd.to_timedelta([1, 2], 's')).astype('duration[ns][pyarrow]')", "it.dt.seconds"),
        ("pa.table({'s': ['x'], 'n': [1]})", "it.to_pandas()"),
        ("pl.DataFrame({'n': [1, 2]}).lazy()", "it.collect()"),
        ("RandomForestClassifier(3).fit(X, y)", "it.predict(X)"),
        ("itertools.count(3)", "it"),
    ],
)
def test_what_a_program_only_reads_is_not_named(make: str, read: str):
    here = notebook()
    exec(f"import itertools\nit = {make}", here)  # noqa: S102
    undone = run(here, f"result = [repr(it), {read}]").restore()
    assert (undone.restored, undone.refused) == (("result",), {})


SHARING = {
    "a table of Arrow": "pa.table({'n': memory})",
    "a column of pandas with data of Arrow": "pd.Series(pd.arrays.ArrowExtensionArray(pa.array(memory)))",
    "a buffer of Arrow": "pa.py_buffer(memory)",
    "a frame of polars of two chunks": "pl.concat([pl.DataFrame({'n': memory})] * 2, rechunk=False)",
    "a series of polars with data of Arrow": "pl.from_arrow(pa.array(memory, mask=np.array([True, False])))",
    "an array of NumPy with data of Arrow": "pa.array(memory).to_numpy()",
}


@pytest.mark.parametrize("make", SHARING.values(), ids=SHARING)
def test_data_that_share_the_memory_of_an_array_are_put_back_with_it_or_left_alone_with_it(make: str):
    here = notebook(memory=np.array([1, 2]))
    exec(f"it = {make}", here)  # noqa: S102
    before = picture(here["it"], set())
    undone = run(here, "memory[0] = 7", {"memory"}).restore()
    assert (undone.restored, undone.refused) == (("it", "memory"), {})
    assert picture(here["it"], set()) == before

    kept = run(here, "memory[0] = 7\nit = None", {"memory", "it"})
    here["memory"][0] = 8  # the user
    undone = kept.restore()
    assert undone.refused.keys() == {"it", "memory"}
    assert here["it"] is None
    assert here["memory"].tolist() == [8, 2]


def test_a_bytearray_is_left_alone_if_a_table_over_it_was_changed_since():
    here = notebook(memory=bytearray(b"abc"))
    exec("box = [pa.Array.from_buffers(pa.uint8(), 3, [None, pa.py_buffer(memory)])]", here)  # noqa: S102
    kept = run(here, "memory[0] = 0\nbox.append(1)", {"memory", "box"})
    here["box"].append("mine")
    assert kept.restore().refused == {
        "box": "it has been changed since",
        "memory": "it shares objects with a variable that is left alone",
    }


def test_an_index_finds_the_labels_that_it_had_before():
    here = notebook(labels=np.array([1, 2]))
    exec("it = pd.DataFrame({'s': ['x', 'y']}, index=pd.Index(labels, copy=False))", here)  # noqa: S102
    kept = run(here, "labels[0] = 7; found = it.index.get_loc(7)", {"labels", "it"})
    assert kept.restore().restored == ("found", "it", "labels")
    assert here["it"].loc[1, "s"] == "x"
    assert 7 not in here["it"].index


def test_a_figure_that_was_drawn_is_put_back():
    def drawn(figure: Any) -> bytes:
        file = io.BytesIO()
        figure.savefig(file)
        return file.getvalue()

    here = notebook()
    exec("figure, same = Figure(), Figure()", here)  # noqa: S102
    exec("for one in (same, figure):\n    ax = one.subplots()\n    ax.plot([1, 2])", here)  # noqa: S102
    drawn(here["figure"])
    change = "ax.plot([3, 4]); ax.set_title('Sales'); ax.legend(['a']); ax.lines[0].set_ydata([5, 6])"
    undone = run(here, change).restore()
    assert {"ax", "figure"} <= set(undone.restored)
    assert drawn(here["figure"]) == drawn(here["same"])


HOSTILE = """
class Nameless(type):
    def __getattribute__(cls, name):
        raise RuntimeError(name)

class OfNameless(metaclass=Nameless):
    pass

class Column(pd.api.extensions.ExtensionArray):
    @property
    def dtype(self):
        raise RuntimeError("no type")

class Loop(pd.DataFrame):
    def __getattr__(self, name):
        return getattr(self, name)
"""


@pytest.mark.parametrize(
    ("make", "why"),
    [
        ("pd.DataFrame.__new__(pd.DataFrame)", "it holds a DataFrame, which cannot be read: 'DataFrame' object has no"),
        ("OfNameless()", "it holds an object, which cannot be read: "),
        ("Column()", "it holds a Column, which cannot be read: no type"),
        ("Loop.__new__(Loop)", "it holds a Loop, which cannot be read: maximum recursion depth exceeded"),
        ("pl.DataFrame({'o': [object()]})", "it holds a column of Python objects, which polars does not copy"),
        ("pa.BufferOutputStream()", "it holds a BufferOutputStream, which cannot be watched"),
    ],
)
def test_an_object_that_cannot_be_read_is_named_and_the_others_are_put_back(make: str, why: str):
    here = notebook(rows=[1])
    exec(f"{HOSTILE}\nit = [{make}]\ndel OfNameless\nglobals()[5] = 1", here)  # noqa: S102
    undone = run(here, "rows.append(2)").restore()
    assert undone.restored == ("rows",)
    assert here["rows"] == [1]
    assert undone.refused.keys() == {"it"}
    assert undone.refused["it"].startswith(why)


def test_an_array_that_cannot_be_copied_is_named_and_the_others_are_put_back(monkeypatch: pytest.MonkeyPatch):
    def refuse(memory: Any, **_: bool) -> None:
        if memory.thing.size == 3:
            raise MemoryError("no room")
        keep_memory(memory, **_)

    from agentmagic.undo.array_states import Memory

    keep_memory = Memory.keep
    monkeypatch.setattr(Memory, "keep", refuse)
    here = notebook(large=np.zeros(3), small=np.zeros(2))
    undone = run(here, "large[0] = small[0] = 1", {"large", "small"}).restore()
    assert undone.refused == {"large": "it holds a ndarray, which cannot be read: no room"}
    assert here["small"].tolist() == [0, 0]
