"""The state that packages share with all callers: watched by what is imported, put back, and named once."""

import logging
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentmagic.undo.changes import Changes, summarize
from agentmagic.undo.code_states import module_state
from agentmagic.undo.own import is_own
from agentmagic.undo.package_states import TABLE, read_states
from agentmagic.undo.program import analyse
from tests.undo.package_programs import DocstringNotebook, PackageNotebook
from tests.undo.random_programs import Notebook, check
from tests.undo.shared_states import states

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _same_states() -> Iterator[None]:
    """Put back what the programs leave changed, if undo is wrong."""
    before = read_states()
    yield
    for row in TABLE:
        if row.name in before:
            row.put(sys.modules[row.module], before[row.name])


def run(code: str, space: dict[str, Any] | None = None) -> Changes:
    """Run a program in a namespace with no other names, unless `space` is given, as `run_python` does."""
    space = {"__name__": "__main__"} if space is None else space
    program = analyse(code, space)
    changes = Changes(space)
    changes.expect(program.names, imports=program.imports)
    exec(code, space)  # noqa: S102
    return changes.settle()


PROGRAMS = [
    ("random numbers of Python", "from random import shuffle; shuffle([1, 2, 3])"),
    ("random numbers of Python", "import random; random.seed(1)"),
    ("random numbers of numpy", "import numpy; numpy.random.seed(1)"),
    ("random numbers of numpy", "from numpy.random import normal; normal(size=3)"),
    ("random numbers of numpy", "import numpy as np; np.random.set_bit_generator(np.random.MT19937(3))"),
    ("print options of numpy", "import numpy as np; np.set_printoptions(precision=2, formatter={'int': hex})"),
    ("error settings of numpy", "import numpy as np; np.seterr(all='raise')"),
    ("error settings of numpy", "from numpy import seterrcall; seterrcall(print)"),
    ("settings of matplotlib", "import matplotlib; matplotlib.rcParams['axes.grid'] = True"),
    ("settings of matplotlib", "import matplotlib.pyplot as plt; plt.style.use('ggplot')"),
    ("settings of matplotlib", "from matplotlib import rcParams; rcParams['font.serif'].append('x')"),
    ("options of pandas", "import pandas as pd; pd.options.display.max_rows = 5"),
    ("options of pandas", "import pandas; pandas.set_option('compute.use_bottleneck', False)"),
    ("options of polars", "import polars as pl; pl.Config.set_tbl_rows(3)"),
    ("options of polars", "import polars as pl; pl.Config.set_float_precision(3)"),
    ("settings of scikit-learn", "import sklearn; sklearn.set_config(assume_finite=True)"),
    ("environment variables", "import os; os.environ['AGENTMAGIC_MADE'] = '1'; del os.environ['PATH']"),
    ("environment variables", "import os, time; os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()"),
    ("sys.path", "import sys; sys.path.insert(0, 'nowhere')"),
    ("sys.path", "import sys; sys.path = ['nowhere']"),
    ("warning filters", "import warnings; warnings.simplefilter('ignore')"),
    ("logging levels and handlers", "import logging; logging.basicConfig(level=10, force=True)"),
    ("logging levels and handlers", "import logging; logging.getLogger('mine.own').setLevel(10)"),
    ("logging levels and handlers", "import logging; logging.disable(30)"),
    ("decimal context", "import decimal; decimal.getcontext().prec = 5"),
    ("working folder", "import os; os.chdir('/')"),
    ("recursion limit", "import sys; sys.setrecursionlimit(sys.getrecursionlimit() + 500)"),
]


@pytest.mark.parametrize(("name", "program"), PROGRAMS)
def test_what_a_program_changes_in_a_package_that_it_imports_itself_is_named_once_and_put_back(name, program):
    before, bit_generator = states(), np.random.get_bit_generator()
    changes = run(program)
    told = [row.name for row in summarize([changes]).changes if not row.after.startswith(("module", "function"))]
    assert set(told) - {"shuffle", "normal", "rcParams", "seterrcall"} == {name}
    after = states()
    undone = changes.restore()
    assert name in undone.restored
    assert undone.refused == {}
    assert (states(), np.random.get_bit_generator()) == (before, bit_generator)
    undone.back.restore()
    assert states() == after
    assert changes.restore().refused == {}


def test_a_locale_is_put_back():
    import locale

    before = locale.setlocale(locale.LC_ALL)
    other = "C.UTF-8" if before != "C.UTF-8" else "C"
    changes = run(f"import locale; locale.setlocale(locale.LC_ALL, {other!r})")
    assert locale.setlocale(locale.LC_ALL) != before
    assert "locale" in changes.restore().restored
    assert locale.setlocale(locale.LC_ALL) == before


@pytest.mark.parametrize(
    "program",
    [
        "import numpy as np\nwith np.errstate(all='ignore'), np.printoptions(precision=1):\n    repr(np.zeros(3))",
        "import pandas as pd\nwith pd.option_context('display.max_rows', 1):\n    repr(pd.DataFrame({'a': [1]}))",
        "import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('error')",
        "import decimal; decimal.Decimal(1) / 3",
        "import matplotlib.pyplot as plt\nwith plt.rc_context({'lines.linewidth': 9}):\n    pass",
        "import numpy as np; np.random.default_rng(1).random()",
        "import logging; logging.getLogger('quiet').debug('x')",
        "import json, statistics, threading, sys; sys.getsizeof([]); threading.active_count()",
    ],
)
def test_a_program_that_leaves_the_states_as_they_are_names_none(program):
    changes = run(program)
    assert changes.packages.touched_names == set()
    assert changes.packages.unwatched == {}
    assert changes.restore().refused == {}


def test_a_state_that_was_changed_since_is_left_alone():
    changes = run("import random; random.seed(1)")
    exec("import random; random.random()")  # noqa: S102
    before = states()
    undone = changes.restore()
    assert undone.refused == {"random numbers of Python": "it has been changed since"}
    assert states() == before


def test_a_list_that_was_replaced_by_an_equal_list_since_is_left_alone():
    changes = run("import sys; sys.path = [*sys.path, 'nowhere']")
    sys.path.remove("nowhere")
    assert changes.restore().refused == {"sys.path": "it has been changed since"}


def test_captured_warnings_can_be_captured_again_after_undo():
    shown = warnings.showwarning
    run("import logging; logging.captureWarnings(True)").restore()
    assert warnings.showwarning is shown
    logging.captureWarnings(True)
    assert warnings.showwarning is not shown
    logging.captureWarnings(False)


def test_a_backend_of_figures_is_put_back_with_its_classes():
    from matplotlib import pyplot as plt

    plt.switch_backend("agg")
    canvas = plt.figure().canvas
    changes = run("import matplotlib; matplotlib.use('svg')")
    assert type(plt.figure().canvas) is not type(canvas)
    changes.restore()
    assert (plt.get_backend(), type(plt.figure().canvas)) == ("agg", type(canvas))
    plt.close("all")


@pytest.mark.parametrize(
    ("program", "read", "name"),
    [
        ("import math; math.pi = 3", "__import__('math').pi", "module math"),
        ("from pandas import DataFrame; DataFrame.shout = len", "__import__('pandas').DataFrame.__dict__.keys()", None),
        (
            "import pandas as pd\n@pd.api.extensions.register_series_accessor('geo')\nclass Geo: pass",
            "hasattr(__import__('pandas').Series, 'geo')",
            "module pandas",
        ),
    ],
)
def test_a_replaced_attribute_of_a_module_that_no_variable_holds_is_put_back(program, read, name):
    before = repr(eval(read))  # noqa: S307
    changes = run(program)
    assert repr(eval(read)) != before  # noqa: S307
    undone = changes.restore()
    assert repr(eval(read)) == before  # noqa: S307
    assert (name or "module pandas") in undone.restored
    assert undone.refused == {}


# -- packages that the program loads first -----------------------------------------------------------------

LOADERS = """[type(one).__name__ for name in ("house_style", "matplotlib")
    for one in (sys.modules[name].__loader__, sys.modules[name].__spec__.loader)]"""
HOUSE_STYLE = (
    "import matplotlib\ndef set_theme():\n    matplotlib.rcParams.update({'axes.grid': True, 'font.size': 20})"
)


@pytest.mark.parametrize(
    ("code", "read", "told", "value"),
    [
        ("import numpy; numpy.set_printoptions(precision=2)", "sys.modules['numpy'].get_printoptions()['precision']",
         ["print options of numpy"], "8"),
        ("import numpy", "'numpy' in sys.modules", [], "True"),
        ("import house_style; house_style.set_theme()", "sys.modules['matplotlib'].rcParams['font.size']",
         ["settings of matplotlib"], "10.0"),
        ("import house_style", "sys.modules['matplotlib'].rcParams['font.size']", [], "10.0"),
        ("import eager", "(sys.modules['pandas'].get_option('display.max_rows'), 'EAGER' in sys.modules['os'].environ)",
         ["environment variables", "options of pandas", "warning filters"], "(60, False)"),
        ("import sklearn; sklearn.set_config(display='text')",
         "(sys.modules['sklearn'].get_config()['display'], 'KMP_INIT_AT_FORK' in sys.modules['os'].environ)",
         ["settings of scikit-learn"], "('diagram', True)"),
        ("import colorsys; colorsys.ONE_THIRD = 3", "sys.modules['colorsys'].ONE_THIRD > 1", [], "False"),
        ("try:\n    import nowhere\nexcept ImportError as e: pass", "1", [], "1"),
        ("try:\n    import broken\nexcept ZeroDivisionError: pass", "'broken' in sys.modules", [], "False"),
        ("import house_style", LOADERS, [], str(["SourceFileLoader"] * 4)),
        ("import house_style", "[one for one in sys.meta_path if 'agentmagic' in type(one).__module__]", [], "[]"),
    ],
)  # fmt: skip
def test_a_package_that_a_program_loads_first_has_again_the_state_with_which_it_was_loaded(
    tmp_path, code, read, told, value
):
    (tmp_path / "house_style.py").write_text(HOUSE_STYLE)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "eager.py").write_text(
        "import os, warnings\nos.environ['EAGER'] = '1'\nwarnings.simplefilter('ignore')\n"
        "import pandas\npandas.set_option('display.max_rows', 7)\n"
    )
    script = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from agentmagic.undo.changes import Changes\n"
        "from agentmagic.undo.program import analyse\n"
        f"code, space = {code!r}, {{'__name__': '__main__'}}\n"
        "program, changes = analyse(code, space), Changes(space)\n"
        "changes.expect(program.names, imports=program.imports)\n"
        "exec(code, space)\n"
        "undone = changes.settle().restore()\n"
        f"print(sorted(changes.packages.touched_names), dict(undone.refused), {read}, sep='|')\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60, text=True)
    assert done.stdout.strip() == f"{told}|{{}}|{value}"


def test_what_the_interpreter_and_the_page_set_is_no_change_of_a_module():
    before = module_state(sys)
    assert before is not None
    sys.last_value, sys.ps1 = ValueError(), "> "
    try:
        assert before.same(module_state(sys))
    finally:
        del sys.last_value, sys.ps1


def test_a_thread_that_ends_is_no_change_and_one_that_was_started_is_named():
    read, write = os.pipe()
    space: dict[str, Any] = {"__name__": "__main__", "read": read, "Thread": threading.Thread}
    changes = run("import os; thread = Thread(target=os.read, args=(read, 1)); thread.start()", space)
    os.close(write)  # ends the thread
    space["thread"].join()
    os.close(read)
    assert changes.restore().refused == {}
    space["thread"] = threading.Thread(target=print)
    changes = run("thread.start(); thread.join(); thread.note = 1", space)
    assert changes.restore().refused == {"thread": "it holds a thread that was started"}


def test_the_documentation_lists_what_is_watched():
    page = (ROOT / "docs" / "explanation" / "undo.md").read_text()
    table = page.partition("## States of packages")[2].partition("\n## ")[0]
    assert re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)[1:] == [row.name for row in TABLE]


# -- random programs -------------------------------------------------------------------------------------


SEEDS = {PackageNotebook: 900, DocstringNotebook: 300}
FAST, PART = 10, 50
"""Numbers of seeds of each kind of notebook that are not left to the slow tests, and of a test of those."""


def check_seeds(kind: type[Notebook], seeds: range) -> None:
    base = read_states()
    for seed in seeds:
        check(kind(seed))
        for row in TABLE:
            row.put(sys.modules[row.module], base[row.name])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", SEEDS)
def test_undo_of_random_programs_that_import_packages_is_never_silently_wrong(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_seeds(kind, range(FAST))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "first"), [(kind, first) for kind, count in SEEDS.items() for first in range(FAST, count, PART)]
)
def test_undo_of_many_programs_that_import_packages_is_never_silently_wrong(kind, first, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_seeds(kind, range(first, min(first + PART, SEEDS[kind])))


@pytest.mark.parametrize(
    ("module", "own"),
    [
        ("__main__", True),
        ("made_by_code", True),
        ("made_by_code.part", True),
        ("numpy", False),
        ("numpy.not_loaded", False),  # as `numpy.rec`, the module of `np.recarray`, before it is loaded
        ("xml.not_loaded", False),
        ("agentmagic.not_loaded", False),
    ],
)
def test_a_module_that_is_not_loaded_is_the_users_if_its_package_is(module, own):
    assert is_own(module) is own
