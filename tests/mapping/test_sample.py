"""What twenty rows tell of a thousand whose costs differ by thirty times."""

import re

import pytest

from agentmagic import Agent, Session, register_model
from agentmagic.providers import catalog
from tests.mapping.metered import MODEL, PRICES, Metered, spread

ROWS = 1_000
SEEDS = 20
KINDS = {
    "by what is read": ((60, 3_000), (1, 1)),
    "by what is said": ((60, 60), (5, 600)),
    "by both": ((60, 3_000), (5, 800)),
}
"""The characters of a row and the tokens of its answer, at least and at most."""


@pytest.fixture(autouse=True)
def priced(monkeypatch):
    monkeypatch.setattr(catalog, "_registrations", {})
    register_model(MODEL, **PRICES)


def reviews(seed, lengths, answers):
    """Rows, and a model that says more or less to each: which of them, nobody can see in it."""
    said = spread(seed, answers[0], answers[1], ROWS)
    long = spread(-seed - 1, lengths[0], lengths[1], ROWS)
    rows = [f"{number} ".ljust(length, "x") for number, length in enumerate(long)]
    return rows, Metered(lambda text: said[int(text.split()[0])])


def sampled(rows, model, **options):
    session = Session(Agent(model), namespace={})
    try:
        return session.map(rows, "{row}", **options)
    finally:
        session.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_range_of_a_sample_holds_what_all_rows_cost(kind):
    held = 0
    for seed in range(SEEDS):
        rows, model = reviews(seed, *KINDS[kind])
        costs = [model.cost(row) for row in rows]
        assert max(costs) > 30 * min(costs)
        low, middle, high = sampled(rows, model, sample=20, seed=seed).estimate.cost
        assert sum(model.asked.values()) == 20
        assert low <= middle <= high
        assert high < 5 * sum(costs)  # a range that holds anything would tell nothing
        held += low <= sum(costs) <= high
    assert held >= 18


def test_a_sample_is_kept_and_tells_what_all_rows_may_cost(tmp_path):
    rows, model = reviews(3, *KINDS["by what is read"])
    rows = rows[:100]
    path = tmp_path / "labels.jsonl"
    sample = sampled(rows, model, sample=20, to=path)
    assert len(sample.rows) == len(sample.frame) == 20
    assert re.fullmatch(
        r"All 100 rows may cost \$[\d.]+ \(\$[\d.]+ to \$[\d.]+\) and take .+, as 20 of them tell\.",
        str(sample.estimate),
    )

    whole = sampled(rows, model, to=path)
    assert set(model.asked.values()) == {1}
    assert whole.progress.kept == 20
    assert whole.usage.cost == pytest.approx(sum(map(model.cost, rows)))
    low, _, high = sample.estimate.cost
    assert low <= sum(map(model.cost, rows)) <= high
    assert whole.estimate is None


@pytest.mark.slow
def test_the_same_seed_chooses_the_same_rows_and_another_one_others():
    rows, model = reviews(1, *KINDS["by both"])
    chosen = [{row.place for row in sampled(rows, model, sample=10, seed=seed)} for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]


@pytest.mark.parametrize("number", [3, 8])
def test_a_sample_of_more_rows_than_there_are_is_all_of_them(number):
    rows, model = reviews(1, *KINDS["by both"])
    result = sampled(rows[:3], model, sample=number)
    low, middle, high = result.estimate.cost
    assert (low, middle, high) == pytest.approx((result.usage.cost,) * 3)


def test_a_model_without_a_price_tells_tokens():
    catalog._registrations.clear()  # of this test alone
    rows, model = reviews(1, *KINDS["by both"])
    estimate = sampled(rows[:50], model, sample=5).estimate
    assert re.match(r"All 50 rows may cost [\d,]+ \([\d,]+ to [\d,]+\) tokens and take ", str(estimate))
