"""Which front end runs the cell: what its output can be, and whether a person can answer."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from getpass import getpass
from typing import TYPE_CHECKING, Any, cast

from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

from agentmagic.text import shown

if TYPE_CHECKING:
    from agentmagic.widgets.static_html import Publish


_OF_CELLS = frozenset({"cellId", "colab"})
"""What the metadata of a request has if it is a notebook's; `colab` is read by `_history.py` of colabtools."""


class Kind(Enum):
    """What the output of a cell can be."""

    LIVE = "live"
    """HTML that is updated while the cell runs: JupyterLab, Notebook, VS Code."""
    TEXT = "text"
    """Text that is printed: a terminal, a Jupyter console."""
    BATCH = "batch"
    """One output at the end, to be compared and kept: nbclient, nbconvert, papermill, nbval, %%capture."""


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """The front end of the running cell; `attended` tells whether a person can type an answer."""

    shell: InteractiveShell
    kind: Kind
    attended: bool

    @property
    def reachable(self) -> bool:
        """Whether a page's messages can reach the kernel while a cell runs: from ipykernel 7.0 on."""
        kernel = getattr(self.shell, "kernel", None)
        return bool(getattr(kernel, "_supports_kernel_subshells", False))


def front_end(shell: InteractiveShell) -> FrontEnd:
    """Return the front end that runs the current cell."""
    captured = isinstance(shell.display_pub, CapturingDisplayPublisher)
    if not in_kernel(shell):
        # IPython may also run in a script or a pipe, where input() would read something else than answers.
        has_terminal = sys.stdin is not None and sys.stdin.isatty()
        return FrontEnd(shell, Kind.BATCH if captured else Kind.TEXT, has_terminal)
    attended, in_cell = _request(shell)
    kind = Kind.LIVE if in_cell else Kind.TEXT
    return FrontEnd(shell, Kind.BATCH if captured or not attended else kind, attended)


def in_notebook(shell: InteractiveShell) -> bool:
    """Return whether the running cell belongs to a notebook that a person has open, under `%%capture` or not."""
    return in_kernel(shell) and all(_request(shell))


def carries_out_cell(shell: InteractiveShell) -> bool:
    """Return whether the kernel's request is a cell or a line of a console, and not a message of a page."""
    return in_kernel(shell) and _parent(shell).get("header", {}).get("msg_type") == "execute_request"


def running_cell(shell: InteractiveShell) -> str:
    """Return the id of the running cell as the front end tells it, or an empty string."""
    return str(_parent(shell).get("metadata", {}).get("cellId", "")) if in_kernel(shell) else ""


def in_kernel(shell: InteractiveShell) -> bool:
    """Return whether the shell is that of a Jupyter kernel."""
    # IPKernelApp.initialized() is true in a terminal too, once ipykernel was used there.
    return hasattr(shell, "kernel")


def say(text: str) -> None:
    """Print into the cell, secrets blanked."""
    print(shown(text))  # noqa: T201  (magics print)


def agreed(question: str) -> bool:
    """Ask for a yes; any other answer, and an input that has ended, is a no."""
    try:
        return input(shown(question)).strip().lower() in ("y", "yes")
    except EOFError:
        return False


@dataclass(frozen=True, slots=True)
class Keyboard:
    """The person at the running cell, as the engine knows one."""

    shell: InteractiveShell

    def attended(self) -> bool:
        """Return whether a person can type."""
        return front_end(self.shell).attended

    def ask(self, question: str) -> str:
        """Print a question, and return the answer to its last line."""
        *lines, prompt = shown(question).split("\n")
        say("\n".join(lines))
        try:
            return getpass(prompt)  # hidden: a notebook saves what is typed into input()
        except EOFError:
            return ""


def publisher(shell: InteractiveShell, display_id: str | None) -> "Publish":
    """Return a function that sends MIME bundles to this cell, also when another cell runs."""
    to_front_end = cast("Any", shell.display_pub)
    transient = {"display_id": display_id} if display_id else None

    def publish(data: Mapping[str, str], update: bool) -> None:
        to_front_end.publish(dict(data), {}, transient=transient, update=update)

    return publish


def _request(shell: InteractiveShell) -> tuple[bool, bool]:
    """Return whether a person can type, and whether the cell is a notebook's, as the kernel's request tells.

    JupyterLab, Notebook and VS Code name the cell and take input, a console only takes input, and programs that
    execute notebooks do neither. Colab names the cell in its own way, also to a kernel that is not of its runtime.
    """
    request = _parent(shell)
    attended = bool(request.get("content", {}).get("allow_stdin"))
    return attended, not _OF_CELLS.isdisjoint(request.get("metadata", {}))


def _parent(shell: InteractiveShell) -> dict[str, dict[str, Any]]:
    """Return the request that the kernel carries out."""
    told = cast("Any", shell)
    return (told if hasattr(told, "get_parent") else told.kernel).get_parent()  # the kernel's in JupyterLite
