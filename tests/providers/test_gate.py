import asyncio
import gc
from contextlib import suppress
from importlib import import_module
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic.agent import Agent, RetrySettings
from agentmagic.errors import ProviderError, RateLimited, Unavailable
from agentmagic.events import StepRetried
from agentmagic.loop.turn import Channel, run_turn
from agentmagic.loop.turn_context import TurnContext
from agentmagic.messages import Usage, user
from agentmagic.providers import gate as gates
from agentmagic.providers.base import Request
from agentmagic.providers.gate import ProviderGate, gate_of
from agentmagic.providers.ollama import Ollama
from agentmagic.providers.rate_limits import RateLimit, read_limits
from agentmagic.testing import Faulty
from tests.benchmarks.pace import STORM, Scene, in_virtual_time, play, share
from tests.providers.loopback import Exchange, Loopback
from tests.turns import Free

SHORT, LONG = (0.8, 2.5), (2.0, 12.0)
BUSY = (*STORM[:3], 503)


@pytest.mark.parametrize(
    "scene",
    [
        Scene(limit=60, latency=SHORT),
        Scene(limit=60, latency=LONG, grants="window", tells="wait"),
        Scene(limit=60, latency=LONG, grants="minute", tells="headers", storm=STORM),
        Scene(limit=500, latency=LONG, storm=STORM),
        Scene(limit=500, latency=LONG, storm=BUSY),
        pytest.param(Scene(limit=500, latency=SHORT, grants="window", storm=BUSY), marks=pytest.mark.slow),
        Scene(limit=5000, latency=SHORT, grants="minute", tokens=300_000, tells="headers"),
        pytest.param(Scene(capacity=32, latency=SHORT), marks=pytest.mark.slow),
    ],
    ids=[
        "60",
        "60-window-wait",
        "60-headers-storm",
        "500-storm",
        "500-long-503",
        "500-window-503",
        "tokens",
        "never-refuses",
    ],
)
def test_the_gate_uses_what_a_provider_allows_and_is_seldom_refused(scene):
    server = play(scene, 1)
    assert share(server) >= 0.9
    assert server.refused <= 0.3 * server.accepted
    assert server.slower <= 3 * server.accepted  # how many times as long the answers took


NEAR = (0.001, 0.003)


@pytest.mark.parametrize(
    ("scene", "least"),
    [
        (Scene(limit=500, grants="one", transit=NEAR, minutes=1), 0.8),
        (Scene(limit=500, grants="one", transit=NEAR, minutes=1, tells="headers"), 0.8),
        (Scene(limit=500, grants="one", transit=NEAR, minutes=1.05, loading=3), 0.75),
        (Scene(limit=500, transit=NEAR, minutes=1.05, loading=3), 0.9),
        (Scene(limit=5000, grants="one", transit=NEAR, minutes=1), 0.6),
    ],
    ids=["one-by-one", "one-by-one-headers", "one-by-one-loading", "loading", "one-by-one-5000"],
)
def test_the_gate_has_found_the_pace_of_a_provider_within_its_first_minute(scene, least):
    for seed in (1, 2):
        server = play(scene, seed)
        assert share(server) >= least
        assert server.refused <= 0.3 * server.accepted


def test_two_hundred_a_second_that_nobody_tells_of_are_sent_within_twenty_seconds():
    early, late = (
        play(Scene(limit=12_000, grants="one", transit=NEAR, minutes=seconds / 60), 1) for seconds in (18, 24)
    )
    assert late.accepted - early.accepted >= 0.7 * 200 * 6


def test_requests_that_did_not_wait_for_the_pace_are_not_caught_up_in_a_burst():
    async def main():
        gate, sent = ProviderGate(), []
        gate.read_response(gate.ticket(0), 200, read_limits({"x-ratelimit-limit-requests": "6000"}))

        async def row():
            async with gate.ticket(0, row=True):
                sent.append(asyncio.get_running_loop().time())

        for _ in range(3):  # the gate is idle between them
            await asyncio.gather(row(), row(), row())
            await asyncio.sleep(0.5)
        return [after - before for before, after in pairwise(sent)]

    assert min(in_virtual_time(main())) >= 0.0099


def refusal(**fields):
    return RateLimited("Too many.", status=429, **fields)


async def use(gate, seconds=0.0, error=None, *, row=True):
    with suppress(ProviderError):
        async with gate.ticket(100, row=row):
            await asyncio.sleep(seconds)
            if error is not None:
                raise error


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.booleans()), max_size=40))
def test_a_task_that_is_cancelled_at_any_point_leaks_no_slot(cancels):
    async def main():
        gate = ProviderGate()
        await use(gate, error=refusal())  # so that requests wait
        tasks = [asyncio.ensure_future(use(gate, 0.7, refusal() if bad else None, row=row)) for _, row, bad in cancels]
        rooms = [asyncio.ensure_future(gate.room()) for _ in cancels]
        for (passes, _, bad), *pair in zip(cancels, tasks, rooms, strict=True):
            for _ in range(passes):
                await asyncio.sleep(0.05 if bad else 0)
            for task in pair:
                task.cancel()
        await asyncio.wait([*tasks, *rooms, asyncio.ensure_future(asyncio.sleep(0))])
        await use(gate)
        return gate._under_way, len(gate._rows), len(gate._persons), len(gate._rooms), gate._probe

    assert in_virtual_time(main()) == (0, 0, 0, 0, None)


def test_a_request_at_an_idle_gate_waits_for_not_even_one_pass_of_the_loop():
    async def main():
        entering = ProviderGate().ticket(0).__aenter__()
        with pytest.raises(StopIteration):
            entering.send(None)

    in_virtual_time(main())


def test_a_person_goes_before_the_rows_that_wait():
    async def main():
        gate, order = ProviderGate(), []

        async def ask(name, *, row):
            async with gate.ticket(0, row=row):
                order.append(name)

        await use(gate, error=refusal())
        rows = [asyncio.ensure_future(ask(number, row=True)) for number in range(20)]
        await asyncio.sleep(0)
        await ask("person", row=False)
        began = order.index("person")
        await asyncio.wait(rows)
        return began

    assert in_virtual_time(main()) <= 1


@pytest.mark.parametrize(("used_up", "limited"), [(True, False), (False, True)])
def test_a_quota_that_is_used_up_is_no_pressure(used_up, limited):
    async def main():
        gate, error = ProviderGate(), refusal()
        error.retryable = not used_up
        await use(gate, error=error)
        await use(gate)
        return gate.rate < float("inf")

    assert in_virtual_time(main()) is limited


def test_a_refusal_of_a_lone_request_does_not_pin_the_rate():
    async def main():
        gate = ProviderGate()
        await use(gate, 1.0)
        await asyncio.sleep(3600)
        await use(gate, error=refusal())
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*[use(gate, 1.0) for _ in range(300)])
        return asyncio.get_running_loop().time() - began

    assert in_virtual_time(main()) < 90


def test_rows_begin_only_as_there_is_room():
    async def main():
        gate, begun = ProviderGate(), []

        async def rows():
            for number in range(10_000):
                await gate.room()
                begun.append(asyncio.ensure_future(use(gate, 3600)))
                await asyncio.sleep(0) if number % 2 else None

        task = asyncio.ensure_future(rows())
        await asyncio.sleep(10)
        count = len(begun)
        for one in (task, *begun):
            one.cancel()
        return count

    assert in_virtual_time(main()) < 50


def test_a_gate_belongs_to_a_name_an_address_and_a_key(monkeypatch):
    async def main():
        def model(name="m", url="http://one", key="k1"):
            return Ollama(name, base_url=url, api_key=key)

        gate = gate_of(model())
        assert gate_of(model()) is gate
        others = [gate_of(one) for one in (model("n"), model(url="http://two"), model(key="k2"))]
        assert gate not in others
        faulty = Faulty()
        assert gate_of(faulty) is gate_of(faulty)
        assert "k1" not in repr(list(gates._gates.keys()))
        for number in range(gates.RECENT):
            gate_of(model(f"m{number}", url="http://three"))
        del gate, others
        gc.collect()
        return len(gates._gates)

    before = len(gates._gates)
    assert asyncio.run(main()) <= before + gates.RECENT + 1


TOLD = {
    "x-ratelimit-limit-requests": "600",
    "x-ratelimit-remaining-requests": "599",
}


@pytest.mark.parametrize(
    ("module", "sdk"),
    [
        pytest.param("anthropic.model:Anthropic", "anthropic", marks=pytest.mark.slow),
        pytest.param("gemini.model:Gemini", "google.genai", marks=pytest.mark.slow),
        ("ollama:Ollama", "httpx2"),
        ("openai.chat_completions:OpenAIChat", "openai"),
        ("openai.responses:OpenAIResponses", "openai"),
    ],
)
def test_the_gate_hears_the_headers_of_every_provider(module, sdk):
    pytest.importorskip(sdk)
    name, _, kind = module.partition(":")
    make = getattr(import_module(f"agentmagic.providers.{name}"), kind)

    async def main(url):
        model = make("some-model", base_url=url, api_key="key-0123456789")
        gate = gate_of(model)
        with suppress(ProviderError):
            async with gate.ticket(0):
                async for _ in model.stream(Request((user("Hello"),))):
                    pass
        await model.aclose()
        return gate.rate

    with Loopback([Exchange("{}", 429, "application/json", TOLD)]) as server:
        assert asyncio.run(main(server.url)) == 600


@pytest.mark.parametrize(
    ("headers", "limits"),
    [
        (TOLD, {"x-ratelimit-{}-requests": RateLimit(600, 599)}),
        ({"x-ratelimit-limit-tokens": "150000"}, {"x-ratelimit-{}-tokens": RateLimit(150_000)}),
        (
            {f"anthropic-ratelimit-{kind}-tokens-limit": "5" for kind in ("input", "output")},
            {f"anthropic-ratelimit-{kind}-tokens-{{}}": RateLimit(5) for kind in ("input", "output")},
        ),
        *(({"x-ratelimit-limit-requests": words}, {}) for words in ("0", "-1", "1e9", "inf", "9" * 40, "", "٣", "x")),
    ],
)
def test_limits_are_read_from_headers_and_what_is_none_is_left_out(headers, limits):
    assert read_limits(headers) == limits


def turn_of(model, *, row, timeout=100.0):
    agent = Agent(model, retry=RetrySettings(tries=2, longest_wait=0), timeout=timeout)
    events = []

    async def main():
        return await run_turn(
            TurnContext(agent, model, (), user("Hello"), row=Free() if row else None), Channel(events, events.append)
        )

    return in_virtual_time(main()), events


@pytest.mark.parametrize("error", [refusal(), refusal(retry_after=50.0), Unavailable("busy", status=529)])
def test_a_row_waits_at_the_gate_whatever_its_tries_and_its_timeout(error):
    outcome, events = turn_of(Faulty(*[error] * 5), row=True, timeout=5.0)
    assert outcome.result.stop_reason == "answer"
    assert not [event for event in events if isinstance(event, StepRetried)]


def test_what_an_answer_has_used_that_broke_off_for_too_much_load_is_counted_also_if_it_waits_at_the_gate():
    error = Unavailable("busy", status=529)
    error.usage = Usage(100, searches=2, cost=None)
    outcome, _ = turn_of(Faulty(error), row=True)
    assert outcome.result.usage.searches == 2
    assert outcome.result.usage.input_tokens >= 100


@pytest.mark.parametrize(("error", "row"), [(refusal(), False), (Unavailable("down", status=500), True)])
def test_other_failures_and_those_of_a_person_use_up_the_tries(error, row):
    outcome, events = turn_of(Faulty(*[error] * 5), row=row)
    assert outcome.error is error
    assert len([event for event in events if isinstance(event, StepRetried)]) == 1


def test_a_row_that_is_told_to_wait_too_long_fails():
    outcome, _ = turn_of(Faulty(refusal(retry_after=1000.0)), row=True)
    assert isinstance(outcome.error, RateLimited)
