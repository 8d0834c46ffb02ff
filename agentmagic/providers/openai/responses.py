"""OpenAI's Responses API: `openai:MODEL`.

Nothing is stored at OpenAI. The items that it wrote are kept and sent back unchanged. Reasoning is encrypted, stands
before the call that it led to, and is complete only in `response.output_item.done`.
https://developers.openai.com/api/docs/guides/conversation-state
"""

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from agentmagic.errors import ProviderError
from agentmagic.events import PartDelta, PartFinished, PartKind, PartStarted
from agentmagic.messages import (
    Content,
    Media,
    Message,
    Part,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolDef,
    ToolResult,
    as_text,
)
from agentmagic.providers.base import ModelEvent, ModelFinished, ModelSettings, Request, merged
from agentmagic.providers.failures import Fault, broken
from agentmagic.providers.openai import PROVIDERS
from agentmagic.providers.openai.client import (
    CHOICES,
    IMAGES,
    NAME,
    NOTHING,
    PDF,
    OpenAIClient,
    data_url,
    error_for,
    filtered,
    form,
    honoured_by,
    read_usage,
    reasons,
)
from agentmagic.providers.wire import (
    Json,
    Memo,
    PartWriter,
    clean,
    data_of,
    figures_of,
    fit_id,
    fit_name,
    kept,
    left_out,
    mint_id,
    named,
    object_of,
    objects_of,
    place_of,
    read_arguments,
    results_of,
    text_of,
    unreadable,
    write_arguments,
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
        self._writer = PartWriter()
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
        if kind == "text":  # it begins with its first word, which may be thinking
            self._open[place] = _OpenItem(-1, kind, item)
            return
        self._open[place] = part = _OpenItem(self._writer.next_index(), kind, item)
        yield PartStarted(part.index, kind, text_of(item.get("name")) if kind == "tool_call" else "")

    def _delta(self, event: Json, text: str) -> Iterable[ModelEvent]:
        part = self._open.get(place_of(event.get("output_index")))
        if part is None or not text:
            return ()
        part.texts.append(text)
        return self._writer.say(text) if part.kind == "text" else (PartDelta(part.index, text),)

    def _finish(self, place: int, item: Json) -> Iterator[ModelEvent]:
        yield from self._start(place, item)  # compatible servers may send an item at once, unannounced
        if part := self._open.pop(place, None):
            self._done.add(place)
            if _KINDS.get(text_of(item.get("type"))) != part.kind:
                raise unreadable("an item that changed its type")
            yield from self._end_part(part, _part(item))

    def _end_part(self, part: _OpenItem, whole: Part) -> Iterator[ModelEvent]:
        if not isinstance(whole, Text):
            yield PartFinished(part.index, whole)
            return
        said = () if part.texts else tuple(self._writer.say(whole.text))
        ended = tuple(self._writer.finish(whole))
        # A text that came at once, after no delta, needs none.
        yield from (one for one in said if self._writer.found_thinking or not isinstance(one, PartDelta))
        yield from ended

    def _end(self, response: Json, *, cut: bool) -> Iterator[ModelEvent]:
        details = figures_of(response.get("incomplete_details"))
        reason = text_of(details.get("reason") or response.get("status"))
        if reason == "content_filter":
            raise filtered()
        for part in self._open.values():
            yield from self._end_part(part, _cut_part(part))
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
    name, call_id = named(item.get("name")), text_of(item.get("call_id"))
    if not call_id or fit_name(name, NAME) != name:
        data = None  # the API would refuse the item unchanged
    return ToolCall(call_id or mint_id(), name, read_arguments(arguments), data)


def _failure(error: Json) -> ProviderError:
    code = error.get("code") or error.get("type")
    return error_for(Fault(text_of(error.get("message")), "" if code in (None, "error") else str(code)))


LONGEST_ID = 64
"""Characters of the longest id of a call."""


class OpenAIResponses(OpenAIClient):
    """A model behind the Responses API."""

    row = PROVIDERS[0]

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key)
        self._memo = _memo(model)

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of the settings that the model takes: all but `seed`, which this API does not have."""
        known = honoured_by(self.model, settings) if self.is_own else set(settings.given)
        return known - {"seed"}

    def body(self, request: Request) -> Json:
        """Return the JSON that is sent for a request."""
        request = replace(request, output=None) if "text" in self.without else request
        return left_out(encode(request, self.model, self._memo), self.without)

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Send the request and yield the events of the answer."""
        return self.events("/responses", self.body(request), Decoder())


def encode(request: Request, model: str, memo: Memo | None = None) -> Json:
    """Return the body of `POST /responses`; a memo of the same model saves encoding a message twice."""
    messages = (memo or _memo(model))(request.messages)
    body: Json = {"model": model, "input": messages, "stream": True, "store": False}
    if reasons(model):
        body["include"] = ["reasoning.encrypted_content"]
    if request.instructions:
        body["instructions"] = clean(request.instructions)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        choice = request.tool_choice
        body["tool_choice"] = choice if choice in CHOICES else {"type": "function", "name": choice}
    if request.output:
        body["text"] = {"format": {"type": "json_schema", **form(request.output)}}
    body |= request.settings.under({"temperature": "temperature", "max_output_tokens": "max_output_tokens"})
    if request.settings.reasoning is not None:
        body["reasoning"] = {"effort": request.settings.reasoning}
    return merged(body, request.settings.extra)


def _memo(model: str) -> Memo:
    return Memo(lambda message: map(clean, _items(message, reasons=reasons(model))))


def _tool(tool: ToolDef) -> Json:
    # Strict mode, the default of this API, takes only a small part of JSON Schema.
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", **clean(function), "strict": False}


def _items(message: Message, *, reasons: bool) -> Iterator[Json]:
    match message.role:
        case "user":
            said = [_content(part) for part in message.parts if isinstance(part, Content) and part != Text("")]
            yield {"role": "user", "content": said or [_content(Text(NOTHING))]}
        case "assistant":
            yield from _assistant_items(message.parts, reasons=reasons)
        case "tool":
            yield from map(_output, results_of(message))


def _assistant_items(parts: Sequence[Part], *, reasons: bool) -> Iterator[Json]:
    """Yield the items of an answer: those that this API made unchanged, with the reasoning that led to them.

    The API refuses reasoning without the item that it led to, and an item with its id without its reasoning. A cut-off
    answer lacks the item. The reasoning is missing for a model that does not reason.
    """
    held: list[Json] = []
    parted = False  # from the first lost reasoning on, items are written anew, without their ids
    for part in parts:
        own = data_of(part, PROVIDER)
        if isinstance(part, Reasoning):
            # Nothing is stored at OpenAI, so an item with an id only, and without content, cannot be found there.
            if own and reasons and (own.get("encrypted_content") or own.get("content")):
                held.append(own)
            else:
                parted = True
        elif own and not parted:
            yield from held
            yield own
            held = []
        elif fresh := _fresh_item(part):
            yield fresh
            held, parted = [], parted or bool(held)


def _fresh_item(part: Part) -> Json | None:
    """Return the item for a part that another provider wrote, or that was cut off."""
    match part:
        case ToolCall():
            arguments = write_arguments(part.arguments)
            call_id, name = fit_id(part.id, LONGEST_ID), fit_name(part.name, NAME)
            return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        case Reasoning() | ToolResult():
            return None
        case _:
            text = as_text(part)
            return {"role": "assistant", "content": text} if text else None


def _output(result: ToolResult) -> Json:
    prefix = "Error: " if result.is_error else ""
    output: str | list[Json] = prefix + result.text
    if any(isinstance(part, Media) for part in result.content):
        head = [Text(prefix.strip())] if prefix else []  # the text of media has no place for it
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
