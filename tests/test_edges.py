"""Where the core was once wrong: each test fails without its fix."""

import asyncio
import functools
import gc
import threading
import weakref

import pytest

from agentmagic import Agent, Done, Session, ToolContext, settings, tool
from agentmagic.errors import ProviderError, RateLimited, UsageError
from agentmagic.events import PartFinished, PartStarted
from agentmagic.json_schema import read_signature
from agentmagic.messages import Message, Text, ToolCall, Usage
from agentmagic.providers.base import ModelFinished
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.runtime.engine import engine
from agentmagic.secrets import BLANK, redact, register_secret
from agentmagic.testing import PATIENCE, Faulty, Stalled, invalid_history
from tests.turns import SOON, calls, play, results, texts


def test_what_a_function_returns_is_written_out_where_it_ran():
    seen = []

    class Slow:
        def __repr__(self):
            seen.append(threading.current_thread().name)
            return "slow"

    def make() -> object:
        return Slow()

    assert texts(play(calls("make"), "done", tools=[make])) == ["slow"]
    assert engine().thread.name not in seen


def test_an_async_function_in_a_wrapper_is_awaited():
    async def inner() -> str:
        return "from within"

    @functools.wraps(inner)
    def outer():
        return inner()

    assert texts(play(calls("inner"), "done", tools=[outer])) == ["from within"]


@pytest.mark.parametrize("message", [42, None])
def test_the_message_of_a_tool_that_ends_the_turn_becomes_text(message):
    def finish():
        return Done(message)

    assert play(calls("finish"), tools=[finish]).final_text == str(message)


def test_bytes_are_a_blob():
    def read() -> bytes:
        return b"\xff\x00"

    assert texts(play(calls("read"), "done", tools=[read])) == ["[application/octet-stream, 2 bytes]"]


def test_a_lone_surrogate_reaches_no_provider():
    def name() -> str:
        return "caf\udce9.txt"

    model = ScriptedModel([calls("name"), "done"])
    session = Session(Agent(model, tools=[name]))
    session.ask("what is \udce9?")
    for message in session.messages:
        message.parts[0].text.encode() if isinstance(message.parts[0], Text) else None
    assert session.messages[0].text == "what is \ufffd?"
    assert session.messages[2].parts[0].text == "caf\ufffd.txt"


def test_an_agent_s_repr_holds_no_key():
    agent = Agent(mcp={"x": {"command": "y", "env": {"API_KEY": "a-very-secret-key"}}}, deps="also secret")
    assert "secret" not in repr(agent)


def test_a_secret_within_another_leaves_no_tail():
    register_secret("short-secret")
    register_secret("short-secret-and-more")
    assert redact("it is short-secret-and-more") == f"it is {BLANK}"


def test_the_cause_of_an_error_shows_no_secret():
    register_secret("key-in-the-cause")

    class Leaky:
        name = "leaky:model"

        async def stream(self, request):
            raise ValueError("sent key-in-the-cause")
            yield

        async def aclose(self):
            pass

    with pytest.raises(ProviderError) as caught:
        Session(Leaky()).ask("hello")
    assert caught.value.__cause__ is None
    assert "key-in-the-cause" not in str(caught.value)


def test_two_calls_with_one_id_get_a_result_each():
    class Twice:
        name = "twice:model"
        asked = 0

        async def stream(self, request):
            self.asked += 1
            if self.asked == 1:
                for index, word in enumerate(("a", "b")):
                    yield PartStarted(index, "tool_call", "say")
                    yield PartFinished(index, ToolCall("same", "say", {"word": word}))
            else:
                yield PartFinished(0, Text("Said."))
            yield ModelFinished(Usage())

        async def aclose(self):
            pass

    def say(word: str) -> str:
        return word

    session = Session(Agent(Twice(), tools=[say]))
    assert texts(session.ask("go")) == ["a", "b"]
    assert invalid_history(session.messages) is None


def test_an_answer_without_words_is_not_the_one_before_it():
    assert play({"text": "Let me look.", **calls("nothing")}, {}, tools=[tool(_nothing)]).final_text == ""


def _nothing() -> None:
    """Do nothing."""


def test_a_session_that_nobody_holds_goes_away():
    session = Session(Agent(ScriptedModel(["hello"])))
    session.ask("hi")
    gone = weakref.ref(session)
    del session
    gc.collect()
    assert gone() is None


def test_a_caller_that_gives_up_finds_the_session_free():
    async def main():
        session = Session(Stalled("some words"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.start("go"), 0.05)
        assert session.running is None

    asyncio.run(main())


def test_asking_on_the_engine_is_refused_before_anything_begins():
    inner = Session(ScriptedModel(["never"]))

    async def nested() -> str:
        return inner.ask("now").final_text

    (result,) = results(play(calls("nested"), "done", tools=[nested]))
    assert result.is_error
    assert not inner.turns
    assert inner.running is None


def test_a_call_that_waits_for_a_thread_is_not_yet_running():
    release = threading.Event()
    begun = threading.Semaphore(0)

    @tool(timeout=0.3)
    def hold(number: int) -> int:
        begun.release()
        if number < 32:
            release.wait(PATIENCE)
        return number

    def let_go():
        for _ in range(32):
            begun.acquire(timeout=PATIENCE)
        release.set()

    threading.Thread(target=let_go).start()
    settled = results(play(calls(*(("hold", {"number": number}) for number in range(40))), "done", tools=[hold]))
    assert [result.status for result in settled] == ["ok"] * 40


def test_progress_that_is_no_number_is_the_tool_s_mistake():
    def work(ctx: ToolContext) -> str:
        ctx.progress("half")  # type: ignore[arg-type]
        return "done"

    (result,) = results(play(calls("work"), "done", tools=[work]))
    assert "could not convert" in result.text


def test_a_parameter_may_be_named_properties():
    def look(properties: dict, title: str) -> str:
        return title

    schema = read_signature(look, ToolContext).parameters
    assert set(schema["properties"]) == {"properties", "title"}


def test_another_recipe_brings_its_own_servers():
    session = Session(Agent(ScriptedModel(["x"])))
    other = Agent(ScriptedModel(["y"]), mcp={"files": {"command": "no-such-program"}})
    assert len(session.toolsets(other)) == 1
    assert session.toolsets(other) == session.toolsets(other)
    assert session.toolsets() == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Agent(123),
        lambda: Agent(max_iterations="5"),
        lambda: Agent(max_iterations=2.5),
        lambda: Agent(timeout="5"),
        lambda: Session(ScriptedModel(["x"])).ask(123),
        lambda: Session(ScriptedModel(["x"])).ask(None),
        lambda: Session(ScriptedModel(["x"])).ask(Message("assistant", (Text("I say"),))),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(make):
    with pytest.raises(UsageError):
        make()


def test_a_key_that_is_not_used_is_hidden_too(monkeypatch):
    monkeypatch.setenv("GEMINI_API_KEY", "a-key-of-no-known-shape")
    play("hello")
    assert redact("it is a-key-of-no-known-shape") == f"it is {BLANK}"


def test_a_permission_that_cannot_be_is_told_before_the_turn(monkeypatch):
    monkeypatch.setenv("AGENTMAGIC_PERMISSION", "maybe")
    with pytest.raises(UsageError, match="allow, ask or deny"):
        Session(ScriptedModel(["x"])).ask("hi")


def test_a_dotenv_that_is_no_text_is_no_key(monkeypatch, tmp_path):
    (tmp_path / ".env").write_bytes(b"OPENAI_API_KEY=\xff\xfe")
    monkeypatch.chdir(tmp_path)
    assert settings.find_key(["OPENAI_API_KEY"]) is None


def test_an_object_s_place_in_memory_is_not_told():
    def make() -> object:
        return object()

    assert texts(play(calls("make"), "done", tools=[make])) == ["<object object>"]


def test_the_items_of_an_async_generator_are_the_result():
    async def count():
        yield 1
        yield 2

    def delegate():
        return count()

    outcome = play(calls("count", "delegate"), "done", tools=[count, delegate])
    assert texts(outcome) == ["[1, 2]", "[1, 2]"]


def test_a_timeout_between_two_tries_says_what_the_last_failed_of():
    model = Faulty(*[RateLimited("the server is busy", retry_after=60.0)] * 2)
    with pytest.raises(TimeoutError, match="the server is busy"):
        Session(Agent(model, timeout=SOON)).ask("hi")
