"""Every decoder over valid streams that were spoiled at random: only a ProviderError comes out, and only in order."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmagic import serialization
from agentmagic.errors import ProviderError
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Message, Text, ToolResult, user
from agentmagic.providers import ollama
from agentmagic.providers.anthropic import encoder as anthropic_encoder
from agentmagic.providers.anthropic.decoder import Decoder as Anthropic
from agentmagic.providers.base import ModelEvent, ModelFinished, Request
from agentmagic.providers.gemini import encoder as gemini_encoder
from agentmagic.providers.gemini.decoder import Decoder as Gemini
from agentmagic.providers.local import llama
from agentmagic.providers.openai import chat_completions, responses
from agentmagic.providers.openai.chat_decoder import Decoder as Chat
from agentmagic.providers.openai.responses import Decoder as Responses
from tests.providers.strict.script import call
from tests.providers.strict.server import APIS

SIGNED = "RXZJQ0N1OENBUg=="
ANSWER = call(("clock", {"zone": "UTC"}), ("clock", {"zone": "CET"}), think="Hm.", says="Let me look.")
MORE: dict[str, list[Any]] = {
    "gemini": [
        {"candidates": [{"content": {"parts": [{"executableCode": {"code": "1"}}, {"thoughtSignature": SIGNED}]}}]}
    ],
    "anthropic": [
        {"type": "content_block_start", "index": 8, "content_block": {"type": "redacted_thinking", "data": SIGNED}},
        {"type": "content_block_stop", "index": 8},
        {"type": "content_block_start", "index": 9, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "citations_delta", "citation": {}}},
        {"type": "content_block_stop", "index": 9},
        {"type": "content_block_start", "index": 10, "content_block": {"type": "server_tool_use", "name": "search"}},
        {"type": "content_block_stop", "index": 10},
    ],
}
"""What the strict servers do not write of the answers, to stand before their end."""


Case = tuple[Callable[[], Any], Callable[[Request, str], dict[str, Any]]]
CASES: dict[str, Case] = {
    "openai": (Responses, responses.encode),
    "openai-chat": (Chat, chat_completions.encode),
    "gemini": (lambda: Gemini("gemini-3.5-flash"), gemini_encoder.encode),
    "ollama": (ollama.Decoder, ollama.encode),
    "anthropic": (lambda: Anthropic("claude-sonnet-5-5"), anthropic_encoder.encode),
}
"""The decoder of each API, and how it writes a request."""


def chunks_of(name: str) -> list[Any]:
    """The chunks of an answer that thinks, speaks and calls twice, as the API writes them."""
    begin, rest = APIS[name]().stream(ANSWER)
    lines = [line.removeprefix("data:") for event in (*begin, *rest) for line in event.splitlines()]
    *chunks, before, end = [json.loads(line) for line in lines if line.strip().startswith("{")]
    return [*chunks, *MORE.get(name, ()), before, end]


CHUNKS = {name: chunks_of(name) for name in CASES}

WORDS = st.sampled_from(
    ["", "x", "\ud800", "length", "content_filter", "MAX_TOKENS", "MALFORMED_FUNCTION_CALL", "refusal", "pause_turn"]
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
def test_a_spoiled_stream_comes_out_in_order_or_as_a_provider_error_and_what_came_can_be_kept_and_sent(
    name: str, data: st.DataObject
):
    events, error = decoded(CASES[name][0](), data.draw(spoiled(CHUNKS[name])))
    check_order(events, whole=error is None)
    str(error).encode()
    answer = Message("assistant", tuple(event.part for event in events if isinstance(event, PartFinished)))
    results = tuple(ToolResult(call.id, call.name, (Text("noon"),)) for call in answer.calls)
    history = (user("Hi"), answer, *([Message("tool", results)] if results else []), user("Go on."))
    assert serialization.decode(serialization.encode(answer).encode().decode()) == answer
    for _, encode in CASES.values():
        body = encode(Request(history), "gemini-3.5-flash")
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode()


@settings(deadline=None)  # the machine may be busy
@given(ODD)
def test_whatever_the_local_runtime_says_is_a_piece_or_a_provider_error(odd: Any):
    for chunk in ({"choices": odd}, {"choices": [odd]}, {"error": odd}, {"choices": [{"delta": odd}], "timings": odd}):
        try:
            assert all(isinstance(piece, str | llama.Finished) for piece in llama.decode(chunk))
        except ProviderError as error:
            assert str(error).encode()  # noqa: PT017  (either is right)
