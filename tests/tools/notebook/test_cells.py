"""The cells of a notebook as the model reads them, and its figures by their numbers."""

import asyncio
from types import MappingProxyType

import pytest

from agentmagic.host import NotebookCell
from agentmagic.messages import Media, Text, ToolCall
from agentmagic.tools.base import ToolContext
from agentmagic.tools.calling import call_tool
from agentmagic.tools.notebook.cells import look_tools

FIGURES = [Media("image/png", data) for data in (b"bergen", b"oslo", b"vik")]


class Drawn:
    """A notebook with three figures in its outputs."""

    namespace = MappingProxyType({})

    def cells(self):
        cells = [
            NotebookCell(1, "code", "draw('bergen')", (FIGURES[0],)),
            NotebookCell(2, "code", "total", (Text("42"),)),
            NotebookCell(4, "code", "draw('oslo', 'vik')", (FIGURES[1], Text("two"), FIGURES[2]), running=True),
        ]
        return cells, "Cells of a test."


def look(tool_name, notebook=None, /, **arguments):
    tools = {tool.name: tool for tool in look_tools(notebook or Drawn())}
    call = ToolCall("c1", tool_name, arguments)
    return asyncio.run(call_tool(tools[tool_name], call, ToolContext(call, ask=None, progress=lambda *_: None)))


@pytest.mark.parametrize(
    ("arguments", "numbers", "figures"),
    [
        ({}, [1, 2, 4], [1, 2, 3]),
        ({"first": 2, "count": 1}, [2], []),
        ({"first": 3}, [4], [2, 3]),
        ({"first": -2}, [2, 4], [2, 3]),
        ({"first": -9, "count": 1}, [1], [1]),
        ({"first": 5}, [], []),
    ],
)
def test_cells_are_read_with_the_numbers_of_their_figures(arguments, numbers, figures):
    text = look("read_cells", **arguments).text
    assert text.startswith("Cells of a test.\n\n")
    assert [number for number in (1, 2, 4) if f"[{number}] code" in text] == numbers
    assert [number for number in (1, 2, 3, 4) if f"-> [figure {number}: image/png" in text] == figures
    assert ("[4] code, running now:" in text) == (4 in numbers)
    assert ("(no cells)" in text) == (not numbers)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_figure_is_seen_by_its_number(number):
    assert look("view_figure", number=number).content == (FIGURES[number - 1],)


@pytest.mark.parametrize("number", [0, 4])
def test_a_figure_that_is_not_there_is_an_error_that_says_how_many_there_are(number):
    came = look("view_figure", number=number)
    assert came.is_error
    assert came.text == f"There is no figure {number}: the cells' outputs have 3. Cells of a test."


class Secretive(Drawn):
    namespace = MappingProxyType({"salary": "4711 a month", "rows": [{"name": "4711"}]})

    def cells(self):
        return [NotebookCell(1, "code", "salary", (Text("4711 a month\n"), FIGURES[0]))], "Cells of a test."


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("list_variables", {}, "salary: str, 12 characters"),
        ("inspect_variable", {"name": "salary"}, "str, 12 characters"),
        ("inspect_variable", {"name": "rows"}, "list of 1"),
        ("read_cells", {}, "-> (1 line: not sent)"),
        ("view_figure", {"number": 1}, "no values"),
    ],
)
def test_no_value_is_sent_if_the_settings_say_so(name, arguments, words, monkeypatch):
    assert "4711" in look(name, Secretive(), **arguments).text or name == "view_figure"
    monkeypatch.setenv("AGENTMAGIC_SCHEMA_ONLY", "1")
    result = look(name, Secretive(), **arguments)
    assert words in result.text
    assert "4711" not in result.text
    assert not any(isinstance(part, Media) for part in result.content)
