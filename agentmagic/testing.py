"""Doubles and helpers for tests of agents, ours and yours.

    model = Stalled("Half an ans")
    run = Session(Agent(model)).start("a question")
    model.stalled.wait()
    run.cancel()

The model that plays a script is `agentmagic.ScriptedModel`.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

from agentmagic.errors import AgentMagicError
from agentmagic.events import Event, PartDelta, PartFinished, PartStarted, RunResult
from agentmagic.messages import Media, Message, Part, Reasoning, Resource, Role, Text, ToolCall, ToolResult, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished, Request
from agentmagic.session import Session

PATIENCE = 10.0
"""Seconds that a test waits for an event before it fails."""


class Stalled:
    """A model that streams a text and then never ends its answer.

    `stalled` is set when the text is out, `closed` when its stream was closed.
    """

    def __init__(self, text: str = "") -> None:
        self.name = "testing:stalled"
        self.stalled = threading.Event()
        self.closed = threading.Event()
        self._text = text

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:  # noqa: ARG002  (every answer is the same)
        """Stream the text, then wait until the stream is closed."""
        try:
            if self._text:
                yield PartStarted(0, "text")
                yield PartDelta(0, self._text)
            self.stalled.set()
            await asyncio.Event().wait()
        finally:
            self.closed.set()

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""


class Faulty:
    """A model that fails with the given errors, one for each request, and then answers.

    Each failing request streams `text` first, so that its answer breaks off midway. `requests` holds all requests.
    """

    def __init__(self, *errors: Exception, text: str = "", answer: str = "Here is the answer.") -> None:
        self.name = "testing:faulty"
        self.requests: list[Request] = []
        self._errors = list(errors)
        self._text = text
        self._answer = answer

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Fail with the next error, or answer if none is left."""
        self.requests.append(request)
        error = self._errors.pop(0) if self._errors else None
        words = self._answer if error is None else self._text
        if words:
            yield PartStarted(0, "text")
            yield PartDelta(0, words)
        if error is not None:
            raise error
        yield PartFinished(0, Text(words))
        yield ModelFinished(Usage(), "stop")

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""


class Recorder:
    """A listener that keeps the events of a run, and lets other threads wait for one: `run.listen(Recorder())`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        """Keep an event."""
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait_for(self, kind: str, timeout: float = PATIENCE) -> Any:
        """Return the first event of a type, "tool_started" for example, and wait for it if need be.

        Blocks the calling thread. Raises TimeoutError if none comes in `timeout` seconds.
        """

        def first() -> Event | None:
            return next((event for event in self.events if event.type == kind), None)

        with self._changed:
            event = self._changed.wait_for(first, timeout)
        if event is None:
            message = f"No event {kind!r} came in {timeout:g} s, only {[event.type for event in self.events]}."
            raise TimeoutError(message)
        return event


def run(session: Session, prompt: str, **options: Any) -> RunResult:
    """Run a turn and return its result, also if the turn failed or ran out of time.

    Takes the options of `Session.start`.
    """
    try:
        return session.ask(prompt, **options)
    except AgentMagicError as error:
        if not isinstance(error.result, RunResult):
            raise
        return error.result


_PARTS: dict[Role, tuple[type[Part], ...]] = {
    "user": (Text, Media, Resource),
    "assistant": (Text, Reasoning, Media, ToolCall),
    "tool": (ToolResult,),
}


def invalid_history(messages: Sequence[Message]) -> str | None:
    """Return in a sentence why a provider would refuse a history, or None."""
    if messages and messages[0].role != "user":
        return f"The history begins with a message of role {messages[0].role}, not with the user's."
    for number, message in enumerate(messages):
        if not message.parts:
            return f"Message {number} is empty."
        for part in message.parts:
            if not isinstance(part, _PARTS[message.role]):
                return f"Message {number}, of role {message.role}, holds a {part.type}."
    return _unanswered(messages)


def _unanswered(messages: Sequence[Message]) -> str | None:
    following = (*messages, Message("user", (Text("the next prompt"),)))
    for number, (message, after) in enumerate(pairwise(following)):
        calls = [call.id for call in message.calls]
        answers = [part.call_id for part in after.parts if isinstance(part, ToolResult)]
        if len(set(calls)) != len(calls):
            return f"Message {number} has two calls of one id: {calls}."
        if calls != answers:
            return f"Message {number} calls {calls}, and the next message answers {answers}."
    return None
