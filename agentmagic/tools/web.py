"""Two tools that the model provider runs on its own servers: one searches the web, one fetches web pages."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from agentmagic.classroom import class_settings
from agentmagic.errors import UsageError
from agentmagic.messages import FETCH, SEARCH, HostedTool, ToolCall, ToolDef, ToolResult
from agentmagic.text import json_line
from agentmagic.tools.base import Effects, Tool, ToolContext, failure

LETS = {
    SEARCH: "Lets the model's provider search the web in this session. A search may cost a fee.",
    FETCH: "Lets the model's provider read pages of the web in this session.",
}
MOST_DOMAINS = 100
"""OpenAI accepts at most this many domains; other providers document no limit."""
NO_WEB = (
    "{model} has no {tool} of its own, so it is asked without. Add an MCP server that has one (%mcp add fetch uvx "
    "mcp-server-fetch), or choose a model of OpenAI, Anthropic or Gemini."
)
NO_WISH = "{model} cannot keep {tool} to {wish}, so it is asked without. Leave {wish} out, or choose another model."
_DOMAIN = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}")


def web_search(domains: Sequence[str] = (), max_uses: int | None = None) -> Tool:
    """Let the model search the web, on its provider's servers.

    `domains` limits the search to these sites and their subdomains, for example "python.org". `max_uses` limits the
    searches in one request. The user is asked once in a session. Most providers charge a fee for searches. Raises
    UsageError for an invalid value.
    """
    return _web_tool(SEARCH, "Search the web.", domains, max_uses)


def web_fetch(domains: Sequence[str] = (), max_uses: int | None = None) -> Tool:
    """Let the model read web pages whose addresses are in the conversation, on its provider's servers.

    `domains` and `max_uses` limit the pages as in `web_search`. Raises UsageError for an invalid value.
    """
    return _web_tool(FETCH, "Read a page of the web.", domains, max_uses)


def _web_tool(name: str, description: str, domains: Sequence[str], max_uses: int | None) -> Tool:
    if isinstance(domains, str) or len(domains) > MOST_DOMAINS:
        raise UsageError(f"domains is {domains!r:.80}. Give a list of at most {MOST_DOMAINS} names of sites.")
    for domain in cast("Sequence[object]", domains):
        if not isinstance(domain, str) or not _DOMAIN.fullmatch(domain):
            raise UsageError(f'domains has {domain!r:.80}. Write the name of a site alone, for example "python.org".')
    uses = cast("object", max_uses)
    if uses is not None and (isinstance(uses, bool) or not isinstance(uses, int) or uses < 1):
        raise UsageError(f"max_uses is {max_uses!r}. Give a whole number from 1 on, or None.")
    hosted_tool = HostedTool(name, tuple(domains), max_uses)
    # The user's approval is bound to the definition of the tool, so the definition must contain the limits.
    bounds = f" {json_line(limits_of(hosted_tool))}" if limits_of(hosted_tool) else ""
    definition = ToolDef(name, description + bounds)
    return Tool(
        definition, _refuse_call, ask=True, fixed=True, effects=lambda _: Effects((LETS[name],)), hosted=hosted_tool
    )


def check_model(model: str) -> None:
    """Raise UsageError for a model that always searches the web, if a teacher or administrator has limited searches.

    The limit forbids web searches, or requires that the user is asked first. `model` is the full name of the model,
    with its provider.
    """
    bounds = class_settings()
    verdict, setting = bounds.verdict(asks=True, code=False, web=True)
    if verdict is None:
        return
    from agentmagic.providers.openai.client import is_search_model

    if is_search_model(model.partition(":")[2].rpartition("/")[2]):
        raise UsageError(
            f"The model {model} always searches the web, and {bounds.scope(setting)} has "
            f"{bounds.setting_with_file(setting)}. Choose another one."
        )


async def _refuse_call(call: ToolCall, _context: ToolContext) -> ToolResult:
    return failure(call, f"{call.name} is carried out by the provider of the model, and not by a call.")


def limits_of(tool: HostedTool | None) -> dict[str, Any]:
    """Return the limits of a tool that the provider runs. The user sees them when asked to allow the tool."""
    pairs = () if tool is None else (("domains", list(tool.domains)), ("max_uses", tool.max_uses))
    return {name: value for name, value in pairs if value}


def why_without(tool: HostedTool | None, model: str, hosts: Callable[[HostedTool], bool]) -> str:
    """Return a sentence that says why a tool that the provider should run is left out of a request to the model.

    Either the provider does not have the tool at all, or it does not support the tool's limits. `hosts` returns whether
    the provider can run a tool with its limits.
    """
    name = tool.name if tool else ""
    wish = next((wish for wish, variant in _without_limits(tool) if hosts(variant)), "")
    return (NO_WISH if wish else NO_WEB).format(model=model, tool=name, wish=wish)


def _without_limits(tool: HostedTool | None) -> Iterator[tuple[str, HostedTool]]:
    """Yield copies of a tool that lack one or both of its limits, each with the names of the limits that it lacks."""
    if tool is not None:
        yield "domains", replace(tool, domains=())
        yield "max_uses", replace(tool, max_uses=None)
        yield "domains and max_uses", replace(tool, domains=(), max_uses=None)
