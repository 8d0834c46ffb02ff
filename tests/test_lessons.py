"""The lessons, as a student does them: each exercise is first not right, with a hint, and then solved."""

import os
import re
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
from tests.test_notebooks import NOTEBOOKS, ROOT, nbformat  # noqa: E402

LESSONS = [path for path in NOTEBOOKS if path.parent.name == "lessons"]


def printed(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


@pytest.mark.slow
@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_each_exercise_of_a_lesson_gives_a_hint_can_be_solved_and_leaves_the_rest_as_it_was(path):
    notebook = nbformat.read(path, as_version=4)
    place = {cell["id"]: index for index, cell in enumerate(notebook.cells)}
    numbers = [name.removeprefix("exercise-") for name in place if name.startswith("exercise-")]
    assert numbers == ["1", "2"]
    client = nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(path.parent)}}, timeout=60)
    with client.setup_kernel(env=os.environ | {"PYTHONPATH": str(ROOT)}):
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
            if (number := cell["id"].removeprefix("check-")) != cell["id"]:
                assert re.match(r"Not yet: .* Hint: ", printed(cell)), printed(cell)
                exercise, solution = (notebook.cells[place[f"{name}-{number}"]] for name in ("exercise", "solution"))
                (exercise.source,) = re.findall(r"```python\n(.*?)```", solution.source, re.DOTALL)
                client.execute_cell(exercise, place[f"exercise-{number}"])
                client.execute_cell(cell, index)
                assert printed(cell).startswith("Solved: "), printed(cell)
        for index, cell in enumerate(notebook.cells):  # a student goes back to an earlier cell
            if re.match(r"%%agent\b.* --new", cell.source):
                client.execute_cell(cell, index)
