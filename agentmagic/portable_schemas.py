"""Checks JSON data against a schema in pure Python, where the compiled `jsonschema-rs` cannot be had: in Pyodide.

`jsonschema` decides, and the messages are those of `jsonschema-rs`, so that a recorded turn reads the same everywhere.
Patterns are Python's, and may backtrack for long.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """What is wrong, as `jsonschema_rs.ValidationError` has it; `instance_path` leads to the value."""

    message: str
    instance_path: tuple[str | int, ...]


class Checker:
    """Checks data against one schema."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def iter_errors(self, value: Any) -> Iterator[SchemaProblem]:
        """Yield what is wrong. Raises UnicodeEncodeError for a lone surrogate, which is no JSON."""
        json.dumps(value, ensure_ascii=False).encode()
        for error in self._validator.iter_errors(value):
            yield SchemaProblem(_message(error), tuple(error.absolute_path))


def validator_for(schema: Any, retriever: Callable[[str], Any]) -> Checker:
    """Return a checker. Raises ValueError if the schema is invalid, or if it refers to what cannot be had."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    specifications = cast("Any", import_module("jsonschema_specifications")).REGISTRY  # it has no types
    unknown: Any = None
    named = cast("dict[str, Any]", schema).get("$schema") if isinstance(schema, dict) else None
    kind: Any = cast("Any", validator_for)(schema, default=Draft202012Validator if named is None else unknown)
    if kind is None:
        raise ValueError(f"Unknown meta-schema: {named!r}. Custom meta-schemas must be registered before use")
    try:
        kind.check_schema(schema)
        validator = kind(schema, registry=specifications.combine(Registry(retrieve=cast("Any", retriever))))
        for reference in _references(schema):
            validator._resolver.lookup(reference)  # noqa: SLF001  (it would fail only when data reaches it)
    except SchemaError as error:
        raise ValueError(_message(error)) from None
    except Unresolvable as error:
        raise ValueError(str(error.__cause__ or error)) from None
    return Checker(validator)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in cast("list[Any]", schema):
            yield from _references(item)
    if isinstance(schema, dict):
        for keyword, value in cast("dict[str, Any]", schema).items():
            if keyword == "$ref" and isinstance(value, str):
                yield value
            elif keyword not in {"const", "default", "enum", "examples"}:  # these hold data
                yield from _references(value)


# -- messages --------------------------------------------------------------------------------------------


def _message(error: Any) -> str:
    """Return the message that `jsonschema-rs` has for an error of `jsonschema`."""
    described = error.validator is None or error.schema.get("properties") or error.schema.get("patternProperties")
    if error.validator == "additionalProperties" and error.validator_value is False and not described:
        return _denied(next(iter(error.instance.values())))
    if error.validator is None:  # the schema is False
        return _denied(error.instance)
    if error.validator == "oneOf" and not error.context:  # `context` is what is wrong under each of the schemas
        return _listed("valid under more than one", "oneOf", error.instance)
    write = _MESSAGES.get(error.validator)
    return error.message if write is None else write(error.validator_value, error.instance)


def _denied(value: Any) -> str:
    return f"False schema does not allow {_json(value)}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _type(expected: str | list[str], value: Any) -> str:
    if isinstance(expected, list) and len(expected) > 1:
        return f"{_json(value)} is not of types {', '.join(map(_json, sorted(expected)))}"
    return f"{_json(value)} is not of type {_json(expected[0] if isinstance(expected, list) else expected)}"


LISTED = 3
"""So many values of an enumeration are written out; of more, two are, and the others are counted."""


def _enum(allowed: list[Any], value: Any) -> str:
    written = [_json(one) for one in allowed]
    if len(written) > LISTED:
        written = [*written[: LISTED - 1], f"{len(written) - LISTED + 1} other candidates"]
    *first, last = written or [""]
    return f"{_json(value)} is not one of {', '.join(first)}{' or ' if first else ''}{last}"


def _missing(required: list[str], value: Mapping[str, Any]) -> str:
    return f"{_json(next(name for name in required if name not in value))} is a required property"


def _dependent(required: Mapping[str, list[str]], value: Mapping[str, Any]) -> str:
    return _missing([name for owner, names in required.items() if owner in value for name in names], value)


def _listed(verdict: str, keyword: str, value: Any) -> str:
    return f"{_json(value)} is {verdict} of the schemas listed in the '{keyword}' keyword"


def _none_of(keyword: str) -> Callable[[Any, Any], str]:
    return lambda _schemas, value: _listed("not valid under any", keyword, value)


def _size(verb: str, unit: str, units: str) -> Callable[[int, Any], str]:
    return lambda bound, value: f"{_json(value)} {verb} {bound} {unit if bound == 1 else units}"


_MESSAGES: Mapping[str, Callable[[Any, Any], str]] = {
    "anyOf": _none_of("anyOf"),
    "const": lambda expected, _value: f"{_json(expected)} was expected",
    "contains": lambda _schema, value: f"None of {_json(value)} are valid under the given schema",
    "dependentRequired": _dependent,
    "enum": _enum,
    "format": lambda name, value: f"{_json(value)} is not a {_json(name)}",
    "maxItems": _size("has more than", "item", "items"),
    "maxLength": _size("is longer than", "character", "characters"),
    "maxProperties": _size("has more than", "property", "properties"),
    "minItems": _size("has less than", "item", "items"),
    "minLength": _size("is shorter than", "character", "characters"),
    "minProperties": _size("has less than", "property", "properties"),
    "not": lambda schema, value: f"{_json(schema)} is not allowed for {_json(value)}",
    "oneOf": _none_of("oneOf"),
    "pattern": lambda pattern, value: f"{_json(value)} does not match {_json(pattern)}",
    "required": _missing,
    "type": _type,
    "uniqueItems": lambda _unique, value: f"{_json(value)} has non-unique elements",
}
