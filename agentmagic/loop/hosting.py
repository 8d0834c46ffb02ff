"""Decide which tools, such as web search, the provider itself may run in a turn, and ask the user once about them."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agentmagic.approval.approvals import DEFAULT, Gate, Refused
from agentmagic.messages import SEARCH, ToolCall
from agentmagic.providers.base import Model, hosts
from agentmagic.tools.base import Effects, Tool
from agentmagic.tools.web import LETS, limits_of, why_without


def take_hosted(tools: dict[str, Tool]) -> list[Tool]:
    """Remove from a turn's tools those that the provider runs itself and that cannot run here, and return them."""
    return [tools.pop(name) for name, tool in tuple(tools.items()) if tool.hosted is not None]


async def settle_hosted(tools: dict[str, Tool], model: Model, gate: Gate) -> tuple[tuple[Tool, ...], list[str]]:
    """Remove from a turn's tools those that only a model's provider can run, such as web search.

    Return those that this provider supports and the user allows, and sentences that say why others are left out. The
    user is asked about all of them at once, and the answer holds for the session.
    """
    hosted_tools = take_hosted(tools)
    here = [tool for tool in hosted_tools if hosts(model, tool.hosted)]
    search = next((tool for tool in hosted_tools if tool.name == SEARCH), None)
    why = [reason for tool in hosted_tools if tool not in here and (reason := _why_without(tool, search, model))]
    usable, refusals = await _admit(here, gate)
    return tuple(usable), [*why, *refusals]


async def _admit(tools: Sequence[Tool], gate: Gate) -> tuple[list[Tool], list[str]]:
    """Return the tools that the provider may run, and sentences on why it may not run the others."""
    usable, refusals = list[Tool](), list[str]()
    asking = [tool for tool in tools if _verdict(tool, gate) == "ask"]
    refused = False

    def effects(_: Mapping[str, Any]) -> Effects:
        return Effects(tuple(LETS[tool.name] for tool in asking))

    for tool in tools:
        if refused and tool in asking:
            continue
        if gate.approvals.denial(tool.definition) and _verdict(tool, gate) == "deny":
            continue  # do not repeat the reason: the user denied this tool in an earlier turn, which gave the reason
        call = ToolCall(f"call_{uuid.uuid4().hex}", tool.name, limits_of(tool.hosted))
        permit = await gate.admit(replace(tool, effects=effects), call)
        if isinstance(permit, Refused):
            refusals.append(permit.reason)
            refused = refused or tool in asking
            for other in asking if (no := gate.approvals.denial(tool.definition)) else ():
                gate.approvals.deny(other.definition, no)
            continue
        usable.append(tool)
        for other in asking if tool in asking else ():
            gate.approvals.approve(other.definition, [DEFAULT], always=True)
    return usable, refusals


def _verdict(tool: Tool, gate: Gate) -> str:
    return gate.decide(tool.definition, limits_of(tool.hosted), asks=tool.ask, web=True).verdict


def _why_without(tool: Tool, search: Tool | None, model: Model) -> str:
    """Return why a tool of the provider is left out; "" if `search` opens web pages too, within the same limits."""
    bounds = search.hosted if search else None
    if bounds and tool.hosted == replace(bounds, name=tool.name) and hosts(model, bounds):
        return ""
    return why_without(tool.hosted, model.name, partial(hosts, model))
