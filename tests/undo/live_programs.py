"""Objects that do something, and settings that callers share: ways to change each, and notebooks with such programs."""

from typing import ClassVar

from tests.undo.frame_programs import split
from tests.undo.random_programs import Notebook

SETUP = """
import abc, enum, functools, io, logging, os, queue, random, sqlite3, threading, types
import ipywidgets
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

class Color(enum.Enum):
    RED = 1
    BLUE = 2
class Match:
    n = 1
class Base(abc.ABC):
    pass
class Acc:
    def __init__(self):
        self.log, self.total = [], 0
    def deposit(self, amount):
        self.total += amount
        self.log.append(amount)
def greet(name="x"):
    return name
def clean():
    account.deposit(2)
def run(text):
    exec(text, globals())
@functools.lru_cache
def cached(x):
    return x
account = Acc()
rows = [1, [2]]
"""

KINDS = {
    "object": (
        """
Acc()
Match()
Color.RED
""",
        """
{v}.deposit(3)
{v}.n = 2
{v}.note = [1]
{v}.log.clear()
del {v}.total
""",
    ),
    "kind": (
        """
Color
Match
Base
Acc
""",
        """
{v}.extra = 1
{v}.RED.note = 2
{v}.register(dict)
del {v}.n
{v}.deposit = 5
""",
    ),
    "function": (
        """
greet
cached
clean
lambda: rows
""",
        """
{v}.calls = 1
{v}.__defaults__ = ('y',)
{v}(3)
{v}()
{v}.__code__ = greet.__code__
""",
    ),
    "module": (
        """
types.ModuleType('mine')
random
os
""",
        """
{v}.value = [1]
{v}.value.append(2)
{v}.seed(3)
{v}.environ['Z'] = '1'
""",
    ),
    "figure": (
        """
plt.subplots()[0]
plt.subplots()[1]
""",
        """
{v}.set_title('t')
{v}.plot([1, 2])
{v}.suptitle('s')
{v}.set_size_inches(3, 3)
{v}.axes[0].set_xlim(0, 9)
""",
    ),
    "connection": (
        """
sqlite3.connect(':memory:')
queue.Queue()
threading.Lock()
io.BytesIO(b'abc')
(i for i in range(9))
""",
        """
{v}.execute('create table t(a)')
{v}.put(1)
{v}.acquire(blocking=False)
{v}.read(1)
next({v})
""",
    ),
    "source": (
        """
random.Random(1)
np.random.default_rng(1)
logging.getLogger('mine')
ipywidgets.IntSlider(3)
iter([1, 2, 3])
""",
        """
{v}.random()
{v}.setLevel(10)
{v}.value = 7
next({v})
{v}.note = 1
{v}.integers(5)
""",
    ),
    "box": (
        """
[{object}, {figure}]
{{'a': {source}, 'b': {function}}}
""",
        """
{v}.append(1)
{v}['a'] = 2
{v}[0].note = 3
{v}.clear()
""",
    ),
}
ANYWHERE = """
clean()
run('rows.append(5)')
run('{any} = 1')
globals()['rows'][1].append(3)
vars()['account'].deposit(1)
np.random.seed(4)
plt.rcParams['figure.dpi'] = 44
pd.options.display.max_rows = 7
Match.__init__ = lambda self: None
np.twice = lambda x: 2 * x
{any} = {object}
fresh = [{any}]
del {any}
1 / 0
"""


class LiveNotebook(Notebook):
    """A namespace with objects that do something, and programs over them."""

    setup, anywhere = SETUP, ANYWHERE.strip().splitlines()
    makers, changes = split(KINDS)
    always: ClassVar = {"rows": "box", "account": "object"}
    first = ("object", "figure")
