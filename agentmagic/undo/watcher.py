"""Which variables of the notebook the tools of a turn change, and which files their programs write."""

import io
import os
import pickle
import sys
import threading
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from agentmagic.events import VariableChange, VariablesChanged
from agentmagic.host import installed
from agentmagic.text import one_line, shown
from agentmagic.undo.program import Program, is_data
from agentmagic.undo.variables import LONGEST_LINE, MOST_VARIABLES, kind_of, user_variables
from agentmagic.values.describe import is_opaque

MOST_FILES = 50
LARGEST_COMPARED = 2_000_000
"""Bytes of a value whose content is compared; of a larger one, type and size."""

_WRITES = frozenset("wax+")
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True, slots=True)
class _Print:
    """The data by which a variable is compared: the object's id, the text for the user, a sum of a small content."""

    identity: int
    kind: str
    content: object


class Ledger:
    """Finds out which variables of the notebook the tools of a turn change, and which files their programs write.

    Its own methods are called in the main thread while a tool runs, and `event` when the turn is over.
    """

    def __init__(self) -> None:
        self._before: dict[str, _Print | None] = {}
        self._after: dict[str, _Print | None] = {}
        self._files: dict[str, None] = {}
        self._names = set[str]()
        self.idle = threading.Event()
        self.idle.set()

    @contextmanager
    def watch(self) -> Generator[set[str]]:
        """Compare the variables before and after the block, if it is in the main thread of a notebook.

        Yields a set, which has the names of those that were changed when the block is over.
        """
        notebook = installed().notebook
        in_main = threading.current_thread() is threading.main_thread()
        if notebook is None or not in_main or not self.idle.is_set():  # a tool within a tool: the outer one is watched
            yield set[str]()
            return
        self._names = set[str]()
        self.idle.clear()
        _current.append(self)
        # Alive until the end, so that no new object gets the id of an old one.
        held = user_variables(notebook.namespace)
        before = {name: _print(value) for name, value in held.items()}
        try:
            yield self._names
        finally:
            now = user_variables(notebook.namespace)
            self._compare(before, {name: _print(value) for name, value in now.items()})
            self.idle.set()
            _current.remove(self)
            del held

    @contextmanager
    def noting(self, program: Program) -> Generator[None]:
        """Compare the content of what a program touches, too, and note which files it writes."""
        notebook = installed().notebook
        if notebook is None:
            yield
            return
        touched = program.reads | program.writes
        held = {name: value for name, value in user_variables(notebook.namespace).items() if name in touched}
        contents = {name: _print(value, deep=True) for name, value in held.items()}
        _listen_to_files()
        _listening.append(self._files)
        try:
            yield
        finally:
            _listening.remove(self._files)
            now = notebook.namespace
            for name, before in contents.items():
                if name in now and _changed(before, _print(now[name], deep=True), certain=name in program.writes):
                    self._note(name, before, _print(now[name]))

    def _compare(self, before: Mapping[str, _Print], after: Mapping[str, _Print]) -> None:
        for name in before.keys() | after.keys():
            old, new = before.get(name), after.get(name)
            if old is None or new is None or (old.identity, old.kind) != (new.identity, new.kind):
                self._note(name, old, new)

    def _note(self, name: str, before: _Print | None, after: _Print | None) -> None:
        self._before.setdefault(name, before)
        self._after[name] = after
        self._names.add(name)

    def event(self) -> VariablesChanged | None:
        """Return what was changed, or None."""
        rows = (self._row(name) for name in sorted(self._before))
        changes = tuple(islice((row for row in rows if row is not None), MOST_VARIABLES))
        return VariablesChanged(changes, tuple(self._files)) if changes or self._files else None

    def _row(self, name: str) -> VariableChange | None:
        old, new = self._before[name], self._after.get(name)
        told = one_line(shown(name), 100)
        if old is None or new is None:
            if old is new:
                return None  # made, and removed again
            before, after = _told(old), _told(new)
            return VariableChange(told, "made" if old is None else "removed", before, after)
        return VariableChange(told, "changed", _told(old), _told(new))


_current: list[Ledger] = []
"""The ledgers of the tools that run in the main thread, the innermost last."""


@contextmanager
def noting(program: Program) -> Generator[None]:
    """Compare the contents of what a program touches, and note the files it writes, in the running tool's ledger."""
    with _current[-1].noting(program) if _current else nullcontext():
        yield


def _told(one: _Print | None) -> str:
    return "" if one is None else one_line(shown(one.kind), LONGEST_LINE)


def _print(value: Any, *, deep: bool = False) -> _Print:
    return _Print(id(value), kind_of(value), _content(value) if deep else None)


def _content(value: Any) -> object:
    """Return a short sum of a value's content, or None for one that is large, or not made of data only.

    That of a module is what its public names stand for: a program that only imports it again does not change it.
    """
    if is_opaque(value):
        return None
    if isinstance(value, ModuleType):
        public = [name for name in vars(value) if not name.startswith("_")]
        return {name: id(vars(value)[name]) for name in public if not isinstance(vars(value)[name], ModuleType)}
    if isinstance(value, type) or not is_data(value):  # no attribute is read that a user's class may compute
        return None
    size = getattr(value, "nbytes", 0) or getattr(value, "size", 0)
    if not isinstance(size, int) or size > LARGEST_COMPARED:
        return None
    with suppress(Exception):
        content = io.BytesIO()
        _ContentPickler(content, protocol=5).dump(value)
        return zlib.crc32(content.getbuffer())
    return None


class _ContentPickler(pickle.Pickler):
    """Pickles what arrays of pandas hold, without the caches that a program fills when it only reads a column."""

    def reducer_override(self, obj: Any) -> Any:
        array: Any = None if isinstance(obj, type) else getattr(obj, "_ndarray", None)
        return NotImplemented if array is None else (type(obj), (array, array.dtype))


def _changed(before: _Print, after: _Print, *, certain: bool) -> bool:
    """Whether a variable was changed; if its content is not known, only if the program `certain`ly writes it."""
    if (before.identity, before.kind) != (after.identity, after.kind):
        return True
    return before.content != after.content or (before.content is None and certain)


# -- files ---------------------------------------------------------------------------------------------------

_listening: list[dict[str, None]] = []
"""Where the files that the main thread opens to write are noted."""


@cache
def _listen_to_files() -> None:
    """Install the audit hook, once: it stays for the life of the process."""
    sys.addaudithook(_heard)


def _heard(event: str, given: tuple[Any, ...]) -> None:
    if event != "open" or not _listening or threading.current_thread() is not threading.main_thread():
        return
    path, mode, flags = given
    written = bool(_WRITES.intersection(mode)) if isinstance(mode, str) else bool(flags & _WRITE_FLAGS)
    if written and isinstance(path, str | bytes | os.PathLike):
        for name in _named(os.fsdecode(cast("str | bytes | os.PathLike[str]", path))):
            for files in _listening:
                if len(files) < MOST_FILES:
                    files[name] = None


def _named(path: str) -> Iterator[str]:
    """Yield a path as a user knows it, unless it is no file of the user."""
    if path.startswith(os.devnull) or "__pycache__" in path:
        return
    with suppress(ValueError, OSError):
        place = Path(path).absolute()
        yield one_line(
            shown(str(place.relative_to(Path.cwd())) if place.is_relative_to(Path.cwd()) else str(place)), 200
        )
