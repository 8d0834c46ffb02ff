"""The checks of the lessons: right solutions pass in two styles, wrong ones are refused with a hint that fits."""

import re
import sys

import pytest

pytest.importorskip("pandas")
pytest.importorskip("mcp")
from tests.lessons.solutions import LESSONS, Lesson, edited, rows, run
from tests.lessons.wrong import OTHER_STYLE, STEPS_OF, WRONG


@pytest.fixture
def solve(monkeypatch, capsys):
    """Return a function that runs an exercise of a lesson with a student's edit, and returns the last line."""
    monkeypatch.chdir(LESSONS)
    monkeypatch.syspath_prepend(str(LESSONS))

    def solve(number: int, exercise: str, edit: str = "", tries: int = 1) -> str:
        lesson = Lesson(number)
        namespace = {"__name__": "lesson"}
        exec(STEPS_OF, namespace)  # noqa: S102
        source = edited(lesson.solution(exercise), edit)
        for name in [name for name in sys.modules if name.partition(".")[0] == "checks"]:
            del sys.modules[name]  # a notebook has a process of its own, in which no exercise was tried
        lesson.check(exercise, source, namespace)
        for _ in range(1, tries):
            run(lesson.cells[f"check-{exercise}"], namespace)
        return capsys.readouterr().out.splitlines()[-1]

    return solve


@pytest.mark.parametrize(("number", "exercise"), [(number, one) for number in range(1, len(WRONG) + 1) for one in "12"])
def test_the_solution_of_a_lesson_passes(solve, number, exercise):
    assert solve(number, exercise) == f"Solved: exercise {exercise}, at try 1."


@pytest.mark.parametrize(
    ("number", "exercise", "edit"), OTHER_STYLE, ids=lambda value: "" if "\n" in str(value) else None
)
def test_a_solution_in_another_style_passes(solve, number, exercise, edit):
    assert solve(number, exercise, edit) == f"Solved: exercise {exercise}, at try 1."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "wrong"), rows(WRONG), ids=lambda value: value.words[:30] if hasattr(value, "words") else None
)
def test_a_wrong_solution_is_refused_with_a_hint_that_fits(solve, number, wrong):
    said = solve(number, wrong.exercise, wrong.edit)
    assert re.match(r"Not yet: .+ Hint: .+", said), said
    assert re.search(wrong.words, said), said


def test_each_lesson_has_ten_wrong_solutions_and_each_exercise_another_right_one():
    assert [len(table) >= 10 for table in WRONG] == [True] * len(list(LESSONS.glob("*.ipynb")))
    both = [(number, one) for number in range(1, len(WRONG) + 1) for one in "12"]
    assert [(number, exercise) for number, exercise, _ in OTHER_STYLE] == both


@pytest.mark.parametrize(
    ("tries", "hint"),
    [(1, "Who pays less"), (2, "Who pays less"), (3, "Look the price up"), (5, "def price"), (9, "def price")],
)
def test_hints_say_more_after_more_tries(solve, tries, hint):
    lazy = "def price(day: str, student: bool) -> float:\n    return MENU[day][1]"
    assert f"Hint: {hint}" in solve(1, "1", lazy, tries)


def test_a_check_cell_does_not_show_its_inputs():
    for number in range(1, len(WRONG) + 1):
        for cell in ("check-1", "check-2"):
            assert len(Lesson(number).cells[cell].splitlines()) == 3
