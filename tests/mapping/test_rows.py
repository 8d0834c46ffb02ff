"""Rows of any kind, and the prompts that they make."""

import pandas as pd
import polars as pl
import pytest

from agentmagic.errors import UsageError
from agentmagic.mapping.prompts import RowPrompts
from agentmagic.mapping.rows import is_missing, rows_of
from agentmagic.prompt.attachments import UNKNOWN, Attacher


def prompts(rows, prompt, **names):
    return RowPrompts(prompt, rows_of(rows), names, Attacher(lambda: UNKNOWN))


def texts(rows, prompt, **names):
    return [one.prompt.text if one.prompt else one.problem for one in prompts(rows, prompt, **names).read()]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("a text", "rows is a str"),
        ({"a": [1]}, "rows is a dict"),
        (3, "rows is an int"),
        (pl.LazyFrame({"a": [1]}), "rows is a LazyFrame"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "more than one column of the name a"),
    ],
)
def test_what_cannot_be_rows_is_refused_in_a_sentence(rows, words):
    with pytest.raises(UsageError, match=words):
        rows_of(rows)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("Say {reviw}", "{reviw} names no column and no variable. Did you mean review? The columns: review, stars."),
        ("Say it", "The prompt names no column, so every row would be asked the same."),
        ("Say {limit}", "The prompt names no column, so every row would be asked the same."),
        ("Say {limit / 0} {review}", "{limit / 0} has no value: ZeroDivisionError: division by zero"),
    ],
)
def test_a_prompt_that_cannot_be_filled_is_refused_before_anything_is_asked(prompt, words):
    with pytest.raises(UsageError) as refused:
        prompts(pd.DataFrame({"review": ["a"], "stars": [1]}), prompt, limit=3)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("values", "prompt", "text"),
    [
        ([{"a": 1}, {"b": 2}], "{a}", ["1", "The row has no a."]),
        ([{"a": None}], "{a}", ["a is missing in this row, so nothing was asked. Fill it, or leave the row out."]),
        ([{"a": None}], "{a or 'nothing'}", ["nothing"]),
        ([{"a": "x"}], "{a + 1}", ['{a + 1} stays as it is: TypeError: can only concatenate str (not "int") to str']),
        ([{"a": "{b}", "b": "z"}], "{a}", ["{b}"]),
        ([{"a": 1}], '{"k": 2} {{n}} {a}', ['{"k": 2} {{n}} 1']),
    ],
)
def test_each_row_is_filled_or_says_why_it_is_not(values, prompt, text):
    assert texts(values, prompt) == text


def test_a_key_is_that_of_the_rows_own_values():
    rows = pd.DataFrame({"a": ["x", "y", "x"], "b": [1, 2, 3]})
    first = [one.key for one in prompts(rows, "Say {a}").read()]
    other = [one.key for one in prompts(rows, "Tell me {limit} of: {a}", limit=3).read()]
    assert first == other
    assert first[2] == f"{first[0]}-2"
    assert len({*first}) == 3
    assert [one.key for one in prompts(rows, "{a} {b}").read()] != first


@pytest.mark.parametrize("value", [None, float("nan"), pd.NA, pd.NaT])
def test_what_says_that_there_is_no_value_is_missing(value):
    assert is_missing(value)


@pytest.mark.parametrize("value", ["", 0, False, [], "nan"])
def test_an_empty_value_is_a_value(value):
    assert not is_missing(value)


def test_rows_of_an_iterator_are_read_as_they_are_needed():
    read = []

    def rows():
        for number in range(5):
            read.append(number)
            yield {"n": number}

    source = prompts(rows(), "{n}").read()
    next(source)
    assert read == [0]
