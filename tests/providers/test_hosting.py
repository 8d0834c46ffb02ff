"""Which models search and fetch themselves, how a request asks for it, and what it costs."""

from dataclasses import replace
from typing import Any

import pytest

from agentmagic.messages import (
    HostedTool,
    Usage,
)
from agentmagic.providers import registry
from agentmagic.providers.anthropic import encoder as anthropic
from agentmagic.providers.anthropic.model import Anthropic
from agentmagic.providers.base import OutputSchema, Request
from agentmagic.providers.failures import find_refused_field
from agentmagic.providers.gemini.model import Gemini
from agentmagic.providers.openai.chat_completions import OpenAIChat
from agentmagic.providers.openai.responses import OpenAIResponses
from tests.providers.server_traffic import CLAUDE, CLOCK, FETCH, FLASH, FLASH_25, GPT, HELLO, KEY, SEARCH, body_of

# ---- which models have which tools


@pytest.mark.parametrize(
    ("model", "tools"),
    [
        (Anthropic(CLAUDE), "search fetch domains uses"),
        (Anthropic("claude-haiku-4-5-20251001"), "search fetch domains uses"),
        (Anthropic("claude-opus-4-20250514"), ""),
        (Anthropic("claude-3-5-haiku-latest"), ""),
        (Anthropic("claude-opus-4-6@20260101"), ""),  # Google Cloud
        (Anthropic("anthropic.claude-sonnet-5-v1:0"), ""),  # Bedrock
        (Anthropic("kimi-k2"), ""),
        (OpenAIResponses(GPT), "search domains uses"),
        (OpenAIResponses("gpt-4.1-mini"), "search domains uses"),
        (OpenAIResponses("gpt-4.1-nano"), ""),
        (OpenAIResponses("gpt-oss-120b"), ""),
        (OpenAIChat(GPT), ""),
        (OpenAIChat("gpt-5-search-api"), "search"),
        (Gemini(FLASH), "search fetch"),
        (Gemini(FLASH_25), ""),
        (Gemini("gemini-3-pro-image"), ""),
        (Gemini("gemma-3-27b-it"), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_model_hosts_what_its_provider_can_keep(model: Any, tools: str):
    wishes = {
        "search": SEARCH,
        "fetch": FETCH,
        "domains": replace(SEARCH, domains=("python.org",)),
        "uses": replace(SEARCH, max_uses=3),
    }
    assert [name for name, tool in wishes.items() if model.hosts(tool)] == tools.split()


def test_vertex_ai_hosts_nothing_beside_functions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    assert not Gemini(FLASH).hosts(SEARCH)
    assert Gemini(FLASH, api_key=KEY).hosts(SEARCH)


BOUNDED = HostedTool("web_search", ("python.org",), 3)
FORM = OutputSchema("answer", {"type": "object", "properties": {}, "additionalProperties": False})


@pytest.mark.parametrize(
    ("provider", "request_", "fields"),
    [
        (
            "anthropic",
            Request((HELLO,), hosted=(BOUNDED, FETCH)),
            {
                "tools": [
                    {
                        "type": "web_search_20260318",
                        "allowed_callers": ["direct"],
                        "name": "web_search",
                        "allowed_domains": ["python.org"],
                        "max_uses": 3,
                    },
                    {
                        "type": "web_fetch_20260318",
                        "allowed_callers": ["direct"],
                        "citations": {"enabled": True},
                        "max_content_tokens": 50_000,
                        "url_sources": {"client_tool_results": {"type": "none"}},
                        "name": "web_fetch",
                        "cache_control": {"type": "ephemeral"},
                    },
                ]
            },
        ),
        (
            "openai",
            Request((HELLO,), hosted=(BOUNDED,)),
            {
                "tools": [
                    {
                        "type": "web_search",
                        "user_location": {"type": "approximate"},
                        "filters": {"allowed_domains": ["python.org"]},
                    }
                ],
                "max_tool_calls": 3,
                "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
            },
        ),
        ("openai", Request((HELLO,)), {"tools": None, "include": ["reasoning.encrypted_content"]}),
        (
            "gemini",
            Request((HELLO,), hosted=(SEARCH, FETCH), tools=(CLOCK,), tool_choice="required"),
            {
                "toolConfig": {
                    "functionCallingConfig": {"mode": "ANY"},
                    "includeServerSideToolInvocations": True,
                },
            },
        ),
        ("gemini", Request((HELLO,)), {"toolConfig": None, "tools": None}),
        ("openai-chat", Request((HELLO,), hosted=(SEARCH,)), {"web_search_options": {}}),
    ],
)
def test_a_request_offers_the_tools_in_the_words_of_the_provider(provider: str, request_: Request, fields: Any):
    body = body_of(provider, request_)
    assert {name: body.get(name) for name in fields} == fields
    if provider == "gemini" and request_.hosted:
        assert [set(tool) for tool in body["tools"]] == [{"googleSearch"}, {"urlContext"}, {"functionDeclarations"}]


@pytest.mark.parametrize(
    ("provider", "fields"),
    [
        # The tools stay, so that the provider's cache has the same beginning.
        ("anthropic", {"tools": 2, "tool_choice": {"type": "none"}}),
        ("openai", {"tools": 2, "tool_choice": "none"}),
        ("gemini", {"tools": 1, "toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}),
        ("openai-chat", {"tools": 1, "tool_choice": "none", "web_search_options": None}),
    ],
)
def test_nothing_is_searched_in_a_request_that_may_call_no_tool(provider: str, fields: Any):
    body = body_of(provider, Request((HELLO,), hosted=(SEARCH,), tools=(CLOCK,), tool_choice="none"))
    assert {**{name: body.get(name) for name in fields}, "tools": len(body["tools"])} == fields
    assert "googleSearch" not in str(body)


@pytest.mark.parametrize(
    ("provider", "tools", "path"),
    [
        ("anthropic", (BOUNDED, FETCH), "tools.0.web_search_20260318.allowed_domains"),
        ("anthropic", (BOUNDED, FETCH), "tools.0.max_uses"),
        ("anthropic", (BOUNDED, FETCH), "tools.1.web_fetch_20260318.url_sources"),
        ("openai", (BOUNDED,), "tools[0].filters"),
        ("openai", (BOUNDED,), "max_tool_calls"),
        ("gemini", (SEARCH,), "tools[0].googleSearch"),
    ],
)
def test_a_bound_that_a_server_refuses_is_not_left_out_of_the_next_request(provider: str, tools: Any, path: str):
    body = body_of(provider, Request((HELLO,), hosted=tools))
    assert find_refused_field(f"{path}: Extra inputs are not permitted", body) == ("", "")


def test_an_answer_in_a_form_cites_no_fetched_documents():
    body = anthropic.encode(Request((HELLO,), hosted=(FETCH,), output=FORM), CLAUDE)
    assert "citations" not in body["tools"][0]


# ---- fees


@pytest.mark.parametrize(
    ("name", "url", "fee"),
    [
        ("anthropic:claude-sonnet-4-5", None, 0.010),
        ("openai:gpt-5.4", "https://api.openai.com/v1", 0.010),
        ("openai-chat:gpt-4o-mini-search-preview", None, 0.025),
        ("openai-chat:gpt-5-search-api", None, 0.010),
        ("gemini:gemini-2.5-flash", None, 0.035),
        ("gemini:gemini-3-flash-preview", None, 0.014),
        ("openai:gpt-5.4", "http://localhost:8080/v1", None),
        ("scripted:script", None, 0.0),
    ],
)
def test_a_search_costs_its_fee_beside_the_tokens_and_nothing_is_guessed(name: str, url: str | None, fee: float | None):
    usage = Usage(1000, 0, 100, requests=1)
    tokens, both = (registry.priced(name, replace(usage, searches=number), url).cost for number in (0, 2))
    assert both == (None if fee is None or tokens is None else pytest.approx(tokens + 2 * fee))
    assert fee is None or tokens is not None


def test_searches_are_added_up_and_shown_if_there_were_any():
    both = Usage(searches=1) + Usage(searches=2)
    assert both.searches == 3
    assert repr(both).endswith("searches=3)")
    assert "searches" not in repr(Usage())
