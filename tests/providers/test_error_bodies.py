"""Errors that come with status 200 in place of an answer, in each dialect: read as what they are, with their words."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from agentmagic.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    ProviderError,
    RateLimited,
    StreamBroken,
    Unavailable,
)
from agentmagic.messages import user
from agentmagic.providers.anthropic.model import Anthropic
from agentmagic.providers.base import Request
from agentmagic.providers.error_bodies import find_error, status_of
from agentmagic.providers.gemini.model import Gemini
from agentmagic.providers.ollama import Ollama
from agentmagic.providers.openai.batches import OpenAIBatches
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.openai.responses import Decoder, OpenAIResponses
from tests.providers.loopback import Exchange, Loopback, ask

Json = dict[str, Any]

REQUEST = Request((user("go"),))
KEY = "sk-test-000000000000"
APIS: dict[str, Callable[[str], Any]] = {
    "openai-chat": lambda url: OpenAIChat("m", base_url=f"{url}/v1", api_key=KEY),
    "openai": lambda url: OpenAIResponses("m", base_url=f"{url}/v1", api_key=KEY),
    "anthropic": lambda url: Anthropic("claude-sonnet-4-6", base_url=url, api_key=KEY),
    "gemini": lambda url: Gemini("gemini-3-pro", base_url=url, api_key=KEY),
    "ollama": lambda url: Ollama("m", base_url=url),
}
EVENT_STREAMS = [name for name in APIS if name != "ollama"]
LONG = "prompt is too long: 9 tokens > 8 maximum"

BODIES: dict[str, tuple[Json, type[ProviderError], str]] = {
    "OpenAI": (
        {"error": {"message": "Slow down.", "type": "rate_limit_error", "code": "rate_limit_exceeded"}},
        RateLimited,
        "Slow down",
    ),
    "a text": ({"error": "Rate limit reached."}, RateLimited, "Rate limit reached"),
    "xAI": ({"code": "invalid-argument", "error": LONG}, ContextTooLong, "9 tokens"),
    "NestJS": (
        {"statusCode": 401, "message": "No such key", "error": "Unauthorized"},
        AuthenticationFailed,
        "Unauthorized: No such key",
    ),
    "Spring": ({"status": 503, "error": "Service Unavailable", "path": "/v1"}, Unavailable, "Service Unavailable"),
    "a flag": ({"error": True, "message": "Incorrect API key provided"}, AuthenticationFailed, "Incorrect API key"),
    "a code": ({"code": 429, "message": "Slow down."}, RateLimited, "Slow down"),
    "a code as text": ({"code": "401", "message": "Who are you?"}, AuthenticationFailed, "Who are you"),
    "DashScope": ({"code": "InvalidApiKey", "message": "Wrong.", "request_id": "r"}, AuthenticationFailed, "Wrong"),
    "DashScope, too much": ({"code": "Throttling.RateQuota", "message": "Later."}, RateLimited, "Later"),
    "Z.ai": ({"code": 500, "msg": "Broken inside", "success": False}, Unavailable, "Broken inside"),
    "Z.ai, too long": ({"error": {"code": "1261", "message": "Prompt exceeds max length"}}, ContextTooLong, "exceeds"),
    "FastAPI": ({"detail": "Invalid API key"}, AuthenticationFailed, "Invalid API key"),
    "FastAPI, fields": (
        {"detail": [{"loc": ["body", "model"], "msg": "Field required", "type": "missing"}]},
        BadRequest,
        "body.model: Field required",
    ),
    "a wrapped error": ({"detail": {"error": {"message": LONG, "code": 400}}}, ContextTooLong, "9 tokens"),
    "Cloudflare": (
        {"success": False, "errors": [{"code": 10000, "message": "Authentication error"}], "result": None},
        AuthenticationFailed,
        "Authentication error",
    ),
    "MiniMax": (
        {"base_resp": {"status_code": 1002, "status_msg": "rate limit, try later"}, "choices": None},
        RateLimited,
        "try later",
    ),
    "Baidu": ({"error_code": 110, "error_msg": "Access token invalid"}, ProviderError, "Access token invalid"),
    "Databricks": ({"error_code": "BAD_REQUEST", "message": "Invalid parameter"}, BadRequest, "Invalid parameter"),
    "AWS": ({"message": "Forbidden"}, AuthenticationFailed, "Forbidden"),
    "AWS, a type": ({"__type": "ThrottlingException", "Message": "Wait."}, RateLimited, "Wait"),
    "Apigee": ({"fault": {"faultstring": "Invalid ApiKey"}}, AuthenticationFailed, "Invalid ApiKey"),
    "vLLM": (
        {"object": "error", "message": "The model does not exist.", "code": 404},
        BadRequest,
        "does not exist",
    ),
    "overloaded": ({"error": {"message": "The server is overloaded"}}, Unavailable, "is overloaded"),
    "no money": ({"error": {"message": "Insufficient balance"}}, ProviderError, "Insufficient balance"),
    "odd": ({"status": "error", "message": "Odd."}, Unavailable, "Odd"),
}
"""The bodies of servers and gateways: the error that each means, and words of its message."""


def failure(api: str, body: str, kind: str = "application/json") -> ProviderError:
    with Loopback([Exchange(body, content_type=kind)]) as server, pytest.raises(ProviderError) as caught:
        ask(APIS[api](server.url), REQUEST)
    return caught.value


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("body", "kind", "words"), BODIES.values(), ids=BODIES)
def test_an_error_in_place_of_a_chunk_is_what_it_says_in_every_dialect(api: str, body: Json, kind, words: str):
    with pytest.raises(kind) as caught:
        APIS[api]("http://localhost")._chunk(json.dumps(body).encode())
    assert words in str(caught.value)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", ["a code", "FastAPI", "Z.ai, too long", "Cloudflare"])
def test_an_error_that_came_with_status_200_is_told_and_not_its_content_type(api: str, name: str):
    body, kind, words = BODIES[name]
    error = failure(api, json.dumps(body))
    assert type(error) is kind
    assert words in str(error)
    assert "in place of a stream" not in str(error)


@pytest.mark.parametrize("api", EVENT_STREAMS)
@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        ('{"error": {"message": "Slow down.", "code": 429}}', RateLimited, "Slow down"),
        ('{"message": "Slow down.", "code": 429}', RateLimited, "Slow down"),
        ('{"error": "Rate limit reached."}', RateLimited, "Rate limit reached"),
        ("Rate limit reached.", RateLimited, "Rate limit reached"),
        ('{"detail": "' + LONG + '"}', ContextTooLong, "9 tokens"),
    ],
)
def test_an_event_named_error_is_what_it_says(api: str, data: str, kind: type[ProviderError], words: str):
    error = failure(api, f"event: error\ndata: {data}\n\n", "text/event-stream")
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        None,
        "text",
        {"error": None},
        {"error": False, "id": "c"},
        {"code": 0, "id": "c"},
        {"code": 200, "success": True},
        {"base_resp": {"status_code": 0, "status_msg": "success"}},
        {"usage": {"prompt_tokens": 3}},
        {"x_groq": {"id": "c"}},
        {"id": "c", "object": "chat.completion.chunk", "message": "warming up"},
        {"object": "response", "error": None, "status": "completed", "output": []},
        {"usageMetadata": {"promptTokenCount": 3}, "modelVersion": "g"},
        {"message": {"content": "fine"}, "done": False},
        {"choices": [], "code": 3, "message": "fine"},
    ],
)
def test_what_says_no_error_is_none(body: object):
    assert find_error(body) is None


@pytest.mark.parametrize(
    ("code", "words", "status"),
    [
        ("503", "", 503),
        ("1113", "Insufficient balance or no resource package. Please recharge.", 402),
        ("1302", "High concurrency usage of this API", 429),
        ("", "You exceeded your current quota", 402),
        ("", "Request timed out", 504),
        ("", "Internal server error", 500),
        ("AccessDeniedException", "", 401),
        ("", "It is what it is", None),
        ("7", "x" * 9_000 + "rate limit", None),
    ],
)
def test_an_error_without_a_status_is_read_by_its_code_or_its_words(code: str, words: str, status: int | None):
    assert status_of(code, words) == status


@pytest.mark.parametrize(
    "nested", [{"detail": {"detail": {}}}, {"errors": [[], 3, None]}, {"fault": [], "detail": [3]}]
)
def test_a_body_of_another_form_fails_nothing(nested: Json):
    find_error(nested)
    assert isinstance(failure("openai-chat", json.dumps(nested)), BadRequest | StreamBroken)


def test_an_error_in_place_of_the_answer_of_a_batch_is_what_it_says():
    batches = OpenAIBatches(OpenAIResponses("m", api_key=KEY), Decoder)
    line = {"custom_id": "a", "response": {"status_code": 200, "body": {"code": 429, "message": "Slow down."}}}
    _, answer = batches._result(line)  # pyright: ignore[reportPrivateUsage]
    assert type(answer()) is RateLimited


def test_a_key_in_an_error_is_blanked():
    assert KEY not in str(failure("openai-chat", json.dumps({"detail": f"Invalid API key: {KEY}"})))
