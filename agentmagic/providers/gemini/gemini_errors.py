"""The errors that Gemini reports, turned into ours.

https://ai.google.dev/gemini-api/docs/troubleshooting, and https://google.aip.dev/193 for the form of an error:
`{"error": {"code", "status", "message", "details": [...]}}`.
"""

import re
from typing import Any, cast

from agentmagic.errors import AuthenticationFailed, ContextTooLong, ProviderError
from agentmagic.providers.failures import Fault, Vendor, error_for
from agentmagic.providers.gemini import BASE_URL, KEYS
from agentmagic.providers.wire import Json, figures_of

_TOO_LONG = re.compile(r"token count.*exceeds|exceeds the maximum number of tokens", re.IGNORECASE | re.DOTALL)
_BAD_KEY = re.compile(r"\bapi[ _]key\b.*(?:not valid|invalid|expired|not found)", re.IGNORECASE | re.DOTALL)
_DAILY = re.compile(r"PerDay")
"""In the id of a quota of a day; other quotas are counted by the minute."""
_STATUS_OF = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
}
"""The HTTP status of an error that has only a word for it; all other words mean a failure of the server."""
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s?")


def refusal(status: int | None, payload: object, model: str, *, retry_after: float | None = None) -> ProviderError:
    """Return the error for an HTTP status and the JSON that came with it.

    An error in a stream has no status except the one in the payload. `retry_after` is the value of that header, in
    seconds; a delay in the payload is used before it.
    """
    error = next(iter(_objects(payload)), figures_of(payload))  # some endpoints send a list with one error
    error = figures_of(error.get("error")) or error  # with or without the envelope
    code, message = error.get("code"), error.get("message")
    message = message if isinstance(message, str) else ""
    if not status:
        status = code if isinstance(code, int) else _STATUS_OF.get(str(error.get("status")), 500)
    details = _objects(error.get("details"))
    kind: type[ProviderError] | None = None
    if status < 500 and status != 429:  # noqa: PLR2004  (HTTP: a refusal that no retry helps)
        too_long = ContextTooLong if _TOO_LONG.search(message) else None
        kind = AuthenticationFailed if _BAD_KEY.search(message) else too_long
    quotas = [str(violation) for detail in details for violation in _objects(detail.get("violations"))]
    fault = Fault(
        message,
        status=status,
        retry_after=_delay(details) or retry_after,
        kind=kind,
        used_up=status == 429 and any(map(_DAILY.search, quotas)),  # noqa: PLR2004  (HTTP: too many requests)
    )
    return error_for(fault, Vendor("Gemini", model, KEYS, BASE_URL))


def _objects(value: object) -> list[Json]:
    # Lenient, unlike the readers of answers: an error must be reported even if its details are odd.
    return [figures_of(item) for item in cast("list[Any]", value)] if isinstance(value, list) else []


def _delay(details: list[Json]) -> float | None:
    """Return the seconds of a delay such as "34.07s" in the details of an error."""
    delay = next((detail["retryDelay"] for detail in details if "retryDelay" in detail), None)
    match = _SECONDS.fullmatch(delay) if isinstance(delay, str) else None
    return float(match[1]) if match else None
