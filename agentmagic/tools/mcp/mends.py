"""Repairs the schemas of MCP tools that are not valid JSON Schema 2020-12. Each kind of mistake has one function.

Servers are written in many languages and for many drafts of the standard. Go writes null for a missing value. PHP
writes [] for an empty object. Older drafts put `"required": true` beside a type, and people write `"type": "str"`.
A value with one clear meaning is converted to JSON Schema 2020-12. A keyword without a meaning is dropped and reported:
a tool without a constraint is better than no tool, because the server checks its arguments too.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import unquote

from agentmagic.json_schema import compiles
from agentmagic.text import single_line
from agentmagic.tools.mcp import keywords, limits
from agentmagic.tools.mcp.keywords import Json, Meaningless, kinds_of

Compiles = Callable[[str], bool]


def mend(schema: Mapping[str, Any], check: Compiles | None = None) -> tuple[Json, list[str]]:
    """Return the repaired schema of a tool's arguments, and the dropped keywords, each with its value and location.

    A schema that needs no repair is returned unchanged. `check` says whether a regular expression can be used; without
    it, regular expressions are not checked. Raises RecursionError for a schema that is nested too deeply.
    """
    root = dict(schema)
    _move_components(root)
    mender = _Mender(root, check)
    result = mender.repair(root)
    if "object" in kinds_of({"type": "object", **result}):
        result["type"] = "object"  # Arguments are always an object, even if the schema allows other types.
    draft = str(result.get("$schema", ""))
    if not _DRAFT.fullmatch(draft) or (result != schema and "2020-12" not in draft):
        result.pop("$schema", None)  # The repaired schema follows draft 2020-12, the default.
    return result, mender.dropped_keywords


_DRAFT = re.compile(r"https?://json-schema\.org/(?:draft-0[467]|draft/20(?:19-09|20-12))/schema#?")


class PatternCheck:
    """Checks the regular expressions in a server's list of tools, within `PATTERN_SECONDS` of CPU time in total."""

    def __init__(self) -> None:
        self._seconds = limits.PATTERN_SECONDS

    def __call__(self, pattern: str) -> bool:
        """Return whether a regular expression compiles. When the CPU time is used up, return False without a check."""
        start = time.thread_time()
        usable = self._seconds > 0 and compiles(pattern)
        self._seconds -= time.thread_time() - start
        return usable


@dataclass(slots=True)
class _Mender:
    """Repairs the JSON Schema of one tool.

    `dropped_keywords` has the keywords that were removed because their values have no meaning. `patterns` is the total
    size of the regular expressions that are kept.
    """

    root: Json
    check: Compiles | None
    dropped_keywords: list[str] = field(default_factory=list[str])
    patterns: int = 0

    def repair(self, schema: Mapping[str, Any], path: tuple[str, ...] = ()) -> Json:
        """Return a repaired schema: its own keywords are repaired first, and then the schemas inside it."""
        place = _Place(self, dict(schema), path)
        for row in MENDS:
            row(place)
        return {keyword: self._inner(keyword, value, path) for keyword, value in place.node.items()}

    def _inner(self, keyword: str, value: Any, path: tuple[str, ...]) -> Any:
        if keyword in keywords.MAPS:
            above = path if keyword == "properties" else (*path, keyword)
            return {name: self._schema(one, (*above, name)) for name, one in cast("Json", value).items()}
        if keyword in keywords.LISTS:
            return [self._schema(one, (*path, keyword)) for one in cast("list[Any]", value)]
        return self._schema(value, (*path, keyword)) if keyword in keywords.SINGLE else value

    def _schema(self, value: Any, path: tuple[str, ...]) -> Json | bool:
        try:
            schema = keywords.schema(value)
        except Meaningless:
            self.drop("the schema", value, path)
            return {}
        return schema if isinstance(schema, bool) else self.repair(schema, path)

    def drop(self, what: str, value: object, path: tuple[str, ...]) -> None:
        """Add a keyword that is removed from the schema, with its value and path, to `dropped_keywords`."""
        if len(self.dropped_keywords) < limits.DROPPED_KEYWORDS:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            where = f" of {single_line('.'.join(path), 90)}" if path else ""
            self.dropped_keywords.append(f"{single_line(f'{what} {text}', 100)}{where}")

    def accepts(self, pattern: str) -> bool:
        """Return whether a regular expression compiles, and fits in the size limit with those accepted before."""
        if self.check is None:
            return True
        size = limits.unrolled_size(pattern)
        usable = self.patterns + size <= limits.PATTERN_SIZE and self.check(pattern)
        self.patterns += size if usable else 0
        return usable


@dataclass(slots=True)
class _Place:
    """A schema under repair, at `path` in the tool's whole schema.

    The functions in `MENDS` replace values in `node`. They never modify a value, because it is part of the original.
    """

    mender: _Mender
    node: Json
    path: tuple[str, ...]

    def drop(self, keyword: str) -> None:
        """Remove a keyword whose value has no meaning, and report it in `dropped_keywords`."""
        self.mender.drop(keyword, self.node.pop(keyword), self.path)

    def read(self, keyword: str, reader: Callable[[Any], Any]) -> None:
        """Replace the value of a keyword with `reader(value)`; if the reader raises Meaningless, drop the keyword."""
        try:
            self.node[keyword] = reader(self.node[keyword])
        except Meaningless:
            self.drop(keyword)


# -- the rows ------------------------------------------------------------------------------------------------


def _nulls(place: _Place) -> None:
    """Remove keywords with the value null, except `default` and `const`, for which null is a possible value."""
    place.node = {key: value for key, value in place.node.items() if value is not None or key in ("default", "const")}


def _types(place: _Place) -> None:
    """Replace types that JSON Schema does not have, such as "str", "any", "INTEGER" and "list[str]"."""
    declaration = place.node.get("type", "object")
    kinds = cast("list[Any]", declaration) if isinstance(declaration, list) else [declaration]
    if kinds and all(isinstance(kind, str) and kind and keywords.TYPES.get(kind) == kind for kind in kinds):
        if len(set(kinds)) < len(kinds):
            place.node["type"] = list(dict.fromkeys(kinds))
        return
    try:
        replacement = (
            keywords.union(kinds)
            if isinstance(declaration, list)
            else keywords.type_schema(keywords.string(declaration))
        )
    except Meaningless:
        place.drop("type")
        return
    place.node = replacement | {keyword: value for keyword, value in place.node.items() if keyword != "type"}


def _bounds(place: _Place) -> None:
    """Convert the bounds of numbers from older drafts of JSON Schema.

    In draft 4, `exclusiveMinimum` is a boolean beside `minimum`. In draft 3, `multipleOf` is called `divisibleBy`.
    """
    for inclusive, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        flag = str(place.node.get(exclusive)).lower()
        if flag == "false":
            del place.node[exclusive]
        elif flag == "true" and inclusive in place.node:
            place.node[exclusive] = place.node.pop(inclusive)
    if "divisibleBy" in place.node:
        place.node.setdefault("multipleOf", place.node.pop("divisibleBy"))


def _tuples(place: _Place) -> None:
    """Convert the schema of an array in which each of the first items has its own schema.

    In drafts before 2020, `items` is the list of these schemas, and `additionalItems` is the schema of the other items.
    """
    others = place.node.pop("additionalItems", None)
    if isinstance(items := place.node.get("items"), list) and items:
        place.node.setdefault("prefixItems", items)
        place.node["items"] = {} if others is None else others


def _arrays(place: _Place) -> None:
    """Add `items: {}` to the schema of an array without `items`, because model providers refuse it otherwise."""
    if "array" in kinds_of(place.node):
        place.node.setdefault("items", {})


def _dependencies(place: _Place) -> None:
    """Split `dependencies` of drafts before 2019: `dependentRequired` gets names, `dependentSchemas` gets schemas."""
    if "dependencies" not in place.node:
        return
    place.read("dependencies", keywords.schemas)
    for name, requirement in cast("Json", place.node.pop("dependencies", {})).items():
        keyword = "dependentRequired" if isinstance(requirement, list | str) else "dependentSchemas"
        value = keywords.names(requirement) if isinstance(requirement, list | str) else requirement
        place.node[keyword] = {**place.node.get(keyword, {}), name: value}


def _addresses(place: _Place) -> None:
    """Remove `$id` and similar keywords of inner schemas, because they would change the meaning of a `$ref` inside."""
    for keyword in ("$id", "id") if place.path else ():
        if isinstance(place.node.get(keyword), str):
            del place.node[keyword]
    place.node.pop("$vocabulary", None)  # Only schemas that describe schemas need it.


def _references(place: _Place) -> None:
    """Correct each `$ref` whose target is inside the schema, and drop all others, because nothing is downloaded."""
    if "$recursiveRef" in place.node:
        place.node.setdefault("$ref", place.node.pop("$recursiveRef"))
    if "$dynamicRef" in place.node:
        place.drop("$dynamicRef")
    if "$ref" in place.node:
        place.read("$ref", lambda reference: _target(keywords.string(reference), place.mender.root))


def _target(reference: str, root: Json) -> str:
    """Return the JSON pointer to the target of a `$ref` inside the schema.

    `$defs` and `definitions` are both searched, because the draft of JSON Schema decides which of them is right. Raises
    Meaningless if the target does not exist.
    """
    pointer = reference.removeprefix(str(root.get("$id") or root.get("id") or "\0"))
    if pointer == "#" or (pointer.startswith("#/") and limits.resolve(root, pointer) is not limits.NOWHERE):
        return pointer
    name = pointer.rpartition("/")[2].removeprefix("#")
    for keyword in ("$defs", "definitions") if "://" not in pointer else ():
        schemas = root.get(keyword)
        if isinstance(schemas, Mapping) and unquote(name) in schemas:
            return f"#/{keyword}/{name}"
    raise Meaningless


def _move_components(root: Json) -> None:
    """Move the schemas under OpenAPI's key `components` to `$defs`, where JSON Schema expects them."""
    components: Any = root.get("components")
    if isinstance(components, Mapping) and isinstance(schemas := cast("Json", components).get("schemas"), Mapping):
        root.setdefault("$defs", schemas)
        del root["components"]


def _own_required(place: _Place) -> None:
    """Remove the boolean `required` that draft 3 puts on a property.

    The outer schema was repaired before: `_required` has then added the property to the outer list `required`.
    """
    if isinstance(value := place.node.get("required"), bool | int) or str(value).lower() in ("true", "false"):
        place.node.pop("required", None)


def _values(place: _Place) -> None:
    """Convert keyword values of the wrong type: "5" for a number, a text for a list, [] for an object."""
    for keyword in [keyword for keyword in place.node if keyword in keywords.READERS]:
        place.read(keyword, keywords.READERS[keyword])


def _choices(place: _Place) -> None:
    """Correct values that do not match `type`: convert `enum` texts to numbers or booleans, and drop a null `const`."""
    kinds = kinds_of(place.node)
    if kinds and "null" not in kinds and place.node.get("const", "") is None:
        del place.node["const"]
    readers: dict[str, Callable[[Any], Any]] = {"integer": keywords.number, "number": keywords.number} | {
        "boolean": keywords.flag
    }
    read = readers.get(kinds[0]) if len(kinds) == 1 else None
    if read is not None and all(isinstance(one, str) for one in place.node.get("enum", [None])):
        place.read("enum", lambda choices: [read(one) for one in choices])


def _required(place: _Place) -> None:
    """Make the list `required` and the object `properties` of a schema agree.

    A property with `"required": true` is added to the list. A name in the list without a property gets one.
    """
    properties = cast("Json", place.node.get("properties", {}))
    own_names = [
        name for name, one in properties.items() if isinstance(one, Mapping) and _is_required(cast("Json", one))
    ]
    names = list(dict.fromkeys((*place.node.get("required", ()), *own_names)))
    if own_names:
        place.node["required"] = names
    unknown = [name for name in names if name not in properties]
    if unknown and ("properties" in place.node or "object" in kinds_of(place.node)):
        place.node["properties"] = {**properties, **dict.fromkeys(unknown, cast("Json", {}))}


def _is_required(schema: Json) -> bool:
    return str(schema.get("required")).lower() == "true"


def _nullable(place: _Place) -> None:
    """Convert OpenAPI's keyword `nullable: true` into the additional type null."""
    if "nullable" not in place.node:
        return
    place.read("nullable", keywords.flag)
    if not place.node.pop("nullable", False):
        return
    node = place.node
    if kinds := kinds_of(node):
        node["type"] = list(dict.fromkeys((*kinds, "null")))
        if "enum" in node and None not in node["enum"]:
            node["enum"] = [*node["enum"], None]
    elif "$ref" in node:
        node["anyOf"] = [{"$ref": node.pop("$ref")}, {"type": "null"}]
    elif branches := next((keyword for keyword in ("anyOf", "oneOf") if keyword in node), None):
        node[branches] = [*node[branches], {"type": "null"}]


def _patterns(place: _Place) -> None:
    """Drop regular expressions that do not compile, or exceed the limits of time and size."""
    if "pattern" in place.node and not place.mender.accepts(place.node["pattern"]):
        place.drop("pattern")
    by_pattern = cast("Json", place.node.get("patternProperties", {}))
    unusable = [pattern for pattern in by_pattern if not place.mender.accepts(pattern)]
    for pattern in unusable:
        place.mender.drop("patternProperties", pattern, place.path)
    if unusable:
        place.node["patternProperties"] = {one: value for one, value in by_pattern.items() if one not in unusable}
        place.node.pop("additionalProperties", None)  # This would refuse properties that match a dropped pattern.


MENDS: tuple[Callable[[_Place], None], ...] = (
    _nulls,
    _types,
    _bounds,
    _tuples,
    _addresses,
    _references,
    _own_required,
    _values,
    _arrays,
    _dependencies,
    _choices,
    _required,
    _nullable,
    _patterns,
)
"""The repairs, in the order in which they are applied to each schema. Outer schemas are repaired before inner ones."""
