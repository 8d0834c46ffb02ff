"""From the errors Gemini sends to ours.

Sources: https://ai.google.dev/gemini-api/docs/troubleshooting and https://google.aip.dev/193 for the
form of an error: `{"error": {"code", "status", "message", "details": [...]}}`.
"""

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, cast

from agentmagic.errors import AuthenticationFailed, BadRequest, ContextTooLong, ProviderError, RateLimited, Unavailable
from agentmagic.secrets import redact
from agentmagic.text import one_line

BASE_URL = "GOOGLE_GEMINI_BASE_URL"
KEYS = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
"""Where a key is looked for; Google's own SDK asks in this order too."""

LONGEST = 500
"""How many characters of a provider's own words are passed on."""

_TOO_LONG = re.compile(r"token count.*exceeds|exceeds the maximum number of tokens", re.IGNORECASE | re.DOTALL)
_BAD_KEY = re.compile(r"\bapi[ _]key\b.*(?:not valid|invalid|expired|not found)", re.IGNORECASE | re.DOTALL)
_DAILY = re.compile(r"PerDay")
"""In the id of a quota; the others are counted by the minute."""
_STATUS_OF = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
}
"""The HTTP status of an error that has only a word for it; every other word is the server's own fault."""
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s?")


def quoted(words: object) -> str:
    """Return a provider's words on one line, shortened, with every secret blanked; empty for no text."""
    return one_line(redact(words), LONGEST) if isinstance(words, str) else ""


def not_gemini(kind: str) -> BadRequest:
    """Say that a server answered with something else than an event stream, of the given content type."""
    return BadRequest(f"The server answered with {quoted(kind)[:80]}, as Gemini never does. Check {BASE_URL}.")


def untrusted(why: str) -> Unavailable:
    """Say that the server's encryption is at fault, which the next try would meet again."""
    advice = f"Check {BASE_URL} where it is set; where a proxy opens the traffic, set SSL_CERT_FILE to its certificate."
    error = Unavailable(f"Gemini cannot be reached safely: {quoted(why)}. {advice}")
    error.retryable = False
    return error


def refusal(status: int | None, payload: object, model: str, *, retry_after: float | None = None) -> ProviderError:
    """Say what an HTTP status and the JSON that came with it mean, and what to do.

    An error in a stream may have no status but the one in the payload. `retry_after` is what the header of
    that name asks for, in seconds; the delay in the payload goes before it.
    """
    error = _error(payload)
    status = status or _status(error)
    said = quoted(error.get("message"))
    delay = _seconds(_retry_delay(error)) or retry_after
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return _limited(error, said, delay)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT):
        text = f"Gemini is not available at the moment (HTTP {status}). {_says(said)}Try again later."
        return Unavailable(text, status=status, retry_after=delay)
    return _final(status, said, model)


def _status(error: Mapping[str, Any]) -> int:
    code = error.get("code")
    return code if isinstance(code, int) else _STATUS_OF.get(str(error.get("status")), 500)


def _limited(error: Mapping[str, Any], said: str, delay: float | None) -> RateLimited:
    """Tell a limit of the minute from one of the day, which no wait of a turn sits out."""
    daily = any(
        _DAILY.search(str(violation)) for detail in _details(error) for violation in _list(detail, "violations")
    )
    advice = (
        "The quota of the day is used up: take another key or model." if daily else "Wait, or check the key's quota."
    )
    text = f"Gemini takes no more requests for now. {_says(said)}{advice}"
    limited = RateLimited(text, status=int(HTTPStatus.TOO_MANY_REQUESTS), retry_after=delay)
    limited.retryable = not daily
    return limited


def _final(status: int, said: str, model: str) -> ProviderError:
    """Tell the refusals apart that no retry can help."""
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) or _BAD_KEY.search(said):
        text = f"Gemini refused the key. {_says(said)}Check {KEYS[0]}, which goes first, and {KEYS[1]}."
        return AuthenticationFailed(text, status=status)
    if _TOO_LONG.search(said):
        text = f"The conversation no longer fits the window of {model}. {_says(said)}Shorten it, or start a new one."
        return ContextTooLong(text, status=status)
    if status == HTTPStatus.NOT_FOUND:
        advice = f"Check the name, and {BASE_URL} where it is set."
        return BadRequest(f"Gemini has no model {model!r} for this key. {_says(said)}{advice}", status=status)
    text = f"Gemini refused the request (HTTP {status}). {_says(said)}The same request would be refused again."
    return BadRequest(text, status=status)


def _says(said: str) -> str:
    """Introduce what Gemini said, as a sentence of its own."""
    if not said:
        return ""
    return f"It says: {said} " if said.endswith((".", "!", "?")) else f"It says: {said}. "


def _error(payload: object) -> Mapping[str, Any]:
    """Find the error in a payload, which may be bare or the only one of a list."""
    if isinstance(payload, list) and payload:
        payload = cast("list[object]", payload)[0]
    if not isinstance(payload, Mapping):
        return {}
    inner = cast("Mapping[str, Any]", payload)
    error = inner.get("error")
    return cast("Mapping[str, Any]", error) if isinstance(error, Mapping) else inner


def _retry_delay(error: Mapping[str, Any]) -> object:
    return next((detail["retryDelay"] for detail in _details(error) if "retryDelay" in detail), None)


def _details(error: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for detail in _list(error, "details"):
        if isinstance(detail, Mapping):
            yield cast("Mapping[str, Any]", detail)


def _list(holder: Mapping[str, Any], key: str) -> list[object]:
    items = holder.get(key)
    return cast("list[object]", items) if isinstance(items, list) else []


def _seconds(delay: object) -> float | None:
    """Read a duration like "34.07s"; None for anything else."""
    match = _SECONDS.fullmatch(delay) if isinstance(delay, str) else None
    return float(match[1]) if match else None
