"""Python values as parts for a model, in results and in prompts."""

import enum
from dataclasses import dataclass

import pandas as pd
import pytest
from pydantic import BaseModel

from agentmagic.messages import Media, Resource, Text
from agentmagic.tools.values import LONGEST_VALUE, describe, to_content

PNG = b"\x89PNG"


class Person(BaseModel):
    name: str


@dataclass
class Point:
    x: int


class Colour(enum.Enum):
    RED = "red"


class Figure:
    def savefig(self, file, format):  # noqa: A002  (Matplotlib's name)
        file.write(PNG)


class Drawing:
    def _repr_png_(self):
        return PNG


class Frame:
    """As much of a data frame as is looked at."""

    def __init__(self, rows):
        self.shape = (rows, 1)

    def to_string(self):
        return f"{self.shape[0]} rows"

    def head(self, rows):
        return Frame(rows)


class Scalar:
    shape = ()

    def item(self):
        return 1.5


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("words", (Text("words"),)),
        (None, (Text("(no value returned)"),)),
        (3, (Text("3"),)),
        (True, (Text("true"),)),
        ({"a": [1, "ü"]}, (Text('{"a": [1, "ü"]}'),)),
        ((1, 2), (Text("[1, 2]"),)),
        (Person(name="Ada"), (Text('{"name": "Ada"}'),)),
        (Point(1), (Text('{"x": 1}'),)),
        (Colour.RED, (Text("red"),)),
        (Scalar(), (Text("1.5"),)),
        (Media("image/png", PNG), (Media("image/png", PNG),)),
        (["Look:", Media("image/png", PNG)], (Text("Look:"), Media("image/png", PNG))),
        (Resource("file:///a"), (Resource("file:///a"),)),
        (Figure(), (Media("image/png", PNG),)),
        (Drawing(), (Media("image/png", PNG),)),
        (Frame(3), (Text("3 rows"),)),
        (Frame(300), (Text("50 rows\n(300 rows in all, the first 50 shown)"),)),
    ],
)
def test_a_value_is_put_into_parts_a_model_can_read(value, content):
    assert tuple(to_content(value)) == content


def test_a_class_is_not_drawn():
    assert "Drawing" in to_content(Drawing)[0].text


def test_text_goes_in_as_it_is_and_other_values_as_their_repr():
    assert describe("Ann's") == "Ann's"
    assert describe([1, "two"]) == "[1, 'two']"


def test_a_data_frame_goes_in_as_columns_and_first_rows():
    text = describe(pd.DataFrame({"city": list("abcdefg"), "sold": range(7)}))
    assert text.startswith("A table of 7 rows and 2 columns: city (str), sold (int64)\n")
    assert text.endswith("(the first 5)")
    assert "f" not in text.splitlines()[-2]


def test_a_series_goes_in_with_its_type_and_first_values():
    text = describe(pd.Series([1.5, 2.5], name="price"))
    assert text.startswith("A column price of 2 values (float64):\n")
    assert "2.5" in text


def test_a_long_value_is_cut_and_says_so():
    text = describe("x" * (LONGEST_VALUE + 1))
    assert text.endswith(f"(cut: {LONGEST_VALUE + 1:,} characters in all, the first {LONGEST_VALUE:,} shown)")
