"""Reads journals as whole turns, even from files that are damaged or were cut off."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentmagic.errors import JournalError
from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Compacted,
    Event,
    Fold,
    HistoryCut,
    InnerEvent,
    Notice,
    PageDecision,
    ProposalSettled,
    RunResult,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    fold,
    innermost,
)
from agentmagic.history.repair import repair_messages
from agentmagic.messages import ToolKey, Usage
from agentmagic.plain_files import open_plain
from agentmagic.serialization import LONGEST_HEADER, LONGEST_LINE, InDoubt, Record, begins_journal, decode_record
from agentmagic.text import single_line
from agentmagic.undo.stack import UndoStack

_EXCERPT = 60


@dataclass(frozen=True, slots=True)
class Saved:
    """The content of a journal: whole turns, each from its TurnStarted to its TurnFinished.

    `changes` is the stack for undo and redo. `problems` are sentences about lines that could not be read, whose number
    is `unread_lines`, and about a last turn that was cut off. `closing` are the events that complete such a turn; the
    file does not have them.

    `spent` is the cost of all turns in the file, undone turns included. `lost_turns` is the number of turns whose
    beginning could not be read; they are not in `turns`.

    `in_doubt` names the tools that may have done something that the conversation does not show. Before such a tool runs
    again, the user is asked. A tool is in doubt if the file shows that a call of it began, but not how the call ended.
    It stays in doubt, even if turns are undone or cleared, until the user approves a later call of it, or a later call
    succeeds.
    """

    turns: tuple[tuple[Event, ...], ...]
    in_doubt: frozenset[ToolKey] = frozenset()
    problems: tuple[str, ...] = ()
    closing: tuple[Event, ...] = ()
    spent: Usage = field(default_factory=Usage)
    lost_turns: int = 0
    changes: UndoStack[tuple[Event, ...]] = field(default_factory=UndoStack[tuple[Event, ...]], compare=False)
    unread_lines: int = 0


@dataclass(frozen=True, slots=True)
class SavedConversation:
    """A journal in a folder. `prompt` is the beginning of its first prompt.

    `modified` is a time in seconds since 1970. `turns` is None if the file was too long to count its turns.
    """

    name: str
    path: Path
    turns: int | None
    prompt: str
    modified: float


def read(path: Path) -> Saved:
    """Return the content of a journal.

    Raises JournalError if the file is missing, cannot be read, is not a journal or has a newer format.
    """
    reading = _Reading()
    for line in lines_of(path):
        reading.take(decode_record(line))
    return reading.content()


def holds_journal(path: Path) -> bool:
    """Return whether a file contains a journal. Return False if it is missing, empty or cut off in its header.

    Raises JournalError if the file has other content or a newer format, or cannot be read.
    """
    try:
        with open_plain(path, None) as file:
            line = file.readline(LONGEST_HEADER)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _unreadable(path, error) from error
    return begins_journal(path, line)


def list_conversations(folder: Path, most: int | None = None) -> list[SavedConversation]:
    """Return the conversations saved in a folder, the last used first. If the folder is missing, the list is empty.

    The turns in a file of more than `most` bytes are not counted; None means no limit.
    """
    conversations = [
        conversation for path in folder.glob("*.jsonl") if (conversation := _read_summary(path, most)) is not None
    ]
    return sorted(conversations, key=lambda conversation: conversation.modified, reverse=True)


def _read_summary(path: Path, most: int | None) -> SavedConversation | None:
    # Listing many long files must be fast, so decode only the lines that begin or remove turns.
    prompts: tuple[str, ...] = ()
    changes = UndoStack[str]()
    try:
        whole = most is None or path.stat().st_size <= most
        for line in lines_of(path) if whole else ():
            if line.startswith((b'{"type":"turn_started"', b'{"type":"history_cut"')):
                match decode_record(line):
                    case TurnStarted(prompt=prompt):
                        prompts = changes.add(prompts, prompt.text)
                    case HistoryCut() as cut:
                        prompts = changes.follow(prompts, cut)
                    case _:
                        pass
        turns = len(prompts) if whole else 0 if not holds_journal(path) or _is_cleared(path) else None
        mtime = path.stat().st_mtime
    except (JournalError, OSError):
        return None
    return SavedConversation(path.stem, path, turns, single_line(prompts[0], _EXCERPT) if prompts else "", mtime)


def _is_cleared(path: Path) -> bool:
    """Return whether the last line of a file removes all turns."""
    with open_plain(path, None) as file:
        file.seek(-min(LONGEST_HEADER, path.stat().st_size), os.SEEK_END)
        lines = file.read().splitlines()
    last = decode_record(lines[-1]) if lines else None
    return isinstance(last, HistoryCut) and not last.turns


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines after the header.

    For a line that is too long, yield only its beginning, which is not a record.
    """
    try:
        with open_plain(path) as file:
            if not begins_journal(path, file.readline(LONGEST_HEADER)):
                return
            while line := file.readline(LONGEST_LINE):
                yield line
                # Skip the rest of a line that is too long, without loading the whole line into memory.
                while line and len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                    line = file.readline(LONGEST_LINE)
    except FileNotFoundError as error:
        raise JournalError(f"No conversation is saved at {path}. %agent sessions lists those there are.") from error
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> JournalError:
    return JournalError(f"The conversation {path} cannot be read: {error.strerror}.")


class _Reading:
    """Builds turns from records, one record at a time.

    A turn whose beginning cannot be read is lost, but an empty turn takes its place, because a later HistoryCut record
    says how many turns are kept, and this number includes the lost turn. An InDoubt record (tools that may have run)
    shows that a session resumed the file at this point. That session did not count the lost turns, so the empty turns
    are dropped.
    """

    def __init__(self) -> None:
        self._turns: tuple[tuple[Event, ...], ...] = ()
        self._changes = UndoStack[tuple[Event, ...]]()
        self._open: list[Event] = []
        self._total_usage = Usage()
        self._doubts = _Doubts()
        self._unread_lines = 0

    def take(self, record: Record | None) -> None:
        if record is not None:
            self._doubts.feed(record)
        match record:
            case InDoubt():
                self._drop_lost_turns()
            case HistoryCut():
                self._close()
                self._turns = self._changes.follow(self._turns, record)
            case TurnStarted():
                self._close()
                self._open = [record]
            case ProposalSettled() | PageDecision() | Compacted() if not self._open:
                self._amend(record)
            case None:
                self._unread_lines += 1
            case TurnFinished() if self._has_beginning:
                self._finish(_complete(self._open, record.result), record.result.usage)
            case _:
                self._open.append(record)
                self._unread_lines += not self._has_beginning
                if isinstance(record, TurnFinished):
                    self._finish((), record.result.usage)

    def content(self) -> Saved:
        self._doubts.end_turn()
        problems: list[str] = []
        if self._unread_lines:
            lines = "1 line" if self._unread_lines == 1 else f"{self._unread_lines} lines"
            problems.append(f"{lines} of the file could not be read; what stood there is missing.")
        closing = self._close()
        problems += [event.text for event in closing if isinstance(event, Notice)]
        lost_turns = self._turns.count(())
        self._drop_lost_turns()
        doubts = frozenset(self._doubts.tools)
        return Saved(
            self._turns,
            doubts,
            tuple(problems),
            closing,
            self._total_usage,
            lost_turns,
            self._changes,
            self._unread_lines,
        )

    @property
    def _has_beginning(self) -> bool:
        """Whether a turn is open, and its beginning could be read."""
        return bool(self._open) and isinstance(self._open[0], TurnStarted)

    def _close(self) -> tuple[Event, ...]:
        """If the last turn is unfinished in the file, end it. Return the events that were added to end it."""
        if not self._has_beginning:
            if self._open:
                self._finish((), _usage_of(self._open))
            return ()
        closing, result = _closing(self._open)
        self._finish(_complete((*self._open, *closing), result), result.usage)
        return (*closing, TurnFinished(result))

    def _finish(self, turn: tuple[Event, ...], usage: Usage) -> None:
        self._turns = self._changes.add(self._turns, turn)
        self._total_usage += usage
        self._open = []

    def _amend(self, event: ProposalSettled | PageDecision | Compacted) -> None:
        """Add an event to the last turn: the user caused it after the turn had ended."""
        self._total_usage += _usage_of([event])
        if self._turns and (old := self._turns[-1]):
            new = add_before_end(old, event)
            self._turns = (*self._turns[:-1], new)
            self._changes = self._changes.map_turns(lambda turn: new if turn is old else turn)

    def _drop_lost_turns(self) -> None:
        self._turns = tuple(turn for turn in self._turns if turn)
        self._changes = self._changes.map_turns(lambda turn: turn or None)
        if not self._has_beginning:
            self._total_usage += _usage_of(self._open)
            self._open = []


class _Doubts:
    """Finds the tools in doubt: a call began, but the file does not show how it ended. See `Saved.in_doubt`."""

    def __init__(self) -> None:
        self.tools: set[ToolKey] = set()
        self._running_calls: dict[tuple[str, ...], ToolKey] = {}
        self._open_approvals: dict[str, ToolKey] = {}

    def feed(self, record: Record) -> None:
        match innermost(record):
            case TurnStarted() | TurnFinished() if isinstance(record, InnerEvent):
                pass  # this turn is of an agent called as a tool: the turn that called the agent goes on
            case TurnStarted() | TurnFinished() | HistoryCut():
                self.end_turn()
            case InDoubt(tools=tools):
                self.tools.update(tools)
            case ApprovalAsked() as asked:
                self._open_approvals[asked.id] = (asked.server, asked.call.name)
            case ApprovalGiven(id=asked, approved=True) if asked in self._open_approvals:
                self.tools.discard(self._open_approvals[asked])
            case ToolStarted() as begun:
                self._running_calls[_call_key(record, begun.call.id)] = (begun.server, begun.call.name)
            case ToolFinished(result=result):
                tool = self._running_calls.pop(_call_key(record, result.call_id), None)
                if tool is not None and result.status == "ok":
                    self.tools.discard(tool)
            case _:
                pass

    def end_turn(self) -> None:
        """End a turn: if a tool call began in it and did not end in it, mark the tool as in doubt."""
        self.tools.update(self._running_calls.values())
        self._running_calls.clear()
        self._open_approvals.clear()


def _call_key(record: object, call_id: str) -> tuple[str, ...]:
    """Return a key for a tool call, which is unique in a turn.

    A call can be inside calls of agents: the key has the ids of these calls, then the id of the call itself.
    """
    return (*record.path, call_id) if isinstance(record, InnerEvent) else (call_id,)


def add_before_end(turn: Sequence[Event], event: Event) -> tuple[Event, ...]:
    """Return the events of a finished turn, with `event` inserted before the last event, TurnFinished."""
    last = turn[-1]
    if not isinstance(last, TurnFinished):
        return (*turn, event)
    log = (*turn[:-1], event)
    usage = last.result.usage + (event.usage if isinstance(event, Compacted) else Usage())
    return (*log, TurnFinished(replace(last.result, events=log, usage=usage)))


def _complete(events: Sequence[Event], result: RunResult) -> tuple[Event, ...]:
    """Return a turn's events with a TurnFinished at the end, whose `result` has the turn's events and messages."""
    log = tuple(events)
    return (*log, TurnFinished(replace(result, events=log, history_delta=repair_messages(fold(log)))))


def _closing(events: Sequence[Event]) -> tuple[tuple[Event, ...], RunResult]:
    """Return the events that complete a turn that was cut off, and its result."""
    accumulator = Fold()
    for event in events:
        accumulator.feed(event)
    closing = (*accumulator.close(), Notice("warning", _cut_off_notice(events)))
    last = accumulator.messages[-1]
    result = RunResult(
        final_text=last.text if last.role == "assistant" else "",
        history_delta=(),
        events=(),
        iterations_used=len({event.step for event in events if isinstance(event, StepStarted)}),
        timed_out=False,
        stop_reason="cancelled",
        usage=_usage_of(events),
    )
    return closing, result


def _usage_of(events: Iterable[Event]) -> Usage:
    """Return the usage of an unfinished turn: the sum over its events."""
    return sum((getattr(event, "usage", Usage()) for event in events), Usage())


def _cut_off_notice(events: Sequence[Event]) -> str:
    """Return the notice that a turn was cut off. It names the calls that were running."""
    pairs = [(event, innermost(event)) for event in events]
    finished_keys = {
        _call_key(event, inner.result.call_id) for event, inner in pairs if isinstance(inner, ToolFinished)
    }
    calls = [
        (_call_key(event, inner.call.id), inner.call.name) for event, inner in pairs if isinstance(inner, ToolStarted)
    ]
    names = [name for key, name in calls if key not in finished_keys]
    message = "This turn was cut off when its kernel ended."
    if not names:
        return message
    subject = "The call of {} was" if len(names) == 1 else "The calls of {} were"
    return (
        f"{message} {subject.format(', '.join(names))} under way and may have run in part, or wholly; "
        "look before it is repeated."
    )
