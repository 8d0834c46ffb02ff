"""What commands print: the text, the HTML and the page's JSON of one value."""

from typing import Any, cast

import pytest

from agentmagic.display import html, terminal
from agentmagic.display.block_json import JsonRenderer
from agentmagic.display.blocks import PrintoutBlock
from agentmagic.display.printout import PrintedFold, PrintedLine, PrintedRows, Printout, note, printout
from agentmagic.display.transcript import Transcript
from agentmagic.events import PartDelta, PartStarted, StepRetried, StepStarted
from agentmagic.secrets import register_secret
from agentmagic.widgets.sync import Feed
from tests.display.logs import MODEL, started, words_of
from tests.display.logs import text as answer

FACTS = PrintedRows([("model", "m"), ("turns", "2")])
NAMES = PrintedRows([("find", "Find it."), ("order", "")], "names", indent=2)
TABLE = PrintedRows([("1", "1,200"), ("all", "9")], "table", ("turn", "tokens"), left=1)
ROWS = {
    "a message": (note("Done. Again."), "Done. Again.", "Done. Again.", ["quiet"]),
    "no message": (note(""), "", "", []),
    "facts": (printout([FACTS]), "model  m\nturns  2", "model m turns 2", ["facts"]),
    "names": (printout([NAMES]), "  find   Find it.\n  order", "find Find it. order", ["names"]),
    "a table": (printout([TABLE]), "turn  tokens\n1      1,200\nall        9", "turn tokens 1 1,200 all 9", ["table"]),
    "the least width of a column": (
        printout([PrintedRows([("a", "connected", "2 tools")], least=14)]),
        "a               connected       2 tools",
        "a connected 2 tools",
        ["facts"],
    ),
    "a part that opens": (printout([PrintedFold("Tools", "f: x")]), "-- Tools --\nf: x", "Tools f: x", ["fold"]),
    "groups, and parts without content": (
        printout(["One.", "", "Two."], "", [PrintedLine("Of", "heading"), FACTS], []),
        "One.\nTwo.\n\nOf\nmodel  m\nturns  2",
        "One. Two. Of model m turns 2",
        ["line", "line", "heading", "facts"],
    ),
    "a text that is laid out already": (
        Printout([[FACTS]], plain="laid out"),
        "laid out",
        "model m turns 2",
        ["facts"],
    ),
}


@pytest.mark.parametrize(("shown", "text", "page", "parts"), ROWS.values(), ids=ROWS)
def test_one_value_is_text_html_and_what_a_page_draws(shown, text, page, parts):
    assert shown.text == text
    assert words_of(shown.html()) == page
    assert [part["part"] for part in shown.fields()] == parts
    assert shown.bundle() == {"text/html": shown.html(), "text/plain": text}


def everywhere(words):
    """A printout with these words in each place."""
    lines = [PrintedLine(words, look) for look in ("line", "quiet", "heading", "code")]
    return printout(lines, [PrintedRows([(words, words)], "table", (words, words)), PrintedFold(words, words)])


def test_every_word_is_escaped_and_no_secret_is_shown():
    words, places = "<img src=x onerror=fired()>", 10
    shown = everywhere(words).html()
    assert "<img" not in shown
    assert shown.count("&lt;img src=x onerror=fired()&gt;") == places
    register_secret("hunter2-hunter2")
    kept = everywhere("is hunter2-hunter2")
    for text in (kept.text, kept.html(), str(kept.fields())):
        assert "hunter2" not in text


def test_a_conversation_has_it_in_its_place_until_another_history_is_shown():
    feed = Feed([*started(), *answer("Yes.")])
    feed.show(printout([FACTS]), "/status")
    transcript = feed.transcript
    block = transcript.blocks[-1]
    assert words_of(html.render(transcript)) == "Yes. /status model m turns 2"
    assert terminal.render(transcript) == "Yes.\n\n/status\nmodel  m\nturns  2"
    assert block.render(JsonRenderer()) == {
        "kind": "printout",
        "line": "/status",
        "card": True,
        "parts": printout([FACTS]).fields(),
    }
    snapshot = cast("Any", feed.hello("another view", -1)[-1])
    assert snapshot["blocks"][-1][1] == block.render(JsonRenderer())
    feed.replace(started())
    assert not [one for one in transcript.blocks if isinstance(one, PrintoutBlock)]


def test_a_step_that_is_tried_again_leaves_it():
    transcript = Transcript([*started(), StepStarted(1, MODEL), PartStarted(0, "text"), PartDelta(0, "half")])
    transcript.show(note("Wrote 1 turn."))
    transcript.feed(StepRetried(1, 1, 2.0, "Rate limited."))
    assert words_of(html.render(transcript)).startswith("Wrote 1 turn. Rate limited")
