"""Which notebook the kernel runs, and where its conversations are saved (SESSION-3)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from IPython.core.interactiveshell import InteractiveShell

from agentmagic.history.journal import FOLDER
from agentmagic.jupyter.frontend import in_notebook

SERVER_SAYS = "JPY_SESSION_NAME"
"""The environment variable in which jupyter_server names the notebook, see its `SessionManager.get_kernel_env`."""

VS_CODE_SAYS = "__vsc_ipynb_file__"
"""The variable of the notebook in which VS Code names it."""

SUFFIX = ".jsonl"

_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))})
"""Names that no file can have on Windows, with any ending; a notebook may be moved there."""


@dataclass(frozen=True, slots=True)
class SaveFolder:
    """The folder of a notebook's conversations, or None and in `why_not` the reason why none are saved.

    `notebook` is the file of the notebook itself, if it is known.
    """

    folder: Path | None
    why_not: str = ""
    notebook: Path | None = None

    def file(self, name: str) -> Path | None:
        """Return the file of the session of a name."""
        if self.folder is None:
            return None
        first, dot, rest = name.partition(".")
        legal = f"{first}-" if first.lower() in _DEVICES else first  # no session has a - in its name
        return self.folder / f"{legal}{dot}{rest}{SUFFIX}"


def place(shell: InteractiveShell) -> SaveFolder:
    """Return where the sessions that the running cell makes are saved."""
    notebook = notebook_of(cast("Any", shell).user_ns)
    if not in_notebook(shell):
        why = "conversations are saved in a notebook that a person works in; elsewhere give a path"
        return SaveFolder(None, why, notebook)
    if notebook is None:
        return SaveFolder(None, "the kernel does not know the file of its notebook, which may be new or renamed")
    return SaveFolder(_folder(notebook), notebook=notebook)


def folder_of(variables: Mapping[str, Any]) -> Path | None:
    """Return the folder of the notebook's conversations, which need not be there, or None for an unknown notebook."""
    notebook = notebook_of(variables)
    return _folder(notebook) if notebook is not None else None


def notebook_of(variables: Mapping[str, Any]) -> Path | None:
    """Return the file of the notebook, or None if it is unknown."""
    for said in (variables.get(VS_CODE_SAYS), os.environ.get(SERVER_SAYS)):
        notebook = Path(said) if isinstance(said, str) else Path()
        # A path without a file is out of date (the notebook was renamed) or that of another machine.
        if notebook.suffix == ".ipynb" and notebook.is_absolute() and notebook.is_file():
            return notebook
    return None


def _folder(notebook: Path) -> Path:
    return notebook.parent / FOLDER / notebook.stem
