"""What is typed, and what it means."""

import pytest

from agentmagic.events import ApprovalAsked, Approve, Deny
from agentmagic.kernel.questions import LONGEST_ARGUMENTS, approval, describe
from agentmagic.messages import ToolCall


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("y", Approve("q")),
        (" YES ", Approve("q")),
        ("a", Approve("q", always=True)),
        ("always", Approve("q", always=True)),
        ("n", Deny("q")),
        ("n not on Sundays", Deny("q", "not on Sundays")),
        ("no", Deny("q")),
        ("", Deny("q")),
        ("ask Ann first", Deny("q", "ask Ann first")),
    ],
)
def test_all_that_is_no_yes_is_a_no(typed, meant):
    assert approval("q", typed) == meant


def test_the_prompt_shows_tool_server_and_all_arguments():
    call = ToolCall("1", "move", {"source": "a.txt", "options": {"force": True}})
    prompt = describe(ApprovalAsked("q", call, "files"))
    assert prompt.startswith('Run move (files) with\n  source: a.txt\n  options: {"force": true}\n[y]es')


def test_the_prompt_says_why_it_asks_where_that_is_no_rule():
    call = ToolCall("1", "pay", {"amount": 5})
    asked = ApprovalAsked("q", call, "bank", "It was under way when the kernel stopped.")
    assert describe(asked, brief=True).startswith("It was under way when the kernel stopped. Run pay (bank)? [y]es")
    assert describe(asked).startswith("It was under way when the kernel stopped. Run pay (bank) with\n  amount: 5")


def test_arguments_cannot_act_on_the_terminal_nor_flood_it():
    call = ToolCall("1", "move", {"source": "\x1b[2J\u202egood.txt", "text": "x" * 10 * LONGEST_ARGUMENTS})
    prompt = describe(ApprovalAsked("q", call, "files"))
    assert "\x1b" not in prompt
    assert "\u202e" not in prompt
    assert len(prompt) < LONGEST_ARGUMENTS + 500
    assert "characters)" in prompt
