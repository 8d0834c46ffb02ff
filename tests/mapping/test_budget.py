"""What a map may cost: the worst of a request is set aside before it is sent."""

import asyncio

import pytest

from agentmagic import Agent, MapFailed, ModelSettings, RetrySettings, Session, register_model
from agentmagic.loop.budgets import BudgetExhausted, Meter
from agentmagic.loop.turn_context import TurnContext
from agentmagic.mapping.costs import Costs, RowCosts
from agentmagic.messages import Usage, user
from agentmagic.providers import catalog
from agentmagic.providers.base import Request
from tests.mapping.models import MODEL, RowModel

REQUEST = Request((user("A row."),))
ROWS = [f"row {number}" for number in range(200)]


@pytest.fixture
def priced(monkeypatch):
    monkeypatch.setattr(catalog, "_registrations", {})
    register_model(MODEL, input_price=10.0, output_price=100.0)  # a request: 100 and 20 tokens, $0.003


def mapped(rows=ROWS, *, settings=None, **options):
    model = RowModel()
    settings = settings or ModelSettings(max_output_tokens=20)
    session = Session(Agent(model, settings=settings, retry=RetrySettings(tries=1)), namespace={})
    try:
        return session.map(rows, "{row}", concurrency=16, **options), model
    finally:
        session.close()


@pytest.mark.parametrize("cap", [0.003, 0.01, 0.1, 0.3])
def test_a_cap_is_not_passed_and_is_used(priced, cap):
    result, model = mapped(max_cost=cap)
    assert result.usage.cost < cap + 1e-9
    assert result.usage.cost > cap - 2 * 0.003
    assert result.progress.ended == "budget"
    assert {row.status for row in result} == {"answered"}
    assert "max_cost" in result.progress.notices[-1]
    assert sum(model.asked.values()) == len(result.rows)


def test_the_next_row_sets_nothing_aside_that_a_row_under_way_needs(priced):
    def look_up(line: str) -> str:
        """Look a line up."""
        return line

    settings = ModelSettings(max_output_tokens=20)
    session = Session(Agent(RowModel(), tools=[look_up], settings=settings), namespace={})
    result = session.map(["calls a", "calls b", "calls c"], "{row}", concurrency=1, max_cost=0.0075)
    session.close()
    assert [row.status for row in result.rows][:1] == ["answered"]
    assert result.usage.cost == pytest.approx(0.006)


def capped(max_cost):
    agent = Agent(RowModel(), settings=ModelSettings(max_output_tokens=20))
    meter = Meter("map", max_cost=max_cost)
    return meter, Costs(TurnContext(agent, agent.model, (), user("A row.")), 0, [meter])


def test_requests_of_a_row_that_are_under_way_at_one_time_are_each_paid(priced):
    async def pay(row, last):
        aside = await row.set_aside(REQUEST)
        await last.wait()
        row.give_back(REQUEST, aside, Usage(cost=1.0))

    async def both():
        meter, costs = capped(9.0)
        await costs.set_aside(worst := Usage(cost=1.0))
        row, last = RowCosts(costs, worst, bool), asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pay(row, last))
            tasks.create_task(pay(row, last))
            await asyncio.sleep(0)
            last.set()
        return meter.spent.cost

    assert asyncio.run(both()) == 2.0


def test_a_request_that_was_stopped_counts_with_what_was_set_aside(priced):
    async def stopped():
        meter, costs = capped(9.0)
        await costs.set_aside(worst := Usage(cost=1.0))
        row = RowCosts(costs, worst, bool)
        row.give_back(REQUEST, await row.set_aside(REQUEST), None)
        row.close()
        return meter.spent.cost

    assert asyncio.run(stopped()) == 1.0


def test_a_cap_on_tokens_is_kept_too():
    result, _ = mapped(max_tokens=1_000)
    assert 1_000 - 2 * 120 < result.usage.input_tokens + result.usage.output_tokens <= 1_000


def test_a_cap_counts_what_an_earlier_run_has_paid(priced, tmp_path):
    first, _ = mapped(max_cost=0.03, to=tmp_path / "a.jsonl")
    second, model = mapped(max_cost=0.03, to=tmp_path / "a.jsonl")
    assert sum(model.asked.values()) == 0
    assert second.progress.kept == len(first.rows)
    third, _ = mapped(max_cost=0.06, to=tmp_path / "a.jsonl")
    assert 0.054 < (third.usage.cost or 0) < 0.060001


def test_a_cap_on_a_model_without_a_price_asks_nothing():
    with pytest.raises(MapFailed, match=r"cannot be kept. Register the model's price with register_model") as failed:
        mapped(max_cost=1.0)
    assert failed.value.result.usage.requests == 0


def test_without_a_limit_of_output_the_models_own_is_set_aside(priced):
    reason = r"^No row was asked. A request may cost \$3.2001, and \$3.0000 are left of max_cost."
    with pytest.raises(MapFailed, match=reason) as failed:
        mapped(max_cost=3.0, settings=ModelSettings())
    assert failed.value.result.usage.requests == 0
    (notice,) = failed.value.result.notices
    assert notice.startswith("Without max_output_tokens, the model's own limit of 32,000 tokens is set aside")


def test_rows_that_fail_first_do_not_make_the_estimates_of_others_grow(priced):
    result, _ = mapped(["fails", *ROWS], max_cost=0.3)
    assert result.usage.cost > 0.3 - 2 * 0.003


@pytest.mark.parametrize("under_way", [1, 5])
def test_a_request_waits_for_what_others_give_back(under_way):
    async def main():
        _, costs = capped(1.0)
        worst = Usage(cost=1.0 / under_way)
        for _ in range(under_way):
            await costs.set_aside(worst)
        waiting = asyncio.ensure_future(costs.set_aside(worst))
        await asyncio.sleep(0)
        assert not waiting.done()
        costs.give_back(worst, Usage(cost=0.0))
        await waiting
        for _ in range(under_way):
            costs.give_back(worst, worst)
        with pytest.raises(BudgetExhausted):
            await costs.set_aside(worst)

    asyncio.run(main())
