"""Run one turn: ask the model, carry out its tool calls, send it the results, until the model answers.

Events are the only output of this agent loop. The messages that it sends to the model are computed from those events.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from agentmagic import log, traces
from agentmagic.agent import REPAIRS, TOOL_CHOICES, has_default_timeout
from agentmagic.approval.approvals import Ask, Gate, ask_no_one
from agentmagic.approval.policy import policy_of
from agentmagic.context.project_questions import NO, YES, is_yes
from agentmagic.errors import AgentMagicError, InvalidOutput, ProviderError, TurnTimeout, UsageError, code_of, describe
from agentmagic.events import (
    Event,
    Fold,
    InnerEvent,
    Level,
    Notice,
    PartFinished,
    PartStarted,
    PromptAdded,
    QuestionAsked,
    RunResult,
    StepFinished,
    StepRetried,
    StepStarted,
    StopReason,
    TurnFinished,
    TurnStarted,
    VariablesChanged,
    Working,
    as_inner_event,
    is_delta,
)
from agentmagic.loop.budgets import BudgetExhausted
from agentmagic.loop.hosting import settle_hosted
from agentmagic.loop.planning import Planner
from agentmagic.loop.retry import error_text, hide_secrets
from agentmagic.loop.step import Steps
from agentmagic.loop.stepping import Stepper
from agentmagic.loop.tool_calls import Emit, ToolExecutor
from agentmagic.loop.turn_context import OuterTurn, TurnContext
from agentmagic.messages import Message, Text, ToolCall, ToolDef, Usage, user
from agentmagic.plan import PlanOptions
from agentmagic.providers.base import FewTools, ModelFinished, OutputSchema, Preparing, busy_with
from agentmagic.providers.finish_reasons import unknown_end
from agentmagic.runtime.engine import engine, void
from agentmagic.runtime.timeouts import GRACE, Deadline, await_with_grace
from agentmagic.secrets import redact
from agentmagic.text import did_you_mean, encodable, encodable_value
from agentmagic.tools.base import Choosing, Tool, current_tools, list_source, new_problems, notices_of
from agentmagic.tools.output_cache import READER
from agentmagic.undo.changes import Changes, summarize

T = TypeVar("T")

FURTHER_PROMPTS = 3
"""How often in a turn the `before_finish` hook may send the model another prompt."""

CLOSING_PROMPT = (
    "You have reached the limit of steps and can call no more tools. Give your best answer from what was found, "
    "and say what is missing."
)
NO_CLOSING = "The limit of steps was reached before an answer was found."
CUT_CALL = "Not run: the message was cut off at the model's limit of output. Call again, with shorter arguments."
CUT_ANSWER = "The answer was cut off at the model's limit of output. Ask it to go on, or ask for less at once."
CUT_VALUE = (
    "The value was cut off at the model's limit of output. Raise max_output_tokens (--set max_output_tokens=N), or ask "
    "for less at once."
)


@dataclass(frozen=True, slots=True)
class Channel:
    """What a run gives its turn: the events so far, a function that emits an event, and one that asks the user.

    The run owns `events`. The turn only reads them, and builds its result from them at the end. `ask_inside` asks the
    user for the turns of agent tools, which are recorded separately; if it is None, `ask` is used.
    """

    events: Sequence[Event]
    emit: Emit
    ask: Ask = ask_no_one
    ask_inside: Ask | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a turn ended: its result, the error to raise if any, the tools it had, and what the tools changed.

    `ending` is the end of the model's response that is the answer, also of an answer without the requested form. It is
    None if the turn ended without such a response. If the turn has no error, and its agent an `output` type, then the
    result's value is the model's answer if there is an `ending`, even if this value is None.
    """

    result: RunResult
    error: Exception | None = None
    tools: tuple[ToolDef, ...] = ()
    changes: Sequence[Changes] = ()
    ending: ModelFinished | None = None


async def run_turn(turn: TurnContext, channel: Channel) -> Outcome:
    """Run one turn to its end and return its outcome, even if it failed or was cancelled.

    Events are emitted in order, and the last one is a TurnFinished. If the task is cancelled, the turn ends: running
    work gets `GRACE` seconds to end, agent tools twice that. The outcome is still returned; no caller is cancelled.
    """
    return await TurnLoop(turn, channel).run()


@dataclass
class TurnLoop:
    """Runs one turn: emits its events, keeps its timeout, takes its steps, and ends it.

    This class sends the model another request after each round of tool calls. For an outside agent with a loop of its
    own, a subclass replaces how the turn is prepared and how its steps are taken.
    """

    turn: TurnContext
    channel: Channel
    tools: dict[str, Tool] = field(default_factory=dict[str, Tool])
    fold: Fold = field(default_factory=Fold)
    prompts: int = 0
    repairs: int = 0
    over: bool = False
    final: str | None = None
    value: Any = None
    ending: ModelFinished | None = None
    exhausted_budget: str = ""
    span: traces.TraceSpan = traces.NOTHING
    started: float = field(default_factory=time.monotonic)
    deadline: Deadline = field(init=False)
    steps: Steps = field(init=False)
    executor: ToolExecutor = field(init=False)

    def __post_init__(self) -> None:
        agent = self.turn.agent
        around = None if self.turn.around is None else self.turn.around.gate
        self.deadline = Deadline(agent.timeout, None if around is None else around.deadline)
        policy = policy_of(agent.permission)
        gate = Gate(policy, self.turn.approvals, self.deadline, self.emit, self.channel.ask, outer=around)
        self.equip(gate)

    def equip(self, gate: Gate) -> None:
        """Create the objects that take the steps and carry out the calls; `gate` decides each call."""
        agent, stepper = self.turn.agent, Stepper(gate, self.turn.step)
        self.steps = Steps(self.turn, self.tools, self.fold, self.emit, stepper)
        sample, watcher = self.steps.sample, self.turn.watcher
        self.executor = ToolExecutor(
            self.tools,
            gate,
            agent.deps,
            self.emit,
            agent.max_repeats,
            sample,
            stepper,
            watcher,
            self.turn.row is not None,
            self.turn.caller,
            self._outer_of,
        )

    def _outer_of(self, call: ToolCall) -> OuterTurn:
        """Return this turn as the OuterTurn for the agent turn that `call` begins."""
        executor, stepper = self.executor, self.executor.stepper
        return OuterTurn(
            turn=self.turn,
            gate=executor.gate,
            tell=lambda event: self.emit(as_inner_event(call.id, event)),
            ask=self.channel.ask_inside or self.channel.ask,
            keep=executor.changes.extend,
            meters=self.steps.meters,
            steps=stepper is not None and stepper.on,
        )

    async def prepare(self) -> None:
        """Load the model before the turn's timeout starts, because its first use may download a gigabyte."""
        if isinstance(self.turn.model, Preparing):
            self.emit(Working("loading the model"))
            with self._hearing_preparation():
                await self.turn.model.prepare()
            self.emit(Working("listing the tools"))

    @contextmanager
    def _hearing_preparation(self) -> Generator[None]:
        """Show what the model tells with `busy_with`, in any thread, until the `with` block ends."""
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def show(text: str) -> None:
            if not over.is_set():  # a download thread can end later than its turn, which was cancelled
                self.emit(Working(text))

        token = busy_with.set(lambda text: void(loop.call_soon_threadsafe(show, text)))
        try:
            yield
        finally:
            over.set()
            busy_with.reset(token)

    async def run(self) -> Outcome:
        """Run the turn to its end, and return its outcome."""
        if self.turn.caller:  # the call of an outside program has its own trace span
            return await self._run()
        account, model, on_tape = self.turn.account, self.turn.model.name, self.turn.tape is not None
        with traces.invoke_agent(account.name, model, account.conversation, on_tape=on_tape) as self.span:
            return await self._run()

    async def _run(self) -> Outcome:
        self.emit(TurnStarted(self.turn.prompt, self.turn.model.name, self.turn.values, self.turn.name))
        error: AgentMagicError | None = None
        try:
            await self.prepare()
            async with self.deadline:
                reason = await self.take_steps()
        except BudgetExhausted as spent:
            reason, self.exhausted_budget = "budget", str(spent)
        except asyncio.CancelledError:
            reason = "cancelled"
            take_cancellation()
        except Exception as failed:  # noqa: BLE001  (a turn ends with TurnFinished after any failure)
            reason, error = self._failure_reason(failed)
        await self._tell_changes()
        return self._settle(reason, error)

    async def _tell_changes(self) -> None:
        """Emit what the tools changed in the notebook.

        Wait for a tool that was just interrupted, but no longer than `GRACE` seconds.
        """
        if running := [one for one in self.executor.changes if not one.settled.is_set()]:
            await engine().in_pool(lambda: running[-1].wait(GRACE))
        if (changes := self.turn_changes(summarize(self.executor.changes))) is not None:
            for closing in tuple(self.fold.closing()):  # first give open calls their results
                self.emit(closing)
            self.emit(changes)

    def turn_changes(self, changes: VariablesChanged | None) -> VariablesChanged | None:
        """Return the changes to report, or None. Subclasses can add to `changes`, which the turn's tools made."""
        return changes

    def emit(self, event: Event) -> None:
        """Emit an event of the turn. After the end of the turn, events of tools that still run are dropped."""
        if self.over:
            return
        if not isinstance(event, (InnerEvent, TurnFinished)):  # these hold events that were emitted before
            event = encodable_value(event)  # here, so that each reader can encode the texts of programs and tools
        if isinstance(event, PartFinished):
            event = self.steps.own_id(event)
        if self.turn.tape is not None and not isinstance(event, TurnFinished):
            event = self.turn.tape(event)
        self.fold.feed(event)
        if not is_delta(event):
            self.turn.history.record(event)  # write it to disk before any listener acts on it
            log.event(event)
        self.channel.emit(event)
        while self.turn.notices and not isinstance(event, TurnFinished):
            self.emit(self.turn.notices.popleft())

    def warn(self, message: str) -> None:
        """Emit a warning that is about this turn. For a setting, a tool or a server, use `warn_once`."""
        self.emit(Notice("warning", message))

    def warn_once(self, notices: Iterable[str], level: Level = "warning") -> None:
        """Emit those notices that no earlier turn of the session has emitted, and no turn inside or around it."""
        for notice in self.turn.seen_notices.new(notices):
            self.emit(Notice(level, redact(notice)))

    # -- the end -------------------------------------------------------------------------------

    def _failure_reason(self, error: Exception) -> tuple[StopReason, AgentMagicError]:
        if self.deadline.expired:
            return "timeout", TurnTimeout(self.timeout_message())
        if isinstance(error, TurnTimeout):  # raised in the replay of a turn that timed out
            return "timeout", error
        if isinstance(error, AgentMagicError):
            return "error", error
        failure = AgentMagicError(f"The turn failed: {error_text(error)}")
        failure.__cause__ = error
        return "error", failure

    def timeout_message(self) -> str:
        """Return the message for a turn that ran out of time."""
        return (
            f"The turn took longer than {self.turn.agent.timeout:g} s and was stopped; what was finished is kept. "
            f"Give it more with timeout= (--timeout in a cell), or ask for less.{self._last_failure()}"
        )

    def _last_failure(self) -> str:
        """Return a sentence about the last failed request if time ran out before it was sent again, else ""."""
        steps = (event for event in reversed(self.channel.events) if isinstance(event, (StepStarted, StepRetried)))
        last = next(steps, None)
        return f" The last try failed: {last.error}" if isinstance(last, StepRetried) else ""

    def _settle(self, reason: StopReason, error: AgentMagicError | None) -> Outcome:
        for closing in tuple(self.fold.closing()):
            self.emit(closing)
        delta = tuple(self.fold.messages)
        answer = delta[-1].text if delta[-1].role == "assistant" else ""
        schema = self.turn.agent.output_schema
        result = RunResult(
            final_text=answer if self.final is None else self.final,
            history_delta=delta,
            events=tuple(self.channel.events),
            iterations_used=self.steps.number,
            timed_out=reason == "timeout",
            stop_reason=reason,
            usage=self.steps.usage,
            seconds=time.monotonic() - self.started - self.deadline.paused_for,  # without pauses for the user
            error=encodable(redact(describe(error))) if error else self.exhausted_budget,
            error_code=code_of(error) if error else BudgetExhausted.code if self.exhausted_budget else "",
            value=self.value,
            wrapped_in=schema.wrapped_in if schema and self.value is not None else "",
        )
        last_event: Event = TurnFinished(result)
        if self.turn.tape is not None and isinstance(last_event := self.turn.tape(last_event), TurnFinished):
            result = last_event.result
        traces.record_turn(self.span, result, error)
        if self.span.trace_id:  # not recorded: the id is new in each run, also in a replay
            result = replace(result, trace=self.span.trace_id)
            last_event = TurnFinished(result)
        if error is not None:
            error.result = result
            error.args = (result.error,)
            hide_secrets(error)
        self.emit(last_event)
        self.over = True
        definitions = tuple(tool.definition for tool in (*self.tools.values(), *self.steps.hosted))
        return Outcome(result, error, definitions, self.executor.changes, self.ending)

    # -- steps ---------------------------------------------------------------------------------

    async def take_steps(self) -> StopReason:
        """Take the steps of the turn, and return why the turn ended."""
        await self._settle_project()
        await self.list_tools()
        choice = first = self.turn.agent.tool_choice
        self._check_choice(choice)
        extra: tuple[Message, ...] = ()
        if self.turn.plan is not None:
            planner = self._planner(self.turn.plan)
            await planner.run()
            if planner.asked or planner.final is not None:
                self.final = planner.final
                return "answer" if planner.asked else "done"
            if planner.choice and first != "none":
                first = "auto" if self.steps.hosted else planner.choice  # "none" would forbid web searches too
            choice = first
            extra = (user(planner.closing),) if planner.closing else ()
        for _ in range(self.steps.number, self.turn.agent.max_iterations):
            response = await self.steps.take(choice, *extra)
            reason = await self._act(response, choice)
            if reason:
                return reason
            extra = ()
            choice = "none" if first == "none" else "auto"  # a forced call in every step would never end
        return await self._limit()

    def _check_choice(self, choice: str) -> None:
        """Raise UsageError if this model cannot be given the tool_choice `choice`."""
        choices = (*TOOL_CHOICES, *self.tools)
        if choice in choices:
            return
        wrong = f"there is no such tool.{did_you_mean(choice, choices)}"
        if any(tool.name == choice for tool in self.steps.hosted):
            wrong = "the model's provider carries that tool out, so the model alone decides when."
        raise UsageError(f"tool_choice is {choice!r}, and {wrong} Choose one of {', '.join(choices)}.")

    def _planner(self, options: PlanOptions) -> Planner:
        agent, request = self.turn.agent, self.turn.prompt.text
        # The default timeout holds for each round of tasks. One that a user or a teacher set holds for the whole turn.
        renew = has_default_timeout(agent)
        most = agent.max_iterations - 1  # steps for tasks; the last step is for the answer
        return Planner(request, options, self.steps, self.executor, self.fold, self.deadline, most, renew)

    async def _act(self, response: ModelFinished, choice: str) -> StopReason | None:
        """Act on the model's response: run its calls, or check its answer. Return why the turn ends, else None."""
        calls = self.fold.unanswered
        if not calls:
            self.ending = response  # before the answer is read, because that may fail
            if not await self.continues(response):
                return "answer"
            self.ending = None
            return None
        if not self.turn.toolsets:
            self.executor.refuse(calls, "There are no tools in this conversation; answer without one.")
            return "no_tools"
        if choice == "none":
            self.executor.refuse(calls, "No tool may be called in this turn; answer without one.")
        elif response.cut:  # the arguments of the last call may be incomplete
            self.executor.refuse(calls, CUT_CALL)
        else:
            self.final = await self.executor.carry_out(calls)
        return "done" if response.last or self.final is not None else None

    async def continues(self, response: ModelFinished) -> bool:
        """Return whether the turn goes on because an answer does not fit the schema, or a hook adds a prompt."""
        answer = self.fold.messages[-1]
        prompt = self._repair(response)
        self._warn_of_end(response)
        prompt = prompt or await self._hook(answer)
        if prompt:
            self.emit(PromptAdded(user(prompt)))
        return bool(prompt)

    def _warn_of_end(self, response: ModelFinished) -> None:
        if response.unknown:
            self.warn(unknown_end(response.reason))
        elif response.cut:
            self.warn(CUT_ANSWER)

    def _repair(self, response: ModelFinished) -> str | None:
        """Read the value of the answer if a schema is set; if it does not fit, return a message for the model.

        Raises InvalidOutput if the answer is not whole, or still does not fit after REPAIRS such messages.
        """
        schema, self.value = self.turn.agent.output_schema, None
        if schema is None:
            return None
        try:
            self.value = self._read(schema, response)
        except InvalidOutput as error:
            if self.repairs == REPAIRS or response.cut or response.unknown:
                raise
            self.repairs += 1
            return f"{error} Send the whole answer again, as JSON of that form."
        return None

    def _read(self, schema: OutputSchema, response: ModelFinished) -> Any:
        """Return the value of the answer. Raises InvalidOutput if it does not fit, or if the answer is not whole."""
        if response.unknown:
            raise InvalidOutput(unknown_end(response.reason))
        try:
            return schema.read(self.fold.messages[-1].text)
        except ValueError as error:
            if response.cut:  # a further request would be cut at the same limit
                raise InvalidOutput(CUT_VALUE) from None
            message = f"The answer does not have the form that was asked for: {redact(str(error))}."
            raise InvalidOutput(message) from None

    async def _hook(self, answer: Message) -> str | None:
        hook = self.turn.agent.before_finish
        if hook is None or self.prompts == FURTHER_PROMPTS:
            return None
        try:
            prompt = await await_with_grace(engine().call_user(hook, answer))
        except Exception as error:
            raise UsageError(f"The before_finish hook failed: {error_text(error)}") from error
        if prompt is not None and not isinstance(prompt, str):
            raise UsageError(f"The before_finish hook returned {prompt!r:.80}. Return a prompt to go on with, or None.")
        self.prompts += bool(prompt)
        return prompt

    async def _settle_project(self) -> None:
        """Ask the user about new project files, and give the approved files to the model."""
        project = self.turn.project
        if project.new_files:
            text, files_text, files = await engine().in_pool(project.question)
            question = QuestionAsked(uuid.uuid4().hex, text, choices=(YES, NO), files=files_text)
            agreed = is_yes(await self.executor.ask_question(question))
            await engine().in_pool(partial(project.store_answer, files, is_yes=agreed))
            self.steps.tell_of_project()
        self.warn_once(project.notices(), "info")
        project.check_commands(self.turn.values)

    async def list_tools(self) -> None:
        """Fetch the tools of the turn into `self.tools`, and warn about missing servers and tools."""
        listings = await await_with_grace(_all(map(list_source, self.turn.toolsets)))
        self._tell_of_servers([problem for _, problems in listings for problem in problems])
        for tools, _ in listings:
            for tool in tools:
                if tool.name == READER:
                    taken = f"{READER} is the name of the tool that reads on in long results."
                    self.warn_once([f"{taken} Yours is left out; rename it."])
                    continue
                first = self.tools.setdefault(tool.name, tool)
                if first is not tool and not (first.hosted and tool.hosted):
                    self.warn_once([f"Two tools are named {tool.name}; the first of them is used."])
        self.warn_once(words for source in self.turn.toolsets for words in notices_of(source))
        available, missing = current_tools(self.tools.values())
        self.tools.clear()  # change the dict itself, which the executor shares
        self.tools.update(available)
        self.warn_once(missing)
        self.steps.hosted, why = await settle_hosted(self.tools, self.turn.model, self.executor.gate)
        # If an MCP client makes the turn's only call, it does not matter why tools of the model's provider are missing.
        self.warn_once(() if self.turn.caller else why)
        self._leave_out()
        definitions = [tool.definition for tool in self.tools.values()]
        for name, tool in self.tools.items():
            if tool.among is not None:
                self.tools[name] = replace(tool, definition=tool.among(definitions))

    def _tell_of_servers(self, problems: Sequence[str]) -> None:
        """Warn about servers that cannot be reached, unless an earlier turn of the session gave the same warning."""
        # A `Choosing` toolset reports only the servers of the tools that it chose, so `problems` is incomplete.
        complete = bool(self.turn.toolsets) and not any(isinstance(one, Choosing) for one in self.turn.toolsets)
        if not (problems or self.turn.unreachable):
            return
        for problem in new_problems(problems, self.turn.unreachable, self.turn.agent_path, complete=complete):
            self.warn(redact(f"This turn runs without a tool server. {problem}"))

    def _leave_out(self) -> None:
        """Remove tools from the turn if the model cannot handle so many."""
        model = self.turn.model
        if not isinstance(model, FewTools):
            return
        # Tools that run programs come first, because a program can do the work of a tool that is left out.
        tools = sorted(self.tools.values(), key=lambda tool: not tool.code)
        choice = model.choose([tool.definition for tool in tools], self.turn.prompt.text)
        names = {self.turn.agent.tool_choice, *(definition.name for definition in choice)}
        left_out = [tool.name for tool in tools if tool.name not in names]
        for name in left_out:
            del self.tools[name]
        if left_out:
            self.warn_once([f"{model.name} can handle {len(choice)} tools. Left out: {', '.join(left_out)}."])

    # -- the limit -----------------------------------------------------------------------------

    async def _limit(self) -> StopReason:
        """End a turn that used all its steps. Unless `on_limit` is "stop", ask the model for a last answer first."""
        agent = self.turn.agent
        self.warn(f"The limit of {agent.max_iterations} steps is reached. Raise max_iterations to allow more.")
        if agent.on_limit == "stop":
            return "limit"
        try:
            response = await self.steps.take("none", user(CLOSING_PROMPT), closing=True)
        except ProviderError as error:
            self.warn(redact(f"The closing answer failed: {error}"))
            self._close_without_answer()
            return "limit"
        if calls := self.fold.unanswered:  # some models call a tool although none was offered
            self.executor.refuse(calls, NO_CLOSING)
            self.final = self.fold.messages[-2].text.strip() or NO_CLOSING
            return "limit"
        self.ending = response
        if agent.output_schema is not None:
            self.value = self._read(agent.output_schema, response)
        self._warn_of_end(response)
        return "limit"

    def _close_without_answer(self) -> None:
        for part in tuple(self.fold.closing_parts()):
            self.emit(part)
        index = self.fold.free_index
        self.emit(PartStarted(index, "text"))
        self.emit(PartFinished(index, Text(NO_CLOSING)))
        self.emit(StepFinished(self.steps.number, Usage(), "failed"))


async def _all(listings: Iterable[Awaitable[T]]) -> Sequence[T]:
    """Wait for all at the same time, and return their results. If one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(listing) for listing in listings]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def take_cancellation() -> None:
    """Forget that the current task was cancelled, so that the turn can still await its clean-up."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
