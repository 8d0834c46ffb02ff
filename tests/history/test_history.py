import pytest

from agentmagic.errors import JournalError
from agentmagic.events import (
    Compacted,
    PartDelta,
    PartStarted,
    ProposalSettled,
    RunResult,
    ToolFinished,
    TurnFinished,
    TurnStarted,
    fold,
)
from agentmagic.history.history import History, Match, Turn
from agentmagic.history.journal_reader import read
from agentmagic.messages import Media, Message, Text, ToolCall, ToolResult, Usage, user
from tests.logs import STARTED, WHOLE, step
from tests.saving import ADDED, answered, journal, whole, without_deltas

USAGE = Usage(6, 0, 4, 0, 2, 0.5)
TURN = (*WHOLE, TurnFinished(RunResult("It is 3.", fold(WHOLE), tuple(WHOLE), 2, False, "answer", USAGE)))


def history(turns=1):
    made = History()
    for _ in range(turns):
        made.add(TURN)
    return made


def play(past, *turns):
    """Have turns happen in a history, event by event."""
    for turn in turns:
        for event in turn:
            past.record(event)
        past.add(turn)


def compacting(number):
    summary = Compacted(f"summary {number}", 2, 0, 0, 100, 10, Usage())
    return whole(TurnStarted(user("More."), "m"), summary, *without_deltas(step(1, Text("Yes."))))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.jsonl"


def reread(path):
    return History.of(read(path).turns)


# turns


def test_a_turn_says_what_it_was_also_if_its_log_has_no_end():
    past = history()
    assert past.messages == past.messages == fold(WHOLE)
    assert past.events[:-1] == tuple(event for event in WHOLE if not isinstance(event, (PartDelta, PartStarted)))
    assert past.events[-1].result.events == past.events[:-1]
    (turn,) = past.turns
    assert (turn.prompt, turn.answer, turn.usage) == (user("What is 1 + 2?"), "It is 3.", USAGE)
    assert turn.result.stop_reason == "answer"
    assert (turn.tool_calls, turn.tool_failures) == (1, 0)
    assert repr(turn) == "<Turn 'What is 1 + 2?': 4 messages, 1 tool calls>"
    endless = Turn(tuple(WHOLE), fold(WHOLE))
    assert (endless.result, endless.answer, endless.usage) == (None, "", Usage())


# editing


@pytest.mark.parametrize(("turns", "left"), [(0, 0), (1, 1), (9, 3), (-1, 2)])
def test_a_cut_keeps_the_first_turns(turns, left):
    past = history(3)
    past.cut(turns)
    assert len(past) == left
    assert past.messages == fold(WHOLE) * left
    assert past.usage == sum([USAGE] * left, Usage())
    assert past.fork().turns == past.turns
    past.add(whole(STARTED, *step(1, ToolCall("c1", "add", {})), ToolFinished(ToolResult("c1", "add", (), "error"))))
    assert (past.tool_calls, past.tool_failures) == (left + 1, 1)


def test_the_last_compaction_of_the_turns_there_are_holds_unless_it_counts_messages_there_are_not():
    past = history()
    assert past.compacted is None
    for number in (1, 2):
        past.add(compacting(number))
    assert past.compacted.summary == "summary 2"
    assert past.fork(2).compacted.summary == "summary 1"
    past.undo()
    assert past.compacted.summary == "summary 1"
    past.undo()
    assert past.compacted is None
    past.add(whole(STARTED, Compacted("all of it", 50, 50, 0, 100, 10, Usage()), *step(1, Text("Yes."))))
    assert past.compacted is None


# search


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("what IS", [Match(0, "user", "What is 1 + 2?")]),
        ('"b": 2', [Match(0, "assistant", 'add {"a": 1, "b": 2}')]),
        ("3", [Match(0, "tool", "3"), Match(0, "assistant", "It is 3.")]),
        ("berlin", [Match(1, "assistant", "In **Berlin**, near the " + "x" * 47 + "…")]),
        ("the strasse", [Match(1, "user", "Where is the Strasse?")]),
        ("STRAßE", [Match(1, "assistant", "…" + "x" * 59 + " straße")]),
        ("plot", [Match(2, "user", "[image/png plot, 1 bytes]")]),
        ("  ", []),
        (".*", []),
    ],
)
def test_words_are_found_wherever_they_were_said(words, found):
    past = History.of([ADDED])
    past.add(answered("Where is the\nStrasse?", "In **Berlin**, near the " + "x" * 200 + " straße"))
    past.add(whole(TurnStarted(Message("user", (Media("image/png", b"x", "plot"),)), "m"), *step(1, Text("A line."))))
    assert past.search(words) == found


# the journal


@pytest.mark.parametrize("cleared", [False, True])
def test_turns_from_elsewhere_are_written_before_the_first_that_happens_unless_they_are_cut_before(path, cleared):
    past = History.of_messages(fold(WHOLE), "openai:gpt", journal(path))
    if cleared:
        past.clear()
    assert not path.exists()
    play(past, ADDED)
    past.close()
    assert reread(path).messages == past.messages
    assert len(reread(path)) == len(past) == 2 - cleared


def test_what_the_user_decides_on_a_proposed_cell_after_a_turn_is_in_that_turn_in_the_file_too(path):
    past = History(journal=journal(path))
    play(past, ADDED)
    kept = ProposalSettled("p1", "kept")
    past.record(kept)
    past.amend(kept)
    play(past, TURN)
    past.close()
    assert past.turns[0].events[-2] == kept
    assert reread(path).turns == past.turns


def test_a_copy_goes_its_own_way_and_one_that_cannot_be_written_changes_nothing(path, tmp_path):
    told = []
    past = History(journal=journal(path, told))
    play(past, ADDED)
    (tmp_path / "folder").write_text("mine")
    for place, why in ((tmp_path / "folder" / "copy.jsonl", "cannot be written: .*"), (path, "was left as it is.")):
        with pytest.raises(JournalError, match=rf"{why} Choose another file\.$"):
            past.save(journal(place, told))
    past.save(journal(tmp_path / "copy.jsonl"))
    play(past, TURN)
    past.close()
    assert told == []
    assert reread(path).turns == past.turns
    assert reread(tmp_path / "copy.jsonl").turns == past.turns[:1]
    assert not (tmp_path / "copy.jsonl.lock").exists()


def test_a_conversation_whose_file_failed_goes_on_in_memory_and_in_the_one_it_is_saved_to(path, tmp_path):
    path.write_text("somebody else's\n")
    past = History(journal=journal(path))
    play(past, ADDED, TURN)
    past.undo()
    assert (len(past), past.is_saved) == (1, False)
    past.save(journal(tmp_path / "other.jsonl"), [("bank", "pay")])
    assert past.is_saved
    play(past, TURN)
    past.close()
    assert path.read_text() == "somebody else's\n"
    assert reread(tmp_path / "other.jsonl").turns == past.turns
    assert read(tmp_path / "other.jsonl").in_doubt == {("bank", "pay")}
