"""OpenAI's Chat Completions API, and the many servers that speak it: `openai-chat:MODEL`.

What those servers do differently is allowed for here: no usage, no call ids, whole calls in one chunk,
names in pieces, reasoning in a field of their own.
https://developers.openai.com/api/reference/resources/chat
"""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal
from uuid import uuid4

from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import (
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
from agentmagic.providers import _openai
from agentmagic.providers._openai import Json
from agentmagic.providers._openai_errors import broken
from agentmagic.providers.base import Memo, ModelEvent, ModelFinished, Request

PROVIDER = "openai-chat"
LONGEST_ID = 40
"""Characters that a call's id may have."""


class OpenAIChat:
    """A model behind the Chat Completions API of OpenAI or of a compatible server.

    `base_url` and `api_key` stand in for `OPENAI_BASE_URL` and `OPENAI_API_KEY`, which are read at the
    first request. Servers other than OpenAI's need no key.
    """

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self._server = _openai.Server(model, base_url, api_key, keyless=True)
        self._memo = _memo(model)

    @property
    def name(self) -> str:
        """The full name, "openai-chat:MODEL"."""
        return f"{PROVIDER}:{self._server.model}"

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Send the request and yield what comes back."""
        model = self._server.model
        return self._server.events("/chat/completions", encode(request, model, self._memo), Decoder(model))

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        await self._server.aclose()


def make(model: str) -> OpenAIChat:
    """Make the model of a name without its provider."""
    return OpenAIChat(model)


def encode(request: Request, model: str, memo: Memo | None = None) -> Json:
    """Write a request as the body of `POST /chat/completions`; a memo spares writing the same messages again."""
    messages: list[Json] = []
    if request.instructions:
        messages.append({"role": "system", "content": request.instructions})
    messages += (memo or _memo(model))(request.messages)
    body: Json = {"model": model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
    return body


def _memo(model: str) -> Memo:
    return Memo(partial(_messages, model=model))


def _tool(tool: ToolDef) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


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
    parts = [part for part in message.parts if not isinstance(part, Reasoning | ToolCall | ToolResult)]
    match parts:
        case [Text(text=text)]:
            return text  # some servers take only this form
        case _:
            return [_content(part) for part in parts]


def _assistant(message: Message, model: str) -> Iterator[Json]:
    words = (as_text(part) for part in message.parts if not isinstance(part, Reasoning | ToolCall | ToolResult))
    text, calls = "".join(words), [_call(call) for call in message.calls]
    if text or calls:
        # Some servers insist on the key "content" even where a message only calls.
        body: Json = {"role": "assistant", "content": text or None} | _reasoning(message, model)
        yield body | {"tool_calls": calls} if calls else body


def _call(call: ToolCall) -> Json:
    function = {"name": call.name, "arguments": _openai.write_arguments(call.arguments)}
    return {"id": _openai.fit_id(call.id, LONGEST_ID), "type": "function", "function": function}


def _reasoning(message: Message, model: str) -> Json:
    """Give a model back what it reasoned: DeepSeek refuses a history of calls without it.

    https://api-docs.deepseek.com/guides/thinking_mode#tool-calls
    """
    fields: dict[str, str] = {}
    for part in message.parts:
        match part:
            case Reasoning(provider_data=ProviderData(provider=name, data={"model": maker, "field": key})):
                if (name, maker) == (PROVIDER, model):
                    fields[key] = fields.get(key, "") + part.text
            case _:
                pass
    return fields


def _results(results: list[ToolResult]) -> Iterator[Json]:
    """Write results as text; what they hold in pictures follows in the user's name, after all of them."""
    shown: list[Json] = []
    for result in results:
        prefix = "Error: " if result.is_error else ""
        call_id = _openai.fit_id(result.call_id, LONGEST_ID)
        yield {"role": "tool", "tool_call_id": call_id, "content": prefix + result.text}
        media = [part for part in result.content if isinstance(part, Media) and _can_show(part)]
        if media:
            shown.append({"type": "text", "text": f"What the call {call_id} of {result.name} returned:"})
            shown += [_content(part) for part in media]
    if shown:
        yield {"role": "user", "content": shown}


def _can_show(media: Media) -> bool:
    return media.media_type in _openai.IMAGES or media.media_type == _openai.PDF


def _content(part: Any) -> Json:
    match part:
        case Media(media_type=kind) if kind in _openai.IMAGES:
            return {"type": "image_url", "image_url": {"url": _openai.data_url(part), "detail": "auto"}}
        case Media(media_type=_openai.PDF):
            name = part.name or "document.pdf"
            return {"type": "file", "file": {"filename": name, "file_data": _openai.data_url(part)}}
        case _:
            return {"type": "text", "text": as_text(part)}


@dataclass(slots=True)
class _Prose:
    """Text or reasoning that is being written."""

    index: int
    kind: Literal["text", "reasoning"]
    key: str
    pieces: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Call:
    """A call that is being written; it gets its index once its name is whole, with the first of its arguments."""

    id: str = ""
    name: str = ""
    index: int = -1
    pieces: list[str] = field(default_factory=list[str])


_REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Where compatible servers put reasoning: DeepSeek, llama.cpp and others; vLLM, Ollama and OpenRouter."""


class Decoder:
    """Turns the chunks of one streamed completion into events; `model` is the one that was asked."""

    def __init__(self, model: str = "") -> None:
        self._model = model
        self._prose: _Prose | None = None
        self._calls: list[_Call] = []
        self._places: dict[int, _Call] = {}
        self._started = 0
        self._usage: Json | None = None
        self._reason = ""

    def feed(self, chunk: Json) -> Iterator[ModelEvent]:
        """Yield the events of a chunk."""
        if usage := chunk.get("usage"):
            self._usage = usage
        for choice in chunk.get("choices") or ():
            if delta := choice.get("delta"):
                yield from self._delta(delta)
            if reason := choice.get("finish_reason"):
                self._reason = reason

    def close(self) -> Iterator[ModelEvent]:
        """Yield the ends of the parts, and of the response; raises StreamBroken where it was not complete.

        The usage comes after the finish reason, in a chunk that not every server sends.
        """
        if not self._reason:
            raise broken("the response ended before it was complete")
        yield from self._end_prose()
        for call in self._calls:
            yield from self._end_call(call)
        yield ModelFinished(_openai.read_usage(self._usage, "prompt", "completion"), self._reason)

    def _delta(self, delta: Json) -> Iterator[ModelEvent]:
        text = delta.get("content")
        if text and len(delta) == 1:  # nearly every chunk
            yield from self._write("text", "content", text)
            return
        for name in _REASONING_FIELDS:
            if reasoning := delta.get(name):
                yield from self._write("reasoning", name, reasoning)
                break
        if text := text or delta.get("refusal"):
            yield from self._write("text", "content", text)
        for entry in delta.get("tool_calls") or ():
            yield from self._write_call(entry)

    def _write(self, kind: Literal["text", "reasoning"], name: str, text: str) -> Iterator[ModelEvent]:
        prose = self._prose
        if prose is None or prose.kind != kind:
            yield from self._end_prose()
            self._prose = prose = _Prose(self._next_index(), kind, name)
            yield PartStarted(prose.index, kind)
        prose.pieces.append(text)
        yield PartDelta(prose.index, text)

    def _end_prose(self) -> Iterator[ModelEvent]:
        prose, self._prose = self._prose, None
        if prose is not None:
            yield PartFinished(prose.index, self._prose_part(prose))

    def _prose_part(self, prose: _Prose) -> Part:
        text = "".join(prose.pieces)
        if prose.kind == "text":
            return Text(text)
        return Reasoning(text, ProviderData(PROVIDER, {"model": self._model, "field": prose.key}))

    def _write_call(self, entry: Json) -> Iterator[ModelEvent]:
        yield from self._end_prose()
        function: Mapping[str, Any] = entry.get("function") or {}
        call = self._call_of(entry, function)
        call.id = call.id or entry.get("id") or ""
        name = function.get("name") or ""
        if name != call.name:  # some servers repeat the whole name, others send it in pieces
            call.name += name
        arguments = function.get("arguments") or ""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        if text:
            yield from self._start_call(call)
            call.pieces.append(text)
            yield PartDelta(call.index, text)

    def _call_of(self, entry: Json, function: Mapping[str, Any]) -> _Call:
        """Find the call that a piece belongs to, for servers too that leave the index out or give each call 0."""
        place = entry.get("index")
        last = self._calls[-1] if self._calls else None
        call = last if place is None else self._places.get(place)
        if call is None or (function.get("name") and _is_other(call, entry)):
            call = _Call()
            self._calls.append(call)
        if place is not None:
            self._places[place] = call
        return call

    def _start_call(self, call: _Call) -> Iterator[ModelEvent]:
        if call.index < 0:
            call.index = self._next_index()
            yield PartStarted(call.index, "tool_call", call.name)

    def _end_call(self, call: _Call) -> Iterator[ModelEvent]:
        yield from self._start_call(call)
        others = {other.id for other in self._calls if other is not call}
        if not call.id or call.id in others:
            call.id = f"call_{uuid4().hex}"
        arguments = _openai.read_arguments("".join(call.pieces))
        yield PartFinished(call.index, ToolCall(call.id, call.name, arguments))

    def _next_index(self) -> int:
        self._started += 1
        return self._started - 1


def _is_other(call: _Call, entry: Json) -> bool:
    call_id = entry.get("id")
    return bool(call.id and call_id != call.id) if call_id else entry.get("index") is None
