"""The kernel's end of the link with the JupyterLab extension, before a page that keeps what it is told."""

import threading

import pytest
from IPython.core.interactiveshell import InteractiveShell

from agentmagic import Agent, Session
from agentmagic.errors import AuthenticationMissing
from agentmagic.events import ApprovalAsked, CellProposed, Deny
from agentmagic.jupyter.cell.model_setup import ModelSetup
from agentmagic.jupyter.notebook.file import KnownNotebook
from agentmagic.jupyter.notebook.namespace import Namespace
from agentmagic.jupyter.panel.lab import CHOOSE, PAUSE, LabLink
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.runtime.engine import engine, void
from agentmagic.tools.base import ToolContext
from agentmagic.tools.functions import tool
from agentmagic.widgets.commands import choose_model
from agentmagic.widgets.page_messages import LeaveSetup
from agentmagic.widgets.view import View
from tests.jupyter.harness import TIMEOUT
from tests.turns import calls


class Page:
    """A page that keeps what the kernel tells it: a comm."""

    def __init__(self):
        self.told = []
        self._changed = threading.Condition()

    def send(self, message):
        with self._changed:
            self.told.append(message)
            self._changed.notify_all()

    def until(self, *staged):
        """Wait until these are the ids of the staged cells, as they were told last."""
        self.last("proposals", lambda told: [one["id"] for one in told["proposals"]] == [*staged])

    def last(self, kind, holds):
        """Wait until something holds for the last message of a kind."""

        def told():
            return holds([each for each in self.told if each["type"] == kind][-1])

        with self._changed:
            assert self._changed.wait_for(told, TIMEOUT), self.told


class Screen:
    """What a view passes clicks to."""

    def act(self, action):
        raise AssertionError(action)


@tool(parallel=False)  # as `propose_cell` is
def stage(name: str, context: ToolContext) -> str:
    "Propose a cell."
    context.propose(CellProposed(name, "insert", "code", "x = 1", "Why.", "", 0, "", "staged"))
    return name


@pytest.fixture
def link():
    shell = InteractiveShell()
    made = LabLink(Page(), shell, Namespace({}, KnownNotebook(shell)))
    made.receive({"content": {"data": {"type": "hello"}}})
    yield made
    made.close()


def test_pages_are_told_which_cells_are_staged_as_these_come_and_go(link):
    page, namespace = link._comm, link._namespace

    def bind(name, *ids):
        """Bind a new session to a variable, as a cell does, and have it stage cells."""
        steps = [calls(*(("stage", {"name": one}) for one in ids)), "Done."]
        session = namespace.variables[name] = Session(Agent(ScriptedModel(steps), tools=[stage]))
        namespace.equip(session)
        link._shell.events.trigger("post_run_cell", None)
        return session

    session = bind("agent", "a", "b", "c")
    session.ask("Propose.")
    page.until("a", "b", "c")
    session.settle("b", "kept")
    page.until("a", "c")
    session.undo()
    page.until()
    session.redo()
    page.until("a", "c")
    another = bind("agent", "d")
    page.until()
    another.ask("Propose.")
    page.until("d")
    namespace.variables["other"] = session
    link._shell.events.trigger("post_run_cell", None)
    page.until("d", "a", "c")


def test_pages_are_told_which_model_answers_once_it_is_chosen_in_a_panel(link):
    session = link._namespace.variables["agent"] = Session(Agent(ScriptedModel([])))
    link._shell.events.trigger("post_run_cell", None)
    link._comm.last("state", lambda told: told["model"] == "scripted:script answers")
    choose_model(session, "local:")
    link._namespace.looks.tell(None)
    link._comm.last("state", lambda told: told["model"] == "local: answers")


@tool(ask=True)
def order(what: str) -> str:
    "Order."
    return what


def test_pages_are_told_that_a_turn_waits_also_if_others_hear_of_it_slowly(link):
    page, namespace = link._comm, link._namespace
    steps = [calls(("order", {"what": "tea"})), "Done."]
    session = namespace.variables["agent"] = Session(Agent(ScriptedModel(steps), tools=[order]))
    namespace.equip(session)
    asked = []

    def hear(event):
        if isinstance(event, ApprovalAsked):
            asked.append(event.id)
            threading.Event().wait(10 * PAUSE)  # in which a page would be told too early

    session.listen(hear)
    run = session.begin("Order.", TurnSettings(attended=True))
    page.last("state", lambda told: told["waits"] == "agent")
    run.send(Deny(asked[0]))
    run.wait()
    page.last("state", lambda told: told["waits"] == "")


def test_the_card_of_a_user_without_a_key_waits_and_the_status_bar_names_it(link, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where no .env is
    page, session = link._comm, Session(Agent())
    link._namespace.variables["agent"] = session
    link._shell.events.trigger("post_run_cell", None)
    page.last("state", lambda told: told["model"].startswith("agentmagic found no key: "))
    for leave in (lambda card: card.act(LeaveSetup()), ModelSetup.close):
        card = ModelSetup(View(Screen()), session, AuthenticationMissing("No key is set.", ("A_KEY",)), void)
        page.last("state", lambda told: (told["waits"], told["model"]) == ("agent", CHOOSE))
        leave(card)
        page.last("state", lambda told: told["waits"] == "" and told["model"] != CHOOSE)


def test_a_session_that_a_cell_docks_stays_though_the_cell_ends_before_the_panel_has_turned_to_it(link):
    sessions = link._namespace.variables
    sessions |= {name: Session(Agent(ScriptedModel([]))) for name in ("agent", "other")}
    page_draws = {"content": {"data": {"type": "dock"}}}
    link.receive(page_draws)
    let_go = threading.Event()
    engine().loop.call_soon_threadsafe(let_go.wait)
    assert link.show("other")
    link._shell.events.trigger("post_run_cell", None)
    let_go.set()
    link._turning.result(10)
    link.receive(page_draws)
    link._turning.result(10)
    assert link._chat.session is sessions["other"]


def test_an_output_is_asked_about_in_the_conversation_that_was_opened_in_the_panel(link):
    sessions = link._namespace.variables
    sessions |= {name: Session(Agent(ScriptedModel([]))) for name in ("agent", "other")}
    link.receive({"content": {"data": {"type": "dock"}}})
    link._chat.turn_to(sessions["other"]).result(TIMEOUT)  # as a click on its name does
    output = {"type": "output", "action": "ask", "count": None, "source": "1", "outputs": []}
    link.receive({"content": {"data": output}})
    link._comm.last("state", lambda told: told["session"] == "other")
    assert link._turning is None
