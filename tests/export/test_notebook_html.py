"""An exported notebook in the HTML that nbconvert makes of it: no text of a model or tool runs there."""

import json
from functools import cache
from html.parser import HTMLParser

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nbconvert import HTMLExporter

from agentmagic.export import to_notebook
from agentmagic.export.document import without_html
from agentmagic.messages import Text, ToolCall
from tests.display.logs import everywhere, one_call, one_text
from tests.display.test_html_attacks import PAYLOADS
from tests.export.turns import turn

SCRIPT = "<script>alert(1)</script>"
IMAGE = "<img src=x onerror=alert(1)>"
MORE = [
    *(
        f"{marks}{info}\n{html}\n{marks}"
        for marks in ("```", "~~~~")
        for info in ("mermaid", "mermaid x", "&#109;ermaid", "\\mermaid", "html", "")
        for html in (SCRIPT, f"graph TD\nA--></pre>{IMAGE}")
    ),
    f"> ```mermaid\n> {SCRIPT}\n> ```",
    f"- ```mermaid\n  {SCRIPT}\n  ```\n\n1. ~~~mermaid\n   {SCRIPT}\n   ~~~",
    f"```mermaid\n\n\n{SCRIPT}\n\n\n{IMAGE}",
    f"````md\n```mermaid\n{SCRIPT}\n```\n````",
    f"    {SCRIPT}\n\n    {IMAGE}",
    f"$`$ {IMAGE} ` and $$`$$ {SCRIPT} `",
    f"$$\n```\n$$\n{SCRIPT}\n```\n$$",
    f"\\begin{{a}}\n```\n\\end{{a}}\n{SCRIPT}\n```",
    f"`a`` {IMAGE} `b`` and ``` {SCRIPT}",
    f"|a|b|\n|-|-|\n|`x | {IMAGE} `|y|",
    f"term\n: ```\n  {SCRIPT}\n  ```",
    f"~~`~~ {IMAGE} `",
    f"`{IMAGE}` is `<b>` and ``a ` <i onclick=alert(1)> ``",
    f"[x]: javascript:alert(1)\n\n[x] and ![x][x] {SCRIPT}",
    "[x](\njavascript:alert(1)) [y](<javascript:alert(1)>) [z](java&Tab;script:alert(1)) [w](javascript&colon;x)",
    "[x](JaVaScRiPt:alert(1)) [y](&#x6a;avascript:alert(1)) [z](\\javascript:alert(1)) [v](vbscript:x)",
    "> [x](\n> javascript:alert(1))",
    "![x](attachment:none.png) and [x](attachment:none.png)",
    f"<!-- `-->{SCRIPT}` -->",
    f"<pre><code>{SCRIPT}</code></pre>",
    f"</code></pre>{SCRIPT}",
    f"x{SCRIPT}</code></pre>",
    f"<pre><code>`{IMAGE}",
]


class Page(HTMLParser):
    """Collects what could run in a page, apart from the anchors of headings."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        given = {name: "".join((value or "").split()).lower() for name, value in attrs}
        runs = [name for name in given if name.startswith("on") or name == "srcdoc"]
        runs += [
            name
            for name in ("href", "src")
            if given.get(name, "").startswith(("javascript:", "vbscript:", "data:text"))
        ]
        if tag in ("script", "iframe", "object", "embed", "svg", "math", "style", "template", "img") or runs:
            self.found.append((tag, given))


@cache
def exporter():
    return HTMLExporter(template_name="basic")


def running(notebook):
    """What could run in the page that nbconvert makes of a notebook."""
    page = Page()
    page.feed(exporter().from_notebook_node(nbformat.reads(json.dumps(notebook), 4))[0])
    return [(tag, given) for tag, given in page.found if tag != "img" or "onerror" in given or given.get("src") == "x"]


def test_the_page_shows_what_would_run():
    cell = {
        "cell_type": "markdown",
        "id": "a",
        "metadata": {},
        "source": f"```mermaid\n{SCRIPT}\n```\n[x](javascript:y)",
    }
    notebook = to_notebook([]) | {"cells": [cell]}
    assert [tag for tag, _ in running(notebook)] == ["script", "a"]


@pytest.mark.slow
def test_no_text_of_an_exported_notebook_runs_in_its_page():
    calls = [turn(*one_call(ToolCall("c", "f", {"text": payload}), Text(payload))) for payload in (SCRIPT, *MORE)]
    assert running(to_notebook([*(turn(*everywhere(payload)) for payload in (*PAYLOADS, *MORE)), *calls])) == []


TAGS = (SCRIPT, IMAGE, "<!--", "-->", "<pre><code>", "</code></pre>", "mermaid", "[x](", "javascript:", ")", " a ")
PIECES = st.sampled_from([*TAGS, "\n: ", "\n\n", *"`$\n|\\", "``", "```", "~~~", "$$", "> ", "- ", "    "])


@settings(deadline=None, max_examples=20)
@given(st.lists(st.lists(PIECES, max_size=14).map("".join), min_size=10, max_size=10))
def test_no_mixture_of_marks_runs(texts):
    assert running(to_notebook([turn(*one_text(text)) for text in texts])) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Use `<div>` here, a < b, `x_y`.", "Use <code>&#60;div&#62;</code> here, a &lt; b, `x_y`."),
        (
            "```html\n<b>*x*</b>\n\n\ny\n```\nand",
            "<pre><code>&lt;b&gt;*x*&lt;/b&gt;\n&#32;\n&#32;\ny</code></pre>\nand",
        ),
        ("```mermaid\ngraph TD\nA-->B\n```", "```mermaid\ngraph TD\nA-->B\n```"),
        ("```python\nif a < b: f(x)\n```", "```python\nif a < b: f(x)\n```"),
        ("[x](https://ok.example/a) ![y](plot.png)", "[x](https://ok.example/a) ![y](plot.png)"),
        ("[x](javascript:alert(1))", "[x](#javascript:alert(1))"),
    ],
)
def test_harmless_text_reads_as_before(text, expected):
    assert without_html(text) == expected
