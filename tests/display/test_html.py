"""Blocks to HTML: what is shown, and what it costs."""

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings

from agentmagic import secrets
from agentmagic.display import html
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
from agentmagic.messages import Media, Message, Resource, Text, ToolCall, ToolResult
from tests.display.logs import (
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
)

CALL = ToolCall("call-4711", "run_query", {"sql": "SELECT name\nFROM products", "limit": 3})
KEY = "sk-" + "a1B2" * 8


def rendered(events, **options):
    return html.render(Transcript(events), **options)


class _Words(HTMLParser):
    INLINE = ("b", "code", "em", "font", "small", "span", "strong")

    def __init__(self):
        super().__init__()
        self.pieces = []

    def handle_starttag(self, tag, attrs):
        self.pieces.append("" if tag in self.INLINE else " ")

    def handle_data(self, data):
        self.pieces.append(data)


def words(fragment):
    """The text that is left where a page strips all styles."""
    parser = _Words()
    parser.feed(fragment)
    return " ".join("".join(parser.pieces).split())


def test_a_card_reads_in_order_without_any_style():
    fragment = rendered(one_call(CALL, Text("3 rows")))
    assert words(fragment) == (
        "✓ run_query shop sql: SELECT name FROM products, limit: 3 31 ms "
        "Arguments sql SELECT name FROM products limit 3 Result 3 rows "
        "scripted:lesson · 2 requests · 1,200 tokens in (200 cached), 34 out · $0.0019 · 7.3 s"
    )


def test_a_traceback_is_folded_in_its_card():
    failed = ToolResult(CALL.id, CALL.name, (Text("ValueError: <no>"),), "error")
    fragment = rendered([*started(), *asked_for(CALL), *carried_out(CALL, failed, traceback="File <a>"), *over()])
    assert "Error ValueError: <no> Traceback File <a>" in words(fragment)
    assert fragment.count("<details") == 2
    assert "<details open" not in fragment


def test_cards_open_without_a_script():
    fragment = rendered(one_call(CALL, Text("3 rows")))
    assert "<details><summary" in fragment
    assert fragment.count("<details") == fragment.count("</details>") == 1


def test_what_is_set_in_columns_says_its_font():
    fragment = rendered(one_call(CALL, Text("name  total")))
    styles = re.findall(r'<pre style="([^"]*)"', fragment)
    assert styles
    assert all("monospace" in style for style in styles)


def test_there_is_no_style_sheet_no_script_and_no_drawing():
    fragment = rendered([*one_call(CALL, Text("x")), *one_text("# T\n\n`a` $x$")])
    assert not re.search(r"<(style|script|svg|link|iframe)", fragment)


def test_every_colour_is_a_variable_with_a_fallback():
    fragment = rendered([*one_call(CALL, Text('[{"a": 1}]')), *one_text("```\nx\n```")])
    assert set(re.findall(r"var\(--jp-[a-z0-9-]+(.)", fragment)) == {","}


def test_markdown_becomes_html():
    fragment = rendered(one_text("**b** `c` ~~s~~\n\n- one\n\n| a | b |\n|---|--:|\n| x | 1 |\n\n```text\n1 < 2\n```"))
    for piece in ("<strong>b</strong>", "<code>c</code>", "<s>s</s>", "<li>one</li>", "1 &lt; 2\n</code></pre>"):
        assert piece in fragment
    assert '<td style="text-align:left">x</td>\n<td align="right">1</td>' in fragment


def contrast(colour, ground):
    """The contrast of two colours, as WCAG has it."""

    def light(written):
        parts = (int(written[place : place + 2], 16) / 255 for place in (1, 3, 5))
        return sum(
            share * (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)
            for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True)
        )

    dark, bright = sorted((light(colour), light(ground)))
    return (bright + 0.05) / (dark + 0.05)


def test_code_is_coloured_without_variables_so_that_light_and_dark_pages_show_it_alike():
    fragment = rendered(one_text('```python\ndef ask(x):\n    return "<b>"  # why\n```'))
    coloured = dict(re.findall(r'<font color="(#\w+)">([^<]*)</font>', fragment))
    assert set(coloured.values()) >= {"ask", '"&lt;b&gt;"', "# why"}
    assert all(min(contrast(colour, "#ffffff"), contrast(colour, "#111111")) > 4 for colour in coloured)


def test_code_that_is_being_written_is_coloured_once_it_is_whole():
    turn = [*started(), PartStarted(0, "text"), PartDelta(0, "```python\ndef ask(x):")]
    assert 'color="#' not in rendered(turn, live=True).partition("</code>")[0]
    assert '<font color="#a855c7">def</font>' in rendered(one_text("```python\ndef ask(x):\n```"))


def test_prose_is_limited_in_width_and_code_and_tables_are_not():
    words = "Some words.\n\n- and\n- a list\n\n```text\ncode\n```\n\n| a |\n|---|\n| x |\n\nThe end."
    fragment = rendered(one_text(words))
    prose = re.findall(r'<div style="max-width:42em">(.*?)</div>', fragment, re.DOTALL)
    assert [re.sub(r"<[^>]*>|\n", " ", one).split() for one in prose] == [
        ["Some", "words.", "and", "a", "list"],
        ["The", "end."],
    ]


@pytest.mark.parametrize("number", [4, 5])
def test_more_than_four_calls_in_a_row_fold_into_a_group_with_their_states(number):
    turn = started()
    for place in range(number):
        call = ToolCall(f"c{place}", "look", {})
        result = ToolResult(call.id, "look", (Text("no"),), "ok" if place else "error")
        turn += [StepStarted(place + 1, "m"), *reasoning("And now?"), *asked_for(call, 1), *step_over(place + 1)]
        turn += carried_out(call, result)
    fragment = rendered(turn)
    assert fragment.count("And now?") == number
    assert (f">{number} calls</b>" in fragment) == (number > 4)
    assert ("1 failed" in fragment) == (number > 4)


def test_a_data_frame_in_a_prompt_keeps_its_columns_and_what_is_attached_is_named():
    frame = "   name  total\n0  Lamp      1\n1  Desk      2"
    prompt = Message("user", (Text(f"What is\n{frame}"), Resource("variable:sales", "sales", "", "a  b\n1  2")))
    fragment = rendered([TurnStarted(prompt, "m"), *over("A table.")], prompt=True)
    assert f">{frame}</pre>" in fragment
    assert ">sales</summary>" in fragment


VALUES = (
    PromptValue("{sales}", "table", "DataFrame, 1 row x 2 columns", 20, "| city | sold |\n| --- | --- |\n| Oslo | 3 |"),
    PromptValue("@fig", "image", "Figure as an image", 1_000),
    PromptValue("@notes.txt", "file", "text/plain, 3 bytes", 1, f"<b>{KEY}</b>"),
)
ATTACHED = Message(
    "user", (Text("Look."), Media("image/png", b"drawn", "fig"), Resource("file:notes.txt", "notes.txt"))
)


def test_what_the_values_of_a_prompt_became_is_one_line_that_opens_also_where_the_prompt_is_not_shown():
    fragment = rendered([TurnStarted(ATTACHED, "m", VALUES), *over("Fine.")])
    line = (
        "{sales}: DataFrame, 1 row x 2 columns (20 tokens) · @fig: Figure as an image (1,000 tokens) · "
        "@notes.txt: text/plain, 3 bytes (1 token)"
    )
    assert f"<small>{line}</small></summary>" in fragment
    assert "<td" in fragment
    assert "data:image/png;base64,ZHJhd24=" in fragment
    assert "&lt;b&gt;[redacted]&lt;/b&gt;" in fragment
    assert "Look." not in fragment
    whole = rendered([TurnStarted(ATTACHED, "m", VALUES), *over("Fine.")], prompt=True)
    assert whole.count(">notes.txt</summary>") == 0


@pytest.mark.parametrize("maths", ["$a_1 * b_2 * c$", "$$\nx *y* z\n$$", r"\(a*b*c\)", r"\[ a*b*c \]"])
def test_maths_is_left_as_it_is_written(maths):
    assert maths in rendered(one_text(f"So {maths} holds."))


@pytest.mark.parametrize("amounts", ["$5 and $6", r"\$5 and \$6"])
def test_two_amounts_of_money_are_not_taken_for_maths(amounts):
    assert "<span>$</span>5 and <span>$</span>6" in rendered(one_text(f"It costs {amounts}."))


def test_a_link_opens_without_telling_where_it_came_from():
    fragment = rendered(one_text("[docs](https://example.org/a) <mailto:a@example.org>"))
    assert '<a href="https://example.org/a" rel="noopener noreferrer">docs</a>' in fragment
    assert 'href="mailto:a@example.org"' in fragment


def test_a_remote_image_is_named_and_an_enclosed_one_is_shown():
    fragment = rendered(one_text("![far](https://example.org/x.png) ![near](data:image/png;base64,AAAA)"))
    assert "[image: far]" in fragment
    assert '<img src="data:image/png;base64,AAAA" alt="near">' in fragment
    assert "example.org" not in fragment


def test_a_list_of_records_is_a_table_with_figures_to_the_right():
    fragment = rendered(one_call(CALL, Text('{"result": [{"name": "Lamp", "total": 12480}, {"name": "Desk"}]}')))
    assert '<td style="text-align:left">Lamp</td><td align="right">12480</td>' in fragment
    assert '<td style="text-align:left">Desk</td><td align="right"></td>' in fragment


def test_other_json_is_a_tree_and_short_json_stays_on_its_line():
    fragment = rendered(one_call(CALL, Text(json.dumps({"a": {"b": ["x" * 40, "y" * 40]}}))))
    assert f"<b>1</b>: {'y' * 40}" in fragment
    assert "[1, 2]" in rendered(one_call(CALL, Text("[1,2]")))


def test_a_structured_value_is_shown_where_there_is_no_content():
    result = ToolResult(CALL.id, CALL.name, (), structured={"slope": 3.2})
    events = [*started(), *asked_for(CALL), *step_over(), *carried_out(CALL, result), *over()]
    assert "{&#34;slope&#34;: 3.2}" in rendered(events)


def test_an_image_result_is_shown_and_a_dangerous_type_is_named():
    pictures = (Media("image/png", b"\x89PNG", "plot"), Media("image/svg+xml", b"<svg onload=x>", "drawing"))
    result = ToolResult(CALL.id, CALL.name, (*pictures, Resource("file:///a.txt", text="words")))
    fragment = rendered([*started(), *asked_for(CALL), *step_over(), *carried_out(CALL, result), *over()])
    assert '<img src="data:image/png;base64,iVBORw==" alt="plot"' in fragment
    assert "[image/svg+xml drawing, 14 bytes]" in fragment
    assert "[resource file:///a.txt]\nwords" in fragment


def test_a_long_result_is_cut_and_its_full_length_told():
    fragment = rendered(one_call(CALL, Text("x" * 50_000)))
    assert "The first 20,000 of 50,000 characters. The whole result is in session.messages." in fragment
    assert len(fragment) < 25_000


def test_a_long_table_is_cut_and_its_full_length_told():
    fragment = rendered(one_call(CALL, Text(json.dumps([{"n": n} for n in range(1000)]))))
    assert "The first 50 of 1,000 rows." in fragment
    assert fragment.count("<tr>") == 51


def test_json_nested_too_deep_is_shown_as_text():
    assert "[[[[" in rendered(one_call(CALL, Text("[" * 100_000 + "]" * 100_000)))


def test_arguments_nested_too_deep_are_shown_up_to_a_depth():
    deep = {"a": 1}
    for _ in range(5_000):
        deep = {"a": deep}
    assert "…" in rendered(one_call(ToolCall("c", "f", deep), Text("x")))


def test_a_table_blown_up_on_purpose_is_shown_as_its_source():
    source = "|a" * 300 + "\n" + "|-" * 300 + "\n" + "|\n" * 2000
    fragment = rendered(one_text(source))
    assert len(fragment) < 3 * len(source)


def test_a_long_answer_takes_at_most_three_times_its_text():
    paragraph = "Lorem *ipsum* dolor `sit` amet, consectetur **adipiscing** elit & more. " * 6
    source = f"## Part\n\n{paragraph}\n\n- one\n- two\n\n```python\nprint(1)\n```\n\n" * 60
    assert len(rendered(one_text(source))) < 3 * len(source)


def test_an_argument_that_looks_like_another_type_is_quoted():
    fragment = rendered(one_call(ToolCall("c", "f", {"a": "3", "b": 3, "c": "", "d": "x y"}), Text("x")))
    assert "a: &#34;3&#34;, b: 3, c: &#34;&#34;, d: x y" in fragment


def test_a_program_in_an_argument_stands_coloured_in_its_lines():
    call = ToolCall("c", "f", {"code": "if total:\n    print('<x>')\n"})
    fragment = rendered(one_call(call, Text("x")))
    assert '<font color="#a855c7">if</font> total:\n    <font' in fragment
    assert "Code if total: print('<x>') Result" in words(fragment)


def test_a_failed_call_is_told_by_glyph_and_word():
    result = ToolResult(CALL.id, CALL.name, (Text("no such column"),), "error")
    fragment = rendered([*started(), *asked_for(CALL), *step_over(), *carried_out(CALL, result), *over()])
    assert words(fragment).startswith("✗ run_query shop")
    assert "failed</small>" in fragment
    assert "<b>Error</b>" in fragment


def test_a_failed_turn_is_told_in_plain_words():
    fragment = rendered([*started(), *over("", "error", "The key was refused. Check OPENAI_API_KEY.")])
    assert "Error:</b> The key was refused. Check OPENAI_API_KEY.</p>" in fragment
    assert "failed</span>" in fragment


def test_reasoning_is_folded():
    fragment = rendered([*started(), *reasoning("I **need** the table."), *step_over(), *over()])
    assert ">Thought</summary>" in fragment
    assert "<strong>need</strong>" in fragment


def test_reasoning_without_words_is_not_shown():
    assert "Thought" not in rendered([*started(), *reasoning(""), *step_over(), *over()])


def test_a_retry_and_a_notice_are_shown():
    events = [*started(), Notice("warning", "Five tools at most."), StepRetried(1, 1, 2.0, "Rate limited.")]
    fragment = rendered(events)
    assert "Rate limited, trying again in 2 s (2 of 5)" in fragment
    assert "Warning:</b> Five tools at most.</p>" in fragment
    assert "Rate limited, trying again (2 of 5)" in rendered(events, times=False)


def test_a_question_is_shown_with_its_answer():
    fragment = rendered([*started(), QuestionAsked("q", "Which folder?"), QuestionAnswered("q", "data")])
    assert "Which folder?<br><b>Answer:</b> data" in fragment


def test_the_prompt_is_shown_only_where_asked_for():
    events = one_text("Hi")
    assert "Hello" not in rendered(events)
    assert "<p>Hello</p>\n</div></blockquote>" in rendered(events, prompt=True)


# -- while it runs ---------------------------------------------------------------------------------


def test_open_text_ends_in_a_caret_only_while_live():
    events = [*started(), PartStarted(0, "text"), PartDelta(0, "So **far")]
    assert f"So **far{html.CARET}</p>" in rendered(events, live=True)
    assert html.CARET not in rendered(events)


def test_no_half_of_a_secret_with_an_empty_line_in_it_is_seen_while_it_grows():
    secret = "-----BEGIN RSA KEY-----\nDEK-Info: AES-128\n\nMIIEpAIBAAKCAQEAw8eD1kPq"
    secrets.register_secret(secret)
    renderer, written = html.HtmlRenderer(live=True), f"Here:\n\n{secret}\n\nThat was it."
    transcript = Transcript([*started(), PartStarted(0, "text")])
    for letter in written:
        transcript.feed(PartDelta(0, letter))
        fragment = renderer.update(transcript)
        assert "MIIE" not in fragment
    assert "That was it." in fragment
    assert secrets.BLANK in fragment


def test_a_running_card_shows_how_far_it_is():
    events = [*started(), *asked_for(CALL), *step_over(), ToolStarted(CALL, "shop")]
    fragment = rendered([*events, ToolProgress(CALL.id, 3, 5, "fitting")], live=True)
    assert "running</small>" in fragment
    assert "3 of 5 fitting" in fragment
    assert "width:60%" in fragment


def test_a_waiting_card_is_open_with_all_its_arguments():
    code = "\n".join(f"line_{n} = {n}" for n in range(100))
    call = ToolCall("c", "run_python", {"code": code})
    events = [*started(), *asked_for(call), *step_over(), ApprovalAsked("a", call, "notebook")]
    fragment = rendered(events, live=True)
    assert "<details open>" in fragment
    assert "waits for you" in fragment
    assert "line_99 = 99" in words(fragment)


def test_arguments_are_shown_while_they_are_written():
    fragment = rendered([*started(), PartStarted(0, "tool_call", "run_query"), PartDelta(0, '{"sql": "SEL')], live=True)
    assert "{&#34;sql&#34;: &#34;SEL" in fragment


def test_the_live_footer_counts_along():
    assert "1 request<" in rendered([*started(), *text("a"), *step_over()], live=True)


@given(logs())
@settings(deadline=None, max_examples=30)
def test_rendering_along_the_way_ends_in_the_same_html_as_rendering_at_once(events):
    transcript, renderer = Transcript(), html.HtmlRenderer()
    for event in events:
        transcript.feed(event)
        renderer.update(transcript)
    assert renderer.update(transcript) == rendered(events)


def test_a_live_frame_renders_only_what_changed():
    transcript = Transcript([*one_call(CALL, Text("x")), *started(), *text("first"), PartStarted(1, "text")])
    renderer = html.HtmlRenderer(live=True)
    renderer.update(transcript)
    before = [kept.html for kept in renderer._kept]
    transcript.feed(PartDelta(1, "more"))
    renderer.update(transcript)
    same = [kept.html is old for kept, old in zip(renderer._kept, before, strict=True)]
    assert same == [True] * (len(same) - 1) + [False]


def test_text_that_grows_looks_at_each_frame_like_the_whole():
    source = "# Title\n\nA *paragraph*.\n\n```python\na = 1\n\nb = 2\n```\n\nAnother **one**.\n\nThe end."
    transcript, renderer = Transcript([*started(), PartStarted(0, "text")]), html.HtmlRenderer()
    for end, letter in enumerate(source, 1):
        transcript.feed(PartDelta(0, letter))
        assert (
            words(renderer.update(transcript)) == words(rendered(one_text(source[:end]))).split("scripted:")[0].strip()
        )


# -- batch and secrets -----------------------------------------------------------------------------


def test_without_times_nothing_depends_on_the_clock_or_on_ids():
    fragment = rendered(one_call(CALL, Text("3 rows")), times=False)
    assert not re.search(r"\d (ms|s|min)\b", words(fragment))
    assert CALL.id not in fragment
    assert "1,200 tokens in" in fragment


def test_the_same_events_make_the_same_html():
    events = [*one_call(CALL, Text('[{"b": 1, "a": 2}]')), *one_text("x")]
    assert rendered(events) == rendered(list(events))


def test_keys_are_blanked_wherever_they_turn_up():
    call = ToolCall("c", KEY, {KEY: {"deep": [f"x {KEY}"]}})
    events = [
        *one_call(call, Text(f'[{{"{KEY}": "{KEY}"}}]'), server=KEY),
        *one_text(f"The key is {KEY}, **{KEY}**, `{KEY}`."),
        *[*started(), *reasoning(KEY), Notice("info", KEY), QuestionAsked("q", KEY), QuestionAnswered("q", KEY)],
        *[StepRetried(1, 1, 1.0, KEY), *over("", "error", KEY)],
    ]
    fragment = rendered(events, prompt=True)
    assert KEY not in fragment
    assert fragment.count("[redacted]") > 12


def test_a_remembered_secret_is_blanked_though_json_and_html_would_escape_it(monkeypatch):
    secrets.register_secret('pa"ss<wo&rd')
    fragment = rendered([*one_call(ToolCall("c", "f", {"p": 'pa"ss<wo&rd'}), Text(json.dumps({"p": 'pa"ss<wo&rd'})))])
    assert "wo&amp;rd" not in fragment


@pytest.mark.parametrize(
    "key", [KEY, "correct-horse-battery", f"Bearer {KEY}", "eyJ0eXAiOiJKV1Qi.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl"]
)
@pytest.mark.parametrize("kind", ["text", "reasoning", "tool_call"])
def test_no_part_of_a_key_is_seen_while_it_is_written(key, kind):
    secrets.register_secret("correct-horse-battery")
    transcript = Transcript([*started(), PartStarted(0, kind, "f"), PartDelta(0, "It is ")])
    renderer = html.HtmlRenderer(live=True)
    for letter in f"{key} here":
        transcript.feed(PartDelta(0, letter))
        fragment = renderer.update(transcript)
        assert key.removeprefix("Bearer ")[:8] not in fragment
    assert "[redacted] here" in fragment


def test_a_key_hidden_by_markdown_escapes_is_blanked():
    assert "a1B2a1B2" not in rendered(one_text(KEY.replace("sk-", "sk\\-")))


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\x9b", "\u202e", "\ud800"])
def test_characters_that_act_on_a_screen_are_dropped(character):
    events = [*one_call(ToolCall("c", f"a{character}b", {"k": f"a{character}b"}), Text(f"a{character}b"))]
    fragment = rendered([*events, *one_text(f"a{character}b")])
    assert character not in fragment
    assert fragment.encode()
