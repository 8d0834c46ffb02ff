"""What both OpenAI providers share: the connection and its failures, through the real SDK and a real socket."""

import asyncio
import socket
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

pytest.importorskip("openai")

from agentmagic.errors import (
    AuthenticationFailed,
    AuthenticationMissing,
    BadRequest,
    ContextTooLong,
    ProviderError,
    RateLimited,
    StreamBroken,
    Unavailable,
)
from agentmagic.events import PartDelta
from agentmagic.messages import Message, Text, user
from agentmagic.providers import clients
from agentmagic.providers.base import ModelFinished, Request
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.openai.responses import OpenAIResponses
from tests.providers.loopback import Exchange, Loopback, ask, sse

REQUEST = Request((user("What time is it?"),))
ITEM = {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Noon."}]}
RESPONSES = sse(
    {"type": "response.output_item.added", "output_index": 0, "item": ITEM},
    {"type": "response.output_text.delta", "output_index": 0, "delta": "Noon."},
    {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
    {"type": "response.completed", "response": {"status": "completed"}},
)
CHAT = sse(
    {"choices": [{"index": 0, "delta": {"content": "Noon."}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    done=True,
)
KEY = "sk-test-0123456789abcdef0123"
ANSWERS = {OpenAIResponses: RESPONSES, OpenAIChat: CHAT}

pytestmark = pytest.mark.parametrize("provider", [OpenAIResponses, OpenAIChat])


def failure(provider, exchange: Exchange) -> ProviderError:
    with Loopback([exchange]) as server, pytest.raises(ProviderError) as caught:
        ask(provider("gpt-5.4", base_url=f"{server.url}/v1", api_key=KEY), REQUEST)
    assert len(server.requests) == 1, "the SDK must not retry; the loop does"
    assert KEY not in str(caught.value)
    return caught.value


def refused(provider, status: int, code: str | None, message: str = "It said why", **headers: str) -> ProviderError:
    body = sse({"error": {"message": message, "code": code, "type": "some_type"}})[len("data: ") :]
    return failure(provider, Exchange(body, status, "application/json", headers))


def test_key_and_base_url_come_from_the_environment_at_the_first_request(provider, monkeypatch):
    model = provider("gpt-5.4")
    with Loopback([Exchange(ANSWERS[provider])]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1/")
        monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
        events = ask(model, REQUEST)
    assert isinstance(events[-1], ModelFinished)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert server.requests[0].json["model"] == "gpt-5.4"


def test_without_a_key_openai_is_not_asked(provider, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AuthenticationMissing, match="OPENAI_API_KEY") as caught:
        ask(provider("gpt-5.4"), REQUEST)
    assert caught.value.variables == ("OPENAI_API_KEY",)


def test_one_connection_serves_request_after_request(provider):
    async def twice(model):
        for _ in range(2):
            assert [event async for event in model.stream(REQUEST)]
        await model.aclose()
        await model.aclose()

    with Loopback([Exchange(ANSWERS[provider])] * 2) as server:
        asyncio.run(twice(provider("gpt-5.4", base_url=f"{server.url}/v1", api_key=KEY)))
        assert server.connections == 1


def test_a_request_that_goes_on_from_the_last_one_repeats_it_and_adds_to_it(provider):
    longer = Request((*REQUEST.messages, user("And now?")))
    with Loopback([Exchange(ANSWERS[provider])] * 3) as server:
        model = provider("gpt-5.4", base_url=f"{server.url}/v1", api_key=KEY)
        for request in (REQUEST, longer, REQUEST):
            ask(model, request)
    first, second, third = (got.json.get("input") or got.json["messages"] for got in server.requests)
    assert first == third == second[:1]
    assert len(second) == 2


def test_a_model_can_be_asked_from_one_loop_after_another(provider):
    with Loopback([Exchange(ANSWERS[provider])] * 2) as server:
        model = provider("gpt-5.4", base_url=f"{server.url}/v1", api_key=KEY)
        assert ask(model, REQUEST) == ask(model, REQUEST)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_looked_up_again_by_the_next_request(provider, status, monkeypatch):
    refusal = Exchange('{"error": {"message": "Incorrect key", "code": "invalid_api_key"}}', status, "application/json")

    async def ask_twice(model):
        with pytest.raises(AuthenticationFailed, match=r"Incorrect key\. Check OPENAI_API_KEY") as caught:
            [event async for event in model.stream(REQUEST)]
        monkeypatch.setenv("OPENAI_API_KEY", "sk-the-right-one")
        [event async for event in model.stream(REQUEST)]
        await model.aclose()
        return caught.value

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Loopback([refusal, Exchange(ANSWERS[provider])]) as server:
        error = asyncio.run(ask_twice(provider("gpt-5.4", base_url=f"{server.url}/v1")))
    assert (error.status, error.retryable) == (status, False)
    assert server.requests[1].headers["authorization"] == "Bearer sk-the-right-one"


def test_a_rate_limit_says_how_long_to_wait(provider):
    error = refused(provider, 429, "rate_limit_exceeded", **{"Retry-After": "7"})
    assert type(error) is RateLimited
    assert (error.status, error.retry_after, error.retryable) == (429, 7.0, True)


@pytest.mark.parametrize(("status", "code"), [(429, "insufficient_quota"), (402, None)])
def test_a_quota_that_is_used_up_is_not_worth_another_try(provider, status, code):
    error = refused(provider, status, code)
    assert type(error) is RateLimited
    assert not error.retryable
    assert "quota" in str(error)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (400, "context_length_exceeded", "Your input exceeds the context window of this model."),
        (400, "exceed_context_size_error", "too much"),
        (400, None, "This model's maximum context length is 4096 tokens"),
        (413, None, "Payload too large"),
    ],
)
def test_a_conversation_that_is_too_long_is_told_from_other_refusals(provider, status, code, message):
    error = refused(provider, status, code, message)
    assert type(error) is ContextTooLong
    assert "Start a new session" in str(error)


@pytest.mark.parametrize("status", [400, 405, 422])
def test_a_refused_request_repeats_what_the_server_said(provider, status):
    error = refused(provider, status, "invalid_value", "Unknown parameter")
    assert type(error) is BadRequest
    assert (error.status, error.retryable) == (status, False)
    assert "Unknown parameter." in str(error)


def test_an_unknown_model_is_named(provider):
    error = refused(provider, 404, "model_not_found", "No such model")
    assert type(error) is BadRequest
    assert "'gpt-5.4'" in str(error)


def test_a_rate_limit_may_name_a_date(provider):
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    error = refused(provider, 429, "rate_limit_exceeded", **{"Retry-After": later})
    assert error.retry_after == pytest.approx(60, abs=5)


@pytest.mark.parametrize("status", [408, 409, 500, 502, 503, 529])
def test_a_server_in_trouble_can_be_tried_again(provider, status):
    error = failure(provider, Exchange("<html>Bad gateway</html>", status, "text/html", {"Retry-After-Ms": "250"}))
    assert type(error) is Unavailable
    assert (error.status, error.retry_after, error.retryable) == (status, 0.25, True)
    assert "<html>" not in str(error)


def test_a_long_and_many_lined_message_is_shortened(provider):
    assert len(str(refused(provider, 400, None, "word\n" * 10_000))) < 700


def test_the_words_of_a_server_can_be_written(provider):
    assert "odd\ufffd" in str(refused(provider, 400, "code\ud800", "odd\ud800"))


def test_a_key_in_a_server_message_is_blanked(provider):
    refused(provider, 400, None, f"You sent {KEY}")  # `failure` looks for the key


def test_a_refused_connection_names_the_address_and_what_to_check(provider):
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # not listening
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}/v1"
        with pytest.raises(Unavailable, match="cannot be reached") as caught:
            ask(provider("gpt-5.4", base_url=url, api_key=KEY), REQUEST)
    assert type(caught.value) is Unavailable
    assert url in str(caught.value)
    assert "OPENAI_BASE_URL" in str(caught.value)


def test_a_name_that_nobody_knows_can_be_tried_again(provider):
    with pytest.raises(Unavailable, match="OPENAI_BASE_URL") as caught:
        ask(provider("gpt-5.4", base_url="http://nobody.invalid/v1", api_key=KEY), REQUEST)
    assert caught.value.retryable


def test_a_server_that_does_not_speak_tls_is_not_tried_again(provider):
    with Loopback([]) as server, pytest.raises(Unavailable, match="OPENAI_BASE_URL") as caught:
        ask(provider("gpt-5.4", base_url=f"{server.url.replace('http', 'https')}/v1", api_key=KEY), REQUEST)
    assert "TLS" in str(caught.value)
    assert not caught.value.retryable


def test_a_stream_without_a_byte_for_too_long_is_broken(provider, monkeypatch):
    monkeypatch.setattr(clients, "SILENCE_TIMEOUT", 0.05)
    whole = ANSWERS[provider]
    assert type(failure(provider, Exchange(whole, stall_at=len(whole) // 2))) is StreamBroken


@pytest.mark.parametrize("url", ["api.example.com/v1", "ftp://example.com", "http://[::1", "http://"])
def test_a_base_url_that_is_no_address_is_not_tried(provider, url):
    with pytest.raises(BadRequest, match="OPENAI_BASE_URL"):
        ask(provider("gpt-5.4", base_url=url, api_key=KEY), REQUEST)


def test_a_page_in_place_of_a_stream_points_at_the_base_url(provider):
    error = failure(provider, Exchange("<html>Welcome</html>", 200, "text/html"))
    assert type(error) is BadRequest
    assert "text/html" in str(error)


def test_a_key_no_header_can_hold_is_refused_before_it_is_sent(provider):
    with pytest.raises(AuthenticationFailed, match="Copy it"):
        ask(provider("gpt-5.4", api_key="sk-“quoted”"), REQUEST)


def test_a_request_that_is_no_unicode_is_sent_with_replacement_characters(provider):
    request = Request((Message("user", (Text("a\ud800"),)),))
    with Loopback([Exchange(ANSWERS[provider])]) as server:
        ask(provider("gpt-5.4", base_url=f"{server.url}/v1", api_key=KEY), request)
    assert "a\ufffd" in server.requests[0].body.decode()


def test_a_connection_that_drops_midway_is_a_broken_stream(provider):
    whole = ANSWERS[provider]
    error = failure(provider, Exchange(whole, cut_at=len(whole) // 2))
    assert type(error) is StreamBroken
    assert "closed the connection" in str(error)


@pytest.mark.parametrize(
    "rubbish",
    [
        "data: {not json\n\n",
        "data: 5\n\n",
        "data: {}\n\n",
        "data: null\n\n",
        'data: {"choices": 5, "type": "response.output_item.added"}\n\n',
        f"data: {'[' * 100_000}\n\n",
    ],
)
def test_a_corrupted_chunk_is_a_broken_stream(provider, rubbish):
    error = failure(provider, Exchange(rubbish))
    assert type(error) is StreamBroken


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"message": "Slow down", "code": "rate_limit_exceeded"}, RateLimited),
        ({"message": "Upstream", "code": 502}, Unavailable),
        ({"message": "Odd"}, StreamBroken),
        ({"message": "Who?", "code": "invalid_api_key"}, AuthenticationFailed),
        ({"message": "Who?", "type": "authentication_error"}, AuthenticationFailed),
        ({"message": "Busy", "type": "overloaded_error"}, Unavailable),
        ({"message": "Broke", "type": "insufficient_quota", "code": None}, RateLimited),
        ({"message": "Much", "code": "context_length_exceeded"}, ContextTooLong),
        ({"message": ["odd"], "code": {"odd": 1}}, StreamBroken),
        (["odd"], StreamBroken),
        ("only words", StreamBroken),
    ],
)
def test_an_error_chunk_midway_is_told_by_its_code(provider, error, expected):
    whole = ANSWERS[provider]
    body = whole[: whole.index("data: ", 10)] + sse({"error": error})
    assert type(failure(provider, Exchange(body))) is expected


def test_leaving_a_stream_early_closes_the_connection(provider):
    whole = ANSWERS[provider]

    async def first_delta(model, server) -> str:
        async with aclosing(model.stream(REQUEST)) as events:
            async for event in events:
                if isinstance(event, PartDelta):
                    break
        assert await asyncio.to_thread(server.dropped.wait, 10)
        await model.aclose()
        return event.text

    with Loopback([Exchange(whole, stall_at=whole.rindex("data: ") - 2)]) as server:
        assert asyncio.run(first_delta(provider("m", base_url=f"{server.url}/v1", api_key=KEY), server)) == "Noon."


def test_a_stream_that_stood_still_goes_on_when_released(provider):
    whole = ANSWERS[provider]

    async def wait_and_release(model, server):
        reading = asyncio.ensure_future(anext(stream := model.stream(REQUEST)))
        assert await asyncio.to_thread(server.stalled.wait, 10)
        server.release()
        events = [await reading, *[event async for event in stream]]
        await model.aclose()
        return events

    with Loopback([Exchange(whole, stall_at=3)]) as server:
        events = asyncio.run(wait_and_release(provider("m", base_url=f"{server.url}/v1", api_key=KEY), server))
    assert isinstance(events[-1], ModelFinished)


def test_a_base_url_that_was_put_right_is_used_by_the_next_request(provider, monkeypatch):
    async def ask_twice(model, url):
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
        with pytest.raises(Unavailable):
            [event async for event in model.stream(REQUEST)]
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        events = [event async for event in model.stream(REQUEST)]
        await model.aclose()
        return events

    with Loopback([Exchange(ANSWERS[provider])]) as server:
        events = asyncio.run(ask_twice(provider("gpt-5.4", api_key=KEY), f"{server.url}/v1"))
    assert isinstance(events[-1], ModelFinished)


def test_only_chat_asks_a_local_server_without_a_key(provider, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with Loopback([Exchange(CHAT)]) as server:
        model = provider("qwen", base_url=f"{server.url}/v1")
        if provider is OpenAIChat:
            ask(model, REQUEST)
            assert server.requests[0].headers["authorization"] == "Bearer none"
        else:
            with pytest.raises(AuthenticationMissing):
                ask(model, REQUEST)
