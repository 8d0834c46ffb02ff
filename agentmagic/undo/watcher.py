"""Watches what the tools of a session change: the variables of its notebook or script, and the files they write."""

import os
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Collection, Generator, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, cast

from agentmagic.host import current_host
from agentmagic.log import logger
from agentmagic.messages import ToolCall
from agentmagic.text import sanitize, single_line
from agentmagic.undo.changes import Changes
from agentmagic.undo.program import analyse

RUN_PYTHON = "run_python"
"""Name of the tool that runs a program. The names that such a call can change are read from the program."""
MOST_FILES = 50
MOST_NAMES = 1000
"""Largest number of texts in the arguments of a call that are tried as names of variables."""

_WORD = re.compile(r"\w+")
_WRITES = frozenset("wax+")
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR


class Watcher:
    """Watches the variables of one session. Tools can run in any thread.

    Without a `namespace`, the variables are those of the notebook, or of the script: the module `__main__`.
    """

    def __init__(self, namespace: MutableMapping[str, Any] | None = None) -> None:
        self.own_namespace = namespace
        self._lock = threading.Lock()
        self._running = 0
        self._changes: Changes | None = None

    @property
    def namespace(self) -> MutableMapping[str, Any]:
        """The variables that are watched."""
        if self.own_namespace is not None:
            return self.own_namespace
        notebook = current_host().notebook
        return vars(sys.modules["__main__"]) if notebook is None else notebook.namespace

    @contextmanager
    def watch(self, call: ToolCall, function: object, all_changes: list[Changes]) -> Generator[Changes]:
        """Watch the variables while the function of a tool call runs, and append a `Changes` to `all_changes`.

        Calls that run at the same time share one `Changes`, which is settled when the last of them ends. If the
        variables cannot be compared, because an object of the user raises an error, the changes have `failed` set, and
        the call runs normally.
        """
        with self._lock:
            self._running += 1
            changes = self._changes = self._changes or Changes(self.namespace)
            changes.calls.append(call.id)
            if changes not in all_changes:
                all_changes.append(changes)
        try:
            with self._lock, _mark_failure(changes):
                code = _program(call)
                words = _WORD.findall(code or "")
                names, imports = _names(call, code, changes.namespace)
                changes.expect(names, (function,), words, imports)
            with _record_files(changes.files):
                yield changes
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self._changes = None
                    with _mark_failure(changes):
                        changes.settle()


@contextmanager
def _mark_failure(changes: Changes) -> Generator[None]:
    try:
        yield
    except Exception:  # noqa: BLE001  (an object of the user may raise anything)
        logger.debug("the variables could not be watched", exc_info=True)
        changes.failed = True
    except BaseException:  # KeyboardInterrupt, for example
        changes.failed = True
        raise


def _names(
    call: ToolCall, code: str | None, namespace: Mapping[str, Any]
) -> tuple[Collection[str] | None, Collection[str]]:
    """Return the names that a call can change, or None for all, and the modules that it imports.

    The names are those in its program or, if it runs no program, in its arguments.
    """
    if code is None:
        return set(_texts(call.arguments)), ()
    program = analyse(code, namespace)
    return program.names, program.imports


def _program(call: ToolCall) -> str | None:
    """Return the Python program that a call of RUN_PYTHON runs, or None for a call of another tool."""
    code = call.arguments.get("code")
    return code if call.name == RUN_PYTHON and isinstance(code, str) else None


def _texts(value: Any) -> list[str]:
    """Return the texts inside the arguments of a call, at most 1,000 (`MOST_NAMES`)."""
    texts, waiting = list[str](), [value]
    while waiting and len(texts) < MOST_NAMES:
        argument = waiting.pop()
        if isinstance(argument, str):
            texts.append(argument)
        elif isinstance(argument, Mapping):
            waiting += cast("Mapping[str, Any]", argument).values()
        elif isinstance(argument, list | tuple):
            waiting += cast("list[Any]", argument)
    return texts


# -- files ---------------------------------------------------------------------------------------------------

_listening: defaultdict[int, list[dict[str, None]]] = defaultdict(list)
"""For each thread, by id: the collections to which the files that it opens for writing are added."""


@contextmanager
def _record_files(files: dict[str, None]) -> Generator[None]:
    """Add to `files` those files that this thread opens for writing inside the `with` block."""
    _listen_to_files()
    thread = threading.get_ident()
    _listening[thread].append(files)
    try:
        yield
    finally:
        collections = _listening[thread]
        del collections[next(index for index, collection in enumerate(collections) if collection is files)]
        if not collections:
            del _listening[thread]


@cache
def _listen_to_files() -> None:
    """Install the audit hook that notices opened files, once. It stays, because Python cannot remove audit hooks."""
    sys.addaudithook(_audit_hook)


def _audit_hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not _listening or (collections := _listening.get(threading.get_ident())) is None:
        return
    path, mode, flags = arguments
    is_write = bool(_WRITES.intersection(mode)) if isinstance(mode, str) else bool(flags & _WRITE_FLAGS)
    if is_write and isinstance(path, str | bytes | os.PathLike):
        for name in _display_path(os.fsdecode(cast("str | bytes | os.PathLike[str]", path))):
            for files in collections:
                if len(files) < MOST_FILES:
                    files[name] = None


def _display_path(path: str) -> Iterator[str]:
    """Yield a file's path, relative to the working folder if it is inside.

    Yield nothing for files in `__pycache__` and for the null device.
    """
    if path.lower() == os.devnull or "__pycache__" in path:
        return
    with suppress(ValueError, OSError):
        place = Path(path).absolute()
        yield single_line(
            sanitize(str(place.relative_to(Path.cwd())) if place.is_relative_to(Path.cwd()) else str(place)), 200
        )
