"""What servers say, made fit to be shown and read: no character that hides, overwrites or reorders others."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and other strings of a terminal
    r"|\x1b[ -/]*[0-~]?"
)
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # control characters, all but tab and line ends
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what turns the direction of text
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2028\u2029\u2060-\u2065\u206a-\u206f"
    "\u3164\ufeff\uffa0\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\ufe00-\ufe0e\ufff0-\ufffb\U000e0000-\U000e0fff]+"  # variants, annotations and tags, which can carry text
)
_RETURN = re.compile(r"\r(?!\n)")  # alone it has the line written over
# One joiner between letters belongs to scripts and emoji; beside ASCII, and in a row, they only hide.
_JOINER = "[\u200c\u200d]"
_JOINERS = re.compile(rf"{_JOINER}(?:{_JOINER}+|(?=[\x00-\x7f]|$)|(?<=[\x00-\x7f]{_JOINER})|(?<=^{_JOINER}))")
_PIECE = 100_000
"""Characters cleaned at once, for a pattern holds the GIL: 5 million took a second in which nothing else ran."""

_ESCAPE = 1000
"""Characters of a terminal escape that are kept together."""

_SAID = frozenset({"description", "title"})
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_VALUES = frozenset({"default", "const", "enum", "examples"})


def clean(text: str) -> str:
    """Return the text without terminal escapes, control, zero-width and direction characters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_clean, _pieces(text)))


def _pieces(text: str) -> Iterator[str]:
    """Cut a text, before an escape rather than in it."""
    at = 0
    while at < len(text):
        end = at + _PIECE
        escape = text.rfind("\x1b", end - _ESCAPE, end) if end < len(text) else -1
        end = escape if escape > at else end
        yield text[at:end]
        at = end


def _clean(piece: str) -> str:
    for hidden in (_ESCAPES, _UNSEEN, _RETURN, _JOINERS):
        piece = hidden.sub("", piece)
    return piece


def line(text: str, most: int) -> str:
    """Return the text clean, on one line and not longer than `most`."""
    return " ".join(clean(text[: 4 * most]).split())[:most]


def deceives(url: str, most: int) -> bool:
    """Whether an address that can be read is written so that a person could take it for another, or is over `most`."""
    return urlsplit(url).username is not None or not url.isascii() or not url.isprintable() or len(url) > most


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
