"""Reads the values of JSON Schema keywords in the many forms in which MCP servers write them.

Examples are a type as a word, a number as text, or a single name in place of a list. Each reader function converts a
value to the form of JSON Schema 2020-12, and raises Meaningless for a value that has no meaning.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from agentmagic.tools.mcp.limits import NAMED_SCHEMAS

Json = dict[str, Any]


class Meaningless(ValueError):
    """Raised for a value that cannot be understood as the value of its JSON Schema keyword."""


# -- types ---------------------------------------------------------------------------------------------------

_TYPE_WORDS = {
    "": "any * all dynamic enum mixed unknown value variant",
    "string": "str text char varchar character uuid guid uri url email date time datetime date-time timestamp duration "
    "password path file filepath binary byte bytes base64 regex html markdown hostname ipv4 ipv6",
    "integer": "int long short bigint int8 int16 int32 int64 uint uint8 uint16 uint32 uint64 i32 i64 u32 u64 usize",
    "number": "num float double decimal real numeric float32 float64 f32 f64",
    "boolean": "bool",
    "array": "list tuple set frozenset sequence iterable collection vector slice",
    "object": "dict map mapping record struct hash hashmap dictionary json",
    "null": "none nil void undefined nonetype",
}
TYPES = {word: kind for kind, words in _TYPE_WORDS.items() for word in (*words.split(), kind)}
"""The JSON Schema type for each word that people write for a type; "" stands for any type."""
_FORMATS = {"date": "date", "time": "time", "datetime": "date-time", "date-time": "date-time", "email": "email"} | {
    **dict.fromkeys(("uuid", "guid"), "uuid"),
    **dict.fromkeys(("uri", "url"), "uri"),
}
_GENERIC = re.compile(r"([\w.]+)\s*[\[<(](.*)[\]>)]", re.DOTALL)
_BETWEEN = re.compile(r"\|(?![^\[<(]*[\]>)])")  # Matches a | outside brackets.


def type_schema(word: str) -> Json:
    """Return the schema of a type that is written as text: "str", "int | None", "list[str]", "Optional[int]"."""
    bare = word[:200].strip().removeprefix("typing.")
    if (name := bare.lower()) in TYPES:
        kind = {"type": TYPES[name]} if TYPES[name] else {}
        return kind | ({"format": _FORMATS[name]} if name in _FORMATS else {})
    if len(words := _BETWEEN.split(bare)) > 1:
        return union(words)
    if bare.endswith(("[]", "?")):
        return {"type": "array", "items": type_schema(bare[:-2])} if bare[-1] == "]" else union([bare[:-1], None])
    if (generic := _GENERIC.fullmatch(bare)) is not None:
        return _generic(generic[1].lower(), generic[2])
    raise Meaningless


def _generic(head: str, inner: str) -> Json:
    """Return the schema of a generic type: `head` is the name before the brackets, `inner` the text inside them."""
    if head in ("optional", "union"):
        return union([*inner.split(","), *((None,) if head == "optional" else ())])
    if (kind := TYPES.get(head)) == "array" and "," not in inner:
        return {"type": kind, "items": type_schema(inner)}
    if kind in ("array", "object"):
        return {"type": kind}
    raise Meaningless


def union(words: Sequence[Any]) -> Json:
    """Return the schema of a value that has one of several types. Each is written as text, or is None for null."""
    if not words or not all(one is None or isinstance(one, str) for one in words):
        raise Meaningless
    parts = [type_schema("null" if one is None else one) for one in words]
    if not all("type" in part for part in parts):
        return {}  # If one of the types allows any value, the union allows it too.
    kinds = list(dict.fromkeys(kind for part in parts for kind in kinds_of(part)))
    more = {keyword: value for part in parts for keyword, value in part.items() if keyword != "type"}
    return {"type": kinds[0] if len(kinds) == 1 else kinds} | more


def kinds_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the types under the keyword `type` of a schema, as a list."""
    kind = schema.get("type", [])
    return cast("list[str]", kind) if isinstance(kind, list) else [kind]


# -- values --------------------------------------------------------------------------------------------------


def string(value: Any) -> str:
    """Return a text unchanged. Raises Meaningless for any other value."""
    if isinstance(value, str):
        return value
    raise Meaningless


def text(value: Any) -> str:
    """Return the value of a keyword such as `description` as text. A number or a list of lines becomes text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list) and value:
        return " ".join(map(string, cast("list[Any]", value)))
    return string(value)


def number(value: Any) -> int | float:
    """Return the value of a keyword as a number. A text such as "5" is converted."""
    if isinstance(value, str):
        try:
            value = int(value) if re.fullmatch(r"\s*[+-]?\d{1,30}\s*", value) else float(value[:100])
        except ValueError:
            raise Meaningless from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Meaningless
    return value


def _positive(value: Any) -> int | float:
    if (result := number(value)) > 0:
        return result
    raise Meaningless


def _count(value: Any) -> int:
    result = number(value)
    if result < 0 or result != int(result):
        raise Meaningless
    return int(result)


_FLAGS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def flag(value: Any) -> bool:
    """Return the value of a keyword as a boolean. 1, 0, and texts such as "true" and "no" are converted."""
    if isinstance(value, str | int) and (result := _FLAGS.get(str(value).strip().lower())) is not None:
        return result
    raise Meaningless


def _values(value: Any) -> list[Any]:
    """Return the value of `enum` as a list without duplicates. A single value becomes a list of one item."""
    if isinstance(value, Mapping):
        raise Meaningless
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    once = {json.dumps(one, sort_keys=True): one for one in items if not _is_odd(one)}
    if not once:
        raise Meaningless
    return list(once.values())


def names(value: Any) -> list[str]:
    """Return a list of names without duplicates. The value is a list, a single name, or an object like {name: true}.

    A name with a false value in such an object is left out.
    """
    if isinstance(value, Mapping):
        value = [name for name, counts in cast("Json", value).items() if counts]
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise Meaningless
    return list(dict.fromkeys(one for one in cast("list[Any]", value) if isinstance(one, str)))


def schemas(value: Any) -> Json:
    """Return a keyword's value as an object that maps names to schemas.

    An empty list becomes an empty object, and a list of schemas with a key "name" becomes an object.
    """
    if isinstance(value, Mapping):
        return dict(cast("Json", value))
    by_name: Json = {}
    for entry in cast("list[Any]", value) if isinstance(value, list) else [None]:
        match entry:
            case {"name": str(name)}:
                by_name[name] = {keyword: inner for keyword, inner in cast("Json", entry).items() if keyword != "name"}
            case _:
                raise Meaningless
    return by_name


def _branches(value: Any) -> list[Any]:
    if isinstance(value, Mapping) and value:
        return [value]
    if isinstance(value, list) and value:
        return cast("list[Any]", value)
    raise Meaningless


def schema(value: Any) -> Mapping[str, Any] | bool:
    """Return the schema that a value means: an object, a boolean or the name of a type. null and [] allow any value."""
    if isinstance(value, Mapping | bool):
        return cast("Json", value)
    if value is None or value == []:
        return {}
    try:
        return flag(string(value))
    except Meaningless:
        return type_schema(string(value))


def _anchor(value: Any) -> str:
    if re.fullmatch(r"[A-Za-z_][-A-Za-z0-9._]*", string(value)):
        return value
    raise Meaningless


def _address(value: Any) -> str:
    if re.fullmatch(r"[A-Za-z0-9/?@!$&'()*+,;=._~:-]+#?", string(value)):
        return value
    raise Meaningless


def _finite(value: Any) -> Any:
    if _is_odd(value):
        raise Meaningless
    return value


def _is_odd(value: Any) -> bool:
    """Return whether a value is a number that JSON cannot represent: NaN or an infinity."""
    return isinstance(value, float) and not math.isfinite(value)


def _several(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [_finite(value)]


def _needs(value: Any) -> dict[str, list[str]]:
    return {name: names(entry) for name, entry in schemas(value).items()}


MAPS = NAMED_SCHEMAS - {"dependencies"}
LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SINGLE = frozenset(
    {"not", "if", "then", "else", "items", "additionalProperties", "contains"}
    | {"propertyNames", "unevaluatedProperties", "unevaluatedItems"}
)
"""Keywords whose value contains schemas: MAPS an object of schemas, LISTS a list of schemas, SINGLE one schema."""

READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("title", "description", "$comment"), text),
    **dict.fromkeys(("pattern", "format", "contentEncoding", "contentMediaType"), string),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count),
    **dict.fromkeys(("minContains", "maxContains"), _count),
    **dict.fromkeys(("uniqueItems", "readOnly", "writeOnly", "deprecated"), flag),
    **dict.fromkeys(("$anchor", "$dynamicAnchor", "$recursiveAnchor"), _anchor),
    **dict.fromkeys(("$id", "$schema"), _address),
    **dict.fromkeys(MAPS, schemas),
    **dict.fromkeys(LISTS, _branches),
    **dict.fromkeys(SINGLE, schema),
    **dict.fromkeys(("default", "const"), _finite),
    "multipleOf": _positive,
    "enum": _values,
    "examples": _several,
    "required": names,
    "dependentRequired": _needs,
}
"""The function that reads the value of each keyword."""
