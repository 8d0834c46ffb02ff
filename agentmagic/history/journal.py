"""The journal: the file to which a session appends its conversation. A crash loses at most the last line."""

import errno
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from agentmagic.errors import JournalError
from agentmagic.events import HistoryCut, ToolFinished, ToolStarted, TurnFinished, TurnStarted, innermost, is_delta
from agentmagic.history.journal_reader import Saved, holds_journal, read
from agentmagic.plain_files import FileLock, open_number, open_plain, write_failure
from agentmagic.runtime.home import HOME
from agentmagic.serialization import (
    LONGEST_HEADER,
    InDoubt,
    Record,
    add_stamp,
    begins_journal,
    encode_record,
    header,
    shrink,
)

FOLDER = ".agentmagic"
"""The folder beside a notebook in which its conversations are saved."""

_BOUNDARIES = (TurnStarted, ToolStarted, ToolFinished, TurnFinished, HistoryCut)
"""Records after which the file is synced to the disk."""
_LONGEST_SYNC = 2.0
"""Seconds that closing waits for the disk at most, because a network disk can take any time."""
_LOOK = 0.2
"""Seconds to wait for the lock of a journal: another kernel that asks whether it is in use has it for a moment."""
_looking = threading.Lock()
"""Held while this process takes the lock of a journal or asks whether it is in use, so that it meets only others."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT
_OWNER_ONLY = 0o600  # only the owner may read the file, because conversations are private
_ADVICE = "Use a session with a path that can be written."
_IN_MEMORY = "What is said from here on is kept in memory only; session.save(FILE) or %agent save FILE saves all of it."


class _FileInUse(JournalError):
    """Raised when another kernel or session writes the file."""


class Journal:
    """The file of one conversation. No file is opened before the first `write` or `resume`.

    Before `write` returns, it hands the record to the operating system, so the record is not lost, however the process
    ends. At the beginning and end of a turn and of a tool call, a thread syncs the file to the disk. The caller does
    not wait for the sync, so a power failure can lose the last moments.

    If the file cannot be written, `write`, `resume` and `close` do not raise. Instead, `problem` is set to a text that
    explains the reason, and `tell` is called once with it, in any thread. Then nothing more is written, and
    the conversation continues in memory. `taken` is True if another kernel or session writes the file. `begun` is True
    if the file contains this conversation.
    """

    def __init__(self, path: Path, *, tell: Callable[[str], None]) -> None:
        self.path = path.absolute()
        self.problem = ""
        self.taken = False
        self.begun = False
        self._tell = tell
        self._lock: FileLock | None = None
        self._file: _File | None = None
        self._closing: weakref.finalize[Any, Any] | None = None
        self._last_size = 0
        self._size_reported = False
        self._guard = threading.RLock()
        self._process = os.getpid()

    def write(self, record: Record) -> None:
        """Append a record. The first record creates the file.

        If the file has a conversation that was not resumed, it is first renamed to the next free name, for example
        `NAME.1.jsonl`. If a record is too large, only a part of it is written.
        """
        if self._process != os.getpid():
            self._leave_to_parent()
        if self.problem or is_delta(record):
            return
        line = self._line(record)
        if line and isinstance(record, TurnStarted):
            line = add_stamp(line, int(time.time()))
        try:
            with self._guard:
                if self.problem:  # another thread failed while this one waited for the lock
                    return
                file = self._file or self._open()
                file.append(line)
                if isinstance(innermost(record), _BOUNDARIES):
                    file.sync()
        except (JournalError, OSError) as error:
            self._stop(error)

    def begin(self, records: Iterable[Record]) -> None:
        """Write a whole conversation to a new file and close it. A later `write` appends to this file.

        Raises JournalError, and leaves no file behind, if the file exists already or cannot be written.
        """
        try:
            make_folder(self.path.parent)
            file = open_number(self.path, _FLAGS | os.O_EXCL, _OWNER_ONLY)
        except OSError as error:
            if isinstance(error, FileExistsError) and self.path.exists():
                message = f"{self.path} is there already, and was left as it is. Choose another file."
                raise JournalError(message) from error
            raise self._write_error(error) from error
        try:
            append(file, header())
            for record in records:
                if not is_delta(record):
                    append(file, self._line(record))
            os.fsync(file)
            self._last_size = os.fstat(file).st_size
        except OSError as error:
            with suppress(OSError):
                self.path.unlink()
            raise self._write_error(error) from error
        finally:
            os.close(file)
        self.begun = True

    def resume(self) -> Saved:
        """Return the conversation in the file. If its last turn was cut off, end it. Later records go to the same file.

        Raises JournalError if the file cannot be read or is not a journal, as `read` does.
        """
        if holds_journal(self.path):
            try:
                self._acquire()
            except (JournalError, OSError) as error:
                self._stop(error)
        try:
            content = read(self.path)
        except JournalError:
            self.close()
            raise
        if self._lock is not None:
            self._continue(content)
        return content

    def close(self) -> None:
        """Close the file. A later `write` opens it again, unless another session has written to it since.

        Waits up to two seconds for the sync to the disk.
        """
        with self._guard:
            file, lock, closing = self._file, self._lock, self._closing
            self._file = self._lock = self._closing = None
            if file is not None:
                with suppress(OSError):
                    self._last_size = file.size()
        if closing is not None:
            closing()
        with suppress(OSError):
            if lock is not None:
                lock.release()

    def _continue(self, content: Saved) -> None:
        try:
            with open_plain(self.path) as reader:
                reader.seek(-1, os.SEEK_END)
                ends_inside_line = reader.read(1) != b"\n"
            file = self._open_file()
            self.begun = True
            if ends_inside_line:
                file.append(b"\n")
            if content.closing or content.lost_turns:
                for record in (InDoubt(tuple(sorted(content.in_doubt))), *content.closing):
                    file.append(self._line(record))
                file.sync()
        except OSError as error:
            self._stop(error)

    def _open(self) -> "_File":
        make_folder(self.path.parent)
        holds_journal(
            self.path
        )  # called first: if the file is not a journal, this raises before a lock file is created
        self._acquire()
        if not self.begun:
            _set_aside(self.path)
        file = self._open_file()
        size = file.size()
        if self.begun and size != self._last_size:
            raise _FileInUse(f"Another kernel or session went on with {self.path}. Load it again to go on from there.")
        self.begun = True
        if not size:
            file.append(header())
        return file

    def _open_file(self) -> "_File":
        file = self._file = _File(self.path, weakref.WeakMethod(self._stop))
        self._closing = weakref.finalize(self, file.close)  # close the file if the journal is garbage-collected
        return file

    def _acquire(self) -> None:
        """Lock the file. The operating system releases the lock if the process ends."""
        if self._lock is not None:
            return
        from filelock import Timeout

        lock = FileLock(self.path, _LOOK)
        try:
            with _looking:
                lock.acquire()
        except Timeout as error:
            if not lock.exists():  # a read-only folder also raises Timeout
                raise OSError(errno.EROFS, "no file can be made beside it") from error
            raise _FileInUse(
                f"{self.path} is being written by another kernel or session; load it again when that one is closed."
            ) from error
        self._lock = lock

    def _line(self, record: Record) -> bytes:
        """Return a record as the line to write, or b"" if the record cannot be encoded."""
        record, losses = shrink(record)
        try:
            line = encode_record(record)
        except ValueError as error:
            line, losses = b"", (str(error),)
        if losses and not self._size_reported:
            self._size_reported = True
            self._tell(f"A part of this conversation is too large to be saved in {self.path.name}: {losses[0]}.")
        return line

    def _leave_to_parent(self) -> None:
        """Stop writing in a forked child process, because the file and its lock belong to the parent process."""
        # Replace the lock `_guard`: a thread of the parent may hold it, and no thread here would release it.
        self._process, self._guard = os.getpid(), threading.RLock()
        self._file = self._lock = self._closing = None
        self._stop(_FileInUse(f"{self.path} belongs to the process that this one was forked from."))

    def _write_error(self, error: OSError) -> JournalError:
        return JournalError(f"{self.path} cannot be written: {write_failure(error, 'Choose another file.')}")

    def _stop(self, error: JournalError | OSError) -> None:
        """Stop writing the journal, and report the reason if no reason was reported before."""
        reason = str(error)
        if isinstance(error, OSError):
            reason = f"The conversation cannot be saved in {self.path}: {write_failure(error, _ADVICE)}"
        with self._guard:
            if self.problem:
                return
            self.problem = f"{reason} {_IN_MEMORY}"
            self.taken = isinstance(error, _FileInUse)
        self.close()
        self._tell(self.problem)


class _File:
    """An open file and the thread that syncs it to the disk.

    `on_failure` is called on that thread if the sync fails or the file is gone. It is a weak reference, so that the
    thread does not keep an unused journal alive.
    """

    def __init__(self, path: Path, on_failure: "weakref.WeakMethod[Callable[[OSError], None]]") -> None:
        self._number = open_number(path, _FLAGS, _OWNER_ONLY)
        self._path = path
        self._on_failure = on_failure
        self._requests: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def append(self, line: bytes) -> None:
        """Append a line with one unbuffered write, so that lines of two writers never mix."""
        append(self._number, line)

    def sync(self) -> None:
        """Request a sync to the disk without waiting for it. If the platform has no threads, sync at once."""
        if not HOME.threads:
            self._sync()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._sync_on_request, name="agentmagic-journal", daemon=True)
            self._thread.start()
        self._requests.put(True)

    def size(self) -> int:
        """Return the size of the file in bytes."""
        return os.fstat(self._number).st_size

    def close(self) -> None:
        """Close the file after the syncs that were requested. A thread does this: wait at most two seconds for it."""
        if self._thread is None:
            os.close(self._number)
            return
        self._requests.put(False)
        if self._thread is not threading.current_thread():  # in `on_failure`, the thread would wait for itself
            self._thread.join(_LONGEST_SYNC)

    def _sync_on_request(self) -> None:
        """Sync the file at every request, until it is closed.

        All requests that come during a sync are served by the one next sync.
        """
        going_on = True
        while going_on:
            requests = [self._requests.get()]
            while not self._requests.empty():
                requests.append(self._requests.get())
            going_on = False not in requests
            if True in requests:
                self._sync()
        os.close(self._number)

    def _sync(self) -> None:
        try:
            os.fsync(self._number)
            if not self._path.exists():
                raise FileNotFoundError(errno.ENOENT, "the file was deleted or moved")
        except OSError as error:
            on_failure = self._on_failure()
            if on_failure is not None:
                on_failure(error)


def in_use(path: Path) -> bool:
    """Return whether a kernel or session has this journal open for writing."""
    from filelock import Timeout

    try:
        with _looking, FileLock(path, _LOOK):
            return False
    except (Timeout, OSError):
        return True


def append(file: int, line: bytes) -> None:
    """Write a line in one write. Raises OSError if only a part of it fits on the disk."""
    if os.write(file, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def make_folder(folder: Path) -> None:
    """Create a folder.

    A new `.agentmagic` folder gets a `.gitignore`, so that conversations stay out of version control.
    """
    above = (folder, *folder.parents)
    new = next((path for path in above if path.name == FOLDER and not path.exists()), None)
    folder.mkdir(parents=True, exist_ok=True)
    if new is not None:
        (new / ".gitignore").write_text("*\n", encoding="utf-8")


def _set_aside(path: Path) -> None:
    """Rename a file that contains a conversation to the next free name, for example `NAME.1.jsonl`.

    Raises JournalError for a file that is not a journal.
    """
    try:
        with open_plain(path, None) as file:
            first = file.readline(LONGEST_HEADER)
            empty = not first or (begins_journal(path, first) and not file.read(1))
    except FileNotFoundError:
        return
    if not empty:
        names = (path.with_name(f"{path.stem}.{number}{path.suffix}") for number in count(1))
        path.rename(next(name for name in names if not name.exists()))
