import asyncio

import pytest

from agentmagic import TaskComplete, ToolContext
from agentmagic.errors import ServerError, ToolError
from agentmagic.messages import ToolCall, ToolDef
from agentmagic.tools.base import STILL_RUNNING, Tool, result
from agentmagic.tools.calling import LONGEST_INSIDE, call_tool
from tests.turns import SOON

CALL = ToolCall("c1", "work", {})
SECRET = "sk-proj-abcdefghijklmnopqrstuvwx0123456789"


async def unasked(question):
    pytest.fail(f"nobody was to be asked {question}")


def context():
    return ToolContext(CALL, ask=unasked, progress=lambda *told: None)


def carry_out(invoke, call=CALL, timeout=60.0, ctx=None):
    tool = Tool(ToolDef("work", "Work."), invoke, timeout)
    return asyncio.run(call_tool(tool, call, ctx or context()))


def raising(error):
    async def invoke(call, ctx):
        raise error

    return invoke


class Unsaid(Exception):
    def __str__(self):
        raise ValueError


def nested(levels):
    error = ValueError(f"key {SECRET}")
    for _ in range(levels):
        error = ExceptionGroup("a level", [error])
    return error


def test_what_failed_in_a_group_is_bounded_and_holds_no_secret():
    words = carry_out(raising(nested(500))).text
    assert words.startswith("ExceptionGroup: a level (1 sub-exception): ValueError: key ")
    assert SECRET not in words
    long = ExceptionGroup("long", [ValueError("x" * 1_990 + SECRET), ValueError("y" * 10**6)])
    words = carry_out(raising(long)).text
    assert (len(words) < LONGEST_INSIDE + 100, SECRET[:8] in words, words[-1]) == (True, False, "…")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("too large"), "ValueError: too large"),
        (ValueError(), "ValueError"),
        (ToolError("Give a smaller number."), "Give a smaller number."),
        (ToolError(), "The tool failed without saying why."),
        (SystemExit(3), "The tool ended itself with exit code 3."),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (asyncio.CancelledError(), "CancelledError"),
        (ExceptionGroup("several", [ValueError("one")]), "ExceptionGroup: several (1 sub-exception): ValueError: one"),
        (
            ExceptionGroup("outer", [KeyError("x"), ExceptionGroup("inner", [OSError(), ToolError("No.")]), Unsaid()]),
            "ExceptionGroup: outer (3 sub-exceptions): KeyError: 'x'; OSError; ToolError: No.; Unsaid",
        ),
        (
            BaseExceptionGroup("many", [ValueError(number) for number in range(99)]),
            f"ExceptionGroup: many (99 sub-exceptions): {'; '.join(f'ValueError: {n}' for n in range(10))}; and more",
        ),
    ],
)
def test_whatever_a_tool_raises_is_a_result_of_one_sentence(error, words):
    came = carry_out(raising(error))
    assert (came.status, came.text, came.call_id, came.name) == ("error", words, "c1", "work")


@pytest.mark.parametrize(("code", "status"), [(0, "ok"), (3, "error")])
def test_a_program_that_ends_itself_with_the_code_0_has_not_failed(code, status):
    tool = Tool(ToolDef("work", "Work."), raising(SystemExit(code)), code=True)
    came = asyncio.run(call_tool(tool, CALL, context()))
    assert (came.status, came.text) == (status, f"The program ended itself with exit code {code}.")


def test_a_tool_may_end_the_turn_and_a_lost_server_is_the_loop_s_to_tell():
    came = carry_out(raising(TaskComplete("all done")))
    assert (came.status, came.text, came.done) == ("ok", "all done", "all done")
    with pytest.raises(ServerError):
        carry_out(raising(ServerError("gone")))


def test_the_arguments_are_checked_first():
    call = ToolCall("c1", "work", {"unknown": 1})
    definition = ToolDef("work", "", {"type": "object", "properties": {}, "additionalProperties": False})
    tool = Tool(definition, raising(AssertionError("it must not run")))
    came = asyncio.run(call_tool(tool, call, context()))
    assert came.text.startswith("The arguments of work do not fit its schema")


async def forever(call, ctx):
    await asyncio.Event().wait()


@pytest.mark.parametrize(("left", "fate"), [("", "stopped."), (STILL_RUNNING, f"given up. {STILL_RUNNING}")])
def test_a_call_that_takes_too_long_is_stopped_or_given_up(left, fate):
    ctx = context()
    ctx.left = left
    came = carry_out(forever, timeout=0.01, ctx=ctx)
    assert (came.status, came.text) == ("timeout", f"work took longer than 0.01 s and was {fate}")
    assert ctx.cancelled


def test_the_clock_of_a_call_stands_still_while_a_person_is_asked():
    async def slow_person(question):
        await asyncio.sleep(1.1 * SOON)  # time itself is what is tested
        return "yes"

    async def invoke(call, ctx):
        return result(call, await ctx.ask("Go on?"))

    async def main():
        ctx = ToolContext(CALL, ask=slow_person, progress=lambda *told: None)
        return await call_tool(Tool(ToolDef("work", ""), invoke, SOON), CALL, ctx)

    assert asyncio.run(main()).text == "yes"
