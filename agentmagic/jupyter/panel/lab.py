"""Exchanges messages with the JupyterLab extension (js/lab), which shows the chat panel beside the notebook.

This is the kernel's side. The browser page is untrusted: a message that is not in the `MESSAGES` table is dropped.
Pages send messages when the user clicks, and no message makes the kernel run code from the page.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from IPython.core.interactiveshell import InteractiveShell
from pydantic import ValidationError

from agentmagic.display import words
from agentmagic.events import Event, HistoryCut, is_delta
from agentmagic.jupyter.cell.model_setup import setup_cards
from agentmagic.jupyter.magics import formatting
from agentmagic.jupyter.notebook.namespace import DEFAULT_SESSION, Namespace
from agentmagic.jupyter.panel import panels
from agentmagic.jupyter.panel.lab_messages import DockPanel, GreetKernel, SettleProposals
from agentmagic.jupyter.prompt.outputs import AskAboutOutput, attach_output
from agentmagic.log import logger
from agentmagic.prompt.attachments import Attachment
from agentmagic.runtime.engine import engine
from agentmagic.session import Session
from agentmagic.text import sanitize
from agentmagic.widgets.page_messages import PageMessage
from agentmagic.widgets.static_html import OutputUpdates

if TYPE_CHECKING:
    from concurrent.futures import Future

    from agentmagic.jupyter.panel.chat import Chat

PAUSE = 0.05
"""Seconds in which changes are collected before they are sent to pages."""

CHOOSE = "no model yet: choose one on its card"
"""What the status bar says while the card of a user without a key waits."""

SECOND_SESSION = f"{DEFAULT_SESSION}_2"
"""The name of the panel's session if there is no session, and the default session's variable has another value."""


class LabLink:
    """Connects the kernel with all browser pages that show the notebook.

    Carries out the messages of the pages, and sends changes to the pages. The methods can be called in any thread.
    `comm` is the comm (Jupyter's message channel) that pages find by its target name; a message on it reaches all
    pages.
    """

    def __init__(self, comm: Any, shell: InteractiveShell, namespace: Namespace) -> None:
        self._comm = comm
        self._shell = shell
        self._namespace = namespace
        self._chat: Chat | None = None
        self._turning: Future[None] | None = None
        self._name = DEFAULT_SESSION
        self._lock = threading.Lock()
        self._sent_state: dict[str, str] = {}
        self._sent_proposals: list[dict[str, Any]] = []
        self._has_page = False
        self._update = OutputUpdates(self._tell, PAUSE).update
        self._leave = (
            namespace.listeners.add(self._hear),
            namespace.looks.add(lambda _: self._update()),
            setup_cards.changed.add(lambda _: self._update()),
        )
        cast("Any", shell).events.register("post_run_cell", self._look)

    def close(self) -> None:
        """Stop sending changes to the browser pages."""
        for leave in self._leave:
            leave()
        cast("Any", self._shell).events.unregister("post_run_cell", self._look)

    def receive(self, message: Mapping[str, Any]) -> None:
        """Carry out a message from a browser page; drop it, with a warning in the log, if it is not valid."""
        data = message["content"]["data"]
        kind, handle = MESSAGES.get(str(data.get("type")), (None, None))
        try:
            request = kind and kind.model_validate(data)
        except ValidationError:
            request = None
        if request is None or handle is None:
            logger.warning("a message of the JupyterLab extension was dropped: it is none that the kernel knows")
            return
        handle(self, request)

    def show(self, name: str) -> bool:
        """Make the browser page show the panel of the session `name` beside the notebook. Return False if it cannot."""
        if not self._has_page:
            return False
        self._name = name
        self._dock()
        self._tell(anew=True)
        self._comm.send({"type": "show"})
        return True

    @property
    def has_page(self) -> bool:
        """Whether a browser page with the JupyterLab extension has connected. Only such a page shows proposed cells."""
        return self._has_page

    def greet(self, _: GreetKernel) -> None:
        """Send the whole state to the browser pages, because one of them asks for it.

        A page shows the notebook to a user, so the notebook's conversations are saved from now on.
        """
        self._has_page = True
        self._namespace.notebook.attended = True
        self._namespace.save_late()
        self._tell(anew=True)

    def draw(self, _: DockPanel) -> None:
        """Create the docked chat panel if needed, and send its view to the browser pages, which then draw the panel."""
        self._dock_again()
        self._tell(anew=True)

    def settle(self, message: SettleProposals) -> None:
        """Record what the user did with proposed cells, each in the session that proposed the cell."""
        for one in message.settled:
            any(each.settle(one.id, one.fate, one.source, ran=one.ran) for each in self._namespace.sessions().values())
        self._update()

    def _dock(self) -> "Chat":
        """Return the docked chat panel, created if needed, and make it show the session that a cell chose last."""
        if self._chat is None:
            first = self._session()
            with self._lock:
                if self._chat is None:
                    self._chat = panels.docked_chat(self._shell, first)
                    self._chat.look()
        session = self._session()  # read again: a cell may have chosen another session during the wait for the lock
        if self._chat.session is not session:
            self._turning = self._chat.turn_to(session)
        return self._chat

    def _dock_again(self) -> "Chat":
        """Return the docked chat panel, which stays with the conversation that the user has opened in it."""
        if self._chat is not None:
            self._follow(self._chat)
        return self._dock()

    def ask_about(self, message: AskAboutOutput) -> None:
        """Attach a cell's output to the next message in the docked panel, or to a turn that begins at once."""
        chat = self._dock_again()
        session = chat.session

        def make() -> Sequence[Attachment]:
            return attach_output(message, self._namespace.attachables(session, session.agent))

        chat.attach(make, message.prompt)
        self._tell(anew=True)

    def _session(self) -> Session:
        sessions = self._namespace.sessions()
        session = sessions.get(self._name) or sessions.get(DEFAULT_SESSION) or next(iter(sessions.values()), None)
        return session or self._namespace.session(SECOND_SESSION)

    def _hear(self, event: Event | HistoryCut) -> None:
        if not is_delta(event):
            # Called later, because the session counts a question as open only after all listeners got its event.
            engine().loop.call_soon_threadsafe(self._update)

    def _look(self, _result: object) -> None:
        """Update the docked panel after a cell: the user may have opened another session in it, or rebound its name."""
        self._namespace.save_late()  # the user may have saved the notebook, so that its file is known now
        if self._chat is not None:
            self._follow(self._chat)
            self._dock()
        self._update()

    def _follow(self, chat: "Chat") -> None:
        # While the panel changes its session, `chat.session` is still the old one.
        if self._turning is None or self._turning.done():
            session = chat.session
            names = (name for name, one in self._namespace.sessions().items() if one is session)
            self._name = next(names, self._name)

    def _tell(self, *, anew: bool = False) -> int:
        """Send the session's state and the proposed cells to the browser pages if they changed, or with `anew`."""
        # The state is read under the lock too. Otherwise a thread could send it after another thread's newer state.
        with self._lock:
            state = self._state()
            if anew or state != self._sent_state:
                self._sent_state = state
                self._comm.send({"type": "state", **state})
            proposals = self._proposals()
            if anew or proposals != self._sent_proposals:
                self._sent_proposals = proposals
                self._comm.send({"type": "proposals", "proposals": proposals})
        return 0

    def _proposals(self) -> list[dict[str, Any]]:
        """Return the cells that models have proposed in all sessions, and about which the user has not decided yet."""
        proposals = (one for session in self._namespace.sessions().values() for one in session.proposals)
        return [{name: getattr(one, name) for name in PROPOSAL_FIELDS} for one in proposals if one.place == "staged"]

    def _state(self) -> dict[str, str]:
        session = self._session() if self._chat is None else self._chat.session
        running = [(name, one.running) for name, one in self._namespace.sessions().items()]
        under_way = ((name, run) for name, run in running if run is not None and not run.over)
        waiting = (name for name, run in running if run is not None and run.waits)
        choosing = [name for name, one in self._namespace.sessions().items() if setup_cards.waits(one)]
        usage = session.usage
        return {
            "session": next((name for name, one in self._namespace.sessions().items() if one is session), ""),
            "model": CHOOSE if setup_cards.waits(session) else sanitize(formatting.who_answers(session)),
            "cost": words.cost(usage.cost) if usage.requests else "",
            "running": next((name for name, _ in under_way), ""),
            "waits": next(iter((*waiting, *choosing)), ""),
            "view": "" if self._chat is None else self._chat.view.name,
        }


PROPOSAL_FIELDS = ("id", "action", "kind", "source", "why", "cell", "number", "before")
"""The fields of `CellProposed` that a page receives for a staged cell."""

MESSAGES: Mapping[str, tuple[type[PageMessage], Callable[[LabLink, Any], None]]] = {
    "hello": (GreetKernel, LabLink.greet),
    "dock": (DockPanel, LabLink.draw),
    "output": (AskAboutOutput, LabLink.ask_about),
    "settle": (SettleProposals, LabLink.settle),
}
"""The messages that pages can send, by type, each with its model and the method that carries it out.

js/lab/src/messages.ts has the same table, and a table of the messages that the kernel sends.
"""
