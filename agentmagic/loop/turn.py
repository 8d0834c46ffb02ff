"""One turn: ask the model, carry out its calls, give it the results, until it answers.

The loop emits events and nothing else; its own messages are the fold of what it emitted.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

from agentmagic.agent import TOOL_CHOICES, Agent, BeforeFinish
from agentmagic.approval.approvals import Ask, Permits
from agentmagic.errors import AgentMagicError, InvalidOutput, ProviderError, TurnTimeout, UsageError, said
from agentmagic.events import (
    Event,
    Fold,
    Notice,
    PartFinished,
    PartStarted,
    PromptAdded,
    RunResult,
    StepFinished,
    StepRetried,
    StepStarted,
    StopReason,
    TurnFinished,
    TurnStarted,
)
from agentmagic.loop.budget import BudgetExhausted
from agentmagic.loop.retry import words_of
from agentmagic.loop.step import Steps, TurnContext
from agentmagic.loop.tool_calls import Emit, ToolExecutor
from agentmagic.messages import Message, Text, ToolDef, Usage, user
from agentmagic.output_schema import REPAIRS, Form
from agentmagic.providers.base import FewTools, Model, ModelFinished, Preparing
from agentmagic.runtime.engine import engine
from agentmagic.runtime.timeouts import Deadline, await_with_grace
from agentmagic.secrets import redact
from agentmagic.tools.base import Tool, list_source
from agentmagic.tools.output_cache import READER

T = TypeVar("T")

FURTHER_PROMPTS = 3
"""How often in a turn the `before_finish` hook may send the model on (LOOP-12)."""

CLOSING_PROMPT = (
    "You have reached the limit of steps and can call no more tools. Give your best answer from what was found, "
    "and say what is missing."
)
NO_CLOSING = "The limit of steps was reached before an answer was found."
CUT_CALL = "Not run: the message was cut off at the model's limit of output. Call again, with shorter arguments."
CUT_ANSWER = "The answer was cut off at the model's limit of output. Ask it to go on, or ask for less at once."


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended: its result, the error it should raise if any, and the tools it had."""

    result: RunResult
    error: Exception | None = None
    tools: tuple[ToolDef, ...] = ()


async def run_turn(setup: TurnContext, *, emit: Emit, ask: Ask) -> Outcome:
    """Run one turn to its end, however it ends.

    Events reach `emit` in order, the last one a TurnFinished. Cancelling the task ends the turn within about
    GRACE seconds, and the outcome is still returned: the cancellation is taken as the answer to it.
    """
    return await _TurnLoop(setup, emit, ask).run()


@dataclass(slots=True)
class _TurnLoop:
    setup: TurnContext
    listener: Emit
    ask: Ask
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    events: list[Event] = field(default_factory=list[Event])
    fold: Fold = field(default_factory=Fold)
    prompts: int = 0
    repairs: int = 0
    over: bool = False
    final: str | None = None
    value: Any = None
    spent: str = ""
    started: float = field(default_factory=time.monotonic)
    agent: Agent = field(init=False)
    model: Model = field(init=False)
    deadline: Deadline = field(init=False)
    form: Form | None = field(init=False)
    steps: Steps = field(init=False)

    def __post_init__(self) -> None:
        self.agent, self.model = self.setup.agent, self.setup.model
        self.deadline = Deadline(self.agent.timeout)
        self.form = self.agent.form
        self.steps = Steps(self.setup, self.tools, self.fold, self.emit)

    async def run(self) -> Outcome:
        self.emit(TurnStarted(self.setup.prompt, self.model.name))
        error: Exception | None = None
        try:
            if isinstance(self.model, Preparing):
                await self.model.prepare()
            async with self.deadline:
                reason = await self._steps()
        except BudgetExhausted as spent:
            reason, self.spent = "budget", str(spent)
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
                f"Give it more with timeout= (--timeout in a cell), or ask for less.{self._last_failure()}"
            )
            return "timeout", TurnTimeout(message)
        if isinstance(error, AgentMagicError):
            return "error", error
        wrapped = AgentMagicError(f"The turn failed: {words_of(error)}")
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
            iterations_used=self.steps.number,
            timed_out=reason == "timeout",
            stop_reason=reason,
            usage=self.steps.usage,
            seconds=time.monotonic() - self.started,
            error=redact(said(error)) if error else self.spent,
            value=self.value,
        )
        if isinstance(error, AgentMagicError):
            error.result = result
            error.args = (result.error,)
            _hide_secrets(error)
        self.emit(TurnFinished(result))
        self.over = True
        return Outcome(result, error, tuple(tool.definition for tool in self.tools.values()))

    def emit(self, event: Event) -> None:
        """Tell what happened; a tool that was left behind is not heard any more."""
        if self.over:
            return
        self.fold.feed(event)
        self.events.append(event)
        self.listener(event)
        while self.setup.notices and not isinstance(event, TurnFinished):
            self.emit(self.setup.notices.popleft())

    # -- steps ---------------------------------------------------------------------------------

    async def _steps(self) -> StopReason:
        await self._list_tools()
        self._check_tool_choice()
        permits = Permits(self.setup.gate, self.deadline, self.emit, self.ask)
        calling = ToolExecutor(
            self.tools, permits, self.agent.deps, self.emit, self.agent.max_repeats, self.steps.sample
        )
        choice = first = self.agent.tool_choice
        for _ in range(self.agent.max_iterations):
            response = await self.steps.take(choice)
            reason = await self._act(calling, response, choice)
            if reason:
                return reason
            choice = "none" if first == "none" else "auto"
        return await self._limit(calling)

    async def _act(self, calling: ToolExecutor, response: ModelFinished, choice: str) -> StopReason | None:
        """Do what a response asks for; return why the turn is over, or None where it goes on."""
        calls = self.fold.unanswered
        if not calls:
            return None if await self._goes_on(response) else "answer"
        if not self.setup.toolsets:
            calling.refuse(calls, "There are no tools in this conversation; answer without one.")
            return "no_tools"
        if choice == "none":
            calling.refuse(calls, "No tool may be called in this turn; answer without one.")
        elif response.cut:
            calling.refuse(calls, CUT_CALL)
        else:
            self.final = await calling.carry_out(calls)
        return None if self.final is None else "done"

    async def _goes_on(self, response: ModelFinished) -> bool:
        """Whether the model is sent on although it has answered: to mend the form, or by the user's hook."""
        answer = self.fold.messages[-1]
        if response.cut:
            self.emit(Notice("warning", CUT_ANSWER))
        words = self._repair() or await self._hook(answer)
        if words:
            self.emit(PromptAdded(user(words)))
        return bool(words)

    def _repair(self) -> str | None:
        """Take the value from an answer of a given form; return what to say where it has another.

        Raises InvalidOutput where it was said often enough.
        """
        if self.form is None:
            return None
        self.value = None
        try:
            self.value = self._read(self.form)
        except InvalidOutput as error:
            if self.repairs == REPAIRS:
                raise
            self.repairs += 1
            return f"{error} Send the whole answer again, as JSON of that form."
        return None

    def _read(self, form: Form) -> Any:
        try:
            return form.read(self.fold.messages[-1].text)
        except ValueError as error:
            message = f"The answer does not have the form that was asked for: {redact(str(error))}."
            raise InvalidOutput(message) from None

    async def _hook(self, answer: Message) -> str | None:
        hook = self.agent.before_finish
        if hook is None or self.prompts == FURTHER_PROMPTS:
            return None
        try:
            words = await await_with_grace(_heard(hook, answer))
        except Exception as error:
            raise UsageError(f"The before_finish hook failed: {words_of(error)}") from error
        if words is not None and not isinstance(words, str):
            raise UsageError(f"The before_finish hook returned {words!r:.80}. Return a prompt to go on with, or None.")
        self.prompts += bool(words)
        return words

    async def _list_tools(self) -> None:
        for tools, problems in await await_with_grace(_all(map(list_source, self.setup.toolsets))):
            for problem in problems:
                self.emit(Notice("warning", redact(f"This turn runs without a tool server. {problem}")))
            for tool in tools:
                if tool.name == READER:
                    words = (
                        f"{READER} is the name of the tool that reads on in long results. Yours is left out; rename it."
                    )
                    self.emit(Notice("warning", words))
                elif self.tools.setdefault(tool.name, tool) is not tool:
                    self.emit(Notice("warning", f"Two tools are named {tool.name}; the first of them is used."))
        if isinstance(self.model, FewTools):
            definitions = [tool.definition for tool in self.tools.values()]
            self._keep(self.model.choose(definitions, self.setup.prompt.text))

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

    # -- the limit -----------------------------------------------------------------------------

    async def _limit(self, calling: ToolExecutor) -> StopReason:
        """Close a turn that used up its steps with a last answer from what was found."""
        limit = self.agent.max_iterations
        self.emit(Notice("warning", f"The limit of {limit} steps is reached. Raise max_iterations to allow more."))
        if self.agent.on_limit == "stop":
            return "limit"
        try:
            await self.steps.take("none", user(CLOSING_PROMPT), closing=True)
        except ProviderError as error:
            self.emit(Notice("warning", redact(f"The closing answer failed: {error}")))
            self._close_without_answer()
            return "limit"
        if calls := self.fold.unanswered:
            calling.refuse(calls, NO_CLOSING)
            self.final = self.fold.messages[-2].text.strip() or NO_CLOSING
        elif self.form is not None:
            self.value = self._read(self.form)
        return "limit"

    def _close_without_answer(self) -> None:
        for part in tuple(self.fold.closing_parts()):
            self.emit(part)
        index = self.fold.free_index
        self.emit(PartStarted(index, "text"))
        self.emit(PartFinished(index, Text(NO_CLOSING)))
        self.emit(StepFinished(self.steps.number, Usage(), "failed"))


async def _heard(hook: BeforeFinish, answer: Message) -> object:
    """Call the hook, in the main thread of a kernel where it is synchronous."""
    if inspect.iscoroutinefunction(hook):
        return await hook(answer)
    words = await engine().run_user(partial(hook, answer))
    return await words if inspect.isawaitable(words) else words


async def _all(listings: Iterable[Awaitable[T]]) -> Sequence[T]:
    """Await all; none goes on where one fails."""
    tasks = [asyncio.ensure_future(listing) for listing in listings]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _hide_secrets(error: BaseException) -> None:
    """Take the causes of an error away where one of them holds a secret: a traceback would show it."""
    causes = [cause for cause in (error.__cause__, error.__context__) if cause is not None]
    if any(redact(words) != words for words in map(said, _tree(causes))):
        error.__cause__, error.__suppress_context__ = None, True


def _tree(errors: Sequence[BaseException]) -> list[BaseException]:
    """Return errors, their causes and the members of their groups, each once."""
    found: list[BaseException] = []
    waiting = list(errors)
    while waiting:
        error = waiting.pop()
        if any(error is known for known in found):
            continue
        found.append(error)
        members = cast("Sequence[BaseException]", error.exceptions) if isinstance(error, BaseExceptionGroup) else ()
        waiting += [one for one in (error.__cause__, error.__context__, *members) if one is not None]
    return found


def _take_cancellation() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
