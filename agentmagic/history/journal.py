"""The file a session writes as it happens: only ever appended to, so that a crash loses at most its last line."""

import errno
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from agentmagic.errors import JournalError
from agentmagic.events import HistoryCut, ToolFinished, ToolStarted, TurnFinished, TurnStarted
from agentmagic.history.journal_reader import Saved, holds_journal, read
from agentmagic.records import LEFT_OUT, LONGEST_HEADER, InDoubt, Record, begins_journal, encode_record, fitting, header

if TYPE_CHECKING:
    from filelock import BaseFileLock

FOLDER = ".agentmagic"
"""Where the conversations of a notebook are saved, in its own folder."""

_BOUNDARIES = (TurnStarted, ToolStarted, ToolFinished, TurnFinished, HistoryCut)
"""After these the disk is asked to keep what was written."""
_LONGEST_SYNC = 2.0
"""Seconds that closing waits for the disk at most; a network's may take any time."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_OWNER_ONLY = 0o600
_IN_MEMORY = "What is said from here on is kept in memory only; session.save(FILE) or %agent save FILE saves all of it."


class _Taken(JournalError):
    """Another kernel or session has the file."""


class Journal:
    """A conversation's file; nothing is touched before the first `write` or `resume`.

    What `write` was given is the system's before it returns, so it survives the end of the process, however
    that comes. At the beginning and end of a turn and of a tool, a thread has the disk keep it, soon after and
    without anybody waiting: a loss of power may take the last moments.

    `write`, `resume` and `close` never raise for what befalls the file. When it cannot be written any more,
    `problem` says so in sentences, `tell` is called with them once, from whatever thread, and from then on
    nothing is written: the conversation goes on in memory, and `taken` says whether it is because another
    kernel or session has the file. `begun` says that the file holds this conversation.
    """

    def __init__(self, path: Path, *, tell: Callable[[str], None]) -> None:
        self.path = path.absolute()
        self.problem = ""
        self.taken = False
        self.begun = False
        self._tell = tell
        self._lock: BaseFileLock | None = None
        self._file: _File | None = None
        self._closing: weakref.finalize[Any, Any] | None = None
        self._left_at = 0
        self._incomplete = False
        self._guard = threading.RLock()

    def write(self, record: Record) -> None:
        """Append a record; the first one begins the file.

        A conversation that the file holds already, and that was not resumed, is kept beside it under the
        next free name, `NAME.1.jsonl` for example. Of a record that is too large, a part is written.
        """
        if self.problem or isinstance(record, LEFT_OUT):
            return
        line = self._line(record)
        try:
            with self._guard:
                if self.problem:
                    return
                file = self._file or self._open()
                file.append(line)
                if isinstance(record, _BOUNDARIES):
                    file.sync()
        except (JournalError, OSError) as error:
            self._stop(error)

    def begin(self, records: Iterable[Record]) -> None:
        """Write a whole conversation to a new file, and let go of it; a later `write` goes on there.

        Raises JournalError, and leaves nothing behind, where there is a file already or none can be written.
        """
        try:
            _make_folder(self.path.parent)
            file = os.open(self.path, _FLAGS | os.O_EXCL, _OWNER_ONLY)
        except OSError as error:
            if isinstance(error, FileExistsError) and self.path.exists():
                message = f"{self.path} is there already, and was left as it is. Choose another file."
                raise JournalError(message) from error
            raise self._not_written(error) from error
        try:
            _append(file, header())
            for record in records:
                if not isinstance(record, LEFT_OUT):
                    _append(file, self._line(record))
            os.fsync(file)
            self._left_at = os.fstat(file).st_size
        except OSError as error:
            with suppress(OSError):
                self.path.unlink()
            raise self._not_written(error) from error
        finally:
            os.close(file)
        self.begun = True

    def resume(self) -> Saved:
        """Read the conversation of the file and go on with it; a turn that was cut off is ended in the file too.

        Raises JournalError for a file that cannot be read, see `read`.
        """
        if holds_journal(self.path):
            try:
                self._acquire()
            except (JournalError, OSError) as error:
                self._stop(error)
        try:
            saved = read(self.path)
        except JournalError:
            self.close()
            raise
        if self._lock is not None:
            self._continue(saved)
        return saved

    def close(self) -> None:
        """Let go of the file; a later `write` takes it up again if nobody else went on with it.

        It waits until the disk keeps what was written, but two seconds at most.
        """
        with self._guard:
            file, lock, closing = self._file, self._lock, self._closing
            self._file = self._lock = self._closing = None
            if file is not None:
                with suppress(OSError):
                    self._left_at = file.size()
        if closing is not None:
            closing()
        with suppress(OSError):
            if lock is not None:
                lock.release()

    def _continue(self, saved: Saved) -> None:
        try:
            with self.path.open("rb") as written:
                written.seek(-1, os.SEEK_END)
                torn = written.read(1) != b"\n"
            file = self._open_file()
            self.begun = True
            if torn:
                file.append(b"\n")
            if saved.closing or saved.lost_turns:
                for record in (InDoubt(tuple(sorted(saved.in_doubt))), *saved.closing):
                    file.append(self._line(record))
                file.sync()
        except OSError as error:
            self._stop(error)

    def _open(self) -> "_File":
        _make_folder(self.path.parent)
        holds_journal(self.path)  # or raises: nothing is put beside a file of somebody else
        self._acquire()
        if not self.begun:
            _set_aside(self.path)
        file = self._open_file()
        size = file.size()
        if self.begun and size != self._left_at:
            message = f"Another kernel or session went on with {self.path}. Load it again to go on from there."
            raise _Taken(message)
        self.begun = True
        if not size:
            file.append(header())
        return file

    def _open_file(self) -> "_File":
        file = self._file = _File(self.path, weakref.WeakMethod(self._stop))
        self._closing = weakref.finalize(self, file.close)  # of a journal that nobody holds any more
        return file

    def _acquire(self) -> None:
        """Take the lock, which lasts as long as the process at most."""
        if self._lock is not None:
            return
        from filelock import FileLock, Timeout

        lock = FileLock(f"{self.path}.lock", blocking=False, thread_local=False)
        try:
            lock.acquire()
        except Timeout as error:
            if not Path(lock.lock_file).exists():  # where no file can be made, trying ends so, too
                raise OSError(errno.EROFS, "no file can be made beside it") from error
            message = (
                f"{self.path} is being written by another kernel or session; load it again when that one is closed."
            )
            raise _Taken(message) from error
        self._lock = lock

    def _line(self, record: Record) -> bytes:
        """Write a record as a line, or as an empty one what cannot be written."""
        record, lost = fitting(record)
        try:
            line = encode_record(record)
        except ValueError as error:
            line, lost = b"", (str(error),)
        if lost and not self._incomplete:
            self._incomplete = True
            self._tell(f"A part of this conversation is too large to be saved in {self.path.name}: {lost[0]}.")
        return line

    def _not_written(self, error: OSError) -> JournalError:
        return JournalError(f"{self.path} cannot be written: {error.strerror or error}. Choose another file.")

    def _stop(self, error: JournalError | OSError) -> None:
        """Write no more, and say so once."""
        why = str(error)
        if isinstance(error, OSError):
            why = f"The conversation cannot be saved in {self.path}: {error.strerror or error}. {_advice(error)}"
        with self._guard:
            if self.problem:
                return
            self.problem = f"{why} {_IN_MEMORY}"
            self.taken = isinstance(error, _Taken)
        self.close()
        self._tell(self.problem)


class _File:
    """An open file and the thread that has the disk keep it.

    `failed` is a weak reference to what is called, on that thread, where the disk will not or the file is gone.
    """

    def __init__(self, path: Path, failed: "weakref.WeakMethod[Callable[[OSError], None]]") -> None:
        self._number = os.open(path, _FLAGS, _OWNER_ONLY)
        self._path = path
        self._failed = failed
        self._wanted: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def append(self, line: bytes) -> None:
        """Append in one write, so that lines never mix and none waits in a buffer."""
        _append(self._number, line)

    def sync(self) -> None:
        """Ask that the disk keep what was written, and wait for nothing."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="agentmagic-journal", daemon=True)
            self._thread.start()
        self._wanted.put(True)

    def size(self) -> int:
        """Return the bytes in the file."""
        return os.fstat(self._number).st_size

    def close(self) -> None:
        """Close once the disk keeps what was written; wait for that a short while at most."""
        if self._thread is None:
            os.close(self._number)
            return
        self._wanted.put(False)
        if self._thread is not threading.current_thread():
            self._thread.join(_LONGEST_SYNC)

    def _keep(self) -> None:
        """Sync whenever that is wanted, once for all who wanted it, until the file is closed."""
        going_on = True
        while going_on:
            wanted = [self._wanted.get()]
            while not self._wanted.empty():
                wanted.append(self._wanted.get())
            going_on = False not in wanted
            if True in wanted:
                self._sync()
        os.close(self._number)

    def _sync(self) -> None:
        try:
            os.fsync(self._number)
            if not self._path.exists():
                raise FileNotFoundError(errno.ENOENT, "the file was deleted or moved")
        except OSError as error:
            failed = self._failed()
            if failed is not None:
                failed(error)


def _append(file: int, line: bytes) -> None:
    if os.write(file, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


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
