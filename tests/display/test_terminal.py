"""Blocks to plain text."""

import json

import pytest
from hypothesis import given, settings

from agentmagic.display import terminal as plain
from agentmagic.display import words
from agentmagic.display.blocks import FooterBlock, ToolCard
from agentmagic.display.transcript import Transcript
from agentmagic.events import (
    ApprovalAsked,
    Notice,
    PartDelta,
    PartStarted,
    PromptValue,
    QuestionAnswered,
    QuestionAsked,
    StepRetried,
    StepStarted,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from agentmagic.messages import Media, Text, ToolCall, ToolResult, Usage, user
from tests.display.logs import (
    MODEL,
    asked_for,
    carried_out,
    logs,
    one_call,
    one_text,
    over,
    reasoning,
    started,
    step_over,
    text,
    without_deltas,
)

CALL = ToolCall("call-4711", "run_query", {"sql": "SELECT name\nFROM products", "limit": 3})
FOOTER = "scripted:lesson · 2 requests · 1,200 tokens in (200 cached), 34 out · $0.0019 · 7.3 s"


def rendered(events, **options):
    return plain.render(Transcript(events), **options)


def test_the_values_of_a_prompt_are_told_one_a_line():
    values = (PromptValue("{x}", "text", "3", 1, "3"), PromptValue("@fig", "image", "Figure as an image", 1_000))
    events = [TurnStarted(user("Look."), MODEL, values), *over("Fine.")]
    told = ["{x}: 3 (1 token)", "@fig: Figure as an image (1,000 tokens)"]
    assert rendered(events).splitlines()[:2] == told


def test_a_turn_reads_from_top_to_bottom():
    events = [*started(), *reasoning("I need the table.", 0), *text("I look.", 1), *asked_for(CALL, 2), *step_over()]
    result = ToolResult(CALL.id, CALL.name, (Text('[{"name": "Lamp", "total": 12480}, {"name": "Desk", "total": 9}]'),))
    events += [*carried_out(CALL, result), *text("Lamp."), *step_over(2), *over("Lamp.")]
    assert rendered(events).splitlines() == [
        *["Thought", "  I need the table.", ""],
        *["I look.", ""],
        "✓ run_query (shop) sql: SELECT name FROM products, limit: 3 [31 ms]",
        *["  name  total", "  Lamp  12480", "  Desk      9", ""],
        *["Lamp.", "", FOOTER],
    ]


def test_cards_in_a_row_stand_close_together():
    other = ToolCall("c2", "list_tables", {})
    events = [*started(), *asked_for(CALL, 0), *asked_for(other, 1), *step_over()]
    assert rendered(events) == "◌ run_query sql: SELECT name FROM products, limit: 3\n◌ list_tables"


def test_without_times_nothing_depends_on_the_clock_or_on_ids():
    events = [*one_call(CALL, Text("3 rows")), *started(), StepRetried(1, 1, 2.0, "Rate limited.")]
    printed = rendered(events, times=False)
    assert "ms" not in printed
    assert "7.3 s" not in printed
    assert "2 s" not in printed
    assert CALL.id not in printed


@given(logs())
@settings(deadline=None, max_examples=30)
def test_a_log_without_its_deltas_prints_the_same(events):
    assert rendered(events) == rendered(without_deltas(events))


def test_a_long_result_prints_its_first_lines_and_its_length():
    printed = rendered(one_call(CALL, Text("\n".join(f"line {n}" for n in range(1000)))))
    assert "line 11\n  … (8,889 characters)" in printed
    assert "line 12" not in printed


def test_a_result_without_line_breaks_is_cut_too():
    assert len(rendered(one_call(CALL, Text("x" * 100_000)))) < 2_000


def test_an_image_is_named():
    result = ToolResult(CALL.id, CALL.name, (Media("image/png", b"1234", "plot"), Media("image/gif", b"12")))
    printed = rendered([*started(), *asked_for(CALL), *step_over(), *carried_out(CALL, result)])
    assert "[image/png plot, 4 bytes]" in printed
    assert "[image/gif, 2 bytes]" in printed


def test_wide_characters_keep_their_columns():
    printed = rendered(one_call(CALL, Text('[{"city": "東京", "n": 1}, {"city": "Rome", "n": 2}]')))
    assert "  東京  1\n  Rome  2" in printed


def test_a_waiting_card_prints_all_arguments():
    code = "\n".join(f"line_{n} = {n}" for n in range(50))
    call = ToolCall("c", "run_python", {"code": code})
    printed = rendered([*started(), *asked_for(call), *step_over(), ApprovalAsked("a", call, "notebook")])
    assert printed.startswith("‖ run_python (notebook) [waits for you]\n  code  line_0 = 0\n        line_1 = 1")
    assert "line_49 = 49" in printed


def test_a_running_card_prints_how_far_it_is():
    events = [*started(), *asked_for(ToolCall("c", "fit", {})), *step_over()]
    printed = rendered([*events, ToolStarted(ToolCall("c", "fit", {}), "notebook"), ToolProgress("c", 3, 5, "fitting")])
    assert printed == "◐ fit (notebook) [running · 3 of 5 fitting]"


def test_errors_warnings_questions_and_retries_are_told():
    events = [*started(), Notice("warning", "Five tools at most."), StepRetried(1, 1, 2.0, "Rate limited.")]
    events += [
        StepStarted(2, MODEL),
        QuestionAsked("q", "Which folder?"),
        QuestionAnswered("q", "data"),
        *over("", "error", "No key."),
    ]
    assert rendered(events).split("\n\n")[:4] == [
        "Warning: Five tools at most.",
        "Rate limited, trying again in 2 s (2 of 5)",
        "? Which folder?\n  data",
        "Error: No key.",
    ]


def test_half_an_answer_says_interrupted_once():
    printed = rendered([*started(), *text("half"), *step_over(interrupted=True), *over("half", "cancelled")])
    assert printed == f"half\n\n{FOOTER} · interrupted"


def test_the_retry_that_failed_too_is_part_of_the_error():
    retries = [StepRetried(1, 1, 0.5, "Busy."), StepRetried(1, 2, 1.0, "Busy.")]
    printed = rendered([*started(), *retries, *over("", "error", "Busy.")])
    assert printed == f"Error: Busy. (tried 3 times)\n\n{FOOTER} · failed"


def test_the_prompt_is_printed_only_where_asked_for():
    assert "Hello" not in rendered(one_text("Hi"))
    assert rendered(one_text("Hi"), prompt=True).startswith("> Hello\n\nHi")


def test_arguments_are_printed_while_they_are_written():
    events = [*started(), PartStarted(0, "tool_call", "run_query"), PartDelta(0, '{"sql": "SEL')]
    assert rendered(events) == '◌ run_query {"sql": "SEL'


def test_terminal_escapes_and_keys_are_not_printed():
    bad = "\x1b]0;title\x07\x1b[31mred \x9b2J sk-" + "a1B2" * 8
    printed = rendered([*one_call(ToolCall("c", bad, {bad: bad}), Text(bad)), *one_text(bad)], prompt=True)
    assert not set("\x1b\x07\x9b") & set(printed)
    assert "a1B2" not in printed


@pytest.mark.parametrize(
    ("dollars", "expected"),
    [
        (None, "price unknown"),
        (0.0, "no charge"),
        (0.00002, "less than $0.0001"),
        (0.0019, "$0.0019"),
        (12.5, "$12.50"),
    ],
)
def test_a_cost_is_said_with_the_figures_that_count(dollars, expected):
    block = FooterBlock("", Usage(1, 0, 1, 0, 1, dollars), 0.0, None)
    assert list(words.footer(block, times=True))[-1] == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0001, "1 ms"), (0.031, "31 ms"), (3.44, "3.4 s"), (59.96, "60.0 s"), (72, "1 min 12 s"), (119.7, "2 min 0 s")],
)
def test_a_duration_is_said_as_a_person_would(seconds, expected):
    assert words.duration(seconds) == expected


def test_the_columns_of_one_long_line_are_found_in_a_time_that_grows_with_its_length():
    line = "a  b " * 200_000  # with a quadratic search, this takes hours
    assert words.stretches(f"{line}\nend") == [(f"{line}\nend", False)]


def test_a_brief_renderer_keeps_a_call_and_the_start_of_its_result_on_one_line():
    table = ToolResult(CALL.id, CALL.name, (Text('[{"name": "Lamp", "total": 12480}, {"name": "Desk", "total": 9}]'),))
    failed = ToolResult(CALL.id, CALL.name, (Text("No such table.\n" * 9),), "error")
    for result, end in (
        (table, "[31 ms] → name total Lamp 12480 Desk 9"),
        (failed, "[failed · 31 ms] → No such table. No"),
    ):
        (card,) = [
            one for one in Transcript([*started(), *carried_out(CALL, result)]).blocks if isinstance(one, ToolCard)
        ]
        line = card.render(plain.TextRenderer(brief=True))
        assert end in line
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
    printed = rendered(one_call(ToolCall("c", "f", {"a": "x " * 500_000}), Text(json.dumps("ok"))))
    assert len(printed.splitlines()[0]) < 150


def test_a_long_argument_loses_its_middle_and_no_other_argument():
    text = words.written_out({"text": "x" * 50_000 + "the end", "path": "/etc"} | {f"more{n}": n for n in range(300)})
    assert "the end\n" in text
    assert "\npath" in text
    assert "of 50,007 characters are not shown" in text
    assert text.endswith("(102 more arguments are not shown)")


def test_what_cannot_be_seen_in_an_argument_stands_as_its_escape():
    text = words.written_out({"a\nb": "\x1b[2J", "name": "txt.\u202eexe", "deep": [{"k\u200b": "\U000e0041"}]})
    assert text == 'a b   \\x1b[2J\nname  txt.\\u202eexe\ndeep  [{"k\\u200b": "\\U000e0041"}]'
