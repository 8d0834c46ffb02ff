"""The options by which one turn differs from the session's other turns, and how they change the turn's agent.

`TurnSettings` holds the values or defaults. `TurnOptions` says the same to type checkers, as the keyword arguments of
methods such as `start`; a test compares the two.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypedDict, TypeVar, cast

from agentmagic.agent import MAX_ITERATIONS, TIMEOUT, Agent, Output
from agentmagic.approval.approvals import Approvals
from agentmagic.classroom import class_settings
from agentmagic.context.request_view import RequestView
from agentmagic.errors import UsageError
from agentmagic.events import ApprovalAsked, Event, Intent, PromptValue, QuestionAsked, Reply
from agentmagic.loop.turn import Channel, Outcome
from agentmagic.loop.turn_context import TurnContext
from agentmagic.plan import Judging, PlanOptions, open_plan
from agentmagic.providers.base import Model, ModelSettings
from agentmagic.settings import Replay
from agentmagic.tools.base import Toolset

F = TypeVar("F", bound=Callable[..., Any])

PlayTurn = Callable[[TurnContext, Channel], Coroutine[Any, Any, Outcome]]
"""Runs a turn through a channel: `run_turn`, or a tape that records the turn or plays it back."""


class AbortEvent(Protocol):
    """The object that `start(abort=...)` accepts: a `threading.Event` or an `asyncio.Event`."""

    def is_set(self) -> bool:
        """Return whether the event is set, which ends the run."""
        ...


class TurnOptions(TypedDict, total=False):
    """How one turn may differ from the session's other turns.

    `abort` ends the run when it is set. `agent` replaces the session's agent, and `settings` are added to the agent's.
    `output` is the form of the answer, a type or a JSON Schema; the result's `value` is then the answer as a value of
    that type. `attended` says that the caller watches the events and answers approvals and questions with `run.send`;
    otherwise a call that needs approval is denied. If `attended` is left out in a cell of a notebook, the run is shown
    in the cell, and the user answers there.

    With `plan` the model first decides whether the prompt needs tools, and plans a list of tasks, which are then run,
    and repaired if they fail.
    `judge` says which task results the model checks: "all", "odd" (errors, empty results and the like), or "off".
    `confirm` shows the plan before it runs. `resume` continues the plan that the last turn left unfinished, and `drop`
    gives that plan up. With a plan, the default timeout of 120 s applies to each round of tasks that run together.

    `step` pauses the turn before each request and each tool call until the user continues; the run must be `attended`.
    `replay` is the mode of the session's cassette in this turn.
    """

    abort: AbortEvent | None
    agent: Agent | None
    output: Output | None
    settings: ModelSettings | None
    attended: bool | None
    plan: bool
    judge: Judging
    confirm: bool
    resume: bool
    drop: bool
    step: bool
    replay: Replay | None


@dataclass(frozen=True, slots=True)
class TurnDriver:
    """An outside program, such as an MCP client, that makes the tool calls of a turn in place of the agent's model.

    `model` represents the program: neither an environment variable nor a setting of a teacher or administrator replaces
    it. `approvals` are what the user has approved for this program, and `view` is the part of the history that the
    program has received. If no one is at the notebook, `ask` puts a question to the program's own user, and returns the
    answer or None; that user is never asked for an approval. `recorded` says that the call was made earlier, and is
    played from a recording. `attended` finds out whether a user is at the notebook, each time that there is a question.
    """

    model: Model
    approvals: Approvals
    view: RequestView
    ask: Callable[[str], Awaitable[str | None]]
    recorded: bool = False
    attended: Callable[[], Awaitable[bool]] | None = None

    def asks_in(self, play: PlayTurn) -> PlayTurn:
        """Return a function that runs a turn like `play`, and asks the program's user if no one is at the notebook."""

        async def play_and_ask(turn: TurnContext, channel: Channel) -> Outcome:
            async def ask_both(question: ApprovalAsked | QuestionAsked) -> Intent | None:
                intent = await self._unless_absent(channel.ask(question))
                if intent is not None or not isinstance(question, QuestionAsked):
                    return intent
                answer = await self.ask(question.text)
                return None if answer is None else Reply(question.id, answer)

            return await play(turn, replace(channel, ask=ask_both))

        return play_and_ask

    async def _unless_absent(self, answer: Awaitable[Intent | None]) -> Intent | None:
        """Wait for the answer of the user at the notebook. Return None as soon as it is known that no one is there."""
        try:
            async with asyncio.timeout(None) as limit:
                looking = asyncio.create_task(self._end_if_absent(limit))
                try:
                    return await answer  # this runs before the task `looking` does: an answer may be there already
                finally:
                    looking.cancel()
        except TimeoutError:
            return None

    async def _end_if_absent(self, limit: asyncio.Timeout) -> None:
        if self.attended is not None and not await self.attended():
            limit.reschedule(0.0)


class KeywordSettings:
    """The base of a dataclass with the keyword arguments of methods; type checkers read the TypedDict `keywords`."""

    __slots__ = ()
    keywords: ClassVar[type]

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the settings for keyword options, with defaults filled in. Raises TypeError for an unknown option."""
        names = cls.keywords.__annotations__
        if unknown := options.keys() - names.keys():
            raise TypeError(f"There is no option {min(unknown)!r}. The options: {', '.join(names)}.")
        return cls(**options)

    @classmethod
    def spell_out(cls, method: F) -> F:
        """Give a method one keyword argument in its signature for each option, in place of `**options`.

        Help and completion in a notebook read that signature.
        """
        signature, fields = inspect.signature(method), inspect.signature(cls).parameters
        own = list(signature.parameters.values())[:-1]
        spelled = signature.replace(parameters=[*own, *(fields[name] for name in cls.keywords.__annotations__)])
        method.__signature__ = spelled  # pyright: ignore[reportFunctionMemberAccess]
        return method


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings(KeywordSettings):
    """The options of a turn, each with the caller's value or the default.

    The last five are for front ends. `toolsets` replace the session's toolsets. `values` describe the values that the
    prompt names, as the model gets them, and `notices` are warnings about those values. A `driver` makes the turn's
    calls in place of the model. If `skills` is false, the skills of the project are left out.
    """

    keywords: ClassVar[type] = TurnOptions

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

    def recipe(self, usual: Agent) -> Agent:
        """Return the agent for the turn: the one in the options, else the session's (`usual`), with changes applied.

        Raises UsageError if the agent's limits are wider than a teacher or administrator allows.
        """
        recipe = self.agent or usual
        if self.output is not None:
            recipe = replace(recipe, output=self.output)
        if self.settings is not None:
            recipe = replace(recipe, settings=recipe.settings | self.settings)
        return _within_class(recipe, planned=self.plan or self.resume)

    def planning(self, turns: Sequence[Sequence[Event]]) -> PlanOptions | None:
        """Return how the turn is planned, or None if it is not planned. `turns` are the events of the earlier turns.

        Raises UsageError if `resume` is set and there is no plan to resume. Raises it also if the last turn left an
        unfinished plan, and neither the options nor a user can say what to do with that plan.
        """
        old_plan = None if self.drop else open_plan(turns)
        if self.resume and old_plan is None:
            raise UsageError("The last turn left no plan that could be resumed.")
        if old_plan is not None and not self.resume and not self.attended:
            raise UsageError(old_plan.open_plan_message)
        planning = PlanOptions(self.judge, self.confirm, old_plan, self.resume, self.plan)
        return planning if self.plan or old_plan is not None else None


def _within_class(recipe: Agent, *, planned: bool) -> Agent:
    """Return the agent within a teacher's or administrator's limits. Raises UsageError if its own are wider.

    In a planned turn, the default timeout applies to each round of tasks, but a teacher's timeout to the whole turn.
    """
    limit = class_settings().limit
    steps = limit("max_iterations", recipe.max_iterations, MAX_ITERATIONS)
    usual = TIMEOUT if not planned else class_settings().timeout or TIMEOUT
    timeout = limit("timeout", usual if recipe.timeout == TIMEOUT else recipe.timeout, usual)
    if (steps, timeout) == (recipe.max_iterations, recipe.timeout):
        return recipe
    return replace(recipe, max_iterations=cast("int", steps), timeout=timeout)
