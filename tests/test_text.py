"""Text made fit to be shown: one table for all that shows it."""

import io
import logging
import re
import unicodedata

import pytest

from agentmagic import log, text
from agentmagic.display import html
from agentmagic.display import terminal as plain
from agentmagic.display.transcript import Transcript
from agentmagic.events import ApprovalAsked, Notice, PartDelta, PartStarted
from agentmagic.export import to_markdown
from agentmagic.jupyter.cell.questions import describe
from agentmagic.jupyter.cell.screens import TerminalScreen
from agentmagic.messages import Text, ToolCall
from agentmagic.tools.mcp import config, trust
from agentmagic.widgets.sync import Feed
from tests.display.logs import asked_for, one_call, one_text, over, reasoning, started
from tests.export.turns import turn

HIDDEN = [character for character in map(chr, range(0x110000)) if text.SUSPECT.match(character)]
EACH_KIND = (
    "\x07\x1b\x9b\xad\u034f\u061c\u115f\u180e\u200b\u200f\u2028\u202a\u202e\u2066\u2069\u3164\ufeff\U000e0041\ud800"
)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;run this", "0;run this"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07", "link"),
        ("\U0001f469\u200d\U0001f680 \u0645\u06cc\u200c\u062e", "\U0001f469\u200d\U0001f680 \u0645\u06cc\u200c\u062e"),
        ("good\rbad\r\n", "goodbad\r\n"),
        ("a\u200c\u200d\u200c\u200db", "ab"),
        ("\u0645\u200c\u200d\u062e", "\u0645\u062e"),
        ("\U0001d173\u180b\ufff0x", "x"),
    ],
)
def test_what_hides_or_reorders_is_taken_out(said, read):
    assert text.clean(said) == read


def test_a_long_text_is_cleaned_in_pieces():
    assert text.clean("ab\x1b[1m\u200b" * text._PIECE) == "ab" * text._PIECE


def test_the_table_holds_all_that_is_formatting_and_no_letter():
    kinds = {unicodedata.category(character) for character in HIDDEN}
    assert kinds == {"Cc", "Cf", "Cn", "Cs", "Lo", "Mn", "Zl", "Zp"}
    letters = {character for character in HIDDEN if unicodedata.category(character) == "Lo"}
    assert letters == set("\u115f\u1160\u3164\uffa0")  # fillers, which look like a space


@pytest.mark.parametrize("hidden", [*EACH_KIND.replace("\x1b", ""), *"\r\u200c\u200d"], ids=ascii)
def test_what_is_hidden_is_dropped_where_it_is_read_and_an_escape_where_it_is_judged(hidden):
    assert text.clean(f"a{hidden}b") == "ab"
    assert text.single_line(f"a{hidden}b", 10) == "ab"
    assert text.reveal(f"a{hidden}b") == f"a{hidden.encode('unicode_escape').decode()}b"


@pytest.mark.parametrize(
    "fit", ["a\tb\nc\r\n", "\U0001f469\u200d\U0001f680", "\u0645\u06cc\u200c\u062e", "é 漢字 ☎\ufe0f"]
)
def test_text_with_nothing_hidden_stays_as_it_is(fit):
    assert text.clean(fit) == fit
    assert text.reveal(fit.replace("\r", "")) == fit.replace("\r", "")


def said(words):
    """A turn in which all that can be said by others is these words."""
    call = ToolCall("c1", words, {words: words})
    events = [*one_call(call, Text(words), server=words), *started(words), *reasoning(words), *one_text(words)[2:-1]]
    return [*events, Notice("info", words), *over(words, "error", words)]


def of_a_terminal(words):
    stream = io.StringIO()
    screen = TerminalScreen(stream)
    for event in [*started(), PartStarted(0, "text"), PartDelta(0, words), *over()]:
        screen.feed(event)
    screen.finish()
    return stream.getvalue()


def of_a_log(words):
    log.keep()
    logging.getLogger("agentmagic.test").warning("%s", words)
    (line,) = log.recent(1)
    log.stop()
    return line.text


SCREENS = {
    "html": lambda words: html.render(Transcript(said(words)), prompt=True),
    "text": lambda words: plain.render(Transcript(said(words)), prompt=True),
    "view": lambda words: str(Feed(said(words)).hello("view", -1)[-1]),
    "markdown": lambda words: to_markdown([turn(*said(words))]),
    "terminal": of_a_terminal,
    "log": of_a_log,
}


@pytest.mark.parametrize("show", SCREENS.values(), ids=SCREENS)
def test_nothing_hidden_reaches_a_screen_a_document_or_a_log(show):
    shown = show(f"a{'b'.join(EACH_KIND)}z")
    assert set(EACH_KIND) & set(shown) == set()
    assert "ab" in shown


def of_a_card(words):
    events = [*started(), *asked_for(call := ToolCall("c1", "f", {words: words})), ApprovalAsked("a1", call, "shop")]
    return html.render(Transcript(events)), str(Feed(events).hello("view", -1)[-1])


def of_a_prompt(words):
    return (describe(ApprovalAsked("a1", ToolCall("c1", "f", {words: words}), "shop")),)


def of_a_command(words):
    return (trust.describe(config.parse({"command": "x", "args": [words], "env": {"A": words.replace("\r", "")}})),)


@pytest.mark.parametrize("ask", [of_a_card, of_a_prompt, of_a_command])
def test_what_a_person_approves_hides_nothing(ask):
    for shown in ask(f"a{'b'.join(EACH_KIND)}z"):
        assert set(EACH_KIND) & set(shown) == set()
        for hidden in EACH_KIND:
            assert re.search(rf"\\+{re.escape(hidden.encode('unicode_escape').decode()[1:])}", shown)


@pytest.mark.parametrize(
    ("written", "places", "expected"),
    [
        ("abc", [-1, 0, 2, 9], [0, 0, 2, 3]),
        ("a#b", [0, 1, 2, 3], [0, 1, 1, 2]),
        ("#a##b#c", [0, 1, 2, 4, 5, 6, 7], [0, 0, 1, 1, 2, 2, 3]),
        ("ab###", [2, 4, 5], [2, 2, 2]),
        ("#" + "ab" * 100_000 + "#c", [2, 200_001, 150_001, 200_003], [1, 200_000, 200_001, 200_001]),
    ],
)
def test_places_move_with_the_words_of_a_text_that_is_changed(written, places, expected):
    changed = written.replace("#", "")
    assert text.map_positions(places, written, changed, lambda piece: piece.replace("#", "")) == expected


def test_lists_and_text_are_cut_with_a_note():
    assert text.join_names(()) == "none"
    assert text.join_names(["a", "b"], 2) == "a, b"
    assert text.join_names(["a", "b", "c"], 2) == "a, b (2 of 3)"
    assert text.cut("abc", 3) == "abc"
    assert text.cut("a" * 2000, 1000).endswith("aa… (the first 1,000 of 2,000 characters)")
    assert text.cut("abcde", 2, " [{over} more]") == "ab [3 more]"
    assert text.single_line("one\n two  three", 9) == "one two…"


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("stauts", ["stats", "status", "stage"], "status"),
        ("stas", ["stats", "status"], "stats"),
        ("histroy", ["help", "history"], "history"),
        ("Mnth", ["math", "Month", "Months"], "Month"),
        ("SALES", ["sales", "sale"], "sales"),
        ("temprature", ["top_p", "temperature"], "temperature"),
        ("opnai", ["openai-chat", "openai", "ollama"], "openai"),
        ("clok", ["clock2", "xclock", "clock"], "clock"),
        ("--modle", ["--mode", "--model"], "--model"),
        ("xyz", ["sales"], ""),
        ("", ["sales"], ""),
    ],
)
def test_the_name_that_is_meant_is_the_one_that_takes_the_fewest_slips_of_the_hand(word, known, meant):
    for names in (known, known[::-1]):
        assert text.did_you_mean(word, names) == (f" Did you mean {meant}?" if meant else "")
    assert text.close_names("get_wether", ["get_weather", "set_weather", "other"], n=2) == [
        "get_weather",
        "set_weather",
    ]
