"""Values to one line of JSON and back.

A dataclass is written as an object with its `type` and those fields that are not at their default;
bytes as `{"$bytes": base64}`. A `RunResult` is written without its events and messages, which are the
log around it: `decode_log` puts them back; and without its `value`, which may be of any type and whose JSON
is the answer's text.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from typing import Any, cast

from agentmagic import events, messages
from agentmagic.errors import UsageError
from agentmagic.events import Event, RunResult, TurnFinished, TurnStarted
from agentmagic.fold import fold

VERSION = 1
"""The version of the format; it grows when an older reader would misread."""

_DERIVED = ("history_delta", "events")


@cache
def kinds() -> dict[str, Any]:
    """Return every class of values and events by its `type`."""
    values = [*vars(messages).values(), *vars(events).values()]
    named = ((getattr(value, "type", None), value) for value in values if is_dataclass(value))
    return {name: kind for name, kind in named if isinstance(name, str)}


def encode(value: Any) -> str:
    """Write a message, part or event as one line of JSON."""
    return json.dumps(to_json(value), ensure_ascii=False, separators=(",", ":"))


def same_json(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal; unlike with `==`, 1 is neither 1.0 nor true."""
    match one, other:
        case Mapping(), Mapping():
            first, second = cast("Mapping[str, Any]", one), cast("Mapping[str, Any]", other)
            return first.keys() == second.keys() and all(same_json(first[name], second[name]) for name in first)
        case list() | tuple(), list() | tuple():
            items, others = cast("Sequence[Any]", one), cast("Sequence[Any]", other)
            return len(items) == len(others) and all(map(same_json, items, others))
        case _:
            return type(one) is type(other) and one == other


def decode(line: str) -> Any:
    """Read what `encode` wrote.

    Raises UsageError for anything else.
    """
    try:
        return from_json(json.loads(line))
    except (ValueError, KeyError, TypeError) as error:
        message = f"This line was not written by agentmagic: {line[:80]!r} ({error})."
        raise UsageError(message) from error


def decode_log(lines: Iterable[str]) -> list[Event]:
    """Read a log of events, one a line, and give each turn's result its events and messages back."""
    return list(_whole(decode(line) for line in lines))


def _whole(log: Iterable[Event]) -> Iterator[Event]:
    turn: list[Event] = []
    for event in log:
        if isinstance(event, TurnStarted):
            turn = []
        if isinstance(event, TurnFinished):
            yield TurnFinished(replace(event.result, events=tuple(turn), history_delta=fold(turn)))
        else:
            turn.append(event)
            yield event


def to_json(value: Any) -> Any:
    """Turn a value into plain JSON data."""
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if is_dataclass(value) and not isinstance(value, type):
        return _object(value)
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in cast("dict[Any, Any]", value).items()}
    return value


def _object(value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"type": value.type}
    for field in fields(value):
        content = getattr(value, field.name)
        if isinstance(value, RunResult) and field.name in (*_DERIVED, "value"):
            continue
        if field.default is MISSING or content != field.default:
            data[field.name] = to_json(content)
    return data


def from_json(data: Any) -> Any:
    """Turn what `to_json` made back into values; lists become tuples where a value holds them."""
    if not isinstance(data, dict):
        return data
    entries = cast("dict[str, Any]", data)
    if set(entries) == {"$bytes"}:
        return base64.b64decode(entries["$bytes"])
    kind = kinds()[entries["type"]]
    content = {key: _field(kind, key, item) for key, item in entries.items() if key != "type"}
    if kind is RunResult:
        content |= dict.fromkeys(_DERIVED, ())
    return kind(**content)


_PLAIN = {
    ("ToolCall", "arguments"),
    ("ApprovalGiven", "arguments"),
    ("ToolResult", "structured"),
    ("ProviderData", "data"),
}
"""Fields that hold somebody else's JSON, which is never read as values."""


def _field(kind: type, name: str, data: Any) -> Any:
    if (kind.__name__, name) in _PLAIN:
        return data
    if isinstance(data, list):
        return tuple(from_json(item) for item in cast("list[Any]", data))
    return from_json(data)
