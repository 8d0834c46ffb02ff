"""Reads the cost of each turn from journals (saved conversations). Decodes only lines with a turn's start or usage."""

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
"""Largest number of journals read in a folder: first those of its notebooks, and the latest first."""
MOST_BYTES = 2**30
"""Largest total size, in bytes, of the journals read in a folder."""
LONGEST_STEP = 2**16
"""Largest size, in bytes, of a line that is decoded for the usage of an unfinished turn. Usages are short."""

_PLACES = ("*.jsonl", f"{FOLDER}/*.jsonl", f"{FOLDER}/*/*.jsonl")
_BEGIN, _END = b'{"type":"turn_started"', b'{"type":"turn_finished"'
_USAGE = b'"type":"usage"'


@dataclass(frozen=True, slots=True)
class PaidTurn:
    """A turn of a journal, or a summary made between two turns: its day, its model, its usage, and whether it failed.

    Turns replayed from a cassette (recorded responses), or made by a client of a served notebook, are left out. In a
    file of an older version, the day of a turn is the day of the last change to the file.
    """

    day: str
    model: str
    usage: Usage
    failed: bool = False


@dataclass(slots=True)
class Journals:
    """Reads journals, and counts the files, the damaged lines, and the files that were left out."""

    files: int = 0
    damaged_lines: int = 0
    skipped_files: int = 0

    def turns(self, folder: Path) -> Iterator[tuple[Path, PaidTurn]]:
        """Yield the paid turns of the journals in a folder, and in its `.agentmagic` folder, where notebooks save them.

        A turn that is in several files counts once: a conversation can be saved to another file, and a file copied.
        """
        paths = (path for pattern in _PLACES for path in folder.glob(pattern))
        sizes = {path: (about.st_mtime, about.st_size) for path in paths if (about := _stat(path)) is not None}
        marks, read = set[bytes](), 0
        in_order = sorted(sizes, key=lambda path: (FOLDER in path.parts, *sizes[path]), reverse=True)
        for path in filter(_is_journal, in_order):
            mtime, size = sizes[path]
            if self.files >= MOST_FILES or read + size > MOST_BYTES:
                self.skipped_files += 1
                continue
            read += size
            journal = _JournalTurns(self, day_of(mtime), marks)
            try:
                for line in lines_of(path):
                    yield from ((path, turn) for turn in journal.take(line))
            except JournalError:  # the file is from another program or a newer version, or is unreadable
                continue
            yield from ((path, turn) for turn in journal.close(failed=False))  # a turn without an end may still run
            self.files += 1


class _JournalTurns:
    """Finds the paid turns among the lines of one journal."""

    def __init__(self, journals: Journals, file_day: str, marks: set[bytes]) -> None:
        self._journals = journals
        self._file_day = file_day
        self._marks = marks
        self._model = ""
        self._day = file_day
        self._replayed = False
        self._steps: list[bytes] | None = None
        """The lines with the usage of the open turn so far. None if no turn is open."""

    def take(self, line: bytes) -> Iterator[PaidTurn]:
        """Process the next line of the journal. Yield the paid turn that it ends, or that was cut off before it."""
        if not line.endswith(b"}\n"):
            self._journals.damaged_lines += 1
        elif line.startswith(_BEGIN):
            yield from self.close(failed=True)
            self._begin(line)
        elif line.startswith(_END):
            self._steps = None
            self._replayed = self._replayed or stamp_of(line)[1]
            event = self._decode(line)
            if isinstance(event, TurnFinished):
                failed = event.result.stop_reason in ("error", "timeout")
                yield from self._paid_turn(line, event.result.usage, failed=failed)
        elif _USAGE in line and len(line) <= LONGEST_STEP:
            if self._steps is not None:
                self._steps.append(line)
            elif isinstance(event := self._decode(line), Compacted):  # the cost of a summary made between two turns
                yield from self._paid_turn(line, event.usage)

    def close(self, *, failed: bool) -> Iterator[PaidTurn]:
        """Yield the turn that has no end in the file, if there is one. Pass `failed=True` if its kernel died."""
        steps, self._steps = self._steps, None
        if steps:
            usages = (getattr(self._decode(line), "usage", Usage()) for line in steps)
            yield from self._paid_turn(b"".join(steps), sum(usages, Usage()), failed=failed)

    def _begin(self, line: bytes) -> None:
        seconds, self._replayed = stamp_of(line)
        self._model = model_of(line)
        self._journals.damaged_lines += not self._model
        self._day = self._file_day if seconds is None else day_of(seconds)
        self._steps = []

    def _decode(self, line: bytes) -> Record | None:
        record = decode_record(line)
        self._journals.damaged_lines += record is None
        return record

    def _paid_turn(self, line: bytes, usage: Usage, *, failed: bool = False) -> Iterator[PaidTurn]:
        mark = sha256(line).digest()
        if not (self._replayed or mark in self._marks or self._model.startswith(SERVED)):
            self._marks.add(mark)
            yield PaidTurn(self._day, self._model, usage, failed)


def model_of(line: bytes) -> str:
    """Return the model named in the line that begins a turn, or "" if the line is not JSON or names no model."""
    try:
        model = json.loads(line).get("model")
    except (ValueError, RecursionError):
        return ""
    return model if isinstance(model, str) else ""


def day_of(seconds: float) -> str:
    """Return the local date of a time in seconds since 1970."""
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def _is_journal(path: Path) -> bool:
    """Return whether a file is a readable journal. Data files beside the notebook can have the same ending."""
    with suppress(JournalError):
        return holds_journal(path)
    return False


def _stat(path: Path) -> os.stat_result | None:
    with suppress(OSError):
        return path.stat() if path.is_file() else None
    return None
