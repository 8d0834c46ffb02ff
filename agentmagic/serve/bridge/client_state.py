"""The state of the MCP client. The bridge stores it, so that it can restore the state in the next kernel."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from agentmagic.serve.bridge.envelope import LISTEN, Envelope, RequestId

MOST = 1000
"""How many subscriptions are stored."""

_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


@dataclass(slots=True)
class ClientState:
    """The MCP client's handshake, and those of its requests that have a lasting effect, such as subscriptions."""

    handshake: Envelope | None = None
    version: str = ""
    """The MCP version that was agreed on in the handshake."""
    is_ready: bool = False
    """Whether the client has reported that its handshake is complete."""
    settings: dict[tuple[str, str], Envelope] = field(default_factory=dict[tuple[str, str], Envelope])
    """The requests of a client with a handshake that set its log level or subscribe to resources."""
    listening: dict[RequestId, Envelope] = field(default_factory=dict[RequestId, Envelope])
    """The open subscriptions of a stateless client."""
    acknowledged: set[RequestId] = field(default_factory=set[RequestId])
    """The subscriptions that the client was told are open."""

    def remember(self, request: Envelope) -> None:
        """Store a client's request if it must be sent to the next kernel, too."""
        uri = str((request.params or {}).get("uri", ""))
        match request.method:
            case "logging/setLevel":
                self.settings["level", ""] = request
            case "resources/subscribe" if len(self.settings) < MOST:
                self.settings["resource", uri] = request
            case "resources/unsubscribe":
                self.settings.pop(("resource", uri), None)
            case method if method == LISTEN and request.id is not None and len(self.listening) < MOST:
                self.listening[request.id] = request
            case _:
                pass

    def forget(self, number: RequestId) -> None:
        """Remove the subscription that the request with this id began, because it has ended."""
        self.listening.pop(number, None)
        self.acknowledged.discard(number)

    def wants(self, level: str) -> bool:
        """Return whether the MCP client wants log messages of this level.

        False before its handshake is complete, and so always for a stateless client.
        """
        request = self.settings.get(("level", ""))
        least = (request.params or {}).get("level") if request else None
        return self.is_ready and (least not in _LEVELS or _LEVELS.index(level) >= _LEVELS.index(least))


def requested_notifications(request: Envelope) -> Mapping[str, Any]:
    """Return the kinds of notification that a subscription request asks for."""
    notifications: Any = (request.params or {}).get("notifications")
    return cast("Mapping[str, Any]", notifications) if isinstance(notifications, dict) else {}
