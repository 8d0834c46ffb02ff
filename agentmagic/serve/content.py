"""Conversion of tool definitions and results to the types of the mcp library, with secrets redacted."""

import base64
from typing import TYPE_CHECKING

from agentmagic.messages import Content, Media, Resource, Text, ToolDef, ToolResult, as_text
from agentmagic.secrets import redact
from agentmagic.text import encodable, encodable_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp import types


def fit_text(text: str) -> str:
    """Return a text for a client: with secrets redacted, and without lone surrogates, which break the JSON."""
    return encodable(redact(text))


def to_tool(tool: ToolDef) -> "types.Tool":
    """Return a tool definition as an MCP tool."""
    from mcp import types

    about = "\n\n".join((tool.description, *(f"Example: {one.question}" for one in tool.examples)))
    return types.Tool(name=tool.name, description=fit_text(about), input_schema=encodable_value(dict(tool.parameters)))


def to_answer(result: ToolResult) -> "types.CallToolResult":
    """Return a tool result as an MCP result, without structured content: all MCP clients can read the text."""
    from mcp import types

    content = [block for part in result.content for block in _blocks(part)]
    return types.CallToolResult(content=content, is_error=result.is_error)


def _blocks(part: Content) -> "Iterator[types.ContentBlock]":
    from mcp import types

    match part:
        case Text(text=text):
            yield types.TextContent(type="text", text=fit_text(text))
        case Media(media_type=kind, data=data) if kind.startswith(("image/", "audio/")):
            base64_text = base64.b64encode(data).decode()
            image = kind.startswith("image/")
            block_type = types.ImageContent if image else types.AudioContent
            yield block_type(type="image" if image else "audio", data=base64_text, mime_type=kind)  # type: ignore[arg-type]
        case Resource(uri=uri, media_type=kind, text=text) if uri:
            inside = types.TextResourceContents(uri=uri, mime_type=kind or None, text=fit_text(text))
            yield types.EmbeddedResource(type="resource", resource=inside)
        case _:
            yield types.TextContent(type="text", text=fit_text(as_text(part)))
