"""Events to messages: the history is what the events say, and nothing else.

`Fold` is fed by the loop as it goes and by whoever reads a log later, so both see the same messages.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agentmagic.events import (
    Event,
    PartDelta,
    PartFinished,
    PartKind,
    PartStarted,
    PromptAdded,
    StepFinished,
    StepRetried,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from agentmagic.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult, Usage

INTERRUPTED = "Interrupted before it finished. It may have run in part, or wholly."
NOT_RUN = "Interrupted before it was run."


@dataclass(slots=True)
class _OpenPart:
    kind: PartKind
    pieces: list[str] = field(default_factory=list[str])


class Fold:
    """The messages that a stream of events makes; `messages` grows as events are fed."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._step: int | None = None
        self._open: dict[int, _OpenPart] = {}
        self._parts: dict[int, Part] = {}
        self._calls: tuple[ToolCall, ...] = ()
        self._results: dict[str, ToolResult] = {}
        self._started: set[str] = set()

    def feed(self, event: Event) -> None:  # noqa: C901  (one arm for each event)
        """Take one event in."""
        match event:
            case PartDelta():
                self._open[event.index].pieces.append(event.text)
            case PartStarted():
                self._open[event.index] = _OpenPart(event.kind)
            case PartFinished():
                self._open.pop(event.index, None)
                self._parts[event.index] = event.part
            case StepStarted() | StepRetried():
                self._settle()
                self._begin(event.step)
            case StepFinished():
                self._finish_step(interrupted=event.interrupted)
            case ToolStarted():
                self._started.add(event.call.id)
            case ToolFinished():
                self._results[event.result.call_id] = event.result
                self._finish_tools()
            case TurnStarted() | PromptAdded():
                self._settle()
                self.messages.append(event.prompt)
            case TurnFinished():
                for closing in self.closing():
                    self.feed(closing)
            case _:
                pass

    @property
    def unanswered(self) -> tuple[ToolCall, ...]:
        """The calls of the last message that have no result yet."""
        return tuple(call for call in self._calls if call.id not in self._results)

    def has_call(self, call_id: str) -> bool:
        """Whether the step under way has a call of that id already."""
        return any(isinstance(part, ToolCall) and part.id == call_id for part in self._parts.values())

    @property
    def free_index(self) -> int:
        """An index that no part of the step under way has."""
        return 1 + max((*self._open, *self._parts), default=-1)

    def closing(self) -> Iterator[Event]:
        """Yield the events that make a log whole which was cut off here, in order.

        Half an answer is kept and marked; a call whose arguments were still coming is dropped, since
        nothing may run from it; every other call without a result gets an "interrupted" one, which says
        whether it was begun.
        """
        calls = self.unanswered
        if self._step is not None:
            yield from self.closing_parts()
            calls = tuple(part for part in self._in_order() if isinstance(part, ToolCall))
            yield StepFinished(self._step, Usage(), reason="interrupted", interrupted=True)
        for call in calls:
            yield ToolFinished(_interrupted(call, INTERRUPTED if call.id in self._started else NOT_RUN))

    def closing_parts(self) -> Iterator[PartFinished]:
        """Yield what finishes the parts that are still open and worth keeping."""
        for index, part in sorted(self._open.items()):
            text = "".join(part.pieces)
            if text and part.kind != "tool_call":
                yield PartFinished(index, Text(text) if part.kind == "text" else Reasoning(text))

    def _settle(self) -> None:
        """Answer calls that a log which lost a line goes on without answering."""
        for call in self.unanswered:
            self._results[call.id] = _interrupted(call, INTERRUPTED)
        self._finish_tools()

    def _in_order(self) -> tuple[Part, ...]:
        return tuple(part for _, part in sorted(self._parts.items()))

    def _begin(self, step: int) -> None:
        self._step = step
        self._open = {}
        self._parts = {}

    def _finish_step(self, *, interrupted: bool) -> None:
        parts = self._in_order()
        if parts:
            self.messages.append(Message("assistant", parts, interrupted))
        self._calls = tuple(part for part in parts if isinstance(part, ToolCall))
        self._results = {}
        self._started = set()
        self._step = None
        self._open = {}
        self._parts = {}

    def _finish_tools(self) -> None:
        if self._calls and not self.unanswered:
            self.messages.append(Message("tool", tuple(self._results[call.id] for call in self._calls)))
            self._calls = ()


def _interrupted(call: ToolCall, words: str) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(words),), "interrupted")


def fold(events: Iterable[Event]) -> tuple[Message, ...]:
    """Return the messages of a log, closing what was cut off."""
    folded = Fold()
    for event in events:
        folded.feed(event)
    for event in tuple(folded.closing()):
        folded.feed(event)
    return tuple(folded.messages)
