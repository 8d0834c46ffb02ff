"""Our values as those of the mcp library: whatever a text holds, a client can read the JSON."""

import json

import pytest

from agentmagic.messages import Media, Resource, Text, ToolDef, ToolResult
from agentmagic.serve.content import to_answer, to_tool

pytest.importorskip("mcp")
HALVES = ["a\ud800c", "\udcff", "\udc00\ud800", "😀\ud83d"]


@pytest.mark.parametrize("half", HALVES)
def test_a_lone_surrogate_becomes_a_replacement_character_in_results_and_definitions(half):
    schema = {"type": "object", "properties": {half: {"enum": [half]}}}
    content = (Text(half), Resource("x://y", half, "text/plain", half), Media("image/png", b"png", half))
    for made in (to_answer(ToolResult("c", "n", content)), to_tool(ToolDef("n", half, schema))):
        written = made.model_dump_json().encode()
        assert "\ufffd" in json.dumps(json.loads(written), ensure_ascii=False)
