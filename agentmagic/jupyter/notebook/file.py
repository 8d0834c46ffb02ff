"""Finds the file of the kernel's notebook, and the folder in which its conversations are saved.

A notebook is identified by its cells and the inode number of its file, not by its name alone. So a notebook that was
renamed or moved keeps its conversations, and a new notebook with an old name does not get those of the old one.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, cast

from IPython.core.interactiveshell import InteractiveShell

from agentmagic.classroom import class_settings, notebook_of
from agentmagic.history.journal import FOLDER, in_use
from agentmagic.jupyter.frontend import carries_out_cell, in_notebook, running_cell
from agentmagic.plain_files import read_plain
from agentmagic.platforms import move_over

SUFFIX = ".jsonl"
RECORD = "notebook.json"
"""The file in the folder of conversations that records which notebook they belong to."""

LARGEST = 32 * 2**20
"""Bytes of the largest notebook file that is read."""
MOST_READ = 128 * 2**20
"""Bytes of notebook files that are read at most in search of a renamed notebook."""
MOST_CELLS = 500
"""Cells in the record of a notebook: the last ones that the kernel has seen."""
MOST_FOLDERS = 300
"""Folders near a notebook that are searched at most for its conversations, in case it was moved."""
TELLING = 40
"""Characters that a cell without an id must have to identify its notebook: many notebooks share shorter cells."""

_CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # as the notebook format 4.5 defines ids of cells
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))})
"""File names that Windows reserves, with any suffix. Avoided on all systems: a notebook may be moved to Windows."""

WITHOUT_NOTEBOOK = "conversations are saved in a notebook that a person works in; elsewhere give a path"
UNKNOWN = "the kernel does not know the file of its notebook, which may be new or renamed"


@dataclass(frozen=True, slots=True)
class SaveFolder:
    """The folder in which a notebook's conversations are saved.

    If no conversations are saved, `folder` is None and `why_not` is the reason. `notebook` is the notebook's own file,
    if known.
    """

    folder: Path | None
    why_not: str = ""
    notebook: Path | None = None

    def file(self, name: str) -> Path | None:
        """Return the file in which a session of this name is saved, or None if sessions are not saved."""
        if self.folder is None:
            return None
        first, dot, rest = name.partition(".")
        # Add "-" to a name that Windows reserves. No session's name has a "-", so the file names stay different.
        legal = f"{first}-" if first.lower() in _DEVICES else first
        return self.folder / f"{legal}{dot}{rest}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class _Identity:
    """The data by which a notebook is recognized: its name, the inode number of its file, its cells' ids or digests."""

    name: str
    number: int
    cells: tuple[str, ...]

    def fits(self, number: int, cells: frozenset[str]) -> bool:
        """Return whether a file with this inode number and these cells is this notebook.

        It is this notebook if they share a cell. If the cells of either are unknown, the inode number decides.
        """
        return not cells.isdisjoint(self.cells) if cells and self.cells else number == self.number


class KnownNotebook:
    """Finds the notebook file of a shell, also after the file is renamed.

    `folder` is the folder of the notebook's conversations, or None until a cell first needs it. If the notebook is
    renamed, the folder keeps its name while the kernel runs, because the files of conversations are open in it. The
    next kernel renames the folder.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self.folder: Path | None = None
        self.attended = False
        """Whether a user has the notebook open: one of its cells has run, or a page has connected to the kernel."""
        self._shell = shell
        self._file: Path | None = None
        self._identity = _Identity("", 0, ())
        self._saved_identity: _Identity | None = None
        self._search_time = 0
        self._last_cell = ""

    def place(self) -> SaveFolder:
        """Return the folder for new sessions, which the running cell or a click in a browser page makes."""
        running = running_cell(self._shell)
        if _CELL_ID.fullmatch(running):  # VS Code sends a URI with the cell's number instead of the cell's id
            self._last_cell = running
        notebook = self._find(
            self._last_cell
        )  # the last cell that ran, because a click in a browser page does not name a cell
        if (bounds := class_settings()).save is False:
            return SaveFolder(None, f"{bounds.scope('save')} has {bounds.setting_with_file('save')}", notebook)
        if not self._is_attended():
            return SaveFolder(None, WITHOUT_NOTEBOOK, notebook)
        if notebook is None:
            return SaveFolder(None, UNKNOWN)
        self.folder = self.folder or _folder(notebook, self._identity.number, self._last_cell)
        return SaveFolder(self.folder, notebook=notebook)

    def _is_attended(self) -> bool:
        """Return whether a user has the notebook open. Called for a running cell or a message of a browser page.

        The request to run a cell shows whether a user or a program sent it. The message of a browser page does not show
        this, so `attended` decides, which tells whether a user was seen before.
        """
        is_cell = in_notebook(self._shell)
        self.attended = self.attended or is_cell
        return is_cell if carries_out_cell(self._shell) else self.attended

    def remember(self) -> None:
        """Write a record of the notebook's identity to the folder of its conversations, if the folder exists."""
        if self.folder is None or self._identity == self._saved_identity or not self.folder.is_dir():
            return
        new = self.folder / f"{RECORD}.new"
        with suppress(OSError):
            new.write_text(json.dumps(asdict(self._identity)), encoding="utf-8")
            move_over(new, self.folder / RECORD)
            self._saved_identity = self._identity

    def _find(self, running: str) -> Path | None:
        """Return the notebook's file, or None. Search for it if the known path now has no file, or another file."""
        path = self._file or notebook_of(cast("Any", self._shell).user_ns)
        if path is None:
            return None
        number = _number(path)
        if self._file is None or not number or number != self._identity.number:
            path = self._search(path, number, running)
            if path is None:
                return None
            self._take(path, _cells(path))
        if running not in self._identity.cells:
            self._take(path, frozenset({running} if running else ()))
        return path

    def _search(self, path: Path, number: int, running: str) -> Path | None:
        """Return the notebook file that has the cells seen so far; None if none is found.

        The first search returns the file that the front end named, if it exists, instead of None.
        """
        cell_ids = frozenset((*self._identity.cells, *([running] if running else ())))
        if number and (not cell_ids or not cell_ids.isdisjoint(_cells(path))):
            return path
        first = self._file is None
        change_time = _last_change(path.parent)
        if change_time != self._search_time and not (first and not running):
            self._search_time = change_time
            looked_for = _Identity("", self._identity.number, tuple(cell_ids))
            if (match := _find_renamed(path, looked_for, running if first else "")) is not None:
                return match
        return path if first and number else None

    def _take(self, file: Path, cells: frozenset[str]) -> None:
        """Take `file` as the notebook's file from now on, and add `cells` to the cells by which it is recognized."""
        all_cells = (*(cell for cell in self._identity.cells if cell not in cells), *sorted(cells))
        self._file = file
        self._identity = _Identity(file.name, _number(file), all_cells[-MOST_CELLS:])


# -- the folder of conversations -------------------------------------------------------------------------


def _folder(notebook: Path, number: int, running: str) -> Path:
    """Return the folder of a notebook's conversations: an existing folder, renamed if necessary, or a new path."""
    base, cells = notebook.parent / FOLDER, _cells(notebook)
    own = base / notebook.stem
    ours: dict[Path, int] = {}
    for folder in base.glob("*"):
        record = _record(folder)
        if record is None or not record.fits(number, cells) or _has_other_owner(record, notebook):
            continue
        # A new notebook without saved cells may reuse a deleted notebook's inode number: compare the running cell too.
        if cells or not running or not record.cells or running in record.cells:
            ours[folder] = len(cells.intersection(record.cells))
    if own in ours:
        return own
    if ours:
        return _rename_folder(max(ours, key=ours.__getitem__), own)
    if (old_folder := _find_moved(notebook, number, cells)) is not None:
        with suppress(OSError):  # if no folder can be made, the conversations stay in their old folder
            base.mkdir(exist_ok=True)
        return _rename_folder(old_folder, own)
    if _record(own) is None:  # the folder is missing, or was made by a version of agentmagic that wrote no records
        return own
    return next(free for n in count(1) if not (free := own.with_name(f"{own.name}.{n}")).exists())


def _find_moved(notebook: Path, number: int, cells: frozenset[str]) -> Path | None:
    """Return the folder of conversations at the place from which a notebook was moved, or None.

    Searches the folders above, below and next to the notebook's folder. Cells and inode number must both match: a
    copy, or another notebook made from the same template, has another number.
    """
    here = notebook.parent
    near = (one for one in chain((here.parent,), here.glob("*/"), here.parent.glob("*/")) if one != here)
    for record_file in chain.from_iterable(one.glob(f"{FOLDER}/*/{RECORD}") for one in islice(near, MOST_FOLDERS)):
        record = _record(record_file.parent)
        if record is not None and number == record.number and not cells.isdisjoint(record.cells):
            return record_file.parent
    return None


def _record(folder: Path) -> _Identity | None:
    """Return the identity of the notebook that a folder of conversations belongs to, or None if it has no record."""
    match _read(folder / RECORD):
        case {"name": str(name), "number": int(number), "cells": [*cells]} if {*map(type, cells)} <= {str}:
            return _Identity(name, number, tuple(cells[-MOST_CELLS:]))
        case _:
            return None


def _has_other_owner(record: _Identity, notebook: Path) -> bool:
    """Return whether `record` identifies another notebook in the folder of `notebook`. If so, `notebook` is a copy."""
    others = ((path, stat.st_ino) for path, stat in _beside(notebook))
    candidates = ((path, number) for path, number in others if path.name == record.name or number == record.number)
    return any(record.fits(number, _cells(path)) for path, number in candidates)


def _rename_folder(folder: Path, own: Path) -> Path:
    """Rename `folder` to `own`, unless `own` exists or a kernel writes in the folder. Return the folder's path."""
    if not own.exists() and not any(map(in_use, folder.glob(f"*{SUFFIX}"))):
        with suppress(OSError):
            return folder.rename(own)
    return folder


# -- notebooks on disk -----------------------------------------------------------------------------------


def _find_renamed(missing: Path, identity: _Identity, running: str) -> Path | None:
    """Return the notebook that a missing one was renamed to: in the same folder, with the most cells in common.

    Return None if no notebook matches, or if several match best. If `running` is the id of a cell, the notebook must
    have this cell.
    """
    matches: dict[Path, tuple[int, bool]] = {}
    remaining = MOST_READ
    for path, stat in sorted(_beside(missing), key=lambda pair: -pair[1].st_ctime):
        remaining -= stat.st_size
        cells = _cells(path, running) if remaining >= 0 else frozenset[str]()
        if identity.fits(stat.st_ino, cells) and (not running or running in cells):
            matches[path] = len(cells.intersection(identity.cells)), stat.st_ino == identity.number
    best = max(matches.values(), default=None)
    likely = [path for path, weight in matches.items() if weight == best]
    return likely[0] if len(likely) == 1 else None


def _last_change(folder: Path) -> int:
    """Return when a folder, or a notebook in the folder, was last changed, in nanoseconds; 0 if it is missing."""
    times: list[int] = []
    for path in (folder, *folder.glob("*.ipynb")):
        with suppress(OSError):
            times.append(path.stat().st_mtime_ns)
    return max(times, default=0)


def _beside(notebook: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the other notebooks in a notebook's folder, with their file status."""
    for path in notebook.parent.glob("*.ipynb"):
        if path != notebook:
            with suppress(OSError):  # the file was deleted meanwhile
                yield path, path.stat()


def read_notebook(notebook: Path) -> list[dict[str, Any]]:
    """Return the saved cells of a notebook file, whose content is untrusted; an empty list if it cannot be read."""
    match _read(notebook):
        case {"cells": [*cells]}:
            return [cast("dict[str, Any]", cell) for cell in cells if isinstance(cell, dict)]
        case _:
            return []


def _cells(notebook: Path, holding: str = "") -> frozenset[str]:
    """Return the ids of a notebook's saved cells, or digests for cells without an id.

    Return an empty set if the notebook cannot be read, or does not contain the text `holding`.
    """
    match _read(notebook, holding):
        case {"cells": [*cells]}:
            with suppress(RecursionError):  # writing a nested cell as JSON needs a deeper stack than reading it
                return frozenset(filter(None, map(_cell, cells)))
        case _:
            pass
    return frozenset()


def _cell(cell: object) -> str:
    """Return the id or digest that identifies a cell, or "" if the cell is too short to identify its notebook."""
    match cell:
        case {"id": str(name)} if _CELL_ID.fullmatch(name):
            return name
        case dict():
            text = json.dumps(cast("dict[str, Any]", cell).get("source"))
            return sha256(text.encode()).hexdigest() if len(text) >= TELLING else ""
        case _:
            return ""


def _read(path: Path, holding: str = "") -> Any:
    """Return the JSON of a file; None if it cannot be read, is too large, or does not contain the text `holding`."""
    try:
        data = read_plain(path, LARGEST)
        return json.loads(data) if holding.encode() in data else None
    except (OSError, ValueError, RecursionError):
        return None


def _number(file: Path) -> int:
    """Return the inode number of a file, which stays when the file is renamed or saved; 0 if the file is missing."""
    try:
        return file.stat().st_ino
    except OSError:
        return 0
