"""Results that are not quite of MCP's shape, and what is left of them."""

from copy import deepcopy

import pytest
from mcp import types
from mcp.types import methods

from agentmagic.tools.mcp import limits
from agentmagic.tools.mcp.results import LISTS, MOST_ERRORS, repair_result

WORDS = {"type": "text", "text": "words"}
LINK = {"type": "resource_link", "uri": "a:b", "name": "b"}
FLAT = {"type": "resource", "uri": "a:b", "text": "x"}
UNREADABLE = "[{} left out: what the server sent of it cannot be read]"


def said(text):
    return {"type": "text", "text": text}


def resource(**fields):
    return {"type": "resource", "resource": fields}


BLOCKS = {
    "a whole one": (WORDS, WORDS),
    "null words": ({"type": "text", "text": None}, said("")),
    "data": ({"type": "text", "text": {"a": 1}}, said('{"a": 1}')),
    "a bare text": ("words", WORDS),
    "no type": ({"text": "words"}, WORDS),
    "nothing known": ({"odd": 1}, said('{"odd": 1}')),
    "odd annotations": (WORDS | {"annotations": {"audience": "user", "priority": 5}}, WORDS | {"annotations": {}}),
    "one odd annotation": (
        WORDS | {"annotations": {"audience": ["user", "robot"], "priority": 1.5, "lastModified": 7}},
        WORDS | {"annotations": {"audience": ["user"]}},
    ),
    "a negative priority": (WORDS | {"annotations": {"priority": -1}}, WORDS | {"annotations": {}}),
    "very many odd annotations": (WORDS | {"annotations": {"audience": [7] * (MOST_ERRORS + 1)}}, WORDS),
    "an odd icon": (LINK | {"icons": [{"src": "c:d"}, {"size": 7}, "e:f"]}, LINK | {"icons": [{"src": "c:d"}]}),
    "odd metadata": (WORDS | {"_meta": [], "annotations": 7}, WORDS),
    "a picture of no type": ({"type": "image", "data": "AAAA"}, {"type": "image", "data": "AAAA", "mimeType": ""}),
    "a picture of nothing": ({"type": "image", "mimeType": "image/png"}, said(UNREADABLE.format("image"))),
    "an odd link of no name": (LINK | {"name": None, "size": "large", "icons": 7}, LINK | {"name": "a:b"}),
    "a resource": (
        {"type": "resource", "resource": {"uri": "a:b", "text": "x", "mimeType": 7}},
        {"type": "resource", "resource": {"uri": "a:b", "text": "x"}},
    ),
    "a resource without text": ({"type": "resource", "resource": {"uri": "a:b"}}, resource(uri="a:b", text="")),
    "a resource of data": (resource(uri="a:b", text={"a": 1}), resource(uri="a:b", text='{"a": 1}')),
    "a resource without an address": (resource(text="x", uri=7), resource(text="x", uri="")),
    "bytes without an address": (resource(blob="AAAA"), resource(blob="AAAA", uri="")),
    "a flat resource": (FLAT, FLAT | resource(**FLAT)),
    "a resource that is a text": ({"type": "resource", "resource": "words"}, WORDS),
    "a resource of nothing": (resource(), said(UNREADABLE.format("resource"))),
    "a link without an address": (LINK | {"uri": None}, said(UNREADABLE.format("resource_link"))),
    "an unknown type": ({"type": "video\n", "data": "A"}, said("[video: content of a type that MCP does not know]")),
    "a type of no text": ({"type": 7}, said('{"type": 7}')),
}


def repaired(method, result):
    """The result after the repair; the library takes it."""
    repair_result(method, result, modern=False)
    methods.validate_server_result(method, "2025-11-25", result)
    return result


@pytest.mark.parametrize(("given", "left"), BLOCKS.values(), ids=BLOCKS)
def test_a_block_out_of_shape_loses_only_what_is_wrong(given, left):
    result = repaired("tools/call", {"content": [WORDS, deepcopy(given), LINK]})
    assert result == {"content": [WORDS, left, LINK]}
    types.CallToolResult.model_validate(result, by_name=False)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, {"content": []}),
        ({"content": None, "isError": None, "structuredContent": None}, {"content": []}),
        ({"content": "words"}, {"content": [WORDS]}),
        ({"content": [None, WORDS]}, {"content": [WORDS]}),
        ({"content": [], "isError": "perhaps", "_meta": [], "resultType": 7}, {"content": []}),
        ({"structuredContent": {"a": 1}}, {"content": [], "structuredContent": {"a": 1}}),
        ({"structuredContent": [1]}, {"content": [], "structuredContent": {"result": [1]}}),
    ],
)
def test_a_field_out_of_shape_loses_that_field_and_not_the_result(given, left):
    result = repaired("tools/call", given)
    assert result == left
    types.CallToolResult.model_validate(result, by_name=False)


NAMED = {"name": "a", "arguments": [{"name": "b"}]}
FINE = {
    "prompts/list": {"name": "b"},
    "prompts/get": {"role": "user", "content": WORDS},
    "resources/list": {"uri": "a:b", "name": "b"},
    "resources/read": {"uri": "a:b", "text": "x"},
    "resources/templates/list": {"uriTemplate": "a:{b}", "name": "b"},
}


SERVER = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "a", "version": "1"}}


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"serverInfo": None}, {"serverInfo": {"name": "", "version": ""}}),
        ({"serverInfo": "a"}, {"serverInfo": {"name": "", "version": ""}}),
        ({"serverInfo": {"name": "a", "version": 1}}, {"serverInfo": {"name": "a", "version": ""}}),
        ({"serverInfo": {"version": "1", "icons": 7}}, {"serverInfo": {"name": "", "version": "1"}}),
        ({"capabilities": None}, {"capabilities": {}}),
        ({"capabilities": "all"}, {"capabilities": {}}),
        ({"capabilities": {"tools": True, "prompts": []}}, {"capabilities": {"tools": {}, "prompts": {}}}),
        ({"capabilities": {"tools": {"listChanged": "?"}, "logging": 7}}, {"capabilities": {"tools": {}}}),
        ({"capabilities": {"experimental": {"a": 7, "b": {}}}}, {"capabilities": {"experimental": {"b": {}}}}),
        ({"protocolVersion": None}, {"protocolVersion": "2025-03-26"}),
        ({"instructions": ["a"], "_meta": 7}, {}),
    ],
)
def test_a_greeting_out_of_shape_loses_only_what_is_wrong(given, left):
    assert repaired("initialize", SERVER | given) == SERVER | left
    result = DISCOVERED | {name: given[name] for name in given.keys() - {"protocolVersion"}}
    repair_result("server/discover", result, modern=True)
    types.DiscoverResult.model_validate(result, by_name=False)


DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {}}


def test_an_answer_that_names_no_version_of_2026_is_not_made_one_that_does():
    result = {"capabilities": {}}
    repair_result("server/discover", result, modern=True)
    assert "supportedVersions" not in result


@pytest.mark.parametrize(
    ("method", "given", "left"),
    [
        ("prompts/list", {"name": "a", "arguments": [{"name": "b", "title": 7}, {"title": "c"}, "d"]}, NAMED),
        ("prompts/get", {"role": "system", "content": WORDS}, {"role": "user", "content": WORDS}),
        ("prompts/get", {"content": None}, {"role": "user", "content": said("")}),
        (
            "resources/list",
            {"uri": "a:b", "annotations": {"priority": 5}},
            {"uri": "a:b", "name": "a:b", "annotations": {}},
        ),
        ("resources/templates/list", {"uriTemplate": "a:{b}"}, {"uriTemplate": "a:{b}", "name": "a:{b}"}),
        ("resources/read", {"uri": "a:b"}, {"uri": "a:b", "text": ""}),
        ("resources/read", {"text": "x", "mimeType": 7}, {"uri": "", "text": "x"}),
    ],
)
def test_a_field_of_an_entry_out_of_shape_costs_only_itself(method, given, left):
    for entries in ([given], given):  # one entry in place of a list is a list of one
        assert repaired(method, {LISTS[method]: deepcopy(entries)}) == {LISTS[method]: [left]}


def test_a_message_of_several_blocks_becomes_several_and_a_bare_text_becomes_one():
    first = {"role": "assistant", "content": [WORDS, {"text": None}] * 200}
    messages = repaired("prompts/get", {"messages": [first]})["messages"]
    assert messages[:2] == [{"role": "assistant", "content": said(words)} for words in ("words", "")]
    assert len(messages) == limits.RESULT_LISTS["messages"]
    assert repaired("prompts/get", {"messages": "words"}) == {"messages": [{"role": "user", "content": WORDS}]}


@pytest.mark.parametrize("method", FINE)
def test_an_entry_out_of_shape_costs_only_itself(method):
    fine, listed = FINE[method], LISTS[method]
    broken = [None, 7, {}, {"name": None, "uri": 7}]
    odd = {"content": "words"} if method == "prompts/get" else {"_meta": 7}
    result = repaired(method, {listed: [*broken, fine, fine | odd], "nextCursor": 2, "_meta": 7})
    assert result == {listed: [fine, fine], "nextCursor": "2"}


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("given", [{}, {"tools": None, "prompts": None, "messages": None, "contents": None}])
def test_null_for_a_list_is_a_list_of_nothing(method, given):
    assert repaired(method, dict(given)) == {LISTS[method]: []}


def test_of_2026_a_question_to_us_is_left_as_it_is_and_structured_content_may_have_any_form():
    asked = {"resultType": "input_required", "inputRequests": {"a": None}, "requestState": None}
    repair_result("tools/call", asked, modern=True)
    assert asked == {"resultType": "input_required", "inputRequests": {"a": None}, "requestState": None}
    result = {"structuredContent": [1], "resultType": "complete"}
    repair_result("tools/call", result, modern=True)
    assert result["structuredContent"] == [1]
