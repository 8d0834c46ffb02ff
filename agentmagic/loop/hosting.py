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


async def settle_hosted(tools: dict[str, Tool], model: Model, gate: Gate) -> list[str]:
    """Take out the tools that the provider does not carry out, or may not, and return why, in sentences.

    The user is asked about all of them at once, for the session.
    """
    found = [tool for tool in tools.values() if tool.hosted is not None]
    here = [tool for tool in found if hosts(model, tool.hosted)]
    why = [words for tool in found if tool not in here and (words := _why_without(tool, tools.get(SEARCH), model))]
    granted, refusals = await _granted(here, gate)
    for tool in found:
        if tool not in granted:
            del tools[tool.name]
    return [*why, *refusals]


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
        call = ToolCall(f"call_{uuid.uuid4().hex}", tool.name, asked(tool.hosted))
        admitted = await gate.admit(replace(tool, effects=effects), call)
        if isinstance(admitted, Refused):
            refusals.append(admitted.words)
            refused = refused or tool in asking
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
