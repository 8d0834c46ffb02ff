"""Turns that end without any answer: they are kept, marked as not sent again, and left out of requests."""

from contextlib import suppress

import pytest

from agentmagic import Agent, Session
from agentmagic.agent import RetrySettings
from agentmagic.display import html, terminal
from agentmagic.display.transcript import Transcript
from agentmagic.errors import AgentMagicError, AuthenticationFailed
from agentmagic.export import save
from agentmagic.jupyter.magics import formatting
from agentmagic.messages import user
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import Faulty, Stalled, run
from tests.turns import SOON, calls

REFUSED = AuthenticationFailed("The key is wrong.")
ONCE = RetrySettings(tries=1)


def sent(model):
    """The words of each request."""
    return [[message.text for message in request.messages] for request in model.requests]


def tried(session, prompt, **options):
    """The stop reason of a turn that may raise."""
    try:
        return session.ask(prompt, **options).stop_reason
    except AgentMagicError as error:
        return error.result.stop_reason


def failing(*errors, **options):
    model = Faulty(*errors)
    return model, Session(Agent(model, retry=ONCE), **options)


def test_the_next_requests_leave_failed_prompts_out_and_the_turns_are_kept():
    model, session = failing(REFUSED, REFUSED)
    outcomes = [tried(session, prompt) for prompt in ("one", "two", "three", "four")]
    assert outcomes == ["error", "error", "answer", "answer"]
    assert sent(model) == [["one"], ["two"], ["three"], ["three", "Here is the answer.", "four"]]
    assert [turn.unsent for turn in session.turns] == [True, True, False, False]
    assert [turn.prompt.text for turn in session.turns] == ["one", "two", "three", "four"]
    assert [message.text for message in session.messages][::2] == ["three", "four"]


@pytest.mark.parametrize(
    ("model", "options", "reason"),
    [
        (Faulty(REFUSED), {}, "error"),
        (Stalled(), {"timeout": SOON}, "timeout"),
        (Faulty(), {"max_cost": 1.0}, "budget"),
        (Stalled(), {}, "cancelled"),
    ],
    ids=["refused", "timed out", "a price that is not known", "cancelled"],
)
def test_a_turn_without_a_finished_part_is_not_sent_again_whatever_ended_it(model, options, reason):
    session = Session(Agent(model, retry=ONCE, **options))
    turn = session.start("one")
    if reason == "cancelled":
        turn.cancel()
    with suppress(AgentMagicError):
        turn.wait()
    assert session.turns[0].result.stop_reason == reason
    assert session.turns[0].unsent
    assert session.messages == ()


def test_what_a_cut_turn_has_finished_is_sent_as_ever():
    session = Session(Agent(Stalled("Half"), timeout=SOON))
    assert tried(session, "one") == "timeout"
    assert [message.text for message in session.messages] == ["one", "Half"]
    model = ScriptedModel([calls("nothing")])
    session = Session(Agent(model, retry=ONCE))
    tried(session, "two")
    assert [message.role for message in session.messages] == ["user", "assistant", "tool"]


def test_messages_that_were_given_without_an_answer_are_sent():
    model = Faulty()
    session = Session(Agent(model), messages=[user("one"), user("two")])
    run(session, "three")
    assert sent(model) == [["one", "two", "three"]]


def test_a_failed_turn_that_is_edited_or_tried_again_is_replaced():
    model, session = failing(REFUSED, REFUSED)
    tried(session, "one")
    tried_again = session.edit(-1)
    with pytest.raises(AuthenticationFailed):
        tried_again.wait()
    assert session.edit(-1, "two").wait().final_text == "Here is the answer."
    assert sent(model) == [["one"], ["one"], ["two"]]
    assert [turn.prompt.text for turn in session.turns] == ["two"]


def test_a_saved_a_forked_and_an_undone_conversation_leave_them_out_too(tmp_path):
    model, session = failing(REFUSED, path=tmp_path / "saved.jsonl")
    tried(session, "one")
    run(session, "two")
    loaded = Session.load(tmp_path / "saved.jsonl", model)
    assert [turn.unsent for turn in loaded.turns] == [True, False]
    for other in (session, loaded, session.fork()):
        assert [message.text for message in other.messages] == ["two", "Here is the answer."]
        run(other, "three")
        assert sent(model)[-1] == ["two", "Here is the answer.", "three"]
    session.undo()
    session.undo()
    session.undo()
    assert (session.turns, session.messages) == ((), ())


def test_every_output_says_that_it_is_not_sent_again_and_exported_messages_leave_it_out(tmp_path):
    _, session = failing(REFUSED)
    tried(session, "one")
    run(session, "two")
    for text in (html.render(Transcript(session.events)), terminal.render(Transcript(session.events))):
        assert text.count("no answer, not sent again") == 1
    assert formatting.history(session).text.splitlines()[1] == "     [error] [not sent again] The key is wrong."
    exported = save(session.turns, tmp_path / "talk.openai.json").read_text()
    assert "two" in exported
    assert "one" not in exported
