"""Runs `%%agent --map` cells, and shows maps in cells. A map asks one prompt for each row of a data frame or list."""

import asyncio
import contextvars
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from IPython.display import clear_output

from agentmagic.display import terminal
from agentmagic.display.printout import printout
from agentmagic.display.transcript import Transcript
from agentmagic.errors import AgentMagicError, UsageError, with_code
from agentmagic.events import Event, MapProgress
from agentmagic.host import MapView
from agentmagic.jupyter.cell import map_results
from agentmagic.jupyter.cell.answers import AnswerVariable
from agentmagic.jupyter.cell.runner import CellSetup, Runner, TurnInterrupted
from agentmagic.jupyter.cell.screens import FallbackScreen, TurnScreen, screen_of
from agentmagic.jupyter.cell.turn_queue import QueuedTurn, TurnQueue, queue_of
from agentmagic.jupyter.frontend import FrontEnd, Kind, publisher, say
from agentmagic.jupyter.magics import formatting
from agentmagic.jupyter.magics.options import Ask
from agentmagic.jupyter.notebook.namespace import Namespace
from agentmagic.jupyter.prompt.references import prompt_of
from agentmagic.mapping.options import MapSettings
from agentmagic.mapping.outcomes import MapResult
from agentmagic.mapping.run import MapRun
from agentmagic.runtime.engine import engine, in_thread
from agentmagic.terminal_bar import TerminalBar
from agentmagic.text import did_you_mean
from agentmagic.widgets.commands import ASK_ROWS

if TYPE_CHECKING:
    from agentmagic.widgets.view import View


class BarScreen(TurnScreen):
    """Shows a progress bar in a terminal while a map runs, and prints the outcome."""

    def __init__(self) -> None:
        self._bar = TerminalBar(sys.stderr) if sys.stderr.isatty() else None
        self.restart()

    def restart(self) -> None:
        """Begin with an empty transcript."""
        self.transcript = Transcript()

    def feed(self, event: Event | MapProgress) -> None:
        """Add an event of the map to the transcript, and redraw the bar if the event has the progress."""
        self.transcript.feed(event)
        if (bar := self._bar) is not None and isinstance(event, MapProgress):
            bar.show(event)

    def close_bar(self) -> None:
        """Stop drawing the bar at the end of the cell, because the terminal's prompt now stands in the next line."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()

    def finish(self) -> None:
        """Print the outcome of the map."""
        self.close_bar()
        say(terminal.render(self.transcript))


class MapCellView(MapView):
    """Shows a map in the running cell.

    `owner` is the name of the session's variable. If the map is stopped, a printed message says that the rows are in
    `last_map` of this variable. If `owner` is "", no message is printed. With the `setup` of a `%%agent` cell, a button
    asks the failed rows again.
    """

    def __init__(
        self, front: FrontEnd, *, owner: str = "", large: bool = False, setup: CellSetup | None = None
    ) -> None:
        self.run: MapRun | None = None
        self._front = front
        self._owner = owner
        self._setup = setup
        self._queue: TurnQueue | None = None
        self._context = contextvars.copy_context()  # in this context, IPython sends printed text to this cell
        self._bar = BarScreen() if front.kind is Kind.TEXT else None
        self._screen = screen_of(front, large=large) if self._bar is None else FallbackScreen(self._bar)
        self._lock = threading.Lock()
        self._over = False

    def begin(self, run: MapRun) -> None:
        """Show the progress of a map. If the screen has a Stop button, the button stops the map."""
        self.run = run
        self._screen.begin(lambda _intent: run.stop())
        run.listen(self._screen.feed)

    def finish(self) -> None:
        """Write the static output, and print messages about the map below it. Calls after the first have no effect."""
        engine().call(asyncio.sleep(0))  # wait until the screen has received all earlier events of the map
        self._leave()

    def finish_later(self, then: Callable[[], None] = lambda: None) -> None:
        """Return at once. When the map is over, write the static output and call `then`."""

        def finish() -> None:
            self._leave()
            then()

        def over(_future: object) -> None:
            in_thread(finish, "agentmagic-html")  # in a thread, because rendering would delay the engine

        if self._bar is not None:
            self._bar.close_bar()
        if self.run is not None:
            engine().loop.call_soon_threadsafe(self.run.settled.add_done_callback, over)

    def shows(self, result: MapResult) -> bool:
        """Return whether this view shows the progress of the map that has this result."""
        return self.run is not None and self.run.progress.id == result.progress.id

    def _leave(self) -> None:
        with self._lock:
            if self._over or self.run is None:
                return
            self._over = True
            can_ask = self._setup is not None and self.run.work_again() is not None
            self._screen.offer_retry(self._ask_again if can_ask else None, ASK_ROWS)
            self._screen.finish()
            for line in map_results.summary(self.run.so_far(), times=self._front.kind is not Kind.BATCH):
                say(line)
            if self._owner and self.run.progress.ended == "stopped":
                say(f"{self._owner}.last_map has the rows until there.")

    def _ask_again(self, view: "View") -> None:
        """Queue a map that asks the failed rows again, as soon as the session and the main thread are free."""
        setup = cast("CellSetup", self._setup)
        self._queue = self._queue or queue_of(setup.session, view)
        begin = partial(self._run_again, setup)
        self._queue.add_once(QueuedTurn(partial(self._context.copy().run, begin), ""))

    def _run_again(self, setup: CellSetup) -> None:
        """Begin the map again with its failed rows, and show it in place of the cell's output."""
        run = setup.session.begin_map_again(cast("MapRun", self.run))
        clear_output(wait=True)
        self._screen.restart()
        self._over = False
        self.begin(run)
        self.finish_later(partial(_hand_over_rows, run, setup))


def _hand_over_rows(run: MapRun, setup: CellSetup) -> None:
    """Bind or show the rows of a map that was run again, and say why it ended if it failed."""
    _hand_over(run.so_far(), setup)
    try:
        run.result()
    except AgentMagicError as error:
        say(with_code(error))


def run_map(runner: Runner, namespace: Namespace, command: Ask, body: str) -> None:
    """Ask the prompt `body` for each row of the variable `command.rows`.

    Binds the result, as a data frame, to the variable of `-o`, or shows its first rows. Raises TurnInterrupted if the
    user interrupts. Raises the error that ended the map, unless `--keep-going` is given and some rows were asked.
    """
    rows = _rows(command.rows or "", namespace.variables)
    setup = runner.prepare(command)
    toolsets = runner.toolsets(setup.session, command, setup.recipe)
    attachables = namespace.attachables(setup.session, setup.recipe)
    # Not evaluated: `{name}` in a map stands for a column, whose value the map fills in for each row.
    typed_prompt = prompt_of(body, toolsets, attachables, evaluate=False, images=command.image)
    for problem in typed_prompt.problems:
        say(problem)
    settings = MapSettings(agent=setup.recipe, as_=setup.settings.output, **command.options_for(MapSettings))
    if command.show:
        session = setup.session.fork(0) if command.new else setup.session
        preview, values = session.preview_of_map(rows, typed_prompt.prompt, settings, toolsets)
        first = formatting.preview(preview, (*values, *typed_prompt.prompt_values))
        say(printout(f"The first row of {command.rows}:", *first.groups))
        return
    view = MapCellView(setup.front, large=command.large, setup=setup)
    try:
        with engine().main.mark_busy():
            run = setup.session.begin_map(rows, typed_prompt.prompt, settings, toolsets=toolsets, view=view)
            result = run.wait()
    except KeyboardInterrupt:
        raise TurnInterrupted(_give_up(view, setup)) from None
    except AgentMagicError as error:
        partial = cast("MapResult | None", error.result)
        if partial is None or not partial.rows:
            raise
        _hand_over(partial, setup)
        is_in_card = any(reason in str(error) for reason, _ in partial.progress.errors)
        # A program that runs notebooks (kind BATCH) logs only the exception, so this must have the whole message.
        error.is_shown = is_in_card and setup.front.kind is not Kind.BATCH
        if not command.keep_going:
            raise
        if not is_in_card:
            say(str(error))
    else:
        _hand_over(result, setup)


def _rows(name: str, variables: Mapping[str, Any]) -> object:
    if name not in variables:
        hint = did_you_mean(name, [one for one in variables if not one.startswith("_")])
        raise UsageError(f"--map {name} is no variable of the notebook.{hint} Name a data frame or a list.")
    return variables[name]


def _hand_over(result: MapResult, setup: CellSetup) -> None:
    """Bind the data frame of a map's result to the variable of `-o`, or show its first rows below the progress."""
    if setup.answer is not None:
        _bind(setup.answer, result)
        return
    data = map_results.bundle(result, times=setup.front.kind is not Kind.BATCH, table_only=True)
    if data["text/plain"]:
        publisher(setup.front.shell, None)(data, False)


def _bind(answer: AnswerVariable, result: MapResult) -> None:
    """Bind the data frame of a map's result. A map that ended early without an answer changes nothing."""
    if result.ended != "done" and not result.progress.answered:
        say(f"{answer.name} stays as it was: no row is answered.")
        return
    try:
        answer.bind_value(result.frame)
    except UsageError as error:  # no data frame: the rows come from a list, and pandas is not installed
        answer.bind_value(result, f" {error}")


def _give_up(view: MapCellView, setup: CellSetup) -> str:
    """Bind the rows that were answered before the user interrupted a map. Return the message for the user."""
    run = view.run
    if run is None:
        return "no row was asked."
    if not run.done:  # the user interrupted a second time, while rows were still being answered
        view.finish_later()
    result = run.so_far()
    if setup.answer is not None and result.rows:
        _bind(setup.answer, result)
    progress = result.progress
    of = "" if progress.total is None else f" of {progress.total:,}"
    warning = "No file keeps them without --to: run again, the cell asks all rows."
    advice = "Run the cell again to go on." if progress.file else warning
    return f"{progress.answered:,}{of} rows are answered. {advice}"
