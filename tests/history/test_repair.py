import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic.events import INTERRUPTED, ToolStarted, fold
from agentmagic.history.repair import CONTINUED, repair, repaired, unfold
from agentmagic.messages import Media, Message, Reasoning, Resource, Text, ToolCall, ToolResult, user
from agentmagic.testing import invalid_history
from tests.logs import CALL, RESULT, WHOLE, contents, whole_messages

PROMPT = user("What is 1 + 2?")
ANSWER = Message("assistant", (Text("It is 3."),))
CALLS = Message("assistant", (Text("Let me add."), CALL))
RESULTS = Message("tool", (RESULT,))
OTHER = ToolCall("c2", "now", {})
OTHER_RESULT = ToolResult("c2", "now", (Text("noon"),))

ids = st.sampled_from(["c1", "c2", "c1_2"])
parts = st.one_of(
    contents,
    st.builds(Reasoning, st.just("hm")),
    st.builds(ToolCall, ids, st.just("add"), st.just({})),
    st.builds(ToolResult, ids, st.just("add"), st.just((Text("3"),))),
)
histories = st.lists(
    st.builds(Message, st.sampled_from(["user", "assistant", "tool"]), st.lists(parts, max_size=4).map(tuple)),
    max_size=8,
)


@given(histories)
def test_whatever_is_repaired_is_valid_and_stays_as_it_is(messages):
    once, notes = repair(messages)
    assert invalid_history(once) is None
    twice = repaired(once)
    assert len(twice) == len(once)
    assert all(message is other for message, other in zip(twice, once, strict=True))
    if invalid_history(messages) is None:
        assert list(once) == messages
        assert notes == ()


@given(st.lists(whole_messages, max_size=5))
def test_any_messages_can_be_repaired(messages):
    assert invalid_history(repaired(messages)) is None


def test_a_valid_history_is_returned_message_by_message():
    messages = (PROMPT, CALLS, RESULTS, ANSWER, user("And now?"), user("Well?"), ANSWER)
    after, notes = repair(messages)
    assert all(message is other for message, other in zip(after, messages, strict=True))
    assert notes == ()


def test_a_call_without_a_result_gets_one():
    after, notes = repair([PROMPT, CALLS, user("And now?")])
    assert after[2] == Message("tool", (ToolResult("c1", "add", (Text(INTERRUPTED),), "interrupted"),))
    assert after[3] == user("And now?")
    assert notes == ("Tool calls had no result, and the model is told that they were interrupted: 1.",)


def test_a_result_without_a_call_is_left_out_and_said():
    after, notes = repair([PROMPT, ANSWER, RESULTS, user("And now?")])
    assert after == (PROMPT, ANSWER, user("And now?"))
    assert notes == ("Tool results answer no call and were left out: 1.",)


BOTH = Message("assistant", (CALL, OTHER))
BOTH_RESULTS = Message("tool", (RESULT, OTHER_RESULT))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((BOTH, Message("tool", (OTHER_RESULT, RESULT))), (BOTH, BOTH_RESULTS)),
        ((BOTH, Message("tool", (OTHER_RESULT,)), RESULTS, ANSWER), (BOTH, BOTH_RESULTS, ANSWER)),
        ((CALLS, Message("user", (RESULT, Text("And now?")))), (CALLS, RESULTS, user("And now?"))),
    ],
    ids=["in another order", "in messages of their own", "in a prompt"],
)
def test_results_come_in_one_message_in_the_order_of_their_calls(before, after):
    assert repair([PROMPT, *before]) == ((PROMPT, *after), ())


def test_a_result_that_comes_late_answers_nothing():
    after, _ = repair([PROMPT, CALLS, ANSWER, RESULTS])
    assert [part.status for part in after[2].parts] == ["interrupted"]
    assert after[-1] == ANSWER


def test_calls_of_one_id_get_their_own_and_keep_their_results():
    first, second = (ToolResult("c1", "add", (Text(words),)) for words in ("3", "7"))
    calls = Message("assistant", (CALL, ToolCall("c1", "add", {"a": 3, "b": 4})))
    after = repaired([PROMPT, calls, Message("tool", (first, second))])
    assert [call.id for call in after[1].calls] == ["c1", "c1_2"]
    assert [(part.call_id, part.text) for part in after[2].parts] == [("c1", "3"), ("c1_2", "7")]


@pytest.mark.parametrize("head", [[ANSWER], [CALLS, RESULTS], [RESULTS, ANSWER], [Message("user", ()), ANSWER]])
def test_a_history_that_begins_in_the_middle_gets_a_prompt(head):
    after, notes = repair(head)
    assert after[0] == user(CONTINUED)
    assert CONTINUED in notes[-1]


def test_a_part_in_the_wrong_place_is_left_out_and_said():
    image, link = Media("image/png", b"x"), Resource("file:///x")
    after, notes = repair(
        [Message("user", (Text("a"), CALL)), Message("assistant", (image, link)), Message("tool", (link,))]
    )
    assert after == (user("a"), Message("assistant", (image,)))
    assert notes == ("Parts stood in a message that cannot hold them and were left out: 3.",)


@given(histories)
def test_a_history_unfolds_to_turns_that_fold_to_it(messages):
    after = repaired(messages)
    turns = unfold(messages, "openai:gpt")
    assert tuple(message for turn in turns for message in fold(turn)) == after
    for turn in turns:
        assert turn[-1].result.history_delta == fold(turn)
        assert turn[-1].result.events == turn[:-1]


def test_a_history_unfolds_at_its_prompts():
    (first, second) = unfold([*fold(WHOLE), user("And now?"), Message("assistant", (Text("Sti"),), interrupted=True)])
    assert first[-1].result.final_text == "It is 3."
    assert (first[-1].result.stop_reason, first[-1].result.iterations_used) == ("answer", 2)
    assert second[-1].result.stop_reason == "cancelled"
    assert not any(isinstance(event, ToolStarted) for event in first)
