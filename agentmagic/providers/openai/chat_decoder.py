"""From the chunks of a streamed chat completion to part events, of OpenAI and of the servers that speak its API."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from agentmagic.errors import MalformedCall
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Part, ProviderData, Reasoning, Text, ToolCall
from agentmagic.providers.base import ModelEvent, ModelFinished
from agentmagic.providers.openai import openai_client
from agentmagic.providers.openai.openai_errors import broken, filtered
from agentmagic.providers.wire import Json, kept, mint_id, object_of, objects_of, read_arguments, text_of

PROVIDER = "openai-chat"

_CUT = frozenset({"length", "max_tokens", "model_length"})
"""Finish reasons of an answer that was stopped by its length; the last two are other servers' words."""

_FAILED = frozenset({"error", "insufficient_system_resource"})
"""Finish reasons of compatible servers that could not finish the answer."""


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
        self._usage: object = None
        self._reason = ""

    def feed(self, chunk: object) -> Iterator[ModelEvent]:
        """Yield the events of a chunk, whatever JSON it is; raises StreamBroken for what is none of an answer."""
        response = object_of(chunk)
        self._usage = response.get("usage") or self._usage
        for choice in objects_of(response.get("choices")):
            if choice.get("index"):
                continue  # another answer to the same request, which nobody asked for
            yield from self._delta(object_of(choice.get("delta")))
            self._reason = text_of(choice.get("finish_reason")) or self._reason

    def close(self) -> Iterator[ModelEvent]:
        """Yield the ends of the parts, and of the response; raises StreamBroken where it was not complete.

        The usage comes after the finish reason, in a chunk that not every server sends. Raises BadRequest
        for an answer that was withheld, MalformedCall for a call of nothing.
        """
        reason = self._reason.lower()
        if not reason or reason in _FAILED:
            raise broken(f"the response ended before it was complete{f' ({reason})' if reason else ''}")
        if reason == "content_filter":
            raise filtered()
        yield from self._end_prose()
        cut = reason in _CUT
        for call in self._calls:
            yield from self._end_call(call, cut=cut)
        yield ModelFinished(openai_client.read_usage(self._usage, "prompt", "completion"), self._reason, cut)

    def _delta(self, delta: Json) -> Iterator[ModelEvent]:
        text = text_of(delta.get("content"))
        if text and len(delta) == 1:  # nearly every chunk
            yield from self._write("text", "content", text)
            return
        for name in _REASONING_FIELDS:
            if reasoning := delta.get(name):
                yield from self._write("reasoning", name, text_of(reasoning))
                break
        if text := text or text_of(delta.get("refusal")):
            yield from self._write("text", "content", text)
        for entry in objects_of(delta.get("tool_calls")):
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
        """Find the call that a piece belongs to, for servers too that leave the index out or give each call 0."""
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
            message = "The model called a tool without naming it. Ask again."
            raise MalformedCall(message)
        if call.index < 0:
            call.index = self._next_index()
            yield PartStarted(call.index, "tool_call", call.name)

    def _end_call(self, call: _Call, *, cut: bool) -> Iterator[ModelEvent]:
        if cut and not call.name:
            return  # it was cut off before it had one
        yield from self._start_call(call)
        others = {other.id for other in self._calls if other is not call}
        if not call.id or call.id in others:
            call.id = mint_id()
        arguments = read_arguments("".join(call.pieces))
        yield PartFinished(call.index, ToolCall(call.id, call.name, arguments))

    def _next_index(self) -> int:
        self._started += 1
        return self._started - 1


def _arguments_text(arguments: object) -> str:
    """Return arguments as JSON text, as which all but a few servers send them."""
    if isinstance(arguments, dict | list):
        return json.dumps(kept(arguments), ensure_ascii=False)
    return text_of(arguments)


def _is_other(call: _Call, call_id: str, place: int | None) -> bool:
    return bool(call.id and call_id != call.id) if call_id else place is None
