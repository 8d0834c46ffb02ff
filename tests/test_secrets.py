import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmagic import secrets, settings
from agentmagic.errors import UsageError
from agentmagic.text import ShownStream
from agentmagic.text import sanitize as shown_whole
from tests.turns import play

PROSE = [
    "Bearer responsibilities",
    "Basic JavaScriptProgramming",
    "sk-learn-compatible-estimators",
    "http://localhost:8080/a@b and https://example.org/x?y=1:2@3",
    "postgres://user:password@localhost/db and postgres://user:${DB_PASSWORD}@localhost/db",
]
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
        f"sk_live_{LONG}",
        f"rk_live_{LONG}",
        f"glpat-{LONG[:20]}7",
        f"npm_{LONG}",
        f"pypi-AgEIcHlwaS5vcmc{LONG}",
        f"ya29.{LONG}",
        f"AQ.Ab8{LONG}",
        f"gsk_{LONG}",
        f"eyJhbGciOiJIUzI1NiJ9.eyJ{LONG}.{LONG}",
    ],
)
def test_what_is_shaped_like_a_key_is_blanked(key):
    assert secrets.redact(f"The key {key} is wrong.") == f"The key {secrets.BLANK} is wrong."


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"Authorization: Bearer {LONG}", LONG),
        (f"authorization: bearer sk-{LONG}.{LONG}", f"sk-{LONG}.{LONG}"),  # blanked whole, not a key in it
        (f"Bearer {LONG}/sk-{LONG}", f"{LONG}/sk-{LONG}"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA=="),
        ("authorization: basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA=="),
        ("postgresql+psycopg://reader:x7-Quiet.Sea@db.example.org:5432/sales?sslmode=require", "x7-Quiet.Sea"),
        *((f"{before}sk-{LONG}", f"sk-{LONG}") for before in ("", "=", '"', "/", ":", "\n", "ключ:")),
    ],
)
def test_a_token_and_a_password_are_blanked_and_what_stands_before_them_stays(text, secret):
    assert secrets.redact(text) == text.replace(secret, secrets.BLANK)


def test_a_registered_secret_is_blanked_wherever_it_stands_and_leaves_no_tail_of_a_longer_one():
    secrets.register_secret("correct-horse")
    secrets.register_secret("correct-horse-and-more")
    assert secrets.redact("url?key=correct-horse&x=1") == f"url?key={secrets.BLANK}&x=1"
    assert secrets.redact("it is correct-horse-and-more") == f"it is {secrets.BLANK}"


def test_secrets_that_two_threads_register_at_once_are_both_blanked():
    class Slow(str):
        """A value that another thread overtakes while the values are sorted by their lengths."""

        __slots__ = ()

        def __len__(self):
            if not other.ident:
                other.start()
                other.join(0.2)  # with a lock, the other thread waits for this one
            return super().__len__()

    other = threading.Thread(target=secrets.register_secret, args=("battery-staple",))
    secrets._registry.add(Slow("correct-horse"), certain=True)
    other.join()
    assert secrets.redact("correct-horse battery-staple") == f"{secrets.BLANK} {secrets.BLANK}"


def test_a_short_secret_does_not_ruin_every_text():
    with pytest.raises(UsageError, match="fewer than 8 characters"):
        secrets.register_secret("abc")
    assert secrets.redact("abcdef") == "abcdef"


@pytest.mark.parametrize("text", ["", "ask-me-anything", "Bearer of bad news", *PROSE])
def test_ordinary_words_stay(text):
    assert secrets.redact(text) == text


def test_opaque_data_that_holds_a_key_s_shape_by_chance_stays():
    for before in ("x", "_", "gAAAAABk-"):
        for key in (f"sk-{LONG}", "AKIA0123456789ABCDEF"):
            assert secrets.redact(before + key) == before + key


@pytest.mark.parametrize(
    ("names", "learnt"),
    [
        ("API_KEY GITHUB_TOKEN client-secret PGPASSWORD dbPassword X-Api-Key", True),
        ("KEYCLOAK_REALM MONKEY TOKENIZERS_PARALLELISM MAX_TOKENS SECRETARY PATH", False),
    ],
)
def test_a_variable_is_a_secret_if_a_whole_word_of_its_name_says_so(names, learnt):
    for number, name in enumerate(names.split()):
        secrets.learn(name, value := f"correct-horse-{number}")
        assert secrets.redact(f"a {value}") == f"a {secrets.BLANK if learnt else value}"


def test_a_word_a_number_and_a_path_are_no_secrets_whatever_their_name():
    paths = ("/run/secrets/db", "C:\\keys\\db", "keys/db.pem", "https://example.org/token")
    values = ("production", "Development", "12345678.9", "2026-11-22", "${OTHER_KEY}", "short", *paths)
    for value in values:
        secrets.learn("API_KEY", value)
        secrets.learn("OPENAI_API_KEY", value)
    assert secrets.redact(" ".join(values)) == " ".join(values)


def test_a_guess_is_blanked_on_a_screen_and_only_what_is_certain_in_what_is_stored():
    secrets.learn("SORT_KEY", "created-at-descending")
    assert secrets.redact("by created-at-descending") == f"by {secrets.BLANK}"
    secrets.learn("SOME_TOKEN", "4f9a0c27d1b3e86a5c70")
    secrets.register_names(["KEYCLOAK_REALM"])
    secrets.learn("KEYCLOAK_REALM", "horse-and-cart")
    secrets.register_secret("swordfish")
    text = f"created-at-descending 4f9a0c27d1b3e86a5c70 horse-and-cart swordfish sk-{LONG}"
    assert secrets.redact(text, keep_likely=True) == " ".join(["created-at-descending", *[secrets.BLANK] * 4])


def test_a_secret_is_blanked_in_json_in_source_and_in_an_address():
    value = "pa\"s's\nwörd/1"
    secrets.register_secret(value)
    in_json = (json.dumps(value), json.dumps(value, ensure_ascii=False))
    for written in (value, *in_json, repr(value), "?p=pa%22s%27s%0Aw%C3%B6rd%2F1"):
        assert "rd" not in secrets.redact(written)


def test_an_end_of_a_text_that_is_most_of_a_secret_is_blanked_and_one_that_may_grow_into_it_held_back():
    secrets.register_secret("correct-horse-battery")
    assert secrets.redact("It is correct-horse-b") == f"It is {secrets.BLANK}"
    assert secrets.redact("It is correct") == "It is correct"
    for note in ("…", "...", " [and more]", "\n(the first 9 of 99 characters)"):
        assert secrets.redact(f"It is correct-horse-b{note}") == f"It is {secrets.BLANK}{note}"
    assert secrets.redact("It is correct-horse-back") == "It is correct-horse-back"
    assert secrets.without_growing_secret("It is sk-abcdef") == "It is "
    assert secrets.without_growing_secret("It is sk-") == "It is sk-"  # which tells nothing


def test_the_secrets_of_the_environment_and_of_dotenv_are_learnt_by_their_names_as_a_turn_begins(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.agentmagic]\nsecrets = ["ACME_LOGIN", 7]\n')
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    names = ("KEYCLOAK_REALM", "SOME_API_KEY", "OUR_DSN", "ACME_LOGIN")
    for number, name in enumerate(names):
        monkeypatch.setenv(name, f"horse-battery-{number}")
    monkeypatch.setenv("AGENTMAGIC_SECRETS", "OUR_DSN, OTHER")
    Path(".env").write_text("DB_PASSWORD=horse-battery-8\nDB_NAME=horse-battery-9\n")
    play("hello")
    text = " ".join(f"horse-battery-{number}" for number in (0, 1, 2, 3, 8, 9))
    assert secrets.redact(text) == " ".join(["horse-battery-0", *[secrets.BLANK] * 4, "horse-battery-9"])
    assert secrets.redact("horse-battery-2 horse-battery-3", keep_likely=True) == f"{secrets.BLANK} {secrets.BLANK}"


@pytest.mark.parametrize("content", ["[tool", "[tool]\nagentmagic = 2", '[tool.agentmagic]\nsecrets = "A"'])
def test_a_pyproject_that_says_nothing_of_secrets_does_no_harm(content, monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").write_text(content)
    monkeypatch.chdir(tmp_path)
    settings.learn_secrets()


SECRETS = f"sk-{LONG} AKIA0123456789ABCDEF eyJhbGciOiJ.eyJ{LONG}.{LONG} horse-battery mysql://me:x7-Quiet@db/x".split()
SECRETS += ["correct-horse\nbattery", f"Bearer {LONG}", "Basic dXNlcjpwYXNzd29yZA=="]
WORDS = ["", "\n", "task", "s", "https://a.b:80/c", ":", "Bear", "corr", "é", "a\r\n", "a\u202eb", "\u200d", "a\u200db"]
WORDS += ["\x1b[31mred", "\U0001f469\u200d\U0001f680", "\x1b]0;title\x07", "\x1b]0;no end"]


@given(
    st.lists(st.sampled_from([*SECRETS, *WORDS]), max_size=9),
    st.lists(st.integers(1, 40), min_size=1),
    st.sampled_from([" ", "\n"]),
)
def test_a_text_that_comes_in_pieces_is_shown_as_the_whole_is(words, lengths, join):
    secrets.register_secret("correct-horse\nbattery")
    secrets.register_secret("horse-battery")
    text = join.join(words)
    stream, ready = ShownStream(), shown_whole(text)
    shown, at = "", 0
    for length in lengths * len(text):
        shown += stream.feed(text[at : at + length])
        at += length
        assert ready.startswith(shown)
    assert shown + stream.finish() == ready
