"""What is shown of a long result."""

import json

from agentmagic.display import html, rich_values, words
from agentmagic.display.transcript import Transcript
from agentmagic.messages import Media, Text, ToolCall, ToolResult
from agentmagic.secrets import register_secret
from agentmagic.text import shown
from tests.display.logs import carried_out, started


def shown_of(text: str) -> rich_values.PlainText:
    (form,) = rich_values.forms(ToolResult("c", "f", (Text(text),)))
    assert isinstance(form, rich_values.PlainText)
    return form


def test_of_a_huge_result_only_what_is_shown_is_looked_through_for_secrets(monkeypatch):
    seen: list[int] = []

    def recorded(text: str) -> str:
        seen.append(len(text))
        return shown(text)

    monkeypatch.setattr(rich_values, "shown", recorded)
    form = shown_of("z" * 3_000_000)
    assert len(form.text) == words.LONGEST_RESULT
    assert form.note.startswith("The first 20,000 of 3,000,000 characters.")
    assert sum(seen) < 2 * words.LONGEST_RESULT


def test_a_long_result_is_shown_as_a_whole_if_asked_for():
    long = ToolResult("c", "f", (Text("z" * 30_000), Text(json.dumps([{"a": row} for row in range(100)]))))
    text, table = rich_values.forms(long, whole=True)
    assert (text.text, text.note) == ("z" * 30_000, "")
    assert (len(table.rows), table.note) == (100, "")
    (cut,) = rich_values.forms(ToolResult("c", "f", (Text("z" * 3_000_000),)), whole=True)
    assert cut.note.startswith("The first 2,000,000 of 3,000,000 characters.")


def test_a_key_at_the_cut_is_blanked_before_it_is_cut():
    register_secret("a-key-that-no-pattern-knows")
    form = shown_of("z" * (words.LONGEST_RESULT - 5) + "a-key-that-no-pattern-knows" + "z" * 5000)
    assert "a-key" not in form.text


CALL = ToolCall("c", "f", {})
PNG = Media("image/png", b"x")


def card_of(*content, rich=()):
    """Return the static card of a call with this result."""
    return html.render(Transcript([*started(), *carried_out(CALL, ToolResult("c", "f", content), rich=rich)]))


def test_html_of_a_part_is_shown_in_its_place():
    page = card_of(Text("before"), Text("a b"), rich=("", "<table><tr><td>1</td></tr></table>"))
    assert "<td>1</td>" in page
    assert "before" in page
    assert "a b" not in page


def test_html_that_is_nothing_once_it_is_clean_leaves_the_text():
    assert "the text" in card_of(Text("the text"), rich=("<script>alert(1)</script>",))


def test_a_secret_is_blanked_in_html_too():
    register_secret("hunter-two-secret")
    assert "hunter" not in card_of(Text("text"), rich=("<b>hunter-two-secret</b>",))


def test_pictures_stand_open_outside_the_card_that_closes():
    details, _, below = card_of(Text("words"), PNG, PNG).partition("</details>")
    assert "words" in details
    assert "<img" not in details
    assert below.count("<img") == 2


def test_a_picture_is_as_wide_as_its_html_says_and_shows_nothing_else_of_it():
    hostile = '<img width="9" src="https://elsewhere.example/x.png" onerror="alert(1)">'
    page = card_of(PNG, PNG, PNG, rich=('<img width="320">', "", hostile))
    _, first, second, third = page.split("<img ")
    assert 'width="320"' in first
    assert "width=" not in second
    assert "width=" not in third
    assert "elsewhere" not in page


def test_a_call_with_a_picture_does_not_fold_into_a_group():
    def calls(number, *content):
        return carried_out(ToolCall(str(number), "f", {}), ToolResult(str(number), "f", content))

    log = [event for number in range(6) for event in calls(number, Text("words"))]
    pictured = [*log[:6], *calls(7, PNG), *log[6:]]
    assert "6 calls" in html.render(Transcript([*started(), *log]))
    assert "calls" not in html.render(Transcript([*started(), *pictured]))
    assert "<img" in html.render(Transcript([*started(), *pictured]))


def test_nested_json_is_a_tree_and_huge_json_is_text():
    page = card_of(Text('{"a": {"b": [1, {"c": "a long word that takes this JSON over one line, or so it seems"}]}}'))
    assert page.count("<details") == 4
    assert "<b>c</b>: a long word" in page
    many = json.dumps({"rows": [[number] for number in range(2_000)]})
    assert card_of(Text(many)).count("<details") == 1
