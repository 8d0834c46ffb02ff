"""The lessons as students get them: without solutions and outputs, and with everything that they need."""

import json
import os
import re
import shutil

import pytest

from agentmagic.__main__ import main
from tests.lessons.solutions import LESSONS

ROOT = LESSONS.parent.parent


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course") / "lessons"
    assert main(["lessons", "--student", str(folder), "--source", str(ROOT)]) == 0
    return folder


@pytest.mark.parametrize("lesson", sorted(LESSONS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_student_gets_the_lesson_without_solutions_and_outputs(folder, lesson):
    cells = cells_of(folder / lesson.name)
    kept = [cell["id"] for cell in cells_of(lesson) if not cell["id"].startswith("solution-")]
    assert [cell["id"] for cell in cells] == kept
    assert not [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")]
    began = {cell["id"]: cell["source"] for cell in cells_of(lesson)}
    assert [cell for cell in cells if cell["cell_type"] == "code" and cell["source"] != began[cell["id"]]] == []
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert [link for link in re.findall(r"\]\((?!http)([^)#]+)", text) if not (folder / link).is_file()] == []
    assert (folder / lesson.with_suffix(".cassette.yaml").name).is_file()


def test_a_copy_for_a_teacher_has_the_solutions(tmp_path, capsys):
    assert main(["lessons", str(tmp_path), "--source", str(ROOT)]) == 0
    assert re.match(
        rf"\d+ lessons with solutions in {re.escape(str(tmp_path))}: 1_tools.ipynb, ", capsys.readouterr().out
    )
    assert any(cell["id"] == "solution-1" for cell in cells_of(tmp_path / "1_tools.ipynb"))
    assert main(["lessons", str(tmp_path), "--source", str(ROOT)]) == 2
    assert "holds something" in capsys.readouterr().err
    assert main(["lessons", str(tmp_path / "new"), "--source", str(tmp_path)]) == 2
    assert "is no clone of agentmagic" in capsys.readouterr().err


def test_an_exercise_that_was_solved_in_the_clone_is_not_given_away(tmp_path, capsys):
    for name in ("notebooks/lessons", "docs"):
        shutil.copytree(ROOT / name, tmp_path / "clone" / name)
    (tmp_path / "clone" / "pyproject.toml").touch()
    path = tmp_path / "clone" / "notebooks" / "lessons" / "1_tools.ipynb"
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = {cell["id"]: cell for cell in notebook["cells"]}
    solution = "".join(cells["solution-2"]["source"])
    cells["exercise-2"]["source"] = re.findall(r"```python\n(.*?)```", solution, re.DOTALL)[0]
    path.write_text(json.dumps(notebook))
    assert main(["lessons", "--student", str(tmp_path / "out"), "--source", str(tmp_path / "clone")]) == 2
    assert "1_tools.ipynb: exercise 2 is solved. Put its beginning back." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_version_of_a_student_runs_and_its_checks_give_hints(folder):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(folder / "1_tools.ipynb", as_version=4)
    client = nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}, timeout=60)
    client.execute(env=os.environ | {"PYTHONPATH": str(ROOT)})
    said = [cell.outputs[-1].text for cell in notebook.cells if cell.id.startswith("check-")]
    assert [bool(re.match(r"Not yet: .* Hint: ", one)) for one in said] == [True, True]
