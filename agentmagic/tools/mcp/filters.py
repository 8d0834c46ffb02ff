"""Filters between an MCP server and the mcp library. They repair, drop or delay messages it cannot handle.

A filter sees every message in both directions. It repairs each tool in a list of tools, treats a result of protocol
2026-07-28 without `resultType` as complete, drops answers that no request waits for, and reduces floods of
notifications. An in-process server gets no filter, because the user wrote or chose it.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, cast

from agentmagic.text import single_line
from agentmagic.tools.mcp import limits, mends, results
from agentmagic.tools.mcp.content import clean_lines

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage

# The rate of messages is limited separately for each of these methods. All other methods share one limit, because the
# server can send any number of method names.
_METHODS = frozenset(
    {"ping", "roots/list", "elicitation/create", "sampling/createMessage"}
    | {"notifications/message", "notifications/tools/list_changed", "notifications/prompts/list_changed"}
    | {"notifications/resources/list_changed", "notifications/resources/updated", "notifications/elicitation/complete"}
)
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")

MORE = "..."
"""The key in `left_out` for all tools beyond the limit."""
CUT = f"The server lists more than {limits.TOOLS} tools; the first {limits.TOOLS} are used."

_TEXT_KEYS = frozenset({"description", "title"})
_VALUES = frozenset({"default", "const", "enum", "examples"})


@dataclass(frozen=True, slots=True)
class _SentRequest:
    method: str
    modern: bool
    first_page: bool


class MessageFilter:
    """Tracks the open requests in both directions of a connection, and repairs answers in place.

    `left_out` maps the unusable tools in the server's last list of tools to the reasons. `dropped_keywords` maps tools
    to the invalid keywords that were removed from their schemas. `requests` has the ids of the server's requests that
    are not answered yet.
    """

    def __init__(self) -> None:
        self.left_out: dict[str, str] = {}
        self.dropped_keywords: dict[str, list[str]] = {}
        self.requests: set[str] = set()
        self._sent_requests: dict[str, _SentRequest] = {}
        self._tool_count = 0

    def record_request(self, message: Any) -> None:
        """Record a request or a cancellation that is sent to the server."""
        params: dict[str, Any] = getattr(message, "params", None) or {}
        if message.method == "notifications/cancelled":
            self._sent_requests.pop(_key(params.get("requestId")), None)
        elif (identifier := getattr(message, "id", None)) is not None:
            modern = _VERSION_KEY in (params.get("_meta") or {})
            self._sent_requests[_key(identifier)] = _SentRequest(message.method, modern, "cursor" not in params)

    def record_answer(self, message: Any) -> None:
        """Record that agentmagic has answered a request of the server."""
        self.requests.discard(_key(message.id))

    def awaits(self, identifier: Any) -> bool:
        """Return whether a request with this id was sent to the server and is not answered yet."""
        return _key(identifier) in self._sent_requests

    def lists_tools(self, item: "SessionMessage | Exception") -> bool:
        """Return whether a message is the answer to a `tools/list` request."""
        message: Any = None if isinstance(item, Exception) else item.message
        request = None if hasattr(message, "method") else self._sent_requests.get(_key(getattr(message, "id", None)))
        return request is not None and request.method == "tools/list"

    def withdraw(self, params: Mapping[str, Any]) -> bool:
        """Remove from `requests` a request that the server itself has cancelled. Return whether it was in there."""
        key = _key(params.get("requestId"))
        is_open = key in self.requests
        self.requests.discard(key)
        return is_open

    def repair_answer(self, message: Any) -> bool:
        """Repair the server's answer in place. Return False if no open request has the answer's id."""
        request = self._sent_requests.pop(_key(message.id), None)
        if request is None:
            return False
        if (result := getattr(message, "result", None)) is not None:
            self._repair(result, request)
        return True

    def _repair(self, result: dict[str, Any], request: _SentRequest) -> None:
        for key, most in limits.RESULT_LISTS.items():
            if isinstance(result.get(key), list):
                del result[key][most:]
        results.repair_result(request.method, result, modern=request.modern)
        if request.method == "tools/list" and isinstance(result.get("tools"), list):
            if request.first_page:
                self.left_out, self.dropped_keywords, self._tool_count = {}, {}, 0
            room = limits.TOOLS - self._tool_count
            result["tools"] = repair_tools(result["tools"], self.left_out, self.dropped_keywords, room)
            if request.modern:
                result["tools"] = [tool for tool in result["tools"] if self._has_sound_headers(tool)]
            self._tool_count += len(result["tools"])
            # Without the cursor, the SDK requests no further pages.
            if self._tool_count >= limits.TOOLS and result.pop("nextCursor", None):
                self.left_out[MORE] = CUT

    def _has_sound_headers(self, tool: Mapping[str, Any]) -> bool:
        """Return whether the SDK accepts the HTTP headers that a tool's schema asks for.

        If not, the tool is added to `left_out`, so that the user learns of it: the SDK drops the tool and only logs it.
        """
        from mcp.shared.inbound import find_invalid_x_mcp_header

        if (reason := find_invalid_x_mcp_header(tool["inputSchema"])) is None:
            return True
        self.left_out[single_line(tool["name"], 80)] = (
            f"Its schema asks for headers that cannot be: {single_line(reason, 200)}."
        )
        return False


@asynccontextmanager
async def filter_streams(
    transport: "AbstractAsyncContextManager[TransportStreams]", messages: MessageFilter
) -> AsyncGenerator["TransportStreams"]:
    """Enter a transport and yield its two streams of messages, each wrapped in a stream that filters messages."""
    async with transport as (incoming, outgoing):
        yield _IncomingStream(incoming, messages, outgoing), _OutgoingStream(outgoing, messages)


class MessageStream:
    """Base class for streams that wrap another stream of MCP messages: those to or those from a server."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def aclose(self) -> None:
        """Close the wrapped stream."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exc_type: object = None, exc_val: object = None, exc_tb: object = None) -> None:
        await self.aclose()


class _IncomingStream(MessageStream):
    """The filtered stream of messages from an MCP server.

    If notifications of one kind come too fast, only the last one is passed on, as soon as the kind's rate limit allows.
    """

    def __init__(
        self, inner: "ReadStream[SessionMessage | Exception]", messages: MessageFilter, outgoing: Any = None
    ) -> None:
        super().__init__(inner)
        self._filter = messages
        self._outgoing = outgoing
        self._notifications = limits.Rate(limits.BURST)
        self._log = limits.Rate(limits.LOG_BURST)
        self._requests = limits.Rate(limits.OPEN_REQUESTS)
        self._held_messages: dict[str, SessionMessage] = {}
        self._next: SessionMessage | None = None
        self._brake = limits.Brake()
        self._refusal_wait = limits.PAUSE

    async def receive(self) -> "SessionMessage | Exception":
        """Return the next message that passes the filter. At its end, raises the exception of the wrapped stream."""
        import anyio

        if self._next is not None:
            item, self._next = self._next, None
            return item
        while True:
            if (due := self._due()) is not None:
                return due
            # The wait ends when the rate limit allows a held notification, even if the server sends nothing more.
            patience = min((self._rate(kind).wait(kind) for kind in self._held_messages), default=None)
            item = None
            # asyncio.timeout would lose a message that arrives in the same iteration of the event loop as the timeout.
            with anyio.move_on_after(patience):
                item = await self._inner.receive()
            if item is None:
                continue
            # A list of tools is repaired in a thread: the schemas of hundreds of tools would block the event loop.
            in_thread = self._filter.lists_tools(item)
            output = await asyncio.to_thread(self._sift, item) if in_thread else self._sift(item)
            if output is not None:
                return output
            await self._refuse(item)
            await self._brake.count_dropped_message()

    async def _refuse(self, item: "SessionMessage | Exception") -> None:
        """Answer a dropped request of the server with an error, so that the server does not wait for a result.

        This waits up to `limits.PAUSE` seconds for the server to read the error. If the server does not read it, later
        refusals do not wait, because thousands of waits would delay the server's other messages too long.
        """
        from mcp import types
        from mcp.shared.message import SessionMessage

        request = None if isinstance(item, Exception) else item.message
        if not isinstance(request, types.JSONRPCRequest) or _key(request.id) in self._filter.requests:
            return
        error = types.ErrorData(code=types.INTERNAL_ERROR, message="too many requests at once; this one was dropped")
        wait, self._refusal_wait = self._refusal_wait, 0.0
        with suppress(Exception):  # The server does not read, or the connection is closed.
            async with asyncio.timeout(wait):
                await self._outgoing.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request.id, error=error)))
            self._refusal_wait = limits.PAUSE

    def _sift(self, item: "SessionMessage | Exception") -> "SessionMessage | Exception | None":
        """Return what to pass on when an item is received: the item, a held notification to send before it, or None."""
        if isinstance(item, Exception):
            return item
        message: Any = item.message
        if not hasattr(message, "method"):
            return self._after_progress(item) if self._filter.repair_answer(message) else None
        if hasattr(message, "id"):
            return item if self._admits(message) else None
        if message.method == "notifications/cancelled":
            return item if self._filter.withdraw(message.params or {}) else None
        return self._thin_out(item)

    def _thin_out(self, item: "SessionMessage") -> "SessionMessage | None":
        """Return a notification if its rate limit allows it now. Otherwise hold it back or drop it, and return None."""
        kind = self._kind(item.message)
        if kind is None:
            return None
        if self._rate(kind).take(kind):
            self._held_messages.pop(kind, None)
            return item
        if kind in self._held_messages or len(self._held_messages) < limits.HELD_KINDS:
            self._held_messages[kind] = item
        return None

    def _kind(self, message: Any) -> str | None:
        """Return the kind under which the rate limiter counts a notification, or None for one that is dropped."""
        params: dict[str, Any] = message.params or {}
        if not is_sound(message.method, params):
            return None
        if message.method == "notifications/progress":
            token = params["progressToken"]
            return f"progress {_key(token)}" if self._filter.awaits(token) else None
        return message.method if message.method in _METHODS else "other"

    def _rate(self, kind: str) -> limits.Rate:
        return self._log if kind == "notifications/message" else self._notifications

    def _due(self) -> "SessionMessage | None":
        kind = next((kind for kind in self._held_messages if self._rate(kind).take(kind)), None)
        return None if kind is None else self._held_messages.pop(kind)

    def _after_progress(self, item: "SessionMessage") -> "SessionMessage":
        """Return an answer, or the held progress notification of its call, which must be passed on before the answer.

        In that case, the answer is kept for the next `receive`. The SDK ignores progress that comes after the answer.
        """
        last = self._held_messages.pop(f"progress {_key(getattr(item.message, 'id', None))}", None)
        if last is None:
            return item
        self._next = item
        return last

    def _admits(self, request: Any) -> bool:
        """Return whether a request of the server is passed on. It is not if too many are open or come too fast."""
        pending, key = self._filter.requests, _key(request.id)
        too_many = key in pending or len(pending) >= limits.OPEN_REQUESTS
        if too_many or not self._requests.take(request.method if request.method in _METHODS else "other"):
            return False
        pending.add(key)
        return True

    def __aiter__(self) -> "ReadStream[SessionMessage | Exception]":
        return self

    async def __anext__(self) -> "SessionMessage | Exception":
        import anyio

        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


class _OutgoingStream(MessageStream):
    """The stream of messages to an MCP server. It records the requests and answers in the filter."""

    def __init__(self, inner: Any, messages: MessageFilter) -> None:
        super().__init__(inner)
        self._filter = messages

    async def send(self, item: "SessionMessage", /) -> None:
        """Send a message to the server, and record it in the filter."""
        is_answer = not hasattr(item.message, "method")
        if not is_answer:
            self._filter.record_request(item.message)  # Recorded first, because the answer can come at once.
        await self._inner.send(item)
        if is_answer:
            self._filter.record_answer(item.message)


def is_sound(method: str, params: Mapping[str, Any]) -> bool:
    """Return whether a notification can be passed on: the SDK can parse it, or does not know its method.

    Any other notification must be dropped, because the SDK would log a long traceback.
    """
    from mcp.types.methods import MONOLITH_NOTIFICATIONS
    from pydantic import ValidationError

    try:
        if model := MONOLITH_NOTIFICATIONS.get(method):
            model.model_validate({"method": method, "params": params}, by_name=False)
    except ValidationError:
        return False
    return True


class _UnusableTool(ValueError):
    """Raised for a tool in a server's list that cannot be used. The message is the reason."""


def repair_tools(
    page: list[Any], left_out: dict[str, str], dropped_keywords: dict[str, list[str]], room: int = limits.TOOLS
) -> list[dict[str, Any]]:
    """Return the usable tools of one page of a server's list of tools, at most `room`.

    The SDK refuses a whole page for one invalid field of one tool. Here, each entry is reduced to the fields that a
    model needs. For an unusable tool, the reason is added to `left_out`. Keywords that were removed from a tool's
    schema are added to `dropped_keywords`.
    """
    tools: list[dict[str, Any]] = []
    for number, entry in enumerate(page):
        if len(tools) >= room:
            left_out[MORE] = CUT
            break
        try:
            tool, meaningless = _repair_tool(entry)
        except _UnusableTool as error:
            if len(left_out) < limits.TOOLS:
                left_out[_label(entry, number)] = str(error)
            continue
        tools.append(tool)
        if meaningless:
            dropped_keywords[tool["name"]] = meaningless
    return tools


def _repair_tool(entry: Any) -> tuple[dict[str, Any], list[str]]:
    """Return a tool that the SDK can parse, and the invalid keywords that were removed from its schema."""
    if not isinstance(entry, Mapping):
        raise _UnusableTool("It is no JSON object.")
    fields = cast("Mapping[str, Any]", entry)
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise _UnusableTool("It has no name.")
    if len(name) > limits.TOOL_NAME:
        raise _UnusableTool(f"Its name is longer than {limits.TOOL_NAME} characters.")
    if not name.isprintable():
        raise _UnusableTool("Its name has characters that cannot be seen.")
    schema, dropped_keywords = _repair_schema(fields.get("inputSchema"))
    tool: dict[str, Any] = {"name": name, "inputSchema": schema}
    tool |= {key: fields[key] for key in ("title", "description") if isinstance(fields.get(key), str)}
    if isinstance(hints := fields.get("annotations"), Mapping):
        flags = cast("Mapping[str, Any]", hints)
        tool["annotations"] = {key: flags[key] for key in _HINTS if isinstance(flags.get(key), bool)}
    return tool, dropped_keywords


def _repair_schema(value: Any) -> tuple[dict[str, Any], list[str]]:
    if not value or value is True:  # There is no schema, or it is `true`, which allows any arguments.
        return {"type": "object", "properties": {}}, []
    if not isinstance(value, Mapping):
        raise _UnusableTool("Its schema is no JSON object.")
    try:
        size = len(json.dumps(value, ensure_ascii=False))
        if size > limits.SCHEMA_SIZE:
            raise _UnusableTool(f"Its schema has {size} characters, over the limit of {limits.SCHEMA_SIZE}.")
        clean, dropped_keywords = mends.mend(cast("Mapping[str, Any]", value))
        schema: dict[str, Any] = clean_schema(clean)
    except RecursionError:
        raise _UnusableTool("Its schema is nested too deeply.") from None
    if schema["type"] != "object":
        raise _UnusableTool("Its schema does not describe an object.")
    return schema, dropped_keywords


def _label(entry: Any, number: int) -> str:
    name = cast("Mapping[str, Any]", entry).get("name") if isinstance(entry, Mapping) else None
    return single_line(name, 80) if isinstance(name, str) and name else f"tool {number + 1}"


def _key(identifier: Any) -> str:
    """Return a request id as text, because some servers answer a numeric id with a text."""
    return str(identifier)[:100]


def clean_schema(value: Any, key: str = "") -> Any:
    """Return a JSON Schema, or a value in it, without unsafe characters in descriptions and titles.

    The values under `enum`, `const` and similar keywords are not changed, because arguments are compared with them.
    """
    match value:
        case str() if key in _TEXT_KEYS:
            return clean_lines(value)
        case Mapping() if key not in _VALUES:
            has_names = key in limits.NAMED_SCHEMAS
            entries = cast("Mapping[str, Any]", value).items()
            return {name: clean_schema(one, "" if has_names else name) for name, one in entries}
        case list() if key not in _VALUES:
            return [clean_schema(one) for one in cast("list[Any]", value)]
        case _:
            return value
