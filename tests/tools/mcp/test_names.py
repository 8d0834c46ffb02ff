import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic.tools.mcp import names

LEGAL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


@pytest.mark.parametrize(
    ("listings", "shown"),
    [
        ({"time": ["now"], "files": ["read"]}, ["now", "read"]),
        ({"a": ["search"], "b": ["search", "find"]}, ["a__search", "b__search", "find"]),
        ({"my server": ["do.it/now"], "7": ["9lives"]}, ["my_server__do_it_now", "_7__9lives"]),
    ],
)
def test_a_name_that_is_legal_and_alone_stays_and_others_carry_their_servers(listings, shown):
    assert list(names.visible_names(listings).values()) == shown


def test_names_that_still_clash_or_are_too_long_end_in_a_stable_hash_that_no_server_can_take():
    long = "x" * 80
    shown = names.visible_names({"a b": ["go", long], "a_b": ["go"]})
    assert re.fullmatch(r"a_b__go_[0-9a-f]{8}", shown["a b", "go"])
    assert shown["a b", "go"] != shown["a_b", "go"]
    assert len(shown["a b", long]) == 64
    assert shown["a b", long] == names.visible_names({"a b": [long]})["a b", long]
    tools = ["a b", "a.b"]
    foreseen = names.visible_names({"x": tools}).values()
    assert len(set(names.visible_names({"x": [*tools, *foreseen]}).values())) == 4


def test_a_tool_that_would_pass_for_one_of_another_server_carries_its_own_server():
    shown = names.visible_names({"good": ["read", "write"], "evil": ["read", "good__read", "good__delete"]})
    assert shown["good", "read"] == "good__read"
    assert shown["evil", "good__read"] == "evil__good__read"
    assert shown["evil", "good__delete"] == "evil__good__delete"
    assert shown["good", "write"] == "write"


@given(st.dictionaries(st.text(max_size=8), st.lists(st.text(max_size=70), max_size=6), max_size=4))
def test_every_name_is_legal_and_unique_whatever_servers_call_their_tools(listings):
    shown = list(names.visible_names(listings).values())
    assert len(set(shown)) == len(shown)
    assert all(LEGAL.fullmatch(name) for name in shown)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("mcp-server-time", "time"),
        ("npx -y @modelcontextprotocol/server-filesystem /data/mcp", "filesystem"),
        ("uvx mcp-server-git==1.0 --repository .", "git"),
        ("uv run weather.py", "weather"),
        ("node /opt/server-memory/dist/index.js /data", "memory"),
        ("foo 'unclosed", "foo"),
        ("", "server"),
        ("server", "server"),
        ("https://mcp.linear.app/mcp", "linear"),
        ("http://127.0.0.1:8000/mcp", "127-0-0-1"),
        ("http://localhost:8000/mcp", "localhost"),
        ({"url": "https://api.githubcopilot.com/mcp"}, "githubcopilot"),
        (object(), "server"),
    ],
)
def test_a_server_without_a_name_gets_one(entry, expected):
    assert names.alias(entry) == expected
