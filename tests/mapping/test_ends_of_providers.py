"""The frame of a map beside the log of a provider that ends its answers in every way."""

import pytest

from tests.benchmarks.ends import APIS, CONCURRENCY, Trial, end_of

LIBRARIES = [
    (api, library, (number + place) % 2 == 0)
    for number, api in enumerate(APIS)
    for place, library in enumerate(("pandas", "polars"))
]


def check(trial):
    """Assert that the frame says what the provider has noted: each whole answer, and no other."""
    api = APIS[trial.api]
    assert [number for number, *_ in trial.told] == [*range(trial.rows)]
    assert {end for _, end in trial.log} == {end_of(api, number) for number in range(trial.rows)}
    assert trial.answered == trial.ended_well
    assert (trial.wrong, trial.silent, trial.paid_twice) == (set(), set(), set())
    assert trial.module.startswith(trial.library)


def test_a_frame_has_each_whole_answer_of_a_provider_and_no_other():
    trial = Trial("chat", "polars", 60, typed=True, kills=0)
    trial.play()
    check(trial)
    assert not trial.doubtful


@pytest.mark.slow
@pytest.mark.parametrize(("api", "library", "typed"), LIBRARIES)
def test_a_map_of_2000_rows_that_is_killed_and_continued_has_each_whole_answer_and_no_other(api, library, typed):
    trial = Trial(api, library, 2_000, typed, kills=2)
    trial.play()
    check(trial)
    assert len(trial.doubtful) <= trial.kills * CONCURRENCY
    assert trial.runs == 3
