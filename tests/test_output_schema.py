"""Answers of a given form: what is asked for, and what is read."""

import json
import re
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal, Required, TypedDict

import pytest
from pydantic import BaseModel

from agentmagic.agent import output_schema
from agentmagic.errors import UsageError


class City(BaseModel):
    name: str
    people: int


class Node(BaseModel):
    v: int
    children: list["Node"] = []


@dataclass
class Visit:
    city: City
    on: date


def test_a_model_is_asked_for_as_its_schema_and_in_words_and_read_as_an_instance():
    schema = output_schema(City)
    assert '"people"' in schema.instructions
    assert schema.name == "City"
    assert schema.schema["required"] == ["name", "people"]
    assert schema.read('{"name": "Delft", "people": 106000}') == City(name="Delft", people=106000)


class Base(TypedDict):
    name: Annotated[str, "as its people call it"]


class Place(Base, total=False):
    country: Required[str]
    people: int


DELFT = {"name": "Delft", "people": 1}


@pytest.mark.parametrize(
    ("kind", "written", "read"),
    [
        (Visit, {"city": DELFT, "on": "2026-11-22"}, Visit(City(**DELFT), date(2026, 11, 22))),
        (list[City], {"value": [DELFT]}, [City(**DELFT)]),
        (list[Place], {"value": [{"name": "Delft", "country": "NL"}]}, [{"name": "Delft", "country": "NL"}]),
        (Literal["yes", "no"], {"value": "yes"}, "yes"),
        (dict[str, int], {"a": 1}, {"a": 1}),
        ({"title": "a city", "type": "object", "properties": {"name": {}}}, {"name": "x"}, {"name": "x"}),
        (Node, {"v": 1, "children": [{"v": 2}]}, Node(v=1, children=[Node(v=2)])),
    ],
    ids=str,
)
def test_every_form_is_asked_for_as_an_object_and_read_as_what_it_is(kind, written, read):
    form = output_schema(kind)
    assert form.schema["type"] == "object"
    assert form.read(json.dumps(written)) == read
    assert re.fullmatch(r"\w+", form.name)


def test_a_typed_dict_that_names_what_is_not_defined_is_refused():
    with pytest.raises(UsageError, match="no JSON Schema can be made: name 'Nowhere' is not defined"):
        output_schema(TypedDict("Lost", {"at": "Nowhere"}))  # noqa: F821  # pyright: ignore[reportUndefinedVariable]  (the test's)


@pytest.mark.parametrize("around", ["{}", "Here it is:\n{}\nDone."])
def test_a_fenced_answer_is_read_too(around):
    fenced = '```json\n{"name": "Delft", "people": 1}\n```'
    assert output_schema(City).read(around.format(fenced)).name == "Delft"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The city is Delft.", "it is not JSON"),
        ("[" * 5000, "it is not JSON"),
        ('{"name": "Delft"}', '"people" is a required property'),
        ('{"name": "Delft", "people": "many"}', 'not of type "integer" (at people)'),
    ],
)
def test_what_does_not_fit_is_said_in_words(text, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        output_schema(City).read(text)


def test_a_validator_of_the_model_has_the_last_word():
    class Even(BaseModel):
        number: int

        def model_post_init(self, context):
            assert self.number % 2 == 0, "it is odd"

    with pytest.raises(ValueError, match="odd"):
        output_schema(Even).read('{"number": 3}')


@pytest.mark.parametrize("output", [{"type": "no such type"}, print, "str"], ids=str)
def test_what_has_no_schema_is_refused(output):
    with pytest.raises(UsageError):
        output_schema(output)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": {"$ref": "#/definitions/P"}, "definitions": {"P": {"type": "integer"}}}, [1, 2]),
        ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]}, [1, [2, [3]]]),
        ({"$id": "urn:a", "type": "array", "items": {"$ref": "#/$defs/P"}, "$defs": {"P": {"type": "null"}}}, [None]),
    ],
    ids=["definitions", "root", "id"],
)
def test_references_of_a_wrapped_schema_still_lead_somewhere(schema, value):
    form = output_schema(schema)
    assert form.read(json.dumps({"value": value})) == value
    with pytest.raises(ValueError, match="value"):
        form.read('{"value": "no"}')
