"""Converts messages and events to lines of JSON and back, and reads and writes the lines of a journal.

A value becomes an object with its `type` and the fields that differ from their defaults; bytes become
`{"$bytes": base64}`. A `RunResult` is written without its events and messages, because the lines before it have them
(`decode_log` restores them). Its `value` is written as JSON, if it has a JSON form of moderate size.

A journal is a file of such lines: a header, then one line for each event (deltas are left out), with `HistoryCut` and
`InDoubt` between turns. Secrets are blanked in the lines. Anyone may have written a journal that is read, so a line
without the shape of a record is skipped, and unknown fields are ignored.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from agentmagic import events, messages
from agentmagic.errors import JournalError, ToolError, UsageError
from agentmagic.events import (
    Event,
    HistoryCut,
    InnerEvent,
    PromptAdded,
    RunResult,
    TurnFinished,
    TurnStarted,
    fold,
    innermost,
    is_delta,
)
from agentmagic.messages import Media, ProviderData, Text, ToolCall, ToolKey, as_text
from agentmagic.secrets import redact
from agentmagic.text import a_type, cut, map_positions

if TYPE_CHECKING:
    from pydantic_core import CoreSchema, SchemaValidator

T = TypeVar("T")

VERSION = 1
"""The version of the format. It is raised when older versions of agentmagic would misread new files."""

LONGEST_LINE = 64 * 2**20
"""Bytes. A longer line is neither read nor written."""
LONGEST_HEADER = 10_000
"""Bytes of the first line of a journal."""
DEEPEST = 100
"""Levels of nested JSON. A deeper line is neither read nor written, since recursive code could exhaust the stack."""
LONGEST_TEXT = 2 * 2**20
"""Characters of all texts of a record together; the rest is cut off."""
LARGEST_MEDIA = 8 * 2**20
"""Bytes of all media of a record together; media beyond this limit are replaced by their names."""
LARGEST_VALUE = 2**19
"""Approximate characters of a JSON value from a model, tool or provider; a larger value is left out."""
_LARGEST_NUMBER = 2**63
_LONGEST_INT = 10_000
"""Bits of an integer. Python refuses to read and write integers of more than 4,300 digits, about 14,000 bits."""
_TOKEN = 64
"""Characters that are counted for each JSON value in addition to its text, for the time and memory it needs."""

_BEGINNING = b'{"type":"journal"'
_TEXTS = ("text", "done", "summary", "answer")
"""Fields that may hold a text of any length."""
_DERIVED = ("history_delta", "events")
"""Fields of a RunResult that are not written, and are empty when it is read."""
_OPEN = (events.StopReason, events.Level, events.TaskState, messages.ResultStatus)
"""Literal types to which newer versions may add words, so that other words than the present ones are accepted."""
_WORD = "^[a-z_]{1,40}$"


@dataclass(frozen=True, slots=True)
class InDoubt:
    """A line of a journal, between turns: the conversation was resumed from a cut-off or damaged file, or saved anew.

    `tools` are the tools whose last call may have run in part or completely. If the beginning of an earlier turn could
    not be read, readers leave out that turn, because the resumed session does not have it.
    """

    type: ClassVar[str] = "in_doubt"
    tools: tuple[ToolKey, ...]


Record = Event | HistoryCut | InDoubt


@cache
def kinds() -> dict[str, Any]:
    """Return all classes of messages, parts and events by their `type`."""
    values = [*vars(messages).values(), *vars(events).values()]
    types = ((getattr(value, "type", None), value) for value in values if is_dataclass(value))
    return {name: kind for name, kind in types if isinstance(name, str)}


# -- values ----------------------------------------------------------------------------------------


def encode(value: Any) -> str:
    """Return a message, part or event as one line of JSON."""
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


def copy_call(call: ToolCall) -> ToolCall:
    """Return a copy of a tool call whose arguments are plain JSON data that no other code can change.

    Raises ToolError for arguments that JSON cannot represent, or that are nested deeper than a journal allows.
    """
    try:
        arguments = _copy_json(dict(call.arguments))
    except _NoJson as error:
        raise ToolError(
            f"The arguments of {call.name} cannot be used: {error}. Give text, numbers, booleans, None, lists, dicts."
        ) from None
    return replace(call, arguments=arguments)


class _NoJson(Exception):
    """Raised for a value that JSON cannot represent; the message describes the value."""


def _copy_json(value: Any, levels: int = DEEPEST - 10) -> Any:
    """Return a copy of JSON data made only of plain `dict`s, `list`s and so on. Subclasses could still change.

    Raises _NoJson if there are more than `levels` levels, or if a value is not JSON data.
    """
    if not levels:
        raise _NoJson("they are nested too deep")
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case Mapping():
            items = dict(cast("Mapping[Any, Any]", value)).items()  # copied at once: another thread may change it
            return {_key(key): _copy_json(item, levels - 1) for key, item in items}
        case list() | tuple():
            return [_copy_json(item, levels - 1) for item in tuple(cast("Sequence[Any]", value))]
        case _:
            raise _NoJson(f"{a_type(value)} is among them")


def _key(key: object) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    raise _NoJson(f"{a_type(key)} is a key in them")


def decode(line: str) -> Any:
    """Return the message, part or event in a line that `encode` wrote. Raises UsageError for any other line."""
    try:
        return from_json(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"This line was not written by agentmagic: {line[:80]!r}.") from error


def decode_log(lines: Iterable[str]) -> list[Event]:
    """Return the events in lines of JSON, one a line. Each turn's `RunResult` gets the turn's events and messages."""
    log: list[Event] = []
    turn: list[Event] = []
    for event in map(decode, lines):
        if isinstance(event, TurnStarted):
            turn = []
        if isinstance(event, TurnFinished):
            log.append(TurnFinished(replace(event.result, events=tuple(turn), history_delta=fold(turn))))
        else:
            turn.append(event)
            log.append(event)
    return log


def to_json(value: Any, leaf: Callable[[Any, str], Any] = lambda value, _name: value, name: str = "") -> Any:
    """Convert a message, part or event to plain JSON data.

    `leaf(value, key)` is called with each text and number, and with each key in JSON from a model, tool or provider;
    its result is used instead. `key` is the key of the value in that JSON, or "" elsewhere. `leaf` is not called for
    bytes, since base64 can look like a secret. If a text changes, the positions of its citations are adapted.
    """
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if (field_defaults := _fields_of(cast("type[Any]", type(value)))) is not None:
        value = _with_moved_citations(value, leaf) if isinstance(value, Text) and value.citations else value
        data: dict[str, Any] = {"type": value.type}
        is_result = isinstance(value, RunResult)
        for field, default in field_defaults:
            content = getattr(value, field)
            if is_result and field == "value":
                content = json_form(content)
            if not (is_result and field in _DERIVED) and (default is MISSING or content != default):
                data[field] = to_json(content, leaf)
        return data
    if isinstance(value, (list, tuple)):
        return [to_json(item, leaf, name) for item in cast("Sequence[Any]", value)]
    if isinstance(value, Mapping):
        items = ((str(key), item) for key, item in cast("Mapping[Any, Any]", value).items())
        return {leaf(key, ""): to_json(item, leaf, key) for key, item in items}
    return leaf(value, name)


def _with_moved_citations(part: Text, leaf: Callable[[Any, str], Any]) -> Text:
    """Return a text part whose citations have the positions that fit its text after `leaf` has changed the text."""
    new_text = leaf(part.text, "")
    if new_text == part.text:
        return part
    ends = [place for one in part.citations for place in (one.start, one.end)]
    places = iter(map_positions(ends, part.text, new_text, lambda text: leaf(text, "")))
    return replace(part, citations=tuple(replace(one, start=next(places), end=next(places)) for one in part.citations))


@cache
def _fields_of(kind: type[Any]) -> tuple[tuple[str, Any], ...] | None:
    """Return the names and defaults of a dataclass's fields, None for a class that is not a dataclass."""
    return tuple((field.name, field.default) for field in fields(kind)) if is_dataclass(kind) else None


def json_form(value: Any) -> Any:
    """Return the value of an answer as JSON data. Return None if it is too large or JSON cannot represent it."""
    if value is None:
        return None
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        data = to_jsonable_python(value)
    except (PydanticSerializationError, ValueError, RecursionError):
        return None
    return data if _weight(data) <= LARGEST_VALUE else None


def from_json(data: Any) -> Any:
    """Return the message, part or event from which `to_json` made this data. Raises ValueError for any other data."""
    return _values().validate_python(data)


# -- typed decoding --------------------------------------------------------------------------------


@cache
def _values() -> "SchemaValidator":
    """Return the decoder for messages, parts and events, which checks JSON data and builds the object in one pass.

    It is made at its first use, because pydantic is slow to import, and the schema takes some milliseconds to build.
    """
    return decoder(*kinds().values(), InDoubt)


def decoder(*classes: Any) -> "SchemaValidator":
    """Return a decoder for objects of these classes. "type" says which class it is. Field values are not converted."""
    from pydantic_core import SchemaValidator

    return SchemaValidator(_union_schema(*classes))


def _union_schema(*classes: Any) -> "CoreSchema":
    """Return the pydantic schema of an object whose "type" says which of these classes it belongs to."""
    from pydantic_core import core_schema

    return core_schema.tagged_union_schema(
        {kind.type: _dataclass_schema(kind) for kind in classes}, discriminator="type"
    )


@cache
def _dataclass_schema(kind: type[Any]) -> "CoreSchema":
    from pydantic_core import core_schema

    hints = get_type_hints(kind)
    field_schemas: list[core_schema.DataclassField] = []
    for field in fields(kind):
        default = field.default
        if kind is RunResult and field.name in _DERIVED:  # the field is always (), whatever the journal has in it
            default = ()
            schema = core_schema.no_info_plain_validator_function(lambda _data: ())
        else:
            schema = _schema(hints[field.name])
        if default is not MISSING:
            schema = core_schema.with_default_schema(schema, default=default)
        field_schemas.append(core_schema.dataclass_field(field.name, schema))
    arguments = core_schema.dataclass_args_schema(kind.__name__, field_schemas)
    return core_schema.dataclass_schema(kind, arguments, [field.name for field in fields(kind)], slots=True)


@cache
def _schema(hint: Any) -> "CoreSchema":  # noqa: PLR0911  (one return for each kind of hint)
    """Return the pydantic schema of a field's type. It converts nothing, and accepts only finite numbers from 0 up."""
    from pydantic_core import core_schema

    plain: dict[Any, CoreSchema] = {
        Any: core_schema.any_schema(),
        str: core_schema.str_schema(strict=True),
        bool: core_schema.bool_schema(strict=True),
        int: core_schema.int_schema(strict=True, ge=0, lt=_LARGEST_NUMBER),
        float: core_schema.float_schema(strict=True, ge=0, lt=_LARGEST_NUMBER, allow_inf_nan=False),
        bytes: core_schema.no_info_plain_validator_function(_blob),
    }
    if hint in plain:
        return plain[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        choices = tuple(choice for choice in inner if choice is not type(None))
        schema = _schema(choices[0]) if len(choices) == 1 else _union_schema(*choices)
        return schema if choices == inner else core_schema.nullable_schema(schema)
    if hint in _OPEN:
        return core_schema.str_schema(strict=True, pattern=_WORD)
    if origin is Literal:
        return core_schema.literal_schema(list(inner))
    if origin is tuple and inner[-1] is ...:
        return core_schema.tuple_variable_schema(_schema(inner[0]))
    if origin is tuple:
        return core_schema.tuple_positional_schema([_schema(item) for item in inner])
    if origin is Mapping:  # JSON from a model, tool or provider: its content is not checked
        return core_schema.is_instance_schema(dict)
    return _union_schema(hint)


def _blob(data: Any) -> bytes:
    match data:
        case {"$bytes": str() as text}:
            return base64.b64decode(text)
        case _:
            raise ValueError("it is no blob")


# -- the lines of a journal ------------------------------------------------------------------------


def header() -> bytes:
    """Return the first line of a journal (the file of a saved conversation): its header."""
    return _line({"type": "journal", "version": VERSION, "agentmagic": own_version()})


def own_version() -> str:
    """Return the version of the installed agentmagic, "unknown" if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("agentmagic")
    except PackageNotFoundError:  # agentmagic runs from a source folder
        return "unknown"


def begins_journal(path: Path, line: bytes) -> bool:
    """Return True if a file's first line is a journal's header, and False if the line is empty or was cut off.

    Raises JournalError, which names `path`, if the file is not a journal, or has a newer format.
    """
    if not line.endswith(b"\n") and _BEGINNING.startswith(line[: len(_BEGINNING)]):
        return False
    try:
        first = json.loads(line.decode())
    except (ValueError, RecursionError):
        first = None
    match first:
        case {"type": "journal", "version": int() as number} if number >= 1 and number is not True:
            pass
        case _:
            raise JournalError(f"{path} is no conversation of agentmagic, and was left as it is. Name another file.")
    if number > VERSION:
        raise JournalError(
            f"{path} has the format {number} of a newer agentmagic, and was left as it is; this one reads format "
            f"{VERSION}. Update agentmagic: run git pull in its clone, and then pip install '.[all]'"
        )
    return True


def encode_record(record: Any) -> bytes:
    """Return a record (an event, `HistoryCut` or `InDoubt`) as one line of a journal, with secrets blanked.

    Raises ValueError, with the reason, if the record cannot be written. This is rare for a record from `shrink`.
    """
    try:
        data = to_json(record, _blank_secrets)
        line = _line(data) if is_shallow(data) else b""
    except RecursionError:
        line = b""
    except (TypeError, AttributeError) as error:  # raised for a value that JSON cannot represent
        raise ValueError(str(error)) from error
    if not line:
        raise ValueError(f"it is nested deeper than {DEEPEST} levels")
    if len(line) > LONGEST_LINE:
        raise ValueError(f"it has {len(line):,} bytes, and {LONGEST_LINE:,} is the most")
    return line


def add_stamp(line: bytes, seconds: int) -> bytes:
    """Return a journal line with the time in seconds since 1970, which is not a field."""
    return line[:-2] + b',"time":%d' % seconds + b"}\n"


def decode_record(line: bytes) -> Record | None:
    """Return the record (such as an event) in a line of a journal, or None if the line is not a complete record."""
    values = _values()
    try:
        data = json.loads(line.decode())
        # A line with few brackets cannot be nested deeply, so the slow check of its depth is skipped.
        if line.count(b"{") + line.count(b"[") > DEEPEST and not is_shallow(data):
            return None
        record = values.validate_python(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, Record) or is_delta(record):
        return None
    inner = innermost(record)
    if isinstance(inner, (TurnStarted, PromptAdded)) and inner.prompt.role != "user":
        return None
    if isinstance(record, InnerEvent) and not record.path:
        return None
    return record


def is_shallow(data: Any, levels: int = DEEPEST) -> bool:
    """Return whether JSON data is nested at most `levels` deep, so that recursive code can process it."""
    match data:
        case dict():
            inner = cast("Iterable[Any]", data.values())
        case list():
            inner = cast("Iterable[Any]", data)
        case _:
            return True
    return levels > 1 and all(is_shallow(item, levels - 1) for item in inner)


def _line(data: Any) -> bytes:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate, which only a JSON escape can represent
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _blank_secrets(value: Any, name: str) -> Any:
    return redact(value, keep_likely=True, name=name) if isinstance(value, str) else value


# -- shrinking records that are too large ----------------------------------------------------------


def shrink(record: T) -> tuple[T, tuple[str, ...]]:
    """Return a record with notes in place of the parts that are too large, and a description of each such part.

    The returned record takes only milliseconds to write. Values that JSON cannot represent are replaced too.
    """
    fit = _Shrinker()
    return fit.value(record), tuple(fit.lost)


class _Shrinker:
    """Replaces what is too large in one journal record. The limits apply to all parts of the record together."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self._text = LONGEST_TEXT
        self._media = LARGEST_MEDIA

    def value(self, value: Any) -> Any:
        """Return a message, part or event, or a smaller copy if it is too large to be saved."""
        match value:
            case Media():
                return self._media_or_name(value)
            case ProviderData():
                return value if self._is_light(value.data, f"data of {value.provider}") else None
            case RunResult():  # of the fields that are written, only `final_text` can be large
                return replace(value, final_text=self._cut(value.final_text))
            case tuple():
                return tuple(map(self.value, cast("tuple[Any, ...]", value)))
            case _ if (fields_of := _fields_of(cast("type[Any]", type(value)))) is not None:
                contents = [(name, getattr(value, name)) for name, _default in fields_of]
                fit = [(name, content, self._field(name, content)) for name, content in contents]
                changes = {name: smaller for name, content, smaller in fit if smaller is not content}
                return replace(value, **changes) if changes else value
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
        room, self._text = self._text, max(self._text - len(text), 0)
        if len(text) > room:
            text = redact(text, keep_likely=True)  # done before the cut: a cut secret is not recognized
            self.lost.append(f"a text of {len(text):,} characters")
        return cut(text, room, "\n[{over:,} more characters were too many to be saved]")

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
    """Return the approximate size of a JSON value in characters.

    The result exceeds the limit LARGEST_VALUE if the value is nested too deeply or is not JSON. The value may be huge
    or contain itself, so counting stops as soon as the size exceeds `most`.
    """
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
