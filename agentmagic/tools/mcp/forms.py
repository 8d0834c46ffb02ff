"""From the schema of an elicitation to the fields of a form; secrets are never asked for in one.

The protocol allows flat objects of strings, numbers, booleans and choices only, and forbids servers to ask
for passwords and keys this way: those belong at an address of the server's own.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from agentmagic.tools.mcp.host import Field, Kind
from agentmagic.tools.mcp.words import line

MOST_FIELDS = 20
MOST_CHOICES = 100
LONGEST_LABEL = 300
LONGEST_DEFAULT = 500

_SECRET = re.compile(
    r"passw|passphrase|passcode|\bpin\b|secret|credential|token|api[ _-]?key|private[ _-]?key|access[ _-]?key"
    r"|\bcvv\b|\bcvc\b|card[ _-]?number|seed[ _-]?phrase|\botp\b|one[ _-]?time",
    re.IGNORECASE,
)
_HUGE = 10**15
_KINDS: Mapping[str, Kind] = {"string": "text", "number": "number", "integer": "integer", "boolean": "boolean"}


class UnusableForm(ValueError):
    """A form that is not shown; the message says why."""


def fields(message: str, schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """Read the fields of a form. Raises UnusableForm for one that asks for a secret, or is no form."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or len(cast("Mapping[str, Any]", properties)) > MOST_FIELDS:
        raise UnusableForm(f"it is no flat form of at most {MOST_FIELDS} fields")
    required = cast("list[Any]", schema.get("required") or [])
    read = tuple(_field(name, one, name in required) for name, one in cast("Mapping[str, Any]", properties).items())
    if _SECRET.search(message) and any(field.kind == "text" for field in read):
        raise UnusableForm("it asks for a secret, and secrets are never asked for in a form")
    return read


def _split(name: str) -> str:
    """Part the words of a name, so that "userPin" and "user_pin" hold the word "pin"."""
    return re.sub(r"[_-]+|(?<=[a-z])(?=[A-Z])", " ", name)


def _field(name: str, given: Any, required: bool) -> Field:
    if not isinstance(given, Mapping):
        raise UnusableForm(f"its field {line(name, 80)!r} is no schema")
    schema = cast("Mapping[str, Any]", given)
    title, description = (line(str(schema.get(key) or ""), LONGEST_LABEL) for key in ("title", "description"))
    kind, choices = _kind(name, schema)
    label = ": ".join(filter(None, (title, description))) or line(name, LONGEST_LABEL)
    # What is no text may speak of secrets: "a number (please not your pin)".
    telling = f"{_split(name)} {title} {description if kind == 'text' else ''}"
    if schema.get("format") == "password" or schema.get("writeOnly") is True or _SECRET.search(telling):
        raise UnusableForm(f"it asks for {label!r}, and secrets are never asked for in a form")
    return Field(name, label, kind, choices, required, _default(kind, choices, schema.get("default")))


def _default(kind: Kind, choices: Mapping[str, str] | None, given: Any) -> Any:
    """Return a default that fits the field and can be shown as it is; None for any other."""
    match given, kind:
        case (str(), "text") if given == line(given, LONGEST_DEFAULT):
            return given
        case (str(), "choice") if choices and given in choices.values():
            return given
        case (list(), "choices") if choices and all(one in choices.values() for one in cast("list[Any]", given)):
            return cast("list[Any]", given)
        case (bool(), "boolean"):
            return given
        case (int() | float(), "number") | (int(), "integer") if not isinstance(given, bool) and abs(given) < _HUGE:
            return given
        case _:
            return None


def _kind(name: str, schema: Mapping[str, Any]) -> tuple[Kind, dict[str, str] | None]:
    if schema.get("type") == "array":
        items = schema.get("items")
        if isinstance(items, Mapping) and (choices := _choices(cast("Mapping[str, Any]", items))):
            return "choices", choices
    elif choices := _choices(schema):
        return "choice", choices
    elif isinstance(kind := schema.get("type"), str) and kind in _KINDS:
        return _KINDS[kind], None
    raise UnusableForm(f"its field {line(name, 80)!r} is of a kind that forms do not have")


def _choices(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of a choice by what they are called; the protocol has written them in three ways."""
    titled = schema.get("oneOf") or schema.get("anyOf")
    pairs: list[tuple[Any, Any]]
    if isinstance(titled, list):
        options = [cast("Mapping[str, Any]", one) for one in cast("list[Any]", titled) if isinstance(one, Mapping)]
        pairs = [(one.get("title"), one.get("const")) for one in options]
    else:
        values = cast("list[Any]", schema.get("enum") or [])
        pairs = list(zip(cast("list[Any]", schema.get("enumNames") or values), values, strict=False))
    if len(pairs) > MOST_CHOICES:
        raise UnusableForm(f"one of its fields has more than {MOST_CHOICES} choices")
    return {line(str(title or value), 100): value for title, value in pairs if isinstance(value, str)}
