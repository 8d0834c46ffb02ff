"""What is known of models: windows, what they take, and what somebody registered."""

from dataclasses import replace

import pytest
from genai_prices.data_snapshot import get_snapshot

from agentmagic.errors import UsageError
from agentmagic.messages import Media, Usage
from agentmagic.providers import catalog
from agentmagic.providers.base import UNKNOWN_WINDOW
from agentmagic.providers.local import CONTEXT
from agentmagic.providers.registry import info, priced, register_model

PNG = Media("image/png", b"")
PDF = Media("application/pdf", b"")
WAV = Media("audio/wav", b"")
MP4 = Media("Video/MP4", b"")
CSV = Media("text/csv; charset=utf-8", b"")
ZIP = Media("", b"")
MILLION = Usage(1_000_000, 0, 1_000_000, 0, 1)


@pytest.fixture(autouse=True)
def nothing_registered():
    yield
    catalog._registrations.clear()


def listed(model, seller="openai"):
    return get_snapshot().find_provider_model(model, None, seller, None)[1].context_window or 0


def accepted(name, base_url=None):
    known = info(name, base_url)
    return [media for media in (PNG, PDF, WAV, MP4, CSV, ZIP) if known.accepts(media)]


def test_a_window_is_the_listed_one_and_openai_keeps_a_part_of_a_large_one_for_the_answer():
    for model, kept in (("gpt-4o", 0), ("gpt-5", 128_000), ("gpt-5.3-chat-latest", 0)):
        assert info(f"openai:{model}").window == listed(model) - kept


@pytest.mark.parametrize(
    "name",
    ["openai:GPT-5.4-2031-01-31", "openai:ft:gpt-5.4-20260305:acme::abc123", "openai-chat:openai/gpt-5.4:free"],
)
def test_a_dated_a_tuned_and_a_resold_model_reads_as_much_as_the_one_it_is(name):
    assert info(name).window == info("openai:gpt-5.4").window


def test_a_gemini_model_may_be_named_by_its_path():
    named = "gemini:projects/p/locations/l/publishers/google/models/gemini-3.5-flash"
    short = "gemini:gemini-3.5-flash"
    assert replace(info(named), name=short) == info(short)
    assert priced(named, MILLION) == priced(short, MILLION)


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("openai:gpt-9-unheard-of", 128_000),
        ("gemini:gemini-99-flash", 1_000_000),
        ("acme:best", UNKNOWN_WINDOW),
        ("local:/models/llava.gguf", CONTEXT),
        ("scripted:script", None),
    ],
)
def test_what_is_not_listed_has_a_safe_window(name, window):
    assert info(name).window == window


def test_a_server_of_open_models_is_not_trusted_with_its_maker_s_window():
    assert info("openai-chat:gpt-oss-20b", "http://localhost:11434/v1").window == UNKNOWN_WINDOW < listed("gpt-oss-20b")


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("openai:gpt-4o-mini", [PNG, PDF, CSV]),
        ("openai:o3-mini", []),
        ("openai-chat:qwen2.5vl:7b", [PNG]),
        ("openai-chat:anthropic/claude-opus-4.7", [PNG, PDF, CSV]),
        ("anthropic:claude-sonnet-5-5", [PNG, PDF, CSV]),
        ("gemini:gemini-3.5-flash", [PNG, PDF, WAV, MP4, CSV]),
        ("local:qwen2.5-coder-1.5b", []),
        ("acme:best", []),
    ],
)
def test_models_take_what_their_family_takes(name, takes):
    assert accepted(name) == takes


def test_what_is_registered_counts():
    register_model("openai-chat:Seer", window=131_072, images=True, input_price=0.5, output_price=2, cached_price=0.1)
    known = info("openai-chat:seer", "http://localhost:8000/v1")
    assert (known.window, known.takes, known.priced) == (131_072, {"images"}, True)
    tokens = Usage(1_000_000, 400_000, 100_000, 50_000, 1)
    assert priced("openai-chat:seer", tokens).cost == pytest.approx(0.6 * 0.5 + 0.4 * 0.1 + 0.1 * 2)
    register_model("openai-chat:big", input_price=3, output_price=0)  # then cached tokens cost what others do
    assert priced("openai-chat:big", Usage(1_000_000, 900_000, 0, 0, 1)).cost == pytest.approx(3)


def test_what_is_written_to_a_cache_costs_more_and_more_for_an_hour():
    price = {"input": 5.0, "write": 6.25, "hour": 10.0}  # dollars per million tokens
    plain, written, hour = (
        priced("anthropic:claude-opus-4-5", Usage(1_000_000, 0, 0, 0, 1, None, *writes)).cost
        for writes in ((0, 0), (400_000, 0), (400_000, 100_000))
    )
    assert plain == pytest.approx(price["input"])
    assert written == pytest.approx(0.6 * price["input"] + 0.4 * price["write"])
    assert hour == pytest.approx(0.6 * price["input"] + 0.3 * price["write"] + 0.1 * price["hour"])
    register_model("anthropic:ours", input_price=5, output_price=0)
    ours = Usage(1_000_000, 0, 0, 0, 1, None, 400_000, 100_000)
    assert priced("anthropic:ours", ours).cost == pytest.approx(hour)
    assert priced("anthropic:ours", Usage(10, 0, 0, 0, 1, None, 11)).cost is None  # impossible


def test_the_later_of_two_registrations_counts_and_what_it_leaves_out_stays_as_it_was():
    before = info("gemini:gemini-3.5-flash")
    register_model("gemini:gemini-3.5-flash", window=50_000, audio=False)
    assert info("gemini:gemini-3.5-flash") == replace(
        before, window=50_000, output=50_000, takes=before.takes - {"audio"}
    )
    register_model("gemini:*", window=8_000, audio=True)
    assert info("gemini:gemini-3.5-flash") == replace(before, window=8_000, output=8_000)
    register_model("gemini:gemini-3.5-flash", window=100_000)
    assert (info("gemini:gemini-3.5-flash").window, info("gemini:other").window) == (100_000, 8_000)


@pytest.mark.parametrize("name", ["openai:gpt-4o", "openai-chat:llama", "local:qwen2.5-coder-1.5b"])
def test_a_registered_price_stands_in_for_any_other_and_may_be_nothing(name):
    for price in (1, 0):
        register_model(name, input_price=price, output_price=price)
        assert priced(name, MILLION, "http://localhost:11434/v1").cost == pytest.approx(2 * price)


@pytest.mark.parametrize(
    ("name", "facts", "words"),
    [
        ("gpt-5.4", {"window": 1}, "'gpt-5.4' cannot be registered. Write provider:model"),
        ("openai:*-mini", {"window": 1}, "cannot be registered"),
        ("openai:gpt", {}, "Nothing is said of openai:gpt. Give at least one of window"),
        ("openai:gpt", {"window": 0}, "The window of openai:gpt cannot be 0. Give it in tokens"),
        ("openai:gpt", {"images": 1}, "Whether openai:gpt takes images cannot be 1. Write images=True"),
        ("openai:gpt", {"input_price": 1}, "are not complete. Give input_price and output_price together."),
        ("openai:gpt", {"input_price": -1, "output_price": 1}, "A price of openai:gpt cannot be -1. Give US dollars"),
        ("openai:gpt", {"input_price": 1, "output_price": float("nan")}, "cannot be nan"),
    ],
)
def test_what_cannot_be_registered_is_said_and_changes_nothing(name, facts, words):
    before = info("openai:gpt")
    with pytest.raises(UsageError) as caught:
        register_model(name, **facts)
    assert words in str(caught.value)
    assert info("openai:gpt") == before
