"""Converts a model's answer from the events in which it arrived to a document of a recorded turn, and back.

The document has the complete parts of the answer. A replay makes the pieces again: a text arrives word by word, and a
tool call in one piece. `written` has the streamed text of each part from whose content it cannot be made, by the part's
number. `open` lists the parts that had not ended when the answer broke off. `withdrawn` lists the parts that began as
text and became reasoning.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from agentmagic import errors
from agentmagic.errors import ProviderError, describe
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import ToolCall, Usage
from agentmagic.providers.base import ModelEvent, ModelFinished
from agentmagic.replay.exchange import Json, blank_secrets, parts_of
from agentmagic.secrets import redact
from agentmagic.serialization import from_json

TEXT_TYPES = ("text", "reasoning")
"""The types of parts whose text arrives in pieces."""
USUAL_REASON = "stop"
"""The reason why an answer ended, if its document has none."""
_FLAGS = ("cut", "last", "refused", "unknown")
"""Fields of a `ModelFinished` that a document has only if they are true."""
_WORD = re.compile(r"\S+\s*|\s+")


class Answer:
    """Builds the document of one answer, for the recording of a turn, from the events of the model."""

    def __init__(self) -> None:
        self._parts: dict[int, Json] = {}
        self._pieces: dict[int, list[str]] = {}
        self._open: set[int] = set()
        self._texts: set[int] = set()
        self._end: Json = {}

    def feed(self, event: ModelEvent) -> None:
        """Add an event of the model to the answer."""
        match event:
            case PartStarted(index=index, kind=kind):
                self._open.add(index)
                self._texts |= {index} if kind == "text" else set()
                call: Json = {"type": kind, "id": "", "name": event.name, "arguments": {}}
                self._parts[index] = {"type": kind, "text": ""} if kind in TEXT_TYPES else call
            case PartDelta(index=index, text=text):
                self._pieces.setdefault(index, []).append(text)
            case PartFinished(index=index, part=part):
                self._open.discard(index)
                self._parts[index] = blank_secrets(part)
            case ModelFinished():
                self._end = {"reason": event.reason} if event.reason != USUAL_REASON else {}
                self._end |= {} if event.once else {"once": False}
                self._end |= {name: True for name in _FLAGS if getattr(event, name)}
                self._end["usage"] = usage_list(event.usage)

    def fail(self, error: BaseException, name: str) -> None:
        """Record in the answer that the model `name` raised an error, or that the turn was stopped."""
        if not isinstance(error, Exception):
            self._end["stopped"] = True
            return
        is_public = isinstance(error, ProviderError) and type(error).__name__ in vars(errors)
        kind = type(error).__name__ if is_public else "ProviderError"
        message = (
            describe(error) if isinstance(error, ProviderError) else f"{name} failed: {type(error).__name__}: {error}"
        )
        failure: Json = {"kind": kind, "text": redact(message)}
        for field in ("status", "retry_after", "retryable"):
            if (value := getattr(error, field, None)) is not None:
                failure[field] = value
        if mend := getattr(error, "mended", ""):
            failure["mended"] = redact(mend)
        if (usage := getattr(error, "usage", None)) is not None:
            failure["usage"] = usage_list(usage)
        self._end["error"] = failure

    def document(self) -> Json:
        """Return the document of the answer."""
        places = {index: place for place, index in enumerate(self._parts)}
        texts = {index: redact("".join(pieces)) for index, pieces in self._pieces.items() if index in places}
        open_texts = [index for index in self._open if self._parts[index]["type"] in TEXT_TYPES]
        for index in open_texts:
            self._parts[index]["text"] = texts.get(index, "")
        written = {
            str(places[index]): text
            for index, text in texts.items()
            if (index in self._open or self._parts[index]["type"] in TEXT_TYPES)
            and text not in ("", self._parts[index].get("text"))
        }
        withdrawn = sorted(places[index] for index in self._texts if self._parts[index]["type"] == "reasoning")
        usage, stopped = self._end.pop("usage", None), self._end.pop("stopped", False)
        return {
            "answer": content_of(list(self._parts.values())),
            **({"written": written} if written else {}),
            **({"withdrawn": withdrawn} if withdrawn else {}),
            **({"open": sorted(places[index] for index in self._open)} if self._open else {}),
            **self._end,
            **({"stopped": stopped} if stopped or usage is None else {}),
            **({} if usage is None else {"usage": usage}),
        }


def content_of(parts: list[Json]) -> list[Json] | str:
    """Return the parts of an answer as a document has them: as a text if this is the only part."""
    match parts:
        case [{"type": "text", "text": str() as text, **others}] if not others:
            return text
        case _:
            return parts


def usage_list(usage: Usage) -> list[Any]:
    """Return the counts of a usage as a list, without zeros at the end.

    The order is: input, cached, output and reasoning tokens, the cost, all tokens written to a cache, the tokens that
    the cache keeps for an hour, and searches.
    """
    counts = [usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens, usage.cost]
    counts += [usage.cache_write_tokens, usage.cache_write_1h_tokens, usage.searches]
    while counts and counts[-1] == 0:
        counts.pop()
    return counts


def usage_of(counts: Sequence[Any]) -> Usage:
    """Return the usage from a list that `usage_list` returned."""
    whole: list[Any] = [*counts, *(0, 0, 0, 0, 0.0, 0, 0, 0)[len(counts) :]]
    input_tokens, cached_tokens, output, reasoning, cost, *rest = whole
    return Usage(input_tokens, cached_tokens, output, reasoning, 0, cost, *rest)


def model_events(answer: Json, restore: Callable[[Any], Any]) -> Iterator[ModelEvent]:
    """Yield the model events of a recorded answer.

    Raises ValueError, KeyError, TypeError or IndexError if the document cannot be read.
    """
    withdrawn, unfinished = answer.get("withdrawn", ()), answer.get("open", ())
    for place, data in enumerate(parts_of(answer)):
        part = from_json(restore(data))
        kind = "text" if place in withdrawn else data["type"]
        yield PartStarted(place, kind, part.name if isinstance(part, ToolCall) else "")
        text = answer.get("written", {}).get(str(place), "")
        for piece in _pieces(data, text, is_open=place in unfinished):
            yield PartDelta(place, piece)
        if place not in unfinished:
            yield PartFinished(place, part)
    if "usage" in answer:
        reason, once = answer.get("reason", USUAL_REASON), answer.get("once", True)
        flags = {name: answer.get(name, False) for name in _FLAGS}
        yield ModelFinished(usage_of(answer["usage"]), reason, once=once, **flags)


def _pieces(part: Mapping[str, Any], text: str, *, is_open: bool) -> list[str]:
    """Return the pieces in which a part arrives: its `text`, or the text that is made from its content."""
    if part["type"] in TEXT_TYPES:
        return _WORD.findall(text or part.get("text", ""))
    if not text and not is_open and "arguments" in part:
        text = json.dumps(part["arguments"])
    return [text] if text else []
