"""Exports a conversation as JSON: the events of its turns, or its messages in the format of one of three APIs."""

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from agentmagic import serialization
from agentmagic.context.request_view import part_to_send
from agentmagic.history.history import Turn
from agentmagic.history.repair import repair_messages
from agentmagic.messages import Message
from agentmagic.providers.base import Request
from agentmagic.providers.gemini import model as gemini_model
from agentmagic.providers.openai import chat_completions, responses
from agentmagic.secrets import redact
from agentmagic.text import encodable

Json = dict[str, Any]

FORMAT = "agentmagic"


def to_json(turns: Iterable[Turn]) -> str:
    """Return turns as one JSON document.

    It is `{"format": "agentmagic", "version": 1, "turns": [{"prompt": "...", "events": [...]}, ...]}`. The events
    are those of the turn without deltas (pieces of text), in the format and version of `agentmagic.serialization`.
    A value that JSON cannot hold, for example the float NaN, becomes null.
    """
    document = {"format": FORMAT, "version": serialization.VERSION, "turns": [_turn(turn) for turn in turns]}
    return write(document)


def to_openai(messages: Iterable[Message], instructions: str = "") -> list[Json]:
    """Return messages for Chat Completions: `chat.completions.create(messages=...)`.

    Instructions become a system message. This API accepts no reasoning, so reasoning is left out. It accepts no images
    in tool results, so these images follow in a user message. As for the other APIs, a tool call without a result gets
    an "interrupted" result, and searches and citations by another provider become text with links.
    """
    return chat_completions.encode(_request(messages, "openai-chat", instructions), "")["messages"]


def to_responses(messages: Iterable[Message], instructions: str = "") -> list[Json]:
    """Return messages for the Responses API: `responses.create(input=..., store=False)`.

    Instructions become a system message. Items that came from OpenAI's model are returned as OpenAI sent them.
    """
    system: list[Json] = [{"role": "system", "content": _clean(instructions)}] if instructions else []
    return [*system, *responses.encode(_request(messages, "openai"), "")["input"]]


def to_gemini(messages: Iterable[Message], model: str = "") -> list[Json]:
    """Return messages for Gemini: `models.generate_content(contents=...)`.

    Images are placed inside tool results if `model` accepts that. Else they follow the results: every model accepts
    this. The list cannot have instructions: give them to the SDK as `GenerateContentConfig(system_instruction=...)`.
    """
    return gemini_model.encode(_request(messages, "gemini"), model)["contents"]


def write(value: Any) -> str:
    """Return plain JSON data as the text of a file."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1, default=str) + "\n"


def _clean(value: Any, name: str = "") -> Any:
    """Return a value for JSON. A text has no secrets and can be encoded in UTF-8. NaN and infinity become None."""
    if isinstance(value, str):
        return encodable(redact(value, name=name))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _turn(turn: Turn) -> Json:
    events = [serialization.to_json(event, _clean) for event in turn.events]
    return {"prompt": _clean(turn.prompt.text), "events": events}


def _request(messages: Iterable[Message], provider: str, instructions: str = "") -> Request:
    # Blank secrets before messages are converted for an API, because then bytes such as images are base64 text, in
    # which a secret would be searched too.
    safe_messages = [serialization.from_json(serialization.to_json(message, _clean)) for message in messages]
    api_messages = (
        replace(one, parts=tuple(part_to_send(part, provider) for part in one.parts))
        for one in repair_messages(safe_messages)
    )
    return Request(tuple(api_messages), _clean(instructions))
