"""Results of servers in a shape that the mcp library takes: a field out of shape loses that field, not the result.

The library refuses a whole result, or a whole list, for one wrong field of one entry: null for a list (Go), a block
without its text, a priority of 5.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from agentmagic.text import one_line
from agentmagic.tools.mcp import keywords

if TYPE_CHECKING:
    from pydantic import BaseModel

Json = dict[str, Any]

LISTS = {
    "tools/call": "content",
    "prompts/get": "messages",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/read": "contents",
    "resources/templates/list": "resourceTemplates",
    "tools/list": "tools",
}
"""The list in the result of each method; null for it is a list of nothing."""


def repair_result(method: str, result: Json, *, modern: bool) -> None:
    """Repair a result in place: its own fields, and the entries of its list, except those of a list of tools."""
    if modern and result.get("resultType", "complete") != "complete":
        return  # a question to us, which has other fields
    for name in [name for name, value in result.items() if value is None]:
        del result[name]
    for name, kinds in _FIELDS.items():
        if name in result and not isinstance(result[name], kinds):
            del result[name]
    if isinstance(cursor := result.get("nextCursor"), int):
        result["nextCursor"] = str(cursor)
    if method not in LISTS:
        return
    entries = result.setdefault(LISTS[method], [])
    match method:
        case "tools/list":
            return
        case "tools/call":
            _repair_call(result, modern=modern)
        case _ if isinstance(entries, list):
            fitted = (_fitted(LISTS[method], entry) for entry in cast("list[Any]", entries))
            result[LISTS[method]] = [entry for entry in fitted if entry is not None]
        case _:
            return


_FIELDS: dict[str, Any] = {"_meta": Mapping, "nextCursor": str | int, "ttlMs": int} | dict.fromkeys(
    ("cacheScope", "description", "resultType"), str
)
"""The fields that any result can have; what is neither of these types is dropped."""


def _repair_call(result: Json, *, modern: bool) -> None:
    content = result["content"]
    blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
    result["content"] = [_block(block) for block in blocks if block is not None]
    if "isError" in result:
        try:
            result["isError"] = keywords.flag(result["isError"])
        except keywords.Meaningless:
            del result["isError"]
    structured = result.get("structuredContent", {})
    if not modern and not isinstance(structured, Mapping):
        result["structuredContent"] = {"result": structured}  # as servers of the SDK write what is no object


def _block(given: Any) -> Json:
    """Return a block of content that the library takes, or one that says in words what cannot be read."""
    if not isinstance(given, Mapping):
        return _text(given)
    block = {name: value for name, value in cast("Json", given).items() if value is not None}
    kind = block.get("type", next((kind for kind, field in _TELLING.items() if field in block), None))
    if not isinstance(kind, str):
        return _text(given)
    block["type"] = kind
    if kind == "text":
        block |= _text(block.get("text", ""))
    if kind == "resource_link":
        block.setdefault("name", block.get("uri"))
    if kind in ("image", "audio"):
        block.setdefault("mimeType", "")
    if kind == "resource":
        block["resource"] = _fitted("contents", block.get("resource"))
    if kind not in _models():
        return _text(f"[{one_line(kind, 40)}: content of a type that MCP does not know]")
    return _fitted(kind, block) or _text(f"[{kind} left out: what the server sent of it cannot be read]")


_TELLING = {"text": "text", "resource": "resource", "resource_link": "uri"}
"""The field by which a block without a type is known."""


def _text(value: Any) -> Json:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {"type": "text", "text": text}


def _fitted(kind: str, entry: Any) -> Json | None:
    """Return an entry without the fields that are out of shape; None if the library cannot take what is left."""
    from pydantic import ValidationError

    fitted = dict(cast("Json", entry)) if isinstance(entry, Mapping) else {}
    if kind == "messages" and "content" in fitted:
        fitted["content"] = _block(fitted["content"])
    kind = "blob" if kind == "contents" and not isinstance(fitted.get("text"), str) else kind
    for _ in range(2):  # without the wrong fields, only one that is needed can be missing
        try:
            _models()[kind].model_validate(fitted, by_name=False)
        except ValidationError as error:
            wrong = {str(one["loc"][0]) for one in error.errors(include_input=False) if one["loc"]}
            fitted = {name: value for name, value in fitted.items() if name not in wrong}
        else:
            return fitted
    return None


@lru_cache(maxsize=1)
def _models() -> "dict[str, type[BaseModel]]":
    """Return the library's models of blocks by type, and of entries by the list that they are in."""
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
