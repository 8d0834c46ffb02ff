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

from tests.providers.loopback import sse
from tests.providers.strict.rules import Api, Json, Refused, refuse_unless
from tests.providers.strict.script import Answer, Call, Fault, Part, Say, Think, halves

MODEL = "gemini-3.5-flash"
SKIPS = (b"skip_thought_signature_validator", b"context_engineering_is_the_way_to_go")
"""What Google documents for calls that Gemini did not make."""

LONGEST_NAME = 128
NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]*")
FIELDS = {"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings", "cachedContent"}
DATA = {"text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"}
UNKNOWN_KEYWORDS = {"$schema", "const", "examples", "exclusiveMinimum", "exclusiveMaximum", "discriminator"}


class Gemini(Api):
    """One project at Google: it remembers the signatures that it wrote."""

    name = "gemini"
    path = f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
    asked = MODEL

    def __init__(self) -> None:
        self._signed: dict[bytes, str] = {}
        super().__init__()

    # -- what it refuses -----------------------------------------------------------------------

    def check(self, path: str, body: Json) -> None:
        refuse_unless(path == self.path, f"models/{path} is not found for API version v1beta.", 404)
        for name in body:
            refuse_unless(name in FIELDS, f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.')
        _check_tools(body)
        _check_kind(body, path.rpartition("/")[2])
        contents = body.get("contents")
        refuse_unless(isinstance(contents, list) and contents, "* contents: contents is not specified")
        for place, content in enumerate(contents):
            _check_content(content, f"contents[{place}]")
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
        for part in (part for content in contents for part in content["parts"] if "thoughtSignature" in part):
            signature = _decoded(part["thoughtSignature"])
            known = signature in SKIPS or self._signed.get(signature) == _what(part)
            refuse_unless(known, "Corrupted thought signature.")
        begins = max((place for place, content in enumerate(contents) if _is_prompt(content)), default=0)
        for place, content in enumerate(contents[begins:], begins):
            calls = [part for part in content["parts"] if "functionCall" in part]
            signed = not calls or "thoughtSignature" in calls[0]
            refuse_unless(signed, f"Function call is missing a thought_signature in functionCall parts, {place + 1}.")

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
                made = {"name": name, "args": json.loads(arguments), "id": f"g{next(self._numbers):07}"}
                return {"functionCall": made}

    def stream(self, answer: Answer) -> tuple[list[str], list[str]]:
        # A call comes in one chunk, so that a break before its end is a break before it.
        chunks = [chunk for part in self.output(answer) for chunk in _pieces(part)]
        if answer.ending == "length":
            return [_chunk(part) for part in chunks], [_chunk({"text": ""}, reason="MAX_TOKENS")]
        *begin, last = chunks
        return [_chunk(part) for part in begin], [_chunk(last), _chunk({"text": ""}, reason="STOP")]

    def midway_failure(self) -> str:
        return sse(self.failure(Fault(503)))

    def refusal(self, refused: Refused) -> Json:
        return _error(refused.status, str(refused))

    def failure(self, fault: Fault) -> Json:
        """Write the body of a fault: https://ai.google.dev/gemini-api/docs/troubleshooting."""
        words = f"The request failed with {fault.status}."
        if fault.kind == "too_long":
            words = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
        return _error(fault.status, words, retry_after=fault.retry_after)


def _error(status: int, message: str, *, retry_after: str = "") -> Json:
    """Write an error as Google does, with the seconds to wait among its details: https://google.aip.dev/193."""
    wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{retry_after}s"}
    return {"error": {"code": status, "message": message, "details": [wait] if retry_after else []}}


def _is_name(name: object) -> bool:
    return isinstance(name, str) and len(name) <= LONGEST_NAME and NAME.fullmatch(name) is not None


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


def _check_content(content: Json, where: str) -> None:
    refuse_unless(content.get("role") in ("user", "model"), "Please use a valid role: user, model.")
    refuse_unless(content.get("parts"), f"* {where}.parts: contents.parts must not be empty.")
    for part in content["parts"]:
        kinds = DATA & part.keys()
        empty = kinds == {"text"} and not part["text"] and "thoughtSignature" not in part
        refuse_unless(len(kinds) == 1 and not empty, f"* {where}: oneof field 'data' must have one initialized field")
        for kind in kinds & {"functionCall", "functionResponse"}:
            name, inner = part[kind].get("name"), part[kind].get("args" if kind == "functionCall" else "response", {})
            refuse_unless(_is_name(name), f"* {where}.{kind}.name: Invalid function name {name!r}.")
            refuse_unless(isinstance(inner, dict), f"Invalid value at '{where}.{kind}' (TYPE_STRUCT).")


def _check_turns(contents: list[Json]) -> None:
    after = "comes immediately after a user turn or after a function response turn."
    refuse_unless(contents[0]["role"] == "user", f"Please ensure that function call turn {after}")
    words = "Please ensure that multiturn requests ends with a user role or a function response."
    refuse_unless(contents[-1]["role"] == "user", words)
    waiting: Counter[tuple[str, str]] = Counter()
    before = None
    for content in contents:
        calls = _named(content, "functionCall", "model")
        responses = _named(content, "functionResponse", "user")
        words = "Please ensure that function response turn comes immediately after a function call turn."
        refuse_unless(not responses or waiting, words)
        words = "Please ensure that the number of function response parts is equal to that of function call parts."
        refuse_unless(responses.total() == waiting.total(), words)
        words = "Please ensure that function responses match the ids of the function calls."
        refuse_unless(responses == waiting, words)
        refuse_unless(not calls or before == "user", f"Please ensure that function call turn {after}")
        refuse_unless(not calls or max(calls.values()) == 1, "Please ensure that the ids of function calls are unique.")
        waiting, before = calls, content["role"]


def _named(content: Json, kind: str, role: str) -> "Counter[tuple[str, str]]":
    """Count the calls or responses of a content by name and id."""
    found = [part[kind] for part in content["parts"] if kind in part]
    refuse_unless(not found or content["role"] == role, f"Please use a valid role: {kind} belongs to {role}.")
    return Counter((entry["name"], entry.get("id", "")) for entry in found)


def _check_tools(body: Json) -> None:
    declared = [entry for tool in body.get("tools", ()) for entry in tool.get("functionDeclarations", ())]
    for place, entry in enumerate(declared):
        where = f"tools[0].function_declarations[{place}]"
        refuse_unless(_is_name(entry.get("name", "")), f"* {where}.name: Invalid function name.")
        _check_schema(entry.get("parametersJsonSchema", {"type": "object"}), where)


def _check_schema(schema: Json, where: str) -> None:
    is_object = isinstance(schema, dict) and schema.get("type") == "object"
    refuse_unless(is_object, f"* {where}: functionDeclaration parameters schema should be of type OBJECT.")
    for inner in (schema, *(schema.get("properties") or {}).values()):
        for keyword in UNKNOWN_KEYWORDS & inner.keys():
            raise Refused(f"* {where}.parameters_json_schema: Unknown keyword {keyword!r}.")


def _check_kind(body: Json, model: str) -> None:
    """Refuse what a kind of model does not do: https://ai.google.dev/gemini-api/docs/models."""
    config = body.get("generationConfig", {})
    thinks = re.match(r"gemini-(2\.5|3)(?!.*image)", model)
    refuse_unless(thinks or "thinkingConfig" not in config, "Thinking is not enabled for this model.")
    instructed = "systemInstruction" in body
    refuse_unless(not instructed or not re.match("gemma-[1-3]", model), "Developer instruction is not enabled.")
    by_level, level = model.startswith("gemini-3"), "thinkingLevel" in config.get("thinkingConfig", {})
    refuse_unless(by_level or not level, "Thinking level is not supported for this model.")
    if "responseMimeType" in config:
        refuse_unless(not model.startswith("gemma"), "JSON mode is not enabled for this model.")
        refuse_unless(by_level or "tools" not in body, "Function calling with a response mime type is unsupported")
