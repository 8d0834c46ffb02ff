"""The history of a session: its turns, each with the log of its events and the messages made from them."""

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from agentmagic.events import (
    CellProposed,
    Compacted,
    Event,
    HistoryCut,
    RunResult,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    fold,
    innermost,
    without_deltas,
)
from agentmagic.history.journal import Journal
from agentmagic.history.journal_reader import Saved, add_before_end
from agentmagic.history.repair import unfold
from agentmagic.messages import (
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolKey,
    ToolResult,
    Usage,
    as_text,
    value_class,
)
from agentmagic.secrets import redact
from agentmagic.serialization import InDoubt
from agentmagic.text import json_line, single_line
from agentmagic.tools.notebook.proposals import open_proposals
from agentmagic.undo.stack import UndoStack

_AROUND = 60
"""Characters shown on each side of a match."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A finished turn: its events, the last of which is a TurnFinished, and the messages that it added."""

    events: tuple[Event, ...]
    messages: tuple[Message, ...]

    @property
    def prompt(self) -> Message:
        """The prompt that began the turn."""
        return next(event.prompt for event in self.events if isinstance(event, TurnStarted))

    @property
    def result(self) -> RunResult | None:
        """The result of the turn, or None if the last event is not a TurnFinished."""
        last = self.events[-1]
        return last.result if isinstance(last, TurnFinished) else None

    @property
    def answer(self) -> str:
        """The final text of the model in this turn, or "" if the turn has no result."""
        return self.result.final_text if self.result else ""

    @property
    def unsent(self) -> bool:
        """Whether the turn ended before the model had finished a message. Later requests then leave out its prompt."""
        return self.result is not None and self.result.unsent

    @property
    def usage(self) -> Usage:
        """Tokens and cost of the turn."""
        return self.result.usage if self.result else Usage()

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools that ran in this turn."""
        return tuple(event.call.name for event in map(innermost, self.events) if isinstance(event, ToolStarted))

    @property
    def tool_calls(self) -> int:
        """The number of tool calls that have a result."""
        return sum(isinstance(event, ToolFinished) for event in map(innermost, self.events))

    @property
    def tool_failures(self) -> int:
        """The number of tool calls that did not succeed."""
        finish_events = (event for event in map(innermost, self.events) if isinstance(event, ToolFinished))
        return sum(event.result.is_error for event in finish_events)

    def __repr__(self) -> str:
        prompt = redact(self.prompt.text)[:_AROUND]
        return f"<Turn {prompt!r}: {len(self.messages)} messages, {self.tool_calls} tool calls>"


@value_class
class Match:
    """A match of a search: the index of the turn, the role of the message, and the text around the match."""

    turn: int
    role: Role
    excerpt: str


class History:
    """The turns of a session, oldest first.

    `turns` are the finished turns. `messages` are the messages of all turns, `unsent` the indexes of the messages that
    requests leave out, `usage` the tokens and cost of all turns, and `call_ids` the ids of all tool calls. `compacted`
    is the last Compacted event, or None; it says which messages a summary replaces in the next request. `proposals` are
    the proposed cells that the user has neither kept nor rejected. `changes` is the stack for `undo` and `redo`.

    Events are written to the `journal` file, if there is one, as they happen. If the history was created with turns
    that the journal lacks, these turns are written first. Providers also accept a shorter history, which has the
    messages of only the first turns, for any number of turns.
    """

    def __init__(
        self, turns: Iterable[Turn] = (), journal: Journal | None = None, changes: UndoStack[Turn] | None = None
    ) -> None:
        self.journal = journal
        self.changes = changes or UndoStack[Turn]()
        self._is_in_journal = journal is not None and journal.begun
        self._set_turns(turns)

    @classmethod
    def of(cls, turns: Iterable[Sequence[Event]], journal: Journal | None = None) -> "History":
        """Return a history made from logs. Each log has the events of a turn, as `journal_reader.read` returns them."""
        return cls((turn_of(events) for events in turns), journal)

    @classmethod
    def from_journal(cls, saved: Saved, journal: Journal) -> "History":
        """Return a history with the content of a journal, including the changes that can be undone."""
        turns_by_id: dict[int, Turn] = {}  # convert each turn once: many changes on the undo stack contain it

        def turn(events: Sequence[Event]) -> Turn:
            if id(events) not in turns_by_id:
                turns_by_id[id(events)] = turn_of(events)
            return turns_by_id[id(events)]

        return cls(map(turn, saved.turns), journal, saved.changes.map_turns(turn))

    @classmethod
    def of_messages(cls, messages: Sequence[Message], model: str = "", journal: Journal | None = None) -> "History":
        """Return a history made from messages of any source. Messages that a provider would reject are repaired."""
        return cls.of(unfold(messages, model), journal)

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of all turns, in order."""
        return tuple(event for turn in self.turns for event in turn.events)

    @property
    def sent_messages(self) -> tuple[Message, ...]:
        """The messages, except those that requests leave out."""
        if not self.unsent:
            return self.messages
        return tuple(message for place, message in enumerate(self.messages) if place not in self.unsent)

    @property
    def tool_calls(self) -> int:
        """The number of tool calls that have a result."""
        return sum(turn.tool_calls for turn in self.turns)

    @property
    def tool_failures(self) -> int:
        """The number of tool calls that did not succeed."""
        return sum(turn.tool_failures for turn in self.turns)

    def record(self, event: Event) -> None:
        """Write an event to the journal, if there is one. No error is raised if the file cannot be written."""
        if self.journal is not None:
            self._write_earlier(self.journal)
            self.journal.write(event)

    def write_to(self, journal: Journal) -> None:
        """Write the turns so far, and all later events, to this journal.

        Does nothing if the history has a journal already.
        """
        if self.journal is None:
            self.journal = journal
            if self.turns:
                self._write_earlier(journal)

    def _write_earlier(self, journal: Journal) -> None:
        if not self._is_in_journal:
            self._is_in_journal = True
            self.changes.drop_unsaved()
            for earlier in self.events:
                journal.write(earlier)

    def add(self, events: Sequence[Event], messages: tuple[Message, ...] | None = None) -> None:
        """Append a finished turn. Its messages are those of its result, unless `messages` is given."""
        if events and isinstance(events[0], TurnStarted):
            turn = turn_of(events, messages)
            self.changes.add(self.turns, turn)
            self._append(turn)

    def amend(self, event: Event) -> None:
        """Add an event to the last turn, although the turn has ended. Does nothing if there is no turn."""
        if not self.turns:
            return
        old = self.turns[-1]
        new = Turn(add_before_end(old.events, event), old.messages)
        self.changes = self.changes.map_turns(lambda turn: new if turn is old else turn)
        self.turns = (*self.turns[:-1], new)
        self.proposals = open_proposals((*self.proposals, event))
        if isinstance(event, Compacted):
            self.compacted = event
            self.usage += event.usage

    def cut(self, turns: int) -> None:
        """Keep only the first `turns` turns."""
        if turns >= len(self.turns):
            return
        self._set_turns(self.changes.cut(self.turns, turns))
        self._write(HistoryCut(len(self.turns)))

    def clear(self) -> None:
        """Remove all turns. `undo` restores them."""
        if self.turns:
            self._set_turns(self.changes.clear(self.turns))
            self._write(HistoryCut(0, cleared=True))

    def undo(self) -> Message | None:
        """Undo the last change. If it added a turn, return the prompt of this turn.

        Return None if the change was a `clear`, whose turns are now restored, or if there is no change to undo. If the
        change was a `cut` that no turn followed, return the prompt of the last turn that `cut` had kept, or None if it
        had kept no turn.
        """
        change = self.changes.undo(self.turns)
        if change is None:
            return None
        self._set_turns(change.before)
        self._write(HistoryCut(len(self.turns), step="undo"))
        return None if change.kind == "clear" else change.after[-1].prompt if change.after else None

    def redo(self) -> Message | None:
        """Redo the change that was undone last.

        Return the prompt of the turn that is restored, or None if no turn is restored.
        """
        change = self.changes.redo()
        if change is None:
            return None
        self._set_turns(change.after)
        self._write(HistoryCut(len(self.turns), step="redo"))
        return change.after[-1].prompt if change.after else None

    @property
    def is_saved(self) -> bool:
        """Whether the turns are on disk."""
        return self.journal is not None and not self.journal.problem

    def save(self, journal: Journal, in_doubt: Iterable[ToolKey] = ()) -> None:
        """Write all turns to the file of `journal`, which must not exist yet.

        If the history had no journal, or its journal failed, later events go to this journal. `in_doubt` are the tools
        that may have run without a recorded result.

        Raises JournalError, and changes nothing, if the file exists already or cannot be written.
        """
        doubts = tuple(sorted(in_doubt))
        if self.is_saved or self.turns or doubts:
            journal.begin((*self.events, *([InDoubt(doubts)] if doubts else ())))
        if not self.is_saved:
            self.journal, self._is_in_journal = journal, journal.begun
            self.changes.drop_unsaved()

    def close(self) -> None:
        """Close the file of the journal. A later event opens it again."""
        if self.journal is not None:
            self.journal.close()

    def fork(self, turns: int | None = None) -> "History":
        """Return an independent history, without a journal, of the first `turns` turns or of all turns."""
        return History(self.turns[:turns])

    def search(self, words: str) -> list[Match]:
        """Return the matches of words in prompts, answers, and the arguments and results of calls, ignoring case."""
        if not words.strip():
            return []
        pattern = re.compile(r"\s+".join(map(re.escape, words.split())), re.IGNORECASE)
        return [
            Match(number, message.role, _excerpt(text, match))
            for number, turn in enumerate(self.turns)
            for message in turn.messages
            for text in map(redact, map(_text, message.parts))
            if (match := pattern.search(text))
        ]

    def _write(self, cut: HistoryCut) -> None:
        if self.journal is not None and self._is_in_journal:
            self.journal.write(cut)

    def _set_turns(self, turns: Iterable[Turn]) -> None:
        self.turns: tuple[Turn, ...] = ()
        self.messages: tuple[Message, ...] = ()
        self.unsent: frozenset[int] = frozenset()
        self.usage = Usage()
        self.compacted: Compacted | None = None
        self.proposals: tuple[CellProposed, ...] = ()
        # Keep one set and add to it. This must be fast, because a session looks up the id of every tool call.
        self._call_ids: set[str] = set()
        self.call_ids: AbstractSet[str] = self._call_ids
        self._append(*turns)

    def _append(self, *turns: Turn) -> None:
        self.turns += turns
        new_messages = [(message, turn.unsent) for turn in turns for message in turn.messages]
        self.unsent |= {place for place, (_, unsent) in enumerate(new_messages, len(self.messages)) if unsent}
        self.messages += tuple(message for message, _ in new_messages)
        self._call_ids.update(call.id for message, _ in new_messages for call in message.calls)
        self.usage = sum((turn.usage for turn in turns), self.usage)
        events = [event for turn in turns for event in turn.events]
        self.proposals = open_proposals((*self.proposals, *events))
        for event in events:
            # `covers` and `prompt` are positions of messages. In a damaged file, they can lie after the last message.
            if isinstance(event, Compacted) and max(event.covers, event.prompt) < len(self.messages):
                self.compacted = event


def turn_of(events: Sequence[Event], messages: tuple[Message, ...] | None = None) -> Turn:
    """Return a turn with these events.

    If `messages` is None, the messages come from the result in the last event, or else from all events.
    """
    log = without_deltas(events)
    last = log[-1]
    if isinstance(last, TurnFinished):
        messages = last.result.history_delta if messages is None else messages
        if log is not events:  # `last.result` has a copy of the events: remove deltas (pieces of text) there too
            log = (*log[:-1], TurnFinished(replace(last.result, events=log[:-1])))
    return Turn(log, fold(log) if messages is None else messages)


def _text(part: Part) -> str:
    match part:
        case Text() | ToolResult():
            return part.text
        case ToolCall():
            return f"{part.name} {json_line(part.arguments)}"
        case Reasoning():
            return ""
        case _:
            return as_text(part)


def _excerpt(text: str, match: re.Match[str]) -> str:
    start, end = max(0, match.start() - _AROUND), match.end() + _AROUND
    excerpt = single_line(text[start:end], end - start + 1)
    return f"{'…' if start else ''}{excerpt}{'…' if end < len(text) else ''}"
