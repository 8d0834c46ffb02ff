"""Which front end runs the cell, and so what it can show and whether somebody is there."""

import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from getpass import getpass
from typing import TYPE_CHECKING, Any, cast

from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

if TYPE_CHECKING:
    from agentmagic.jupyter.screens import Publish, Screen
from agentmagic.display.words import shown


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
    """The front end of the cell under way.

    `attended` says that somebody can type an answer, `in_background` that a turn may go on after its cell.
    """

    shell: InteractiveShell
    kind: Kind
    attended: bool

    @property
    def in_background(self) -> bool:
        """Whether a turn may go on after its cell has ended; where nobody looks, it would be lost."""
        return self.kind is not Kind.BATCH

    def screen(self) -> "Screen":
        """Return a new screen for this cell."""
        from agentmagic.jupyter.screens import BatchScreen, TerminalScreen

        match self.kind:
            case Kind.LIVE:
                from agentmagic.jupyter.live_screen import LiveScreen

                place, html = (publisher(self.shell, uuid.uuid4().hex) for _ in range(2))
                return LiveScreen(place, html, reachable=_has_subshells(self.shell))
            case Kind.BATCH:
                return BatchScreen(publisher(self.shell, None))
            case Kind.TEXT:
                return TerminalScreen(sys.stdout)


def front_end(shell: InteractiveShell) -> FrontEnd:
    """Find out which front end runs the cell under way.

    A kernel's request says so: JupyterLab, Notebook and VS Code name the cell and take input, a console only
    takes input, the programs that execute notebooks do neither. Colab names no cell, but is there as a module.
    """
    captured = isinstance(shell.display_pub, CapturingDisplayPublisher)
    if not in_kernel(shell):
        return FrontEnd(shell, Kind.BATCH if captured else Kind.TEXT, _has_terminal())
    attended, in_cell = _request(shell)
    kind = Kind.LIVE if in_cell else Kind.TEXT
    return FrontEnd(shell, Kind.BATCH if captured or not attended else kind, attended)


def in_notebook(shell: InteractiveShell) -> bool:
    """Whether the cell under way is one of a notebook that somebody works in, `%%capture` or not."""
    return in_kernel(shell) and all(_request(shell))


def in_kernel(shell: InteractiveShell) -> bool:
    """Whether the shell is that of a Jupyter kernel."""
    return hasattr(shell, "kernel")


def say(text: str) -> None:
    """Print into the cell, secrets blanked."""
    print(shown(text))  # noqa: T201  (that is what a magic does)


def agreed(question: str) -> bool:
    """Ask for a yes; whatever else is typed, and an input that has ended, is a no."""
    try:
        return input(shown(question)).strip().lower() in ("y", "yes")
    except EOFError:
        return False


@dataclass(frozen=True, slots=True)
class Keyboard:
    """The person at the cell under way, as the engine knows one."""

    shell: InteractiveShell

    def attended(self) -> bool:
        """Whether somebody can type."""
        return front_end(self.shell).attended

    def ask(self, question: str) -> str:
        """Print a question, and have the answer to its last line typed, hidden: a notebook keeps what is typed."""
        *lines, prompt = shown(question).split("\n")
        say("\n".join(lines))
        try:
            return getpass(prompt)
        except EOFError:
            return ""


def _request(shell: InteractiveShell) -> tuple[bool, bool]:
    """Return what the request of the cell tells: whether somebody can type, and whether it is a notebook's cell."""
    request = cast("dict[str, dict[str, Any]]", cast("Any", shell).get_parent())
    attended = bool(request.get("content", {}).get("allow_stdin"))
    return attended, "cellId" in request.get("metadata", {}) or "google.colab" in sys.modules


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _has_subshells(shell: InteractiveShell) -> bool:
    """Whether messages of a page can reach a kernel whose cell runs; ipykernel says so from 7.0 on."""
    return bool(getattr(cast("Any", shell).kernel, "_supports_kernel_subshells", False))


def publisher(shell: InteractiveShell, display_id: str | None) -> "Publish":
    """Return what sends a bundle to this cell, whichever cell runs by then."""
    to_front_end = cast("Any", shell.display_pub)
    transient = {"display_id": display_id} if display_id else None

    def publish(data: Mapping[str, str], update: bool) -> None:
        to_front_end.publish(dict(data), {}, transient=transient, update=update)

    return publish
