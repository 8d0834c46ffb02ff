"""Records the last error of a cell for `%agent fix`, and prints a hint that names this command below the error."""

from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from agentmagic.errors import AgentMagicError, UsageError, code_of
from agentmagic.jupyter.frontend import in_notebook, say
from agentmagic.secrets import redact
from agentmagic.settings import hints
from agentmagic.text import cut_middle
from agentmagic.tools.calling import traceback_text

FIX = "This cell of the notebook failed. Say what is wrong, and how to mend it."
LONGEST = 20_000
"""Characters of a cell's code that are sent; the middle of longer code is left out."""


class CellErrors:
    """Records the last error of a cell for `%agent fix`, except interrupts and agentmagic's own errors."""

    def __init__(self, shell: InteractiveShell, magic: str) -> None:
        self._shell = shell
        self._magic = magic
        self._cell = ""
        self._error: BaseException | None = None

    def notice(self, result: Any) -> None:
        """Record the error of a cell if it failed, and print a hint. IPython calls this after each cell."""
        error = result.error_before_exec or result.error_in_exec
        if isinstance(error, AgentMagicError):
            self._name_code(error)
        if error is None or isinstance(error, (AgentMagicError, KeyboardInterrupt, SystemExit)):
            return
        self._cell, self._error = str(result.info.raw_cell), error
        if hints() and in_notebook(self._shell):
            say(f"%{self._magic} fix asks the agent about this error.")

    def _name_code(self, error: AgentMagicError) -> None:
        """Print the command that explains an agentmagic error by its code.

        Print nothing if the user sees the code already, in the line of the error or in the output of the turn.
        """
        has_code = hasattr(error, "_render_traceback_") or getattr(error.result, "error_code", "")
        if not has_code and hints() and in_notebook(self._shell):
            say(f"%{self._magic} help {code_of(error)} explains this error.")

    def prompt(self) -> str:
        """Return the prompt about the last error: the cell's code and its traceback, with secrets blanked.

        Raises UsageError if no cell has failed.
        """
        if self._error is None:
            raise UsageError("No cell has failed since the extension was loaded.")
        cell = cut_middle(redact(self._cell), LONGEST, lambda start, end: f"\n({end - start:,} characters left out)\n")
        trace = traceback_text(self._error) or redact(f"{type(self._error).__name__}: {self._error}")
        return f"{FIX}\n\n{_block(cell, 'python')}\n\n{_block(trace)}"


def _block(text: str, language: str = "") -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
