"""What other people's code may do to a turn: odd values, errors that cannot be said, endless cleaning up."""

import asyncio
import functools
import threading
import time
from contextlib import suppress

import pytest

from agentmagic import Agent, Session, ToolContext, secrets, tool
from agentmagic.errors import AgentMagicError, RateLimited, ServerError
from agentmagic.messages import Media, Resource, Text, ToolDef, ToolResult
from agentmagic.runtime.engine import engine
from agentmagic.testing import PATIENCE, Faulty, Stalled, invalid_history, run
from agentmagic.tools.base import Tool
from agentmagic.tools.output_cache import READER
from tests.turns import AT_ONCE, SOON, calls, notices, play, results, scripted, texts

SECRET = "hunter2-hunter2-hunter2"


class Unsayable(Exception):
    """An error that fails to say what it is."""

    def __str__(self):
        message = "no words"
        raise RuntimeError(message)


def pay() -> str:
    """Pay."""
    return "paid"


# -- what a function returns -----------------------------------------------------------------------


def test_what_a_function_returns_is_written_out_where_it_ran():
    class Slow:
        def __repr__(self):
            return "on the engine" if threading.current_thread() is engine().thread else "elsewhere"

    def make() -> object:
        return Slow()

    assert texts(play(calls("make"), "done", tools=[make])) == ["elsewhere"]


async def inner() -> str:
    return "from within"


async def count():
    yield 1
    yield 2


@functools.wraps(inner)
def outer():
    return inner()


@functools.wraps(count)
def delegate():
    return count()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (outer, "from within"),
        (count, "[1, 2]"),
        (delegate, "[1, 2]"),
        (lambda: object(), "<object object>"),  # noqa: PLW0108  (a function of the tests, not a class)
        (lambda: b"\xff\x00", "[application/octet-stream, 2 bytes]"),
    ],
)
def test_what_a_wrapper_returns_is_awaited_and_what_is_no_text_is_written_as_one(function, words):
    assert texts(play(calls("made"), "done", tools=[tool(name="made")(function)])) == [words]


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (ToolResult("another", "one", ("hello",)), "hello"),
        (ToolResult("", "", (Text("hello"),), "no such status"), "hello"),
        (ToolResult("", "", (Text(None),)), "The tool returned a Text among its content"),
        (ToolResult("", "", (Media("image/png", "no bytes"),)), "returned a Media among its content"),
        (ToolResult("", "", (Resource("a:b", text=7),)), "returned a Resource among its content"),
        ({"c": b"\xff"}, '{"c": "_w=="}'),
    ],
    ids=str,
)
def test_whatever_a_function_returns_can_be_kept_and_sent(returned, said):
    def strange():
        """Return something strange."""
        return returned

    session = scripted(calls("strange"), "Hm.", "Go on.", tools=[strange])
    (result,) = results(session.ask("a prompt"))
    assert said in result.text
    assert result.call_id == session.messages[1].calls[0].id
    assert session.ask("again").stop_reason == "answer"


def test_a_tool_made_by_hand_that_returns_no_result_of_its_call_has_one_all_the_same():
    async def invoke(_call, _context):
        return None

    (text,) = texts(play(calls("strange"), "Hm.", tools=[Tool(ToolDef("strange", ""), invoke)]))
    assert "returned a NoneType" in text


def test_an_answer_without_words_is_not_the_one_before_it():
    assert play({"text": "Let me look.", **calls("pay")}, {}, tools=[pay]).final_text == ""


def test_progress_that_is_no_number_is_the_tool_s_mistake():
    def work(ctx: ToolContext) -> None:
        ctx.progress("half")  # type: ignore[arg-type]

    assert "could not convert" in texts(play(calls("work"), "done", tools=[work]))[0]


def test_a_call_that_waits_for_a_thread_is_not_yet_running():
    @tool(timeout=2 * SOON)
    def hold(number: int) -> int:
        time.sleep(1.1 * SOON)  # time itself is what is tested; 32 run at a time
        return number

    settled = results(play(calls(*(("hold", {"number": number}) for number in range(40))), "done", tools=[hold]))
    assert [result.status for result in settled] == ["ok"] * 40


# -- errors that cannot be said --------------------------------------------------------------------


def a_round_of_causes(_answer):
    error, other = ValueError("round"), KeyError("and round")
    error.__cause__, other.__cause__ = other, error
    raise error


def unsayable(_answer=None):
    raise Unsayable


@pytest.mark.parametrize(
    ("steps", "hook", "reason"),
    [
        ([calls("bad"), "Paid."], None, "answer"),
        ([Unsayable()], None, "error"),
        (["Hello."], unsayable, "error"),
        (["Hello."], a_round_of_causes, "error"),
    ],
)
def test_errors_that_cannot_be_said_lose_no_result_of_the_turn(steps, hook, reason):
    result = run(scripted(calls("pay"), *steps, tools=[pay, tool(name="bad")(unsayable)], before_finish=hook), "Pay.")
    assert result.stop_reason == reason
    assert texts(result) == ["paid", "Unsayable"][: len(steps)]
    assert invalid_history(result.history_delta) is None


def test_no_raised_error_and_no_notice_of_a_server_that_is_gone_says_a_secret():
    secrets.register_secret(SECRET)

    def hook(_answer):
        return {"key": SECRET}

    async def gone(call, context):
        raise ServerError(f"no server at {SECRET}") from ExceptionGroup("many", [ValueError(SECRET)])

    class Gone:
        async def tools(self):
            raise ServerError(f"no server at {SECRET}")

        async def aclose(self):
            pass

    for session in (
        scripted("Hello.", before_finish=hook),
        scripted(calls("now"), tools=[Tool(ToolDef("now", ""), gone)]),
        scripted(ValueError(f"sent {SECRET}")),
    ):
        with pytest.raises(AgentMagicError) as raised:
            session.ask("a prompt")
        assert SECRET not in str(raised.value)
        assert raised.value.__cause__ is None
    (notice,) = notices(scripted("Hello.", tools=[Gone()]).ask("a prompt"))
    assert notice == "This turn runs without a tool server. no server at [redacted]"


def test_a_timeout_between_two_tries_says_what_the_last_failed_of():
    model = Faulty(*[RateLimited("the server is busy", retry_after=60.0)] * 2)
    with pytest.raises(TimeoutError, match="the server is busy"):
        Session(Agent(model, timeout=SOON)).ask("hi")


def test_a_tool_of_the_reader_s_name_is_left_out_with_a_word():
    def read_result(page: int) -> str:
        """Read."""
        return str(page)

    result = play("Hello.", tools=[read_result, pay])
    assert any(READER in words for words in notices(result))


# -- cleaning up for ever --------------------------------------------------------------------------


def cancelled_in(begun):
    """Cancel a run and return the seconds until it had ended."""
    began = time.monotonic()
    begun.cancel()
    result = begun.wait()
    assert result.stop_reason == "cancelled"
    assert invalid_history(result.history_delta) is None
    return time.monotonic() - began


def test_a_stream_that_cleans_up_for_long_does_not_keep_a_cancel_out():
    class Slow(Stalled):
        async def stream(self, request):
            try:
                async for event in super().stream(request):
                    yield event
            finally:
                await asyncio.shield(asyncio.sleep(5))

    model = Slow("Half")
    begun = Session(Agent(model)).start("a prompt")
    assert model.stalled.wait(PATIENCE)
    assert cancelled_in(begun) < AT_ONCE


@pytest.mark.parametrize("place", ["permission", "before_finish"])
@pytest.mark.parametrize("form", ["a function", "a coroutine", "a coroutine that swallows"])
def test_a_hook_that_blocks_keeps_neither_a_cancel_nor_another_session_out(place, form):
    waiting, release = threading.Event(), threading.Event()

    def block(*_given):
        waiting.set()
        release.wait(20)

    async def wait(*_given):
        if form == "a coroutine":
            block()
        waiting.set()
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(20)

    async def nothing(_answer):
        """Have the model finish."""

    hook = block if form == "a function" else wait
    begun = scripted(calls("pay"), "Paid.", tools=[pay], **{place: hook}).start("a prompt")
    assert waiting.wait(20)
    assert play("Hello.", before_finish=nothing).final_text == "Hello."
    took = cancelled_in(begun)
    release.set()
    assert took < AT_ONCE


# -- the model's own --------------------------------------------------------------------------------


def test_what_was_said_beside_a_last_call_is_the_closing_answer():
    both = {"text": "So far: nothing.", **calls("pay")}
    result = play(calls("pay"), both, tools=[pay], max_iterations=1)
    assert result.final_text == "So far: nothing."
