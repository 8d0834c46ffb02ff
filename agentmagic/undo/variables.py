"""The variables of the notebook: one line about each, or the content of one.

Listing the variables runs no code of the user's classes. Values of Python's and the data libraries' own types are shown
with their content, all other values only with their type.
"""

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from agentmagic.errors import ToolError
from agentmagic.secrets import BLANK, is_secret_name, learn
from agentmagic.text import close_names, sanitize, single_line
from agentmagic.undo.data_types import is_data
from agentmagic.undo.own import user_variables
from agentmagic.values import describe, frames, reprs

MOST_VARIABLES = 200
"""Largest number of variables that are listed, and of changes that are reported."""
MOST_COLUMNS = 20
LONGEST_LINE = 200
LONGEST_VALUE = 80
LOOK_BUDGET = 2000
"""Largest text about one variable, in tokens."""


def summary(name: str, value: object) -> str:
    """Return one line about a variable: its type, its size, and its content if that is short. Secrets are blanked."""
    return single_line(sanitize(f"{name}: {kind_of(value)}{_contents(name, value)}"), LONGEST_LINE)


def describe_variable(name: str, value: object) -> str:
    """Return the content of a variable as text. Secrets are blanked."""
    head = summary(name, value)
    return head if _is_secret(name, value) else sanitize(f"{head}\n{describe.describe(value, LOOK_BUDGET)}")


def kind_of(value: Any) -> str:
    """Return the type of a value with its size, such as "list of 3". For a module, return its name."""
    return f"module {value.__name__}" if issubclass(type(value), ModuleType) else describe.summary(value)


def _contents(name: str, value: object) -> str:
    """Return the beginning of a value, or "". Runs no code of the user, because it is called for every variable."""
    if describe.is_opaque(value):
        return ""
    if _is_secret(name, value):
        return f" = {BLANK}"
    if inspect.isfunction(value):
        return str(inspect.signature(value))
    if isinstance(value, ModuleType) or not is_data(value):
        return ""
    if frames.is_frame(value) or frames.is_array(value):
        columns = frames.keys_of(frames.without_style(value)) if hasattr(type(value), "columns") else []
        return f", columns {', '.join(columns[:MOST_COLUMNS])}" if columns else ""
    return f" = {reprs.short_repr(value, LONGEST_VALUE)}"


def _is_secret(name: str, value: Any) -> bool:
    """Return whether a variable is a text named like a secret. If so, its value is blanked from now on everywhere."""
    if not issubclass(type(value), str) or not is_secret_name(name):
        return False
    learn(name, value)
    return True


def find(namespace: Mapping[str, Any], name: str) -> Any:
    """Return the value of a variable. Raises ToolError, which lists similar names, if none exists."""
    if name in namespace:
        return namespace[name]
    close = close_names(name, user_variables(namespace), n=3)
    hint = f" Close names: {', '.join(close)}." if close else " list_variables tells the names."
    raise ToolError(f"There is no variable {name[:80]!r}.{hint}")
