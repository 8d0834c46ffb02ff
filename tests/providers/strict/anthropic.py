"""Anthropic's Messages API, as strict as the real one: what it refuses, and how it answers.

Rules: https://platform.claude.com/docs/en/api/messages, and under https://platform.claude.com/docs/en the pages
agents-and-tools/tool-use/handle-tool-calls, build-with-claude/thinking and build-with-claude/preserved-thinking. Words
of its refusals: anthropics/claude-code#1237 (results), #63265 (changed thoughts), anomalyco/opencode#48637 (thoughts of
another conversation), posit-dev/chatlas#10 (empty content).
"""

import json
import re
from base64 import b64encode
from typing import Any

from tests.providers.strict.rules import Api, Json, Refused, refuse_unless
from tests.providers.strict.script import Answer, Call, Fault, Part, Say, Think, halves

MODEL = "claude-sonnet-5-5"
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
THOUGHTS = ("thinking", "redacted_thinking")
BLOCKS = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": ("text", "tool_use", *THOUGHTS),
    "system": ("text",),
    "tool_result": ("text", "image", "document"),
}


class Anthropic(Api):
    """One account: it remembers the thoughts that it signed, and what stood before each."""

    name = "anthropic"
    path = "/v1/messages"
    asked = MODEL

    def __init__(self) -> None:
        self._signed: dict[str, tuple[Json, str]] = {}
        self._thoughts_of: dict[str, list[Json]] = {}
        self._asked = ""
        super().__init__()

    # -- what it refuses -----------------------------------------------------------------------

    def check(self, path: str, body: Json) -> None:
        from anthropic.types.message_create_params import MessageCreateParamsBase

        refuse_unless(path == self.path, "Not Found", 404)
        known = {*MessageCreateParamsBase.__annotations__, "stream"}
        known |= {"temperature"} if "/" in str(body.get("model")) else set()  # of servers with other models
        for name in body:
            refuse_unless(name in known, f"{name}: Extra inputs are not permitted")
        _check_head(body)
        _check_tools(body)
        messages = body.get("messages")
        refuse_unless(isinstance(messages, list) and messages, "messages: Field required")
        for place, message in enumerate(messages):
            _check_message(message, f"messages.{place}")
        turns = _turns(messages)
        _check_turns(turns)
        self._check_thoughts(body, turns)
        self._asked = _prefix(body, turns)

    def _check_thoughts(self, body: Json, turns: list[Json]) -> None:
        binding = body.get("thinking", {}).get("block_binding", {}).get("prefix_mismatch_behavior")
        for place, turn in enumerate(turns):
            for block in turn["content"]:
                if block["type"] in THOUGHTS:
                    self._check_thought(block, "" if binding else _prefix(body, turns[:place]))
        latest = next((turn for turn in reversed(turns) if turn["role"] == "assistant"), {"content": []})
        thoughts = [block for block in latest["content"] if block["type"] in THOUGHTS]
        for block in latest["content"]:
            words = "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified."
            wanted = self._thoughts_of.get(block.get("id", ""), [])
            refuse_unless(all(_plain(thought) in map(_plain, thoughts) for thought in wanted), words)

    def _check_thought(self, block: Json, before: str) -> None:
        wrote, asked = self._signed.get(block.get("signature") or block.get("data") or "", ({}, ""))
        refuse_unless(_plain(block) == wrote, "Invalid `signature` in `thinking` block")
        bound = not before or not asked or before == asked
        refuse_unless(bound, "The `thinking` block is bound to a different conversation. Remove the block.")

    # -- what it answers -----------------------------------------------------------------------

    def output(self, answer: Answer) -> list[Json]:
        """Write the content of an answer, and remember its thoughts; one that follows a call comes redacted."""
        blocks: list[Json] = []
        for part in answer.parts:
            blocks.append(self._block(part, redacted=any(block["type"] == "tool_use" for block in blocks)))
        thoughts = [block for block in blocks if block["type"] in THOUGHTS]
        for block in thoughts:
            self._signed[block.get("signature") or block["data"]] = (block, self._asked)
        self._asked = ""
        for place, block in enumerate(blocks):
            if block["type"] == "tool_use":
                self._thoughts_of[block["id"]] = [thought for thought in blocks[:place] if thought in thoughts]
        return blocks

    def _block(self, part: Part, *, redacted: bool) -> Json:
        signature = b64encode(b"signature %d" % next(self._numbers)).decode()
        match part:
            case Think() if redacted:
                return {"type": "redacted_thinking", "data": signature}
            case Think(text):
                return {"type": "thinking", "thinking": text, "signature": signature}
            case Say(text):
                return {"type": "text", "text": text}
            case Call(name, arguments):
                call_id = f"toolu_{next(self._numbers):07}"
                block = {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)}
                return block | {"caller": {"type": "direct"}}

    def stream(self, answer: Answer) -> tuple[list[str], list[str]]:
        blocks = self.output(answer)
        reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
        events = [_START, event({"type": "ping"})]
        ends: list[str] = []
        for place, block in enumerate(blocks):
            begin, ends = _streamed(place, block)
            events += [*begin, *(ends if place < len(blocks) - 1 else ())]
        if answer.ending == "length":  # what would have come after the middle never comes
            ends, reason = [event({"type": "content_block_stop", "index": len(blocks) - 1})], "max_tokens"
        return events, [*ends, *_closing(reason)]

    def midway_failure(self) -> str:
        return event(_error("overloaded_error", "Overloaded"))

    def refusal(self, refused: Refused) -> Json:
        return _error("invalid_request_error", str(refused))

    def failure(self, fault: Fault) -> Json:
        """Write the body of a fault: https://platform.claude.com/docs/en/api/errors."""
        words = f"The request failed with {fault.status}."
        if fault.kind == "too_long":
            words = "prompt is too long: 1000010 tokens > 1000000 maximum"
        return _error("api_error" if fault.status >= 500 else "invalid_request_error", words)


def event(data: Json) -> str:
    """Write one server-sent event."""
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n"


def _closing(reason: str) -> list[str]:
    usage = {"output_tokens": 20, "output_tokens_details": {"thinking_tokens": 5}, "input_tokens": None}
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [event({"type": "message_delta", "delta": delta, "usage": usage}), event({"type": "message_stop"})]


_USAGE = {"input_tokens": 20, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 20, "output_tokens": 1}
_MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": [], "stop_reason": None}
_START = event({"type": "message_start", "message": {**_MESSAGE, "usage": _USAGE}})


def _streamed(place: int, block: Json) -> tuple[list[str], list[str]]:
    """Return the events of a block: those up to its middle, and the rest."""
    kind = block["type"]
    empty, delta, key = {
        "text": ({"text": ""}, "text_delta", "text"),
        "thinking": ({"thinking": "", "signature": ""}, "thinking_delta", "thinking"),
        "tool_use": ({"input": {}}, "input_json_delta", "partial_json"),
        "redacted_thinking": ({}, "", ""),
    }[kind]
    text = json.dumps(block["input"]) if kind == "tool_use" else block.get(key, "")
    deltas = [{"type": delta, key: half} for half in halves(text)] if delta else []
    if kind == "thinking":
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    pieces = [event({"type": "content_block_delta", "index": place, "delta": delta}) for delta in deltas]
    begin = [event({"type": "content_block_start", "index": place, "content_block": block | empty}), *pieces[:1]]
    return begin, [*pieces[1:], event({"type": "content_block_stop", "index": place})]


def _error(kind: str, message: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def _plain(block: Json) -> Json:
    return {name: value for name, value in block.items() if name != "cache_control"}


def _prefix(body: Json, turns: list[Json]) -> str:
    """Return all that stands before an answer: what its thoughts are bound to."""
    head = [[_plain(block) for block in body.get(name, ())] for name in ("system", "tools")]
    return json.dumps([*head, *([_plain(block) for block in turn["content"]] for turn in turns)])


def _check_head(body: Json) -> None:
    for name in ("model", "max_tokens"):
        refuse_unless(body.get(name), f"{name}: Field required")
    kind = body.get("thinking", {}).get("type", "adaptive")
    refuse_unless(kind in ("adaptive", "between_tools"), f'"thinking.type.{kind}" is not supported for this model.')
    for block in body.get("system", ()):
        _check_block(block, "system", "system")
    schema = body.get("output_config", {}).get("format", {}).get("schema")
    closed = schema is None or schema.get("additionalProperties") is False
    refuse_unless(closed, "output_config.format.schema: 'additionalProperties' must be explicitly set to false")
    marks = json.dumps(body).count('"cache_control"')
    refuse_unless(marks <= 4, f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")


def _check_tools(body: Json) -> None:
    tools = body.get("tools", [])
    for place, tool in enumerate(tools):
        where = f"tools.{place}.custom"
        _check_name(tool.get("name"), f"{where}.name")
        is_object = (tool.get("input_schema") or {}).get("type") == "object"
        refuse_unless(is_object, f"{where}.input_schema.type: Field required")
    names = {tool["name"] for tool in tools}
    refuse_unless(len(names) == len(tools), "tools: Tool names must be unique.")


def _check_name(name: object, where: str) -> None:
    refuse_unless(NAME.fullmatch(str(name or "")), f"{where}: String should match pattern '^{NAME.pattern}$'")


def _check_message(message: Json, where: str) -> None:
    role, content = message.get("role"), message.get("content") or []
    refuse_unless(role in ("user", "assistant"), f'{where}.role: Unexpected role "{role}".')
    refuse_unless(isinstance(content, list) and content, f"{where}: all messages must have non-empty content")
    for place, block in enumerate(content):
        _check_block(block, role, f"{where}.content.{place}")
    last = content[-1]["type"]
    refuse_unless(last not in THOUGHTS, f"{where}: The final block in an assistant message cannot be `{last}`.")


def _check_block(block: Json, role: Any, where: str) -> None:
    kind = block.get("type")
    refuse_unless(kind in BLOCKS[role], f"{where}: Input tag '{kind}' found does not match any of the expected tags")
    match kind:
        case "text":
            words = f"{where}: text content blocks must contain non-whitespace text"
            refuse_unless(block.get("text", "").strip(), words)
        case "tool_use":
            _check_name(block.get("id"), f"{where}.tool_use.id")
            _check_name(block.get("name"), f"{where}.tool_use.name")
            refuse_unless(isinstance(block.get("input"), dict), f"{where}.tool_use.input: Input should be an object")
        case "tool_result":
            for inner in block.get("content", ()):
                _check_block(inner, "tool_result", where)
                plain = inner["type"] == "text" or not block.get("is_error")
                refuse_unless(plain, f'{where}: all content must be type "text" if `is_error` is true')


def _turns(messages: list[Json]) -> list[Json]:
    """Return the messages with those of one role in a row combined, as the API reads them."""
    turns: list[Json] = []
    for message in messages:
        if turns and turns[-1]["role"] == message["role"]:
            turns[-1] = {**message, "content": [*turns[-1]["content"], *message["content"]]}
        else:
            turns.append(message)
    return turns


def _check_turns(turns: list[Json]) -> None:
    refuse_unless(turns[0]["role"] == "user", 'messages: first message must use the "user" role')
    refuse_unless(turns[-1]["role"] == "user", "This model does not support assistant message prefill.")
    ids = [block["id"] for turn in turns for block in turn["content"] if block["type"] == "tool_use"]
    refuse_unless(len(set(ids)) == len(ids), "messages: `tool_use` ids must be unique")
    waiting: set[str] = set()
    for turn in turns:
        kinds = [block["type"] for block in turn["content"]]
        results = [block["tool_use_id"] for block in turn["content"] if block["type"] == "tool_result"]
        missing = waiting - set(results if kinds[: len(results)] == ["tool_result"] * len(results) else ())
        refuse_unless(not missing, f"`tool_use` ids were found without `tool_result` blocks after: {missing}")
        refuse_unless(len(set(results)) == len(results), "each tool_use must have a single result.")
        strange = set(results) - waiting
        refuse_unless(not strange, f"unexpected `tool_use_id` found in `tool_result` blocks: {strange}")
        waiting = {block["id"] for block in turn["content"] if block["type"] == "tool_use"}
