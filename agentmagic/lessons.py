"""The notebooks that come with agentmagic, and copies of them for students, with or without solutions."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from agentmagic.errors import UsageError

LEFT_OUT = shutil.ignore_patterns(".*", "*.out.ipynb", "__pycache__")
"""A filter for `shutil.copytree` that leaves out the outputs of runs, caches and hidden files."""
_PACKED = Path(__file__).parent / "course"
"""The folder in an installed wheel with `notebooks` and `docs`; pyproject.toml puts them into it."""
_SOLUTION = "solution-"


def course(clone: Path | None = None) -> Path:
    """Return the folder with `notebooks` and `docs`: the git clone, which is by default that in or around this package.

    Raises UsageError if `clone` is not a clone of agentmagic, or if agentmagic was installed without notebooks.
    """
    for folder in [clone] if clone else [_PACKED, _PACKED.parents[1]]:
        if (folder == _PACKED or is_clone(folder)) and (folder / "notebooks").is_dir():
            return folder
    if clone:
        raise UsageError(f"{clone.absolute()} is no clone of agentmagic. Name one, or leave --source out.")
    raise UsageError("This agentmagic was installed without its notebooks. Name a clone of agentmagic with --source.")


def is_clone(folder: Path) -> bool:
    """Return whether pip can install agentmagic from a folder."""
    return (folder / "pyproject.toml").is_file()


def copy_docs(source: Path, folder: Path) -> None:
    """Copy the pages and images of the docs to a folder, without the files that build the website."""
    for path in [*source.glob("docs/**/*.md"), *source.glob("docs/images/*")]:
        target = folder / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def copy(folder: Path, clone: Path | None = None, *, student: bool = False) -> list[str]:
    """Copy the lessons, the walkthroughs and the docs to `folder`; return the names of the lessons.

    They are copied from `clone`, by default from the notebooks that came with this agentmagic. The walkthroughs are put
    into the subfolder `walkthroughs`. With `student`, the solutions and all outputs are left out. Raises UsageError as
    `course` does, if the folder is not empty, or if with `student` an exercise is already solved in the original.
    """
    source = course(clone)
    notebooks, lessons = source / "notebooks", source / "notebooks" / "lessons"
    if folder.is_dir() and any(folder.iterdir()):
        raise UsageError(f"{folder} holds something. Name a new folder, so that no one's work is replaced.")
    names = [path.name for path in sorted(lessons.glob("*.ipynb"), key=_number)]
    places = {lessons / name: folder / name for name in names}
    places |= {path: folder / "walkthroughs" / path.name for path in notebooks.glob("*.ipynb")}
    texts = {place: _text(path, student=student) for path, place in places.items()}
    shutil.copytree(lessons, folder, ignore=LEFT_OUT, dirs_exist_ok=True)
    shutil.copytree(notebooks, folder / "walkthroughs", ignore=_but_walkthroughs)
    copy_docs(source, folder)
    for place, text in texts.items():
        place.write_text(text.replace("../../docs/", "docs/"), encoding="utf-8")
    for page in folder.glob("docs/**/*.md"):
        page.write_text(_moved_links(page.read_text(encoding="utf-8")), encoding="utf-8")
    return names


def _moved_links(page: str) -> str:
    """Return the text of a docs page in which links to notebooks point to the folders that `copy` makes."""
    page = re.sub(r"(\]\((\.\./)+)notebooks/lessons/", r"\1", page)
    return re.sub(r"(\]\((\.\./)+)notebooks/", r"\1walkthroughs/", page)


def _but_walkthroughs(folder: str, names: list[str]) -> set[str]:
    """Return the names that are not copied to `walkthroughs`: "lessons", and those that `LEFT_OUT` ignores."""
    return LEFT_OUT(folder, names) | {"lessons"}


def strip_solutions(path: Path) -> str:
    """Return the text of a notebook without its solutions and outputs.

    Raises UsageError if an exercise contains its solution, because somebody solved it in the original notebook.
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
    return strip_solutions(path) if student else path.read_text(encoding="utf-8")


def _number(path: Path) -> tuple[int, str]:
    match = re.match(r"\d+", path.name)
    return int(match[0]) if match else 0, path.name
