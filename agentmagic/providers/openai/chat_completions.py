"""OpenAI's Chat Completions API, and the many servers that speak it: `openai-chat:MODEL`.

What those servers do differently is allowed for here: no usage, no call ids, whole calls in one chunk,
names in pieces, reasoning in a field of their own.
https://developers.openai.com/api/reference/resources/chat
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

from agentmagic.messages import Media, Message, ProviderData, Reasoning, Text, ToolCall, ToolDef, ToolResult, as_text
from agentmagic.providers.base import Memo, ModelEvent, Request
from agentmagic.providers.openai import openai_client
from agentmagic.providers.openai.answer_form import NAME, form
from agentmagic.providers.openai.chat_decoder import PROVIDER, Decoder
from agentmagic.providers.wire import Json, clean, fit_id, fit_name

LONGEST_ID = 40
"""Characters that a call's id may have."""


class OpenAIChat:
    """A model behind the Chat Completions API of OpenAI or of a compatible server.

    `base_url` and `api_key` stand in for `OPENAI_BASE_URL` and `OPENAI_API_KEY`, which are read at the
    first request. Servers other than OpenAI's need no key.
    """

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        self._server = openai_client.OpenAIClient(model, base_url, api_key, keyless=True)
        self._memo = _memo(model)

    @property
    def name(self) -> str:
        """The full name, "openai-chat:MODEL"."""
        return f"{PROVIDER}:{self._server.model}"

    @property
    def base_url(self) -> str:
        """The address requests are sent to."""
        return self._server.url

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Send the request and yield what comes back.

        Many servers that hold an answer to its form cannot call tools meanwhile: only OpenAI is sent both.
        """
        model, server = self._server.model, self._server
        calls = bool(request.tools) and request.tool_choice != "none"
        if not server.takes_forms or (calls and not server.is_openai):
            request = replace(request, output=None)
        return server.events("/chat/completions", encode(request, model, self._memo), Decoder(model))

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
        messages.append({"role": "system", "content": clean(request.instructions)})
    messages += (memo or _memo(model))(request.messages)
    body: Json = {"model": model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        body["tool_choice"] = _tool_choice(request.tool_choice)
    if request.output:
        body["response_format"] = {"type": "json_schema", "json_schema": form(request.output)}
    return body


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
    parts = [part for part in message.parts if not isinstance(part, Reasoning | ToolCall | ToolResult)]
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) == len(parts):  # some servers take no list
        return "\n\n".join(filter(None, texts)) or openai_client.NOTHING
    return [_content(part) for part in parts if part != Text("")]


def _assistant(message: Message, model: str) -> Iterator[Json]:
    words = (as_text(part) for part in message.parts if not isinstance(part, Reasoning | ToolCall | ToolResult))
    text, calls = "".join(words), [_call(call) for call in message.calls]
    if text or calls:
        # Some servers insist on the key "content" even where a message only calls.
        body: Json = {"role": "assistant", "content": text or None} | _reasoning(message, model)
        yield body | {"tool_calls": calls} if calls else body


def _call(call: ToolCall) -> Json:
    function = {"name": fit_name(call.name, NAME), "arguments": openai_client.write_arguments(call.arguments)}
    return {"id": fit_id(call.id, LONGEST_ID), "type": "function", "function": function}


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
        call_id = fit_id(result.call_id, LONGEST_ID)
        yield {"role": "tool", "tool_call_id": call_id, "content": prefix + result.text}
        media = [part for part in result.content if isinstance(part, Media) and _can_show(part)]
        if media:
            shown.append({"type": "text", "text": f"What the call {call_id} of {result.name} returned:"})
            shown += [_content(part) for part in media]
    if shown:
        yield {"role": "user", "content": shown}


def _can_show(media: Media) -> bool:
    return media.media_type in openai_client.IMAGES or media.media_type == openai_client.PDF


def _content(part: Any) -> Json:
    match part:
        case Media(media_type=kind) if kind in openai_client.IMAGES:
            return {"type": "image_url", "image_url": {"url": openai_client.data_url(part), "detail": "auto"}}
        case Media(media_type=openai_client.PDF):
            name = part.name or "document.pdf"
            return {"type": "file", "file": {"filename": name, "file_data": openai_client.data_url(part)}}
        case _:
            return {"type": "text", "text": as_text(part)}
