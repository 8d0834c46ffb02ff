"""Shows the calls of a served notebook's clients in the cell that serves it, also when the cell is over."""

import threading
from pathlib import Path

from agentmagic.events import Event, Intent, TurnFinished
from agentmagic.host import ServedView
from agentmagic.jupyter.cell.questions import Questions
from agentmagic.jupyter.cell.screens import screen_of
from agentmagic.jupyter.frontend import FrontEnd, Kind
from agentmagic.run import Run
from agentmagic.runtime.engine import engine, in_thread
from agentmagic.serve import limits


class ServedCellView(ServedView):
    """Shows the turns of calls one below the other. `place` is the name of the notebook, and its folder."""

    place: tuple[str, Path]

    def __init__(self, front: FrontEnd, place: tuple[str, Path]) -> None:
        self.place = place
        self._front = front
        self._screen = screen_of(front)
        self._run: Run | None = None
        self._shown = 0
        self._leaving = threading.Lock()
        self._screen.begin(self._answer)

    @property
    def attended(self) -> bool:
        """Whether the user can answer: on a card, or by typing while the cell waits for calls."""
        return self._front.attended and (self._front.kind is Kind.LIVE or engine().main.serving)

    def begin(self, run: Run) -> None:
        """Show a run below the earlier ones. After `CALLS_SHOWN` calls the view begins anew."""
        self._run = run
        self._shown += 1
        if self._shown > limits.CALLS_SHOWN:
            self._shown = 1
            self._screen.restart()
        self._screen.go_on()
        run.listen(self._feed)
        if self._front.attended:
            run.listen(Questions(run, self._typed, brief=self._front.kind is Kind.LIVE).feed)

    def finish(self) -> None:
        """Leave the static output of the calls so far."""
        with self._leaving:
            self._screen.finish()

    def _feed(self, event: Event) -> None:
        self._screen.feed(event)
        if isinstance(event, TurnFinished) and self._front.kind is not Kind.BATCH:
            in_thread(self.finish, "agentmagic-html")  # rendering would delay the engine

    def _answer(self, intent: Intent) -> None:
        if self._run is not None:
            self._run.pass_on(intent)

    async def _typed(self) -> str | None:
        """Return why answers are typed, None if they are clicked: while no cell runs, every page sends clicks."""
        return await self._screen.typed() if engine().main.serving else None
