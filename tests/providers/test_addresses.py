"""Addresses as people write them, and the addresses that are asked."""

import re

import pytest

from agentmagic import Agent, RetrySettings, Session
from agentmagic.errors import ProviderError
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
    "the path": (OpenAIChat, '{"detail": "Not Found"}', r"nothing at this address.*OPENAI_BASE_URL.*/v1"),
    "nothing": (OpenAIChat, "", r"nothing at this address.*OPENAI_BASE_URL.*/v1"),
    "the path, Anthropic": (Anthropic, "", r"nothing at this address.*ANTHROPIC_BASE_URL\) and the name 'm'"),
    "the path, Gemini": (Gemini, "", r"nothing at this address.*GOOGLE_GEMINI_BASE_URL\) and the name 'm'"),
    "the path, Ollama": (Ollama, "", r"nothing at this address.*OLLAMA_HOST\) and the name 'm'"),
    "the model": (OpenAIChat, '{"error": {"message": "The model `m` does not exist"}}', r"has no model 'm'"),
}


@pytest.mark.parametrize(("provider", "body", "words"), NOT_FOUND.values(), ids=NOT_FOUND)
def test_an_address_that_is_not_found_does_not_blame_the_model_unless_the_server_does(provider, body, words):
    with Loopback([Exchange(body, 404, "application/json")] * 2) as server:
        model = provider("m", base_url=server.url, api_key="k")
        with pytest.raises(ProviderError, match=words):
            Session(Agent(model)).ask("Go.")


@pytest.mark.parametrize(
    ("written", "cure"),
    [
        ("api.example.org/v1", "Set OPENAI_BASE_URL to https://api.example.org/v1."),
        ("the gateway", "Set OPENAI_BASE_URL to one like "),
        ("ftp://example.org", "Set OPENAI_BASE_URL to one like "),
    ],
)
def test_what_is_no_address_is_refused_with_the_address_that_was_meant(written, cure):
    with pytest.raises(ProviderError, match=re.escape(cure)):
        Session(Agent(OpenAIChat("m", base_url=written, api_key="k"))).ask("Go.")
