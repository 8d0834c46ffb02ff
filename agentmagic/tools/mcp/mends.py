"""Mends of schemas that are not clean JSON Schema: one row for each way in which servers write them.

Servers are written in many languages and for many drafts: Go writes null for what is not there, PHP an empty list for
an empty object, older drafts `"required": true` beside a type, people `"type": "str"`. What has one meaning is written
as JSON Schema 2020-12 has it. A keyword without a meaning is dropped and named, because the server checks its arguments
too, so a tool without a constraint is better than no tool.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import unquote

from agentmagic.json_schema import compiles
from agentmagic.text import one_line
from agentmagic.tools.mcp import keywords, limits
from agentmagic.tools.mcp.keywords import Json, Meaningless, kinds_of

Compiles = Callable[[str], bool]


def mend(schema: Mapping[str, Any], check: Compiles | None = None) -> tuple[Json, list[str]]:
    """Return the schema of a tool's arguments, mended, and the keywords that meant nothing, each with value and place.

    A clean schema comes back as it was. `check` says whether a regular expression can be used; without it they are left
    alone. Raises RecursionError for a schema that is nested too deeply.
    """
    root = dict(schema)
    _move_components(root)
    mender = _Mender(root, check)
    mended = mender.mended(root)
    if "object" in kinds_of({"type": "object", **mended}):
        mended["type"] = "object"  # arguments are an object, whatever else the schema allows
    named = str(mended.get("$schema", ""))
    if not _DRAFT.fullmatch(named) or (mended != schema and "2020-12" not in named):
        mended.pop("$schema", None)  # what is mended is of today's draft
    return mended, mender.dropped


_DRAFT = re.compile(r"https?://json-schema\.org/(?:draft-0[467]|draft/20(?:19-09|20-12))/schema#?")


class PatternCheck:
    """Says whether regular expressions can be used, those of one listing, within `PATTERN_SECONDS` of CPU time."""

    def __init__(self) -> None:
        self._left = limits.PATTERN_SECONDS

    def __call__(self, pattern: str) -> bool:
        """Return whether a regular expression can be used; after the time is used up, none can."""
        begun = time.thread_time()
        usable = self._left > 0 and compiles(pattern)
        self._left -= time.thread_time() - begun
        return usable


@dataclass(slots=True)
class _Mender:
    """Mends one schema. `dropped` has the keywords that meant nothing, `patterns` the size of those that are kept."""

    root: Json
    check: Compiles | None
    dropped: list[str] = field(default_factory=list[str])
    patterns: int = 0

    def mended(self, given: Mapping[str, Any], path: tuple[str, ...] = ()) -> Json:
        """Return a schema with its own keywords mended, and then the schemas in it."""
        place = _Place(self, dict(given), path)
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
        return schema if isinstance(schema, bool) else self.mended(schema, path)

    def drop(self, what: str, value: object, path: tuple[str, ...]) -> None:
        """Note that something is dropped, with its value and its place."""
        if len(self.dropped) < limits.DROPPED:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            where = f" of {one_line('.'.join(path), 90)}" if path else ""
            self.dropped.append(f"{one_line(f'{what} {text}', 100)}{where}")

    def takes(self, pattern: str) -> bool:
        """Return whether a regular expression can be used, beside those before it."""
        if self.check is None:
            return True
        size = limits.unrolled_size(pattern)
        usable = self.patterns + size <= limits.PATTERN_SIZE and self.check(pattern)
        self.patterns += size if usable else 0
        return usable


@dataclass(slots=True)
class _Place:
    """One schema while it is mended: the rows change `node`, and leave the values in it as they are."""

    mender: _Mender
    node: Json
    path: tuple[str, ...]

    def drop(self, keyword: str) -> None:
        """Drop a keyword that means nothing, and note that."""
        self.mender.drop(keyword, self.node.pop(keyword), self.path)

    def read(self, keyword: str, reader: Callable[[Any], Any]) -> None:
        """Replace the value of a keyword by what it means, or drop the keyword."""
        try:
            self.node[keyword] = reader(self.node[keyword])
        except Meaningless:
            self.drop(keyword)


# -- the rows ------------------------------------------------------------------------------------------------


def _nulls(place: _Place) -> None:
    """Null says that a keyword is not there; only these two can have it for a value."""
    place.node = {key: value for key, value in place.node.items() if value is not None or key in ("default", "const")}


def _types(place: _Place) -> None:
    """Types that JSON Schema does not have: "str", "any", "INTEGER", "list[str]"."""
    given = place.node.get("type", "object")
    kinds = cast("list[Any]", given) if isinstance(given, list) else [given]
    if kinds and all(isinstance(kind, str) and kind and keywords.TYPES.get(kind) == kind for kind in kinds):
        if len(set(kinds)) < len(kinds):
            place.node["type"] = list(dict.fromkeys(kinds))
        return
    try:
        meant = keywords.union(kinds) if isinstance(given, list) else keywords.type_schema(keywords.string(given))
    except Meaningless:
        place.drop("type")
        return
    place.node = meant | {keyword: value for keyword, value in place.node.items() if keyword != "type"}


def _bounds(place: _Place) -> None:
    """In draft 4 the exclusive bounds are truth values beside the bounds; in draft 3 `multipleOf` has another name."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        said = str(place.node.get(exclusive)).lower()
        if said == "false":
            del place.node[exclusive]
        elif said == "true" and bound in place.node:
            place.node[exclusive] = place.node.pop(bound)
    if "divisibleBy" in place.node:
        place.node.setdefault("multipleOf", place.node.pop("divisibleBy"))


def _tuples(place: _Place) -> None:
    """Until 2019 a list of `items` describes the first items, and `additionalItems` the others."""
    others = place.node.pop("additionalItems", None)
    if isinstance(items := place.node.get("items"), list) and items:
        place.node.setdefault("prefixItems", items)
        place.node["items"] = {} if others is None else others


def _arrays(place: _Place) -> None:
    """Providers refuse an array that does not say what its items are."""
    if "array" in kinds_of(place.node):
        place.node.setdefault("items", {})


def _dependencies(place: _Place) -> None:
    """Until 2019 one keyword has the names, or the schemas, that the presence of a property asks for."""
    if "dependencies" not in place.node:
        return
    place.read("dependencies", keywords.schemas)
    for name, needed in cast("Json", place.node.pop("dependencies", {})).items():
        keyword = "dependentRequired" if isinstance(needed, list | str) else "dependentSchemas"
        value = keywords.names(needed) if isinstance(needed, list | str) else needed
        place.node[keyword] = {**place.node.get(keyword, {}), name: value}


def _addresses(place: _Place) -> None:
    """An address of a part would change what the references in it mean; nothing is fetched from it."""
    for keyword in ("$id", "id") if place.path else ():
        if isinstance(place.node.get(keyword), str):
            del place.node[keyword]
    place.node.pop("$vocabulary", None)  # for schemas of schemas


def _references(place: _Place) -> None:
    """Only references inside the schema can be followed."""
    if "$recursiveRef" in place.node:
        place.node.setdefault("$ref", place.node.pop("$recursiveRef"))
    if "$dynamicRef" in place.node:
        place.drop("$dynamicRef")
    if "$ref" in place.node:
        place.read("$ref", lambda reference: _target(keywords.string(reference), place.mender.root))


def _target(reference: str, root: Json) -> str:
    """Return where a reference leads inside a schema, also if it looks in the place of another draft."""
    pointer = reference.removeprefix(str(root.get("$id") or root.get("id") or "\0"))
    if pointer == "#" or (pointer.startswith("#/") and limits.resolve(root, pointer) is not limits.NOWHERE):
        return pointer
    name = pointer.rpartition("/")[2].removeprefix("#")
    for defined in ("$defs", "definitions") if "://" not in pointer else ():
        schemas = root.get(defined)
        if isinstance(schemas, Mapping) and unquote(name) in schemas:
            return f"#/{defined}/{name}"
    raise Meaningless


def _move_components(root: Json) -> None:
    """Move the schemas of an OpenAPI document to where references are looked for."""
    components: Any = root.get("components")
    if isinstance(components, Mapping) and isinstance(schemas := cast("Json", components).get("schemas"), Mapping):
        root.setdefault("$defs", schemas)
        del root["components"]


def _own_required(place: _Place) -> None:
    """In draft 3 a property says itself that it is required; the schema around it has taken that over."""
    if isinstance(said := place.node.get("required"), bool | int) or str(said).lower() in ("true", "false"):
        place.node.pop("required", None)


def _values(place: _Place) -> None:
    """Values of another form than the keyword has: "5" for a number, a text for a list, [] for an object."""
    for keyword in [keyword for keyword in place.node if keyword in keywords.READERS]:
        place.read(keyword, keywords.READERS[keyword])


def _choices(place: _Place) -> None:
    """Choices that no value of the type can be: texts for numbers, null for a type without it."""
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
    """Properties that say themselves that they are required, and required ones that are described nowhere."""
    properties = cast("Json", place.node.get("properties", {}))
    said = [name for name, one in properties.items() if isinstance(one, Mapping) and _is_required(cast("Json", one))]
    required = list(dict.fromkeys((*place.node.get("required", ()), *said)))
    if said:
        place.node["required"] = required
    unknown = [name for name in required if name not in properties]
    if unknown and ("properties" in place.node or "object" in kinds_of(place.node)):
        place.node["properties"] = {**properties, **dict.fromkeys(unknown, cast("Json", {}))}


def _is_required(schema: Json) -> bool:
    return str(schema.get("required")).lower() == "true"


def _nullable(place: _Place) -> None:
    """OpenAPI says beside the type that null is taken too."""
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
    """Regular expressions of other dialects, and those that take long."""
    if "pattern" in place.node and not place.mender.takes(place.node["pattern"]):
        place.drop("pattern")
    by_pattern = cast("Json", place.node.get("patternProperties", {}))
    lost = [pattern for pattern in by_pattern if not place.mender.takes(pattern)]
    for pattern in lost:
        place.mender.drop("patternProperties", pattern, place.path)
    if lost:
        place.node["patternProperties"] = {one: value for one, value in by_pattern.items() if one not in lost}
        place.node.pop("additionalProperties", None)  # it would refuse what they allow


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
"""The mends, in the order in which they are made to each schema, the outer ones first."""
