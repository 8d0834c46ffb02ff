"""The kernel's end of the link with the JupyterLab extension, before a page that keeps what it is told."""

import threading

import pytest
from IPython.core.interactiveshell import InteractiveShell

from agentmagic import Agent, Session
from agentmagic.events import CellProposed
from agentmagic.jupyter.lab import LabLink
from agentmagic.jupyter.namespace import Namespace
from agentmagic.jupyter.notebook_file import KnownNotebook
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.tools.base import ToolContext
from agentmagic.tools.functions import tool

PATIENCE = 10.0


class Page:
    """A page that keeps what the kernel tells it: a comm."""

    def __init__(self):
        self.told = []
        self._changed = threading.Condition()

    def send(self, message):
        with self._changed:
            self.told.append(message)
            self._changed.notify_all()

    def staged(self):
        """Return the ids of the staged cells, as they were told last."""
        return [[one["id"] for one in each["proposals"]] for each in self.told if each["type"] == "proposals"][-1]

    def until(self, staged):
        with self._changed:
            assert self._changed.wait_for(lambda: self.staged() == staged, PATIENCE), self.told


@tool(parallel=False)  # as `propose_cell` is
def stage(name: str, context: ToolContext) -> str:
    "Propose a cell."
    context.propose(CellProposed(name, "insert", "code", "x = 1", "Why.", "", 0, "", "staged"))
    return name


def calls(name, *arguments):
    return {"calls": [{"name": name, "arguments": given} for given in arguments]}


class Kernel:
    """What a page finds: variables, and the link with it, on which the page has said hello."""

    def __init__(self):
        self.shell = InteractiveShell()
        self.variables = {}
        self.namespace = Namespace(self.variables, KnownNotebook(self.shell))
        self.page = Page()
        self.link = LabLink(self.page, self.shell, self.namespace)
        self.greet()

    def greet(self):
        self.link.receive({"content": {"data": {"type": "hello"}}})

    def bind(self, *steps):
        """Bind a new session to the variable `agent`, as a cell does."""
        session = Session(Agent(ScriptedModel(steps), tools=[stage]))
        self.namespace.equip(session)
        self.variables["agent"] = session
        self.shell.events.trigger("post_run_cell", None)
        return session


@pytest.fixture
def kernel():
    kernel = Kernel()
    yield kernel
    kernel.link.close()


def test_pages_are_told_which_cells_are_staged_as_these_come_and_go(kernel):
    session = kernel.bind(calls("stage", {"name": "a"}, {"name": "b"}, {"name": "c"}), "Done.")
    session.ask("Propose.")
    kernel.page.until(["a", "b", "c"])
    session.settle("b", "kept")
    kernel.page.until(["a", "c"])
    session.undo()
    kernel.page.until([])
    session.redo()
    kernel.page.until(["a", "c"])
    kernel.bind(calls("stage", {"name": "d"}), "Done.")
    kernel.page.until([])
    kernel.variables["agent"].ask("Propose.")
    kernel.page.until(["d"])
    kernel.variables["other"] = session
    kernel.shell.events.trigger("post_run_cell", None)
    kernel.page.until(["d", "a", "c"])
