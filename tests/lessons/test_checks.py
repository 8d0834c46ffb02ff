"""The checks of the lessons: right answers pass in every style, wrong ones are refused with a hint that fits."""

import re
import sys
from collections import Counter

import pytest

pytest.importorskip("pandas")
pytest.importorskip("mcp")
from tests.lessons.solutions import LESSONS, Lesson, answers, edited, rows, run
from tests.lessons.wrong import STEPS_OF, WRONG

RIGHT_ANSWERS, WRONG_ANSWERS = answers(right=True), answers(right=False)
EXERCISES = [(number, exercise) for number in range(1, len(WRONG) + 1) for exercise in "12"]


@pytest.fixture
def solve(monkeypatch, capsys):
    """Return a function that runs an exercise of a lesson with a student's cell, and returns the last line."""
    monkeypatch.chdir(LESSONS)
    monkeypatch.syspath_prepend(str(LESSONS))

    def solve(number: int, exercise: str, source: str | None = None, tries: int = 1) -> str:
        lesson = Lesson(number)
        namespace = {"__name__": "lesson"}
        exec(STEPS_OF, namespace)  # noqa: S102
        source = source or lesson.solution(exercise)
        for name in [name for name in sys.modules if name.partition(".")[0] == "checks"]:
            del sys.modules[name]  # a notebook has a process of its own, in which no exercise was tried
        lesson.check(exercise, source, namespace)
        for _ in range(1, tries):
            run(lesson.cells[f"check-{exercise}"], namespace)
        return capsys.readouterr().out.splitlines()[-1]

    return solve


@pytest.mark.parametrize(("number", "exercise"), EXERCISES)
def test_the_solution_of_a_lesson_passes(solve, number, exercise):
    assert solve(number, exercise) == f"Solved: exercise {exercise}, at try 1."


@pytest.mark.parametrize("answer", RIGHT_ANSWERS, ids=str)
def test_a_right_answer_passes_in_every_style(solve, answer):
    assert solve(answer.lesson, answer.exercise, answer.cell()) == f"Solved: exercise {answer.exercise}, at try 1."


@pytest.mark.slow
@pytest.mark.parametrize("answer", WRONG_ANSWERS, ids=str)
def test_a_wrong_answer_is_refused(solve, answer):
    said = solve(answer.lesson, answer.exercise, answer.cell())
    assert re.match(r"Not yet: .+ Hint: .+", said), said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "wrong"), rows(WRONG), ids=lambda value: value.words[:30] if hasattr(value, "words") else None
)
def test_a_wrong_solution_is_refused_with_a_hint_that_fits(solve, number, wrong):
    said = solve(number, wrong.exercise, edited(Lesson(number).solution(wrong.exercise), wrong.edit))
    assert re.match(r"Not yet: .+ Hint: .+", said), said
    assert re.search(wrong.words, said), said


def test_each_exercise_has_ten_wrong_answers_and_five_right_ones():
    assert len(WRONG) == len(list(LESSONS.glob("*.ipynb")))
    for table, fewest in ((WRONG_ANSWERS, 10), (RIGHT_ANSWERS, 5)):
        counts = Counter((answer.lesson, answer.exercise) for answer in table)
        assert sorted(counts) == EXERCISES
        assert min(counts.values()) >= fewest
        assert len({str(answer) for answer in table}) == len(table)


@pytest.mark.parametrize(
    ("tries", "hint"),
    [(1, "Who pays less"), (2, "Who pays less"), (3, "Look the price up"), (5, "def price"), (9, "def price")],
)
def test_hints_say_more_after_more_tries(solve, tries, hint):
    lazy = "def price(day: str, student: bool) -> float:\n    return MENU[day][1]"
    assert f"Hint: {hint}" in solve(1, "1", edited(Lesson(1).solution("1"), lazy), tries)


def test_a_check_cell_does_not_show_its_inputs():
    for number in range(1, len(WRONG) + 1):
        for cell in ("check-1", "check-2"):
            assert len(Lesson(number).cells[cell].splitlines()) == 3
