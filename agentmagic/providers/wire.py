"""Functions that all providers use to read and write server data: JSON, Unicode, parts, names, ids, waiting times.

A server can send JSON of any shape. The readers (`object_of`, `text_of` and so on) return a value of the type that the
caller expects, and an empty value for anything else. So an answer does not fail because of an unimportant field.
"""

import hashlib
import json
import math
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from itertools import compress, count
from operator import is_not
from typing import Any, Literal, cast
from uuid import uuid4

from pydantic_core import to_json

from agentmagic.errors import MalformedCall, StreamBroken
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import (
    HostedCall,
    HostedResult,
    Media,
    Message,
    Part,
    Reasoning,
    Resource,
    Text,
    ToolCall,
    ToolResult,
)
from agentmagic.providers.base import ModelEvent
from agentmagic.providers.text_reader import Piece, TextReader
from agentmagic.serialization import same_json
from agentmagic.text import encodable

Json = dict[str, Any]

DEEPEST = 100
"""The most levels of nesting that are accepted. Deeper data would exhaust the stack of recursive code."""

_NAME_FOR_ALL = 64
"""The length of a function's name that every provider accepts."""


def object_of(value: object) -> Json:
    """Return the value if it is a JSON object, or else an empty object."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]  (a cast is a call)


def objects_of(value: object) -> list[Json]:
    """Return the JSON objects in a list; a single object, unless it is empty, counts as a list of one."""
    if isinstance(value, dict):
        return [cast("Json", value)] if value else []
    return [one for one in cast("list[object]", value) if isinstance(one, dict)] if isinstance(value, list) else []


def text_of(value: object) -> str:
    """Return the value without lone surrogates if it is a string, or else ""."""
    return encodable(value) if isinstance(value, str) else ""


def number_of(value: object) -> int | None:
    """Return an integer, which can come as a float without a fraction or as digits. Anything else gives None."""
    if type(value) is int:  # nearly always; `isinstance` would accept a bool
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else None


def text_in(value: object, depth: int = 8) -> str:
    """Return the text in a string, in an object with a text field, or in a list of both; "" if there is no text."""
    if isinstance(value, str):
        return encodable(value)
    if depth and isinstance(value, list):
        return "".join(text_in(one, depth - 1) for one in cast("list[object]", value))
    if depth and isinstance(value, dict):
        fields = cast("Json", value)
        return next(filter(None, (text_in(fields[name], depth - 1) for name in _TEXT_FIELDS if name in fields)), "")
    return ""


_TEXT_FIELDS = ("text", "thinking", "content", "summary", "reasoning", "refusal", "value")
"""The fields of an object that can hold its text, or a nested object or list with its text."""

_THOUGHTS = frozenset({"thinking", "reasoning", "reasoning_content"})
"""The types of content pieces that are thoughts: of Mistral, of Databricks, and of servers that relay other models."""


def pieces_of(content: object) -> Iterator[tuple[Literal["text", "reasoning"], str]]:
    """Yield the texts and thoughts in `content`, which is a string, an object for one piece, or a list of both.

    https://docs.mistral.ai/capabilities/reasoning and
    https://docs.databricks.com/aws/en/machine-learning/model-serving/query-reason-models
    """
    for piece in cast("list[object]", content) if isinstance(content, list) else [content]:
        if words := text_in(piece):
            yield "reasoning" if text_of(object_of(piece).get("type")) in _THOUGHTS else "text", words


def count_of(value: object) -> int:
    """Return a count, such as a number of tokens. Some servers write it as a float. Anything else gives 0."""
    return max(number_of(value) or 0, 0)


def figures_so_far(before: Json, now: Json) -> Json:
    """Return the fields of `before`, updated by those fields of `now` that are not null or 0."""
    return before | {name: figure for name, figure in now.items() if figure}


def clean(value: Any, depth: int = DEEPEST) -> Any:
    """Return a copy of JSON data that can be encoded. It has no lone surrogates, and null for NaN and infinity.

    Raises ValueError if the data is nested deeper than `depth`.
    """
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, Mapping | list | tuple):
        return value
    if depth == 0:
        message = f"it is nested deeper than {DEEPEST} levels"
        raise ValueError(message)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, Any]", value).items()
        return {encodable(key): clean(item, depth - 1) for key, item in entries}
    return [clean(item, depth - 1) for item in cast("Sequence[Any]", value)]


def clean_data(data: Any) -> Any:
    """Return a provider's JSON, cleaned for saving and sending back. Raises StreamBroken if it is nested too deep."""
    try:
        return clean(data)
    except ValueError as error:
        raise StreamBroken(f"The provider sent something that cannot be read: {error}. Ask again.") from None


def arguments_text(value: object) -> str:
    """Return the arguments of a call as JSON text. A few servers send them as an object, which is encoded here."""
    return text_of(value) if value is None or isinstance(value, str) else write_json(clean_data(value))


def read_arguments(value: object) -> Json:
    """Return a call's arguments from an object, or from text with one JSON object (which can be encoded twice).

    Empty texts, null and empty objects in the text are ignored, and so is an object that comes again: some servers
    stream the arguments and then send them whole. If nothing else is there, the arguments are {}, and a later check of
    the call reports what is missing. Any other value, such as two different objects, becomes `{"_raw": text}`.
    """
    if isinstance(value, dict):
        return clean_data(cast("Json", value))
    text = arguments_text(value)
    try:
        values = [one for one in _values(text) if one not in (None, "", {})]
    except (ValueError, RecursionError):
        return {"_raw": text}
    match values[:1] if all(same_json(one, values[0]) for one in values[1:]) else values:
        case []:
            return {}
        case [dict()]:
            return values[0]
        case [str() as inner] if inner != text:
            return read_arguments(inner)
        case _:
            return {"_raw": text}


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON values that follow each other in a text. Raises ValueError if the text is not JSON."""
    end = 0
    while (start := _blanks(text, end).end()) < len(text):
        value, end = _arguments.raw_decode(text, start)
        yield clean(value)


def _finite(number: str) -> float:
    value = float(number)
    if math.isfinite(value):
        return value
    message = f"{number} is no JSON number"
    raise ValueError(message)


_arguments = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)
_blanks = cast("Callable[[str, int], re.Match[str]]", re.compile(r"\s*").match)

write_json = json.JSONEncoder(ensure_ascii=False).encode  # made once: json.dumps would make an encoder at each call


def write_body(body: Json) -> bytes:
    """Return the body of a request as JSON. Raises ValueError for values that JSON cannot represent.

    It takes a third of the time that the module `json` needs, so the results need not be cached between requests.
    """
    return to_json(body, inf_nan_mode="null")


def write_arguments(arguments: Mapping[str, Any]) -> str:
    """Return a call's arguments as JSON text."""
    return write_json(clean(arguments))


def tool_name(name: object) -> str:
    """Return the name of a call's tool as text. Raises MalformedCall if the call has no name."""
    if text := text_of(name):
        return text
    raise MalformedCall("The model called a tool without naming it. Ask again.")


LISTS_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
MAPS_OF_SCHEMAS = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_SCHEMAS = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)


def each_schema(schema: Mapping[str, Any], change: Callable[[Json], Json]) -> Json:
    """Return a JSON Schema in which `change` was applied to each nested schema, then to the schema itself.

    A nested schema `true` or `false` in "anyOf", "properties" and the like becomes {}: not every provider accepts it.
    """

    def inner(schema: object) -> Json:
        return each_schema(cast("Json", schema) if isinstance(schema, Mapping) else {}, change)

    result = dict(schema)
    for keyword, value in schema.items():
        if keyword in MAPS_OF_SCHEMAS and isinstance(value, Mapping):
            result[keyword] = {name: inner(one) for name, one in cast("Json", value).items()}
        elif keyword in LISTS_OF_SCHEMAS and isinstance(value, list):
            result[keyword] = [inner(one) for one in cast("list[Any]", value)]
        elif keyword in _SCHEMAS and isinstance(value, Mapping):
            result[keyword] = inner(cast("Json", value))
    return change(result)


def mint_id() -> str:
    """Return a new id for a call that the server sent without an id."""
    return f"call_{uuid4().hex}"


def fit_id(call_id: str, longest: int) -> str:
    """Return a call's id, or a hash of it if another server made it longer than this API accepts."""
    if len(call_id) <= longest:
        return call_id
    return f"call_{digest(call_id)}"


def fit_name(name: str, legal: re.Pattern[str]) -> str:
    """Return a function's name if it matches `legal`, or else a name that every API accepts, derived from it.

    The same name always gives the same result. Names in a history can be a model's inventions or another provider's.
    """
    if legal.fullmatch(name):
        return name
    legal_name = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    legal_name = legal_name if re.match(r"[A-Za-z_]", legal_name) else f"_{legal_name}"
    return legal_name if len(legal_name) <= _NAME_FOR_ALL else f"{legal_name[: _NAME_FOR_ALL - 33]}_{digest(name)}"


def digest(text: str) -> str:
    """Return 32 hexadecimal digits that stand for a text: the same ones for the same text."""
    return hashlib.sha256(encodable(text).encode()).hexdigest()[:32]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait from `Retry-After` (seconds or a date) or `Retry-After-Ms`, or None if unknown."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) / unit
        except ValueError:
            continue
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    try:
        return max(parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


FIELD_PLACES = {"messages": "messages", "input": "messages", "contents": "messages", "tools": "tools"}
"""The fields of a request body that hold the history or the tools. A refused field in them is left out everywhere."""

_VALUES = frozenset({"arguments", "args", "input", "output", "response", "default", "const", "enum", "examples"})
"""Fields of messages and schemas whose value is data of the model or the user. Keys in such data are not fields."""


def omit_fields(body: Json, without: Mapping[str, str]) -> Json:
    """Return a request body without the fields that are keys of `without`. Their values are fields to use instead."""
    for field, other in without.items():
        place, _, path = field.partition(".")
        if place in ("messages", "tools"):
            body = {key: _drop(path, inner) if FIELD_PLACES.get(key) == place else inner for key, inner in body.items()}
        elif place == "body":
            body = _cut(body, path.split(".")) | ({other: body[path]} if other and path in body else {})
    return body


def fields_of(value: object, place: str = "body") -> Iterator[str]:
    """Yield a request body's fields as "body.PATH", but in tools or messages as "tools.NAME" or "messages.NAME"."""
    for item in cast("list[object]", value) if isinstance(value, list) else [value]:
        for key, inner in cast("Json", item).items() if isinstance(item, dict) else ():
            inside = f"{place}.{key}" if place.startswith("body") else place
            if place == "body" and key in FIELD_PLACES:
                yield from fields_of(inner, FIELD_PLACES[key])
            elif key in MAPS_OF_SCHEMAS and isinstance(inner, dict):  # the keys of `inner` are the user's own names
                yield f"{place}.{key}"
                yield from fields_of(list(cast("Json", inner).values()), inside)
            else:
                yield f"{place}.{key}"
                if key not in _VALUES:
                    yield from fields_of(inner, inside)


def _drop(name: str, value: Any) -> Any:
    """Return the JSON of a request's messages or tools (`value`) without any field called `name`, at any depth."""
    if isinstance(value, list):
        return [_drop(name, item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    rest: Json = {}
    for key, inner in cast("Json", value).items():
        if key in MAPS_OF_SCHEMAS and isinstance(inner, dict) and key != name:
            rest[key] = {one: _drop(name, schema) for one, schema in cast("Json", inner).items()}
        elif key != name:
            rest[key] = inner if key in _VALUES else _drop(name, inner)
    return rest


def _cut(value: Any, path: Sequence[str]) -> Any:
    """Return the JSON `value` without the field at `path`; an object that becomes empty is removed too."""
    if isinstance(value, list):
        return [_cut(item, path) for item in cast("list[Any]", value)]
    if not isinstance(value, dict) or path[0] not in value:
        return cast("Any", value)
    whole = cast("Json", value)
    inner = whole[path[0]]
    if path[0] in MAPS_OF_SCHEMAS and path[1:] and isinstance(inner, dict):
        rest: Any = {name: _cut(schema, path[1:]) for name, schema in cast("Json", inner).items()}
    else:
        rest = _cut(inner, path[1:]) if path[1:] else {}
    return {key: rest if key == path[0] else inner for key, inner in whole.items() if key != path[0] or rest != {}}


def results_of(message: Message) -> list[ToolResult]:
    """Return the results of a message of role "tool"."""
    return [part for part in message.parts if isinstance(part, ToolResult)]


def data_of(part: Part, provider: str) -> Json:
    """Return the data that a provider stored in a part. It is {} if none exists or the part is another's."""
    own = None if isinstance(part, Media | Resource | ToolResult) else part.provider_data
    return own.data if own is not None and own.provider == provider else {}


def base64_of(media: Media) -> str:
    """Return the bytes of an image or another media part in base64."""
    return b64encode(media.data).decode()


class PartWriter:
    """Makes the model events for the parts of a response: numbers the parts, and joins adjacent pieces into one part.

    `reasoning` makes a finished reasoning part from its text and the name of the field that the text came in. Thinking
    that the model wrote between tags in its text becomes a reasoning part too, which is not sent back. `is_call`
    returns whether the text between a call's tags really is a call. After `finish`, such texts are in `calls`.
    """

    def __init__(
        self,
        reasoning: Callable[[str, str], Reasoning] = lambda text, _field: Reasoning(text),
        is_call: Callable[[str], bool] | None = None,
    ) -> None:
        self._reasoning = reasoning
        self._reader = TextReader(is_call)
        self._count = 0
        self._kind: Literal["text", "reasoning"] | None = None
        self._index = 0
        self._field = ""
        self._pieces: list[str] = []
        self.calls: list[str] = []

    @property
    def found_thinking(self) -> bool:
        """Whether the model wrote thinking between tags in its text."""
        return self._reader.found_thinking

    def next_index(self) -> int:
        """Reserve the index for a new part, and return it."""
        self._count += 1
        return self._count - 1

    def say(self, text: str) -> Iterable[ModelEvent]:
        """Return the model events for a piece of text, which can contain thinking and calls between tags."""
        pieces = self._reader.feed(text)
        if len(pieces) == 1 and pieces[0].kind == "text":  # nearly always true: the piece is plain text
            return self._write("text", pieces[0].text)
        return self._tell(pieces)

    def think(self, text: str, field: str) -> Iterator[ModelEvent]:
        """Yield the model events for a piece of reasoning; `field` is the field of the response that it came in."""
        if (self._kind, self._field) != ("reasoning", field):
            yield from self.end()
        yield from self._write("reasoning", text, field)

    def take(self, content: object, field: str = "") -> Iterator[ModelEvent]:
        """Yield the model events for content that `pieces_of` can read; `field` is the field with its thoughts."""
        for kind, text in pieces_of(content):
            yield from self.say(text) if kind == "text" else self.think(text, field)

    def end(self) -> tuple[ModelEvent, ...]:
        """Return the end event of the open part, if any. Text that can be the beginning of a tag stays held back."""
        self._reader.end_part()
        return self._end()

    def finish(self, whole_text: Text | None = None) -> Iterator[ModelEvent]:
        """Yield the model events for the text that was held back, and for the end of the open part.

        `whole_text` is the text part that the server sent at the end. If the text contained thinking, it is not used.
        """
        yield from self._tell(self._reader.close())
        if whole_text is None or self.found_thinking:
            yield from self._end()
            return
        if self._kind is None:
            self._kind, self._index = "text", self.next_index()
            yield PartStarted(self._index, "text")
        self._kind = None
        yield PartFinished(self._index, whole_text)

    def whole(self, part: Text | Reasoning | ToolCall | HostedCall | HostedResult) -> Iterator[ModelEvent]:
        """Yield the end event of the open part, and then all model events of a part that came as a whole."""
        yield from self.finish()
        index = self.next_index()
        match part:
            case ToolCall(name=name, arguments=arguments) | HostedCall(name=name, arguments=arguments):
                text = write_json(dict(arguments))
                yield PartStarted(index, "tool_call" if isinstance(part, ToolCall) else "hosted_call", name)
            case HostedResult(name=name):
                text = ""
                yield PartStarted(index, "hosted_result", name)
            case Text(text) | Reasoning(text):
                yield PartStarted(index, "text" if isinstance(part, Text) else "reasoning")
        if text:
            yield PartDelta(index, text)
        yield PartFinished(index, part)

    def _tell(self, pieces: Iterable[Piece]) -> Iterator[ModelEvent]:
        for kind, text in pieces:
            match kind:
                case "text" | "reasoning":
                    yield from self._write(kind, text)
                case "end":
                    yield from self._end()
                case "thought":
                    yield from self._become_reasoning(text)
                case "call":
                    self.calls.append(text)

    def _become_reasoning(self, text: str) -> Iterator[ModelEvent]:
        """Yield the event that ends the open part as reasoning with this text, even if the part began as text."""
        if self._kind is None:  # the part had only a call, so no start event came
            yield from self._write("reasoning", text)
        self._kind = None
        yield PartFinished(self._index, Reasoning(text))

    def _write(self, kind: Literal["text", "reasoning"], text: str, field: str = "") -> tuple[ModelEvent, ...]:
        """Return the model events for a piece of text or reasoning. If its kind or field is new, the open part ends."""
        if kind == self._kind and field == self._field:
            self._pieces.append(text)
            return (PartDelta(self._index, text),)
        end_events = self._end()
        self._kind, self._index, self._field, self._pieces = kind, self.next_index(), field, [text]
        return (*end_events, PartStarted(self._index, kind), PartDelta(self._index, text))

    def _end(self) -> tuple[ModelEvent, ...]:
        if self._kind is None:
            return ()
        text = "".join(self._pieces)
        if self._kind == "text":
            part = Text(text)
        else:
            part = self._reasoning(text, self._field) if self._field else Reasoning(text)
        self._kind = None
        return (PartFinished(self._index, part),)


class Memo:
    """Encodes the messages of a growing conversation for an API, and caches the encoded form of each message.

    This saves time, because each request repeats the messages of the request before. `encode` turns one message into
    any number of API objects, which must not be changed.
    """

    def __init__(self, encode: Callable[[Message], Iterable[Json]]) -> None:
        self._encode = encode
        self._messages: Sequence[Message] = ()
        self._encoded: list[Json] = []
        self._ends: list[int] = []  # has for each message the index in `_encoded` after its last object

    def __call__(self, messages: Sequence[Message]) -> list[Json]:
        """Return the messages as JSON objects of the API. Messages of the previous call come from the cache."""
        same = _same(self._messages, messages)
        fresh = [tuple(self._encode(message)) for message in messages[same:]]
        del self._ends[same:]
        del self._encoded[self._ends[-1] if self._ends else 0 :]
        for objects in fresh:
            self._encoded += objects
            self._ends.append(len(self._encoded))
        self._messages = messages
        return self._encoded.copy()


def _same(before: Sequence[object], now: Sequence[object]) -> int:
    """Return how many objects at the beginning of two lists are identical."""
    return next(compress(count(), map(is_not, before, now)), min(len(before), len(now)))
