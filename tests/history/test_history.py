import pytest

from agentmagic.errors import JournalError
from agentmagic.events import (
    Compacted,
    HistoryCut,
    PartDelta,
    PartStarted,
    RunResult,
    StepFinished,
    ToolFinished,
    TurnFinished,
    TurnStarted,
    fold,
)
from agentmagic.history.history import History, Match, Turn
from agentmagic.history.journal_reader import read, saved_in
from agentmagic.history.repair import CONTINUED
from agentmagic.messages import Media, Message, Text, ToolCall, ToolResult, Usage, user
from agentmagic.testing import invalid_history
from tests.logs import RESULT, STARTED, WHOLE, step
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


# turns


def test_a_turn_s_messages_are_folded_from_its_events():
    assert history().messages == fold(WHOLE)


def test_deltas_are_left_out_of_the_log():
    kept = tuple(event for event in TURN if not isinstance(event, (PartDelta, PartStarted)))
    assert history().events[:-1] == kept[:-1]
    last = history().events[-1]
    assert isinstance(last, TurnFinished)
    assert last.result.events == kept[:-1]


def test_a_turn_says_what_it_was():
    (turn,) = history().turns
    assert (turn.prompt, turn.answer, turn.usage) == (user("What is 1 + 2?"), "It is 3.", USAGE)
    assert turn.result.stop_reason == "answer"
    assert (turn.tool_calls, turn.tool_failures) == (1, 0)
    assert repr(turn) == "<Turn 'What is 1 + 2?': 4 messages, 1 tool calls>"


def test_a_turn_whose_log_has_no_end_has_no_result():
    turn = Turn(tuple(WHOLE), fold(WHOLE))
    assert (turn.result, turn.answer, turn.usage) == (None, "", Usage())


def test_turns_follow_one_another():
    assert history(2).messages == fold(WHOLE) * 2
    assert (len(history(2)), len(history(2).turns)) == (2, 2)


def test_what_begins_no_turn_is_not_one():
    past = history()
    past.add(())
    past.add(TURN[1:])
    assert len(past) == 1


def test_totals_are_the_sums_of_the_turns():
    past = history(2)
    past.add(whole(STARTED, *step(1, ToolCall("c1", "add", {})), ToolFinished(ToolResult("c1", "add", (), "error"))))
    assert past.usage == USAGE + USAGE + Usage(3, 0, 2, 0, 1)
    assert (past.tool_calls, past.tool_failures) == (3, 1)
    assert History().usage == Usage()


def test_messages_are_the_same_object_until_a_turn_is_added():
    past = history(2)
    assert past.messages is past.messages
    assert past.turns is past.turns


# editing


def test_undo_forgets_the_last_turn_and_gives_its_prompt_back():
    past = history()
    past.add((TurnStarted(user("And now?"), "m"),))
    assert past.undo() == user("And now?")
    assert past.messages == fold(WHOLE)
    assert past.usage == USAGE


def test_undo_of_nothing_is_none():
    assert History().undo() is None


def test_clear_forgets_everything():
    past = history(2)
    past.clear()
    assert (past.messages, past.events, past.usage, past.turns) == ((), (), Usage(), ())


@pytest.mark.parametrize(("turns", "left"), [(0, 0), (1, 1), (3, 3), (9, 3), (-1, 2)])
def test_a_cut_keeps_the_first_turns(turns, left):
    past = history(3)
    past.cut(turns)
    assert len(past) == left
    assert past.messages == fold(WHOLE) * left
    assert past.usage == sum([USAGE] * left, Usage())


def test_a_fork_goes_its_own_way():
    past = history(3)
    fork = past.fork(2)
    fork.add(answered("And now?", "4"))
    assert (len(past), len(fork)) == (3, 3)
    assert fork.turns[:2] == past.turns[:2]
    assert fork.turns[0] is past.turns[0]
    assert len(past.fork()) == 3


def test_a_fork_is_not_written(tmp_path):
    past = History(journal=journal(tmp_path / "agent.jsonl"))
    play(past, ADDED)
    fork = past.fork()
    play(fork, ADDED)
    fork.clear()
    past.journal.close()
    assert read(tmp_path / "agent.jsonl").turns == (ADDED,)


def test_the_last_compaction_of_the_turns_there_are_holds():
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


def test_a_compaction_that_counts_messages_there_are_not_is_left_out():
    past = History()
    past.add(whole(STARTED, Compacted("all of it", 50, 50, 0, 100, 10, Usage()), *step(1, Text("Yes."))))
    assert past.compacted is None


# messages from elsewhere


def test_messages_become_turns():
    past = History.of_messages([*fold(WHOLE), user("And now?"), Message("assistant", (Text("4"),))], "openai:gpt")
    assert [turn.prompt.text for turn in past.turns] == ["What is 1 + 2?", "And now?"]
    assert past.turns[0].answer == "It is 3."
    assert past.messages[:4] == fold(WHOLE)


def test_messages_that_no_provider_would_take_are_repaired():
    call = ToolCall("c1", "add", {})
    past = History.of_messages([Message("assistant", (call,)), user("And now?"), Message("tool", (RESULT, RESULT))])
    assert invalid_history(past.messages) is None
    assert past.turns[0].prompt == user(CONTINUED)


# search


def search(words):
    past = History.of([ADDED])
    past.add(answered("Where is the\nStrasse?", "In **Berlin**, near the " + "x" * 200 + " straße"))
    return past.search(words)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("what IS", Match(0, "user", "What is 1 + 2?")),
        ("let me", Match(0, "assistant", "Let me add.")),
        ('"b": 2', Match(0, "assistant", 'add {"a": 1, "b": 2}')),
        ("berlin", Match(1, "assistant", "In **Berlin**, near the " + "x" * 47 + "…")),
        ("the strasse", Match(1, "user", "Where is the Strasse?")),
        ("STRAßE", Match(1, "assistant", "…" + "x" * 59 + " straße")),
    ],
)
def test_words_are_found_wherever_they_were_said(words, found):
    assert search(words) == [found]


def test_results_are_searched_too():
    assert Match(0, "tool", "3") in search("3")


@pytest.mark.parametrize("words", ["", "  ", "nowhere", ".*"])
def test_what_nobody_said_is_not_found(words):
    assert search(words) == []


def test_media_are_found_by_name():
    past = History.of_messages([Message("user", (Media("image/png", b"x", "plot"),))])
    assert [match.excerpt for match in past.search("plot")] == ["[image/png plot, 1 bytes]"]


# the journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.jsonl"


def reread(path):
    return History.of(read(path).turns)


def test_what_happens_is_in_the_file_as_it_happens(path):
    past = History(journal=journal(path))
    for event in TURN:
        past.record(event)
    past.add(TURN)
    assert reread(path).turns == past.turns
    past.journal.close()


def test_what_was_cleared_comes_back_once_what_came_after_it_is_undone_in_the_file_too(path):
    past = History(journal=journal(path))
    play(past, TURN, ADDED)
    before, spent = past.turns, read(path).spent
    past.clear()
    play(past, TURN)
    past.undo()
    assert (past.turns, reread(path).turns) == ((), ())
    assert past.undo() is None
    assert (past.turns, reread(path).turns) == (before, before)
    assert read(path).spent == spent + USAGE
    assert [conversation.turns for conversation in saved_in(path.parent)] == [2]
    past.undo()
    assert reread(path).turns == before[:1]
    past.journal.close()


def test_what_is_undone_is_undone_in_the_file(path):
    past = History(journal=journal(path))
    play(past, ADDED, TURN, ADDED)
    past.undo()
    play(past, answered("And now?", "4"))
    past.cut(9)
    past.cut(1)
    play(past, TURN)
    past.journal.close()
    assert reread(path).turns == past.turns
    assert [turn.prompt.text for turn in past.turns] == ["What is 1 + 2?"] * 2
    assert path.read_bytes().count(HistoryCut.type.encode()) == 2


def test_turns_from_elsewhere_are_written_before_the_first_that_happens(path):
    past = History.of_messages(fold(WHOLE), "openai:gpt", journal(path))
    assert not path.exists()
    play(past, ADDED)
    past.journal.close()
    assert reread(path).messages == past.messages
    assert len(reread(path)) == 2


def test_what_is_cut_before_anything_was_written_is_not_written(path):
    past = History.of_messages(fold(WHOLE), "openai:gpt", journal(path))
    past.clear()
    assert not path.exists()
    play(past, ADDED)
    past.journal.close()
    assert reread(path).turns == past.turns


def test_a_conversation_that_was_resumed_is_not_written_twice(path):
    past = History(journal=journal(path))
    play(past, ADDED)
    past.journal.close()
    again = journal(path)
    past = History.of(again.resume().turns, again)
    past.undo()
    play(past, TURN)
    again.close()
    assert reread(path).turns == past.turns
    assert len(past) == 1


def test_a_conversation_in_memory_is_saved_and_goes_on_in_the_file(path):
    past = history()
    past.save(journal(path))
    play(past, ADDED)
    past.close()
    assert reread(path).turns == past.turns


def test_a_saved_conversation_is_copied_and_goes_on_where_it_was(path, tmp_path):
    past = History(journal=journal(path))
    play(past, ADDED)
    past.save(journal(tmp_path / "copy.jsonl"))
    play(past, TURN)
    past.close()
    assert reread(path).turns == past.turns
    assert reread(tmp_path / "copy.jsonl").turns == past.turns[:1]
    assert not (tmp_path / "copy.jsonl.lock").exists()


def test_a_copy_that_cannot_be_written_changes_nothing(path, tmp_path):
    told = []
    past = History(journal=journal(path, told))
    play(past, ADDED)
    (tmp_path / "folder").write_text("mine")
    with pytest.raises(JournalError, match=r"cannot be written: .* Choose another file\.$"):
        past.save(journal(tmp_path / "folder" / "copy.jsonl", told))
    play(past, TURN)
    past.close()
    assert told == []
    assert reread(path).turns == past.turns


def test_a_conversation_whose_file_failed_goes_on_in_the_one_it_is_saved_to(path, tmp_path):
    path.write_text("somebody else's\n")
    past = History(journal=journal(path))
    play(past, ADDED)
    assert not past.is_saved
    past.save(journal(tmp_path / "other.jsonl"), [("bank", "pay")])
    assert past.is_saved
    play(past, TURN)
    past.close()
    assert reread(tmp_path / "other.jsonl").turns == past.turns
    assert read(tmp_path / "other.jsonl").in_doubt == {("bank", "pay")}


def test_what_cannot_be_saved_is_an_error(path):
    path.write_text("somebody else's\n")
    past = history()
    with pytest.raises(JournalError, match="was left as it is"):
        past.save(journal(path))
    assert past.journal is None


def test_an_empty_conversation_is_saved_once_something_happens(path):
    past = History()
    past.save(journal(path))
    assert not path.exists()
    play(past, ADDED)
    past.close()
    assert reread(path).turns == past.turns


def test_a_history_without_a_file_closes():
    history().close()


def test_a_file_that_fails_does_not_stop_the_conversation(path):
    path.write_text("somebody else's\n")
    past = History(journal=journal(path))
    play(past, ADDED, TURN)
    past.undo()
    assert len(past) == 1
    assert past.journal.problem
    assert path.read_text() == "somebody else's\n"


def test_usage_of_a_turn_read_back_is_the_same(path):
    past = History(journal=journal(path))
    play(past, TURN)
    past.journal.close()
    assert reread(path).usage == past.usage
    assert any(isinstance(event, StepFinished) for event in reread(path).events)
