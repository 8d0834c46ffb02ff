"""The file that stores the answers of a map, so that no answer is paid for twice.

Each line is JSON. The first line describes the request that all rows share. If a later line does so too, all rows were
asked again from there. The key of a row is written before it is asked, its events and outcome when it has ended. Lines
are only appended, in one write, so a crash loses at most the last line. A row that was asked and has no outcome is in
doubt: the provider may have charged for its answer.
"""

import errno
import json
import os
import re
import tempfile
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from agentmagic.errors import UsageError
from agentmagic.events import Event
from agentmagic.history.journal import append
from agentmagic.messages import Usage
from agentmagic.plain_files import FileLock, open_number, open_plain
from agentmagic.serialization import LONGEST_LINE, decoder, encode_record, own_version, shrink
from agentmagic.text import join_names

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

VERSION = 1
"""The version of the format. It increases when an older reader would misread the file."""

RowStatus = Literal["answered", "failed", "in doubt", "in a batch", "not asked"]
"""The outcome of a row. "in doubt" means unknown: the row was stopped while it was asked, or a worker was lost."""

LONGEST_ERROR = 300
"""Maximum number of characters in the error of a row."""

NO_ANSWER_CAME = "It was asked by an earlier run, and its answer did not arrive."
"""The error of a row in doubt about which the file says only that it was asked."""

LARGEST_FILE = 64 * 2**30
"""Bytes of a file that is read; a million rows have about 5 GB."""

_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT
_BEGINNING = b'{"type":"map"'
_LOG = re.compile(rb'\{"type":"row_log","key":"([^"\\]+)"')
"""The beginning of a line with the events of a row. The events are decoded only when a caller asks for them."""


@dataclass(frozen=True, slots=True)
class MapBegun:
    """A line of a map's file: the request that all rows of the map share, with a digest of each of its parts."""

    type: ClassVar[str] = "map"
    version: int
    agentmagic: str
    prompt: str
    model: str
    recipe: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowAsked:
    """A line of a map's file, written before a row is asked. `row` is its label, `request` a digest of its request."""

    type: ClassVar[str] = "row_asked"
    key: str
    row: str
    request: str


@dataclass(frozen=True, slots=True)
class RowLog:
    """A line of a map's file: the events of a row whose turn has ended."""

    type: ClassVar[str] = "row_log"
    key: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class RowEnded:
    """A line of a map's file: the outcome of a row. A structured answer is in `value` as JSON, another in `answer`.

    `notice` says which calls of tools failed in the row's turn, whatever its status is.
    """

    type: ClassVar[str] = "row_ended"
    key: str
    row: str
    status: RowStatus
    value: Any = None
    answer: str = ""
    error: str = ""
    usage: Usage = Usage()  # noqa: RUF009  (a frozen value)
    steps: int = 0
    seconds: float = 0.0
    notice: str = ""


@dataclass(frozen=True, slots=True)
class BatchSent:
    """A line of a map's file: the rows with these `keys` were sent in a batch. The provider's id for it is `id`."""

    type: ClassVar[str] = "batch_sent"
    id: str
    keys: tuple[str, ...]


Line = MapBegun | RowAsked | RowLog | RowEnded | BatchSent


@cache
def _lines() -> "SchemaValidator":
    return decoder(MapBegun, RowAsked, RowLog, RowEnded, BatchSent)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The request that all rows of a map share. `parts` has a digest of each part."""

    prompt: str
    model: str
    parts: Mapping[str, str]

    @property
    def line(self) -> MapBegun:
        """This recipe as the first line of the map's file."""
        return MapBegun(VERSION, own_version(), self.prompt, self.model, dict(self.parts))

    def changes(self, header: MapBegun) -> list[str]:
        """Return the names of the request parts that differ from the recipe in the file, given its first line."""
        names = dict.fromkeys((*self.parts, *header.recipe))
        return [name for name in names if self.parts.get(name) != header.recipe.get(name)]


class MapFile:
    """The file of one map, open for appending, and its content for the current request.

    `outcomes` has the last outcome of each row, by key. `doubtful_keys` has the keys of rows that were asked and have
    no outcome, `repeated_keys` the keys of rows that were asked again after that. `batches` has the keys of rows that
    are in a batch, by batch id. `usage` is the usage of all outcomes. `lost_requests` counts requests that may have
    been paid for without an outcome. `damaged_lines` counts lines that could not be read.

    The `recipe` describes the request that all rows share. Without a path, a temporary file is used. With `again`, all
    rows are asked again if the recipe has changed. Without a recipe, the file is only read, and is not locked.

    Raises UsageError if the file is not the file of a map, if its recipe differs, or if another kernel or map writes
    it. Raises OSError if it cannot be written.
    """

    def __init__(self, path: Path | None, recipe: Recipe | None, *, again: bool = False) -> None:
        self.path = path
        self.outcomes: dict[str, RowEnded] = {}
        self.doubtful_keys: set[str] = set()
        self.batches: dict[str, set[str]] = {}
        self.repeated_keys: set[str] = set()
        self.usage = Usage()
        self.lost_requests = 0
        self.damaged_lines = 0
        self._logs: dict[str, tuple[int, int]] = {}
        self._guard = threading.Lock()
        self._lock: FileLock | None = None
        self._file: Any = None
        if recipe is None:
            assert path is not None  # noqa: S101  (of the caller)
            self._hold(os.fdopen(open_number(path), "rb", buffering=0))
            if _is_map_file(path):
                self._read(path)
            return
        if path is None:
            self._hold(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115  (see there)
            self.write(recipe.line)
            return
        header = _is_map_file(path)
        self._lock = _acquire_lock(path)
        try:
            header = self._read(path) if header else None
            self._hold(os.fdopen(open_number(path, _FLAGS, 0o666), "ab+", buffering=0))
            self._continue_or_begin(header, recipe, again=again)
        except BaseException:
            self.close()
            raise

    def _hold(self, file: Any) -> None:
        """Keep the file open while this object exists: `events` reads from it, also after the map has ended."""
        self._file = file
        weakref.finalize(self, file.close)

    def write(self, *lines: Line) -> None:
        """Append lines, and wait until the operating system has them. Raises OSError if they cannot be written."""
        texts = [encode_record(shrink(line)[0]) for line in lines]
        whole = b"".join(texts)
        with self._guard:
            offset = self._file.seek(0, os.SEEK_END)
            append(self._file.fileno(), whole)
        for line, text in zip(lines, texts, strict=True):
            self._note(line, offset, len(text))
            offset += len(text)

    def events(self, key: str) -> tuple[Event, ...]:
        """Return the events of a row that has ended, or () if the file has no events of it."""
        offset, size = self._logs.get(key, (0, 0))
        with self._guard:
            self._file.seek(offset)
            text = self._file.read(size)
        line = decode_line(text) if size else None
        return line.events if isinstance(line, RowLog) else ()

    @property
    def row_count(self) -> int:
        """The number of rows that were asked."""
        return len(self.outcomes.keys() | self.doubtful_keys | set[str]().union(*self.batches.values()))

    def last_outcome(self, key: str, label: str) -> RowEnded | None:
        """Return the last outcome of a row with this label, or None if the file has no line of the row.

        A row that was asked without an outcome is in a batch or in doubt.
        """
        outcome = self.outcomes.get(key)
        if outcome is not None and outcome.status == "answered":
            return outcome
        if any(key in keys for keys in self.batches.values()):
            return RowEnded(key, label, "in a batch")
        if key in self.doubtful_keys:
            return RowEnded(key, label, "in doubt", error=NO_ANSWER_CAME)
        return outcome

    def close(self) -> None:
        """Release the lock, so that other kernels can write the file. `events` can still read it."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _read(self, path: Path) -> MapBegun | None:
        """Read the file, and return the last line that describes the request of all rows, or None."""
        header: MapBegun | None = None
        offset = 0
        with open_plain(path, LARGEST_FILE) as file:
            for text in iter(lambda: file.readline(LONGEST_LINE), b""):
                log = _LOG.match(text)
                line = RowLog(log[1].decode(), ()) if log else decode_line(text)
                header = line if isinstance(line, MapBegun) else header
                self._note(line if text.endswith(b"\n") else None, offset, len(text))
                offset += len(text)
        return header

    def _note(self, line: Line | None, offset: int, size: int) -> None:
        match line:
            case MapBegun():
                self.outcomes.clear()
                self.doubtful_keys.clear()
                self.batches.clear()
                self.repeated_keys.clear()
                self.usage, self.lost_requests = Usage(), 0
            case RowAsked():
                outcome = self.outcomes.get(line.key)
                if line.key in self.doubtful_keys or (outcome is not None and outcome.status == "in doubt"):
                    self.repeated_keys.add(line.key)
                    self.lost_requests += line.key in self.doubtful_keys
                self.doubtful_keys.add(line.key)
            case RowEnded():
                self.outcomes[line.key] = line
                self.usage += line.usage
                self.lost_requests += line.status == "in doubt"
                self.doubtful_keys.discard(line.key)
                for keys in self.batches.values():
                    keys.discard(line.key)
            case BatchSent():
                self.batches[line.id] = set(line.keys)
                self.doubtful_keys.difference_update(line.keys)
            case RowLog():
                self._logs[line.key] = offset, size
            case None:
                self.damaged_lines += 1

    def _continue_or_begin(self, header: MapBegun | None, recipe: Recipe, *, again: bool) -> None:
        """Continue the file, or begin a new one. Raises UsageError if the recipe differs, unless `again` is set."""
        if header is None:  # the file is empty, or its first line is incomplete
            self._file.truncate(0)
        elif not _ends_line(self._file):  # an earlier process was killed while it wrote a line
            self._file.write(b"\n")
        changes = [] if header is None else recipe.changes(header)
        if changes and not again:
            raise UsageError(
                f"{self.path} holds the answers to another {join_names(changes)}, and was left as it is. Ask all rows "
                "anew with again=True (--again), or name another file."
            )
        if header is None or changes:
            self.write(recipe.line)


def _ends_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def decode_line(text: bytes) -> Line | None:
    """Return the decoded line, or None if the text is not a valid line."""
    try:
        return _lines().validate_python(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _is_map_file(path: Path) -> bool:
    """Return whether a file stores a map.

    False for a file that is missing or empty, or that has only a part of its first line. Raises UsageError if the file
    has other content, or is from a newer agentmagic.
    """
    try:
        with open_plain(path, LARGEST_FILE) as file:
            text = file.readline(LONGEST_LINE)
    except FileNotFoundError:
        return False
    header = decode_line(text)
    if isinstance(header, MapBegun) and header.version <= VERSION:
        return True
    if isinstance(header, MapBegun):
        raise UsageError(
            f"{path} is of a newer agentmagic, and was left as it is. Update agentmagic here, or name another file."
        )
    incomplete = not text.endswith(b"\n") and _BEGINNING.startswith(text[: len(_BEGINNING)])
    if text and not incomplete:
        raise UsageError(f"{path} is no file of a map, and was left as it is. Name another file.")
    return False


def _acquire_lock(path: Path) -> FileLock:
    """Lock a file, and return the lock. Raises UsageError if another map has locked it."""
    from filelock import Timeout

    lock = FileLock(path, 0)
    try:
        lock.acquire()
    except Timeout:
        if not lock.exists():  # the lock file cannot be created in this folder, for example in /proc
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
        raise UsageError(
            f"Another map writes {path}, in this kernel or another one. Wait until it has ended, or name another file."
        ) from None
    return lock
