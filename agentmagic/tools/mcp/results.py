"""Results of servers in a shape that the mcp library takes: a field out of shape loses that field, not the result.

The library refuses a whole result, or a whole list, for one wrong field of one entry: null for a list (Go), a block
without its text, a priority of 5.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, cast, get_args

from agentmagic.text import one_line
from agentmagic.tools.mcp import keywords, limits

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

Json = dict[str, Any]

ROUNDS = 10
"""Times that one object is mended: a mend may show what else is wrong, and an object without a field it needs goes."""
MOST_ERRORS = 100
"""Errors of one object up to which each costs the smallest thing; beyond, whole fields of the object go."""

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
    if modern and result.get("resultType", "complete") != "complete" and isinstance(result["resultType"], str):
        return  # a question to us, which has other fields
    for name in [name for name, value in result.items() if value is None]:
        del result[name]
    if isinstance(cursor := result.get("nextCursor"), int):
        result["nextCursor"] = str(cursor)
    if isinstance(offered := result.get("capabilities"), Mapping):  # true, or a list of nothing: offered, without more
        known = cast("Json", offered).items()
        result["capabilities"] = {name: {} if value is True or value == [] else value for name, value in known}
    entries: list[Any] | None = None
    if listed := LISTS.get(method):
        given = result.pop(listed, [])
        entries = cast("list[Any]", given) if isinstance(given, list) else [given]
        if method == "tools/call":
            entries = [_block(block) for block in entries if block is not None]
            _repair_call(result, modern=modern)
        elif method != "tools/list":
            single = _single_blocks(entries) if method == "prompts/get" else entries
            fitted = (_fitted(listed, entry) for entry in islice(single, limits.RESULT_LISTS[listed]))
            entries = [entry for entry in fitted if entry is not None]
        result[listed] = []  # the entries are validated each by itself
    _fit(result, *_models_of_result(method, modern=modern))
    if listed:
        result[listed] = entries


def _single_blocks(entries: list[Any]) -> Iterator[Any]:
    """Yield the messages of a prompt; one of several blocks as several messages, and a bare text as a message."""
    for entry in entries:
        message: Any = {"content": entry} if isinstance(entry, str) else entry
        blocks = cast("Json", message).get("content") if isinstance(message, Mapping) else None
        if isinstance(blocks, list):
            yield from ({**message, "content": block} for block in cast("list[Any]", blocks))
        else:
            yield message


def _repair_call(result: Json, *, modern: bool) -> None:
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
    kind = block.get("type", next((kind for kind, field in _TELLING.items() if field in given), None))
    if not isinstance(kind, str):
        return _text(given)
    block["type"] = kind
    if kind == "text":
        block |= _text(block.get("text", ""))
    if kind == "resource":
        if isinstance(inner := block.get("resource", block), str):
            return _text(inner)
        block["resource"] = _fitted("contents", inner)
    if kind not in _models():
        return _text(f"[{one_line(kind, 40)}: content of a type that MCP does not know]")
    return _fitted(kind, block) or _text(f"[{kind} left out: what the server sent of it cannot be read]")


_TELLING = {"text": "text", "resource": "resource", "resource_link": "uri"}
"""The field by which a block without a type is known."""


def _text(value: Any) -> Json:
    return {"type": "text", "text": _as_text(value)}


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fitted(kind: str, entry: Any) -> Json | None:
    """Return an entry without what is out of shape in it; None if the library cannot take what is left."""
    given = cast("Json", entry) if isinstance(entry, Mapping) else {}
    fitted = {name: value for name, value in given.items() if value is not None}
    if kind == "messages" and "content" in given:
        fitted["content"] = _block(given["content"])
    if kind == "contents":
        kind = "blob" if "blob" in fitted and not isinstance(fitted.get("text"), str) else kind
        if "text" in fitted:
            fitted["text"] = _as_text(fitted["text"])
    return fitted if _fit(fitted, _models()[kind]) else None


def _fit(value: Json, *models: "type[BaseModel]") -> bool:
    """Mend or drop, in place, each field that the models refuse. Return whether they take what is left."""
    from pydantic import ValidationError

    for _ in range(ROUNDS):
        try:
            for model in models:
                model.model_validate(value, by_name=False)
        except ValidationError as error:
            if not _mend(value, error):
                return False
        else:
            return True
    return False


def _mend(value: Json, error: "ValidationError") -> bool:
    """Change the fields of a value to which an error points. Return False if it points to the value itself."""
    wrong: set[tuple[int | str, ...]] = set()
    deepest = None if error.error_count() <= MOST_ERRORS else 1
    for one in error.errors(include_url=False, include_context=False, include_input=False):
        path = one["loc"][:deepest]
        found, place = _reached(value, path)
        is_lacking = one["type"] == "missing" and path == one["loc"] and path[-1] in _STAND_INS
        if is_lacking and (stand_in := _STAND_INS[path[-1]](found)) is not None:
            found[path[-1]] = stand_in
        elif not place:
            return False
        else:
            wrong.add(place)  # without a field that it needs, the object that lacks the field
    for place in sorted(wrong, reverse=True):  # from the end, so that the places before stay as they are
        del _reached(value, place[:-1])[0][place[-1]]
    return True


def _reached(value: Json, path: Sequence[int | str]) -> tuple[Any, tuple[int | str, ...]]:
    """Follow a path as far as it leads. Return the value there, and the steps that were taken."""
    found: Any = value
    for taken, step in enumerate(path):
        try:
            found = found[step]
        except (LookupError, TypeError):
            return found, tuple(path[:taken])
    return found, tuple(path)


_STAND_INS: dict[int | str, Callable[[Json], Any]] = {
    "cacheScope": lambda _: "private",
    "capabilities": lambda _: {},
    "mimeType": lambda _: "",
    "name": lambda given: given.get("uri", given.get("uriTemplate", "" if "version" in given else None)),
    "protocolVersion": lambda _: "2025-03-26",  # what the protocol has a server assume that is told none
    "resultType": lambda _: "complete",
    "role": lambda _: "user",
    "serverInfo": lambda _: {"name": "", "version": ""},
    "text": lambda given: "" if isinstance(given.get("uri"), str) or given.get("type") == "text" else None,
    "ttlMs": lambda _: 0,
    "uri": lambda given: "" if isinstance(given.get("text", given.get("blob")), str) else None,
    "version": lambda _: "",
}
"""What stands in for a field that the library needs, by its name; None if nothing can in this object."""


def _models_of_result(method: str, *, modern: bool) -> "Iterator[type[BaseModel]]":
    """Yield the models that a result of a method has to fit: that of its protocol, and the library's own."""
    from mcp.types import methods

    version = "2026-07-28" if modern else "2025-11-25"
    models: tuple[Any, ...] = (methods.SERVER_RESULTS.get((method, version)), methods.MONOLITH_RESULTS.get(method))
    for model in models:
        if model is not None:
            yield (get_args(model) or (model,))[0]  # the others are questions to us


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
