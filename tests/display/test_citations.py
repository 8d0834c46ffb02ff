"""Where the numbers of sources stand in an answer, and that the Markdown around them stays what it was."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from agentmagic.display import citations, html, terminal
from agentmagic.display.citations import cited_html, insert_numbers, link, place_numbers
from agentmagic.display.markdown import parse, to_html
from agentmagic.display.transcript import Transcript
from agentmagic.events import PartFinished, PartStarted
from agentmagic.messages import Citation, Source, Text, sources_of
from agentmagic.text import sanitize
from tests.display.logs import over, started, words_of

KEY = "sk-" + "a1B2" * 8
TABLE = "| a | b |\n|---|---|\n"
NEW, OLD = "https://docs.python.org/3.15/", "https://docs.python.org/3.14/"


def cited(text, *spans):
    """A text that cites a page for each of these spans: words of it, or a pair of places."""
    places = [(text.index(one), text.index(one) + len(one)) if isinstance(one, str) else one for one in spans]
    found = (Citation(start, end, f"https://x.org/{number}") for number, (start, end) in enumerate(places))
    return Text(text, citations=tuple(found))


def marks_of(part):
    return place_numbers(part.text, part.citations, sources_of(part.citations))


def numbered(part):
    return insert_numbers(sanitize(part.text), marks_of(part), "[{}]".format)


def turn(*parts):
    """A turn of these parts."""
    pieces = [event for i, part in enumerate(parts) for event in (PartStarted(i, "text"), PartFinished(i, part))]
    return [*started(), *pieces, *over(parts[-1].text)]


@pytest.mark.parametrize(
    ("text", "spans", "expected"),
    [
        ("It is out. It is fast", ["It is out", "It is fast"], "It is out.[1] It is fast[2]"),
        ("It is out. Yes.", ["It is out. "], "It is out.[1] Yes."),
        ("Since 3.15, well-known.", ["Since 3", "well"], "Since 3.15,[1] well-known.[2]"),
        ("很快。其他", ["很快"], "很快。[1]其他"),
        ("**Bold claim.** And _em_ so", ["Bold claim", "em"], "**Bold claim.**[1] And _em_[2] so"),
        ("Call `co de` now", ["co"], "Call `co de`[1] now"),
        ("See [the **docs**](https://e.org/a_(b)), yes", ["docs"], "See [the **docs**](https://e.org/a_(b)),[1] yes"),
        ("See https://e.org/path now", ["https://e"], "See https://e.org/path[1] now"),
        ("So $a_1 + b$ holds", ["a_1"], "So $a_1 + b$[1] holds"),
        ("# Head\n\ntext", ["Head\n\n"], "# Head[1]\n\ntext"),
        ("a\\\nb  \nc", ["a", "b"], "a[1]\\\nb[2]  \nc"),
        ("- one\n- two", ["- one\n- "], "- one[1]\n- two"),
        ("1. one\n2. two\n", ["one", "two\n"], "1. one[1]\n2. two[2]\n"),
        ("| a | b |\n|---|---|\n| c | d |", ["a", "d"], "| a[1] | b |\n|---|---|\n| c | d[2] |"),
        ("| a | b |\n|---|---|\n| c | d |", ["b |\n|-"], "| a | b |\n|---|---|\n| c | d |\n\n[1]"),
        (f"{TABLE}| c | d |\n| e | f |\n\nend", ["| c | d |", "f |\n"], f"{TABLE}| c | d[1] |\n| e | f[2] |\n\nend"),
        (f"{TABLE}| c | d |\n| e | f |", ["d |\n| ", "| e |"], f"{TABLE}| c | d[1] |\n| e[2] | f |"),
        (f"{TABLE}| c | d  |  |\n| e | \\| |", ["d  |  |", "\\| |"], f"{TABLE}| c | d[1]  |  |\n| e | \\|[2] |"),
        (f"{TABLE}|  |  |\nend", ["|  |  |"], f"{TABLE}|  |  |\nend\n\n[1]"),
        ("> | a | b |\n> |---|---|\n> | c | d |", ["c | d |"], "> | a | b |\n> |---|---|\n> | c | d[1] |"),
        ("- | a |\n  |---|\n  | c |\n- b", ["| c |\n- "], "- | a |\n  |---|\n  | c[1] |\n- b"),
        ("```py\nx = 1\ny\n```\nend", ["x = 1"], "```py\nx = 1\ny\n```\nend\n\n[1]"),
        ("```py\nx = 1\ny\n```\n\nend", ["x = 1"], "```py\nx = 1\ny\n```\n[1]\n\nend"),
        ("- a\n\n  ```\n  x\n  ```\n- b", ["x"], "- a\n\n  ```\n  x\n  ```\n  [1]\n- b"),
        ("> ```\n> x\n> ```", ["x"], "> ```\n> x\n> ```\n> [1]"),
        ("    code\n    more\n\nend", ["code"], "    code\n    more\n[1]\n\nend"),
        ("```py\nx = 1", ["x"], "```py\nx = 1\n```\n[1]"),
        ("Title\n===\n\ntext", ["Title\n=="], "Title\n===\n\ntext\n\n[1]"),
        (f"A {KEY} b.", [(2, 12), (39, 40)], "A[1] [redacted] b.[2]"),
        ("a\x1b[31mb c", [(0, 7), (8, 9)], "ab[1] c[2]"),
        ("One.", [(-5, 99)], "One.[1]"),
        ("One.", [(3, 0)], "[1]One."),
        ("Twice.", ["Twice", "Twice."], "Twice.[1][2]"),
        ("😀 yes. No", ["yes"], "😀 yes.[1] No"),
    ],
)
def test_a_number_stands_behind_what_rests_on_its_source(text, spans, expected):
    part = cited(text, *spans)
    assert numbered(part) == expected


MARKDOWN = [
    "**a** _b_ ~~c~~ `d` [e](https://x.org) https://y.org <https://z.org>",
    "| a | b |\n|---|:-:|\n| c `|` | d |",
    "- a\n  - b\n\n    ```\n    c\n    ```\n- d\n\n1. e\n2. f",
    "> a\n> > b\n\n---\n\nTitle\n===\n\n## c ##",
    "$a_1 * b$ and \\(c\\) cost $5 and $6\n\n    code\n\nend",
    "[a]: https://x.org\n\n[a] and ![i](data:image/png;base64,AAAA) &amp; \\* a\\\nb  \nc",
    "```py\nopen",
]


@given(st.data())
def test_without_its_numbers_an_answer_is_the_same_html_wherever_they_stand(data):
    text = "\n\n".join(data.draw(st.permutations(MARKDOWN))[:3])
    ends = data.draw(st.lists(st.integers(0, len(text)), min_size=1, max_size=4))
    part = cited(text, *((0, end) for end in ends))
    marks = marks_of(part)
    assert {mark.number for mark in marks} == {source.number for source in sources_of(part.citations)}
    page = cited_html(text, marks, Markup("<sup>{}</sup>").format)
    plain = re.sub(r"<sup>\d</sup>", "", page)
    assert page.count("<sup>") == len(marks)
    assert bare(plain) == bare(to_html(text))
    assert not re.search("[\ue000-\uf8ff\u1680]", page)


def bare(page):
    """HTML without empty paragraphs, and without the elements that limit the width of prose."""
    return re.sub(r'\s*(<p>\s*</p>|<div style="max-width:42em">|</div>)\s*|\n', "", page)


def test_no_text_can_forge_a_number():
    text = f"A \u1680{citations._MARK[1:4]}\ue001 &#xE001;&#x1680; b."
    part = cited(text, "b")
    page = cited_html(text, marks_of(part), Markup("<sup>{}</sup>").format)
    assert page.count("<sup>") == 1


@pytest.mark.parametrize(
    "text",
    [
        TABLE + "| x | y | z | w |\n" * 500,
        "\n".join("> " * 60 + "a" for _ in range(60)),
        "- item\n" * 3_000,
        "*a" * 5_000,
        "[a]: b\n" * 1_500,
        "a\n===\n" * 1_000,
    ],
)
def test_the_places_of_numbers_are_sought_for_a_bounded_time(text, monkeypatch):
    read = []
    monkeypatch.setattr(citations, "parse", lambda piece: read.append(piece) or parse(piece))
    ends = range(7, len(text), len(text) // 250)
    assert {mark.number for mark in marks_of(cited(text, *((0, end) for end in ends)))} == set(range(1, len(ends) + 1))
    assert sum(map(citations._weight, read)) < 3 * citations.HEAVIEST_NUMBERED + citations.MOST_SOUGHT


@pytest.mark.parametrize("text", ["So. " * 15_000, "[" * 10_000, "| " * 13_000])
def test_a_text_that_is_too_long_or_slow_for_numbers_has_the_list_alone(text):
    part = cited(text, (0, 3))
    assert marks_of(part) == ()
    assert words_of(html.render(Transcript(turn(part)))).count("https://x.org/0") == 2


@pytest.mark.parametrize(
    ("url", "leads_to"),
    [
        ("https://x.org/a?b=c#d", "https://x.org/a?b=c#d"),
        ("http://x.org/a(b) <c>", "http://x.org/a%28b%29%20%3Cc%3E"),
        ("http://x.org/\u202ea", ""),
        ("https://münchen.de/ü", "https://xn--mnchen-3ya.de/%C3%BC"),
        ("https://de.wikipedia.org/wiki/Käse", "https://de.wikipedia.org/wiki/K%C3%A4se"),
        *[(url, "") for url in ("javascript:alert(1)", "data:text/html,x", "/etc/passwd", "https://", "ftp://x.org")],
        *[(url, "") for url in ("https://user@x.org", "https://x.org/" + "a" * 2_000, "https://[", "")],
    ],
)
def test_a_link_leads_to_pages_of_the_web_only(url, leads_to):
    assert link(url) == leads_to


def test_a_page_has_one_number_in_all_texts_of_a_turn():
    first = Text("Old.", citations=(Citation(0, 3, OLD, "Old"), Citation(0, 4, NEW)))
    second = Text("New. Old.", citations=(Citation(0, 3, NEW, "New", "q"), Citation(5, 8, OLD, "Other", "r")))
    texts = Transcript(turn(first, second)).blocks[1:3]
    assert [block.sources for block in texts] == [
        (Source(1, OLD, "Old"), Source(2, NEW)),
        (Source(1, OLD, "Other", ("r",)), Source(2, NEW, "New", ("q",))),
    ]
    assert "New.[2] Old.[1]" in terminal.render(Transcript(turn(first, second))).replace(" [", "[")


def test_each_number_of_a_page_leads_to_its_entry_and_nothing_is_loaded():
    part = Text("New. Old.", citations=(Citation(0, 4, NEW, "<New>", "a JIT"), Citation(5, 9, "javascript:x", "Odd")))
    page = html.render(Transcript(turn(part)))
    leads = re.findall(r'<sup[^>]*><a href="#([\w-]+)" title="([^"]*)" aria-label="([^"]*)">(\d)</a></sup>', page)
    assert [(title, label, number) for _, title, label, number in leads] == [
        ("&lt;New&gt;", "source 1: &lt;New&gt;", "1"),
        ("Odd", "source 2: Odd", "2"),
    ]
    assert [f'id="{name}"' in page for name, *_ in leads] == [True, True]
    assert f'<a href="{NEW}" rel="noopener noreferrer nofollow">&lt;New&gt;</a>' in page
    assert "javascript:x" in words_of(page)
    assert not re.search(r'(href|src)="(?!#|https://docs)', page)
    assert "<img" not in page
    assert words_of(page).startswith("New. 1 Old. 2 Sources <New>")
    assert page == html.render(Transcript(turn(part)))
