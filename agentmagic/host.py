"""The host: what a front end gives the core, as one protocol; `ScriptHost` is the default.

Only protocols over events and messages stand here. A session and a run are passed through as they are.
"""

import sys
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from agentmagic.errors import UsageError
from agentmagic.events import CellProposed, MapProgress, ProposalSettled
from agentmagic.messages import Content
from agentmagic.terminal_bar import TerminalBar
from agentmagic.text import counted

NOWHERE = "The chat panel works in a notebook, in JupyterLab or Notebook 7. In code, use session.ask()."

Output = tuple[Content, str]
"""A part of a result, and the HTML that a user sees in its place, or ""."""


class Person(Protocol):
    """The user at the keyboard. The methods are called in the main thread."""

    def attended(self) -> bool:
        """Return whether the user can type an answer now."""
        ...

    def ask(self, question: str) -> str:
        """Return an answer that is typed hidden and kept nowhere, "" for none."""
        ...


class Capture(Protocol):
    """Takes what the main thread prints, displays and plots from `start` to `stop`; it may be started again."""

    def start(self) -> None:
        """Take the output from now on."""
        ...

    def stop(self) -> None:
        """Leave the output to the cell again."""
        ...

    def draw(self) -> None:
        """Take the figures that were left open, and close them."""
        ...

    def leave_out(self, value: Any, shown: Sequence[Content]) -> None:
        """Drop the displays of figures that the tool returns as well; `shown` are the parts of the value it returns."""
        ...

    def parts(self) -> Sequence[Output]:
        """Return what was taken so far, in order; in any thread."""
        ...


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

    def stage(self, proposed: CellProposed) -> CellProposed:
        """Have the front end show a proposed cell in the notebook if it can; return the proposal with its place."""
        ...

    def fate(self, proposed: CellProposed) -> ProposalSettled | None:
        """Return what became of a proposed cell, if the cells tell; None if they do not, or the front end will."""
        ...

    def cells(self) -> tuple[Sequence[NotebookCell], str]:
        """Return the cells, and a sentence on where they are from and how new they are."""
        ...


class RunView(Protocol):
    """Shows a run in the place where code began it; `attended` says whether the user can answer there."""

    attended: bool

    def begin(self, run: Any) -> None:
        """Show a `Run` from now on."""
        ...

    def finish(self) -> None:
        """Show what is to stay after the run; called by the code that waits for the run."""
        ...


class MapView(Protocol):
    """Shows a map in the place where it was begun."""

    def begin(self, run: Any) -> None:
        """Show a `MapRun` from now on."""
        ...

    def finish(self) -> None:
        """Show what is to stay after the map; called by the code that waits for it."""
        ...


class ServedView(Protocol):
    """Shows the calls of clients in the place where the notebook was served.

    `place` is the name of the notebook's file, "" if it is not known, and its folder. `attended` and `begin` are for
    any thread but the engine's.
    """

    place: tuple[str, Path]

    @property
    def attended(self) -> bool:
        """Whether the user can answer there now. A page is asked, and has two seconds to answer."""
        ...

    def show(self, *, recorded: bool) -> None:
        """Show how clients join, or that `recorded` calls are played, and below it the calls from now on."""
        ...

    def begin(self, run: Any) -> None:
        """Show the turn of a call, after the earlier ones."""
        ...

    def close(self, why: str) -> None:
        """Leave what is to stay, and say why no more calls are shown there, "" if that needs no words."""
        ...


class Host(Protocol):
    """What a front end gives the core; a part that it lacks is None.

    `takes_tools` says that synchronous tools run in the main thread, as in a kernel. `wake` schedules a callback there,
    for when no code blocks it. `person` answers questions that belong to no run. `cell` has the id of the running cell
    and the number of its run: within one run, the second session of a name has a recording of its own. Sessions are
    passed as they are.
    """

    takes_tools: bool
    wake: Callable[[Callable[[], None]], object] | None
    person: Person | None
    notebook: RunningNotebook | None
    cell: tuple[str, int] = ("", 0)

    @property
    def folder(self) -> Path:
        """The folder of the notebook, or that of the process; in any thread but the engine's."""
        return Path.cwd()

    def capture(self, on_lines: Callable[[Callable[[], str]], None]) -> Capture | None:
        """Return what takes the output of one tool.

        `on_lines` is called after each write, with a function that returns the last printed lines.
        """
        ...

    def view(self, session: Any) -> RunView | None:
        """Return the view of a run that code of the user begins now."""
        ...

    def map_view(self, session: Any) -> MapView | None:
        """Return the view of a map that code of the user begins now."""
        ...

    def serve_view(self, session: Any) -> ServedView | None:
        """Return the view of the calls of clients of a session that is served now."""
        ...

    def join(self, session: Any) -> None:
        """Have a session use the recording of the host, before each of its turns."""
        ...

    def tell_undone(self, session: Any, *, redo: bool) -> bool:
        """Tell the user what an undo or redo by code came to; return whether the user was told."""
        ...

    def show_panel(self, session: Any) -> None:
        """Show the chat panel of a session. Raises UsageError if there is no place for one."""
        ...


class ScriptMapView(MapView):
    """Shows a map as a bar in the terminal of a script."""

    def __init__(self) -> None:
        self._bar = TerminalBar(sys.stderr)
        self._over = False

    def begin(self, run: Any) -> None:
        """Draw the bar while the map runs."""
        run.listen(self._show)

    def _show(self, progress: MapProgress) -> None:
        if self._over:
            return
        self._bar.show(progress)
        if progress.ended:
            self._over = True
            self._bar.close()
            for error, number in progress.errors:
                self._bar.write(f"{counted(number, 'row')}: {error}")

    def finish(self) -> None:
        """Do nothing: the end of the map has closed the bar."""


class ScriptHost(Host):
    """The host of a script: nothing is shown, no one is there, and what tools print goes where it always goes.

    Only a map is shown, as a bar, if stderr is a terminal.
    """

    takes_tools = False
    wake = None
    person = None
    notebook = None

    def capture(self, on_lines: Callable[[Callable[[], str]], None]) -> Capture | None:  # noqa: ARG002
        """Return None: tools print as usual."""
        return None

    def view(self, session: Any) -> RunView | None:  # noqa: ARG002
        """Return None: a script waits for the result."""
        return None

    def map_view(self, session: Any) -> MapView | None:  # noqa: ARG002
        """Return a bar if there is a terminal."""
        return ScriptMapView() if sys.stderr is not None and sys.stderr.isatty() else None

    def serve_view(self, session: Any) -> ServedView | None:  # noqa: ARG002
        """Return None: nothing is shown in a script, and no one is there."""
        return None

    def join(self, session: Any) -> None:
        """Do nothing: each session of a script names its own cassette."""

    def tell_undone(self, session: Any, *, redo: bool) -> bool:  # noqa: ARG002
        """Return False: no one looks."""
        return False

    def show_panel(self, session: Any) -> None:
        """Load the extension in an IPython shell where the user has not, which then shows the panel."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if shell is None:
            raise UsageError(NOWHERE)
        shell.run_line_magic("load_ext", "agentmagic")
        installed().show_panel(session)


_installed: list[Host] = [ScriptHost()]


def installed() -> Host:
    """Return the host of this process."""
    return _installed[0]


def install(host: Host) -> Host:
    """Make a host that of this process, and return the one before."""
    before, _installed[0] = _installed[0], host
    return before


def begin_cell(cell: str = "") -> None:
    """Begin the run of a cell: its sessions use the recordings that sessions of the last run used."""
    host = installed()
    host.cell = (cell, host.cell[1] + 1)
