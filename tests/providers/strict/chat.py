"""The Chat Completions API, as strict as the real one: what it refuses, and how it answers.

It reasons in `reasoning_content`, as DeepSeek's models do, and wants it back within a turn:
https://api-docs.deepseek.com/guides/thinking_mode#tool-calls. The rest is OpenAI's:
https://developers.openai.com/api/reference/resources/chat; words of its refusals: aliasrobotics/cai#111 and
FoundationAgents/OpenManus#744 (calls and results), agno-agi/agno#5116 (twice the same).
"""

import json

from tests.providers.loopback import sse
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

LONGEST_CALL_ID = 40
CONTENT = {
    "user": ("text", "image_url", "file", "input_audio"),
    "assistant": ("text", "refusal"),
    "system": ("text",),
    "developer": ("text",),
    "tool": ("text",),
}


class Chat(Api):
    """A server of the Chat Completions API: it remembers what it reasoned before its calls."""

    name = "openai-chat"
    path = "/v1/chat/completions"
    asked = "gpt-5.4"
    root = "/v1"

    def __init__(self) -> None:
        self._reasoned: dict[str, str] = {}
        super().__init__()

    # -- what it refuses -----------------------------------------------------------------------

    def check(self, path: str, body: Json) -> None:
        from openai.types.chat.completion_create_params import CompletionCreateParamsBase

        refuse_unless(path == self.path, f"Invalid URL (POST {path})", 404)
        check_known(body, {*CompletionCreateParamsBase.__annotations__, "stream"})
        refuse_unless(body.get("tools") != [], "[] is too short - 'tools'")
        for place, tool in enumerate(body.get("tools") or ()):
            check_name(tool["function"].get("name"), f"tools[{place}].function.name")
            check_schema(tool["function"].get("parameters", {"type": "object"}), tool["function"]["name"])
        messages = body.get("messages")
        refuse_unless(isinstance(messages, list) and messages, "Invalid 'messages': empty array.")
        for place, message in enumerate(messages):
            _check_message(message, f"messages[{place}]")
        _check_pairs(messages)
        self._check_reasoning(messages)

    def _check_reasoning(self, messages: list[Json]) -> None:
        """Refuse calls of the current turn whose reasoning was left out."""
        prompts = [place for place, message in enumerate(messages) if message["role"] == "user"]
        for message in messages[max(prompts, default=0) :]:
            for call in message.get("tool_calls") or ():
                wanted = self._reasoned.get(call["id"])
                words = "The `reasoning_content` in the thinking mode must be passed back to the API."
                refuse_unless(wanted is None or message.get("reasoning_content") == wanted, words)

    # -- what it answers -----------------------------------------------------------------------

    def output(self, answer: Answer) -> Json:
        """Write the message of an answer, and remember it."""
        texts: dict[type[Part], str] = {Say: "", Think: ""}
        calls: list[Json] = []
        for part in answer.parts:
            if isinstance(part, Call):
                function = {"name": part.name, "arguments": part.arguments}
                calls.append({"id": f"call_chat{next(self._numbers):04}", "type": "function", "function": function})
            else:
                texts[type(part)] += part.text
        for call in calls if texts[Think] else ():
            self._reasoned[call["id"]] = texts[Think]
        message: Json = {"role": "assistant", "content": texts[Say] or None}
        message |= {"reasoning_content": texts[Think]} if texts[Think] else {}
        return message | ({"tool_calls": calls} if calls else {})

    def stream(self, answer: Answer) -> tuple[list[str], list[str]]:
        message = self.output(answer)
        chunks: list[Json] = [{"role": "assistant", "content": None}]
        for key in ("reasoning_content", "content"):
            chunks += [{key: half} for half in halves(message.get(key) or "") if half]
        for place, call in enumerate(message.get("tool_calls", ())):
            first, second = halves(call["function"]["arguments"])
            chunks.append(
                {"tool_calls": [call | {"index": place, "function": call["function"] | {"arguments": first}}]}
            )
            chunks.append({"tool_calls": [{"index": place, "function": {"arguments": second}}]})
        *begin, last = [_chunk(delta) for delta in chunks]
        # A limit of length cuts the last part: what would have come after its middle never comes.
        rest = [] if answer.ending == "length" and begin else [last]
        reason = "length" if answer.ending == "length" else "tool_calls" if "tool_calls" in message else "stop"
        return begin or [last], [*(rest if begin else []), _chunk({}, reason), _USAGE, sse(done=True)]

    def midway_failure(self) -> str:
        return sse(openai_failure("The server had an error.", kind="server_error"))

    def refusal(self, refused: Refused) -> Json:
        return openai_failure(str(refused))

    def failure(self, fault: Fault) -> Json:
        return openai_fault(fault, "This model's maximum context length is 128000 tokens; yours are 130000 tokens.")


def _chunk(delta: Json, reason: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return sse({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], "usage": None})


_USAGE = sse({"id": "chatcmpl-1", "choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 20}})


def _check_message(message: Json, where: str) -> None:
    role, content = str(message.get("role")), message.get("content")
    refuse_unless(role in CONTENT, f"Invalid value: '{role}'. Supported values are: {', '.join(CONTENT)}.")
    calls = message.get("tool_calls")
    refuse_unless(calls != [], f"Invalid '{where}.tool_calls': empty array.")
    for place, call in enumerate(calls or ()):
        here = f"{where}.tool_calls[{place}]"
        check_length(call["id"], LONGEST_CALL_ID, f"{here}.id")
        check_name(call["function"].get("name"), f"{here}.function.name")
        words = f"Invalid type for '{here}.function.arguments': expected a string."
        refuse_unless(isinstance(call["function"].get("arguments"), str), words)
    refuse_unless(isinstance(content, str) or content or calls, f"Invalid value for 'content': {json.dumps(content)}.")
    for part in content if isinstance(content, list) else ():
        kind = part.get("type")
        words = f"Invalid value: '{kind}'. Supported values are: {', '.join(map(repr, CONTENT[role]))}."
        refuse_unless(kind in CONTENT[role], words)


def _check_pairs(messages: list[Json]) -> None:
    """Refuse calls that the very next messages do not answer, and answers to no call."""
    waiting: set[str] = set()
    for message in (*messages, {"role": "the end"}):
        if message["role"] == "tool":
            words = "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
            refuse_unless(message.get("tool_call_id") in waiting, words)
            waiting.remove(str(message["tool_call_id"]))
            continue
        refuse_unless(not waiting, f"These tool_call_ids did not have response messages: {', '.join(waiting)}")
        ids = [call["id"] for call in message.get("tool_calls") or ()]
        waiting = set(ids)
        refuse_unless(len(waiting) == len(ids), "Duplicate value for 'id' in tool_calls.")
