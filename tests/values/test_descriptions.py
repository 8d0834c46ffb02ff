"""What values become in a prompt: bounded in tokens and in time, whichever they are."""

import datetime as dt
import itertools
import threading
import time
from collections import Counter, namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
from pydantic import BaseModel

from agentmagic.secrets import redact
from agentmagic.undo import variables
from agentmagic.undo.changes import Changes, summarize
from agentmagic.values import reprs
from agentmagic.values.describe import BUDGET, CHARACTERS, describe, schema, summary

ROWS = 10_000_000
SALES = pd.DataFrame({"city": list("abcdefg"), "sold": range(7), "price": [1.5, None, 3, 4, 5, 6, 7]})
DAYS = pd.date_range("2026-01-01", periods=3, tz="UTC")


class Row(BaseModel):
    """A row."""

    city: str
    sold: int = 0


@dataclass
class Order:
    rows: list[Row] = field(default_factory=list)
    note: Any = None


class Failing:
    def __repr__(self):
        raise RuntimeError("never")


class Endless:
    threads: ClassVar = []

    def __repr__(self):
        self.threads.append(threading.current_thread())
        while True:
            pass


class Sleeping:
    """Its repr waits for an event that is never set."""

    def __repr__(self):
        threading.Event().wait()
        return ""


class Kept(dict):
    """A dict whose items are its own affair."""

    def items(self):
        while True:
            pass

    __repr__ = Sleeping.__repr__


class Sneaky:
    """Has an answer for every attribute, as doubles and proxies do."""

    def __getattr__(self, name):
        raise AssertionError(name)

    def __repr__(self):
        return "Sneaky()"


class Unready:
    """Cannot tell its class, like a proxy of settings that were not made yet."""

    @property
    def __class__(self):
        raise RuntimeError("Make the settings first.")


def numbers():
    yield from itertools.count()


RING: list[Any] = [1]
RING.append(RING)
Point = namedtuple("Point", "x y")  # noqa: PYI024  (the untyped one, as users have it)
ENDLESS = numbers()

VALUES = {
    "sets": ({"s": set(), "f": frozenset({1})}, "{'s': set(), 'f': frozenset({1})}"),
    "counts": (Counter("aab"), "Counter({'a': 2, 'b': 1})"),
    "a named tuple": (Point(1, "b"), "Point(x=1, y='b')"),
    "plain values": ([Decimal("1.5"), dt.date(2026, 1, 2), 1j], "[Decimal('1.5'), datetime.date(2026, 1, 2), 1j]"),
    "a value of a model": (Row(city="Oslo"), "Row(city='Oslo', sold=0)"),
    "a data class": (Order([Row(city="Oslo")]), "Order(rows=[Row(city='Oslo', sold=0)], note=None)"),
    "a list in itself": (RING, "[1, [1, [1,"),
    "a huge number": (10**100_000, "<int: its repr raised ValueError>"),
    "a generator": (ENDLESS, "<generator object numbers>"),
    "a repr that fails": ([Failing(), 1], "[<Failing: its repr raised RuntimeError>, 1]"),
    "a repr without end": ([Endless(), 1], "[<Endless: its repr took longer than 0.2 s>, 1]"),
    "a repr that sleeps": ([Sleeping(), Sleeping(), 1], "[<Sleeping: its repr took longer than 0.2 s>, <Sleeping>, 1]"),
    "a dict with its own items": (Kept(a=1), "<Kept: its repr took longer than 0.2 s>"),
    "a proxy": (Sneaky(), "Sneaky()"),
    "a proxy of nothing": ([Unready()], "Unready object>]"),
    "a frame of pandas": (SALES, "| price | float64 | 1 | 1.5 to 7 |"),
    "a frame of polars": (pl.DataFrame({"a": [1.0, None, float("nan")]}), "| a | Float64 | 2 | 1 to 1 |"),
    "a lazy frame": (pl.LazyFrame({"a": [1]}), "LazyFrame, not computed yet. Columns and types:\na: Int64"),
    "a frame of odd types": (
        pd.DataFrame(
            {
                "o": [Failing(), {"a|b": 1}, None],
                "d": DAYS,
                "k": pd.Categorical(["a", "b", "a"]),
                "n": pd.array([1, pd.NA, 3], dtype="Int64"),
                "t": pd.to_timedelta(["1h", None, "2h"]),
                "line": ["a\nb", "c|d", "x" * 500],
            }
        ),
        "| <Failing: its repr raised RuntimeError> | 2026-01-01 00:00:00+00:00 | a | 1 | 0 days 01:00:00 | a b |",
    ),
    "names that are twice there": (pd.DataFrame([[1, 2, 3]], columns=["a", "a", ("b", 1)]), "| a | a | ('b', 1) |"),
    "an index": (pd.Series([1, 2, 3], index=DAYS, name="sold"), "| (index) | sold |"),
    "an array": (np.array([[1.5, np.nan], [2, 3]]), "ndarray 2x2 of float64, 1.5 to 3, mean 2.166666667, 1 not finite"),
    "a model": (Row, '"sold": {'),
    "a class": (Endless, "while True:"),
}
LARGE = {
    "a long list": (lambda: [*range(1_000_000)], "more)]"),
    "a long text": (lambda: "x" * 50_000_000, "(cut: 50,000,000 characters in all, the first 20,000 shown)"),
    "bytes": (lambda: b"x" * 50_000_000, "(cut: 50,000,000 in all)"),
    "ten million rows": (
        lambda: pd.DataFrame({"a": np.arange(ROWS), "b": np.ones(ROWS), "c": "word"}),
        "DataFrame, 10,000,000 rows x 3 columns. Missing values, ranges and counts are those of 1 row in 150.",
    ),
    "a thousand columns": (
        lambda: pd.DataFrame(np.zeros((1000, 1000))),
        "1,000 columns. Missing values, ranges and counts are those of 1 row in 5.",
    ),
    "a large array": (lambda: np.zeros((4000, 4000)), "of float64, 0 to 0, mean 0 (of 1 item in 9 of each side)"),
}
"""Large values, made only when they are tested: every process of the tests collects all the tests."""
SECONDS = reprs.PATIENCE + 1.5
"""The bound is PATIENCE; a slow machine may take longer for the rest, but never as long as a value without an end."""


def assert_is_bounded(value, part):
    began = time.perf_counter()
    text = describe(value)
    assert time.perf_counter() - began < SECONDS
    assert part in text
    assert len(text) < 1.1 * BUDGET * CHARACTERS
    while Endless.threads:  # code that does not end is ended
        thread = Endless.threads.pop()
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize(("value", "part"), VALUES.values(), ids=VALUES.keys())
def test_a_value_in_a_prompt_is_bounded_in_tokens_and_in_time(value, part):
    assert_is_bounded(value, part)


@pytest.mark.parametrize(("make", "part"), LARGE.values(), ids=LARGE.keys())
def test_a_large_value_in_a_prompt_is_bounded_in_tokens_and_in_time(make, part):
    assert_is_bounded(make(), part)


def test_a_generator_is_not_read():
    describe([ENDLESS])
    assert next(ENDLESS) == 0


def test_the_rows_of_a_frame_are_as_many_as_the_budget_allows():
    frame = pd.DataFrame({"word": [f"cell {number} is fairly long" for number in range(1000)]})
    few, many = (text.count("\n| cell") for text in (describe(frame, 100), describe(frame, 500)))
    assert 2 * few < many < 100
    assert len(describe(frame, 100)) < 600
    assert f"The first {few} rows of 1,000:" in describe(frame, 100)
    assert describe(frame, rows=300).count("\n| cell") == 300
    assert "All rows:" in describe(SALES)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Ann", "str, 3 characters"),
        ([1, 2], "list of 2"),
        ({"name": "Ann", "Ann Lee": 1, 7: 2}, "dict of 3\nname: str, 3 characters"),
        (Row(city="Oslo"), "Row\ncity: str, 4 characters\nsold: int"),
        (SALES, "DataFrame, 7 rows x 3 columns. Columns and types:\ncity: str\nsold: int64\nprice: float64"),
        (np.array([42]), "ndarray 1 of int64"),
        (Sleeping(), "Sleeping"),
    ],
)
def test_a_schema_has_names_and_types_and_no_value(value, text):
    assert schema(value) == text
    assert text.startswith(summary(value))


@dataclass
class Login:
    password: str
    pin: str = field(default="1234", repr=False)


@pytest.mark.parametrize("kind", [Login, namedtuple("Login", "password")])  # noqa: PYI024  (as users have it)
def test_a_field_with_the_name_of_a_secret_is_known_as_one(kind):
    secret = f"Tr0ub4dor-and-4-horses-{kind.__base__.__name__}"
    assert redact(describe(kind(secret))) == "Login(password='[redacted]')"  # without the pin, as its repr is


@pytest.mark.parametrize("written", [describe, schema, summary, lambda value: variables.summary("settings", value)])
def test_a_value_that_cannot_tell_its_class_is_written(written):
    assert "Unready" in written(Unready())


def test_a_variable_that_is_named_like_a_secret_is_listed_and_inspected_without_its_value():
    for written in (variables.summary, variables.describe_variable):
        assert "Tr0ub4dor" not in written("api_key", f"Tr0ub4dor-and-5-horses-{written.__name__}")
        assert "Oslo" in written("city", "Oslo")


def test_the_variables_are_watched_if_one_has_an_answer_for_every_attribute():
    namespace = {"settings": Unready(), "proxy": Sneaky(), "count": 1}
    changes = Changes(namespace)
    changes.expect(namespace)
    namespace["count"] = 2
    assert [change.name for change in summarize([changes.settle()]).changes] == ["count"]
