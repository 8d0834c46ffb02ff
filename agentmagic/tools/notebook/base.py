"""The notebook as its tools see it: a protocol, which the kernel's side implements, and what is attached to it."""

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Protocol

from agentmagic.messages import Content

if TYPE_CHECKING:
    from agentmagic.events import CellProposed, ProposalSettled


@dataclass(frozen=True, slots=True)
class NotebookCell:
    """A cell with its text and its outputs; `number` is its place in the notebook, or its number in the history.

    `running` says that it is the cell that runs now. `id` is the cell's in the notebook, "" if it is not known.
    """

    number: int
    kind: str
    source: str
    outputs: tuple[Content, ...] = ()
    running: bool = False
    id: str = ""


class RunningNotebook(Protocol):
    """The notebook of a kernel. The methods are called in the main thread."""

    @property
    def namespace(self) -> MutableMapping[str, Any]:
        """The variables of the notebook; also read in other threads."""
        ...

    def run(self, code: str) -> None:
        """Run a program as if it was typed in a cell, and display the value of its last expression.

        Raises what the program raises.
        """
        ...

    def stage(self, proposed: "CellProposed") -> "CellProposed":
        """Have the front end show a proposed cell in the notebook if it can; return the proposal with its place."""
        ...

    def fate(self, proposed: "CellProposed") -> "ProposalSettled | None":
        """Return what became of a proposed cell, if the cells tell; None if they do not, or the front end will."""
        ...

    def cells(self) -> tuple[Sequence[NotebookCell], str]:
        """Return the cells, and a sentence on where they are from and how new they are."""
        ...


SHELL_NAMES = frozenset({
    *("exit", "quit", "open", "get_ipython"),
    *("__builtins__", "__builtin__", "__loader__", "__spec__", "__import__"),
})  # fmt: skip
"""Names of functions and of the interpreter's parts that IPython and Python put into the namespace of a notebook."""
_SHELL_MODULES = frozenset({"IPython", "ipykernel", "_sitebuiltins", "io", "_io"})
"""Packages of the functions; IPython's `open` says that it is one of `io`."""


def is_of_shell(name: str, value: object) -> bool:
    """Return whether a name of SHELL_NAMES holds what IPython or Python put there, and is not rebound by the user."""
    if name not in SHELL_NAMES or name.startswith("__"):
        return name in SHELL_NAMES
    is_function = isinstance(value, (FunctionType, MethodType, BuiltinFunctionType))
    modules = [value.__module__] if is_function else [one.__module__ for one in type(value).__mro__]
    return any(str(module).partition(".")[0] in _SHELL_MODULES for module in modules)


_attached: list[RunningNotebook] = []


def attach(notebook: RunningNotebook | None) -> None:
    """Set the notebook of this process, or none."""
    _attached[:] = [] if notebook is None else [notebook]


def attached() -> RunningNotebook | None:
    """Return the notebook of this process, or None in a script."""
    return _attached[0] if _attached else None
