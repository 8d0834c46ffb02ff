"""A conversation that is made shorter for the model between two turns, because the user wants it."""

import pytest

from agentmagic import Agent, Session
from agentmagic.errors import SessionBusy, UsageError
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import Stalled

LONG = "word " * 400


def talked(*steps, turns=6, path=None, **options):
    """A session of some long turns, and its model."""
    model = ScriptedModel([*[f"Answer {number}. {LONG}" for number in range(turns)], *steps])
    session = Session(Agent(model), path=path, **options)
    for number in range(turns):
        session.ask(f"Question {number}? {LONG}")
    return session, model


def test_older_turns_become_a_summary_at_once_and_the_history_stays_whole_also_in_the_file(tmp_path):
    session, model = talked("They spoke of words.", "And on.", path=tmp_path / "talk.jsonl")
    before, spent = session.context_tokens, session.usage
    compacted = session.compact()
    assert compacted is not None
    assert (compacted.summary, compacted.before) == ("They spoke of words.", before)
    assert session.context_tokens == compacted.after < before / 1.5
    assert session.usage == spent + compacted.usage
    assert len(session.turns) == 6
    session.ask("And now?")
    sent = model.requests[-1].messages
    assert "They spoke of words." in sent[0].text
    assert "Question 0?" not in "".join(message.text for message in sent)
    session.close()
    again = Session.load(tmp_path / "talk.jsonl", Agent(model))
    assert [turn.prompt.text for turn in again.turns] == [turn.prompt.text for turn in session.turns]
    assert (again.history.compacted, again.usage) == (compacted, session.usage)
    again.undo()
    again.undo()
    assert again.history.compacted is None


def test_a_short_conversation_gains_nothing_and_no_model_is_asked():
    session, model = talked(turns=0)
    assert session.compact() is None
    session, model = talked(turns=1)
    asked = len(model.requests)
    assert session.compact() is None
    assert len(model.requests) == asked


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_tokens": 1_000_000}, None),
        ({"max_tokens": 100}, "max_tokens is 100"),
        ({"replay": "record"}, "%agent live"),
    ],
)
def test_budgets_and_cassettes_hold_for_a_summary_too(options, says, tmp_path):
    session, model = talked("A summary.", turns=6)
    session.max_tokens = options.get("max_tokens")
    if "replay" in options:
        session.deck.insert(tmp_path / "tape.yaml")
        session.deck.choose(options["replay"])
    asked = len(model.requests)
    if says is None:
        assert session.compact() is not None
        return
    with pytest.raises(UsageError, match=says):
        session.compact()
    assert (len(model.requests), session.history.compacted) == (asked, None)


def test_a_turn_under_way_is_not_compacted():
    session = Session(Agent(Stalled()))
    run = session.start("hello")
    with pytest.raises(SessionBusy):
        session.compact()
    run.cancel()
    run.wait()
    session.close()
