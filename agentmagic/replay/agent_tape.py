"""The turns of agents that calls of a turn on tape ask: they are on the same tape, inside that turn."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from agentmagic.agent import Agent
from agentmagic.events import Notice
from agentmagic.messages import Message, ToolCall, ToolResult
from agentmagic.providers.base import Model
from agentmagic.replay.exchange import Json, blanked
from agentmagic.replay.inner_takes import take_inside
from agentmagic.replay.model_facts import model_facts, model_name
from agentmagic.replay.player import Player
from agentmagic.replay.recorder import Place, TurnRecorder
from agentmagic.runtime.engine import void
from agentmagic.tools.base import Tool, ToolContext

if TYPE_CHECKING:
    from agentmagic.replay.tape import TurnTape


async def ask_agent(tape: "TurnTape", tool: Tool, call: ToolCall, context: ToolContext, place: Place) -> ToolResult:
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
    result = await tool.invoke(call, context)
    return await player.play_call(document, place, call, context) if tape.frozen else result


def _inner_tape(  # noqa: PLR0913  (what a turn on tape is made of)
    tape: "TurnTape",
    name: str,
    place: Place,
    player: Player | None,
    prompt: Message,
    recipe: Agent,
    real: Callable[[], Model],
    notices: deque[Notice],
) -> "TurnTape":
    """Return the tape of the turn of an agent; `player` plays it, None if it is not played."""
    head: Json = {"turn": blanked(prompt.text)}
    real = cache(real)

    def record() -> TurnRecorder:
        return tape.recorder_at(place).inside(name, place, {**head, **model_facts(recipe, real())})

    return replace(
        tape,
        mode="replay" if tape.mode == "replay-tools" else tape.mode,  # an agent is a tool, whose tape plays
        player=player,
        record=None if tape.record is None else record,
        real=real,
        name=model_name(recipe, None if player is None else player.take, real),
        prompt=str(head["turn"]),
        values=(),
        notices=notices,
        known=type(tape.known)(),
        settle=void,
    )
