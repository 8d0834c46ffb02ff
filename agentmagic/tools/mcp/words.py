"""What servers say, made fit to be shown and read: no character that hides, overwrites or reorders others."""

import re
from collections.abc import Mapping
from typing import Any, cast

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and other strings of a terminal
    r"|\x1b[ -/]*[0-~]?"
)
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # control characters, all but tab and line ends
    "|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # what turns the direction of text
    "|[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180e\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0]"
    "|[\ufe00-\ufe0e\ufff9-\ufffb\U000e0000-\U000e0fff]"  # variants, annotations and tags, which can carry text
    # Joiners belong to scripts and emoji; beside ASCII they only hide.
    "|[\u200c\u200d](?=[\x00-\x7f]|$)|(?:(?<=[\x00-\x7f])|^)[\u200c\u200d]"
)
_SAID = frozenset({"description", "title"})
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_VALUES = frozenset({"default", "const", "enum", "examples"})


def clean(text: str) -> str:
    """Return the text without terminal escapes, control, zero-width and direction characters."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSEEN.sub("", _ESCAPES.sub("", text))


def line(text: str, most: int) -> str:
    """Return the text clean, on one line and not longer than `most`."""
    return " ".join(clean(text[: 4 * most]).split())[:most]


def clean_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema whose descriptions and titles are clean; what a call must match stays as it is."""
    return {
        key: clean(value)
        if key in _SAID and isinstance(value, str)
        else value
        if key in _VALUES
        else _clean_named(cast("Mapping[str, Any]", value))
        if key in _NAMED and isinstance(value, Mapping)
        else _clean_value(value)
        for key, value in schema.items()
    }


def _clean_named(schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _clean_value(one) for name, one in schemas.items()}


def _clean_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return clean_schema(cast("Mapping[str, Any]", value))
    if isinstance(value, list):
        return [_clean_value(item) for item in cast("list[Any]", value)]
    return value
