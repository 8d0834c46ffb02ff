"""Shows the calls of MCP clients to a served notebook, in the output of the cell that serves the notebook."""

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

from markupsafe import Markup

from agentmagic.display.elements import MUTED, element, fold, pasted
from agentmagic.events import Event, Intent, TurnFinished, TurnStarted
from agentmagic.host import ServedView
from agentmagic.jupyter.cell.questions import Questions
from agentmagic.jupyter.cell.screens import screen_of
from agentmagic.jupyter.frontend import FrontEnd, Kind, publisher, say
from agentmagic.run import Run
from agentmagic.runtime.engine import engine, in_thread
from agentmagic.serve import limits
from agentmagic.serve.clients import client_lines
from agentmagic.text import join_names, sanitize

RECORDED = "The recorded calls of clients are played. Nothing is served in a replay."
UNATTENDED = "The notebook is served over MCP. No one is here to approve: what no rule allows is denied."
PASTE = "Paste the line of your agent into a terminal."
CARDS = "Each of its calls is shown below, and what runs code waits for your yes."
END = "%agent serve stop ends it."
NO_CLIENT = "No client has called yet."

ROWS = "display:grid;grid-template-columns:max-content minmax(0,1fr);gap:4px 12px;align-items:baseline;margin:6px 0"


class ServedCellView(ServedView):
    """Shows how MCP clients connect to the served notebook, and below that one turn for each of their calls.

    The view continues to show calls after its cell has ended. `place` is the file name of the notebook ("" if it is
    unknown) and its folder.
    """

    place: tuple[str, Path]

    def __init__(self, front: FrontEnd, place: tuple[str, Path]) -> None:
        self.place = place
        self._front = front
        self._publish = publisher(front.shell, uuid.uuid4().hex)
        self._screen = screen_of(front)
        self._run: Run | None = None
        self._clients: dict[str, None] = {}
        self._is_replay = False
        self._call_count = 0
        self._leaving = threading.Lock()

    @property
    def attended(self) -> bool:
        """Whether the user can answer now: by a click in a browser page, or by typing while a cell waits for calls."""
        types = engine().main.serving
        if not self._front.attended or self._front.kind is not Kind.LIVE:
            return self._front.attended and types
        from agentmagic.widgets.view import has_page

        if not (self._front.reachable or types):  # clicks arrive only after the running cell ends: wait for its end
            engine().call(engine().main.run(lambda: None))
        # The user can click if a browser page draws views. Without a page, the user can type in a cell that waits.
        return has_page() or (types and not self._screen.is_drawn)

    def show(self, *, recorded: bool) -> None:
        """Show how MCP clients connect, or that recorded calls are replayed. Cards for the calls follow below it."""
        self._is_replay = recorded
        if self._front.kind is Kind.LIVE:
            self._publish(self._heading(), False)
        else:
            say(self._heading()["text/plain"])
        self._screen.begin(self._answer)
        if self._front.kind is Kind.LIVE:
            self._screen.rest()

    def begin(self, run: Run) -> None:
        """Show the run of a client's call below earlier ones. After too many calls (CALLS_SHOWN), clear the view."""
        self._run = run
        self._call_count += 1
        if self._call_count > limits.CALLS_SHOWN:
            self._call_count = 1
            self._screen.restart()
        self._screen.go_on()
        run.listen(self._feed)
        if self._front.attended:
            run.listen(Questions(run, self._typing_reason, brief=self._front.kind is Kind.LIVE).feed)

    def close(self, why: str) -> None:
        """Write the static output of the clients' calls so far, and show `why`: the reason no more calls follow."""
        if why and self._front.kind is Kind.LIVE:
            self._publish(self._heading(why), True)
        with self._leaving:
            self._screen.finish()

    def _feed(self, event: Event) -> None:
        self._screen.feed(event)
        if isinstance(event, TurnStarted) and event.client not in self._clients:
            self._clients[event.client] = None
            if self._front.kind is Kind.LIVE:
                in_thread(lambda: self._publish(self._heading(), True), "agentmagic-html")
        if isinstance(event, TurnFinished) and self._front.kind is not Kind.BATCH:
            in_thread(self._rest, "agentmagic-html")  # in a thread, because rendering would delay the engine

    def _rest(self) -> None:
        with self._leaving:
            if self._run is None or self._run.over:  # otherwise the screen shows the next call already
                self._screen.rest()

    def _answer(self, intent: Intent) -> None:
        if self._run is not None:
            self._run.pass_on(intent)

    async def _typing_reason(self) -> str | None:
        """Return why the user must type answers, or None if the user can click, as always while no cell runs."""
        return await self._screen.typing_reason() if engine().main.serving else None

    # -- how clients join ----------------------------------------------------------------------

    def _heading(self, over: str = "") -> dict[str, str]:
        """Return the heading above the clients' calls as a MIME bundle; `over` says why no more calls follow."""
        callers = f"Called by {sanitize(join_names(list(self._clients)))}." if self._clients else ""
        first = over or self._first()
        if over or self._is_replay or not self._front.attended:
            text = " ".join(filter(None, (first, callers)))
            return {"text/html": _div(element("p", text, style=MUTED)), "text/plain": text}
        rows = list(client_lines(self.place[0]))
        text = "\n".join(
            (f"{first} {PASTE} {CARDS}", *(f"{name}:\n{line}" for name, line in rows), f"{NO_CLIENT} {END}")
        )
        grid = element("div", *_cells(rows), style=ROWS)
        if not self._clients:
            head = element("p", element("b", first), f" {PASTE} {CARDS}", style="margin:4px 0")
            return {"text/html": _div(head, grid, _small(f"{NO_CLIENT} {END}")), "text/plain": text}
        head = element("p", element("b", first), f" {callers} ", _small(END), style="margin:4px 0")
        how = fold(element("small", "Join with another agent"), grid, look=f"cursor:pointer;{MUTED}")
        return {"text/html": _div(head, how), "text/plain": f"{first} {callers} {END}"}

    def _first(self) -> str:
        if self._is_replay or not self._front.attended:
            return RECORDED if self._is_replay else UNATTENDED
        name, folder = self.place
        return f"{sanitize(name or f'The kernel in {folder}')} is served over MCP."


def _cells(rows: list[tuple[str, str]]) -> Iterator[Markup]:
    for name, line in rows:
        yield _small(name)
        yield pasted(sanitize(line))


def _small(text: str) -> Markup:
    return element("small", text, style=MUTED)


def _div(*content: Markup) -> Markup:
    return element("div", *content, more=' class="agentmagic mathjax_ignore"')
