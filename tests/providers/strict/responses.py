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
    check_choice,
    check_known,
    check_length,
    check_name,
    check_schema,
    check_strict,
    openai_failure,
    refuse_unless,
)
from tests.providers.strict.script import Answer, Call, Fault, Odd, Part, Say, Think, halves

LONGEST_CALL_ID = 64
ROLES = ("assistant", "system", "developer", "user")
SAYS = ("output_text", "refusal")
TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."
HEARS = ("input_text", "input_image", "input_file")
ARGUMENTS = "response.function_call_arguments"
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
        check_choice(body.get("tool_choice"), (_object(body.get("tool_choice"))).get("name"), _check_tools(body))
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
                    _check_message(item, f"input[{place}]")
                case "reasoning":
                    self._check_reasoning(item, items[place + 1 : place + 2])
                case "function_call":
                    _check_call(item, f"input[{place}]", made)
                    open_calls[item["call_id"]] = None
                case "function_call_output":
                    _check_output(item, f"input[{place}]", open_calls)
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

    def odd(self, odd: Odd) -> str:
        """Return the stream of an answer that fails after its start, as this API reports it."""
        too_long = odd.kind == "failed for its length"
        code, words = (
            ("context_length_exceeded", TOO_LONG) if too_long else ("server_error", "The server had an error.")
        )
        response = {"id": f"resp_{next(self._numbers):04}", "object": "response", "output": []}
        failed = response | {"status": "failed", "error": {"code": code, "message": words}}
        return _event("response.created", response=response) + _event("response.failed", response=failed)

    def refusal(self, refused: Refused) -> Json:
        return openai_failure(str(refused))

    def failure(self, fault: Fault) -> Json:
        return openai_fault(fault, TOO_LONG)


def openai_fault(fault: Fault, too_long: str) -> Json:
    """Write the body of a fault as both OpenAI APIs do: https://developers.openai.com/api/docs/guides/error-codes."""
    match fault.kind, fault.status:
        case "too_long", _:
            return openai_failure(too_long, "context_length_exceeded")
        case "no_model", _:
            return openai_failure("The model 'gpt-5.4' does not exist.", "model_not_found")
        case "quota", _:
            return openai_failure("You exceeded your current quota.", "insufficient_quota", "insufficient_quota")
        case _, 401:
            return openai_failure("Incorrect API key provided.", "invalid_api_key")
        case _, 429:
            return openai_failure("Rate limit reached for gpt-5.4.", "rate_limit_exceeded", "requests")
        case _, status:
            return openai_failure(f"It failed with {status}.", None, "server_error" if status >= 500 else "")


def _check_tools(body: Json) -> set[str]:
    for place, tool in enumerate(body.get("tools", ())):
        refuse_unless(tool.get("type") == "function", f"Invalid value: '{tool.get('type')}'.")
        check_name(tool.get("name"), f"tools[{place}].name")
        check_schema(tool.get("parameters"), tool["name"])
        if tool.get("strict", True):  # the default of this API
            check_strict(tool["parameters"], tool["name"])
    return {tool["name"] for tool in body.get("tools", ())}


def _refuse_open(open_calls: dict[str, None]) -> None:
    refuse_unless(not open_calls, f"No tool output found for function call {', '.join(open_calls)}.")


def _check_message(item: Json, where: str) -> None:
    role, content = item.get("role"), item.get("content")
    refuse_unless(role in ROLES, f"Invalid value: '{role}'. Supported values are: {ROLES}.")
    if not isinstance(content, str):
        refuse_unless(isinstance(content, list) and content, f"Invalid type for '{where}.content'.")
        _check_content(content, SAYS if role == "assistant" else HEARS)


def _check_content(content: Any, kinds: tuple[str, ...]) -> None:
    for part in content:
        kind = _object(part).get("type")
        refuse_unless(kind in kinds, f"Invalid value: '{kind}'. Supported values are: {', '.join(map(repr, kinds))}.")


def _check_call(item: Json, where: str, made: set[str]) -> None:
    check_name(item.get("name"), f"{where}.name")
    call_id = item.get("call_id")
    refuse_unless(call_id, f"Missing required parameter: '{where}.call_id'.")
    check_length(str(call_id), LONGEST_CALL_ID, f"{where}.call_id")
    refuse_unless(call_id not in made, f"Duplicate 'call_id': {call_id}")
    made.add(str(call_id))
    refuse_unless(isinstance(item.get("arguments"), str), f"Invalid type for '{where}.arguments': expected a string.")


def _check_output(item: Json, where: str, open_calls: dict[str, None]) -> None:
    call_id, output = item.get("call_id"), item.get("output")
    refuse_unless(call_id in open_calls, f"No tool call found for function call output with call_id {call_id}.")
    del open_calls[str(call_id)]
    whole = isinstance(output, str) or (isinstance(output, list) and output)
    refuse_unless(whole, f"Invalid type for '{where}.output': expected one of an array of objects or string.")
    if isinstance(output, list):
        _check_content(output, HEARS)


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


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
    at = {"output_index": place, "item_id": item["id"]}
    begin = [_event("response.output_item.added", output_index=place, item=_started(item))]
    done = [_event("response.output_item.done", output_index=place, item=item)]
    first, second = _deltas(item, at)
    return [*begin, *first], [*second, *done]


def _started(item: Json) -> Json:
    empty: dict[str, Json] = {
        "message": {"content": []},
        "reasoning": {"summary": [], "encrypted_content": "gAAAA-not-yet-whole"},
        "function_call": {"arguments": ""},
    }
    return item | empty[item["type"]] | ({} if item["type"] == "reasoning" else {"status": "in_progress"})


def _deltas(item: Json, at: Json) -> tuple[list[str], list[str]]:
    match item["type"]:
        case "message":
            part, kind, text = at | {"content_index": 0}, "output_text", item["content"][0]["text"]
            outer, empty, whole = "content_part", {"type": "output_text", "text": ""}, item["content"][0]
        case "reasoning":
            part, kind, text = at | {"summary_index": 0}, "reasoning_summary_text", item["summary"][0]["text"]
            outer, empty, whole = "reasoning_summary_part", {"type": "summary_text", "text": ""}, item["summary"][0]
        case _:
            first, second = (_event(f"{ARGUMENTS}.delta", **at, delta=half) for half in halves(item["arguments"]))
            return [first], [second, _event(f"{ARGUMENTS}.done", **at, arguments=item["arguments"])]
    first, second = (_event(f"response.{kind}.delta", **part, delta=half) for half in halves(text))
    begin, end = (f"response.{outer}.{when}" for when in ("added", "done"))
    return [_event(begin, **part, part=empty), first], [second, _event(end, **part, part=whole)]


def _closing(answer: Answer, response: Json) -> str:
    details = {"input_tokens_details": {"cached_tokens": 10}, "output_tokens_details": {"reasoning_tokens": 5}}
    response = response | {"usage": {"input_tokens": 50, "output_tokens": 20, "total_tokens": 70, **details}}
    if answer.ending != "length":
        return _event("response.completed", response=response | {"status": "completed"})
    why = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return _event("response.incomplete", response=response | why)
