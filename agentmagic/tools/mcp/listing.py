"""A server's list of tools before the mcp library reads it: one tool it cannot bear costs that tool only.

The library refuses a whole page for one wrong field of one tool. Here each entry is brought down to what a
model needs; what cannot be is left out by name, with the reason. Pure, and bounded whatever the server sends.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from agentmagic.tools.mcp.words import clean_schema, line

MOST_TOOLS = 500
"""Tools kept of one server; every request to the model carries them."""

LONGEST_NAME = 200
LARGEST_SCHEMA = 100_000
"""Characters of one tool's schema as JSON."""

_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def mend(page: list[Any], left_out: dict[str, str], room: int = MOST_TOOLS) -> list[dict[str, Any]]:
    """Return the tools of a page that can be used, at most `room`, and note in `left_out` why others are not."""
    kept: list[dict[str, Any]] = []
    for number, entry in enumerate(page):
        if len(kept) >= room:
            left_out["..."] = f"The server lists more than {MOST_TOOLS} tools; the first {MOST_TOOLS} are used."
            break
        tool, reason = _tool(entry)
        if tool is not None:
            kept.append(tool)
        elif len(left_out) < MOST_TOOLS:
            left_out[_label(entry, number)] = reason
    return kept


def _tool(entry: Any) -> tuple[dict[str, Any] | None, str]:
    """Return an entry as the library takes it, or None and why there is none."""
    if not isinstance(entry, Mapping):
        return None, "It is no JSON object."
    given = cast("Mapping[str, Any]", entry)
    name = given.get("name")
    if not isinstance(name, str) or not name:
        return None, "It has no name."
    if len(name) > LONGEST_NAME:
        return None, f"Its name is longer than {LONGEST_NAME} characters."
    if not name.isprintable():
        return None, "Its name has characters that cannot be seen."
    schema, reason = _schema(given.get("inputSchema"))
    if schema is None:
        return None, reason
    tool: dict[str, Any] = {"name": name, "inputSchema": schema}
    for key in ("title", "description"):
        if isinstance(given.get(key), str):
            tool[key] = given[key]
    if hints := _hints(given.get("annotations")):
        tool["annotations"] = hints
    return tool, ""


def _schema(given: Any) -> tuple[dict[str, Any] | None, str]:
    if given is None:
        return {"type": "object", "properties": {}}, ""
    if not isinstance(given, Mapping):
        return None, "Its schema is no JSON object."
    try:
        size = len(json.dumps(given, ensure_ascii=False))
        schema = clean_schema(cast("Mapping[str, Any]", given))
    except RecursionError:
        return None, "Its schema is nested too deeply."
    if size > LARGEST_SCHEMA:
        return None, f"Its schema has {size} characters, over the limit of {LARGEST_SCHEMA}."
    if schema.setdefault("type", "object") != "object":
        return None, "Its schema does not describe an object."
    return schema, ""


def _hints(given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        return {}
    hints = cast("Mapping[str, Any]", given)
    return {key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)}


def _label(entry: Any, number: int) -> str:
    name = cast("Mapping[str, Any]", entry).get("name") if isinstance(entry, Mapping) else None
    return line(name, 80) if isinstance(name, str) and name else f"tool {number + 1}"
