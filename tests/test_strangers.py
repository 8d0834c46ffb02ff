"""What other people's code may do to a turn: errors that cannot be said, results that are none, endless cleaning up."""

import asyncio
import time
from contextlib import suppress

import pytest

from agentmagic import Agent, Session, TaskComplete, secrets
from agentmagic.errors import AgentMagicError, ServerError, UsageError
from agentmagic.messages import Media, Message, Resource, Text, ToolDef, ToolResult
from agentmagic.testing import Stalled, invalid_history, run
from agentmagic.tools.base import Tool
from agentmagic.tools.output_cache import READER
from tests.turns import AT_ONCE, calls, kinds, notices, play, results, scripted, texts

SECRET = "hunter2-hunter2-hunter2"


class Unsayable(Exception):
    """An error that fails to say what it is."""

    def __str__(self):
        message = "no words"
        raise RuntimeError(message)


def pay() -> str:
    """Pay."""
    return "paid"


def ended_once(result):
    return kinds(result.events).count("turn_started") == 1 and invalid_history(result.history_delta) is None


# -- errors that cannot be said --------------------------------------------------------------------


def test_a_tool_whose_error_cannot_be_said_loses_no_result_of_the_turn():
    def bad() -> str:
        """Fail."""
        raise Unsayable

    session = scripted(calls("pay"), calls("bad"), "Paid.", tools=[pay, bad])
    result = session.ask("Pay.")
    assert texts(result) == ["paid", "Unsayable"]
    assert len(session.turns) == 1


def test_a_tool_that_ends_the_turn_with_what_cannot_be_said_ends_it():
    class Odd:
        def __str__(self):
            raise Unsayable

    def finish() -> str:
        """Finish."""
        raise TaskComplete(Odd())

    result = play(calls("finish"), tools=[finish])
    assert (result.stop_reason, result.final_text) == ("done", "")


def test_a_model_and_a_hook_whose_errors_cannot_be_said_end_the_turn():
    def hook(_answer):
        raise Unsayable

    for session in (scripted(Unsayable()), scripted("Hello.", before_finish=hook)):
        result = run(session, "a prompt")
        assert result.stop_reason == "error"
        assert ended_once(result)


def test_an_error_that_is_its_own_cause_ends_the_turn():
    def hook(_answer):
        error = ValueError("round")
        other = KeyError("and round")
        error.__cause__, other.__cause__ = other, error
        raise error

    assert run(scripted("Hello.", before_finish=hook), "a prompt").stop_reason == "error"


@pytest.fixture
def secret():
    secrets.register_secret(SECRET)
    return SECRET


def test_no_raised_error_says_a_secret(secret):
    def hook(_answer):
        return {"key": secret}

    async def gone(call, context):
        raise ServerError(f"no server at {secret}") from ExceptionGroup("many", [ValueError(secret)])

    for options in ({"before_finish": hook}, {"tools": [Tool(ToolDef("now", ""), gone)]}):
        with pytest.raises(AgentMagicError) as raised:
            scripted(calls("now") if "tools" in options else "Hello.", **options).ask("a prompt")
        assert SECRET not in str(raised.value)
        assert raised.value.__cause__ is None


def test_no_notice_of_a_server_that_is_gone_says_a_secret(secret):
    class Gone:
        async def tools(self):
            raise ServerError(f"no server at {secret}")

        async def aclose(self):
            pass

    (notice,) = notices(scripted("Hello.", tools=[Gone()]).ask("a prompt"))
    assert notice == "This turn runs without a tool server. no server at [redacted]"


# -- results that are none -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (ToolResult("", "", "hello"), "hello"),
        (ToolResult("another", "one", ("hello",)), "hello"),
        (ToolResult("", "", (Text("hello"),), "no such status"), "hello"),
        (ToolResult("", "", (Text(None),)), "ToolError: The tool returned a Text among its content"),
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
    assert said.removeprefix("ToolError: ") in result.text
    assert result.call_id == session.messages[1].calls[0].id
    assert session.ask("again").stop_reason == "answer"


@pytest.mark.parametrize(("returned", "said"), [("words", "returned a str"), (None, "returned a NoneType")])
def test_a_tool_made_by_hand_that_returns_no_result_is_an_error_result(returned, said):
    async def invoke(_call, _context):
        return returned

    by_hand = Tool(ToolDef("strange", "Return something strange."), invoke)
    assert said in play(calls("strange"), "Hm.", tools=[by_hand]).history_delta[2].parts[0].text


def test_a_result_with_another_s_id_is_the_result_of_its_call():
    async def invoke(_call, _context):
        return ToolResult("another", "name", (Text("done"),))

    by_hand = Tool(ToolDef("strange", "Return something strange."), invoke)
    assert texts(play(calls("strange"), "Hm.", tools=[by_hand])) == ["done"]


@pytest.mark.parametrize("prompt", [Message("user", ("words",)), ["words", 7], [b"bytes"]])
def test_a_prompt_of_strange_parts_is_refused(prompt):
    with pytest.raises(UsageError):
        scripted("Hello.").start(prompt)


def test_messages_of_a_strange_role_are_refused_with_what_to_do():
    with pytest.raises(UsageError, match="instructions"):
        Session(Agent("scripted:x"), messages=[Message("system", (Text("Be brief."),))])


def test_a_tool_of_the_reader_s_name_is_left_out_with_a_word():
    def read_result(page: int) -> str:
        """Read."""
        return str(page)

    result = play("Hello.", tools=[read_result, pay])
    assert any(READER in words for words in notices(result))


# -- cleaning up for ever --------------------------------------------------------------------------


def cancelled_within(session, event):
    """Cancel once an event is set, and return how long the turn took to end."""
    running = session.start("a prompt")
    assert event.wait(10)
    began = time.monotonic()
    running.cancel()
    result = running.wait()
    assert result.stop_reason == "cancelled"
    assert invalid_history(session.messages) is None
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
    assert cancelled_within(Session(Agent(model)), model.stalled) < AT_ONCE + 0.3


def test_a_hook_that_swallows_its_cancelling_does_not_keep_a_cancel_out():
    import threading

    waiting = threading.Event()

    async def hook(_answer):
        waiting.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(5)

    assert cancelled_within(scripted("Hello.", before_finish=hook), waiting) < AT_ONCE + 0.3


@pytest.mark.parametrize("place", ["permission", "before_finish"])
@pytest.mark.parametrize("form", ["a function", "a coroutine", "a coroutine that swallows"])
def test_a_hook_that_blocks_keeps_neither_a_cancel_nor_another_session_out(place, form):
    import threading

    waiting, release = threading.Event(), threading.Event()

    def block(*_given):
        waiting.set()
        release.wait(20)

    async def swallow(*_given):
        waiting.set()
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(20)

    async def block_the_loop(*_given):
        block()

    hook = {"a function": block, "a coroutine": block_the_loop, "a coroutine that swallows": swallow}[form]
    session = scripted(calls("pay"), "Paid.", tools=[pay], **{place: hook})
    begun = session.start("a prompt")
    assert waiting.wait(20)
    assert play("Hello.", before_finish=_nothing).final_text == "Hello."
    began = time.monotonic()
    begun.cancel()
    assert begun.wait().stop_reason == "cancelled"
    took = time.monotonic() - began
    release.set()
    assert took < AT_ONCE + 0.3


async def _nothing(_answer):
    """Have the model finish."""


# -- the model's own --------------------------------------------------------------------------------


def test_what_was_said_beside_a_last_call_is_the_closing_answer():
    both = {"text": "So far: nothing.", **calls("pay")}
    result = play(calls("pay"), both, tools=[pay], max_iterations=1)
    assert result.final_text == "So far: nothing."


def test_an_unknown_tool_called_again_and_again_is_remarked_on():
    result = play(*[calls("nowhere")] * 3, "Well.", tools=[pay])
    assert "3 times in a row" in texts(result)[2]
