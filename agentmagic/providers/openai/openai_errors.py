"""From the failures that OpenAI and compatible servers report to ours.

https://developers.openai.com/api/docs/guides/error-codes; the codes that come in a chunk are those of
`ResponseError` in the SDK.
"""

import re
from dataclasses import dataclass

from agentmagic.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    ProviderError,
    RateLimited,
    StreamBroken,
    Unavailable,
)
from agentmagic.providers.wire import clean_text
from agentmagic.secrets import redact

KEY = "OPENAI_API_KEY"
BASE_URL = "OPENAI_BASE_URL"
LONGEST_SAID = 500
"""Characters of a server's own words that an error repeats."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure as a server reports it; `code` is its own, or its type where it has no code."""

    message: str
    code: str = ""
    status: int | None = None
    retry_after: float | None = None


_STATUS_OF = {
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "model_not_found": 404,
    "not_found_error": 404,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 429,
    "server_error": 500,
    "internal_error": 500,
    "api_error": 500,
    "slow_down": 503,
    "overloaded_error": 529,
    "vector_store_timeout": 500,
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "content_filter": 400,
    "bio_policy": 400,
    "misalignment_policy_violation": 400,
    "data_residency_mismatch": 400,
    "failed_to_download_image": 400,
    "unsupported_image_media_type": 400,
    "empty_image_file": 400,
}
"""The HTTP status of the codes that come in a chunk, once the status of the response has been sent."""

_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_TOO_LONG = frozenset({"context_length_exceeded", "string_above_max_length", "exceed_context_size_error"})
_TOO_LONG_WORDS = re.compile(r"context (length|window|size)|prompt is too long|too many tokens", re.IGNORECASE)


def error_for(fault: Fault, *, who: str = "The provider", model: str = "the model") -> ProviderError:
    """Turn a reported failure into an error that says what to do.

    One that has no status and no known code is StreamBroken. A quota that is used up is not retryable.
    """
    kind, text = _explain(fault, who, model)
    error = kind(redact(clean_text(text)), status=fault.status, retry_after=fault.retry_after)
    error.retryable = kind.retryable and not _is_used_up(fault)
    return error


def _explain(fault: Fault, who: str, model: str) -> tuple[type[ProviderError], str]:  # noqa: PLR0911  (one per kind)
    said, status = sentence(fault.message), _status(fault)
    match status:
        case _ if _is_too_long(fault, status):
            advice = "Start a new session, send less, or choose a model with a larger window."
            return ContextTooLong, f"The conversation does not fit {model}: {said} {advice}"
        case _ if _is_used_up(fault):
            return RateLimited, f"The quota of {who} is used up: {said} Check its plan and billing."
        case None:
            return StreamBroken, f"The answer broke off, {who} reports {fault.code or 'an error'}: {said} {_AGAIN}"
        case 401 | 403:
            return AuthenticationFailed, f"{who} refused the key: {said} Check {KEY}."
        case 404:
            advice = "Check the model's name and the base URL; some servers know openai-chat: only, not openai:."
            return BadRequest, f"{who} has no model {model!r}: {said} {advice}"
        case 429:
            return RateLimited, f"{who} limits the requests: {said} Wait a while, or send fewer."
        case _ if status in (408, 409) or status >= 500:  # noqa: PLR2004  (HTTP: the server's fault)
            return Unavailable, f"{who} does not work right now ({status}): {said} Try again later."
        case _:
            return BadRequest, f"{who} refused the request to {model} ({status}): {said}"


_AGAIN = "Send the request again."


def broken(why: str) -> StreamBroken:
    """Say that a response broke off, and why."""
    return StreamBroken(redact(f"The answer broke off: {sentence(why)} {_AGAIN}"))


def filtered(who: str = "The provider") -> BadRequest:
    """Say that an answer was withheld; half of it may have been seen."""
    return BadRequest(f"{who} withheld the answer: its content filter stopped it. Word the request differently.")


def unreachable(url: str, why: str) -> Unavailable:
    """Say that there is no connection to a server."""
    advice = f"Check the network, that the server runs, and the base URL ({BASE_URL})."
    return Unavailable(redact(f"{url} cannot be reached: {sentence(why)} {advice}"))


def untrusted(url: str, why: str) -> Unavailable:
    """Say that a server's encryption is at fault, which the next try would meet again."""
    advice = f"Check the base URL ({BASE_URL}); where a proxy opens the traffic, set SSL_CERT_FILE to its certificate."
    error = Unavailable(redact(f"{url} cannot be reached safely: {sentence(why)} {advice}"))
    error.retryable = False
    return error


def sentence(words: str) -> str:
    """Return words of a server or a library on one line, secrets blanked, shortened, with a full stop."""
    words = redact(" ".join(words.split()))[:LONGEST_SAID] or "it gave no reason."
    return words if words.endswith((".", "!", "?")) else f"{words}."


def _status(fault: Fault) -> int | None:
    if fault.status:
        return fault.status
    if re.fullmatch(r"[45]\d\d", fault.code):  # compatible servers give an HTTP status as the code
        return int(fault.code)
    if fault.code.startswith(("invalid_image", "invalid_base64", "image_")):
        return 400
    return _STATUS_OF.get(fault.code)


def _is_used_up(fault: Fault) -> bool:
    return fault.code in _QUOTA or _status(fault) == 402  # noqa: PLR2004  (HTTP: payment required)


def _is_too_long(fault: Fault, status: int | None) -> bool:
    if fault.code in _TOO_LONG or status == 413:  # noqa: PLR2004  (HTTP: content too large)
        return True
    return status in (None, 400, 422) and bool(_TOO_LONG_WORDS.search(fault.message))
