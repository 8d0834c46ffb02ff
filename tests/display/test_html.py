"""Blocks to HTML: what it looks like, what it costs, and what it does while a turn runs.

The words of each block are in test_renderers.
"""

import json
import re

import pytest
from hypothesis import given, settings

from agentmagic import secrets
from agentmagic.display import html, rich_values, terminal, words
from agentmagic.display.markdown import Growing
from agentmagic.display.transcript import Transcript
from agentmagic.events import (
    ApprovalAsked,
    PartDelta,
    PartStarted,
    PromptValue,
    StepRetried,
    StepStarted,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from agentmagic.messages import Media, Resource, Text, ToolCall, ToolResult, user
from agentmagic.text import sanitize
from tests.display.logs import (
    asked_for,
    carried_out,
    everywhere,
    logs,
    one_call,
    one_text,
    over,
    reasoning,
    started,
    step_over,
    text,
    words_of,
)

CALL = ToolCall("call-4711", "run_query", {"sql": "SELECT name\nFROM products", "limit": 3})
KEY = "sk-" + "a1B2" * 8
PNG = Media("image/png", b"\x89PNG", "plot")


def rendered(events, **options):
    return html.render(Transcript(events), **options)


def card_of(*content, rich=(), structured=None):
    """The HTML of a call with this result."""
    result = ToolResult(CALL.id, CALL.name, content, structured=structured)
    return rendered([*started(), *carried_out(CALL, result, rich=rich)])


def test_a_fragment_has_its_look_and_opens_without_a_script_or_a_style_sheet():
    failed = ToolResult(CALL.id, CALL.name, (Text("ValueError: <no>"),), "error")
    turn = [*carried_out(CALL, failed, traceback="File <a>"), *text("# T\n\n`a` $x$\n\n```\nx\n```")]
    fragment = rendered([*started(), *turn, *over()])
    assert fragment.count("<details") == fragment.count("</details>") == 2
    assert "<details open" not in fragment
    assert not re.search(r"<(style|script|svg|link|iframe)", fragment)
    assert set(re.findall(r"var\(--jp-[a-z0-9-]+(.)", fragment)) == {","}  # each colour has a fallback
    assert all("monospace" in style for style in re.findall(r'<pre style="([^"]*)"', fragment))


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("**b** `c` ~~s~~", ["<strong>b</strong>", "<code>c</code>", "<s>s</s>"]),
        ("| a | b |\n|---|--:|\n| x | 1 |", ['<td style="text-align:left">x</td>\n<td align="right">1</td>']),
        ("```text\n1 < 2\n```", ["1 &lt; 2\n</code></pre>"]),
        ("So $a_1 * b_2 * c$ holds.", ["$a_1 * b_2 * c$"]),
        ("$$\nx *y* z\n$$", ["$$\nx *y* z\n$$"]),
        (r"\(a*b*c\) and \[ a*b*c \]", [r"\(a*b*c\)", r"\[ a*b*c \]"]),
        (r"It costs \$5 and \$6.", ["<span>$</span>5 and <span>$</span>6"]),
        ("[docs](https://example.org/a)", ['<a href="https://example.org/a" rel="noopener noreferrer">docs</a>']),
        ("![near](data:image/png;base64,AAAA)", ['<img src="data:image/png;base64,AAAA" alt="near">']),
        ("![far](https://example.org/x.png)", ["<p>[image: far]</p>"]),
        (KEY.replace("sk-", "sk\\-"), ["<p>[redacted]</p>"]),  # escapes of Markdown hide no key
    ],
)
def test_markdown_becomes_html(source, parts):
    fragment = rendered(one_text(source))
    assert [part for part in parts if part not in fragment] == []


def test_code_is_coloured_once_it_is_whole():
    source = '```python\ndef ask(x):\n    return "<b>"  # why\n```'
    coloured = re.findall(r'<font color="#\w+">([^<]*)</font>', rendered(one_text(source)))
    assert {*coloured} >= {"ask", '"&lt;b&gt;"', "# why"}
    half = [*started(), PartStarted(0, "text"), PartDelta(0, source[:20])]
    assert 'color="#' not in rendered(half, live=True).partition("</code>")[0]
    call = ToolCall("c", "f", {"code": "if total:\n    print('<x>')\n"})
    assert '<font color="#a855c7">if</font> total:\n    <font' in rendered(one_call(call, Text("x")))


def test_prose_is_limited_in_width_and_code_and_tables_are_not():
    source = "Some words.\n\n- and\n- a list\n\n```text\ncode\n```\n\n| a |\n|---|\n| x |\n\nThe end."
    prose = re.findall(r'<div style="max-width:42em">(.*?)</div>', rendered(one_text(source)), re.DOTALL)
    assert [words_of(one) for one in prose] == ["Some words. and a list", "The end."]


@pytest.mark.parametrize(("number", "picture"), [(4, None), (5, None), (6, 3)])
def test_more_than_four_calls_in_a_row_without_a_picture_fold_into_a_group_with_their_states(number, picture):
    turn = started()
    for place in range(number):
        call = ToolCall(f"c{place}", "look", {})
        result = ToolResult(call.id, "look", (PNG if place == picture else Text("no"),), "ok" if place else "error")
        turn += [StepStarted(place + 1, "m"), *reasoning("And now?"), *asked_for(call, 1), *step_over(place + 1)]
        turn += carried_out(call, result)
    fragment = rendered(turn)
    assert fragment.count("And now?") == number
    assert (f">{number} calls</b>" in fragment) == ("1 failed" in fragment) == (number == 5)


def test_the_pictures_and_texts_that_the_values_of_a_prompt_became_are_shown():
    values = (
        PromptValue("@fig", "image", "Figure as an image", 1_000),
        PromptValue("@a", "file", "text/plain", 1, "<b>"),
    )
    attached = Media("image/png", b"drawn", "fig"), Resource("file:a", "a", text="told above")
    log = [TurnStarted(user("Look.", *attached), "m", values), *over("Fine.")]
    assert 'src="data:image/png;base64,ZHJhd24="' in rendered(log)
    assert "Look." not in rendered(log)
    assert "told above" not in rendered(log, prompt=True)


# -- results ---------------------------------------------------------------------------------------

LONG = "a long word that takes this JSON over one line, or so it seems, and on"
HOSTILE = '<img width="9" src="https://elsewhere.example/x.png" onerror="alert(1)">'


@pytest.mark.parametrize(
    ("content", "rich", "found", "hidden"),
    [
        ((Text('[{"n": "Lamp", "t": 12}, {"n": "Desk"}]'),), (), ['left">Lamp</td><td align="right">12</td>'], []),
        ((Text(json.dumps({"a": {"b": [1, {"c": LONG}]}})),), (), [f"<b>c</b>: {LONG}", "<small>[2]"], []),
        ((Text(json.dumps({"rows": [[n] for n in range(2_000)]})),), (), ["[\n"], ["<b>rows</b>"]),
        ((Text("[" * 100_000 + "]" * 100_000),), (), ["[[[["], ["<b>0</b>"]),
        ((Text("before"), Text("a b")), ("", "<table><tr><td>1</td></tr></table>"), ["<td>1</td>", "before"], ["a b"]),
        ((Text("the text"),), ("<script>alert(1)</script>",), ["the text"], ["alert"]),
        ((Text("text"),), ("<b>hunter-two-secret</b>",), ["<b>[redacted]</b>"], ["hunter"]),
        ((PNG,), ('<img width="320">',), ['alt="plot" width="320"'], []),
        ((PNG,), (HOSTILE,), ['<img src="data:image/png;base64,iVBORw==" alt="plot"'], ["width=", "elsewhere"]),
        (
            (Text(json.dumps([{"n": n} for n in range(1000)])),),
            (),
            ["The first 50 of 1,000 rows.", ">49</td>"],
            [">50<"],
        ),
    ],
)
def test_a_result_is_shown_in_the_form_that_suits_it(content, rich, found, hidden):
    secrets.register_secret("hunter-two-secret")
    fragment = card_of(*content, rich=rich)
    assert [part for part in found if part not in fragment] == []
    assert [part for part in hidden if part in fragment] == []
    assert len(fragment) < 400_000


def form_of(text, **options):
    (form,) = rich_values.forms(ToolResult("c", "f", (Text(text),)), **options)
    return form


def test_of_a_huge_result_only_what_is_shown_is_looked_through_for_secrets(monkeypatch):
    seen = []
    monkeypatch.setattr(rich_values, "sanitize", lambda text: seen.append(len(text)) or sanitize(text))
    assert form_of("z" * 3_000_000).note.startswith("The first 20,000 of 3,000,000 characters.")
    assert sum(seen) < 2 * words.LONGEST_RESULT


def test_a_long_result_is_shown_as_a_whole_if_asked_for():
    assert (form_of("z" * 30_000, whole=True).text, form_of("z" * 30_000, whole=True).note) == ("z" * 30_000, "")
    assert len(form_of(json.dumps([{"a": row} for row in range(100)]), whole=True).rows) == 100
    assert form_of("z" * 3_000_000, whole=True).note.startswith("The first 2,000,000 of 3,000,000 characters.")


def test_a_key_at_the_cut_is_blanked_before_it_is_cut():
    secrets.register_secret("a-key-that-no-pattern-knows")
    assert "a-key" not in form_of("z" * (words.LONGEST_RESULT - 5) + "a-key-that-no-pattern-knows" + "z" * 5000).text


def test_arguments_nested_too_deep_are_shown_up_to_a_depth():
    deep = {"a": 1}
    for _ in range(5_000):
        deep = {"a": deep}
    assert "…" in rendered(one_call(ToolCall("c", "f", deep), Text("x")))


def test_an_argument_that_looks_like_another_type_is_quoted():
    fragment = rendered(one_call(ToolCall("c", "f", {"a": "3", "b": 3, "c": "", "d": "x y"}), Text("x")))
    assert "a: &#34;3&#34;, b: 3, c: &#34;&#34;, d: x y" in fragment


def test_an_answer_takes_at_most_three_times_its_text_also_if_it_is_a_table_blown_up_on_purpose():
    paragraph = "Lorem *ipsum* dolor `sit` amet, consectetur **adipiscing** elit & more. " * 6
    part = f"## Part\n\n{paragraph}\n\n- one\n- two\n\n```python\nprint(1)\n```\n\n"
    for source in (part * 30, "|a" * 100 + "\n" + "|-" * 100 + "\n" + "|\n" * 500):
        assert len(source) < len(rendered(one_text(source))) < 3 * len(source)


# -- while it runs ---------------------------------------------------------------------------------


def test_a_picture_stands_outside_the_card_that_closes():
    details, _, below = card_of(Text("words"), PNG, PNG).partition("</details>")
    assert ("words" in details, details.count("<img"), below.count("<img")) == (True, 0, 2)


def test_a_card_under_way_has_a_bar_an_open_text_a_caret_and_a_card_that_waits_all_its_arguments():
    running = [*started(), *asked_for(CALL), *step_over(), ToolStarted(CALL, "shop"), ToolProgress(CALL.id, 3, 5)]
    assert "width:60%" in rendered(running, live=True)
    assert 'title="1 request' in rendered(running, live=True)
    grows = [*started(), PartStarted(0, "text"), PartDelta(0, "So **far")]
    assert f"So **far{html.CARET}</p>" in rendered(grows, live=True)
    assert html.CARET not in rendered(grows)
    call = ToolCall("c", "run_python", {"code": "\n".join(f"line_{n} = {n}" for n in range(100))})
    waiting = rendered([*started(), *asked_for(call), ApprovalAsked("a", call, "notebook")], live=True)
    assert "<details open>" in waiting
    assert "line_99 = 99" in words_of(waiting)


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
    before = [kept.html for kept in renderer._cache]
    transcript.feed(PartDelta(1, "more"))
    renderer.update(transcript)
    same = [kept.html is old for kept, old in zip(renderer._cache, before, strict=True)]
    assert same == [True] * (len(same) - 1) + [False]


# -- batch and secrets -----------------------------------------------------------------------------


def test_without_times_nothing_depends_on_the_clock_or_on_ids():
    log = Transcript([*one_call(CALL, Text("3 rows")), *started(), StepRetried(1, 1, 2.0, "Busy.")])
    for fragment in (html.render(log, times=False), terminal.render(log, times=False)):
        assert not re.search(r"\d (ms|s|min)\b", words_of(fragment))
        assert CALL.id not in fragment
        assert "$0.0019" in fragment


def test_keys_are_blanked_wherever_they_turn_up():
    secrets.register_secret('pa"ss<wo&rd')  # JSON and HTML would escape it
    call = ToolCall("c", "f", {"deep": {"p": 'pa"ss<wo&rd'}})
    fragment = rendered([*everywhere(KEY), *one_call(call, Text(json.dumps([{"p": 'pa"ss<wo&rd'}])))], prompt=True)
    assert KEY not in fragment
    assert "wo&amp;rd" not in fragment
    assert fragment.count("[redacted]") > 12


PRIVATE = "-----BEGIN RSA KEY-----\nDEK-Info: AES-128\n\nMIIEpAIBAAKCAQEAw8eD1kPq"


@pytest.mark.parametrize("key", [KEY, PRIVATE], ids=["in a word", "over an empty line"])
@pytest.mark.parametrize("kind", ["text", "tool_call"])
def test_no_part_of_a_key_is_seen_while_it_is_written(key, kind):
    secrets.register_secret(PRIVATE)
    transcript = Transcript([*started(), PartStarted(0, kind, "f"), PartDelta(0, "It is ")])
    renderer = html.HtmlRenderer(live=True)
    for letter in f"{key}\n\nhere":
        transcript.feed(PartDelta(0, letter))
        fragment = renderer.update(transcript)
        assert key[:8] not in fragment
        assert "MIIE" not in fragment
    assert words_of(fragment).startswith(("It is [redacted] here", "◌ f It is [redacted] here"))


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("|", [""]),
        ("| Name | Su", ["Name", "Su"]),
        ("The sums:\n\n| Name | Sum |\n", ["Name", "Sum"]),
        ("| Name | Sum |\n|:--", ["Name", "Sum"]),
        ("Name | Sum\n-", ["Name", "Sum"]),
        ("| a \\| b | c", ["a | b", "c"]),
        ("Title\n--", None),
        ("```\n| a | b", None),
        ("| a |\n| b |", None),
        ("|x| is\nnever less than 0", None),
    ],
)
def test_a_table_that_is_being_written_is_one_from_its_first_character_on(text, cells):
    page = Growing().to_html(text)
    assert ("<table>" in page) == (cells is not None)
    assert re.findall(r"<th[^>]*>(.*?)</th>", page) == (cells or [])
