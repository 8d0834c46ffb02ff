r"""Checks JSON data against a schema in pure Python, for Pyodide, where the compiled `jsonschema-rs` does not exist.

The checks are made by the package `jsonschema`. Its errors get the order and the wording of `jsonschema-rs`, since
callers show the first error, and a recorded turn must have the same text everywhere. These differences from
`jsonschema-rs` remain:

- Patterns are Python's, and may backtrack for a long time. A schema with `\p{L}` or `(?<name>a)` cannot be used; `\s`
  and `(?i)` know ASCII only; `$` is the end of the text, even with `(?m)`.
- A format is checked only if `jsonschema` can check it without other packages: `date` is checked, `uri` is not.
- Data and references that are nested too deeply for Python's stack are refused, and so is a `$ref` to itself.
- A `$schema` below the root is not followed exactly.
- The messages differ for `unevaluatedItems`, `unevaluatedProperties` and `items` with the value `false`, for numbers
  with an exponent, and for schemas that cannot be used.
- Some rare pairs of errors come in another order, for example `required` and `dependentRequired`.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, cast


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """An error like `jsonschema_rs.ValidationError`; `instance_path` is the path to the invalid value in the data."""

    message: str
    instance_path: tuple[str | int, ...]


class Checker:
    """A validator for one schema. Unlike a `jsonschema_rs` validator, it has only the method that agentmagic calls."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def iter_errors(self, value: Any) -> Iterator[SchemaProblem]:
        """Yield the schema violations in a value. Raises UnicodeEncodeError for a lone surrogate (invalid in JSON)."""
        try:
            json.dumps(value, ensure_ascii=False).encode()
            for error in self._validator.iter_errors(value):
                yield SchemaProblem(_message(error), tuple(error.absolute_path))
        except UnicodeEncodeError:
            raise
        except RecursionError:
            yield SchemaProblem("it is nested too deeply to be checked", ())
        except Exception as error:  # noqa: BLE001  (the data comes from a model, and no turn may die of it)
            yield SchemaProblem(f"it cannot be checked: {error or type(error).__name__}", ())


def validator_for(schema: Any, retriever: Callable[[str], Any]) -> Checker:
    """Return a checker for a schema. Raises ValueError if it is invalid, or if one of its `$ref`s cannot be resolved.

    `retriever` is called with the URI of a `$ref` outside the schema.
    """
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import PointerToNowhere

    try:
        return Checker(_validator(schema, retriever))
    except SchemaError as error:
        raise ValueError(_message(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except PointerToNowhere as error:
        raise ValueError(f"Pointer {error.ref!r} does not exist") from None
    except Exception as error:  # noqa: BLE001  (`jsonschema` raises much for an odd schema: OverflowError for example)
        raise ValueError(str(error.__cause__ or error) or type(error).__name__) from None


def _validator(schema: Any, retriever: Callable[[str], Any]) -> Any:
    from jsonschema.validators import Draft7Validator
    from referencing import Registry
    from referencing.jsonschema import specification_with

    dialect = _dialect(schema)
    dialect.check_schema(schema)
    if isinstance(schema, dict):  # without `$schema`, which would make `jsonschema` use its own validators
        schema = {key: value for key, value in cast("dict[str, Any]", schema).items() if key != "$schema"}
    specifications = cast("Any", import_module("jsonschema_specifications"))  # a package without type hints
    registry = specifications.REGISTRY.combine(Registry(retrieve=cast("Any", retriever)))
    dialect_uri = dialect.META_SCHEMA["$schema"]
    old = dialect_uri.startswith("http:")  # the URIs of drafts from 2019 on have "https:"; these ignore `format`
    validator = dialect(schema, registry=registry, format_checker=Draft7Validator.FORMAT_CHECKER if old else None)
    as_resource = specification_with(dialect_uri).create_resource
    _resolve(dialect, as_resource, validator._resolver, schema, set())  # noqa: SLF001  (there is no other way to it)
    return validator


def _dialect(schema: Any) -> Any:
    from jsonschema.validators import Draft3Validator, Draft202012Validator, validator_for

    unknown: Any = None
    dialect_uri = cast("dict[str, Any]", schema).get("$schema") if isinstance(schema, dict) else None
    if not isinstance(dialect_uri, str):  # `$schema` is missing, or invalid, which is refused later
        return _validator_class(Draft202012Validator)
    dialect: Any = cast("Any", validator_for)({"$schema": dialect_uri}, default=unknown)
    if dialect is None or dialect is Draft3Validator:
        raise ValueError(f"Unknown meta-schema: {dialect_uri!r}. Custom meta-schemas must be registered before use")
    return _validator_class(dialect)


@lru_cache
def _validator_class(dialect: Any) -> Any:
    """Return a `jsonschema` validator class that finds the same errors as `jsonschema-rs`, in the same order."""
    from jsonschema import validators

    def in_order(schema: dict[str, Any]) -> list[tuple[str, Any]]:
        return sorted(_applicable(dialect, schema), key=lambda pair: _position(pair[0], schema))

    def finite(name: str) -> Callable[[Any, Any], bool]:
        is_type: Callable[[Any, str], bool] = dialect.TYPE_CHECKER.is_type
        return lambda _, value: is_type(value, name) and (isinstance(value, int) or math.isfinite(value))

    supported = {*dialect.VALIDATORS, "dependencies"}  # `jsonschema-rs` checks "dependencies" in new drafts too
    keywords = {keyword: check for keyword, check in _KEYWORDS.items() if keyword in supported}
    validator_class: Any = cast("Any", validators).create(
        meta_schema=dialect.META_SCHEMA,
        validators={**dialect.VALIDATORS, **keywords},
        type_checker=dialect.TYPE_CHECKER.redefine_many({name: finite(name) for name in ("number", "integer")}),
        id_of=dialect.ID_OF,
        applicable_validators=in_order,
    )
    return validator_class


def _applicable(dialect: Any, schema: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the schema's keywords that apply, with their values. Before draft 2019, a `$ref` disables all others."""
    return list(dialect._APPLICABLE_VALIDATORS(schema))  # noqa: SLF001  (`jsonschema` has no other way to it)


def subschemas(keyword: str, value: Any) -> list[dict[str, Any]]:
    """Return the schemas inside the value of a schema's keyword, except `true` and `false`."""
    candidates: list[Any] = [value]
    if keyword in _VALUES:
        return []
    if keyword in _NAMED:
        candidates = list(value.values())
    elif isinstance(value, list):
        candidates = cast("list[Any]", value)
    return [child for child in candidates if isinstance(child, dict)]


_NAMED = ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")
_VALUES = ("default", "const", "enum", "examples")


def _resolve(dialect: Any, as_resource: Any, resolver: Any, schema: Any, seen: set[int]) -> None:
    """Resolve each `$ref` that a check of data can reach, to find invalid references early.

    `jsonschema` itself would fail only when a check reaches the `$ref`.
    """
    if not isinstance(schema, dict) or id(cast("Any", schema)) in seen:
        return
    seen.add(id(cast("Any", schema)))
    for keyword, value in _applicable(dialect, cast("dict[str, Any]", schema)):
        if keyword in {"$ref", "$dynamicRef"}:
            target = resolver.lookup(value)
            _resolve(dialect, as_resource, target.resolver, target.contents, seen)
        elif keyword in dialect.VALIDATORS or (keyword in {"then", "else"} and "if" in schema):
            for child in subschemas(keyword, value):
                _resolve(dialect, as_resource, resolver.in_subresource(as_resource(child)), child, seen)


# -- keywords --------------------------------------------------------------------------------------------

_IN_ORDER = (
    *("type", "const", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems"),
    *("minProperties", "maxProperties", "required", "dependentRequired"),
    *("properties", "patternProperties", "additionalProperties", "propertyNames", "dependencies"),
    *("dependentSchemas", "items", "additionalItems", "prefixItems", "contains"),
    *("allOf", "anyOf", "oneOf", "not", "if", "unevaluatedItems", "unevaluatedProperties", "$ref"),
)
_ORDER: Mapping[str, int] = {keyword: place for place, keyword in enumerate(_IN_ORDER)}
"""The position of each keyword in the order of checks of `jsonschema-rs`, found by experiment with version 0.61."""


def _position(keyword: str, schema: dict[str, Any]) -> float:
    """Return a keyword's place in the order in which `jsonschema-rs` checks; it does a few checks within others."""
    if keyword == "required" and len(schema["required"]) == 1 and schema.get("additionalProperties") is False:
        is_combined = "properties" in schema and "patternProperties" not in schema
        return _ORDER["additionalProperties"] + 0.5 if is_combined else _ORDER["required"]
    if keyword == "type" and schema["type"] == "array" and isinstance(schema.get("items"), dict):
        return _ORDER["items"] - 0.5
    return _ORDER.get(keyword, len(_ORDER))


@lru_cache(maxsize=1024)
def _pattern(pattern: str) -> re.Pattern[str]:
    r"""Compile a regular expression of JavaScript: `$` is only the end of the text, and `\d` and `\w` are ASCII."""
    return re.compile(_DOLLAR.sub(lambda match: r"\Z" if match[0] == "$" else match[0], pattern), re.ASCII)


_DOLLAR = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
"""Matches an escape, a character class, or a dollar sign outside of both."""


def _search(pattern: str, text: str) -> bool:
    return _pattern(pattern).search(text) is not None


def _error(message: str) -> Any:
    from jsonschema.exceptions import ValidationError

    return ValidationError(message)


def _below(validator: Any, value: Any, schema: Any, name: str) -> Iterator[Any]:
    """Yield the schema violations in `value`, the property `name` of an object."""
    for error in validator.descend(value, schema, path=name):
        if schema is False:  # for the schema `false`, `jsonschema` omits the path
            error.path.appendleft(name)
        yield error


def _match(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "string") and not _search(pattern, value):
        yield _error(f'{_json(value)} does not match "{pattern}"')


def _multiple(validator: Any, unit: float, value: Any, _schema: Any) -> Iterator[Any]:
    """Check `multipleOf` with exact decimal numbers, so that 0.3 is a multiple of 0.1."""
    from fractions import Fraction

    if validator.is_type(value, "number") and (Fraction(str(value)) / Fraction(str(unit))).denominator != 1:
        yield _error(f"{_json(value)} is not a multiple of {_json(unit)}")


def _required(validator: Any, names: list[str], value: Any, _schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "object"):
        yield from (_error(f"{_json(name)} is a required property") for name in names if name not in value)


def _dependent(validator: Any, dependencies: dict[str, Any], value: Any, schema: Any) -> Iterator[Any]:
    for owner, requirement in dependencies.items() if validator.is_type(value, "object") else ():
        if owner in value and isinstance(requirement, list):
            yield from _required(validator, cast("list[str]", requirement), value, schema)
        elif owner in value:
            yield from validator.descend(value, requirement)


def _patterns(validator: Any, patterns: dict[str, Any], value: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "object") and schema.get("additionalProperties", True) is True:
        for pattern, below in patterns.items():
            for name in [name for name in value if _search(pattern, name)]:
                yield from _below(validator, value[name], below, name)


def _properties(validator: Any, named: dict[str, Any], value: Any, schema: Any) -> Iterator[Any]:
    if validator.is_type(value, "object") and schema.get("additionalProperties", True) is True:
        for name in [name for name in value if name in named]:
            yield from _below(validator, value[name], named[name], name)


def _additional(validator: Any, additional: Any, value: Any, schema: Any) -> Iterator[Any]:
    """Check each property of the data in turn by `properties`, `patternProperties` and `additionalProperties`."""
    if not validator.is_type(value, "object") or additional is True:
        return
    properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extra_names: list[str] = []
    for name, one in value.items():
        schemas = [properties[name]] if name in properties else []
        schemas += [below for pattern, below in patterns.items() if _search(pattern, name)]
        if not schemas and additional is False:
            extra_names.append(name)
        for below in schemas or ([] if additional is False else [additional]):
            yield from _below(validator, one, below, name)
    if extra_names and "properties" not in schema and "patternProperties" not in schema:
        yield _error(_false_schema_message(value[extra_names[0]]))
    elif extra_names:
        names = ", ".join(f"'{name}'" for name in extra_names) + (" was" if len(extra_names) == 1 else " were")
        yield _error(f"Additional properties are not allowed ({names} unexpected)")


_KEYWORDS: Mapping[str, Callable[..., Iterator[Any]]] = {
    "additionalProperties": _additional,
    "dependencies": _dependent,
    "dependentRequired": _dependent,
    "dependentSchemas": _dependent,
    "multipleOf": _multiple,
    "pattern": _match,
    "patternProperties": _patterns,
    "properties": _properties,
    "required": _required,
}


# -- messages --------------------------------------------------------------------------------------------


def _message(error: Any) -> str:
    """Return the message that `jsonschema-rs` would have for an error which `jsonschema` found."""
    if error.validator is None:  # the schema is `false`
        return _false_schema_message(error.instance)
    if error.validator == "oneOf" and not error.context:  # if there are no inner errors, more than one schema fits
        return _keyword_message("valid under more than one", "oneOf", error.instance)
    write = _MESSAGES.get(error.validator)
    return error.message if write is None else write(error.validator_value, error.instance)


def _false_schema_message(value: Any) -> str:
    return f"False schema does not allow {_json(value)}"


def _json(value: Any) -> str:
    finite = json.loads(json.dumps(value), parse_constant=lambda _: None)  # turns NaN and infinity into null
    return json.dumps(finite, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _type(expected: str | list[str], value: Any) -> str:
    if isinstance(expected, list) and len(expected) > 1:
        return f"{_json(value)} is not of types {', '.join(map(_json, sorted(expected)))}"
    return f"{_json(value)} is not of type {_json(expected[0] if isinstance(expected, list) else expected)}"


MOST_VALUES = 3
"""The maximum number of values of an enumeration in a message; if there are more, two and a count are shown."""


def _enum(allowed: list[Any], value: Any) -> str:
    texts = [_json(one) for one in allowed]
    if len(texts) > MOST_VALUES:
        texts = [*texts[: MOST_VALUES - 1], f"{len(texts) - MOST_VALUES + 1} other candidates"]
    *first, last = texts or [""]
    return f"{_json(value)} is not one of {', '.join(first)}{' or ' if first else ''}{last}"


def _keyword_message(verdict: str, keyword: str, value: Any) -> str:
    return f"{_json(value)} is {verdict} of the schemas listed in the '{keyword}' keyword"


def _contains(_schema: Any, value: Any) -> str:
    return f"None of {_json(value)} are valid under the given schema"


def _none_of(keyword: str) -> Callable[[Any, Any], str]:
    return lambda _schemas, value: _keyword_message("not valid under any", keyword, value)


def _size(verb: str, unit: str, units: str) -> Callable[[int, Any], str]:
    return lambda limit, value: f"{_json(value)} {verb} {int(limit)} {unit if limit == 1 else units}"


_MESSAGES: Mapping[str, Callable[[Any, Any], str]] = {
    "anyOf": _none_of("anyOf"),
    "const": lambda expected, _value: f"{_json(expected)} was expected",
    "contains": _contains,
    "enum": _enum,
    "format": lambda name, value: f"{_json(value)} is not a {_json(name)}",
    "maxContains": _contains,
    "maxItems": _size("has more than", "item", "items"),
    "maxLength": _size("is longer than", "character", "characters"),
    "maxProperties": _size("has more than", "property", "properties"),
    "minContains": _contains,
    "minItems": _size("has less than", "item", "items"),
    "minLength": _size("is shorter than", "character", "characters"),
    "minProperties": _size("has less than", "property", "properties"),
    "not": lambda schema, value: f"{_json(schema)} is not allowed for {_json(value)}",
    "oneOf": _none_of("oneOf"),
    "type": _type,
    "uniqueItems": lambda _unique, value: f"{_json(value)} has non-unique elements",
}
