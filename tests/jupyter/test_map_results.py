"""The first rows of a map as a cell shows them, for rows of every kind."""

import pytest

from agentmagic import Agent, Session
from agentmagic.jupyter.cell.map_results import bundle
from tests.mapping.models import RowModel

pandas = pytest.importorskip("pandas")


class Odd:
    def __repr__(self):
        raise ValueError


def polars_rows():
    return pytest.importorskip("polars").DataFrame({"word": ["a", "b"]})


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        (lambda: pandas.DataFrame({"word": ["a", "b"]}, index=["x", "y"]), ["index", "x ", "word", "answer"]),
        (polars_rows, ["word", "answer", "_status"]),
        (lambda: [{"word": "a"}, {"word": "b"}], ["index", "word", "answer"]),
        (lambda: ["a", "b"], ["row", "answer"]),
        (lambda: [{"word": "a", "more": {"deep": [1] * 999}}, {"word": "b"}], ["'deep'", "…"]),
        (lambda: [{"word": "a", "odd": Odd()}], ["odd"]),
        (lambda: [{"word": "a", "index": 1, "#": 2}], ["row index"]),
        (lambda: [{"word": "<b>\x1b[31m" * 99}], ["<b>"]),
        (lambda: pandas.DataFrame({"word": ["a"], **{f"c{n}": [n] for n in range(40)}}), ["30 columns are left out"]),
        (lambda: pandas.DataFrame({"word": [f"w{n}" for n in range(99)]}), ["w9", "The first 10 of 99 rows."]),
        (lambda: pandas.DataFrame({"word": ["a", None]}), ["is missing in this row"]),
        (lambda: pandas.DataFrame({"word": []}), ["0 rows"]),
    ],
)
def test_the_first_rows_are_a_small_table_whatever_they_are(rows, shown):
    given = rows()
    name = "row" if given is not None and list(given) == ["a", "b"] else "word"
    result = Session(Agent(RowModel())).map(given, f"Say {{{name}}}", concurrency=2)
    made = bundle(result, times=False)
    text = made["text/plain"]
    assert [words for words in shown if words not in text] == []
    assert "w10" not in text
    assert "\x1b" not in text
    assert "<b>\x1b" not in made["text/html"]
    assert len(text) < 4_000
    assert len(made["text/html"]) < 12_000
    assert bundle(result, times=False) == made
