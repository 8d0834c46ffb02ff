"""Makes the contexts of inner turns: the turn of an agent tool inside another turn, and the turn of a row of a map.

No other module makes them. `ORIGINS` says for each field of `TurnContext` what an inner turn has of it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack

from agentmagic.agent import Agent
from agentmagic.approval.approvals import Approvals
from agentmagic.context.rules import Project
from agentmagic.events import Notice, PromptValue
from agentmagic.loop.budgets import Meter, Reservations
from agentmagic.loop.turn_context import OuterTurn, TurnContext
from agentmagic.messages import Message
from agentmagic.providers.base import Model
from agentmagic.providers.catalog import ModelInfo
from agentmagic.tools.base import Toolset

Kind = Literal["agent tool", "row"]
Origin = Literal["outer", "made", "new", "own"]
"""Where a field of an inner turn comes from.

"outer": it is the same as in the outer turn. "made": this module makes it from the outer turn. "new": it is the default
of `TurnContext`. "own": the caller gives it, because it belongs to the agent tool or to the row.
"""

ORIGINS: Mapping[str, Mapping[Kind, Origin]] = {
    "agent": {"agent tool": "own", "row": "outer"},
    "model": {"agent tool": "own", "row": "own"},  # a row that a batch has answered has a model with this answer
    "toolsets": {"agent tool": "own", "row": "outer"},
    "prompt": {"agent tool": "own", "row": "own"},
    "history": {"agent tool": "new", "row": "outer"},  # an agent tool begins without an earlier conversation
    "approvals": {"agent tool": "own", "row": "outer"},
    "facts": {"agent tool": "own", "row": "outer"},
    "view": {"agent tool": "new", "row": "new"},
    "meters": {"agent tool": "own", "row": "made"},  # each row counts for itself; the map limits it by `row`
    "notices": {"agent tool": "own", "row": "new"},
    "plan": {"agent tool": "new", "row": "new"},
    "step": {"agent tool": "made", "row": "new"},
    "tape": {"agent tool": "new", "row": "new"},  # each agent tool has a tape of its own, which sets this
    "traffic": {"agent tool": "outer", "row": "new"},
    "values": {"agent tool": "new", "row": "own"},
    "seen_notices": {"agent tool": "outer", "row": "outer"},
    "unreachable": {"agent tool": "outer", "row": "outer"},
    "watcher": {"agent tool": "outer", "row": "outer"},
    "row": {"agent tool": "outer", "row": "own"},  # each request that a row causes waits with the rows
    "caller": {"agent tool": "new", "row": "new"},  # the model of the inner turn makes the calls
    "project": {"agent tool": "own", "row": "outer"},
    "account": {"agent tool": "made", "row": "outer"},
    "around": {"agent tool": "made", "row": "new"},
    "name": {"agent tool": "own", "row": "outer"},
}
"""For each field of `TurnContext`, where it comes from in the turn of an agent tool and in the turn of a row."""


class AgentTurnFields(TypedDict):
    """The fields of `TurnContext` that belong to an agent tool."""

    agent: Agent
    model: Model
    toolsets: Sequence[Toolset]
    prompt: Message
    approvals: Approvals
    facts: ModelInfo
    meters: Sequence[Meter]
    notices: deque[Notice]
    project: Project
    name: str


class RowFields(TypedDict):
    """The fields of `TurnContext` that belong to a row of a map."""

    model: Model
    prompt: Message
    values: tuple[PromptValue, ...]
    row: Reservations | None


def turn_of_agent_tool(around: OuterTurn, **own: Unpack[AgentTurnFields]) -> TurnContext:
    """Return the context of an agent tool's turn, inside the outer turn that called the tool."""
    made = {
        "step": around.steps,
        "account": replace(around.turn.account, name=own["name"]),
        "around": around,
    }
    return _inner_turn("agent tool", around.turn, made, own)


def turn_of_row(shared: TurnContext, **own: Unpack[RowFields]) -> TurnContext:
    """Return the context of a row's turn. `shared` is the context that the map has for all its rows."""
    return _inner_turn("row", shared, {"meters": tuple(map(replace, shared.meters))}, own)


def _inner_turn(kind: Kind, outer: TurnContext, made: Mapping[str, Any], own: Mapping[str, Any]) -> TurnContext:
    same = {name: getattr(outer, name) for name, origins in ORIGINS.items() if origins[kind] == "outer"}
    return TurnContext(**same, **made, **own)
