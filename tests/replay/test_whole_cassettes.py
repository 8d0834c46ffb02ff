"""Whole notebooks, recorded to a cassette and replayed after a change, or without one."""

from random import Random

import pytest

from agentmagic.errors import ReplayMismatch
from agentmagic.events import Approve, Reply
from tests.loop.test_stepping import Person
from tests.replay.changes import CHANGES, COSMETIC, Notebook, a_result, a_value, example, session_of

IN_FAST_RUN = 26
SEEDS = [pytest.param(seed, marks=[pytest.mark.slow] * (seed >= IN_FAST_RUN)) for seed in range(200)]

PLAYED = [change for change in CHANGES if change not in (a_result, a_value)]
"""Changes that stop a replay. No tool runs in it, so that other results are found by `replay-model`."""


def record(notebook: Notebook, path) -> None:
    session = session_of(notebook, cassette=path, replay="record")
    for cell in notebook.cells:
        session.ask(cell.text)
    session.close()


def replay(notebook: Notebook, path, mode="replay"):
    """Replay each cell up to the first that fails. Return its number and error, else None, and the verdicts."""
    session = session_of(notebook, cassette=path, replay=mode)
    try:
        for number, cell in enumerate(notebook.cells):
            try:
                session.ask(cell.text)
            except ReplayMismatch as error:
                return (number, error), session.deck.verdicts
        return None, session.deck.verdicts
    finally:
        session.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_stops_a_replay_with_its_cell_its_step_and_its_cause(seed, tmp_path):
    random = Random(seed)  # noqa: S311  (a seed is the point)
    before = example(random)
    change = PLAYED[seed % len(PLAYED)](before, random)
    record(before, tmp_path / "a.cassette.yaml")
    failed, verdicts = replay(change.notebook, tmp_path / "a.cassette.yaml")
    assert failed
    cell, error = failed
    first = next(one for one in error.differences if one.cause != "cosmetic")
    assert (cell, verdicts[-1].step, first.cause, first.field) == change[1:]
    assert repr(first.before) in str(error)
    assert repr(first.after) in str(error)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cosmetic_change_is_replayed_without_an_alarm(seed, tmp_path):
    random = Random(seed)  # noqa: S311
    notebook = example(random)
    made = COSMETIC[seed % len(COSMETIC)](notebook, random)
    before, after = made if isinstance(made, tuple) else (notebook, made)
    record(before, tmp_path / "a.cassette.yaml")
    (tmp_path / "a.cassette.yaml").rename(tmp_path / "renamed.cassette.yaml")
    failed, verdicts = replay(after, tmp_path / "renamed.cassette.yaml")
    assert failed is None
    assert {one.cause for one in verdicts} <= {"same", "cosmetic"}


@pytest.mark.parametrize("seed", range(5))
def test_another_result_is_found_when_the_tools_really_run(seed, tmp_path):
    random = Random(seed)  # noqa: S311
    before = example(random)
    change = a_result(before, random)
    record(before, tmp_path / "a.cassette.yaml")
    failed, verdicts = replay(change.notebook, tmp_path / "a.cassette.yaml", "replay-model")
    first = next(one for one in verdicts if one.cause not in ("same", "cosmetic"))
    found = next(one for one in first.differences if one.cause != "cosmetic")
    assert failed is None
    assert (first.prompt, first.step) == (before.cells[change.cell].text, change.step)
    assert (found.cause, found.field) == (change.cause, change.field)


@pytest.mark.parametrize("times", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_run_is_replayed_again_and_again_without_a_difference(times, tmp_path):
    notebook = example(Random(1))  # noqa: S311
    record(notebook, tmp_path / "a.cassette.yaml")
    whole = (tmp_path / "a.cassette.yaml").read_bytes()
    for _ in range(times):
        failed, verdicts = replay(notebook, tmp_path / "a.cassette.yaml")
        assert failed is None
        assert {one.cause for one in verdicts} == {"same"}
        assert len(verdicts) == 2 * len(notebook.cells)
    assert (tmp_path / "a.cassette.yaml").read_bytes() == whole


def test_a_replay_is_stepped_through_and_asks_the_person_of_today(tmp_path):
    notebook = example(Random(1))  # noqa: S311
    record(notebook, tmp_path / "a.cassette.yaml")
    session = session_of(notebook, cassette=tmp_path / "a.cassette.yaml", replay="replay")
    person = Person(lambda event: Approve(event.id))
    result = person.step(session, notebook.cells[0].text)
    assert result.final_text == notebook.cells[0].answer
    assert [event.type for event in person.asked] == ["question_asked", "approval_asked", "question_asked"]
    session.close()


def test_a_prompt_that_is_edited_at_a_pause_is_not_the_recorded_one(tmp_path):
    notebook = example(Random(1))  # noqa: S311
    record(notebook, tmp_path / "a.cassette.yaml")
    session = session_of(notebook, cassette=tmp_path / "a.cassette.yaml", replay="replay")
    with pytest.raises(ReplayMismatch) as failed:
        Person(lambda event: Reply(event.id, "Another question.")).step(session, notebook.cells[0].text)
    assert failed.value.differences[0].cause == "prompt"
    session.close()
