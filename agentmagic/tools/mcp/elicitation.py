"""Implements elicitation in MCP: during a tool call, a server asks the user to fill in a form or visit a web page.

The protocol allows only flat forms of strings, numbers, booleans and choices. It forbids servers to ask for passwords
and keys in a form. To get one, a server asks the user to visit its own web page.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from agentmagic.errors import ToolError
from agentmagic.text import single_line
from agentmagic.tools.base import ToolContext
from agentmagic.tools.mcp import limits
from agentmagic.tools.server_names import quoted_server

Kind = Literal["text", "number", "integer", "boolean", "choice", "choices"]
Refusal = Literal["decline", "cancel"]  # "decline": the user said no. "cancel": the user did not answer.

TRIES = 3  # How many times in total the user is asked for one value if the answers are invalid.
_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no"})
_KINDS: Mapping[str, Kind] = {"string": "text", "number": "number", "integer": "integer", "boolean": "boolean"}
_SECRET = re.compile(
    r"passw|passphrase|passcode|\bpin\b|secret|credential|token|api[ _-]?key|private[ _-]?key|access[ _-]?key"
    r"|\bcvv\b|\bcvc\b|card[ _-]?number|seed[ _-]?phrase|\botp\b|one[ _-]?time",
    re.IGNORECASE,
)
_WORD_BREAK = re.compile(r"[_-]+|(?<=[a-z])(?=[A-Z])")  # Separates the word "pin" in "userPin" and "user_pin".


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a form that an MCP server asks the user to fill in. `choices` maps labels to values."""

    name: str
    label: str
    kind: Kind = "text"
    choices: Mapping[str, str] | None = None
    required: bool = True
    default: Any = None


class UnusableForm(ValueError):
    """Raised for a form that must not be shown to the user. The message is the reason."""


def fields_of(message: str, schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """Return the fields of a server's form.

    Raises UnusableForm if the form asks for a secret, has too many fields or choices, or is not a flat form.
    """
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or len(cast("Mapping[str, Any]", properties)) > limits.FORM_FIELDS:
        raise UnusableForm(f"it is no flat form of at most {limits.FORM_FIELDS} fields")
    required_names = _list(schema, "required")
    fields = tuple(
        _field(name, one, name in required_names) for name, one in cast("Mapping[str, Any]", properties).items()
    )
    if _SECRET.search(message) and any(field.kind == "text" for field in fields):
        raise UnusableForm("it asks for a secret, and secrets are never asked for in a form")
    return fields


def _field(name: str, entry: Any, required: bool) -> Field:
    if not isinstance(entry, Mapping):
        raise UnusableForm(f"its field {single_line(name, 80)!r} is no schema")
    schema = cast("Mapping[str, Any]", entry)
    title, description = (
        single_line(str(schema.get(key) or ""), limits.FORM_LABEL) for key in ("title", "description")
    )
    kind, choices = _kind(name, schema)
    label = ": ".join(filter(None, (title, description))) or single_line(name, limits.FORM_LABEL)
    # Only a text field's description is searched for secrets: a number's can say "(please not your pin)".
    telling = f"{_WORD_BREAK.sub(' ', name)} {title} {description if kind == 'text' else ''}"
    if schema.get("format") == "password" or schema.get("writeOnly") is True or _SECRET.search(telling):
        raise UnusableForm(f"it asks for {label!r}, and secrets are never asked for in a form")
    return Field(name, label, kind, choices, required, _default(kind, choices, schema.get("default")))


def _default(kind: Kind, choices: Mapping[str, str] | None, default: Any) -> Any:
    """Return a form field's default, or None if it is invalid for the field or cannot be shown unchanged."""
    values = (choices or {}).values()
    value = default
    match value, kind:
        case str(), "text":
            fits = value == single_line(value, limits.FORM_DEFAULT)
        case str(), "choice":
            fits = value in values
        case list(), "choices":
            fits = all(one in values for one in cast("list[Any]", value))
        case bool(), _:  # This must precede `int()`, which matches a bool too.
            fits = kind == "boolean"
        case (int() | float(), "number") | (int(), "integer"):
            fits = abs(value) < limits.FORM_NUMBER
        case _:
            fits = False
    return default if fits else None


def _kind(name: str, schema: Mapping[str, Any]) -> tuple[Kind, dict[str, str] | None]:
    if schema.get("type") == "array":
        items = schema.get("items")
        if isinstance(items, Mapping) and (choices := _choices(cast("Mapping[str, Any]", items))):
            return "choices", choices
    elif choices := _choices(schema):
        return "choice", choices
    elif isinstance(kind := schema.get("type"), str) and kind in _KINDS:
        return _KINDS[kind], None
    raise UnusableForm(f"its field {single_line(name, 80)!r} is of a kind that forms do not have")


def _choices(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the values that a form field can have, by label. The dict is empty if the schema allows any value."""
    # Versions of the protocol write choices in three forms: oneOf or anyOf with const, enum with enumNames, only enum.
    pairs: list[tuple[Any, Any]]
    if variants := _list(schema, "oneOf") or _list(schema, "anyOf"):
        options = [cast("Mapping[str, Any]", one) for one in variants if isinstance(one, Mapping)]
        pairs = [(one.get("title"), one.get("const")) for one in options]
    else:
        values = _list(schema, "enum")
        pairs = list(zip(_list(schema, "enumNames") or values, values, strict=False))
    if len(pairs) > limits.FORM_CHOICES:
        raise UnusableForm(f"one of its fields has more than {limits.FORM_CHOICES} choices")
    choices: dict[str, str] = {}
    for title, value in pairs:
        if isinstance(value, str):
            label = single_line(str(title or value), 100)
            choices[f"{label} ({single_line(value, 100)})" if label in choices else label] = value
    return choices


def _list(schema: Mapping[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return cast("list[Any]", value) if isinstance(value, list) else []


class _NoAnswer(Exception):
    """Raised when the user declines to give a value, does not answer, or gives `TRIES` invalid answers."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal)
        self.refusal: Refusal = refusal


async def ask_agreement(question: str, call: ToolContext) -> Refusal | None:
    """Ask the user a yes-or-no question. Return None for yes, "cancel" for no answer, or "decline" otherwise."""
    try:
        answer = (await call.ask(question)).strip().lower()
    except ToolError:
        return "cancel"
    return None if answer in _YES else "decline"


async def ask_fields(
    server: str, message: str, fields: tuple[Field, ...], call: ToolContext
) -> dict[str, Any] | Refusal:
    """Ask the user for the fields of a form, one after the other. Return the values by name, or a `Refusal`."""
    head = f"The server {quoted_server(server)} asks: {message}"
    if not fields:
        return await ask_agreement(f"{head}\nAccept? [y/n]", call) or {}
    values: dict[str, Any] = {}
    for number, field in enumerate(fields):
        question = _question(field)
        try:
            value = await _value(field, f"{head}\n{question}" if number == 0 else question, call)
        except _NoAnswer as error:
            return error.refusal
        if value is not None:
            values[field.name] = value
    return values


async def ask_visit(server: str, message: str, url: str, call: ToolContext) -> bool:
    """Show the user a web address that a server wants opened. Return whether the user agrees to visit it."""
    question = (
        f"The server {quoted_server(server)} asks you to visit an address: {message}\n{url}\n"
        "Open it yourself if you trust it. Did you, or will you? [y/n]"
    )
    return await ask_agreement(question, call) is None


async def _value(field: Field, question: str, call: ToolContext) -> Any:
    """Ask the user up to TRIES times for a valid value of a field, and return the value.

    For an empty answer, the result is the field's default; for an optional field without a default, it is None. Raises
    _NoAnswer if the user declines, does not answer, or gives no valid answer.
    """
    for _ in range(TRIES):
        try:
            answer = (await call.ask(question)).strip()
        except ToolError:
            raise _NoAnswer("cancel") from None
        if not answer and (field.default is not None or not field.required):
            return field.default
        if answer == "-":
            raise _NoAnswer("decline")
        try:
            return read_answer(field, answer)
        except ValueError as error:
            question = f"{error} {_question(field)}"
    raise _NoAnswer("cancel")


def _question(field: Field) -> str:
    match field.kind:
        case "choice" | "choices":
            several = ", several by commas" if field.kind == "choices" else ""
            kind = f"one of: {', '.join(field.choices or ())}{several}"
        case "boolean":
            kind = "y/n"
        case kind:
            pass
    default = f", else {field.default}" if field.default is not None else "" if field.required else ", may be empty"
    return f"{field.label} ({kind}{default}; - declines)"


def read_answer(field: Field, answer: str) -> str | int | float | bool | list[str]:
    """Convert the user's typed answer to the field's type. For a wrong answer, raises ValueError with a sentence."""
    match field.kind:
        case "text":
            return answer
        case "boolean":
            if answer.lower() in _YES | _NO:
                return answer.lower() in _YES
            raise ValueError("Please answer y or n.")
        case "choice":
            return _choice(field, answer)
        case "choices":
            return [_choice(field, one.strip()) for one in answer.split(",") if one.strip()]
        case "integer" | "number":
            try:
                number = int(answer) if field.kind == "integer" else float(answer)
            except ValueError:
                number = math.nan
            if not abs(number) < limits.FORM_NUMBER:  # NaN fails this comparison too; JSON does not have it.
                raise ValueError(f"That is no {field.kind}.")
            return number


def _choice(field: Field, answer: str) -> str:
    choices = field.choices or {}
    if answer in choices:
        return choices[answer]
    if answer in choices.values():
        return answer
    raise ValueError(f"{answer!r} is none of them.")
