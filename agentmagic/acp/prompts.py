"""Content for an outside agent: a prompt as content blocks, and the earlier conversation as text."""

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentmagic.acp import bounds
from agentmagic.messages import Content, Media, Message, Reasoning, Resource, Text, ToolCall, ToolResult, as_text
from agentmagic.text import clip, cut_middle, json_line

if TYPE_CHECKING:
    from acp.schema import AgentCapabilities

EARLIER = "The conversation so far, which is new to you:"
INSTRUCTIONS = "Instructions for this conversation:"
LONGEST_PART = 4000
"""Longest text of one call or result in the earlier conversation, in characters."""


def content_blocks(parts: Sequence[Any], capabilities: "AgentCapabilities | None") -> list[Any]:
    """Return the parts of a prompt as content blocks; a part that the agent cannot read becomes text that names it."""
    return [_block(part, capabilities) for part in parts]


def text_blocks(*texts: str) -> list[Any]:
    """Return a list with one content block that joins the texts, [] if all texts are empty."""
    from acp.schema import TextContentBlock

    text = "\n\n".join(filter(None, texts))
    return [TextContentBlock(type="text", text=text)] if text else []


def _block(part: Content, capabilities: "AgentCapabilities | None") -> Any:
    from acp.schema import (
        BlobResourceContents,
        EmbeddedResourceContentBlock,
        ImageContentBlock,
        TextContentBlock,
        TextResourceContents,
    )

    takes = capabilities.prompt_capabilities if capabilities is not None else None
    match part:
        case Media() if part.media_type.startswith("image/") and takes is not None and takes.image:
            data = b64encode(part.data).decode()
            return ImageContentBlock(type="image", data=data, mime_type=part.media_type)
        case Media() if takes is not None and takes.embedded_context:
            uri = f"attachment:{part.name or part.media_type}"
            inner = BlobResourceContents(blob=b64encode(part.data).decode(), uri=uri, mime_type=part.media_type)
            return EmbeddedResourceContentBlock(type="resource", resource=inner)
        case Resource() if part.text and takes is not None and takes.embedded_context:
            inner = TextResourceContents(text=part.text, uri=part.uri, mime_type=part.media_type or None)
            return EmbeddedResourceContentBlock(type="resource", resource=inner)
        case _:
            return TextContentBlock(type="text", text=part.text if isinstance(part, Text) else as_text(part))


def earlier_text(messages: Sequence[Message]) -> str:
    """Return messages as text for an agent that has not seen them; a long text loses its middle.

    Without any text, return "". Reasoning is left out.
    """
    lines = [line for message in messages for line in _lines(message)]
    if not lines:
        return ""
    text = "\n\n".join(lines)
    return f"{EARLIER}\n\n{cut_middle(text, bounds.EARLIER, lambda left, _: f'[{left:,} characters are left out]')}"


def _lines(message: Message) -> list[str]:
    who = "User" if message.role == "user" else "Assistant"
    lines: list[str] = []
    for part in message.parts:
        match part:
            case Reasoning():
                pass
            case ToolCall():
                lines.append(f"Call of {part.name}: {clip(json_line(part.arguments), LONGEST_PART)}")
            case ToolResult():
                lines.append(f"Result of {part.name} ({part.status}): {clip(part.text, LONGEST_PART)}")
            case _:
                lines.append(f"{who}: {part.text if isinstance(part, Text) else as_text(part)}")
    return lines
