r"""Checks JSON data against a schema in pure Python, for Pyodide, where the compiled `jsonschema-rs` does not exist.

The checks, their order and their messages are those of the package `jsonschema`. Most data that it accepts,
`jsonschema-rs` accepts too, and the other way round. These differences matter:

- Patterns are Python's, and may backtrack for a long time. A schema with `\p{L}` or `(?<name>a)` cannot be used. In
  `patternProperties`, and inside a schema with `$schema`, `\d` and `\w` know all of Unicode, and `$` matches before a
  last line break too.
- A format is not checked.
- A `$ref` that cannot be resolved is an error only when a check of data reaches it.
- NaN, infinity, data and references that are nested too deeply for Python's stack, and a `$ref` to itself are refused.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
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
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
            for error in self._validator.iter_errors(value):
                yield SchemaProblem(error.message, tuple(error.absolute_path))
        except UnicodeEncodeError:
            raise
        except RecursionError:
            yield SchemaProblem("it is nested too deeply to be checked", ())
        except Exception as error:  # noqa: BLE001  (the data comes from a model, and no turn may die of it)
            yield SchemaProblem(f"it cannot be checked: {error or type(error).__name__}", ())


def validator_for(schema: Any, retriever: Callable[[str], Any]) -> Checker:
    """Return a checker for a schema. Raises ValueError if the schema is invalid.

    `retriever` is called with the URI of a `$ref` outside the schema.
    """
    from referencing import Registry

    try:
        keywords = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
        dialect = _dialect(str(keywords.get("$schema", _NEWEST)))
        dialect.check_schema(schema)
        return Checker(dialect(schema, registry=Registry(retrieve=cast("Any", retriever))))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except Exception as error:  # noqa: BLE001  (`jsonschema` raises much for an odd schema: OverflowError for example)
        raise ValueError(str(error) or type(error).__name__) from None


_NEWEST = "https://json-schema.org/draft/2020-12/schema"


@lru_cache
def _dialect(address: str) -> Any:
    """Return the validator class for the value of `$schema`."""
    from jsonschema import validators

    library: Any = validators
    unknown: Any = None
    if (dialect := library.validator_for({"$schema": address}, default=unknown)) is None:
        raise ValueError(f"Unknown meta-schema: {address!r}")
    return library.extend(dialect, {"multipleOf": _multiple, "pattern": _match})


def _multiple(validator: Any, unit: float, value: Any, _schema: Any) -> Iterator[Any]:
    """Check `multipleOf` with exact decimal numbers: for `jsonschema`, 0.3 is not a multiple of 0.1."""
    from fractions import Fraction

    from jsonschema.exceptions import ValidationError

    if validator.is_type(value, "number") and (Fraction(str(value)) / Fraction(str(unit))).denominator != 1:
        yield ValidationError(f"{value!r} is not a multiple of {unit}")


def _match(validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
    r"""Check `pattern` as JavaScript does: `$` is only the end of the text, and `\d` and `\w` are ASCII."""
    from jsonschema.exceptions import ValidationError

    python_pattern = _DOLLAR.sub(lambda match: r"\Z" if match[0] == "$" else match[0], pattern)
    if validator.is_type(value, "string") and not re.search(python_pattern, value, re.ASCII):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


_DOLLAR = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\$", re.DOTALL)
"""Matches an escape, a character class, or a dollar sign outside of both."""
