"""What the analysis of a program says it does, and that no program hides a write from it."""

import os
import shutil
import sys
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pytest

from agentmagic.undo.program import analyse


class Counter:
    """An object that may be changed by being read."""

    def __len__(self) -> int:
        return 1

    @property
    def value(self) -> int:
        return 1


def site_exit():
    """Return an `exit` as Python binds it."""
    import _sitebuiltins

    return _sitebuiltins.Quitter("exit", "Ctrl-D")


def notebook() -> dict[str, Any]:
    return {
        "rows": [{"n": 2}, {"n": 1}],
        "numbers": [3, 1, 2],
        "settings": {"a": 1},
        "counter": Counter(),
        "groups": defaultdict(list),
        "stream": iter([1, 2, 3]),
        "touch": lambda: 0,
        "word": "text",
    }


HIDDEN = [
    "globals()['settings'] = 1",
    "eval('rows.clear()')",
    "from operator import setitem as get\nget(settings, 'a', 2)",
    "setattr(counter, 'seen', [5, 5])",
    "getattr(rows, 'cl' + 'ear')()",
    "list.append(numbers, 4)",
    "[numbers.append(one) for one in (1, 2)] and None",
    "f'{numbers.pop()}'",
    "print(next(stream))",
    "3 in stream",
    "print(groups['missing'])",
    "len(counter)",
    "counter.value",
    "touch()",
    "max(numbers, key=touch)",
    "[settings := 3]",
    "for settings['a'] in range(9): pass",
    "import json as settings",
    "try:\n    1 / 0\nexcept ZeroDivisionError as word:\n    pass",
    "match 5:\n    case word:\n        pass",
    "def f(x=numbers.append(1)): ...",
    "(lambda: rows)().append(1)",
    "x: numbers.append(1)",
    "numbers[:] = []",
    "import sys\nsys.modules['__main__'].__dict__.get('word')",
    "del settings['a']",
    "settings |= {'b': 1}",
    "{}.get(1, list).append(numbers, 4)",
]


@pytest.mark.parametrize("code", HIDDEN)
def test_no_program_that_hides_a_write_is_called_a_reader(code: str):
    for program in (analyse(code, notebook()), analyse(code)):
        assert not program.only_reads
        assert "It only reads." not in program.lines()


@pytest.mark.parametrize(
    "code",
    [
        "numpy.sqrt(array, array)",
        "array.cumsum(0, None, array)",
        "array[:2].fill(7)",
        "frame.dropna(**{'inplace': True})",
        "frame.query('@frame.pop(\"a\").any()')",
        "frame.eval('b = @numbers.append(1)', inplace=True)",
        "frame.columns = ['q', 'r']",
        "numpy.add(array, 1, out=array)",
    ],
)
def test_no_write_to_a_frame_or_an_array_is_called_a_reader(code: str):
    frame = pd.DataFrame({"a": [1.0, None], "b": [1.0, 2.0]})
    namespace = {"numpy": np, "array": np.array([1.0, 4.0, 9.0]), "frame": frame, "numbers": [1]}
    assert not analyse(code, namespace).only_reads


@pytest.mark.parametrize("code", ["print(objects)", "objects.sum()", "max(objects.tolist()).head()"])
def test_an_array_of_objects_runs_the_code_of_their_classes(code: str):
    assert analyse(code, {"objects": np.array([Counter()], dtype=object)}).unknown
    assert analyse("print(objects)", {"objects": np.array(["a", 1], dtype=object)}).only_reads


def test_a_program_that_reads_data_is_called_a_reader_if_the_notebook_is_known():
    namespace = notebook()
    for code in ("print(len(rows), word)", "sum(numbers) / len(numbers)", "sorted(row['n'] for row in rows)[:1]"):
        assert analyse(code, namespace).lines()[-1] == "It only reads.", code
    assert analyse("print(len(rows), word)").lines() == ("Reads: rows, word", "What else it changes cannot be known.")
    assert analyse("len(rows)", {**namespace, "len": namespace["touch"]}).unknown  # the name hides the function


@pytest.mark.parametrize(
    ("code", "writes"),
    [
        ("rows[0]['n'] = 1", {"rows"}),
        ("settings[numbers.pop()] = 1", {"numbers", "settings"}),
        ("numbers.append(1)", {"numbers"}),
        ("for row in rows:\n    row['n'] += 1", {"row", "rows"}),
        ("box = []\nbox.append(rows)\nbox[0].clear()", {"box", "rows"}),
        ("for one in (1, 2):\n    last.append(1)\n    last = numbers", {"last", "numbers", "one"}),
        ("def f():\n    global word\n    word = 1", {"f", "word"}),
        ("fresh = rows.copy()\nfresh[0]['n'] = 4", {"fresh", "rows"}),
        ("frame.drop(columns='a', inplace=True)", {"frame"}),
    ],
)
def test_what_a_program_writes_is_named(code: str, writes: set[str]):
    assert analyse(code, notebook()).writes == writes
    program = analyse("import numpy.linalg\nfrom math import sin as s\ndel rows, numbers")
    assert (program.removes, program.imports) == ({"rows", "numbers"}, {"numpy.linalg", "math"})


@pytest.mark.parametrize(
    ("code", "risk"),
    [
        ("open('a').read()", "works with files: open (line 1)"),
        ("x = 1\nimport subprocess", "starts processes: import subprocess (line 2)"),
        ("frame.to_csv('a.csv')", "works with files: frame.to_csv (line 1)"),
        ("eval('1')", "runs code from text: eval (line 1)"),
        ("!rm -rf data", "runs a shell command: !rm -rf data (line 1)"),
        ("%%bash\nls", "runs a magic of IPython: %%bash (line 1)"),
        ("if 1:\n    %time x = 1", "runs a magic of IPython: %time x = 1 (line 2)"),
        ("import pickle", "loads pickles, which can run code: import pickle (line 1)"),
        ("get_ipython().run_cell('1')", "starts processes: get_ipython().run_cell (line 1)"),
    ],
)
def test_a_risky_call_is_marked(code: str, risk: str):
    assert risk in analyse(code).risks


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("import os as o\no._exit(1)", "o._exit (line 2)"),
        ("from os import _exit as bye\nbye(1)", "from os import _exit (line 1)"),
        ("from os import *\n_exit(1)", "_exit (line 2)"),
        ("f = os._exit\nf(1)", "os._exit (line 1)"),
        ("getattr(os, '_exit')(1)", "os._exit (line 1)"),
        ("__import__('os')._exit(1)", "__import__('os')._exit (line 1)"),
        ("bye(1)", "bye (line 1)"),
        ("import signal\nsignal.alarm(1)", "signal.alarm (line 2)"),
        ("get_ipython().kernel.do_shutdown(False)", "get_ipython().kernel.do_shutdown (line 1)"),
    ],
)
def test_what_can_end_the_kernel_is_a_risk(code: str, named: str):
    assert f"can end the kernel, with all its variables: {named}" in analyse(code, {"os": os, "bye": os._exit}).risks


@pytest.mark.parametrize("code", ["quit(3)", "print(numbers)\nexit('enough')"])
def test_a_program_that_ends_itself_has_no_risk_and_changes_nothing(code: str):
    for held in ({}, {"exit": site_exit(), "quit": site_exit()}):
        program = analyse(code, {**notebook(), **held})
        assert (program.risks, program.writes, program.unknown) == ((), frozenset(), False)
        assert program.reads <= {"numbers"}


@pytest.mark.parametrize("code", ["exit()", "def f(exit):\n    exit()\nf(print)", "exit = print\nexit()"])
def test_an_exit_that_the_user_or_the_program_has_bound_may_do_anything(code: str):
    assert analyse(code, {"exit": lambda: None}).unknown


def test_a_function_or_a_module_of_the_notebook_is_known_by_what_it_is():
    for code, held, risks in (
        ("wipe('a')", {"wipe": shutil.rmtree}, ("works with files: wipe (line 1)",)),
        ("tool.rmtree('a')", {"tool": shutil}, ("works with files: tool.rmtree (line 1)",)),
        ("os.remove('a')", {"os": os}, ("works with files: os.remove (line 1)",)),  # though lists have it too
        ("mine()", {"mine": site_exit}, ()),
        ("sys.exit(3)", {"sys": sys}, ()),
    ):
        assert analyse(code, held).risks == risks, code
    assert analyse("sys.settrace(None)", {"sys": sys}).risks


def test_what_is_no_python_cannot_be_known():
    for code in ("def f(:", "(" * 5000 + ")" * 5000, "x = '\x00'", "rows?"):
        assert analyse(code).unknown, code
