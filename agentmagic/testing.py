"""Test doubles and helpers for tests of agents, checks of turns, and exercises in notebooks.

    model = Stalled("Half an ans")
    run = Session(Agent(model)).start("a question")
    model.stalled.wait()
    run.cancel()

    check(session).called("weather", city="Oslo").steps(max=3).answered(r"17")

For a model that gives prepared answers, see `agentmagic.ScriptedModel`.
"""

import asyncio
import inspect
import re
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from itertools import pairwise
from typing import Any, ParamSpec, Self, TypeVar, cast

from agentmagic.errors import AgentMagicError, UsageError
from agentmagic.events import (
    Event,
    PartDelta,
    PartFinished,
    PartStarted,
    RunResult,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from agentmagic.json_schema import problem
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
)
from agentmagic.providers.base import ModelEvent, ModelFinished, Request
from agentmagic.run import Run
from agentmagic.secrets import redact
from agentmagic.session import Session
from agentmagic.text import clip, close_names, join_names, single_line

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 10.0
"""Seconds that a test waits for an event before it fails."""
TRIES_A_HINT = 2
"""Failed attempts at an exercise after which the next hint is shown."""
LONGEST_SHOWN = 200
"""Characters of an answer or a call in the message of a failed check."""


class Stalled:
    """A model that streams a text and then never ends its answer.

    `stalled` is set when the whole text was sent, `closed` when the stream was closed.
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
        """Do nothing, since this model has no connection."""


class Faulty:
    """A model that fails: each of its first requests raises the next given error. It answers all later requests.

    Each failing request first streams `text`, like an answer that breaks off midway. `requests` holds all requests.
    """

    def __init__(self, *errors: Exception, text: str = "", answer: str = "Here is the answer.") -> None:
        self.name = "testing:faulty"
        self.requests: list[Request] = []
        self._errors = list(errors)
        self._text = text
        self._answer = answer

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Raise the next error, or answer if there are no more errors."""
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
        """Do nothing, since this model has no connection."""


class Recorder:
    """A listener that stores the events of a run, and lets other threads wait for them: `run.listen(Recorder())`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        """Store an event, and wake the waiting threads."""
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait_for(self, kind: str, timeout: float = PATIENCE) -> Any:
        """Return the first event of a type, such as "tool_started", and wait for the event if none exists yet.

        Blocks the calling thread. Raises TimeoutError if no such event comes within `timeout` seconds.
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
    """Run a turn and return its result, even if the turn failed or timed out.

    Accepts the options of `Session.start`.
    """
    try:
        return session.ask(prompt, **options)
    except AgentMagicError as error:
        if not isinstance(error.result, RunResult):
            raise
        return error.result


class CheckFailed(AssertionError):
    """Raised when a check of a turn fails. `hint` may help the user; a cell shows the message without a traceback."""

    def __init__(self, words: str, hint: str = "") -> None:
        super().__init__(redact(f"{words} Hint: {hint}" if hint else words))
        self.words = words
        self.hint = hint

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """One check of a turn: `description` describes the check or its failure, `prompt` is the turn's prompt."""

    description: str
    passed: bool
    prompt: str


CHECKS: deque[CheckRecord] = deque(maxlen=1_000)
"""The last checks of this process, for the file that a student hands in."""


class Check:
    """Checks of one turn. Each method returns the `Check` itself, or raises CheckFailed, an AssertionError.

    The error message says what the turn did instead. `hint` adds a hint to the messages of all later checks.
    """

    def __init__(self, result: RunResult) -> None:
        self._result = result
        self._hint = ""
        self._passed: list[str] = []
        self._ran = [event.call for event in result.events if isinstance(event, ToolStarted)]
        self._asked = [call for message in result.history_delta for call in message.calls]
        results = [event.result for event in result.events if isinstance(event, ToolFinished)]
        self._failures = {result.call_id: result.text for result in results if result.is_error}

    def hint(self, text: str) -> Self:
        """Set a hint, which stands at the end of the error message if a later check fails."""
        self._hint = text
        return self

    def called(self, name: str, /, **arguments: Any) -> Self:
        """Check that a tool ran with at least these arguments, and did not fail.

        Each argument is the value that it must have, a compiled pattern that its text must contain, or `...` for any
        value.
        """
        calls = [call for call in self._ran if call.name == name]
        alike = [call for call in calls if not _different_arguments(arguments, call.arguments)]
        if any(call.id not in self._failures for call in alike):
            return self._pass(f"called {name}")
        if alike:
            return self._fail(
                f"{_call_text(alike[-1])} failed. {single_line(self._failures[alike[-1].id], LONGEST_SHOWN)}"
            )
        if calls:
            closest = min(calls, key=lambda call: len(_different_arguments(arguments, call.arguments)))
            expected = ", ".join(
                f"{one}={_value_text(arguments[one])}" for one in _different_arguments(arguments, closest.arguments)
            )
            return self._fail(f"{name} was not called with {expected}. The closest call was {_call_text(closest)}.")
        return self._fail(f"{name} was not called{self._instead_text(name)}")

    def not_called(self, name: str, /) -> Self:
        """Check that a tool did not run."""
        call = next((call for call in self._ran if call.name == name), None)
        return self._pass(f"did not call {name}") if call is None else self._fail(f"{_call_text(call)} was called.")

    def in_order(self, *names: str) -> Self:
        """Check that these tools ran in this order; other tools may have run between them."""
        remaining = iter(ran := [call.name for call in self._ran])
        missing = next((name for name in names if name not in remaining), None)
        if missing is None:
            return self._pass(f"called {', then '.join(names)}")
        return self._fail(
            f"{missing} was not called in the order {', '.join(names)}. The order was: {join_names(ran)}."
        )

    def steps(self, *, max: int) -> Self:  # noqa: A002  (the word that reads best)
        """Check that the turn took at most `max` steps."""
        steps = self._result.iterations_used
        return (
            self._pass(f"{steps} steps")
            if steps <= max
            else self._fail(f"The turn took {steps} steps, more than {max}.")
        )

    def cost(self, *, max: float) -> Self:  # noqa: A002
        """Check that the turn cost at most `max` US dollars. The check fails if the cost is unknown."""
        cost = self._result.usage.cost
        if cost is None:
            return self._fail("The cost of the turn is unknown. Register the model's price with register_model.")
        return (
            self._pass(f"cost ${cost:.4f}")
            if cost <= max
            else self._fail(f"The turn cost ${cost:.4f}, more than ${max}.")
        )

    def answered(self, pattern: str | re.Pattern[str]) -> Self:
        """Check that a regular expression is found in the answer."""
        if re.search(pattern, self._result.final_text):
            return self._pass("answered")
        text = pattern if isinstance(pattern, str) else pattern.pattern
        answer = (
            _value_text(self._result.final_text) if self._result.final_text else f"empty. {self._result.error}".rstrip()
        )
        return self._fail(f"The answer does not match {text!r}. It is {answer}")

    def __repr__(self) -> str:
        return f"<Check passed: {', '.join(self._passed)}>" if self._passed else "<Check of a turn>"

    def _instead_text(self, name: str) -> str:
        """Return what the model did instead of calling the tool `name`, for the end of an error message."""
        if attempt := next((call for call in self._asked if call.name == name), None):
            why = self._failures.get(attempt.id, "")
            reason = single_line(why, LONGEST_SHOWN)
            return f": the model asked for {_call_text(attempt)}, which did not run. {reason}".rstrip()
        if not self._asked:
            return f": no tool was. The answer was {_value_text(self._result.final_text)}"
        close = close_names(name, [call.name for call in self._asked], cutoff=0)
        calls = sorted(self._asked, key=lambda call: call.name not in close)
        return f". Called instead: {join_names([_call_text(call) for call in calls], 3)}."

    def _pass(self, words: str) -> Self:
        self._passed.append(words)
        self._keep(words, passed=True)
        return self

    def _keep(self, words: str, *, passed: bool) -> None:
        start = next((event for event in self._result.events if isinstance(event, TurnStarted)), None)
        CHECKS.append(CheckRecord(words, passed, start.prompt.text if start else ""))

    def _fail(self, words: str) -> Self:
        __tracebackhide__ = True
        self._keep(words, passed=False)
        raise CheckFailed(words, self._hint)


def check(run: RunResult | Run | Session) -> Check:
    """Return a `Check` of a turn.

    `run` is the turn's result, a run, or a session. Of a session, the running turn is checked, else the last turn. The
    function waits for a turn that is not over. Raises UsageError if the session has no turn.
    """
    if isinstance(run, Session):
        run = run.running or _last_result(run)
    if isinstance(run, Run):
        try:
            return Check(run.wait())
        except AgentMagicError as error:
            if not isinstance(error.result, RunResult):
                raise
            return Check(error.result)
    return Check(run)


class Exercise:
    """An exercise of a notebook: its hints, the number of tries until its check passed, and whether it has passed."""

    def __init__(self, name: str, hints: Sequence[str]) -> None:
        self.name = name
        self.hints = hints
        self.tries = 0
        self.passed = False

    @contextmanager
    def attempt(self) -> Generator[None]:
        """Count a try, run the check in the `with` block, and print whether it passed. Exceptions are not passed on."""
        self.tries += not self.passed
        try:
            yield
        except Exception as error:  # noqa: BLE001  (the student's code may raise anything)
            sys.stdout.write(f"Not yet: {redact(self._refusal(error))}\n")
        else:
            self.passed = True
            sys.stdout.write(f"Solved: exercise {self.name}, at try {self.tries}.\n")

    def _refusal(self, error: Exception) -> str:
        """Return why the exercise's check failed, with a hint.

        If the error has a hint, that is the first one. After every two tries, the exercise's next hint replaces it.
        """
        if isinstance(error, CheckFailed):
            words, nudge = error.words, error.hint
        elif isinstance(error, AssertionError):
            words, nudge = str(error) or "The check is not content.", ""
        else:
            exception = f"{type(error).__name__}: {single_line(str(error), LONGEST_SHOWN)}"
            words = f"The check has tried your code, which raised {exception}"
            nudge = "The check tries other inputs than the exercise does. Try some yourself, in a new cell."
        ladder = [hint for hint in (nudge, *self.hints) if hint]
        hint = ladder[min((self.tries - 1) // TRIES_A_HINT, len(ladder) - 1)] if ladder else ""
        return f"{words} Hint: {hint}" if hint else words


EXERCISES: dict[str, Exercise] = {}
"""The exercises of this process by name, for the file that a student hands in."""


def exercise(name: str, *hints: str) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
    """Return a decorator that makes a function the check of an exercise. To fail, the function raises AssertionError.

    The check prints "Solved:", or "Not yet:" with the error and a hint. It raises nothing, so that Run All continues.
    The first hint is that of a failed `expect` or `Check`; after every two more tries, the next of `hints` replaces it.
    If the function is asynchronous, the check must be awaited.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T | None]:
        one = EXERCISES[name] = Exercise(name, hints)

        @wraps(function)
        def run_check(*args: P.args, **kwargs: P.kwargs) -> T | None:
            with one.attempt():
                return function(*args, **kwargs)

        @wraps(function)
        async def run_async_check(*args: P.args, **kwargs: P.kwargs) -> Any:
            with one.attempt():
                return await cast("Any", function(*args, **kwargs))

        return cast("Callable[P, T | None]", run_async_check) if inspect.iscoroutinefunction(function) else run_check

    return decorate


def accepts(session: Session, tool: str, /, **arguments: Any) -> bool:
    """Return whether the arguments fit the parameters of a tool. The tool does not run.

    So a check can ask which values a tool takes, however its types are written. Raises UsageError if the session has
    no tool of that name.
    """
    tools = {one.name: one for one in session.tools}
    if tool not in tools:
        message = f"There is no tool {tool!r:.100}. Tools: {join_names(list(tools))}."
        raise UsageError(message)
    return problem(tool, tools[tool].parameters, arguments) is None


def expect(holds: object, words: str, hint: str = "") -> None:
    """Raise CheckFailed with the message `words` and the hint if `holds` is false."""
    if not holds:
        raise CheckFailed(words, hint)


def _last_result(session: Session) -> RunResult:
    last = session.turns[-1] if session.turns else None
    if last is None or last.result is None:
        message = "The session has no turn that could be checked. Ask something first."
        raise UsageError(message)
    # The result of a turn that was loaded from a file has no events and messages, so they are copied from the turn.
    return replace(last.result, events=last.events, history_delta=last.messages)


def _different_arguments(expected: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of the expected arguments that a tool call lacks or has with another value."""
    return [name for name, value in expected.items() if name not in arguments or not _fits(value, arguments[name])]


def _fits(expected: Any, value: Any) -> bool:
    if isinstance(expected, re.Pattern):
        return bool(cast("re.Pattern[str]", expected).search(str(value)))
    return expected is ... or expected == value


def _call_text(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return clip(f"{call.name}({arguments})", LONGEST_SHOWN)


def _value_text(value: Any) -> str:
    if isinstance(value, re.Pattern):
        return f"/{cast('re.Pattern[str]', value).pattern}/"
    return clip(repr(value), LONGEST_SHOWN)


_PARTS: dict[Role, tuple[type[Part], ...]] = {
    "user": (Text, Media, Resource),
    "assistant": (Text, Reasoning, Media, ToolCall, HostedCall, HostedResult),
    "tool": (ToolResult,),
}


def invalid_history(messages: Sequence[Message]) -> str | None:
    """Return a sentence on why a provider would refuse a history, or None if it is valid."""
    if messages and messages[0].role != "user":
        return f"The history begins with a message of role {messages[0].role}, not with the user's."
    for number, message in enumerate(messages):
        if not message.parts:
            return f"Message {number} is empty."
        for part in message.parts:
            if not isinstance(part, _PARTS[message.role]):
                return f"Message {number}, of role {message.role}, holds a {part.type}."
    return _call_problem(messages)


def _call_problem(messages: Sequence[Message]) -> str | None:
    following = (*messages, Message("user", (Text("the next prompt"),)))
    for number, (message, after) in enumerate(pairwise(following)):
        calls = [call.id for call in message.calls]
        answers = [part.call_id for part in after.parts if isinstance(part, ToolResult)]
        if len(set(calls)) != len(calls):
            return f"Message {number} has two calls of one id: {calls}."
        if calls != answers:
            return f"Message {number} calls {calls}, and the next message answers {answers}."
    return None
