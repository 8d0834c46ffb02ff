"""The checks of JSON data in pure Python say what those of `jsonschema-rs` say."""

import json
from typing import Any

import pytest

from agentmagic.portable_schemas import validator_for

pytest.importorskip("jsonschema")
jsonschema_rs = pytest.importorskip("jsonschema_rs")

WORD, WHOLE = {"type": "string"}, {"type": "integer"}
CASES: list[tuple[Any, Any]] = [
    (WHOLE, "x"),
    (WHOLE, 1.0),
    (WHOLE, 1.5),
    (WHOLE, True),
    ({"type": ["string", "null"]}, 3),
    ({"type": ["number"]}, "é\"'\n"),
    ({"type": "array"}, {"a": None, "b": [True, 1.0]}),
    ({"properties": {"size": WHOLE}}, {"size": "x"}),
    ({"required": ["a", "b"]}, {"a": 1}),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1}),
    ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1, "c": 2}),
    ({"additionalProperties": False}, {"b": 1}),
    ({"additionalProperties": WHOLE}, {"a": "x"}),
    ({"patternProperties": {"^a": WHOLE}}, {"ab": "x"}),
    ({"unevaluatedProperties": False}, {"a": 1}),
    ({"propertyNames": {"pattern": "^a"}}, {"b": 1}),
    ({"enum": []}, "c"),
    ({"enum": ["a"]}, "c"),
    ({"enum": ["a", "b", "d"]}, "c"),
    ({"enum": [1, 2.5, None, {"a": 1}]}, "c"),
    ({"const": {"a": [1]}}, "b"),
    ({"minimum": 3}, 1),
    ({"exclusiveMaximum": 3}, 3),
    ({"maximum": 3}, 3.5),
    ({"multipleOf": 2}, 3),
    ({"minLength": 1}, ""),
    ({"minLength": 2}, "é"),
    ({"maxLength": 2}, "abc"),
    ({"pattern": "^a"}, "b"),
    ({"minItems": 2}, [1]),
    ({"maxItems": 1}, [1, 2]),
    ({"uniqueItems": True}, [1, 1]),
    ({"minProperties": 1}, {}),
    ({"maxProperties": 1}, {"a": 1, "b": 2}),
    ({"items": WHOLE}, [1, "a"]),
    ({"contains": WHOLE}, ["a"]),
    ({"anyOf": [WORD, {"type": "null"}]}, 3),
    ({"oneOf": [WHOLE, {"minimum": 2}]}, 3),
    ({"oneOf": [WHOLE, {"$ref": "#/$defs/word"}], "$defs": {"word": WORD}}, None),
    ({"not": WORD}, "x"),
    ({"if": WORD, "then": {"minLength": 3}}, "a"),
    ({"$ref": "#/$defs/word", "$defs": {"word": WORD}}, 1),
    ({"format": "date"}, "x"),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [WHOLE]}, ["a"]),
    (False, "x"),
    (True, "x"),
]
"""Schemas, and data that breaks each in one way, or fits."""


def refuse(uri: str) -> Any:
    raise ValueError(f"it refers to {uri}, which is not fetched")


def problems(checker: Any, value: Any) -> list[tuple[str, list[Any]]]:
    return [(one.message, list(one.instance_path)) for one in checker.iter_errors(value)]


@pytest.mark.parametrize(("schema", "value"), CASES, ids=json.dumps)
def test_data_breaks_a_schema_in_the_same_words_and_at_the_same_place(schema, value):
    compiled = jsonschema_rs.validator_for(schema, retriever=refuse)
    assert problems(validator_for(schema, refuse), value) == problems(compiled, value)


@pytest.mark.parametrize(
    ("schema", "value"), [({"properties": {"a": False}}, {"a": 1}), ({"prefixItems": [WHOLE], "items": False}, [1, 2])]
)
def test_what_a_schema_forbids_does_not_fit_if_in_other_words(schema, value):
    assert len(problems(jsonschema_rs.validator_for(schema), value)) == 1
    assert len(problems(validator_for(schema, refuse), value)) == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"pattern": "("},
        {"minimum": "a"},
        {"type": 5},
        {"properties": 3},
        {"required": "a"},
        {"$ref": "http://x.invalid/a"},
        {"properties": {"a": {"$ref": "#/$defs/none"}}},
        {"$schema": "http://x.invalid/s"},
    ],
    ids=json.dumps,
)
def test_a_schema_that_cannot_be_used_is_refused_at_once_and_nothing_is_fetched(schema):
    with pytest.raises(ValueError, match=r"[a-z]"):
        jsonschema_rs.validator_for(schema, retriever=refuse)
    with pytest.raises(ValueError, match=r"[a-z]"):
        validator_for(schema, refuse)


def test_a_reference_inside_data_is_none():
    assert problems(validator_for({"const": {"$ref": "#/$defs/none"}}, refuse), {"$ref": "#/$defs/none"}) == []


def test_a_lone_surrogate_is_no_json():
    with pytest.raises(UnicodeEncodeError):
        problems(validator_for({}, refuse), {"\ud800": 1})
