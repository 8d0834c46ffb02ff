"""Detects the front end that runs the cell: what the cell's output can be, and whether a user can answer."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from getpass import getpass
from typing import TYPE_CHECKING, Any, cast

from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell

from agentmagic.display.printout import Printout, note
from agentmagic.text import sanitize

if TYPE_CHECKING:
    from agentmagic.widgets.static_html import Publish


_OF_CELLS = frozenset({"cellId", "colab"})
"""Keys in a request's metadata that show that a notebook sent it. `_history.py` of colabtools reads `colab`."""


class Kind(Enum):
    """The form of a cell's output."""

    LIVE = "live"
    """HTML that is updated while the cell runs: JupyterLab, Notebook, VS Code."""
    TEXT = "text"
    """Printed text: a terminal, a Jupyter console."""
    BATCH = "batch"
    """One output at the end of the cell, to compare and save: nbclient, nbconvert, papermill, nbval, %%capture."""


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """The front end of the running cell; `attended` is True if a user can type an answer."""

    shell: InteractiveShell
    kind: Kind
    attended: bool

    @property
    def reachable(self) -> bool:
        """Whether messages of a browser page reach the kernel while a cell runs. They do in ipykernel 7.0 and newer."""
        kernel = getattr(self.shell, "kernel", None)
        return bool(getattr(kernel, "_supports_kernel_subshells", False))


def front_end(shell: InteractiveShell) -> FrontEnd:
    """Return the front end that runs the current cell."""
    is_captured = isinstance(shell.display_pub, CapturingDisplayPublisher)
    if not in_kernel(shell):
        # Without a terminal (IPython started by a script or with a pipe), input() would not read a user's answers.
        has_terminal = sys.stdin is not None and sys.stdin.isatty()
        return FrontEnd(shell, Kind.BATCH if is_captured else Kind.TEXT, has_terminal)
    attended, in_cell = _request(shell)
    kind = Kind.LIVE if in_cell else Kind.TEXT
    return FrontEnd(shell, Kind.BATCH if is_captured or not attended else kind, attended)


def in_notebook(shell: InteractiveShell) -> bool:
    """Return whether the running cell belongs to a notebook that a user has open, even if `%%capture` is active."""
    return in_kernel(shell) and all(_request(shell))


def carries_out_cell(shell: InteractiveShell) -> bool:
    """Return whether the kernel is running a cell or a console line, and not handling a browser page's message."""
    return in_kernel(shell) and _parent(shell).get("header", {}).get("msg_type") == "execute_request"


def running_cell(shell: InteractiveShell) -> str:
    """Return the id that the front end gives the running cell, or an empty string."""
    return str(_parent(shell).get("metadata", {}).get("cellId", "")) if in_kernel(shell) else ""


def in_kernel(shell: InteractiveShell) -> bool:
    """Return whether the shell belongs to a Jupyter kernel."""
    # Not IPKernelApp.initialized(), which is also true in a terminal in which ipykernel was used.
    return hasattr(shell, "kernel")


text_only: dict[int, Callable[[], bool]] = {}
"""By the id of a shell, whether its notebook uses a cassette.

The outputs of such a notebook are printed text. So they are the same when it is recorded in JupyterLab, replayed, and
checked by nbval.
"""


def say(said: str | Printout) -> None:
    """Show a message or a printout in the running cell, with secrets blanked: as HTML, or else as printed text."""
    shown = note(said) if isinstance(said, str) else said
    shell = get_ipython()
    if not shown.groups:
        return
    if shell is None or front_end(shell).kind is not Kind.LIVE or text_only.get(id(shell), bool)():
        print(shown.text)  # noqa: T201  (magics print)
    else:
        publisher(shell, None)(shown.bundle(), False)


def confirm(question: str) -> bool:
    """Ask a yes-or-no question, and return True for a yes. Any other answer, or the end of the input, is a no."""
    try:
        return input(sanitize(question)).strip().lower() in ("y", "yes")
    except EOFError:
        return False


@dataclass(frozen=True, slots=True)
class Keyboard:
    """Asks the user, who types answers at the running cell; implements the `Person` protocol of `agentmagic.host`."""

    shell: InteractiveShell

    def attended(self) -> bool:
        """Return whether a user can type an answer."""
        return front_end(self.shell).attended

    def ask(self, question: str) -> str:
        """Print a question, whose last line is the input prompt. Return the typed answer, or "" if the input ends."""
        *lines, prompt = sanitize(question).split("\n")
        print("\n".join(lines))  # noqa: T201  (the prompt below it is text, too)
        try:
            return getpass(prompt)  # not input(): a notebook saves the text that the user types there
        except EOFError:
            return ""


def publisher(shell: InteractiveShell, display_id: str | None) -> "Publish":
    """Return a function that sends MIME bundles to the front end.

    With a `display_id`, the function can update the output that it has sent, also while another cell runs.
    """
    to_front_end = cast("Any", shell.display_pub)
    transient = {"display_id": display_id} if display_id else None

    def publish(data: Mapping[str, str], update: bool) -> None:
        to_front_end.publish(dict(data), {}, transient=transient, update=update)

    return publish


def _request(shell: InteractiveShell) -> tuple[bool, bool]:
    """Return whether a user can type, and whether the cell belongs to a notebook. The front end's request tells both.

    A request of JupyterLab, Notebook or VS Code names the cell and allows input. A console only allows input, and a
    program that executes notebooks does neither. Colab names the cell under its own key, even for kernels elsewhere.
    """
    request = _parent(shell)
    attended = bool(request.get("content", {}).get("allow_stdin"))
    return attended, not _OF_CELLS.isdisjoint(request.get("metadata", {}))


def _parent(shell: InteractiveShell) -> dict[str, dict[str, Any]]:
    """Return the front end's message that the kernel is processing, such as the request to run a cell.

    There is none while the configuration of IPython loads the extension. ipykernel 6 has None then.
    """
    kernel_shell = cast("Any", shell)
    # In JupyterLite only the kernel has `get_parent`.
    return (kernel_shell if hasattr(kernel_shell, "get_parent") else kernel_shell.kernel).get_parent() or {}
