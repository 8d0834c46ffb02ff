"""The lines of a journal: a record to a line and back, without any I/O.

A journal is a file of JSON lines: a header, then a line an event, deltas left out; between turns stand
`HistoryCut` and `InDoubt`. What is written holds no secret; what is read was perhaps written by anybody.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Literal, Union, cast, get_args, get_origin, get_type_hints

from agentmagic import codec
from agentmagic.errors import JournalError
from agentmagic.events import (
    Event,
    HistoryCut,
    PartDelta,
    PartStarted,
    PromptAdded,
    ToolProgress,
    TurnStarted,
)
from agentmagic.redact import redact

LONGEST_LINE = 64 * 2**20
"""Bytes; a longer line is not read, and not written."""
LONGEST_HEADER = 10_000
DEEPEST = 100
"""Levels of JSON; what is deeper is not read, and not written: it would exhaust the stack of whoever walks it."""
LEFT_OUT = (PartDelta, PartStarted, ToolProgress)
"""What a journal does not hold."""

_BEGINNING = b'{"type":"journal"'
_FOREIGN = ("arguments", "structured", "provider_data")
"""Fields whose JSON is somebody else's: in it, `{"$bytes": ...}` is no blob of ours."""
_TOO_LARGE = 2**63

ToolKey = tuple[str, str]
"""A tool, as (server, name)."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """In a turn that was cut off: the tools whose last call may have run in part, or wholly."""

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
    return _line({"type": "journal", "version": codec.VERSION, "agentmagic": ours})


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
    if number > codec.VERSION:
        message = (
            f"{path} has the format {number} of a newer agentmagic, and was left as it is; this one reads format "
            f"{codec.VERSION}. Run: pip install -U agentmagic"
        )
        raise JournalError(message)
    return True


def encode_record(record: Record) -> bytes:
    """Write a record as one line, every secret in it blanked.

    Raises ValueError, with the reason, for what cannot be written.
    """
    try:
        line = _line(_without_secrets(codec.to_json(record)))
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
        record = _in_doubt(data) if data.get("type") == InDoubt.type else codec.from_json(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if isinstance(record, LEFT_OUT) or not _fits(record, Record):
        return None
    if isinstance(record, (TurnStarted, PromptAdded)) and record.prompt.role != "user":
        return None
    return record


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
            return redact(data)
        case list():
            entries = cast("list[Any]", data)
            return [_without_secrets(item, foreign=foreign, levels=levels - 1) for item in entries]
        case {"$bytes": _} if not foreign:
            return data
        case dict():
            named = cast("dict[str, Any]", data).items()
            return {
                key: _without_secrets(item, foreign=foreign or key in _FOREIGN, levels=levels - 1)
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
