"""Opens and locks files that agentmagic finds in a folder, which anyone may have put there.

A pipe would block its reader for ever, and a device or a huge file would fill the memory. So all readers of such files
open them here: a regular file of bounded size, opened without blocking.
"""

import codecs
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from filelock import BaseFileLock

LARGEST_TEXT = 4 * 2**20
"""Bytes of a file of settings or approvals."""
LARGEST_LOG = 4 * 2**30
"""Bytes of a file that is read line by line."""

_ALWAYS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)


class UnfitFile(OSError):
    """Raised for a file that is not read: it is not regular, or too large. `strerror` says which."""

    def __str__(self) -> str:
        return self.strerror or ""


def write_failure(error: OSError | ValueError, advice: str) -> str:
    """Return the reason why a file cannot be written, and what to do. If the disk is full, that replaces `advice`."""
    number = getattr(error, "errno", None)
    if number == errno.ENOSPC:
        return "the disk is full. Make room on it."
    if number == errno.EDQUOT:
        return "your share of the disk is full. Make room on it."
    return f"{getattr(error, 'strerror', None) or error}. {advice}"


def open_number(
    path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o600, folder: int | None = None
) -> int:
    """Open a regular file and return its descriptor. Raises UnfitFile for any other kind of file, and OSError.

    `mode` are the permissions of a new file. `folder` is the descriptor of the open folder to which `path` is relative.
    """
    # Without O_NONBLOCK, `open` waits for the other end of a pipe. Reading and writing regular files ignores the flag.
    number = os.open(path, flags | _ALWAYS | getattr(os, "O_NONBLOCK", 0), mode, dir_fd=folder)
    kind = os.fstat(number).st_mode
    if stat.S_ISREG(kind):
        return number
    os.close(number)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise UnfitFile(errno.EINVAL, "it is not a regular file", str(path))


def open_plain(
    path: str | os.PathLike[str], most: int | None = LARGEST_LOG, *, follow: bool = True, folder: int | None = None
) -> BinaryIO:
    """Open a regular file of at most `most` bytes for reading. Raises UnfitFile for any other file, and OSError.

    With None, the size is not limited, for callers that read only the beginning or the end.
    With `follow=False`, a link is refused too, where the operating system can do that. `folder` is the descriptor of
    the open folder to which `path` is relative.
    """
    flags = os.O_RDONLY | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
    file = os.fdopen(open_number(path, flags, folder=folder), "rb")
    if most is not None and os.fstat(file.fileno()).st_size > most:
        file.close()
        raise UnfitFile(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return file


def read_plain(path: str | os.PathLike[str], most: int = LARGEST_TEXT) -> bytes:
    """Return the content of a regular file of at most `most` bytes. Raises UnfitFile for another file, and OSError."""
    with open_plain(path, most) as file:
        data = file.read(most + 1)
    if len(data) > most:  # files below /proc have the size 0
        raise UnfitFile(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return data


def read_plain_text(path: str | os.PathLike[str], most: int = LARGEST_TEXT) -> str:
    r"""Return the content of a regular file as text, with `\n` for each line end.

    Raises UnfitFile and OSError like `read_plain`, and UnicodeDecodeError.
    """
    return decode_text(read_plain(path, most)).replace("\r\n", "\n").replace("\r", "\n")


def decode_text(data: bytes, errors: str = "strict") -> str:
    """Return a file's bytes as text: UTF-8, or UTF-16 with the byte order mark that editors of Windows write.

    The mark itself is left out. Raises UnicodeDecodeError for anything else, unless `errors` is "replace".
    """
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if is_wide else "utf-8-sig", errors)


class FileLock:
    """A lock for a file between processes, which the operating system holds on a lock file `FILE.lock`.

    A folder of the network may refuse such locks, each with an error of its own (ENOLCK, EOPNOTSUPP, EIO and others).
    There, a file `FILE.lock.held` exists while the lock is held. If another process holds the lock, `acquire` waits
    `wait` seconds for it, without end if `wait` is negative, and then raises filelock's Timeout.
    """

    def __init__(self, path: str | os.PathLike[str], wait: float) -> None:
        from filelock import FileLock

        self._wait = wait
        self._lock: BaseFileLock = self._of(FileLock, f"{path}.lock")

    def _of(self, kind: "type[BaseFileLock]", path: str) -> "BaseFileLock":
        return kind(path, timeout=self._wait, poll_interval=0.01, thread_local=False)

    def exists(self) -> bool:
        """Return whether there is a lock file. If there is none after a Timeout, the folder is read-only."""
        return Path(self._lock.lock_file).exists()

    def acquire(self, cancel_check: Callable[[], bool] | None = None) -> None:
        """Take the lock. Raises OSError if there can be no lock file.

        Raises Timeout if another process holds the lock, or if `cancel_check` returns True during the wait for it.
        """
        from filelock import SoftFileLock

        try:
            self._lock.acquire(cancel_check=cancel_check)
        except (TimeoutError, PermissionError):  # another process or another user has it
            raise
        except OSError:
            soft = self._of(SoftFileLock, f"{self._lock.lock_file}.held")
            soft.acquire(cancel_check=cancel_check)
            self._lock = soft

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
