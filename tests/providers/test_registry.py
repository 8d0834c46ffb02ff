import sys
from importlib.metadata import EntryPoint

import pytest

from agentmagic.errors import ConfigError, MissingExtra, UnknownModel
from agentmagic.messages import Usage
from agentmagic.providers import registry
from agentmagic.providers.base import Model
from agentmagic.providers.scripted import Scripted

TOKENS = Usage(1_000_000, 0, 1_000_000, 0, 1)


@pytest.fixture
def other_package(monkeypatch):
    points = [
        EntryPoint("acme", "tests.providers.test_registry:make", registry.ENTRY_POINTS),
        EntryPoint("openai", "tests.providers.test_registry:make", registry.ENTRY_POINTS),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    registry.providers.cache_clear()
    yield
    registry.providers.cache_clear()


def make(model):
    return Scripted(["I am another's."], model)


def test_the_providers_are_these():
    assert list(registry.providers())[:5] == ["openai", "openai-chat", "gemini", "local", "scripted"]


def test_a_script_is_a_model(tmp_path):
    path = tmp_path / "lesson.json"
    path.write_text('["Hello."]')
    model = registry.resolve(f"scripted:{path}")
    assert isinstance(model, Model)
    assert model.name == "scripted:lesson"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("opnai:gpt", "Did you mean openai:?"),
        ("gpt-5.4", "Write provider:model with one of openai, openai-chat"),
        ("openai", "'openai' names a provider but no model. Write openai:gpt-5.4."),
        ("scripted", "Write scripted:MODEL"),
        ("", "No provider answers to ''"),
        (":", "No provider answers to ':'"),
    ],
)
def test_a_name_that_no_provider_answers_to_is_met_with_what_to_write(name, words):
    with pytest.raises(UnknownModel) as caught:
        registry.resolve(name)
    assert words in str(caught.value)


@pytest.mark.parametrize("content", [None, "not json", '{"text": "no list"}'])
def test_a_script_that_cannot_be_read_says_so(tmp_path, content):
    path = tmp_path / "script.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"The script .*script\.json"):
        registry.resolve(f"scripted:{path}")


def test_a_package_that_is_missing_is_named_with_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agentmagic\[local\]'"):
        registry.resolve("local:qwen2.5-coder-1.5b")


@pytest.mark.usefixtures("other_package")
def test_another_package_may_bring_a_provider_but_not_replace_ours():
    assert registry.resolve("acme:best").name == "scripted:best"
    assert registry.providers()["openai"].make.startswith("agentmagic.")


@pytest.mark.usefixtures("other_package")
def test_what_another_s_tokens_cost_is_unknown():
    assert registry.priced("acme:best", TOKENS).cost is None


def test_what_nobody_knows_the_price_of_is_unknown_not_free():
    assert registry.priced("nobody:knows", TOKENS).cost is None
    assert registry.priced("openai:no-such-model-at-all", TOKENS).cost is None


def test_the_price_comes_from_the_table():
    assert registry.priced("openai:gpt-4o", TOKENS).cost == pytest.approx(12.5)
    assert registry.priced("openai-chat:gpt-4o", TOKENS) == registry.priced("openai:gpt-4o", TOKENS)


def test_cached_tokens_cost_less():
    fresh, cached = (
        registry.priced("openai:gpt-4o", Usage(1_000_000, cached, 0, 0, 1)).cost or 0.0 for cached in (0, 1_000_000)
    )
    assert 0 < cached < fresh


@pytest.mark.parametrize("name", ["local:qwen2.5-coder-1.5b", "scripted:script"])
def test_what_runs_here_costs_nothing(name):
    assert registry.priced(name, TOKENS).cost == 0


def test_the_first_provider_whose_key_is_set_is_the_default(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert registry.default_model() is None
    monkeypatch.setenv("GOOGLE_API_KEY", "test-key-of-google")
    assert registry.default_model().startswith("gemini:")
    monkeypatch.setenv("OPENAI_API_KEY", "test-key-of-openai")
    assert registry.default_model().startswith("openai:")
