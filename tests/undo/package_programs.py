"""Programs that import packages and change what these share with all callers, and examples from their docstrings."""

import doctest
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import ClassVar

import pandas as pd
import polars as pl
from sklearn import cluster, decomposition, linear_model, metrics, model_selection, neighbors, preprocessing, tree

from tests.undo.frame_programs import FrameNotebook
from tests.undo.random_programs import guarded

CHANGES = """
import numpy; numpy.random.seed({n})
import numpy as np; fresh = np.random.rand({n})
from numpy.random import shuffle; shuffle(ones)
import numpy as np; np.random.set_state(np.random.RandomState({n}).get_state())
import random; random.seed({n})
from random import choice; fresh = choice([1, 2, 3])
import numpy as np; np.set_printoptions(precision={n}, suppress=True)
import numpy as np; np.seterr(all='ignore'); np.seterr(divide='raise')
from numpy import seterrcall; seterrcall(print)
import matplotlib; matplotlib.rcParams['figure.dpi'] = {n}0
import matplotlib.pyplot as plt; plt.style.use('ggplot')
from matplotlib import rcParams; rcParams['font.sans-serif'].insert(0, 'Font {n}')
import matplotlib as mpl; mpl.rc('lines', linewidth={n}); mpl.rcParams.update({{'axes.grid': True}})
import matplotlib; matplotlib.rcdefaults()
import pandas as pd; pd.set_option('display.max_rows', {n})
import pandas; pandas.options.display.precision = {n}; pandas.options.compute.use_bottleneck = False
from pandas import reset_option; reset_option('display.max_columns')
import polars as pl; pl.Config.set_tbl_rows({n})
import polars as pl; pl.Config(float_precision={n}, thousands_separator=True)
from polars import Config; Config.restore_defaults()
import sklearn; sklearn.set_config(display='text', assume_finite=True)
from sklearn import set_config; set_config(transform_output='pandas')
import os; os.environ['AGENTMAGIC_{n}'] = '{n}'
from os import environ; environ.pop('AGENTMAGIC_HERE', None)
import os, time; os.environ['TZ'] = 'Asia/Tokyo'; time.tzset()
import sys; sys.path.insert(0, '/nowhere/{n}')
from sys import path; path.remove(path[-1])
import sys; sys.path = [*sys.path, '/nowhere/{n}']
import warnings; warnings.filterwarnings('ignore', message='{n}')
from warnings import simplefilter; simplefilter('error', FutureWarning)
import warnings; warnings.resetwarnings()
import logging; logging.getLogger('mine.{n}').setLevel(logging.DEBUG)
import logging; logging.basicConfig(level={n}0, force=True)
import logging as log; log.disable(log.INFO); log.getLogger('mine').addHandler(log.NullHandler())
import decimal; decimal.getcontext().prec = {n}
from decimal import localcontext, getcontext, ROUND_UP; getcontext().rounding = ROUND_UP
import locale; locale.setlocale(locale.LC_ALL, 'C')
import os; os.chdir('/')
import sys; sys.setrecursionlimit(20{n}0)
"""
"""Programs that change the state of a package."""
HARMLESS = r"""
import numpy as np; np.random.default_rng({n}).random()
import numpy as np\nwith np.errstate(all='ignore'):\n    fresh = np.zeros(3) / 1
import numpy as np\nwith np.printoptions(precision={n}):\n    fresh = repr(ones)
import pandas as pd\nwith pd.option_context('display.max_rows', {n}):\n    fresh = repr({frame})
import polars as pl\nwith pl.Config(tbl_rows={n}):\n    fresh = repr({polars})
import warnings\nwith warnings.catch_warnings():\n    warnings.simplefilter('ignore')
import decimal\nwith decimal.localcontext() as c:\n    c.prec = {n}
import decimal; fresh = decimal.Decimal(1) / 3
import matplotlib.pyplot as plt\nwith plt.rc_context({{'lines.linewidth': {n}}}):\n    pass
import sklearn\nwith sklearn.config_context(assume_finite=True):\n    pass
import random; fresh = random.Random({n}).random()
import logging; logging.getLogger('quiet.{n}').debug('x')
import json, statistics, collections; fresh = json.dumps([{n}])
"""
"""Programs that leave the states of packages as they are."""


class PackageNotebook(FrameNotebook):
    """A namespace with frames, and programs that import packages, change their states, and change the frames."""

    def package_line(self) -> str:
        template = self.random.choice((CHANGES if self.random.random() < 0.8 else HARMLESS).strip().splitlines())
        return self._fill(template, n=str(self.random.randint(2, 9))).replace(r"\n", "\n")

    def program(self) -> str:
        lines = [self.package_line() for _ in range(self.random.randint(1, 4))]
        lines += [super().program()] if self.random.random() < 0.5 else []
        return guarded(lines)


# -- docstrings ------------------------------------------------------------------------------------------

_LEFT_OUT = (
    *("SKIP", "fetch_", "http", "read_", "to_csv", "to_excel", "to_pickle", "to_parquet", "to_hdf", "to_sql", "open("),
    *(
        "clipboard",
        "write_",
        "scan_",
        "sink_",
        "tempfile",
        "plt.show",
        ".save",
        "n_jobs",
        "plot",
        "threading",
        "sqlite",
    ),
    *("pyarrow.parquet", "to_feather", "to_orc", "to_stata", "input(", "time.sleep", "warnings.warn", "exit"),
)
"""Parts of examples that need files, a network, a front end or much time."""
_PRELUDE = "import numpy as np\nimport pandas as pd\nimport polars as pl\nimport random\n"
LONGEST = 1500
"""Largest number of characters of an example."""


class DocstringNotebook(PackageNotebook):
    """A namespace with frames under the names that docstrings use, and programs that are examples of docstrings."""

    aliases: ClassVar = {"df": "frame", "s": "series", "arr": "array", "idx": "label", "X": "numbers", "y": "numbers"}

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        for name, kind in self.aliases.items():
            self._try(self._fill(f"{name} = {{{kind}}}"))
            self.kinds |= {name: kind} if name in self.space else {}

    def program(self) -> str:
        example = self.random.choice(examples())
        return f"{_PRELUDE}{example}" if self.random.random() < 0.5 else f"{_PRELUDE}{self.package_line()}\n{example}"

    def run(self, program: str) -> None:
        with suppress(Exception):  # some examples show an error
            super().run(program)


@cache
def examples() -> list[str]:
    """Return the examples of the docstrings of pandas, polars and scikit-learn, as programs."""
    parser, found = doctest.DocTestParser(), set[str]()
    for text in _docstrings():
        try:
            code = "".join(example.source for example in parser.get_examples(text))
        except ValueError:
            continue
        if code and len(code) <= LONGEST and not any(part in text for part in _LEFT_OUT):
            found.add(code)
    return sorted(found)


def _docstrings() -> Iterator[str]:
    owners = [pd, pd.DataFrame, pd.Series, pd.Index, pd.Series.str, pd.Series.dt, pl, pl.DataFrame, pl.Series, pl.Expr]
    modules = [cluster, decomposition, linear_model, metrics, model_selection, neighbors, preprocessing, tree]
    for owner in (*owners, *modules):
        names = owner.__all__ if isinstance(owner, ModuleType) and owner in modules else dir(owner)
        for name in names:
            is_lazy = isinstance(owner, ModuleType) and name not in vars(owner)
            member = None if name.startswith("_") or is_lazy else getattr(owner, name)
            if isinstance(text := getattr(member, "__doc__", None), str):
                yield text
