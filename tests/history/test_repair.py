import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic.events import INTERRUPTED, ToolStarted, fold
from agentmagic.history.repair import CONTINUED, repair, repair_messages, unfold
from agentmagic.messages import Media, Message, Reasoning, Resource, Text, ToolCall, ToolResult, user
from agentmagic.testing import invalid_history
from tests.logs import CALL, RESULT, WHOLE, contents, whole_messages

PROMPT = user("What is 1 + 2?")
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
    twice = repair_messages(once)
    assert len(twice) == len(once)
    assert all(message is other for message, other in zip(twice, once, strict=True))
    if invalid_history(messages) is None:
        assert list(once) == messages
        assert notes == ()


@given(st.lists(whole_messages, max_size=5))
def test_any_messages_can_be_repaired(messages):
    assert invalid_history(repair_messages(messages)) is None


ANSWER = Message("assistant", (Text("It is 3."),))
CALLS = Message("assistant", (Text("Let me add."), CALL))
RESULTS = Message("tool", (RESULT,))
OTHER_RESULT = ToolResult("c2", "now", (Text("noon"),))
BOTH = Message("assistant", (CALL, ToolCall("c2", "now", {})))
BOTH_RESULTS = Message("tool", (RESULT, OTHER_RESULT))
NONE = Message("tool", (ToolResult("c1", "add", (Text(INTERRUPTED),), "interrupted"),))
NO_RESULT = "Tool calls had no result, and the model is told that they were interrupted: 1."
NO_CALL = "Tool results answer no call and were left out: 1."
ODD = "Parts stood in a message that cannot hold them and were left out: 3."
IMAGE, LINK = Media("image/png", b"x"), Resource("file:///x")


@pytest.mark.parametrize(
    ("before", "after", "notes"),
    [
        ((CALLS, user("And now?")), (CALLS, NONE, user("And now?")), {NO_RESULT}),
        ((ANSWER, RESULTS, user("And now?")), (ANSWER, user("And now?")), {NO_CALL}),
        ((CALLS, ANSWER, RESULTS), (CALLS, NONE, ANSWER), {NO_RESULT, NO_CALL}),
        ((BOTH, Message("tool", (OTHER_RESULT, RESULT))), (BOTH, BOTH_RESULTS), set()),
        ((BOTH, Message("tool", (OTHER_RESULT,)), RESULTS, ANSWER), (BOTH, BOTH_RESULTS, ANSWER), set()),
        ((CALLS, Message("user", (RESULT, Text("And now?")))), (CALLS, RESULTS, user("And now?")), set()),
        (
            (Message("user", (Text("a"), CALL)), Message("assistant", (IMAGE, LINK)), Message("tool", (LINK,))),
            (user("a"), Message("assistant", (IMAGE,))),
            {ODD},
        ),
    ],
    ids=["no result", "no call", "late", "another order", "messages of their own", "in a prompt", "wrong place"],
)
def test_every_call_gets_its_result_and_what_fits_nowhere_is_left_out_and_said(before, after, notes):
    mended, said = repair([PROMPT, *before])
    assert mended == (PROMPT, *after)
    assert set(said) == notes


def test_calls_of_one_id_get_their_own_and_keep_their_results():
    first, second = (ToolResult("c1", "add", (Text(words),)) for words in ("3", "7"))
    calls = Message("assistant", (CALL, ToolCall("c1", "add", {"a": 3, "b": 4})))
    after = repair_messages([PROMPT, calls, Message("tool", (first, second))])
    assert [call.id for call in after[1].calls] == ["c1", "c1_2"]
    assert [(part.call_id, part.text) for part in after[2].parts] == [("c1", "3"), ("c1_2", "7")]


@pytest.mark.parametrize("head", [[ANSWER], [CALLS, RESULTS], [RESULTS, ANSWER], [Message("user", ()), ANSWER]])
def test_a_history_that_begins_in_the_middle_gets_a_prompt(head):
    after, notes = repair(head)
    assert after[0] == user(CONTINUED)
    assert CONTINUED in notes[-1]


@given(histories)
def test_a_history_unfolds_to_turns_that_fold_to_it(messages):
    after = repair_messages(messages)
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
