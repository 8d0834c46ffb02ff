"""The lines of a journal: a record to a line and back, without any I/O.

A journal is a file of JSON lines: a header, then a line an event, deltas left out; between turns stand
`HistoryCut` and `InDoubt`. What is written holds no secret; what is read was perhaps written by anybody.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, Union, cast, get_args, get_origin, get_type_hints

from agentmagic import serialization
from agentmagic.errors import JournalError
from agentmagic.events import (
    Event,
    HistoryCut,
    PartDelta,
    PartStarted,
    PromptAdded,
    RunResult,
    ToolProgress,
    TurnStarted,
)
from agentmagic.messages import Media, ProviderData, Text, as_text
from agentmagic.secrets import redact

LONGEST_LINE = 64 * 2**20
"""Bytes; a longer line is not read, and not written."""
LONGEST_HEADER = 10_000
DEEPEST = 100
"""Levels of JSON; what is deeper is not read, and not written: it would exhaust the stack of whoever walks it."""
LEFT_OUT = (PartDelta, PartStarted, ToolProgress)
"""What a journal does not hold."""

LONGEST_TEXT = 2 * 2**20
"""Characters of all the texts of a record; what is more is cut off."""
LARGEST_MEDIA = 8 * 2**20
"""Bytes of all the media of a record; those beyond are named only."""
LARGEST_VALUE = 2**19
"""Characters of a JSON value of somebody else's, about; a larger one is left out."""

_BEGINNING = b'{"type":"journal"'
_FOREIGN = ("arguments", "structured", "provider_data")
"""Fields whose JSON is somebody else's: in it, `{"$bytes": ...}` is no blob of ours."""
_TEXTS = ("text", "done", "summary")
"""Fields that may hold any amount of words."""
_TOKEN = 64
"""Characters that a piece of JSON takes beside its words, about; they take time, too."""
_TOO_LARGE = 2**63
_LONGEST_INT = 10_000
"""Bits; Python refuses to write and read integers of more than 4,300 digits."""

ToolKey = tuple[str, str]
"""A tool, as (server, name)."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The conversation was taken up again: the tools whose last call may have run in part, or wholly.

    Whoever took it up did not know of turns whose beginning could not be read; they do not count from here on.
    """

    type: ClassVar[str] = "in_doubt"
    tools: tuple[ToolKey, ...]


Record = Event | HistoryCut | InDoubt


def header() -> bytes:
    """Return the first line of a journal."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        ours = version("agentmagic")
    except PackageNotFoundError:  # run from its source
        ours = "unknown"
    return _line({"type": "journal", "version": serialization.VERSION, "agentmagic": ours})


def begins_journal(path: Path, line: bytes) -> bool:
    """Return whether a first line is a journal's; an empty one, and one that was cut off, is not.

    Raises JournalError for the line of anything else, and of a newer format; `path` is named in it.
    """
    if not line.endswith(b"\n") and _BEGINNING.startswith(line[: len(_BEGINNING)]):
        return False
    first = _object(line) or {}
    number = first.get("version")
    if first.get("type") != "journal" or type(number) is not int or number < 1:
        message = f"{path} is no conversation of agentmagic, and was left as it is. Name another file."
        raise JournalError(message)
    if number > serialization.VERSION:
        message = (
            f"{path} has the format {number} of a newer agentmagic, and was left as it is; this one reads format "
            f"{serialization.VERSION}. Run: pip install -U agentmagic"
        )
        raise JournalError(message)
    return True


def fitting(record: Record) -> tuple[Record, tuple[str, ...]]:
    """Return a record with what is too large for a file replaced by words, and in words what that was.

    It takes milliseconds to write what is returned; what could not be written at all is left out too.
    """
    fit = _Fit()
    return fit.value(record), tuple(fit.lost)


def encode_record(record: Record) -> bytes:
    """Write a record as one line, every secret in it blanked.

    Raises ValueError, with the reason, for what cannot be written; `fitting` leaves hardly a reason.
    """
    try:
        line = _line(_without_secrets(serialization.to_json(record)))
    except RecursionError as error:
        raise _too_deep() from error
    except (TypeError, AttributeError) as error:  # a value that is no JSON
        raise ValueError(str(error)) from error
    if len(line) > LONGEST_LINE:
        message = f"it has {len(line):,} bytes, and {LONGEST_LINE:,} is the most"
        raise ValueError(message)
    return line


def decode_record(line: bytes) -> Record | None:
    """Read a line, or return None for one that is no record or not a whole one."""
    try:
        data = _object(line)
        if data is None or not _shallow(data):
            return None
        record = _in_doubt(data) if data.get("type") == InDoubt.type else serialization.from_json(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if isinstance(record, LEFT_OUT) or not _fits(record, Record):
        return None
    if isinstance(record, (TurnStarted, PromptAdded)) and record.prompt.role != "user":
        return None
    return record


class _Fit:
    """Makes a record fit to be written; one for each record."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self._text = LONGEST_TEXT
        self._media = LARGEST_MEDIA

    def value(self, value: Any) -> Any:
        """Return a value of ours, or its like that fits."""
        match value:
            case Media():
                return self._media_or_name(value)
            case ProviderData():
                return value if self._is_light(value.data, f"data of {value.provider}") else None
            case RunResult():  # its other fields are not written, or small
                return replace(value, final_text=self._cut(value.final_text))
            case tuple():
                return tuple(map(self.value, cast("tuple[Any, ...]", value)))
            case _ if is_dataclass(value) and not isinstance(value, type):
                named = [(field.name, getattr(value, field.name)) for field in fields(value)]
                fit = {name: self._field(name, content) for name, content in named}
                return replace(value, **{name: fit[name] for name, content in named if fit[name] is not content})
            case _:
                return value

    def _field(self, name: str, value: Any) -> Any:
        if name in _TEXTS and isinstance(value, str):
            return self._cut(value)
        if name == "structured":
            return value if self._is_light(value, "the structured value of a result") else None
        if name == "arguments":
            return value if self._is_light(value, "the arguments of a call") else {"_raw": "(too large to be saved)"}
        return self.value(value)

    def _cut(self, text: str) -> str:
        if len(text) <= self._text:
            self._text -= len(text)
            return text
        left, self._text = self._text, 0
        self.lost.append(f"a text of {len(text):,} characters")
        return f"{text[:left]}\n[{len(text) - left:,} more characters were too many to be saved]"

    def _media_or_name(self, media: Media) -> Media | Text:
        if len(media.data) <= self._media:
            self._media -= len(media.data)
            return media
        self.lost.append(as_text(media)[1:-1])
        return Text(f"{as_text(media)[:-1]}, too large to be saved]")

    def _is_light(self, value: Any, what: str) -> bool:
        light = _weight(value) <= LARGEST_VALUE
        if not light:
            self.lost.append(what)
        return light


def _weight(value: Any, levels: int = DEEPEST - 10, most: int = LARGEST_VALUE) -> int:
    """Return about how many characters a JSON value takes; more than `most` for one that is too deep, or no JSON."""
    match value:
        case None | bool() | float():
            return _TOKEN
        case int():
            return _TOKEN + value.bit_length() if value.bit_length() < _LONGEST_INT else LARGEST_VALUE + 1
        case str():
            return _TOKEN + len(value)
        case dict() | list() | tuple() if levels:
            inner = cast("Any", [*value, *value.values()] if isinstance(value, dict) else value)
            weight = _TOKEN
            for item in inner:
                if weight > most:
                    break
                weight += _weight(item, levels - 1, most - weight)
            return weight
        case _:
            return LARGEST_VALUE + 1


def _line(data: Any) -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which UTF-8 cannot hold and an escape can
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _without_secrets(data: Any, *, foreign: bool = False, levels: int = DEEPEST) -> Any:
    if not levels:
        raise _too_deep()
    match data:
        case str():
            return redact(data, stored=True)
        case list():
            entries = cast("list[Any]", data)
            return [_without_secrets(item, foreign=foreign, levels=levels - 1) for item in entries]
        case {"$bytes": _} if not foreign:
            return data
        case dict():
            named = cast("dict[str, Any]", data).items()
            return {  # of two keys of somebody else's that are secrets alike, the last wins
                redact(key, stored=True) if foreign else key: _without_secrets(
                    item, foreign=foreign or key in _FOREIGN, levels=levels - 1
                )
                for key, item in named
            }
        case _:
            return data


def _too_deep() -> ValueError:
    return ValueError(f"it is nested deeper than {DEEPEST} levels")


def _object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object a line holds, or None."""
    try:
        data = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None


def _shallow(data: Any, levels: int = DEEPEST) -> bool:
    if isinstance(data, dict):
        inner = list(cast("dict[str, Any]", data).values())
    elif isinstance(data, list):
        inner = cast("list[Any]", data)
    else:
        return True
    return levels > 1 and all(_shallow(item, levels - 1) for item in inner)


def _in_doubt(data: dict[str, Any]) -> InDoubt:
    return InDoubt(tuple(tuple(tool) for tool in data["tools"]))  # pyright: ignore[reportArgumentType]  (checked next)


def _fits(value: Any, hint: Any) -> bool:  # noqa: PLR0911  (one return for each kind of hint)
    """Whether a value, read from a file, is what the type of its field says; numbers of ours are never negative."""
    if hint is Any:
        return True
    if hint in (int, float):
        return type(value) in (int, hint) and 0 <= value < _TOO_LARGE
    if isinstance(hint, type):
        return type(value) is hint and all(_fits(getattr(value, name), inner) for name, inner in _fields(hint))
    origin, inner = _shape(hint)
    if origin in (Union, UnionType):
        likely = [choice for choice in inner if choice is type(value)]
        return any(_fits(value, choice) for choice in likely or inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is tuple and inner[-1] is ...:
        return isinstance(value, tuple) and all(_fits(item, inner[0]) for item in cast("tuple[Any, ...]", value))
    if origin is tuple:
        return isinstance(value, tuple) and list(map(type, cast("tuple[Any, ...]", value))) == list(inner)
    return origin is Mapping and isinstance(value, dict)


@cache
def _shape(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


@cache
def _fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a dataclass with their types; none for any other class."""
    if not is_dataclass(kind):
        return ()
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in fields(kind))
