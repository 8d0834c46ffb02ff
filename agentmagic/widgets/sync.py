"""Events to the numbered messages that views follow.

A frame holds what changed since the frame before:
`{"n": 7, "ops": [[key, "more words"], [key, {fields}], [key, null]], "state": {fields}}`. An op lets the text of
a block grow, adds a block or changes some of its fields, or removes it; blocks are shown in the order of their
keys. `state` has what changed of the session around them, under the names of `State`.

A view begins with `hello`, which says up to which number it has seen all, and is answered with a snapshot,
`{"n": 7, "view": its id, "now": seconds, "blocks": [[key, {fields}]...], "state": {...}}`, or, if it has
missed nothing, with `{"n": 7, "view": its id}`. Then come frames. If the number of a frame is not the next one,
a message was lost, and the view says hello again. So it recovers from messages that are lost, doubled or late.

What is longer than `LONGEST` is sent in pieces, `{"piece": 0, "of": 3, "id": 9, "text": "..."}`, whose joined
texts are the JSON of a message.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from agentmagic.display import words
from agentmagic.display.block_json import BlockFields, JsonRenderer
from agentmagic.display.blocks import Block, GrowingBlock, ToolCard
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
from agentmagic.text import ShownStream, shown
from agentmagic.widgets.view_messages import Change, Frame, Message, Running, State, ViewSnapshot

LONGEST = 400_000
"""Characters of a message; doubled by escapes and with Jupyter's envelope it stays below 1 MB."""


@dataclass(slots=True)
class _GrowingText:
    """Text that grows; an end that may be the beginning of a secret is not in it yet."""

    read: int = 0
    text: str = ""
    stream: ShownStream = field(default_factory=ShownStream)

    def grow(self, written: str) -> str:
        """Return what can be shown of the text since the last time."""
        piece = self.stream.feed(written[self.read :])
        self.read = len(written)
        self.text += piece
        return piece

    def finish(self, written: str) -> str | None:
        """Return what is left to show of the whole text, or None if what was shown is not its beginning."""
        before, self.text = self.text, shown(written)
        return self.text[len(before) :] if self.text.startswith(before) else None


@dataclass(slots=True, eq=False)
class _Sent:
    """A block as the views have it."""

    block: Block
    within: int | None = None
    """The key of the card of an agent's call, if the block stands inside that."""
    path: tuple[str, ...] = ()
    """The calls that it stands inside."""
    since: float | None = None
    version: int = -1
    whole: bool = False
    fields: Mapping[str, object] = field(default_factory=dict[str, object])
    words: _GrowingText = field(default_factory=_GrowingText)


class _TurnClock:
    """When the turn under way began, and each of its calls, in seconds since 1970.

    `since` is later by the time in which the turn has waited for the user. `latest` is when the last event came that
    adds more than a piece: what the turn does now, it does since then.
    """

    def __init__(self, now: float) -> None:
        self.since = self.latest = now
        self.calls: dict[tuple[str, ...], float] = {}
        """When calls began, by their ids behind those of the calls around them."""
        self._open: set[str] = set()
        self._waits = now

    def take(self, event: Event, now: float) -> None:
        """Take an event of the turn, which came at that time."""
        told = innermost(event)
        if not isinstance(told, PartDelta | ToolProgress):
            self.latest = now
        match told:
            case ApprovalAsked() | QuestionAsked():
                self._waits = self._waits if self._open else now
                self._open.add(told.id)
            case ApprovalGiven() | QuestionAnswered() if told.id in self._open:
                self._open.remove(told.id)
                if not self._open:
                    self.since += now - self._waits
            case ToolStarted():
                self.calls[*(event.path if isinstance(event, InnerEvent) else ()), told.call.id] = now
            case _:
                pass


class Feed:
    """Takes events into a transcript, and tells the views what they changed there.

    Safe to use from any thread. Until `frame` is called nothing is computed beyond the transcript.
    """

    def __init__(self, events: Iterable[Event] = (), clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.transcript = Transcript(events)
        self._lock = self.transcript.lock  # one lock, so that a frame and the blocks that it was made of agree
        self._number = 0
        self._followed = False
        """Whether a view has been sent something, and follows."""
        self._sent: dict[int, _Sent] = {}
        self._state: dict[str, Any] = {}
        self._told: dict[str, Any] = {}
        self._settled = 0
        """Blocks that change no more: those of the turns that are over and were sent."""
        self._settled_sent = 0
        """How many blocks those are with the ones inside cards."""
        self._begin_turn(clock())

    def feed(self, event: Event | MapProgress, at: float | None = None) -> None:
        """Take the next event of the session, which came `at` a time in seconds since 1970, or now."""
        with self._lock:
            at = self._clock() if at is None else at
            self.transcript.feed(event)
            if isinstance(event, TurnStarted):
                self._begin_turn(at)
            if isinstance(event, ProposalSettled | MapProgress):
                self._settled = self._settled_sent = 0  # its block may be one of a turn that is over
            if not isinstance(event, MapProgress):
                self._turn.take(event, at)

    def _begin_turn(self, at: float) -> None:
        self._turn = _TurnClock(at)
        self._doing = ("", at)

    def replace(self, events: Iterable[Event], running: Iterable[tuple[Event, float]] = ()) -> None:
        """Show another history: the session was cleared, cut or forked.

        `running` are the events of the turn under way, each with the time at which it came.
        """
        with self._lock:
            self._settled = self._settled_sent = 0
            self._begin_turn(self._clock())
            self.transcript.replace(events)
            for event, at in running:
                self.feed(event, at)

    def show_whole(self, key: int) -> None:
        """Show all of a card's result, if there is such a card."""
        with self._lock:
            if (sent := self._sent.get(key)) is not None:
                sent.whole, sent.version = True, -1
                self._settled = self._settled_sent = 0  # a card of a turn that is over is looked at again

    def tell(self, state: State) -> None:
        """Change what is shown around the blocks."""
        with self._lock:
            self._state |= state

    def frame(self) -> Frame | None:
        """Return what changed since the last frame, or None."""
        with self._lock:
            ops = [*self._removed(), *self._changed()]
            state = self._changed_state()
            if not ops and not state:
                return None
            self._number += 1
            self._followed = True
            frame: Frame = {"n": self._number, "ops": ops}
            if state:
                frame["state"] = cast("State", state)
            return frame

    def hello(self, view: str, seen: int) -> list[Message]:
        """Answer a view that has seen all up to a number, or nothing (-1): with what every view needs to follow."""
        with self._lock:
            followed, self._followed = self._followed, True
            frame = self.frame()
            if not followed:  # the frame would have all that the snapshot has
                return [self._snapshot(view)]
            before = [frame] if frame else []
            if seen == self._number or (frame and seen == self._number - 1):
                return [*before, {"n": self._number, "view": view}]
            return [*before, self._snapshot(view)]

    def _snapshot(self, view: str) -> ViewSnapshot:
        blocks = [(key, _whole(sent)) for key, sent in self._sent.items()]
        state = cast("State", dict(self._told))
        return {"n": self._number, "view": view, "now": self._clock(), "blocks": blocks, "state": state}

    # -- what changed ----------------------------------------------------------------------------

    def _removed(self) -> list[tuple[int, None]]:
        """Forget the blocks that are gone: a step was withdrawn, or the history replaced."""
        alive = {block.key for block, _, _ in _walk(self.transcript.blocks[self._settled :])}
        lost = [key for key in islice(self._sent, self._settled_sent, None) if key not in alive]
        for key in lost:
            del self._sent[key]
        return [(key, None) for key in lost]

    def _changed(self) -> Iterator[tuple[int, Change]]:
        blocks = self.transcript.blocks
        for block, within, path in _walk(blocks[self._settled :]):
            sent = self._sent.setdefault(block.key, _Sent(block, within, path))
            if sent.version != block.version:
                sent.version = block.version
                yield from ((block.key, change) for change in self._changes(sent))
        if self.transcript.running is None:
            self._settled, self._settled_sent = len(blocks), len(self._sent)

    def _changes(self, sent: _Sent) -> Iterator[Change]:
        if sent.since is None and isinstance(sent.block, ToolCard) and sent.block.state == "running":
            place = (*sent.path, sent.block.call.id if sent.block.call else "")
            sent.since = self._turn.calls.get(place, self._turn.latest)
        now: Mapping[str, object] = sent.block.render(JsonRenderer(sent.since, sent.whole))
        if sent.within is not None:
            now = {**now, "within": sent.within}
        changed = {name: value for name, value in now.items() if name not in sent.fields or sent.fields[name] != value}
        grown = _grown(sent)
        if grown is None:
            changed["text"] = sent.words.text
        sent.fields = now
        if changed:
            yield changed
        if grown:
            yield grown

    def _changed_state(self) -> dict[str, Any]:
        now = self._state | {"running": self._running()}
        changed = {name: value for name, value in now.items() if name not in self._told or self._told[name] != value}
        self._told = now
        return changed

    def _running(self) -> Running | None:
        """Return what is shown of the turn under way: its figures, what it does, and since when."""
        running = self.transcript.running
        if running is None:
            return None
        doing = words.doing(running, self.transcript.blocks[self._settled :])
        if doing != self._doing[0]:
            self._doing = doing, self._turn.latest
        figures = list(words.footer(running, times=False))
        return {"figures": figures, "since": self._turn.since, "doing": self._doing}


def _walk(
    blocks: Iterable[Block], within: int | None = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[Block, int | None, tuple[str, ...]]]:
    """Yield blocks, each with the key of the card that it stands inside and the calls of all cards around it."""
    for block in blocks:
        yield block, within, path
        if isinstance(block, ToolCard) and block.inside is not None and block.call is not None:
            yield from _walk(block.inside.blocks, block.key, (*path, block.call.id))


def _grown(sent: _Sent) -> str | None:
    """Return by how much the text of a block grew, or None if the text changed otherwise."""
    if not isinstance(sent.block, GrowingBlock):
        return ""
    if sent.block.open:
        return sent.words.grow(sent.block.text)
    return sent.words.finish(sent.block.text)


def _whole(sent: _Sent) -> BlockFields:
    text = {"text": sent.words.text} if sent.words.text else {}
    return cast("BlockFields", {**sent.fields, **text})


def pieces(message: Message, number: int) -> Iterator[Message]:
    """Yield a message as it is, or in pieces if it is longer than LONGEST."""
    text = json.dumps(message, separators=(",", ":"), allow_nan=False)
    if len(text) <= LONGEST:
        yield message
        return
    starts = range(0, len(text), LONGEST)
    for piece, start in enumerate(starts):
        yield {"piece": piece, "of": len(starts), "id": number, "text": text[start : start + LONGEST]}
