"""Which notebook the kernel runs, and where its conversations are saved (SESSION-3).

A notebook is known by its cells and the number of its file, not by its name alone. A notebook that was renamed or
moved keeps its conversations, and a new notebook under an old name is not offered those of another.
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
from agentmagic.platforms import move_over

SUFFIX = ".jsonl"
RECORD = "notebook.json"
"""The file, beside the conversations, that says which notebook they belong to."""

LARGEST = 32 * 2**20
"""Bytes of a notebook; a larger one is not read."""
MOST_READ = 128 * 2**20
"""Bytes that are read of other notebooks in search of one that was renamed."""
MOST_CELLS = 500
"""Cells that a record holds: those that were seen last."""
MOST_FOLDERS = 300
"""Folders near a notebook that are searched for its conversations, if it was moved."""
TELLING = 40
"""Characters that a cell without an id must have to identify its notebook: shorter cells stand in many notebooks."""

_CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # as in the notebook format 4.5
_DEVICES = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))})
"""Names that no file can have on Windows, with any ending; a notebook may be moved there."""

WITHOUT_NOTEBOOK = "conversations are saved in a notebook that a person works in; elsewhere give a path"
UNKNOWN = "the kernel does not know the file of its notebook, which may be new or renamed"


@dataclass(frozen=True, slots=True)
class SaveFolder:
    """The folder of a notebook's conversations, or None and in `why_not` the reason why none are saved.

    `notebook` is the file of the notebook itself, if it is known.
    """

    folder: Path | None
    why_not: str = ""
    notebook: Path | None = None

    def file(self, name: str) -> Path | None:
        """Return the file of the session of a name."""
        if self.folder is None:
            return None
        first, dot, rest = name.partition(".")
        legal = f"{first}-" if first.lower() in _DEVICES else first  # no session has a - in its name
        return self.folder / f"{legal}{dot}{rest}{SUFFIX}"


@dataclass(frozen=True, slots=True)
class _Identity:
    """How a notebook is known again: its name, the number of its file, and its cells by id or digest."""

    name: str
    number: int
    cells: tuple[str, ...]

    def fits(self, number: int, cells: frozenset[str]) -> bool:
        """Whether a file of this number and these cells is the notebook; the number counts if cells are unknown."""
        return not cells.isdisjoint(self.cells) if cells and self.cells else number == self.number


class KnownNotebook:
    """The notebook of a shell, which is followed if it is renamed.

    `folder` is the folder of its conversations, once a cell has needed it. It keeps its name while the kernel runs,
    since journals are open there; the next kernel names it after the notebook.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self.folder: Path | None = None
        self.attended = False
        """Whether a person has the notebook open: one of its cells has run, or a page has found the kernel."""
        self._shell = shell
        self._file: Path | None = None
        self._identity = _Identity("", 0, ())
        self._written: _Identity | None = None
        self._searched = 0
        self._ran = ""

    def place(self) -> SaveFolder:
        """Return where the sessions are saved that the running cell makes, or a click in the notebook's page."""
        running = running_cell(self._shell)
        if _CELL_ID.fullmatch(running):  # VS Code numbers its cells
            self._ran = running
        notebook = self._find(self._ran)  # the message of a page names no cell: the last one that ran is looked for
        if (bounds := class_settings()).save is False:
            return SaveFolder(None, f"{bounds.whose('save')} has {bounds.words('save')}", notebook)
        if not self._is_attended():
            return SaveFolder(None, WITHOUT_NOTEBOOK, notebook)
        if notebook is None:
            return SaveFolder(None, UNKNOWN)
        self.folder = self.folder or _folder(notebook, self._identity.number, self._ran)
        return SaveFolder(self.folder, notebook=notebook)

    def _is_attended(self) -> bool:
        """Whether what asks is a cell of a notebook that a person has open, or the page of such a notebook.

        A cell says itself what it is, since programs run cells too. The message of a page does not.
        """
        is_cell = in_notebook(self._shell)
        self.attended = self.attended or is_cell
        return is_cell if carries_out_cell(self._shell) else self.attended

    def remember(self) -> None:
        """Note beside the conversations, if there are any, which notebook they belong to."""
        if self.folder is None or self._identity == self._written or not self.folder.is_dir():
            return
        new = self.folder / f"{RECORD}.new"
        with suppress(OSError):
            new.write_text(json.dumps(asdict(self._identity)), encoding="utf-8")
            move_over(new, self.folder / RECORD)
            self._written = self._identity

    def _find(self, running: str) -> Path | None:
        """Return the file of the notebook; look for it if its file is gone or another."""
        known = self._file or notebook_of(cast("Any", self._shell).user_ns)
        if known is None:
            return None
        number = _number(known)
        if self._file is None or not number or number != self._identity.number:
            known = self._search(known, number, running)
            if known is None:
                return None
            self._take(known, _cells(known))
        if running not in self._identity.cells:
            self._take(known, frozenset({running} if running else ()))
        return known

    def _search(self, known: Path, number: int, running: str) -> Path | None:
        """Return the notebook with the cells that were seen so far, or else the one that the front end named."""
        seen = frozenset((*self._identity.cells, *([running] if running else ())))
        if number and (not seen or not seen.isdisjoint(_cells(known))):
            return known
        first = self._file is None
        changed = _last_change(known.parent)
        if changed != self._searched and not (first and not running):
            self._searched = changed
            looked_for = _Identity("", self._identity.number, tuple(seen))
            if (found := _renamed(known, looked_for, running if first else "")) is not None:
                return found
        return known if first and number else None

    def _take(self, file: Path, cells: frozenset[str]) -> None:
        """Take a file as the notebook's, which has these cells, among others."""
        seen = (*(cell for cell in self._identity.cells if cell not in cells), *sorted(cells))
        self._file = file
        self._identity = _Identity(file.name, _number(file), seen[-MOST_CELLS:])


# -- the folder of conversations -------------------------------------------------------------------------


def _folder(notebook: Path, number: int, running: str) -> Path:
    """Return the folder of a notebook's conversations, which may have an earlier name; a new one if there is none."""
    base, cells = notebook.parent / FOLDER, _cells(notebook)
    own = base / notebook.stem
    ours: dict[Path, int] = {}
    for folder in base.glob("*"):
        record = _record(folder)
        if record is None or not record.fits(number, cells) or _has_other_owner(record, notebook):
            continue
        # The number of a deleted file may be given to a new one, of which no cell is saved yet.
        if cells or not running or not record.cells or running in record.cells:
            ours[folder] = len(cells.intersection(record.cells))
    if own in ours:
        return own
    if ours:
        return _named_anew(max(ours, key=ours.__getitem__), own)
    if (moved := _moved(notebook, number, cells)) is not None:
        with suppress(OSError):  # then the conversations stay where they are
            base.mkdir(exist_ok=True)
        return _named_anew(moved, own)
    if _record(own) is None:  # no folder has the name yet, or an earlier version of agentmagic made it
        return own
    return next(free for n in count(1) if not (free := own.with_name(f"{own.name}.{n}")).exists())


def _moved(notebook: Path, number: int, cells: frozenset[str]) -> Path | None:
    """Return the folder of conversations of a notebook that was moved here, or None.

    It is searched for in the folders above, below and next to the notebook's. Cells and number must both agree: a
    copy, or another notebook made of the same template, has another number.
    """
    here = notebook.parent
    near = (one for one in chain((here.parent,), here.glob("*/"), here.parent.glob("*/")) if one != here)
    for record_file in chain.from_iterable(one.glob(f"{FOLDER}/*/{RECORD}") for one in islice(near, MOST_FOLDERS)):
        record = _record(record_file.parent)
        if record is not None and number == record.number and not cells.isdisjoint(record.cells):
            return record_file.parent
    return None


def _record(folder: Path) -> _Identity | None:
    """Return what a folder says of its notebook, or None."""
    match _read(folder / RECORD):
        case {"name": str(name), "number": int(number), "cells": [*cells]} if {*map(type, cells)} <= {str}:
            return _Identity(name, number, tuple(cells[-MOST_CELLS:]))
        case _:
            return None


def _has_other_owner(record: _Identity, notebook: Path) -> bool:
    """Whether another notebook here is the one of a record: ours is then its copy."""
    others = ((path, stat.st_ino) for path, stat in _beside(notebook))
    named = ((path, number) for path, number in others if path.name == record.name or number == record.number)
    return any(record.fits(number, _cells(path)) for path, number in named)


def _named_anew(folder: Path, own: Path) -> Path:
    """Give a folder its notebook's new name, unless that is taken or another kernel writes there."""
    if not own.exists() and not any(map(in_use, folder.glob(f"*{SUFFIX}"))):
        with suppress(OSError):
            return folder.rename(own)
    return folder


# -- notebooks on disk -----------------------------------------------------------------------------------


def _renamed(missing: Path, known: _Identity, running: str) -> Path | None:
    """Return the notebook beside a missing one that has most of its cells, or None if none or several do.

    With `running`, only a notebook that holds this cell counts.
    """
    found: dict[Path, tuple[int, bool]] = {}
    left = MOST_READ
    for path, stat in sorted(_beside(missing), key=lambda pair: -pair[1].st_ctime):
        left -= stat.st_size
        cells = _cells(path, running) if left >= 0 else frozenset[str]()
        if known.fits(stat.st_ino, cells) and (not running or running in cells):
            found[path] = len(cells.intersection(known.cells)), stat.st_ino == known.number
    best = max(found.values(), default=None)
    likely = [path for path, weight in found.items() if weight == best]
    return likely[0] if len(likely) == 1 else None


def _last_change(folder: Path) -> int:
    """Return when a folder or a notebook in it was changed last, in nanoseconds; 0 if there is no folder."""
    times: list[int] = []
    for path in (folder, *folder.glob("*.ipynb")):
        with suppress(OSError):
            times.append(path.stat().st_mtime_ns)
    return max(times, default=0)


def _beside(notebook: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the other notebooks of a notebook's folder."""
    for path in notebook.parent.glob("*.ipynb"):
        if path != notebook:
            with suppress(OSError):  # it was deleted meanwhile
                yield path, path.stat()


def read_notebook(notebook: Path) -> list[dict[str, Any]]:
    """Return the saved cells of a notebook, which may have been written by anyone; none if it cannot be read."""
    match _read(notebook):
        case {"cells": [*cells]}:
            return [cast("dict[str, Any]", cell) for cell in cells if isinstance(cell, dict)]
        case _:
            return []


def _cells(notebook: Path, holding: str = "") -> frozenset[str]:
    """Return the ids of a notebook's saved cells, or digests of those that have none.

    Returns an empty set if the notebook cannot be read, or does not contain the text `holding`.
    """
    match _read(notebook, holding):
        case {"cells": [*cells]}:
            with suppress(RecursionError):  # to write a cell takes a deeper stack than to read it
                return frozenset(filter(None, map(_cell, cells)))
        case _:
            pass
    return frozenset()


def _cell(cell: object) -> str:
    """Return what a cell is known by, "" if it could be a cell of any notebook."""
    match cell:
        case {"id": str(name)} if _CELL_ID.fullmatch(name):
            return name
        case dict():
            text = json.dumps(cast("dict[str, Any]", cell).get("source"))
            return sha256(text.encode()).hexdigest() if len(text) >= TELLING else ""
        case _:
            return ""


def _read(path: Path, holding: str = "") -> Any:
    """Return the JSON of a file, or None if it cannot be read, is too large, or does not contain a text."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        return json.loads(data) if len(data) <= LARGEST and holding.encode() in data else None
    except (OSError, ValueError, RecursionError):
        return None


def _number(file: Path) -> int:
    """Return the number that a file keeps when it is renamed or saved, 0 if there is no file."""
    try:
        return file.stat().st_ino
    except OSError:
        return 0
