"""What every model promises, asked of each of them over the stream that its strict server writes."""

import asyncio
import json
import time
from contextlib import aclosing, contextmanager
from typing import Any

import pytest

from agentmagic import ModelSettings
from agentmagic.errors import StreamBroken
from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Text, ToolCall, ToolDef, user
from agentmagic.providers import clients
from agentmagic.providers.base import Model, ModelFinished, Request, honoured_settings
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import PATIENCE
from tests.contracts.conversing import SDKS, api_case, every_api
from tests.providers.loopback import Exchange, Loopback
from tests.providers.strict.script import call, say
from tests.providers.strict.server import APIS, KEY, strict
from tests.turns import AT_ONCE

CLOCK = ToolDef("clock", "Tells the time.", {"type": "object", "properties": {"zone": {"type": "string"}}})
REQUEST = Request((user("What time is it here and there?"),), "Be brief.", (CLOCK,))
WORDS = "Let me look."
CALLS = [("clock", {"zone": zone}) for zone in ("UTC", "CET")]
STEPS = {"calling": call(*CALLS, says=WORDS), "speaking": say(WORDS)}
SCRIPT = {
    "calling": {"text": WORDS, "calls": [{"name": name, "arguments": given} for name, given in CALLS]},
    "speaking": WORDS,
}
SETTINGS = ModelSettings(
    temperature=0.5, max_output_tokens=900, reasoning="low", seed=7, extra={"own": {"field": True}}
)
THINKING = {"thinkingLevel": "LOW", "includeThoughts": True}
SETTINGS_SENT: dict[str, dict[str, Any]] = {
    "openai": {"temperature": 0.5, "max_output_tokens": 900, "reasoning": {"effort": "low"}},
    "openai-chat": {"temperature": 0.5, "max_tokens": 900, "reasoning_effort": "low", "seed": 7},
    "gemini": {"generationConfig": {"temperature": 0.5, "maxOutputTokens": 900, "seed": 7, "thinkingConfig": THINKING}},
    "anthropic": {"max_tokens": 900, "output_config": {"effort": "low"}, "temperature": None},
    "ollama": {"think": "low", "options": {"num_ctx": 8192, "temperature": 0.5, "num_predict": 900, "seed": 7}},
}
"""The fields of a request with SETTINGS."""

every_model = pytest.mark.parametrize("name", ["scripted", *map(api_case, SDKS)])


@contextmanager
def answering(name, *answers):
    """A model that gives the answers, "calling" or "speaking", one a request."""
    if name == "scripted":
        yield ScriptedModel([SCRIPT[answer] for answer in answers])
        return
    with strict(name, *(STEPS[answer] for answer in answers)) as server:
        yield server.model()


def written(api, answer):
    """The events of an answer as its API writes them, of which the last ones end it."""
    begin, rest = APIS[api]().stream(STEPS[answer])
    return [*begin, *rest]


async def collect(model, request=REQUEST):
    return [event async for event in model.stream(request)]


def events_of(model, request=REQUEST):
    async def main():
        try:
            return await collect(model, request)
        finally:
            await model.aclose()

    return asyncio.run(main())


@every_model
@pytest.mark.parametrize("answer", STEPS)
def test_parts_are_started_told_and_finished_in_order_and_one_closing_event_with_the_tokens_is_last(name, answer):
    with answering(name, answer) as model:
        assert isinstance(model, Model)
        assert model.name.startswith(f"{name}:")
        *events, last = events_of(model)
    assert isinstance(last, ModelFinished)
    assert last.usage.input_tokens > 0
    assert last.usage.output_tokens > 0
    assert last.reason
    assert not any(isinstance(event, ModelFinished) for event in events)
    started = [event.index for event in events if isinstance(event, PartStarted)]
    assert started == list(range(len(started)))
    for index in started:
        own = [event for event in events if event.index == index]
        part = own[-1].part
        assert [type(event) for event in own] == [PartStarted, *[PartDelta] * (len(own) - 2), PartFinished]
        assert (own[0].kind, own[0].name) == (part.type, getattr(part, "name", ""))
        if isinstance(part, Text):
            assert "".join(event.text for event in own[1:-1]) == part.text
    parts = [event.part for event in events if isinstance(event, PartFinished)]
    called = [part for part in parts if isinstance(part, ToolCall)]
    assert "".join(part.text for part in parts if isinstance(part, Text)) == WORDS
    assert [(part.name, dict(part.arguments)) for part in called] == (CALLS if answer == "calling" else [])
    assert len({part.id for part in called}) == len(called)


@every_api
def test_settings_are_sent_in_the_words_of_the_api(api):
    with Loopback([Exchange("".join(written(api, "speaking")))]) as server:
        model = APIS[api]().model(server.url, KEY)
        events_of(model, Request((user("Hello."),), settings=honoured_settings(model, SETTINGS)))
    sent = json.loads(server.requests[0].body)
    assert {key: sent.get(key) for key in SETTINGS_SENT[api]} == SETTINGS_SENT[api]
    assert sent["own"] == {"field": True}


@every_model
def test_it_can_be_given_up_closed_twice_and_asked_again(name):
    async def main(model):
        async with aclosing(model.stream(REQUEST)) as stream:
            assert await anext(stream) == PartStarted(0, "text")
        await model.aclose()
        await model.aclose()
        events = await collect(model)
        await model.aclose()
        return events

    with answering(name, "calling", "speaking") as model:
        assert isinstance(asyncio.run(main(model))[-1], ModelFinished)


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


@every_model
def test_cancelling_ends_a_stream_and_its_request_at_once(name):
    if name == "scripted":
        script = ScriptedModel([{"text": WORDS, "pace": PATIENCE}])
        assert asyncio.run(cancelled(script, lambda _: None)) < AT_ONCE
        return
    with strict(name, say(WORDS, ends="stall")) as server:
        assert asyncio.run(cancelled(server.model(), server.stalled.wait)) < AT_ONCE
        assert server.dropped.wait(AT_ONCE)


@every_api
@pytest.mark.parametrize("answer", STEPS)
def test_a_stream_that_ends_or_breaks_anywhere_before_its_closing_event_is_broken(api, answer):
    # The reason ends an answer: of a chat, tokens and a mark come behind it, of Anthropic the last event.
    closing = {"openai-chat": 3, "anthropic": 2}.get(api, 1)
    events = written(api, answer)
    whole, ends = "".join(events), len("".join(events[:-closing]))
    endings = [Exchange("".join(events[:length])) for length in range(1, len(events) - closing + 1)]
    endings += [Exchange(whole, cut_at=cut) for cut in range(10, ends, ends // 9)]

    async def main(model):
        for number in range(len(endings)):
            with pytest.raises(StreamBroken) as caught:
                await collect(model)
            assert caught.value.retryable, number
        await model.aclose()

    with Loopback(endings) as server:
        asyncio.run(main(APIS[api]().model(server.url, KEY)))


@every_api
def test_models_of_one_address_and_key_share_their_connections_until_the_last_is_closed(api):
    async def main(server):
        first, second = server.model(), server.model()
        await collect(first)
        task = asyncio.ensure_future(collect(second))
        await asyncio.to_thread(server.stalled.wait, PATIENCE)
        await first.aclose()
        server.release()
        assert isinstance((await task)[-1], ModelFinished)
        await second.aclose()
        await collect(first)
        await first.aclose()

    with strict(api, say(WORDS), say(WORDS, ends="stall"), say(WORDS)) as server:
        asyncio.run(main(server))
        assert server.connections == 2


@every_api
def test_an_event_and_an_error_without_end_are_broken_off_and_not_asked_for_again(api, monkeypatch):
    monkeypatch.setattr(clients, "LONGEST_EVENT", 200_000)
    for endless in (Exchange("data: " + "x" * 1_000_000), Exchange("x" * 1_000_000, 400, "text/plain")):
        with Loopback([endless]) as server, pytest.raises(StreamBroken, match="broken off") as caught:
            events_of(APIS[api]().model(server.url, KEY))
        assert not caught.value.retryable
