"""What may be spent before a request is refused."""

from agentmagic.loop.step import Budget
from agentmagic.messages import Usage


def test_without_caps_anything_may_be_spent():
    assert Budget("turn").exhausted(Usage(10**9, 0, 10**9, cost=None)) is None


def test_tokens_count_both_ways_and_what_was_spent_before():
    budget = Budget("session", max_tokens=100, before=Usage(40, 0, 20))
    assert budget.exhausted(Usage(20, 0, 19)) is None
    assert budget.exhausted(Usage(20, 0, 20)) == (
        "The session has taken 100 tokens; max_tokens is 100. No further request was sent; raise the limit to go on."
    )


def test_a_cost_cap_says_what_was_spent():
    budget = Budget("turn", max_cost=0.5)
    assert budget.exhausted(Usage(cost=0.49)) is None
    assert "The turn has cost $0.5000; max_cost is $0.5000." in str(budget.exhausted(Usage(cost=0.5)))


def test_a_cost_that_is_unknown_cannot_be_capped_and_is_said_to_be():
    assert "unknown, so max_cost cannot be kept" in str(Budget("turn", max_cost=5).exhausted(Usage(cost=None)))
    assert "unknown" in str(Budget("session", max_cost=5, before=Usage(cost=None)).exhausted(Usage(cost=0.0)))
