import asyncio
import re
from enum import Enum
from typing import Annotated, Literal

import pytest
from pydantic import Field

from agentmagic import Agent, Session, register_secret
from agentmagic.errors import UsageError
from agentmagic.testing import EXERCISES, CheckFailed, Faulty, accepts, check, exercise, expect, run
from tests.turns import calls, play, scripted


def weather(city: str, days: int = 1) -> str:
    """Return the weather."""
    return f"17 degrees in {city}"


def population(city: str) -> int:
    """Count people."""
    return 700_000


def closed() -> None:
    """Fail."""
    raise OSError("on Sundays")


TOOLS = [weather, population]
OSLO = ("weather", {"city": "Oslo", "days": 2})
TURN = (calls(OSLO, ("weather", {"city": "Bergen"})), calls(("population", {"city": "Oslo"})), "It is 17 degrees.")


@pytest.fixture
def result():
    return play(*TURN, tools=TOOLS)


def message(result, checked):
    """What a failed check says."""
    with pytest.raises(AssertionError) as failed:
        checked(check(result))
    return str(failed.value)


def test_a_turn_that_did_what_was_checked_passes(result):
    passed = check(result).called("weather", city="Oslo").steps(max=3).cost(max=0.01).answered(r"\d+ degrees")
    assert passed.not_called("delete").in_order("weather", "population").hint("never read") is passed
    assert "called weather, 3 steps, cost $0.0000, answered" in repr(passed)


def test_an_argument_can_be_a_pattern_or_anything(result):
    check(result).called("weather", city=re.compile("^O"), days=...).called("weather", days=re.compile("2"))
    assert "city=/^K/" in message(result, lambda c: c.called("weather", city=re.compile("^K")))
    assert "was not called with hours=Ellipsis" in message(result, lambda c: c.called("weather", hours=...))


def test_a_tool_that_was_not_called_so_names_the_closest_call_or_what_was_called_instead(result):
    said = message(result, lambda c: c.called("weather", city="Oslo", days=3))
    assert said == "weather was not called with days=3. The closest call was weather(city='Oslo', days=2)."
    said = message(result, lambda c: c.hint("Read the docstring.").called("get_population", city="Oslo"))
    assert said == (
        "get_population was not called. Called instead: population(city='Oslo'), weather(city='Oslo', days=2), "
        "weather(city='Bergen'). Hint: Read the docstring."
    )
    assert message(play("I do not know."), lambda c: c.called("weather")) == (
        "weather was not called: no tool was. The answer was 'I do not know.'"
    )


def test_a_call_that_did_not_run_or_failed_is_not_called():
    result = play(calls(OSLO), "So be it.", tools=TOOLS, permission="deny")
    said = message(result, lambda c: c.called("weather"))
    assert said.startswith(
        "weather was not called: the model asked for weather(city='Oslo', days=2), which did not run."
    )
    assert "permission setting denies" in said
    result = play(calls(("weather", {"town": "Oslo"})), calls(("weather", {})), "So be it.", tools=TOOLS)
    assert message(result, lambda c: c.called("weather", town="Oslo")).startswith(
        "weather(town='Oslo') failed. The arguments of weather do not fit its schema: "
    )
    assert message(result, lambda c: c.called("weather")).startswith("weather() failed.")
    result = play(calls(("closed", {})), "So be it.", tools=[*TOOLS, closed])
    assert message(result, lambda c: c.called("closed")) == "closed() failed. OSError: on Sundays"


def test_every_other_check_says_what_the_turn_did(result):
    assert message(result, lambda c: c.not_called("weather")) == "weather(city='Oslo', days=2) was called."
    assert message(result, lambda c: c.steps(max=2)) == "The turn took 3 steps, more than 2."
    assert message(result, lambda c: c.cost(max=-1)) == "The turn cost $0.0000, more than $-1."
    assert message(result, lambda c: c.answered("18")) == "The answer does not match '18'. It is 'It is 17 degrees.'"
    assert message(result, lambda c: c.in_order("population", "weather")) == (
        "weather was not called in the order population, weather. The order was: weather, weather, population."
    )


def test_the_last_turn_of_a_session_is_checked_also_after_it_was_loaded(tmp_path):
    session = scripted("Hello.", *TURN, tools=TOOLS)
    with pytest.raises(UsageError, match="no turn"):
        check(session)
    session.ask("Who?")
    session.ask("And the weather?")
    check(session).called("weather", city="Oslo").answered("17")
    session.save(tmp_path / "talk.jsonl")
    check(Session.load(tmp_path / "talk.jsonl", "scripted:none")).called("weather", city="Oslo").answered("17")


def test_a_run_is_waited_for_also_if_it_fails():
    check(scripted(*TURN, tools=TOOLS).start("a prompt")).called("population")
    failing = Session(Agent(Faulty(RuntimeError("no luck")))).start("a prompt")
    assert "no luck" in message(failing, lambda c: c.answered("yes"))
    assert "register_model" in message(run(Session(Agent(Faulty())), "a prompt"), lambda c: c.cost(max=1))


class Colour(Enum):
    BLUE = "blue"
    GREEN = "green"


def by_enum(room: Colour, hours: int) -> str:
    raise AssertionError("accepts runs no tool")


def by_literal(room: Literal["blue", "green"], hours: Annotated[int, Field(ge=1)]) -> str:
    raise AssertionError("accepts runs no tool")


@pytest.mark.parametrize("tool", [by_enum, by_literal])
def test_what_a_tool_accepts_does_not_depend_on_how_its_types_are_written(tool):
    session = Session(Agent("scripted:none", tools=[tool]))
    name = tool.__name__
    assert accepts(session, name, room="green", hours=2)
    assert not accepts(session, name, room="red", hours=2)
    assert not accepts(session, name, room="green", hours="two")
    assert not accepts(session, name, room="green")
    assert not accepts(session, name, room="green", hours=2, days=1)
    with pytest.raises(UsageError, match=rf"There is no tool 'rent'. Tools: {name}"):
        accepts(session, "rent", room="green", hours=2)


def test_no_secret_is_in_the_message():
    register_secret("hunter2hunter2")
    result = play(calls(("weather", {"city": "hunter2hunter2"})), "hunter2hunter2", tools=TOOLS)
    assert "hunter2" not in message(result, lambda c: c.called("weather", city="Oslo"))
    assert "hunter2" not in message(result, lambda c: c.answered("no"))


def test_a_cell_shows_the_message_alone():
    failed = CheckFailed("weather was not called.")
    assert failed._render_traceback_() == ["CheckFailed: weather was not called."]  # what IPython prints of it


@pytest.fixture
def exercises():
    yield EXERCISES
    EXERCISES.clear()


@pytest.mark.parametrize(
    ("tries", "own", "general"),
    [(1, "look", "think"), (2, "look", "think"), (3, "think", "type"), (4, "think", "type"), (5, "type", "type")],
)
def test_an_exercise_says_more_with_each_two_tries(exercises, capsys, tries, own, general):
    hinted = exercise("1", "think", "type")(lambda: expect(False, "It is wrong.", "look"))
    plain = exercise("2", "think", "type")(lambda: expect(False, "It is wrong."))
    for _ in range(tries):
        hinted()
    for _ in range(tries):
        plain()
    lines = capsys.readouterr().out.splitlines()
    assert (lines[tries - 1], lines[-1]) == (
        f"Not yet: It is wrong. Hint: {own}",
        f"Not yet: It is wrong. Hint: {general}",
    )
    assert [(one.name, one.tries, one.passed) for one in exercises.values()] == [
        ("1", tries, False),
        ("2", tries, False),
    ]


def fail(error):
    raise error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (AssertionError("4 is not 5"), "Not yet: 4 is not 5"),
        (AssertionError(), "Not yet: The check is not content."),
        (
            KeyError("Sunday"),
            "Not yet: The check has tried your code, which raised KeyError: 'Sunday' Hint: The check tries",
        ),
        (ValueError("a\nb \x1b[31m"), "raised ValueError: a b Hint"),
    ],
)
def test_whatever_the_code_of_a_student_raises_is_a_try_and_leaves_the_cell_in_order(exercises, capsys, error, said):
    checked = exercise("1")(fail)
    assert checked(error) is None
    assert said in capsys.readouterr().out
    assert not exercises["1"].passed


def test_an_exercise_that_was_solved_stays_so_and_its_tries_are_those_before(exercises, capsys):
    checked = exercise("1", "think")(lambda right: expect(right, "It is wrong."))
    for right in (False, True, False, True):
        checked(right)
    assert capsys.readouterr().out.splitlines()[1] == "Solved: exercise 1, at try 2."
    assert (exercises["1"].tries, exercises["1"].passed) == (2, True)


def test_the_check_of_an_asynchronous_exercise_is_awaited(exercises, capsys):
    @exercise("1")
    async def checked(right):
        await asyncio.sleep(0)
        expect(right, "It is wrong.")

    asyncio.run(checked(False))
    asyncio.run(checked(True))
    assert capsys.readouterr().out == "Not yet: It is wrong.\nSolved: exercise 1, at try 2.\n"
