"""Undo and redo of a conversation: turns, edits and clears on one stack, in memory and in the file."""

import threading
from types import SimpleNamespace

import pytest

from agentmagic.history.history import History
from agentmagic.history.journal import Journal
from agentmagic.undo.changes import RestoreResult
from agentmagic.undo.stack import STILL_RUNNING, Undone, restore_turn
from tests.history.test_history import TURN, play
from tests.saving import answered


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.jsonl"


def prompts(past):
    return [turn.prompt.text for turn in past.turns]


def saved(path, past):
    """Return the history that the file holds, with its own undo stack."""
    past.close()
    journal = Journal(path, tell=pytest.fail)
    return History.from_journal(journal.resume(), journal)


def talk(path):
    """Return a history with two turns, of which the second was edited, cleared, and a new one begun."""
    past = History(journal=Journal(path, tell=pytest.fail))
    play(past, answered("one", "1"), answered("two", "2"))
    past.cut(1)
    play(past, answered("two, better", "2"))
    past.clear()
    play(past, answered("three", "3"))
    return past


STEPS = [["three"], [], ["one", "two, better"], ["one", "two"], ["one"], []]


@pytest.mark.parametrize("reload", [False, True], ids=["in memory", "reloaded at each step"])
def test_turns_edits_and_clears_are_undone_and_done_again_one_by_one(path, reload):
    past = talk(path)
    for change, steps in ((History.undo, STEPS), (History.redo, [*reversed(STEPS)])):
        for step in steps:
            assert prompts(past) == step
            past = saved(path, past) if reload else past
            assert prompts(past) == step
            change(past)
    assert prompts(past) == ["three"]
    assert past.redo() is None
    past.close()


def test_what_was_undone_is_not_done_again_after_a_new_turn(path):
    past = talk(path)
    past.undo()
    play(past, TURN)
    assert past.redo() is None
    assert saved(path, past).redo() is None


def test_turns_from_elsewhere_are_undone_from_the_last_to_the_first_and_come_back():
    past = History.of([answered(prompt, "yes") for prompt in ("one", "two", "three")])
    assert [past.undo().text for _ in range(3)] == ["three", "two", "one"]
    assert past.undo() is None
    assert [past.redo().text for _ in range(3)] == ["one", "two", "three"]


def test_the_variables_of_a_change_are_put_back_from_the_last_to_the_first_and_those_refused_are_named_once():
    asked = []

    def kept(name, restored, removed, refused):
        def restore():
            asked.append(name)
            return RestoreResult(restored, frozenset(removed), refused, f"{name} again")

        return SimpleNamespace(restore=restore, settled=threading.Event(), failed=False)

    variables = [
        kept("first", ("a", "b", "e"), "ae", {"c": "the first reason"}),
        kept("last", ("b", "d", "e", "f"), "bf", {"a": "moved", "c": "z"}),
    ]
    outcome, back = restore_turn(variables, Undone("turn", tools=("run",)))
    assert (asked, back, outcome.problem) == ([], variables, STILL_RUNNING)
    for one in variables:
        one.settled.set()
    outcome, back = restore_turn(variables, Undone("turn", tools=("run",)))
    assert asked == ["last", "first"]
    assert back == ["last again", "first again"]
    assert outcome.restored == ("b", "d", "e", "f")
    assert outcome.removed == {"e", "f"}  # "b" was removed, and then made again by the restore of the change before
    assert dict(outcome.refused) == {"a": "moved", "c": "z"}
