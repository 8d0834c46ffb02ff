"""The files in which the bridge finds the address and the token of each kernel that this user serves over MCP.

Each kernel writes one file. The file is below the home folder and not in the runtime folder, because MCP clients start
programs without XDG_RUNTIME_DIR. The token lets its holder make calls, so only the user can read the file.
"""

import atexit
import hashlib
import os
import platform
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from agentmagic.errors import UsageError
from agentmagic.plain_files import open_plain
from agentmagic.platforms import move_over

LARGEST = 16 * 1024
"""The largest file that is read, in bytes."""
MOST = 500
"""How many files of the folder are read."""

_own: dict[int, Path] = {}
"""The file that this process wrote, by process id."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def _loopback(url: str) -> str:
    """Return the URL unchanged if it is a loopback address. Raises ValueError for any other URL."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in _LOOPBACK or not parts.port:
        raise ValueError("not an address on this machine")
    return url


@dataclass(frozen=True, slots=True)
class ServedKernel:
    """A served kernel: the address of its MCP endpoint, its token, its notebook and its process.

    `notebook`: the name of the file in `folder`, "" if unknown.
    `begun`: when serving began, in seconds since 1970.
    `process_start`: when the process started, in a unit of the operating system, "" if unknown. It distinguishes the
    process from a later one with the same id.
    `host`: the name of the machine. Machines and containers that share a home folder do not remove each other's files.
    The name of a machine can change.
    """

    process: Annotated[int, Field(gt=0)]
    url: Annotated[str, Field(max_length=300), AfterValidator(_loopback)]
    token: Annotated[str, Field(pattern=r"^[A-Za-z0-9._~+/=-]{1,500}\z")] = field(repr=False)
    notebook: Annotated[str, Field(max_length=500)]
    folder: Annotated[str, Field(max_length=5000)]
    begun: float
    process_start: str
    host: str

    @classmethod
    def here(cls, url: str, token: str, notebook: str, folder: str | os.PathLike[str]) -> "ServedKernel":
        """Return the ServedKernel of this process, whose MCP server has this URL and token."""
        process = os.getpid()
        start = _process_start(process) or ""
        return cls(process, url, token, notebook, os.path.abspath(folder), time.time(), start, platform.node())  # noqa: PTH100  (resolves no links: the user knows the folder by this name)

    @property
    def path(self) -> str:
        """The path of the notebook, "" if unknown."""
        return str(Path(self.folder) / self.notebook) if self.notebook else ""

    @property
    def is_alive(self) -> bool:
        """Whether the kernel's process is still running."""
        start = _process_start(self.process)
        return start is not None and (start == self.process_start or not (start and self.process_start))


def write(kernel: ServedKernel) -> None:
    """Write the file that describes this process as a served kernel; it is removed when the process ends.

    An earlier file of the process is replaced. Raises UsageError if the file cannot be written.
    """
    try:
        path = _own_folder() / _name(kernel.process, kernel.host)
        beside = path.with_suffix(".new")
        beside.unlink(missing_ok=True)  # the file exists if a process with this id was killed while writing
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(_decoder().dump_json(kernel))
        move_over(beside, path)
        _own[kernel.process] = path
    except OSError as error:
        message = f"The kernel cannot be served: its file in {folder()} cannot be written ({error.strerror or error})."
        raise UsageError(f"{message} Make the folder yours and writable.") from error
    atexit.unregister(remove)
    atexit.register(remove)


def remove() -> None:
    """Remove the file that describes this process as a served kernel, if there is one."""
    path = _own.pop(os.getpid(), None)  # None if a parent process wrote the file, before a fork
    if path is not None:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def find_all() -> list[ServedKernel]:
    """Return this user's served kernels on this machine, the oldest first; remove the files of ended processes."""
    return sorted(_living(), key=lambda kernel: kernel.begun)


def folder() -> Path:
    """Return the folder of the files that describe served kernels. It may not exist yet."""
    from platformdirs import user_state_path

    return user_state_path("agentmagic", appauthor=False) / "kernels"


def _living() -> Iterator[ServedKernel]:
    try:
        with os.scandir(folder()) as entries:
            paths = [Path(entry.path) for entry in islice(entries, MOST) if entry.name.endswith(".json")]
    except OSError:
        return
    for path in paths:
        kernel = _read(path)
        if kernel is None or path.name != _name(kernel.process, kernel.host):
            continue
        is_here = kernel.host == platform.node()
        if kernel.is_alive and (is_here or kernel.process_start):
            yield kernel
        elif is_here:
            with suppress(OSError):
                path.unlink()


def _read(path: Path) -> ServedKernel | None:
    """Return the kernel that a file describes; None if the file is damaged, or other users can read or write it."""
    try:
        with open_plain(path, LARGEST, follow=False) as file:
            is_private = _is_private(os.fstat(file.fileno()))
            return _decoder().validate_json(file.read(LARGEST)) if is_private else None
    except (OSError, ValidationError):
        return None


def _own_folder() -> Path:
    """Create the folder of the files, with access for this user only.

    Raises OSError if it is a link or belongs to another user.
    """
    path = folder()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = path.lstat()
    if not stat.S_ISDIR(state.st_mode) or not _is_own(state):
        raise NotADirectoryError("it is not a folder of yours")
    if not _is_private(state):
        path.chmod(0o700)
    return path


def _is_own(state: os.stat_result) -> bool:
    return sys.platform == "win32" or state.st_uid == os.getuid()


def _is_private(state: os.stat_result) -> bool:
    """Return whether only this user has access to a file. On Windows: True, as other users cannot read the profile."""
    return sys.platform == "win32" or (_is_own(state) and not state.st_mode & 0o077)


def _name(process: int, host: str) -> str:
    return f"{process}-{hashlib.sha256(host.encode()).hexdigest()[:8]}.json"


def _process_start(process: int) -> str | None:
    """Return the start time of a process, in a unit of the system; None if it has ended, "" if the time is unknown."""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()  # fields "state" and "starttime" of proc(5)
    try:
        psutil: Any = import_module("psutil")  # in a notebook, ipykernel has installed it
    except ImportError:
        return ""
    try:
        info = psutil.Process(process)
        return None if info.status() == psutil.STATUS_ZOMBIE else str(info.create_time())
    except psutil.NoSuchProcess:
        return None
    except psutil.Error:  # the process exists, but this user may not read its start time
        return ""


@cache
def _decoder() -> TypeAdapter[ServedKernel]:
    return TypeAdapter(ServedKernel)
