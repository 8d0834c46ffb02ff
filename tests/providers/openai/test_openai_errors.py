"""What the failures that OpenAI reports are turned into, beyond what a real exchange shows (test_openai.py)."""

from agentmagic.errors import RateLimited, StreamBroken
from agentmagic.providers.failures import LONGEST_QUOTE, Fault
from agentmagic.providers.openai.openai_client import error_for
from agentmagic.secrets import register_secret


def test_a_quota_that_is_used_up_changes_no_other_error():
    assert not error_for(Fault("Pay first", "insufficient_quota")).retryable
    assert RateLimited.retryable
    assert error_for(Fault("Slow down", "rate_limit_exceeded")).retryable


def test_a_failure_without_a_word_still_reads_as_a_sentence():
    error = error_for(Fault(""))
    assert isinstance(error, StreamBroken)
    assert "it gave no reason." in str(error)


def test_a_key_is_blanked_before_long_words_are_cut_within_it():
    register_secret("a-key-that-no-pattern-knows")
    words = "x" * (LONGEST_QUOTE - 20) + " a-key-that-no-pattern-knows"
    assert "a-key" not in str(error_for(Fault(words, status=400)))
