"""Turns the events of a streamed response of the Responses API into ours."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from agentmagic.errors import MalformedCall, ProviderError
from agentmagic.events import PartDelta, PartFinished, PartKind, PartStarted
from agentmagic.messages import Part, ProviderData, Reasoning, Text, ToolCall
from agentmagic.providers.base import ModelEvent, ModelFinished
from agentmagic.providers.failures import Fault, broken
from agentmagic.providers.openai.openai_client import NAME, read_usage
from agentmagic.providers.openai.openai_errors import error_for, filtered
from agentmagic.providers.wire import (
    Json,
    figures_of,
    fit_name,
    kept,
    mint_id,
    object_of,
    objects_of,
    place_of,
    read_arguments,
    text_of,
    unreadable,
)

PROVIDER = "openai"


@dataclass(slots=True)
class _OpenItem:
    """A part whose end has not come; `item` is its first form, `texts` are its deltas."""

    index: int
    kind: PartKind
    item: Json
    texts: list[str] = field(default_factory=list[str])


_KINDS: dict[str, PartKind] = {"message": "text", "reasoning": "reasoning", "function_call": "tool_call"}
_DELTAS = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.function_call_arguments.delta",
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
    }
)
_PARAGRAPH = "\n\n"


class Decoder:
    """Turns the events of one streamed response into ours; output items of unknown kinds are skipped.

    Each item gives one part, even if a server announces it twice. Nothing comes after the closing event.
    """

    def __init__(self) -> None:
        self._open: dict[int, _OpenItem] = {}
        self._done: set[int] = set()
        self._started = 0
        self._finished = False

    def feed(self, chunk: object) -> Iterable[ModelEvent]:  # noqa: PLR0911  (one per kind of event)
        """Return the events of a chunk, which can be any JSON.

        Raises a ProviderError if the chunk reports a failure, and StreamBroken if it is not part of an answer.
        """
        if self._finished:
            return ()
        event = object_of(chunk)
        kind = text_of(event.get("type"))
        if kind in _DELTAS:  # nearly every event
            return self._delta(event, text_of(event.get("delta")))
        match kind:
            case "response.output_item.added":
                return self._start(place_of(event.get("output_index")), object_of(event.get("item")))
            case "response.reasoning_summary_part.added" if event.get("summary_index"):
                return self._delta(event, _PARAGRAPH)
            case "response.output_item.done":
                return self._finish(place_of(event.get("output_index")), kept(object_of(event.get("item"))))
            case "response.completed" | "response.incomplete":
                return self._end(object_of(event.get("response")), cut=kind == "response.incomplete")
            case "response.failed":
                raise _failure(object_of(object_of(event.get("response")).get("error")))
            case "error":
                raise _failure(object_of(event.get("error")) or event)
            case _:
                return ()

    def close(self) -> Iterable[ModelEvent]:
        """Return nothing. Raises StreamBroken if the response was not complete."""
        if not self._finished:
            raise broken("the response ended before it was complete")
        return ()

    def _start(self, place: int, item: Json) -> Iterator[ModelEvent]:
        kind = _KINDS.get(text_of(item.get("type")))
        if kind is None or place in self._open or place in self._done:
            return
        self._open[place] = part = _OpenItem(self._started, kind, item)
        self._started += 1
        yield PartStarted(part.index, kind, text_of(item.get("name")) if kind == "tool_call" else "")

    def _delta(self, event: Json, text: str) -> Iterable[ModelEvent]:
        part = self._open.get(place_of(event.get("output_index")))
        if part is None or not text:
            return ()
        part.texts.append(text)
        return (PartDelta(part.index, text),)

    def _finish(self, place: int, item: Json) -> Iterator[ModelEvent]:
        yield from self._start(place, item)  # compatible servers may send an item at once, unannounced
        if part := self._open.pop(place, None):
            self._done.add(place)
            if _KINDS.get(text_of(item.get("type"))) != part.kind:
                raise unreadable("an item that changed its type")
            yield PartFinished(part.index, _part(item))

    def _end(self, response: Json, *, cut: bool) -> Iterator[ModelEvent]:
        details = figures_of(response.get("incomplete_details"))
        reason = text_of(details.get("reason") or response.get("status"))
        if reason == "content_filter":
            raise filtered()
        for part in self._open.values():
            yield PartFinished(part.index, _cut_part(part))
        self._open.clear()
        self._finished = True
        cut = cut or reason in ("incomplete", "max_output_tokens")
        yield ModelFinished(read_usage(response.get("usage"), "input", "output"), reason, cut)


def _part(item: Json) -> Part:
    """Return the part of a finished item."""
    # An item that was cut off would be refused in the history, so its part keeps no data to send back.
    data = ProviderData(PROVIDER, item) if text_of(item.get("status")) in ("", "completed") else None
    match item["type"]:
        case "message":
            entries = objects_of(item.get("content"))
            return Text("".join(text_of(entry.get("text") or entry.get("refusal")) for entry in entries), data)
        case "reasoning":
            entries = (*objects_of(item.get("summary")), *objects_of(item.get("content")))
            return Reasoning(_PARAGRAPH.join(text_of(entry.get("text")) for entry in entries), data)
        case _:
            return _call(item, text_of(item.get("arguments")), data)


def _cut_part(part: _OpenItem) -> Part:
    """Return the part of an item that was not finished before the closing event; it has no data to send back."""
    text = "".join(part.texts)
    match part.kind:
        case "text":
            return Text(text)
        case "reasoning":
            return Reasoning(text)
        case "tool_call":
            return _call(part.item, text, None)


def _call(item: Json, arguments: str, data: ProviderData | None) -> ToolCall:
    name, call_id = text_of(item.get("name")), text_of(item.get("call_id"))
    if not name:
        raise MalformedCall("The model called a tool without naming it. Ask again.")
    if not call_id or fit_name(name, NAME) != name:
        data = None  # the API would refuse the item unchanged
    return ToolCall(call_id or mint_id(), name, read_arguments(arguments), data)


def _failure(error: Json) -> ProviderError:
    code = error.get("code") or error.get("type")
    return error_for(Fault(text_of(error.get("message")), "" if code in (None, "error") else str(code)))
