"""Agents that are called as tools in a recorded turn: their own turns are recorded and replayed inside that turn."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, Protocol

from agentmagic.agent import Agent
from agentmagic.errors import ReplayMismatch
from agentmagic.events import Notice
from agentmagic.messages import Message, ToolCall, ToolResult
from agentmagic.providers.base import Model
from agentmagic.replay.exchange import Json, blank_secrets
from agentmagic.replay.inner_takes import take_inside
from agentmagic.replay.model_facts import model_facts, model_name
from agentmagic.replay.player import Player
from agentmagic.replay.recorder import Place, TurnRecorder
from agentmagic.runtime.engine import void
from agentmagic.settings import Replay
from agentmagic.tools.base import Tool, ToolContext


class OuterTape(Protocol):
    """The methods that this module needs of the object that records or replays the calling turn: a `TurnTape`."""

    mode: Replay
    player: Player | None
    record: Callable[[], TurnRecorder] | None
    recorder: TurnRecorder | None
    frozen: bool

    def recorded_call(self, player: Player, place: Place, call: ToolCall) -> Json:
        """Return the recorded result of a tool call. Raises ReplayMismatch if the call was not recorded."""
        ...

    def recorder_at(self, place: Place) -> TurnRecorder:
        """Return the recorder of the turn. If the turn was replayed so far, use a live model from this call on."""
        ...


async def ask_agent(tape: OuterTape, tool: Tool, call: ToolCall, context: ToolContext, place: Place) -> ToolResult:
    """Run an agent that is called as a tool, and record or replay its turn. Return the result of the tool call.

    In a replay, the result is the recorded one, except in the mode `replay-model`, in which tools really run.

    Raises ReplayMismatch if a request of the agent's turn differs from the recording, and CassetteError if the
    cassette cannot be used.
    """
    player = tape.player
    if player is None or tape.recorder is not None:
        context.tape = partial(_inner_tape, tape, call.name, place, None)
        return await tool.invoke(call, context)
    document = tape.recorded_call(player, place, call)
    take = take_inside(player.take, document)
    if take is None:  # no turn of the agent was recorded, for example because agents were nested too deep
        return await player.play_call(document, place, call, context)
    context.tape = partial(_inner_tape, tape, call.name, place, Player(player.cassette, take, timed=player.timed))
    try:
        result = await tool.invoke(call, context)
    except ReplayMismatch as error:
        raise ReplayMismatch(f"In the turn of the agent {call.name}: {error}", error.differences) from None
    return await player.play_call(document, place, call, context) if tape.frozen else result


def _inner_tape(  # noqa: PLR0913  (what a turn on tape is made of)
    tape: OuterTape,
    name: str,
    place: Place,
    player: Player | None,
    prompt: Message,
    recipe: Agent,
    real: Callable[[], Model],
    notices: deque[Notice],
) -> Any:
    """Return the recorder and player for the turn of an agent called as a tool. `player` is None if it runs live."""
    head: Json = {"turn": blank_secrets(prompt.text)}
    real = cache(real)

    def record() -> TurnRecorder:
        return tape.recorder_at(place).inside(name, place, {**head, **model_facts(recipe, real())})

    outer: Any = tape
    return replace(
        outer,
        mode="replay" if tape.mode == "replay-tools" else tape.mode,  # replay the agent: here it is a tool
        player=player,
        record=None if tape.record is None else record,
        real=real,
        name=model_name(recipe, None if player is None else player.take, real),
        prompt=str(head["turn"]),
        values=(),
        notices=notices,
        known=type(outer.known)(),
        settle=void,
    )
