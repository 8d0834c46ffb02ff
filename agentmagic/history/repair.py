"""Repairs messages from other sources, or from a damaged file, so that every provider accepts the history.

Histories made by the agent loop are valid, and are returned unchanged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from agentmagic.errors import UsageError
from agentmagic.events import (
    INTERRUPTED,
    Event,
    PartFinished,
    RunResult,
    StepFinished,
    StepStarted,
    ToolFinished,
    TurnFinished,
    TurnStarted,
)
from agentmagic.messages import (
    HostedCall,
    HostedResult,
    Media,
    Message,
    Part,
    Reasoning,
    Resource,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    user,
)

CONTINUED = "(continued)"
"""Text that replaces the missing prompt of a history that begins in the middle."""

_PARTS: dict[Role, tuple[type[Part], ...]] = {
    "user": (Text, Media, Resource),
    "assistant": (Text, Reasoning, Media, ToolCall, HostedCall, HostedResult),
    "tool": (),  # empty, because tool results are moved separately: each is placed after its call
}


def repair_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages as a history that every provider accepts. A valid history is returned unchanged.

    A call without a result gets a result with the status "interrupted"; a result without a call is dropped. Results are
    placed right after their calls, in the same order. If two calls in a message have the same id, the second gets
    another id. Parts that messages of a role cannot have, and empty messages, are dropped. A history that does not
    begin with the user gets the prompt CONTINUED.
    """
    return repair(messages)[0]


def repair(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """Return the messages as `repair_messages` does, and sentences about the parts that were lost or added.

    Raises UsageError for a message with an unknown role.
    """
    if unknown_role := next((message.role for message in messages if message.role not in _PARTS), None):
        error_text = (
            f"The messages hold one of role {unknown_role!r}. Give the instructions as Agent(instructions=...)."
        )
        raise UsageError(error_text)
    repairing = _Repair()
    for message in messages:
        repairing.take(message)
    repairing.answer()
    return tuple(repairing.out), tuple(repairing.notes())


@dataclass(slots=True)
class _Repair:
    """Repairs a history, message by message. Messages of the user and of tools wait until `answer` places them."""

    out: list[Message] = field(default_factory=list[Message])
    _calls: tuple[ToolCall, ...] = ()
    _original_ids: tuple[str, ...] = ()
    _replies: list[Message] = field(default_factory=list[Message])
    _unanswered: int = 0
    _orphans: int = 0
    _misplaced: int = 0
    _lacks_prompt: bool = False

    def take(self, message: Message) -> None:
        if message.role != "assistant":
            self._replies.append(message)
            return
        self.answer()
        self._original_ids = tuple(call.id for call in message.calls)
        message = _with_own_ids(self._without_misplaced(message))
        if message.parts:
            self._append(message)
            self._calls = message.calls

    def answer(self) -> None:
        """Append the messages that followed the last assistant message. The results of its tool calls come first."""
        results = [part for reply in self._replies for part in reply.parts if isinstance(part, ToolResult)]
        answers = tuple(
            self._result(original_id, call, results)
            for original_id, call in zip(self._original_ids, self._calls, strict=True)
        )
        self._orphans += len(results)
        if answers:
            valid = [reply for reply in self._replies[:1] if reply.role == "tool" and reply.parts == answers]
            self.out += valid or [Message("tool", answers)]
        for reply in self._replies:
            rest = self._without_misplaced(reply)
            if rest.parts:
                self._append(rest)
        self._replies, self._original_ids, self._calls = [], (), ()

    def notes(self) -> Iterator[str]:
        for number, message in (
            (self._unanswered, "Tool calls had no result, and the model is told that they were interrupted"),
            (self._orphans, "Tool results answer no call and were left out"),
            (self._misplaced, "Parts stood in a message that cannot hold them and were left out"),
        ):
            if number:
                yield f"{message}: {number}."
        if self._lacks_prompt:
            yield f'The history did not begin with a prompt; "{CONTINUED}" stands in for it.'

    def _result(self, original_id: str, call: ToolCall, results: list[ToolResult]) -> ToolResult:
        for result in results:
            if result.call_id == original_id:
                results.remove(result)
                return result if original_id == call.id else replace(result, call_id=call.id)
        self._unanswered += 1
        return ToolResult(call.id, call.name, (Text(INTERRUPTED),), "interrupted")

    def _without_misplaced(self, message: Message) -> Message:
        parts = tuple(part for part in message.parts if isinstance(part, _PARTS[message.role]))
        if len(parts) == len(message.parts):
            return message
        self._misplaced += sum(not isinstance(part, (*_PARTS[message.role], ToolResult)) for part in message.parts)
        return replace(message, parts=parts)

    def _append(self, message: Message) -> None:
        if not self.out and message.role != "user":
            self.out.append(user(CONTINUED))
            self._lacks_prompt = True
        self.out.append(message)


def _with_own_ids(message: Message) -> Message:
    ids = [call.id for call in message.calls]
    if len(set(ids)) == len(ids):
        return message
    used_ids, earlier_ids, parts = set(ids), set[str](), list(message.parts)
    for index, part in enumerate(parts):
        if isinstance(part, ToolCall) and part.id in earlier_ids:
            new_id = next(name for number in count(2) if (name := f"{part.id}_{number}") not in used_ids)
            used_ids.add(new_id)
            parts[index] = replace(part, id=new_id, provider_data=None)
        elif isinstance(part, ToolCall):
            earlier_ids.add(part.id)
    return replace(message, parts=tuple(parts))


def unfold(messages: Sequence[Message], model: str = "") -> tuple[tuple[Event, ...], ...]:
    """Return the turns of a history, each as events. `fold` makes the messages of the history from these events.

    The history is repaired first. In the events, the name of the model is `model`.
    """
    turns: list[list[Message]] = []
    for message in repair_messages(messages):
        if message.role == "user":
            turns.append([])
        turns[-1].append(message)
    return tuple(tuple(_log(turn, model)) for turn in turns)


def _log(messages: Sequence[Message], model: str) -> Iterator[Event]:
    events = [TurnStarted(messages[0], model), *_steps(messages[1:], model)]
    answer = messages[-1] if messages[-1].role == "assistant" else None
    result = RunResult(
        final_text=answer.text if answer else "",
        history_delta=tuple(messages),
        events=tuple(events),
        iterations_used=sum(message.role == "assistant" for message in messages),
        timed_out=False,
        # The reason is "answer" even without one, because later requests could omit these messages otherwise.
        stop_reason="cancelled" if answer and answer.interrupted else "answer",
        usage=Usage(),
    )
    yield from (*events, TurnFinished(result))


def _steps(messages: Sequence[Message], model: str) -> Iterator[Event]:
    step = 0
    for message in messages:
        if message.role == "assistant":
            step += 1
            yield StepStarted(step, model)
            for index, part in enumerate(message.parts):
                yield PartFinished(index, part)
            yield StepFinished(step, Usage(), interrupted=message.interrupted)
        for part in message.parts:
            if isinstance(part, ToolResult):
                yield ToolFinished(part)
