"""Which tools of a provider's own a turn has: those that it carries out, and that the user lets it by one answer."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agentmagic.approval.approvals import DEFAULT, Gate, Refused
from agentmagic.messages import SEARCH, ToolCall
from agentmagic.providers.base import Model, hosts
from agentmagic.tools.base import Tool
from agentmagic.tools.web import LETS, asked, why_without


def take_hosted(tools: dict[str, Tool]) -> list[Tool]:
    """Take the tools of a provider's own out of a turn's tools, and return them: no call can run them."""
    return [tools.pop(name) for name, tool in tuple(tools.items()) if tool.hosted is not None]


async def settle_hosted(tools: dict[str, Tool], model: Model, gate: Gate) -> tuple[tuple[Tool, ...], list[str]]:
    """Take the tools of a provider's own out of a turn's tools.

    Return those that the model's provider carries out and may, and why it is asked without the others, in sentences.
    The user is asked about all of them at once, for the session.
    """
    found = take_hosted(tools)
    here = [tool for tool in found if hosts(model, tool.hosted)]
    search = next((tool for tool in found if tool.name == SEARCH), None)
    why = [words for tool in found if tool not in here and (words := _why_without(tool, search, model))]
    granted, refusals = await _granted(here, gate)
    return tuple(granted), [*why, *refusals]


async def _granted(tools: Sequence[Tool], gate: Gate) -> tuple[list[Tool], list[str]]:
    """Return the tools that the provider may carry out, and why it may not carry out others."""
    granted, refusals = list[Tool](), list[str]()
    asking = [tool for tool in tools if _verdict(tool, gate) == "ask"]
    refused = False

    def effects(_: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(LETS[tool.name] for tool in asking)

    for tool in tools:
        if refused and tool in asking:
            continue
        if gate.approvals.denial(tool.definition) and _verdict(tool, gate) == "deny":
            continue  # which was told when the user said no
        call = ToolCall(f"call_{uuid.uuid4().hex}", tool.name, asked(tool.hosted))
        admitted = await gate.admit(replace(tool, effects=effects), call)
        if isinstance(admitted, Refused):
            refusals.append(admitted.words)
            refused = refused or tool in asking
            for other in asking if (no := gate.approvals.denial(tool.definition)) else ():
                gate.approvals.deny(other.definition, no)
            continue
        granted.append(tool)
        for other in asking if tool in asking else ():
            gate.approvals.approve(other.definition, [DEFAULT], always=True)
    return granted, refusals


def _verdict(tool: Tool, gate: Gate) -> str:
    return gate.decide(tool.definition, asked(tool.hosted), asks=tool.ask, web=True).verdict


def _why_without(tool: Tool, search: Tool | None, model: Model) -> str:
    """Return why a model is asked without a tool, "" if its search opens pages under the same bounds."""
    wanted = search.hosted if search else None
    if wanted and tool.hosted == replace(wanted, name=tool.name) and hosts(model, wanted):
        return ""
    return why_without(tool.hosted, model.name, partial(hosts, model))
