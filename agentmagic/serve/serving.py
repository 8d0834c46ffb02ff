"""A served session, from `serve` until its end: the server, its token, the view of its calls; or their replay."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from agentmagic import traces
from agentmagic.approval.approvals import Approvals
from agentmagic.context.request_view import RequestView
from agentmagic.errors import AgentMagicError, CassetteError, ReplayMismatch, UsageError
from agentmagic.host import ServedView, installed
from agentmagic.loop.turn_options import TurnDriver
from agentmagic.messages import ToolCall
from agentmagic.runtime.engine import Caller, caller, engine
from agentmagic.serve import limits
from agentmagic.serve.client_model import ClientModel
from agentmagic.serve.desk import Page
from agentmagic.serve.session_desk import CALLS, Asking, ServedTurn, SessionDesk
from agentmagic.text import counted, listed
from agentmagic.tools.base import Toolset
from agentmagic.tools.notebook import NotebookTools
from agentmagic.tools.notebook.cells import read_cells

if TYPE_CHECKING:
    from agentmagic.serve.kernels import ServedKernel
    from agentmagic.serve.server import Server

T = TypeVar("T")

CELLS = "notebook://cells"
CONVERSATION = "notebook://conversation"
MOVED = "The calls are shown in another cell now, in which the notebook was served again."
STOPPED = "The notebook is no longer served."
"""Why a cell shows no more calls."""


class BeginTurn(Protocol):
    """Begins a turn that a client drives. Raises SessionBusy, and UsageError."""

    def __call__(self, prompt: str, driver: TurnDriver, toolsets: Sequence[Toolset], *, attended: bool) -> ServedTurn:
        """Begin it, with these tools; a call that asks is denied if it is not `attended`."""
        ...


@dataclass(frozen=True, slots=True)
class ServedSession:
    """What is asked of the session that is served.

    `running` returns the turn that is under way. `is_on_tape` returns whether its turns come from a tape alone, and
    `next_recorded` the prompt and the call of the client's turn that a replay plays next, None if that is another one.
    `toolsets` returns the session's own sources of tools, and `view` a place where calls are shown from now on.
    """

    running: Callable[[], ServedTurn | None]
    is_on_tape: Callable[[], bool]
    next_recorded: Callable[[], tuple[str, ToolCall | None] | None]
    toolsets: Callable[[], Sequence[Toolset]]
    view: Callable[[], ServedView | None]
    begin: BeginTurn


class ShownCalls:
    """Where calls are shown: a view, None in a script, and the context of the cell in which this was made."""

    def __init__(self, view: ServedView | None) -> None:
        self.view = view
        self._cell = copy_context()
        self._cell.run(caller.set, Caller.here())  # else a tool of a call would not wait while a cell runs
        self._closed = False

    def in_cell(self, function: Callable[[], T]) -> T:
        """Call a function as if the cell called it."""
        return self._cell.copy().run(function)

    def begin(self, *, recorded: bool = False) -> None:
        """Show how clients join, or that recorded calls are played."""
        if self.view is not None:
            self.view.show(recorded=recorded)

    def show(self, turn: ServedTurn) -> None:
        """Show the turn of a call."""
        if (view := self.view) is not None:
            self.in_cell(lambda: view.begin(turn))

    def close(self, why: str) -> None:
        """Show no further calls, and say why; may be called twice."""
        closed, self._closed = self._closed, True
        if self.view is not None and not closed:
            self.view.close(why)


class Serving:
    """A session that is served over MCP; `stop` ends that, and so does the end of the kernel.

    While `tools` is True, clients may call the session's own too. `conversation` returns it as Markdown.
    """

    def __init__(self, session: ServedSession, conversation: Callable[[], str]) -> None:
        self._session = session
        self.tools = False
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
        self._shown = self._played = ShownCalls(None)
        self._turn: ServedTurn | None = None
        self._showing = threading.Lock()
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
        view = self._shown.view
        return ("", Path.cwd()) if view is None else view.place

    def __repr__(self) -> str:
        name, folder = self.place
        clients = f", {counted(len(self.clients), 'client')}: {listed(self.clients)}" if self.clients else ""
        state = "over" if self.ended else f"at {self.url}" if self.url else "on the tape"
        return f"<Serving {name or folder}: {state}{clients}>"

    def begin(self) -> None:
        """Show the calls in the running cell from now on, and serve the session, or play its recorded calls."""
        is_on_tape = self._session.is_on_tape()
        self.play_recorded(in_any_case=is_on_tape)
        if is_on_tape:
            return
        with self._showing:  # a call that comes meanwhile is shown in this cell
            before, self._shown = self._shown, self._here()
            if not self._token:
                engine().call(self._open())
            before.close(MOVED)
            self._shown.begin()
            if self._turn is not None and not self._turn.settled.done():
                self._shown.show(self._turn)

    def wait(self) -> None:
        """Wait in synchronous code until it is stopped; the main thread carries out the calls meanwhile."""
        if self._token:
            engine().wait(self._over, self.stop)

    def stop(self) -> None:
        """Serve no longer: open calls end, the token opens nothing any more; may be called twice.

        In a replay, the calls that come next are played first. Raises what they raise.
        """
        try:
            self.play_recorded()
        finally:
            engine().submit(shared_server().close(self._end()))
            self._shown.close(STOPPED)

    async def aclose(self) -> None:
        """Serve no longer, from the engine's loop; nothing is played."""
        await shared_server().close(self._end())

    def _end(self) -> str:
        """Be over from now on; return the token, which still opens the desk, "" in a replay or if it was over."""
        token, self._token = self._token, ""
        with suppress(InvalidStateError):  # it was over
            self._over.set_result(None)
        engine().forget(self.aclose)
        if self in _open:
            _open.remove(self)
            with suppress(UsageError):  # of a folder that has become unwritable
                _publish()
        return token

    # -- for the session and the desk ----------------------------------------------------------

    def play_recorded(self, *, in_any_case: bool = False) -> None:
        """In a replay, play the calls of clients that come next on the tape, and show them in the running cell.

        With `in_any_case`, the cell says that they are played, also if there are none.
        Raises SessionBusy, and ReplayMismatch and CassetteError as a replayed turn does.
        """
        if self.ended or not self._playing.acquire(blocking=False):
            return
        try:
            found = self._session.next_recorded()
            if found is not None or in_any_case:
                self._played = self._here()
                self._played.begin(recorded=True)
            while found is not None:
                self._play(*found)
                found = self._session.next_recorded()
        finally:
            self._played.close("")
            self._playing.release()

    def _play(self, prompt: str, call: ToolCall | None) -> None:
        model = ClientModel(prompt.rpartition(CALLS)[0], call)
        turn = self.start(prompt, TurnDriver(model, Approvals(), RequestView(), _ask_no_one, recorded=True))
        try:
            turn.wait()
        except (ReplayMismatch, CassetteError):
            raise
        except AgentMagicError:  # the turn ended so when it was recorded, and no cell failed for it
            pass

    @property
    def running(self) -> ServedTurn | None:
        """The turn that is under way in the session."""
        return self._session.running()

    def start(self, prompt: str, driver: TurnDriver) -> ServedTurn:
        """Begin a turn that a client drives, and show it. Raises SessionBusy, and UsageError."""
        if self.ended:
            raise UsageError("The notebook is no longer served. %agent serve in it begins that again.")
        begin, sources = self._session.begin, self.sources()
        driver = replace(driver, attended=lambda: engine().in_pool(lambda: self._is_attended(driver)))
        with self._showing:
            shown = self._place_of(driver)
            # What the turn shows belongs to the cell that serves, wherever the call came in; its spans to the client's.
            turn = shown.in_cell(traces.carried(lambda: begin(prompt, driver, sources, attended=True)))
            self._turn = turn
            try:
                shown.show(turn)
            except BaseException:
                turn.cancel()  # no one would see what it asks
                raise
        return turn

    def sources(self) -> Sequence[Toolset]:
        """Return the notebook's tools, the one that asks, and the session's own if they are served."""
        own = self._session.toolsets() if self.tools else ()
        has_notebook = installed().notebook is not None and not any(isinstance(one, NotebookTools) for one in own)
        return (*((NotebookTools(),) if has_notebook else ()), Asking(), *own)

    def _place_of(self, driver: TurnDriver) -> ShownCalls:
        return self._played if driver.recorded else self._shown

    def _is_attended(self, driver: TurnDriver) -> bool:
        view = self._place_of(driver).view
        return view is not None and view.attended

    def _here(self) -> ShownCalls:
        return ShownCalls(self._session.view())

    async def _open(self) -> None:
        self._token = await shared_server().open(self._desk)
        _open.append(self)
        engine().at_close(self.aclose)
        try:
            await engine().in_pool(_publish)
        except BaseException:
            await self.aclose()
            raise

    @property
    def entry(self) -> "ServedKernel":
        """What the bridge reads to find the kernel."""
        from agentmagic.serve.kernels import ServedKernel  # loads pydantic

        return ServedKernel.here(self.url, self._token, *self.place)


_open: list[Serving] = []
"""What this process serves. Its file has the last of them: clients find one conversation in a kernel."""


def _publish() -> None:
    """Write what was served last to the file of this kernel, or remove the file. Raises UsageError."""
    from agentmagic.serve import kernels

    if _open:
        kernels.write(_open[-1].entry)
    else:
        kernels.remove()


@cache
def shared_server() -> "Server":
    """Return the server of this process, at one address for all that is served."""
    from agentmagic.serve.server import Server  # loads pydantic

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
