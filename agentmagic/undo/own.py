"""The variables of the user in a notebook or script, and the modules of the user, which belong to no package."""

import re
import site
import sys
import sysconfig
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

SHELL_NAMES = frozenset({
    *("exit", "quit", "open", "get_ipython"),
    *("__builtins__", "__builtin__", "__loader__", "__spec__", "__import__"),
})  # fmt: skip
"""Names of functions and interpreter objects that IPython and Python put into the namespace of a notebook."""
_SHELL_MODULES = frozenset({"IPython", "ipykernel", "_sitebuiltins", "io", "_io"})
"""Packages of the functions in SHELL_NAMES. IPython's `open` reports `io` as its module."""
_OF_SHELL = re.compile(rf"{'|'.join(SHELL_NAMES)}|In|Out|_+|_i{{1,3}}|_i?\d+|_[iod]h|__\w+__")
"""Names that IPython and Python bind in a namespace."""
OUTSIDE = frozenset({"agentmagic", "IPython", "ipykernel", "logging", "asyncio", "pathlib"}) | {
    *("concurrent", "distributed", "ipyparallel")  # executors, clients and clusters: their own threads change them
}
"""Packages whose objects are not data of a notebook, even if the package runs from a source checkout."""


def user_variables(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables of the user: all names, except those that IPython or Python binds itself."""
    variables = dict(namespace)  # copied in one step, because other threads can bind variables
    return {name: value for name, value in variables.items() if type(name) is str and not _OF_SHELL.fullmatch(name)}


def is_of_shell(name: str, value: object) -> bool:
    """Return whether a name of SHELL_NAMES still has the value that IPython or Python gave it."""
    if name not in SHELL_NAMES or name.startswith("__"):
        return name in SHELL_NAMES
    is_function = isinstance(value, (FunctionType, MethodType, BuiltinFunctionType))
    modules = [value.__module__] if is_function else [base.__module__ for base in type(value).__mro__]
    return any(str(module).partition(".")[0] in _SHELL_MODULES for module in modules)


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
