import asyncio

import pytest

from agentmagic.errors import BadRequest, ConfigError
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Reasoning, Text, ToolCall, user
from agentmagic.providers.base import Request
from agentmagic.providers.scripted import ScriptedModel, make

HELLO = Request((user("Say hello to everybody."),), "Be kind.")


def play(model, request=HELLO):
    async def collect():
        return [event async for event in model.stream(request)]

    return asyncio.run(collect())


def test_a_string_answers_word_by_word_and_every_request_is_kept():
    model = ScriptedModel(["Hello you."])
    *events, finished = play(model)
    assert events == [
        PartStarted(0, "text"),
        PartDelta(0, "Hello "),
        PartDelta(0, "you."),
        PartFinished(0, Text("Hello you.")),
    ]
    assert finished.usage.input_tokens == 6  # words are counted as tokens
    assert model.requests == [HELLO]


def test_a_step_may_think_speak_and_call_and_a_lone_surrogate_becomes_a_replacement_character():
    step = {"reasoning": "hm", "text": "a\ud800", "calls": [{"name": "look", "arguments": {"at": "\ud800"}}]}
    parts = [event.part for event in play(ScriptedModel([step])) if isinstance(event, PartFinished)]
    assert parts == [Reasoning("hm"), Text("a\ufffd"), ToolCall("call_1", "look", {"at": "\ufffd"})]


def test_a_script_can_play_a_model_that_writes_bad_json():
    events = play(ScriptedModel([{"calls": [{"name": "look", "arguments": "[1, 2]"}]}]))
    assert events[1:3] == [PartDelta(0, "[1, 2]"), PartFinished(0, ToolCall("call_1", "look", {"_raw": "[1, 2]"}))]


@pytest.mark.parametrize("steps", ["7", '[{"calls": 7}]', '[{"calls": [{"name": "look"}]}]', "{", "[" * 100_000])
def test_a_file_that_is_no_script_is_refused(steps, tmp_path):
    (tmp_path / "script.json").write_text(steps)
    with pytest.raises(ConfigError):
        make(str(tmp_path / "script.json"))


def test_a_script_may_raise_and_a_request_after_its_last_step_says_what_is_missing():
    model = ScriptedModel([BadRequest("no")], "lesson")
    with pytest.raises(BadRequest, match="no"):
        play(model)
    with pytest.raises(BadRequest, match="The script scripted:lesson has 1 steps, and one more was asked for"):
        play(model)
