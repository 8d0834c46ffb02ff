"""OpenAI's Chat Completions API, and the many servers that speak it: `openai-chat:MODEL`.

https://developers.openai.com/api/reference/resources/chat
"""

from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import replace

from agentmagic.messages import (
    SEARCH,
    Content,
    HostedCall,
    HostedResult,
    HostedTool,
    Media,
    Message,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolDef,
    ToolResult,
    as_text,
    with_source_links,
)
from agentmagic.providers.base import ModelEvent, ModelSettings, Request, merge
from agentmagic.providers.hosted import as_plain_text
from agentmagic.providers.openai import PROVIDERS
from agentmagic.providers.openai.chat_decoder import PROVIDER, Decoder
from agentmagic.providers.openai.client import (
    CHOICES,
    IMAGES,
    NAME,
    NOTHING,
    PDF,
    OpenAIClient,
    data_url,
    form,
    honoured_names,
    is_search_model,
)
from agentmagic.providers.wire import (
    Json,
    Memo,
    clean,
    data_of,
    fit_id,
    fit_name,
    omit_fields,
    results_of,
    write_arguments,
)

_SETTINGS = {
    "temperature": "temperature",
    "max_output_tokens": "max_tokens",
    "reasoning": "reasoning_effort",
    "seed": "seed",
}
LONGEST_ID = 40
"""The most characters of a call's id."""


class OpenAIChat(OpenAIClient):
    """A model behind the Chat Completions API of OpenAI or of a compatible server.

    Servers other than OpenAI's need no key.
    """

    row = PROVIDERS[1]
    mark = "choices"
    keyless = True

    def __init__(self, model: str, *, base_url: str | None = None, api_key: str | None = None) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key)
        self._memo = _memo(model)

    def honours(self, settings: ModelSettings) -> Collection[str]:
        """Return the names of those `settings` that the model accepts."""
        return honoured_names(self.model, settings) if self.is_own else settings.given

    def hosts(self, tool: HostedTool) -> bool:
        """Return whether OpenAI can run this tool for this model.

        It can do so only for search models, and only if the tool is a web search without limits on domains or uses.
        """
        return tool == HostedTool(SEARCH) and is_search_model(self.model)

    def body(self, request: Request) -> Json:
        """Return the JSON that is sent for a request."""
        request = self.refused.fit(request)
        calls = bool(request.tools) and request.tool_choice != "none"
        # Many compatible servers cannot call tools if the request has a schema for the answer. So the schema is left
        # out of a request with tools.
        if "response_format" in self.without or (calls and not self.is_own):
            request = replace(request, output=None)
        body = encode(request, self.model, self._memo)
        if self.is_own and "max_tokens" in body:  # OpenAI has renamed this field; other servers know the old name
            body["max_completion_tokens"] = body.pop("max_tokens")
        return omit_fields(body, self.without)

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        """Send the request and yield the events of the answer."""
        decoder = Decoder(self.model, {tool.name for tool in request.tools})
        return self.events("/chat/completions", request, decoder)


def encode(request: Request, model: str, memo: Memo | None = None) -> Json:
    """Return the body of `POST /chat/completions`; with a memo of the same model, each message is encoded only once."""
    messages: list[Json] = []
    if request.instructions:
        messages.append({"role": "system", "content": clean(request.instructions)})
    messages += (memo or _memo(model))(request.messages)
    # Without `include_usage` a streamed response has no token counts.
    body: Json = {"model": model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        choice = request.tool_choice
        body["tool_choice"] = choice if choice in CHOICES else {"type": "function", "function": {"name": choice}}
    if request.output:
        body["response_format"] = {"type": "json_schema", "json_schema": form(request.output)}
    if request.hosted and request.tool_choice != "none":  # the API's "none" would still allow a search
        body["web_search_options"] = {}
    body |= request.settings.under(_SETTINGS)
    return merge(body, request.settings.extra)


def _memo(model: str) -> Memo:
    return Memo(lambda message: map(clean, _messages(message, model)))


def _tool(tool: ToolDef) -> Json:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": clean(function)}


def _messages(message: Message, model: str) -> Iterator[Json]:
    match message.role:
        case "user":
            yield {"role": "user", "content": _user_content(message)}
        case "assistant":
            yield from _assistant(message, model)
        case "tool":
            yield from _results(results_of(message))


def _user_content(message: Message) -> str | list[Json]:
    parts = [part for part in message.parts if isinstance(part, Content)]
    texts = [part.text for part in parts if isinstance(part, Text)]
    if len(texts) == len(parts):  # all parts are text: send one string, because some servers refuse a list
        return "\n\n".join(filter(None, texts)) or NOTHING
    return [_content(part) for part in parts if part != Text("")]


def _assistant(message: Message, model: str) -> Iterator[Json]:
    text = "".join(_part_text(part, model) for part in message.parts)
    calls = [_call(call, model) for call in message.calls]
    if text or calls:
        # Some servers need the key "content" even if a message only calls tools, and some refuse null as its value.
        body: Json = {"role": "assistant", "content": text} | _own_fields(message, model)
        yield body | {"tool_calls": calls} if calls else body


def _part_text(part: Part, model: str) -> str:
    """Return the text that is sent for a part of an earlier answer, or "" for a part that needs no text.

    Another model's citations and hosted calls (calls that a provider ran itself) become text. This model's citations
    are not sent back. Its hosted calls are sent back by `_own_fields`, in fields that only its server understands.
    """
    is_own = data_of(part, PROVIDER).get("model") == model
    match part:
        case HostedCall() | HostedResult():  # those of this model are sent back by `_own_fields`
            return "" if is_own else as_plain_text(part).text
        case Text():
            return part.text if is_own else with_source_links(part)
        case _:
            return as_text(part) if isinstance(part, Content) else ""


def _call(call: ToolCall, model: str) -> Json:
    function = {"name": fit_name(call.name, NAME), "arguments": write_arguments(call.arguments)}
    body = {"id": fit_id(call.id, LONGEST_ID), "type": "function", "function": function}
    return _extra(call, model) | body


def _own_fields(message: Message, model: str) -> Json:
    """Return the fields to send back with an answer: the model's reasoning, and fields that only its server knows.

    DeepSeek refuses earlier calls without the reasoning before them:
    https://api-docs.deepseek.com/guides/thinking_mode
    """
    fields: Json = {}
    for part in message.parts:
        if isinstance(part, Reasoning):
            own = data_of(part, PROVIDER)
            # Reasoning is sent back only to the model that wrote it, in the same field.
            if own.get("model") == model and (key := own.get("field")):
                fields[key] = fields.get(key, "") + part.text
            fields |= _extra(part, model)
    return fields


def _extra(part: Reasoning | ToolCall, model: str) -> Json:
    """Return the non-standard fields that `model`'s server sent with a part, to send them back unchanged."""
    own = data_of(part, PROVIDER)
    return own.get("extra", {}) if own.get("model") == model else {}


def _results(results: list[ToolResult]) -> Iterator[Json]:
    """Yield a message with the text of each tool result, then one user message with their images and PDF files.

    In this API, a tool result can have only text.
    """
    attachments: list[Json] = []
    for result in results:
        prefix = "Error: " if result.is_error else ""
        call_id = fit_id(result.call_id, LONGEST_ID)
        yield {"role": "tool", "tool_call_id": call_id, "content": prefix + result.text}
        media = [part for part in result.content if isinstance(part, Media) and part.media_type in {*IMAGES, PDF}]
        if media:
            attachments.append({"type": "text", "text": f"What the call {call_id} of {result.name} returned:"})
            attachments += [_content(part) for part in media]
    if attachments:
        yield {"role": "user", "content": attachments}


def _content(part: Content) -> Json:
    match part:
        case Media(media_type=kind) if kind in IMAGES:
            return {"type": "image_url", "image_url": {"url": data_url(part), "detail": "auto"}}
        case Media(media_type=kind) if kind == PDF:
            name = part.name or "document.pdf"
            return {"type": "file", "file": {"filename": name, "file_data": data_url(part)}}
        case _:
            return {"type": "text", "text": as_text(part)}
