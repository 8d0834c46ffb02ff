"""The Responses API, as strict as the real one: what it refuses, and how it answers.

Rules and words of its refusals, beside https://developers.openai.com/api/reference/resources/responses:
- calls and outputs: openai/codex#93 ("No tool output found"), continuedev/continue#10092 ("No tool call found")
- reasoning: vercel/ai#7099 (no following item), mastra-ai/mastra#8738 (no required reasoning)
- what it wrote: openai/codex#8145 (encrypted content), can1357/oh-my-pi#41 (items that are not stored)
- twice the same: vercel/ai#7883
"""

import json
from typing import Any

from tests.providers.strict.rules import (
    Api,
    Json,
    Refused,
    check_known,
    check_length,
    check_name,
    check_schema,
    openai_failure,
    openai_fault,
    refuse_unless,
)
from tests.providers.strict.script import Answer, Call, Fault, Part, Say, Think, halves

LONGEST_CALL_ID = 64
SAYS = ("output_text", "refusal")
TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."
HEARS = ("input_text", "input_image", "input_file")
NOT_FOUND = "Item with id '{}' not found. Items are not persisted when `store` is set to false."


class Responses(Api):
    """One account at OpenAI: it remembers the items that it wrote."""

    name = "openai"
    path = "/v1/responses"
    asked = "gpt-5.4"
    root = "/v1"

    def __init__(self) -> None:
        self._wrote: dict[str, Json] = {}
        self._reason_of: dict[str, str] = {}
        self._led_to: dict[str, str] = {}
        super().__init__()

    # -- what it refuses -----------------------------------------------------------------------

    def check(self, path: str, body: Json) -> None:
        from openai.types.responses.response_create_params import ResponseCreateParamsBase

        refuse_unless(path == self.path, f"Invalid URL (POST {path})", 404)
        check_known(body, {*ResponseCreateParamsBase.__annotations__, "stream"})
        for place, tool in enumerate(body.get("tools", ())):
            _check_tool(tool, f"tools[{place}]")
        items = body.get("input")
        refuse_unless(isinstance(items, list) and items, "Missing required parameter: 'input'.")
        self._check_items(items)

    def _check_items(self, items: list[Json]) -> None:
        seen: set[str] = set()
        made: set[str] = set()
        open_calls: dict[str, None] = {}
        for place, item in enumerate(items):
            self._check_identity(item, seen)
            match item.get("type", "message"):
                case "message":
                    if item.get("role") != "assistant":  # it may speak and think between calls
                        _refuse_open(open_calls)
                    _check_content(item.get("content"), SAYS if item.get("role") == "assistant" else HEARS)
                case "reasoning":
                    self._check_reasoning(item, items[place + 1 : place + 2])
                case "function_call":
                    _check_call(item, f"input[{place}]", made)
                    open_calls[item["call_id"]] = None
                case "function_call_output":
                    _check_output(item, open_calls)
                case other:
                    raise Refused(f"Invalid value: '{other}'.")
        _refuse_open(open_calls)

    def _check_identity(self, item: Json, seen: set[str]) -> None:
        """Refuse an item under an id that this account did not write, twice, or without its reasoning."""
        item_id = item.get("id")
        if item_id is None:
            return
        refuse_unless(item_id in self._wrote, NOT_FOUND.format(item_id), 404)
        refuse_unless(item_id not in seen, f"Duplicate item found with id {item_id}.")
        seen.add(item_id)
        reason = self._reason_of.get(item_id)
        words = f"Item '{item_id}' was provided without its required 'reasoning' item: '{reason}'."
        refuse_unless(reason is None or reason in seen, words)

    def _check_reasoning(self, item: Json, following: list[Json]) -> None:
        item_id, content = item.get("id"), item.get("encrypted_content")
        refuse_unless(item_id, "Missing required parameter: 'input.id'.")
        refuse_unless(content, NOT_FOUND.format(item_id), 404)
        same = content == self._wrote[str(item_id)].get("encrypted_content")
        refuse_unless(same, f"The encrypted content for item {item_id} could not be verified.")
        followed = following and following[0].get("id") == self._led_to.get(str(item_id))
        refuse_unless(followed, f"Item '{item_id}' was provided without its required following item.")

    # -- what it answers -----------------------------------------------------------------------

    def output(self, answer: Answer) -> list[Json]:
        """Write the items of an answer, and remember them."""
        items = [self._item(part) for part in answer.parts]
        if answer.ending == "length" and items:
            items[-1] = _cut(items[-1])
        reason = None
        for item in items:
            if reason is not None:
                self._reason_of[item["id"]] = reason
                self._led_to.setdefault(reason, item["id"])
            reason = item["id"] if item["type"] == "reasoning" else reason
            self._wrote[item["id"]] = item
        return items

    def _item(self, part: Part) -> Json:
        number = next(self._numbers)
        match part:
            case Think(text):
                summary = [{"type": "summary_text", "text": text}]
                secret = f"gAAAA-of-{number}-{text}"
                return {"id": f"rs_{number:04}", "type": "reasoning", "summary": summary, "encrypted_content": secret}
            case Say(text):
                content = [{"type": "output_text", "annotations": [], "logprobs": [], "text": text}]
                whole = {"type": "message", "status": "completed", "role": "assistant", "phase": "final_answer"}
                return {"id": f"msg_{number:04}", **whole, "content": content}
            case Call(name, arguments):
                whole = {"type": "function_call", "status": "completed", "arguments": arguments}
                return {"id": f"fc_{number:04}", **whole, "call_id": f"call_openai{number:04}", "name": name}

    def stream(self, answer: Answer) -> tuple[list[str], list[str]]:
        items = self.output(answer)
        head = {"id": f"resp_{next(self._numbers):04}", "object": "response", "output": [], "usage": None}
        events = [_event("response.created", response=head | {"status": "in_progress"})]
        rest: list[str] = []
        for place, item in enumerate(items):
            events += rest
            begin, rest = _item_events(place, item)
            events += begin
        return events, [*rest, _closing(answer, head | {"output": items})]

    def midway_failure(self) -> str:
        return _event("error", code="server_error", message="The server had an error.", param=None)

    def refusal(self, refused: Refused) -> Json:
        return openai_failure(str(refused))

    def failure(self, fault: Fault) -> Json:
        return openai_fault(fault, TOO_LONG)


def _check_tool(tool: Json, where: str) -> None:
    check_name(tool.get("name"), f"{where}.name")
    check_schema(tool.get("parameters"), tool["name"])
    closed = not tool.get("strict", True) or tool["parameters"].get("additionalProperties") is False
    refuse_unless(closed, f"Invalid schema for function '{tool['name']}': 'additionalProperties' is required.")


def _refuse_open(open_calls: dict[str, None]) -> None:
    refuse_unless(not open_calls, f"No tool output found for function call {', '.join(open_calls)}.")


def _check_content(content: Any, kinds: tuple[str, ...]) -> None:
    refuse_unless(content, "Missing required parameter: content or output.")
    for part in content if isinstance(content, list) else ():
        kind = part.get("type")
        refuse_unless(kind in kinds, f"Invalid value: '{kind}'. Supported values are: {', '.join(map(repr, kinds))}.")


def _check_call(item: Json, where: str, made: set[str]) -> None:
    check_name(item.get("name"), f"{where}.name")
    call_id = str(item.get("call_id") or "")
    refuse_unless(call_id not in ("", *made), f"Missing or duplicate 'call_id': {call_id}")
    check_length(call_id, LONGEST_CALL_ID, f"{where}.call_id")
    made.add(call_id)
    refuse_unless(isinstance(item.get("arguments"), str), f"Invalid type for '{where}.arguments': expected a string.")


def _check_output(item: Json, open_calls: dict[str, None]) -> None:
    call_id = str(item.get("call_id"))
    refuse_unless(call_id in open_calls, f"No tool call found for function call output with call_id {call_id}.")
    del open_calls[call_id]
    _check_content(item.get("output"), HEARS)


def _cut(item: Json) -> Json:
    """Leave half of an item, as the API does at a limit of length."""
    item = item | {"status": "incomplete"}
    if item["type"] == "function_call":
        item["arguments"] = halves(item["arguments"])[0]
    return item


def _event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def _item_events(place: int, item: Json) -> tuple[list[str], list[str]]:
    """Return the events of an item up to its middle, and the rest."""
    match item["type"]:
        case "message":
            kind, text = "output_text", item["content"][0]["text"]
        case "reasoning":
            kind, text = "reasoning_summary_text", item["summary"][0]["text"]
        case _:
            kind, text = "function_call_arguments", item["arguments"]
    first, second = (_event(f"response.{kind}.delta", output_index=place, delta=half) for half in halves(text))
    begin = _event("response.output_item.added", output_index=place, item=_started(item))
    return [begin, first], [second, _event("response.output_item.done", output_index=place, item=item)]


def _started(item: Json) -> Json:
    empty: dict[str, Json] = {
        "message": {"content": []},
        "reasoning": {"summary": [], "encrypted_content": "gAAAA-not-yet-whole"},
        "function_call": {"arguments": ""},
    }
    return item | empty[item["type"]] | ({} if item["type"] == "reasoning" else {"status": "in_progress"})


def _closing(answer: Answer, response: Json) -> str:
    details = {"input_tokens_details": {"cached_tokens": 10}, "output_tokens_details": {"reasoning_tokens": 5}}
    response = response | {"usage": {"input_tokens": 50, "output_tokens": 20, "total_tokens": 70, **details}}
    if answer.ending != "length":
        return _event("response.completed", response=response | {"status": "completed"})
    why = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return _event("response.incomplete", response=response | why)
