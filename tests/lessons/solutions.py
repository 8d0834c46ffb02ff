"""Runs exercises of the lessons with the solution of a student, in this process, as far as a check needs it."""

import ast
import asyncio
import inspect
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
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


class Answer(NamedTuple):
    """A right or wrong answer to an exercise: what is special in it, and what differs from the lesson's solution.

    An edit that begins with `WHOLE` is the cell itself. Without an edit the cell is as the lesson gives it.
    """

    lesson: int
    exercise: str
    right: bool
    title: str
    edit: str | None

    def __str__(self) -> str:
        return f"{self.lesson}-{self.exercise} {self.title}"

    def cell(self) -> str:
        """Return the cell of the exercise with this answer."""
        lesson = Lesson(self.lesson)
        if self.edit is None:
            return lesson.cells[f"exercise-{self.exercise}"]
        return self.edit if self.edit.startswith(WHOLE) else edited(lesson.solution(self.exercise), self.edit)


WHOLE = "# the whole cell\n"
ANSWERS = Path(__file__).parent / "answers"


def answers(*, right: bool) -> list[Answer]:
    """Return the right or the wrong answers in the files of all lessons."""
    return [answer for path in ANSWERS.glob("*.md") for answer in _read(path) if answer.right == right]


def _read(path: Path) -> list[Answer]:
    lesson = int(path.stem.removeprefix("lesson_"))
    found = []
    for section in re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        exercise, right = section[len("Exercise ")], section.partition("\n")[0].endswith("right")
        for piece in re.split(r"^### ", section, flags=re.MULTILINE)[1:]:
            code = re.search(r"```python\n(.*?)```", piece, re.DOTALL)
            found.append(Answer(lesson, exercise, right, piece.partition("\n")[0], code and code[1]))
    return found


class Lesson:
    """The code of a lesson, by the ids of its cells."""

    def __init__(self, number: int) -> None:
        (self.path,) = LESSONS.glob(f"{number}_*.ipynb")
        cells = _cells(self.path)
        self.cells = {cell["id"]: "".join(cell["source"]) for cell in cells}
        self._code = [cell["id"] for cell in cells if cell["cell_type"] == "code"]

    def solution(self, exercise: str) -> str:
        """Return the cell of an exercise as the lesson solves it."""
        (source,) = re.findall(r"```python\n(.*?)```", self.cells[f"solution-{exercise}"], re.DOTALL)
        return source

    def check(self, exercise: str, source: str, namespace: dict[str, Any]) -> None:
        """Run the cells before an exercise that need no kernel, then a solution, then its check, which prints.

        Of the turns in the cells before, only those run at which the check looks.
        """
        looked_at = frozenset(re.findall(r"\w+", self.cells[f"check-{exercise}"]))
        cassette = self.path.with_suffix(".cassette.yaml")
        offered = MarkedFunctions(namespace)
        namespace["agent"] = agent = Session(Agent("local:", tools=[offered]), cassette=cassette, replay="replay")
        for name in self._code[: self._code.index(f"exercise-{exercise}") + 1]:
            if not name.startswith("check-") and 'Agent("local:"' not in self.cells[name]:
                with suppress(Exception):  # the cell looks at what a cell with a magic has made
                    run(_without_turns(self.cells[name], looked_at), namespace)
                agent.connect()
        with suppress(AgentMagicError):  # the cell has an error, and the student goes on to the check
            run(source, namespace)
        run(self.cells[f"check-{exercise}"], namespace)


@cache
def _cells(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


@cache
def _without_turns(source: str, sessions: frozenset[str]) -> str:
    """Return a cell without the turns of all sessions but these: without its lines `session.ask(...)`."""
    return re.sub(
        r"^(\w+)\.ask\(.*\)$", lambda turn: turn[0] if turn[1] in sessions else "", source, flags=re.MULTILINE
    )


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
