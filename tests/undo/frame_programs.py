"""Kinds of frames, labels, arrays and models, ways to change each, and notebooks in which programs do so at random."""

from typing import ClassVar

from tests.undo.random_programs import Notebook

SETUP = """
import copy
import dataclasses
import datetime as dt
import numpy as np
import pandas as pd
import polars as pl
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.neighbors import KNeighborsClassifier

@dataclasses.dataclass
class Report:
    frame: object
    notes: list

@dataclasses.dataclass(slots=True)
class Slotted:
    frame: object

class Sales(pd.DataFrame):
    pass

ones = np.array([[1.0, 2.0], [3.0, 5.0], [2.0, 1.0], [7.0, 0.5]])
two = np.array([0, 1, 0, 1])
"""

FRAME = """
{v}['new'] = 'text'
{v}.iloc[0, 0] = {v}.iloc[1, 0]
{v}.columns = list('pqrs')[:{v}.shape[1]]
{v}.insert(0, 'first', ['ß'] * len({v}))
{v}.attrs['note'] = ['x']
{v}.note = [1]
{v}.flags.allows_duplicate_labels = False
{v}.columns.name = 'cols'
{v}.index.freq = None
{v}.sort_values({v}.columns[0], ascending=False, inplace=True)
{v}.set_index({v}.columns[0], inplace=True)
{v}.loc[len({v}) + 5] = {v}.iloc[0]
del {v}[{v}.columns[0]]
{v}.iloc[:, 0].array[0] = {v}.iloc[1, 0]
{v}[{v}.columns[0]] = {v}[{v}.columns[0]].astype('category')
{v}.loc[{v}.index == {v}.index[0]]; {v}.index.get_loc({v}.index[0])
w = {v}.iloc[:, -1].to_numpy(); w.flags.writeable = True; w[0] = w[-1]
"""
SERIES = """
{v}.iloc[0] = {v}.iloc[1]
{v}.name = 'q'
{v}.array[0] = {v}.array[1]
{v}.index = list('xyz')[:len({v})]
{v}.sort_values(ascending=False, inplace=True)
{v}.index.name = 'i'
"""
ARRAY = """
{v}[0] = {v}[1]
{v}.sort()
"""
LABEL = """
{v}.name = 'q'
{v}.names = ['z'] * {v}.nlevels
{v}.array[0] = {v}.array[1]
{v}.get_indexer({v}[:1])
{v} = {v}[::-1]
"""
KINDS: dict[str, tuple[str, str]] = {
    "frame": (
        """
pd.DataFrame({{'city': ['Oslo', 'Rome', None], 'n': [1, 2, 3]}})
pd.DataFrame({{'n': [1, 2]}}, index=pd.MultiIndex.from_tuples([('a', 1), ('b', 2)], names=['letter', None]))
pd.DataFrame({{'at': pd.date_range('2026-01-01', periods=3, tz='Europe/Oslo'), 'n': [1, 2, 3]}})
pd.DataFrame({{'kind': pd.Categorical(['x', 'y', 'x']), 'n': [1, 2, 3]}})
pd.DataFrame({{'i': pd.array([1, None, 3], dtype='Int64'), 'b': pd.array([True, None, False])}})
pd.DataFrame({{'r': pd.interval_range(0, 3), 's': pd.arrays.SparseArray([0, 0, 1])}})
Sales({{'s': ['a', 'b'], 'n': [1, 2]}})
pd.DataFrame({{'o': [[1], {{'k': 2}}, None], 'n': [1, 2, 3]}})
{frame}.copy(deep=False)
pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=['a', 'n'], copy=False)
""",
        FRAME,
    ),
    "series": (
        """
{frame}.iloc[:, 0]
pd.Series(pd.date_range('2026-01-01', periods=3))
""",
        SERIES,
    ),
    "array": (
        """
{series}.array
pd.array(['x', None], dtype='string[python]')
np.array([(1, 'x'), (2, 'y')], dtype=[('n', 'i8'), ('s', 'U3')])
np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0])
np.rec.array([(1, 2.0), (3, 4.0)])
""",
        ARRAY,
    ),
    "label": (
        """
{frame}.index
{frame}.columns
pd.MultiIndex.from_product([['a', 'b'], [1, 2]])
{series}.index
""",
        LABEL,
    ),
    "polars": (
        """
pl.DataFrame({{'s': ['x', 'y'], 'n': [1, 2]}})
pl.DataFrame(ones)
{polars}.head(2)
pl.DataFrame({{'d': [dt.date(2026, 1, 1), None], 'c': pl.Series(['a', 'b'], dtype=pl.Categorical)}})
""",
        """
{v}.insert_column(0, pl.Series('z', [0] * len({v})))
{v}[0, {v}.columns[0]] = {v}[1, {v}.columns[0]]
{v}.extend({v})
{v}.hstack([pl.Series('h', [1] * len({v}))], in_place=True)
""",
    ),
    "column": (
        """
{polars}.to_series(0)
pl.Series('n', [0.0, None])
pl.Series(ones[:, 0])
""",
        """
{v}[0] = {v}[1]
{v}.rename('q')
{v}.extend({v})
{v}[0] = -0.0 if {v}.dtype.is_float() else {v}[1]
""",
    ),
    "model": (
        """
make_pipeline(StandardScaler(), LinearRegression())
DecisionTreeClassifier(random_state=np.random.RandomState(1)).fit(ones, two)
KNeighborsClassifier(1).fit(ones, two)
""",
        """
{v}.fit(ones, two)
{v}.set_params(**{{next(iter({v}.get_params(deep=False))): None}})
{v}.fit(ones, two).predict(ones)
""",
    ),
    "numbers": (
        """
ones
two
np.random.RandomState(3)
""",
        """
{v}[0] = 5
{v}.sort()
{v}.random()
{v}.flat[1] = -0.0
""",
    ),
    "box": (
        """
[{frame}, {series}]
Report({frame}, [1])
Slotted({polars})
{frame}.groupby({frame}.columns[0])
pl.col('n') + 1
""",
        """
{v}.frame = {frame}
{v}[0]['new'] = 'text'
{v}.frame[0, 0] = {v}.frame[1, 0]
{v}.frame.columns = list('uvw')[:2]
""",
    ),
}
"""For each kind: expressions that make one, and statements that change it, or fail."""
ANYWHERE = """
{any} = {other}
del {any}
{any}, {other} = {other}, {any}
fresh = copy.copy({any})
two += 1
"""

ARROW_SETUP = """
import io
import pyarrow as pa
"""
ARROW: dict[str, tuple[str, str]] = {
    "frame": (
        r"""
pd.DataFrame({{'s': ['x', 'y', None], 'n': [1, 2, 3]}}).convert_dtypes(dtype_backend='pyarrow')
pd.read_csv(io.StringIO('city,n\nOslo,1\nRome,2\n'), dtype_backend='pyarrow')
pd.DataFrame({{'n': pd.array([1, 2], dtype='int64[pyarrow]'), 's': pd.array(['x', 'y'], dtype='string[pyarrow]')}})
pd.DataFrame({{'n': pd.arrays.ArrowExtensionArray(pa.array(two))}})
pd.DataFrame({{'d': pd.array(['x', 'y'], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))), 'n': [1, 2]}})
pd.DataFrame({{'n': [1, 2], 'r': pd.arrays.IntervalArray.from_breaks(pd.array([0, 1, 2], dtype='int64[pyarrow]'))}})
""",
        FRAME,
    ),
    "series": (
        """
pd.Series([1, 2, None], dtype=pd.ArrowDtype(pa.int64()))
pd.Series([dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 2)], dtype=pd.ArrowDtype(pa.timestamp('us', 'UTC')))
pd.Series([[1], [2, 3]], dtype=pd.ArrowDtype(pa.list_(pa.int64())))
{frame}.iloc[:, 0]
""",
        SERIES,
    ),
    "array": ("{series}.array\npd.array([1, 2], dtype='int64[pyarrow]')\n{frame}.iloc[:, 0].to_numpy()", ARRAY),
    "label": ("{frame}.index\n{frame}.columns\npd.Index([1, 2], dtype='int64[pyarrow]')", LABEL),
    "data": (
        """
pa.array(two)
pa.chunked_array([two, two])
pa.table({{'a': two, 's': ['w', 'x', 'y', 'z']}})
pa.Table.from_pandas({frame})
pa.py_buffer(two)
pa.scalar(1)
pl.from_arrow(pa.array(two))
""",
        """
two[0] = 7
{v}.to_pandas().iloc[0] = 5
{v}[0] = 3
""",
    ),
    "memory": (
        """
bytearray(range(16))
pa.py_buffer({memory})
pa.allocate_buffer(16)
np.frombuffer({memory}, 'u1')
pa.Array.from_buffers(pa.uint8(), 16, [None, pa.py_buffer({memory})])
""",
        """
{v}[0] = 9
np.frombuffer({v}, 'u1')[1] = 3
""",
    ),
    "numbers": ("two[1:]", "{v}[0] = 5\n{v} += 1\n{v} = None"),
    "box": (
        "[{frame}, {data}]\n{{'f': {frame}, 'd': {data}}}\nReport({frame}, [{array}])",
        """
{v}[0]['new'] = 'text'
{v}['d'] = None
{v}.notes[0][0] = {v}.notes[0][1]
{v}.frame.iloc[0, 0] = {v}.frame.iloc[1, 0]
""",
    ),
}
"""Kinds that need pyarrow."""


def split(kinds: dict[str, tuple[str, str]]) -> list[dict[str, list[str]]]:
    return [{kind: texts[which].strip().splitlines() for kind, texts in kinds.items()} for which in (0, 1)]


class FrameNotebook(Notebook):
    """A namespace with frames and models, and programs over them."""

    setup, anywhere = SETUP, ANYWHERE.strip().splitlines()
    makers, changes = split(KINDS)
    always: ClassVar = {"ones": "numbers", "two": "numbers"}
    first = ("frame", "series")


class ArrowNotebook(FrameNotebook):
    """A namespace with data of Arrow, and programs over them."""

    setup = f"{SETUP}\n{ARROW_SETUP}"
    makers, changes = split(ARROW)
