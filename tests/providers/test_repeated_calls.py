"""A call that a server sends twice is one call, and two calls with one id or index are two where the frames say so."""

import json

import pytest

from agentmagic.messages import ToolCall
from agentmagic.providers.anthropic.decoder import Decoder as Messages
from agentmagic.providers.gemini.decoder import Decoder as Gemini
from agentmagic.providers.ollama import Decoder as Ollama
from agentmagic.providers.openai.chat_decoder import Decoder as Chat
from agentmagic.providers.openai.responses import Decoder as Responses

ONE, TWO = {"a": 1, "b": 2}, {"a": 3, "b": 4}
SPACED = json.dumps(ONE, indent=1)
END = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}


def piece(text, index=0, call_id="", name="", **more):
    """A piece of a call of a chat server."""
    function = {"arguments": text} | ({"name": name} if name else {})
    entry = {"index": index, "function": function, **({"id": call_id} if call_id else {}), **more}
    entry = {key: value for key, value in entry.items() if value is not None}
    return {"choices": [{"delta": {"tool_calls": [entry]}}]}


HEAD = piece('{"a": 1, ', call_id="c", name="add"), piece('"b": 2}')
WHOLE, OTHER = json.dumps(ONE), json.dumps(TWO)
CHAT = {
    "streamed and then whole": ([*HEAD, piece(WHOLE)], [ONE]),
    "streamed and then whole in other blanks": ([*HEAD, piece(SPACED)], [ONE]),
    "streamed and then whole with the name and the id": ([*HEAD, piece(WHOLE, call_id="c", name="add")], [ONE]),
    "streamed and then in the whole message": (
        [
            *HEAD,
            {"choices": [{"message": {"tool_calls": [{"id": "c", "function": {"name": "add", "arguments": WHOLE}}]}}]},
        ],
        [ONE],
    ),
    "three times": ([*HEAD, piece(WHOLE), piece(WHOLE)], [ONE]),
    "as an object and then as text": ([piece(ONE, call_id="c", name="add"), piece(WHOLE)], [ONE]),
    "two equal calls with two ids": ([piece(WHOLE, 0, "c", "add"), piece(WHOLE, 1, "d", "add")], [ONE, ONE]),
    "two equal calls with two ids and one index": (
        [piece(WHOLE, 0, "c", "add"), piece(WHOLE, 0, "d", "add")],
        [ONE, ONE],
    ),
    "two equal calls with names and without ids": (
        [piece(WHOLE, 0, "", "add"), piece(WHOLE, 0, "", "add")],
        [ONE, ONE],
    ),
    "two calls with one id and two names": ([piece(WHOLE, 0, "c", "add"), piece(OTHER, 0, "c", "sub")], [ONE, TWO]),
    "two calls with one id whose name comes again": (
        [piece(WHOLE, 0, "c", "add"), piece(OTHER, 0, "c", "add")],
        [ONE, TWO],
    ),
    "two calls with one id and two indices": ([piece(WHOLE, 0, "c", "add"), piece(OTHER, 1, "c", "add")], [ONE, TWO]),
    "two objects that nothing tells apart": ([*HEAD, piece(OTHER)], [{"_raw": f"{WHOLE}{OTHER}"}]),
}


def calls_of(decoder, chunks):
    """Return the calls of a response; their ids are different."""
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    events += decoder.close(done=True)
    found = [event.part for event in events if isinstance(getattr(event, "part", None), ToolCall)]
    assert len({call.id for call in found}) == len(found)
    return [dict(call.arguments) for call in found]


@pytest.mark.parametrize(("chunks", "arguments"), CHAT.values(), ids=CHAT)
def test_calls_of_chat_servers(chunks, arguments):
    assert calls_of(Chat("m", {"add", "sub"}), [*chunks, END]) == arguments


ITEM = {"type": "function_call", "id": "fc", "call_id": "c", "name": "add", "arguments": ""}
FULL = ITEM | {"arguments": WHOLE}


def said(kind, **fields):
    return {"type": f"response.{kind}", "output_index": 0, "item_id": "fc", **fields}


ADDED = said("output_item.added", item=ITEM)
DELTA = said("function_call_arguments.delta", delta=WHOLE)
DONE = said("function_call_arguments.done", arguments=WHOLE)
RESPONSES = {
    "in every event": [ADDED, DELTA, DONE, said("output_item.done", item=FULL)],
    "as pieces and once more as a piece": [ADDED, DELTA, DELTA, said("output_item.done", item=ITEM)],
    "only in the end of the pieces": [ADDED, DONE, said("output_item.done", item=ITEM)],
    "as a whole item twice": [ADDED, said("output_item.done", item=FULL), said("output_item.done", item=FULL)],
}


@pytest.mark.parametrize("events", RESPONSES.values(), ids=RESPONSES)
def test_calls_of_responses(events):
    closing = {"type": "response.completed", "response": {"status": "completed", "output": [FULL]}}
    assert calls_of(Responses(), [*events, closing]) == [ONE]


def block(**fields):
    return {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "c", "name": "add", **fields},
    }


def input_delta(text):
    return {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": text}}


MESSAGES = {
    "in the start and in pieces": [block(input=ONE), input_delta(WHOLE)],
    "in pieces and once more": [block(input={}), input_delta(WHOLE[:9]), input_delta(WHOLE[9:]), input_delta(SPACED)],
    "only in the start": [block(input=ONE)],
}


@pytest.mark.parametrize("events", MESSAGES.values(), ids=MESSAGES)
def test_calls_of_anthropic(events):
    closing = [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    ]
    assert calls_of(Messages("m"), [*events, *closing, {"type": "message_stop"}]) == [ONE]


def candidate(*calls):
    return {"candidates": [{"content": {"parts": [{"functionCall": {"name": "add", **call}} for call in calls]}}]}


GEMINI = {
    "equal calls without ids": ([candidate({"args": ONE}, {"args": ONE})], [ONE, ONE]),
    "equal calls with two ids": ([candidate({"id": "c", "args": ONE}, {"id": "d", "args": ONE})], [ONE, ONE]),
}


@pytest.mark.parametrize(("chunks", "arguments"), GEMINI.values(), ids=GEMINI)
def test_calls_of_gemini(chunks, arguments):
    assert calls_of(Gemini("m"), [*chunks, {"candidates": [{"finishReason": "STOP"}]}]) == arguments


def line(*calls):
    entries = [{"function": {"name": "add", "arguments": arguments}} | own for arguments, own in calls]
    return {"message": {"tool_calls": entries}}


OLLAMA = {
    "equal calls without ids": ([line((ONE, {}), (ONE, {}))], [ONE, ONE]),
}


@pytest.mark.parametrize(("lines", "arguments"), OLLAMA.values(), ids=OLLAMA)
def test_calls_of_ollama(lines, arguments):
    assert calls_of(Ollama(), [*lines, {"done": True, "done_reason": "stop"}]) == arguments
