"""How much work a server's schema makes: arguments are checked against it on the engine, which nothing may hold up.

A schema of a few hundred bytes can take hours to check. References that double at each step grow like 2^n
(16 steps took 14 s), one that leads back to itself never ends, and counts within counts make a pattern huge.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, cast

MOST_NODES = 5000
"""Subschemas, each counted as often as references lead to it; a failing check takes about 0.1 ms for each."""

HEAVIEST_PATTERNS = 50_000
"""Characters of all regular expressions, with their counts written out."""

_COUNT = re.compile(r"(\)?)\{(?:\d*,)?(\d{1,9})\}")
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DEFINED = frozenset({"$defs", "definitions"})
_LISTED = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_SINGLE = frozenset(
    {"not", "if", "then", "else", "items", "additionalProperties", "additionalItems", "contains"}
    | {"propertyNames", "unevaluatedProperties", "unevaluatedItems"}
)
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})


class Unusable(ValueError):
    """A schema that is not checked against; the message says why."""


def problem(schema: Mapping[str, Any]) -> str | None:
    """Say why a schema would be too much work, or return None."""
    try:
        nodes = _Expansion(schema).nodes("#", frozenset())
        if nodes > MOST_NODES:
            return f"it has {min(nodes, 10**9)} parts once its references are followed, over the limit of {MOST_NODES}"
    except Unusable as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply"
    return None


class _Expansion:
    """Counts the parts of a schema, following references without writing them out."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[str, int] = {}
        self._pattern_weight = 0

    def nodes(self, pointer: str, within: frozenset[str]) -> int:
        """Count the parts that a reference leads to; `within` are those that are being checked in the same place."""
        if pointer in within:
            raise Unusable(f"its reference {pointer[:100]} leads back to itself")
        if pointer not in self._known:
            self._known[pointer] = 1  # a reference back through properties or items: how deep is up to the arguments
            self._known[pointer] = self._count(self._resolve(pointer), within | {pointer})
        return self._known[pointer]

    def _count(self, schema: Any, within: frozenset[str]) -> int:
        if not isinstance(schema, Mapping):
            return 1
        node = cast("Mapping[str, Any]", schema)
        self._weigh(node)
        total = 1
        if (reference := node.get("$ref")) is not None:
            total += self._follow(reference, within)
        if "$dynamicRef" in node or "$recursiveRef" in node:
            raise Unusable("it has references that depend on where they are read from")
        for keyword, child in _children(node):
            total += self._count(child, within if keyword in _IN_PLACE else frozenset())
        return total

    def _follow(self, reference: Any, within: frozenset[str]) -> int:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise Unusable(f"it refers to {str(reference)[:200]}, which is not fetched")
        return self.nodes(reference, within)

    def _resolve(self, pointer: str) -> Any:
        found: Any = self._root
        for step in pointer.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            try:
                found = _step(found, key)
            except (LookupError, TypeError, ValueError):
                raise Unusable(f"its reference {pointer[:100]} leads nowhere") from None
        return found

    def _weigh(self, node: Mapping[str, Any]) -> None:
        patterns = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
        if isinstance(by_pattern := node.get("patternProperties"), Mapping):
            patterns += list(cast("Mapping[str, Any]", by_pattern))
        self._pattern_weight += sum(map(weight, patterns))
        if self._pattern_weight > HEAVIEST_PATTERNS:
            raise Unusable("its regular expressions are too large")


def _step(found: Any, key: str) -> Any:
    return cast("list[Any]", found)[int(key)] if isinstance(found, list) else found[key]


def weight(pattern: str) -> int:
    """Return about how long a regular expression is with its counts written out."""
    counts = [(bool(of_group), int(count)) for of_group, count in _COUNT.findall(pattern)]
    nested = prod(max(1, count) for of_group, count in counts if of_group)
    return (len(pattern) + sum(count for of_group, count in counts if not of_group)) * nested


def _children(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword, value in node.items():
        if keyword in _DEFINED:
            continue  # counted where they are referred to
        if keyword in _NAMED and isinstance(value, Mapping):
            yield from ((keyword, child) for child in cast("Mapping[str, Any]", value).values())
        elif keyword in _LISTED and isinstance(value, list):
            yield from ((keyword, child) for child in cast("list[Any]", value))
        elif keyword in _SINGLE:
            yield keyword, value
