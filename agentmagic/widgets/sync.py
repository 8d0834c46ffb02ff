"""Turn a session's events into the numbered messages from which browser pages draw a view of the session.

A frame holds what changed since the frame before: `{"n": 7, "ops": [[key, "more words"], [key, {fields}], [key, null]],
"state": {fields}}`. An op appends text to a block, adds a block or changes some of its fields, or removes a block.
Blocks are shown in the order of their keys. `state` has the changes of what is shown around the blocks, under the names
of `State`.

A view begins with `hello`, which gives the number of the last message that the view has seen. The answer is a snapshot,
`{"n": 7, "view": its id, "now": seconds, "blocks": [[key, {fields}]...], "state": {...}}`, or, if the view has missed
nothing, `{"n": 7, "view": its id}`. Then frames follow. If the number of a frame is not the next one, a message was
lost, and the view says hello again. So a view recovers from messages that are lost, doubled or late.

A message longer than `LONGEST` is sent in pieces, `{"piece": 0, "of": 3, "id": 9, "text": "..."}`, whose joined texts
are the JSON of the message.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from agentmagic.display import call_words, words
from agentmagic.display.block_json import BlockFields, JsonRenderer
from agentmagic.display.blocks import Block, GrowingBlock, ToolCard
from agentmagic.display.printout import Printout
from agentmagic.display.transcript import Transcript
from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Event,
    InnerEvent,
    MapProgress,
    PartDelta,
    ProposalSettled,
    QuestionAnswered,
    QuestionAsked,
    ToolProgress,
    ToolStarted,
    TurnStarted,
    innermost,
)
from agentmagic.text import ShownStream, sanitize
from agentmagic.widgets.view_messages import Change, Frame, Message, Running, State, ViewSnapshot

LONGEST = 400_000
"""Characters of a message. Escapes can double it; with Jupyter's envelope it still stays below 1 MB."""


@dataclass(slots=True)
class _GrowingText:
    """The part of a growing text that was sent to the views. Its end is held back while it may begin a secret."""

    read: int = 0
    text: str = ""
    stream: ShownStream = field(default_factory=ShownStream)

    def grow(self, source: str) -> str:
        """Return the part of `source` that can be sent now and was not sent before."""
        piece = self.stream.feed(source[self.read :])
        self.read = len(source)
        self.text += piece
        return piece

    def finish(self, source: str) -> str | None:
        """Return the rest of the complete text, or None if the text does not begin with what was sent before."""
        before, self.text = self.text, sanitize(source)
        return self.text[len(before) :] if self.text.startswith(before) else None


@dataclass(slots=True, eq=False)
class _BlockRecord:
    """A block in the state that was last sent to the views."""

    block: Block
    within: int | None = None
    """The key of the card around the block, if the block belongs to the turn of an agent tool."""
    path: tuple[str, ...] = ()
    """The ids of the calls around the block."""
    since: float | None = None
    version: int = -1
    whole: bool = False
    fields: Mapping[str, object] = field(default_factory=dict[str, object])
    words: _GrowingText = field(default_factory=_GrowingText)


class _TurnClock:
    """When the turn under way and each of its tool calls began, in seconds since 1970.

    `since` is when the turn began, plus the time in which it waited for the user. `latest` is the time of the last
    event that is neither a piece of a growing text nor progress: since then, the turn has done the same thing.
    """

    def __init__(self, now: float) -> None:
        self.since = self.latest = now
        self.calls: dict[tuple[str, ...], float] = {}
        """When calls began, by the ids of the calls around them and their own id."""
        self._open: set[str] = set()
        self._waits = now

    def take(self, event: Event, now: float) -> None:
        """Update the times for an event of the turn, which came at the time `now`."""
        inner = innermost(event)
        if not isinstance(inner, PartDelta | ToolProgress):
            self.latest = now
        match inner:
            case ApprovalAsked() | QuestionAsked():
                self._waits = self._waits if self._open else now
                self._open.add(inner.id)
            case ApprovalGiven() | QuestionAnswered() if inner.id in self._open:
                self._open.remove(inner.id)
                if not self._open:
                    self.since += now - self._waits
            case ToolStarted():
                self.calls[*(event.path if isinstance(event, InnerEvent) else ()), inner.call.id] = now
            case _:
                pass


class Feed:
    """Adds events to a transcript, and returns the changes for the views.

    Thread-safe. Until `frame` is called, only the transcript is computed.
    """

    def __init__(self, events: Iterable[Event] = (), clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.transcript = Transcript(events)
        self._lock = self.transcript.lock  # shared, so that no block changes while a frame is made
        self._number = 0
        self._followed = False
        """Whether a view has received something and follows the frames."""
        self._records: dict[int, _BlockRecord] = {}
        self._state: dict[str, Any] = {}
        self._sent_state: dict[str, Any] = {}
        self._final_blocks = 0
        """The number of blocks that change no more: those of finished turns that were sent."""
        self._final_records = 0
        """The same number, including the blocks inside cards."""
        self._begin_turn(clock())

    def feed(self, event: Event | MapProgress, at: float | None = None) -> None:
        """Add the next event of the session; `at` is when it came, in seconds since 1970, or None for now."""
        with self._lock:
            at = self._clock() if at is None else at
            self.transcript.feed(event)
            if isinstance(event, TurnStarted):
                self._begin_turn(at)
            if isinstance(event, ProposalSettled | MapProgress):
                self._final_blocks = self._final_records = 0  # may change a block of a finished turn
            if not isinstance(event, MapProgress):
                self._turn.take(event, at)

    def _begin_turn(self, at: float) -> None:
        self._turn = _TurnClock(at)
        self._doing = ("", at)

    def replace(self, events: Iterable[Event], running: Iterable[tuple[Event, float]] = ()) -> None:
        """Replace the events shown so far by those of another history: the session was cleared, cut or forked.

        `running` are the events of the turn under way, each with the time at which it came.
        """
        with self._lock:
            self._final_blocks = self._final_records = 0
            self._begin_turn(self._clock())
            self.transcript.replace(events)
            for event, at in running:
                self.feed(event, at)

    def show(self, printout: Printout, line: str) -> None:
        """Show what a command has printed, at the end of the conversation."""
        self.transcript.show(printout, line)

    def show_whole(self, key: int) -> None:
        """Show the whole result of the tool call whose card has this key, if there is one, from the next frame on."""
        with self._lock:
            if (record := self._records.get(key)) is not None:
                record.whole, record.version = True, -1
                self._final_blocks = self._final_records = 0  # the card may belong to a finished turn

    def tell(self, state: State) -> None:
        """Change what is shown around the blocks, such as the choice of models; `state` has the changed fields."""
        with self._lock:
            self._state |= state

    def frame(self) -> Frame | None:
        """Return a message (a frame) with what changed since the last frame, or None if nothing changed."""
        with self._lock:
            ops = [*self._removals(), *self._block_changes()]
            state = self._state_changes()
            if not ops and not state:
                return None
            self._number += 1
            self._followed = True
            frame: Frame = {"n": self._number, "ops": ops}
            if state:
                frame["state"] = cast("State", state)
            return frame

    def hello(self, view: str, seen: int) -> list[Message]:
        """Return the messages that answer the hello of `view`; `seen` is the number of the last message that it got.

        `seen` is -1 if the view got no message yet.

        If another view follows already and there are new changes, the messages include a frame for all views.
        """
        with self._lock:
            was_followed, self._followed = self._followed, True
            frame = self.frame()
            if not was_followed:  # no other view needs the frame; the snapshot has all
                return [self._snapshot(view)]
            before = [frame] if frame else []
            if seen == self._number or (frame and seen == self._number - 1):
                return [*before, {"n": self._number, "view": view}]
            return [*before, self._snapshot(view)]

    def _snapshot(self, view: str) -> ViewSnapshot:
        blocks = [(key, _whole(record)) for key, record in self._records.items()]
        state = cast("State", dict(self._sent_state))
        return {"n": self._number, "view": view, "now": self._clock(), "blocks": blocks, "state": state}

    # -- what changed ----------------------------------------------------------------------------

    def _removals(self) -> list[tuple[int, None]]:
        """Forget the blocks that are gone, because a step is tried again or the history was replaced.

        Return the changes that remove these blocks from the views.
        """
        alive = {block.key for block, _, _ in _walk(self.transcript.blocks[self._final_blocks :])}
        removed_keys = [key for key in islice(self._records, self._final_records, None) if key not in alive]
        for key in removed_keys:
            del self._records[key]
        return [(key, None) for key in removed_keys]

    def _block_changes(self) -> Iterator[tuple[int, Change]]:
        blocks = self.transcript.blocks
        for block, within, path in _walk(blocks[self._final_blocks :]):
            record = self._records.setdefault(block.key, _BlockRecord(block, within, path))
            if record.version != block.version:
                record.version = block.version
                yield from ((block.key, change) for change in self._changes(record))
        if self.transcript.running is None:
            self._final_blocks, self._final_records = len(blocks), len(self._records)

    def _changes(self, record: _BlockRecord) -> Iterator[Change]:
        if record.since is None and isinstance(record.block, ToolCard) and record.block.state == "running":
            place = (*record.path, record.block.call.id if record.block.call else "")
            record.since = self._turn.calls.get(place, self._turn.latest)
        now: Mapping[str, object] = record.block.render(JsonRenderer(record.since, record.whole))
        if record.within is not None:
            now = {**now, "within": record.within}
        new_fields = {
            name: value for name, value in now.items() if name not in record.fields or record.fields[name] != value
        }
        growth = _growth(record)
        if growth is None:
            new_fields["text"] = record.words.text
        record.fields = now
        if new_fields:
            yield new_fields
        if growth:
            yield growth

    def _state_changes(self) -> dict[str, Any]:
        now = self._state | {"running": self._running()}
        changes = {
            name: value
            for name, value in now.items()
            if name not in self._sent_state or self._sent_state[name] != value
        }
        self._sent_state = now
        return changes

    def _running(self) -> Running | None:
        """Return what is shown of the turn under way (its figures, what it does, since when); None if none exists."""
        running = self.transcript.running
        if running is None:
            return None
        doing = call_words.activity(running, self.transcript.blocks[self._final_blocks :])
        if doing != self._doing[0]:
            self._doing = doing, self._turn.latest
        figures = list(words.footer(running, times=False))
        return {"figures": figures, "since": self._turn.since, "doing": self._doing}


def _walk(
    blocks: Iterable[Block], within: int | None = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[Block, int | None, tuple[str, ...]]]:
    """Yield all blocks, also those in cards. Each comes with its card's key and the ids of all calls around it."""
    for block in blocks:
        yield block, within, path
        if isinstance(block, ToolCard) and block.inside is not None and block.call is not None:
            yield from _walk(block.inside.blocks, block.key, (*path, block.call.id))


def _growth(record: _BlockRecord) -> str | None:
    """Return the text that was added to a block, or None if its text changed in another way."""
    if not isinstance(record.block, GrowingBlock):
        return ""
    if record.block.open:
        return record.words.grow(record.block.text)
    return record.words.finish(record.block.text)


def _whole(record: _BlockRecord) -> BlockFields:
    text = {"text": record.words.text} if record.words.text else {}
    return cast("BlockFields", {**record.fields, **text})


def pieces(message: Message, number: int) -> Iterator[Message]:
    """Yield a message as it is, or in pieces of `LONGEST` characters if it is longer; `number` is the pieces' id."""
    text = json.dumps(message, separators=(",", ":"), allow_nan=False)
    if len(text) <= LONGEST:
        yield message
        return
    starts = range(0, len(text), LONGEST)
    for piece, start in enumerate(starts):
        yield {"piece": piece, "of": len(starts), "id": number, "text": text[start : start + LONGEST]}
