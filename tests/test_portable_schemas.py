"""The checks of JSON data in pure Python accept what those of `jsonschema-rs` accept, and never fail."""

import json
import sys
from typing import Any

import pytest

from agentmagic import json_schema
from agentmagic.portable_schemas import validator_for

pytest.importorskip("jsonschema")
jsonschema_rs = pytest.importorskip("jsonschema_rs")

WORD, WHOLE = {"type": "string"}, {"type": "integer"}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
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
    ({"$schema": DRAFT_7, "items": [WHOLE]}, ["a"]),
    (False, "x"),
    (True, "x"),
    ({"properties": {"a": False}}, {"a": 1}),
    ({"properties": {}, "additionalProperties": False}, {"b": 1}),
    ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"b": 1, "a": 2, "'": 3}),
    ({"type": "string"}, {"b": 1, "a": [{"d": 1, "c": 2}]}),
    ({"type": "number"}, float("nan")),
    ({"type": "integer"}, float("inf")),
    ({"minimum": 3}, 10**400),
    ({"multipleOf": 0.1}, 0.3),
    ({"multipleOf": 0.01}, 19.99),
    ({"multipleOf": 0.01}, 19.999),
    ({"multipleOf": 0.5}, 1e308),
    ({"pattern": "^[a-z]+$"}, "abc\n"),
    ({"pattern": r"^\d+$"}, "٣"),
    ({"pattern": r"^\w+$"}, "é"),
    ({"pattern": r"a\$[$]$"}, "a$$"),
    ({"patternProperties": {r"^a\d$": WHOLE}}, {"a٣": "x", "a3\n": "y", "a3": "z"}),
    ({"contains": WORD, "minContains": 2}, ["a"]),
    ({"minItems": 2.0}, [1]),
    ({"$schema": DRAFT_7, "definitions": {"a": {"pattern": "a$"}}, "$ref": "#/definitions/a", "type": "null"}, "a\n"),
    ({"properties": {"a": {"$id": "http://x.invalid/", "$ref": "#/$defs/b", "$defs": {"b": WORD}}}}, {"a": 1}),
    ({"properties": {"default": {"$ref": "#/$defs/word"}}, "$defs": {"word": WORD}}, {"default": 1}),
    ({"$defs": {"unused": {"$ref": "#/$defs/none"}}, "other": {"$ref": "#/$defs/none"}}, 1),
]
"""Schemas, and data that breaks each in one way, or fits."""


def refuse(uri: str) -> Any:
    raise ValueError(f"it refers to {uri}, which is not fetched")


def problems(checker: Any, value: Any) -> list[tuple[str, list[Any]]]:
    return [(one.message, list(one.instance_path)) for one in checker.iter_errors(value)]


def fits(checker: Any, value: Any) -> bool:
    return problems(checker, value) == []


@pytest.mark.parametrize(("schema", "value"), CASES, ids=json.dumps)
def test_data_fits_a_schema_if_it_fits_with_the_compiled_checks(schema, value):
    compiled = jsonschema_rs.validator_for(schema, retriever=refuse)
    assert fits(validator_for(schema, refuse), value) is fits(compiled, value)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strin"},
        {"pattern": "("},
        {"minimum": "a"},
        {"type": 5},
        {"properties": 3},
        {"required": "a"},
        {"$schema": "http://x.invalid/s"},
        {"$schema": 5},
        {"pattern": "a{99999999999}"},
        {"pattern": "(" * 500 + ")" * 500},
    ],
    ids=json.dumps,
)
def test_a_schema_that_cannot_be_used_is_refused_at_once(schema):
    with pytest.raises(ValueError, match=r"[a-z]"):
        jsonschema_rs.validator_for(schema, retriever=refuse)
    with pytest.raises(ValueError, match=r"[a-z]"):
        validator_for(schema, refuse)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("http://x.invalid/a", "Unresolvable: http://x.invalid/a"),
        ("#/$defs/none", "PointerToNowhere"),
        ("#none", "NoSuchAnchor"),
        ("//x.invalid/a", "Unresolvable: //x.invalid/a"),
    ],
)
def test_nothing_is_fetched_and_data_at_a_reference_to_nothing_does_not_fit(reference, reason):
    checker = validator_for({"properties": {"a": {"$ref": reference}}}, refuse)
    assert fits(checker, {})
    [(message, _)] = problems(checker, {"a": 1})
    assert reason in message


def test_a_reference_inside_data_is_not_followed():
    assert problems(validator_for({"const": {"$ref": "#/$defs/none"}}, refuse), {"$ref": "#/$defs/none"}) == []


def test_a_lone_surrogate_is_no_json():
    with pytest.raises(UnicodeEncodeError):
        problems(validator_for({}, refuse), {"\ud800": 1})


def test_data_that_nests_too_deeply_does_not_fit():
    schema = {"properties": {"a": {"$ref": "#"}}}
    value: Any = {}
    for _ in range(2000):
        value = {"a": value}
    assert problems(validator_for(schema, refuse), value) == [("it is nested too deeply to be checked", [])]
    assert problems(validator_for({"$ref": "#"}, refuse), 1) == [("it is nested too deeply to be checked", [])]


def test_what_is_no_json_does_not_fit():
    [(message, _)] = problems(validator_for({}, refuse), {"a": {1}})
    assert message.startswith("it cannot be checked: Object of type set")


@pytest.fixture
def without_jsonschema_rs(monkeypatch):
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    json_schema._validator.cache_clear()
    json_schema.compiles.cache_clear()
    yield
    json_schema._validator.cache_clear()
    json_schema.compiles.cache_clear()


def test_a_broken_jsonschema_rs_is_told(without_jsonschema_rs):
    with pytest.raises(ImportError, match="jsonschema_rs"):
        json_schema.misfit(WHOLE, "x")


def test_in_a_browser_each_bad_schema_and_value_ends_in_a_sentence(without_jsonschema_rs, monkeypatch):
    monkeypatch.setattr(sys, "platform", "emscripten")
    assert json_schema.misfit({"properties": {"a": WHOLE}}, {"a": "x"}) == "'x' is not of type 'integer' (at a)"
    assert json_schema.misfit({"$ref": "#"}, {}) == "it is nested too deeply to be checked"
    assert json_schema.check_schema("t", {"$schema": 5}) == ("The schema of t cannot be used: Unknown meta-schema: '5'")
    assert not json_schema.compiles("a{99999999999}")
    assert json_schema.compiles("a$")
