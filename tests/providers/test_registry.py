import sys
from importlib.metadata import EntryPoint

import pytest

from agentmagic.errors import ConfigError, MissingExtra, UnknownModel
from agentmagic.messages import Usage
from agentmagic.providers import registry
from agentmagic.providers.scripted import ScriptedModel

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
    return ScriptedModel(["I am another's."], model)


def test_a_script_is_a_model_if_it_can_be_read(tmp_path):
    path = tmp_path / "lesson.json"
    path.write_text('["Hello."]')
    assert registry.resolve(f"scripted:{path}").name == "scripted:lesson"
    with pytest.raises(ConfigError, match=r"The script .*nowhere\.json"):
        registry.resolve(f"scripted:{tmp_path / 'nowhere.json'}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("opnai:gpt", "Did you mean openai:?"),
        ("claude", "Did you mean acp:claude?"),
        ("gpt-5.4", "Write provider:model with one of openai, openai-chat"),
        ("openai", "'openai' names a provider but no model. Write openai:gpt-5.4."),
    ],
)
def test_a_name_that_no_provider_answers_to_is_met_with_what_to_write(name, words):
    with pytest.raises(UnknownModel) as caught:
        registry.resolve(name)
    assert words in str(caught.value)


def test_a_package_that_is_missing_is_named_with_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtra, match=r"pip install 'agentmagic\[local\]'"):
        registry.resolve("local:qwen2.5-coder-1.5b")


@pytest.mark.usefixtures("other_package")
def test_another_package_may_bring_a_provider_of_unknown_cost_but_not_replace_ours():
    assert registry.resolve("acme:best").name == "scripted:best"
    assert registry.priced("acme:best", TOKENS).cost is None
    assert registry.providers()["openai"].make.startswith("agentmagic.")


@pytest.mark.parametrize(
    ("name", "cost"),
    [
        ("openai:GPT-4o", 12.5),
        ("scripted:script", 0),
        ("openai:ft:gpt-5.4:acme::abc123", None),  # a tuned or newer one may cost something else
        ("openai:gpt-5.4-2031-01-31", None),
        ("openai:whisper-1", None),  # not sold by tokens in and out
        ("nobody:gpt-5.4", None),
        ("", None),
    ],
)
def test_the_price_comes_from_the_table_is_nothing_here_and_else_unknown(name, cost):
    assert registry.priced(name, TOKENS).cost == (cost if cost is None else pytest.approx(cost))
    assert registry.info(name).priced is (cost is not None)


def test_the_models_to_choose_from_are_those_that_can_be_asked_and_the_first_with_a_key_is_the_default(
    monkeypatch, tmp_path
):
    pytest.importorskip("openai")
    monkeypatch.chdir(tmp_path)
    assert [name for name in registry.usable_models() if not name.startswith("local:")] == []
    assert registry.default_model() is None
    monkeypatch.setenv("GOOGLE_API_KEY", "test-key-of-google")
    assert registry.default_model().startswith("gemini:")
    monkeypatch.setenv("OPENAI_API_KEY", "test-key-of-openai")
    assert registry.default_model() == "openai:gpt-5.4"
    assert {"openai:gpt-5.4", "openai-chat:gpt-5.4"} <= set(registry.usable_models())
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    assert registry.usable_models() == []


@pytest.mark.parametrize("usage", [Usage(0, 0, 0, 0, 1), Usage(10, 20, 5, 0, 1), Usage(-10, 0, 5, 0, 1)])
def test_figures_that_are_missing_or_cannot_be_have_no_cost(usage):
    assert registry.priced("openai:gpt-4o", usage).cost is None


def test_on_another_server_a_price_is_that_server_s(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:11434/v1")
    assert registry.priced("openai:gpt-5.4", TOKENS).cost is None
    assert not registry.info("openai:gpt-5.4").priced
    assert registry.priced("openai:gpt-5.4", TOKENS, " https://api.openai.com/v1/ ").cost
    assert registry.priced("openai-chat:openai/gpt-5.4", TOKENS, "https://openrouter.ai/api/v1").cost
    assert registry.priced("openai-chat:gpt-5.4", TOKENS, "https://openrouter.ai/api/v1").cost is None
    for server, known in (("http://localhost:8080", False), ("https://europe-west4-aiplatform.googleapis.com", True)):
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", server)
        assert bool(registry.priced("gemini:gemini-3.5-flash", TOKENS).cost) is known
