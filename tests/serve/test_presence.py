"""Whether someone is at a served notebook is found out when a call asks, and no sooner."""

import threading

import pytest

from agentmagic import Agent, ScriptedModel, Session, tool
from agentmagic.events import Approve
from agentmagic.testing import PATIENCE
from tests.serve.desks import Office, Place, served


class Door(Place):
    """A place that is looked at once it may be; `looks` counts how often."""

    def __init__(self, answer, *, attended):
        super().__init__(answer, attended=attended)
        self.may_look, self.looks = threading.Event(), 0

    @property
    def attended(self):
        self.looks += 1
        assert self.may_look.wait(PATIENCE)
        return self._attended


@pytest.fixture
def session():
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    @tool(ask=True)
    def act() -> str:
        """Act."""
        return "done"

    return Session(Agent(ScriptedModel([]), tools=[look, act]))


def test_a_call_that_asks_nothing_looks_for_no_one_and_one_that_asks_is_denied_and_told_what_helps(session):
    office = Office()
    office.view_of_calls = door = Door(None, attended=False)
    with served(session, office) as client:
        assert client.call("look").text == "seen"
        assert door.looks == 0
        asked = client.start("act")
        client.waits_for("The person at the notebook is asked.")
        door.may_look.set()
        words = asked.result(PATIENCE).text
        assert "no one is there to give it" in words
        assert "open the notebook" in words


def test_an_answer_counts_that_comes_before_anyone_was_looked_for(session):
    office = Office()
    office.view_of_calls = door = Door(lambda event: Approve(event.id), attended=False)
    with served(session, office) as client:
        assert client.call("act").text == "done"
        door.may_look.set()
