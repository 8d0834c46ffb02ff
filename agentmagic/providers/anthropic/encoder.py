"""Encodes a request as the JSON body of Anthropic's Messages API.

API reference: https://platform.claude.com/docs/en/api/messages. Guides under
https://platform.claude.com/docs/en/build-with-claude: thinking, preserved-thinking, prompt-caching, structured-outputs
and pdf-support. Guides under https://platform.claude.com/docs/en/agents-and-tools/tool-use: server-tools,
web-search-tool and web-fetch-tool.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentmagic.messages import (
    FETCH,
    SEARCH,
    HostedCall,
    HostedResult,
    HostedTool,
    Media,
    Message,
    Part,
    Resource,
    Text,
    ToolCall,
    ToolDef,
    ToolResult,
    as_text,
)
from agentmagic.providers.base import ModelSettings, Request, merge
from agentmagic.providers.hosted import as_plain_text, only_pairs
from agentmagic.providers.wire import (
    LISTS_OF_SCHEMAS,
    Json,
    Memo,
    base64_of,
    clean,
    data_of,
    each_schema,
    fit_id,
    fit_name,
    object_of,
    results_of,
    text_of,
)

PROVIDER = "anthropic"
"""The provider's name in the data that the history keeps for it."""

BINDING = "thinking-binding-controls-2026-08-01"
"""The beta in which a request says what to do with thoughts if the conversation before them has changed."""

FORCED_CHOICE, FORM, THINKING = "tool_choice", "output_config", "thinking"
"""The fields that some servers refuse. A refused field is left out of later requests."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""A legal name of a tool, and a legal id of a call."""

_LONGEST_ID = 64
_TITLE = 200
"""The most characters of a document's title."""

_NOTHING = "(no words)"
"""Sent in place of a message or a result without content: the API refuses empty and blank texts."""

# https://platform.claude.com/docs/en/build-with-claude/thinking: models up to Claude 4.5 do not decide by themselves
# how long they think, and think only if they get a budget. For some newer models, thinking cannot be turned off.
_CLAUDE = r"(?:.*[./])?claude-"
_OLD = r"\d|instant|v\d|(?:opus|sonnet|haiku)-(?:3|4(?:-[0-5])?(?:$|[-@]\d{6}))"
_ADAPTIVE = re.compile(rf"{_CLAUDE}(?!{_OLD})[a-z]+-")
_ALWAYS_THINKS = re.compile(rf"{_CLAUDE}(?:fable|mythos|opus-(?:5-[1-9](?!\d)|[6-9]|\d\d))")
_THINKS_BETWEEN_TOOLS = re.compile(rf"{_CLAUDE}sonnet-(?:5-[1-9](?!\d)|[6-9]|\d\d)")
_FROM_5_1 = re.compile(rf"{_CLAUDE}[a-z]+-(?:5-[1-9](?!\d)|[6-9]|\d\d)")
"""Models that accept an old thought only after an unchanged conversation, and that cannot be forced to call a tool."""

# The models with Anthropic's own web tools: Claude 4.5 and later. Names of models on Bedrock and on Google Cloud (with
# "@") do not match, because these clouds cannot fetch web pages.
_HAS_WEB = re.compile(
    r"(?:anthropic/)?claude-(?!\d|instant|v\d|(?:opus|sonnet|haiku)-(?:3|4(?:-[0-4])?(?:$|-\d{6})))[^@]+"
)
_WEB: Mapping[str, Json] = {
    # "direct" means that Claude itself calls the tool. Without it, newer versions of the tool let a program that Claude
    # wrote call the search, and only that program sees the pages.
    SEARCH: {"type": "web_search_20260318", "allowed_callers": ["direct"]},
    # "none" forbids Claude to fetch a URL from a result of our tools: a malicious text in a result could make Claude
    # put notebook data into the URL.
    FETCH: {
        "type": "web_fetch_20260318",
        "allowed_callers": ["direct"],
        "citations": {"enabled": True},
        "max_content_tokens": 50_000,  # for each fetched page; the API's default is unlimited
        "url_sources": {"client_tool_results": {"type": "none"}},
    },
}
"""The entries for the tools that Anthropic runs itself, each in its newest version."""

_LONGEST_ANSWER = 64_000
"""The most tokens of an answer with its thoughts. All models from Claude 4.5 on allow this, and some allow twice it."""
_LONGEST_OLD_ANSWER = 32_000

_CHOICES: dict[str, Json] = {"none": {"type": "none"}, "required": {"type": "any"}}
_CACHE_MARK: Json = {"cache_control": {"type": "ephemeral"}}
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_PDF = "application/pdf"

# The keywords of JSON Schema that are sent in the schema of an answer. The others are left out, because the agent loop
# checks the answer against the whole schema.
_KEYWORDS = frozenset(
    {"type", "title", "description", "enum", "const", "required", "$ref"}
    | {"anyOf", "oneOf", "allOf", "properties", "$defs", "items"}
)
_ALLOWS_VALUES = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})
"""Keywords that say which values a schema allows. Each schema of an answer's form needs at least one of them."""


def memo_for() -> Memo:
    """Return a `Memo` with this API's encoding: each message of a growing conversation is encoded only once."""
    return Memo(lambda message: map(clean, _messages(message)))


def encode(request: Request, model: str, memo: Memo | None = None, without: Collection[str] = ()) -> Json:
    """Return the JSON body of a request; with a memo, each message is encoded only once.

    The model's name decides which features are used. `without` are the fields to leave out, because the server refused
    them before. Content blocks that Claude made are sent back unchanged. Reasoning of other providers is left out,
    because Claude cannot read it.
    """
    adaptive = _ADAPTIVE.match(model) is not None
    hosted_names = {tool.name for tool in request.hosted}
    body: Json = {
        "model": model,
        "max_tokens": _LONGEST_ANSWER if adaptive else _LONGEST_OLD_ANSWER,
        "messages": _mark_for_cache((memo or memo_for())(_pair_calls(request.messages, hosted_names))),
        "stream": True,
        **request.settings.under({"max_output_tokens": "max_tokens", "temperature": "temperature"}),
    }
    if adaptive and THINKING not in without:
        body["thinking"] = _thinking(model, request.settings)
    system = [request.instructions] if request.instructions.strip() else []
    if request.tools or request.hosted:
        body["tools"] = [
            *(_hosted_tool(tool, request) for tool in request.hosted),
            *(clean(_tool(tool)) for tool in request.tools),
        ]
        body["tools"][-1] |= _CACHE_MARK
        if request.tool_choice not in ("auto", "none") and (FORCED_CHOICE in without or _FROM_5_1.match(model)):
            which = "one of the tools" if request.tool_choice == "required" else f"the tool {request.tool_choice}"
            system.append(f"Call {which} before you answer.")
        elif request.tool_choice != "auto":
            body["tool_choice"] = _CHOICES.get(request.tool_choice, {"type": "tool", "name": request.tool_choice})
    if system:
        body["system"] = [{"type": "text", "text": clean(text)} for text in system]
        body["system"][0] |= _CACHE_MARK
    if request.output and FORM not in without and (schema := _form(request.output.schema)):
        body["output_config"] = {"format": {"type": "json_schema", "schema": clean(schema)}}
    if request.settings.reasoning not in (None, "none"):
        body = merge(body, {"output_config": {"effort": request.settings.reasoning}})
    return merge(body, request.settings.extra)


def hosts(model: str, tool: HostedTool) -> bool:
    """Return whether Anthropic's servers can run a tool for a model. They obey limits on domains and on uses."""
    return tool.name in _WEB and _HAS_WEB.fullmatch(model) is not None


def _hosted_tool(tool: HostedTool, request: Request) -> Json:
    entry = {**_WEB[tool.name], "name": tool.name}
    if request.output:  # the API refuses citations in an answer with a schema
        entry.pop("citations", None)
    bounds = {"allowed_domains": list(tool.domains), "max_uses": tool.max_uses}
    return entry | {name: value for name, value in bounds.items() if value}


def is_beta(body: Json) -> bool:
    """Return whether a request body uses the beta feature `BINDING`, so that its request needs the header for it."""
    return "block_binding" in body.get(THINKING, {})


def honoured_names(model: str, settings: ModelSettings) -> set[str]:
    """Return the names of the settings that a model accepts. Claude models no longer accept a temperature."""
    unsupported = {"seed"}
    if re.match(_CLAUDE, model):
        unsupported.add("temperature")
    always = settings.reasoning == "none" and _ALWAYS_THINKS.match(model)
    if always or not (_ADAPTIVE.match(model) or settings.reasoning == "none"):
        unsupported.add("reasoning")
    return set(settings.given) - unsupported


def _pair_calls(messages: Sequence[Message], hosted_names: Collection[str]) -> Sequence[Message]:
    """Turn hosted calls that have no result, and results that have no call, into plain text. Return the messages.

    A hosted call is a call that Anthropic's servers ran. The API refuses such a call without its result, and a result
    without its call. A call that gets its result in the next answer stays (`_late_calls`), and so does that result.
    Messages that do not change stay the same objects. `hosted_names` are the hosted tools in the request.
    """
    result = list(messages)
    for place, message in enumerate(messages):
        if message.role == "assistant" and any(isinstance(part, HostedCall | HostedResult) for part in message.parts):
            apart = _late_calls(messages, place, hosted_names) | _late_calls(messages, place - 2, hosted_names)
            parts = _orphans_as_text(only_pairs(message.parts, apart))
            result[place] = message if parts is message.parts else replace(message, parts=parts)
    return result


def _late_calls(messages: Sequence[Message], place: int, hosted_names: Collection[str]) -> set[str]:
    """Return the ids of the hosted calls in the answer `messages[place]` that get their results in the next answer.

    A hosted call runs on Anthropic's servers. If the same answer also calls tools of ours, the hosted call waits for
    their results. The message after it must then have only these results, and the answer after that begins with the
    result of the hosted call.
    """
    message, *after = messages[place : place + 3] if place >= 0 else (None,)
    if message is None or not message.calls or not after or after[0].role != "tool":
        return set()
    if any(any(_failed_media(result)) for result in results_of(after[0])):
        return set()
    calls = {part.id: part.name for part in message.parts if isinstance(part, HostedCall)}
    if not after[1:]:
        return {call_id for call_id, name in calls.items() if name in hosted_names}
    return calls.keys() & {part.call_id for part in after[1].parts if isinstance(part, HostedResult)}


def _orphans_as_text(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the parts of an answer, in which the calls of a missing program are replaced by text.

    Claude can write a program that calls tools. The program runs on Anthropic's servers, in a hosted call. If that
    hosted call is not among the parts, the calls that the program made become text, and so do their results.
    """
    ids = {part.id for part in parts if isinstance(part, HostedCall)}
    orphans = [_program(part) not in ("", *ids) for part in parts]
    if not any(orphans):
        return parts
    return tuple(
        as_plain_text(part) if is_orphan and isinstance(part, HostedCall | HostedResult) else part
        for part, is_orphan in zip(parts, orphans, strict=True)
    )


def _program(part: Part) -> str:
    """Return the id of the call that ran a program, if this program made the hosted call in `part`.

    A hosted call is a call on Anthropic's servers. `part` can also be its result. Returns "" for any other part.
    """
    own = data_of(part, PROVIDER) if isinstance(part, HostedCall | HostedResult) else {}
    return text_of(object_of(own.get("caller")).get("tool_id"))


def encode_answer(parts: Iterable[Part]) -> list[Json]:
    """Return a list with the one message for an answer, or an empty list if the answer has no parts to send.

    Thoughts at the end are dropped: the API refuses an answer that ends in a thought.
    """
    blocks = [block for part in parts for block in _encode_part(part)]
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        blocks.pop()
    return [{"role": "assistant", "content": blocks}] if blocks else []


def _thinking(model: str, settings: ModelSettings) -> Json:
    if settings.reasoning == "none":
        return {"type": "between_tools" if _THINKS_BETWEEN_TOOLS.match(model) else "disabled"}
    thinking: Json = {"type": "adaptive", "display": "summarized"}
    if _FROM_5_1.match(model):
        # A thought belongs to the exact conversation before it. If that has changed (a turn undone, a tool added, the
        # history compacted), the API drops the thought. Without "drop_block", it would refuse the request.
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return thinking


def _mark_for_cache(messages: list[Json]) -> list[Json]:
    """Mark the last content block, so that the API caches everything before it, and return the messages.

    The marked message is a copy: the original object is kept in the `Memo`, the cache of encoded messages.
    """
    *before, last = messages
    *blocks, block = last["content"]
    return [*before, {**last, "content": [*blocks, block | _CACHE_MARK]}]


def _tool(tool: ToolDef) -> Json:
    # The API refuses anyOf, oneOf and allOf at the top of a tool's schema, so they are left out. The agent loop checks
    # the arguments against the whole schema.
    schema = {keyword: value for keyword, value in tool.parameters.items() if keyword not in LISTS_OF_SCHEMAS}
    return {"name": tool.name, "description": tool.description, "input_schema": {"type": "object", **schema}}


def _messages(message: Message) -> Iterator[Json]:
    match message.role:
        case "tool":
            results = results_of(message)
            beside = [block for result in results for block in _failed_media(result)]
            yield {"role": "user", "content": [*map(_result, results), *beside]}
        case "user":
            spoken = [block for part in message.parts for block in _encode_content(part)]
            yield {"role": "user", "content": spoken or [_text(_NOTHING)]}
        case "assistant":
            yield from encode_answer(message.parts)


def _encode_part(part: Part) -> Iterator[Json]:
    data = data_of(part, PROVIDER)
    if isinstance(part, ToolCall):
        call_id, name = _fit_call_id(part.id), fit_name(part.name, _NAME)
        yield {**data, "type": "tool_use", "id": call_id, "name": name, "input": dict(part.arguments)}
    elif data:
        # Blank text blocks are left out: the API writes them between citations, but refuses them in a request.
        yield from (block for block in data.get("blocks", [data]) if block["type"] != "text" or block["text"].strip())
    elif isinstance(part, Text) and part.text.strip():
        yield _text(part.text)
    elif isinstance(part, Media):  # an image that another model made: answers in this API cannot have images
        yield _text(as_text(part))


def _encode_content(part: Part) -> Iterator[Json]:
    if not isinstance(part, Text | Media | Resource):
        return
    if isinstance(part, Media) and (block := _media(part)):
        yield block
    elif text := as_text(part).strip() and as_text(part):
        yield _text(text)


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _media(media: Media) -> Json | None:
    """Return the content block for an image, a PDF or a text file. Return None for other media or a blank text."""
    kind = media.media_type.lower().partition(";")[0].strip()
    if kind in _IMAGES or kind == _PDF:
        source = {"type": "base64", "media_type": kind, "data": base64_of(media)}
    elif kind.startswith("text/") and (text := media.data.decode(errors="replace")).strip():
        source = {"type": "text", "media_type": "text/plain", "data": text}
    else:
        return None
    if kind in _IMAGES:
        return {"type": "image", "source": source}
    return {"type": "document", "source": source} | ({"title": media.name[:_TITLE]} if media.name.strip() else {})


def _result(result: ToolResult) -> Json:
    """Return the content block for the result of a tool call.

    The API accepts only text in a failed result, so this text only names the media of the result.
    """
    if result.is_error:
        content = [_text(result.text)] if result.text.strip() else []
    else:
        content = [block for part in result.content for block in _encode_content(part)]
    return {
        "type": "tool_result",
        "tool_use_id": _fit_call_id(result.call_id),
        "content": content or [_text(_NOTHING)],
        "is_error": result.is_error,
    }


def _failed_media(result: ToolResult) -> Iterator[Json]:
    """Yield content blocks for the media of a failed call. A failed result cannot contain media, so they follow it."""
    for part in result.content if result.is_error else ():
        if isinstance(part, Media) and (block := _media(part)):
            yield _text(f"From the result of {result.name}: {as_text(part)}")
            yield block


def _fit_call_id(call_id: str) -> str:
    return fit_id(call_id, _LONGEST_ID if _NAME.fullmatch(call_id) else 0)


def _form(schema: Mapping[str, Any]) -> Json | None:
    """Return the schema of an answer in the form that the API accepts, or None if a part of it allows any value."""
    try:
        return each_schema(schema, _close_schema)
    except ValueError:
        return None


def _close_schema(schema: Json) -> Json:
    """Return a schema with only `_KEYWORDS`; an object allows no other properties, and `oneOf` becomes `anyOf`.

    Raises ValueError if the schema allows any value.
    """
    kind, names = schema.get("type"), schema.keys()
    is_open = kind == "object" and ("properties" not in names or schema.get("additionalProperties"))
    if is_open or isinstance(kind, list) or isinstance(schema.get("items"), bool) or not names & _ALLOWS_VALUES:
        message = "the schema allows any value"
        raise ValueError(message)
    result = {"anyOf" if name == "oneOf" else name: schema[name] for name in names if name in _KEYWORDS}
    return result | ({"additionalProperties": False} if kind == "object" else {})
