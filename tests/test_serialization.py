import json

import pytest
from hypothesis import given

from agentmagic import serialization
from agentmagic.errors import UsageError
from agentmagic.events import PartDelta, PartStarted, RunResult, StepFinished, TurnFinished
from agentmagic.fold import fold
from agentmagic.messages import Media, ProviderData, Text, ToolCall, ToolResult, Usage
from tests.logs import WHOLE, parts, some_events, whole_messages


def finished(log):
    return TurnFinished(RunResult("It is 3.", fold(log), tuple(log), 2, False, "answer", Usage(6, 0, 4, 0, 2, None)))


@given(parts | whole_messages | some_events)
def test_whatever_is_written_is_read_back_the_same(value):
    assert serialization.decode(serialization.encode(value)) == value


@given(whole_messages)
def test_a_value_is_written_as_one_line(value):
    assert "\n" not in serialization.encode(value)


def test_a_log_is_read_back_with_its_results_whole():
    log = [*WHOLE, finished(WHOLE), *WHOLE, finished(WHOLE)]
    assert serialization.decode_log(serialization.encode(event) for event in log) == log


def test_a_log_without_deltas_gives_the_same_messages():
    kept = [event for event in WHOLE if not isinstance(event, (PartDelta, PartStarted))]
    read = serialization.decode_log([serialization.encode(event) for event in (*kept, finished(WHOLE))])
    assert read[-1].result.history_delta == fold(WHOLE)
    assert read[-1].result.events == tuple(kept)


def test_a_result_is_written_without_the_log_around_it():
    line = json.loads(serialization.encode(finished(WHOLE)))
    assert set(line["result"]) == {"type", "final_text", "iterations_used", "timed_out", "stop_reason", "usage"}


def test_what_stands_at_its_default_is_left_out():
    assert (
        serialization.encode(StepFinished(1, Usage())) == '{"type":"step_finished","step":1,"usage":{"type":"usage"}}'
    )


def test_bytes_are_written_as_base64():
    assert serialization.encode(Media("image/png", b"\x89PNG")) == (
        '{"type":"media","media_type":"image/png","data":{"$bytes":"iVBORw=="}}'
    )


@pytest.mark.parametrize("foreign", [{"type": "text", "text": "mine"}, {"$bytes": "eA=="}, {"type": "no such thing"}])
def test_somebody_else_s_json_is_never_read_as_values(foreign):
    call = ToolCall("1", "write", foreign, ProviderData("openai", foreign))
    result = ToolResult("1", "write", (Text("ok"),), structured=[foreign])
    assert serialization.decode(serialization.encode(call)) == call
    assert serialization.decode(serialization.encode(result)) == result


@pytest.mark.parametrize(
    "line",
    ["", "not json", "[1", '{"type":"no_such_type"}', '{"text":"no type"}', '{"type":"text","wrong":1}', '"\\ud800"x'],
)
def test_a_line_of_somebody_else_is_refused_in_a_sentence(line):
    with pytest.raises(UsageError, match=r"^This line was not written by agentmagic: "):
        serialization.decode(line)


def test_the_value_of_a_result_is_not_written():
    result = RunResult("{}", (), (), 1, False, "answer", Usage(), value=object())
    assert serialization.decode(serialization.encode(result)).value is None
