"""What a user without a key can choose."""

import json

import pytest

from agentmagic.errors import MissingExtra
from agentmagic.providers import first_use
from agentmagic.providers.local import downloads
from agentmagic.providers.ollama import HOST
from agentmagic.runtime.engine import engine
from tests.providers.loopback import Exchange, Loopback

pytest.importorskip("openai", reason="the openai extra is not installed")

NOWHERE = "127.0.0.1:9"  # a port on which nothing listens


def exchange(answer):
    return Exchange(json.dumps(answer), content_type="application/json")


def found(monkeypatch, ollama=NOWHERE, compatible=()):
    monkeypatch.setenv(HOST, ollama)
    monkeypatch.setattr(first_use, "COMPATIBLE", compatible)
    return engine().call(first_use.find_servers())


def port_of(server):
    return int(server.url.rpartition(":")[2])


def test_servers_of_this_machine_are_found_with_their_models(monkeypatch):
    tags, listed = {"models": [{"name": "qwen3:0.6b"}]}, {"data": [{"id": "gemma-4"}, {"id": "phi"}]}
    with Loopback([exchange(tags)]) as ollama, Loopback([exchange(listed)]) as studio:
        compatible = (("LM Studio", port_of(studio)), ("vLLM", 9))
        first, second = found(monkeypatch, ollama.url, compatible)
        assert studio.requests[0].path == "/v1/models"
    assert (first.name, first.models, first.model("qwen3:0.6b")) == ("Ollama", ("qwen3:0.6b",), "ollama:qwen3:0.6b")
    assert (second.name, second.models) == ("LM Studio", ("gemma-4", "phi"))
    model = second.model("phi")
    assert (model.name, model.base_url) == ("openai-chat:phi", f"{studio.url}/v1")


@pytest.mark.parametrize("answer", [{"data": "no list"}, [], {"data": [{"id": "x\n"}, {"id": 5}, {}]}])
def test_what_lists_no_models_is_no_server(monkeypatch, answer):
    with Loopback([exchange(answer)]) as server:
        assert found(monkeypatch, compatible=(("vLLM", port_of(server)),)) == ()


def test_no_other_machine_is_asked(monkeypatch):
    asked = []
    monkeypatch.setattr(first_use.ollama, "list_installed", lambda: asked.append("ollama"))
    assert found(monkeypatch, "http://elsewhere.example:11434") == ()
    assert asked == []


def test_a_server_whose_package_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setattr(first_use, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"LM Studio needs a package .*openai"):
        first_use.FoundServer("LM Studio", "http://127.0.0.1:1234/v1", ("phi",)).model("phi")


@pytest.mark.parametrize("fetched", [True, False])
@pytest.mark.parametrize("installed", [True, False])
def test_the_local_model_says_whether_it_is_fetched_and_installed(monkeypatch, tmp_path, fetched, installed):
    monkeypatch.setattr(downloads, "find", lambda: tmp_path if fetched else None)
    monkeypatch.setattr(first_use, "find_spec", lambda _name: installed or None)
    about, command = first_use.local_model()
    assert ("(1.1 GB) are fetched once" in about) == (not fetched)
    assert command.startswith("pip install '") == (not installed)


def test_each_key_is_offered_once_with_how_it_begins():
    rows = [(row.name, row.keys[0], row.key_begins) for row in first_use.keyed_providers()]
    assert rows == [
        ("openai", "OPENAI_API_KEY", "sk-"),
        ("gemini", "GEMINI_API_KEY", "AIza"),
        ("anthropic", "ANTHROPIC_API_KEY", "sk-ant-"),
    ]
