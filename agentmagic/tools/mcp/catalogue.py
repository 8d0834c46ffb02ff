"""Prompts and resources of servers, as values; what a server says of them is clean and bounded."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentmagic.messages import Message
from agentmagic.tools.mcp.content import to_parts
from agentmagic.tools.mcp.words import line

if TYPE_CHECKING:
    from mcp import Client, types

PAGES = 50
"""Pages asked of one server's list; a server may never come to an end."""

MOST_ENTRIES = 500
"""Prompts or resources kept of one server."""

MOST_MESSAGES = 100
LONGEST_NAME = 200
LONGEST_ADDRESS = 2000
LONGEST_DESCRIPTION = 1000


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a prompt; its value is text."""

    name: str
    description: str
    required: bool


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that a server offers, to be had by its name."""

    server: str
    name: str
    description: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """Something a server has to read; the URI of a `template` has places in braces to fill in first."""

    server: str
    uri: str
    name: str
    description: str
    media_type: str
    template: bool = False


async def pages(fetch: Callable[[str | None], Awaitable[Any]], items: Callable[[Any], Sequence[Any]]) -> list[Any]:
    """Return the items of all pages of a list, as far as they are kept; a cursor that repeats ends it."""
    found: list[Any] = []
    cursor: str | None = None
    seen: set[str | None] = set()
    while cursor not in seen and len(seen) < PAGES and len(found) < MOST_ENTRIES:
        seen.add(cursor)
        page = await fetch(cursor)
        found += items(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    return found[:MOST_ENTRIES]


async def tools(client: "Client") -> "list[types.Tool]":
    """List the tools of a server."""
    return await pages(lambda cursor: client.list_tools(cursor=cursor), lambda page: page.tools)


async def prompts(client: "Client", server: str) -> list[Prompt]:
    """List the prompts of a server; none where it offers none."""
    if client.server_capabilities.prompts is None:
        return []
    found = await pages(lambda cursor: client.list_prompts(cursor=cursor), lambda page: page.prompts)
    return [_prompt(server, one) for one in found]


async def resources(client: "Client", server: str) -> list[ResourceEntry]:
    """List the resources of a server and then its templates; none where it offers none."""
    if client.server_capabilities.resources is None:
        return []
    found = await pages(lambda cursor: client.list_resources(cursor=cursor), lambda page: page.resources)
    templates = await pages(_templates(client), lambda page: page.resource_templates)
    return [_resource(server, one, one.uri) for one in found] + [
        _resource(server, one, one.uri_template, template=True) for one in templates
    ]


def _templates(client: "Client") -> Callable[[str | None], Awaitable[Any]]:
    async def fetch(cursor: str | None) -> Any:
        from mcp import MCPError, types

        try:
            return await client.list_resource_templates(cursor=cursor)
        except MCPError as error:
            if error.code == types.METHOD_NOT_FOUND:  # many servers have resources and no templates
                return types.ListResourceTemplatesResult(resource_templates=[])
            raise

    return fetch


def to_messages(answer: "types.GetPromptResult") -> tuple[Message, ...]:
    """Turn a prompt that a server filled in into messages."""
    return tuple(Message(one.role, to_parts([one.content])) for one in answer.messages[:MOST_MESSAGES])


def _prompt(server: str, given: "types.Prompt") -> Prompt:
    arguments = tuple(
        Argument(one.name, line(one.description or "", LONGEST_DESCRIPTION), bool(one.required))
        for one in (given.arguments or ())[:MOST_MESSAGES]
    )
    return Prompt(server, given.name, line(given.description or given.title or "", LONGEST_DESCRIPTION), arguments)


def _resource(
    server: str, given: "types.Resource | types.ResourceTemplate", uri: str, *, template: bool = False
) -> ResourceEntry:
    return ResourceEntry(
        server,
        uri[:LONGEST_ADDRESS],
        line(given.title or given.name, LONGEST_NAME),
        line(given.description or "", LONGEST_DESCRIPTION),
        line(given.mime_type or "", 100),
        template,
    )
