"""Ollama's own API, as strict as the real one: what it refuses, and how it answers.

The server is written in Go and refuses JSON of other types than those of its requests:
https://github.com/ollama/ollama/blob/main/api/types.go; words of its refusals: server/routes.go, the same place.
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.providers.strict.rules import Api, Json, Refused, refuse_unless
from tests.providers.strict.script import Answer, Call, Fault, Say, Think, halves

FIELDS = {"model", "messages", "stream", "format", "keep_alive", "tools", "options", "think", "truncate", "shift"}
ROLES = ("system", "user", "assistant", "tool")


class Ollama(Api):
    """A server of Ollama's API, which has one model; it runs a conversation only if it fits the context."""

    name = "ollama"
    path = "/api/chat"
    asked = "qwen3"

    # -- what it refuses -----------------------------------------------------------------------

    def check(self, path: str, body: Json) -> None:
        refuse_unless(path == self.path, "404 page not found", 404)
        for name in body:
            refuse_unless(name in FIELDS, f"the test does not know the field {name}")
        refuse_unless(body.get("model"), "model is required")
        _typed(body.get("messages"), list, "messages", "[]api.Message")
        for message in body["messages"]:
            _check_message(message)
        for tool in body.get("tools", ()):
            _check_tool(tool)
        sized = _typed(body.get("options", {}), dict, "options", "map").get("num_ctx", 0) >= 4096
        refuse_unless(sized, "the test wants the size of the context to be set")
        # What the real server does in place of a refusal, and what must not happen: it cuts the conversation.
        refuse_unless(body.get("truncate") is False, "the front of the conversation may be cut")
        refuse_unless(body.get("shift") is False, "the front of the context may be cut")

    # -- what it answers -----------------------------------------------------------------------

    def output(self, answer: Answer) -> Json:
        """Write the message of an answer."""
        message: Json = {"role": "assistant", "content": ""}
        for part in answer.parts:
            match part:
                case Say(text):
                    message["content"] += text
                case Think(text):
                    message["thinking"] = message.get("thinking", "") + text
                case Call(name, arguments):
                    message.setdefault("tool_calls", []).append(self._call(name, arguments))
        return message

    def stream(self, answer: Answer) -> tuple[list[str], list[str]]:
        # A call comes in one line, so that a break before its end is a break before it.
        pieces = [piece for part in answer.parts for piece in self._pieces(part)]
        reason = "length" if answer.ending == "length" else "stop"
        end = {"done": True, "done_reason": reason, "prompt_eval_count": 50, "eval_count": 20, "load_duration": 7}
        closing = _line({"role": "assistant", "content": ""}, **end)
        if answer.ending == "length":
            return pieces, [closing]
        begin, rest = pieces[:-1], pieces[-1:]
        if not begin:  # a line without a word, as the server sends it while it reads a call
            begin = [_line({"role": "assistant", "content": ""})]
        return begin, [*rest, closing]

    def midway_failure(self) -> str:
        return json.dumps({"error": "an error was encountered while running the model: unexpected EOF"}) + "\n"

    def refusal(self, refused: Refused) -> Json:
        return {"error": str(refused)}

    def failure(self, fault: Fault) -> Json:
        too_long = "the prompt is longer than the context length currently available to the model; shorten it"
        return {"error": too_long if fault.kind == "too_long" else "server busy, please try again."}

    def _pieces(self, part: Say | Think | Call) -> Iterator[str]:
        said = {"role": "assistant", "content": ""}
        match part:
            case Say(text):
                yield from (_line(said | {"content": half}) for half in halves(text))
            case Think(text):
                yield from (_line(said | {"thinking": half}) for half in halves(text))
            case Call(name, arguments):
                yield _line(said | {"tool_calls": [self._call(name, arguments)]})

    def _call(self, name: str, arguments: str) -> Json:
        function = {"index": 0, "name": name, "arguments": json.loads(arguments)}
        return {"id": f"call_ollama{next(self._numbers)}", "function": function}


def _line(message: Json, **more: Any) -> str:
    line = {"model": "qwen3", "created_at": "2026-08-21T18:48:22Z", "message": message, "done": False} | more
    return json.dumps(line) + "\n"


def _typed(value: Any, kind: type, where: str, go: str) -> Any:
    """Refuse a value of another type, as Go does; null is the empty value of every type."""
    name = {dict: "object", list: "array", str: "string", bool: "bool"}.get(type(value), "number")
    words = f"json: cannot unmarshal {name} into Go struct field ChatRequest.{where} of type {go}"
    refuse_unless(value is None or isinstance(value, kind), words)
    return kind() if value is None else value


def _check_message(message: Any) -> None:
    _typed(message, dict, "messages", "api.Message")
    refuse_unless(message.get("role") in ROLES, f"invalid role: {message.get('role')}, must be one of {ROLES}")
    for name in ("content", "thinking", "tool_name", "tool_call_id"):
        _typed(message.get(name), str, f"messages.{name}", "string")
    for call in _typed(message.get("tool_calls"), list, "messages.tool_calls", "[]api.ToolCall"):
        _typed(call.get("id"), str, "messages.tool_calls.id", "string")
        function = _typed(call.get("function"), dict, "messages.tool_calls.function", "api.ToolCallFunction")
        _typed(function.get("name"), str, "messages.tool_calls.function.name", "string")
        _typed(function.get("arguments"), dict, "messages.tool_calls.function.arguments", "map[string]interface {}")


def _check_tool(tool: Any) -> None:
    refuse_unless(tool.get("type") == "function", "the test does not know this type of tool")
    function = _typed(tool.get("function"), dict, "tools.function", "api.ToolFunction")
    parameters = _typed(function.get("parameters"), dict, "tools.function.parameters", "api.ToolFunctionParameters")
    _typed(parameters.get("type"), str, "tools.function.parameters.type", "string")
    _typed(parameters.get("required"), list, "tools.function.parameters.required", "[]string")
    for schema in _typed(parameters.get("properties"), dict, "tools.function.parameters.properties", "map").values():
        _check_property(schema, "tools.function.parameters.properties")


def _check_property(schema: Any, where: str) -> None:
    _typed(schema, dict, where, "api.ToolProperty")
    _typed(schema.get("type"), list if isinstance(schema.get("type"), list) else str, f"{where}.type", "PropertyType")
    _typed(schema.get("enum"), list, f"{where}.enum", "[]interface {}")
    _typed(schema.get("description"), str, f"{where}.description", "string")
    for inner in _typed(schema.get("anyOf"), list, f"{where}.anyOf", "[]api.ToolProperty"):
        _check_property(inner, f"{where}.anyOf")
    for inner in _typed(schema.get("properties"), dict, f"{where}.properties", "map").values():
        _check_property(inner, f"{where}.properties")
