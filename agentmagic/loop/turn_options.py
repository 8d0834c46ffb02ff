"""How one turn may differ from the session's other turns: its options, and what they make of its agent.

`TurnOptions` types the keywords of a caller; `TurnSettings` is the value that they become.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, fields, replace
from inspect import Parameter
from typing import Any, Protocol, Self, TypedDict, TypeVar, cast

from agentmagic.agent import MAX_ITERATIONS, TIMEOUT, Agent, Output
from agentmagic.approval.approvals import Approvals
from agentmagic.classroom import class_settings
from agentmagic.context.request_view import RequestView
from agentmagic.errors import UsageError
from agentmagic.events import ApprovalAsked, Event, Intent, PromptValue, QuestionAsked, Reply
from agentmagic.loop.step import TurnContext
from agentmagic.loop.turn import Channel, Outcome
from agentmagic.plan import Judging, PlanOptions, open_plan
from agentmagic.providers.base import Model, ModelSettings
from agentmagic.settings import Replay
from agentmagic.tools.base import Toolset

F = TypeVar("F", bound=Callable[..., Any])

PlayTurn = Callable[[TurnContext, Channel], Coroutine[Any, Any, Outcome]]
"""Runs a turn through a channel: `run_turn`, or a tape that records the turn or plays it back."""


class AbortEvent(Protocol):
    """What `start(abort=...)` takes: a `threading.Event` or an `asyncio.Event`."""

    def is_set(self) -> bool:
        """Return whether to end the run."""
        ...


class TurnOptions(TypedDict, total=False):
    """How one turn may differ from the session's other turns.

    `abort` ends the run when it is set. `agent` replaces the session's agent, and `settings` are added to the agent's.
    `output` is the form of the answer, a type or a JSON Schema; the result's `value` is then the answer as a value of
    it. `attended` says that the caller watches the events and answers approvals and questions with `run.send`;
    otherwise a call that needs approval is denied. If `attended` is left out in a cell of a notebook, the run is shown
    in the cell, and the user answers there.

    With `plan` the model routes the request, plans its tasks, and repairs them; `judge` says which results it judges
    ("all", "odd" ones, or "off"), and `confirm` shows the plan before it runs. `resume` goes on with the plan that the
    last turn left open, `drop` gives it up. With a plan, a timeout of 120 s, the usual one, is that of each task.

    `step` pauses the turn before each request and each tool call: it goes on when the user says so. It needs a run
    that is `attended`. `replay` is the mode of the session's cassette in this turn.
    """

    abort: AbortEvent | None
    agent: Agent | None
    output: Output | None
    settings: ModelSettings | None
    attended: bool
    plan: bool
    judge: Judging
    confirm: bool
    resume: bool
    drop: bool
    step: bool
    replay: Replay | None


@dataclass(frozen=True, slots=True)
class TurnDriver:
    """An outside program that makes the calls of a turn, in the place of the agent's model.

    `model` stands for it: no variable and no class replaces it. `approvals` are what the user has approved for this
    program, and `view` is what it was sent of the history. `ask` puts a question to its own user, for when no one is
    at the notebook, and returns the answer or None; a permission is never asked there. `recorded` says that the call
    was made earlier: a tape plays it. `attended` finds out whether someone is there, each time that something is asked.
    """

    model: Model
    approvals: Approvals
    view: RequestView
    ask: Callable[[str], Awaitable[str | None]]
    recorded: bool = False
    attended: Callable[[], Awaitable[bool]] | None = None

    def asks_in(self, play: PlayTurn) -> PlayTurn:
        """Return what plays a turn and asks the program's own user what no one at the notebook answers."""

        async def played(turn: TurnContext, channel: Channel) -> Outcome:
            async def ask_both(question: ApprovalAsked | QuestionAsked) -> Intent | None:
                intent = await self._unless_absent(channel.ask(question))
                if intent is not None or not isinstance(question, QuestionAsked):
                    return intent
                answer = await self.ask(question.text)
                return None if answer is None else Reply(question.id, answer)

            return await play(turn, replace(channel, ask=ask_both))

        return played

    async def _unless_absent(self, answer: Awaitable[Intent | None]) -> Intent | None:
        """Wait for the answer of the person at the notebook. Return None once it is known that no one is there."""
        try:
            async with asyncio.timeout(None) as limit:
                looking = asyncio.create_task(self._end_if_absent(limit))
                try:
                    return await answer  # begun at once: the answer may come before anyone was looked for
                finally:
                    looking.cancel()
        except TimeoutError:
            return None

    async def _end_if_absent(self, limit: asyncio.Timeout) -> None:
        if self.attended is not None and not await self.attended():
            limit.reschedule(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """The options of a turn, each with its value: the one that the caller gave, or the usual one.

    The last five are a front end's own: `toolsets` replace the session's sources of tools, `values` describe what the
    prompt names, as the model is sent it, `notices` are warnings about that, and a `driver` makes the turn's calls.
    Without `skills` those of the project are left out.
    """

    abort: AbortEvent | None = None
    agent: Agent | None = None
    output: Output | None = None
    settings: ModelSettings | None = None
    attended: bool | None = None
    plan: bool = False
    judge: Judging = "odd"
    confirm: bool = False
    resume: bool = False
    drop: bool = False
    step: bool = False
    replay: Replay | None = None
    toolsets: Sequence[Toolset] | None = None
    values: Sequence[PromptValue] = ()
    notices: Sequence[str] = ()
    driver: TurnDriver | None = None
    skills: bool = True

    @classmethod
    def of(cls, options: TurnOptions) -> Self:
        """Fill in what the caller left out. Raises TypeError for an option that there is not."""
        known = TurnOptions.__annotations__
        if unknown := options.keys() - known.keys():
            raise TypeError(f"A turn has no option {min(unknown)!r}. Its options: {', '.join(known)}.")
        return cls(**options)

    def recipe(self, usual: Agent) -> Agent:
        """Return the agent of the turn. Raises UsageError if it names wider limits than the class has."""
        recipe = self.agent or usual
        if self.output is not None:
            recipe = replace(recipe, output=self.output)
        if self.settings is not None:
            recipe = replace(recipe, settings=recipe.settings | self.settings)
        return _within_class(recipe, planned=self.plan or self.resume)

    def planning(self, turns: Sequence[Sequence[Event]]) -> PlanOptions | None:
        """Return how the turn is planned after these turns, or None.

        Raises UsageError if it resumes a plan and there is none, and if a plan is open that it says nothing about.
        """
        left = None if self.drop else open_plan(turns)
        if self.resume and left is None:
            raise UsageError("The last turn left no plan that could be resumed.")
        if left is not None and not self.resume and not self.attended:
            raise UsageError(left.in_the_way)
        planning = PlanOptions(self.judge, self.confirm, left, self.resume, self.plan)
        return planning if self.plan or left is not None else None


def spelled_out(options: type, settings: type) -> Callable[[F], F]:
    """Give a method that takes options a signature with each of them, for help and completion in a notebook.

    `settings` is the class of their values, with the usual ones.
    """
    defaults = {field.name: field.default for field in fields(settings)}
    spelled = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind)
        for name, kind in options.__annotations__.items()
    ]

    def spell(method: F) -> F:
        signature = inspect.signature(method)
        own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        method.__signature__ = signature.replace(parameters=[*own, *spelled])  # pyright: ignore[reportFunctionMemberAccess]
        return method

    return spell


def _within_class(recipe: Agent, *, planned: bool) -> Agent:
    """Return an agent within the limits of the class. Raises UsageError if it names wider ones.

    The usual timeout of a plan is that of each task, so the class's bounds the whole.
    """
    limit = class_settings().limit
    steps = limit("max_iterations", recipe.max_iterations, MAX_ITERATIONS)
    usual = TIMEOUT if not planned else class_settings().timeout or TIMEOUT
    timeout = limit("timeout", usual if recipe.timeout == TIMEOUT else recipe.timeout, usual)
    if (steps, timeout) == (recipe.max_iterations, recipe.timeout):
        return recipe
    return replace(recipe, max_iterations=cast("int", steps), timeout=timeout)
