"""What is shown of a long result."""

import json

from agentmagic.display import rich_values, words
from agentmagic.messages import Text, ToolResult
from agentmagic.secrets import register_secret
from agentmagic.text import shown


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
