"""What the tests of saved conversations share: whole turns, and journals of them."""

from agentmagic.events import (
    RunResult,
    StepFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    fold,
    without_deltas,
)
from agentmagic.history.journal import Journal
from agentmagic.messages import Text, ToolCall, ToolResult, Usage, user
from tests.logs import CALL, RESULT, STARTED, step


def whole(*events, reason="answer"):
    """A turn of its events, ended."""
    messages = fold(events)
    usage = sum((event.usage for event in events if isinstance(event, StepFinished)), Usage())
    return (*events, TurnFinished(RunResult(messages[-1].text, messages, tuple(events), 1, False, reason, usage)))


def answered(prompt, answer):
    """A turn of a prompt and an answer, without deltas."""
    return whole(TurnStarted(user(prompt), "scripted:script"), *without_deltas(step(1, Text(answer))))


ADDED = whole(
    STARTED,
    *without_deltas(step(1, Text("Let me add."), CALL)),
    ToolStarted(CALL, "notebook"),
    ToolFinished(RESULT, 0.1),
    *without_deltas(step(2, Text("It is 3."))),
)
"""A turn with a call, without deltas."""

PAY = ToolCall("p1", "pay", {"amount": 5})
PAID = ToolFinished(ToolResult("p1", "pay", (Text("paid"),)))
PAYING = [*step(1, PAY), ToolStarted(PAY, "bank")]
"""The steps of a turn up to a call that is under way."""


def journal(path, told=None):
    """A journal that keeps what it tells in a list."""
    return Journal(path, tell=(told if told is not None else []).append)


def written(path, *events):
    """The path of a journal that holds the events."""
    made = journal(path)
    for event in events:
        made.write(event)
    made.close()
    assert not made.problem
    return path
