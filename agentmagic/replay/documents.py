"""JSON data as documents of YAML that people review, and back.

The writer uses a small part of YAML: block mappings, literal blocks for long texts, double quotes with escapes for all
that a block cannot hold, no tags and no anchors. The reader takes other YAML too, since people edit cassettes by hand,
but refuses tags, anchors, and data that is nested deeper than DEEPEST.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from agentmagic.errors import CassetteError

SEPARATOR = "---\n"
DEEPEST = 100
"""Levels of a document that are read."""
DEEPEST_BLOCK = 30
"""Levels that are written as blocks; what is deeper stands as one line of JSON."""
LONGEST_KEY = 200
LONGEST_LINE = 72
"""Characters of a text on one line; a longer one is a literal block."""
JSON = "$json"
"""The key of a mapping that stands for JSON on one line."""

_PLAIN = re.compile(r"[A-Za-z]|[A-Za-z_=^][\w ./+^-]*[\w.+-]|\d[\da-f]*[acdf][\da-f]*", re.ASCII)
_PLAIN_LINE = re.compile(r"[A-Za-z][\w ./+^,?!'()*-]*[\w.,?!)]|\d[\d ]*\*[\d *]*\d", re.ASCII)
"""A text that needs no quotes behind the colon of a mapping; in a list in brackets it may."""
_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
"""Words that YAML takes for other values than texts, in any case."""
_UNPRINTABLE = re.compile("[\x7f-\x9f\xad\u2028\u2029\ufeff\ufffe\uffff]")
_NO_BLOCK = re.compile("[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029\ufeff]")
_HALF = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,4299})")
"""An integer of at most 4,300 digits: the most that Python itself reads and writes."""
_FLOAT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|-?\.inf|\.nan")
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None, "": None, "~": None}


# -- writing -----------------------------------------------------------------------------------------


def write(data: Mapping[str, Any]) -> str:
    """Return a document with its separator. The keys stay in their order."""
    return f"{SEPARATOR}{''.join(_mapping(data, 0))}"


def _mapping(data: Mapping[str, Any], indent: int) -> Iterator[str]:
    for key, value in data.items():
        yield f"{' ' * indent}{_line(key)}:{_value(value, indent)}"


def _value(value: Any, indent: int) -> str:
    """Return the text after the colon or hyphen, with its line end."""
    match value:
        case str():
            return _text(value, indent)
        case Mapping() if value:
            inner = cast("Mapping[str, Any]", value)
            as_json = indent > 2 * DEEPEST_BLOCK or not all(map(_fits, inner))
            return _json(inner, indent) if as_json else "\n" + "".join(_mapping(inner, indent + 2))
        case list() | tuple() if value:
            items = cast("Sequence[Any]", value)
            if all(map(_is_short, items)) and len(line := ", ".join(map(_line, items))) <= LONGEST_LINE:
                return f" [{line}]\n"
            return _json(items, indent) if indent > 2 * DEEPEST_BLOCK else "\n" + "".join(_items(items, indent))
        case Mapping():
            return " {}\n"
        case _:
            return f" {_line(value)}\n"


def _items(items: Sequence[Any], indent: int) -> Iterator[str]:
    for item in items:
        if isinstance(item, Mapping) and item and (written := _value(item, indent)).startswith("\n"):
            yield f"{' ' * indent}- {written[1:].lstrip(' ')}"
        else:
            inner = indent + 2 * isinstance(item, (list, tuple))
            yield f"{' ' * indent}-{_value(item, inner)}"


def _json(value: Any, indent: int) -> str:
    return "\n" + "".join(_mapping({JSON: json.dumps(value)}, indent + 2))


def _fits(key: str) -> bool:
    return len(key) <= LONGEST_KEY and key != JSON and not _HALF.search(key)


def _is_short(value: Any) -> bool:
    match value:
        case str():
            return len(value) <= LONGEST_LINE and "\n" not in value and not _HALF.search(value)
        case Mapping() | list() | tuple():
            return not value
        case _:
            return True


def _text(text: str, indent: int) -> str:
    if _HALF.search(text):  # YAML has no escape for half of a surrogate pair
        return _json(text, indent)
    if ("\n" in text or len(text) > LONGEST_LINE) and text.strip("\n") and not _NO_BLOCK.search(text):
        return _block(text, indent)
    plain = len(text) <= LONGEST_LINE and _PLAIN_LINE.fullmatch(text) and text.lower() not in _WORDS
    return f" {text if plain else _line(text)}\n"


def _block(text: str, indent: int) -> str:
    hint = "2" if text[0] in " \t\n" else ""
    stem = text.rstrip("\n")
    ends = len(text) - len(stem)
    keep = "-" if not ends else "" if ends == 1 else "+"
    pad = " " * (indent + 2)
    lines = (pad + line if line else "" for line in stem.split("\n"))
    return f" |{hint}{keep}\n" + "\n".join(lines) + "\n" * max(ends, 1)


def _line(value: Any) -> str:
    """Return a value without inner values as one line."""
    match value:
        case str():
            if _PLAIN.fullmatch(value) and len(value) <= LONGEST_LINE and value.lower() not in _WORDS:
                return value
            return _UNPRINTABLE.sub(_escape, json.dumps(value, ensure_ascii=False))
        case float() if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124  (not a number)
            return ".nan" if value != value else ".inf" if value > 0 else "-.inf"  # noqa: PLR0124
        case Mapping() | list() | tuple():
            return "{}" if isinstance(value, Mapping) else "[]"
        case _:
            return json.dumps(value)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


# -- reading -----------------------------------------------------------------------------------------


def read(text: str, where: str) -> dict[str, Any]:
    """Return the mapping that a document holds. Raises CassetteError, which begins with `where`, for anything else."""
    import yaml

    make = cast("Any", getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    try:
        data = _Builder(make(text).get_event, where).document()
    except CassetteError:
        raise
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        problem = str(getattr(error, "problem", None) or error).splitlines()[0]
        raise CassetteError(f"{where} cannot be read as YAML: {problem}. Undo the edit, or record it again.") from None
    if not isinstance(data, dict):
        raise CassetteError(f"{where} is no part of a cassette. Undo the edit, or record it again.")
    return cast("dict[str, Any]", data)


class _Builder:
    """Builds the data of one document from the events of the YAML parser: the parser itself does not recurse."""

    def __init__(self, next_event: Callable[[], Any], where: str) -> None:
        self._next = next_event
        self._where = where

    def document(self) -> Any:
        from yaml import events

        while isinstance(event := self._next(), (events.StreamStartEvent, events.DocumentStartEvent)):
            pass
        return None if isinstance(event, events.StreamEndEvent) else self._build(event, 0)

    def _build(self, event: Any, depth: int) -> Any:
        from yaml.events import MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

        kind = cast("type[Any]", type(event))
        if getattr(event, "anchor", None) is not None or getattr(event, "tag", None) is not None:
            what = "an anchor or alias" if event.anchor is not None else "a tag"
            raise CassetteError(f"{self._where} has {what}, which no cassette has. It was not written by agentmagic.")
        if depth > DEEPEST:
            raise CassetteError(f"{self._where} is nested deeper than {DEEPEST} levels, which no cassette is.")
        if kind is ScalarEvent:
            return _scalar(event.value) if not event.style else event.value
        if kind is SequenceStartEvent:
            items: list[Any] = []
            while type(event := self._next()) is not SequenceEndEvent:
                items.append(self._build(event, depth + 1))
            return items
        if kind is MappingStartEvent:
            mapping: dict[str, Any] = {}
            while type(event := self._next()) is not MappingEndEvent:
                key = self._build(event, depth + 1)
                mapping[key if isinstance(key, str) else str(key)] = self._build(self._next(), depth + 1)
            return json.loads(mapping[JSON]) if JSON in mapping else mapping
        raise ValueError(f"unexpected {kind.__name__}")


def _scalar(text: str) -> Any:
    """Return the value of a scalar without quotes."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text.replace(".inf", "inf").replace(".nan", "nan")) if _FLOAT.fullmatch(text) else text
