"""Converts results, prompts and resources of an MCP server to agentmagic's types. It limits sizes and cleans texts."""

import base64
import binascii
import html
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from agentmagic.messages import Content, Media, Message, Resource, Text, ToolCall, ToolResult
from agentmagic.text import clean, json_line, single_line
from agentmagic.tools.mcp import limits

if TYPE_CHECKING:
    from mcp import Client, types

# Matches a carriage return without a line feed, vertical tab, form feed, NEL, and the line and paragraph separators.
# The pattern begins with a character class, because Python's `re` searches for one fast.
_LINE_END = re.compile("[\r\x0b\x0c\x85\u2028\u2029](?:(?<!\r)|(?!\n))")
_MEDIA_TYPE = re.compile(r"[a-zA-Z0-9.+-]{1,64}/[a-zA-Z0-9.+-]{1,100}")


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a server's prompt. Its value is a text."""

    name: str
    description: str
    required: bool


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that an MCP server offers under a name."""

    server: str
    name: str
    description: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """A resource of an MCP server. If it is a `template`, its URI has names in braces that the user must replace."""

    server: str
    uri: str
    name: str
    description: str
    media_type: str
    template: bool = False


def clean_lines(text: str) -> str:
    """Return a server's text without unsafe characters. Each kind of line end becomes a line feed.

    The line ends are converted first, because `clean` would remove all line ends except line feeds.
    """
    return clean(_LINE_END.sub("\n", text))


def to_result(call: ToolCall, answer: "types.CallToolResult") -> ToolResult:
    """Return a server's answer to a tool call as a ToolResult. Content over the limits is cut, with a note.

    Structured content that the text of the answer does not contain is added as JSON text, because models read text. A
    long text is sent to the model as a preview.
    """
    room = _Room()
    parts = [_part(block) for block in answer.content[: limits.RESULT_PARTS + 1]]
    content = room.take_all(parts)
    structured_content = answer.structured_content
    if structured_content is not None:
        text = json_line(structured_content)
        texts = [part.text for part in parts if isinstance(part, Text | Resource) and part.text]
        if not _is_in_texts(structured_content, texts):
            whole = "\n".join(texts)
            told = [_in_one_line(whole), _in_one_line(html.unescape(whole))]
            told += [getattr(block, "data", "") for block in answer.content if block.type in ("image", "audio")]
            if (beside := _beside(structured_content, told)) != ABOVE:
                content += [room.take(Text(line)) for line in ((BESIDE, json_line(beside)) if texts else (text,))]
        structured_content = structured_content if len(text) <= limits.RESULT_TEXT else None
    return ToolResult(call.id, call.name, tuple(content), "error" if answer.is_error else "ok", structured_content)


BESIDE = "[The structured content of this result, beside the text above:]"
ABOVE = "[in the text above]"
"""Stands in the structured content for a text that the model has read already."""

_BLOCKS = ("text", "image", "audio", "resource")
_FRAME = frozenset({"type", "mimeType", "annotations"})
"""The types of MCP's content blocks, and their fields that say nothing about the content."""

_LEAST = 20
"""The fewest characters of a text that is searched for inside a longer text. A shorter one could be there by chance."""


def _is_in_texts(structured_content: Any, texts: Sequence[str]) -> bool:
    """Return whether the texts of a result contain its structured content, as JSON or as one text per list item.

    A server with the Python SDK wraps a value that is not an object as `{"result": value}`, and writes the bare value
    as text. Other servers use other names.
    """
    bare = structured_content
    while isinstance(bare, dict) and len(cast("dict[str, Any]", bare)) == 1:
        (bare,) = cast("dict[str, Any]", bare).values()
    readings = [_values_in(text) for text in texts]
    items = cast("list[Any]", bare) if isinstance(bare, list) and len(cast("list[Any]", bare)) == len(readings) else []
    return any(reading in (structured_content, bare) for values in readings for reading in values) or (
        bool(items) and all(item in values for item, values in zip(items, readings, strict=True))
    )


def _beside(value: Any, texts: Sequence[str]) -> Any:
    """Return structured content in which `ABOVE` stands for each text that is in the texts. `ABOVE` if nothing else is.

    Blanks, and the escapes of JSON and HTML, do not count.
    """
    match value:
        case str() if any(needle in text for needle in _spellings(value) for text in texts):
            return ABOVE
        case list():
            items = [_beside(item, texts) for item in cast("list[Any]", value)]
            return ABOVE if items and all(item == ABOVE for item in items) else items
        case dict():
            fields = {name: _beside(item, texts) for name, item in cast("dict[str, Any]", value).items()}
            told = (
                fields.keys() - _FRAME if fields.get("type") in _BLOCKS else fields.keys()
            )  # MCP's own frame of content
            return ABOVE if told and all(fields[name] == ABOVE for name in told) else fields
        case _:
            return value


def _spellings(text: str) -> set[str]:
    """Return the forms in which a text can stand in another text; none if it is too short to be found for certain."""
    if len(text.strip()) < _LEAST:
        return set()
    return {_in_one_line(one) for one in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])}


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


def _values_in(text: str) -> list[Any]:
    """Return the values that a text can mean: the text itself and, if it is or contains JSON, the parsed JSON."""
    bare, values = text.strip(), list[Any]([text])
    with suppress(ValueError, RecursionError):
        values.append(json.loads(bare))
        return [*values, json.loads(values[-1])] if isinstance(values[-1], str) else values
    for start in filter(lambda at: at >= 0, (bare.find("{"), bare.find("["))):
        with suppress(ValueError, RecursionError):
            values.append(json.JSONDecoder().raw_decode(bare, start)[0])
    return values


class _Room:
    """Counts how much more text and media fit into one result before its limits are reached."""

    def __init__(self) -> None:
        self._text = limits.RESULT_TEXT
        self._media = limits.RESULT_MEDIA

    def take_all(self, parts: Iterable[Content]) -> list[Content]:
        contents = [self.take(part) for part in parts]
        if len(contents) > limits.RESULT_PARTS:
            contents[limits.RESULT_PARTS :] = [Text(f"[cut: more than {limits.RESULT_PARTS} parts]")]
        return contents

    def take(self, part: Content) -> Content:
        match part:
            case Text():
                return Text(self._cut(part.text))
            case Resource():
                return Resource(part.uri, part.name, part.media_type, self._cut(part.text))
            case Media() if len(part.data) > self._media:
                return Text(f"[{part.media_type} of {len(part.data)} bytes left out: the result is too large]")
            case Media():
                self._media -= len(part.data)
                return part

    def _cut(self, text: str) -> str:
        head, over = text[: self._text], len(text) - self._text
        self._text -= len(head)
        head = clean_lines(head)
        return f"{head}\n[cut: {over} more characters]" if over > 0 else head


def to_parts(blocks: "Sequence[types.ContentBlock | types.SamplingMessageContentBlock]") -> tuple[Content, ...]:
    """Convert the content blocks of an MCP prompt or message to message parts, within the limits of one result."""
    return tuple(_Room().take_all(_part(block) for block in blocks[: limits.RESULT_PARTS + 1]))


def to_contents(contents: "Sequence[types.TextResourceContents | types.BlobResourceContents]") -> tuple[Content, ...]:
    """Convert the contents of an MCP resource to message parts, within the limits of one tool result."""
    return tuple(_Room().take_all(_resource_part(one) for one in contents[: limits.RESULT_PARTS + 1]))


def to_messages(answer: "types.GetPromptResult") -> tuple[Message, ...]:
    """Convert a server's filled-in prompt to messages."""
    return tuple(Message(one.role, to_parts([one.content])) for one in answer.messages[: limits.PROMPT_MESSAGES])


def _part(block: "types.ContentBlock | types.SamplingMessageContentBlock") -> Content:
    match block.type:
        case "text":
            return Text(block.text)
        case "image" | "audio":
            return _media(block.data, block.mime_type, audience=_audience(block))
        case "resource":
            return _resource_part(block.resource)
        case "resource_link":
            name = single_line(block.title or block.name, limits.NAME)
            return Resource(single_line(block.uri, limits.ADDRESS), name, _media_type(block.mime_type))
        case "tool_use" | "tool_result":
            return Text(f"[{block.type} left out]")


def _resource_part(contents: "types.TextResourceContents | types.BlobResourceContents") -> Content:
    uri = single_line(contents.uri, limits.ADDRESS)
    # The field `text` shows which of the library's two types this is, without importing the mcp library.
    text = getattr(contents, "text", None)
    if text is not None:
        return Resource(uri, media_type=_media_type(contents.mime_type), text=text)
    return _media(getattr(contents, "blob", ""), contents.mime_type, uri)


def _audience(block: Any) -> str:
    """Return the reader for whom a content block is meant: "user", "assistant" (the model), or "" for both."""
    audience = getattr(getattr(block, "annotations", None), "audience", None) or ()
    return str(audience[0]) if len(audience) == 1 else ""


def _media(data: str, media_type: str | None, name: str = "", audience: str = "") -> Content:
    kind = _media_type(media_type) or "application/octet-stream"
    try:
        return Media(kind, base64.b64decode(data, validate=True), name, audience)
    except (binascii.Error, ValueError):
        return Text(f"[{kind} left out: what the server sent is not base64]")


def _media_type(value: str | None) -> str:
    """Return a media type without its parameters, or "" if it is not a valid media type."""
    bare = (value or "").partition(";")[0].strip()
    return bare if _MEDIA_TYPE.fullmatch(bare) else ""


async def _all_pages(fetch: Callable[[str | None], Awaitable[Any]], items: str) -> list[Any]:
    """Request all pages of a server's list, within the limits. Return their items. A repeated cursor ends the list."""
    entries: list[Any] = []
    cursor: str | None = None
    cursors: set[str | None] = set()
    while cursor not in cursors and len(cursors) < limits.PAGES and len(entries) < limits.LIST_ENTRIES:
        cursors.add(cursor)
        page = await fetch(cursor)
        entries += getattr(page, items)
        cursor = page.next_cursor
        if cursor is None:
            break
    return entries[: limits.LIST_ENTRIES]


async def list_tools(client: "Client") -> "list[types.Tool]":
    """Return the tools of a server."""
    return await _all_pages(lambda cursor: client.list_tools(cursor=cursor), "tools")


async def list_prompts(client: "Client", server: str) -> list[Prompt]:
    """Return the prompts of a server. The list is empty if the server does not support prompts."""
    if client.server_capabilities.prompts is None:
        return []
    entries = await _all_pages(lambda cursor: client.list_prompts(cursor=cursor), "prompts")
    return [_prompt(server, one) for one in entries]


async def list_resources(client: "Client", server: str) -> list[ResourceEntry]:
    """Return the resources of a server, then its templates. The list is empty if it does not support resources."""
    from mcp import MCPError, types

    if client.server_capabilities.resources is None:
        return []
    entries = await _all_pages(lambda cursor: client.list_resources(cursor=cursor), "resources")
    try:
        templates = await _all_pages(lambda cursor: client.list_resource_templates(cursor=cursor), "resource_templates")
    except MCPError as error:
        if error.code != types.METHOD_NOT_FOUND:  # Many servers have resources, but no templates.
            raise
        templates = []
    return [_resource(server, one, one.uri) for one in entries] + [
        _resource(server, one, one.uri_template, template=True) for one in templates
    ]


def _prompt(server: str, entry: "types.Prompt") -> Prompt:
    arguments = tuple(
        Argument(one.name, single_line(clean_lines(one.description or ""), limits.DESCRIPTION), bool(one.required))
        for one in (entry.arguments or ())[: limits.PROMPT_MESSAGES]
    )
    description = clean_lines(entry.description or entry.title or "")
    return Prompt(server, entry.name, single_line(description, limits.DESCRIPTION), arguments)


def _resource(
    server: str, entry: "types.Resource | types.ResourceTemplate", uri: str, *, template: bool = False
) -> ResourceEntry:
    return ResourceEntry(
        server,
        uri[: limits.ADDRESS],
        single_line(entry.title or entry.name, limits.NAME),
        single_line(clean_lines(entry.description or ""), limits.DESCRIPTION),
        single_line(entry.mime_type or "", 100),
        template,
    )
