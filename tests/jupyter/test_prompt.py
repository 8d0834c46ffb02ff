"""What braces and `@` mean in a prompt."""

import builtins
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.figure import Figure
from PIL import Image
from pydantic import BaseModel

from agentmagic import Agent, Session
from agentmagic.errors import UsageError
from agentmagic.jupyter.prompt.attachables import Attachables
from agentmagic.jupyter.prompt.references import MOST_ATTACHED, _resources, prompt_of
from agentmagic.messages import Media, as_prompt
from agentmagic.prompt.attachments import UNKNOWN, Attacher
from agentmagic.prompt.braces import fill
from agentmagic.runtime.engine import engine
from agentmagic.secrets import BLANK
from agentmagic.tools.mcp import McpServers
from agentmagic.tools.mcp.config import parse

SALES = pd.DataFrame({"city": [f"city {number}" for number in range(300)], "sold": range(300)})
KEY = "sk-planted0123456789abcdef0123456789"
NAMES = {"x": 3, "a": 1, "b": 2, "name": "Ann", "d": {"k": 5, "a:b": 7}, "total": 1234567.891, "sales": SALES}
SEES = replace(UNKNOWN, name="test:sees", takes=frozenset(("images", "documents")))
BLIND = replace(UNKNOWN, name="test:blind")


SHELL = InteractiveShell()


def of_shell() -> dict:
    """The names of a notebook, among those that IPython puts there."""
    of_ipython = {"__builtins__": builtins, "_": 5, "_3": 7, "_i": "code", "Out": {3: 7}}
    return {**SHELL.user_ns, **NAMES, **of_ipython, "leave": lambda: sys.exit("no rows")}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("Hello {name}!", "Hello Ann!"),
        ("{d['k']} and { {1: a}[1] }", "5 and 1"),
        ("{sales['sold'].max()} {(sales.sold.max(), x)}", "299 (299, 3)"),
        ("{(lambda q: q + x)(1)} {sum(n for n in [x, 1])}", "4 4"),
        ("{name!r} {name!s:>5} {total:,.0f} {x:03}", "'Ann'   Ann 1,234,568 003"),
        ("{d['a:b']:>{x}} {x != 4}", "  7 True"),
        ("{x:schema}, {name:schema}", "int, str, 3 characters"),
        ("{_} {_3} {Out[3]} {_i}", "5 7 7 code"),
        ("{(lambda open: open + x)(1)}", "4"),
        ("{[open for exit in [[x]] for open in exit if open]}", "[3]"),
        ("{" + "-" * 480 + "x}", "3"),
        ("{f'{x}{quit()}'}", "{f'3{quit()}'}"),  # of an f-string only the harmless part is evaluated
    ],
)
def test_an_expression_over_the_notebooks_names_is_put_in(text, filled):
    assert fill(text, of_shell()).text == filled


def test_names_of_ipython_that_the_user_has_bound_are_put_in_and_one_that_is_not_bound_lets_nothing_run():
    ran = []
    rebound = {"exit": lambda: "out", "open": 4, "quit": "q", "run": ran.append}
    filled = fill("{exit()} {open} {quit:>3} {run(x, later)}", {**of_shell(), **rebound})
    assert (filled.text, ran) == ("out 4   q {run(x, later)}", [])


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": {"x": x}} {"sale": 1} {sale: 1} {1: sale}',
        "{} {{x}} {{sale}} {x: 1} {x:=5} {x=} {x := 5}",
        "{x.y z} {1, 2} {sale, b} {id} {len} {await x}",
        "{x",
        "x}",
        r"\frac{a}{b} x^{a} y_{b} \frac{sale}{b} \begin{sale}",
        "```python\nprint(f'{sale}')\n```\n```\n{exit()}\n```",
        "{if sale} {sale | lower}",
        "{" * 50,
    ],
)
def test_braces_of_other_languages_stay_without_a_word(text):
    filled = fill(text, of_shell())
    assert (filled.text, filled.problems) == (text, ())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{sale}", "no variable is named sale. Did you mean sales?"),
        ("{totl:,.0f}", "no variable is named totl. Did you mean total?"),
        ("{round(x, digits)}", "no variable is named digits."),
        ("{total:q}", "ValueError: Unknown format code 'q' for object of type 'float'"),
        ("{d['z']}", "KeyError: 'z'"),
        ("{x:999999999}", "the format asks for more characters than a prompt should hold."),
        ("{sales:.2f}", "a data frame takes a number of rows or schema, as in {sales:50}."),
        ("{leave()}", "it ended itself: no rows"),
        ("{x!r:{quit()}}", "ValueError: Invalid format specifier '{quit()}' for object of type 'str'"),
        ("{exit()}", "exit belongs to IPython, not to your variables."),
        ("{get_ipython().ask_exit()}", "get_ipython belongs to IPython, not to your variables."),
        ("{[exit for exit in [x]] and exit()}", "exit belongs to IPython, not to your variables."),
        ("{(lambda f=exit: f(x))()}", "exit belongs to IPython, not to your variables."),
        ("{x or __import__('os').abort()}", "__import__ belongs to Python itself, not to your variables."),
        ("{__builtins__.exit()}", "__builtins__ belongs to Python itself, not to your variables."),
    ],
)
def test_what_cannot_or_must_not_be_put_in_stays_and_is_told_in_a_sentence(text, told):
    filled = fill(f"Look: {text} {{x}}", of_shell())
    assert (filled.text, filled.problems) == (f"Look: {text} 3", (f"{text} stays as it is: {told}",))


def test_the_rows_of_a_frame_are_those_that_are_asked_for_and_stand_on_lines_of_their_own():
    text = fill("What is in {sales:50}, and why?", NAMES).text
    assert text.startswith("What is in \n\nDataFrame, 300 rows x 2 columns.\n")
    assert text.endswith("| city 49 | 49 |\n\n, and why?")
    assert "| sold | int64 | 0 | 0 to 299 |" in text
    assert "3\n\nDataFrame, 300 rows" in fill("{x}{sales}", NAMES).text


# -- @ ---------------------------------------------------------------------------------------------


class Order(BaseModel):
    city: str


def drawn():
    figure = Figure(figsize=(3, 2))
    figure.subplots().set_title("Sales")
    return figure


def double(number):
    return 2 * number


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "notebooks"
    place.mkdir()
    (place / "notes.txt").write_text(f"first\nkey {KEY}", encoding="utf-8")
    (place / "long.csv").write_text("a,b\n" * 1_000_000, encoding="utf-8")
    (place / "binary.bin").write_bytes(b"\0\1")
    (place / "sub").mkdir()
    for hidden in (".env", "sub/.key"):
        (place / hidden).write_text("SECRET=1", encoding="utf-8")
    Image.new("RGB", (3000, 10)).save(place / "wide.png")
    (tmp_path / "outside.txt").write_text("outside", encoding="utf-8")
    if sys.platform != "win32":
        (place / "link.txt").symlink_to(tmp_path / "outside.txt")
        os.mkfifo(place / "pipe.txt")
    return place


@pytest.fixture
def typed(folder):
    values = {
        **NAMES,
        "fig": drawn(),
        "double": double,
        "Order": Order,
        "matrix": np.eye(3),
        "session": Session("scripted:x"),
        "sessions": ["one", "two"],
        "Agent": Agent,
        "sys": sys,
        "_hidden": 1,
        "token": "Tr0ub4dor-and-3-horses",
        "Out": {5: [1, 2]},
        "In": ["", "import pandas", "fig.show()\nx = 3"],
    }

    def prompt(text, model=SEES, *, evaluate=False, schema_only=False, images=()):
        attacher = Attacher(lambda: model, schema_only=schema_only)
        known = Attachables(values, attacher, frozenset(("In", "Out")), folder)
        return prompt_of(text, (), known, evaluate=evaluate, images=images)

    return prompt


def parts(prompt):
    return [part.text if not isinstance(part, Media) else part.media_type for part in as_prompt(prompt.prompt).parts]


@pytest.mark.parametrize(
    ("text", "kind", "part"),
    [
        ("Look at @sales, please", "table", "| city 0 | 0 |"),
        ("@sales:schema", "schema", "city: str"),
        ("(@matrix)", "text", "ndarray 3x3 of float64, 0 to 1"),
        ("@double", "code", "return 2 * number"),
        ("@Order", "code", '"city": {'),
        ("@Out[5].", "text", "[1, 2]"),
        ("@In[2]", "code", "fig.show()\nx = 3"),
        ("Read @notes.txt.", "file", "first\nkey [redacted]"),
        ("@long.csv", "file", "(cut: 4,000,000 bytes in all, the first 20,000 characters shown)"),
        ("@fig", "image", "image/png"),
        ("@wide.png", "image", "image/png"),
    ],
)
def test_a_name_behind_an_at_sign_attaches_its_value(typed, text, kind, part):
    prompt = typed(text)
    first, second = parts(prompt)
    assert first == text
    assert part in second
    assert [value.kind for value in prompt.prompt_values] == [kind]
    assert prompt.problems == ()


@pytest.mark.parametrize(
    "text",
    [
        "ann@sales.org or ann.lee@sales",
        "@sys @session @_hidden @print @property",
        "write to me@nosuch or a.b@nosuch.org",
        "What does `@nosuch` do, and ``@nosuch``?",
        "@nosuch.route('/') and @nosuch(3)",
        "npm install @nosuch/core",
        "@session, clean the data up",
        "@../outside @missing.txt @pipe.txt",
        "```python\n@double\ndef f(): pass\n```",
        "@double\ndef f():\n    pass",
        "@double(3)\n@sales\nclass A: ...",
        "@@sales @sales:other @sales://x",
    ],
)
def test_what_names_nothing_and_code_stay_text(typed, text):
    prompt = typed(text)
    assert (prompt.prompt, prompt.prompt_values, prompt.problems) == (text, (), ())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("@slaes", "@slaes attaches nothing: no variable is named slaes. Did you mean @sales?"),
        ("@Sales", "@Sales attaches nothing: no variable is named Sales. Did you mean @sales?"),
        ("@nosuch", "@nosuch attaches nothing: no variable is named nosuch."),
        ("@nosuch, as @nosuch said.", "@nosuch attaches nothing: no variable is named nosuch."),
        ("@nosuch @nobody", "@nosuch, @nobody attach nothing: no variables are named so."),
        (
            " ".join(f"@none_{letter}" for letter in "abcdefg"),
            "@none_a, @none_b, @none_c, @none_d, @none_e (5 of 7) attach nothing: no variables are named so.",
        ),
        pytest.param(
            "@link.txt",
            "@link.txt is not attached: it lies outside of the notebook's folder.",
            marks=pytest.mark.posix,
        ),
        (
            "@sub/.key",
            "@sub/.key is not attached: hidden files, which often hold keys, are not attached.",
        ),
        (
            "@sub/../.env",
            "@sub/../.env is not attached: hidden files, which often hold keys, are not attached.",
        ),
        ("@binary.bin", "@binary.bin is not attached: it is no text, and no image."),
        ("@out[7]", "@out[7] is not attached: cell 7 has left no value."),
        ("@In[9]", "@In[9] is not attached: cell 9 was not run."),
    ],
)
def test_what_cannot_be_attached_is_told_in_a_sentence(typed, text, told):
    prompt = typed(text)
    assert (prompt.prompt, prompt.problems) == (text, (told,))


def test_the_last_traceback_is_attached_without_the_calls_of_ipython(typed, monkeypatch):
    monkeypatch.delattr(sys, "last_value", raising=False)
    assert typed("@error").problems == ("@error is not attached: no cell has failed yet.",)
    with pytest.raises(ValueError, match="invalid literal") as error:
        int(f"249,00 {KEY}")
    monkeypatch.setattr(sys, "last_value", error.value, raising=False)
    prompt = typed("Why @error?")
    assert [(value.kind, value.shown) for value in prompt.prompt_values] == [("error", "ValueError")]
    head, *_, line, last = parts(prompt)[1].splitlines()
    assert (head, line) == ("Traceback (most recent call last):", '    int(f"249,00 {KEY}")')
    assert last == f"ValueError: invalid literal for int() with base 10: '249,00 {BLANK}'"


def test_nothing_is_evaluated_in_the_chat_box(typed):
    assert [typed("{x} {sale}", evaluate=given).prompt for given in (False, True)] == ["{x} {sale}", "3 {sale}"]


def test_a_figure_in_braces_is_an_image_whose_place_is_marked_and_words_for_a_model_that_sees_none(typed):
    prompt = typed("What is odd in {fig}?", evaluate=True)
    assert parts(prompt) == ["What is odd in [image: fig]?", "image/png"]
    assert [(value.written, value.kind, value.text) for value in prompt.prompt_values] == [("{fig}", "image", "")]
    for text in ("{fig}", "@fig"):
        prompt = typed(text, BLIND, evaluate=True)
        assert "(Figure, in words: test:blind sees no images.)\ntitle: Sales" in parts(prompt)[-1]
        (value,) = prompt.prompt_values
        assert (value.kind, value.shown) == ("text", "Figure, in words: test:blind sees no images")
    (wide,) = typed("@wide.png", BLIND).prompt_values
    assert "not sent: test:blind does not read it" in wide.shown


@pytest.mark.parametrize(
    ("name", "of", "told"),
    [
        ("wide.png", "wide.png", ("image", "image/png, ", "image/png")),
        ("notes.txt", "notes.txt", ("file", "text/plain, ", "first\nkey [redacted]")),
        ("no name", "notes.txt", ("file", "text/plain, ", "first\nkey [redacted]")),
        ("long.csv", "long.csv", ("file", "text/csv, 4,000,000", "(cut: 4,000,000 bytes in all")),
        ("a\x1b[31m/../b.bin", "binary.bin", "is not attached: it is no text, and no image."),
        ("drawing.svg", "notes.txt", "drawing.svg is not attached: it is no image that can be read."),
        ("broken.png", "notes.txt", "broken.png is not attached: it is no image that can be read."),
    ],
)
def test_a_file_that_a_page_sends_is_attached_as_one_of_the_folder_is_or_refused_in_one_line(folder, name, of, told):
    data = (folder / of).read_bytes()
    attacher = Attacher(lambda: SEES)
    if isinstance(told, str):
        with pytest.raises(UsageError) as error:
            attacher.upload(name, data)
        assert told in str(error.value)
        assert not {"\n", "\x1b"} & {*str(error.value)}
        return
    kind, line, part = told
    made = attacher.upload(name, data)
    assert (made.value.written, made.value.kind) == (name, kind)
    assert made.value.shown.startswith(line)
    assert part in (made.part.media_type if isinstance(made.part, Media) else made.part.text)
    assert attacher.upload("wide.png", (folder / "wide.png").read_bytes()).value == typed_file(folder)


def typed_file(folder):
    """What is told of an image that a prompt names, by the name of the file."""
    found = Attachables({}, Attacher(lambda: SEES), folder=folder).find("wide.png", "")
    return replace(found.value, written="wide.png")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nothing.png", "--image nothing.png is no variable, and no file in the notebook's folder."),
        ("../outside.txt", "--image ../outside.txt is not attached: it lies outside of the notebook's folder."),
        ("sales", "--image sales is no image: DataFrame, 300 rows x 2 columns."),
    ],
)
def test_an_image_that_an_option_names_is_attached_and_anything_else_is_refused(typed, name, told):
    assert parts(typed("Look.", images=["fig", "wide.png"])) == ["Look.", "image/png", "image/png"]
    with pytest.raises(UsageError, match=told.replace(".", r"\.")):
        typed("Look.", images=[name])


def test_schema_only_sends_no_value(typed):
    prompt = typed("{x} {name!r} {sales:5} {d['k']} @fig @notes.txt @wide.png @out[5]", evaluate=True, schema_only=True)
    assert {value.kind for value in prompt.prompt_values} == {"schema"}
    text = "\n".join(parts(prompt))
    assert "city: str" in text
    assert not any(word in text for word in ("Ann", "city 0", "first", "[1, 2]", "299"))


def test_a_key_in_a_value_reaches_neither_the_model_nor_the_line(typed):
    prompt = typed("{token} @token {'" + KEY + "' + name} @notes.txt", evaluate=True)
    seen = str([parts(prompt), prompt.prompt_values])
    assert KEY not in seen
    assert "Tr0ub4dor" not in str(prompt.prompt_values)


def test_more_values_than_a_prompt_may_attach_are_refused(typed):
    with pytest.raises(UsageError, match=f"21 resources and values; {MOST_ATTACHED} are the most"):
        typed(" ".join(f"@sales:{number}" for number in range(21)))


def test_a_note_says_that_a_file_is_cut_if_and_only_if_it_is(tmp_path):
    (tmp_path / "short.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    (tmp_path / "latin.txt").write_bytes(b"\xe9" * 20_100)
    known = Attachables({}, Attacher(lambda: UNKNOWN), folder=tmp_path)
    assert known.find("short.csv", "").part.text == "a,b\n1,2\n"
    assert known.find("latin.txt", "").part.text.endswith("20,100 bytes in all, the first 20,000 characters shown)")


@pytest.mark.linux
def test_a_file_that_cannot_be_read_is_not_attached_and_the_reason_is_told():
    known = Attachables({}, Attacher(lambda: UNKNOWN), folder=Path("/proc/self"))
    (problem,) = prompt_of("@mem", (), known, evaluate=True).problems
    assert problem.startswith("@mem is not attached: it cannot be read: ")


def test_the_code_of_a_cell_is_cut_and_is_no_value_to_be_sent_where_none_may_be():
    variables = {"In": ["", "x = 1\n" * 10_000]}
    whole, nothing = (
        prompt_of("@In[1]", (), Attachables(variables, Attacher(lambda: UNKNOWN, schema_only=only)), evaluate=True)
        for only in (False, True)
    )
    assert len(parts(whole)[1]) < 21_000
    assert parts(nothing)[1] == "(In[1]: 10,000 lines.)"


def test_a_resource_that_ends_a_sentence_is_the_same_as_in_the_middle_of_one():
    servers = McpServers()
    assert engine().call(servers.add("docs", parse({"command": "true"}), connect=False)) is None
    named = _resources("Read @docs:a.md. Compare @docs:a.md with @docs:b.md!", [servers])
    assert [uri for _, _, uri in named] == ["a.md", "b.md"]
