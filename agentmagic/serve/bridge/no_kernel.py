"""The answers of a bridge without a kernel: it acts as an MCP server without tools, and says what the user can do."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

from agentmagic.serve.bridge.client_state import requested_notifications
from agentmagic.serve.bridge.envelope import (
    LISTEN,
    STATELESS_VERSIONS,
    VERSIONS,
    Envelope,
    RequestId,
    failure,
    make,
    subscription,
)

_LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
# What a kernel that joins later can do. A client never uses a capability that the first answer did not name.
_CAPABILITIES: dict[str, Any] = {
    "logging": {},
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}


def handshake(params: Mapping[str, Any], reason: str) -> dict[str, Any]:
    """Return the result of the MCP request `initialize`; `reason` tells the client why there is no kernel."""
    version = params.get("protocolVersion")
    return {
        "protocolVersion": version if version in VERSIONS else VERSIONS[-1],
        "serverInfo": _server(),
        **_introduction(reason),
    }


def with_changes(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result of `initialize`, to which the bridge's log messages and notices of changed tools are added."""
    logging: dict[str, Any] = {}
    capabilities = {"logging": logging, **_mapping(result.get("capabilities"))}
    tools = _mapping(capabilities.get("tools")) | {"listChanged": True}
    return {**result, "capabilities": capabilities | {"tools": tools}}


def answer(request: Envelope, reason: str) -> Envelope:
    """Return the answer to a request while no kernel is served. A subscription gets a notification that it is open."""
    number = cast("RequestId", request.id)
    complete = {"resultType": "complete"} if request.version else {}
    no_cache = complete | {"ttlMs": 0, "cacheScope": "private"} if request.version else {}
    match request.method:
        case "server/discover":
            versions = {"supportedVersions": [*VERSIONS, *STATELESS_VERSIONS]}
            meta = {"_meta": {"io.modelcontextprotocol/serverInfo": _server()}}
            return make(id=number, result={**versions, **meta, **_introduction(reason), **no_cache})
        case "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe":
            return make(id=number, result=complete)
        case str(method) if method in _LISTS:
            return make(id=number, result={_LISTS[method]: [], **no_cache})
        case method if method == LISTEN:
            params = {"notifications": requested_notifications(request), "_meta": subscription(number)}
            return make(method="notifications/subscriptions/acknowledged", params=params)
        case _:
            return failure(number, reason)


def _introduction(reason: str) -> dict[str, Any]:
    then = "The bridge then joins the kernel, and its tools appear."
    return {"capabilities": _CAPABILITIES, "instructions": f"{reason}\n{then}"}


def _server() -> dict[str, str]:
    try:
        return {"name": "agentmagic", "version": version("agentmagic")}
    except PackageNotFoundError:  # agentmagic is run from source, not installed
        return {"name": "agentmagic", "version": ""}


def _mapping(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
