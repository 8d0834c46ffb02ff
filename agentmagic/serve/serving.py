"""A served session, from `serve` until its end: the server, its token, the view of its calls; or their replay."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
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
        self._cell = copy_context()
        self._over: Future[None] = Future()
        self._playing = threading.Lock()

    # -- what the user sees --------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address of the MCP endpoint, "" in a replay and after the end."""
        return shared_server().url if self._token else ""

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
        self._view = installed().serve_view(self._session)
        self._cell = copy_context()
        if not self._token:
            self.play_recorded()
        if not self._token and not self._session.is_on_tape:
            engine().call(self._open())

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
        if self._view is not None:
            self._view.finish()

    # -- for the session and the desk ----------------------------------------------------------

    def play_recorded(self) -> None:
        """In a replay, play the calls of clients that come next on the tape.

        Raises what a replayed turn raises.
        """
        if self._token or self.ended or not self._playing.acquire(blocking=False):
            return
        try:
            while (prompt := self._session.next_served()) is not None:
                driver = Driver(ClientModel(prompt.rpartition(CALLS)[0]), Approvals(), RequestView(), _ask_no_one)
                self.start(prompt, driver).wait()
            if self._view is not None:
                self._view.finish()
        finally:
            self._playing.release()

    @property
    def running(self) -> ServedTurn | None:
        """The turn that is under way in the session."""
        return self._session.running

    def start(self, prompt: str, driver: Driver) -> ServedTurn:
        """Begin a turn that a client drives, and show it. Raises SessionBusy, and UsageError."""
        view = self._view
        attended = view is not None and view.attended and bool(self._token)
        begin, sources = self._session.begin_served, self.sources()
        # What the turn shows belongs to the cell that serves, wherever the call came in.
        turn = self._cell.copy().run(lambda: begin(prompt, driver, sources, attended=attended))
        if view is not None:
            view.begin(turn)
        return turn

    def sources(self) -> Sequence[Toolset]:
        """Return the notebook's tools, the one that asks, and the session's own if they are served."""
        own = self._session.toolsets() if self._tools else ()
        has_notebook = installed().notebook is not None and not any(isinstance(one, NotebookTools) for one in own)
        return (*((NotebookTools(),) if has_notebook else ()), Asking(), *own)

    async def _open(self) -> None:
        token = await shared_server().open(self._desk)
        name, folder = self.place
        try:
            kernel = kernels.ServedKernel.here(shared_server().url, token, name, folder)
            await engine().in_pool(lambda: kernels.write(kernel))
        except BaseException:
            await shared_server().close(token)
            raise
        self._token = token
        engine().at_close(self._close)

    async def _close(self) -> None:
        token, self._token = self._token, ""
        try:
            if token:
                await shared_server().close(token)
        finally:
            if not self._over.done():
                self._over.set_result(None)


@cache
def shared_server() -> Server:
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
