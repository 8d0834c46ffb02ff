"""Every provider at its connection: keys, addresses, refusals, streams that break; and the corners of every encoder."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agentmagic.errors import (
    AuthenticationFailed,
    AuthenticationMissing,
    BadRequest,
    MalformedCall,
    ProviderError,
    RateLimited,
    StreamBroken,
    Unavailable,
)
from agentmagic.events import PartFinished
from agentmagic.messages import Media, Message, Reasoning, Text, ToolCall, ToolDef, ToolResult, user
from agentmagic.providers import clients
from agentmagic.providers.base import ModelFinished, OutputSchema, Request
from agentmagic.providers.registry import providers
from tests.contracts.conversing import api_case, every_api
from tests.providers.loopback import Exchange, Loopback, ask
from tests.providers.strict.script import Answer, Fault, Step, Think, call, say
from tests.providers.strict.server import APIS, KEY, strict
from tests.turns import SOON

REQUEST = Request((user("What time is it?"),))
TOOL = ToolDef("clock", "Tells the time.", {"type": "object", "properties": {"zone": {"type": "string"}}})
LONE = "\ud800"
every_keyed_api = pytest.mark.parametrize("api", [api_case(name) for name in APIS if name != "ollama"])
"""Ollama's server asks for no key."""


def halves_of(api: str) -> tuple[str, str]:
    """An answer as the API streams it: up to the middle of its words, and the rest."""
    begin, rest = APIS[api]().stream(say("It is noon."))
    return "".join(begin), "".join(rest)


def whole(api: str) -> Exchange:
    return Exchange("".join(halves_of(api)))


def refusal(api: str, status: int) -> Exchange:
    return Exchange(json.dumps(APIS[api]().failure(Fault(status))), status, "application/json")


@contextmanager
def serving(api: str, *exchanges: Exchange) -> Iterator[tuple[Loopback, Any]]:
    """A server that plays these exchanges, or a whole answer, and a model of the API pointed at it."""
    with Loopback(exchanges or [whole(api)]) as server:
        yield server, APIS[api]().model(server.url, KEY)


def bare(model: Any, **options: Any) -> Any:
    """The model without its address and key, which the environment may name."""
    return type(model)(model.model, **options)


async def events_of(model: Any, request: Request = REQUEST) -> list[Any]:
    return [event async for event in model.stream(request)]


def failure(api: str, exchange: Exchange) -> ProviderError:
    with serving(api, exchange) as (server, model), pytest.raises(ProviderError) as caught:
        ask(model, REQUEST)
    assert len(server.requests) == 1, "the SDK must not retry; the loop does"
    assert KEY not in str(caught.value)
    return caught.value


def parts_of(api: str, step: Step) -> tuple[Any, ...]:
    with strict(api, step) as server:
        return tuple(event.part for event in ask(server.model(), REQUEST) if isinstance(event, PartFinished))


def body_of(api: str, *messages: Message, **options: Any) -> Any:
    return APIS[api]().model("http://localhost", KEY).body(Request(messages, **options))


# ---- keys and addresses


@every_keyed_api
def test_key_and_address_come_from_the_environment_and_are_looked_up_anew_where_they_were_wrong(api, monkeypatch):
    name, address = providers()[api].keys[0], providers()[api].base_url

    async def thrice(model, url: str) -> None:
        monkeypatch.setenv(name, "a-wrong-key-0123456789")
        monkeypatch.setenv(address, "http://127.0.0.1:9")
        with pytest.raises(Unavailable):
            await events_of(model)
        monkeypatch.setenv(address, url)
        with pytest.raises(AuthenticationFailed, match=f"Check .*{name}"):
            await events_of(model)
        monkeypatch.setenv(name, f"{KEY}\n")
        assert isinstance((await events_of(model))[-1], ModelFinished)
        await model.aclose()

    with serving(api, refusal(api, 401), whole(api)) as (server, given):
        asyncio.run(thrice(bare(given), given.base_url))
    headers = server.requests[-1].headers
    keys = [headers.get(header) for header in ("authorization", "x-goog-api-key", "x-api-key")]
    assert next(filter(None, keys)).removeprefix("Bearer ") == KEY


@every_keyed_api
def test_without_a_key_the_provider_is_not_asked(api, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    model = bare(APIS[api]().model("http://localhost", KEY))
    with pytest.raises(AuthenticationMissing, match=providers()[api].keys[0]) as caught:
        ask(model, REQUEST)
    assert set(caught.value.variables) == set(providers()[api].keys)


@every_keyed_api
@pytest.mark.parametrize("key", ["schlüssel-0123456789", "key-of-\n-two-lines"])
def test_a_key_that_no_header_can_hold_is_refused_before_it_is_sent_and_not_repeated(api, key):
    with pytest.raises(AuthenticationFailed, match="Copy it") as caught:
        ask(APIS[api]().model("http://localhost", key), REQUEST)
    assert key not in str(caught.value)


@every_api
def test_an_address_that_is_none_is_refused_with_the_variable_to_set(api):
    model = APIS[api]().model("http://localhost", KEY)
    for url in ("ftp://example.com", "http://[::1", *(() if api == "ollama" else ("nowhere", "http://"))):
        with pytest.raises(BadRequest, match=providers()[api].base_url):
            ask(bare(model, base_url=url, api_key=KEY), REQUEST)


@every_api
@pytest.mark.parametrize(
    ("where", "words", "retryable"),
    [("nobody.invalid", "cannot be reached", True), ("gone", "cannot be reached", False), ("tls", "TLS", False)],
)
def test_a_server_that_cannot_be_reached_is_unavailable_and_says_what_to_check(api, where, words, retryable):
    with Loopback([]) as gone:
        pass
    with Loopback([]) as server:
        urls = {"gone": gone.url, "tls": server.url.replace("http", "https"), "nobody.invalid": "http://nobody.invalid"}
        with pytest.raises(Unavailable, match=words) as caught:
            ask(APIS[api]().model(urls[where], KEY), REQUEST)
    assert providers()[api].base_url in str(caught.value)
    assert caught.value.retryable is retryable


PASSWORD = "of-the-proxy-01"


@every_api
def test_no_proxy_takes_what_is_sent_to_this_machine(api, monkeypatch):
    with Loopback([]) as proxy, serving(api) as (server, model):
        for name in ("HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        events = ask(model, REQUEST)
    assert type(events[-1]) is ModelFinished
    assert (len(server.requests), proxy.connections) == (1, 0)


@every_api
@pytest.mark.parametrize(
    ("url", "status", "words", "retryable"),
    [
        ("http://nobody.invalid", 407, "asks for a user name and a password", False),
        ("https://nobody.invalid", 407, "asks for a user name and a password", False),
        ("https://nobody.invalid", 403, "refused (403 Forbidden)", False),
        ("https://nobody.invalid", 503, "refused (503 Service Unavailable)", True),
        ("https://nobody.invalid", None, "failed (", False),  # no proxy is there, on this machine
    ],
)
def test_a_failure_of_a_proxy_names_the_proxy_without_its_password(api, url, status, words, retryable, monkeypatch):
    with Loopback([]) as gone:
        pass
    with Loopback([Exchange("", status or 200, "text/plain")]) as proxy:
        port = (proxy if status else gone).url.rpartition(":")[2]
        monkeypatch.setenv("ALL_PROXY", f"http://someone:{PASSWORD}@127.0.0.1:{port}")
        with pytest.raises(Unavailable) as caught:
            ask(APIS[api]().model(url, KEY), REQUEST)
    assert f"the proxy http://127.0.0.1:{port} {words}" in str(caught.value)
    assert "ALL_PROXY" in str(caught.value)
    assert PASSWORD not in str(caught.value)
    assert caught.value.retryable is retryable


@every_api
def test_certificates_that_are_not_there_are_named_and_a_server_without_tls_does_not_need_them(api, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/corporate.pem")
    with serving(api) as (server, model):
        assert type(ask(model, REQUEST)[-1]) is ModelFinished
        with pytest.raises(
            Unavailable, match=r"SSL_CERT_FILE is /nowhere/corporate.pem, which does not exist"
        ) as caught:
            ask(APIS[api]().model(server.url.replace("http", "https"), KEY), REQUEST)
    assert caught.value.retryable is False


# ---- refusals


@every_api
def test_a_page_in_place_of_an_answer_points_at_the_address_and_is_not_quoted(api):
    page = failure(api, Exchange("<html>Welcome</html>", 200, "text/html; charset=utf-8"))
    assert (type(page), page.retryable, "<html>" in str(page)) == (BadRequest, False, False)
    assert "answered with text/html" in str(page)
    assert providers()[api].base_url in str(page)
    assert "A firewall, a proxy or the login page of a network" in str(page)
    page = failure(api, Exchange("<html>Bad gateway</html>", 502, "text/html", {"Retry-After-Ms": "250"}))
    assert (type(page), page.retry_after, "<html>" in str(page)) == (Unavailable, 0.25, False)


PAGE = "<!DOCTYPE html>\n<html><head><title>Access denied, invalid API key</title></head><body>quota</body></html>"


@every_api
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (401, BadRequest, False),
        (403, BadRequest, False),
        (404, BadRequest, False),
        (405, BadRequest, False),
        (429, RateLimited, True),
        (503, Unavailable, True),
        (511, Unavailable, True),
    ],
)
def test_a_page_with_a_status_of_failure_is_of_a_machine_in_between_and_says_nothing_of_the_key(
    api, status, kind, retryable
):
    for page in (PAGE, f"\ufeff\n{PAGE.lower()}", f'<?xml version="1.0"?>{PAGE}', "<center><h1>Blocked</h1></center>"):
        error = failure(api, Exchange(page, status, "text/html"))
        assert (type(error), error.status, error.retryable) == (kind, status, retryable)
        assert f"an HTML page ({status}) came in its place, from a firewall, a proxy" in str(error)
        assert not {"key", "model", "denied", "<h1>"} & set(str(error).split())


@every_api
@pytest.mark.parametrize("status", [403, 503])
def test_a_page_that_came_through_a_proxy_names_the_proxy(api, status, monkeypatch):
    with Loopback([Exchange(PAGE, status, "text/html")]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with pytest.raises(Unavailable, match=rf"the proxy {proxy.url} refused \({status} .*, with an HTML page\)"):
            ask(APIS[api]().model("http://nobody.invalid", KEY), REQUEST)


@every_api
def test_the_words_of_a_server_are_shortened_cleaned_and_blanked(api):
    body = {"error": {"message": f"odd{LONE} {KEY} " + "word\n" * 10_000}}
    error = failure(api, Exchange(json.dumps(body), 400, "application/json"))  # it looks for the key
    assert type(error) is BadRequest
    assert "odd\ufffd" in str(error)
    assert len(str(error)) < 800


ODD_BODIES = ["[" * 100_000, "[1, 2]", '{"error": null}', "a proxy", "", '{"error": "\udce9"}']


@every_api
@pytest.mark.parametrize(("status", "kind"), [(401, AuthenticationFailed), (503, Unavailable)])
def test_a_refusal_that_is_odd_is_told_by_its_status(api, status, kind):
    for body in ODD_BODIES:
        assert type(failure(api, Exchange(body, status, "application/json"))) is kind, body[:20]


@every_api
def test_a_refusal_that_breaks_off_is_told_by_its_status_or_as_a_broken_stream(api):
    error = failure(api, Exchange("no" * 100, 401, "text/plain", cut_at=20))
    assert type(error) is (AuthenticationFailed if api == "gemini" else StreamBroken)


FORM = OutputSchema("answer", {"type": "object", "properties": {"a": {"type": "string"}}})
REFUSED = [
    ("openai", "gpt-5.4", "Invalid parameter: text.format is not supported", "text"),
    ("openai-chat", "gpt-5.4", "This response_format type is unavailable", "response_format"),
    ("anthropic", "claude-opus-5", 'tool_choice: type "tool" and "any" are not supported.', "tool_choice"),
    ("anthropic", "claude-opus-5", "output_config.format: Extra inputs are not permitted", "output_config"),
    ("anthropic", "claude-opus-5", "thinking: Extra inputs are not permitted", "thinking"),
]


@pytest.mark.parametrize(
    ("api", "model", "words", "field"), [pytest.param(*row, marks=api_case(row[0]).marks) for row in REFUSED]
)
def test_a_field_that_a_server_refuses_is_left_out_of_the_next_try(api, model, words, field):
    tools = () if api == "openai-chat" else (TOOL,)  # few of its servers take both
    request = Request((user("Hi"),), "", tools, "required" if tools else "auto", FORM)
    refused = Exchange(json.dumps({"error": {"type": "invalid_request_error", "message": words}}), 400)

    async def thrice(model) -> list[bool]:
        mended = []
        for _ in range(3):
            try:
                await events_of(model, request)
            except BadRequest as error:
                mended.append(bool(error.mended))
        await model.aclose()
        return mended

    with serving(api, refused, whole(api), refused) as (server, given):
        other = type(given)(model, base_url=given.base_url, api_key=KEY)
        assert asyncio.run(thrice(other)) == [True, False]
    before, after, _ = (got.json for got in server.requests)
    assert before.keys() - after.keys() == {field}


# ---- streams that break, or are given up

RUBBISH = ["", "data: {not json\n\n", "data: 5\n\n", "data: [1]\n\n", "data: {}\n\n", "data: null\n\n", "<html>a proxy"]


@every_api
def test_a_stream_that_cannot_be_read_is_broken(api):
    for body in (*RUBBISH, f"data: {'[' * 100_000}\n\n"):
        assert type(failure(api, Exchange(body))) is StreamBroken, body[:20]


@every_api
def test_a_stream_without_a_byte_for_too_long_is_broken(api, monkeypatch):
    monkeypatch.setattr(clients, "SILENCE_TIMEOUT", SOON)
    begin, rest = halves_of(api)
    assert type(failure(api, Exchange(begin + rest, stall_at=len(begin)))) is StreamBroken


@every_api
def test_a_lone_surrogate_of_the_model_becomes_a_replacement_character(api):
    text, called = parts_of(api, call(("clock", '{"zone": "\\ud800"}'), says=f"a{LONE}"))
    assert (text.text, called.arguments) == ("a\ufffd", {"zone": "\ufffd"})


@every_api
def test_a_call_of_nothing_cannot_be_read(api):
    with pytest.raises(MalformedCall, match="without naming it"):
        parts_of(api, call(("", {"zone": "UTC"})))


# ---- encoders


@every_api
def test_a_request_that_goes_on_from_the_last_one_repeats_it_and_adds_to_it(api):
    model = APIS[api]().model("http://localhost", KEY)

    def sent(*messages: Message) -> list[Any]:
        body = json.loads(
            json.dumps(model.body(Request(messages))).replace(', "cache_control": {"type": "ephemeral"}', "")
        )
        return body.get("input") or body.get("contents") or body["messages"]

    past = (*REQUEST.messages, Message("assistant", (ToolCall("a", "clock", {}),)))
    past += (Message("tool", (ToolResult("a", "clock", ()),)),)
    first, second, third = sent(past[0]), sent(*past), sent(past[0])
    assert first == third == second[:1]
    assert second == sent(*past)
    assert len(second) == 3


@every_api
def test_what_no_encoding_can_write_is_replaced_wherever_it_stands(api):
    history = (
        Message("user", (Text(LONE), Media("image/png", b"", LONE))),
        Message("assistant", (Text(LONE), ToolCall(LONE, LONE, {LONE: [LONE, float("nan")]}))),
        Message("tool", (ToolResult(LONE, LONE, (Text(LONE),)),)),
    )
    tool = ToolDef("clock", LONE, {"type": "object", "description": LONE})
    body = body_of(api, *history, instructions=LONE, tools=(tool,))
    json.dumps(body, ensure_ascii=False, allow_nan=False).encode()


@every_keyed_api
def test_a_message_of_the_user_that_says_nothing_is_not_sent_empty(api):
    for nothing in (user(""), user(), Message("user", (Text(""), Text("")))):
        assert "(no words)" in json.dumps(body_of(api, nothing))


@every_api
def test_an_answer_of_nothing_but_thoughts_is_left_out(api):
    for thoughts in ((Reasoning("Hm."),), parts_of(api, Answer((Think("Hm."),), "length"))):
        assert [part.type for part in thoughts] == ["reasoning"]
        answer = Message("assistant", thoughts, interrupted=True)
        assert body_of(api, user("Hi"), answer, user("Go on.")) == body_of(api, user("Hi"), user("Go on."))
