"""Conversations on disk, read back: whole turns, whatever became of their file."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from agentmagic.errors import JournalError
from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Compacted,
    Event,
    HistoryCut,
    Notice,
    RunResult,
    Sampled,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from agentmagic.fold import Fold, fold
from agentmagic.history.repair import repaired
from agentmagic.messages import Usage
from agentmagic.records import LONGEST_HEADER, LONGEST_LINE, InDoubt, Record, ToolKey, begins_journal, decode_record

_EXCERPT = 60


@dataclass(frozen=True, slots=True)
class Saved:
    """What a journal holds: whole turns, each from its TurnStarted to its TurnFinished.

    `problems` says in sentences what could not be read, and that the last turn was cut off. `closing` are
    the last events of the last turn where the file breaks off before them.

    `spent` is what every turn in the file took, also those that were undone. `lost_turns` counts those whose
    beginning could not be read, and that are not among `turns`.

    `in_doubt` names the tools that may have done something the conversation does not know of, and that
    are to be asked about before they run again. A tool comes into doubt when a call of it was begun and
    the file does not say how it ended. It stays in doubt, whatever is undone or cleared, until a person
    approved a later call of it, or one succeeded.
    """

    turns: tuple[tuple[Event, ...], ...]
    in_doubt: frozenset[ToolKey] = frozenset()
    problems: tuple[str, ...] = ()
    closing: tuple[Event, ...] = ()
    spent: Usage = field(default_factory=Usage)
    lost_turns: int = 0


@dataclass(frozen=True, slots=True)
class SavedConversation:
    """A file of a folder; `prompt` is how its first prompt begins, `modified` a time as of `time.time`."""

    name: str
    path: Path
    turns: int
    prompt: str
    modified: float


def read(path: Path) -> Saved:
    """Read a journal.

    Raises JournalError for a file that is missing, cannot be read, is no journal or has a newer format.
    """
    reading = _Reading()
    for line in _lines(path):
        reading.take(decode_record(line))
    return reading.saved()


def holds_journal(path: Path) -> bool:
    """Return whether a file holds a journal; one that is missing, empty or has its header cut off does not.

    Raises JournalError for a file of anything else, of a newer format, and one that cannot be read.
    """
    try:
        with path.open("rb") as file:
            line = file.readline(LONGEST_HEADER)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unreadable(path, error) from error
    return begins_journal(path, line)


def saved_in(folder: Path) -> list[SavedConversation]:
    """Return the conversations saved in a folder, the last used first; none for a folder that is not there."""
    found = [saved for path in folder.glob("*.jsonl") if (saved := _glance(path)) is not None]
    return sorted(found, key=lambda saved: saved.modified, reverse=True)


def _glance(path: Path) -> SavedConversation | None:
    """Look at the lines that begin and cut turns, and at no others."""
    prompts: list[str] = []
    try:
        for line in _lines(path):
            if line.startswith((b'{"type":"turn_started"', b'{"type":"history_cut"')):
                match decode_record(line):
                    case TurnStarted(prompt=prompt):
                        prompts.append(prompt.text)
                    case HistoryCut(turns=turns):
                        del prompts[turns:]
                    case _:
                        pass
        modified = path.stat().st_mtime
    except (JournalError, OSError):
        return None
    return SavedConversation(path.stem, path, len(prompts), _shortened(prompts[0]) if prompts else "", modified)


def _shortened(text: str) -> str:
    words = " ".join(text[: 10 * _EXCERPT].split())
    return words if len(words) <= _EXCERPT else words[: _EXCERPT - 1] + "…"


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines after the header; one that is too long comes as its beginning, which is no record."""
    with _opened(path) as file:
        if not begins_journal(path, file.readline(LONGEST_HEADER)):
            return
        while line := file.readline(LONGEST_LINE):
            yield line
            while line and len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                line = file.readline(LONGEST_LINE)


@contextmanager
def _opened(path: Path) -> Generator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError as error:
        message = f"No conversation is saved at {path}. %agent sessions lists those there are."
        raise JournalError(message) from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> JournalError:
    return JournalError(f"The conversation {path} cannot be read: {error.strerror}.")


class _Reading:
    """Records to turns, as they come.

    A turn whose beginning cannot be read is lost, but keeps its place, an empty one: those who cut the
    history counted it. Whoever takes the conversation up again does not know of it, see `InDoubt`.
    """

    def __init__(self) -> None:
        self._turns: list[tuple[Event, ...]] = []
        self._open: list[Event] = []
        self._spent = Usage()
        self._doubts = _Doubts()
        self._unread = 0

    def take(self, record: Record | None) -> None:
        if record is not None:
            self._doubts.feed(record)
        match record:
            case InDoubt():
                self._forget_lost()
            case HistoryCut():
                self._close()
                del self._turns[record.turns :]
            case TurnStarted():
                self._close()
                self._open = [record]
            case None:
                self._unread += 1
            case TurnFinished() if self._begun:
                self._finish(_whole(self._open, record.result), record.result.usage)
            case _:
                self._open.append(record)
                self._unread += not self._begun
                if isinstance(record, TurnFinished):
                    self._finish((), record.result.usage)

    def saved(self) -> Saved:
        self._doubts.end_turn()
        problems: list[str] = []
        if self._unread:
            lines = "1 line" if self._unread == 1 else f"{self._unread} lines"
            problems.append(f"{lines} of the file could not be read; what stood there is missing.")
        closing = self._close()
        problems += [event.text for event in closing if isinstance(event, Notice)]
        lost = self._turns.count(())
        self._forget_lost()
        doubts = frozenset(self._doubts.tools)
        return Saved(tuple(self._turns), doubts, tuple(problems), closing, self._spent, lost)

    @property
    def _begun(self) -> bool:
        """Whether a turn is open whose beginning was read."""
        return bool(self._open) and isinstance(self._open[0], TurnStarted)

    def _close(self) -> tuple[Event, ...]:
        """End the turn that is open, if one is, and return the events that end it."""
        if not self._begun:
            if self._open:
                self._finish((), _used(self._open))
            return ()
        closing = _closing(self._open)
        events, last = (*self._open, *closing), closing[-1]
        assert isinstance(last, TurnFinished)  # noqa: S101  (so ends what _closing returns)
        self._finish(_whole(events[:-1], last.result), last.result.usage)
        return closing

    def _finish(self, turn: tuple[Event, ...], usage: Usage) -> None:
        self._turns.append(turn)
        self._spent += usage
        self._open = []

    def _forget_lost(self) -> None:
        self._turns = [turn for turn in self._turns if turn]
        if not self._begun:
            self._spent += _used(self._open)
            self._open = []


class _Doubts:
    """The tools in doubt, by the rule that `Saved` tells."""

    def __init__(self) -> None:
        self.tools: set[ToolKey] = set()
        self._under_way: dict[str, ToolKey] = {}
        self._asked: dict[str, ToolKey] = {}

    def feed(self, record: Record) -> None:
        match record:
            case TurnStarted() | TurnFinished() | HistoryCut():
                self.end_turn()
            case InDoubt():
                self.tools.update(record.tools)
            case ApprovalAsked():
                self._asked[record.id] = (record.server, record.call.name)
            case ApprovalGiven() if record.approved and record.id in self._asked:
                self.tools.discard(self._asked[record.id])
            case ToolStarted():
                self._under_way[record.call.id] = (record.server, record.call.name)
            case ToolFinished():
                tool = self._under_way.pop(record.result.call_id, None)
                if tool is not None and record.result.status == "ok":
                    self.tools.discard(tool)
            case _:
                pass

    def end_turn(self) -> None:
        """Doubt what was begun in this turn and did not end in it."""
        self.tools.update(self._under_way.values())
        self._under_way.clear()
        self._asked.clear()


def _whole(events: Sequence[Event], result: RunResult) -> tuple[Event, ...]:
    """Return a turn with its last event, whose result has its events and messages back."""
    messages = repaired(fold(events))
    return (*events, TurnFinished(replace(result, events=tuple(events), history_delta=messages)))


def _closing(events: Sequence[Event]) -> tuple[Event, ...]:
    """Return what ends a turn that was cut off, a TurnFinished the last."""
    folded = Fold()
    for event in events:
        folded.feed(event)
    closing: list[Event] = list(folded.closing())
    for event in closing:
        folded.feed(event)
    closing.append(Notice("warning", _cut_off(events)))
    last = folded.messages[-1]
    result = RunResult(
        final_text=last.text if last.role == "assistant" else "",
        history_delta=(),
        events=(),
        iterations_used=len({event.step for event in events if isinstance(event, StepStarted)}),
        timed_out=False,
        stop_reason="cancelled",
        usage=_used(events),
    )
    return (*closing, TurnFinished(result))


def _used(events: Iterable[Event]) -> Usage:
    """Return what a turn took whose end is not known: its steps, summaries, and answers for tools."""
    return sum((event.usage for event in events if isinstance(event, (StepFinished, Compacted, Sampled))), Usage())


def _cut_off(events: Iterable[Event]) -> str:
    """Say that a turn was cut off, and which calls were under way."""
    names: dict[str, str] = {}
    for event in events:
        match event:
            case ToolStarted(call=call):
                names[call.id] = call.name
            case ToolFinished(result=result):
                names.pop(result.call_id, None)
            case _:
                pass
    words = "This turn was cut off when its kernel ended."
    if not names:
        return words
    calls = "The call of {} was" if len(names) == 1 else "The calls of {} were"
    return (
        f"{words} {calls.format(', '.join(names.values()))} under way and may have run in part, or wholly; "
        "look before it is repeated."
    )
