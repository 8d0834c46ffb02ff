"""The file a session writes as it happens: only ever appended to, so that a crash loses at most its last line."""

import errno
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentmagic.errors import JournalError
from agentmagic.events import HistoryCut, ToolFinished, ToolStarted, TurnFinished, TurnStarted
from agentmagic.records import LEFT_OUT, LONGEST_HEADER, InDoubt, Record, begins_journal, encode_record, header
from agentmagic.saved import Saved, read

if TYPE_CHECKING:
    from filelock import BaseFileLock

FOLDER = ".agentmagic"
"""Where the conversations of a notebook are saved, in its own folder."""

_BOUNDARIES = (TurnStarted, ToolStarted, ToolFinished, TurnFinished, HistoryCut)
"""Written through to the disk at once: before a tool runs, after it, and where a turn begins and ends."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_OWNER_ONLY = 0o600


class Journal:
    """A conversation's file; nothing is touched before the first `write` or `resume`.

    Methods never raise for what befalls the file. When it cannot be written any more, `problem` says so in
    sentences, `tell` is called with them once, and from then on nothing is written: the conversation goes
    on in memory. `begun` says that the file holds this conversation.
    """

    def __init__(self, path: Path, *, tell: Callable[[str], None]) -> None:
        self.path = path.absolute()
        self.problem = ""
        self.begun = False
        self._tell = tell
        self._lock: BaseFileLock | None = None
        self._file: int | None = None
        self._closing: weakref.finalize[Any, Any] | None = None
        self._left_at = 0
        self._incomplete = False

    def write(self, record: Record) -> None:
        """Append a record; the first one begins the file.

        A conversation that the file holds already, and that was not resumed, is kept beside it under the
        next free name, `NAME.1.jsonl` for example.
        """
        if self.problem or isinstance(record, LEFT_OUT):
            return
        try:
            if self._file is None:
                self._open()
            self._append(record)
            if isinstance(record, _BOUNDARIES):
                self._sync()
        except (JournalError, OSError) as error:
            self._stop(error)

    def resume(self) -> Saved:
        """Read the conversation of the file and go on with it; a turn that was cut off is ended in the file too.

        Raises JournalError for a file that cannot be read, see `read`.
        """
        try:
            if self.path.exists():
                self._acquire()
        except (JournalError, OSError) as error:
            self._stop(error)
        try:
            saved = read(self.path)
        except JournalError:
            self.close()
            raise
        if not self.problem:
            self._continue(saved)
        return saved

    def close(self) -> None:
        """Let go of the file; a later `write` takes it up again if nobody else went on with it."""
        file, lock = self._file, self._lock
        self._file = self._lock = None
        with suppress(OSError):  # what was written is in the file, whatever closing says
            if file is not None and self._closing is not None:
                self._left_at = os.fstat(file).st_size
                self._closing()
        with suppress(OSError):
            if lock is not None:
                lock.release()

    def _continue(self, saved: Saved) -> None:
        try:
            with self.path.open("rb") as file:
                if not begins_journal(self.path, file.readline(LONGEST_HEADER)):
                    return
                file.seek(-1, os.SEEK_END)
                torn = file.read(1) != b"\n"
            self._open_file()
            self.begun = True
            if torn:
                self._write(b"\n")
            if saved.closing:
                for record in (InDoubt(tuple(sorted(saved.in_doubt))), *saved.closing):
                    self._append(record)
                self._sync()
        except OSError as error:
            self._stop(error)

    def _open(self) -> None:
        _make_folder(self.path.parent)
        self._acquire()
        if not self.begun:
            _set_aside(self.path)
        size = os.fstat(self._open_file()).st_size
        if self.begun and size != self._left_at:
            message = f"Another kernel or session went on with {self.path}. Load it again to go on from there."
            raise JournalError(message)
        self.begun = True
        if not size:
            self._write(header())

    def _open_file(self) -> int:
        self._file = os.open(self.path, _FLAGS, _OWNER_ONLY)
        self._closing = weakref.finalize(self, os.close, self._file)  # of a journal that nobody holds any more
        return self._file

    def _acquire(self) -> None:
        """Take the lock, which lasts as long as the process at most."""
        if self._lock is not None:
            return
        from filelock import FileLock, Timeout

        lock = FileLock(f"{self.path}.lock", blocking=False, thread_local=False)
        try:
            lock.acquire()
        except Timeout as error:
            message = (
                f"{self.path} is being written by another kernel or session. Close that one, or use a session of "
                "another name."
            )
            raise JournalError(message) from error
        self._lock = lock

    def _append(self, record: Record) -> None:
        try:
            line = encode_record(record)
        except ValueError as error:
            if not self._incomplete:
                self._incomplete = True
                self._tell(f"A part of this conversation is not saved in {self.path.name}: {error}.")
            return
        self._write(line)

    def _write(self, line: bytes) -> None:
        """Append in one write, so that lines never mix and none waits in a buffer."""
        assert self._file is not None  # noqa: S101  (every caller has opened it)
        if os.write(self._file, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _sync(self) -> None:
        assert self._file is not None  # noqa: S101  (every caller has opened it)
        os.fsync(self._file)
        if not self.path.exists():
            raise FileNotFoundError(errno.ENOENT, "the file was deleted or moved")

    def _stop(self, error: JournalError | OSError) -> None:
        """Write no more, and say so."""
        if isinstance(error, OSError):
            why = f"The conversation cannot be saved in {self.path}: {error.strerror or error}. {_advice(error)}"
        else:
            why = str(error)
        self.problem = f"{why} What is said from here on is kept in memory only, and ends with the kernel."
        self.close()
        self._tell(self.problem)


def _advice(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Make room on the disk and start a new session."
    return "Use a session with a path that can be written."


def _make_folder(folder: Path) -> None:
    """Make the folder; where ours is new, keep what people said in it out of version control."""
    above = (folder, *folder.parents)
    new = next((path for path in above if path.name == FOLDER and not path.exists()), None)
    folder.mkdir(parents=True, exist_ok=True)
    if new is not None:
        (new / ".gitignore").write_text("*\n", encoding="utf-8")


def _set_aside(path: Path) -> None:
    """Give the conversation in a file, if there is one, another name.

    Raises JournalError for a file that is no journal of ours.
    """
    try:
        with path.open("rb") as file:
            first = file.readline(LONGEST_HEADER)
            empty = not first or (begins_journal(path, first) and not file.read(1))
    except FileNotFoundError:
        return
    if not empty:
        path.rename(_free_name(path))


def _free_name(path: Path) -> Path:
    number = 1
    while (free := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    return free
