"""The answer of a cell as a variable."""

import dataclasses
import sys
import typing
from datetime import date

import pytest
from pydantic import BaseModel, Field

from agentmagic.agent import output_schema
from agentmagic.events import RunResult
from agentmagic.jupyter.cell.answers import AnswerVariable, as_frame
from agentmagic.messages import Usage


class City(BaseModel):
    name: str
    since: date


class Size(BaseModel):
    people: int | None = Field(alias="inhabitants")


@dataclasses.dataclass
class Point:
    x: int
    y: int


ROWS = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}


def asked(kernel, line, *answers):
    """Ask in a cell with these answers of the model, and return the cell."""
    kernel.run(f"play(*{list(answers)!r})")
    return kernel.run(f"%%agent {line}\nWhat is it?")


def test_an_answer_is_bound_as_a_text_or_as_a_value_of_the_type(kernel):
    cell = asked(kernel, "-o x", "It is **42**.")
    assert (cell.ok, cell.stream) == (True, "x is bound: str, 13 characters.\n")
    assert kernel.value("x, type(x).__name__") == "('It is **42**.', 'str')"
    kernel.run("import pydantic\nclass City(pydantic.BaseModel):\n    name: str")
    for kind, answer, value in (("City", '{"name": "Delft"}', "City(name='Delft')"), ("int|None", "null", "None")):
        cell = asked(kernel, f"-o x --as {kind}", answer)
        assert cell.ok, cell.error
        assert kernel.value("[x]") == f"[{value}]"


@pytest.mark.parametrize(
    ("kind", "answer", "columns"),
    [
        (list[City], '[{"name": "Delft", "since": "1246-04-15"}]', ["name", "since"]),
        (list[Point], '[{"x": 1, "y": 2}]', ["x", "y"]),
        (list[Point], "[]", ["x", "y"]),
        (list[dict], '[{"a": 1, "b": 2}]', ["a", "b"]),
        (ROWS, '[{"n": 1}]', ["n"]),
        (list[int], "[1, 2]", None),
        (Point, '{"x": 1, "y": 2}', None),
    ],
    ids=str,
)
def test_a_list_of_records_becomes_a_data_frame(kind, answer, columns):
    form = output_schema(kind)
    value = form.read(answer)
    found, why = as_frame(value, form.schema)
    assert why == ""
    if columns is None:
        assert found is value
    else:
        assert list(typing.cast("typing.Any", found).columns) == columns


def test_a_frame_of_records_keeps_whole_numbers_and_the_fields_of_a_model_with_aliases():
    form = output_schema(list[Size])
    frame, _ = as_frame(form.read('[{"inhabitants": 9007199254740993}, {"inhabitants": null}]'), form.schema)
    assert typing.cast("typing.Any", frame).to_dict("list") == {"people": [9007199254740993, None]}


def result_of(value=None, text="", reason="answer"):
    return RunResult(text, (), (), 3, timed_out=False, stop_reason=reason, usage=Usage(), value=value)


def test_a_list_of_records_stays_a_list_without_pandas(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pandas", None)
    variables = {}
    AnswerVariable("x", list[dict], variables).bind(result_of([{"a": 1}]))
    assert variables == {"x": [{"a": 1}]}
    said = "x is bound: list of 1. pandas, which would make a data frame of it, is not installed.\n"
    assert capsys.readouterr().out == said


@pytest.mark.parametrize(
    ("output", "result", "said"),
    [
        (None, result_of(text="four words of text"), "x is bound: str, 18 characters.\n"),
        (list[dict], result_of([{"a": 1, "b": 2}, {"a": 3, "b": 4}]), "x is bound: DataFrame, 2 rows x 2 columns.\n"),
        (list[int], result_of([1, 2]), "x is bound: list of 2.\n"),
        (int, result_of(7), "x is bound: int.\n"),
        (Point, result_of(Point(1, 2)), "x is bound: Point.\n"),
    ],
)
def test_that_an_answer_is_bound_is_said_with_its_type_and_size(output, result, said, capsys):
    AnswerVariable("x", output, {}).bind(result)
    assert capsys.readouterr().out == said


def test_an_answer_that_never_fits_is_said_once_and_the_old_value_stays(kernel):
    for switch in ("", " --keep-going"):
        kernel.run("x = 'old'")
        cell = asked(kernel, f"-o x --as int{switch}", "no", "still no", "never")
        assert cell.ok == bool(switch)
        said = f"{cell.text}\n{cell.error}"
        problem = "The answer does not have the form that was asked for: it is not JSON."
        assert said.count(f"Sent back to the model: {problem}") == 2
        assert said.count(problem) == 2 + 1
        assert kernel.value("x, len(agent.turns)") == "('old', 1)"


@pytest.mark.parametrize(
    ("reason", "text", "output", "bound", "said"),
    [
        ("answer", "new", None, "new", "x is bound: str, 3 characters."),
        ("done", "finished", None, "finished", "x is bound: str, 8 characters."),
        ("done", "finished", int, "old", "x stays as it was: a tool ended the turn"),
        ("limit", "", int, "old", "x stays as it was: the turn reached its limit of steps"),
        ("limit", "", None, "old", ""),
        ("failed", "half", None, "old", ""),
    ],
)
def test_a_turn_without_an_answer_leaves_the_old_value(reason, text, output, bound, said, capsys):
    variables = {"x": "old"}
    AnswerVariable("x", output, variables).bind(result_of(text=text, reason=reason))
    assert variables == {"x": bound}
    out = capsys.readouterr().out
    assert out.startswith(said) if said else out == ""


def test_a_turn_in_the_background_binds_its_answer_when_it_is_over(kernel):
    kernel.run("x = 'old'")
    cell = asked(kernel, "-o x --bg", "later")
    kernel.wait_for_text(cell, "later")
    kernel.wait(cell, lambda: cell.stream == "x is bound: str, 5 characters.\n")  # in its own cell
    assert kernel.run("agent.running and agent.running.wait()").ok
    assert kernel.value("[__import__('time').sleep(0.01) for _ in range(300) if x == 'old'] and x or x") == "'later'"
