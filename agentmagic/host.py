"""The `Host` protocol: what a front end, such as Jupyter, does for the rest of agentmagic. `ScriptHost` is the default.

The protocols refer only to events and messages. Sessions and runs have the type `Any`, to avoid import cycles.
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
from agentmagic.text import plural

NOWHERE = "The chat panel works in a notebook, in JupyterLab or Notebook 7. In code, use session.ask()."

Output = tuple[Content, str]
"""A part of a result, and the HTML that the user sees in its place, "" for none."""


class Person(Protocol):
    """The user at the keyboard. The methods are called in the main thread."""

    def attended(self) -> bool:
        """Return whether the user can type an answer now."""
        ...

    def ask(self, question: str) -> str:
        """Ask the user, and return the answer, or "" without one. The typed text is neither visible nor saved."""
        ...


class Capture(Protocol):
    """Captures the main thread's prints, displays and plots from `start` to `stop`. It can be started again."""

    def start(self) -> None:
        """Capture the output from now on, so that the running notebook cell does not show it."""
        ...

    def stop(self) -> None:
        """Stop capturing, so that the running notebook cell shows output again."""
        ...

    def draw(self) -> None:
        """Capture the matplotlib figures that the tool has opened and not closed, and close them."""
        ...

    def leave_out(self, value: Any, parts: Sequence[Content]) -> None:
        """Drop captured figures that the tool's return `value` also contains. `parts` is `value` as message parts."""
        ...

    def parts(self) -> Sequence[Output]:
        """Return the output captured so far, in order. Callable from any thread."""
        ...


@dataclass(frozen=True, slots=True)
class NotebookCell:
    """A cell of the notebook, with its text and its outputs.

    `number` is its position in the notebook, or in the shell's history if the notebook file cannot be read. `running`
    says that the cell is running now. `id` is the cell's id in the notebook file, or "" if unknown.
    """

    number: int
    kind: str
    source: str
    outputs: tuple[Content, ...] = ()
    running: bool = False
    id: str = ""


class RunningNotebook(Protocol):
    """The notebook whose kernel this process is. The methods are called in the main thread."""

    @property
    def namespace(self) -> MutableMapping[str, Any]:
        """The variables of the notebook. Other threads read this property too."""
        ...

    def run(self, code: str) -> None:
        """Run code as in a cell, and display the value of its last expression. Exceptions of the code are raised."""
        ...

    def stage(self, proposal: CellProposed) -> CellProposed:
        """Show a proposed cell in the notebook if the front end can; return the proposal with its `place` set."""
        ...

    def fate(self, proposal: CellProposed) -> ProposalSettled | None:
        """Return what the user decided about a proposed cell, if this can be seen from the notebook's cells.

        Returns None if it cannot be seen, or if the front end reports the decision itself.
        """
        ...

    def cells(self) -> tuple[Sequence[NotebookCell], str]:
        """Return the notebook's cells, and a sentence on how they were read and whether they may be outdated."""
        ...


class RunView(Protocol):
    """The display of a turn, below the code that started it; `attended` says whether the user can answer there."""

    attended: bool

    def begin(self, run: Any) -> None:
        """Start to show a `Run`."""
        ...

    def finish(self) -> None:
        """Replace the live display by the final output. The code that waits for the run calls this."""
        ...


class MapView(Protocol):
    """The display of a map, below the code that started it."""

    def begin(self, run: Any) -> None:
        """Start to show a `MapRun`."""
        ...

    def finish(self) -> None:
        """Replace the live display by the final output. The code that waits for the map calls this."""
        ...


class ServedView(Protocol):
    """The display of the tool calls of MCP clients, in the output of the cell that serves the notebook to them.

    `place` is the name of the notebook's file ("" if unknown) and the file's folder. `attended` and `begin` can be used
    from any thread except the engine's.
    """

    place: tuple[str, Path]

    @property
    def attended(self) -> bool:
        """Whether the user can answer in this display now. Asks the browser page, which may take two seconds."""
        ...

    def show(self, *, recorded: bool) -> None:
        """Show how MCP clients connect, or that `recorded` calls are played back. Later calls appear below."""
        ...

    def begin(self, run: Any) -> None:
        """Show the turn of an MCP client's call, below the earlier calls."""
        ...

    def close(self, why: str) -> None:
        """Replace the live display by the final output, and show `why` no more calls appear, unless it is ""."""
        ...


class Host(Protocol):
    """What a front end does for the rest of agentmagic. An attribute that a front end does not support is None.

    `takes_tools` says that synchronous tools run in the main thread, as in a kernel. `wake` schedules a callback in the
    main thread for the next time that no code blocks it. `person` answers questions that are not part of a turn. `cell`
    is the id of the running notebook cell, and the number of cell executions so far. If two sessions of the same name
    have the same number, they were made within one execution, and the second gets a recording of its own.
    """

    takes_tools: bool
    wake: Callable[[Callable[[], None]], object] | None
    person: Person | None
    notebook: RunningNotebook | None
    cell: tuple[str, int] = ("", 0)

    @property
    def folder(self) -> Path:
        """The notebook's folder, or the working directory. May block, so the engine's (background) thread avoids it."""
        return Path.cwd()

    def show_activity(self) -> None:
        """Show the program that runs this process that it is at work. Called now and then while a turn runs."""

    def capture(self, on_lines: Callable[[Callable[[], str]], None]) -> Capture | None:
        """Return an object that captures the output of one tool call, or None if output is not captured.

        `on_lines` is called after each write, with a function that returns the last printed lines.
        """
        ...

    def view(self, session: Any) -> RunView | None:
        """Return a display for a run that the user's code starts now, or None to show nothing."""
        ...

    def map_view(self, session: Any) -> MapView | None:
        """Return a display for a map that the user's code starts now, or None to show nothing."""
        ...

    def serve_view(self, session: Any) -> ServedView | None:
        """Return a display for the calls of MCP clients to a session that is now served, or None to show nothing."""
        ...

    def join(self, session: Any) -> None:
        """Make a session use the notebook's recording file (cassette). Called before each turn of the session."""
        ...

    def tell_undone(self, session: Any, *, redo: bool) -> bool:
        """Show the user the outcome of `session.undo()` or `session.redo()`; return whether it was shown."""
        ...

    def show_panel(self, session: Any) -> None:
        """Show the chat panel of a session. Raises UsageError if there is no place for one."""
        ...


class ScriptMapView(MapView):
    """Displays a map as a progress bar in the terminal of a script."""

    def __init__(self) -> None:
        self._bar = TerminalBar(sys.stderr)
        self._over = False

    def begin(self, run: Any) -> None:
        """Start to draw the progress bar, which is drawn again while the map runs."""
        run.listen(self._show)

    def _show(self, progress: MapProgress) -> None:
        if self._over:
            return
        self._bar.show(progress)
        if progress.ended:
            self._over = True
            self._bar.close()
            for error, number in progress.errors:
                self._bar.write(f"{plural(number, 'row')}: {error}")

    def finish(self) -> None:
        """Do nothing: the progress bar was closed when the map ended."""


class ScriptHost(Host):
    """The host of a Python script: no runs are shown, nobody answers questions, and tools' output is not captured.

    Only a map is shown, as a progress bar, if stderr is a terminal.
    """

    takes_tools = False
    wake = None
    person = None
    notebook = None

    def capture(self, on_lines: Callable[[Callable[[], str]], None]) -> Capture | None:  # noqa: ARG002
        """Return None: the output of tools is not captured."""
        return None

    def view(self, session: Any) -> RunView | None:  # noqa: ARG002
        """Return None: a Python script shows no runs."""
        return None

    def map_view(self, session: Any) -> MapView | None:  # noqa: ARG002
        """Return a progress bar for a map if stderr is a terminal, else None."""
        return ScriptMapView() if sys.stderr is not None and sys.stderr.isatty() else None

    def serve_view(self, session: Any) -> ServedView | None:  # noqa: ARG002
        """Return None: a Python script shows no calls of MCP clients."""
        return None

    def join(self, session: Any) -> None:
        """Do nothing: in a Python script, the code names the cassette (recording) of each session."""

    def tell_undone(self, session: Any, *, redo: bool) -> bool:  # noqa: ARG002
        """Return False: a Python script shows nothing, so the session logs what it could not undo or redo."""
        return False

    def show_panel(self, session: Any) -> None:
        """Load the Jupyter extension, whose host shows the chat panel. Raises UsageError if this is not IPython."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if shell is None:
            raise UsageError(NOWHERE)
        shell.run_line_magic("load_ext", "agentmagic")
        current_host().show_panel(session)


_installed: list[Host] = [ScriptHost()]


def current_host() -> Host:
    """Return the front end that this process uses."""
    return _installed[0]


def install(host: Host) -> Host:
    """Set the front end that this process uses, and return the previous one."""
    before, _installed[0] = _installed[0], host
    return before


def begin_cell(cell: str = "") -> None:
    """Count an execution of the cell with the id `cell`.

    Sessions that the cell makes in this execution use the same recordings as in its last execution.
    """
    host = current_host()
    host.cell = (cell, host.cell[1] + 1)
