"""OpenAI's Chat Completions API, and the many servers that speak it: `openai-chat:MODEL`.

Those servers differ in details: no usage, no call ids, whole calls in one chunk, names in pieces, reasoning in a
field of their own.
https://developers.openai.com/api/reference/resources/chat
"""

import json
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, field, replace

from agentmagic.errors import MalformedCall
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import (
    Content,
    Media,
    Message,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolDef,
    ToolResult,
    as_text,
)
from agentmagic.providers.base import Memo, ModelEvent, ModelFinished, ModelSettings, PartWriter, Request, merged
from agentmagic.providers.failures import broken
from agentmagic.providers.openai.openai_client import (
    IMAGES,
    NAME,
    NOTHING,
    PDF,
    OpenAIClient,
    data_url,
    filtered,
    form,
    honoured_by,
    read_usage,
)
from agentmagic.providers.wire import (
    Json,
    clean,
    fit_id,
    fit_name,
    kept,
    mint_id,
    object_of,
    objects_of,
    read_arguments,
    text_of,
    write_arguments,
)

PROVIDER = "openai-chat"

_CUT = frozenset({"length", "max_tokens", "model_length"})
"""Finish reasons of an answer that reached its limit of length; the last two are of compatible servers."""

_FAILED = frozenset({"error", "insufficient_system_resource"})
"""Finish reasons of compatible servers that failed to finish the answer."""


@dataclass(slots=True)
class _Call:
    """A call whose end has not come; it gets its index with its first arguments, when its name is complete."""

    id: str = ""
    name: str = ""
    index: int = -1
    pieces: list[str] = field(default_factory=list[str])


_REASONING_FIELDS = ("reasoning_content", "reasoning")
"""The fields with reasoning: of DeepSeek, llama.cpp and others; of vLLM, Ollama and OpenRouter."""


class Decoder:
    """Turns the chunks of one streamed completion into events; `model` is the one that was asked."""

    def __init__(self, model: str = "") -> None:
        self._model = model
        self._writer = PartWriter(self._reasoning)
        self._calls: list[_Call] = []
        self._places: dict[int, _Call] = {}
        self._usage: object = None
        self._reason = ""

    def feed(self, chunk: object) -> Iterator[ModelEvent]:
        """Yield the events of a chunk, which can be any JSON. Raises StreamBroken if it is not part of an answer."""
        response = object_of(chunk)
        # Servers send the usage in the last chunk, in every chunk, or never.
        self._usage = response.get("usage") or self._usage
        for choice in objects_of(response.get("choices")):
            if choice.get("index"):
                continue  # a second answer to the same request, which was not asked for
            yield from self._delta(object_of(choice.get("delta")))
            self._reason = text_of(choice.get("finish_reason")) or self._reason

    def close(self) -> Iterator[ModelEvent]:
        """Yield the ends of the parts and of the response.

        They wait for the end of the stream, because the usage comes after the finish reason. Raises StreamBroken if
        the response was not complete, BadRequest if it was withheld, and MalformedCall for a call without a name.
        """
        reason = self._reason.lower()
        if not reason or reason in _FAILED:
            raise broken(f"the response ended before it was complete{f' ({reason})' if reason else ''}")
        if reason == "content_filter":
            raise filtered()
        yield from self._writer.end()
        cut = reason in _CUT
        for call in self._calls:
            yield from self._end_call(call, cut=cut)
        yield ModelFinished(read_usage(self._usage, "prompt", "completion"), self._reason, cut)

    def _delta(self, delta: Json) -> Iterator[ModelEvent]:
        text = text_of(delta.get("content"))
        if text and len(delta) == 1:  # nearly every chunk
            yield from self._writer.write("text", text)
            return
        for name in _REASONING_FIELDS:
            if reasoning := delta.get(name):
                yield from self._writer.write("reasoning", text_of(reasoning), name)
                break  # a server that fills both fields puts the same text into them
        if text := text or text_of(delta.get("refusal")):
            yield from self._writer.write("text", text)
        for entry in objects_of(delta.get("tool_calls")):
            yield from self._write_call(entry)

    def _reasoning(self, text: str, name: str) -> Reasoning:
        return Reasoning(text, ProviderData(PROVIDER, {"model": self._model, "field": name}))

    def _write_call(self, entry: Json) -> Iterator[ModelEvent]:
        yield from self._writer.end()
        function = object_of(entry.get("function"))
        name = text_of(function.get("name"))
        call = self._call_of(entry, name)
        call.id = call.id or text_of(entry.get("id"))
        if name != call.name:  # some servers repeat the whole name, others send it in pieces
            call.name += name
        if text := _arguments_text(function.get("arguments")):
            yield from self._start_call(call)
            call.pieces.append(text)
            yield PartDelta(call.index, text)

    def _call_of(self, entry: Json, name: str) -> _Call:
        """Return the call that a piece belongs to; some servers send no index, others index 0 for every call."""
        index = entry.get("index")
        place = index if isinstance(index, int) else None
        last = self._calls[-1] if self._calls else None
        call = last if place is None else self._places.get(place)
        if call is None or (name and _is_other(call, text_of(entry.get("id")), place)):
            call = _Call()
            self._calls.append(call)
        if place is not None:
            self._places[place] = call
        return call

    def _start_call(self, call: _Call) -> Iterator[ModelEvent]:
        if not call.name:
            raise MalformedCall("The model called a tool without naming it. Ask again.")
        if call.index < 0:
            call.index = self._writer.next_index()
            yield PartStarted(call.index, "tool_call", call.name)

    def _end_call(self, call: _Call, *, cut: bool) -> Iterator[ModelEvent]:
        if cut and not call.name:
            return  # the answer was cut off before the name came
        yield from self._start_call(call)
        # Without an id, or with one that two calls share, a result could not be matched to its call.
        others = {other.id for other in self._calls if other is not call}
        if not call.id or call.id in others:
            call.id = mint_id()
        arguments = read_arguments("".join(call.pieces))
        yield PartFinished(call.index, ToolCall(call.id, call.name, arguments))


def _arguments_text(arguments: object) -> str:
    """Return arguments as JSON text; a few servers send them as an object."""
    if isinstance(arguments, dict | list):
        return json.dumps(kept(arguments), ensure_ascii=False)
    return text_of(arguments)


def _is_other(call: _Call, call_id: str, place: int | None) -> bool:
    """Return whether a piece with a name starts another call: it has another id, or neither id nor index."""
    return bool(call.id and call_id != call.id) if call_id else place is None


LONGEST_ID = 40
"""Characters of the longest id of a call."""


class OpenAIChat(OpenAIClient):
    """A model behind the Chat Completions API of OpenAI or of a compatible server.

    Servers other than OpenAI's need no key.
    """

    provider = PROVIDER
    keyless = True

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key)
        self._memo = _memo(model)

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of the settings that the model takes."""
        return honoured_by(self.model, settings) if self.is_openai else settings.given

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Send the request and yield the events of the answer."""
        calls = bool(request.tools) and request.tool_choice != "none"
        # Many compatible servers cannot call tools while they hold an answer to its form.
        if not self.takes_forms or (calls and not self.is_openai):
            request = replace(request, output=None)
        body = encode(request, self.model, self._memo)
        if self.is_openai and "max_tokens" in body:  # the older name, which every other server knows
            body["max_completion_tokens"] = body.pop("max_tokens")
        return self.events("/chat/completions", body, Decoder(self.model))


def encode(request: Request, model: str, memo: Memo | None = None) -> Json:
    """Return the body of `POST /chat/completions`; a memo of the same model saves encoding a message twice."""
    messages: list[Json] = []
    if request.instructions:
        messages.append({"role": "system", "content": clean(request.instructions)})
    messages += (memo or _memo(model))(request.messages)
    # Without `include_usage` a streamed response has no token counts.
    body: Json = {"model": model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
    if request.output:
        body["response_format"] = {"type": "json_schema", "json_schema": form(request.output)}
    settings = request.settings
    names = {"max_output_tokens": "max_tokens", "reasoning": "reasoning_effort"}
    body |= {names.get(name, name): getattr(settings, name) for name in settings.given if name != "extra"}
    return merged(body, settings.extra)


def _memo(model: str) -> Memo:
    return Memo(lambda message: map(clean, _messages(message, model)))


def _tool(tool: ToolDef) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": clean(function)}


def _tool_choice(choice: str) -> str | Json:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _messages(message: Message, model: str) -> Iterator[Json]:
    match message.role:
        case "user":
            yield {"role": "user", "content": _user_content(message)}
        case "assistant":
            yield from _assistant(message, model)
        case "tool":
            yield from _results([part for part in message.parts if isinstance(part, ToolResult)])


def _user_content(message: Message) -> str | list[Json]:
    parts = [part for part in message.parts if isinstance(part, Content)]
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) == len(parts):  # one string: some servers take no list
        return "\n\n".join(filter(None, texts)) or NOTHING
    return [_content(part) for part in parts if part != Text("")]


def _assistant(message: Message, model: str) -> Iterator[Json]:
    text = "".join(as_text(part) for part in message.parts if isinstance(part, Content))
    calls = [_call(call) for call in message.calls]
    if text or calls:
        # Some servers insist on the key "content" even if a message only calls tools.
        body: Json = {"role": "assistant", "content": text or None} | _reasoning(message, model)
        yield body | {"tool_calls": calls} if calls else body


def _call(call: ToolCall) -> Json:
    function = {"name": fit_name(call.name, NAME), "arguments": write_arguments(call.arguments)}
    return {"id": fit_id(call.id, LONGEST_ID), "type": "function", "function": function}


def _reasoning(message: Message, model: str) -> Json:
    """Return the fields with the model's own reasoning: DeepSeek refuses a history of calls without it.

    https://api-docs.deepseek.com/guides/thinking_mode#tool-calls
    """
    fields: dict[str, str] = {}
    for part in message.parts:
        match part:
            case Reasoning(provider_data=ProviderData(provider, {"model": maker, "field": key})):
                # Only to the model that wrote it, in the field that it came in.
                if (provider, maker) == (PROVIDER, model):
                    fields[key] = fields.get(key, "") + part.text
            case _:
                pass
    return fields


def _results(results: list[ToolResult]) -> Iterator[Json]:
    """Yield results as text, then one user message with their images: results cannot have images in this API."""
    shown: list[Json] = []
    for result in results:
        prefix = "Error: " if result.is_error else ""
        call_id = fit_id(result.call_id, LONGEST_ID)
        yield {"role": "tool", "tool_call_id": call_id, "content": prefix + result.text}
        media = [part for part in result.content if isinstance(part, Media) and part.media_type in {*IMAGES, PDF}]
        if media:
            shown.append({"type": "text", "text": f"What the call {call_id} of {result.name} returned:"})
            shown += [_content(part) for part in media]
    if shown:
        yield {"role": "user", "content": shown}


def _content(part: Content) -> Json:
    match part:
        case Media(media_type=kind) if kind in IMAGES:
            return {"type": "image_url", "image_url": {"url": data_url(part), "detail": "auto"}}
        case Media(media_type=kind) if kind == PDF:
            name = part.name or "document.pdf"
            return {"type": "file", "file": {"filename": name, "file_data": data_url(part)}}
        case _:
            return {"type": "text", "text": as_text(part)}
