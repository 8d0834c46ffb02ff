"""What servers that only resemble an API send: it is read as it is meant, or refused in plain words."""

import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import pytest

from agentmagic import Agent, Session
from agentmagic.errors import ProviderError, StreamBroken
from agentmagic.events import PartFinished
from agentmagic.messages import Part, Reasoning, Text, ToolCall, ToolDef, user
from agentmagic.providers import streams
from agentmagic.providers.anthropic.decoder import Decoder as Anthropic
from agentmagic.providers.anthropic.model import Anthropic as AnthropicModel
from agentmagic.providers.base import Model, Request
from agentmagic.providers.gemini.decoder import Decoder as Gemini
from agentmagic.providers.gemini.model import Gemini as GeminiModel
from agentmagic.providers.ollama import Decoder as OllamaDecoder
from agentmagic.providers.ollama import Ollama
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.openai.chat_decoder import Decoder as Chat
from agentmagic.providers.openai.responses import Decoder as Responses
from agentmagic.providers.openai.responses import OpenAIResponses
from tests.providers.loopback import Exchange, Loopback, ask, sse
from tests.turns import AT_ONCE

Json = dict[str, Any]

ADD = ToolDef("add", "Add.", {"type": "object", "properties": {}})
REQUEST = Request((user("go"),), tools=(ADD, ToolDef("rows", "Rows.", {"type": "object", "properties": {}})))
KEY = "sk-test-000000000000"


def decoded(decoder: Any, chunks: Iterable[Any], *, done: bool = False) -> list[Part]:
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return [event.part for event in (*events, *decoder.close(done=done)) if isinstance(event, PartFinished)]


def said(parts: Iterable[Part]) -> list[Any]:
    """Texts as they are, thoughts in a tuple, calls as name and arguments."""
    shown: list[Any] = []
    for part in parts:
        match part:
            case Text(text):
                shown.append(text)
            case Reasoning(text):
                shown.append((text,))
            case ToolCall(name=name, arguments=arguments):
                shown.append({name: dict(arguments)})
    return shown


# Chat Completions


def chunk(delta: object, reason: object = None, **more: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason, **more}]}


def called(name: object, arguments: object, **more: Any) -> Json:
    return chunk({"tool_calls": [{"function": {"name": name, "arguments": arguments}, **more}]})


STOP = chunk({}, "stop")
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


def chat(*chunks: Json, done: bool = False) -> list[Any]:
    return said(decoded(Chat("m", {"add", "rows"}), chunks, done=done))


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([chunk({"content": [THINKING]}), chunk({"content": [{"type": "text", "text": "fine"}]})], [("hm",), "fine"]),
        ([chunk({"content": [THINKING, {"type": "text", "text": "fi"}]}), chunk({"content": "ne"})], [("hm",), "fine"]),
        ([chunk({"content": {"type": "text", "text": "fine"}})], ["fine"]),
        ([chunk({"content": [{"type": "reasoning", "summary": [{"text": "hm"}]}, "fine"]})], [("hm",), "fine"]),
        ([chunk({"reasoning": {"content": "hm"}}), chunk({"content": "fine"})], [("hm",), "fine"]),
        ([chunk({"reasoning_content": ["h", {"text": "m"}], "content": "fine"})], [("hm",), "fine"]),
        ([chunk({"content": "fine", "tool_calls": {}})], ["fine"]),
        ([chunk({"content": "fine", "tool_calls": "none", "refusal": False})], ["fine"]),
        ([chunk({"content": "fine", "tool_calls": [None, 3]}, 0)], ["fine"]),
        ([chunk({"content": "fine"}, {"reason": 1}, index="0")], ["fine"]),
        ([chunk({"content": "fine", "role": 3, "function_call": []}, [])], ["fine"]),
        ([{"choices": {"index": 0.0, "delta": {"content": "fine"}}, "usage": "many"}], ["fine"]),
        ([chunk({"content": "fine"}), chunk([], None), {"choices": None}, {"choices": 0}, None, 3], ["fine"]),
    ],
)
def test_a_chat_answer_does_not_fail_over_the_form_of_its_words_or_over_an_odd_field(chunks: list[Any], expected: Any):
    assert chat(*chunks, STOP) == expected


ONE, TWO = '{"a": 1}', '{"a": 2}'


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([("add", ONE), ("rows", TWO)], [{"add": {"a": 1}}, {"rows": {"a": 2}}]),
        ([("add", ONE), ("add", TWO)], [{"add": {"a": 1}}, {"add": {"a": 2}}]),
        ([("add", ""), ("", ONE), ("rows", ""), ("", TWO)], [{"add": {"a": 1}}, {"rows": {"a": 2}}]),
        ([("add", '{"a"'), ("", ": 1}"), ("add", TWO)], [{"add": {"a": 1}}, {"add": {"a": 2}}]),
        ([("add", ""), ("", ONE), ("add", ""), ("", '{"a"'), ("", ": 2}")], [{"add": {"a": 1}}, {"add": {"a": 2}}]),
        ([("add", ""), ("rows", "")], [{"add": {}}, {"rows": {}}]),
        ([("add", {"a": 1}), ("rows", {"a": 2})], [{"add": {"a": 1}}, {"rows": {"a": 2}}]),
        # One call, whatever is repeated:
        ([("add", '{"a"'), ("add", ": 1}")], [{"add": {"a": 1}}]),
        ([("add", ""), ("add", ONE), ("add", "")], [{"add": {"a": 1}}]),
        ([("ad", ""), ("d", ONE)], [{"add": {"a": 1}}]),
        ([("add", "{}"), ("add", ONE)], [{"add": {"a": 1}}]),
        ([("add", "{}"), ("", ONE)], [{"add": {"a": 1}}]),
        ([("add", ONE), ("", TWO)], [{"add": {"_raw": ONE + TWO}}]),
        ([("add", '"{\\"a\\": 1}"')], [{"add": {"a": 1}}]),
        ([("add", "null")], [{"add": {}}]),
        ([("add", 3)], [{"add": {"_raw": "3"}}]),
    ],
)
@pytest.mark.parametrize("more", [{"index": 0}, {"index": "0", "id": ""}, {"index": 0, "id": None, "type": "function"}])
def test_calls_under_one_index_are_told_apart_by_their_names_and_their_complete_arguments(pieces, expected, more):
    assert chat(*(called(*piece, **more) for piece in pieces), chunk({}, "tool_calls")) == expected


def test_a_call_in_the_field_of_the_first_api_is_a_call():
    legacy = [chunk({"function_call": {"name": "add", "arguments": piece}}) for piece in ('{"a"', ": 1}")]
    assert chat(*legacy, chunk({}, "function_call")) == [{"add": {"a": 1}}]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([chunk({"content": "fine"})], ["fine"]),
        ([called("add", ONE, index=0)], [{"add": {"a": 1}}]),
        ([chunk({"reasoning": "hm"}), chunk({"content": "fine"}, "")], [("hm",), "fine"]),
    ],
)
def test_a_chat_that_ends_with_done_is_whole_without_a_finish_reason(chunks: list[Json], expected: list[Any]):
    assert chat(*chunks, done=True) == expected
    with pytest.raises(StreamBroken):
        chat(*chunks)
    with pytest.raises(StreamBroken):
        chat(done=True)


@pytest.mark.parametrize("reason", ["stop", 0, None])
def test_a_whole_completion_is_an_answer(reason: object):
    message = {"role": "assistant", "content": "fine", "tool_calls": [{"id": "c", "function": {"name": "add"}}]}
    assert chat({"choices": [{"index": 0, "message": message, "finish_reason": reason}]}) == ["fine", {"add": {}}]


def test_a_whole_message_behind_its_pieces_is_not_said_twice():
    again = {"choices": [{"index": 0, "message": {"content": "fine"}, "finish_reason": "stop"}]}
    assert chat(chunk({"content": "fine"}), again) == ["fine"]


# Responses

CALL = {"id": "f", "type": "function_call", "call_id": "c", "name": "rows", "arguments": ONE, "status": "completed"}
BARE = CALL | {"arguments": ""}
WORDS = [{"type": "output_text", "text": "fine"}]
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": WORDS}


def event(kind: str, **more: Any) -> Json:
    return {"type": f"response.{kind}", **more}


def added(item: Json, place: object = 0) -> Json:
    return event("output_item.added", output_index=place, item=item)


def ended(item: Json, place: object = 0) -> Json:
    return event("output_item.done", output_index=place, item=item)


def completed(*output: Json, **more: Any) -> Json:
    return event("completed", response={"status": "completed", "output": list(output), **more})


def piece(text: str, item: Json = MESSAGE, place: object = 0) -> Json:
    kind = "output_text" if item["type"] == "message" else "function_call_arguments"
    return event(f"{kind}.delta", item_id=item["id"], output_index=place, delta=text)


ARGUMENTS = event("function_call_arguments.done", item_id="f", output_index=0, arguments=ONE)
OTHER = CALL | {"id": "f2", "call_id": "c2", "name": "add", "arguments": TWO}
RAN = [{"rows": {"a": 1}}]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([added(BARE), ARGUMENTS, completed()], RAN),
        ([added(BARE), ARGUMENTS, ended(BARE), completed()], RAN),
        ([added(BARE), ARGUMENTS | {"arguments": {"a": 1}}, ended(CALL | {"arguments": "{}"}), completed()], RAN),
        ([added(BARE), ended(CALL), completed()], RAN),
        ([ended(CALL | {"arguments": {"a": 1}}), completed()], RAN),
        ([added(BARE), piece(ONE, CALL), ended(BARE), completed(BARE)], RAN),
        ([added(BARE), piece(ONE, CALL), completed()], RAN),
        ([added(BARE), ended(BARE), completed(CALL)], RAN),
        ([added(BARE), ended(CALL | {"arguments": "{}"}), completed(CALL | {"id": "other"})], RAN),
        ([added(BARE), completed(CALL)], RAN),
        ([completed(CALL)], RAN),
        ([event("done", response={"output": [CALL]})], RAN),
        ([piece('{"a"', CALL), piece(": 1}", CALL), completed(CALL)], RAN),
        ([ARGUMENTS | {"name": "rows"}, completed(CALL | {"id": "new"})], RAN),
        # Two calls, in every mixture:
        ([completed(CALL, OTHER)], [*RAN, {"add": {"a": 2}}]),
        ([added(BARE), added(OTHER | {"arguments": ""}), completed(CALL, OTHER)], [*RAN, {"add": {"a": 2}}]),
        (
            [added(BARE), added(OTHER | {"arguments": ""}), piece(ONE, CALL), piece(TWO, OTHER), completed()],
            [*RAN, {"add": {"a": 2}}],
        ),
        ([ended(CALL), ended(OTHER), completed(CALL, OTHER)], [*RAN, {"add": {"a": 2}}]),
        # A message and a call under one index, or without any:
        ([added(MESSAGE), added(BARE), piece("fine"), piece(ONE, CALL), completed()], ["fine", *RAN]),
        ([added(MESSAGE), piece("fine"), ended(MESSAGE), ended(CALL), completed(MESSAGE, CALL)], ["fine", *RAN]),
        ([added(MESSAGE, None), piece("fine", place=None), ended(CALL, None), completed()], ["fine", *RAN]),
        # A call that has no arguments at all:
        ([added(BARE), ended(BARE), completed(BARE)], [{"rows": {}}]),
    ],
)
def test_a_call_of_the_responses_api_runs_with_its_arguments_wherever_they_came(chunks, expected):
    parts = decoded(Responses(), chunks)
    assert sorted(map(str, said(parts))) == sorted(map(str, expected))
    for part in parts:  # what goes back to the server has the arguments too
        if isinstance(part, ToolCall) and part.provider_data and part.arguments:
            assert json.loads(part.provider_data.data["arguments"]) == part.arguments


@pytest.mark.parametrize(
    "chunks",
    [
        [completed(MESSAGE)],
        [event("done", response={"output": [MESSAGE]})],
        [{"object": "response", "status": "completed", "output": [MESSAGE]}],
        [piece("fi"), piece("ne"), completed(MESSAGE)],
        [piece("fine"), completed()],
        [piece("fine", place=None), event("output_text.done", text="fine"), completed(MESSAGE)],
        [event("output_text.done", item_id="m", output_index=0, text="fine"), completed()],
        [added(MESSAGE | {"content": []}), completed(MESSAGE | {"id": "other"})],
        [added(MESSAGE | {"content": None}), ended(MESSAGE | {"content": "fine"}), completed(MESSAGE)],
        [added(MESSAGE), piece("fine"), ended(MESSAGE | {"content": 0}), completed(MESSAGE)],
        [ended(MESSAGE), ended(MESSAGE), completed(MESSAGE)],
        [added(MESSAGE), piece("fine"), ended(MESSAGE, 1), completed(MESSAGE)],
        [added({"type": "message"}, "0"), piece("fine"), ended(MESSAGE), completed(usage=[], incomplete_details=0)],
    ],
)
def test_an_answer_of_the_responses_api_is_said_once_wherever_it_came(chunks: list[Json]):
    assert said(decoded(Responses(), chunks)) == ["fine"]


@pytest.mark.parametrize("chunks", [[piece("fine")], [added(MESSAGE), piece("fine"), ended(MESSAGE)], [ended(MESSAGE)]])
def test_a_response_that_ends_with_done_is_whole_without_its_closing_event(chunks: list[Json]):
    assert said(decoded(Responses(), chunks, done=True)) == ["fine"]
    with pytest.raises(StreamBroken):
        decoded(Responses(), chunks)
    with pytest.raises(StreamBroken):
        decoded(Responses(), [], done=True)


def test_the_failure_of_a_whole_response_is_told():
    with pytest.raises(ProviderError, match="out of memory"):
        decoded(Responses(), [{"status": "failed", "output": [], "error": {"message": "out of memory"}}])


# Messages

BEGIN = {"type": "message_start", "message": {"usage": {"input_tokens": 9}}}
USE = {"type": "tool_use", "id": "t", "name": "add", "input": {}}


def block(data: Json, place: object = 0) -> Json:
    return {"type": "content_block_start", "index": place, "content_block": data}


def grown(kind: str, text: str, place: object = 0) -> Json:
    field = {"text": "text", "input_json": "partial_json", "thinking": "thinking"}[kind]
    return {"type": "content_block_delta", "index": place, "delta": {"type": f"{kind}_delta", field: text}}


def stop(place: object = 0) -> Json:
    return {"type": "content_block_stop", "index": place}


def reason(why: object = "end_turn") -> Json:
    return {"type": "message_delta", "delta": {"stop_reason": why}, "usage": {"output_tokens": 5}}


TEXT = {"type": "text", "text": ""}
LAST = {"type": "message_stop"}


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (
            [block(TEXT), grown("text", "fine"), block(USE), grown("input_json", ONE), stop()],
            ["fine", {"add": {"a": 1}}],
        ),
        (
            [block({"type": "thinking", "thinking": ""}), block(USE), grown("input_json", ONE), stop()],
            [("",), {"add": {"a": 1}}],
        ),
        (
            [block(USE), grown("input_json", ONE), block(USE | {"id": "u"}), grown("input_json", TWO), stop()],
            [{"add": {"a": 1}}, {"add": {"a": 2}}],
        ),
        ([block(TEXT), block(TEXT), grown("text", "fine"), stop()], ["fine"]),
        ([block(USE), block(USE), grown("input_json", ONE), stop()], [{"add": {"a": 1}}]),
        # Deltas under the index of another block, under none, or of a block that was not announced:
        (
            [block(TEXT), grown("text", "fine"), block(USE, 1), grown("input_json", ONE), stop(), stop(1)],
            ["fine", {"add": {"a": 1}}],
        ),
        ([grown("text", "fi"), grown("text", "ne")], ["fine"]),
        ([grown("thinking", "hm"), grown("text", "fine", "0")], [("hm",), "fine"]),
        ([block(TEXT, None), grown("text", "fine", None), stop(None)], ["fine"]),
        ([block(USE | {"input": ONE})], [{"add": {"a": 1}}]),
        ([block(USE | {"input": {"a": 1}}), grown("input_json", "{}")], [{"add": {"a": 1}}]),
        ([block(USE), grown("input_json", f"{{}}{ONE}")], [{"add": {"a": 1}}]),
        ([block(USE), grown("input_json", ONE + TWO)], [{"add": {"_raw": ONE + TWO}}]),
        ([block(TEXT | {"citations": 0}), grown("text", "fine"), {"type": 3}, {"type": "ping"}, None], ["fine"]),
    ],
)
def test_blocks_of_a_messages_answer_are_told_apart_also_under_one_index(chunks: list[Any], expected: list[Any]):
    parts = said(decoded(Anthropic("m"), [BEGIN, *chunks, reason(), LAST]))
    assert sorted(map(str, parts)) == sorted(map(str, expected))


@pytest.mark.parametrize(
    ("chunks", "done"),
    [
        ([BEGIN, block(TEXT), grown("text", "fine"), stop(), reason()], False),
        ([block(TEXT), grown("text", "fine"), reason("stop_sequence")], False),
        ([block(TEXT), grown("text", "fine"), stop()], True),
        ([grown("text", "fine"), reason(0)], True),
    ],
)
def test_a_messages_answer_is_whole_with_one_of_its_end_marks(chunks: list[Json], done: bool):
    assert said(decoded(Anthropic("m"), chunks, done=done)) == ["fine"]
    with pytest.raises(StreamBroken):
        decoded(Anthropic("m"), chunks[:-1] if not done else chunks)


def test_a_whole_message_is_an_answer():
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    content = [thought, {"type": "text", "text": "fine"}, USE | {"input": {"a": 1}}]
    message = {"type": "message", "content": content, "stop_reason": "tool_use", "usage": {"input_tokens": 9}}
    assert said(decoded(Anthropic("m"), [message])) == [("hm",), "fine", {"add": {"a": 1}}]


# Gemini and Ollama


def candidate(parts: object, why: object = "STOP") -> Json:
    return {"candidates": [{"content": {"parts": parts}, "finishReason": why}]}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (candidate({"text": "fine"}), ["fine"]),
        (candidate([{"text": "fine"}, None, 3]) | {"usageMetadata": 0}, ["fine"]),
        (candidate([{"functionCall": {"name": "add", "args": ONE}}]), [{"add": {"a": 1}}]),
        (candidate([{"functionCall": {"name": "add", "args": None}}]), [{"add": {}}]),
        (candidate([{"functionCall": {"name": "add", "args": [1]}}]), [{"add": {"_raw": "[1]"}}]),
    ],
)
def test_an_answer_like_that_of_gemini_is_read(answer: Json, expected: list[Any]):
    assert said(decoded(Gemini("gemini-x"), [answer])) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": ["fi", {"text": "ne"}]}, ["fine"]),
        ({"content": "fine", "tool_calls": {}, "thinking": 0}, ["fine"]),
        ({"content": [THINKING, "fine"]}, [("hm",), "fine"]),
        ({"tool_calls": [{"function": {"name": "add", "arguments": json.dumps(ONE)}}]}, [{"add": {"a": 1}}]),
        ({"tool_calls": {"function": {"name": "add", "arguments": None}}}, [{"add": {}}]),
        ({"tool_calls": [{"function": {"name": "add", "arguments": ONE + TWO}}]}, [{"add": {"_raw": ONE + TWO}}]),
    ],
)
@pytest.mark.parametrize("end", [{"done": True}, {"done": "true", "done_reason": "stop"}])
def test_an_answer_like_that_of_ollama_is_read(message: Json, expected: list[Any], end: Json):
    assert said(decoded(OllamaDecoder("m"), [{"message": message}, end])) == expected


# The connection

SAID: dict[str, tuple[list[Json], Json | None]] = {
    "openai-chat": ([chunk({"content": "fi"}), chunk({"content": "ne"})], STOP),
    "openai": ([piece("fi"), piece("ne")], completed()),
    "anthropic": ([BEGIN, grown("text", "fi"), grown("text", "ne"), reason()], LAST),
    "gemini": ([candidate([{"text": "fi"}], None), candidate([{"text": "ne"}])], None),
    "ollama": ([{"message": {"content": "fi"}}, {"message": {"content": "ne"}}], {"done": True}),
}
"""Of each API an answer, and the chunk that closes it."""


def model(api: str, url: str) -> Model:
    match api:
        case "openai-chat":
            return OpenAIChat("m", base_url=f"{url}/v1", api_key=KEY)
        case "openai":
            return OpenAIResponses("m", base_url=f"{url}/v1", api_key=KEY)
        case "anthropic":
            return AnthropicModel("claude-x", base_url=url, api_key=KEY)
        case "gemini":
            return GeminiModel("gemini-x", base_url=url, api_key=KEY)
        case _:
            return Ollama("m", base_url=url)


def answered(api: str, body: str, **more: Any) -> list[Any]:
    with Loopback([Exchange(body, **more)]) as server:
        return said(event.part for event in ask(model(api, server.url), REQUEST) if isinstance(event, PartFinished))


def frames(api: str) -> list[str]:
    chunks, last = SAID[api]
    return [sse(one) for one in (*chunks, *([last] if last else []))]


def test_a_tool_called_twice_in_one_answer_runs_once_and_the_sources_of_the_last_frame_are_those_of_the_answer():
    ran: list[int] = []

    def add(a: int) -> str:
        """Add."""
        ran.append(a)
        return "fine"

    entry = {"index": 0, "id": "c", "type": "function", "function": {"name": "add", "arguments": ONE}}
    begun = {"index": 0, "id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a"'}}
    rest = {"index": 0, "function": {"arguments": ": 1}"}}
    step = [chunk({"tool_calls": [one]}) for one in (begun, rest, entry)]
    last = {"choices": [], "citations": ["https://a.example/"]}
    says = [chunk({"content": "Fine [1]."}), chunk({}, "stop"), last]
    answers = [Exchange(sse(*frames, done=True)) for frames in ((*step, chunk({}, "tool_calls")), says)]
    with Loopback(answers) as server:
        result = Session(Agent(model("openai-chat", server.url), tools=[add])).ask("go")
    assert (ran, [one.url for one in result.sources]) == ([1], ["https://a.example/"])


EVENT_STREAMS = ["openai-chat", "openai", "anthropic", "gemini"]
KEEP_ALIVE = ["", " ", " : comment", ":", " ping", " keep-alive", " null"]


@pytest.mark.parametrize("api", EVENT_STREAMS)
def test_frames_that_keep_a_connection_open_are_no_part_of_an_answer(api: str):
    kept = [f"data:{text}\n\n" for text in KEEP_ALIVE]
    kept += [
        f"event: {name}\ndata:{text}\n\n" for name in ("ping", "keep-alive") for text in ("", " x", ' {"error": 1}')
    ]
    kept += [": comment\n\n", "event: ping\n\n", "retry: 3000\n\n", "id: 7\ndata:\n\n", "\n\n"]
    between = "".join(kept)
    assert answered(api, between + between.join(frames(api)) + between) == ["fine"]


@pytest.mark.parametrize("api", EVENT_STREAMS)
@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("upstream timed out", "upstream timed out"),
        ('"upstream timed out"', "upstream timed out"),
        ('{"message": "upstream timed out"}', "upstream timed out"),
        ('{"error": {"message": "upstream timed out"}}', "upstream timed out"),
        ('{"code": 7}', r"\b(7|500)\b"),
    ],
)
def test_an_error_event_keeps_its_words(api: str, data: str, words: str):
    with pytest.raises(ProviderError, match=words):
        answered(api, "".join(frames(api)[:1]) + f"event: error\ndata: {data}\n\n")


@pytest.mark.parametrize("api", SAID)
def test_words_in_place_of_json_are_told(api: str):
    words = "Internal Server Error" if api == "ollama" else "data: Internal Server Error\n"
    with pytest.raises(StreamBroken, match=r"cannot be read\. It says: Internal Server Error\. Send"):
        answered(api, f"{words}\n")


@pytest.mark.parametrize(
    "body", [*map(sse, [VLLM := {"object": "error", "message": "out of memory"}]), json.dumps(VLLM)]
)
def test_the_error_of_vllm_is_told(body: str):
    with pytest.raises(StreamBroken, match="out of memory"):
        answered("openai-chat", sse(chunk({"content": "fi"})) + body)


@pytest.mark.parametrize("api", EVENT_STREAMS)
def test_an_event_counts_behind_a_byte_order_mark_and_without_the_last_empty_line(api: str):
    assert answered(api, f"\ufeff{''.join(frames(api))}".rstrip("\n")) == ["fine"]


WHOLE: dict[str, Json] = {
    "openai-chat": {"choices": [{"message": {"content": "fine"}, "finish_reason": "stop"}]},
    "openai": {"object": "response", "status": "completed", "output": [MESSAGE]},
    "anthropic": {"type": "message", "content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn"},
    "gemini": candidate([{"text": "fine"}]),
    "ollama": {"message": {"content": "fine"}, "done": True},
}


@pytest.mark.parametrize("api", WHOLE)
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
def test_the_answer_of_a_server_that_does_not_stream_is_an_answer(api: str, kind: str):
    assert answered(api, json.dumps(WHOLE[api]), content_type=kind) == ["fine"]


@pytest.mark.parametrize("api", EVENT_STREAMS)
def test_json_without_events_is_an_answer_on_many_lines_in_a_list_or_a_line_for_each_chunk(api: str):
    chunks = [*SAID[api][0], *filter(None, [SAID[api][1]])]
    json_lines = "\n".join(map(json.dumps, chunks))
    for body in (json.dumps(WHOLE[api], indent=2), json.dumps(chunks), json.dumps(chunks, indent=1), json_lines):
        assert answered(api, body, content_type="application/json") == ["fine"]


@pytest.mark.parametrize("api", SAID)
@pytest.mark.parametrize("ends", ["stall", "heartbeats", "break"])
def test_an_answer_is_whole_although_its_connection_stays_open_or_breaks(api: str, ends: str, monkeypatch):
    monkeypatch.setattr(f"agentmagic.providers.{MODULES[api]}.SETTLE", 0.2, raising=False)
    lines = [json.dumps(one) + "\n" for one in (*SAID[api][0], SAID[api][1])] if api == "ollama" else frames(api)
    body = "".join(lines)
    rest = ": still here\n\n" * 9 if ends == "heartbeats" and api != "ollama" else "\n"
    end: Json = {"cut_at": len(body)} if ends == "break" else {"stall_at": len(body + rest)}
    begun = time.monotonic()
    assert answered(api, body + rest, **end) == ["fine"]
    assert time.monotonic() - begun < AT_ONCE


MODULES = {
    "openai-chat": "openai.chat_decoder",
    "openai": "openai.responses",
    "anthropic": "anthropic.decoder",
    "gemini": "gemini.decoder",
    "ollama": "ollama",
}


def test_figures_that_come_behind_the_finish_reason_are_kept_and_each_restarts_the_wait():
    class Response:
        """Sends a heartbeat every tenth of a second for good, and figures once."""

        headers: ClassVar[dict[str, str]] = {}

        async def aiter_bytes(self):
            yield "".join(frames("openai-chat")).encode()
            for number in range(10_000):
                await asyncio.sleep(0.1)
                yield sse({"choices": [], "usage": {"prompt_tokens": 7}}).encode() if number == 1 else b": beat\n\n"

        async def aclose(self) -> None:
            return

    async def read() -> Sequence[Any]:
        return [one async for one in OpenAIChat("m")._events(Response(), Chat("m"), {})]  # pyright: ignore[reportPrivateUsage, reportArgumentType]

    begun = time.monotonic()
    assert asyncio.run(read())[-1].usage.input_tokens == 7
    assert time.monotonic() - begun >= 0.2 + streams.SETTLE
    assert streams.SETTLE == 2.0
