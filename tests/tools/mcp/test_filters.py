import asyncio
import json
import time

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import types
from mcp.shared.message import SessionMessage

from agentmagic.tools.mcp import filters, limits
from agentmagic.tools.mcp.filters import MessageFilter
from agentmagic.tools.mcp.http_transport import Body, BodyTooLarge
from agentmagic.tools.mcp.limits import ValueCounter

MODERN = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}


def asked(method, params=None, identifier=1):
    return types.JSONRPCRequest(jsonrpc="2.0", id=identifier, method=method, params=params)


def answered(result, identifier=1):
    return types.JSONRPCResponse(jsonrpc="2.0", id=identifier, result=result)


def mended(method, params, result):
    """Pass an answer through a screen."""
    door, answer = MessageFilter(), answered(result)
    door.record_request(asked(method, params))
    door.repair_answer(answer)
    return answer.result


def test_an_answer_may_give_its_number_as_a_text_and_nobody_waits_for_it_twice():
    door = MessageFilter()
    assert not door.repair_answer(answered({}))
    door.record_request(asked("tools/list"))
    answer = answered({"tools": [7]}, identifier="1")
    assert door.repair_answer(answer)
    assert answer.result == {"tools": []}
    assert not door.repair_answer(answer)
    door.record_request(asked("tools/list"))
    door.record_request(
        types.JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 1})
    )
    assert not door.repair_answer(answered({}))


def test_a_text_in_place_of_a_list_of_tools_is_a_list_of_nothing_that_can_be_used():
    door = MessageFilter()
    door.record_request(asked("tools/list"))
    answer = answered({"tools": "all of them"})
    door.repair_answer(answer)
    assert (answer.result, door.left_out) == ({"tools": []}, {"tool 1": "It is no JSON object."})


def test_a_result_of_2026_without_its_type_counts_as_complete():
    result = mended("tools/call", MODERN, {"content": []})
    assert result == {"content": [], "resultType": "complete"}
    listed = mended("tools/list", MODERN, {"tools": None, "ttlMs": "soon", "cacheScope": "odd"})
    assert listed == {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    assert mended("tools/call", MODERN, {"resultType": "input_required"})["resultType"] == "input_required"
    assert mended("tools/call", {}, {"content": []}) == {"content": []}


def test_a_tool_that_asks_for_impossible_headers_is_named():
    def tool(name, header):
        return {"name": name, "inputSchema": {"properties": {"x": {"type": "str", "x-mcp-header": header}}}}

    door = MessageFilter()
    answer = answered({"tools": [tool("fine", "Region"), tool("odd", "a b"), tool("none", None)]})
    door.record_request(asked("tools/list", MODERN))
    assert door.repair_answer(answer)
    assert [one["name"] for one in answer.result["tools"]] == ["fine", "none"]
    assert "headers that cannot be" in door.left_out["odd"]


def asks(number):
    return SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=number, method="roots/list"))


def test_a_request_that_the_server_takes_back_leaves_room_for_another():
    sift = filters._IncomingStream(None, MessageFilter())._sift
    both = [item for number in range(20) for item in (asks(number), notice("cancelled", requestId=number))]
    assert all(sift(item) is item for item in both)
    assert sift(notice("cancelled", requestId=99)) is None
    assert [sift(asks(number)) is not None for number in range(20, 23)] == [True] * 3
    assert sift(asks(20)) is None, "it is still to be answered"


def test_a_list_that_is_cut_between_two_pages_says_so(monkeypatch):
    monkeypatch.setattr(limits, "TOOLS", 2)
    door = MessageFilter()
    answer = answered({"tools": [{"name": name} for name in "ab"], "nextCursor": "2"})
    door.record_request(asked("tools/list"))
    assert door.repair_answer(answer)
    assert "nextCursor" not in answer.result
    assert list(door.left_out) == ["..."]


def test_a_request_of_the_server_that_is_dropped_gets_an_error():
    async def main():
        into, incoming = anyio.create_memory_object_stream(100)
        outgoing, sent = anyio.create_memory_object_stream(100)
        for number in range(limits.OPEN_REQUESTS + 2):
            into.send_nowait(asks(number))
        into.close()
        stream = filters._IncomingStream(incoming, MessageFilter(), outgoing)
        assert [item.message.id async for item in stream] == list(range(limits.OPEN_REQUESTS))
        outgoing.close()
        refused = [item.message async for item in sent]
        assert [one.id for one in refused] == [limits.OPEN_REQUESTS, limits.OPEN_REQUESTS + 1]
        assert "too many requests" in refused[0].error.message
        sent.close()
        incoming.close()

    asyncio.run(main())


def notice(method="x", **params):
    return SessionMessage(types.JSONRPCNotification(jsonrpc="2.0", method=f"notifications/{method}", params=params))


def test_held_notices_come_when_their_time_has_come_and_an_answer_at_that_time_is_not_lost():
    async def main():
        into, incoming = anyio.create_memory_object_stream(100)
        door = MessageFilter()
        door.record_request(asked("tools/call"))
        heard = filters._IncomingStream(incoming, door)
        for number in range(20):
            into.send_nowait(notice("progress", progressToken=1, progress=number))
        got = [(await heard.receive()).message.model_dump()["params"]["progress"] for _ in range(limits.BURST + 1)]
        assert got == [0, 1, 2, 3, 4, 19]
        into.send_nowait(notice("progress", progressToken=1, progress=20))
        answer, loop = SessionMessage(answered({})), asyncio.get_running_loop()
        # A blocked loop makes both due in one step, the answer first.
        loop.call_later(0.005, time.sleep, 0.1)
        loop.call_later(0.01, into.send_nowait, answer)
        async with asyncio.timeout(5):
            assert answer in [await heard.receive(), await heard.receive()]
        into.close()
        assert [one async for one in heard] == []
        incoming.close()

    asyncio.run(main())


@given(st.recursive(st.none() | st.text(max_size=8), lambda one: st.lists(one, max_size=4)), st.integers(1, 9))
def test_values_are_counted_however_the_bytes_are_cut(value, size):
    text = json.dumps(value, ensure_ascii=False).encode()
    whole, pieces = ValueCounter(), ValueCounter()
    whole.feed(text)
    for at in range(0, len(text), size):
        pieces.feed(text[at : at + size])
    assert whole.count == pieces.count == marks(value)


def marks(value):
    """Count brackets and commas of a value written out, without those in texts."""
    return 1 + max(0, len(value) - 1) + sum(map(marks, value)) if isinstance(value, list) else 0


def test_a_json_body_is_passed_on_whole_and_within_its_limits():
    body = Body(events=False, longest=10)
    assert (body.feed(b"12345"), body.feed(b"67890"), body.rest()) == (b"", b"", b"1234567890")
    with pytest.raises(BodyTooLarge):
        body.feed(b"x" * 11)
    with pytest.raises(BodyTooLarge):
        Body(events=False).feed(b"[]," * limits.MESSAGE_VALUES)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_events_are_passed_on_one_by_one_each_within_its_limits_and_half_a_character_is_mended(end):
    body = Body(events=True)
    assert body.feed(b'data: {"x": "\\ud8') == b""
    assert body.feed(b'3d"}' + end) == b'data: {"x": "\\ufffd"}' + end
    body = Body(events=True, longest=100)
    stream = b"".join(b"data: %d" % number + end for number in range(200))
    passed = b"".join(body.feed(stream[at : at + 3]) for at in range(0, len(stream), 3)) + body.rest()
    assert passed == stream
    with pytest.raises(BodyTooLarge):
        Body(events=True, longest=100).feed(b"data: " + b"x" * 100)


def test_a_schema_keeps_what_a_call_must_match_and_its_words_are_clean():
    hidden = "a\u200bb"
    schema = {
        "description": f"{hidden} c",
        "properties": {hidden: {"title": hidden, "const": hidden, "default": hidden}},
    }
    (tool,) = mended("tools/list", {}, {"tools": [{"name": "any", "inputSchema": schema}]})["tools"]
    kept = {hidden: {"title": "ab", "const": hidden, "default": hidden}}
    assert tool["inputSchema"] == {"type": "object", "description": "ab c", "properties": kept}


DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(20)} | {"d20": {}}
"""References that stand for a million schemas."""


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "back to itself"),
        ({"$ref": "#/nowhere"}, "leads nowhere"),
        ({"$ref": "other.json"}, "not fetched"),
        ({"$dynamicRef": "#x"}, "depend on where"),
        ({"properties": {"x": {"pattern": "((a{99}){99}){99}"}}}, "regular expressions"),
        ({"properties": {"x": {"pattern": "a{60000}"}}}, "regular expressions"),
        ({"properties": {f"x{n}": {} for n in range(6000)}}, "over the limit"),
        ({"dependencies": {"x": {"$ref": "#/$defs/d0"}}, "$defs": DOUBLING}, "over the limit"),
        ({"allOf": [{"$id": "http://a/b", "$ref": "#/$defs/d0", "$defs": DOUBLING}]}, "address of its own"),
    ],
)
def test_schemas_that_are_too_much_work_are_told(schema, words):
    assert words in limits.schema_problem(schema)


def test_notices_that_cannot_be_read_are_told_from_those_that_can():
    for method, params, sound in (
        ("progress", {"progressToken": 1, "progress": 0.5}, True),
        ("progress", {"progressToken": 1, "progress": "half"}, False),
        ("unheard/of", {"x": 1}, True),
    ):
        assert filters.is_sound(f"notifications/{method}", params) is sound
