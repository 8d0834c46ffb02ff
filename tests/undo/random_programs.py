"""Random notebooks and programs that change them, and an independent picture of what a variable is."""

import pickle
import random
import sys
from collections import OrderedDict, defaultdict, deque
from datetime import date, timedelta
from decimal import Decimal
from logging import Logger
from queue import Queue
from random import Random
from sqlite3 import Connection
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl

from agentmagic.undo.changes import Changes
from agentmagic.undo.program import analyse
from tests.undo.shared_states import states

SETUP = """
import numpy as np
from collections import OrderedDict, defaultdict, deque
from functools import partial
from types import SimpleNamespace
from typing import NamedTuple

class Pair(NamedTuple):
    one: object
    two: list

class Point:
    seen = []
    def __init__(self, x, other=None):
        self.x = x
        self.other = other
    def move(self, by):
        self.x = by
        self.seen.append(by)

class Slots:
    __slots__ = ("a", "b")
    def __init__(self, a):
        self.a = a

class Bag(list):
    label = "bag"

def counter():
    count = [0]
    number = 0
    def step():
        nonlocal number
        number += 1
        count.append(number)
        return number
    return step

def poke(value=[]):
    value.append(len(value))
    return value

def touch_global():
    hidden.append("touched")

def rebind_global():
    global plain
    plain = [plain]

hidden = [1]
plain = "text"
step = counter()
"""

MAKERS = {
    "list": ["[1, 2, [3, 4]]", "[{other}, {other}]", "[[], {{}}]", "list(range(5))", "Bag([1, {other}])"],
    "dict": ["{{'a': 1, 'b': [2]}}", "{{'x': {other}}}", "OrderedDict(k={other})", "defaultdict(list, a=[1])"],
    "set": ["{{1, 2, 3}}", "{{'a', (1, 2)}}"],
    "array": [
        "np.arange(12.0)", "np.arange(12).reshape(3, 4)", "np.zeros((2, 3), order='F')",
        "{array}[1:]", "{array}.T", "{array}.ravel()[::2]", "np.array([[1], {other}, None], dtype=object)",
        "np.arange(20_000.0)", "np.frombuffer(bytearray(range(16)), dtype='u1')",
    ],
    "object": ["Point({other})", "Point(1, {object})", "Slots({other})", "Point([], Point({other}))",
               "SimpleNamespace(x={other}, a=[1])"],
    "other": ["deque([1, 2], maxlen=5)", "bytearray(b'abc')", "({other}, [1])", "Pair({other}, [1])", "{array}.view()",
              "iter([1, 2, 3])",
              "np.random.default_rng(1)", "partial(poke, {other})", "(i for i in range(9))", "counter()",
              "5", "'text'", "memoryview(bytearray(4))"],
}  # fmt: skip

CHANGES = {
    "list": ["{v}.append({other})", "{v}[0] = 99", "{v}.reverse()", "{v}.clear()", "{v} += [7]", "del {v}[0]",
             "{v}[-1].append(1)", "{v}.sort(key=str)", "{v}.append({v})"],
    "dict": ["{v}['new'] = {other}", "{v}.pop('a', None)", "{v}.update(a=5)", "{v}.setdefault('q', []).append(1)",
             "{v} |= {{'z': 1}}", "{v}.clear()", "next(iter({v}.values())).append(3)", "{v}['a'] = {v}.pop('a', 0)"],
    "set": ["{v}.add(9)", "{v}.discard(1)", "{v} |= {{7}}", "{v}.clear()"],
    "array": ["{v}[0] = 5", "{v} += 1", "{v}[...] = 0", "{v}.sort()", "np.negative({v}, out={v})", "{v}.ravel()[1] = 3",
              "{v}.flags.writeable = False", "{v}.shape = (-1,)", "np.fill_diagonal({v}, 8)", "{v}.resize(30)",
              "{v}[0] = [4]", "{v}[0].append(2)"],
    "object": ["{v}.x = {other}", "{v}.move(3)", "{v}.new = [1]", "del {v}.x", "{v}.a = 2", "{v}.x.append(1)",
               "{v}.other.x = 0", "vars({v})['y'] = 1", "{v}.__dict__ = {{'x': 5}}", "{v}.__class__ = Point",
               "Point.seen = 1", "Point.move = lambda self, by: None", "{v}.b = {other}"],
    "other": ["{v}.append(3)", "{v}[0] = 1", "{v}[1].append(2)", "next({v})", "{v}.random()", "{v}()",
              "{v} = {other}", "{v}.keywords['k'] = 1", "{v}.flags.writeable = True; {v}[0] = 6",
              "{v}.args[0].append(1)"],
}  # fmt: skip
ANYWHERE = [
    "{any} = {other}", "{any} = [{other}]", "fresh = {any}", "fresh = [{any}, {other}]", "del {any}", "touch_global()",
    "rebind_global()", "step()", "poke()", "poke({any})", "poke.label = [1]", "{any} = {any}", "(lambda: {any})()",
    "hidden.append({any})", "poke.__defaults__ = ()", "globals()['{any}'] = 3", "{any}, {other2} = {other2}, {any}",
    "for item in [{any}, {other2}]:\n    getattr(item, 'append', print)('')",
]  # fmt: skip


def guarded(lines: list[str]) -> str:
    """Return a program of statements that may fail, and do not end it."""
    return "\n".join(f"try:\n    {line.replace(chr(10), chr(10) + '    ')}\nexcept Exception: pass" for line in lines)


class Notebook:
    """A namespace with random variables, and programs over them. Subclasses have variables of other kinds."""

    setup, makers, changes, anywhere = SETUP, MAKERS, CHANGES, ANYWHERE
    always: ClassVar = {"hidden": "list", "plain": "other", "Point": "other"}
    """Variables that the set-up makes, with their kinds."""
    first = ("object", "array")
    """Kinds of which each notebook has a variable."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.space: dict[str, Any] = {"__name__": "__main__", "print": lambda *_: None}
        exec(self.setup, self.space)  # noqa: S102
        self.kinds = dict(self.always)
        for kind in (*self.first, *self.random.choices(list(self.makers), k=self.random.randint(4, 12))):
            name = f"{kind}_{sum(one == kind for one in self.kinds.values()) + 1}"
            self._try(f"{name} = {self._fill(self.random.choice(self.makers[kind]))}")
            if name in self.space:
                self.kinds[name] = kind

    def program(self) -> str:
        lines = []
        for _ in range(self.random.randint(1, 6)):
            if self.random.random() < 0.3:
                lines.append(self._fill(self.random.choice(self.anywhere)))
            else:
                name = self.random.choice(list(self.kinds))
                lines.append(self._fill(self.random.choice(self.changes[self.kinds[name]]), v=name))
        return guarded(lines)

    def run(self, program: str) -> None:
        exec(compile(program, "<cell>", "exec"), self.space)  # noqa: S102

    def variables(self) -> set[str]:
        return {name for name in self.space if not name.startswith("__") and name != "print"}

    def pictures(self) -> dict[str, Any]:
        return {name: picture(self.space[name], set()) for name in sorted(self.variables())} | states()

    def _fill(self, template: str, **known: str) -> str:
        def of(kind: str) -> str:
            found = [name for name, other in self.kinds.items() if other == kind and name in self.space]
            return self.random.choice(found or list(self.always))

        everything = [name for name in self.kinds if name in self.space]
        names = {kind: of(kind) for kind in self.makers}
        names |= {name: self.random.choice(everything) for name in ("other", "other2", "any")}
        return template.format(**(names | known))

    def _try(self, line: str) -> None:
        try:
            self.run(line)
        except Exception:  # noqa: BLE001
            return


def run(space: dict[str, Any], program: str, names: set[str] | None = None) -> Changes:
    """Run a program as a tool would, and return what it changed."""
    changes = Changes(space)
    changes.expect(names)
    exec(program, space)  # noqa: S102
    return changes.settle()


def check(notebook: Notebook, users: float = 0.4) -> tuple[int, list[str]]:
    """Undo and redo a random program, with a chance of `users` after one of the user's; fail on any silent mistake.

    Return how many variables were put back, and why others were left alone.
    """
    program, is_known = notebook.program(), notebook.random.random() < 0.7
    before = notebook.pictures()
    changes = Changes(notebook.space)
    analysis = analyse(program, notebook.space)
    changes.expect(analysis.names if is_known else None, imports=analysis.imports)
    notebook.run(program)
    changes.settle()
    after = notebook.pictures()
    if notebook.random.random() < users:
        notebook.run(notebook.program())
    later = notebook.pictures()
    undone = changes.restore()
    now = notebook.pictures()
    for name in before.keys() | after.keys() | later.keys():
        was, became, stood, stands = (one.get(name) for one in (before, after, later, now))
        assert stands == (stood if name in undone.refused or was == became else was), (name, program)
    redone = undone.back.restore()
    then = notebook.pictures()
    for name in (later.keys() | then.keys()) - redone.refused.keys():
        assert then.get(name) == later.get(name), (name, program)
    return len(undone.restored), sorted(undone.refused.values())


PLAIN = (bool, int, float, str, bytes, date, Decimal, timedelta, np.generic, type(pd.NA), pd.Interval, pd.Period)


def picture(value: Any, seen: set[int]) -> Any:
    """Return what can be known of a value: its content, and the identity of each object in it."""
    if value is None or isinstance(value, PLAIN):
        return type(value).__name__, repr(value)
    if id(value) in seen:
        return "again", id(value)
    seen.add(id(value))

    def inner(one: Any) -> Any:
        return picture(one, seen)

    def several(many: Any) -> Any:
        return [inner(one) for one in many]

    return type(value).__name__, id(value), _content(value, inner, several)


def _content(value: Any, inner: Any, several: Any) -> Any:  # noqa: C901, PLR0911, PLR0912
    attributes = [(name, inner(one)) for name, one in vars(value).items()] if _has_dict(value) else []
    match value:
        case Exception():
            return repr(value)
        case ModuleType():
            return _shared(value) if value.__spec__ else [(name, inner(one)) for name, one in _own(value)]
        case Random() | Logger():
            rest = (value.level, value.handlers) if isinstance(value, Logger) else value.getstate()
            return rest, [(name, inner(one)) for name, one in vars(value).items() if name == "note"]
        case Queue():
            return value.qsize()
        case Connection():
            return value.execute("select count(*) from sqlite_master").fetchall()
        case _ if type(value).__module__.startswith(("matplotlib", "ipywidgets", "_thread", "_io", "functools")):
            return _live(value)
        case pd.DataFrame() | pd.Series():
            frame = value if isinstance(value, pd.DataFrame) else value.to_frame("it")
            columns = [_column(frame.iloc[:, i], several) for i in range(frame.shape[1])]
            axes = [inner(axis) for axis in value.axes]
            extra = {name: one for name, one in vars(value).items() if name not in ("_mgr", "_attrs", "_flags")}
            flag = value.flags.allows_duplicate_labels
            return columns, axes, inner(value.attrs), several(extra.values()), list(extra), flag
        case pd.Index():
            known = [repr(one) for one in value], repr(value.names), str(value.dtype), getattr(value, "freqstr", None)
            return known, _found(value)
        case pd.api.extensions.ExtensionArray():
            return str(value.dtype), [repr(one) for one in value]
        case pl.DataFrame() | pl.Series():
            return (
                repr(getattr(value, "schema", None)),
                repr(value.name if isinstance(value, pl.Series) else ""),
                repr(
                    value.to_dict(as_series=False)
                    if isinstance(value, pl.DataFrame)
                    else (value.dtype, value.to_list())
                ),
            )
        case np.ndarray():
            memory = value.__array_interface__["data"][0], value.shape, value.strides, value.flags.writeable
            base = id(value.base) if value.base is not None else None
            cells = several(value.ravel().tolist()) if value.dtype == object else np.asarray(value).tobytes()
            return memory, str(value.dtype), base, cells, [(name, inner(one)) for name, one in _own(value)]
        case np.random.Generator():
            return repr(value.bit_generator.state)
        case np.random.RandomState():
            return repr(value.get_state())
        case np.random.BitGenerator():
            return repr(value.state)
        case bytearray() | memoryview():
            return bytes(value)
        case list() | tuple() | deque():
            return several(value), attributes
        case SimpleNamespace():
            return inner(vars(value))
        case set() | frozenset():
            return sorted(map(repr, value))
        case OrderedDict() | defaultdict() | dict():
            return several(value.keys()), several(value.values()), repr(getattr(value, "default_factory", None))
        case type() if value.__module__ == "__main__":
            body = {name: one for name, one in vars(value).items() if name not in ("__dict__", "__weakref__")}
            return [(name, inner(body[name])) for name in sorted(body)], issubclass(dict, value)
        case _ if type(value).__name__ == "function":
            cells = [inner(cell.cell_contents) for cell in value.__closure__ or ()]
            return cells, several(value.__defaults__ or ()), attributes, id(value.__code__)
        case _ if type(value).__name__ == "partial":
            return inner(value.func), several(value.args), inner(value.keywords)
        case _ if type(value).__name__ == "list_iterator":
            return value.__length_hint__()
        case _ if type(value).__name__ == "generator":
            return value.gi_frame is not None and (value.gi_frame.f_lasti, repr(value.gi_frame.f_locals))
        case _ if type(value).__module__ == "__main__":
            slots = [(name, inner(getattr(value, name, "unset"))) for name in getattr(type(value), "__slots__", ())]
            dictionary = id(value.__dict__) if _has_dict(value) else None
            return id(type(value)), attributes, slots, dictionary
        case _ if type(value).__module__.partition(".")[0] == "pyarrow":
            return value.to_pybytes() if hasattr(value, "to_pybytes") else repr(getattr(value, "to_pylist", str)())
        case _ if type(value).__module__.startswith(("sklearn", "pandas", "polars")):
            if type(value).__module__ in sys.modules and not hasattr(value, "__dict__"):
                return pickle.dumps(value)
            return [(name, inner(one)) for name, one in _own(value)]
        case _:
            return None


def _shared(module: Any) -> Any:
    """Return the attributes of a package's module that the programs change."""
    match module.__name__:
        case "numpy":
            return hasattr(module, "twice")
        case "random" | "os":
            return hasattr(module, "value")
        case _:
            return None


def _live(value: Any) -> Any:
    """Return what can be seen of a drawing, widget, lock, stream or cache; looking at the limits of axes sets them."""
    names = ("value", "note", "_suptitle", "calls", "extra")
    known = [repr(getattr(value, name, "unset")) for name in names]
    axes: Any = getattr(value, "axes", [])
    axes = axes if isinstance(axes, list) else [axes]  # those of a figure, or axes themselves
    drawn = [(len(one.lines), one.title.get_text(), one._viewLim.get_points().tolist()) for one in axes]
    size = value.get_size_inches().tolist() if hasattr(value, "get_size_inches") else None
    methods = (getattr(value, name, str) for name in ("cache_info", "locked", "getvalue", "tell"))
    return known, drawn, size, [str(method()) for method in methods]


def _found(labels: Any) -> Any:
    """Return where the engine of an index finds its labels."""
    try:
        return labels.get_indexer_for(labels).tolist()
    except (TypeError, ValueError, pd.errors.InvalidIndexError) as error:
        return type(error)


def _own(value: Any) -> list[tuple[str, Any]]:
    return [(name, one) for name, one in getattr(value, "__dict__", {}).items() if name != "_cache"]


def _column(column: Any, several: Any) -> Any:
    values = column.tolist()
    return str(column.dtype), repr(values) if isinstance(column.dtype, pd.ArrowDtype) else several(values)


def _has_dict(value: Any) -> bool:
    return hasattr(value, "__dict__") and (type(value).__module__ == "__main__" or type(value).__name__ == "function")
