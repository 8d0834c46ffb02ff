"""What braces mean in a prompt."""

import pytest

from agentmagic.jupyter.prompt import fill

NAMES = {"x": 3, "a": 1, "b": 2, "name": "Ann", "d": {"k": 5}}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("Hello {name}!", "Hello Ann!"),
        ("{ x + 1 }{a}", "41"),
        ("{d['k']} and { {1: a}[1] }", "5 and 1"),
        ("{sum(n for n in [x, 1])}", "4"),
        ("{(lambda q: q + x)(1)}", "4"),
    ],
)
def test_an_expression_over_the_notebooks_names_is_put_in(text, filled):
    assert fill(text, NAMES).text == filled


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "b": {"x": x}}',
        "{}",
        "{{x}}",
        "{x:.2f}",
        "{x!r}",
        "{unknown} {x.y z}",
        "{1, 2}",
        "{id} {len}",
        "{x",
        "x}",
        r"\frac{a}{b} x^{a} y_{b}",
        "{x := 5}",
        "{await x}",
        "{" * 50,
    ],
)
def test_other_braces_stay_as_they_are(text):
    assert fill(text, NAMES).text == text


def test_an_expression_that_raises_stays_and_is_told():
    filled = fill("{d['z']} {x}", NAMES)
    assert filled.text == "{d['z']} 3"
    assert filled.left == ("{d['z']} stays as it is: KeyError: 'z'",)


def test_a_name_that_is_not_bound_keeps_the_expression_from_running():
    ran = []
    assert fill("{run(x, later)}", {"run": ran.append, "x": 1}).text == "{run(x, later)}"
    assert ran == []


class Sliced(str):  # noqa: SLOT000  (it counts)
    """A text that counts the characters copied out of it."""

    copied = 0

    def __getitem__(self, key):
        piece = super().__getitem__(key)
        self.copied += len(piece)
        return piece


def test_many_braces_without_an_end_take_time_in_proportion():
    text = Sliced("{name " * 2000)
    assert fill(text, NAMES).text == text
    assert text.copied < 200 * len(text)
