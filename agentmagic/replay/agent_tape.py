"""The turns of agents that calls of a turn on tape ask: they are on the same tape, inside that turn."""

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
from agentmagic.replay.exchange import Json, blanked
from agentmagic.replay.inner_takes import take_inside
from agentmagic.replay.model_facts import model_facts, model_name
from agentmagic.replay.player import Player
from agentmagic.replay.recorder import Place, TurnRecorder
from agentmagic.runtime.engine import void
from agentmagic.settings import Replay
from agentmagic.tools.base import Tool, ToolContext


class OuterTape(Protocol):
    """The tape of the turn that makes the call: what a `TurnTape` has."""

    mode: Replay
    player: Player | None
    record: Callable[[], TurnRecorder] | None
    recorder: TurnRecorder | None
    frozen: bool

    def recorded_call(self, player: Player, place: Place, call: ToolCall) -> Json:
        """Return the recorded result of a call. Raises ReplayMismatch if there is none."""
        ...

    def recorder_at(self, place: Place) -> TurnRecorder:
        """Return the recorder; a tape that is played goes on live from the call on."""
        ...


async def ask_agent(tape: OuterTape, tool: Tool, call: ToolCall, context: ToolContext, place: Place) -> ToolResult:
    """Ask the agent of a call in a turn that is on tape too. The recorded answer is the result if the call is played.

    Raises ReplayMismatch if a request of that turn is not as recorded, and CassetteError.
    """
    player = tape.player
    if player is None or tape.recorder is not None:
        context.tape = partial(_inner_tape, tape, call.name, place, None)
        return await tool.invoke(call, context)
    document = tape.recorded_call(player, place, call)
    take = take_inside(player.take, document)
    if take is None:  # the agent was not asked: too deep, for example
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
    """Return the tape of the turn of an agent; `player` plays it, None if it is not played."""
    head: Json = {"turn": blanked(prompt.text)}
    real = cache(real)

    def record() -> TurnRecorder:
        return tape.recorder_at(place).inside(name, place, {**head, **model_facts(recipe, real())})

    played: Any = tape
    return replace(
        played,
        mode="replay" if tape.mode == "replay-tools" else tape.mode,  # an agent is a tool, whose tape plays
        player=player,
        record=None if tape.record is None else record,
        real=real,
        name=model_name(recipe, None if player is None else player.take, real),
        prompt=str(head["turn"]),
        values=(),
        notices=notices,
        known=type(played.known)(),
        settle=void,
    )
