"""Reduces a tool's JSON Schema to the keywords that llama.cpp can turn into a grammar.

llama.cpp's converter refuses some schemas, ignores parts of others, and writes warnings to the terminal. The keywords
that are removed here (patterns, formats, lengths) only restrict values further. The agent loop checks every call
against the full schema, so an invalid call is still refused.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

DEPTH = 6
"""The most levels of nesting that are kept. A reference counts as a level, because it can be recursive."""

CHOICES = 100
"""The most values of an enum that is kept. A longer enum would make a very large grammar."""

ANY: dict[str, Any] = {"type": ["string", "number", "boolean", "null", "object", "array"]}

Schema = Mapping[str, Any]


def narrow(schema: Schema) -> dict[str, Any]:
    """Return the schema of a tool's parameters, reduced to types, names, choices and integer bounds.

    It is always of type object. Each `$ref` is replaced by the schema that it names.
    """
    result = _node(schema, schema, DEPTH)
    return result if result.get("type") == "object" else {"type": "object"}


def _node(node: Any, root: Schema, depth: int) -> dict[str, Any]:
    if not isinstance(node, Mapping) or depth == 0:
        return dict(ANY)
    schema = cast("Schema", node)
    if "$ref" in schema:
        return _node(_target(schema["$ref"], root), root, depth - 1)
    if choices := _choices(schema):
        return {"enum": choices}
    for key in ("anyOf", "oneOf", "allOf"):
        # In a schema with "properties", these keywords are ignored: they only restrict which properties go together.
        if "properties" not in schema and (branches := _list(schema.get(key))):
            return _branches(key, branches, root, depth - 1)
    return _typed_node(schema, root, depth)


def _target(reference: Any, root: Schema) -> Any:
    """Return the part of the schema `root` that a `$ref` names, or None if there is no such part.

    For None, the caller uses a schema that allows any value.
    """
    node: Any = root
    for step in str(reference).removeprefix("#").strip("/").split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        node = cast("Schema", node).get(name) if isinstance(node, Mapping) else None
    return node


def _choices(schema: Schema) -> list[Any]:
    values = [schema["const"]] if "const" in schema else _list(schema.get("enum"))
    plain = all(value is None or isinstance(value, str | int | float) for value in values)
    return values if plain and len(values) <= CHOICES else []


def _branches(key: str, branches: Sequence[Any], root: Schema, depth: int) -> dict[str, Any]:
    if key == "allOf" and len(branches) > 1:  # a grammar cannot require several schemas at the same time
        return dict(ANY)
    nodes = [_node(branch, root, depth) for branch in branches]
    return nodes[0] if len(nodes) == 1 else {"anyOf": nodes}


def _typed_node(schema: Schema, root: Schema, depth: int) -> dict[str, Any]:
    kind = schema.get("type", "object" if "properties" in schema else None)
    match kind:
        case "object":
            return _object(schema, root, depth - 1)
        case "array":
            return {"type": "array", "items": _node(schema.get("items"), root, depth - 1)}
        case "integer":
            bounds = {key: schema[key] for key in ("minimum", "maximum") if isinstance(schema.get(key), int)}
            return {"type": "integer", **bounds}
        case "string" | "number" | "boolean" | "null":
            return {"type": kind}
        case list():
            several = cast("list[Any]", kind)
            return {"anyOf": [_typed_node({**schema, "type": one}, root, depth) for one in several]}
        case _:
            return dict(ANY)


def _object(schema: Schema, root: Schema, depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return {"type": "object"}
    fields = cast("Schema", properties)
    return {
        "type": "object",
        "properties": {name: _node(field, root, depth) for name, field in fields.items()},
        "required": [name for name in _list(schema.get("required")) if name in fields],
        "additionalProperties": False,
    }


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
