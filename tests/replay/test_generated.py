"""Random changes are each named in full, cosmetic ones raise no alarm, and damage is never played as something else."""

import re
from dataclasses import replace
from random import Random

import pytest

from tests.replay.generated import SCENE, cosmetic_change, damaged, play, real_change, recorded

SEED = 31
EACH = 20
"""Examples of a part: the fast tests run one part, the slow ones the others."""


def parts(count):
    later = [pytest.param(part, marks=pytest.mark.slow) for part in range(1, count)]
    return pytest.mark.parametrize("part", [0, *later])


def examples(part):
    return range(part * EACH, (part + 1) * EACH)


@pytest.fixture
def random(part):
    return Random(SEED + part)  # noqa: S311  (a seed is the point)


@pytest.fixture
def whole(tmp_path):
    """The cassette of the notebook."""
    path = tmp_path / "whole.cassette.yaml"
    recorded(path)
    return path


def what_is_wrong(change, cells):
    """What is wrong with how a change was told, "" if it was told once, in its cell, with all that belongs to it."""
    said = [(at, words) for at, cell in enumerate(cells) for words in cell.told]
    if {at for at, _ in said} != {change.cell}:
        return f"not told in cell {change.cell} alone: {said}"
    whole = " ".join(words for _, words in said)
    found = [one for verdict in cells[change.cell].verdicts for one in verdict.differences if one.cause != "cosmetic"]
    if not [one for one in found if one.cause == change.cause and one.field.startswith(change.field)]:
        return f"no {change.cause} {change.field}: {said}"
    start = f"Cell {change.scene.cells[change.cell].text[:20]!r}"[:-1]
    for one in found:
        parts = (start, "step ", one.field, f"cause: {one.cause}", repr(one.before), repr(one.after))
        if missing := [part for part in parts if part not in whole]:
            return f"{missing} are not in {whole}"
        if one.before == one.after or whole.count(f"{one.field} is not") > 1:
            return f"told twice, or without a difference: {whole}"
    return ""


@parts(10)
def test_each_change_is_named_once_with_cell_step_field_cause_and_both_values(part, random, whole):
    text, path, wrong = whole.read_text(encoding="utf-8"), whole.with_name("changed.cassette.yaml"), []
    for number in examples(part):
        change = real_change(random, number)
        path.write_text(change.edit(text), encoding="utf-8")
        if problem := what_is_wrong(change, play(change.scene, path, change.mode)):
            wrong.append(f"{change.about}: {problem}")
    assert not wrong


@parts(10)
def test_a_cosmetic_change_raises_no_alarm(part, random, whole, tmp_path, monkeypatch):
    text, path, wrong = whole.read_text(encoding="utf-8"), whole.with_name("changed.cassette.yaml"), []
    monkeypatch.chdir(tmp_path)
    for number in examples(part):
        about, scene, edit = cosmetic_change(random, number)
        path.write_bytes(edit(text).encode())
        mode = random.choice(["replay", "replay-model"])
        wrong += [f"{about} ({mode}): {words}" for cell in play(scene, path, mode) for words in cell.told]
    assert not wrong


@parts(3)
def test_a_damaged_cassette_is_played_as_it_was_or_what_is_wrong_is_named_and_the_file_stays(part, random, whole):
    expected, text, path = play(SCENE, whole, "replay"), whole.read_text(encoding="utf-8"), whole.with_name("damaged")
    for number in examples(part):
        about, data = damaged(random, number, text)
        path.write_bytes(data)
        cells = play(SCENE, path, "replay")
        told = [words for cell in cells for words in cell.told]
        assert told or [cell.seen for cell in cells] == [cell.seen for cell in expected], about
        assert not [words for words in told if words.startswith("AgentMagicError")], (about, told)
        assert path.read_bytes() == data, about


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1))
def test_a_recording_over_a_damaged_cassette_is_whole_or_refused_and_the_file_stays(part, random, whole):
    text, path = whole.read_text(encoding="utf-8"), whole.with_name("damaged")
    for number in examples(part):
        about, data = damaged(random, number, text)
        path.write_bytes(data)
        if [words for cell in play(SCENE, path, "record") for words in cell.told]:
            assert path.read_bytes() == data, about
        else:
            assert not [words for cell in play(SCENE, path, "replay") for words in cell.told], about


def test_of_many_results_that_changed_each_is_told_once_in_its_cell(whole):
    changed = replace(SCENE, tools=tuple(replace(one, result=f"not {one.result}") for one in SCENE.tools))
    cells = play(changed, whole, "replay-model")
    # The calls of a step run side by side, and each is told when it is over.
    fields = [sorted(re.findall(r"results\.(\w+) is not as recorded", "\n".join(cell.told))) for cell in cells]
    assert fields == [["weather"], ["population"], ["convert", "price"], ["remove"], [], ["notes", "tally"]]
