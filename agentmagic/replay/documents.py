"""Writes and reads the documents of a cassette: JSON data as YAML that people can review.

The writer uses a small part of YAML: block mappings, literal blocks for long texts, no tags and no anchors. The reader
accepts more of YAML, because people edit cassettes by hand, but refuses tags, anchors, and data that is nested more
than 100 levels deep.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from agentmagic.errors import CassetteError

SEPARATOR = "---\n"
DEEPEST = 100
"""Maximum nesting depth of a document that is read."""
DEEPEST_BLOCK = 30
"""Maximum nesting depth that is written as blocks; deeper data is written as one line of JSON."""
LONGEST_KEY = 200
LONGEST_LINE = 72
"""Maximum number of characters of a text on one line; a longer text is written as a literal block."""
WIDEST = 2**20
"""The line width for PyYAML, in characters. It is large, because PyYAML folds longer texts."""
JSON = "$json"
"""The only key of a mapping that holds data as one line of JSON."""

_NO_BLOCK = re.compile("^\t|[^\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029\ufeff]")
_BLANKS = re.compile(r'\\t| (?:\\n|")')
"""Tabs, and blanks at the end of a line, as they look in JSON."""
_HALF = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,4299})")
"""An integer of at most 4,300 digits, the limit of Python's own conversion."""
_FLOAT = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|-?\.inf|\.nan")
_CONSTANTS: dict[str, Any] = {"true": True, "false": False, "null": None, "": None, "~": None}


# -- writing -----------------------------------------------------------------------------------------


def write(data: Mapping[str, Any]) -> str:
    """Return data as a YAML document, after a separator line. The order of the keys is preserved."""
    import yaml

    plain = _plain(data)
    dumper = _dumper(in_c=not _BLANKS.search(json.dumps(plain, separators=(",", ":"))))
    return SEPARATOR + yaml.dump(plain, Dumper=dumper, sort_keys=False, allow_unicode=True, width=WIDEST)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return data for YAML. Values that YAML cannot hold, or that are nested too deep, become one line of JSON."""
    match value:
        case str():
            return {JSON: json.dumps(value)} if _HALF.search(value) else str.__str__(value)
        case Mapping():
            inner = cast("Mapping[str, Any]", value)
            fits = depth <= DEEPEST_BLOCK and all(map(_fits, inner))
            return {key: _plain(item, depth + 1) for key, item in inner.items()} if fits else {JSON: json.dumps(inner)}
        case list() | tuple():
            items = cast("Sequence[Any]", value)
            return {JSON: json.dumps(items)} if depth > DEEPEST_BLOCK else [_plain(item, depth + 1) for item in items]
        case bool() | None:
            return value
        case float():
            return float(value)  # PyYAML does not accept subclasses of float
        case _:
            return int(value)


def _fits(key: str) -> bool:
    return len(key) <= LONGEST_KEY and key != JSON and not _HALF.search(key)


@cache
def _dumper(*, in_c: bool) -> Any:
    """Return a PyYAML dumper with literal blocks for long texts, short lists on one line, and no anchors.

    The dumper in C is fast. But it does not write texts that have tabs, or blanks at the end of a line, as literal
    blocks, although YAML allows that. The dumper in Python does it here.
    """
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper) if in_c else yaml.SafeDumper

    def analyze(dumper: Any, text: str) -> Any:
        analysis = base.analyze_scalar(dumper, text)
        analysis.allow_block = analysis.allow_block or dumper.event.style == "|"
        return analysis

    def mapping(dumper: Any, data: Mapping[str, Any]) -> Any:
        node = dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=not data)
        for key, _ in node.value:
            key.style = '"' if key.style == "|" else key.style
        return node

    def sequence(dumper: Any, items: Sequence[Any]) -> Any:
        flow = all(map(_is_short, items)) and sum(len(str(item)) + 2 for item in items) <= LONGEST_LINE
        return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=flow)

    def without_alias(_dumper: Any, _data: Any) -> bool:
        return True

    dumper = type("Dumper", (base,), {"ignore_aliases": without_alias, "analyze_scalar": analyze})
    for kind, write_kind in ((str, _scalar_node), (dict, mapping), (list, sequence)):
        cast("Any", dumper).add_representer(kind, write_kind)
    return dumper


def _scalar_node(dumper: Any, text: str) -> Any:
    style = None
    if _NO_BLOCK.search(text) or _scalar(text) is not text:  # quote what `_scalar` would not read as a text
        style = '"'
    elif ("\n" in text or len(text) > LONGEST_LINE) and text.strip("\n"):
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _is_short(value: Any) -> bool:
    match value:
        case str():
            return len(value) <= LONGEST_LINE and "\n" not in value
        case dict() | list():
            return not value
        case _:
            return True


# -- reading -----------------------------------------------------------------------------------------


def read(text: str, where: str) -> dict[str, Any]:
    """Return the mapping in a YAML document. Raises CassetteError if it is invalid: `where` begins the message."""
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
    """Builds the data of one YAML document from parser events. Refuses tags, anchors and deep nesting.

    The parser itself does not recurse: only this class does, and it checks the depth.
    """

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
            feature = "an anchor or alias" if event.anchor is not None else "a tag"
            raise CassetteError(
                f"{self._where} has {feature}, which no cassette has. It was not written by agentmagic."
            )
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
    """Return the value of a YAML scalar that is written without quotes: a number, true, false, null or a text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text.replace(".inf", "inf").replace(".nan", "nan")) if _FLOAT.fullmatch(text) else text
