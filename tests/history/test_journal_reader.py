import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic.errors import JournalError
from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Compacted,
    HistoryCut,
    Notice,
    Planned,
    Routed,
    StepStarted,
    Task,
    TaskJudged,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    fold,
    without_deltas,
)
from agentmagic.history import journal_reader as module
from agentmagic.history.history import History
from agentmagic.history.journal_reader import list_conversations, read
from agentmagic.messages import Text, ToolCall, ToolResult, Usage, user
from agentmagic.serialization import InDoubt, encode_record, header
from agentmagic.testing import invalid_history
from tests.logs import STARTED, some_events, step
from tests.saving import ADDED, PAID, PAYING, answered, journal, whole, written

CUT_OFF = "This turn was cut off when its kernel ended."
FORMAT_1 = Path(__file__).with_name("format_1.jsonl")
PAY_AGAIN = ToolCall("p2", "pay", {"amount": 5})


def a_file(path, *records):
    """A journal of any records, in any order."""
    path.write_bytes(header() + b"".join(encode_record(record) for record in records))
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.jsonl"


# what is there


@pytest.mark.parametrize("content", [b"", header(), header()[:20]])
def test_a_file_without_an_event_is_an_empty_conversation(path, content):
    path.write_bytes(content)
    assert read(path) == module.Saved(())


def test_what_cannot_be_read_is_refused_with_the_reason(path, tmp_path):
    with pytest.raises(JournalError, match=r"No conversation is saved at .*%agent sessions lists"):
        read(path)
    for reader in (read, module.holds_journal):
        with pytest.raises(JournalError, match="cannot be read: Is a directory"):
            reader(tmp_path)


@pytest.mark.parametrize("garbage", [b"garbage\n", b"\xff\xfe\n", b"[" * 9_999 + b"\n", b'{"type":"turn_started"}\n'])
def test_a_line_that_cannot_be_read_or_is_too_long_or_belongs_to_no_turn_loses_only_itself(path, garbage, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_LINE", 20_000)
    long, second = Notice("info", "x" * 50_000), answered("And now?", "4")
    a_file(path, PAID, *ADDED[:3], long, *ADDED[3:])
    path.write_bytes(path.read_bytes() + garbage + b"".join(map(encode_record, second)))
    assert read(path).turns == (ADDED, second)
    assert read(path).problems == ("3 lines of the file could not be read; what stood there is missing.",)


def test_a_turn_without_its_end_is_ended_before_the_next(path):
    a_file(path, *ADDED[:-1], *ADDED)
    first, second = read(path).turns
    assert second == ADDED
    assert first[-1].result.history_delta == ADDED[-1].result.history_delta
    assert first[-1].result.stop_reason == "cancelled"
    assert read(path).closing == ()


def test_a_turn_whose_beginning_cannot_be_read_still_counts_where_the_history_was_cut(path):
    first, second, third = (answered(prompt, "yes") for prompt in ("one", "two", "three"))
    a_file(path, *first, *second[1:], *third, HistoryCut(2))
    assert read(path).turns == (first,)
    a_file(path, *first, *second[1:-1], HistoryCut(1), *third)
    assert read(path).turns == (first, third)
    assert read(path).lost_turns == 0


def test_who_goes_on_without_a_turn_that_was_lost_cuts_what_they_see(path):
    first, second, third, fourth = (answered(prompt, "yes") for prompt in ("one", "two", "three", "four"))
    a_file(path, *first, *second[1:], *third)
    assert read(path).lost_turns == 1
    resumed = journal(path)
    past = History.of(resumed.resume().turns, resumed)
    for event in fourth:
        past.record(event)
    past.add(fourth)
    past.undo()
    past.close()
    assert read(path).turns == (first, third)
    assert read(path).lost_turns == 0


def test_what_was_undone_or_lost_was_spent_all_the_same(path):
    each, cost = Usage(3, 0, 2, 0, 1), Usage(10, 0, 5, 0, 1)
    one, two, three = (answered(prompt, "yes") for prompt in ("one", "two", "three"))
    compacted = Compacted("summary", 1, 0, 0, 100, 10, each)
    planned = (Routed("tools", usage=cost), Planned((Task("t1", "add", {}, "Add."),), cost))
    for records, spent in (
        ((*one, *two, HistoryCut(0), *three), [each] * 3),
        ((*one[1:], *two[1:-1], *three), [each] * 3),
        (one[1:-1], [each]),
        ((STARTED, *planned, TaskJudged("t1", success=True, usage=cost)), [cost] * 3),
        ((*one, *two[:-1], compacted), [each] * 3),
    ):
        assert read(a_file(path, *records)).spent == sum(spent, Usage())
    resumed = journal(path)
    assert resumed.resume().spent == sum([each] * 3, Usage())
    resumed.close()
    assert read(path).spent == sum([each] * 3, Usage())


def test_a_journal_of_the_first_format_is_read_and_written_the_same_today():
    """The file is frozen: it must load without loss for as long as the first format is read."""
    lines = FORMAT_1.read_bytes().splitlines(keepends=True)
    saved = read(FORMAT_1)
    first, last = saved.turns
    written = [json.loads(encode_record(event)) for event in (*first, *last[: -len(saved.closing)])]
    begun = len(first) + 1
    kept = [line for line in map(json.loads, [*lines[1:begun], *lines[-11:-1]]) if line["type"] != "plan_made"]
    assert written == kept
    parts = {part.type for message in first[-1].result.history_delta for part in message.parts}
    assert parts == {"text", "media", "reasoning", "tool_call", "tool_result"}
    assert first[-1].result.final_text == '{"river": true}'
    assert invalid_history((*first[-1].result.history_delta, *last[-1].result.history_delta)) is None
    assert [event.type for event in saved.closing] == ["tool_finished", "notice", "turn_finished"]
    assert saved.problems[0] == "2 lines of the file could not be read; what stood there is missing."
    assert "The call of transfer was under way" in saved.problems[1]
    assert saved.spent == Usage(605, 320, 86, 10, 6, None)
    assert (saved.in_doubt, saved.lost_turns) == ({("bank", "transfer"), ("notebook", "remove")}, 0)


# a crash


@pytest.mark.parametrize("length", range(1, len(ADDED)))
def test_a_turn_cut_off_anywhere_becomes_whole_and_keeps_what_was_finished(path, length):
    a_file(path, *ADDED[:length])
    saved = read(path)
    (turn,) = saved.turns
    assert turn[:length] == ADDED[:length]
    assert turn[length:-1] == saved.closing[:-1]
    result = turn[-1].result
    assert (result.stop_reason, result.error, result.timed_out) == ("cancelled", "", False)
    assert result.history_delta == fold(ADDED[:length])
    assert invalid_history(result.history_delta) is None
    assert CUT_OFF in saved.problems[-1]


def test_the_end_of_a_turn_that_was_cut_off_counts_what_was_used(path):
    a_file(path, *ADDED[:-3])
    result = read(path).turns[0][-1].result
    assert (result.iterations_used, result.usage) == (2, Usage(3, 0, 2, 0, 1))


# doubt


BEGUN = (STARTED, *without_deltas(PAYING))
DOUBTED = (*BEGUN, InDoubt((("bank", "pay"),)), *whole(*BEGUN)[len(BEGUN) :])
AGAIN = (STARTED, *without_deltas(step(1, PAY_AGAIN)))
ASKED = ApprovalAsked("a1", PAY_AGAIN, "bank")


def result_of(status):
    return ToolFinished(ToolResult("p2", "pay", (Text("x"),), status))


@pytest.mark.parametrize(
    ("later", "doubted"),
    [
        ((), True),
        ((HistoryCut(0),), True),
        ((*AGAIN, ASKED), True),
        ((*AGAIN, ASKED, ApprovalGiven("a1", approved=False)), True),
        ((*AGAIN, ASKED, ApprovalGiven("a2", approved=True)), True),
        ((*AGAIN, ASKED, ApprovalGiven("a1", approved=True), ToolStarted(PAY_AGAIN, "bank")), True),
        ((*AGAIN, ToolStarted(PAY_AGAIN, "bank"), result_of("error")), True),
        ((*AGAIN, ToolStarted(PAY_AGAIN, "other bank"), result_of("ok")), True),
        ((*AGAIN, result_of("ok")), True),
        ((*AGAIN, ASKED, ApprovalGiven("a1", approved=True)), False),
        ((*AGAIN, ToolStarted(PAY_AGAIN, "bank"), result_of("ok")), False),
    ],
)
def test_a_tool_stays_in_doubt_until_an_approval_or_a_success(path, later, doubted):
    assert read(a_file(path, *DOUBTED, *later)).in_doubt == ({("bank", "pay")} if doubted else set())


def test_a_call_whose_end_cannot_be_read_is_in_doubt_and_one_that_ended_under_our_eyes_is_not(path):
    for status in ("ok", "interrupted"):  # a call that ended under our eyes
        ended = (*AGAIN, ToolStarted(PAY_AGAIN, "bank"), result_of(status))
        assert read(a_file(path, *ended)).in_doubt == frozenset()
    a_file(path, *ADDED)
    kept = [line for line in path.read_bytes().splitlines(keepends=True) if b'"tool_finished"' not in line]
    path.write_bytes(b"".join(kept))
    assert read(path).in_doubt == {("notebook", "add")}


# anybody may have written in it

RECORDS = (*ADDED, *DOUBTED, *AGAIN, ASKED, ApprovalGiven("a1", approved=True), HistoryCut(1), *ADDED, *BEGUN)
LINES = [header(), *map(encode_record, RECORDS)]
mutations = st.lists(
    st.tuples(st.sampled_from(["drop", "repeat", "swap", "flip", "cut", "insert"]), st.integers(0), st.integers(0)),
    max_size=6,
)


def mutated(lines, mutation):
    kind, where, how = mutation
    at, other = where % len(lines), how % len(lines)
    lines = list(lines)
    match kind:
        case "drop":
            del lines[at]
        case "repeat":
            lines.insert(other, lines[at])
        case "swap":
            lines[at], lines[other] = lines[other], lines[at]
        case "flip" if lines[at]:
            changed = bytearray(lines[at])
            changed[how % len(changed)] = (how // 7) % 256
            lines[at] = bytes(changed)
        case "cut":
            lines[at] = lines[at][: how % (len(lines[at]) + 1)]
        case "insert":
            lines.insert(at, bytes([how % 256, where % 256]) * 3 + b"\n")
    return lines or [b""]


def check_what_is_read(path):
    """Whatever a file holds: it is refused in a sentence, or makes a history that every provider takes."""
    try:
        saved = read(path)
    except JournalError:
        return None
    past = History.of(saved.turns)
    assert invalid_history(past.messages) is None
    assert past.usage.requests >= 0
    assert all(isinstance(turn.events[-1], TurnFinished) for turn in past.turns)
    assert isinstance(past.search("x"), list)
    return saved


@given(mutations)
def test_a_file_that_was_tampered_with_makes_a_valid_history(tmp_path_factory, changes):
    path = tmp_path_factory.getbasetemp() / "tampered.jsonl"
    lines = LINES
    for change in changes:
        lines = mutated(lines, change)
    path.write_bytes(b"".join(lines))
    saved = check_what_is_read(path)
    if saved is None:
        return
    resumed = journal(path)
    assert resumed.resume() == saved
    resumed.close()
    again = read(path)
    if saved.turns:
        assert again.turns == saved.turns
        assert (again.closing, again.in_doubt) == ((), saved.in_doubt)


@given(st.lists(some_events, max_size=8))
def test_any_events_in_any_order_make_a_valid_history(tmp_path_factory, events):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    a_file(path, TurnStarted(user("Go on."), "m"), *without_deltas(events))
    assert check_what_is_read(path) is not None


# a folder


def test_a_folder_lists_its_conversations_the_last_used_first(tmp_path):
    conversations = {
        "new": (*ADDED, HistoryCut(0), *answered("And\nnow?", "4"), *ADDED, *ADDED, HistoryCut(2, step="undo")),
        "old": answered("word " * 40, "ok"),
        "empty": (StepStarted(1, "m"),),
    }
    for age, (name, events) in enumerate(conversations.items()):
        os.utime(written(tmp_path / f"{name}.jsonl", *events), (1_000 - age, 1_000 - age))
    (tmp_path / "notes.jsonl").write_text("mine\n")
    (tmp_path / "folder.jsonl").mkdir()
    listed = list_conversations(tmp_path)
    assert [(entry.name, entry.turns, entry.modified) for entry in listed] == [
        ("new", 2, 1_000),
        ("old", 1, 999),
        ("empty", 0, 998),
    ]
    assert [entry.prompt for entry in listed] == ["And now?", ("word " * 12)[:59] + "…", ""]
    assert listed[0].path == tmp_path / "new.jsonl"
    assert list_conversations(tmp_path / "nowhere") == []


def test_of_a_long_conversation_only_the_beginning_and_the_end_are_read(tmp_path):
    long = answered("word " * 1_000, "ok")
    going_on = written(tmp_path / "going on.jsonl", *long, HistoryCut(0), *long)
    cleared = written(tmp_path / "cleared.jsonl", *long, HistoryCut(0))
    with going_on.open("r+b") as file:  # a line in the middle that would be read for minutes, if it was
        file.truncate(2**40)
    os.utime(going_on, (1_000, 1_000))
    os.utime(cleared, (999, 999))
    assert [(one.name, one.turns) for one in list_conversations(tmp_path, 1_000)] == [
        ("going on", None),
        ("cleared", 0),
    ]
