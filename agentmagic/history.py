"""A session's past: the log of its events, and the messages they fold to."""

from dataclasses import replace

from agentmagic.events import Event, PartDelta, PartStarted, TurnFinished, TurnStarted
from agentmagic.fold import fold
from agentmagic.messages import Message, Usage


class History:
    """The turns of a session, each the log of its events.

    Deltas are left out: every part is there whole in its PartFinished.
    """

    def __init__(self) -> None:
        self._turns: list[list[Event]] = []
        self._messages: list[tuple[Message, ...]] = []

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event of every turn, oldest first, without deltas."""
        return tuple(event for turn in self._turns for event in turn)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages of every finished turn; each prefix that ends with a turn is a valid history."""
        return tuple(message for turn in self._messages for message in turn)

    @property
    def usage(self) -> Usage:
        """Tokens and cost of every turn."""
        finished = (
            event.result.usage for turn in self._turns for event in turn[-1:] if isinstance(event, TurnFinished)
        )
        return sum(finished, Usage())

    @property
    def turns(self) -> int:
        """How many turns there are."""
        return len(self._turns)

    def add(self, events: tuple[Event, ...], messages: tuple[Message, ...] | None = None) -> None:
        """Append a finished turn; its messages are folded where they are not given."""
        kept: list[Event] = [event for event in events if not isinstance(event, (PartDelta, PartStarted))]
        if not kept or not isinstance(kept[0], TurnStarted):
            return
        if isinstance(kept[-1], TurnFinished):
            kept[-1] = TurnFinished(replace(kept[-1].result, events=tuple(kept[:-1])))
        self._turns.append(kept)
        self._messages.append(fold(kept) if messages is None else messages)

    def clear(self) -> None:
        """Forget every turn."""
        self._turns.clear()
        self._messages.clear()

    def undo(self) -> Message | None:
        """Forget the last turn and return its prompt, or None where there is none."""
        if not self._turns:
            return None
        self._messages.pop()
        started = self._turns.pop()[0]
        return started.prompt if isinstance(started, TurnStarted) else None
