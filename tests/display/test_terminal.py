"""Blocks to plain text, and the words and figures that all renderers share."""

import pytest

from agentmagic.display import call_words, words
from agentmagic.display import terminal as plain
from agentmagic.display.blocks import ToolCard
from agentmagic.display.transcript import Transcript
from agentmagic.events import StepRetried, ToolStarted
from agentmagic.messages import Text, ToolCall, ToolResult
from tests.display.logs import (
    asked_for,
    carried_out,
    one_call,
    one_text,
    over,
    reasoning,
    started,
    step_over,
    text,
)

CALL = ToolCall("call-4711", "run_query", {"sql": "SELECT name\nFROM products", "limit": 3})
FOOTER = "scripted:lesson · 7.3 s · $0.0019"


def rendered(events, **options):
    return plain.render(Transcript(events), **options)


def test_a_turn_reads_from_top_to_bottom_with_calls_in_a_row_close_together():
    events = [*started(), *reasoning("I need the table.", 0), *text("I look.", 1), *asked_for(CALL, 2), *step_over()]
    result = ToolResult(CALL.id, CALL.name, (Text('[{"city": "東京", "total": 12480}, {"city": "Rome", "total": 9}]'),))
    events += [*carried_out(CALL, result), ToolStarted(ToolCall("c2", "look", {}), ""), *text("Lamp."), *step_over(2)]
    assert rendered([*events, *over("Lamp.", "cancelled")]).splitlines() == [
        *["Thought", "  I need the table.", ""],
        *["I look.", ""],
        "✓ run_query (shop) sql: SELECT name FROM products, limit: 3 [31 ms]",
        *["  city  total", "  東京  12480", "  Rome      9"],
        *["■ look [interrupted]", ""],
        *["Lamp.", "", f"{FOOTER} · stopped"],
    ]


def test_a_long_result_prints_its_first_lines_and_its_length():
    printed = rendered(one_call(CALL, Text("\n".join(f"line {n}" for n in range(1000)))))
    assert "line 11\n  … (8,889 characters)" in printed
    assert "line 12" not in printed
    assert len(rendered(one_call(CALL, Text("x" * 100_000)))) < 2_000


def test_the_retry_that_failed_too_is_part_of_the_error():
    retries = [StepRetried(1, 1, 0.5, "Busy."), StepRetried(1, 2, 1.0, "Busy.")]
    printed = rendered([*started(), *retries, *over("", "error", "Busy.")])
    assert printed == f"Error: Busy. (tried 3 times)\n\n{FOOTER}"


def test_terminal_escapes_and_keys_are_not_printed():
    bad = "\x1b]0;title\x07\x1b[31mred \x9b2J sk-" + "a1B2" * 8
    printed = rendered([*one_call(ToolCall("c", bad, {bad: bad}), Text(bad)), *one_text(bad)], prompt=True)
    assert not set("\x1b\x07\x9b") & set(printed)
    assert "a1B2" not in printed


def test_costs_and_durations_are_said_with_the_figures_that_count():
    costs = {None: "price unknown", 0.0: "no charge", 2e-5: "less than $0.0001", 0.0019: "$0.0019", 12.5: "$12.50"}
    assert {dollars: words.cost(dollars) for dollars in costs} == costs
    durations = {1e-4: "1 ms", 0.031: "31 ms", 59.96: "60.0 s", 72: "1 min 12 s", 119.7: "2 min 0 s"}
    assert {seconds: words.duration(seconds) for seconds in durations} == durations


def test_the_columns_of_one_long_line_are_found_in_a_time_that_grows_with_its_length():
    line = "a  b " * 200_000  # with a quadratic search, this takes hours
    assert words.stretches(f"{line}\nend") == [(f"{line}\nend", False)]


@pytest.mark.parametrize(
    ("status", "content", "end"),
    [
        ("ok", '[{"name": "Lamp", "total": 12480}]', "[31 ms] → name total Lamp 12480"),
        ("error", "No such table.\n" * 99, "No such table.…"),
    ],
)
def test_a_brief_renderer_keeps_a_call_and_the_start_of_its_result_on_one_line(status, content, end):
    result = ToolResult(CALL.id, CALL.name, (Text(content),), status)
    (card,) = [one for one in Transcript([*started(), *carried_out(CALL, result)]).blocks if isinstance(one, ToolCard)]
    line = card.render(plain.TextRenderer(brief=True))
    assert line.endswith(end)
    assert "\n" not in line
    assert len(line) < 250


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("one", ""),
        ("one\n\ntwo", "one\n\n"),
        ("one\n\n```python\na\n\nb", "one\n\n"),
        ("```\na\n\nb\n```\n\nend", "```\na\n\nb\n```\n\n"),
    ],
)
def test_growing_markdown_is_cut_between_paragraphs(text, whole):
    assert plain.split_paragraphs(text) == (whole, text[len(whole) :])


def test_a_huge_argument_is_one_short_line_in_the_heading():
    assert len(rendered(one_call(ToolCall("c", "f", {"a": "x " * 500_000}), Text("ok"))).splitlines()[0]) < 150


def test_a_long_argument_loses_its_middle_and_no_other_argument():
    text = call_words.format_arguments(
        {"text": "x" * 50_000 + "the end", "path": "/etc"} | {f"more{n}": n for n in range(300)}
    )
    assert "the end\n" in text
    assert "\npath" in text
    assert "of 50,007 characters are not shown" in text
    assert text.endswith("(102 more arguments are not shown)")


def test_what_cannot_be_seen_in_an_argument_stands_as_its_escape():
    text = call_words.format_arguments(
        {"a\nb": "\x1b[2J", "name": "txt.\u202eexe", "deep": [{"k\u200b": "\U000e0041"}]}
    )
    assert text == 'a b   \\x1b[2J\nname  txt.\\u202eexe\ndeep  [{"k\\u200b": "\\U000e0041"}]'
