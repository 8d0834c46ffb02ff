"""A call that a server sends twice runs once; two calls stay two: frames of every dialect, and the calls in them."""

from collections.abc import Iterable
from typing import Any

import pytest

from agentmagic.events import PartFinished, PartStarted
from agentmagic.messages import ToolCall
from agentmagic.providers import ollama
from agentmagic.providers.anthropic.decoder import Decoder as Anthropic
from agentmagic.providers.gemini.decoder import Decoder as Gemini
from agentmagic.providers.openai.chat_decoder import Decoder as Chat
from agentmagic.providers.openai.responses import Decoder as Responses

Json = dict[str, Any]

ONE, SAME, TWO = '{"a": 1, "b": 2}', '{"b":2,"a":1}', '{"a": 3, "b": 4}'
AS_ONE, AS_TWO = {"a": 1, "b": 2}, {"a": 3, "b": 4}
ADD, AND = [("add", AS_ONE)], [("add", AS_ONE), ("add", AS_TWO)]
TWICE = ADD * 2
RAW = [("add", {"_raw": ONE + TWO})]


def calls(decoder: Any, frames: Iterable[Json]) -> list[tuple[str, Json]]:
    """The calls that come of the frames: each part that was begun has an end."""
    events = [event for frame in frames for event in decoder.feed(frame)]
    events += decoder.close()
    assert sorted(one.index for one in events if isinstance(one, PartStarted)) == sorted(
        one.index for one in events if isinstance(one, PartFinished)
    )
    return [
        (one.part.name, dict(one.part.arguments))
        for one in events
        if isinstance(one, PartFinished) and isinstance(one.part, ToolCall)
    ]


def entry(text: object, name: str = "", **more: Any) -> Json:
    return {"function": {"arguments": text, **({"name": name} if name else {})}, **more}


def delta(*entries: Json, **more: Any) -> Json:
    return {"choices": [{"index": 0, "delta": {"tool_calls": list(entries)}, **more}]}


HEAD = {"index": 0, "id": "c1", "type": "function"}
PIECES = [delta(entry('{"a": 1, ', "add", **HEAD)), delta(entry('"b": 2}', index=0))]
BARE = [delta(entry('{"a": 1, ', "add", index=0)), delta(entry('"b": 2}', index=0))]
"""The pieces of a call, with its id and without."""
STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}


def message(*entries: Json) -> Json:
    return {"choices": [{"index": 0, "message": {"tool_calls": list(entries)}, "finish_reason": "tool_calls"}]}


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        # The same object once more, in every form:
        ([*PIECES, delta(entry(SAME, index=0))], ADD),
        ([*PIECES, delta(entry(SAME))], ADD),
        ([*PIECES, delta(entry(SAME, "add", index=0))], ADD),
        ([*PIECES, delta(entry(SAME, "add", **HEAD))], ADD),
        ([*PIECES, delta(entry(SAME, "add", id="c1"))], ADD),
        ([*PIECES, delta(entry(SAME, **HEAD))], ADD),
        ([*PIECES, delta(entry(AS_ONE, "add", **HEAD))], ADD),
        ([*PIECES, delta(entry("", "add", **HEAD)), delta(entry(SAME, index=0))], ADD),
        ([*PIECES, delta(entry('{"b":2,', "add", **HEAD)), delta(entry('"a":1}', index=0))], ADD),
        ([delta(entry(ONE, "add", **HEAD)), delta(entry(SAME, "add", **HEAD))], ADD),
        ([*PIECES, delta(entry(SAME, "add", **HEAD)), delta(entry(SAME, "add", **HEAD))], ADD),
        ([*PIECES, message(entry(SAME, "add", **HEAD))], ADD),
        ([*BARE, delta(entry(SAME, index=0))], ADD),
        ([*BARE, delta(entry(SAME, "add", index=0))], ADD),
        # Calls that come only in the message behind the pieces of the text:
        ([{"choices": [{"delta": {"content": "I add."}}]}, message(entry(ONE, "add", id="c1"))], ADD),
        # Two calls with the same arguments:
        ([delta(entry(ONE, "add", **HEAD), entry(SAME, "add", index=1, id="c2"))], TWICE),
        ([*PIECES, delta(entry(SAME, "add", index=0, id="c2"))], TWICE),
        ([*PIECES, delta(entry(SAME, index=0, id="c2"))], TWICE),
        ([*PIECES, delta(entry(SAME, "add", index=1, id="c1"))], TWICE),
        ([delta(entry(ONE, "add", index=0)), delta(entry(SAME, "add", index=0))], TWICE),
        # Two calls under one id or index, which the frames tell apart:
        ([*PIECES, delta(entry(TWO, "add", **HEAD))], AND),
        ([*PIECES, delta(entry(TWO, **HEAD))], AND),
        ([*PIECES, delta(entry(TWO, index=0, id="c2"))], AND),
        ([*PIECES, delta(entry(TWO, "add", index=1, id="c1"))], AND),
        ([*PIECES, delta(entry(TWO, "rows", **HEAD))], [*ADD, ("rows", AS_TWO)]),
        ([*PIECES, delta(entry(SAME, "rows", **HEAD))], [*ADD, ("rows", AS_ONE)]),
        # Two objects that nothing tells apart:
        ([*PIECES, delta(entry(TWO, index=0))], [("add", {"_raw": '{"a": 1, "b": 2}' + TWO})]),
    ],
)
def test_chat(frames: list[Json], expected: list[Any]):
    assert calls(Chat("m", ["add", "rows"]), [*frames, STOP]) == expected


ITEM = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "add", "arguments": ""}


def event(kind: str, **more: Any) -> Json:
    return {"type": f"response.{kind}", "output_index": 0, **more}


def grown(text: str) -> Json:
    return event("function_call_arguments.delta", item_id="f1", delta=text)


def ended(text: str, **more: Any) -> Json:
    return event("output_item.done", item=ITEM | {"arguments": text, **more})


def completed(*texts: str) -> Json:
    return event("completed", response={"status": "completed", "output": [ITEM | {"arguments": one} for one in texts]})


OTHER = ITEM | {"id": "f2"}
BEGUN = [event("output_item.added", item=ITEM), grown('{"a": 1, '), grown('"b": 2}')]
DONE = event("function_call_arguments.done", item_id="f1", arguments=SAME)


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([*BEGUN, DONE, ended(SAME), completed(SAME)], ADD),
        ([*BEGUN, grown(SAME), completed()], ADD),
        ([*BEGUN, grown(SAME), ended(ONE + SAME), completed(ONE + SAME)], ADD),
        ([*BEGUN, DONE, ended(SAME), ended(SAME), completed(SAME)], ADD),
        ([*BEGUN, ended(ONE), event("output_item.added", item=OTHER), ended(SAME, id="f2"), completed()], ADD),
        ([*BEGUN, ended(ONE), ended(SAME, id="f2"), completed(SAME)], ADD),
        ([*BEGUN, ended(ONE), ended(TWO, id="f2"), completed()], AND),
        ([*BEGUN, ended(ONE), ended(SAME, id="f2", call_id="c2"), completed()], TWICE),
        ([*BEGUN, ended(ONE), ended(SAME, id="f2", call_id="c2") | {"output_index": 1}, completed()], TWICE),
        ([*BEGUN, grown(TWO), completed()], RAW),
    ],
)  # fmt: skip
def test_responses(frames: list[Json], expected: list[Any]):
    assert calls(Responses(), frames) == expected


def block(given: object = None, place: int = 0, call_id: str = "t1") -> Json:
    use = {"type": "tool_use", "id": call_id, "name": "add", "input": given or {}}
    return {"type": "content_block_start", "index": place, "content_block": use}


def piece(text: str, place: int = 0) -> Json:
    return {"type": "content_block_delta", "index": place, "delta": {"type": "input_json_delta", "partial_json": text}}


def closed(place: int = 0) -> Json:
    return {"type": "content_block_stop", "index": place}


END = [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
WHOLE = [block(), piece('{"a": 1, '), piece('"b": 2}')]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([block(AS_ONE), piece(SAME), closed()], ADD),
        ([block(AS_ONE), closed()], ADD),
        ([*WHOLE, piece(SAME), closed()], ADD),
        ([*WHOLE, closed(), block(AS_ONE), closed()], ADD),
        ([*WHOLE, closed(), block(), piece(SAME), closed()], ADD),
        ([*WHOLE, closed(), block(place=1), piece(SAME, 1), closed(1)], ADD),
        ([*WHOLE, closed(), block(AS_ONE, 1, "t2"), closed(1)], TWICE),
        ([*WHOLE, closed(), block(AS_ONE, 0, "t2"), closed()], TWICE),
        ([*WHOLE, closed(), block(AS_TWO), closed()], AND),
        ([*WHOLE, closed(), block(), piece(TWO), closed()], AND),
        ([*WHOLE, piece(TWO), closed()], RAW),
    ],
)
def test_anthropic(frames: list[Json], expected: list[Any]):
    assert calls(Anthropic("m"), [*frames, *END]) == expected


def part(arguments: Json, *, sign: str = "", **more: Any) -> Json:
    call = {"functionCall": {"name": "add", "args": arguments, **more}}
    content = {"parts": [call | ({"thoughtSignature": sign} if sign else {})]}
    return {"candidates": [{"content": content}]}


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([part(AS_ONE, id="g1"), part(AS_ONE, id="g1")], ADD),
        ([part(AS_ONE, sign="c2lnbg=="), part(AS_ONE, sign="c2lnbg==")], ADD),
        ([part(AS_ONE, id="g1"), part(AS_ONE, id="g2")], TWICE),
        ([part(AS_ONE, sign="c2lnbg=="), part(AS_ONE)], TWICE),  # of parallel calls, the first is signed
        ([part(AS_ONE), part(AS_ONE)], TWICE),
        ([part(AS_ONE, id="g1"), part(AS_TWO, id="g1")], AND),
    ],
)
def test_gemini(frames: list[Json], expected: list[Any]):
    assert calls(Gemini("gemini-3-pro"), [*frames, {"candidates": [{"finishReason": "STOP"}]}]) == expected


def line(arguments: Json, **more: Any) -> Json:
    return {"message": {"tool_calls": [{"function": {"name": "add", "arguments": arguments}, **more}]}}


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([line(AS_ONE, id="o1"), line(AS_ONE, id="o1")], ADD),
        ([line(AS_ONE, id="o1"), line(AS_ONE)], ADD),
        ([line(AS_ONE, id="o1"), line(AS_ONE, id="o2")], TWICE),
        ([line(AS_ONE), line(AS_ONE)], TWICE),
        ([line(AS_ONE, id="o1"), line(AS_TWO, id="o1")], AND),
    ],
)
def test_ollama(frames: list[Json], expected: list[Any]):
    assert calls(ollama.Decoder("m"), [*frames, {"done": True}]) == expected
