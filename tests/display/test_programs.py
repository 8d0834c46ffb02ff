"""What the closed card of a program shows: its last statement and the value of that."""

import warnings

import pandas as pd
import pytest

from agentmagic.display.blocks import ToolCard
from agentmagic.display.call_words import frame_size, last_statement, program_value, short_arguments, value_line, why
from agentmagic.messages import Media, Text, ToolCall, ToolResult

NUMBERS = pd.DataFrame({"a": range(120), "b": 1})
SERIES = pd.Series(range(3), name="n")


def result(*texts, status="ok"):
    return ToolResult("c", "run_python", tuple(Text(one) if isinstance(one, str) else one for one in texts), status)


def card(code, *texts, state="done", status="ok", rich=(), name="run_python", argument="code"):
    call = ToolCall("c", name, {argument: code})
    return ToolCard(name, call, state=state, result=result(*texts, status=status), rich=rich)


@pytest.mark.parametrize(
    ("code", "statement", "is_expression"),
    [
        ("import math\ndf.shape\n# the end\n", "df.shape", True),
        ("a = 1; df.sum(\n    axis=0,\n)", "df.sum(\n    axis=0,\n)", True),
        ("for i in x:\n    print(i)", "for i in x:\n    print(i)", False),
        ("await get('ü'); 'ü' + name", "'ü' + name", True),
        (r"print('\d it\'s'); re.sub(r'\w\\', '', s)", r"re.sub(r'\w\\', '', s)", True),
        ("%time f()\n!ls -l\n\n", "!ls -l", False),
        ("def f(:", "def f(:", False),
        ("\n \n", "", False),
        ("# nothing", "# nothing", False),
        (f"{'x = 1;' * 4_000}\ny", "y", False),
    ],
)
def test_the_last_statement_of_a_program_is_found(code, statement, is_expression):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert last_statement(code) == (statement, is_expression)


@pytest.mark.parametrize(
    ("code", "texts", "line"),
    [
        ("df.shape", ["(120, 4)"], "(120, 4)"),
        ("print('x')\ndf.shape", ["Printed:\nx", "(120, 4)"], "(120, 4)"),
        ("print(n, m)", ["Printed:\nfirst\n3 4"], "3 4"),
        ("n = 3", ["Printed:\nx"], ""),
        ("log()", ["Printed:\nx"], ""),
        ("df.sort_values('a', inplace=True)", ["(no output; print what you need to know)"], ""),
        ("plot()", [Media("image/png", b"x")], ""),
        ("d", ["{'a': 1,\n 'b': 2}"], "{'a': 1, 'b': 2}"),
        ("long", ["x" * 100], "x" * 59 + "…"),
        ("hidden", ["a\u200bb \x1b[31mred"], "ab red"),
        ("s", [repr(SERIES)], "Name: n, dtype: int64"),
        ("key", ["sk-ant-api03-" + "a" * 80], "sk-…"),
        ("f()", [], ""),
    ],
)
def test_the_value_of_a_program_is_one_short_line(code, texts, line):
    if line == "sk-…":
        assert "a" * 20 not in value_line(code, result(*texts), ())
    else:
        assert value_line(code, result(*texts), ()) == line


def test_a_program_that_failed_has_no_value():
    assert value_line("df.shape", result("KeyError: 'a'", status="error"), ()) == ""


@pytest.mark.parametrize(
    ("frame", "size"),
    [
        (NUMBERS, "120 rows x 2 columns"),
        (NUMBERS.head(3), "3 rows x 2 columns"),
        (NUMBERS[["a"]][:1], "1 row x 1 column"),
    ],
)
def test_a_frame_is_shown_as_its_size(frame, size):
    html = frame.to_html(notebook=True, max_rows=60, show_dimensions="truncate")
    assert frame_size(html) == size
    assert program_value(card("df", repr(frame), rich=(html,))) == f"→ {size}"


def test_a_cell_that_reads_like_a_size_is_none():
    words = ["shape: (3, 4)", ">7 rows \xd7 8 columns"]
    assert frame_size(pd.DataFrame({"a": words})._repr_html_()) == "2 rows x 1 column"


def test_a_frame_of_polars_is_shown_as_its_size():
    polars = pytest.importorskip("polars")
    assert frame_size(polars.DataFrame({"a": range(2_000), "b": 1})._repr_html_()) == "2,000 rows x 2 columns"


def test_only_a_call_whose_one_argument_is_code_is_shown_as_a_program():
    assert short_arguments(card("n + 1", "2")) == "n + 1"
    assert short_arguments(card("NO", "Norway", name="country")) == "code: NO"
    assert program_value(card("NO", "Norway", name="country")) == ""
    assert short_arguments(card("total = a + b + c\ntotal", "2", name="execute", argument="python")) == "total"
    assert short_arguments(card("data/north/east/sales", "x", name="read", argument="source")).startswith(
        "source: data"
    )
    two = ToolCard("write", ToolCall("c", "write", {"source": "total = a + b + c", "why": "x"}), state="done")
    assert short_arguments(two).startswith("source: total")


def test_a_secret_in_a_program_is_blanked_in_its_last_statement():
    assert "hunter22hunter22" not in short_arguments(card('connect(password="hunter22hunter22")', "ok"))


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (["ValueError: no word\nand more"], "ValueError: no word"),
        (["Printed:\nrow 1", "KeyError: 'a'"], "KeyError: 'a'"),
        (['{\n  "error": "gone"\n}'], '"error": "gone"'),
        (["x" * 300], "x" * 99 + "…"),
        (["\x1b[31mred\u200b error"], "red error"),
        ([Text("only for the model", audience="assistant")], ""),
        (["  \n "], ""),
        ([Media("image/png", b"x")], ""),
    ],
)
def test_a_failed_call_says_why_on_one_line(texts, line):
    assert why(card("f()", *texts, state="failed", status="error")) == line
