"""A served session, from `serve` until its end: the server, its token, the view of its calls; or their replay."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Protocol

from agentmagic.approval.approvals import Approvals
from agentmagic.context.request_view import RequestView
from agentmagic.host import ServedView, installed
from agentmagic.loop.turn_options import Driver
from agentmagic.runtime.engine import engine
from agentmagic.serve import kernels, limits
from agentmagic.serve.client_model import ClientModel
from agentmagic.serve.desk import Page
from agentmagic.serve.server import Server
from agentmagic.serve.session_desk import CALLS, Asking, ServedTurn, SessionDesk
from agentmagic.text import counted, listed
from agentmagic.tools.base import Toolset
from agentmagic.tools.notebook import NotebookTools
from agentmagic.tools.notebook.cells import read_cells

CELLS = "notebook://cells"
CONVERSATION = "notebook://conversation"
MOVED = "The calls are shown in another cell now, in which the notebook was served again."
STOPPED = "The notebook is no longer served."
"""Why a cell shows no more calls."""


class ServedSession(Protocol):
    """The session that is served."""

    @property
    def running(self) -> ServedTurn | None:
        """The turn that is under way, None without one."""
        ...

    @property
    def is_on_tape(self) -> bool:
        """Whether its turns come from a tape alone, and none from a client."""
        ...

    def toolsets(self) -> Sequence[Toolset]:
        """Return its own sources of tools."""
        ...

    def begin_served(self, prompt: str, driver: Driver, toolsets: Sequence[Toolset], *, attended: bool) -> ServedTurn:
        """Begin a turn that a client drives. Raises SessionBusy, and UsageError."""
        ...

    def next_served(self) -> str | None:
        """Return the prompt of the call that a replay plays next, None if the next turn is another one."""
        ...


class Serving:
    """A session that is served over MCP; `stop` ends that, and so does the end of the kernel.

    With `tools`, clients may call the session's own too. `conversation` returns it as Markdown.
    """

    def __init__(self, session: ServedSession, conversation: Callable[[], str], *, tools: bool) -> None:
        self._session = session
        self._tools = tools
        pages = (
            Page(CELLS, "Cells", "The cells of the notebook, with their outputs.", "text/markdown", _cells),
            Page(
                CONVERSATION,
                "Conversation",
                "What was said and done in this session, the calls of clients included.",
                "text/markdown",
                lambda: engine().in_pool(lambda: conversation()[-limits.PAGE_TEXT :]),
            ),
        )
        self._desk = SessionDesk(self, pages)
        self._token = ""
        self._view: ServedView | None = None
        self._turn: ServedTurn | None = None
        self._showing = threading.Lock()
        self._cell = copy_context()
        self._over: Future[None] = Future()
        self._playing = threading.Lock()

    # -- what the user sees --------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address of the MCP endpoint, "" in a replay and after the end."""
        return _server().url if self._token else ""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of the clients that have made calls."""
        return self._desk.clients

    @property
    def ended(self) -> bool:
        """Whether it was stopped."""
        return self._over.done()

    @property
    def place(self) -> tuple[str, Path]:
        """The name of the notebook, "" if it is not known, and its folder."""
        return ("", Path.cwd()) if self._view is None else self._view.place

    def __repr__(self) -> str:
        name, folder = self.place
        clients = f", {counted(len(self.clients), 'client')}: {listed(self.clients)}" if self.clients else ""
        state = "over" if self.ended else f"at {self.url}" if self.url else "on the tape"
        return f"<Serving {name or folder}: {state}{clients}>"

    def begin(self) -> None:
        """Show the calls in the running cell from now on, and serve the session, or play its recorded calls."""
        is_on_tape = not self._token and self._session.is_on_tape
        if is_on_tape or (not self._token and self._session.next_served() is not None):
            self._show_recorded()
            self.play_recorded()
        if is_on_tape:
            return
        with self._showing:  # a call that comes meanwhile is shown in this cell
            before, self._view = self._view, installed().serve_view(self._session)
            if not self._token:
                engine().call(self._open())
            self._cell = copy_context()
            if before is not None:
                before.close(MOVED)
            if self._view is not None:
                self._view.show(recorded=False)
                if self._turn is not None and not self._turn.settled.done():
                    self._view.begin(self._turn)

    def wait(self) -> None:
        """Wait in synchronous code until it is stopped; the main thread carries out the calls meanwhile."""
        if self._token:
            engine().wait(self._over, self.stop)

    def stop(self) -> None:
        """Serve no longer: open calls end, the token opens nothing any more; may be called twice."""
        self.play_recorded()
        if self._token:
            kernels.remove()
            engine().forget(self._close)
            engine().submit(self._close())
        elif not self._over.done():
            self._over.set_result(None)
        self._close_view(STOPPED)

    # -- for the session and the desk ----------------------------------------------------------

    def play_recorded(self) -> None:
        """In a replay, play the calls of clients that come next on the tape, and show them in the running cell.

        Raises what a replayed turn raises.
        """
        if self._token or self.ended or not self._playing.acquire(blocking=False):
            return
        try:
            while (prompt := self._session.next_served()) is not None:
                if self._view is None:
                    self._show_recorded()
                driver = Driver(ClientModel(prompt.rpartition(CALLS)[0]), Approvals(), RequestView(), _ask_no_one)
                self.start(prompt, driver).wait()
            self._close_view("")
        finally:
            self._playing.release()

    @property
    def running(self) -> ServedTurn | None:
        """The turn that is under way in the session."""
        return self._session.running

    def start(self, prompt: str, driver: Driver) -> ServedTurn:
        """Begin a turn that a client drives, and show it. Raises SessionBusy, and UsageError."""
        begin, sources = self._session.begin_served, self.sources()
        driver = replace(driver, attended=lambda: engine().in_pool(self._is_attended))
        with self._showing:
            # What the turn shows belongs to the cell that serves, wherever the call came in.
            cell, view = self._cell.copy(), self._view
            turn = self._turn = cell.run(lambda: begin(prompt, driver, sources, attended=bool(self._token)))
            if view is not None:
                cell.run(lambda: view.begin(turn))
        return turn

    def sources(self) -> Sequence[Toolset]:
        """Return the notebook's tools, the one that asks, and the session's own if they are served."""
        own = self._session.toolsets() if self._tools else ()
        has_notebook = installed().notebook is not None and not any(isinstance(one, NotebookTools) for one in own)
        return (*((NotebookTools(),) if has_notebook else ()), Asking(), *own)

    def _is_attended(self) -> bool:
        view = self._view
        return view is not None and bool(self._token) and view.attended

    def _show_recorded(self) -> None:
        """Show the calls that are played in the running cell."""
        self._view, self._cell = installed().serve_view(self._session), copy_context()
        if self._view is not None:
            self._view.show(recorded=True)

    def _close_view(self, why: str) -> None:
        view, self._view = self._view, None
        if view is not None:
            view.close(why)

    async def _open(self) -> None:
        token = await _server().open(self._desk)
        name, folder = self.place
        try:
            await engine().in_pool(lambda: kernels.write(kernels.ServedKernel.here(_server().url, token, name, folder)))
        except BaseException:
            await _server().close(token)
            raise
        self._token = token
        engine().at_close(self._close)

    async def _close(self) -> None:
        token, self._token = self._token, ""
        try:
            if token:
                await _server().close(token)
        finally:
            if not self._over.done():
                self._over.set_result(None)


@cache
def _server() -> Server:
    """Return the server of this process, at one address for all that is served."""
    server = Server()
    engine().at_close(server.aclose)
    return server


async def _cells() -> str:
    """Return the cells of the notebook as text, as the tool that reads them does."""
    notebook = installed().notebook
    if notebook is None:
        return "(no notebook)"
    return await engine().main.run(lambda: read_cells(notebook, limits.PAGE_TEXT))


async def _ask_no_one(_question: str) -> None:
    """Return None: a tape asks no client."""
