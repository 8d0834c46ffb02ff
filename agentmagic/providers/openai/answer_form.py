"""The form of an answer, as both OpenAI APIs take it.

https://developers.openai.com/api/docs/guides/structured-outputs
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from agentmagic.providers.base import OutputSchema
from agentmagic.providers.wire import Json, clean, fit_name

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What a function, or the form of an answer, may be called."""

_STRICT = frozenset(
    {"type", "title", "description", "properties", "required", "additionalProperties", "items", "enum", "const"}
    | {"anyOf", "$ref", "$defs"}
)
_SAYS_WHAT = frozenset({"type", "enum", "const", "anyOf", "$ref"})


def form(output: OutputSchema) -> Json:
    """Write the form of an answer.

    It is strict, so that the model cannot but keep to it, wherever the schema allows: a strict schema outside
    the part that OpenAI supports is refused, one that is not strict is taken as a wish.
    """
    name = fit_name(output.name, NAME)
    return {"name": name, "schema": clean(output.schema), "strict": is_strict(output.schema)}


def is_strict(schema: Mapping[str, Any]) -> bool:
    """Whether a schema keeps to the part of JSON Schema that every version of strict mode supports."""
    if schema.keys() - _STRICT or not schema.keys() & _SAYS_WHAT:
        return False
    if "$ref" in schema:
        return len(schema) == 1
    kind = schema.get("type")
    if kind == "array" and "items" not in schema:
        return False
    if (kind == "object" or "properties" in schema) and not _closed(schema):
        return False
    return all(isinstance(child, Mapping) and is_strict(cast("Json", child)) for child in _children(schema))


def _closed(schema: Mapping[str, Any]) -> bool:
    """Whether an object has all of its properties and no others."""
    return schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(
        schema.get("properties", ())
    )


def _children(schema: Mapping[str, Any]) -> Iterator[object]:
    for keyword in ("properties", "$defs"):
        yield from schema.get(keyword, {}).values()
    yield from schema.get("anyOf", ())
    if "items" in schema:
        yield schema["items"]
