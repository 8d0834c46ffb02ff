"""Runs exercises of the lessons with the solution of a student, in this process, as far as a check needs it."""

import ast
import asyncio
import inspect
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from agentmagic import Agent, Session
from agentmagic.errors import AgentMagicError
from agentmagic.jupyter.notebook.namespace import MarkedFunctions

LESSONS = Path(__file__).parent.parent.parent / "notebooks" / "lessons"


class Wrong(NamedTuple):
    """A wrong solution: the exercise, what differs from the right one, and words of the refusal that fits."""

    exercise: str
    edit: str
    words: str


class Lesson:
    """The code of a lesson, by the ids of its cells."""

    def __init__(self, number: int) -> None:
        (self.path,) = LESSONS.glob(f"{number}_*.ipynb")
        cells = json.loads(self.path.read_text(encoding="utf-8"))["cells"]
        self.cells = {cell["id"]: "".join(cell["source"]) for cell in cells}
        self._code = [cell["id"] for cell in cells if cell["cell_type"] == "code"]

    def solution(self, exercise: str) -> str:
        """Return the cell of an exercise as the lesson solves it."""
        (source,) = re.findall(r"```python\n(.*?)```", self.cells[f"solution-{exercise}"], re.DOTALL)
        return source

    def check(self, exercise: str, source: str, namespace: dict[str, Any]) -> None:
        """Run the cells before an exercise that need no kernel, then a solution, then its check, which prints."""
        cassette = self.path.with_suffix(".cassette.yaml")
        offered = MarkedFunctions(namespace)
        namespace["agent"] = agent = Session(Agent("local:", tools=[offered]), cassette=cassette, replay="replay")
        for name in self._code[: self._code.index(f"exercise-{exercise}") + 1]:
            if not name.startswith("check-") and 'Agent("local:"' not in self.cells[name]:
                with suppress(Exception):  # the cell looks at what a cell with a magic has made
                    run(self.cells[name], namespace)
                agent.connect()
        with suppress(AgentMagicError):  # the cell has an error, and the student goes on to the check
            run(source, namespace)
        run(self.cells[f"check-{exercise}"], namespace)


def run(source: str, namespace: dict[str, Any]) -> None:
    """Run a cell; it may await."""
    if re.search(r"^ *%", source, re.MULTILINE):
        return
    code = compile(source, "<cell>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    value = eval(code, namespace)  # noqa: S307  (the cells of our own lessons)
    if inspect.iscoroutine(value):
        asyncio.run(value)


def edited(source: str, edit: str) -> str:
    """Return a cell in which the statements of an edit replace those that define or call the same; others go first."""
    tree, changes = ast.parse(source), ast.parse(edit).body
    new = {_name(one): one for one in changes}
    names = {_name(one) for one in tree.body}
    added = [one for one in changes if _name(one) not in names]
    tree.body = [*added, *(new.get(_name(one), one) for one in tree.body)]
    return ast.unparse(tree)


def _name(statement: ast.stmt) -> str:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[target]):
            return ast.unparse(target)
        case ast.Expr(value=ast.Call(func=called)):
            return ast.unparse(called)
        case _:
            return ast.unparse(statement)


def rows(tables: Sequence[Any]) -> list[Any]:
    """Return the wrong solutions of the tables of all lessons, each with the number of its lesson."""
    return [(number, wrong) for number, table in enumerate(tables, 1) for wrong in table]
