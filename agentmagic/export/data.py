"""A conversation as JSON: the log, and the messages as three APIs take them."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from agentmagic import serialization
from agentmagic.events import Event, TurnFinished
from agentmagic.history.history import Turn
from agentmagic.history.repair import repaired
from agentmagic.messages import Message
from agentmagic.providers.base import Request
from agentmagic.providers.gemini import gemini_model
from agentmagic.providers.openai import chat_completions, responses
from agentmagic.secrets import redact

Json = dict[str, Any]

FORMAT = "agentmagic"


def to_json(turns: Iterable[Turn]) -> str:
    """Write turns as one JSON document.

    It is `{"format": "agentmagic", "version": 1, "turns": [{"prompt": "...", "events": [...]}, ...]}`, the
    events without deltas and in the form of `agentmagic.serialization`, whose version it is. What JSON does not
    have, a float that is no number for example, is null.
    """
    told = [_turn(turn) for turn in turns]
    return write({"format": FORMAT, "version": serialization.VERSION, "turns": told})


def to_openai(messages: Iterable[Message], instructions: str = "") -> list[Json]:
    """Return messages as Chat Completions takes them: `chat.completions.create(messages=...)`.

    Instructions become a system message. Reasoning is left out, and pictures in results follow them in the
    user's name, since this API has no place for either. A call without a result gets one that says so, here
    and in the other two forms.
    """
    return chat_completions.encode(_request(messages, instructions), "")["messages"]


def to_responses(messages: Iterable[Message], instructions: str = "") -> list[Json]:
    """Return messages as the Responses API takes them: `responses.create(input=..., store=False)`.

    Instructions become a system message. What OpenAI wrote goes in item by item, as it came.
    """
    system: list[Json] = [{"role": "system", "content": clean(instructions)}] if instructions else []
    return [*system, *responses.encode(_request(messages), "")["input"]]


def to_gemini(messages: Iterable[Message], model: str = "") -> list[Json]:
    """Return messages as Gemini takes them: `models.generate_content(contents=...)`.

    The model they are meant for decides whether pictures stand inside of results or, as every model
    takes them, behind. Instructions have no place in a list of contents: give them to the SDK as
    `GenerateContentConfig(system_instruction=...)`.
    """
    return gemini_model.encode(_request(messages), model)["contents"]


def write(value: Any) -> str:
    """Write plain JSON for files, with a line break at the end."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1, default=str) + "\n"


def clean(value: Any) -> Any:
    """Return a copy of a value with its secrets blanked, and fit for JSON in UTF-8.

    Values of agentmagic stay what they are. Bytes are left alone: base64 can look like a key.
    """
    match value:
        case str():
            return redact(value).encode("utf-8", "replace").decode("utf-8")
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {clean(str(key)): clean(item) for key, item in cast("Mapping[Any, Any]", value).items()}
        case list() | tuple():
            items = [clean(item) for item in cast("Sequence[Any]", value)]
            return tuple(items) if isinstance(value, tuple) else items
        case _ if is_dataclass(value) and not isinstance(value, type):
            return replace(value, **{field.name: clean(getattr(value, field.name)) for field in fields(value)})
        case _:
            return value


def _turn(turn: Turn) -> Json:
    return {
        "prompt": clean(turn.prompt.text),
        "events": [serialization.to_json(clean(_bare(event))) for event in turn.events],
    }


def _bare(event: Event) -> Event:
    """Leave out of a result the log around it, and its value, whose JSON is the answer's text."""
    if not isinstance(event, TurnFinished):
        return event
    return TurnFinished(replace(event.result, events=(), history_delta=(), value=None))


def _request(messages: Iterable[Message], instructions: str = "") -> Request:
    # Blanked before they are written in an API's terms, where bytes are text.
    return Request(repaired([clean(message) for message in messages]), clean(instructions))
