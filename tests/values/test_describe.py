"""Python values as parts for a model, in results and in prompts."""

import asyncio
import enum
import itertools
import json
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

from agentmagic.errors import ToolError
from agentmagic.messages import Media, Text
from agentmagic.values.describe import MOST_BYTES, MOST_ITEMS, collect, to_content

PNG = b"\x89PNG"
CUT = "(cut: only the first {} items were read)"


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


class Frame:
    """As much of a data frame as is looked at."""

    def __init__(self, rows):
        self.shape = (rows, 1)

    def to_string(self):
        return f"{self.shape[0]} rows"

    def head(self, rows):
        return Frame(rows)


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("words", (Text("words"),)),
        (None, (Text("(no value returned)"),)),
        (3, (Text("3"),)),
        ({"a": [1, "ü"]}, (Text('{"a": [1, "ü"]}'),)),
        ((1, 2), (Text("[1, 2]"),)),
        (Media("image/png", PNG), (Media("image/png", PNG),)),
        (Figure(), (Media("image/png", PNG),)),
        (Frame(3), (Text("3 rows"),)),
        (Frame(300), (Text("50 rows\n(300 rows in all, the first 50 shown)"),)),
    ],
)
def test_a_value_is_put_into_parts_a_model_can_read(value, content):
    assert tuple(to_content(value)) == content


def json_of(value):
    """The JSON data that a model reads of a value."""
    (part,) = to_content(value)

    def refuse(name):
        pytest.fail(f"{name} is not JSON")

    return json.loads(part.text, parse_constant=refuse)


def test_the_records_of_a_data_frame_are_json_with_null_for_what_is_missing():
    frame = pd.DataFrame(
        {
            "day": [pd.Timestamp("2026-01-02"), pd.NaT],
            "took": [pd.Timedelta("1h"), pd.NaT],
            "sold": [1.5, float("nan")],
            "count": pd.array([1, pd.NA], dtype="Int64"),
        }
    )
    assert json_of(frame.to_dict("records")) == [
        {"day": "2026-01-02T00:00:00", "took": "PT1H", "sold": 1.5, "count": 1},
        {"day": None, "took": None, "sold": None, "count": None},
    ]
    assert json_of({"by day": frame.set_index("day")["sold"].head(1).to_dict()}) == {
        "by day": {"2026-01-02T00:00:00": 1.5}
    }


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (np.int64(3), 3),
        (np.float64("nan"), None),
        (np.datetime64("2026-01-02T03:04:05.000000006"), "2026-01-02T03:04:05.000000006"),
        (np.datetime64("NaT"), None),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (float("-inf"), "-Infinity"),
        ({"a"}, ["a"]),
        (Decimal("1.50"), "1.50"),
        (Colour.RED, "red"),
        (Point(np.int8(4)), {"x": 4}),
        (Person(name="Ada"), {"name": "Ada"}),
        (b"\xff", "_w=="),
        (zip("ab", (1, 2), strict=True), [["a", 1], ["b", 2]]),
    ],
)
def test_values_inside_others_become_json(value, data):
    assert json_of({("key", 1): [value]}) == {'["key", 1]': [data]}


def test_what_is_rich_in_a_list_makes_a_part_of_its_own_and_a_list_in_itself_is_refused():
    image = Media("image/png", PNG)
    words, *others, count, rows = to_content(["Look:", image, Figure(), 3, Frame(1)])
    assert ([part.text for part in (words, count, rows)], others) == (["Look:", "3", "1 rows"], [image, image])
    assert "Figure" in to_content(Figure)[0].text  # a class is not drawn
    ring = []
    ring.append({"ring": ring})
    with pytest.raises(ToolError, match="contains itself"):
        to_content(ring)


# -- generators ------------------------------------------------------------------------------------


def test_a_generator_is_read_up_to_a_number_of_items():
    read = json_of(number for number in itertools.count())
    assert read == [*range(MOST_ITEMS), CUT.format(f"{MOST_ITEMS:,}")]


def test_generators_in_a_result_are_read_up_to_a_number_of_bytes_together():
    piece = "x" * 1_000_000
    whole = json_of({"a": (piece for _ in itertools.count()), "b": ([piece] for _ in itertools.count())})
    assert MOST_BYTES <= sum(len(item) for item in whole["a"]) <= MOST_BYTES + 3 * len(piece)
    assert whole["b"] == [CUT.format(0)]


def test_an_async_generator_is_read_up_to_a_number_of_items():
    async def endless():
        while True:
            yield 1

    assert asyncio.run(collect(endless())) == [*[1] * MOST_ITEMS, CUT.format(f"{MOST_ITEMS:,}")]
