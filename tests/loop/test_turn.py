import asyncio
import contextlib
import itertools
import re
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tenacity import wait_none

from agentmagic import (
    Agent,
    Done,
    ModelSettings,
    RetrySettings,
    Session,
    TaskComplete,
    ToolContext,
    secrets,
    serialization,
    tool,
)
from agentmagic.errors import (
    AgentMagicError,
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    ProviderError,
    RateLimited,
    ServerError,
    StreamBroken,
    TurnTimeout,
    Unavailable,
    UsageError,
)
from agentmagic.events import TRIES, PartDelta, PartFinished, PartStarted, fold
from agentmagic.loop import retry, turn
from agentmagic.loop.step import TurnContext
from agentmagic.loop.turn import Channel, run_turn
from agentmagic.messages import Media, Text, ToolDef, Usage, user
from agentmagic.providers.base import ModelFinished
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.runtime.engine import engine
from agentmagic.testing import Faulty, Stalled, invalid_history, run
from agentmagic.tools.base import Tool, result
from agentmagic.tools.functions import Functions, function_tool
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
    """A toolset of the given tools."""

    def __init__(self, *tools):
        self.listed = 0
        self._tools = tools

    async def tools(self):
        self.listed += 1
        return self._tools

    async def aclose(self):
        pass


class Broken:
    """A toolset that cannot be listed."""

    def __init__(self, error):
        self._error = error

    async def tools(self):
        raise self._error

    async def aclose(self):
        pass


class Events:
    """A model that yields the given events, or raises the errors among them."""

    name = "testing:events"

    def __init__(self, *events):
        self._events = events

    async def stream(self, request):
        for event in self._events:
            if isinstance(event, BaseException):
                raise event
            yield event

    async def aclose(self):
        pass


ADD = calls(("add", {"a": 1, "b": 2}))


@pytest.fixture
def no_waits(monkeypatch):
    monkeypatch.setattr(retry, "_backoff", lambda _settings: wait_none())


# -- steps ---------------------------------------------------------------------------------------


def test_an_answer_without_a_call_ends_the_turn():
    outcome = play("Hello.")
    assert (outcome.final_text, outcome.stop_reason, outcome.iterations_used) == ("Hello.", "answer", 1)
    assert not outcome.timed_out
    assert outcome.error == ""


def test_calls_are_carried_out_and_their_results_go_back():
    model = ScriptedModel([ADD, "It is 3."])
    outcome = run(Session(Agent(model, tools=[add])), "What is 1 + 2?")
    assert outcome.final_text == "It is 3."
    assert outcome.iterations_used == 2
    assert [message.role for message in outcome.history_delta] == ["user", "assistant", "tool", "assistant"]
    assert model.requests[1].messages == outcome.history_delta[:-1]
    assert texts(outcome) == ["3"]


def test_the_beginning_of_a_request_stays_the_same_from_step_to_step():
    model = ScriptedModel([ADD, ADD, "It is 3."])
    run(Session(Agent(model, tools=[add], instructions="Be brief.")), "What is 1 + 2?")
    for before, after in itertools.pairwise(model.requests):
        assert after.messages[: len(before.messages)] == before.messages
        assert (after.instructions, after.tools) == (before.instructions, before.tools)


def test_a_turn_tells_its_events_in_order():
    outcome = play(ADD, "It is 3.", tools=[add])
    step = ["step_started", "step_finished"]
    assert kinds(outcome.events) == ["turn_started", *step, "tool_started", "tool_finished", *step]


def test_a_step_ends_before_its_tools_begin_and_every_call_is_settled_before_the_next():
    outcome = play(calls("look", "look", "look"), "Done.", tools=[look])
    order = [kind for kind, _ in itertools.groupby(kinds(outcome.events, "turn_started"))]
    assert order[:2] == ["step_started", "step_finished"]
    assert order[-2:] == ["step_started", "step_finished"]
    assert set(order[2:-2]) == {"tool_started", "tool_finished"}
    assert [event.step for event in outcome.events if event.type == "step_started"] == [1, 2]


def test_reasoning_is_kept_apart_from_the_answer():
    outcome = play({"reasoning": "hm", "text": "Hello."})
    assert outcome.final_text == "Hello."
    assert [part.type for part in outcome.history_delta[1].parts] == ["reasoning", "text"]


def test_the_tools_are_listed_once_a_turn():
    source = Source(Tool(ToolDef("look", ""), None))
    session = scripted(calls("nothing"), calls("nothing"), "Done.", "Again.", tools=[source])
    run(session, "a prompt")
    assert source.listed == 1
    run(session, "a prompt")
    assert source.listed == 2


def test_usage_is_summed_over_the_steps():
    outcome = play(ADD, "It is 3.", tools=[add])
    steps = [event.usage for event in outcome.events if event.type == "step_finished"]
    assert outcome.usage == sum(steps, Usage())
    assert outcome.usage.requests == 2
    assert outcome.usage.cost == 0


def test_the_cost_of_a_model_nobody_knows_is_unknown():
    assert run(Session(Agent(Faulty())), "a prompt").usage.cost is None


def test_two_tools_of_one_name_are_told_of():
    def other():
        def look() -> str:
            return "the other"

        return look

    outcome = play(calls("look"), "Done.", tools=[look, other()])
    assert texts(outcome) == ["nothing here"]
    assert notices(outcome) == ["Two tools are named look; the first of them is used."]


def test_a_model_that_can_handle_few_tools_chooses_and_the_rest_are_named():
    class Small(ScriptedModel):
        def choose(self, tools, prompt):
            return [tool for tool in tools if tool.name in prompt]

    model = Small(["Hello."])
    outcome = run(Session(Agent(model, tools=[add, look])), "please add")
    assert [definition.name for definition in model.requests[0].tools] == ["add"]
    assert notices(outcome) == ["scripted:script can handle 1 tools. Left out: look."]


def test_a_model_that_can_handle_few_tools_is_offered_those_that_run_programs_first():
    class Small(ScriptedModel):
        def choose(self, tools, prompt):
            return tools[:1]

    program = replace(function_tool(add), code=True)
    outcome = run(Session(Agent(Small(["Hello."]), tools=[look, program])), "please look")
    assert notices(outcome) == ["scripted:script can handle 1 tools. Left out: look."]


def test_a_model_that_is_made_ready_says_so_for_that_time():
    seen = []

    class Slow(ScriptedModel):
        async def prepare(self):
            seen.append(session.running.events[-1].text)

    session = Session(Agent(Slow(["Hello."])))
    assert run(session, "a prompt").final_text == "Hello."
    assert seen == ["loading the model"]
    assert "working" not in [event.type for turn in session.turns for event in turn.events]


def test_a_model_that_cannot_be_made_ready_fails_the_turn():
    class Missing(ScriptedModel):
        async def prepare(self):
            message = "the weights are not to be had"
            raise Unavailable(message)

    outcome = run(Session(Agent(Missing(["Hello."]))), "a prompt")
    assert (outcome.stop_reason, outcome.error) == ("error", "the weights are not to be had")


# -- tool_choice ---------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["required", "add"])
def test_a_required_tool_holds_for_the_first_step_only(choice):
    model = ScriptedModel([ADD, "It is 3."])
    run(Session(Agent(model, tools=[add], tool_choice=choice)), "a prompt")
    assert [request.tool_choice for request in model.requests] == [choice, "auto"]


def test_a_model_that_calls_although_it_may_not_is_told_so_and_nothing_runs():
    def look() -> str:
        pytest.fail("tool_choice was none")

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


def test_an_unknown_tool_is_answered_with_the_close_names():
    outcome = play(calls("ad"), "Sorry.", tools=[add, look])
    assert texts(outcome) == ["There is no tool 'ad'. Close names: add."]
    assert outcome.stop_reason == "answer"


@pytest.mark.parametrize("written", ["{not json", "[1, 2]", '"text"'])
def test_arguments_that_are_no_json_object_do_not_run_the_tool(written):
    def look() -> str:
        pytest.fail("there were no arguments")

    outcome = play(calls(("look", written)), "Sorry.", tools=[look])
    assert texts(outcome) == ["The arguments of look were not a JSON object; send them again as one."]
    assert outcome.history_delta[1].calls[0].arguments == {"_raw": written}


def test_arguments_that_do_not_fit_the_schema_do_not_run_the_tool():
    outcome = play(calls(("add", {"a": "one", "b": 2})), "Sorry.", tools=[add])
    assert texts(outcome) == [
        'The arguments of add do not fit its schema: "one" is not of type "integer" (at a).',
    ]


def test_a_tool_that_raises_is_answered_with_one_sentence_without_a_traceback():
    def fail() -> str:
        message = "the disk is full"
        raise OSError(message)

    outcome = play(calls("fail"), "Sorry.", tools=[fail])
    assert texts(outcome) == ["OSError: the disk is full"]
    assert results(outcome)[0].status == "error"
    assert outcome.stop_reason == "answer"


def test_a_secret_in_a_failure_is_blanked(monkeypatch):
    secrets.register_secret("correct-horse")

    def fail() -> str:
        message = "wrong password correct-horse"
        raise ValueError(message)

    assert texts(play(calls("fail"), "Sorry.", tools=[fail])) == [f"ValueError: wrong password {secrets.BLANK}"]


def test_a_tool_that_takes_too_long_is_answered_and_the_turn_goes_on():
    @tool(timeout=0.01)
    async def slow() -> None:
        await asyncio.Event().wait()

    outcome = play(calls("slow"), "Sorry.", tools=[slow])
    assert [(part.status, part.text) for part in results(outcome)] == [
        ("timeout", "slow took longer than 0.01 s and was stopped.")
    ]
    assert outcome.stop_reason == "answer"


def test_a_call_without_any_source_of_tools_ends_the_turn():
    outcome = play(ADD, "never asked for")
    assert outcome.stop_reason == "no_tools"
    assert texts(outcome) == ["There are no tools in this conversation; answer without one."]
    assert invalid_history(outcome.history_delta) is None


def test_a_source_without_tools_is_not_the_same_as_no_source():
    outcome = play(ADD, "Sorry.", tools=[Source()])
    assert texts(outcome) == ["There is no tool 'add'. Tools: none."]
    assert outcome.stop_reason == "answer"


def test_only_listed_tools_can_run():
    def other() -> str:
        pytest.fail("this one is not listed")

    outcome = play(calls("other"), calls("__import__"), "Sorry.", tools=[look])
    assert all(part.is_error for part in results(outcome))


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


def test_a_source_that_breaks_when_it_is_listed_fails_the_turn():
    session = scripted("Hello.", tools=[Broken(ZeroDivisionError("by zero"))])
    with pytest.raises(AgentMagicError, match="by zero") as caught:
        session.ask("a prompt")
    assert caught.value.result.error == "The turn failed: ZeroDivisionError: by zero"


def test_a_source_whose_server_is_gone_leaves_the_turn_the_other_tools():
    gone = Broken(ServerError("The server clock cannot be started."))
    outcome = play(calls("look"), calls("now"), "Done.", tools=[gone, look])
    assert (outcome.stop_reason, [part.is_error for part in results(outcome)]) == ("answer", [False, True])
    assert texts(outcome)[1] == "There is no tool 'now'. Tools: look."
    told = [(event.level, event.text) for event in outcome.events if event.type == "notice"]
    assert told == [("warning", "This turn runs without a tool server. The server clock cannot be started.")]


def test_media_of_a_result_is_kept():
    picture = Media("image/png", b"\x89PNG")
    outcome = play(calls("draw"), "Done.", tools=[Source(Tool(ToolDef("draw", ""), say("Look:", picture)))])
    assert results(outcome)[0].content == (Text("Look:"), picture)


# -- parallel calls ------------------------------------------------------------------------------


def test_the_calls_of_a_step_run_together_and_results_keep_their_order():
    together = threading.Barrier(8, timeout=5)

    def wait(number: int) -> int:
        together.wait()
        return number

    outcome = play(calls(*(("wait", {"number": number}) for number in range(8))), "Done.", tools=[wait])
    assert texts(outcome) == [str(number) for number in range(8)]


def test_results_keep_the_order_of_the_calls_whichever_ends_first():
    second_is_done = asyncio.Event()

    async def first() -> str:
        await second_is_done.wait()
        return "first"

    async def second() -> str:
        second_is_done.set()
        return "second"

    outcome = play(calls("first", "second"), "Done.", tools=[first, second])
    assert texts(outcome) == ["first", "second"]
    finished = [event.result.name for event in outcome.events if event.type == "tool_finished"]
    assert finished == ["second", "first"]


def test_a_tool_that_must_be_alone_runs_beside_no_other():
    running = []

    @tool(parallel=False)
    async def alone() -> str:
        running.append("alone")
        await asyncio.sleep(0)
        assert running.count("alone") == 1
        assert running.count("beside") == 0
        running.remove("alone")
        return "alone"

    async def beside() -> str:
        running.append("beside")
        await asyncio.sleep(0)
        assert "alone" not in running
        running.remove("beside")
        return "beside"

    names = ["beside", "alone", "alone", "beside", "beside"]
    assert texts(play(calls(*names), "Done.", tools=[alone, beside])) == names


# -- ways to end ---------------------------------------------------------------------------------


def raises_complete() -> str:
    message = "all done"
    raise TaskComplete(message)


def returns_done() -> Done:
    return Done("all done")


async def raises_complete_asynchronously() -> str:
    message = "all done"
    raise TaskComplete(message)


@pytest.mark.parametrize("finish", [raises_complete, returns_done, raises_complete_asynchronously])
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


@pytest.mark.parametrize("error", [BadRequest("no"), ValueError("a bug"), AuthenticationFailed("no")])
def test_a_fixed_sentence_stands_in_for_a_closing_answer_that_fails(error):
    outcome = play(ADD, error, tools=[add], max_iterations=1)
    assert (outcome.stop_reason, outcome.final_text) == ("limit", turn.NO_CLOSING)
    assert "The closing answer failed" in notices(outcome)[-1]
    assert invalid_history(outcome.history_delta) is None


def test_a_closing_answer_that_calls_again_is_no_answer():
    outcome = play(ADD, ADD, tools=[add], max_iterations=1)
    assert (outcome.stop_reason, outcome.final_text) == ("limit", turn.NO_CLOSING)
    assert invalid_history(outcome.history_delta) is None


def test_the_limit_can_end_the_turn_without_a_last_request():
    model = ScriptedModel([ADD])
    outcome = run(Session(Agent(model, tools=[add], max_iterations=1, on_limit="stop")), "a prompt")
    assert (outcome.stop_reason, outcome.final_text) == ("limit", "")
    assert len(model.requests) == 1


# -- timeout -------------------------------------------------------------------------------------


def test_the_timeout_cuts_into_a_stream_that_stands_still():
    began = time.monotonic()
    session = Session(Agent(Stalled("Half an ans"), timeout=SOON))
    with pytest.raises(TimeoutError, match=re.escape(f"took longer than {SOON} s")) as caught:
        session.ask("a prompt")
    assert time.monotonic() - began < SOON + AT_ONCE
    assert isinstance(caught.value, TurnTimeout)
    partial = caught.value.result
    assert (partial.stop_reason, partial.timed_out, partial.final_text) == ("timeout", True, "Half an ans")
    assert partial.history_delta[-1].interrupted
    assert session.messages == partial.history_delta


def test_the_timeout_cuts_into_a_tool():
    began = time.monotonic()
    outcome = play(calls("look", "never"), tools=[look, never], timeout=SOON)
    assert time.monotonic() - began < SOON + AT_ONCE
    assert outcome.timed_out
    assert [part.status for part in results(outcome)] == ["ok", "interrupted"]
    assert invalid_history(outcome.history_delta) is None


def test_the_timeout_cuts_into_a_retry_wait():
    began = time.monotonic()
    outcome = run(Session(Agent(Faulty(RateLimited("slow down", retry_after=60.0)), timeout=SOON)), "a prompt")
    assert time.monotonic() - began < SOON + AT_ONCE
    assert outcome.timed_out


def test_a_model_that_fails_of_being_cut_off_is_a_timeout_too():
    class Translating(Stalled):
        async def stream(self, request):
            try:
                async for event in super().stream(request):
                    yield event
            except asyncio.CancelledError:
                message = "the connection was closed"
                raise StreamBroken(message) from None

    assert run(Session(Agent(Translating(), timeout=SOON)), "a prompt").stop_reason == "timeout"


def test_a_timeout_error_of_the_model_s_own_is_no_timeout_of_the_turn():
    assert play(TimeoutError("the socket")).stop_reason == "error"


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
    assert [(event.step, event.attempt, event.error) for event in retries] == [
        (1, 1, "slow down"),
        (1, 2, "down"),
        (1, 3, "cut"),
    ]
    assert len(model.requests) == 4


@pytest.mark.usefixtures("no_waits")
def test_after_five_tries_the_turn_fails_with_what_had_come():
    model = Faulty(*[Unavailable("down")] * 9, text="Half an")
    with pytest.raises(Unavailable, match="down") as caught:
        Session(Agent(model)).ask("a prompt")
    assert len(model.requests) == TRIES
    assert caught.value.result.stop_reason == "error"
    assert caught.value.result.error == "down"
    assert invalid_history(caught.value.result.history_delta) is None


@pytest.mark.parametrize(
    "error", [BadRequest("no"), AuthenticationFailed("no"), ContextTooLong("no"), ProviderError("no")]
)
def test_a_request_that_would_fail_again_is_not_sent_again(error):
    model = Faulty(error)
    with pytest.raises(type(error)):
        Session(Agent(model)).ask("a prompt")
    assert len(model.requests) == 1


def test_the_wait_the_provider_asks_for_is_honoured():
    model = Faulty(RateLimited("slow down", retry_after=0.01))
    outcome = run(Session(Agent(model)), "a prompt")
    (retried,) = [event for event in outcome.events if event.type == "step_retried"]
    assert retried.delay == 0.01
    assert outcome.seconds >= 0.01


def test_a_wait_that_is_too_long_fails_at_once():
    model = Faulty(RateLimited("come back tomorrow", retry_after=RetrySettings().longest_retry_after + 1))
    with pytest.raises(RateLimited, match="come back tomorrow"):
        Session(Agent(model)).ask("a prompt")
    assert len(model.requests) == 1


def test_settings_of_the_agent_and_of_the_turn_reach_the_model():
    model = ScriptedModel(["One.", "Two."])
    session = Session(Agent(model, settings=ModelSettings(temperature=0.5, seed=3, extra={"a": {"b": 1}})))
    run(session, "a prompt", settings=ModelSettings(temperature=0, extra={"a": {"c": 2}}))
    run(session, "a prompt")
    first, second = (request.settings for request in model.requests)
    assert first == ModelSettings(temperature=0, seed=3, extra={"a": {"b": 1, "c": 2}})
    assert second == session.agent.settings


def test_a_setting_that_the_model_does_not_take_is_left_out_and_said_once():
    class Plain(Faulty):
        def honours(self, settings):
            return ("temperature",)

    model = Plain()
    session = Session(Agent(model, settings=ModelSettings(temperature=0, seed=3)))
    first, second = run(session, "a prompt"), run(session, "a prompt")
    assert model.requests[0].settings == ModelSettings(temperature=0)
    assert notices(first) == [f"{model.name} takes no seed, so it is asked without that setting."]
    assert notices(second) == []


def test_what_a_model_advises_is_said_once():
    class Advising(Faulty):
        def advice(self):
            return "A larger model is near."

    session = Session(Agent(Advising()))
    assert [notices(run(session, "a prompt")) for _ in range(2)] == [["A larger model is near."], []]


def test_a_model_that_knows_no_settings_is_sent_none():
    model = Faulty()
    result = run(Session(Agent(model, settings=ModelSettings(temperature=0))), "a prompt")
    assert model.requests[0].settings == ModelSettings()
    assert "takes no temperature" in notices(result)[0]


def test_the_agent_says_how_often_a_request_is_tried():
    model = Faulty(*[Unavailable("down", status=503)] * 9)
    with pytest.raises(Unavailable) as caught:
        Session(Agent(model, retry=RetrySettings(tries=7, longest_wait=0))).ask("a prompt")
    assert len(model.requests) == 7
    retried = [event for event in caught.value.result.events if event.type == "step_retried"]
    assert [event.delay for event in retried] == [0.0] * 6
    assert {event.tries for event in retried} == {7}


@pytest.mark.parametrize(("status", "asked"), [(404, 2), (503, 1), (None, 2)])
def test_the_agent_says_on_which_statuses_a_request_is_tried_again(status, asked):
    model = Faulty(Unavailable("down", status=status))
    settings = RetrySettings(longest_wait=0, statuses={404})
    result = run(Session(Agent(model, retry=settings)), "a prompt")
    assert len(model.requests) == asked
    assert result.stop_reason == ("answer" if asked == 2 else "error")


def test_waits_grow_with_jitter():
    class State:
        outcome = None

        def __init__(self, attempt):
            self.attempt_number = attempt

    waits = [[retry._wait(RetrySettings(), State(attempt)) for attempt in range(1, 5)] for _ in range(20)]
    for number, column in enumerate(zip(*waits, strict=True)):
        base = RetrySettings().first_wait * 2**number
        assert all(base <= wait <= base + 1 for wait in column)
        assert len(set(column)) > 1


@pytest.mark.usefixtures("no_waits")
def test_a_secret_in_a_provider_s_error_is_blanked(monkeypatch):
    secrets.register_secret("correct-horse")
    model = Faulty(Unavailable("refused correct-horse"), BadRequest("refused correct-horse"))
    outcome = run(Session(Agent(model)), "a prompt")
    assert outcome.error == f"refused {secrets.BLANK}"
    assert "correct-horse" not in repr(outcome)


# -- models that misbehave -----------------------------------------------------------------------


def test_an_error_that_is_no_provider_error_becomes_one_with_the_partial_result():
    with pytest.raises(ProviderError, match=r"^testing:faulty failed: ValueError: a bug$") as caught:
        Session(Agent(Faulty(ValueError("a bug"), text="Half an"))).ask("a prompt")
    assert caught.value.result.stop_reason == "error"
    assert caught.value.result.final_text == "Half an"
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [PartStarted(0, "text"), PartDelta(0, "Half an"), PartFinished(0, Text("Half an"))],
        [PartDelta(3, "of no part"), ModelFinished(Usage())],
    ],
)
def test_a_stream_that_breaks_the_rules_fails_the_turn_with_a_valid_history(events):
    session = Session(Agent(Events(*events)))
    with pytest.raises(ProviderError, match="testing:events"):
        session.ask("a prompt")
    assert invalid_history(session.messages) is None


# -- progress ------------------------------------------------------------------------------------


def test_progress_comes_before_its_call_is_settled():
    async def count(ctx: ToolContext) -> str:
        ctx.progress(1, 2, "half")
        return "counted"

    outcome = play(calls("count"), "Done.", tools=[count])
    assert kinds(outcome.events)[3:6] == ["tool_started", "tool_progress", "tool_finished"]


def test_progress_of_a_thread_comes_before_its_call_is_settled():
    def count(ctx: ToolContext) -> str:
        ctx.progress(1, 2, "half")
        ctx.progress(2, 2)
        return "counted"

    outcome = play(calls("count"), "Done.", tools=[count])
    assert kinds(outcome.events)[3:7] == ["tool_started", "tool_progress", "tool_progress", "tool_finished"]


# -- properties ----------------------------------------------------------------------------------

_arguments = st.sampled_from([{}, {"a": 1}, {"a": "x"}, "{bad json"])
_call = st.tuples(
    st.sampled_from(["fine", "failing", "waiting", "threaded", "finishing", "guarded", "alone", "unknown"]), _arguments
)
_step = st.one_of(
    st.just("Some words of an answer."),
    st.builds(
        lambda pairs, text: calls(*pairs) | {"text": text},
        st.lists(_call, min_size=1, max_size=3),
        st.sampled_from(["", "Hm."]),
    ),
    st.sampled_from([RateLimited("slow", retry_after=0.0), BadRequest("no"), ValueError("a bug")]),
)
_scripts = st.lists(_step, min_size=1, max_size=4)


def tools_of_every_kind():
    async def fine(a: int = 0) -> int:
        await asyncio.sleep(0)
        return a

    async def failing(a: int = 0) -> int:
        raise ValueError(a)

    async def waiting(a: int = 0) -> int:
        for _ in range(5):
            await asyncio.sleep(0)
        return a

    def threaded(a: int = 0) -> int:
        return a

    async def finishing(a: int = 0) -> Done:
        return Done(f"finished with {a}")

    @tool(ask=True)
    async def guarded(a: int = 0) -> int:
        pytest.fail("nobody approved it")

    @tool(parallel=False)
    async def alone(a: int = 0) -> int:
        await asyncio.sleep(0)
        return a

    return [fine, failing, waiting, threaded, finishing, guarded, alone]


@settings(max_examples=200, deadline=None)
@given(_scripts, st.none() | st.integers(0, 40), st.sampled_from([1, 2, 10]))
def test_every_turn_cut_off_anywhere_leaves_a_log_that_folds_to_a_valid_history(script, cut, limit):
    """One turn of random steps and tools, cancelled at a random event or not at all."""
    outcome, events = play_and_cancel(script, cut, limit)
    assert kinds(events).count("turn_started") == kinds(events).count("turn_finished") == 1
    assert events[-1].type == "turn_finished"
    assert tuple(events[:-1]) == outcome.events
    assert outcome.history_delta == fold(events)
    assert invalid_history(outcome.history_delta) is None
    answered = {part.call_id for part in results(outcome)}
    assert {call.id for message in outcome.history_delta for call in message.calls} == answered
    assert serialization.decode_log(serialization.encode(event) for event in events) == events
    kept = [event for event in events if not isinstance(event, (PartStarted, PartDelta))]
    read = serialization.decode_log(serialization.encode(event) for event in kept)
    assert read[-1].result.history_delta == outcome.history_delta


def play_and_cancel(script, cut, limit):
    """One turn of the script, cancelled as soon as event number `cut` is told; its outcome and its events."""
    model = ScriptedModel(
        [type(step)(*step.args, **_options(step)) if isinstance(step, Exception) else step for step in script]
    )
    agent = Agent(model, max_iterations=limit)
    events = []
    outcomes = []

    async def nobody(_question):
        await asyncio.sleep(0)

    async def main():
        def emit(event):
            if len(events) == cut:
                task.cancel()
            events.append(event)

        task = asyncio.current_task()
        tools = Functions(tools_of_every_kind())
        context = TurnContext(agent, model, [tools], user("a prompt"))
        outcomes.append(await run_turn(context, Channel(events, emit, nobody)))

    with contextlib.suppress(asyncio.CancelledError):  # of a cut after the turn's last await
        asyncio.run(main())
    return outcomes[0].result, events


def _options(error):
    return {"retry_after": error.retry_after} if isinstance(error, ProviderError) else {}
