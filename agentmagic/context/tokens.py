"""Estimates of tokens, used until a provider has counted them.

Four characters a token is the rule of thumb of OpenAI and Google for English; other scripts take more.
https://help.openai.com/en/articles/4936856 and https://ai.google.dev/gemini-api/docs/tokens
"""

import json
from collections.abc import Sequence
from typing import Any

from agentmagic.messages import Media, Message, Part, Reasoning, Resource, Text, ToolCall, ToolDef, ToolResult, as_text

CHARACTERS = 4
"""Characters of text that make one token."""
FRAME = 4
"""Tokens around each message, tool and result: its role, its name, its id."""
IMAGE = 1_000
"""Tokens of an image. Providers count by its size in pixels: 258 for a tile at Google, 85 to 1,100 at OpenAI."""
BYTES = 500
"""Bytes of audio, video or a document that make one token: a minute of speech as MP3 is about 2,000 tokens."""


def of_text(text: str) -> int:
    """Return the tokens of a text."""
    return -(-len(text) // CHARACTERS)


def of_message(message: Message) -> int:
    """Return the tokens of a message as a request would hold it."""
    return FRAME + sum(_of_part(part) for part in message.parts)


def of_tools(instructions: str, tools: Sequence[ToolDef]) -> int:
    """Return the tokens of the instructions and the tools of a request."""
    listed = (FRAME + of_text(tool.name + tool.description) + _of_json(tool.parameters) for tool in tools)
    return of_text(instructions) + sum(listed)


def _of_part(part: Part) -> int:
    match part:
        case Text():
            return of_text(part.text)
        case Media(media_type=kind):
            return IMAGE if kind.startswith("image/") else len(part.data) // BYTES
        case Resource():
            return of_text(as_text(part))
        case Reasoning(provider_data=data):
            # Opaque reasoning is sent back in place of its text, and is often much longer.
            return of_text(part.text) if data is None else _of_json(data.data)
        case ToolCall():
            return FRAME + of_text(part.name) + _of_json(part.arguments)
        case ToolResult():
            return FRAME + sum(_of_part(inner) for inner in part.content)


def _of_json(value: Any) -> int:
    return of_text(json.dumps(value, ensure_ascii=False, default=str))
