"""The tools that read the notebook: its variables, its cells and their outputs."""

from collections.abc import Iterator, Sequence

from agentmagic.errors import ToolError
from agentmagic.host import NotebookCell, RunningNotebook
from agentmagic.messages import Content, Media, as_text
from agentmagic.settings import schema_only
from agentmagic.text import cut, plural, sanitize
from agentmagic.tools.base import Tool
from agentmagic.tools.functions import function_tool
from agentmagic.undo import variables
from agentmagic.undo.own import user_variables
from agentmagic.values.describe import schema, summary

LOOKS = ("list_variables", "inspect_variable", "read_cells", "view_figure")
"""Names of the tools that read a notebook without changing it."""
NOT_SENT = "The settings of the notebook say that names and types are sent, and no values: figures are not."
LONGEST_SOURCE = 4000
LONGEST_OUTPUT = 1000
LONGEST_PAGE = 16_000
"""Maximum number of characters of cells in one result."""


def read_cells(notebook: RunningNotebook, most: int, first: int = 1, count: int | None = None) -> str:
    """Return `count` cells from number `first` on as text of at most `most` characters. Call in the main thread.

    A negative `first` counts from the end. Without `count`, all following cells are included.
    """
    cells, where = notebook.cells()
    start = max(len(cells) + first, 0) if first < 0 else sum(cell.number < first for cell in cells)
    end = None if count is None else start + max(count, 1)
    figures = 1 + sum(isinstance(part, Media) for cell in cells[:start] for part in cell.outputs)
    text = "\n\n".join(_cell_texts(cells[start:end], figures))
    return cut(sanitize(f"{where}\n\n{text or '(no cells)'}"), most)


def look_tools(notebook: RunningNotebook) -> list[Tool]:
    """Return the tools with which the model reads the notebook: its variables, cells and figures."""
    look = _Look(notebook)
    return [function_tool(getattr(look, name)) for name in LOOKS]


class _Look:
    """The functions that read a notebook; the model sees their docstrings."""

    def __init__(self, notebook: RunningNotebook) -> None:
        self._notebook = notebook

    def list_variables(self) -> str:
        """List the variables of the user's notebook: name, type, size and the beginning of the value.

        Example: Which variables are there? -> {}
        """
        values = user_variables(self._notebook.namespace)
        row = _schema_row if schema_only() else variables.summary
        rows = [row(name, value) for name, value in values.items()]
        more = len(rows) - variables.MOST_VARIABLES
        end = [f"({more:,} more variables)"] if more > 0 else []
        return "\n".join([*rows[: variables.MOST_VARIABLES], *end]) or "(no variables)"

    def inspect_variable(self, name: str) -> str:
        """Show one variable of the user's notebook: of a data frame its columns, types and first rows.

        Args:
            name: The name of the variable.

        Example: What is in sales? -> {"name": "sales"}
        """
        value = variables.find(self._notebook.namespace, name)
        return f"{name}: {schema(value)}" if schema_only() else variables.describe_variable(name, value)

    def read_cells(self, first: int = 1, count: int = 20) -> str:
        """Read cells of the user's notebook with their outputs.

        Args:
            first: The number of the first cell to read; negative numbers count from the end.
            count: How many cells to read.

        Example: What do the last two cells do? -> {"first": -2, "count": 2}
        """
        return read_cells(self._notebook, LONGEST_PAGE, first, count)

    def view_figure(self, number: int) -> Content:
        """Look at a figure in the outputs of the user's notebook.

        Args:
            number: Its number, as read_cells names it.

        Example: Look at the first figure. -> {"number": 1}
        """
        if schema_only():
            raise ToolError(NOT_SENT)
        cells, where = self._notebook.cells()
        figures = [part for cell in cells for part in cell.outputs if isinstance(part, Media)]
        if not 0 < number <= len(figures):
            raise ToolError(f"There is no figure {number}: the cells' outputs have {len(figures)}. {where}")
        return figures[number - 1]


def _cell_texts(cells: Sequence[NotebookCell], figures: int) -> Iterator[str]:
    """Yield each cell as text. `figures` is the number of the first figure in these cells."""
    only_schema = schema_only()
    for cell in cells:
        now = ", running now" if cell.running else ""
        lines = [f"[{cell.number}] {cell.kind}{now}:", cut(cell.source, LONGEST_SOURCE)]
        for part in cell.outputs:
            if isinstance(part, Media):
                lines.append(f"-> [figure {figures}: {as_text(part)[1:]}")
                figures += 1
            else:
                text = as_text(part)
                body = _placeholder(text) if only_schema else cut(text, LONGEST_OUTPUT)
                lines.append(f"-> {body}")
        yield "\n".join(lines)


def _schema_row(name: str, value: object) -> str:
    return f"{name}: {summary(value)}"


def _placeholder(text: str) -> str:
    return "({}: not sent)".format(plural(text.rstrip().count("\n") + 1, "line"))
