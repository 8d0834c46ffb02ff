"""The models that a compatible server lists for the panel."""

import json

import pytest

from agentmagic import classroom
from agentmagic.classroom import class_settings
from agentmagic.providers import ollama
from agentmagic.providers.clients import LIST_BYTES, MOST_NAMES
from agentmagic.providers.openai import BASE_URL, KEY
from agentmagic.providers.openai.client import served_models
from tests.providers.loopback import Exchange, Loopback


def listed(monkeypatch, body, status=200):
    """The models that are found at a server which lists this, and the request that it got."""
    monkeypatch.setenv(KEY, "sk-of-the-server-1234567890")
    with Loopback([Exchange(body, status, "application/json")]) as server:
        monkeypatch.setenv(BASE_URL, f"{server.url}/v1/")
        return served_models(), server.requests[0]


def test_the_models_of_a_compatible_server_are_listed_with_its_key_but_for_odd_names_and_too_many(monkeypatch):
    names = ["a\u202eb", *(f"m{number}" for number in range(MOST_NAMES + 5))]
    found, got = listed(monkeypatch, json.dumps({"data": [{"id": name} for name in names]}))
    assert found == [f"openai-chat:m{number}" for number in range(MOST_NAMES)]
    assert (got.path, got.headers["authorization"]) == ("/v1/models", "Bearer sk-of-the-server-1234567890")


@pytest.mark.parametrize("body", ["<html>", "[]", '{"data": [{"id": 1}]}', '{"data": "x"}', " " * (LIST_BYTES + 1)])
def test_a_list_that_is_none_is_left_out(monkeypatch, body):
    assert listed(monkeypatch, body)[0] == []


def test_a_server_that_refuses_or_is_not_there_lists_nothing(monkeypatch):
    assert listed(monkeypatch, '{"data": [{"id": "qwen"}]}', 401)[0] == []
    assert served_models() == []  # the server is gone
    monkeypatch.setenv(BASE_URL, "no address")
    assert served_models() == []
    monkeypatch.delenv(BASE_URL)
    assert served_models() == []


def test_no_server_is_asked_for_its_models_that_the_administrator_does_not_allow(monkeypatch, tmp_path):
    monkeypatch.setattr(classroom, "POLICY_FILE", tmp_path / "policy.toml")
    (tmp_path / "policy.toml").write_text('models = ["openai-chat:q*"]\naddresses = ["https://gateway.example.org/*"]')
    class_settings.cache_clear()
    body = json.dumps({"data": [{"id": "qwen"}, {"id": "other"}]})
    with Loopback([Exchange(body, 200, "application/json")]) as server:
        monkeypatch.setenv(BASE_URL, f"{server.url}/v1")
        monkeypatch.setenv(ollama.HOST, server.url)
        assert (served_models(), ollama.list_installed(), server.requests) == ([], [], [])
        (tmp_path / "policy.toml").write_text(f'models = ["openai-chat:q*"]\naddresses = ["{server.url}/v1"]')
        class_settings.cache_clear()
        assert served_models() == ["openai-chat:qwen"]
    class_settings.cache_clear()
