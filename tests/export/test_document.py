import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agentmagic import secrets
from agentmagic.events import PromptValue, TurnStarted
from agentmagic.export import to_markdown
from agentmagic.messages import Resource, Text, ToolCall, user
from tests.display.logs import (
    everywhere,
    one_call,
    one_text,
)
from tests.display.test_html_attacks import PAYLOADS
from tests.export.turns import turn

CALL = ToolCall("c1", "area", {"width": 3, "height": 7})

HEADING = r"<details>\n<summary>(Thought|. <code>[^<>\n]*</code>[^<>\n]*|[^<>\n]*\(3 tokens\))</summary>"
"""The one HTML that an export writes, with its end."""


def markdown(*events):
    return to_markdown([turn(*events)])


def said(words):
    return turn(*everywhere(words))


def strange_html(document):
    """The HTML of a document that is not an export's own, and what is left open at its end."""
    tokens = MarkdownIt("commonmark").enable("table").parse(document)
    own = [token.content.rstrip("\n") for token in tokens if token.type == "html_block"]
    strange = [html for html in own if not re.fullmatch(rf"{HEADING}|</details>", html)]
    strange += [child.content for token in tokens for child in token.children or [] if child.type == "html_inline"]
    for opening, end in zip(own[::2], own[1::2], strict=False):
        strange += [] if opening.startswith("<details>") and end == "</details>" else [opening, end]
    return strange + own[len(own) // 2 * 2 :]


def headings(document):
    """The headings of the turns, as a reader sees them."""
    tokens = MarkdownIt("commonmark").parse(document)
    spoken = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    return [words for words in spoken if words.startswith("Turn ")]


def test_long_results_and_texts_are_cut_with_a_note():
    document = markdown(*one_call(CALL, Text("x" * 30_000)))
    assert "The first 20,000 of 30,000 characters." in document
    assert "x" * 20_001 not in document
    assert "The first 200,000 of 300,000 characters." in markdown(*one_text("y" * 300_000))


FRAME = "DataFrame, 2 rows x 1 column.\n\n| a |\n| --- |\n| 1 |\n| 2 |"


@pytest.mark.parametrize(
    ("written", "parts", "after"),
    [
        (
            "@sales",
            ["Sum @sales.", Resource("variable:sales", "sales", "text/plain", FRAME)],
            "<details>\n<summary>@sales: ",
        ),
        ("{sales}", [f"Sum\n\n{FRAME}"], "*{sales}: DataFrame, 2 rows (3 tokens)*"),
    ],
)
def test_a_frame_in_a_prompt_is_quoted_once(written, parts, after):
    value = PromptValue(written, "table", "DataFrame, 2 rows", 3, FRAME)
    document = markdown(TurnStarted(user(*parts), "test:model", (value,)), *one_text("3")[1:])
    assert document.count("| 2 |") == 1
    assert f"\n\n{after}" in document
    assert "> Sum" in document
    other = Resource("file://notes.txt", "notes", "text/plain", "Read me.")
    assert "Read me." in markdown(TurnStarted(user("Sum", other), "test:model", (value,)), *one_text("3")[1:])


def test_turns_are_numbered_and_a_fence_left_open_ends_with_its_text():
    document = to_markdown([turn(*one_text("Look:\n~~~~python\nx = 1")), turn(*one_text("Two."))])
    assert "~~~~python\nx = 1\n~~~~\n" in document
    assert headings(document) == ["Turn 1", "Turn 2"]
    assert to_markdown([]) == "\n"


@pytest.mark.parametrize(
    "words",
    [
        *PAYLOADS,
        "```",
        "````\n```\n`````",
        "text\n\n<pre>\n\n```\n</pre>",
        "<!--\n```\n-->\n```\n<script>\n```",
        "| ` | </details> | ` |\n|---|---|---|\n| ` | <b> | ` |",
        "\x1b[31mred\x00\x07\u202e",
        "\ud800",
        "\t<script>\n",
        "a\r</details>\rb",
        "",
    ],
)
def test_no_words_reach_out_of_their_place(words):
    document = to_markdown([said(words), turn(*one_text("The end."))])
    assert strange_html(document) == []
    assert headings(document)[-1] == "Turn 2"
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e\ud800-\udfff]", document)


_FENCES = ["```", "~~~", "`"]
_HTML = ["<details>", "</details>", "<summary>", "<!--", "-->", "<script>", "<b", "<?", "<![CDATA[", "]]>", "<a@b.c>"]
_MARKS = ["|", "\n", "\n\n", "> ", "- ", "1. ", "    ", "\t", "\\", "a", "&lt;", "\r", "|---|", "[a]: <b>", "="]


@settings(deadline=None)
@given(st.lists(st.sampled_from([*_FENCES, *_HTML, *_MARKS]), max_size=14).map("".join))
def test_no_mixture_of_marks_reaches_out_of_its_place(words):
    document = to_markdown([said(words), turn(*one_text("The end."))])
    assert strange_html(document) == []
    assert headings(document)[-1] == "Turn 2"


def test_secrets_are_blanked_everywhere():
    secrets.register_secret("my-own-password")
    document = to_markdown([said("my-own-password"), said("sk-abcdefghijklmnopqrstuvwx")])
    assert "my-own-password" not in document
    assert "sk-abc" not in document
