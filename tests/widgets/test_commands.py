"""What a person does in a view, and what a page may try instead."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic import secrets
from agentmagic.errors import UsageError
from agentmagic.events import ApprovalAsked, Approve, Deny, Reply, Stop
from agentmagic.messages import ToolCall
from agentmagic.widgets import commands
from agentmagic.widgets.commands import read
from tests.logs import json_values

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
    ({"type": "send", "text": "hello"}, commands.Send("hello")),
    ({"type": "retry", "turn": 3}, commands.Retry(3)),
    ({"type": "rewrite", "turn": 0, "text": "again"}, commands.Rewrite(0, "again")),
    ({"type": "fork", "turn": 1}, commands.Fork(1)),
    ({"type": "clear"}, commands.Clear()),
    ({"type": "export", "form": "json"}, commands.Export("json")),
    ({"type": "model", "name": "openai:x"}, commands.ChooseModel("openai:x")),
    ({"type": "connect", "server": "s"}, commands.Connect("s")),
    ({"type": "disconnect", "server": "s"}, commands.Disconnect("s")),
    ({"type": "tool", "server": "s", "name": "t", "enabled": False}, commands.EnableTool("s", "t", enabled=False)),
]
BAD = [
    None,
    [],
    "stop",
    {},
    {"type": None},
    {"type": ["stop"]},
    {"type": "quit"},
    {"type": "__class__"},
    {"type": "stop", "extra": 1},
    {"type": "approve"},
    {"type": "approve", "id": 1},
    {"type": "approve", "id": "a1", "always": 1},
    {"type": "approve", "id": "x" * 1001},
    {"type": "approve", "id": "a1", "arguments": "{}"},
    {"type": "approve", "id": "a1", "arguments": {}},
    {"type": "retry", "turn": -1},
    {"type": "retry", "turn": True},
    {"type": "retry", "turn": 1.5},
    {"type": "send", "text": "x" * 2_000_001},
    {"type": "export", "form": "../../x"},
    {"type": "tool", "server": "s", "name": "t", "enabled": "no"},
    {"type": "edit", "id": "a1"},
    {"type": "edit", "id": "other", "arguments": "{}"},
    {"type": "edit", "id": "a1", "arguments": {}},
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


@given(st.dictionaries(st.sampled_from(["type", "id", "turn", "text", "__proto__"]), json_values))
def test_whatever_a_page_sends_is_an_action_or_refused(message):
    with suppress(UsageError):
        read(message, asked)


def test_edited_arguments_keep_the_secrets_that_the_page_did_not_see():
    edited = f'{{"user": "bob", "keys": ["{secrets.BLANK}", 2], "deep": {{"key": "{secrets.BLANK}"}}, "more": 1}}'
    action = read({"type": "edit", "id": "a1", "arguments": edited}, asked)
    assert action == Approve("a1", arguments={"user": "bob", "keys": [SECRET, 2], "deep": {"key": SECRET}, "more": 1})


def test_line_ends_that_a_box_does_not_keep_are_no_edit():
    question = ApprovalAsked("a1", ToolCall("c1", "write", {"text": "one\r\ntwo", "lines": 2}), "shop")
    action = read({"type": "edit", "id": "a1", "arguments": '{"text": "one\\ntwo", "lines": 3}'}, lambda _: question)
    assert action == Approve("a1", arguments={"text": "one\r\ntwo", "lines": 3})


def test_an_edited_number_may_become_a_truth_value():
    edited = f'{{"user": "ann", "keys": ["{secrets.BLANK}", true], "deep": {{"key": "{secrets.BLANK}"}}}}'
    action = read({"type": "edit", "id": "a1", "arguments": edited}, asked)
    assert action.arguments["keys"] == [SECRET, True]
    assert action.arguments["keys"][1] is True
