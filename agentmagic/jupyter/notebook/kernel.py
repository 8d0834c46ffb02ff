"""Gives the notebook tools access to the kernel: runs programs in the shell, reads cells, and proposes new ones."""

import ast
import asyncio
import base64
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from types import CodeType
from typing import Any, cast

from IPython.core.interactiveshell import InteractiveShell

from agentmagic.events import CellProposed, ProposalSettled
from agentmagic.host import NotebookCell
from agentmagic.jupyter.frontend import in_notebook, running_cell
from agentmagic.jupyter.notebook.capture import IMAGES
from agentmagic.jupyter.notebook.file import KnownNotebook, read_notebook
from agentmagic.messages import Content, Media, Text
from agentmagic.runtime.engine import engine, outcome
from agentmagic.runtime.exits import NAMES, offer_names
from agentmagic.runtime.nested_runs import run_nested
from agentmagic.undo.data_types import is_data
from agentmagic.values.describe import describe, summary

MOST_HISTORY = 500
"""Entries of the shell's history that are read."""
ALIKE = 0.7
"""The least similarity, from 0 to 1, at which a cell that was run counts as the inserted cell, edited by the user."""
OUT_BUDGET = 300
"""Tokens for the description of one value in the shell's history."""
FROM_HISTORY = (
    "Cells as this kernel has run them, by their numbers, with the values that they returned: the file of the notebook "
    "is not known."
)
FROM_FILE = "Cells of the file {}, by their places, as they were last saved. The cell that runs now may be newer."


class KernelNotebook:
    """The notebook of a shell; implements the `RunningNotebook` protocol of `agentmagic.host`.

    `can_stage` returns whether an open browser page can show the model's proposed cells in the notebook.
    """

    def __init__(self, shell: InteractiveShell, notebook: KnownNotebook) -> None:
        self._shell = cast("Any", shell)
        self._notebook = notebook
        self.can_stage: Callable[[], bool] = lambda: False
        self._run_counts: dict[str, int] = {}
        """The number of cells that had run when a cell was proposed, by the id of the proposal."""

    @property
    def namespace(self) -> MutableMapping[str, Any]:
        """The variables of the notebook."""
        return self._shell.user_ns

    # -- programs ------------------------------------------------------------------------------

    def run(self, code: str) -> None:
        """Run Python code with IPython's syntax and top-level await, and display the value of its last expression.

        Raises any error of the code.
        """
        shell = self._shell
        cell: str = shell.transform_cell(code)
        name: str = shell.compile.cache(
            cell, shell.execution_count, raw_code=code
        )  # stores the source, so that tracebacks can show its lines
        flag = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if shell.autoawait else 0
        with shell.builtin_trap, shell.compile.extra_flags(flag):
            offer_names()  # for `exit` and `quit`, which builtin_trap has just removed if no cell runs
            tree: ast.Module = shell.transform_ast(shell.compile.ast_parse(cell, name))
            self._call_exits(tree)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            self._execute(shell.compile(tree, name, "exec"))
            if not isinstance(last, ast.Expr):
                return
            value = self._execute(shell.compile(ast.Expression(last.value), name, "eval"))
        if value is not None and not code.rstrip().endswith(";"):
            cast("Any", import_module("IPython.display")).display(value)

    def _call_exits(self, tree: ast.Module) -> None:
        """Change each line that is only IPython's `exit` or `quit` into a call, as IPython does in one-line cells."""
        for line in tree.body:
            match line:
                case ast.Expr(value=ast.Name(id=name)) if name in NAMES:
                    if self.namespace.get(name) is self._shell.exiter:
                        line.value = ast.copy_location(ast.Call(line.value, [], []), line.value)
                case _:
                    pass

    def _execute(self, code: CodeType) -> Any:
        value = eval(code, self._shell.user_global_ns, self._shell.user_ns)  # noqa: S307  (the user has allowed it)
        if not code.co_flags & inspect.CO_COROUTINE:
            return value
        try:
            loop = asyncio.get_running_loop()  # the kernel's event loop, which the running cell blocks
        except RuntimeError:
            return self._shell.loop_runner(outcome(lambda: value)).result()
        return run_nested(loop, value)

    # -- proposed cells --------------------------------------------------------------------------

    def stage(self, proposal: CellProposed) -> CellProposed:
        """Show a cell that the model proposes, in the notebook if possible. Return the proposal with its `place`.

        If a browser page has agentmagic's JupyterLab extension, it shows the proposal, which is in the session's log.
        Otherwise the front end inserts a new code cell when the running cell ends, at most one for each running cell.
        """
        if self.can_stage():
            return replace(proposal, place="staged", cell=proposal.cell or running_cell(self._shell))
        self._run_counts[proposal.id] = len(self.namespace.get("In", ()))
        is_insert = (proposal.action, proposal.kind, proposal.cell) == ("insert", "code", "")
        return replace(proposal, place="below" if is_insert and self._insert(proposal.source) else "shown")

    def _insert(self, source: str) -> bool:
        shell = self._shell
        waits = any(one.get("source") == "set_next_input" for one in shell.payload_manager.read_payload())
        if waits or not engine().main.serving or not in_notebook(shell):
            return False
        shell.set_next_input(source, replace=False)
        return True

    def fate(self, proposal: CellProposed) -> ProposalSettled | None:
        """Return whether the user has kept or changed a proposed cell, or None if that is not known yet.

        Compares the proposal with the cells that have run since, and with the saved notebook.
        """
        if proposal.place == "staged":
            return None
        cells, _ = self.cells()
        sources = {one.id: one.source.strip() for one in cells if one.id}
        run_count = self._run_counts.get(proposal.id)  # None if the proposal comes from an earlier kernel
        ran = [] if run_count is None else [source.strip() for source in self.namespace.get("In", ())[run_count:]]
        target = proposal.source.strip()
        now = sources.get(proposal.cell)
        match proposal.action:
            case "insert" if target in ran or target in sources.values():
                return ProposalSettled(proposal.id, "kept", ran=target in ran)
            case "insert" if proposal.place == "below":
                alike = get_close_matches(target, ran, n=1, cutoff=ALIKE)
                return ProposalSettled(proposal.id, "changed", alike[0], ran=True) if alike else None
            case "change" if now is not None and now != proposal.before.strip():
                settlement = ProposalSettled(proposal.id, "changed", now)
                return ProposalSettled(proposal.id, "kept") if now == target else settlement
            case "remove" if sources and proposal.cell and now is None:
                return ProposalSettled(proposal.id, "kept")
            case _:
                return None

    # -- cells -----------------------------------------------------------------------------------

    def cells(self) -> tuple[Sequence[NotebookCell], str]:
        """Return the notebook's cells, and a note: whether they come from its file or from IPython's history."""
        file = self._notebook.place().notebook
        saved_cells = read_notebook(file) if file is not None else []
        if file is None or not saved_cells:
            return list(self._history()), FROM_HISTORY
        running = running_cell(self._shell)
        cells = [_cell(number, one, running) for number, one in enumerate(saved_cells, 1)]
        return cells, FROM_FILE.format(file.name)

    def _history(self) -> Iterator[NotebookCell]:
        sources: Sequence[str] = self.namespace.get("In", ())
        values: Mapping[int, Any] = self.namespace.get("Out", {})
        first = max(1, len(sources) - MOST_HISTORY)
        for number in range(first, len(sources)):
            out: tuple[Text, ...] = ()
            if number in values:
                value = values[number]
                out = (Text(describe(value, OUT_BUDGET) if is_data(value) else summary(value)),)
            yield NotebookCell(number, "code", sources[number], out, running=number == len(sources) - 1)


def _cell(number: int, cell: Mapping[str, Any], running: str) -> NotebookCell:
    outputs = tuple(part for output in _dicts(cell.get("outputs")) for part in _output(output))
    name = own if isinstance(own := cell.get("id"), str) else ""
    kind, source = str(cell.get("cell_type", "")), _text(cell.get("source"))
    return NotebookCell(number, kind, source, outputs, bool(running) and name == running, name)


def _output(output: Mapping[str, Any]) -> Iterator[Content]:
    """Yield the text and images of a cell's output as a notebook file has it. The content of the file is untrusted."""
    match output:
        case {"text": text}:
            yield Text(_text(text))
        case {"ename": name, "evalue": value}:
            yield Text(f"{name}: {value}")
        case {"data": dict()}:
            forms = cast("dict[str, Any]", output["data"])
            image = next((kind for kind in IMAGES if isinstance(forms.get(kind), str)), None)
            if image is not None:
                try:
                    yield Media(image, base64.b64decode(forms[image]))
                except ValueError:
                    yield Text("[a damaged image]")
            elif text := next((forms[kind] for kind in ("text/markdown", "text/plain") if kind in forms), ""):
                yield Text(_text(text))
            else:
                yield Text(f"[{', '.join(forms)}]")
        case _:
            pass


def _text(text: object) -> str:
    lines = cast("list[object]", text) if isinstance(text, list) else [text]
    return "".join(line if isinstance(line, str) else json.dumps(line) for line in lines)


def _dicts(value: object) -> list[Mapping[str, Any]]:
    entries = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", one) for one in entries if isinstance(one, dict)]
