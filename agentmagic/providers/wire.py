"""What all providers read and write alike: untrusted JSON, parts, text that is no Unicode, names, ids, waits.

The readers (`object_of`, `text_of` and so on) return a value of the type that the caller expects, or raise
StreamBroken: a server can send JSON of any shape.
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
from agentmagic.messages import Media, Message, Part, Reasoning, Text, ToolCall, ToolResult
from agentmagic.providers.base import ModelEvent
from agentmagic.providers.text_reader import Piece, TextReader
from agentmagic.text import encodable

Json = dict[str, Any]

DEEPEST = 100
"""Levels of nesting that are read; deeper data would exhaust the stack of the code that walks it."""

_NAME_FOR_ALL = 64
"""Characters of a function's name that every provider takes."""


def unreadable(why: str) -> StreamBroken:
    """Return the error for data that is no answer."""
    return StreamBroken(f"The provider sent something that cannot be read: {why}. Ask again, or check the base URL.")


def object_of(value: object) -> Json:
    """Return a JSON object; null counts as an empty one."""
    if isinstance(value, dict):
        return value  # pyright: ignore[reportUnknownVariableType]  (a cast is a call, and this is done for each piece)
    if value is None:
        return {}
    raise _misshapen(value, "an object")


def objects_of(value: object) -> list[Json]:
    """Return a list of JSON objects; null counts as an empty one."""
    if value is None or isinstance(value, list):
        return [object_of(item) for item in cast("list[object]", value or [])]
    raise _misshapen(value, "a list")


def text_of(value: object) -> str:
    """Return a text without lone surrogates; null counts as an empty one."""
    if value is None or isinstance(value, str):
        return encodable(value or "")
    raise _misshapen(value, "a text")


def place_of(value: object) -> int:
    """Return a whole number, the position of a part."""
    if isinstance(value, int):
        return value
    raise _misshapen(value, "a number")


def figures_of(value: object) -> Json:
    """Return an object with figures such as token counts, an empty one for anything else: no answer fails over them."""
    return cast("Json", value) if isinstance(value, dict) else {}


def count_of(value: object) -> int:
    """Return a number of tokens, 0 for anything else."""
    return max(value, 0) if isinstance(value, int) else 0


def _misshapen(value: object, expected: str) -> StreamBroken:
    return unreadable(f"{type(value).__name__} in place of {expected}")


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
        raise unreadable(str(error)) from None


def read_arguments(text: str) -> Json:
    """Return a call's arguments, `{"_raw": text}` for text that is no JSON object, and {} for no text."""
    if not text.strip():
        return {}
    try:
        value = clean(json.loads(text, parse_constant=_finite, parse_float=_finite))
    except (ValueError, RecursionError):
        return {"_raw": encodable(text)}
    return cast("Json", value) if isinstance(value, dict) else {"_raw": encodable(text)}


def _finite(number: str) -> float:
    value = float(number)
    if math.isfinite(value):
        return value
    message = f"{number} is no JSON number"
    raise ValueError(message)


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
_MAPS_OF_SCHEMAS = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
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
        if keyword in _MAPS_OF_SCHEMAS and isinstance(value, Mapping):
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


def results_of(message: Message) -> list[ToolResult]:
    """Return the results of a message of role "tool"."""
    return [part for part in message.parts if isinstance(part, ToolResult)]


def data_of(part: Part, provider: str) -> Json:
    """Return what a provider keeps of its own part in the history; {} if it keeps nothing, or another one made it."""
    own = part.provider_data if isinstance(part, Text | Reasoning | ToolCall) else None
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

    def whole(self, part: Text | Reasoning | ToolCall) -> Iterator[ModelEvent]:
        """Yield the end of the text before a part that came at once, and the events of the part."""
        yield from self.finish()
        index = self.next_index()
        match part:
            case ToolCall(name=name, arguments=arguments):
                text = write_json(dict(arguments))
                yield PartStarted(index, "tool_call", name)
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
