"""Undo of one change of each kind of object that a notebook may hold: put back, or named with a reason."""

import pytest

from agentmagic.undo.changes import Changes
from agentmagic.undo.program import analyse

CLASSES = """
class Match:
    n = 1
class MyDtype:
    n = 1
class Color(enum.Enum):
    RED = 1
class Base(abc.ABC):
    pass
class Words(str):
    pass
class Table(pd.DataFrame):
    @property
    def _constructor(self):
        return Table
def function():
    return 1
@functools.lru_cache
def cached(x):
    return x
"""
IMPORTS = """
import abc, enum, functools, io, itertools, logging, math, os, queue, random, sqlite3, threading, types, weakref
import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
"""

PUT_BACK = [
    # Classes of the user that have the name of a class which cannot be changed.
    ("it = Match()", "it.n = 2", "it.n"),
    ("it = MyDtype()", "it.n = 2", "it.n"),
    ("it = Color", "it.RED.note = 1", "hasattr(it.RED, 'note')"),
    ("it = Color", "it.RED._value_ = 5", "it.RED.value"),
    ("it = Match", "del it.n", "getattr(it, 'n', None)"),
    ("it = Match", "it.new = it.__init__ = 1", "sorted(vars(it))"),
    ("it = Base", "it.register(dict)", "issubclass(dict, it)"),
    ("it = Words('a')", "it.note = 1", "hasattr(it, 'note')"),
    ("it = function", "it.calls = 1; it.__defaults__ = (1,)", "vars(it), it.__defaults__"),
    ("it = cached", "it(3)", "it.cache_info()"),
    ("it = types.ModuleType('mine'); it.cache = [1]", "it.cache.append(2); it.new = 1", "it.cache, hasattr(it, 'new')"),
    ("it = ValueError('x')", "it.args = ('y',); it.note = 1", "it.args, vars(it)"),
    # Objects that do something.
    ("it = random.Random(1)", "it.random(); it.note = 1", "it.getstate(), vars(it)"),
    (
        "it = logging.getLogger('mine')",
        "it.setLevel(10); it.addHandler(logging.NullHandler())",
        "it.level, it.handlers",
    ),
    ("it = ipywidgets.IntSlider(3)", "it.value = 7; it.note = [1]", "it.value, hasattr(it, 'note')"),
    ("it = ipywidgets.IntSlider(3); it.note = 1", "del it.note", "it.note"),
    ("it = queue.Queue()", "it.put(1)", "it.qsize()"),
    ("it = threading.Event()", "it.set()", "it.is_set()"),
    ("it = weakref.WeakValueDictionary(); held = Match()", "it['a'] = held", "len(it)"),
    ("it = io.BytesIO(b'abc'); it.read(1)", "it.read(); it.write(b'd')", "it.tell(), it.getvalue()"),
    ("it = io.StringIO('abc')", "it.truncate(1); it.seek(1)", "it.tell(), it.getvalue()"),
    ("it = iter([1, 2, 3])", "next(it)", "it.__length_hint__()"),
    ("it = iter(range(3))", "next(it)", "it.__length_hint__()"),
    ("it = memoryview(bytearray(4))", "it[0] = 5", "it[0]"),
    # Tables and arrays.
    (
        "it = np.zeros(3, dtype=[('a', 'i4'), ('b', 'f8')])",
        "it.dtype.names = ('x', 'y'); it['x'] = 1",
        "it.dtype.names, it.tolist()",
    ),
    ("it = np.dtype([('a', 'i4')])", "it.names = ('x',)", "it.names"),
    ("it = Table({'a': [1, 2]})", "it.loc[0, 'a'] = 9; it['z'] = 1", "it.to_dict(), type(it)"),
    ("it = pl.DataFrame({'a': [0.0]})", "it[0, 'a'] = -0.0", "str(it['a'].to_list())"),
    ("it = pd.DataFrame({'a': [1]}).groupby('a'); it.ngroups", "it.sort = False", "it.sort"),
    ("it = [{'n': number} for number in range(1000)]", "it[5]['n'] = 9; it.pop()", "it"),
    ("it = {number: [number] for number in range(1000)}", "it[5].append(9); it[1000] = [1]", "it"),
    # What callers of a package share.
    ("it = 1", "np.random.seed(5); np.random.rand()", "str(np.random.get_state())"),
    ("it = 1", "random.seed(5)", "random.getstate()"),
    ("def it(): return __import__('numpy').random.rand()", "it()", "str(np.random.get_state())"),
    ("it = 1", "os.environ['AGENTMAGIC_MADE'] = '1'", "os.environ.get('AGENTMAGIC_MADE')"),
    ("it = os.environ", "it['AGENTMAGIC_MADE'] = '1'", "os.environ.get('AGENTMAGIC_MADE')"),
    ("it = 1", "plt.rcParams['figure.dpi'] = 33", "plt.rcParams['figure.dpi']"),
    ("it = 1", "pd.options.display.max_rows = 5", "pd.options.display.max_rows"),
    ("it = 1", "math.pi = 3", "math.pi"),
    ("it = 1", "np.mean = np.sum; np.mine = lambda: 1", "np.mean, hasattr(np, 'mine')"),
    ("it = 1", "pd.DataFrame.shout = lambda self: 1", "hasattr(pd.DataFrame, 'shout')"),
    # Ways to reach a variable without naming it.
    ("it = np.zeros(20_000)", "exec('it[5] = 1')", "it[5]"),
    ("it = np.zeros(20_000)", "globals()['it'][5] = 1", "it[5]"),
    ("it = [1]", "vars()['it'].append(2)", "it"),
]
CHANGED = "was changed and cannot be put back"
NAMED = [
    ("it = threading.Lock()", "it.acquire()", f"it holds a lock, which {CHANGED}"),
    ("it = threading.Thread()", "it.note = 1", f"it holds a Thread, which {CHANGED}"),
    ("it = queue.SimpleQueue()", "it.put(1)", "it holds a SimpleQueue, which cannot be watched"),
    ("it = sqlite3.connect(':memory:')", "it.commit()", "it holds a Connection, which cannot be watched"),
    ("it = (one for one in range(9))", "next(it)", f"it holds a generator, which {CHANGED}"),
    ("it = itertools.count()", "next(it)", f"it holds a count, which {CHANGED}"),
]


def undone(make, change):
    space = {"__name__": "__main__"}
    exec(IMPORTS + CLASSES + make, space)  # noqa: S102
    changes = Changes(space)
    changes.expect(analyse(change, space).names)
    before = {name: space[name] for name in space}
    yield space
    exec(change, space)  # noqa: S102
    changes.settle()
    yield changes.restore()
    assert {name: space.get(name) is value for name, value in before.items()} == dict.fromkeys(before, True)


@pytest.mark.parametrize(("make", "change", "read"), PUT_BACK)
def test_what_a_program_changed_is_put_back(make, change, read):
    steps = undone(make, change)
    space = next(steps)
    before = repr(eval(read, space))  # noqa: S307
    outcome = next(steps)
    assert repr(eval(read, space)) == before  # noqa: S307
    assert outcome.refused == {}
    assert outcome.restored
    assert next(steps, None) is None


@pytest.mark.parametrize("change", ["it.ngroups; it.sum()", "it.nth(0)", "it.indices"])
def test_what_a_group_has_found_out_is_no_change(change):
    steps = undone("it = pd.DataFrame({'a': [1, 1], 'b': [1.5, 2]}).groupby('a')", change)
    next(steps)
    assert (next(steps).restored, next(steps, None)) == ((), None)


@pytest.mark.parametrize(("make", "change", "why"), NAMED)
def test_what_cannot_be_put_back_is_named(make, change, why):
    steps = undone(make, change)
    next(steps)
    assert next(steps).refused == {"it": why}
    assert next(steps, None) is None
