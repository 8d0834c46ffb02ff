import asyncio
import random
import re
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tenacity import wait_none

from agentmagic import Agent, Done, ModelSettings, RetrySettings, Session, TaskComplete, secrets, tool
from agentmagic.errors import (
    BadRequest,
    ProviderError,
    RateLimited,
    ServerError,
    StreamBroken,
    TurnTimeout,
    Unavailable,
    UsageError,
)
from agentmagic.events import PartDelta, PartFinished, PartStarted, VariablesChanged
from agentmagic.loop import retry, turn
from agentmagic.messages import Text, ToolDef, Usage, user
from agentmagic.providers.base import ModelFinished, busy_with
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.runtime.engine import engine
from agentmagic.testing import Faulty, Stalled, invalid_history, run
from agentmagic.tools.base import Tool, result
from agentmagic.tools.functions import function_tool
from tests.turns import AT_ONCE, SOON, calls, kinds, notices, play, results, scripted, texts


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def look() -> str:
    """Look around."""
    return "nothing here"


async def never() -> str:
    """Wait for what never comes."""
    await asyncio.Event().wait()
    return "never"


class Source:
    """A toolset of the given tools, or one that cannot be listed."""

    def __init__(self, *tools, error=None):
        self._tools = tools
        self._error = error

    async def tools(self):
        if self._error:
            raise self._error
        return self._tools

    async def aclose(self):
        pass


class Events(ScriptedModel):
    """A model that yields the given events."""

    async def stream(self, request):
        for event in self._steps:
            yield event


ADD = calls(("add", {"a": 1, "b": 2}))


@pytest.fixture
def no_waits(monkeypatch):
    monkeypatch.setattr(retry, "_backoff", lambda _settings: wait_none())


def test_the_wait_before_a_retry_draws_no_random_number_of_the_users_program():
    state = random.getstate()
    settings = RetrySettings(first_wait=0, longest_wait=0.001)
    outcome = run(Session(Agent(Faulty(Unavailable("It is down."), answer="Here."), retry=settings)), "Hi")
    assert outcome.final_text == "Here."
    assert random.getstate() == state


# -- steps ---------------------------------------------------------------------------------------


def test_calls_are_carried_out_and_each_request_goes_on_from_the_one_before():
    model = ScriptedModel([{"reasoning": "hm", **ADD}, ADD, "It is 3."])
    outcome = run(Session(Agent(model, tools=[add], instructions="Be brief.")), "What is 1 + 2?")
    assert (outcome.final_text, outcome.stop_reason, outcome.iterations_used) == ("It is 3.", "answer", 3)
    assert (outcome.timed_out, outcome.error) == (False, "")
    assert texts(outcome) == ["3", "3"]
    roles = [message.role for message in outcome.history_delta]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert [part.type for part in outcome.history_delta[1].parts] == ["reasoning", "tool_call"]
    for number, request in enumerate(model.requests):
        assert request.messages == outcome.history_delta[: 2 * number + 1]
        assert (request.instructions, request.tools) == (model.requests[0].instructions, model.requests[0].tools)
    steps = [event.usage for event in outcome.events if event.type == "step_finished"]
    assert outcome.usage == sum(steps, Usage())
    assert (outcome.usage.requests, outcome.usage.cost) == (3, 0)


def test_of_two_tools_of_one_name_the_first_is_used_and_the_user_is_told():
    outcome = play(calls("look"), "Done.", tools=[look, Source(Tool(ToolDef("look", ""), None))])
    assert texts(outcome) == ["nothing here"]
    assert notices(outcome) == ["Two tools are named look; the first of them is used."]


@pytest.mark.parametrize("prompt", ["please add", "please look"])
def test_a_model_that_can_handle_few_tools_chooses_programs_first_and_the_rest_are_named(prompt):
    class Small(ScriptedModel):
        def choose(self, tools, prompt):
            return [tool for tool in tools if tool.name in prompt] if "add" in prompt else tools[:1]

    model = Small(["Hello."])
    program = replace(function_tool(add), code=True)
    outcome = run(Session(Agent(model, tools=[look, program])), prompt)
    assert [definition.name for definition in model.requests[0].tools] == ["add"]
    assert notices(outcome) == ["scripted:script can handle 1 tools. Left out: look."]


def test_a_model_that_is_made_ready_says_so_for_that_time():
    seen = []

    class Slow(ScriptedModel):
        async def prepare(self):
            seen.append(session.running.events[-1].text)
            await asyncio.to_thread(busy_with.get(), "fetching 2 of 3 MB")
            await asyncio.sleep(0)
            seen.append(session.running.events[-1].text)
            late.append(busy_with.get())

    late = []
    session = Session(Agent(Slow(["Hello."])))
    assert run(session, "a prompt").final_text == "Hello."
    assert seen == ["loading the model", "fetching 2 of 3 MB"]
    late[0]("too late")
    assert "working" not in [event.type for turn in session.turns for event in turn.events]


# -- tool_choice ---------------------------------------------------------------------------------


def test_a_required_tool_holds_for_the_first_step_only_and_without_a_choice_nothing_runs():
    model = ScriptedModel([ADD, "It is 3."])
    run(Session(Agent(model, tools=[add], tool_choice="add")), "a prompt")
    assert [request.tool_choice for request in model.requests] == ["add", "auto"]
    model = ScriptedModel([calls("look"), "Sorry."])
    outcome = run(Session(Agent(model, tools=[look], tool_choice="none")), "a prompt")
    assert [request.tool_choice for request in model.requests] == ["none", "none"]
    assert texts(outcome) == ["No tool may be called in this turn; answer without one."]
    assert outcome.final_text == "Sorry."


def test_a_tool_choice_that_names_no_tool_is_refused():
    session = scripted("Hello.", tools=[add], tool_choice="subtract")
    with pytest.raises(UsageError, match=r"there is no such tool. Choose one of auto, none, required, add") as caught:
        session.ask("a prompt")
    assert caught.value.result.stop_reason == "error"


# -- what goes wrong with a call -----------------------------------------------------------------


def test_each_call_that_goes_wrong_is_answered_with_one_sentence_and_the_turn_goes_on():
    secrets.register_secret("correct-horse")

    def untouched() -> str:
        pytest.fail("there were no arguments")

    def fail() -> str:
        message = "wrong password correct-horse"
        raise OSError(message)

    @tool(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    wrong = ("ad", ("untouched", "{not json"), ("untouched", "[1, 2]"), ("add", {"a": "one", "b": 2}), "fail", "slow")
    outcome = play(calls(*wrong), "Sorry.", tools=[add, untouched, fail, slow])
    no_object = ("error", "The arguments of untouched were not a JSON object; send them again as one.")
    assert [(part.status, part.text) for part in results(outcome)] == [
        ("error", "There is no tool 'ad'. Close names: add."),
        no_object,
        no_object,
        ("error", 'The arguments of add do not fit its schema: "one" is not of type "integer" (at a).'),
        ("error", f"OSError: wrong password {secrets.BLANK}"),
        ("timeout", "slow took longer than 0.01 s and was stopped."),
    ]
    assert outcome.history_delta[1].calls[1].arguments == {"_raw": "{not json"}
    assert outcome.stop_reason == "answer"


@pytest.mark.parametrize(
    ("tools", "reason", "words"),
    [
        ([], "no_tools", "There are no tools in this conversation; answer without one."),
        ([Source()], "answer", "There is no tool 'add'. Tools: none."),
    ],
)
def test_a_call_without_any_source_of_tools_ends_the_turn_and_one_with_an_empty_source_does_not(tools, reason, words):
    outcome = play(ADD, "Sorry.", tools=tools)
    assert (outcome.stop_reason, texts(outcome)) == (reason, [words])
    assert invalid_history(outcome.history_delta) is None


def test_a_server_that_is_gone_for_good_ends_the_turn_with_a_valid_history():
    async def gone(call, context):
        message = "The server clock is gone."
        raise ServerError(message)

    source = Source(Tool(ToolDef("now", "", server="clock"), gone), Tool(ToolDef("look", ""), say("fine")))
    session = scripted(calls("now", "look"), tools=[source])
    with pytest.raises(ConnectionError, match="The server clock is gone") as caught:
        session.ask("a prompt")
    assert caught.value.result.stop_reason == "error"
    assert texts(caught.value.result) == ["The server clock is gone.", "fine"]
    assert invalid_history(session.messages) is None


def say(*content):
    async def invoke(call, context):
        return result(call, *content)

    return invoke


# -- parallel calls ------------------------------------------------------------------------------


def test_the_calls_of_a_step_run_together_and_results_keep_their_order_whichever_ends_first():
    second_is_done, together = asyncio.Event(), threading.Barrier(2, timeout=5)

    async def first() -> str:
        await second_is_done.wait()
        return "first"

    async def second() -> str:
        second_is_done.set()
        return "second"

    def in_threads(number: int) -> str:
        together.wait()
        return str(number)

    threads = [("in_threads", {"number": number}) for number in (3, 4)]
    outcome = play(calls("first", "second", *threads), "Done.", tools=[first, second, in_threads])
    assert texts(outcome) == ["first", "second", "3", "4"]
    finished = [event.result.name for event in outcome.events if event.type == "tool_finished"]
    assert finished.index("second") < finished.index("first")


def test_a_tool_that_must_be_alone_runs_beside_no_other():
    running = []

    async def run_beside(name, *others):
        assert not set(running) & set(others)
        running.append(name)
        await asyncio.sleep(0)
        running.remove(name)
        return name

    @tool(parallel=False)
    async def alone() -> str:
        return await run_beside("alone", "alone", "beside")

    async def beside() -> str:
        return await run_beside("beside", "alone")

    names = ["beside", "alone", "alone", "beside", "beside"]
    assert texts(play(calls(*names), "Done.", tools=[alone, beside])) == names


# -- ways to end ---------------------------------------------------------------------------------


def raises_complete() -> str:
    message = "all done"
    raise TaskComplete(message)


def returns_done() -> Done:
    return Done("all done")


@pytest.mark.parametrize("finish", [raises_complete, returns_done])
def test_a_tool_can_end_the_turn(finish):
    outcome = play(calls(finish.__name__, "look"), "never asked for", tools=[finish, look])
    assert (outcome.stop_reason, outcome.final_text, outcome.iterations_used) == ("done", "all done", 1)
    assert [part.status for part in results(outcome)] == ["ok", "ok"]
    assert results(outcome)[0].done == "all done"
    assert invalid_history(outcome.history_delta) is None


def test_at_the_limit_one_last_request_asks_for_the_best_answer():
    model = ScriptedModel([ADD, ADD, "About 3."])
    session = Session(Agent(model, tools=[add], max_iterations=2))
    outcome = run(session, "a prompt")
    assert (outcome.stop_reason, outcome.final_text, outcome.iterations_used) == ("limit", "About 3.", 2)
    last = model.requests[-1]
    assert (last.tool_choice, last.tools) == ("none", model.requests[0].tools)
    assert last.messages[-1] == user(turn.CLOSING_PROMPT)
    assert turn.CLOSING_PROMPT not in str(session.messages)
    assert notices(outcome) == ["The limit of 2 steps is reached. Raise max_iterations to allow more."]
    assert [event.closing for event in outcome.events if event.type == "step_started"] == [False, False, True]


@pytest.mark.parametrize(
    ("closing", "notice"), [(BadRequest("no"), "The closing answer failed"), (ADD, "The limit of 1 steps is reached")]
)
def test_a_fixed_sentence_stands_in_for_a_closing_answer_that_fails_or_calls_again(closing, notice):
    outcome = play(ADD, closing, tools=[add], max_iterations=1)
    assert (outcome.stop_reason, outcome.final_text) == ("limit", turn.NO_CLOSING)
    assert notice in notices(outcome)[-1]
    assert invalid_history(outcome.history_delta) is None


def test_the_limit_can_end_the_turn_without_a_last_request():
    model = ScriptedModel([ADD])
    outcome = run(Session(Agent(model, tools=[add], max_iterations=1, on_limit="stop")), "a prompt")
    assert (outcome.stop_reason, outcome.final_text) == ("limit", "")
    assert len(model.requests) == 1


# -- timeout -------------------------------------------------------------------------------------


class Translating(Stalled):
    """A model that fails with an error of its own when it is cut off, as an SDK may."""

    async def stream(self, request):
        try:
            async for event in super().stream(request):
                yield event
        except asyncio.CancelledError:
            message = "the connection was closed"
            raise StreamBroken(message) from None


@pytest.mark.parametrize(
    ("model", "statuses"),
    [
        (ScriptedModel([calls("look", "never")]), ["ok", "interrupted"]),
        (Faulty(RateLimited("slow down", retry_after=60.0)), []),
        (Translating(), []),
    ],
    ids=["a tool", "a wait before a retry", "a model that fails of it"],
)
def test_the_timeout_cuts_into_whatever_is_waited_for(model, statuses):
    began = time.monotonic()
    outcome = run(Session(Agent(model, tools=[look, never], timeout=SOON)), "a prompt")
    assert time.monotonic() - began < SOON + AT_ONCE
    assert (outcome.stop_reason, outcome.timed_out) == ("timeout", True)
    assert [part.status for part in results(outcome)] == statuses
    assert invalid_history(outcome.history_delta) is None


def test_the_timeout_cuts_into_a_stream_and_its_error_has_what_had_come():
    session = Session(Agent(Stalled("Half an ans"), timeout=SOON))
    with pytest.raises(TimeoutError, match=re.escape(f"took longer than {SOON} s")) as caught:
        session.ask("a prompt")
    assert isinstance(caught.value, TurnTimeout)
    partial = caught.value.result
    assert (partial.stop_reason, partial.timed_out, partial.final_text) == ("timeout", True, "Half an ans")
    assert partial.history_delta[-1].interrupted
    assert session.messages == partial.history_delta


def test_what_the_tools_changed_comes_after_every_result_of_an_interrupted_call_too(monkeypatch):
    changed = VariablesChanged((), ("out.csv",))
    monkeypatch.setattr("agentmagic.loop.turn.summarize", lambda _changes: changed)
    outcome = play(calls("never"), tools=[never], timeout=SOON)
    assert kinds(outcome.events)[-2:] == ["tool_finished", "variables_changed"]


def test_a_tool_that_ignores_being_cancelled_is_left_behind():
    let_go = asyncio.Event()

    async def stubborn() -> str:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    began = time.monotonic()
    session = scripted(calls("stubborn"), "Next.", tools=[stubborn], timeout=SOON)
    outcome = run(session, "a prompt")
    assert time.monotonic() - began < SOON + AT_ONCE
    assert results(outcome)[0].status == "interrupted"
    engine().loop.call_soon_threadsafe(let_go.set)
    assert run(session, "the next prompt").final_text == "Next."
    assert session.messages[: len(outcome.history_delta)] == outcome.history_delta


# -- retries -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_waits")
def test_a_request_that_may_succeed_later_is_sent_again():
    model = Faulty(RateLimited("slow down"), Unavailable("down"), StreamBroken("cut"), text="Half an", answer="Here.")
    outcome = run(Session(Agent(model)), "a prompt")
    assert outcome.final_text == "Here."
    assert outcome.iterations_used == 1
    retries = [event for event in outcome.events if event.type == "step_retried"]
    told = [(event.step, event.attempt, event.error) for event in retries]
    assert told == [(1, 1, "slow down"), (1, 2, "down"), (1, 3, "cut")]
    assert len(model.requests) == 4


def test_after_as_many_tries_as_the_agent_says_the_turn_fails_with_what_had_come():
    model = Faulty(*[Unavailable("down", status=503)] * 9, text="Half an")
    failed = run(Session(Agent(model, retry=RetrySettings(tries=7, longest_wait=0))), "a prompt")
    assert len(model.requests) == 7
    assert (failed.stop_reason, failed.error) == ("error", "down")
    assert invalid_history(failed.history_delta) is None
    retried = [(event.tries, event.delay) for event in failed.events if event.type == "step_retried"]
    assert retried == [(7, 0.0)] * 6


def test_settings_of_the_agent_and_of_the_turn_reach_the_model():
    model = ScriptedModel(["One.", "Two."])
    session = Session(Agent(model, settings=ModelSettings(temperature=0.5, seed=3, extra={"a": {"b": 1}})))
    run(session, "a prompt", settings=ModelSettings(temperature=0, extra={"a": {"c": 2}}))
    run(session, "a prompt")
    first, second = (request.settings for request in model.requests)
    assert first == ModelSettings(temperature=0, seed=3, extra={"a": {"b": 1, "c": 2}})
    assert second == session.agent.settings


@pytest.mark.parametrize("honoured", [("temperature",), None], ids=["some", "none, as the model does not say"])
def test_a_setting_that_the_model_does_not_take_is_left_out_and_said_once_as_is_its_advice(honoured):
    model = Faulty()
    model.advice = lambda: "A larger model is near."
    if honoured:
        model.honours = lambda _settings: honoured
    session = Session(Agent(model, settings=ModelSettings(temperature=0, seed=3)))
    first, second = run(session, "a prompt"), run(session, "a prompt")
    assert model.requests[0].settings == (ModelSettings(temperature=0) if honoured else ModelSettings())
    left_out = ["seed"] if honoured else ["temperature", "seed"]
    words = [f"{model.name} takes no {name}, so it is asked without that setting." for name in left_out]
    assert sorted(notices(first)) == sorted([*words, model.advice()])
    assert notices(second) == []


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (Unavailable("down", status=404), 2),
        (Unavailable("down", status=503), 1),
        (Unavailable("down"), 2),
        (BadRequest("no"), 1),
        (RateLimited("tomorrow", retry_after=RetrySettings().longest_retry_after + 1), 1),
    ],
)
def test_the_agent_says_on_which_statuses_a_request_is_tried_again_and_no_wait_is_too_long(error, asked):
    model = Faulty(error)
    settings = RetrySettings(longest_wait=0, statuses={404})
    result = run(Session(Agent(model, retry=settings)), "a prompt")
    assert len(model.requests) == asked
    assert result.stop_reason == ("answer" if asked == 2 else "error")


def test_a_request_that_is_mended_is_sent_again_at_once_with_a_notice_and_counts_as_no_try():
    secrets.register_secret("correct-horse")
    refused = [BadRequest("refused") for _ in range(retry.MENDS)]
    for number, error in enumerate(refused):
        error.mended = f"Left out {number} of correct-horse."
    result = play(*refused, "Fine.", retry=RetrySettings(tries=1))
    assert (result.final_text, kinds(result.events).count("step_retried")) == ("Fine.", 0)
    assert notices(result) == [f"Left out {number} of {secrets.BLANK}." for number in range(retry.MENDS)]
    assert play(*refused, refused[0], "Fine.", retry=RetrySettings(tries=1)).stop_reason == "error"


def test_waits_grow_with_jitter_unless_the_provider_asks_for_one():
    def wait(attempt, error):
        outcome = SimpleNamespace(exception=lambda: error)
        return retry._wait(RetrySettings(), SimpleNamespace(attempt_number=attempt, outcome=outcome))

    for number in range(4):
        waits = {wait(number + 1, Unavailable("down")) for _ in range(20)}
        base = RetrySettings().first_wait * 2**number
        assert all(base <= one <= base + 1 for one in waits)
        assert len(waits) > 1
    assert wait(3, RateLimited("slow down", retry_after=0.01)) == 0.01


@pytest.mark.usefixtures("no_waits")
def test_a_secret_in_a_provider_s_error_is_blanked():
    secrets.register_secret("correct-horse")
    outcome = play(Unavailable("refused correct-horse"), BadRequest("refused correct-horse"))
    assert outcome.error == f"refused {secrets.BLANK}"
    assert "correct-horse" not in repr(outcome)


# -- models that misbehave -----------------------------------------------------------------------


def test_an_error_that_is_no_provider_error_becomes_one_with_the_partial_result():
    with pytest.raises(ProviderError, match=r"^testing:faulty failed: ValueError: a bug$") as caught:
        Session(Agent(Faulty(ValueError("a bug"), text="Half an"))).ask("a prompt")
    assert caught.value.result.stop_reason == "error"
    assert caught.value.result.final_text == "Half an"
    assert isinstance(caught.value.__cause__, ValueError)
    assert play(TimeoutError("the socket")).stop_reason == "error"
    broken = play("Hello.", tools=[Source(error=ZeroDivisionError("by zero"))])
    assert broken.error == "The turn failed: ZeroDivisionError: by zero"


@pytest.mark.parametrize(
    "events",
    [
        [],
        [PartStarted(0, "text"), PartDelta(0, "Half an"), PartFinished(0, Text("Half an"))],
        [PartDelta(3, "of no part"), ModelFinished(Usage())],
    ],
)
def test_a_stream_that_breaks_the_rules_fails_the_turn_with_a_valid_history(events):
    session = Session(Agent(Events(events)))
    with pytest.raises(ProviderError, match="scripted:script"):
        session.ask("a prompt")
    assert invalid_history(session.messages) is None
