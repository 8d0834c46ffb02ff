"""The frame of a map beside the log of a provider that ends its answers in every way."""

import pytest

from tests.benchmarks.ends import APIS, CONCURRENCY, Trial, end_of

SIZES = [("chat", "pandas", 2_000), ("chat", "polars", 2_000)]
SIZES += [(api, library, 400) for api, library in zip([*APIS][1:], ["pandas", "polars"] * 2, strict=True)]


def check(trial):
    """Assert that the frame says what the provider has noted: each whole answer, and no other."""
    api = APIS[trial.api]
    assert [number for number, *_ in trial.told] == [*range(trial.rows)]
    assert {end for _, end in trial.log} == {end_of(api, number) for number in range(trial.rows)}
    assert trial.answered == trial.ended_well
    assert (trial.wrong, trial.silent, trial.paid_twice) == (set(), set(), set())
    assert trial.module.startswith(trial.library)


def test_a_frame_has_each_whole_answer_of_a_provider_and_no_other():
    trial = Trial("chat", "polars", 80, typed=True, kills=0)
    trial.play()
    check(trial)
    assert not trial.doubtful


@pytest.mark.slow
@pytest.mark.parametrize(("api", "library", "rows"), SIZES)
def test_a_map_that_is_killed_and_continued_has_each_whole_answer_and_no_other(api, library, rows):
    trial = Trial(api, library, rows, typed=library == "pandas", kills=1)
    trial.play()
    check(trial)
    assert len(trial.doubtful) <= CONCURRENCY
