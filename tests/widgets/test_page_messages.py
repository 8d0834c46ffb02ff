"""What a person does in a view, and what a page may try instead."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic import secrets
from agentmagic.errors import UsageError
from agentmagic.events import ApprovalAsked, Approve, Deny, Reply, Stop
from agentmagic.messages import ToolCall
from agentmagic.text import DEEPEST, exact, sanitize_json
from agentmagic.widgets import page_messages as page
from agentmagic.widgets.page_messages import read
from tests.logs import json_values
from tests.widgets.page_types import FILE, page_types

SECRET = "sk-" + "a" * 40
ASKED = ApprovalAsked(
    "a1", ToolCall("c1", "login", {"user": "ann", "keys": [SECRET, 1], "deep": {"key": SECRET}}), "shop"
)


def asked(ask):
    return ASKED if ask == "a1" else None


GOOD = [
    ({"type": "approve", "id": "a1"}, Approve("a1")),
    ({"type": "approve", "id": "a1", "always": True}, Approve("a1", always=True)),
    ({"type": "deny", "id": "a1", "reason": "no"}, Deny("a1", "no")),
    ({"type": "reply", "id": "q", "text": "yes"}, Reply("q", "yes")),
    ({"type": "stop"}, Stop()),
    ({"type": "send", "text": "a\ud800"}, page.SendPrompt(text="a\ud800")),
    ({"type": "rewrite", "turn": 0, "text": "again"}, page.RewriteTurn(turn=0, text="again")),
    ({"type": "undo"}, page.UndoClear()),
    ({"type": "compact"}, page.CompactSession()),
    ({"type": "file", "name": "a.txt", "data": "YQ=="}, page.AttachFile(name="a.txt", data="YQ==")),
    ({"type": "export", "form": "json"}, page.ExportSession(form="json")),
    (
        {"type": "tool", "server": "s", "name": "t", "enabled": False},
        page.EnableTool(server="s", name="t", enabled=False),
    ),
]
BAD = [
    None,
    "stop",
    {},
    {"type": ["stop"]},
    {"type": "quit"},
    {"type": "stop", "extra": 1},
    {"type": "approve"},
    {"type": "approve", "id": 1},
    {"type": "approve", "id": "a1", "always": 1},
    {"type": "approve", "id": "x" * 1001},
    {"type": "approve", "id": "a1", "arguments": {}},
    {"type": "retry", "turn": -1},
    {"type": "retry", "turn": True},
    {"type": "send", "text": "x" * 2_000_001},
    {"type": "export", "form": "../../x"},
    {"type": "tool", "server": "s", "name": "t", "enabled": "no"},
    {"type": "file", "name": "a.txt"},
    {"type": "file", "name": "a.txt", "data": "x" * (page.LONGEST_FILE + 1)},
    {"type": "file", "name": "x" * 1001, "data": ""},
    {"type": "edit", "id": "a1"},
    {"type": "edit", "id": "other", "arguments": "{}"},
    {"type": "edit", "id": "a1", "arguments": "{"},
    {"type": "edit", "id": "a1", "arguments": "[]"},
    {"type": "edit", "id": "a1", "arguments": "[" * 100_000},
]


@pytest.mark.parametrize(("message", "action"), GOOD, ids=[message["type"] for message, _ in GOOD])
def test_a_message_of_the_page_becomes_a_value(message, action):
    assert read(message, asked) == action


@pytest.mark.parametrize("message", BAD, ids=lambda message: str(message)[:40])
def test_what_is_no_action_is_refused(message):
    with pytest.raises(UsageError):
        read(message, asked)


def test_a_refusal_repeats_little_of_what_the_page_sent():
    with pytest.raises(UsageError) as error:
        read({"type": "send", "text": "x", "\x1b[31mred" * 100: 1}, asked)
    assert "\x1b" not in str(error.value)
    assert len(str(error.value)) < 250


@given(st.dictionaries(st.sampled_from(["type", "id", "turn", "text", "__proto__"]), json_values))
def test_whatever_a_page_sends_is_an_action_or_refused(message):
    with suppress(UsageError):
        read(message, asked)


def test_edited_arguments_keep_the_secrets_that_the_page_did_not_see():
    edited = f'{{"user": "bob", "keys": ["{secrets.BLANK}", true], "deep": {{"key": "{secrets.BLANK}"}}, "more": 1}}'
    action = read({"type": "edit", "id": "a1", "arguments": edited}, asked)
    assert action == Approve(
        "a1", arguments={"user": "bob", "keys": [SECRET, True], "deep": {"key": SECRET}, "more": 1}
    )
    assert action.arguments is not None
    assert action.arguments["keys"][1] is True  # 1 would be equal


def test_line_ends_that_a_box_does_not_keep_are_no_edit():
    question = ApprovalAsked("a1", ToolCall("c1", "write", {"text": "one\r\ntwo", "lines": 2}), "shop")
    action = read({"type": "edit", "id": "a1", "arguments": '{"text": "one\\ntwo", "lines": 3}'}, lambda _: question)
    assert action == Approve("a1", arguments={"text": "one\r\ntwo", "lines": 3})


def nested(depth, inner):
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize("depth", [DEEPEST, DEEPEST + 1, 400])
def test_an_edit_keeps_what_is_nested_too_deep_to_be_shown(depth):
    question = ApprovalAsked("a1", ToolCall("c1", "write", {"tree": nested(depth, "leaf"), "lines": 2}), "shop")
    edited = json.dumps(sanitize_json(question.call.arguments, exact) | {"lines": 3})
    action = read({"type": "edit", "id": "a1", "arguments": edited}, lambda _: question)
    assert action == Approve("a1", arguments={"tree": nested(depth, "leaf"), "lines": 3})


def test_the_page_has_the_types_of_what_travels():
    assert FILE.read_text(encoding="utf-8") == page_types(), "Write them: python -m tests.widgets.page_types"
