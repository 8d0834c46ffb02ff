"""What all providers read and write alike: untrusted JSON, parts, text that is no Unicode, names, ids, waits.

A server can send JSON of any shape. The readers (`object_of`, `text_of` and so on) return a value of the type that the
caller expects, and an empty one for anything else: an answer does not fail over a field that it does not need.
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
from agentmagic.text import encodable

Json = dict[str, Any]

DEEPEST = 100
"""Levels of nesting that are read; deeper data would exhaust the stack of the code that walks it."""

_NAME_FOR_ALL = 64
"""Characters of a function's name that every provider takes."""


def object_of(value: object) -> Json:
    """Return a JSON object, an empty one for anything else."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]  (a cast is a call)


def objects_of(value: object) -> list[Json]:
    """Return the objects of a list; an object that stands alone is a list of one, unless it is empty."""
    if isinstance(value, dict):
        return [cast("Json", value)] if value else []
    return [one for one in cast("list[object]", value) if isinstance(one, dict)] if isinstance(value, list) else []


def text_of(value: object) -> str:
    """Return a text without lone surrogates, an empty one for anything else."""
    return encodable(value) if isinstance(value, str) else ""


def number_of(value: object) -> int | None:
    """Return a whole number, also one that is written as a float or as digits; None for anything else."""
    if type(value) is int:  # nearly always; a bool is no number
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else None


def words_of(value: object, depth: int = 8) -> str:
    """Return the words of a text, of an object that holds them, or of a list of both; data without words has none."""
    if isinstance(value, str):
        return encodable(value)
    if depth and isinstance(value, list):
        return "".join(words_of(one, depth - 1) for one in cast("list[object]", value))
    if depth and isinstance(value, dict):
        fields = cast("Json", value)
        return next(filter(None, (words_of(fields[name], depth - 1) for name in _WORDS if name in fields)), "")
    return ""


_WORDS = ("text", "thinking", "content", "summary", "reasoning", "refusal", "value")
"""The fields in which an object holds its words, or an object or list with them."""

_THOUGHTS = frozenset({"thinking", "reasoning", "reasoning_content"})
"""The types of pieces of content that are thoughts: of Mistral; of Databricks; of servers that pass on others."""


def pieces_of(content: object) -> Iterator[tuple[Literal["text", "reasoning"], str]]:
    """Yield the texts and thoughts of content: a text, a piece as an object, or a list of both.

    https://docs.mistral.ai/capabilities/reasoning and
    https://docs.databricks.com/aws/en/machine-learning/model-serving/query-reason-models
    """
    for piece in cast("list[object]", content) if isinstance(content, list) else [content]:
        if words := words_of(piece):
            yield "reasoning" if text_of(object_of(piece).get("type")) in _THOUGHTS else "text", words


def count_of(value: object) -> int:
    """Return a number of tokens, which some servers write as a float; 0 for anything else."""
    return max(number_of(value) or 0, 0)


def figures_so_far(before: Json, now: Json) -> Json:
    """Return figures of which each is the sum so far; one that is null, missing or 0 stays as it was."""
    return before | {name: figure for name, figure in now.items() if figure}


def clean(value: Any, depth: int = DEEPEST) -> Any:
    """Return JSON data that can be written: without lone surrogates, with null for NaN and infinity.

    Raises ValueError if it is nested deeper than `depth`.
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


def kept(data: Any) -> Any:
    """Return JSON of a provider in a form that can be saved and sent back. Raises StreamBroken if it nests too deep."""
    try:
        return clean(data)
    except ValueError as error:
        raise StreamBroken(f"The provider sent something that cannot be read: {error}. Ask again.") from None


def arguments_text(value: object) -> str:
    """Return a call's arguments as JSON text; a few servers send them as an object."""
    return text_of(value) if value is None or isinstance(value, str) else write_json(kept(value))


def read_arguments(value: object) -> Json:
    """Return a call's arguments: an object, or the one object that a text holds, also as a text within the text.

    Nothing, null, and empty objects before the object count for nothing; without any other object the arguments are
    {}, which the check of the call refuses if its tool requires some. All else, two objects too, becomes
    `{"_raw": text}`.
    """
    if isinstance(value, dict):
        return kept(cast("Json", value))
    text = arguments_text(value)
    try:
        given = [one for one in _values(text) if one not in (None, "", {})]
    except (ValueError, RecursionError):
        return {"_raw": text}
    match given:
        case []:
            return {}
        case [dict()]:
            return given[0]
        case [str() as inner] if inner != text:
            return read_arguments(inner)
        case _:
            return {"_raw": text}


def _values(text: str) -> Iterator[Any]:
    """Yield the JSON values that stand one after the other in a text. Raises ValueError for what is no JSON."""
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

write_json = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps with an option makes an encoder per call


def write_body(body: Json) -> bytes:
    """Return the body of a request as JSON. Raises ValueError for what JSON cannot hold.

    This encoder takes a third of the time of `json`, so nothing that was written for earlier requests is kept.
    """
    return to_json(body, inf_nan_mode="null")


def write_arguments(arguments: Mapping[str, Any]) -> str:
    """Return a call's arguments as JSON text."""
    return write_json(clean(arguments))


def named(name: object) -> str:
    """Return the name of the tool that a call is for. Raises MalformedCall if there is none."""
    if known := text_of(name):
        return known
    raise MalformedCall("The model called a tool without naming it. Ask again.")


LISTS_OF_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
MAPS_OF_SCHEMAS = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_SCHEMAS = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)


def each_schema(schema: Mapping[str, Any], change: Callable[[Json], Json]) -> Json:
    """Return a JSON Schema with a change made to each schema in it, the inner ones first.

    In lists and under names, true and false, which are schemas too, become {}, as not every provider takes them.
    """

    def inner(schema: object) -> Json:
        return each_schema(cast("Json", schema) if isinstance(schema, Mapping) else {}, change)

    changed = dict(schema)
    for keyword, value in schema.items():
        if keyword in MAPS_OF_SCHEMAS and isinstance(value, Mapping):
            changed[keyword] = {name: inner(one) for name, one in cast("Json", value).items()}
        elif keyword in LISTS_OF_SCHEMAS and isinstance(value, list):
            changed[keyword] = [inner(one) for one in cast("list[Any]", value)]
        elif keyword in _SCHEMAS and isinstance(value, Mapping):
            changed[keyword] = inner(cast("Json", value))
    return change(changed)


def mint_id() -> str:
    """Return an id for a call that came without one."""
    return f"call_{uuid4().hex}"


def fit_id(call_id: str, longest: int) -> str:
    """Return a call's id, shortened if another server made it longer than this API takes; the same every time."""
    if len(call_id) <= longest:
        return call_id
    return f"call_{_digest(call_id)}"


def fit_name(name: str, legal: re.Pattern[str]) -> str:
    """Return the name of a function if the API takes it, or else a legal name made of it, the same every time.

    A history can hold names that a model made up, or that only another provider allows.
    """
    if legal.fullmatch(name):
        return name
    fitted = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    fitted = fitted if re.match(r"[A-Za-z_]", fitted) else f"_{fitted}"
    return fitted if len(fitted) <= _NAME_FOR_ALL else f"{fitted[: _NAME_FOR_ALL - 33]}_{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(encodable(text).encode()).hexdigest()[:32]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a response asks to wait, from `Retry-After` (seconds or a date) or its -ms form."""
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


PLACES = {"messages": "messages", "input": "messages", "contents": "messages", "tools": "tools"}
"""The fields of a body with the history and with the tools, as places: a field stands all over its place."""

_VALUES = frozenset({"arguments", "args", "input", "output", "response", "default", "const", "enum", "examples"})
"""Fields of messages and schemas with data of the model or the user, whose keys are no fields."""


def left_out(body: Json, without: Mapping[str, str]) -> Json:
    """Return a body without fields of `fields_of`, each given with the name of the field that has its value now."""
    for field, other in without.items():
        place, _, path = field.partition(".")
        if place in ("messages", "tools"):
            body = {key: _drop(path, inner) if PLACES.get(key) == place else inner for key, inner in body.items()}
        elif place == "body":
            body = _cut(body, path.split(".")) | ({other: body[path]} if other and path in body else {})
    return body


def fields_of(value: object, place: str = "body") -> Iterator[str]:
    """Yield every field of a body, as "body." and its path, or "tools." or "messages." and its name."""
    for item in cast("list[object]", value) if isinstance(value, list) else [value]:
        for key, inner in cast("Json", item).items() if isinstance(item, dict) else ():
            inside = f"{place}.{key}" if place.startswith("body") else place
            if place == "body" and key in PLACES:
                yield from fields_of(inner, PLACES[key])
            elif key in MAPS_OF_SCHEMAS and isinstance(inner, dict):  # its keys are names of the user's
                yield f"{place}.{key}"
                yield from fields_of(list(cast("Json", inner).values()), inside)
            else:
                yield f"{place}.{key}"
                if key not in _VALUES:
                    yield from fields_of(inner, inside)


def _drop(name: str, value: Any) -> Any:
    """Return JSON of messages or tools without a field."""
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
    """Return JSON without what is at a path; an object that is empty then goes too."""
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
    """Return what a provider keeps of its own part in the history; {} if it keeps nothing, or another one made it."""
    own = None if isinstance(part, Media | Resource | ToolResult) else part.provider_data
    return own.data if own is not None and own.provider == provider else {}


def base64_of(media: Media) -> str:
    """Return the bytes of a blob in base64."""
    return b64encode(media.data).decode()


class PartWriter:
    """Numbers the parts of a response, and joins adjacent pieces of text or reasoning into one part.

    `reasoning` makes a finished reasoning part of its text and of the field that it came in. Thinking that the model
    wrote as text becomes a reasoning part too, which is not sent back. `is_call` says whether a text between the tags
    of a call is one: `calls` holds those after `finish`.
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
        """Whether the model wrote thinking as text."""
        return self._reader.found_thinking

    def next_index(self) -> int:
        """Return the index of a new part."""
        self._count += 1
        return self._count - 1

    def say(self, text: str) -> Iterable[ModelEvent]:
        """Return the events for a piece of text, in which there may be thinking and calls."""
        pieces = self._reader.feed(text)
        if len(pieces) == 1 and pieces[0].kind == "text":  # nearly always
            return self._write("text", pieces[0].text)
        return self._tell(pieces)

    def think(self, text: str, field: str) -> Iterator[ModelEvent]:
        """Yield the events for a piece of reasoning; `field` is where the server wrote it."""
        if (self._kind, self._field) != ("reasoning", field):
            yield from self.end()
        yield from self._write("reasoning", text, field)

    def take(self, content: object, field: str = "") -> Iterator[ModelEvent]:
        """Yield the events for content as `pieces_of` reads it; `field` is that of its thoughts."""
        for kind, text in pieces_of(content):
            yield from self.say(text) if kind == "text" else self.think(text, field)

    def end(self) -> tuple[ModelEvent, ...]:
        """Return the end of the open part, if there is one; text of which it is not clear what it is waits."""
        self._reader.end_part()
        return self._end()

    def finish(self, said: Text | None = None) -> Iterator[ModelEvent]:
        """Yield all that is left of the text, and the end of the open part.

        `said` is the whole text as the server ended it. It is the part if the model wrote no thinking in the answer.
        """
        yield from self._tell(self._reader.close())
        if said is None or self.found_thinking:
            yield from self._end()
            return
        if self._kind is None:
            self._kind, self._index = "text", self.next_index()
            yield PartStarted(self._index, "text")
        self._kind = None
        yield PartFinished(self._index, said)

    def whole(self, part: Text | Reasoning | ToolCall | HostedCall | HostedResult) -> Iterator[ModelEvent]:
        """Yield the end of the text before a part that came at once, and the events of the part."""
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
        """Yield the end of the open part as reasoning, whatever it began as."""
        if self._kind is None:  # it held nothing but a call
            yield from self._write("reasoning", text)
        self._kind = None
        yield PartFinished(self._index, Reasoning(text))

    def _write(self, kind: Literal["text", "reasoning"], text: str, field: str = "") -> tuple[ModelEvent, ...]:
        """Return the events for a piece; one of the other kind, or of another field, ends the open part."""
        if kind == self._kind and field == self._field:
            self._pieces.append(text)
            return (PartDelta(self._index, text),)
        ended = self._end()
        self._kind, self._index, self._field, self._pieces = kind, self.next_index(), field, [text]
        return (*ended, PartStarted(self._index, kind), PartDelta(self._index, text))

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
    """Encodes a growing history, each message once.

    Each request repeats the messages of the one before, so their encoded forms are kept. `encode` turns one message
    into any number of API objects, which must not be changed.
    """

    def __init__(self, encode: Callable[[Message], Iterable[Json]]) -> None:
        self._encode = encode
        self._messages: Sequence[Message] = ()
        self._encoded: list[Json] = []
        self._ends: list[int] = []  # of each message among the objects

    def __call__(self, messages: Sequence[Message]) -> list[Json]:
        """Return the messages as API objects."""
        same = _same(self._messages, messages)
        fresh = [tuple(self._encode(message)) for message in messages[same:]]
        del self._ends[same:]
        del self._encoded[self._ends[-1] if self._ends else 0 :]
        for encoded in fresh:
            self._encoded += encoded
            self._ends.append(len(self._encoded))
        self._messages = messages
        return self._encoded.copy()


def _same(before: Sequence[object], now: Sequence[object]) -> int:
    """Return how many objects two lists have in common at their beginning."""
    return next(compress(count(), map(is_not, before, now)), min(len(before), len(now)))
