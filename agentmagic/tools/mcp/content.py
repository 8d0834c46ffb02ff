"""From what a server answered to a `ToolResult`; pure, and bounded whatever the server sends."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from agentmagic.messages import Content, Media, Resource, Text, ToolCall, ToolResult
from agentmagic.tools.mcp.words import clean, line

if TYPE_CHECKING:
    from mcp import types

MOST_TEXT = 5_000_000
"""Characters of text kept of one result, over all its parts."""

MOST_MEDIA = 20_000_000
"""Bytes of images, sounds and other blobs kept of one result, over all its parts."""

MOST_PARTS = 1000
"""Parts kept of one result."""

_MEDIA_TYPE = re.compile(r"[a-zA-Z0-9.+-]{1,64}/[a-zA-Z0-9.+-]{1,100}")


def to_result(call: ToolCall, answer: "types.CallToolResult") -> ToolResult:
    """Turn a server's answer to a call into the call's result.

    Structured content without any text beside it is also given as JSON text, for models read text. What is
    over the bounds is cut, with a note in its place.
    """
    budget = _Budget()
    content = budget.take_all(_part(block) for block in answer.content[: MOST_PARTS + 1])
    structured = answer.structured_content
    if structured is not None:
        text = json.dumps(structured, ensure_ascii=False, default=str)
        if not any(isinstance(part, Text | Resource) for part in content):
            content.append(budget.take(Text(text)))
        structured = structured if len(text) <= MOST_TEXT else None
    return ToolResult(call.id, call.name, tuple(content), "error" if answer.is_error else "ok", structured)


class _Budget:
    """What one result may still hold."""

    def __init__(self) -> None:
        self.text_left = MOST_TEXT
        self.media_left = MOST_MEDIA

    def take_all(self, parts: Iterable[Content]) -> list[Content]:
        taken = [self.take(part) for part in parts]
        if len(taken) > MOST_PARTS:
            taken[MOST_PARTS:] = [Text(f"[cut: more than {MOST_PARTS} parts]")]
        return taken

    def take(self, part: Content) -> Content:
        match part:
            case Text():
                return Text(self._cut(part.text))
            case Resource():
                return Resource(part.uri, part.name, part.media_type, self._cut(part.text))
            case Media() if len(part.data) > self.media_left:
                return Text(f"[{part.media_type} of {len(part.data)} bytes left out: the result is too large]")
            case Media():
                self.media_left -= len(part.data)
                return part

    def _cut(self, text: str) -> str:
        kept, over = text[: self.text_left], len(text) - self.text_left
        self.text_left -= len(kept)
        kept = clean(kept)
        return f"{kept}\n[cut: {over} more characters]" if over > 0 else kept


def to_parts(blocks: "Sequence[types.ContentBlock | types.SamplingMessageContentBlock]") -> tuple[Content, ...]:
    """Turn content of a prompt or a message into parts, within the bounds of one result."""
    return tuple(_Budget().take_all(_part(block) for block in blocks[: MOST_PARTS + 1]))


def to_contents(contents: "Sequence[types.TextResourceContents | types.BlobResourceContents]") -> tuple[Content, ...]:
    """Turn what was read of a resource into parts, within the bounds of one result."""
    return tuple(_Budget().take_all(_embedded(one) for one in contents[: MOST_PARTS + 1]))


def _part(block: "types.ContentBlock | types.SamplingMessageContentBlock") -> Content:
    match block.type:
        case "text":
            return Text(block.text)
        case "image" | "audio":
            return _media(block.data, block.mime_type)
        case "resource":
            return _embedded(block.resource)
        case "resource_link":
            return Resource(line(block.uri, 2000), line(block.title or block.name, 200), _media_type(block.mime_type))
        case "tool_use" | "tool_result":
            return Text(f"[{block.type} left out]")


def _embedded(contents: "types.TextResourceContents | types.BlobResourceContents") -> Content:
    uri = line(contents.uri, 2000)
    # Told apart by what they hold, so that this module needs no mcp library to be imported.
    text = getattr(contents, "text", None)
    if text is not None:
        return Resource(uri, media_type=_media_type(contents.mime_type), text=text)
    return _media(getattr(contents, "blob", ""), contents.mime_type, uri)


def _media(data: str, media_type: str | None, name: str = "") -> Content:
    kind = _media_type(media_type) or "application/octet-stream"
    try:
        return Media(kind, base64.b64decode(data, validate=True), name)
    except (binascii.Error, ValueError):
        return Text(f"[{kind} left out: what the server sent is not base64]")


def _media_type(given: str | None) -> str:
    """Return a media type without its parameters, or nothing where it is not one."""
    bare = (given or "").partition(";")[0].strip()
    return bare if _MEDIA_TYPE.fullmatch(bare) else ""
