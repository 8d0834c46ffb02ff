"""The turn of an outside agent: the agent owns its loop, and the turn tells it with the events of any other turn."""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import uuid4

from agentmagic.acp import bounds
from agentmagic.acp.agents import outside_agent
from agentmagic.acp.calls import CallTape, OutsideCalls, OutsideExecutor
from agentmagic.acp.model import OutsideModel, session_in
from agentmagic.acp.updates import GOES_ON, PlanNews, changed_files
from agentmagic.agent import MAX_ITERATIONS, REPAIRS, TIMEOUT
from agentmagic.approval.approvals import Gate
from agentmagic.classroom import class_settings
from agentmagic.errors import InvalidOutput, ProviderError, UsageError
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
from agentmagic.loop.budgets import BudgetExhausted, PeriodBudget
from agentmagic.loop.retry import stream_once
from agentmagic.loop.step import Steps, TurnContext
from agentmagic.loop.stepping import Stepper
from agentmagic.loop.turn import Channel, Outcome, TurnLoop, take_cancellation
from agentmagic.messages import Message, Usage, user
from agentmagic.providers.base import Model, ModelFinished, Preparing, Request, is_played
from agentmagic.providers.outside import shown_name
from agentmagic.providers.registry import counted
from agentmagic.runtime.timeouts import await_with_grace
from agentmagic.settings import Replay

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The ids of calls that every provider takes."""
CONCLUDE = "You ended your turn without an answer. Answer now."


class OutsideTape(CallTape, Protocol):
    """The tape of a turn of an outside agent."""

    mode: Replay

    def plan(self, entries: Sequence[Sequence[str]]) -> None:
        """Record the agent's plan."""
        ...

    def plans(self, *, settled: bool) -> Sequence[Sequence[Sequence[str]]]:
        """Return the recorded plans behind the last step, before its calls were over or after."""
        ...


class OutsideTurn:
    """One turn of the outside agent of a name. It is made by `make`, which is not called if a tape answers."""

    def __init__(self, name: str, make: Callable[[], Model]) -> None:
        self.name = name
        self._make = make
        self.agent: OutsideModel | None = None
        self.loop: _OutsideLoop | None = None
        self.tape: OutsideTape | None = None

    def model(self) -> OutsideModel:
        """Return the agent, which this turn asks from now on."""
        made = self._make()
        assert isinstance(made, OutsideModel)  # noqa: S101  (of the provider's row)
        self.agent = made
        self.agent.turn = self.loop
        return self.agent

    def on_tape(self, tape: "OutsideTape | None") -> None:
        """Record the turn on a tape, or play it back from there. Raises UsageError for a mode that cannot be."""
        if tape is not None and tape.mode in ("replay-model", "replay-tools"):
            name = shown_name(self.name)
            raise UsageError(
                f"{name} runs its own tools, so {tape.mode} cannot split its turn. Choose replay, auto or live."
            )
        self.tape = tape

    async def run(self, turn: TurnContext, channel: Channel) -> Outcome:
        """Run the turn as `run_turn` does."""
        self.loop = loop = _OutsideLoop(turn, channel, begun=self)
        if self.agent is not None:
            self.model()
        try:
            return await loop.run()
        finally:
            loop.end()


class _OutsideSteps(Steps):
    """The steps of an outside agent's turn: pieces of its one stream, without retries and without compaction.

    `charged` is what the prompt that is under way has cost, in US dollars, as far as the agent has reported it.
    """

    charged = 0.0

    async def take(self, tool_choice: str, *extra: Message, closing: bool = False) -> ModelFinished:
        """Emit the next step. Raises ProviderError, and BudgetExhausted before a prompt."""
        del tool_choice, extra, closing
        turn = self._turn
        request = Request(
            (*turn.history.sent, *self._fold.messages),
            self._instructions,
            tuple(tool.definition for tool in self._tools.values()),
        )
        if request.messages[-1].role == "user":
            self.keep(0.0)
        self.number += 1
        self._emit(StepStarted(self.number, self._model.name))
        await asyncio.sleep(0)
        began = time.monotonic()
        with turn.traffic.exchange(request, self.number) as exchange:
            heard = await await_with_grace(stream_once(self._model, request, exchange.parts, self._emit))
            finished = exchange.finished = replace(heard, usage=self._counted(heard))
        self.usage += finished.usage
        if finished.usage.requests:
            self._pay(finished.usage)
        self.charged = self.charged if finished.reason == GOES_ON else 0.0
        self._emit(StepFinished(self.number, finished.usage, finished.reason, time.monotonic() - began))
        self._call_ids.update(call.id for call in self._fold.unanswered)
        return finished

    def keep(self, dollars: float) -> None:
        """Raise BudgetExhausted if a budget does not allow what the running prompt has cost."""
        for budget in self._turn.budgets:
            used = self.usage if budget.live is None else budget.live()
            before = replace(budget.before, cost=budget.before.cost or 0.0)  # as far as costs are reported
            used = replace(used, cost=(used.cost or 0.0) + dollars)
            words = replace(budget, before=before, live=None).exhausted(used)
            if not words and isinstance(budget, PeriodBudget):  # the ledger does not know what is not paid yet
                words = budget.refusal(used, dollars, 0)
            if words:
                raise BudgetExhausted(words)

    def settle(self) -> None:
        """Count what a prompt that was not finished has cost."""
        if self.charged:
            self.usage += (used := Usage(requests=1, cost=self.charged))
            self._pay(used)
            self.charged = 0.0

    def _pay(self, usage: Usage) -> None:
        if not is_played(self._model):
            self._turn.account.pay(self._model.name, usage)

    def _counted(self, finished: ModelFinished) -> Usage:
        """Return the usage of a step: the agent reports it with its last one."""
        return Usage() if finished.reason == GOES_ON else counted(self._model, finished.usage)


@dataclass
class _OutsideLoop(TurnLoop):
    """The life of an outside agent's turn."""

    begun: OutsideTurn = field(kw_only=True)
    calls: OutsideCalls = field(default_factory=OutsideCalls)
    _plans: deque[PlanNews] = field(default_factory=deque[PlanNews])
    _tasks: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    _in_step: bool = False
    _broke: BudgetExhausted | None = None
    _task: "asyncio.Task[Any] | None" = None
    _own: _OutsideSteps = field(init=False)

    def equip(self, gate: Gate) -> None:
        """Make what takes the steps and follows the calls."""
        turn, stepper = self.turn, Stepper(gate, on=False)
        self.steps = self._own = _OutsideSteps(turn, self.tools, self.fold, self.emit, stepper)
        self.executor = OutsideExecutor(
            self.tools,
            gate,
            turn.agent.deps,
            self.emit,
            turn.agent.max_repeats,
            watcher=turn.watcher,
            calls=self.calls,
            server=outside_agent(self.begun.name).label,
            tape=self.begun.tape,
        )

    async def prepare(self) -> None:
        """Start the agent, outside the deadline: npx may fetch it first."""
        if isinstance(self.turn.model, Preparing):
            self.emit(Working(f"starting {self.turn.model.name}"))
            await self.turn.model.prepare()
            self.emit(Working("listing the tools"))

    async def take_steps(self) -> StopReason:
        """Follow the agent's turn, and prompt it again if its answer has to be repaired."""
        self._refuse()
        await self.list_tools()
        self._task = asyncio.current_task()
        try:
            while True:
                finished = await self._step()
                if finished.reason != GOES_ON and not await self._asks_again(finished):
                    return "answer"
        except asyncio.CancelledError:
            if self._broke is None:
                raise
            take_cancellation()
            raise self._broke from None
        finally:
            self._own.settle()
            self._end_plan()

    async def _asks_again(self, finished: ModelFinished) -> bool:
        """Return whether the agent is sent another prompt, now that its turn is over."""
        name = self.turn.model.name
        if finished.reason == "cancelled":
            raise ProviderError(f"{name} ended its turn as if it had been stopped. Ask again.")
        if finished.reason == "refusal":
            self.warn(f"{name} refused to go on with this prompt.")
        if finished.reason == "max_turn_requests":
            self.warn(f"{name} has reached its own limit of steps. Ask it to go on.")
        if self.fold.messages[-1].role != "assistant":  # it said nothing behind its last calls
            if self.turn.agent.output_schema is None:
                return False
            if self.repairs == REPAIRS:
                raise InvalidOutput(f"{name} ended its turn without an answer, where one of a form was asked for.")
            self.repairs += 1
            self.emit(PromptAdded(user(CONCLUDE)))
            return True
        return await self.goes_on(finished)

    async def _step(self) -> ModelFinished:
        """Take one step with its calls."""
        self._in_step = True
        try:
            finished = await self.steps.take("auto")
        finally:
            self._in_step = False
        self._tell_plans(settled=False)
        if calls := self.fold.unanswered:
            await self.executor.carry_out(calls)
        self._tell_plans(settled=True)
        return finished

    def _refuse(self) -> None:
        """Raise UsageError for an option that an agent with a loop of its own cannot have, and warn of the steps."""
        agent, name = self.turn.agent, self.turn.model.name
        if self.turn.plan is not None:
            raise UsageError(f"{name} makes its own plans. Leave out plan (--plan), or choose a model for the plan.")
        if self.turn.step:
            raise UsageError(f"{name} takes its own steps, which cannot be paused. Leave out step (--step).")
        if agent.tool_choice != "auto":
            words = f"{name} chooses its tools itself. Leave out tool_choice={agent.tool_choice!r}, or choose a model."
            raise UsageError(words)
        if agent.max_iterations != MAX_ITERATIONS:
            self.warn(f"{name} counts its own steps, so max_iterations is not kept. --timeout bounds the turn.")

    # -- what the agent reports ----------------------------------------------------------------

    def fresh(self, call_id: str) -> str:
        """Return the id of a call, or another one if an earlier call has it or if other models do not take it."""
        earlier = (call.id for message in self.fold.messages for call in message.calls)
        is_new = call_id not in self.turn.history.call_ids and call_id not in earlier
        return call_id if is_new and _ID.fullmatch(call_id) else f"call_{uuid4().hex}"

    @property
    def session(self) -> tuple[str, Sequence[Message]]:
        """The session that the agent had in the kernel before, with the messages that it knows; "" without one."""
        history = self.turn.history
        return ("", ()) if history.journal is None else last_session(history, self.turn.model.name)

    def alive(self) -> None:
        """Give the agent its usual time again: it may work for long, and is stopped when nothing is heard of it."""
        if self.turn.agent.timeout == TIMEOUT and class_settings().timeout is None:
            self.deadline.restart()

    def planned(self, plan: PlanNews) -> None:
        """Show the agent's plan, now or behind the step that is under way."""
        self._plans.append(plan)
        if not self._in_step:
            self._tell_plans(settled=True)

    def charge(self, dollars: float) -> None:
        """Take in what the prompt has cost so far, and end the turn if a budget does not allow that."""
        self._own.charged = dollars
        try:
            self._own.keep(dollars)
        except BudgetExhausted as spent:
            self._broke = self._broke or spent
            if self._task is not None:
                self._task.cancel()

    def changed(self, changes: VariablesChanged | None) -> VariablesChanged | None:
        """Return what our tools have changed, with the files of the agent's diffs."""
        results = (event.result for event in self.channel.events if isinstance(event, ToolFinished))
        files = [path for result in results if result.name not in self.tools for path in changed_files(result)]
        if not files:
            return changes
        before = changes if changes is not None else VariablesChanged(())
        return replace(before, files=tuple(dict.fromkeys((*before.files, *files)))[: bounds.FILES])

    # -- the plan ------------------------------------------------------------------------------

    def _tell_plans(self, *, settled: bool) -> None:
        tape = self.begun.tape
        if tape is not None and tape.frozen:
            for entries in tape.plans(settled=settled):
                self._tell_plan([(str(words), str(status)) for words, status in entries])
            return
        while self._plans:
            entries = self._plans.popleft().entries
            if tape is not None:
                tape.plan(entries)
            self._tell_plan(entries)

    def _tell_plan(self, entries: Sequence[tuple[str, str]]) -> None:
        """Tell the plan as the checklist's events: a new list, or what has become of its tasks."""
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
        """Close the checklist: what the agent has left open is not resumed by us."""
        for name, (_, status) in self._tasks.items():
            if status != "completed":
                self.emit(TaskFinished(name, "skipped", "not finished"))
        self._tasks = {}

    # -- the end -------------------------------------------------------------------------------

    def end(self) -> None:
        """Stop the agent if it still works, and note what it knows."""
        agent = self.begun.agent
        self.calls.end()
        if agent is None:
            return
        agent.turn = None
        agent.stop()
        has_answer = any(message.role != "user" for message in self.fold.messages)  # else its prompt is not kept
        agent.remember((*self.turn.history.sent, *(self.fold.messages if has_answer else ())))


def last_session(history: History, name: str) -> tuple[str, Sequence[Message]]:
    """Return the session that an agent had in a conversation, with the messages that it knows of it; "" for none."""
    for place in reversed(range(len(history.turns))):
        events = history.turns[place].events
        marks = [session_in(event.part) for event in events if isinstance(event, PartFinished)]
        if any(marks) and any(isinstance(event, TurnStarted) and event.model == name for event in events):
            turns = history.turns[: place + 1]
            known = [message for turn in turns if not turn.unsent for message in turn.messages]
            return next(filter(None, reversed(marks))), known
    return "", ()
