"""What the turns of journals have cost: the files are only read, and of them only the lines that tell."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from agentmagic.errors import JournalError
from agentmagic.events import SERVED, Compacted, TurnFinished
from agentmagic.history.journal import FOLDER
from agentmagic.history.journal_reader import holds_journal, lines_of
from agentmagic.messages import Usage
from agentmagic.serialization import Record, decode_record, stamp_of

MOST_FILES = 5_000
"""Journals of a folder that are read: those of its notebooks first, and of these what was written last."""
MOST_BYTES = 2**30
"""Bytes of the journals of a folder that are read."""
LONGEST_STEP = 2**16
"""Bytes of a line that tells what a turn without an end has used; usages are short."""

_PLACES = ("*.jsonl", f"{FOLDER}/*.jsonl", f"{FOLDER}/*/*.jsonl")
_BEGIN, _END = b'{"type":"turn_started"', b'{"type":"turn_finished"'
_USAGE = b'"type":"usage"'


@dataclass(frozen=True, slots=True)
class PaidTurn:
    """A turn of a journal that was not played from a cassette: its day, its model, what it used, whether it failed.

    A turn of a file of an older version has the day on which the file was written last.
    """

    day: str
    model: str
    usage: Usage
    failed: bool = False


@dataclass(slots=True)
class Journals:
    """What was read of journals: how many files, lines that are damaged, and files that were left out."""

    files: int = 0
    damaged: int = 0
    left_out: int = 0

    def turns(self, folder: Path) -> Iterator[tuple[Path, PaidTurn]]:
        """Yield the paid turns of the journals in a folder and of those that its notebooks have saved.

        A turn that stands in several files counts once: a conversation may be saved to another file, or a file copied.
        """
        found = (path for pattern in _PLACES for path in folder.glob(pattern))
        sizes = {path: (about.st_mtime, about.st_size) for path in found if (about := _about(path)) is not None}
        seen, read = set[bytes](), 0
        in_order = sorted(sizes, key=lambda path: (FOLDER in path.parts, *sizes[path]), reverse=True)
        for path in filter(_is_journal, in_order):
            modified, size = sizes[path]
            if self.files >= MOST_FILES or read + size > MOST_BYTES:
                self.left_out += 1
                continue
            read += size
            journal = _JournalTurns(self, day_of(modified), seen)
            try:
                for line in lines_of(path):
                    yield from ((path, turn) for turn in journal.take(line))
            except JournalError:  # of another program, of a newer version, or one that cannot be read
                continue
            yield from ((path, turn) for turn in journal.close(failed=False))  # it may be under way
            self.files += 1


class _JournalTurns:
    """Finds the paid turns among the lines of one journal."""

    def __init__(self, journals: Journals, written: str, seen: set[bytes]) -> None:
        self._journals = journals
        self._written = written
        self._seen = seen
        self._model = ""
        self._day = written
        self._replayed = False
        self._steps: list[bytes] | None = None
        """The lines that tell what the open turn has used so far."""

    def take(self, line: bytes) -> Iterator[PaidTurn]:
        """Take the next line, and yield the turn that it ends."""
        if not line.endswith(b"}\n"):
            self._journals.damaged += 1
        elif line.startswith(_BEGIN):
            yield from self.close(failed=True)
            self._begin(line)
        elif line.startswith(_END):
            self._steps = None
            self._replayed = self._replayed or stamp_of(line)[1]
            event = self._decoded(line)
            if isinstance(event, TurnFinished):
                failed = event.result.stop_reason in ("error", "timeout")
                yield from self._paid(line, event.result.usage, failed=failed)
        elif _USAGE in line and len(line) <= LONGEST_STEP:
            if self._steps is not None:
                self._steps.append(line)
            elif isinstance(event := self._decoded(line), Compacted):  # between two turns
                yield from self._paid(line, event.usage)

    def close(self, *, failed: bool) -> Iterator[PaidTurn]:
        """Yield the turn that is open. One that `failed` was cut off with its kernel."""
        steps, self._steps = self._steps, None
        if steps:
            used = (getattr(self._decoded(line), "usage", Usage()) for line in steps)
            yield from self._paid(b"".join(steps), sum(used, Usage()), failed=failed)

    def _begin(self, line: bytes) -> None:
        seconds, self._replayed = stamp_of(line)
        self._model = model_of(line)
        self._journals.damaged += not self._model
        self._day = self._written if seconds is None else day_of(seconds)
        self._steps = []

    def _decoded(self, line: bytes) -> Record | None:
        record = decode_record(line)
        self._journals.damaged += record is None
        return record

    def _paid(self, line: bytes, usage: Usage, *, failed: bool = False) -> Iterator[PaidTurn]:
        mark = sha256(line).digest()
        if not (self._replayed or mark in self._seen or self._model.startswith(SERVED)):
            self._seen.add(mark)
            yield PaidTurn(self._day, self._model, usage, failed)


def model_of(line: bytes) -> str:
    """Return the model of the line that begins a turn, "" if it has none; the rest of the line is not checked."""
    try:
        model = json.loads(line).get("model")
    except (ValueError, RecursionError):
        return ""
    return model if isinstance(model, str) else ""


def day_of(seconds: float) -> str:
    """Return the date, here, of a time in seconds since 1970."""
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def _is_journal(path: Path) -> bool:
    """Return whether a file is a journal that can be read: data beside the notebook may have the same ending."""
    with suppress(JournalError):
        return holds_journal(path)
    return False


def _about(path: Path) -> os.stat_result | None:
    with suppress(OSError):
        return path.stat() if path.is_file() else None
    return None
