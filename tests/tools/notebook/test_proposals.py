"""Proposed cells: their events, what became of them, and that a loaded journal and all renderers show the same."""

from types import MappingProxyType
from typing import Any, cast

import pytest

from agentmagic import Agent, NotebookTools, ScriptedModel, Session
from agentmagic.display import html, terminal
from agentmagic.display.blocks import ProposalBlock
from agentmagic.display.transcript import Transcript
from agentmagic.errors import BadRequest
from agentmagic.events import CellProposed, ProposalSettled
from agentmagic.export import save
from agentmagic.history.journal_reader import read
from agentmagic.host import NotebookCell
from agentmagic.widgets.sync import Feed
from tests.turns import calls, texts

CELLS = (NotebookCell(1, "code", "x = 1\ny = 2", id="one"), NotebookCell(2, "markdown", "# Title", id="two"))
INSERT = ("propose_cell", {"source": "a = 1", "why": "Sets a."})
CHANGE = ("propose_cell", {"source": "x = 3\ny = 2", "why": "Is better.", "action": "change", "cell": 1})
REMOVE = ("propose_cell", {"why": "Is old.", "action": "remove", "cell": 2})


class Paper:
    """A notebook of two cells that shows proposals only."""

    namespace = MappingProxyType({})

    def run(self, code):
        raise NotImplementedError

    def stage(self, proposed):
        return proposed

    def fate(self, proposed):
        return None

    def cells(self):
        return CELLS, "Cells of a test."


def proposing(*steps, **options):
    return Session(Agent(ScriptedModel([*steps, "Done.", "Told.", "More."]), tools=[NotebookTools(Paper())]), **options)


def drawn(events):
    transcript = Transcript(events)
    return transcript.blocks, html.render(transcript), terminal.render(transcript)


def told(session):
    return [part.text for part in session.turns[-1].prompt.parts[1:]]


def test_each_proposal_is_an_event_and_what_became_of_it_is_told_to_the_model_once_at_its_next_request():
    session = proposing(calls(INSERT, CHANGE, REMOVE))
    proposed = [event for event in session.ask("Propose.").events if isinstance(event, CellProposed)]
    assert [(one.action, one.kind, one.cell, one.number, one.before) for one in proposed] == [
        ("insert", "code", "", 0, ""),
        ("change", "code", "one", 1, "x = 1\ny = 2"),
        ("remove", "markdown", "two", 2, "# Title"),
    ]
    assert session.proposals == tuple(proposed)
    first, second, third = (one.id for one in proposed)
    assert session.settle(first, "kept", ran=True)
    assert session.settle(second, "changed", "x = 4")
    assert not session.settle(first, "discarded")
    session.ask("What now?")
    assert told(session)[0].splitlines() == [
        "- Your proposal (a new cell: Sets a.): the user kept it, and ran it.",
        "- Your proposal (cell 1: Is better.): the user kept it with changes. It is now:",
        "x = 4",
    ]
    assert session.settle(third, "discarded")
    assert session.proposals == ()
    session.ask("And now?")
    assert told(session) == ["- Your proposal (removing cell 2: Is old.): the user discarded it."]
    session.clear()
    session.undo()
    assert session.proposals == ()


def test_what_a_failed_turn_was_to_tell_the_model_is_told_in_the_next_one():
    session = proposing(calls(INSERT), "Proposed.", BadRequest("The server is gone."))
    session.ask("Propose.")
    assert session.settle(session.proposals[0].id, "kept")
    with pytest.raises(BadRequest):
        session.ask("What now?")
    session.ask("And now?")
    assert told(session) == ["- Your proposal (a new cell: Sets a.): the user kept it."]


def test_every_output_draws_a_settled_proposal_alike_live_and_loaded(tmp_path):
    session = proposing(calls(INSERT, CHANGE, REMOVE), path=tmp_path / "saved.jsonl")
    feed = Feed()
    seen = []
    session.listen(lambda event: (seen.append(event), feed.feed(event)))
    session.ask("Propose.")
    session.ask("What now?")
    feed.frame()
    for one, fate in zip(session.proposals, ("kept", "changed", "discarded"), strict=True):
        session.settle(one.id, fate, "x = 4")
    assert isinstance(session.turns[-1].events[-2], ProposalSettled)
    session.close()
    frame = feed.frame()
    assert frame is not None
    changed = [cast("Any", change) for _, change in frame["ops"]]
    assert [one["state"] for one in changed] == ["kept", "kept with changes", "discarded"]
    saved = read(tmp_path / "saved.jsonl")
    assert saved.problems == ()
    for events in (seen, [event for turn in saved.turns for event in turn]):
        assert drawn(events) == drawn(session.events)
        fates = [block.settled.fate for block in Transcript(events).blocks if isinstance(block, ProposalBlock)]
        assert fates == ["kept", "changed", "discarded"]
    document = save(session.turns, tmp_path / "out.md").read_text()
    assert "**Proposed change of cell 1** (kept with changes): Is better." in document


def test_a_fate_that_comes_while_a_turn_runs_belongs_to_that_turn():
    holder = []

    def keep() -> str:
        "Keep the proposal, as a user could meanwhile."
        return str(holder[0].settle(holder[0].proposals[0].id, "kept"))

    model = ScriptedModel([calls(INSERT), "Done.", calls("keep"), "Done."])
    session = Session(Agent(model, tools=[NotebookTools(Paper()), keep]))
    holder.append(session)
    session.ask("Propose.")
    assert texts(session.ask("Go on.")) == ["True"]
    assert [isinstance(event, ProposalSettled) for event in session.turns[-1].events].count(True) == 1
    assert session.undo() is not None
    assert session.redo() is not None
    assert session.proposals == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"source": " ", "why": "Nothing."}, "The cell is empty."),
        ({"source": "a", "why": "?", "action": "change"}, "Say which cell you want to change"),
        ({"why": "?", "action": "remove", "cell": 9}, "There is no cell 9. Cells of a test."),
        ({"source": "a = 1  # \u202eb", "why": "Hides."}, "characters that a reader cannot see"),
        ({"source": "a" * 20_001, "why": "Long."}, "20,000 is the most"),
    ],
)
def test_a_proposal_that_cannot_be_judged_is_refused(arguments, words):
    session = proposing(calls(("propose_cell", arguments)))
    assert words in texts(session.ask("Propose."))[0]
    assert session.proposals == ()


def test_a_replay_has_the_proposals_and_what_was_told_of_them(tmp_path):
    def run(mode):
        agent = Agent(ScriptedModel([calls(INSERT, CHANGE), "Done.", "Told."]), tools=[NotebookTools(Paper())])
        session = Session(agent, cassette=tmp_path / "tape.yaml", replay=mode)
        session.ask("Propose.")
        if mode == "record":
            session.settle(session.proposals[0].id, "kept")
        session.ask("What now?")
        return session

    recorded, replayed = run("record"), run("replay")
    assert told(replayed) == told(recorded) == ["- Your proposal (a new cell: Sets a.): the user kept it."]
    assert [one.source for one in replayed.proposals] == ["a = 1", "x = 3\ny = 2"]
