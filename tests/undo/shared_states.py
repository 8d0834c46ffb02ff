"""The states that packages share with all callers, read apart from the code under test."""

import locale
import logging
import os
import random
import sys
import time
import warnings
from decimal import getcontext
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import polars as pl
import sklearn

OPTIONS = ("display.max_rows", "display.max_columns", "display.precision", "compute.use_bottleneck")


def states() -> dict[str, Any]:
    """Return what packages share with all callers, by the name under which undo tells it."""
    loggers = {"": logging.root, **logging.root.manager.loggerDict}
    levels = {
        name: (one.level, one.propagate, one.handlers[:])
        for name, one in loggers.items()
        if isinstance(one, logging.Logger) and (not name or name.startswith("mine"))
    }
    changed = {name: state for name, state in levels.items() if state != (0, True, []) or not name}
    return {
        "random numbers of Python": random.getstate(),
        "random numbers of numpy": repr(np.random.get_state()),  # noqa: NPY002
        "print options of numpy": repr(np.get_printoptions()),
        "error settings of numpy": (np.geterr(), np.geterrcall()),
        "settings of matplotlib": repr(sorted(dict.items(mpl.rcParams), key=str)),
        "options of pandas": [pd.get_option(name) for name in OPTIONS],
        "options of polars": pl.Config.save(),
        "settings of scikit-learn": sklearn.get_config(),
        "environment variables": (time.tzname, {name: one for name, one in os.environ.items() if "POLARS" not in name}),
        "sys.path": (id(sys.path), sys.path[:]),
        "warning filters": (id(warnings.filters), warnings.filters[:]),
        "logging levels and handlers": (changed, logging.root.manager.disable),
        "decimal context": (getcontext().prec, getcontext().rounding),
        "locale": locale.setlocale(locale.LC_ALL),
        "working folder": os.getcwd(),  # noqa: PTH109
        "recursion limit": sys.getrecursionlimit(),
    }
