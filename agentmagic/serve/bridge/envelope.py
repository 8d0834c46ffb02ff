"""JSON-RPC messages as the bridge handles them: their kind, id and content, and the JSON line to pass on."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from pydantic import StrictInt, StrictStr, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

LARGEST = 32 * 1024 * 1024
"""The largest message, in bytes."""

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The MCP versions that begin with a handshake."""
STATELESS_VERSIONS = ("2026-07-28",)
"""The MCP versions without a handshake: each request is complete in itself."""

NO_KERNEL = -32011
"""JSON-RPC error code if the kernel has ended or cannot be reached; from the range for implementations."""
TOO_LONG = -32010
UNREADABLE = -32700

LISTEN = "subscriptions/listen"
_META = "io.modelcontextprotocol/"
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_PLAIN = re.compile(r"(?! )[\x20-\x7e]*(?<! )")

RequestId = int | str


@dataclass(frozen=True, slots=True)
class Envelope:
    """One JSON-RPC message: a request has `method` and `id`, a notification only `method`, an answer only `id`.

    `line` is the message as JSON without a line end.
    """

    method: StrictStr | None = None
    id: StrictInt | StrictStr | None = None
    params: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    line: bytes = b""

    @property
    def is_request(self) -> bool:
        """Whether the message is a request, which expects an answer."""
        return self.method is not None and self.id is not None

    @property
    def is_answer(self) -> bool:
        """Whether the message answers a request."""
        return self.method is None and (self.result is not None or self.error is not None)

    @property
    def version(self) -> str | None:
        """The MCP version that a stateless request names; None for a request that relies on an earlier handshake."""
        meta = (self.params or {}).get("_meta")
        version = cast("Mapping[str, Any]", meta).get(f"{_META}protocolVersion") if isinstance(meta, Mapping) else None
        return version if isinstance(version, str) and _PLAIN.fullmatch(version) else None

    @property
    def cancels(self) -> RequestId | None:
        """The id of the request that this notification cancels, None for any other message."""
        if self.method != "notifications/cancelled":
            return None
        request_id = (self.params or {}).get("requestId")
        return request_id if isinstance(request_id, int | str) else None

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers that repeat some fields of a stateless MCP request; {} for any other message."""
        if self.version is None or self.method is None:
            return {}
        name = (self.params or {}).get(_NAMED.get(self.method, ""))
        headers = {"mcp-protocol-version": self.version, "mcp-method": _header(self.method)}
        return headers | ({"mcp-name": _header(name)} if isinstance(name, str) else {})

    def with_fields(self, **changes: Any) -> "Envelope":
        """Return a copy of the message with some fields replaced."""
        parts = {name: getattr(self, name) for name in ("method", "id", "params", "result", "error")} | changes
        return make(**parts)


def make(**parts: Any) -> Envelope:
    """Return a message with the given fields; fields that are None are left out."""
    parts = {name: value for name, value in parts.items() if value is not None}
    return Envelope(**parts, line=to_json({"jsonrpc": "2.0"} | parts))


def read(text: bytes) -> Envelope | None:
    """Return the message in a JSON text; None if the text is not a valid message."""
    try:
        parts = _decoder().validate_json(text)
        # Write Unicode escapes as plain characters: they make a line up to six times as long, which slows some clients.
        is_plain = not any(one in text for one in (b"\n", b"\r", b"\\u"))
        line = text if is_plain else to_json(from_json(text))
    except (ValidationError, ValueError):
        return None
    message = Envelope(parts.method, parts.id, parts.params, parts.result, parts.error, line)
    return message if message.method is not None or message.is_answer else None


def failure(request: RequestId, why: str, code: int = NO_KERNEL) -> Envelope:
    """Return the JSON-RPC error that answers the request with this id."""
    return make(id=request, error={"code": code, "message": why})


def subscription(request: RequestId) -> dict[str, Any]:
    """Return the `_meta` field of a message that belongs to the subscription begun by this request."""
    return {f"{_META}subscriptionId": request}


def _header(value: str) -> str:
    """Return a value in the form that MCP uses in a header: base64 if it is not plain ASCII."""
    if _PLAIN.fullmatch(value) and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


@cache
def _decoder() -> TypeAdapter[Envelope]:
    return TypeAdapter(Envelope)
