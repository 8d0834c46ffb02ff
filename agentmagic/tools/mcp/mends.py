"""Repairs the schemas of MCP tools that are not valid JSON Schema 2020-12. `MENDS` has one row for each mistake.

Each row names a server, or a report, with the mistake. A value with one clear meaning is converted to JSON Schema
2020-12. A keyword without a meaning is dropped and reported: a tool without a constraint is better than no tool,
because the server checks its arguments too.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import unquote

from agentmagic.json_schema import compiles, is_schema
from agentmagic.text import single_line
from agentmagic.tools.mcp import limits

Compiles = Callable[[str], bool]
Json = dict[str, Any]


class Meaningless(ValueError):
    """Raised for a value that cannot be understood as the value of its JSON Schema keyword."""


def mend(schema: Mapping[str, Any], check: Compiles | None = None) -> tuple[Json, list[str]]:
    """Return the repaired schema of a tool's arguments, and the dropped keywords, each with its value and location.

    A schema that needs no repair is returned unchanged. `check` says whether a regular expression can be used; without
    it, regular expressions are not checked. Raises RecursionError for a schema that is nested too deeply.
    """
    root = dict(schema)
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
            if not row.keywords or not row.keywords.isdisjoint(place.node):
                row.repair(place)
        for keyword in [keyword for keyword, value in place.node.items() if not _has_form(keyword, value)]:
            place.drop(keyword)
        return {keyword: self._inner(keyword, value, path) for keyword, value in place.node.items()}

    def _inner(self, keyword: str, value: Any, path: tuple[str, ...]) -> Any:
        if keyword in limits.NAMED_SCHEMAS:
            above = path if keyword == "properties" else (*path, keyword)
            return {name: self._schema(one, (*above, name)) for name, one in cast("Json", value).items()}
        if keyword in limits.LIST_KEYWORDS:
            return [self._schema(one, (*path, keyword)) for one in cast("list[Any]", value)]
        return self._schema(value, (*path, keyword)) if keyword in limits.SINGLE_KEYWORDS else value

    def _schema(self, value: Any, path: tuple[str, ...]) -> Json | bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and (kind := TYPES.get(value.lower())):
            value = {"type": kind}
        if not isinstance(value, Mapping):
            if value is not None and value != []:  # null and [] allow any value
                self.drop("the schema", value, path)
            value = {}
        return self.repair(cast("Json", value), path)

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


def _has_form(keyword: str, value: Any) -> bool:
    """Return whether a keyword's value has the form of draft 2020-12. The schemas inside it are not checked."""
    if keyword in limits.NAMED_SCHEMAS:
        return isinstance(value, Mapping)
    if keyword in limits.LIST_KEYWORDS:
        return isinstance(value, list) and bool(cast("list[Any]", value))
    if keyword in limits.SINGLE_KEYWORDS or keyword in ("$ref", "$schema"):  # repaired, or checked elsewhere
        return True
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return is_schema({keyword: value})


# -- the repairs ---------------------------------------------------------------------------------------------


def kinds_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the types under the keyword `type` of a schema, as a list."""
    kind = schema.get("type", [])
    return cast("list[str]", kind) if isinstance(kind, list) else [kind]


def _nulls(place: _Place) -> None:
    """Remove keywords with the value null, except `default`, and a `const` that can be null."""
    kinds = kinds_of(place.node)
    kept = {"default", "const"} if kinds in ([], [None]) or "null" in kinds else {"default"}
    place.node = {key: value for key, value in place.node.items() if value is not None or key in kept}


def _empties(place: _Place) -> None:
    """Replace an empty list by an empty object, and the other way round."""
    for keyword in limits.NAMED_SCHEMAS & place.node.keys():
        if place.node[keyword] == []:
            place.node[keyword] = {}
    if place.node.get("required") == {}:
        place.node["required"] = []


def _types(place: _Place) -> None:
    """Replace types that JSON Schema does not have, such as "int", "any" and "INTEGER"."""
    declaration = place.node["type"]
    words = cast("list[Any]", declaration) if isinstance(declaration, list) else [declaration]
    if not words or not all(isinstance(word, str) and word.lower() in TYPES for word in words):
        place.drop("type")
        return
    kinds = list(dict.fromkeys(TYPES[word.lower()] for word in words))
    if "" in kinds:
        del place.node["type"]
    elif kinds != words:
        place.node["type"] = kinds[0] if len(kinds) == 1 else kinds


def _bounds(place: _Place) -> None:
    """Convert the bounds of numbers from draft 4, in which `exclusiveMinimum` is a boolean beside `minimum`."""
    for inclusive, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if place.node.get(exclusive) is False:
            del place.node[exclusive]
        elif place.node.get(exclusive) is True and inclusive in place.node:
            place.node[exclusive] = place.node.pop(inclusive)


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
    if not isinstance(place.node["dependencies"], Mapping):
        place.drop("dependencies")
        return
    for name, requirement in cast("Json", place.node.pop("dependencies")).items():
        keyword = "dependentRequired" if isinstance(requirement, list) else "dependentSchemas"
        if isinstance(others := place.node.get(keyword, {}), Mapping):
            place.node[keyword] = {**others, name: requirement}


def _addresses(place: _Place) -> None:
    """Remove the addresses of schemas: those of inner schemas would change the meaning of a `$ref` inside."""
    for keyword in ("$id", "id", "$schema") if place.path else ("$id", "id"):
        if isinstance(place.node.get(keyword), str):
            del place.node[keyword]


def _references(place: _Place) -> None:
    """Correct each `$ref` whose target is inside the schema, and drop all others, because nothing is downloaded."""
    for keyword in ("$dynamicRef", "$recursiveRef"):
        if keyword in place.node:
            place.drop(keyword)
    if "$ref" in place.node:
        try:
            place.node["$ref"] = _target(place.node["$ref"], place.mender.root)
        except Meaningless:
            place.drop("$ref")


def _target(reference: Any, root: Json) -> str:
    """Return the JSON pointer to the target of a `$ref` inside the schema.

    `$defs` and `definitions` are both searched, because the draft of JSON Schema decides which of them is right. Raises
    Meaningless if the target does not exist.
    """
    if not isinstance(reference, str):
        raise Meaningless
    pointer = reference.removeprefix(str(root.get("$id") or root.get("id") or "\0"))
    if pointer == "#" or (pointer.startswith("#/") and limits.resolve(root, pointer) is not limits.NOWHERE):
        return pointer
    name = pointer.rpartition("/")[2].removeprefix("#")
    for keyword in ("$defs", "definitions") if "://" not in pointer else ():
        schemas = root.get(keyword)
        if isinstance(schemas, Mapping) and unquote(name) in schemas:
            return f"#/{keyword}/{name}"
    raise Meaningless


def _choices(place: _Place) -> None:
    """Remove repeated values from `enum`, and convert texts to numbers if the type is a number."""
    choices = place.node["enum"]
    if not isinstance(choices, list) or not choices:
        place.drop("enum")
        return
    values = cast("list[Any]", choices)
    try:
        if place.node.get("type") in ("integer", "number") and all(isinstance(one, str) for one in values):
            values = [int(one) if re.fullmatch(r"-?\d{1,30}", one) else float(one[:100]) for one in values]
    except ValueError:
        place.drop("enum")
        return
    place.node["enum"] = list({json.dumps(one, sort_keys=True): one for one in values}.values())


def _required(place: _Place) -> None:
    """Make the list `required` and the object `properties` of a schema agree.

    A property with the boolean `required: true` of draft 3 is added to the list. A name in the list without a property
    gets one. The boolean that the outer schema has used is removed.
    """
    if isinstance(place.node.get("required"), bool):
        del place.node["required"]
    properties, listed = place.node.get("properties", {}), place.node.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(listed, list):
        return
    named = cast("Json", properties)
    own = [
        name for name, one in named.items() if isinstance(one, Mapping) and cast("Json", one).get("required") is True
    ]
    names = list(dict.fromkeys((*(one for one in cast("list[Any]", listed) if isinstance(one, str)), *own)))
    if own or names != listed:
        place.node["required"] = names
    unknown = [name for name in names if name not in named]
    if unknown and ("properties" in place.node or "object" in kinds_of(place.node)):
        place.node["properties"] = {**named, **dict.fromkeys(unknown, cast("Json", {}))}


def _nullable(place: _Place) -> None:
    """Convert OpenAPI's keyword `nullable: true` into the additional type null."""
    if not isinstance(place.node["nullable"], bool):
        place.drop("nullable")
        return
    node = place.node
    if not node.pop("nullable"):
        return
    if kinds := kinds_of(node):
        node["type"] = list(dict.fromkeys((*kinds, "null")))
        if "enum" in node and None not in node["enum"]:
            node["enum"] = [*node["enum"], None]
    elif "$ref" in node:
        node["anyOf"] = [{"$ref": node.pop("$ref")}, {"type": "null"}]
    elif branches := next((word for word in ("anyOf", "oneOf") if isinstance(node.get(word), list)), None):
        node[branches] = [*node[branches], {"type": "null"}]


def _patterns(place: _Place) -> None:
    """Drop regular expressions that do not compile, or exceed the limits of time and size."""
    pattern, by_pattern = place.node.get("pattern"), place.node.get("patternProperties")
    if isinstance(pattern, str) and not place.mender.accepts(pattern):
        place.drop("pattern")
    if not isinstance(by_pattern, Mapping):
        return
    unusable = [pattern for pattern in cast("Json", by_pattern) if not place.mender.accepts(pattern)]
    for pattern in unusable:
        place.mender.drop("patternProperties", pattern, place.path)
    if unusable:
        kept = {pattern: value for pattern, value in cast("Json", by_pattern).items() if pattern not in unusable}
        place.node["patternProperties"] = kept
        place.node.pop("additionalProperties", None)  # This would refuse properties that match a dropped pattern.


# -- the table -----------------------------------------------------------------------------------------------

_TYPE_WORDS = {
    "": "any unknown",
    "string": "str",
    "integer": "int",
    "number": "float double",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "none",
}
TYPES = {word: kind for kind, words in _TYPE_WORDS.items() for word in (*words.split(), kind) if word}
"""The JSON Schema type for each word that servers write for a type; "" stands for any type."""


@dataclass(frozen=True, slots=True)
class Mend:
    """A row of `MENDS`: the keywords that it is about, or none for all, and the servers or reports that need it."""

    keywords: frozenset[str]
    repair: Callable[[_Place], None]
    needed_by: str


def _row(keywords: str, repair: Callable[[_Place], None], needed_by: str) -> Mend:
    return Mend(frozenset(keywords.split()), repair, needed_by)


MENDS: tuple[Mend, ...] = (
    _row("", _nulls, "servers in Go: anthropics/claude-code#44364"),
    _row("", _empties, "servers in PHP: elementor/elementor#37320, Automattic/wordpress-mcp#58"),
    _row(
        "type",
        _types,
        "can4hou6joeng4/boss-agent-cli#367 (int), micronaut-projects/micronaut-mcp#197 (bool), langgenius/dify#25301 "
        "(float), apify/apify-mcp-server#738 (unknown), lightweight-component/aj-mcp#5 (Number); any is of draft 3",
    ),
    _row("exclusiveMinimum exclusiveMaximum", _bounds, "Dokploy/mcp#74, yonaka15/mcp-server-redmine#7"),
    _row("items additionalItems", _tuples, "drafts up to 2019-09: HexSleeves/tailscale-mcp#160, PostHog/mcp#140"),
    _row("$id id $schema", _addresses, "modelcontextprotocol/typescript-sdk#2084; `limits` refuses inner addresses"),
    _row("$ref $dynamicRef $recursiveRef", _references, "sigbit/mcp-auth-proxy#178, matthewhand/mcp-openapi-proxy#74"),
    _row("type", _arrays, "SoftInstigate/restheart#593"),
    _row("dependencies", _dependencies, "draft 7, which SDKs announce: modelcontextprotocol/typescript-sdk#2084"),
    _row("enum", _choices, "postmanlabs/postman-mcp-server#132 (repeated), Bungie-net/api#131 (texts for numbers)"),
    _row(
        "required properties",
        _required,
        "MarkusPfundstein/mcp-gsuite#48 (boolean), NousResearch/hermes-agent#4651 (unknown name), ProfSynapse/nexus#5 "
        "(repeated)",
    ),
    _row("nullable", _nullable, "OpenAPI 3.0: PrefectHQ/fastmcp#3744"),
    _row("pattern patternProperties", _patterns, "the limits of time and size in `limits`"),
)
"""The repairs, in the order in which they are applied to each schema. Outer schemas are repaired before inner ones.

Besides, a word for a type in place of a schema is read as that type (NousResearch/hermes-agent#14927), and a schema
without a type is the schema of an object (awwaiid/mcp-server-taskwarrior#11).
"""
