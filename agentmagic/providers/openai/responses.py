"""OpenAI's Responses API: `openai:MODEL`.

Nothing is stored at OpenAI. The items that it wrote are kept and sent back unchanged. Reasoning is encrypted, stands
before the call that it led to, and is complete only in `response.output_item.done`.
https://developers.openai.com/api/docs/guides/conversation-state
"""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace

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
from agentmagic.providers.base import Memo, ModelEvent, Request
from agentmagic.providers.openai.openai_client import IMAGES, NAME, NOTHING, PDF, OpenAIClient, data_url, form
from agentmagic.providers.openai.responses_decoder import PROVIDER, Decoder
from agentmagic.providers.wire import Json, clean, fit_id, fit_name, write_arguments

LONGEST_ID = 64
"""Characters of the longest id of a call."""

_DOES_NOT_REASON = re.compile(r"(?:ft:)?(?:gpt-3|gpt-4|chatgpt)|gpt-5.*-chat")
"""OpenAI's models that refuse a request for reasoning, and a history with reasoning."""


class OpenAIResponses(OpenAIClient):
    """A model behind the Responses API."""

    provider = PROVIDER

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key)
        self._memo = _memo(model)

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Send the request and yield the events of the answer."""
        if not self.takes_forms:
            request = replace(request, output=None)
        return self.events("/responses", encode(request, self.model, self._memo), Decoder())


def encode(request: Request, model: str, memo: Memo | None = None) -> Json:
    """Return the body of `POST /responses`; a memo of the same model saves encoding a message twice."""
    messages = (memo or _memo(model))(request.messages)
    body: Json = {"model": model, "input": messages, "stream": True, "store": False}
    if _reasons(model):
        body["include"] = ["reasoning.encrypted_content"]
    if request.instructions:
        body["instructions"] = clean(request.instructions)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
    if request.output:
        body["text"] = {"format": {"type": "json_schema", **form(request.output)}}
    return body


def _memo(model: str) -> Memo:
    reasons = _reasons(model)
    return Memo(lambda message: map(clean, _items(message, reasons=reasons)))


def _reasons(model: str) -> bool:
    return not _DOES_NOT_REASON.match(model)


def _tool(tool: ToolDef) -> Json:
    # Strict mode, the default of this API, takes only a small part of JSON Schema.
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", **clean(function), "strict": False}


def _tool_choice(choice: str) -> str | Json:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "name": choice}


def _items(message: Message, *, reasons: bool) -> Iterator[Json]:
    match message.role:
        case "user":
            said = [_content(part) for part in message.parts if isinstance(part, Content) and part != Text("")]
            yield {"role": "user", "content": said or [_content(Text(NOTHING))]}
        case "assistant":
            yield from _assistant_items(message.parts, reasons=reasons)
        case "tool":
            yield from (_output(part) for part in message.parts if isinstance(part, ToolResult))


def _assistant_items(parts: Sequence[Part], *, reasons: bool) -> Iterator[Json]:
    """Yield the items of an answer: those that this API made unchanged, with the reasoning that led to them.

    The API refuses reasoning without the item that it led to, and an item with its id without its reasoning. A cut-off
    answer lacks the item. The reasoning is missing for a model that does not reason.
    """
    held: list[Json] = []
    parted = False  # from the first lost reasoning on, items are written anew, without their ids
    for part in parts:
        own = _own_item(part)
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


def _own_item(part: Part) -> Json | None:
    data = getattr(part, "provider_data", None)
    return data.data if isinstance(data, ProviderData) and data.provider == PROVIDER else None


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
