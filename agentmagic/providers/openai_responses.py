"""OpenAI's Responses API: `openai:MODEL`.

Nothing is stored at OpenAI. What it wrote is kept item by item and sent back as it came: reasoning is
encrypted, belongs before the call it led to, and is complete only in `response.output_item.done`.
https://developers.openai.com/api/docs/guides/conversation-state
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from agentmagic.events import PartDelta, PartFinished, PartKind, PartStarted
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
from agentmagic.providers._openai_errors import Fault, broken, error_for
from agentmagic.providers.base import Memo, ModelEvent, ModelFinished, Request

PROVIDER = "openai"
LONGEST_ID = 64
"""Characters that a call's id may have."""


class OpenAIResponses:
    """A model behind the Responses API.

    `base_url` and `api_key` stand in for `OPENAI_BASE_URL` and `OPENAI_API_KEY`, which are read at the
    first request.
    """

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self._server = _openai.Server(model, base_url, api_key)
        self._memo = Memo(_items)

    @property
    def name(self) -> str:
        """The full name, "openai:MODEL"."""
        return f"{PROVIDER}:{self._server.model}"

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Send the request and yield what comes back."""
        body = encode(request, self._server.model, self._memo)
        return self._server.events("/responses", body, Decoder())

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        await self._server.aclose()


def make(model: str) -> OpenAIResponses:
    """Make the model of a name without its provider."""
    return OpenAIResponses(model)


def encode(request: Request, model: str, memo: Memo | None = None) -> Json:
    """Write a request as the body of `POST /responses`; a memo spares writing the same messages again."""
    body: Json = {
        "model": model,
        "input": (memo or Memo(_items))(request.messages),
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if request.instructions:
        body["instructions"] = request.instructions
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
    return body


def _tool(tool: ToolDef) -> Json:
    # Strict mode is the default of this API, and takes only a small part of JSON Schema.
    parameters = dict(tool.parameters)
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": parameters,
        "strict": False,
    }


def _tool_choice(choice: str) -> str | Json:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "name": choice}


def _items(message: Message) -> Iterator[Json]:
    match message.role:
        case "user":
            yield {"role": "user", "content": [_content(part) for part in message.parts if _is_content(part)]}
        case "assistant":
            yield from _assistant_items(message)
        case "tool":
            yield from (_output(part) for part in message.parts if isinstance(part, ToolResult))


def _assistant_items(message: Message) -> Iterator[Json]:
    held: list[Json] = []
    for part in message.parts:
        own = _own_item(part)
        if isinstance(part, Reasoning):
            # The API refuses reasoning without the item it led to, which a cut-off answer lacks.
            held += [own] if own else []
        elif own:
            yield from held
            yield own
            held = []
        elif fresh := _fresh_item(part):
            yield fresh
            held = []


def _own_item(part: Part) -> Json | None:
    data = getattr(part, "provider_data", None)
    return data.data if isinstance(data, ProviderData) and data.provider == PROVIDER else None


def _fresh_item(part: Part) -> Json | None:
    """Write what another provider, or half an answer, left in the history."""
    match part:
        case ToolCall():
            arguments = _openai.write_arguments(part.arguments)
            call_id = _openai.fit_id(part.id, LONGEST_ID)
            return {"type": "function_call", "call_id": call_id, "name": part.name, "arguments": arguments}
        case Reasoning() | ToolResult():
            return None
        case _:
            text = as_text(part)
            return {"role": "assistant", "content": text} if text else None


def _output(result: ToolResult) -> Json:
    prefix = "Error: " if result.is_error else ""
    output: str | list[Json] = prefix + result.text
    if any(isinstance(part, Media) for part in result.content):
        head = [Text(prefix.strip())] if prefix else []
        output = [_content(part) for part in (*head, *result.content)]
    call_id = _openai.fit_id(result.call_id, LONGEST_ID)
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _is_content(part: Part) -> bool:
    return not isinstance(part, Reasoning | ToolCall | ToolResult)


def _content(part: Any) -> Json:
    match part:
        case Media(media_type=kind) if kind in _openai.IMAGES:
            return {"type": "input_image", "image_url": _openai.data_url(part), "detail": "auto"}
        case Media(media_type=_openai.PDF):
            name = part.name or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": _openai.data_url(part)}
        case _:
            return {"type": "input_text", "text": as_text(part)}


@dataclass(slots=True)
class _Open:
    """A part that is being written."""

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
    """Turns the events of one streamed response into ours; output items of other kinds are passed over."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._started = 0
        self._finished = False

    def feed(self, chunk: Json) -> Iterable[ModelEvent]:
        """Return the events of a chunk; raises a ProviderError where it reports a failure."""
        kind = chunk["type"]
        if kind in _DELTAS:
            return self._delta(chunk["output_index"], chunk["delta"])
        match kind:
            case "response.output_item.added":
                return self._start(chunk["output_index"], chunk["item"])
            case "response.reasoning_summary_part.added" if chunk["summary_index"]:
                return self._delta(chunk["output_index"], _PARAGRAPH)
            case "response.output_item.done":
                return self._finish(chunk["output_index"], chunk["item"])
            case "response.completed" | "response.incomplete":
                return self._end(chunk["response"])
            case "response.failed":
                raise _failure(chunk["response"].get("error") or {})
            case "error":
                raise _failure(chunk)
            case _:
                return ()

    def close(self) -> Iterable[ModelEvent]:
        """Return nothing; raises StreamBroken where the response was not complete."""
        if not self._finished:
            raise broken("the response ended before it was complete")
        return ()

    def _start(self, place: int, item: Json) -> Iterator[ModelEvent]:
        if kind := _KINDS.get(item["type"]):
            self._open[place] = part = _Open(self._started, kind, item)
            self._started += 1
            yield PartStarted(part.index, kind, item["name"] if kind == "tool_call" else "")

    def _delta(self, place: int, text: str) -> Iterable[ModelEvent]:
        part = self._open.get(place)
        if part is None or not text:
            return ()
        part.texts.append(text)
        return (PartDelta(part.index, text),)

    def _finish(self, place: int, item: Json) -> Iterator[ModelEvent]:
        if place not in self._open:
            yield from self._start(place, item)
        if part := self._open.pop(place, None):
            yield PartFinished(part.index, _part(item))

    def _end(self, response: Json) -> Iterator[ModelEvent]:
        for part in self._open.values():
            yield PartFinished(part.index, _cut_part(part))
        self._open.clear()
        self._finished = True
        details: Json = response.get("incomplete_details") or {}
        reason = str(details.get("reason") or response.get("status") or "")
        yield ModelFinished(_openai.read_usage(response.get("usage"), "input", "output"), reason)


def _part(item: Json) -> Part:
    data = ProviderData(PROVIDER, item)
    match item["type"]:
        case "message":
            words = (entry.get("text") or entry.get("refusal") or "" for entry in item["content"])
            return Text("".join(words), data)
        case "reasoning":
            entries = (*(item.get("summary") or ()), *(item.get("content") or ()))
            return Reasoning(_PARAGRAPH.join(entry["text"] for entry in entries), data)
        case _:
            return ToolCall(item["call_id"], item["name"], _openai.read_arguments(item["arguments"]), data)


def _cut_part(part: _Open) -> Part:
    """Make a part of an item that the closing event left undone; there is nothing to send back verbatim."""
    text = "".join(part.texts)
    match part.kind:
        case "text":
            return Text(text)
        case "reasoning":
            return Reasoning(text)
        case "tool_call":
            return ToolCall(part.item["call_id"], part.item["name"], _openai.read_arguments(text))


def _failure(error: Json) -> Exception:
    return error_for(Fault(error.get("message") or "", error.get("code") or ""))
