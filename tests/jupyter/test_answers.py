"""The answer of a cell as a variable."""

import subprocess
import sys

import pytest
from IPython.core.completer import CompletionContext
from IPython.core.interactiveshell import InteractiveShell

from agentmagic.events import RunResult
from agentmagic.jupyter import options
from agentmagic.jupyter.answers import AnswerVariable
from agentmagic.jupyter.completion import matcher
from agentmagic.jupyter.namespace import Namespace
from agentmagic.jupyter.notebook_file import KnownNotebook
from agentmagic.messages import Usage
from tests.jupyter.harness import ROOT

TYPES = """
import dataclasses, typing, typing_extensions, pydantic
from datetime import date
class City(pydantic.BaseModel):
    name: str
    since: date
@dataclasses.dataclass
class Point:
    x: int
    y: int
class Row(typing_extensions.TypedDict):
    label: str
class Labels(typing.TypedDict, total=False):
    rows: typing.Required[list[Row]]
    count: int
schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
rows = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}
"""
CITY = '{"name": "Delft", "since": "1246-04-15"}'


def asked(kernel, line, *answers):
    """Ask in a cell with these answers of the model, and return the cell."""
    kernel.run(TYPES + f"play(*{list(answers)!r})")
    return kernel.run(f"%%agent {line}\nWhat is it?")


def test_an_answer_is_bound_as_a_text(kernel):
    assert asked(kernel, "-o x", "It is **42**.").ok
    assert kernel.value("x, type(x).__name__") == "('It is **42**.', 'str')"


@pytest.mark.parametrize(
    ("kind", "answer", "value"),
    [
        ("City", CITY, "City(name='Delft', since=datetime.date(1246, 4, 15))"),
        ("Point", '{"x": 1, "y": 2}', "Point(x=1, y=2)"),
        ("Row", '{"label": "a"}', "{'label': 'a'}"),
        ("Labels", '{"rows": [{"label": "a"}]}', "{'rows': [{'label': 'a'}]}"),
        ("schema", '{"n": 7}', "{'n': 7}"),
        ("list[int]", "[1, 2]", "[1, 2]"),
        ("list[int]", '```json\n{"value": [1, 2]}\n```', "[1, 2]"),
        ("int|None", "null", "None"),
    ],
)
def test_an_answer_is_bound_as_a_value_of_the_type(kernel, kind, answer, value):
    cell = asked(kernel, f"-o x --as {kind}", answer)
    assert cell.ok, cell.error
    assert kernel.value("[x]") == f"[{value}]"


@pytest.mark.parametrize(
    ("kind", "answer", "columns"),
    [
        ("list[City]", f"[{CITY}]", "['name', 'since']"),
        ("list[Point]", "[]", "['x', 'y']"),
        ("list[Row]", '{"value": [{"label": "a"}, {"label": "b"}]}', "['label']"),
        ("list[dict]", '[{"a": 1, "b": 2}]', "['a', 'b']"),
        ("rows", '[{"n": 1}]', "['n']"),
    ],
)
def test_a_list_of_records_becomes_a_data_frame(kernel, kind, answer, columns):
    if kernel.value("__import__('importlib.util').util.find_spec('pandas') is None") == "True":
        pytest.skip("this kernel has no pandas")
    cell = asked(kernel, f"-o x --as {kind}", answer)
    assert cell.ok, cell.error
    assert kernel.value("type(x).__name__, list(x.columns)") == f"('DataFrame', {columns})"


def test_a_list_of_records_stays_a_list_without_pandas():
    code = """
import sys
sys.modules["pandas"] = None
from agentmagic.agent import output_schema
from agentmagic.jupyter.answers import framed
print(framed("x", [{"a": 1}], output_schema(list[dict]).schema))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines() == [
        "x is a list: pandas, which would make a data frame of it, is not installed.",
        "[{'a': 1}]",
    ]


@pytest.mark.parametrize("switch", ["", " --keep-going"])
def test_an_answer_that_never_fits_is_said_once_and_the_old_value_stays(kernel, switch):
    kernel.run("x = 'old'")
    cell = asked(kernel, f"-o x --as City{switch}", "no", "still no", "never")
    assert cell.ok == bool(switch)
    said = f"{cell.text}\n{cell.error}"
    problem = "The answer does not have the form that was asked for: it is not JSON."
    assert said.count(f"Sent back to the model: {problem}") == 2
    assert said.count(problem) == 2 + 1
    assert kernel.value("x") == "'old'"
    assert kernel.value("len(agent.turns)") == "1"


def test_a_turn_without_an_answer_leaves_the_old_value(kernel):
    kernel.run("x = 'old'")
    assert not asked(kernel, "-o x", {"calls": [{"name": "nothing", "arguments": {}}]}).ok
    assert kernel.value("x") == "'old'"


def test_a_tool_that_ends_the_turn_gives_a_text_and_no_value(kernel):
    kernel.run("""
from agentmagic import Done
@tool
def finish() -> Done:
    "Finish."
    return Done("finished")
x = "old"
play(calls("finish"), calls("finish"))
""")
    cell = kernel.run("%%agent -o x --as int\nFinish.")
    assert "x stays as it was: a tool ended the turn" in cell.stream
    assert kernel.value("x") == "'old'"
    kernel.run("%%agent -o x\nFinish.")
    assert kernel.value("x") == "'finished'"


def test_a_turn_in_the_background_binds_its_answer_when_it_is_over(kernel):
    kernel.run("x = 'old'")
    cell = asked(kernel, "-o x --bg", "later")
    kernel.wait_for_text(cell, "later")
    assert kernel.run("agent.running and agent.running.wait()").ok
    assert kernel.value("[__import__('time').sleep(0.01) for _ in range(300) if x == 'old'] and x or x") == "'later'"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("%%agent -o sa", ["sales"]),
        ("%%agent --as Ci", ["City"]),
        ("%%agent --as list[Ci", ["list[City]"]),
        ("%%agent --as=fo", ["--as=form"]),
        ("%%agent --ou", ["--out"]),
    ],
)
def test_names_and_types_are_completed(line, found):
    pydantic = pytest.importorskip("pydantic")
    variables = {"sales": 1, "sad": pydantic, "City": pydantic.create_model("City"), "form": {"type": "object"}}
    complete = matcher(Namespace(variables, KnownNotebook(InteractiveShell())), options.ask_parser(), [])
    context = CompletionContext(token="", full_text=line, cursor_position=len(line), cursor_line=0, limit=9)
    assert [one.text for one in complete(context)["completions"]] == found


def test_a_variable_stays_as_it_was_if_the_limit_ends_the_turn_without_a_value(capsys):
    variables = {"x": 1}
    result = RunResult("", (), (), 3, timed_out=False, stop_reason="limit", usage=Usage())
    AnswerVariable("x", int, variables).bind(result)
    assert variables == {"x": 1}
    assert capsys.readouterr().out.startswith("x stays as it was: the turn reached its limit of steps")
