"""Turns the chunks of a streamed chat completion, of OpenAI or a compatible server, into part events."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from agentmagic.errors import MalformedCall
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import ProviderData, Reasoning, ToolCall
from agentmagic.providers.base import ModelEvent, ModelFinished, PartWriter
from agentmagic.providers.failures import broken
from agentmagic.providers.openai.openai_client import read_usage
from agentmagic.providers.openai.openai_errors import filtered
from agentmagic.providers.wire import Json, kept, mint_id, object_of, objects_of, read_arguments, text_of

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
