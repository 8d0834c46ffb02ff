"""Thinking that a model writes as text is reasoning, whoever serves the model: no answer, no value, no call of it."""

import pytest

from agentmagic.events import PartFinished, PartStarted
from agentmagic.messages import Reasoning
from tests.contracts.conversing import check_events, every_api
from tests.providers.strict.script import call, say

# What a model writes, what it thought, and what it answered.
ANSWERS = {
    "a thought first": ("<think>\nIs it noon?\n</think>\n\nIt is 12.", "Is it noon?", "It is 12."),
    "a thought later": ("Well. <thinking>Is it noon?</thinking>It is 12.", "Is it noon?", "Well. It is 12."),
    "two thoughts": ("<think>Is it?</think>It is <think>Yes.</think>12.", "Is it?Yes.", "It is 12."),
    "no beginning": ("Is it noon?\n</think>\n\nIt is 12.", "Is it noon?", "It is 12."),
    "an end in a fence": ("Write:\n```\n</think>\n```\n", "", "Write:\n```\n</think>\n```\n"),
    "a tag in a span": ("Write `<think>` first.", "", "Write `<think>` first."),
    "Mistral's tags": ("[THINK]Is it noon?[/THINK]It is 12.", "Is it noon?", "It is 12."),
}
WIPE = '<tool_call>{"name": "clock", "arguments": {"zone": "UTC"}}</tool_call>'


def thoughts_of(result):
    parts = [part for message in result.history_delta for part in message.parts]
    return "".join(part.text for part in parts if isinstance(part, Reasoning))


@every_api
@pytest.mark.parametrize("name", ANSWERS)
def test_thinking_is_no_part_of_the_answer_and_goes_to_no_later_request(conversation, api, name):
    written, thought, answer = ANSWERS[name]
    with conversation(api, say(written)) as talk:
        result, error = talk.ask()
        assert error is None, error
        assert result.final_text == answer
        assert thoughts_of(result).strip() == thought
        check_events(result)
        talk.goes_on()
        sent = talk.server.requests[-1].body.decode()
        assert "Is it" not in sent


@every_api
@pytest.mark.parametrize("written", ["<think>1, or so?</think>{}", "1, or so?</think>\n{}"])
def test_thinking_is_no_part_of_a_value(conversation, api, written):
    with conversation(api, say(written.format('{"value": 42}')), output=int) as talk:
        result, error = talk.ask()
        assert (result.value, error, len(talk.server.requests)) == (42, None, 1)


@every_api
@pytest.mark.parametrize("written", [f"<think>Or {WIPE}?</think>No.", f"I could {WIPE} but</think>No."])
def test_a_call_that_was_only_thought_of_is_not_carried_out(conversation, api, written):
    with conversation(api, say(written), permission="allow") as talk:
        result, error = talk.ask()
        assert (talk.ran, result.final_text, error) == ([], "No.", None)
        assert WIPE in thoughts_of(result)


@every_api
def test_a_model_that_thinks_and_calls_may_think_as_text_too(conversation, api):
    steps = (call(("clock", {"zone": "UTC"}), says="<think>The clock?</think>Let me look."), say("So</think>Noon."))
    with conversation(api, *steps, permission="allow") as talk:
        result, error = talk.ask()
        assert (talk.ran, result.final_text, error) == (["UTC"], "Noon.", None)
        assert thoughts_of(result) == "The clock?So"
        check_events(result)
        talk.goes_on()


@every_api
def test_words_that_prove_to_be_thinking_are_withdrawn_by_the_end_of_their_part(conversation, api):
    with conversation(api, say("Is it noon, or is it not?</think>Noon.")) as talk:
        result, _ = talk.ask()
    started = [event.kind for event in result.events if isinstance(event, PartStarted)]
    finished = [event.part.type for event in result.events if isinstance(event, PartFinished)]
    assert started[0] == "text"
    assert finished[:2] == ["reasoning", "text"]


@every_api
def test_thinking_without_an_end_is_no_answer(conversation, api):
    with conversation(api, say("<think>Is it noon?"), say("Noon.")) as talk:
        result, error = talk.ask()
        assert (result.final_text, error) == ("Noon.", None)
        assert any(event.type == "step_retried" for event in result.events)
