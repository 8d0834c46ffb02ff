"""What the failures that OpenAI reports are turned into, beyond what a real exchange shows (test_openai.py)."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from agentmagic.errors import RateLimited, StreamBroken
from agentmagic.providers._openai_errors import LONGEST_SAID, Fault, error_for, retry_after
from agentmagic.redact import remember


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "-4"}, 0.0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_the_wait_is_read_in_seconds(headers: dict[str, str], seconds: float | None):
    assert retry_after(headers) == seconds


def test_the_wait_may_be_a_date():
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert retry_after({"retry-after": later}) == pytest.approx(60, abs=5)


def test_a_wait_that_is_over_is_no_wait():
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0


def test_a_quota_that_is_used_up_changes_no_other_error():
    assert not error_for(Fault("Pay first", "insufficient_quota")).retryable
    assert RateLimited.retryable
    assert error_for(Fault("Slow down", "rate_limit_exceeded")).retryable


def test_a_failure_without_a_word_still_reads_as_a_sentence():
    error = error_for(Fault(""))
    assert isinstance(error, StreamBroken)
    assert "it gave no reason." in str(error)


def test_a_key_is_blanked_before_long_words_are_cut_within_it():
    remember("a-key-that-no-pattern-knows")
    words = "x" * (LONGEST_SAID - 20) + " a-key-that-no-pattern-knows"
    assert "a-key" not in str(error_for(Fault(words, status=400)))
