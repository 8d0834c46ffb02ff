"""The variables of the user in a notebook or script, and the modules of the user, which belong to no package."""

import re
import site
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_OF_SHELL = re.compile(r"In|Out|exit|quit|open|get_ipython|_+|_i{1,3}|_i?\d+|_[iod]h|__\w+__")
"""Names that IPython and Python bind in a namespace."""


OUTSIDE = frozenset({"agentmagic", "IPython", "ipykernel", "logging", "asyncio", "pathlib"}) | {
    *("concurrent", "distributed", "ipyparallel")  # executors, clients and clusters: their own threads change them
}
"""Packages whose objects are not data of a notebook, even if the package runs from a source checkout."""


def user_variables(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of the user: all names, except those that IPython or Python binds itself."""
    variables = dict(namespace)  # copied in one step, because other threads can bind variables
    return {name: value for name, value in variables.items() if type(name) is str and not _OF_SHELL.fullmatch(name)}


def is_own(module: str) -> bool:
    """Return whether a module is the user's.

    It is the notebook, a file outside Python's folders, or a module that code made without a file. A module that is not
    loaded is the user's if its package is: `numpy.rec` is the module of classes that exist before it is loaded.
    """
    if module in ("__main__", "builtins") or module.partition(".")[0] in OUTSIDE:
        return module == "__main__"
    module_object = sys.modules.get(module)
    package = module.rpartition(".")[0]
    if module_object is None and package:
        return is_own(package)
    file = getattr(module_object, "__file__", None)
    if isinstance(file, str):
        return not file.startswith(_folders())
    return module not in sys.builtin_module_names and getattr(module_object, "__spec__", None) is None


@cache
def _folders() -> tuple[str, ...]:
    """Return the folders of the standard library and of installed packages."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple({str(place) for path in folders for place in (Path(path), Path(path).resolve())})
