"""One turn: ask the model, carry out its calls, give it the results, until it answers.

The loop emits events and nothing else; its own messages are the fold of what it emitted.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from agentmagic.agent import TOOL_CHOICES, Agent
from agentmagic.calls import Ask, Calling, Emit
from agentmagic.deadline import Deadline, being_cancelled
from agentmagic.errors import AgentMagicError, ProviderError, TurnTimeout, UsageError
from agentmagic.events import (
    TRIES,
    Event,
    Notice,
    PartDelta,
    PartFinished,
    PartStarted,
    RunResult,
    StepFinished,
    StepRetried,
    StepStarted,
    StopReason,
    TurnFinished,
    TurnStarted,
)
from agentmagic.fold import Fold
from agentmagic.messages import Message, Text, ToolCall, ToolDef, Usage, user
from agentmagic.permission import Policy
from agentmagic.providers.base import FewTools, Model, ModelEvent, ModelFinished, Preparing, Request
from agentmagic.providers.registry import priced
from agentmagic.redact import redact
from agentmagic.tools.base import Tool, Toolset

FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds before the first retry, doubling up to the longest; each with up to a second of jitter."""
LONGEST_RETRY_AFTER = 120.0
"""Seconds a provider may ask to wait; beyond, the turn fails at once and says so."""

CLOSING_PROMPT = (
    "You have reached the limit of steps and can call no more tools. Give your best answer from what was found, "
    "and say what is missing."
)
NO_CLOSING = "The limit of steps was reached before an answer was found."


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended: its result, the error it should raise if any, and the tools it had."""

    result: RunResult
    error: Exception | None = None
    tools: tuple[ToolDef, ...] = ()


async def run_turn(  # noqa: PLR0913  (what a turn is made of, and whom it talks to)
    agent: Agent,
    model: Model,
    toolsets: Sequence[Toolset],
    past: Sequence[Message],
    prompt: Message,
    *,
    emit: Emit,
    ask: Ask,
    policy: Policy,
    notices: Sequence[str] = (),
) -> Outcome:
    """Run one turn to its end, however it ends.

    `notices` are told right after the start. Events reach `emit` in order, the last one a TurnFinished.
    Cancelling the task ends the turn within about GRACE seconds, and the outcome is still returned: the
    cancellation is taken as the answer to it.
    """
    return await _Turn(agent, model, toolsets, past, prompt, emit, ask, policy, notices).run()


@dataclass(slots=True)
class _Turn:
    agent: Agent
    model: Model
    toolsets: Sequence[Toolset]
    past: Sequence[Message]
    prompt: Message
    listener: Emit
    ask: Ask
    policy: Policy
    notices: Sequence[str]
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    events: list[Event] = field(default_factory=list[Event])
    fold: Fold = field(default_factory=Fold)
    usage: Usage = field(default_factory=Usage)
    steps: int = 0
    over: bool = False
    final: str | None = None
    started: float = field(default_factory=time.monotonic)
    deadline: Deadline = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = Deadline(self.agent.timeout)

    async def run(self) -> Outcome:
        self.emit(TurnStarted(self.prompt, self.model.name))
        for words in self.notices:
            self.emit(Notice("info", words))
        error: Exception | None = None
        try:
            if isinstance(self.model, Preparing):
                await self.model.prepare()
            async with self.deadline:
                reason = await self._steps()
        except asyncio.CancelledError:
            reason = "cancelled"
            _take_cancellation()
        except Exception as failed:  # noqa: BLE001  (a turn always ends with TurnFinished, whatever failed)
            reason, error = self._failed(failed)
        return self._settle(reason, error)

    def _failed(self, error: Exception) -> tuple[StopReason, Exception]:
        if self.deadline.expired:
            message = (
                f"The turn took longer than {self.agent.timeout:g} s and was stopped; what was finished is kept. "
                f"Give it more with timeout=, or ask for less.{self._last_failure()}"
            )
            return "timeout", TurnTimeout(message)
        if isinstance(error, AgentMagicError):
            return "error", error
        wrapped = AgentMagicError(f"The turn failed: {_words(error)}")
        wrapped.__cause__ = error
        return "error", wrapped

    def _last_failure(self) -> str:
        """Say what the last try failed of, where the time ran out between two tries."""
        steps = [event for event in self.events if isinstance(event, (StepStarted, StepRetried))]
        return f" The last try failed: {steps[-1].error}" if steps and isinstance(steps[-1], StepRetried) else ""

    def _settle(self, reason: StopReason, error: Exception | None) -> Outcome:
        for closing in tuple(self.fold.closing()):
            self.emit(closing)
        delta = tuple(self.fold.messages)
        answer = delta[-1].text if delta[-1].role == "assistant" else ""
        result = RunResult(
            final_text=answer if self.final is None else self.final,
            history_delta=delta,
            events=tuple(self.events),
            iterations_used=self.steps,
            timed_out=reason == "timeout",
            stop_reason=reason,
            usage=self.usage,
            seconds=time.monotonic() - self.started,
            error=redact(str(error)) if error else "",
        )
        if isinstance(error, AgentMagicError):
            error.result = result
            _hide_secrets(error)
        self.emit(TurnFinished(result))
        self.over = True
        return Outcome(result, error, tuple(tool.definition for tool in self.tools.values()))

    def emit(self, event: Event) -> None:
        """Tell what happened; a tool that was left behind is not heard any more."""
        if self.over:
            return
        self.fold.feed(event)
        if isinstance(event, StepFinished):
            self.usage += event.usage
        self.events.append(event)
        self.listener(event)

    async def _steps(self) -> StopReason:
        await self._list_tools()
        self._check_tool_choice()
        calling = Calling(self.tools, self.policy, self.deadline, self.agent.deps, self.emit, self.ask)
        while self.steps < self.agent.max_iterations:
            self.steps += 1
            choice = self.agent.tool_choice if self.steps == 1 or self.agent.tool_choice == "none" else "auto"
            calls = await self._step(self._request(choice))
            if not calls:
                return "answer"
            if not self.toolsets:
                calling.refuse(calls, "There are no tools in this conversation; answer without one.")
                return "no_tools"
            if choice == "none":
                calling.refuse(calls, "No tool may be called in this turn; answer without one.")
                continue
            self.final = await calling.carry_out(calls)
            if self.final is not None:
                return "done"
        return await self._limit(calling)

    async def _list_tools(self) -> None:
        for tools in await _all(source.tools() for source in self.toolsets):
            for tool in tools:
                if self.tools.setdefault(tool.name, tool) is not tool:
                    self.emit(Notice("warning", f"Two tools are named {tool.name}; the first of them is used."))
        if isinstance(self.model, FewTools):
            self._keep(self.model.choose([tool.definition for tool in self.tools.values()], self.prompt.text))

    def _keep(self, kept: Sequence[ToolDef]) -> None:
        names = {self.agent.tool_choice, *(definition.name for definition in kept)}
        left_out = [name for name in self.tools if name not in names]
        for name in left_out:
            del self.tools[name]
        if left_out:
            words = f"{self.model.name} can handle {len(kept)} tools. Left out: {', '.join(left_out)}."
            self.emit(Notice("warning", words))

    def _check_tool_choice(self) -> None:
        choice = self.agent.tool_choice
        if choice not in TOOL_CHOICES and choice not in self.tools:
            known = ", ".join((*TOOL_CHOICES, *self.tools))
            message = f"tool_choice is {choice!r}, and there is no such tool. Choose one of {known}."
            raise UsageError(message)

    def _request(self, tool_choice: str, *extra: Message) -> Request:
        definitions = tuple(tool.definition for tool in self.tools.values())
        messages = (*self.past, *self.fold.messages, *extra)
        return Request(messages, self.agent.instructions, definitions, tool_choice)

    async def _step(self, request: Request, *, closing: bool = False) -> tuple[ToolCall, ...]:
        """Send one request, again where that may help; return the calls of the response."""
        self.emit(StepStarted(self.steps, self.model.name, closing))
        await asyncio.sleep(0)  # a model and tools that never wait must not keep a cancel out
        began = time.monotonic()
        finished: ModelFinished = await cast("Any", self._retrying())(self._stream, request)
        usage = priced(self.model.name, replace(finished.usage, requests=1))
        self.emit(StepFinished(self.steps, usage, finished.reason, time.monotonic() - began))
        return self.fold.unanswered

    async def _stream(self, request: Request) -> ModelFinished:
        """Tell the parts of one response as they come; every failure of the model is a ProviderError."""
        finished = None
        try:
            async with aclosing(cast("AsyncGenerator[ModelEvent]", self.model.stream(request))) as stream:
                async for event in stream:
                    if isinstance(event, ModelFinished):
                        finished = event
                    else:
                        self.emit(self._with_own_id(event))
        except Exception as error:
            if being_cancelled():  # a failure that comes of being cut off is no failure to retry
                raise asyncio.CancelledError from error
            if isinstance(error, AgentMagicError):
                raise
            raise ProviderError(f"{self.model.name} failed: {_words(error)}") from error
        if finished is None:
            message = f"{self.model.name} ended its answer without a closing event."
            raise ProviderError(message)
        return finished

    def _with_own_id(self, event: PartStarted | PartDelta | PartFinished) -> Event:
        """Give a call that has another's id one of its own: results are told apart by it."""
        if not isinstance(event, PartFinished) or not isinstance(event.part, ToolCall):
            return event
        if not self.fold.has_call(event.part.id):
            return event
        return replace(event, part=replace(event.part, id=f"call_{uuid.uuid4().hex}", provider_data=None))

    def _retrying(self) -> AsyncRetrying:
        return AsyncRetrying(
            stop=stop_after_attempt(TRIES),
            wait=_wait,
            retry=retry_if_exception(_may_help),
            before_sleep=self._say_retry,
            reraise=True,
        )

    def _say_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        delay = state.next_action.sleep if state.next_action else 0.0
        self.emit(StepRetried(self.steps, state.attempt_number, delay, redact(str(error))))

    async def _limit(self, calling: Calling) -> StopReason:
        """Close a turn that used up its steps with a last answer from what was found."""
        limit = self.agent.max_iterations
        self.emit(Notice("warning", f"The limit of {limit} steps is reached. Raise max_iterations to allow more."))
        if self.agent.on_limit == "stop":
            return "limit"
        try:
            calls = await self._step(self._request("none", user(CLOSING_PROMPT)), closing=True)
        except ProviderError as error:
            self.emit(Notice("warning", redact(f"The closing answer failed: {error}")))
            self._close_without_answer()
            return "limit"
        if calls:
            calling.refuse(calls, NO_CLOSING)
            self.final = NO_CLOSING
        return "limit"

    def _close_without_answer(self) -> None:
        for part in tuple(self.fold.closing_parts()):
            self.emit(part)
        index = self.fold.free_index
        self.emit(PartStarted(index, "text"))
        self.emit(PartFinished(index, Text(NO_CLOSING)))
        self.emit(StepFinished(self.steps, Usage(), "failed"))


async def _all(listings: Iterable[Awaitable[Sequence[Tool]]]) -> Sequence[Sequence[Tool]]:
    """Await all; none goes on where one fails."""
    tasks = [asyncio.ensure_future(listing) for listing in listings]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _hide_secrets(error: BaseException) -> None:
    """Take a cause away whose words hold a secret: a traceback would show it."""
    cause = error.__cause__ or error.__context__
    if cause is not None and redact(str(cause)) != str(cause):
        error.__cause__, error.__suppress_context__ = None, True
    elif cause is not None:
        _hide_secrets(cause)


def _take_cancellation() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _words(error: Exception) -> str:
    return redact(f"{type(error).__name__}: {error}")


def _may_help(error: BaseException) -> bool:
    """Whether sending the same request again may help."""
    if not isinstance(error, ProviderError) or not error.retryable:
        return False
    return error.retry_after is None or error.retry_after <= LONGEST_RETRY_AFTER


_backoff = wait_exponential(multiplier=FIRST_WAIT, max=LONGEST_WAIT) + wait_random(0, 1)


def _wait(state: RetryCallState) -> float:
    """Return the seconds before the next try: what the provider asked for, else backoff with jitter."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, ProviderError) else None
    return _backoff(state) if asked is None else asked
