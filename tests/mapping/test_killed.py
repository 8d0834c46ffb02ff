"""A map whose process is killed with no warning, against a provider on this machine that refuses too fast requests."""

import pytest

from tests.benchmarks.rows import Trial, counts, provider

pytestmark = pytest.mark.slow
ROWS = 200


def test_rows_are_paid_once_but_for_those_in_doubt_when_the_process_is_killed(tmp_path):
    with provider(3_000, 0.05, 0.3) as address:
        trial = Trial(address, tmp_path, ROWS, max_cost=10.0, concurrency=20)
        trial.run_and_kill(1)
        seen = counts(address)
    assert trial.runs == 2
    assert trial.finished == {*range(ROWS)}
    assert trial.asked_again == 0
    twice = {row for row, count in (seen["answered"] | trial.notes).items() if count > 1}
    assert twice <= {*trial.last["doubtful"]}
    assert len(trial.last["doubtful"]) <= 2 * (trial.concurrency or 0)
    assert trial.last["answered"] == ROWS
    assert 0 < trial.last["kept"] < ROWS
    assert trial.last["cost"] <= seen["cost"] <= 10.0


def test_a_cap_holds_over_a_kill(tmp_path):
    with provider(3_000, 0.05, 0.3) as address:
        trial = Trial(address, tmp_path, ROWS, max_cost=0.05, concurrency=5)
        trial.run(kill_at=20)
        trial.run()
        seen = counts(address)
    assert trial.last["ended"] == "budget"
    assert 0.03 < seen["cost"] <= trial.max_cost + seen["dearest"]
