import pytest

from agentmagic import redact

LONG = "abcdefghijklmnopqrstuvwxyz0123456789ABCD"


@pytest.mark.parametrize(
    "key",
    [
        f"sk-proj-{LONG}",
        f"AIza{LONG}",
        *(f"gh{kind}_{LONG}" for kind in "pousr"),
        f"github_pat_{LONG}",
        f"hf_{LONG}",
        *(f"xox{kind}-{LONG}" for kind in "abpr"),
        "AKIA0123456789ABCDEF",
    ],
)
def test_what_is_shaped_like_a_key_is_blanked(key):
    assert redact.redact(f"The key {key} is wrong.") == f"The key {redact.BLANK} is wrong."


def test_a_bearer_token_is_blanked_and_its_header_stays():
    assert redact.redact(f"Authorization: Bearer {LONG}") == f"Authorization: Bearer {redact.BLANK}"


@pytest.mark.parametrize("token", [f"sk-{LONG}.{LONG}", f"{LONG}/sk-{LONG}", f"{LONG}~AKIA0123456789ABCDEF"])
def test_a_bearer_token_that_holds_a_key_s_shape_is_blanked_whole(token):
    assert redact.redact(f"authorization: bearer {token}") == f"authorization: bearer {redact.BLANK}"


def test_english_is_looked_through_without_trying_the_shapes():
    tried = [start for start, _, _ in redact._PATTERNS if start in "a higher right, through clearer and nearer air"]
    assert tried == []


def test_a_remembered_secret_is_blanked_wherever_it_stands(monkeypatch):
    monkeypatch.setattr(redact, "_secrets", set())
    redact.remember("correct-horse")
    assert redact.redact("url?key=correct-horse&x=1") == f"url?key={redact.BLANK}&x=1"


def test_a_short_secret_does_not_ruin_every_text(monkeypatch):
    monkeypatch.setattr(redact, "_secrets", set())
    redact.remember("abc")
    assert redact.redact("abcdef") == "abcdef"


@pytest.mark.parametrize("text", ["", "ask-me-anything", "a risk-free rate", "skating", "Bearer of bad news"])
def test_ordinary_words_stay(text):
    assert redact.redact(text) == text


@pytest.mark.parametrize("before", ["x", "7", "_", "-", "gAAAAABk-"])
@pytest.mark.parametrize("key", [f"sk-{LONG}", f"AIza{LONG}", f"hf_{LONG}", "AKIA0123456789ABCDEF"])
def test_opaque_data_that_holds_a_key_s_shape_by_chance_stays(before, key):
    assert redact.redact(before + key) == before + key


@pytest.mark.parametrize("before", ["", " ", "=", '"', "/", ":", "(", "\n", "ключ:"])
def test_a_key_after_anything_else_is_blanked(before):
    assert redact.redact(f"{before}sk-{LONG}") == before + redact.BLANK
