"""The lessons of a clone as a class gets them: a copy for students, without the solutions."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from agentmagic.errors import UsageError

LEFT_OUT = shutil.ignore_patterns(".*", "*.out.ipynb", "__pycache__")
"""What a run, or a person, has left in the folder of notebooks."""
_SOLUTION = "solution-"


def notebooks_of(source: Path) -> Path:
    """Return the folder of notebooks of a clone. Raises UsageError if `source` is no clone."""
    if not (source / "pyproject.toml").is_file() or not (source / "notebooks").is_dir():
        raise UsageError(f"{source.absolute()} is no clone of agentmagic. Run this in one, or name it with --source.")
    return source / "notebooks"


def copy(folder: Path, source: Path, *, student: bool = False) -> list[str]:
    """Copy the lessons of a clone to a folder, with the docs to which they link; return the names of the notebooks.

    For a `student` the solutions are left out, exercises stand as they begin, and no cell has an output. Raises
    UsageError if `source` is no clone, if the folder holds something, or if an exercise is solved in the clone.
    """
    lessons = notebooks_of(source) / "lessons"
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds something. Name a new folder, so that no one's work is replaced.")
    texts = {path.name: _text(path, student=student) for path in sorted(lessons.glob("*.ipynb"), key=_number)}
    shutil.copytree(lessons, folder, ignore=LEFT_OUT, dirs_exist_ok=True)
    shutil.copytree(source / "docs", folder / "docs", dirs_exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text.replace("../../docs/", "docs/"), encoding="utf-8")
    return list(texts)


def stripped(path: Path) -> str:
    """Return the text of a notebook without its solutions and outputs.

    Raises UsageError if an exercise is as its solution has it: then someone has solved it in the notebook itself.
    """
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    cells: list[dict[str, Any]] = notebook["cells"]
    texts = {str(cell.get("id")): "".join(cell["source"]).strip() for cell in cells}
    for name, text in texts.items():
        exercise = texts.get(name.replace(_SOLUTION, "exercise-"))
        if name.startswith(_SOLUTION) and exercise and exercise in text:
            raise UsageError(f"{path.name}: exercise {name.removeprefix(_SOLUTION)} is solved. Put its beginning back.")
    notebook["cells"] = [cell for cell in cells if not str(cell.get("id")).startswith(_SOLUTION)]
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _text(path: Path, *, student: bool) -> str:
    return stripped(path) if student else path.read_text(encoding="utf-8")


def _number(path: Path) -> tuple[int, str]:
    found = re.match(r"\d+", path.name)
    return int(found[0]) if found else 0, path.name
