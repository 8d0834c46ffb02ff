"""Thinking that a model writes as text is reasoning, whoever serves the model: no answer, no value, no call of it.

What counts as thinking is tested in `tests/providers/test_text_reader.py`.
"""

from agentmagic.events import PartFinished, PartStarted
from agentmagic.messages import Reasoning
from tests.contracts.conversing import every_api
from tests.providers.strict.script import call, say

WIPE = '<tool_call>{"name": "clock", "arguments": {"zone": "CET"}}</tool_call>'


def thoughts_of(result):
    parts = [part for message in result.history_delta for part in message.parts]
    return "".join(part.text for part in parts if isinstance(part, Reasoning))


@every_api
def test_thinking_is_no_part_of_the_answer_and_goes_to_no_later_request(conversation, api):
    with conversation(
        api, say("Is it noon, or is it not even that?\n</think>\n\nIt <think>Is it?</think>is 12.")
    ) as talk:
        result, error = talk.ask()
        assert error is None, error
        assert result.final_text == "It is 12."
        assert thoughts_of(result) == "Is it noon, or is it not even that?\nIs it?"
        assert next(event.kind for event in result.events if isinstance(event, PartStarted)) == "text"
        finished = [event.part.type for event in result.events if isinstance(event, PartFinished)]
        assert finished[:2] == ["reasoning", "text"]  # words that prove to be thinking are withdrawn by their end
        talk.goes_on()
        assert "Is it" not in talk.server.requests[-1].body.decode()


@every_api
def test_a_call_that_was_only_thought_of_is_not_carried_out_and_a_real_one_beside_it_is(conversation, api):
    thought = f"<think>Or {WIPE}?</think>I could {WIPE} but</think>Let me look."
    steps = (call(("clock", {"zone": "UTC"}), says=thought), say("So</think>Noon."))
    with conversation(api, *steps, permission="allow") as talk:
        result, error = talk.ask()
        assert (talk.ran, result.final_text, error) == (["UTC"], "Noon.", None)
        assert thoughts_of(result).count(WIPE) == 2
        assert thoughts_of(result).endswith("So")
        talk.goes_on()
