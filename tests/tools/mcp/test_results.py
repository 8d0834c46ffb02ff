"""Results that are not quite of MCP's shape, and what is left of them."""

import pytest
from mcp import types
from mcp.types import methods

from agentmagic.tools.mcp.results import LISTS, repair_result

WORDS = {"type": "text", "text": "words"}
LINK = {"type": "resource_link", "uri": "a:b", "name": "b"}
UNREADABLE = "[{} left out: what the server sent of it cannot be read]"


def said(text):
    return {"type": "text", "text": text}


BLOCKS = {
    "a whole one": (WORDS, WORDS),
    "null words": ({"type": "text", "text": None}, said("")),
    "data": ({"type": "text", "text": {"a": 1}}, said('{"a": 1}')),
    "a bare text": ("words", WORDS),
    "no type": ({"text": "words"}, WORDS),
    "nothing known": ({"odd": 1}, said('{"odd": 1}')),
    "odd annotations": (WORDS | {"annotations": {"audience": "user", "priority": 5}}, WORDS),
    "odd metadata": (WORDS | {"_meta": [], "annotations": 7}, WORDS),
    "a picture of no type": ({"type": "image", "data": "AAAA"}, {"type": "image", "data": "AAAA", "mimeType": ""}),
    "a picture of nothing": ({"type": "image", "mimeType": "image/png"}, said(UNREADABLE.format("image"))),
    "an odd link of no name": (LINK | {"name": None, "size": "large", "icons": 7}, LINK | {"name": "a:b"}),
    "a resource": (
        {"type": "resource", "resource": {"uri": "a:b", "text": "x", "mimeType": 7}},
        {"type": "resource", "resource": {"uri": "a:b", "text": "x"}},
    ),
    "a resource of nothing": ({"type": "resource", "resource": {"uri": "a:b"}}, said(UNREADABLE.format("resource"))),
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
    result = repaired("tools/call", {"content": [WORDS, given, LINK]})
    assert result == {"content": [WORDS, left, LINK]}
    types.CallToolResult.model_validate(result, by_name=False)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, {"content": []}),
        ({"content": None, "isError": None, "structuredContent": None}, {"content": []}),
        ({"content": "words"}, {"content": [WORDS]}),
        ({"content": [None, WORDS]}, {"content": [WORDS]}),
        ({"content": [], "isError": "true"}, {"content": [], "isError": True}),
        ({"content": [], "isError": "perhaps", "_meta": [], "resultType": 7}, {"content": []}),
        ({"structuredContent": {"a": 1}}, {"content": [], "structuredContent": {"a": 1}}),
        ({"structuredContent": [1]}, {"content": [], "structuredContent": {"result": [1]}}),
    ],
)
def test_a_field_out_of_shape_loses_that_field_and_not_the_result(given, left):
    result = repaired("tools/call", given)
    assert result == left
    types.CallToolResult.model_validate(result, by_name=False)


FINE = {
    "prompts/list": {"name": "b"},
    "prompts/get": {"role": "user", "content": WORDS},
    "resources/list": {"uri": "a:b", "name": "b"},
    "resources/read": {"uri": "a:b", "text": "x"},
    "resources/templates/list": {"uriTemplate": "a:{b}", "name": "b"},
}


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
