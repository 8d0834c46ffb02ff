"""A session that is served to MCP clients, from `serve` until `stop`: its token, and the display of clients' calls."""

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
from agentmagic.host import ServedView, current_host
from agentmagic.loop.turn_options import TurnDriver
from agentmagic.messages import ToolCall
from agentmagic.runtime.engine import Caller, caller, engine
from agentmagic.serve import limits
from agentmagic.serve.client_model import ClientModel
from agentmagic.serve.desk import Page
from agentmagic.serve.session_desk import CALLS, AskUser, ServedTurn, SessionDesk
from agentmagic.text import join_names, plural
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
"""Shown in the cell when the session is no longer served."""


class BeginTurn(Protocol):
    """A function that starts a turn for an MCP client's call. Raises SessionBusy and UsageError."""

    def __call__(self, prompt: str, driver: TurnDriver, toolsets: Sequence[Toolset], *, attended: bool) -> ServedTurn:
        """Start the turn with these toolsets. If `attended` is false, calls that need approval are denied."""
        ...


@dataclass(frozen=True, slots=True)
class ServedSession:
    """The functions by which serving uses the served session.

    `running` returns the running turn, and `is_on_tape` whether all turns are replayed from a recording. If the next
    turn of the recording is an MCP client's, `next_recorded` returns its prompt and its call, else None. `toolsets`
    returns the session's own toolsets, and `view` a new view in which clients' calls are shown.
    """

    running: Callable[[], ServedTurn | None]
    is_on_tape: Callable[[], bool]
    next_recorded: Callable[[], tuple[str, ToolCall | None] | None]
    toolsets: Callable[[], Sequence[Toolset]]
    view: Callable[[], ServedView | None]
    begin: BeginTurn


class ShownCalls:
    """Where clients' calls are shown: a view (None in a program without a notebook), and the context of its cell.

    The context holds Python's context variables. By them, IPython finds the cell to which an output belongs.
    """

    def __init__(self, view: ServedView | None) -> None:
        self.view = view
        self._cell = copy_context()
        self._cell.run(caller.set, Caller.here())  # so that a client's tools wait while a cell runs
        self._closed = False

    def in_cell(self, function: Callable[[], T]) -> T:
        """Call a function in the context of the cell that shows the calls, and return its result."""
        return self._cell.copy().run(function)

    def begin(self, *, recorded: bool = False) -> None:
        """Show how clients can connect, or that recorded calls are replayed."""
        if self.view is not None:
            self.view.show(recorded=recorded)

    def show(self, turn: ServedTurn) -> None:
        """Show the turn of a client's call."""
        if (view := self.view) is not None:
            self.in_cell(lambda: view.begin(turn))

    def close(self, why: str) -> None:
        """Stop showing calls, and show why; can be called twice."""
        was_closed, self._closed = self._closed, True
        if self.view is not None and not was_closed:
            self.view.close(why)


class Serving:
    """A session that is served over MCP, until `stop` is called or the kernel ends.

    While `tools` is True, clients can also call the session's own tools. `conversation` returns the conversation as
    Markdown.
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
        self._calls = self._replayed_calls = ShownCalls(None)
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
        """Whether the session is no longer served."""
        return self._over.done()

    @property
    def place(self) -> tuple[str, Path]:
        """The name of the notebook, "" if unknown, and its folder."""
        view = self._calls.view
        return ("", Path.cwd()) if view is None else view.place

    def __repr__(self) -> str:
        name, folder = self.place
        clients = f", {plural(len(self.clients), 'client')}: {join_names(self.clients)}" if self.clients else ""
        state = "over" if self.ended else f"at {self.url}" if self.url else "on the tape"
        return f"<Serving {name or folder}: {state}{clients}>"

    def begin(self) -> None:
        """Serve the session and show its calls in the running cell; in a replay, play its recorded calls instead."""
        is_on_tape = self._session.is_on_tape()
        self.play_recorded(in_any_case=is_on_tape)
        if is_on_tape:
            return
        with self._showing:  # a client's call that arrives now waits for the lock
            before, self._calls = self._calls, self._here()
            if not self._token:
                engine().call(self._open())
            before.close(MOVED)
            self._calls.begin()
            if self._turn is not None and not self._turn.settled.done():
                self._calls.show(self._turn)

    def wait(self) -> None:
        """Block until serving is stopped; meanwhile the main thread runs the calls of clients."""
        if self._token:
            engine().wait(self._over, self.stop)

    def stop(self) -> None:
        """Stop serving: end open calls, and make the token invalid; can be called twice.

        In a replay, first play the recorded calls that come next, and raise their errors.
        """
        try:
            self.play_recorded()
        finally:
            engine().submit(shared_server().close(self._end()))
            self._calls.close(STOPPED)

    async def aclose(self) -> None:
        """Stop serving, from code in the engine's event loop. Unlike `stop`, this plays no recorded calls."""
        await shared_server().close(self._end())

    def _end(self) -> str:
        """Mark serving as stopped. Return the token by which the server knows the session; "" if it knows none."""
        token, self._token = self._token, ""
        with suppress(InvalidStateError):  # serving was stopped before
            self._over.set_result(None)
        engine().forget(self.aclose)
        if self in _served:
            _served.remove(self)
            with suppress(UsageError):  # raised if the folder of the kernel's file is not writable
                _publish()
        return token

    # -- for the session and the desk ----------------------------------------------------------

    def play_recorded(self, *, in_any_case: bool = False) -> None:
        """In a replay, play the clients' calls that come next in the recording, and show them in the running cell.

        With `in_any_case`, the cell says that calls are replayed even if no call comes next. Raises SessionBusy, and,
        like any replayed turn, ReplayMismatch and CassetteError.
        """
        if self.ended or not self._playing.acquire(blocking=False):
            return
        try:
            recorded_call = self._session.next_recorded()
            if recorded_call is not None or in_any_case:
                self._replayed_calls = self._here()
                self._replayed_calls.begin(recorded=True)
            while recorded_call is not None:
                self._play(*recorded_call)
                recorded_call = self._session.next_recorded()
        finally:
            self._replayed_calls.close("")
            self._playing.release()

    def _play(self, prompt: str, call: ToolCall | None) -> None:
        model = ClientModel(prompt.rpartition(CALLS)[0], call)
        turn = self.start(prompt, TurnDriver(model, Approvals(), RequestView(), _ask_no_one, recorded=True))
        try:
            turn.wait()
        except (ReplayMismatch, CassetteError):
            raise
        except AgentMagicError:  # the recorded turn failed in the same way, and did not make a cell fail either
            pass

    @property
    def running(self) -> ServedTurn | None:
        """The running turn of the session, or None if no turn is running."""
        return self._session.running()

    def start(self, prompt: str, driver: TurnDriver) -> ServedTurn:
        """Start a turn for an MCP client's call, and show the turn. Raises SessionBusy and UsageError."""
        if self.ended:
            raise UsageError("The notebook is no longer served. %agent serve in it begins that again.")
        begin, sources = self._session.begin, self.sources()
        driver = replace(driver, attended=lambda: engine().in_pool(lambda: self._is_attended(driver)))
        with self._showing:
            calls = self._place_of(driver)
            # Output goes to the cell that shows calls; trace spans belong to the span of the client's call.
            turn = calls.in_cell(traces.with_span(lambda: begin(prompt, driver, sources, attended=True)))
            self._turn = turn
            try:
                calls.show(turn)
            except BaseException:
                turn.cancel()  # the turn could not be shown, so nobody would see its questions
                raise
        return turn

    def sources(self) -> Sequence[Toolset]:
        """Return the toolsets that clients can use.

        They are the notebook's tools, the tool that asks the user, and, if `tools` is set, the session's own toolsets.
        """
        own = self._session.toolsets() if self.tools else ()
        has_notebook = current_host().notebook is not None and not any(isinstance(one, NotebookTools) for one in own)
        return (*((NotebookTools(),) if has_notebook else ()), AskUser(), *own)

    def _place_of(self, driver: TurnDriver) -> ShownCalls:
        return self._replayed_calls if driver.recorded else self._calls

    def _is_attended(self, driver: TurnDriver) -> bool:
        view = self._place_of(driver).view
        return view is not None and view.attended

    def _here(self) -> ShownCalls:
        return ShownCalls(self._session.view())

    async def _open(self) -> None:
        self._token = await shared_server().open(self._desk)
        _served.append(self)
        engine().at_close(self.aclose)
        try:
            await engine().in_pool(_publish)
        except BaseException:
            await self.aclose()
            raise

    @property
    def entry(self) -> "ServedKernel":
        """The description of this session for the file by which the bridge finds this kernel."""
        from agentmagic.serve.kernels import ServedKernel  # imported late: it loads pydantic

        return ServedKernel.here(self.url, self._token, *self.place)


_served: list[Serving] = []
"""The sessions that this process serves. Its file names only the last one, so clients see one session per kernel."""


def _publish() -> None:
    """Update the file by which the bridge finds this kernel: it names the newest served session.

    If no session is served, the file is removed. Raises UsageError if the file cannot be written.
    """
    from agentmagic.serve import kernels

    if _served:
        kernels.write(_served[-1].entry)
    else:
        kernels.remove()


@cache
def shared_server() -> "Server":
    """Return the MCP server of this process; all served sessions share its address."""
    from agentmagic.serve.server import Server  # imported late: it loads pydantic

    server = Server()
    engine().at_close(server.aclose)
    return server


async def _cells() -> str:
    """Return the cells of the notebook as text, in the same form as the tool that reads cells."""
    notebook = current_host().notebook
    if notebook is None:
        return "(no notebook)"
    return await engine().main.run(lambda: read_cells(notebook, limits.PAGE_TEXT))


async def _ask_no_one(_question: str) -> None:
    """Return None, because in a replay there is no client to ask."""
