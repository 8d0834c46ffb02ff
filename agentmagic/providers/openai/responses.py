"""OpenAI's Responses API: `openai:MODEL`.

Requests ask OpenAI to store nothing. So the output items are kept in our history, and sent back unchanged. Reasoning is
encrypted, comes before the call that it led to, and is complete only in the event `response.output_item.done`.
https://developers.openai.com/api/docs/guides/conversation-state
"""

import json
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agentmagic.errors import ProviderError
from agentmagic.events import PartDelta, PartFinished, PartKind, PartStarted
from agentmagic.messages import (
    Content,
    HostedCall,
    HostedResult,
    HostedTool,
    Media,
    Message,
    Part,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolDef,
    ToolResult,
    Usage,
    as_text,
)
from agentmagic.providers.base import ModelEvent, ModelFinished, ModelSettings, Request, merge
from agentmagic.providers.failures import Fault, stream_broken
from agentmagic.providers.finish_reasons import ending_of
from agentmagic.providers.hosted import MOST_CITATIONS, as_plain_text, order_citations, part_events, sources_at_end
from agentmagic.providers.openai import PROVIDERS, server_items
from agentmagic.providers.openai.batches import OpenAIBatches
from agentmagic.providers.openai.client import (
    CHOICES,
    IMAGES,
    NAME,
    NOTHING,
    PDF,
    OpenAIClient,
    data_url,
    error_for,
    form,
    honoured_names,
    read_citations,
    read_usage,
    reasons,
)
from agentmagic.providers.streams import AFTER_END
from agentmagic.providers.wire import (
    Json,
    Memo,
    PartWriter,
    arguments_text,
    clean,
    clean_data,
    data_of,
    fit_id,
    fit_name,
    mint_id,
    number_of,
    object_of,
    objects_of,
    omit_fields,
    read_arguments,
    results_of,
    text_in,
    text_of,
    tool_name,
    write_arguments,
)
from agentmagic.serialization import same_json

PROVIDER = "openai"


@dataclass(slots=True)
class _Item:
    """An output item of a response. It becomes a part. `data` is its latest JSON, `texts` are its streamed pieces.

    `place` is its index in the output. `index` is the index of the part, or -1 before the part has started.
    `arguments` come from the event that ends the pieces of a call. `is_whole` is True if `data` is final.
    """

    kind: PartKind
    place: int | None
    data: Json
    index: int = -1
    texts: list[str] = field(default_factory=list[str])
    arguments: str = ""
    is_whole: bool = False
    done: bool = False
    annotations: list[Json] = field(default_factory=list[Json])


_KINDS: dict[str, PartKind] = {"message": "text", "reasoning": "reasoning", "function_call": "tool_call"}
_CALLS = frozenset({"tool_call", "hosted_call"})
_TYPES = {kind: name for name, kind in _KINDS.items()}
_DELTAS: dict[str, PartKind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.function_call_arguments.delta": "tool_call",
    "response.reasoning_summary_text.delta": "reasoning",
    "response.reasoning_text.delta": "reasoning",
}
_ENDS_OF_DELTAS: dict[str, PartKind] = {f"{kind.removesuffix('delta')}done": part for kind, part in _DELTAS.items()}
_ENDS_OF_DELTAS["response.output_text.annotation.added"] = "text"
_CLOSING = frozenset({"response.completed", "response.incomplete", "response.done"})
"""The events that end a response; compatible servers send the last one."""

_PARAGRAPH = "\n\n"


class Decoder:
    """Turns the stream events of one response into model events. An item of unknown type counts as a hosted call.

    Each output item becomes one part, or a hosted call (a call that OpenAI ran itself) and its result, even if a server
    announces the item twice or never. Missing data of an item is taken from earlier events, or from the closing event,
    which has all items. So a call whose arguments did not arrive is finished only at the closing event. Later events
    are ignored.
    """

    def __init__(self) -> None:
        self._items: list[_Item] = []
        self._latest: _Item | None = None
        self._writer = PartWriter()
        self._held: PartFinished | None = None  # the end of the latest text, if more of its sources can still come
        self._refused = False
        self.usage_so_far: Usage | None = None
        self.rest: float | None = None

    def feed(self, chunk: object) -> Iterable[ModelEvent]:  # noqa: PLR0911  (one per kind of event)
        """Return the model events in a chunk, which can be any JSON. Raises a ProviderError if it reports an error."""
        if self.rest is not None:  # the response has ended
            return ()
        event = object_of(chunk)
        kind = text_of(event.get("type"))
        if part := _DELTAS.get(kind):  # nearly every event
            return self._delta(part, event, text_of(event.get("delta")))
        if part := _ENDS_OF_DELTAS.get(kind):
            return self._end_deltas(part, event)
        self._count(object_of(event.get("response")) or event)
        match kind:
            case "response.output_item.added":
                return self._start(number_of(event.get("output_index")), object_of(event.get("item")))
            case "response.reasoning_summary_part.added" if event.get("summary_index"):
                return self._delta("reasoning", event, _PARAGRAPH)
            case "response.output_item.done":
                return self._finish(number_of(event.get("output_index")), clean_data(object_of(event.get("item"))))
            case "response.failed" | "error":
                raise _failure(object_of((object_of(event.get("response")) or event).get("error")) or event)
            case _ if kind in _CLOSING:
                return self._end(object_of(event.get("response")), kind)
            case "" if "output" in event:  # the whole response at once, from a server that does not stream
                return self._end(event)
            case _:
                return ()

    def close(self, *, done: bool = False) -> Iterable[ModelEvent]:
        """Return the last model events if only `[DONE]` ended the response. Raises StreamBroken if it is incomplete."""
        if self.rest is not None:  # the response has ended
            return ()
        if done and self._items:
            return self._end({})
        raise stream_broken("the response ended before it was complete")

    def _count(self, response: Json) -> None:
        """Store the token counts, if `response` has them. The server sends them at the end, even after a failure."""
        if object_of(response.get("usage")):
            items = [item.data for item in self._items] or objects_of(response.get("output"))
            self.usage_so_far = _figures(response, items)

    def _find(self, kind: PartKind, place: int | None, data: Json) -> _Item | None:
        """Return the known output item to which `data` belongs, or None. An unfinished item is preferred.

        Some servers give several items the same index or no index, or change an item's id or index between events.
        """
        item_id, call_id = data.get("id"), data.get("call_id")
        alike = [one for one in self._items if one.kind == kind]
        if call_id and kind == "tool_call":
            alike = [one for one in alike if one.data.get("call_id") in (None, "", call_id)]
        near = [one for one in alike if place in (None, one.place)]
        same = [one for one in near or alike if item_id and one.data.get("id") == item_id and (near or not one.done)]
        still_open = [one for one in near if not one.done]
        return next(reversed(same or still_open or near), None)

    def _item(self, kind: PartKind, place: int | None, data: Json) -> _Item:
        item = self._find(kind, place, data)
        if item is None:
            self._items.append(item := _Item(kind, place, data))
        return item

    def _start(self, place: int | None, data: Json) -> Iterable[ModelEvent]:
        kind = _kind(data)
        if kind is None:
            return ()
        item = self._find(kind, place, data)
        is_other = item is not None and item.done and data.get("id") and data["id"] != item.data.get("id")
        # The same call under a new id can be a repetition: `_finish` decides when the arguments have come.
        if item is None or (is_other and not (data.get("call_id") and data["call_id"] == item.data.get("call_id"))):
            self._items.append(item := _Item(kind, place, data))
        return self._begin(item)

    def _begin(self, item: _Item) -> Iterator[ModelEvent]:
        """Yield the start event of reasoning, or of a call whose name is known, unless its part has started.

        A text starts at its first word, in `PartWriter`, because that word may be thinking.
        """
        name = server_items.name_of(item.data) if item.kind == "hosted_call" else text_of(item.data.get("name"))
        if item.index < 0 and (name if item.kind in _CALLS else item.kind == "reasoning"):
            item.index = self._writer.next_index()
            yield PartStarted(item.index, item.kind, name if item.kind in _CALLS else "")
            for text in item.texts:
                yield PartDelta(item.index, text)

    def _delta(self, kind: PartKind, event: Json, text: str) -> Iterable[ModelEvent]:
        place, item_id, item = event.get("output_index"), event.get("item_id"), self._latest
        if item is None or (item.kind, item.place, item.data.get("id")) != (kind, place, item_id):  # another item
            item = self._latest = self._item(kind, number_of(place), {"type": _TYPES[kind], "id": item_id})
        if not text or item.done:
            return ()
        item.texts.append(text)
        if kind == "text":
            return self._writer.say(text)
        return self._begin(item) if item.index < 0 else (PartDelta(item.index, text),)

    def _end_deltas(self, kind: PartKind, event: Json) -> Iterable[ModelEvent]:
        data = {"type": _TYPES[kind], "id": event.get("item_id")}
        item = self._item(kind, number_of(event.get("output_index")), data)
        if kind != "tool_call":
            item.annotations += objects_of(event.get("annotation"))[: MOST_CITATIONS - len(item.annotations)]
            self._refused = self._refused or bool(event.get("refusal"))
            words = text_of(event.get("text") or event.get("refusal"))
            return () if item.texts else self._delta(kind, event, words)
        item.arguments = arguments_text(event.get("arguments"))
        return ()

    def _finish(self, place: int | None, data: Json) -> Iterator[ModelEvent]:
        kind = _kind(data)
        if kind is None:
            return
        item = self._item(kind, place, data)
        if kind == "tool_call" and item.done and _is_second(data, item.data):
            self._items.append(item := _Item(kind, place, data))
        _supply(item, data)
        if kind != "tool_call" or item.texts or item.arguments or read_arguments(item.data.get("arguments")):
            yield from self._end_part(item)

    def _end_part(self, item: _Item) -> Iterator[ModelEvent]:
        if item.done:
            return
        if item.kind == "hosted_call":
            yield from self._end_hosted_call(item)
            return
        part = _part(item.data, "".join(item.texts), is_whole=item.is_whole)
        if isinstance(part, Text) and not part.citations:  # some servers send them only in events
            cited = read_citations(part.text, clean_data(item.annotations))
            part = replace(part, citations=order_citations(cited))
        yield from self._begin(item)
        item.done = True
        if not isinstance(part, Text):
            yield PartFinished(item.index, part)
            return
        text_events = () if item.texts else tuple(self._writer.say(part.text))
        end_events = tuple(self._writer.finish(part))
        # A text that was not streamed gets no `PartDelta` events, unless it contained thinking.
        yield from (one for one in text_events if self._writer.found_thinking or not isinstance(one, PartDelta))
        yield from self._hold_text(end_events) if self._has_hosted_call else end_events

    @property
    def _has_hosted_call(self) -> bool:
        return any(item.kind == "hosted_call" for item in self._items)

    def _hold_text(self, events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
        """Yield the events that end a text, but keep its `PartFinished` event until the next text or the closing event.

        The sources of an answer for which the server searched can stand in the closing event alone.
        """
        for event in events:
            if isinstance(event, PartFinished) and isinstance(event.part, Text):
                yield from self._release_text({})
                self._held = event
            else:
                yield event

    def _release_text(self, sources: Json) -> Iterator[ModelEvent]:
        """Yield the `PartFinished` event that `_hold_text` kept, with these sources as citations at its end."""
        if self._held is not None and isinstance(part := self._held.part, Text):
            more = sources_at_end(part.text, clean_data(sources), {one.url for one in part.citations})
            part = replace(part, citations=order_citations((*part.citations, *more)))
            yield replace(self._held, part=part)
        self._held = None

    def _end_hosted_call(self, item: _Item) -> Iterator[ModelEvent]:
        """Yield the events of a call that OpenAI ran itself, and of its result. OpenAI sends both as one item."""
        call, result = server_items.hosted_parts(item.data, PROVIDER, is_whole=item.is_whole)
        yield from self._begin(item)
        item.done = True
        yield from part_events(item.index, call, is_started=True)
        yield from part_events(self._writer.next_index(), result)

    def _end(self, response: Json, kind: str = "") -> Iterator[ModelEvent]:
        """Yield the last model events for a whole `response`, which came in a closing event of the type `kind`."""
        details = object_of(response.get("incomplete_details"))
        reason = text_of(details.get("reason") or response.get("status"))
        if reason == "failed":
            raise _failure(object_of(response.get("error")))
        ending = ending_of(reason)
        if ending == "unknown" and kind == "response.completed":
            ending = "whole"  # the event itself says so, whatever a compatible server writes into the status
        cut = ending == "cut" or kind == "response.incomplete"
        self._take(clean_data(response).get("output"))
        for item in self._items:
            if item.kind == "tool_call" and not item.is_whole:
                _supply(item, item.data, is_whole=False)
            if (item.is_whole or item.texts or item.index >= 0) and not (cut and not _has_name(item)):
                yield from self._end_part(item)
        self.rest = AFTER_END
        items = [item.data for item in self._items]
        yield from self._release_text(server_items.other_sources(response, items))
        usage = _figures(response, items)
        refused = self._refused or any(_is_refusal(item.data) for item in self._items)
        model = text_of(response.get("model"))
        unknown = ending == "unknown"
        yield ModelFinished(usage, reason or "completed", cut, model=model, refused=refused, unknown=unknown)

    def _take(self, output: object) -> None:
        """Update the known output items from those in the closing event (`output`); add items that are new.

        An item with an unknown id is matched to the next known item of its kind that has no match.
        """
        remaining = list(self._items)
        strange: list[tuple[PartKind, Json]] = []
        for data in objects_of(output):
            kind = _kind(data)
            if kind is None:
                continue
            ids = [name for name in ("id", "call_id") if data.get(name)]
            item = next((one for one in remaining if any(one.data.get(name) == data[name] for name in ids)), None)
            if item is None or item.kind != kind:
                strange.append((kind, data))
                continue
            remaining.remove(item)
            _supply(item, data)
        for kind, data in strange:
            item = next((one for one in remaining if one.kind == kind), None)
            if item is None:
                self._items.append(item := _Item(kind, None, data))
            else:
                remaining.remove(item)
            _supply(item, data)


def _figures(response: Json, items: Sequence[Json]) -> Usage:
    """Return the usage of a response: its tokens, and the number of its searches that are billed."""
    searches = server_items.searches(response, items)
    return replace(read_usage(response.get("usage"), "input", "output"), searches=searches)


def _kind(data: Json) -> PartKind | None:
    kind = text_of(data.get("type"))
    return _KINDS.get(kind) or ("hosted_call" if kind else None)


def _has_name(item: _Item) -> bool:
    """Return whether an output item has the name that a call needs; True for an item that is not a call."""
    return item.kind != "tool_call" or item.index >= 0 or bool(item.data.get("name"))


def _is_second(call: Json, done: Json) -> bool:
    """Return whether the item of a call that came after a finished one is another call: its id and values differ."""
    if not call.get("id") or call["id"] == done.get("id"):
        return False
    values, known = ((one.get("name"), read_arguments(one.get("arguments"))) for one in (call, done))
    return bool(values[1]) and not same_json(values, known)


def _is_refusal(item: Json) -> bool:
    """Return whether an output item is a message in which the model refuses to answer."""
    return any(part.get("type") == "refusal" for part in objects_of(item.get("content")))


def _supply(item: _Item, data: Json, *, is_whole: bool = True) -> None:
    """Replace an item's data by later `data`. A call keeps its name, id and arguments if the later data has none."""
    if item.done:
        return
    if item.kind == "tool_call":
        before = {name: item.data[name] for name in ("name", "call_id") if item.data.get(name)}
        sources = (data.get("arguments"), item.arguments, "".join(item.texts), item.data.get("arguments"))
        # Prefer arguments that are not empty: `{}` can be a placeholder for arguments from another event.
        texts = [text for text in map(arguments_text, sources) if text]
        arguments = next((text for text in texts if read_arguments(text)), texts[0] if texts else "")
        data = data | {name: value for name, value in before.items() if not data.get(name)} | {"arguments": arguments}
    item.data, item.is_whole = data, is_whole


def _part(item: Json, deltas: str, *, is_whole: bool) -> Part:
    """Return the part for an output item; `deltas` is its streamed text, which is used if the item has no text."""
    # The API would refuse an item that was cut off, so its part has no data to send back.
    own = is_whole and text_of(item.get("status")) in ("", "completed")
    data = ProviderData(PROVIDER, item) if own else None
    match item["type"]:
        case "message":
            text = text_in(item.get("content")) if is_whole else ""
            return Text(text or deltas, data if text else None, citations=server_items.citations_of(item, text))
        case "reasoning":
            entries = (*objects_of(item.get("summary")), *objects_of(item.get("content"))) if is_whole else ()
            return Reasoning(_PARAGRAPH.join(map(text_in, entries)) or deltas, data)
        case _:
            return _call(item, data)


def _call(item: Json, data: ProviderData | None) -> ToolCall:
    name, call_id = tool_name(item.get("name")), text_of(item.get("call_id"))
    if not call_id or fit_name(name, NAME) != name:
        data = None  # the API would refuse the original item, which has no id or an illegal name
    arguments = read_arguments(item.get("arguments"))
    if data and not _is_json(item["arguments"]) and "_raw" not in arguments:  # it came twice, or behind a placeholder
        data = ProviderData(PROVIDER, item | {"arguments": write_arguments(arguments)})
    return ToolCall(call_id or mint_id(), name, arguments, data)


def _is_json(text: str) -> bool:
    try:
        json.loads(text or "{}")
    except (ValueError, RecursionError):
        return False
    return True


def _failure(error: Json) -> ProviderError:
    code = error.get("code") or error.get("type")
    code, param = "" if code in (None, "error") else str(code), text_of(error.get("param"))
    return error_for(Fault(text_of(error.get("message")), code, param=param))


LONGEST_ID = 64
"""The most characters of a call's id."""


class OpenAIResponses(OpenAIClient):
    """A model behind the Responses API."""

    row = PROVIDERS[0]
    mark = "type"

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key)
        self._memo = _memo(model)

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of those `settings` that the model accepts; this API has no `seed`."""
        names = honoured_names(self.model, settings) if self.is_own else set(settings.given)
        return names - {"seed"}

    def hosts(self, tool: HostedTool) -> bool:
        """Return whether OpenAI runs the tool itself for this model."""
        return server_items.hosts(self.model, tool)

    def body(self, request: Request) -> Json:
        """Return the JSON that is sent for a request."""
        request = self.refused.fit(request)
        request = replace(request, output=None) if "text" in self.without else request
        return omit_fields(encode(request, self.model, self._memo), self.without)

    def batches(self) -> OpenAIBatches:
        """Return the batch API. A compatible server need not have it."""
        return OpenAIBatches(self, Decoder)

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Send the request and yield the events of the answer."""
        return self.events("/responses", request, Decoder())


def encode(request: Request, model: str, memo: Memo | None = None) -> Json:
    """Return the body of `POST /responses`; with a memo of the same model, each message is encoded only once."""
    messages = (memo or _memo(model))(request.messages)
    body: Json = {"model": model, "input": messages, "stream": True, "store": False}
    include = ["reasoning.encrypted_content"] if reasons(model) else []
    if include or request.hosted:
        body["include"] = [*include, *([server_items.SOURCES] if request.hosted else [])]
    if request.instructions:
        body["instructions"] = clean(request.instructions)
    if request.tools or request.hosted:
        body["tools"] = [*map(server_items.web_tool, request.hosted), *map(_tool, request.tools)]
        body |= server_items.bound_of(request.hosted)
        choice = request.tool_choice
        body["tool_choice"] = choice if choice in CHOICES else {"type": "function", "name": choice}
    if request.output:
        body["text"] = {"format": {"type": "json_schema", **form(request.output)}}
    body |= request.settings.under({"temperature": "temperature", "max_output_tokens": "max_output_tokens"})
    if request.settings.reasoning is not None:
        body["reasoning"] = {"effort": request.settings.reasoning}
    return merge(body, request.settings.extra)


def _memo(model: str) -> Memo:
    return Memo(lambda message: map(clean, _items(message, reasons=reasons(model))))


def _tool(tool: ToolDef) -> Json:
    # Strict mode, the default of this API, supports only a small part of JSON Schema.
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", **clean(function), "strict": False}


def _items(message: Message, *, reasons: bool) -> Iterator[Json]:
    match message.role:
        case "user":
            content = [_content(part) for part in message.parts if isinstance(part, Content) and part != Text("")]
            yield {"role": "user", "content": content or [_content(Text(NOTHING))]}
        case "assistant":
            yield from _assistant_items(message.parts, reasons=reasons)
        case "tool":
            yield from map(_output, results_of(message))


def _assistant_items(parts: Sequence[Part], *, reasons: bool) -> Iterator[Json]:
    """Yield the items for an answer in the history. Items that this API made stay unchanged, with their reasoning.

    The API refuses reasoning if the item after it is missing, as in a cut-off answer. It also refuses an item with an
    id if the reasoning before it is missing. For a model that does not reason, all reasoning is left out.
    """
    pending: list[Json] = []
    without_ids = False  # True once reasoning was left out: the items after it are then sent without their ids
    for part in parts:
        own = data_of(part, PROVIDER)
        if isinstance(part, Reasoning):
            # Reasoning without content is left out: OpenAI would look it up by its id, but has stored nothing.
            if own and reasons and (own.get("encrypted_content") or own.get("content")):
                pending.append(own)
            else:
                without_ids = True
        elif isinstance(part, HostedResult) and part.provider_data:
            continue  # the result of a hosted call is in the same item as the call
        elif own and not without_ids:
            yield from pending
            yield server_items.to_history_item(own)
            pending = []
        elif fresh := _fresh_item(part):
            yield fresh
            pending, without_ids = [], without_ids or bool(pending)


def _fresh_item(part: Part) -> Json | None:
    """Return a new item for a part that another provider wrote or that was cut off, or None if nothing can be sent."""
    match part:
        case ToolCall():
            arguments = write_arguments(part.arguments)
            call_id, name = fit_id(part.id, LONGEST_ID), fit_name(part.name, NAME)
            return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        case Reasoning() | ToolResult():
            return None
        case HostedCall() | HostedResult():
            return {"role": "assistant", "content": as_plain_text(part).text}
        case _:
            text = as_text(part)
            return {"role": "assistant", "content": text} if text else None


def _output(result: ToolResult) -> Json:
    prefix = "Error: " if result.is_error else ""
    output: str | list[Json] = prefix + result.text
    if any(isinstance(part, Media) for part in result.content):
        head = [Text(prefix.strip())] if prefix else []  # a list with media has "Error:" as a separate text
        output = [_content(part) for part in (*head, *result.content)]
    call_id = fit_id(result.call_id, LONGEST_ID)
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _content(part: Content) -> Json:
    match part:
        case Media(media_type=kind) if kind in IMAGES:
            return {"type": "input_image", "image_url": data_url(part), "detail": "auto"}
        case Media(media_type=kind) if kind == PDF:
            name = part.name or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": data_url(part)}
        case _:
            return {"type": "input_text", "text": as_text(part)}
