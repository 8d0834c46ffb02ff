"""Shows the runs that the user's code begins in a cell while they run, and displays results, turns and sessions."""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

from IPython.core.interactiveshell import InteractiveShell
from markupsafe import Markup

from agentmagic import settings
from agentmagic.display import html, terminal
from agentmagic.display.transcript import Transcript
from agentmagic.events import Event, RunResult, TurnFinished
from agentmagic.history.history import Turn
from agentmagic.host import begin_cell
from agentmagic.jupyter.cell import map_results
from agentmagic.jupyter.cell.map_cells import MapCellView
from agentmagic.jupyter.cell.runner import CellView
from agentmagic.jupyter.frontend import Kind, carries_out_cell, front_end, in_kernel, running_cell, say
from agentmagic.mapping.outcomes import MapResult
from agentmagic.mapping.run import MapRun
from agentmagic.messages import Message
from agentmagic.run import Run
from agentmagic.runtime.engine import engine
from agentmagic.session import Session
from agentmagic.widgets import commands

MOST_TURNS = 10
"""The number of turns, the last ones, in the display of a session."""
LONGEST_HTML = 2_000_000
"""Characters of HTML in the display of a session; if the last turns fill them, earlier turns are left out."""


class AnswerText(str):
    """The answer of `%agent ask`: a `str` that its cell does not display, because the cell shows the turn already."""

    __slots__ = ()


class LiveRuns:
    """Shows the runs and maps that the user's code begins in cells, each in the output of its cell.

    `in_cell` says whether a cell runs now.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        # Usually a cell loads the extension. The configuration of IPython can load it too, before any cell runs.
        self.in_cell = carries_out_cell(shell) or not in_kernel(shell)
        self._views: list[CellView] = []
        self._maps: list[MapCellView] = []
        self._shown_values: list[object] = []

    def load(self, at_unload: Callable[[Callable[[], object]], object]) -> None:
        """Register functions that IPython calls before and after each cell, and the display formatters.

        Passes `at_unload` the functions that unregister them.
        """
        shell = cast("Any", self._shell)
        for event, function in (("pre_run_cell", self._enter), ("post_run_cell", self._leave)):
            shell.events.register(event, function)
            at_unload(lambda event=event, function=function: shell.events.unregister(event, function))
        formatters, silent = shell.display_formatter.formatters, shell.display_formatter.ipython_display_formatter
        for kind, write in _DISPLAYS.items():
            formatters["text/html"].for_type(kind, write)
            at_unload(lambda kind=kind: formatters["text/html"].pop(kind, None))
        for kind in (MapResult, MapRun):
            for form in ("text/html", "text/plain"):
                formatters[form].for_type(kind, partial(self._map_as, form))
                at_unload(partial(formatters[form].pop, kind, None))
        formatters["text/plain"].for_type(RunResult, self._result_as_text)
        at_unload(lambda: formatters["text/plain"].pop(RunResult, None))
        for kind in (Run, RunResult, AnswerText, Message, MapRun):
            silent.for_type(kind, self._display_once)
            at_unload(lambda kind=kind: silent.pop(kind, None))

    def view(self, session: Session) -> CellView | None:
        """Return a view that shows a new run in the running cell.

        Return None if no cell is running, if a tool or another thread begins the run, or if the user's settings turn
        such views off.
        """
        if not self._shows():
            return None
        view = CellView(front_end(self._shell), session)
        self._views.append(view)
        return view

    def map_view(self, session: Session) -> MapCellView | None:
        """Return a view that shows a new map in the running cell; None in the cases in which `view` returns None."""
        if not self._shows():
            return None
        variables: dict[str, Any] = dict(cast("Any", self._shell).user_ns)
        names = (name for name, value in variables.items() if value is session and name[0] != "_")
        view = MapCellView(front_end(self._shell), owner=next(names, "session"))
        self._maps.append(view)
        return view

    def _shows(self) -> bool:
        here = threading.current_thread() is threading.main_thread()
        return here and self.in_cell and not engine().main.working and settings.shows_runs()

    def mark_shown(self, value: object) -> None:
        """Record that the running cell has shown a value, so that it is not displayed again."""
        self._shown_values.append(value)

    def tell_undone(self, session: Session, *, redo: bool) -> None:
        """Print the outcome of an undo or redo that the user's code has called.

        IPython then does not display the prompt that the call returns.
        """
        say(commands.undo_report(session, redo=redo))
        if session.undone is not None and session.undone.prompt is not None:
            self.mark_shown(session.undone.prompt)

    def _enter(self, _info: object) -> None:
        self.in_cell = True
        self._views, self._maps, self._shown_values = [], [], []
        begin_cell(running_cell(self._shell))

    def _leave(self, _result: object) -> None:
        """Write the static output of runs and maps that are over. Maps that still run write their output later.

        Programs that run notebooks accept no output after the end of the cell.
        """
        self.in_cell = False
        for view in self._views:
            if view.run is not None and view.run.done:
                view.finish()
        for view in self._maps:
            if view.run is not None and view.run.done:
                view.finish()
            else:
                view.finish_later()

    def _map_as(self, form: str, value: MapResult | MapRun, printer: Any = None, _cycle: object = None) -> str:
        """Return the result of a map in the MIME type `form`, and print it if IPython passes a printer.

        The progress of the map is left out if the running cell shows it already.
        """
        result = value.so_far() if isinstance(value, MapRun) else value
        has_progress = any(view.shows(result) for view in self._maps)
        times = front_end(self._shell).kind is not Kind.BATCH
        text = map_results.bundle(result, times=times, table_only=has_progress)[form]
        if printer is not None:
            printer.text(text or repr(value))
        return text

    def _result_as_text(self, result: RunResult, printer: Any, _cycle: object) -> None:
        """Print one line about a result, or the whole turn if the front end shows no HTML."""
        is_text = front_end(self._shell).kind is Kind.TEXT
        printer.text(terminal.render(_turn(result), prompt=True) if is_text else repr(result))

    def _display_once(self, value: object) -> None:
        """Display nothing if the running cell shows the value already.

        Raises NotImplementedError otherwise, so that IPython asks the other formatters.
        """
        runs = [view.run for view in self._views if view.run is not None]
        maps = [view.run for view in self._maps]
        results = [run.events[-1].result for run in runs if run.done and isinstance(run.events[-1], TurnFinished)]
        if not any(value is one for one in (*self._shown_values, *runs, *results, *maps)):
            raise NotImplementedError


def _turn(result: RunResult) -> Transcript:
    return Transcript((*result.events, TurnFinished(result)))


def _page(events: Iterable[Event]) -> Markup:
    return html.render(Transcript(events), prompt=True)


def _page_of_session(session: Session) -> str:
    """Return a session's last turns as HTML, below a line that describes the session."""
    pages: list[Markup] = []
    turns: Sequence[Turn] = session.turns
    for turn in reversed(turns[-MOST_TURNS:]):
        if sum(map(len, pages)) < LONGEST_HTML:
            pages.insert(0, _page(turn.events))
    left_out = len(turns) - len(pages)
    note = f" The first {left_out} are left out: %agent history lists all." if left_out else ""
    return Markup("<p><small>{}</small></p>").format(f"{session!r}{note}") + Markup().join(pages)


_DISPLAYS: dict[type, Callable[[Any], str]] = {
    RunResult: lambda result: html.render(_turn(result), prompt=True),
    Turn: lambda turn: _page(turn.events),
    Run: lambda run: _page(run.events),
    Session: _page_of_session,
}
