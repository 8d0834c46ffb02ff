"""Calls that a running tool makes itself: permission, events, values, failures, cancelling."""

import asyncio
import threading
from typing import Any

import pytest

from agentmagic import NotebookTools, Policy, Rule, ToolContext, ToolError, tool
from agentmagic.display.terminal import render
from agentmagic.display.transcript import Transcript
from agentmagic.events import InnerCall, ToolFinished, ToolStarted
from agentmagic.loop import tool_calls
from tests.turns import calls, play, scripted, texts


@tool
def double(number: int) -> int:
    """Double a number."""
    return number * 2


@tool
async def halve(number: int) -> float:
    """Halve a number."""
    await asyncio.sleep(0)
    return number / 2


@tool
def broken() -> str:
    """Fail."""
    raise ValueError("no luck")


@tool(ask=True)
def careful() -> str:
    """Do something that could hurt."""
    return "done"


@tool
def total(context: ToolContext) -> str:
    """Call the others, one after the other."""
    return f"{context.call_tool('double', {'number': 4})} {context.call_tool('halve', {'number': 4})}"  # type: ignore[str-format]


@tool
async def gathered(context: ToolContext) -> str:
    """Call the others, at once."""
    both = context.call_tool("double", {"number": 5}), context.call_tool("halve", {"number": 5})
    return " ".join(map(str, await asyncio.gather(*both)))


@pytest.mark.parametrize(("name", "told"), [("total", "8 2.0"), ("gathered", "10 2.5")])
def test_a_synchronous_and_an_async_tool_call_others_whose_calls_are_shown_and_are_no_messages(name: str, told: str):
    result = play(calls(name), "Done.", tools=[total, gathered, double, halve])
    assert texts(result) == [told]
    assert [event.call.name for event in result.events if isinstance(event, InnerCall)] == ["double", "halve"]
    assert len([event for event in result.events if isinstance(event, ToolStarted)]) == 3
    parts = [part.type for message in result.history_delta for part in message.parts]
    assert parts == ["text", "tool_call", "tool_result", "text"]
    shown = render(Transcript(result.events), times=False).splitlines()
    assert shown[0].startswith(f"✓ {name}")
    assert any(line.startswith("  ↳ ✓ double (notebook) number: ") for line in shown)


@pytest.mark.parametrize(
    ("called", "words"),
    [
        ("double", "double was not run: a rule of the user denies it."),
        ("careful", "careful was not run: it needs a person's approval"),
        ("broken", "ValueError: no luck"),
        ("nothing", "There is no tool 'nothing'."),
    ],
)
def test_a_call_that_is_denied_or_fails_raises_tool_error(called: str, words: str):
    @tool
    def outer(context: ToolContext) -> str:
        """Call another tool."""
        with pytest.raises(ToolError) as error:
            _ = context.call_tool(called, {"number": 1} if called == "double" else {})
        return str(error.value)

    policy = Policy([Rule("deny", "double")])
    (told,) = texts(play(calls("outer"), "Done.", tools=[outer, double, broken, careful], permission=policy))
    assert words in told


def test_the_value_is_the_functions_own_and_the_log_keeps_the_beginning_of_its_text():
    rows = [{"n": number} for number in range(5000)]
    got: list[Any] = []

    def table() -> Any:
        return rows

    def outer(context: ToolContext) -> str:
        got.append(context.call_tool("table", {}))
        return f"{len(got[0])} rows"

    result = play(calls("outer"), "Done.", tools=[outer, table])
    assert got[0] is rows
    assert texts(result) == ["5000 rows"]
    inner, _ = (event.result for event in result.events if isinstance(event, ToolFinished))
    assert len(inner.text) < tool_calls.LONGEST_INNER + 100
    assert inner.structured is None


def test_a_tool_may_make_so_many_calls_and_none_after_it_is_over(monkeypatch):
    monkeypatch.setattr(tool_calls, "MOST_INNER", 3)
    kept: list[ToolContext] = []

    @tool
    def outer(context: ToolContext) -> str:
        """Call again and again."""
        kept.append(context)
        for _ in range(4):
            _ = context.call_tool("double", {"number": 1})
        return "never"

    (told,) = texts(play(calls("outer"), "Done.", tools=[outer, double]))
    assert told == "outer has made 3 calls, which is the most that one call may make."
    with pytest.raises(ToolError, match="is over"):
        _ = kept[0].call_tool("double", {"number": 1})


def test_a_cancel_reaches_the_call_that_is_under_way():
    begun, ended = threading.Event(), threading.Event()

    @tool
    async def endless() -> str:
        """Wait."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    @tool
    def outer(context: ToolContext) -> str:
        """Wait for the other."""
        return str(context.call_tool("endless", {}))

    turn = scripted(calls("outer"), "Done.", tools=[outer, endless]).start("a prompt")
    assert begun.wait(5)
    turn.cancel()
    assert turn.wait().stop_reason == "cancelled"
    assert ended.wait(5)


def test_a_turn_without_a_notebook_says_what_its_tools_need():
    assert "Run %load_ext agentmagic in it first" in play("Hi.", tools=[NotebookTools()]).error
