"""Every decoder over valid streams that were spoiled at random: only a ProviderError comes out, and only in order."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmagic import serialization
from agentmagic.errors import ProviderError
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Message, Text, ToolCall, ToolResult, user
from agentmagic.providers import ollama
from agentmagic.providers.anthropic import anthropic_encoder
from agentmagic.providers.anthropic.anthropic_decoder import Decoder as Anthropic
from agentmagic.providers.base import ModelEvent, ModelFinished, Request
from agentmagic.providers.gemini import gemini_encoder
from agentmagic.providers.gemini.gemini_decoder import Decoder as Gemini
from agentmagic.providers.local import llama
from agentmagic.providers.openai import chat_completions, responses
from agentmagic.providers.openai.chat_decoder import Decoder as Chat
from agentmagic.providers.openai.responses import Decoder as Responses

SIGNED = "RXZJQ0N1OENBUg=="


def chat_chunks() -> list[Any]:
    def says(finish: str | None = None, **delta: Any) -> dict[str, Any]:
        return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def piece(index: int, call_id: str | None, name: str | None, arguments: str) -> dict[str, Any]:
        entry = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        return says(tool_calls=[entry])

    return [
        says(role="assistant", content=""),
        says(reasoning_content="Hm."),
        says(content="Let me "),
        says(content="look."),
        piece(0, "call_a", "clock", ""),
        piece(0, None, None, '{"zone": '),
        piece(1, "call_b", "clock", '{"zone": "CET"}'),
        piece(0, None, None, '"UTC"}'),
        says("tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 1}}},
    ]


def responses_chunks() -> list[Any]:
    def of(kind: str, place: int, **more: Any) -> dict[str, Any]:
        return {"type": f"response.{kind}", "output_index": place, **more}

    thought = {"id": "rs_1", "type": "reasoning", "summary": [{"text": "Hm."}], "encrypted_content": "gAAA"}
    said = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Look."}],
    }
    call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "clock", "arguments": '{"a": 1}'}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        of("output_item.added", 0, item=thought | {"summary": []}),
        of("reasoning_summary_part.added", 0, summary_index=0),
        of("reasoning_summary_text.delta", 0, delta="Hm."),
        of("output_item.done", 0, item=thought),
        of("output_item.added", 1, item=said | {"content": []}),
        of("output_text.delta", 1, delta="Look."),
        of("output_item.done", 1, item=said),
        of("output_item.added", 2, item=call | {"arguments": ""}),
        of("function_call_arguments.delta", 2, delta='{"a": 1}'),
        of("output_item.done", 2, item=call),
        of("output_item.done", 3, item=call | {"id": "fc_2", "call_id": "call_2"}),
        {"type": "response.completed", "response": {"status": "completed", "usage": {"input_tokens": 5}}},
    ]


def gemini_chunks() -> list[Any]:
    def chunk(*parts: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"parts": list(parts), "role": "model"}, "index": 0, **more}]}

    call = {"functionCall": {"id": "a", "name": "clock", "args": {"zone": "UTC"}}}
    return [
        chunk({"text": "Hm.", "thought": True}),
        chunk({"text": "Let me "}, {"text": "look."}),
        chunk(call | {"thoughtSignature": SIGNED}, {"functionCall": {"name": "clock", "args": {}}}),
        chunk({"executableCode": {"code": "1"}}, {"thoughtSignature": SIGNED}),
        chunk({"text": ""}, finishReason="STOP") | {"usageMetadata": {"promptTokenCount": 9, "thoughtsTokenCount": 2}},
    ]


def anthropic_chunks() -> list[Any]:
    def of(kind: str, place: int, **more: Any) -> dict[str, Any]:
        return {"type": f"content_block_{kind}", "index": place, **more}

    def block(place: int, empty: dict[str, Any], *deltas: dict[str, Any]) -> list[Any]:
        return [
            of("start", place, content_block=empty),
            *(of("delta", place, delta=delta) for delta in deltas),
            of("stop", place),
        ]

    call = {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {}, "caller": {"type": "direct"}}
    thought = {"type": "thinking", "thinking": "", "signature": ""}
    thinks = {"type": "thinking_delta", "thinking": "Hm."}
    cites = {"type": "citations_delta", "citation": {"cited_text": "x"}}
    return [
        {"type": "message_start", "message": {"id": "msg_1", "usage": {"input_tokens": 9, "output_tokens": 1}}},
        *block(0, thought, thinks, {"type": "signature_delta", "signature": SIGNED}),
        *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Let me "}, cites),
        *block(2, {"type": "redacted_thinking", "data": SIGNED}),
        *block(3, call, *({"type": "input_json_delta", "partial_json": half} for half in ('{"zone": ', '"UTC"}'))),
        *block(4, call | {"id": "toolu_2", "input": {"zone": "CET"}}),
        *block(5, {"type": "server_tool_use", "name": "web_search", "input": {}}),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]


def ollama_chunks() -> list[Any]:
    def says(**message: Any) -> dict[str, Any]:
        return {"model": "m", "message": {"role": "assistant", "content": "", **message}, "done": False}

    calls = [
        {"id": f"call_{zone}", "function": {"name": "clock", "arguments": {"zone": zone}}} for zone in ("UTC", "CET")
    ]
    end = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", "eval_count": 9}
    return [says(thinking="Hm."), says(content="Let me "), says(content="look."), says(tool_calls=calls), end]


@dataclass(frozen=True)
class Case:
    chunks: list[Any]
    decoder: Callable[[], Any]
    encode: Callable[[Request, str], dict[str, Any]]


CASES = {
    "openai": Case(responses_chunks(), Responses, responses.encode),
    "openai-chat": Case(chat_chunks(), Chat, chat_completions.encode),
    "gemini": Case(gemini_chunks(), lambda: Gemini("gemini-3.5-flash"), gemini_encoder.encode),
    "ollama": Case(ollama_chunks(), ollama.Decoder, ollama.encode),
    "anthropic": Case(anthropic_chunks(), lambda: Anthropic("claude-sonnet-5-5"), anthropic_encoder.encode),
}

WORDS = st.sampled_from(
    [
        "",
        "x",
        "\ud800",
        "length",
        "content_filter",
        "MAX_TOKENS",
        "MALFORMED_FUNCTION_CALL",
        "message",
        "refusal",
        "pause_turn",
    ]
)
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS | st.just("text"), inner, max_size=2),
    max_leaves=4,
)


@st.composite
def spoiled(draw: st.DrawFn, chunks: list[Any]) -> list[Any]:
    """A stream in which a few chunks are lost, doubled or moved, and a few values are others or gone."""
    stream = deepcopy(chunks)
    for _ in range(draw(st.integers(0, 4))):
        at, to = draw(st.integers(0, len(stream) - 1)), draw(st.integers(0, len(stream) - 1))
        match draw(st.sampled_from(["lose", "double", "move", "cut", "replace", "replace", "replace", "drop"])):
            case "lose" if len(stream) > 1:
                del stream[at]
            case "double":
                stream.insert(to, deepcopy(stream[at]))
            case "move":
                stream.insert(to, stream.pop(at))
            case "cut":
                del stream[at + 1 :]
            case how:
                holder, key = draw(st.sampled_from([(stream, at), *places(stream[at])]))
                if how == "replace" or not isinstance(holder, dict):
                    holder[key] = draw(ODD)
                else:
                    del holder[key]
    return stream


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value inside another, as the holder and the key to change it by."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def decoded(decoder: Any, stream: list[Any]) -> tuple[list[ModelEvent], ProviderError | None]:
    events: list[ModelEvent] = []
    try:
        for chunk in stream:
            events += decoder.feed(chunk)  # what came before an error is not looked at: it is withdrawn
        events += decoder.close()
    except ProviderError as error:
        return events, error
    return events, None


def check_order(events: list[ModelEvent], *, whole: bool) -> None:
    """Parts are started with the next index, told, and finished once as what they were started; the end is the last."""
    kinds: dict[int, str] = {}
    started = 0
    for place, event in enumerate(events):
        match event:
            case PartStarted():
                assert event.index == started
                kinds[event.index] = event.kind
                started += 1
            case PartDelta():
                assert event.index in kinds
            case PartFinished():
                assert kinds.pop(event.index) == event.part.type
            case ModelFinished():
                assert whole
                assert place == len(events) - 1
    if whole:
        assert not kinds
        assert isinstance(events[-1], ModelFinished)


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None)  # the machine may be busy
@given(data=st.data())
def test_a_spoiled_stream_comes_out_in_order_or_as_a_provider_error(name: str, data: st.DataObject):
    case = CASES[name]
    events, error = decoded(case.decoder(), data.draw(spoiled(case.chunks)))
    check_order(events, whole=error is None)
    str(error).encode()


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None)  # the machine may be busy
@given(data=st.data())
def test_whatever_came_of_a_spoiled_stream_can_be_kept_and_sent_to_every_provider(name: str, data: st.DataObject):
    case = CASES[name]
    events, _ = decoded(case.decoder(), data.draw(spoiled(case.chunks)))
    answer = Message("assistant", tuple(event.part for event in events if isinstance(event, PartFinished)))
    results = tuple(ToolResult(call.id, call.name, (Text("noon"),)) for call in answer.calls)
    history = (user("Hi"), answer, *([Message("tool", results)] if results else []), user("Go on."))
    assert serialization.decode(serialization.encode(answer).encode().decode()) == answer
    for other in CASES.values():
        body = other.encode(Request(history), "gemini-3.5-flash")
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()


def test_nothing_after_the_closing_event_is_looked_at():
    case = CASES["openai"]
    events, error = decoded(case.decoder(), [*case.chunks, [], case.chunks[-1]])
    assert error is None
    check_order(events, whole=True)


@pytest.mark.parametrize("name", CASES)
def test_the_streams_are_valid_before_they_are_spoiled(name: str):
    case = CASES[name]
    events, error = decoded(case.decoder(), case.chunks)
    assert error is None
    parts = [event.part for event in events if isinstance(event, PartFinished)]
    assert len([part for part in parts if isinstance(part, ToolCall)]) == 2
    assert len({part.id for part in parts if isinstance(part, ToolCall)}) == 2


@settings(deadline=None)  # the machine may be busy
@given(ODD)
def test_whatever_the_local_runtime_says_is_a_piece_or_a_provider_error(odd: Any):
    for chunk in ({"choices": odd}, {"choices": [odd]}, {"error": odd}, {"choices": [{"delta": odd}], "timings": odd}):
        try:
            assert all(isinstance(piece, str | llama.Finished) for piece in llama.decode(chunk))
        except ProviderError as error:
            assert str(error).encode()  # noqa: PT017  (either is right)
