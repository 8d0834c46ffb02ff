"""What every model promises, asked of each of them; a new provider adds its `Case` here."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from tenacity import wait_none

from agentmagic import Agent, ModelSettings, Session
from agentmagic.errors import BadRequest, StreamBroken
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Text, ToolCall, ToolDef, user
from agentmagic.providers import clients
from agentmagic.providers.base import Model, ModelFinished, Request, honoured
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.runtime.engine import engine
from agentmagic.testing import PATIENCE, invalid_history, run
from tests.contracts.conversing import api_case
from tests.providers.loopback import Exchange, Loopback, sse
from tests.turns import AT_ONCE, texts

KEY = "test-key-of-nobody"
CLOCK = ToolDef("clock", "Tells the time.", {"type": "object", "properties": {"zone": {"type": "string"}}})
REQUEST = Request((user("What time is it here and there?"),), "Be brief.", (CLOCK,))
WORDS = "Let me look."
ZONES = ("UTC", "CET")
SETTINGS = ModelSettings(
    temperature=0.5, max_output_tokens=900, reasoning="low", seed=7, extra={"own": {"field": True}}
)
CALLS = [{"name": "clock", "arguments": {"zone": zone}} for zone in ZONES]


@dataclass(frozen=True)
class Case:
    """A model behind HTTP: how it is made for an address, and its answers, one event of the stream each.

    `calling` says WORDS and calls the clock for each zone; `speaking` says WORDS only. `settings` are the fields of a
    request with SETTINGS. Without its last `closing` events an answer has no end.
    """

    make: Callable[[str], Model]
    calling: list[str]
    speaking: list[str]
    settings: dict[str, Any]
    closing: int = 1


def responses_case() -> Case:
    from agentmagic.providers.openai.responses import OpenAIResponses

    def item(place, whole, **empty):
        return [
            {"type": "response.output_item.added", "output_index": place, "item": whole | empty},
            {"type": "response.output_item.done", "output_index": place, "item": whole},
        ]

    content = [{"type": "output_text", "text": WORDS, "annotations": []}]
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": content}
    begin, end = item(0, message, content=[])
    spoken = [begin, {"type": "response.output_text.delta", "output_index": 0, "delta": WORDS}, end]
    called = []
    for place, zone in enumerate(ZONES, 1):
        call = {"id": f"fc_{place}", "type": "function_call", "call_id": f"call_{place}", "name": "clock"}
        arguments = f'{{"zone": "{zone}"}}'
        begin, end = item(place, call | {"arguments": arguments}, arguments="")
        delta = {"type": "response.function_call_arguments.delta", "output_index": place, "delta": arguments}
        called += [begin, delta, end]
    usage = {"input_tokens": 5, "output_tokens": 7}
    closing = {"type": "response.completed", "response": {"status": "completed", "usage": usage}}

    def make(url):
        return OpenAIResponses("gpt-5.4", base_url=f"{url}/v1", api_key=KEY)

    return Case(
        make,
        [sse(chunk) for chunk in (*spoken, *called, closing)],
        [sse(chunk) for chunk in (*spoken, closing)],
        {"temperature": 0.5, "max_output_tokens": 900, "reasoning": {"effort": "low"}},
    )


def chat_case() -> Case:
    from agentmagic.providers.openai.chat_completions import OpenAIChat

    def chunk(delta, reason=None):
        return sse({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    def call(place, zone):
        function = {"name": "clock", "arguments": f'{{"zone": "{zone}"}}'}
        return {"tool_calls": [{"index": place, "id": f"call_{place}", "type": "function", "function": function}]}

    usage = sse({"id": "c", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}})
    spoken = [chunk({"role": "assistant", "content": WORDS})]
    called = [chunk(call(place, zone)) for place, zone in enumerate(ZONES)]

    def make(url):
        return OpenAIChat("gpt-5.4", base_url=f"{url}/v1", api_key=KEY)

    return Case(
        make,
        [*spoken, *called, chunk({}, "tool_calls"), usage, sse(done=True)],
        [*spoken, chunk({}, "stop"), usage, sse(done=True)],
        {"temperature": 0.5, "max_tokens": 900, "reasoning_effort": "low", "seed": 7},
        closing=3,
    )


def gemini_case() -> Case:
    from agentmagic.providers.gemini.gemini_model import Gemini

    def chunk(*parts, reason=None):
        candidate = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
        end = {"finishReason": reason} if reason else {}
        return sse(
            {"candidates": [candidate | end], "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7}}
        )

    called = [chunk({"functionCall": {"name": "clock", "args": {"zone": zone}}}) for zone in ZONES]
    closing = chunk({"text": ""}, reason="STOP")

    def make(url):
        return Gemini("gemini-3.5-flash", base_url=url, api_key=KEY)

    spoken = chunk({"text": WORDS})
    thinking = {"thinkingLevel": "LOW", "includeThoughts": True}
    config = {"temperature": 0.5, "maxOutputTokens": 900, "seed": 7, "thinkingConfig": thinking}
    return Case(make, [spoken, *called, closing], [spoken, closing], {"generationConfig": config})


def anthropic_case() -> Case:
    from agentmagic.providers.anthropic.anthropic_model import Anthropic

    def event(kind, **more):
        return f"event: {kind}\n{sse({'type': kind, **more})}"

    def block(place, empty, **delta):
        return [
            event("content_block_start", index=place, content_block=empty),
            event("content_block_delta", index=place, delta=delta),
            event("content_block_stop", index=place),
        ]

    start = event("message_start", message={"id": "msg_1", "usage": {"input_tokens": 5, "output_tokens": 1}})
    spoken = [start, *block(0, {"type": "text", "text": ""}, type="text_delta", text=WORDS)]
    called = []
    for place, zone in enumerate(ZONES, 1):
        empty = {"type": "tool_use", "id": f"toolu_{place}", "name": "clock", "input": {}}
        called += block(place, empty, type="input_json_delta", partial_json=f'{{"zone": "{zone}"}}')

    def closing(reason):
        ended = event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 7})
        return [ended, event("message_stop")]

    def make(url):
        return Anthropic("claude-sonnet-5-5", base_url=url, api_key=KEY)

    settings = {"max_tokens": 900, "output_config": {"effort": "low"}, "temperature": None}
    return Case(make, [*spoken, *called, *closing("tool_use")], [*spoken, *closing("end_turn")], settings)


def ollama_case() -> Case:
    from agentmagic.providers.ollama import Ollama

    def line(message=None, **more):
        return (
            json.dumps({"model": "qwen3", "message": {"role": "assistant", **(message or {})}, "done": False} | more)
            + "\n"
        )

    def call(zone):
        return line({"content": "", "tool_calls": [{"function": {"name": "clock", "arguments": {"zone": zone}}}]})

    spoken, called = line({"content": WORDS}), [call(zone) for zone in ZONES]
    closing = line(done=True, done_reason="stop", prompt_eval_count=5, eval_count=7)
    options = {"num_ctx": 8192, "temperature": 0.5, "num_predict": 900, "seed": 7}

    def make(url):
        return Ollama("qwen3", base_url=url, api_key=KEY)

    return Case(make, [spoken, *called, closing], [spoken, closing], {"think": "low", "options": options})


CASES = {
    "openai": responses_case,
    "openai-chat": chat_case,
    "gemini": gemini_case,
    "anthropic": anthropic_case,
    "ollama": ollama_case,
}
HTTP = [api_case(name) for name in CASES]


@contextmanager
def answering(name, *answers, **options):
    """A model that gives the answers, "calling" or "speaking", one a request."""
    if name == "scripted":
        steps = {"calling": {"text": WORDS, "calls": CALLS}, "speaking": WORDS}
        yield ScriptedModel([steps[answer] for answer in answers])
        return
    case = CASES[name]()
    with Loopback([Exchange("".join(getattr(case, answer)), **options) for answer in answers]) as server:
        yield case.make(server.url)


async def collect(model, request=REQUEST):
    return [event async for event in model.stream(request)]


def events_of(model, request=REQUEST):
    async def main():
        try:
            return await collect(model, request)
        finally:
            await model.aclose()

    return asyncio.run(main())


def turn(model, prompt, **options):
    """The result of one turn, after which the model is closed on the loop that used it."""
    try:
        return run(Session(Agent(model, **options)), prompt)
    finally:
        engine().call(model.aclose())


every_model = pytest.mark.parametrize("name", ["scripted", *HTTP])
every_http_model = pytest.mark.parametrize("name", HTTP)


@every_model
def test_it_is_a_model_with_the_name_of_its_provider(name):
    with answering(name, "speaking") as model:
        assert isinstance(model, Model)
        assert model.name.startswith(f"{name}:")


@every_model
def test_each_part_is_started_then_told_then_finished_with_the_whole(name):
    with answering(name, "calling") as model:
        events = events_of(model)
    for index in range(3):
        own = [event for event in events if getattr(event, "index", None) == index]
        assert isinstance(own[0], PartStarted)
        assert all(isinstance(event, PartDelta) for event in own[1:-1])
        assert isinstance(own[-1], PartFinished)
        assert own[-1].part.type == own[0].kind
        if isinstance(own[-1].part, Text):
            assert "".join(event.text for event in own[1:-1]) == own[-1].part.text
        if isinstance(own[-1].part, ToolCall):
            assert own[0].name == own[-1].part.name


@every_model
def test_indices_count_from_zero_in_order_of_appearance(name):
    with answering(name, "calling") as model:
        started = [event.index for event in events_of(model) if isinstance(event, PartStarted)]
    assert started == [0, 1, 2]


@every_model
def test_the_parts_are_what_the_model_said(name):
    with answering(name, "calling") as model:
        text, *called = [event.part for event in events_of(model) if isinstance(event, PartFinished)]
    assert text.text == WORDS
    assert [(call.name, dict(call.arguments)) for call in called] == [("clock", {"zone": zone}) for zone in ZONES]
    assert len({call.id for call in called}) == 2


@every_model
@pytest.mark.parametrize("answer", ["calling", "speaking"])
def test_exactly_one_closing_event_comes_last_with_the_tokens(name, answer):
    with answering(name, answer) as model:
        events = events_of(model)
    assert [isinstance(event, ModelFinished) for event in events] == [False] * (len(events) - 1) + [True]
    assert events[-1].usage.input_tokens > 0
    assert events[-1].usage.output_tokens > 0
    assert events[-1].reason


@every_model
def test_a_whole_turn_goes_through(name):
    def clock(zone: str) -> str:
        return f"noon in {zone}"

    with answering(name, "calling", "speaking") as model:
        outcome = turn(model, "What time is it here and there?", tools=[clock])
    assert (outcome.stop_reason, outcome.final_text) == ("answer", WORDS), outcome.error
    assert texts(outcome) == ["noon in UTC", "noon in CET"]
    assert invalid_history(outcome.history_delta) is None


@every_http_model
def test_settings_are_sent_in_the_words_of_the_api(name):
    case = CASES[name]()
    with Loopback([Exchange("".join(case.speaking))]) as server:
        model = case.make(server.url)
        events_of(model, Request((user("Hello."),), settings=honoured(model, SETTINGS)))
    sent = json.loads(server.requests[0].body)
    assert {key: sent.get(key) for key in case.settings} == case.settings
    assert sent["own"] == {"field": True}


@every_model
def test_it_can_be_closed_twice_and_asked_again(name):
    async def main(model):
        first = await collect(model)
        await model.aclose()
        await model.aclose()
        second = await collect(model)
        await model.aclose()
        return first, second

    with answering(name, "speaking", "speaking") as model:
        first, second = asyncio.run(main(model))
    assert len(first) == len(second)


@every_model
def test_a_stream_that_is_given_up_can_be_closed(name):
    async def main(model):
        async with aclosing(model.stream(REQUEST)) as stream:
            first = await anext(stream)
        await model.aclose()
        return first

    with answering(name, "calling") as model:
        assert asyncio.run(main(model)) == PartStarted(0, "text")


async def cancelled(model, stands_still):
    """The seconds that a task takes to end which is cancelled while its stream stands still."""
    task = asyncio.ensure_future(collect(model))
    await asyncio.to_thread(stands_still, PATIENCE)
    began = time.monotonic()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await model.aclose()
    return time.monotonic() - began


@every_http_model
def test_cancelling_closes_the_request_at_once(name):
    case = CASES[name]()
    whole = "".join(case.speaking)
    with Loopback([Exchange(whole, stall_at=len(case.speaking[0].encode()))]) as server:
        seconds = asyncio.run(cancelled(case.make(server.url), server.stalled.wait))
        assert seconds < AT_ONCE
        assert server.dropped.wait(AT_ONCE)


def test_cancelling_ends_a_script_at_once():
    model = ScriptedModel([{"text": WORDS, "pace": PATIENCE}])
    assert asyncio.run(cancelled(model, lambda _: None)) < AT_ONCE


@every_http_model
@pytest.mark.parametrize("answer", ["calling", "speaking"])
def test_a_stream_that_ends_before_its_closing_event_is_broken(name, answer):
    case = CASES[name]()
    chunks = getattr(case, answer)
    for length in range(1, len(chunks) - case.closing + 1):
        with Loopback([Exchange("".join(chunks[:length]))]) as server, pytest.raises(StreamBroken):
            events_of(case.make(server.url))


@every_http_model
def test_a_connection_that_breaks_within_the_stream_is_broken(name):
    case = CASES[name]()
    whole = "".join(case.calling)
    closing_event_begins = len("".join(case.calling[: -case.closing]))
    for cut in range(10, closing_event_begins, closing_event_begins // 9):
        with Loopback([Exchange(whole, cut_at=cut)]) as server, pytest.raises(StreamBroken) as caught:
            events_of(case.make(server.url))
        assert caught.value.retryable


@every_http_model
def test_a_bad_request_is_told_in_the_server_s_words_without_the_key(name):
    body = json.dumps({"error": {"message": f"the tool clock has no description; your key is {KEY}", "code": 400}})
    case = CASES[name]()
    with Loopback([Exchange(body, 400, "application/json")]) as server, pytest.raises(BadRequest) as caught:
        events_of(case.make(server.url))
    assert "the tool clock has no description" in str(caught.value)
    assert KEY not in str(caught.value)


@every_http_model
def test_a_stream_that_broke_is_tried_again_as_a_whole(name, monkeypatch):
    monkeypatch.setattr("agentmagic.loop.retry._backoff", lambda _settings: wait_none())
    case = CASES[name]()
    whole = "".join(case.speaking)
    with Loopback([Exchange(whole, cut_at=len(case.speaking[0])), Exchange(whole)]) as server:
        outcome = turn(case.make(server.url), "Speak.")
    assert (outcome.final_text, outcome.stop_reason) == (WORDS, "answer"), outcome.error
    assert [event.type for event in outcome.events].count("step_retried") == 1


@every_http_model
def test_models_of_one_address_and_key_share_their_connections_until_the_last_is_closed(name):
    case = CASES[name]()

    async def main(url):
        first, second = case.make(url), case.make(url)
        for model in (first, second):
            await collect(model)
        await first.aclose()
        await collect(second)
        await second.aclose()
        await collect(first)
        await first.aclose()

    with Loopback([Exchange("".join(case.speaking))] * 4) as server:
        asyncio.run(main(server.url))
        assert server.connections == 2


@every_http_model
def test_a_model_that_is_closed_while_another_streams_leaves_its_stream_alone(name):
    case = CASES[name]()
    whole = "".join(case.speaking)

    async def main(server):
        idle, speaking = case.make(server.url), case.make(server.url)
        await collect(idle)
        task = asyncio.ensure_future(collect(speaking))
        await asyncio.to_thread(server.stalled.wait, PATIENCE)
        await idle.aclose()
        server.release()
        events = await task
        await speaking.aclose()
        return events

    with Loopback([Exchange(whole), Exchange(whole, stall_at=len(case.speaking[0].encode()))]) as server:
        assert isinstance(asyncio.run(main(server))[-1], ModelFinished)


@every_http_model
def test_an_event_without_end_is_broken_off_and_not_asked_for_again(name, monkeypatch):
    monkeypatch.setattr(clients, "LONGEST_EVENT", 200_000)
    with (
        Loopback([Exchange("data: " + "x" * 1_000_000)]) as server,
        pytest.raises(StreamBroken, match="broken off") as caught,
    ):
        events_of(CASES[name]().make(server.url))
    assert not caught.value.retryable


@every_http_model
def test_an_error_without_end_is_broken_off(name, monkeypatch):
    monkeypatch.setattr(clients, "LONGEST_EVENT", 200_000)
    with Loopback([Exchange("x" * 1_000_000, 400, "text/plain")]) as server, pytest.raises(StreamBroken):
        events_of(CASES[name]().make(server.url))
