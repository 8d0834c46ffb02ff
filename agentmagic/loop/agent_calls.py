"""Run the calls of agent tools. Each call asks another agent, in a turn of its own inside the calling turn."""

from collections import deque
from collections.abc import Callable, MutableMapping, Sequence
from functools import partial
from typing import Protocol

from agentmagic.agent import Agent, AgentTool, Connections
from agentmagic.approval.approvals import Approvals
from agentmagic.classroom import OFFLINE_MODES, Replay, class_settings
from agentmagic.context.rules import NO_PROJECT
from agentmagic.context.skills import with_skills
from agentmagic.errors import AgentMagicError, CassetteError, ReplayMismatch, ToolError, UsageError, describe
from agentmagic.events import Event, Notice
from agentmagic.loop.budgets import Meter, period_meters
from agentmagic.loop.inner_turn import turn_of_agent_tool
from agentmagic.loop.turn import Channel, Outcome, run_turn
from agentmagic.loop.turn_context import DEEPEST_TURN, AgentPath, OuterTurn, TurnContext
from agentmagic.loop.turn_options import PlayTurn, TurnSettings
from agentmagic.messages import Message, Text, ToolCall, ToolDef, ToolKey, ToolResult, user
from agentmagic.providers.base import Model
from agentmagic.providers.outside import display_name, is_outside
from agentmagic.providers.registry import address_of, info
from agentmagic.serialization import json_form
from agentmagic.settings import model_override
from agentmagic.tools.base import Tool, ToolContext, Toolset, failure

UNASKED = "{} is an agent, which is asked in a turn. Ask the session, or make a session of the agent."
TOO_DEEP = (
    "{} was not asked: agents ask agents {} deep at most, and this call is deeper. Do it without another agent, or say "
    "what is missing."
)
_ANSWER_REASONS = ("answer", "done", "limit")
"""The stop reasons of a turn whose answer is the result of the call."""


class InnerTape(Protocol):
    """Records the turn of an agent tool into a cassette (a file with a recorded session), or plays it back."""

    mode: Replay

    @property
    def model(self) -> Model:
        """The model for the turn."""
        ...

    def toolsets(self, sources: Sequence[Toolset]) -> tuple[Toolset, ...]:
        """Return toolsets like `sources`, whose tool lists and calls are recorded or played back."""
        ...

    async def play(self, turn: TurnContext, channel: Channel, run: PlayTurn = run_turn) -> Outcome:
        """Run the turn and record it, or play the recorded turn back."""
        ...


TapeMaker = Callable[[Message, Agent, Callable[[], Model], deque[Notice]], InnerTape]
"""Makes the tape of an inner turn from its prompt, its agent, a function that opens its model, and its notices."""


class AgentTools:
    """A toolset with the agent tools of an agent in one session. An agent tool is a tool that asks another agent.

    Each call is a turn of its own without an earlier conversation. So calls can run at the same time, and a call that
    is undone or repeated finds no trace of an earlier call. `approvals` has what the user approved with "always", by
    the names of the nested agents. `in_doubt` are the tools that were running when the kernel stopped.
    """

    is_local = True

    def __init__(
        self,
        agent: Agent,
        connections: Connections,
        approvals: MutableMapping[AgentPath, Approvals],
        in_doubt: set[ToolKey],
    ) -> None:
        self._agent = agent
        self._connections = connections
        self._approvals = approvals
        self._in_doubt = in_doubt

    async def tools(self) -> Sequence[Tool]:
        """Return a tool for each agent that can be asked."""
        return [self._tool(one) for one in self._agent.agent_tools]

    async def aclose(self) -> None:
        """Do nothing: the session closes the models and servers."""

    def _tool(self, agent_tool: AgentTool) -> Tool:
        return agent_tool.tool(partial(self._ask, agent_tool), now=partial(_checked_definition, agent_tool))

    async def _ask(self, agent_tool: AgentTool, call: ToolCall, context: ToolContext) -> ToolResult:
        """Ask an agent, and return its answer, or a failure if agents are nested too deep or the agent's turn fails.

        Raises ToolError if that turn cannot begin for another reason. Errors of a replay are raised unchanged.
        """
        around = context.around
        if not isinstance(around, OuterTurn):
            raise ToolError(UNASKED.format(agent_tool.name))
        if len(around.turn.agent_path) >= DEEPEST_TURN:
            return failure(call, TOO_DEEP.format(agent_tool.name, DEEPEST_TURN))
        try:
            outcome = await self._turn(agent_tool, call, context.tape, around)
        except (CassetteError, ReplayMismatch):
            raise
        except AgentMagicError as error:
            raise ToolError(f"{agent_tool.name} was not asked: {describe(error)}") from None
        around.keep(outcome.changes)
        if isinstance(outcome.error, (CassetteError, ReplayMismatch)):
            raise outcome.error
        return _result(agent_tool, call, outcome)

    async def _turn(self, agent_tool: AgentTool, call: ToolCall, make: TapeMaker | None, around: OuterTurn) -> Outcome:
        """Run the turn of the asked agent to its end, inside the outer turn, and return its outcome."""
        recipe = TurnSettings().recipe(agent_tool.agent)
        if is_outside(choice := model_override() or recipe.model):
            raise UsageError(f"{display_name(str(choice))} is an agent with a loop of its own. Choose a model for it.")
        prompt, notices = user(str(call.arguments["prompt"])), deque[Notice]()
        real = partial(self._connections.model, recipe)
        tape = None if make is None else make(prompt, recipe, real, notices)
        model = real() if tape is None else tape.model
        path = (*around.turn.agent_path, agent_tool.name)
        project = around.turn.project.for_inner_turn() if recipe.rules else NO_PROJECT
        sources = with_skills(inner_toolsets(recipe, self._connections, self._approvals, self._in_doubt), project)
        is_paid = tape is None or tape.mode not in OFFLINE_MODES
        turn = turn_of_agent_tool(
            around,
            agent=recipe,
            model=model,
            toolsets=sources if tape is None else tape.toolsets(sources),
            prompt=prompt,
            approvals=self._approvals.setdefault(path, Approvals(self._in_doubt)),
            facts=info(model.name, address_of(model)),
            meters=(
                Meter(f"agent {agent_tool.name}", agent_tool.max_cost, agent_tool.max_tokens),
                Meter("turn", recipe.max_cost, recipe.max_tokens),
                *(period_meters(model.name) if is_paid else ()),
                *around.meters,
            ),
            notices=notices,
            project=project,
            name=agent_tool.name,
        )
        events: list[Event] = []

        def emit(event: Event) -> None:
            events.append(event)
            around.tell(event)

        play = run_turn if tape is None else tape.play
        return await play(turn, Channel(events, emit, around.ask))


def inner_toolsets(
    agent: Agent,
    connections: Connections,
    approvals: MutableMapping[AgentPath, Approvals],
    in_doubt: set[ToolKey],
) -> tuple[Toolset, ...]:
    """Return the toolsets of an agent: its functions, toolsets and servers, and the agents that it may ask."""
    own = (AgentTools(agent, connections, approvals, in_doubt),) if agent.agent_tools else ()
    return (*connections.toolsets(agent), *own)


def _checked_definition(agent_tool: AgentTool) -> ToolDef:
    """Return the definition of an agent tool.

    Raises UsageError if the settings of a teacher or administrator allow no agent tools, or if the tool's budgets are
    higher than these settings allow.
    """
    bounds = class_settings()
    bounds.check_switch("agents", f"The agent {agent_tool.name} is left out")
    bounds.cap("max_cost", agent_tool.max_cost)
    bounds.cap("max_tokens", agent_tool.max_tokens)
    return agent_tool.definition


def _result(agent_tool: AgentTool, call: ToolCall, outcome: Outcome) -> ToolResult:
    """Return the answer of an agent as the result of its call, or a failure that says why there is no answer."""
    result = outcome.result
    if result.stop_reason == "cancelled":
        return failure(call, f"{agent_tool.name} was stopped before it had an answer.", "interrupted")
    wants_value = agent_tool.agent.output is not None
    if result.stop_reason in _ANSWER_REASONS and (
        result.value is not None if wants_value else result.final_text.strip()
    ):
        value = json_form(result.value) if wants_value else None
        return ToolResult(call.id, call.name, (Text(result.final_text),), structured=value)
    why = result.error or "It gave no answer."
    part = result.final_text.strip()
    return failure(call, f"{agent_tool.name} failed: {why}{f' It had written: {part}' if part else ''}")
