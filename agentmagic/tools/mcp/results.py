"""Repairs the results of MCP servers so that the mcp library accepts them. Only invalid fields are lost.

The library refuses a whole result, or a whole list, for one invalid field of one entry: for example null in place of a
list (from Go), a block without its text, or a priority of 5.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, cast, get_args

from agentmagic.text import single_line
from agentmagic.tools.mcp import limits

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Json = dict[str, Any]

ROUNDS = 10
"""Most rounds of repairs for one object. A repair can reveal further errors, for example a missing required field."""
MOST_ERRORS = 100
"""If an object has more errors than this, whole top-level fields are removed, and not only the invalid values."""

LISTS = {
    "tools/call": "content",
    "prompts/get": "messages",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/read": "contents",
    "resources/templates/list": "resourceTemplates",
    "tools/list": "tools",
}
"""The name of the list in the result of each method. Null in its place is read as an empty list."""


def repair_result(method: str, result: Json, *, modern: bool) -> None:
    """Repair, in place, the fields of an MCP server's result and the entries of its list, which `LISTS` names.

    The entries of a list of tools are not repaired here, but in the module `filters`. `modern` says whether the
    connection uses the protocol of 2026-07-28.
    """
    if modern and result.get("resultType", "complete") != "complete" and isinstance(result["resultType"], str):
        return  # The server asks a question instead. Such a result has other fields.
    for name in [name for name, value in result.items() if value is None]:
        del result[name]
    if isinstance(cursor := result.get("nextCursor"), int):
        result["nextCursor"] = str(cursor)
    # Some servers write true or [] for a capability without options. The mcp library expects {}.
    if isinstance(capabilities := result.get("capabilities"), Mapping):
        pairs = cast("Json", capabilities).items()
        result["capabilities"] = {name: {} if value is True or value == [] else value for name, value in pairs}
    entries: list[Any] | None = None
    if list_name := LISTS.get(method):
        content = result.pop(list_name, [])
        entries = cast("list[Any]", content) if isinstance(content, list) else [content]
        if method == "tools/call":
            entries = [_block(block) for block in entries if block is not None]
            _repair_call(result, modern=modern)
        elif method != "tools/list":
            single = _single_blocks(entries) if method == "prompts/get" else entries
            repairs = (_repair_entry(list_name, entry) for entry in islice(single, limits.RESULT_LISTS[list_name]))
            entries = [entry for entry in repairs if entry is not None]
        result[list_name] = []  # `_repair` need not see the entries, which were repaired above.
    _repair(result, *_models_of_result(method, modern=modern))
    if list_name:
        result[list_name] = entries


def _single_blocks(entries: list[Any]) -> Iterator[Any]:
    """Yield the messages of a server's prompt, each with a single content block.

    A message with several blocks becomes several messages. A plain text in place of a message becomes a message.
    """
    for entry in entries:
        message: Any = {"content": entry} if isinstance(entry, str) else entry
        blocks = cast("Json", message).get("content") if isinstance(message, Mapping) else None
        if isinstance(blocks, list):
            yield from ({**message, "content": block} for block in cast("list[Any]", blocks))
        else:
            yield message


def _repair_call(result: Json, *, modern: bool) -> None:
    content = result.get("structuredContent", {})
    if not modern and not isinstance(content, Mapping):
        result["structuredContent"] = {
            "result": content
        }  # The MCP SDK does the same for a value that is not an object.


def _block(entry: Any) -> Json:
    """Return a content block that the mcp library accepts. An invalid block is replaced by a text that says so."""
    if not isinstance(entry, Mapping):
        return _text(entry)
    block = {name: value for name, value in cast("Json", entry).items() if value is not None}
    kind = block.get("type", next((kind for kind, field in _TYPE_FIELDS.items() if field in entry), None))
    if not isinstance(kind, str):
        return _text(entry)
    block["type"] = kind
    if kind == "text":
        block |= _text(block.get("text", ""))
    if kind == "resource":
        if isinstance(inner := block.get("resource", block), str):
            return _text(inner)
        block["resource"] = _repair_entry("contents", inner)
    if kind not in _models():
        return _text(f"[{single_line(kind, 40)}: content of a type that MCP does not know]")
    return _repair_entry(kind, block) or _text(f"[{kind} left out: what the server sent of it cannot be read]")


_TYPE_FIELDS = {"text": "text", "resource": "resource", "resource_link": "uri"}
"""For each type of block, the field that identifies the type if the block has no field `type`."""


def _text(value: Any) -> Json:
    return {"type": "text", "text": _as_text(value)}


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _repair_entry(kind: str, entry: Any) -> Json | None:
    """Return a list's entry without its invalid fields, or None if the mcp library refuses the remaining fields too."""
    fields = cast("Json", entry) if isinstance(entry, Mapping) else {}
    result = {name: value for name, value in fields.items() if value is not None}
    if kind == "messages" and "content" in fields:
        result["content"] = _block(fields["content"])
    if kind == "contents":
        kind = "blob" if "blob" in result and not isinstance(result.get("text"), str) else kind
        if "text" in result:
            result["text"] = _as_text(result["text"])
    return result if _repair(result, _models()[kind]) else None


def _repair(value: Json, *models: "type[BaseModel]") -> bool:
    """Repair or remove, in place, each field of `value` that the pydantic models refuse.

    Return whether the models then accept the value.
    """
    from pydantic import ValidationError

    for _ in range(ROUNDS):
        try:
            for model in models:
                model.model_validate(value, by_name=False)
        except ValidationError as error:
            if not _repair_errors(value, error):
                return False
        else:
            return True
    return False


def _repair_errors(value: Json, error: "ValidationError") -> bool:
    """Repair or remove the fields that a validation error names. Return False if the whole value is invalid."""
    wrong: set[tuple[int | str, ...]] = set()
    deepest = None if error.error_count() <= MOST_ERRORS else 1
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        path = one["loc"][:deepest]
        parent, location = _follow(value, path)
        is_lacking = one["type"] == "missing" and path == one["loc"] and path[-1] in _DEFAULTS
        if is_lacking and (stand_in := _DEFAULTS[path[-1]](parent)) is not None:
            parent[path[-1]] = stand_in
        elif not location:
            return False
        else:
            wrong.add(location)  # If a required field is missing, its object is removed.
    for location in sorted(wrong, reverse=True):  # Last items first: the other indexes stay valid.
        del _follow(value, location[:-1])[0][location[-1]]
    return True


def _follow(value: Json, path: Sequence[int | str]) -> tuple[Any, tuple[int | str, ...]]:
    """Follow a path into a value as far as possible. Return the value reached, and the path up to it."""
    target: Any = value
    for count, step in enumerate(path):
        try:
            target = target[step]
        except (LookupError, TypeError):
            return target, tuple(path[:count])
    return target, tuple(path)


_DEFAULTS: dict[int | str, Callable[[Json], Any]] = {
    "cacheScope": lambda _: "private",
    "capabilities": lambda _: {},
    "mimeType": lambda _: "",
    "name": lambda given: given.get("uri", given.get("uriTemplate", "" if "version" in given else None)),
    "protocolVersion": lambda _: "2025-03-26",  # The protocol's default version if none is given.
    "resultType": lambda _: "complete",
    "role": lambda _: "user",
    "serverInfo": lambda _: {"name": "", "version": ""},
    "text": lambda given: "" if isinstance(given.get("uri"), str) or given.get("type") == "text" else None,
    "ttlMs": lambda _: 0,
    "uri": lambda given: "" if isinstance(given.get("text", given.get("blob")), str) else None,
    "version": lambda _: "",
}
"""Functions that return a default for a required field, by name of the field.

The argument is the object without the field. The result is None if there is no default for this object.
"""


def _models_of_result(method: str, *, modern: bool) -> "Iterator[type[BaseModel]]":
    """Yield the pydantic models that the result of an MCP method must match.

    One model is for the version of the protocol. The other is the mcp library's own model for all versions.
    """
    from mcp.types import methods

    version = "2026-07-28" if modern else "2025-11-25"
    models: tuple[Any, ...] = (methods.SERVER_RESULTS.get((method, version)), methods.MONOLITH_RESULTS.get(method))
    for model in models:
        if model is not None:
            yield (get_args(model) or (model,))[0]  # The union's other models are for a question in place of a result.


@lru_cache(maxsize=1)
def _models() -> "dict[str, type[BaseModel]]":
    """Return the mcp library's pydantic models for the entries of lists.

    The key for a content block is its type. For other entries, the key is the name of the list.
    """
    from mcp import types

    return {
        "text": types.TextContent,
        "image": types.ImageContent,
        "audio": types.AudioContent,
        "resource": types.EmbeddedResource,
        "resource_link": types.ResourceLink,
        "contents": types.TextResourceContents,
        "blob": types.BlobResourceContents,
        "messages": types.PromptMessage,
        "prompts": types.Prompt,
        "resources": types.Resource,
        "resourceTemplates": types.ResourceTemplate,
    }
