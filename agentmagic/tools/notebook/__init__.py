"""A source of tools that read the notebook's variables and cells, propose cells, and run code."""

from collections.abc import Sequence

from agentmagic.errors import UsageError
from agentmagic.host import RunningNotebook, current_host
from agentmagic.tools.base import Tool
from agentmagic.tools.notebook.cells import look_tools
from agentmagic.tools.notebook.code import program_tool
from agentmagic.tools.notebook.proposals import proposal_tool


class NotebookTools:
    """A toolset with which a model works in a notebook.

    `list_variables`, `inspect_variable`, `read_cells` and `view_figure` only read, and `propose_cell` runs nothing:
    they need no permission. Before `run_python` runs a program, the user is asked, unless a rule names `run_python`.
    The default notebook is that of the kernel in which `%load_ext agentmagic` was run.
    """

    is_local = True

    def __init__(self, notebook: RunningNotebook | None = None) -> None:
        self._notebook = notebook

    async def tools(self) -> Sequence[Tool]:
        """Return the tools. Raises UsageError if there is no notebook."""
        notebook = self._notebook or current_host().notebook
        if notebook is None:
            raise UsageError("NotebookTools needs a notebook. Run %load_ext agentmagic in it first.")
        return [*look_tools(notebook), proposal_tool(notebook), program_tool(notebook)]

    async def aclose(self) -> None:
        """Do nothing: a notebook has no connections."""
