"""What the bridge remembers of its client, so that the next kernel is told the same."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from agentmagic.serve.bridge.envelope import LISTEN, Envelope, RequestId

MOST = 1000
"""Subscriptions that are remembered."""

_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


@dataclass(slots=True)
class ClientState:
    """The client's handshake, and the requests whose effect is to last."""

    handshake: Envelope | None = None
    version: str = ""
    """The version of MCP that the handshake agreed on."""
    is_ready: bool = False
    """Whether the client has said that its handshake is complete."""
    settings: dict[tuple[str, str], Envelope] = field(default_factory=dict[tuple[str, str], Envelope])
    """The log level and the resources that the client watches, of a client with a handshake."""
    listening: dict[RequestId, Envelope] = field(default_factory=dict[RequestId, Envelope])
    """The open subscriptions of a stateless client."""
    acknowledged: set[RequestId] = field(default_factory=set[RequestId])
    """The subscriptions that the client knows to be open."""

    def remember(self, request: Envelope) -> None:
        """Keep a request that the next kernel is to be asked too."""
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
        """Drop a subscription that has ended."""
        self.listening.pop(number, None)
        self.acknowledged.discard(number)

    def wants(self, level: str) -> bool:
        """Return whether a log message of the bridge may be sent: a stateless client gets none."""
        asked = self.settings.get(("level", ""))
        least = (asked.params or {}).get("level") if asked else None
        return self.is_ready and (least not in _LEVELS or _LEVELS.index(level) >= _LEVELS.index(least))


def wanted(request: Envelope) -> Mapping[str, Any]:
    """Return what a subscription asks to be told of."""
    asked: Any = (request.params or {}).get("notifications")
    return cast("Mapping[str, Any]", asked) if isinstance(asked, dict) else {}
