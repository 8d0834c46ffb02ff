"""OpenAI's Responses API: `openai:MODEL`.

Nothing is stored at OpenAI. What it wrote is kept item by item and sent back as it came: reasoning is
encrypted, belongs before the call it led to, and is complete only in `response.output_item.done`.
https://developers.openai.com/api/docs/guides/conversation-state
"""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any

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
from agentmagic.providers.base import Memo, ModelEvent, Request
from agentmagic.providers.openai import openai_client
from agentmagic.providers.openai.answer_form import NAME, form
from agentmagic.providers.openai.responses_decoder import PROVIDER, Decoder
from agentmagic.providers.wire import Json, clean, fit_id, fit_name

LONGEST_ID = 64
"""Characters that a call's id may have."""

_DOES_NOT_REASON = re.compile(r"(?:ft:)?(?:gpt-3|gpt-4|chatgpt)|gpt-5.*-chat")
"""Models of OpenAI that refuse to be asked for reasoning, and to be given any."""


class OpenAIResponses:
    """A model behind the Responses API.

    `base_url` and `api_key` stand in for `OPENAI_BASE_URL` and `OPENAI_API_KEY`, which are read at the
    first request.
    """

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self._server = openai_client.OpenAIClient(model, base_url, api_key)
        self._memo = _memo(model)

    @property
    def name(self) -> str:
        """The full name, "openai:MODEL"."""
        return f"{PROVIDER}:{self._server.model}"

    @property
    def base_url(self) -> str:
        """The address requests are sent to."""
        return self._server.url

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Send the request and yield what comes back."""
        if not self._server.takes_forms:
            request = replace(request, output=None)
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
    # Strict mode is the default of this API, and takes only a small part of JSON Schema.
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", **clean(function), "strict": False}


def _tool_choice(choice: str) -> str | Json:
    if choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "name": choice}


def _items(message: Message, *, reasons: bool) -> Iterator[Json]:
    match message.role:
        case "user":
            yield {"role": "user", "content": _said(message.parts)}
        case "assistant":
            yield from _assistant_items(message, reasons=reasons)
        case "tool":
            yield from (_output(part) for part in message.parts if isinstance(part, ToolResult))


def _said(parts: Sequence[Part]) -> list[Json]:
    said = [_content(part) for part in parts if _is_content(part) and part != Text("")]
    return said or [_content(Text(openai_client.NOTHING))]


def _assistant_items(message: Message, *, reasons: bool) -> Iterator[Json]:
    """Write an answer: what this API made goes back as it came, with the reasoning that led to it.

    The API refuses reasoning without the item it led to, and that item, told by its id, without its reasoning.
    A cut-off answer lacks the one; the other is lost on a model that does not reason.
    """
    held: list[Json] = []
    parted = False
    for part in message.parts:
        own = _own_item(part)
        if isinstance(part, Reasoning):
            usable = own is not None and reasons and _is_whole(own)
            held += [own] if own and usable else []
            parted = parted or not usable
        elif own and not parted:
            yield from held
            yield own
            held = []
        elif fresh := _fresh_item(part):
            yield fresh
            held, parted = [], parted or bool(held)


def _is_whole(reasoning: Json) -> bool:
    """Whether a reasoning item says what it stands for: nothing is stored that its id could find."""
    return bool(reasoning.get("encrypted_content") or reasoning.get("content"))


def _own_item(part: Part) -> Json | None:
    data = getattr(part, "provider_data", None)
    return data.data if isinstance(data, ProviderData) and data.provider == PROVIDER else None


def _fresh_item(part: Part) -> Json | None:
    """Write what another provider, or half an answer, left in the history."""
    match part:
        case ToolCall():
            arguments = openai_client.write_arguments(part.arguments)
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
        head = [Text(prefix.strip())] if prefix else []
        output = [_content(part) for part in (*head, *result.content)]
    call_id = fit_id(result.call_id, LONGEST_ID)
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _is_content(part: Part) -> bool:
    return not isinstance(part, Reasoning | ToolCall | ToolResult)


def _content(part: Any) -> Json:
    match part:
        case Media(media_type=kind) if kind in openai_client.IMAGES:
            return {"type": "input_image", "image_url": openai_client.data_url(part), "detail": "auto"}
        case Media(media_type=openai_client.PDF):
            name = part.name or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": openai_client.data_url(part)}
        case _:
            return {"type": "input_text", "text": as_text(part)}
