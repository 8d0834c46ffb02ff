"""The turn of an outside agent. The agent runs its own agent loop; its work is reported as the usual turn events."""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Protocol
from uuid import uuid4

from agentmagic.acp import bounds
from agentmagic.acp.agents import outside_agent, silence_problem, trial
from agentmagic.acp.calls import CallTape, OutsideCalls, OutsideExecutor
from agentmagic.acp.model import OutsideModel, session_in
from agentmagic.acp.reports import changed_files
from agentmagic.acp.updates import CONTINUES, PlanNews
from agentmagic.agent import MAX_ITERATIONS, REPAIRS, has_default_timeout
from agentmagic.approval.approvals import Gate
from agentmagic.errors import AgentMagicError, BadRequest, EmptyAnswer, InvalidOutput, ProviderError, UsageError
from agentmagic.events import (
    PartFinished,
    Planned,
    PromptAdded,
    StepFinished,
    StepStarted,
    StopReason,
    Task,
    TaskFinished,
    TaskStarted,
    ToolFinished,
    TurnStarted,
    VariablesChanged,
    Working,
)
from agentmagic.history.history import History
from agentmagic.loop.budgets import BudgetExhausted
from agentmagic.loop.retry import stream_once
from agentmagic.loop.step import Steps
from agentmagic.loop.stepping import Stepper
from agentmagic.loop.turn import Channel, Outcome, TurnLoop, take_cancellation
from agentmagic.loop.turn_context import TurnContext
from agentmagic.messages import Message, Usage, user
from agentmagic.providers.base import Model, ModelFinished, Preparing, Request, is_played
from agentmagic.providers.outside import display_name
from agentmagic.providers.registry import usage_with_cost
from agentmagic.runtime.timeouts import await_with_grace
from agentmagic.settings import Replay

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Call ids that every provider accepts."""
CONCLUDE = "You ended your turn without an answer. Answer now."


class OutsideTape(CallTape, Protocol):
    """The recording of an outside agent's turn. It also keeps the agent's plans and late words."""

    mode: Replay

    def plan(self, entries: Sequence[Sequence[str]]) -> None:
        """Add a plan of the agent to the recording. Each entry is a text and its status."""
        ...

    def plans(self, *, settled: bool) -> Sequence[Sequence[Sequence[str]]]:
        """Return plans that were recorded after the last step.

        Without `settled`, return those before the step's first tool result; with `settled`, return the others.
        """
        ...

    def late(self, words: str) -> None:
        """Add a sentence about what the agent sent after the end of its last turn."""
        ...

    def late_words(self) -> str:
        """Return the sentence of `late` that was recorded after the last step, or ""."""
        ...


class OutsideTurn:
    """One turn that an outside agent (another program) answers.

    `name` is the agent's name. `make` returns the agent as an `OutsideModel`, which a session keeps for all its turns;
    `make` is not called if a recorded turn is replayed.
    """

    def __init__(self, name: str, make: Callable[[], Model]) -> None:
        self.name = name
        self._make = make
        self.agent: OutsideModel | None = None
        self.loop: _OutsideLoop | None = None
        self.tape: OutsideTape | None = None

    def model(self) -> OutsideModel:
        """Attach the agent's model to this turn, and return the model. An earlier turn can have created the model."""
        model = self._make()
        assert isinstance(model, OutsideModel)  # noqa: S101  (of the provider's row)
        self.agent = model
        self.agent.turn = self.loop
        return self.agent

    def on_tape(self, tape: "OutsideTape | None") -> None:
        """Record the turn in `tape`, or replay it from that recording. Raises UsageError for an unsupported mode."""
        if tape is not None and tape.mode in ("replay-model", "replay-tools"):
            name = display_name(self.name)
            raise UsageError(
                f"{name} runs its own tools, so {tape.mode} cannot split its turn. Choose replay, auto or live."
            )
        self.tape = tape

    async def run(self, turn: TurnContext, channel: Channel) -> Outcome:
        """Run the turn, as `run_turn` does for other models."""
        self.loop = loop = _OutsideLoop(turn, channel, outside_turn=self)
        if self.agent is not None:
            self.model()
        try:
            return await loop.run()
        finally:
            loop.end()


class _OutsideSteps(Steps):
    """Takes an outside agent's steps: parts of its one stream of updates, without retries and without compaction.

    `charged` is the cost of the running prompt, in US dollars, as last reported by the agent.
    """

    charged = 0.0

    async def take(self, tool_choice: str, *extra: Message, closing: bool = False) -> ModelFinished:
        """Emit the events of the next step.

        Raises ProviderError. Raises BudgetExhausted if no budget is left for a prompt.
        """
        del tool_choice, extra, closing
        turn = self._turn
        request = Request(
            (*turn.history.sent_messages, *self._fold.messages),
            self._instructions,
            tuple(tool.definition for tool in self._tools.values()),
        )
        if request.messages[-1].role == "user":
            self.check_budgets(0.0)
        self.number += 1
        self._emit(StepStarted(self.number, self._model.name))
        await asyncio.sleep(0)
        began = time.monotonic()
        with turn.traffic.exchange(request, self.number) as exchange:
            answer = await await_with_grace(stream_once(self._model, request, exchange.parts, self._emit))
            step_end = exchange.finished = replace(answer, usage=self._step_usage(answer))
        self.spend(step_end.usage)
        if step_end.usage.requests:
            self._pay(step_end.usage)
        self.charged = self.charged if step_end.reason == CONTINUES else 0.0
        self._emit(StepFinished(self.number, step_end.usage, step_end.reason, time.monotonic() - began))
        self._call_ids.update(call.id for call in self._fold.unanswered)
        return step_end

    def check_budgets(self, dollars: float) -> None:
        """Raise BudgetExhausted if a budget does not allow the running prompt to cost so many US dollars."""
        for meter in self._limited:
            if reason := meter.why_stopped(dollars):
                raise BudgetExhausted(reason)

    def add_unfinished(self) -> None:
        """Add the cost that the agent reported for an unfinished prompt to the usage of the turn."""
        if self.charged:
            self.spend(used := Usage(requests=1, cost=self.charged))
            self._pay(used)
            self.charged = 0.0

    def _pay(self, usage: Usage) -> None:
        if not is_played(self._model):
            self._turn.account.pay(self._model.name, usage)

    def _step_usage(self, step_end: ModelFinished) -> Usage:
        """Return the usage of a step: for the last step of a prompt the usage of the whole prompt, otherwise zero."""
        return Usage() if step_end.reason == CONTINUES else usage_with_cost(self._model, step_end.usage)


@dataclass
class _OutsideLoop(TurnLoop):
    """The loop of an outside agent's turn: it prompts the agent, follows its steps and calls, and shows its plan."""

    outside_turn: OutsideTurn = field(kw_only=True)
    calls: OutsideCalls = field(default_factory=OutsideCalls)
    _plans: deque[PlanNews] = field(default_factory=deque[PlanNews])
    _tasks: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    _has_plan: bool = False
    _in_step: bool = False
    _opening: str = ""
    _end_error: AgentMagicError | BudgetExhausted | None = None
    _task: "asyncio.Task[Any] | None" = None
    _outside_steps: _OutsideSteps = field(init=False)

    def equip(self, gate: Gate) -> None:
        """Create `steps`, which takes the steps of the turn, and `executor`, which follows the tool calls."""
        turn, stepper = self.turn, Stepper(gate, on=False)
        self.steps = self._outside_steps = _OutsideSteps(turn, self.tools, self.fold, self.emit, stepper)
        self.executor = OutsideExecutor(
            self.tools,
            gate,
            turn.agent.deps,
            self.emit,
            turn.agent.max_repeats,
            watcher=turn.watcher,
            calls=self.calls,
            agent=outside_agent(self.outside_turn.name),
            tape=self.outside_turn.tape,
            end_turn=self._end_with,
        )

    async def prepare(self) -> None:
        """Start the agent before the default timeout begins, because npx may have to download the agent first."""
        if has_default_timeout(self.turn.agent):
            await self._start()

    async def _start(self) -> None:
        if isinstance(self.turn.model, Preparing):
            self._check_code()
            self._opening = "start"
            self.emit(Working(f"starting {self.turn.model.name}"))
            await self.turn.model.prepare()
            self.emit(Working("listing the tools"))
            self._opening = ""

    def timeout_message(self) -> str:
        """Return the message for a turn that ran out of time; it says so if the agent was still starting."""
        if not self._opening:
            return super().timeout_message()
        limit = ", the timeout of the turn. Give it more with timeout= (--timeout in a cell)"
        agent = outside_agent(self.outside_turn.name)
        return silence_problem(agent, self._opening, self.turn.agent.timeout or 0.0, limit)

    async def take_steps(self) -> StopReason:
        """Follow the agent's turn to its end; prompt the agent again if its answer must be repaired."""
        self._check_options()
        if not has_default_timeout(self.turn.agent):
            await self._start()
        await self.list_tools()
        self._task = asyncio.current_task()
        try:
            while True:
                step_end = await self._step()
                if step_end.reason == CONTINUES:
                    continue
                self._tell_late_words()
                if not await self._needs_prompt(step_end):
                    return "answer"
                self._has_plan = False
        except asyncio.CancelledError:
            if self._end_error is None:
                raise
            take_cancellation()
            raise self._end_error from None
        finally:
            self._outside_steps.add_unfinished()
            self._end_plan()

    def _check_code(self) -> None:
        """Raise UsageError if code is forbidden here, and the agent may run a command without asking."""
        executor = self.executor
        assert isinstance(executor, OutsideExecutor)  # noqa: S101  (of `equip`)
        if not executor.agent.asks_for_commands and (why := executor.gate.forbids_all(executor.code_tool)):
            raise UsageError(f"{self.turn.model.name} can run commands without asking, so it is not started. {why}")

    async def _needs_prompt(self, step_end: ModelFinished) -> bool:
        """Return whether the agent must be sent another prompt, now that it has ended its turn."""
        name = self.turn.model.name
        if step_end.reason == "cancelled" and self.calls.was_refused:  # codex-acp ends its turn at a refusal
            self.warn(f"{name} ended its turn because a call was refused.")
            return False
        if step_end.reason == "cancelled":
            raise ProviderError(f"{name} ended its turn as if it had been stopped. Ask again.")
        if step_end.reason == "refusal":
            raise BadRequest(f"{name} refused to go on with this prompt. Change it, or choose another model.")
        if step_end.reason == "end_turn" and not self._has_answer():
            raise EmptyAnswer(
                f"{name} ended its turn without an answer. Ask again. {trial(outside_agent(self.outside_turn.name))}"
            )
        if step_end.reason == "max_turn_requests":
            self.warn(f"{name} has reached its own limit of steps. Ask it to go on.")
        if self.fold.messages[-1].role != "assistant":  # no text came after the agent's last tool calls
            if self.turn.agent.output_schema is None:
                return False
            if self.repairs == REPAIRS:
                raise InvalidOutput(f"{name} ended its turn without an answer, where one of a form was asked for.")
            self.repairs += 1
            self.emit(PromptAdded(user(CONCLUDE)))
            return True
        return await self.continues(step_end)

    def _has_answer(self) -> bool:
        """Return whether the agent has sent text, a call or a plan since the last prompt."""
        reply = takewhile(lambda message: message.role != "user", reversed(self.fold.messages))
        return self._has_plan or any(message.calls or message.text.strip() for message in reply)

    def _tell_late_words(self) -> None:
        """Warn the user of what the agent has sent after the end of its last turn."""
        agent, tape = self.outside_turn.agent, self.outside_turn.tape
        if tape is not None and tape.frozen:
            words = tape.late_words()
        else:
            words = "" if agent is None else agent.late_words.take(agent.name)
        if words:
            if tape is not None:
                tape.late(words)
            self.warn(words)

    async def _step(self) -> ModelFinished:
        """Take one step of the agent's turn, and carry out the tool calls in it."""
        self._in_step = True
        try:
            step_end = await self.steps.take("auto")
        finally:
            self._in_step = False
        self._show_plans(settled=False)
        if calls := self.fold.unanswered:
            await self.executor.carry_out(calls)
        self._show_plans(settled=True)
        return step_end

    def _check_options(self) -> None:
        """Raise UsageError for options that an outside agent cannot follow, and warn if max_iterations is set."""
        agent, name = self.turn.agent, self.turn.model.name
        if self.turn.plan is not None:
            raise UsageError(f"{name} makes its own plans. Leave out plan (--plan), or choose a model for the plan.")
        if self.turn.step:
            raise UsageError(f"{name} takes its own steps, which cannot be paused. Leave out step (--step).")
        if agent.tool_choice != "auto":
            message = (
                f"{name} chooses its tools itself. Leave out tool_choice={agent.tool_choice!r}, or choose a model."
            )
            raise UsageError(message)
        if agent.max_iterations != MAX_ITERATIONS:
            kept = f"{name} counts its own steps, so max_iterations is not kept. --timeout bounds the turn."
            self.warn_once([kept])

    # -- what the agent reports ----------------------------------------------------------------

    def unique_id(self, call_id: str) -> str:
        """Return the call id unchanged, or a new id if an earlier call uses it or other models would reject it."""
        earlier = (call.id for message in self.fold.messages for call in message.calls)
        is_new = call_id not in self.turn.history.call_ids and call_id not in earlier
        return call_id if is_new and _ID.fullmatch(call_id) else f"call_{uuid4().hex}"

    @property
    def session(self) -> tuple[str, Sequence[Message]]:
        """The id of the agent's session in an earlier kernel ("" if none), and the messages that this session had."""
        history = self.turn.history
        return ("", ()) if history.journal is None else last_session(history, self.turn.model.name)

    def note_opening(self) -> None:
        """Hold the default timeout of the turn while the agent's session is opened; this has its own time limit."""
        self._opening = "start and open a session"
        if has_default_timeout(self.turn.agent):
            self.deadline.hold()

    def note_prompt(self) -> None:
        """Begin the default timeout of the turn, because a prompt is sent now."""
        self._opening = ""
        self.note_activity()

    def note_activity(self) -> None:
        """Restart the default timeout of the turn, so that it stops only an agent that sends no updates."""
        if has_default_timeout(self.turn.agent):
            self.deadline.restart()

    def show_plan(self, plan: PlanNews) -> None:
        """Show the agent's plan: at once, or after the running step if a step is running."""
        self._plans.append(plan)
        if not self._in_step:
            self._show_plans(settled=True)

    def record_cost(self, dollars: float) -> None:
        """Record the cost of the prompt so far, in US dollars, and end the turn if it exceeds a budget."""
        self._outside_steps.charged = dollars
        try:
            self._outside_steps.check_budgets(dollars)
        except BudgetExhausted as spent:
            self._end_with(spent)

    def _end_with(self, error: AgentMagicError | BudgetExhausted) -> None:
        """End the turn at once with an error. The first such error counts."""
        self._end_error = self._end_error or error
        if self._task is not None:
            self._task.cancel()

    def turn_changes(self, changes: VariablesChanged | None) -> VariablesChanged | None:
        """Return `changes`, which agentmagic tools made, and add the files in the diffs that the agent reported."""
        results = (event.result for event in self.channel.events if isinstance(event, ToolFinished))
        files = [path for result in results if result.name not in self.tools for path in changed_files(result)]
        if not files:
            return changes
        before = changes if changes is not None else VariablesChanged(())
        return replace(before, files=tuple(dict.fromkeys((*before.files, *files)))[: bounds.FILES])

    # -- the plan ------------------------------------------------------------------------------

    def _show_plans(self, *, settled: bool) -> None:
        tape = self.outside_turn.tape
        if tape is not None and tape.frozen:
            for entries in tape.plans(settled=settled):
                self._show_plan([(str(words), str(status)) for words, status in entries])
            return
        while self._plans:
            entries = self._plans.popleft().entries
            if tape is not None:
                tape.plan(entries)
            self._show_plan(entries)

    def _show_plan(self, entries: Sequence[tuple[str, str]]) -> None:
        """Emit the agent's plan as checklist events: a new list if the tasks differ, otherwise their new states."""
        self._has_plan = self._has_plan or bool(entries)
        tasks = {f"t{number}": entry for number, entry in enumerate(entries, 1)}
        before = self._tasks
        if [words for words, _ in before.values()] != [words for words, _ in entries]:
            self.emit(Planned(tuple(Task(name, "", {}, words) for name, (words, _) in tasks.items())))
            before = {}
        for name, (words, status) in tasks.items():
            was = before.get(name, (words, "pending"))[1]
            if status == "in_progress" != was:
                self.emit(TaskStarted(name, "", {}))
            elif status == "completed" != was:
                self.emit(TaskFinished(name, "done"))
        self._tasks = tasks

    def _end_plan(self) -> None:
        """Mark unfinished tasks of the checklist as skipped, because only the agent could resume them."""
        for name, (_, status) in self._tasks.items():
            if status != "completed":
                self.emit(TaskFinished(name, "skipped", "not finished"))
        self._tasks = {}

    # -- the end -------------------------------------------------------------------------------

    def end(self) -> None:
        """Stop the agent if it is still working, and record which messages it has seen."""
        agent = self.outside_turn.agent
        self.calls.end()
        if agent is None:
            return
        agent.turn = None
        agent.stop()
        # A prompt without an answer is left out of later requests, so it does not count as seen.
        has_answer = any(message.role != "user" for message in self.fold.messages)
        agent.remember((*self.turn.history.sent_messages, *(self.fold.messages if has_answer else ())))


def last_session(history: History, name: str) -> tuple[str, Sequence[Message]]:
    """Return the id of an agent's last session in a conversation ("" if none), and the messages that it had seen."""
    for index in reversed(range(len(history.turns))):
        events = history.turns[index].events
        marks = [session_in(event.part) for event in events if isinstance(event, PartFinished)]
        if any(marks) and any(isinstance(event, TurnStarted) and event.model == name for event in events):
            turns = history.turns[: index + 1]
            messages = [message for turn in turns if not turn.unsent for message in turn.messages]
            return next(filter(None, reversed(marks))), messages
    return "", ()
