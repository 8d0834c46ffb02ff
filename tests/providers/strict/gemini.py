"""Gemini's `v1beta` streamGenerateContent, as strict as the real one: what it refuses, and how it answers.

Rules: https://ai.google.dev/gemini-api/docs/thought-signatures (which signatures must come back, and which word
stands in for one), https://ai.google.dev/gemini-api/docs/function-calling and
https://ai.google.dev/api/generate-content. Words of its refusals: google-gemini/gemini-cli#16543 (the number of
responses), #26486 and langchain-ai/langchain#27799 (their place), #13467 and lbjlaq/Antigravity-Manager#938
(signatures).
"""

import base64
import json
import re
from collections import Counter
from itertools import count
from typing import Any

from agentmagic.providers.base import Model
from tests.providers.loopback import sse
from tests.providers.strict.rules import Json, Refused, refuse_unless
from tests.providers.strict.script import Answer, Call, Fault, Odd, Part, Say, Think, halves

MODEL = "gemini-3.5-flash"
SKIPS = (b"skip_thought_signature_validator", b"context_engineering_is_the_way_to_go")
"""What Google documents for calls that Gemini did not make."""

LONGEST_NAME = 128
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]*")
FIELDS = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent"}
DATA = {"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"}
BESIDE_DATA = {"thought", "thoughtSignature", "videoMetadata", "partMetadata", "mediaResolution"}
UNKNOWN_KEYWORDS = {"$schema", "const", "examples", "exclusiveMinimum", "exclusiveMaximum", "discriminator"}

STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "CANCELLED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class Gemini:
    """One project at Google: it remembers the signatures that it wrote."""

    name = "gemini"
    path = f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"

    def __init__(self) -> None:
        self._signed: dict[bytes, str] = {}
        self._numbers = count(1)

    def model(self, url: str, key: str) -> Model:
        """Return the provider under test, pointed at a server."""
        from agentmagic.providers.gemini.gemini_model import Gemini as Provider

        return Provider(MODEL, base_url=url, api_key=key)

    # -- what it refuses -----------------------------------------------------------------------

    def check(self, path: str, body: Json) -> None:
        """Raise Refused for a request that the API would not take."""
        refuse_unless(path == self.path, f"models/{path} is not found for API version v1beta.", status=404)
        for name in body:
            words = f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
            refuse_unless(name in FIELDS, words)
        _check_config(body, _check_tools(body))
        _check_kind(body, path.rpartition("/")[2])
        contents = body.get("contents")
        words = "* GenerateContentRequest.contents: contents is not specified"
        refuse_unless(isinstance(contents, list) and contents, words)
        for place, content in enumerate(contents):
            _check_content(content, f"GenerateContentRequest.contents[{place}]")
        _check_turns(contents)
        self._check_signatures(contents)

    def learn(self, parts: list[Json]) -> None:
        """Remember the signatures of parts that the API wrote."""
        for part in parts:
            if "thoughtSignature" in part:
                self._signed[_decoded(part["thoughtSignature"])] = _what(part)

    def _check_signatures(self, contents: list[Json]) -> None:
        """Refuse a signature that is not as it was written, and the lack of one in the current turn.

        A turn begins with the newest content of the user that is more than function responses. In every step
        since then the first call must be signed.
        """
        for content in contents:
            for part in content["parts"]:
                self._check_signature(part)
        begins = max((place for place, content in enumerate(contents) if _is_prompt(content)), default=0)
        for place, content in enumerate(contents[begins:], begins):
            calls = [part for part in content["parts"] if "functionCall" in part]
            if calls and "thoughtSignature" not in calls[0]:
                name = calls[0]["functionCall"]["name"]
                words = (
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools "
                    f"to work correctly. Additional data, function call `default_api:{name}`, position {place + 1}."
                )
                raise Refused(words)

    def _check_signature(self, part: Json) -> None:
        if "thoughtSignature" not in part:
            return
        signature = _decoded(part["thoughtSignature"])
        if signature not in SKIPS:
            refuse_unless(self._signed.get(signature) == _what(part), "Corrupted thought signature.")

    # -- what it answers -----------------------------------------------------------------------

    def output(self, answer: Answer) -> list[Json]:
        """Write the parts of an answer, and remember their signatures."""
        parts = [self._part(part) for part in answer.parts]
        calls = [part for part in parts if "functionCall" in part]
        if calls:
            calls[0]["thoughtSignature"] = self._sign()
        elif answer.ending == "whole":
            parts.append({"text": "", "thoughtSignature": self._sign()})
        self.learn(parts)
        return parts

    def _sign(self) -> str:
        return base64.b64encode(b"signature \xff\xfe %d" % next(self._numbers)).decode()

    def _part(self, part: Part) -> Json:
        match part:
            case Think(text):
                return {"text": text, "thought": True}
            case Say(text):
                return {"text": text}
            case Call(name, arguments):
                return {
                    "functionCall": {"name": name, "args": json.loads(arguments), "id": f"g{next(self._numbers):07}"}
                }

    def stream(self, answer: Answer) -> tuple[list[str], list[str]]:
        """Return the chunks of an answer: all up to the middle of its last part, and the rest.

        A call comes in one chunk, so that a break before its end is a break before it.
        """
        if any(isinstance(part, Call) and not _is_object(part.arguments) for part in answer.parts):
            return [], [self.odd(Odd("malformed"))]
        chunks = [chunk for part in self.output(answer) for chunk in _pieces(part)]
        if answer.ending == "length":
            return [_chunk(part) for part in chunks], [_chunk({"text": ""}, reason="MAX_TOKENS")]
        *begin, last = chunks
        return [_chunk(part) for part in begin], [_chunk(last), _chunk({"text": ""}, reason="STOP")]

    def odd(self, odd: Odd) -> str:
        """Return the stream of an answer that only Gemini gives."""
        usage = {"usageMetadata": {"promptTokenCount": 50, "totalTokenCount": 50}}
        match odd.kind:
            case "blocked":
                return sse({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, **usage})
            case "malformed":
                words = "Malformed function call: print(default_api.clock(zone='UTC'"
                end = {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": words, "index": 0}
                return sse({"candidates": [{"content": {}, **end}], **usage})
            case _:
                return sse(usage)

    def midway_failure(self) -> str:
        """Return a chunk that reports a failure of the server."""
        return sse(self.failure(Fault(503)))

    def refusal(self, refused: Refused) -> Json:
        """Write why a request was refused."""
        return _error(refused.status, str(refused))

    def failure(self, fault: Fault) -> Json:
        """Write the body of a fault: https://ai.google.dev/gemini-api/docs/troubleshooting."""
        match fault.kind, fault.status:
            case "too_long", _:
                words = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
            case "no_model", _:
                words = f"models/{MODEL} is not found for API version v1beta, or is not supported."
            case "quota", _:
                words = "You exceeded your current quota, please check your plan and billing details."
            case _, 503 | 529:
                words = "The model is overloaded. Please try again later."
            case _, status:
                words = f"The request failed with {status}."
        return _error(fault.status, words, retry_after=fault.retry_after)


def _error(status: int, message: str, *, retry_after: str = "") -> Json:
    """Write an error as Google does, with the seconds to wait among its details: https://google.aip.dev/193."""
    error: Json = {"code": status, "message": message, "status": STATUS.get(status, "UNKNOWN")}
    if retry_after:
        retry_info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{retry_after}s"}
        error["details"] = [retry_info]
    return {"error": error}


def _is_name(name: object) -> bool:
    return isinstance(name, str) and len(name) <= LONGEST_NAME and NAME.fullmatch(name) is not None


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def _pieces(part: Json) -> list[Json]:
    if not part.get("text") or "thoughtSignature" in part:
        return [part]
    return [part | {"text": half} for half in halves(part["text"]) if half]


def _chunk(part: Json, *, reason: str = "") -> str:
    candidate: Json = {"content": {"parts": [part], "role": "model"}, "index": 0}
    usage = {"promptTokenCount": 50, "candidatesTokenCount": 15, "thoughtsTokenCount": 5, "totalTokenCount": 70}
    return sse({"candidates": [candidate | ({"finishReason": reason} if reason else {})], "usageMetadata": usage})


def _decoded(signature: str) -> bytes:
    """Read a signature in either alphabet of base64: the SDK writes the other one than the API."""
    try:
        return base64.b64decode(signature.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError as error:
        message = "Invalid value at 'contents.parts.thought_signature' (TYPE_BYTES), Base64 decoding failed."
        raise Refused(message) from error


def _what(part: Json) -> str:
    """Name the part that a signature was written for: a call by its id, since its name may be mended."""
    call = part.get("functionCall")
    return f"call {call.get('id')}" if call else "words"


def _is_prompt(content: Json) -> bool:
    return content["role"] == "user" and any("functionResponse" not in part for part in content["parts"])


def _check_content(content: Any, where: str) -> None:
    refuse_unless(isinstance(content, dict), f"Invalid value at '{where}'.")
    refuse_unless(content.get("role") in ("user", "model"), "Please use a valid role: user, model.")
    parts = content.get("parts")
    refuse_unless(isinstance(parts, list) and parts, f"* {where}.parts: contents.parts must not be empty.")
    for place, part in enumerate(parts):
        _check_part(part, f"{where}.parts[{place}]")


def _check_part(part: Any, where: str) -> None:
    refuse_unless(isinstance(part, dict), f"Invalid value at '{where}'.")
    for name in part:
        words = f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field."
        refuse_unless(name in DATA | BESIDE_DATA, words)
    kinds = DATA & part.keys()
    empty = kinds == {"text"} and not part["text"] and "thoughtSignature" not in part
    words = f"* {where}.data: required oneof field 'data' must have one initialized field"
    refuse_unless(len(kinds) == 1 and not empty, words)
    for kind in kinds & {"functionCall", "functionResponse"}:
        name = part[kind].get("name")
        words = f"* {where}.{kind}.name: Invalid function name {name!r}."
        refuse_unless(_is_name(name), words)
        inner = part[kind].get("args" if kind == "functionCall" else "response", {})
        refuse_unless(isinstance(inner, dict), f"Invalid value at '{where}.{kind}' (TYPE_STRUCT).")


def _check_turns(contents: list[Json]) -> None:
    words = (
        "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
    )
    refuse_unless(contents[0]["role"] == "user", words)
    words = "Please ensure that multiturn requests ends with a user role or a function response."
    refuse_unless(contents[-1]["role"] == "user", words)
    waiting: Counter[tuple[str, str]] = Counter()
    before = None
    for content in contents:
        calls = _named(content, "functionCall", "model")
        responses = _named(content, "functionResponse", "user")
        words = "Please ensure that function response turn comes immediately after a function call turn."
        refuse_unless(not responses or waiting, words)
        words = "Please ensure that the number of function response parts is equal to the number of function call parts"
        refuse_unless(responses.total() == waiting.total(), f"{words} of the function call turn.")
        refuse_unless(
            responses == waiting, "Please ensure that function responses match the ids of the function calls."
        )
        words = "Please ensure that function call turn comes immediately after a user turn or after a function response"
        refuse_unless(not calls or before == "user", f"{words} turn.")
        refuse_unless(not calls or max(calls.values()) == 1, "Please ensure that the ids of function calls are unique.")
        waiting, before = calls, content["role"]


def _named(content: Json, kind: str, role: str) -> "Counter[tuple[str, str]]":
    """Count the calls or responses of a content by name and id."""
    found = [part[kind] for part in content["parts"] if kind in part]
    refuse_unless(not found or content["role"] == role, f"Please use a valid role: {kind} belongs to {role}.")
    return Counter((entry["name"], entry.get("id", "")) for entry in found)


def _check_tools(body: Json) -> set[str]:
    declared = [entry for tool in body.get("tools", ()) for entry in tool.get("functionDeclarations", ())]
    for place, entry in enumerate(declared):
        where = f"GenerateContentRequest.tools[0].function_declarations[{place}]"
        name = entry.get("name", "")
        words = (
            f"* {where}.name: Invalid function name. Must start with a letter or an underscore. Must be alphanumeric "
            "(a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 128."
        )
        refuse_unless(_is_name(name), words)
        both = "parameters" in entry and "parametersJsonSchema" in entry
        refuse_unless(not both, f"* {where}: parameters and parametersJsonSchema are mutually exclusive.")
        _check_schema(entry.get("parametersJsonSchema", {"type": "object"}), where)
    names = [entry["name"] for entry in declared]
    for name in names:
        refuse_unless(names.count(name) == 1, f"Duplicate function declaration found: {name}")
    return set(names)


def _check_schema(schema: Any, where: str) -> None:
    words = f"* {where}.parameters_json_schema: functionDeclaration parameters schema should be of type OBJECT."
    refuse_unless(isinstance(schema, dict) and schema.get("type") == "object", words)
    for keyword in UNKNOWN_KEYWORDS & schema.keys():
        raise Refused(f"* {where}.parameters_json_schema: Unknown keyword {keyword!r}.")
    for inner in (schema.get("properties") or {}).values():
        for keyword in UNKNOWN_KEYWORDS & inner.keys():
            raise Refused(f"* {where}.parameters_json_schema: Unknown keyword {keyword!r}.")


def _check_kind(body: Json, model: str) -> None:
    """Refuse what a kind of model does not do: https://ai.google.dev/gemini-api/docs/models."""
    config = body.get("generationConfig", {})
    thinks = re.match(r"gemini-(2\.5|3)(?!.*image)", model)
    words = "Thinking is not enabled for this model."
    refuse_unless(thinks or "thinkingConfig" not in config, words)
    words = "Developer instruction is not enabled for this model."
    refuse_unless("systemInstruction" not in body or not re.match("gemma-[1-3]", model), words)
    by_level = model.startswith("gemini-3")
    words = "Thinking level is not supported for this model."
    refuse_unless(by_level or "thinkingLevel" not in config.get("thinkingConfig", {}), words)
    if "responseMimeType" in config:
        refuse_unless(not model.startswith("gemma"), "JSON mode is not enabled for this model.")
        words = "Function calling with a response mime type: 'application/json' is unsupported"
        refuse_unless(by_level or "tools" not in body, words)


def _check_config(body: Json, declared: set[str]) -> None:
    config = body.get("toolConfig", {}).get("functionCallingConfig", {})
    mode, allowed = config.get("mode", "AUTO"), config.get("allowedFunctionNames", [])
    refuse_unless(mode in ("AUTO", "ANY", "NONE", "VALIDATED"), f"Invalid value at 'tool_config.mode': {mode!r}")
    words = "Function calling config is set without function_declarations."
    refuse_unless(not config or declared, words)
    words = "allowed_function_names should be set only when function calling mode is ANY."
    refuse_unless(not allowed or mode in ("ANY", "VALIDATED"), words)
    for name in allowed:
        refuse_unless(name in declared, f"allowed_function_names: {name!r} is not a declared function.")
