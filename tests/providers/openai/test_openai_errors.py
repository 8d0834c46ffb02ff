"""What the failures that OpenAI and compatible servers report are turned into; tests/contracts has what all share."""

import pytest

from agentmagic.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    MalformedCall,
    RateLimited,
    StreamBroken,
    Unavailable,
)
from agentmagic.messages import user
from agentmagic.providers.base import Request
from agentmagic.providers.failures import LONGEST_QUOTE, Fault
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.openai.client import error_for
from agentmagic.providers.openai.responses import OpenAIResponses
from agentmagic.secrets import register_secret
from tests.providers.loopback import Exchange, Loopback, ask, sse

REQUEST = Request((user("What time is it?"),))
CHAT = sse({"choices": [{"index": 0, "delta": {"content": "Noon."}, "finish_reason": "stop"}]}, done=True)


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (Fault("", "context_length_exceeded", 400), ContextTooLong, "Start a new session"),
        (Fault("too much", "exceed_context_size_error"), ContextTooLong, "Start a new session"),
        (Fault("This model's maximum context length is 4096", "", 400), ContextTooLong, "no longer fits the model"),
        (Fault("Payload too large", "", 413), ContextTooLong, "no longer fits"),
        (Fault("Slow down", "rate_limit_exceeded"), RateLimited, "Wait a while"),
        (Fault("Busy", "overloaded_error"), Unavailable, "(529)"),
        (Fault("Upstream", "502"), Unavailable, "(502)"),
        (Fault("Who?", "invalid_api_key"), AuthenticationFailed, "Check OPENAI_API_KEY"),
        (Fault("No image", "invalid_image_url"), BadRequest, "refused"),
        (Fault("Unknown parameter", "invalid_value", 422), BadRequest, "It says: Unknown parameter."),
        (Fault("No such model", "model_not_found"), BadRequest, "Some servers know openai-chat: only"),
        (
            Fault("Failed to call a function.", "tool_use_failed", 400),
            MalformedCall,
            "says: Failed to call a function.",
        ),
        (Fault("Odd"), StreamBroken, "It says: Odd."),
        (Fault(""), StreamBroken, "it gave no reason."),
    ],
)
def test_a_failure_is_told_by_its_status_its_code_or_its_words(fault, kind, words):
    error = error_for(fault)
    assert type(error) is kind
    assert words in str(error)
    assert error.retryable is kind.retryable


@pytest.mark.parametrize("fault", [Fault("Pay first", "insufficient_quota", 429), Fault("Pay first", "", 402)])
def test_a_quota_that_is_used_up_is_not_worth_another_try_and_changes_no_other_error(fault):
    error = error_for(fault)
    assert (type(error), error.retryable, "quota" in str(error)) == (RateLimited, False, True)
    assert error_for(Fault("Slow down", "rate_limit_exceeded")).retryable


def test_a_key_is_blanked_before_long_words_are_cut_within_it():
    register_secret("a-key-that-no-pattern-knows")
    words = "x" * (LONGEST_QUOTE - 20) + " a-key-that-no-pattern-knows"
    assert "a-key" not in str(error_for(Fault(words, status=400)))


@pytest.mark.parametrize("provider", [OpenAIResponses, OpenAIChat])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "Broke", "type": "insufficient_quota", "code": None}, RateLimited),
        ({"message": "Upstream", "code": 502}, Unavailable),
        ("only words", StreamBroken),
    ],
)
def test_an_error_chunk_of_any_shape_ends_the_stream(provider, error, kind):
    with Loopback([Exchange(sse({"error": error}))]) as server, pytest.raises(kind) as caught:
        ask(provider("gpt-5.4", base_url=f"{server.url}/v1", api_key="sk-test"), REQUEST)
    assert type(caught.value) is kind


def test_chat_asks_a_local_server_without_a_key(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with Loopback([Exchange(CHAT)]) as server:
        ask(OpenAIChat("qwen", base_url=f"{server.url}/v1"), REQUEST)
    assert server.requests[0].headers["authorization"] == "Bearer none"
