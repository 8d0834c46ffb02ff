"""Addresses as people write them, and the addresses that are asked."""

import re

import pytest

from agentmagic import Agent, RetrySettings, Session
from agentmagic.errors import BadRequest, ProviderError
from agentmagic.providers.addresses import join, shown, tidy
from agentmagic.providers.anthropic.model import Anthropic
from agentmagic.providers.gemini.model import Gemini
from agentmagic.providers.ollama import Ollama
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.openai.client import served_models
from agentmagic.providers.openai.responses import OpenAIResponses
from agentmagic.testing import run
from tests.providers.loopback import Exchange, Loopback

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
STREAM = "/v1beta/models/m:streamGenerateContent?alt=sse"
QUERY = "api-version=2025-04-01-preview"

ASKED = [
    (OpenAIChat, "{url}/v1", CHAT),
    (OpenAIChat, "{url}/v1/", CHAT),
    (OpenAIChat, ' "{url}/v1" ', CHAT),
    (OpenAIChat, "<{url}/v1>", CHAT),
    (OpenAIChat, "{url}/v1#models", CHAT),
    (OpenAIChat, "{url}/v1/chat/completions", CHAT),
    (OpenAIChat, "{url}/v1/models", CHAT),
    (OpenAIChat, "{bare}/v1", CHAT),
    (OpenAIChat, "{url}", "/chat/completions"),
    (OpenAIChat, f"{{url}}/deployments/d?{QUERY}", f"/deployments/d/chat/completions?{QUERY}"),
    (OpenAIChat, f"{{url}}/deployments/d/chat/completions?{QUERY}", f"/deployments/d/chat/completions?{QUERY}"),
    (OpenAIResponses, "{url}/v1/responses", RESPONSES),
    (OpenAIResponses, f"{{url}}/v1?{QUERY}", f"{RESPONSES}?{QUERY}"),
    (Anthropic, "{url}", "/v1/messages"),
    (Anthropic, "{url}/v1", "/v1/messages"),
    (Anthropic, "{url}/v1/", "/v1/messages"),
    (Anthropic, "{url}/v1/messages", "/v1/messages"),
    (Anthropic, "{url}/anthropic", "/anthropic/v1/messages"),
    (Anthropic, f"{{url}}/anthropic/v1?{QUERY}", f"/anthropic/v1/messages?{QUERY}"),
    (Gemini, "{url}", STREAM),
    (Gemini, "{url}/v1beta", STREAM),
    (Gemini, "{url}/v1/", STREAM),
    (Gemini, "{url}/v1beta/models/m:generateContent", STREAM),
    (Gemini, f"{{url}}/deployments/d?{QUERY}", f"/deployments/d{STREAM}&{QUERY}"),
    (Gemini, "{url}/v1beta/models/m:streamGenerateContent?alt=sse", STREAM),
    (Gemini, "{url}/v1beta/models/m:generateContent?alt=json", STREAM),
    (Gemini, "{url}/v1beta/models/m:generateContent?key=of-the-gateway", f"{STREAM}&key=of-the-gateway"),
    (OpenAIChat, "{url}/v1?tenant=a%20b&of=c%2Bd", f"{CHAT}?tenant=a%20b&of=c%2Bd"),
    (Ollama, "{url}", "/api/chat"),
    (Ollama, "{url}/v1", "/api/chat"),
    (Ollama, "{url}/api/", "/api/chat"),
    (Ollama, "{url}/api/chat", "/api/chat"),
    (Ollama, f"{{url}}/ollama?{QUERY}", f"/ollama/api/chat?{QUERY}"),
]


@pytest.mark.parametrize(("provider", "written", "asked"), ASKED)
def test_an_address_is_asked_as_it_was_meant(provider, written, asked):
    with Loopback([Exchange("{}", 400, "application/json")] * 2) as server:  # Ollama loads the model first
        url = written.format(url=server.url, bare=server.url.removeprefix("http://"))
        run(Session(Agent(provider("m", base_url=url, api_key="k"), retry=RetrySettings(tries=1))), "Go.")
        assert [received.path for received in server.requests][-1:] == [asked]


def test_the_models_of_a_server_are_listed_with_its_query(monkeypatch):
    with Loopback([Exchange('{"data": [{"id": "m"}]}', content_type="application/json")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{server.url}/v1/?{QUERY}")
        assert served_models() == ["openai-chat:m"]
        assert server.requests[0].path == f"/v1/models?{QUERY}"


def test_what_an_address_holds_beside_the_server_is_in_no_message():
    assert shown("https://me:secret@example.org/v1?key=secret#secret") == "https://example.org/v1"
    with Loopback([Exchange('{"error": "no"}', 404, "application/json")]) as server:
        model = OpenAIChat("m", base_url=f"{server.url}/v1?code=secret", api_key="k")
        assert "secret" not in run(Session(Agent(model)), "Go.").error


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("localhost:8000/v1", "http://localhost:8000/v1"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("example.org/v1", "example.org/v1"),
        ("https://example.org/v1", "https://example.org/v1"),
        ("", ""),
    ],
)
def test_only_an_address_of_this_machine_may_lack_its_scheme(written, read):
    assert tidy(written) == read


def test_a_path_is_added_before_the_query():
    assert join("https://example.org/a/?b=c", "/d") == "https://example.org/a/d?b=c"
    assert join("https://example.org", "/d") == "https://example.org/d"


NOT_FOUND = {
    "the path": (
        OpenAIChat,
        '{"detail": "Not Found"}',
        r"nothing at URL/chat/completions \(404\).*OPENAI_BASE_URL.*/v1",
    ),
    "nothing": (OpenAIChat, "", r"nothing at URL/chat/completions \(404\).*OPENAI_BASE_URL.*/v1"),
    "the path, Anthropic": (
        Anthropic,
        "",
        r"nothing at URL/v1/messages \(404\).*ANTHROPIC_BASE_URL\) and the name 'm'",
    ),
    "the path, Gemini": (
        Gemini,
        "",
        r"nothing at URL/v1beta/models/m:streamGenerateContent \(404\).*GOOGLE_GEMINI_BASE_URL\) and the name 'm'",
    ),
    "the path, Ollama": (Ollama, "", r"nothing at URL/api/chat \(404\).*OLLAMA_HOST\) and the name 'm'"),
    "the model": (OpenAIChat, '{"error": {"message": "The model `m` does not exist"}}', r"has no model 'm'"),
}


@pytest.mark.parametrize(("provider", "body", "words"), NOT_FOUND.values(), ids=NOT_FOUND)
def test_an_address_that_is_not_found_does_not_blame_the_model_unless_the_server_does(provider, body, words):
    with Loopback([Exchange(body, 404, "application/json")] * 2) as server:
        model = provider("m", base_url=f"{server.url}?code=secret", api_key="k")
        with pytest.raises(ProviderError, match=words.replace("URL/", f"{server.url}/")) as told:
            Session(Agent(model)).ask("Go.")
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("written", "cure"),
    [
        ("api.example.org/v1", "Set OPENAI_BASE_URL to https://api.example.org/v1."),
        (
            "api.example.org/v1?key=secret",
            "'api.example.org/v1' is no address. Set OPENAI_BASE_URL to https://api.exam",
        ),
        ("me:secret@api.example.org/v1", "'api.example.org/v1' is no address. Set OPENAI_BASE_URL to https://api.exam"),
        ("https://me:secret@[::1/v1", "'https://[::1/v1' is no address. Set OPENAI_BASE_URL to one like "),
        ("the gateway", "Set OPENAI_BASE_URL to one like "),
        ("ftp://example.org", "Set OPENAI_BASE_URL to one like "),
    ],
)
def test_what_is_no_address_is_refused_with_the_address_that_was_meant(written, cure):
    with pytest.raises(ProviderError, match=re.escape(cure)) as told:
        Session(Agent(OpenAIChat("m", base_url=written, api_key="k"))).ask("Go.")
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("path", ["", "/", "/v1beta", "/v1beta/", "/v1beta/models/m:streamGenerateContent?alt=sse"])
def test_the_own_address_of_gemini_is_its_own_in_every_form(path):
    google = Gemini("m", base_url=f"https://generativelanguage.googleapis.com{path}", api_key="k")
    assert (google.is_own, google.who) == (True, "Gemini")
    other = Gemini("m", base_url=f"https://example.org{path}", api_key="k")
    assert (other.is_own, other.who) == (False, shown(other.base_url))
    assert Gemini("m", base_url="", api_key="k").is_own


PASTED = {
    Gemini: ("https://generativelanguage.googleapis.com/v1beta/models/m:generateContent?key=", "GEMINI_API_KEY or "),
    Anthropic: ("https://api.anthropic.com/v1/messages?api_key=", "ANTHROPIC_API_KEY"),
    OpenAIChat: ("https://api.openai.com/v1?token=", "OPENAI_API_KEY"),
}


@pytest.mark.parametrize("provider", PASTED)
def test_a_key_in_the_own_address_of_a_provider_is_refused_with_the_place_of_a_key(provider, tmp_path, caplog):
    key, (url, place) = f"plain-{provider.__name__}-12345", PASTED[provider]
    session = Session(
        Agent(provider("m", base_url=f"{url}{key}", api_key="k")), cassette=tmp_path / "tape.yaml", replay="record"
    )
    with caplog.at_level("DEBUG"), pytest.raises(BadRequest, match=f"Set {place}") as told:
        session.ask("Go.")
    session.close()
    saved = "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    assert key not in f"{told.value}{saved}{caplog.text}"


def test_a_key_in_the_address_of_a_gateway_is_sent_and_neither_shown_nor_saved(tmp_path, caplog):
    path = tmp_path / "tape.yaml"
    with Loopback([Exchange('{"error": "no key=plain words"}', 400, "application/json")]) as server:
        agent = Agent(OpenAIChat("m", base_url=f"{server.url}/v1?code=plain&key=plain-words-42", api_key="k"))
        with caplog.at_level("DEBUG"):
            result = run(Session(agent, cassette=path, replay="record"), "Go.")
        assert server.requests[0].path == f"{CHAT}?code=plain&key=plain-words-42"
    assert f"address: {server.url}/v1\n" in path.read_text()
    assert "plain-words-42" not in f"{result.error}{path.read_text()}{caplog.text}"
