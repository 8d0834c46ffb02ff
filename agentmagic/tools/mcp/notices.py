"""Whether a notification of a server has the form it should: of one that has not, the library logs a long traceback."""

from collections.abc import Mapping
from typing import Any

_LEVELS = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})


def is_sound(method: str, params: Mapping[str, Any]) -> bool:
    """Whether a notification can be read; one of a kind that nobody knows counts as sound."""
    if not isinstance(params.get("_meta", {}), Mapping):
        return False
    match method:
        case "notifications/progress":
            told = isinstance(params.get("message"), str | None) and _is_number(params.get("total", 0))
            return told and isinstance(params.get("progressToken"), str | int) and _is_number(params.get("progress"))
        case "notifications/message":
            named = isinstance(params.get("logger"), str | None) and "data" in params
            return named and isinstance(params.get("level"), str) and params["level"] in _LEVELS
        case "notifications/resources/updated":
            return isinstance(params.get("uri"), str)
        case "notifications/elicitation/complete":
            return isinstance(params.get("elicitationId"), str)
        case _:
            return True


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
