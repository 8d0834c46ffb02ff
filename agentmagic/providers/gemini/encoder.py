"""Encodes a request as the JSON body of Gemini's `streamGenerateContent`.

API reference: https://ai.google.dev/api/generate-content. Guides under https://ai.google.dev/gemini-api/docs:
function-calling, thinking, thought-signatures and image-understanding.
"""

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence

from agentmagic.messages import (
    FETCH,
    SEARCH,
    HostedCall,
    HostedResult,
    HostedTool,
    Media,
    Message,
    Part,
    Reasoning,
    Resource,
    Text,
    ToolCall,
    ToolDef,
    ToolResult,
    as_text,
)
from agentmagic.providers.base import Effort, ModelSettings, Request, merge
from agentmagic.providers.hosted import as_plain_text, only_pairs
from agentmagic.providers.wire import Json, Memo, base64_of, clean, data_of, each_schema, fit_name, results_of

PROVIDER = "gemini"
"""The provider's name in the data that the history keeps for it."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
"""A legal name of a function."""

_NOTHING: Json = {"text": "(no words)"}
"""The part for a user message without content. Gemini refuses an empty message, and a history without its first one."""

CIRCULATES = "includeServerSideToolInvocations"
"""The field of `toolConfig` that puts calls of Google's own tools into the answer, and allows them in the history."""

_SKIP_SIGNATURE = b64encode(b"skip_thought_signature_validator").decode()
"""Google's documented placeholder for the signature of a call that Gemini did not make."""

# These models think by default. Of the others, "flash-lite" models think only if the request asks for it, and the rest
# refuse a request for thoughts.
_THINKS = re.compile(r"(?:.*/)?gemini-(?:2\.5|3)(?!.*(?:lite|image|tts|audio|live))")
_THINKS_BY_LEVEL = re.compile(r"(?:.*/)?gemini-3(?!.*(?:image|tts|audio|live))")
_THINKS_BY_BUDGET = re.compile(r"(?:.*/)?gemini-2\.5(?!.*(?:image|tts|audio|live))")
_BUDGETS: dict[Effort, int] = {"none": 0, "low": 1_024, "medium": 8_192, "high": 24_576}
"""Tokens of thought for each effort, as Google's OpenAI-compatible API translates it."""
_TAKES_MEDIA_IN_RESULTS = re.compile(r"(?:.*/)?gemini-3")
# Models before Gemini 3 need no signatures on their calls, and refuse tools together with a schema for the answer.
# Models that are not called "gemini-" refuse any schema for the answer.
# https://ai.google.dev/gemini-api/docs/structured-output and https://ai.google.dev/gemini-api/docs/thought-signatures
_BEFORE_3 = re.compile(r"(?:.*/)?gemini-[12]\b")
# Gemma 1 to 3 need the instructions in the first user message, according to
# https://ai.google.dev/gemma/docs/core/prompt-structure.
_TAKES_NO_INSTRUCTIONS = re.compile(r"(?:.*/)?gemma-[1-3]")
_TAKES_FORM = re.compile(r"(?:.*/)?gemini-")

_HAS_WEB = re.compile(r"(?:.*/)?gemini-(?:[3-9]|\d\d)(?!.*(?:image|tts|audio|live))")
_WEB = {SEARCH: "googleSearch", FETCH: "urlContext"}
"""The fields for the tools that Google runs itself."""

_SERVER = frozenset({"toolCall", "toolResponse", "executableCode", "codeExecutionResult"})
"""The fields of parts that describe the work of Google's servers."""

_MODES: dict[str, Json] = {"none": {"mode": "NONE"}, "required": {"mode": "ANY"}}
_IMAGES = ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif")
_MEDIA_IN_PROMPTS = (*_IMAGES, "application/pdf", "audio/", "video/", "text/")
_MEDIA_IN_RESULTS = ("image/png", "image/jpeg", "image/webp", "application/pdf")

# Keywords of JSON Schema that Gemini refuses in the schema of a tool's parameters, so they are left out. The agent loop
# checks the arguments of a call against the full schema.
_UNKNOWN_KEYWORDS = frozenset(
    {"$schema", "$comment", "discriminator", "examples", "exclusiveMinimum", "exclusiveMaximum"}
)


def memo_for(model: str) -> Memo:
    """Return a `Memo` with this API's encoding: each message of a growing conversation is encoded only once."""
    return Memo(lambda message: map(clean, _contents(message, model)))


def encode(request: Request, model: str, memo: Memo | None = None) -> Json:
    """Return the JSON body of a request; with a memo of the same model, each message is encoded only once.

    The model's name decides which features are used. Parts that Gemini made are sent back unchanged. Reasoning of other
    providers is left out, because Gemini cannot read it.
    """
    contents = (memo or memo_for(model))(request.messages)
    body: Json = {"contents": contents}
    if request.instructions:
        instructions = {"parts": [{"text": clean(request.instructions)}]}
        if _TAKES_NO_INSTRUCTIONS.match(model):
            contents[0] = contents[0] | {"parts": [*instructions["parts"], *contents[0]["parts"]]}
        else:
            body["systemInstruction"] = instructions
    # Google's own tools are left out here, because Gemini's mode "NONE" forbids only the calls of our functions.
    hosted_tools = () if request.tool_choice == "none" else request.hosted
    tools: list[Json] = [{_WEB[tool.name]: {}} for tool in hosted_tools]
    if request.tools:
        tools.append({"functionDeclarations": [clean(_declaration(tool)) for tool in request.tools]})
        if request.tool_choice != "auto":
            mode = _MODES.get(request.tool_choice, {"mode": "ANY", "allowedFunctionNames": [request.tool_choice]})
            body["toolConfig"] = {"functionCallingConfig": mode}
    if tools:
        body["tools"] = tools
    if hosted_tools or any("toolCall" in part for content in contents for part in content["parts"]):
        # Without this field, Gemini refuses a request that has functions and Google's tools, or whose history has calls
        # of Google's tools.
        body["toolConfig"] = {**body.get("toolConfig", {}), CIRCULATES: True}
    config: Json = {"thinkingConfig": {"includeThoughts": True}} if _THINKS.match(model) else {}
    # Models that refuse a schema for the answer get none here: the prompt describes the form of the answer to them.
    if request.output and _TAKES_FORM.match(model) and not (request.tools and _BEFORE_3.match(model)):
        config["responseMimeType"] = "application/json"
        config["responseJsonSchema"] = clean(each_schema(request.output.schema, _fit))
    if config := _with_settings(config, request.settings, model):
        body["generationConfig"] = config
    return merge(body, request.settings.extra)


def is_before_3(model: str) -> bool:
    """Return whether a model is of a generation before Gemini 3."""
    return _BEFORE_3.match(model) is not None


def hosts(model: str, tool: HostedTool) -> bool:
    """Return whether Google's servers can run a tool for a model.

    The result is False for a tool with limits on domains or uses, because Google does not offer such limits. It is also
    False for models before Gemini 3, because they refuse functions together with Google's tools.
    """
    return tool.name in _WEB and not (tool.domains or tool.max_uses) and _HAS_WEB.match(model) is not None


def honoured_names(model: str, settings: ModelSettings) -> set[str]:
    """Return the names of the settings that a model accepts. A model that does not think accepts no `reasoning`."""
    thinks = settings.reasoning is not None and _thinking(settings.reasoning, model)
    return set(settings.given) - (set[str]() if thinks else {"reasoning"})


def _with_settings(config: Json, settings: ModelSettings, model: str) -> Json:
    fields = settings.under({"temperature": "temperature", "max_output_tokens": "maxOutputTokens", "seed": "seed"})
    if settings.reasoning is not None and (thinking := _thinking(settings.reasoning, model)):
        # A request without thinking must not request thoughts.
        fields["thinkingConfig"] = thinking | {"includeThoughts": settings.reasoning != "none"}
    return config | fields


def _thinking(effort: Effort, model: str) -> Json:
    """Return the `thinkingConfig` for an effort, or {} if the model does not support this effort.

    https://ai.google.dev/gemini-api/docs/thinking
    """
    if effort == "none" and "pro" in model:
        return {}
    if _THINKS_BY_LEVEL.match(model):
        return {"thinkingLevel": "MINIMAL" if effort == "none" else effort.upper()}
    return {"thinkingBudget": _BUDGETS[effort]} if _THINKS_BY_BUDGET.match(model) else {}


def _contents(message: Message, model: str) -> Iterator[Json]:
    match message.role:
        case "tool":
            yield from _tool_contents(message, model)
        case "user":
            user_parts = [part for part in map(_encode_content, message.parts) if part is not None]
            yield {"role": "user", "parts": user_parts or [_NOTHING]}
        case "assistant":
            answer_parts = _answer(message.parts, model)
            if any(map(_has_content, answer_parts)):
                yield {"role": "model", "parts": answer_parts}


def _has_content(part: Json) -> bool:
    """Return whether a part has content other than a thought or a signature. An answer needs at least one such part."""
    return not part.get("thought") and part.get("text") != "" and part.keys() != {"thoughtSignature"}


def _encode_content(part: Part) -> Json | None:
    match part:
        case Media() if _accepts(_MEDIA_IN_PROMPTS, part):
            return _blob(part)
        case Text() | Media() | Resource():
            text = as_text(part)
            return {"text": text} if text else None
        case Reasoning() | ToolCall() | ToolResult() | HostedCall() | HostedResult():
            return None


def _answer(parts: Sequence[Part], model: str) -> list[Json]:
    usable_parts = (_fit_part(part, model) for part in only_pairs(parts))
    answer_parts = [part for part in map(_encode_part, usable_parts) if part is not None]
    first = next((index for index, part in enumerate(answer_parts) if "functionCall" in part), None)
    if first is None or _BEFORE_3.match(model):
        return answer_parts
    # The first call of an answer needs a signature, in its part or in an earlier one. A signature in a part about the
    # work of Google's servers does not count.
    if not any("thoughtSignature" in part and not part.keys() & _SERVER for part in answer_parts[: first + 1]):
        # The first call of the answer has no signature, because another provider or an older Gemini model made it. With
        # a fixed text in place of the signature, Gemini does not check it.
        answer_parts[first] = answer_parts[first] | {"thoughtSignature": _SKIP_SIGNATURE}
    return answer_parts


def _fit_part(part: Part, model: str) -> Part:
    """Return a part in a form that the model accepts.

    Models before Gemini 3 refuse calls that Google's servers ran, and the results of such calls. Both become text. But
    these models accept programs that Google's servers ran.
    """
    if not isinstance(part, HostedCall | HostedResult) or not _BEFORE_3.match(model):
        return part
    return as_plain_text(part) if data_of(part, PROVIDER).keys() & {"toolCall", "toolResponse"} else part


def _encode_part(part: Part) -> Json | None:
    own = data_of(part, PROVIDER)
    if isinstance(part, HostedCall | HostedResult):  # empty data means that the part is not sent back
        return own or (None if part.provider_data else _encode_content(as_plain_text(part)))
    if not isinstance(part, ToolCall):
        return own or _encode_content(part)
    call = own.get("functionCall") or {"id": part.id, "args": dict(part.arguments)}
    return {**own, "functionCall": {**call, "name": fit_name(part.name, _NAME)}}


def _tool_contents(message: Message, model: str) -> Iterator[Json]:
    """Yield a user message with the results of all calls, and another with the media that results cannot contain."""
    results = results_of(message)
    inside = _MEDIA_IN_RESULTS if _TAKES_MEDIA_IN_RESULTS.match(model) else ()
    yield {"role": "user", "parts": [_response(result, inside) for result in results]}
    if beside := [part for result in results for part in _separate_media(result, inside)]:
        yield {"role": "user", "parts": beside}


def _response(result: ToolResult, inside: tuple[str, ...]) -> Json:
    """Return the part that answers a call with its result.

    `inside` are the media types that such a part can contain. Its text names all media of the result, even those that
    it cannot contain.
    """
    response: Json = {
        "id": result.call_id,
        "name": fit_name(result.name, _NAME),
        "response": {"error" if result.is_error else "output": result.text},
    }
    if parts := [_blob(part) for part in result.content if isinstance(part, Media) and _accepts(inside, part)]:
        response["parts"] = parts
    return {"functionResponse": response}


def _separate_media(result: ToolResult, inside: tuple[str, ...]) -> Iterator[Json]:
    for part in result.content:
        if isinstance(part, Media) and not _accepts(inside, part) and _accepts(_MEDIA_IN_PROMPTS, part):
            yield {"text": f"From the result of {result.name}: {as_text(part)}"}
            yield _blob(part)


def _accepts(types: tuple[str, ...], media: Media) -> bool:
    return media.media_type.lower().startswith(types)


def _blob(media: Media) -> Json:
    return {"inlineData": {"mimeType": media.media_type, "data": base64_of(media)}}


def _declaration(tool: ToolDef) -> Json:
    return {
        "name": tool.name,
        "description": tool.description,
        "parametersJsonSchema": each_schema(tool.parameters, _fit),
    }


def _fit(schema: Json) -> Json:
    """Return a JSON Schema without the keywords that Gemini refuses; "const" becomes an "enum" of one value."""
    result = {keyword: value for keyword, value in schema.items() if keyword not in _UNKNOWN_KEYWORDS}
    if "const" in result:
        result["enum"] = [result.pop("const")]
    return result
