"""A session's past: its turns, each the log of its events and the messages they fold to."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from agentmagic.events import (
    Compacted,
    Event,
    HistoryCut,
    PartDelta,
    PartStarted,
    RunResult,
    ToolFinished,
    TurnFinished,
    TurnStarted,
)
from agentmagic.fold import fold
from agentmagic.history.journal import Journal
from agentmagic.history.repair import unfold
from agentmagic.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult, Usage, as_text, value_class
from agentmagic.records import InDoubt, ToolKey
from agentmagic.secrets import redact

_AROUND = 60
"""Characters shown on each side of what was found."""


@dataclass(frozen=True, slots=True)
class Turn:
    """A finished turn: its events without deltas, the last one a TurnFinished, and the messages it added."""

    events: tuple[Event, ...]
    messages: tuple[Message, ...]

    @property
    def prompt(self) -> Message:
        """What the turn began with."""
        return next(event.prompt for event in self.events if isinstance(event, TurnStarted))

    @property
    def result(self) -> RunResult | None:
        """What came of it; None for a turn whose log has no end."""
        last = self.events[-1]
        return last.result if isinstance(last, TurnFinished) else None

    @property
    def answer(self) -> str:
        """The final text."""
        return self.result.final_text if self.result else ""

    @property
    def usage(self) -> Usage:
        """Tokens and cost."""
        return self.result.usage if self.result else Usage()

    @property
    def tool_calls(self) -> int:
        """How many tool calls were settled."""
        return sum(isinstance(event, ToolFinished) for event in self.events)

    @property
    def tool_failures(self) -> int:
        """How many tool calls did not succeed."""
        return sum(isinstance(event, ToolFinished) and event.result.is_error for event in self.events)

    def __repr__(self) -> str:
        prompt = redact(self.prompt.text)[:_AROUND]
        return f"<Turn {prompt!r}: {len(self.messages)} messages, {self.tool_calls} tool calls>"


@value_class
class Match:
    """Where words were found: the index of the turn, who said them, and what stands around them."""

    turn: int
    role: Role
    excerpt: str


class History:
    """The turns of a session, oldest first.

    What happens is told to the `journal`, if there is one, as it happens; turns it was made with and that
    the journal does not hold are written before. Its messages are a valid history after every turn.
    """

    def __init__(self, turns: Iterable[Turn] = (), journal: Journal | None = None) -> None:
        self.journal = journal
        self._saved = journal is not None and journal.begun
        self._keep(turns)

    @classmethod
    def of(cls, turns: Iterable[Sequence[Event]], journal: Journal | None = None) -> "History":
        """Make a history of logs, one a turn, as `saved.read` gives them."""
        return cls((turn_of(events) for events in turns), journal)

    @classmethod
    def of_messages(cls, messages: Sequence[Message], model: str = "", journal: Journal | None = None) -> "History":
        """Make a history of messages from elsewhere, repaired where no provider would take them."""
        return cls.of(unfold(messages, model), journal)

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Every finished turn; a slice of it is a valid history of its own if it starts at the first."""
        return self._turns

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of every turn."""
        return self._messages

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event of every turn, without deltas."""
        return tuple(event for turn in self._turns for event in turn.events)

    @property
    def usage(self) -> Usage:
        """Tokens and cost of every turn."""
        return self._usage

    @property
    def compacted(self) -> Compacted | None:
        """How the next request is compacted: the last such event of the turns there are, if any."""
        return self._compacted

    @property
    def call_ids(self) -> AbstractSet[str]:
        """The ids of every call; it grows with the history."""
        return self._call_ids

    @property
    def tool_calls(self) -> int:
        """How many tool calls were settled."""
        return sum(turn.tool_calls for turn in self._turns)

    @property
    def tool_failures(self) -> int:
        """How many tool calls did not succeed."""
        return sum(turn.tool_failures for turn in self._turns)

    def record(self, event: Event) -> None:
        """Tell the journal what has just happened; never raises for what befalls the file."""
        if self.journal is None:
            return
        if not self._saved:
            self._saved = True
            for earlier in self.events:
                self.journal.write(earlier)
        self.journal.write(event)

    def add(self, events: Sequence[Event], messages: tuple[Message, ...] | None = None) -> None:
        """Append a finished turn; its messages are folded where they are not given."""
        if events and isinstance(events[0], TurnStarted):
            self._append(turn_of(events, messages))

    def cut(self, turns: int) -> None:
        """Keep the first turns only."""
        if turns >= len(self._turns):
            return
        self._keep(self._turns[:turns])
        if self.journal is not None and self._saved:
            self.journal.write(HistoryCut(len(self._turns)))

    def clear(self) -> None:
        """Forget every turn."""
        self.cut(0)

    def undo(self) -> Message | None:
        """Forget the last turn and return its prompt, or None where there is none."""
        if not self._turns:
            return None
        prompt = self._turns[-1].prompt
        self.cut(len(self._turns) - 1)
        return prompt

    @property
    def is_saved(self) -> bool:
        """Whether the turns are on disk."""
        return self.journal is not None and not self.journal.problem

    def save(self, journal: Journal, in_doubt: Iterable[ToolKey] = ()) -> None:
        """Write every turn to a journal of a new file, and go on with it where there is none yet, or it failed.

        Raises JournalError, and changes nothing, where there is a file already or none can be written.
        """
        doubts = tuple(sorted(in_doubt))
        if self.is_saved or self.turns or doubts:
            journal.begin((*self.events, *([InDoubt(doubts)] if doubts else ())))
        if not self.is_saved:
            self.journal, self._saved = journal, journal.begun

    def close(self) -> None:
        """Let go of the journal's file; what comes later takes it up again."""
        if self.journal is not None:
            self.journal.close()

    def fork(self, turns: int | None = None) -> "History":
        """Return a history of its own, without a journal, of the first turns or of all."""
        return History(self._turns[:turns])

    def search(self, words: str) -> list[Match]:
        """Find words in prompts, answers, and the arguments and results of calls, in whatever case they stand."""
        if not words.strip():
            return []
        wanted = re.compile(r"\s+".join(map(re.escape, words.split())), re.IGNORECASE)
        return [
            Match(number, message.role, _excerpt(text, found))
            for number, turn in enumerate(self._turns)
            for message in turn.messages
            for text in map(redact, _texts(message))
            if (found := wanted.search(text))
        ]

    def _keep(self, turns: Iterable[Turn]) -> None:
        self._turns: tuple[Turn, ...] = ()
        self._messages: tuple[Message, ...] = ()
        self._usage = Usage()
        self._call_ids: set[str] = set()
        self._compacted: Compacted | None = None
        self._append(*turns)

    def _append(self, *turns: Turn) -> None:
        self._turns += turns
        added = [message for turn in turns for message in turn.messages]
        self._messages += tuple(added)
        self._call_ids.update(call.id for message in added for call in message.calls)
        self._usage = sum((turn.usage for turn in turns), self._usage)
        for event in (event for turn in turns for event in turn.events):
            if isinstance(event, Compacted) and max(event.covers, event.prompt) < len(self._messages):
                self._compacted = event


def turn_of(events: Sequence[Event], messages: tuple[Message, ...] | None = None) -> Turn:
    """Make a turn of its log, deltas left out; its messages are those of its result where they are not given."""
    kept: list[Event] = [event for event in events if not isinstance(event, (PartDelta, PartStarted))]
    last = kept[-1]
    if isinstance(last, TurnFinished):
        kept[-1] = TurnFinished(replace(last.result, events=tuple(kept[:-1])))
        messages = last.result.history_delta if messages is None else messages
    return Turn(tuple(kept), fold(kept) if messages is None else messages)


def _texts(message: Message) -> Iterator[str]:
    for part in message.parts:
        yield _text(part)


def _text(part: Part) -> str:
    match part:
        case Text() | ToolResult():
            return part.text
        case ToolCall():
            return f"{part.name} {json.dumps(dict(part.arguments), ensure_ascii=False, default=str)}"
        case Reasoning():
            return ""
        case _:
            return as_text(part)


def _excerpt(text: str, found: re.Match[str]) -> str:
    start, end = max(0, found.start() - _AROUND), found.end() + _AROUND
    words = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{words}{'…' if end < len(text) else ''}"
