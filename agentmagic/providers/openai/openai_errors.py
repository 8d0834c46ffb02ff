"""The failures that OpenAI and compatible servers report, turned into our errors.

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
from agentmagic.providers.openai import KEY
from agentmagic.providers.wire import quoted
from agentmagic.secrets import redact
from agentmagic.text import encodable


@dataclass(frozen=True, slots=True)
class Fault:
    """A failure as a server reports it; `code` is its code, or its type if it has no code."""

    message: str
    code: str = ""
    status: int | None = None
    retry_after: float | None = None


# The codes that come in a chunk, after the response has begun with status 200, by the status that they stand for.
_CODES = {
    400: "invalid_request_error invalid_prompt content_filter bio_policy misalignment_policy_violation "
    "data_residency_mismatch failed_to_download_image unsupported_image_media_type empty_image_file",
    401: "invalid_api_key authentication_error",
    403: "permission_error",
    404: "model_not_found not_found_error",
    429: "rate_limit_exceeded rate_limit_error insufficient_quota",
    500: "server_error internal_error api_error vector_store_timeout",
    503: "slow_down",
    529: "overloaded_error",
}
_STATUS_OF = {code: status for status, codes in _CODES.items() for code in codes.split()}

_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_TOO_LONG = frozenset({"context_length_exceeded", "string_above_max_length", "exceed_context_size_error"})
_TOO_LONG_WORDS = re.compile(r"context (length|window|size)|prompt is too long|too many tokens", re.IGNORECASE)
_AGAIN = "Send the request again."


def error_for(fault: Fault, *, who: str = "The provider", model: str = "the model") -> ProviderError:
    """Return the error for a reported failure, with what to do.

    A failure without a status and without a known code is StreamBroken. A used up quota is not retryable.
    """
    kind, text = _explain(fault, who, model)
    error = kind(encodable(redact(text)), status=fault.status, retry_after=fault.retry_after)
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


def broken(why: str) -> StreamBroken:
    """Return the error for a response that broke off."""
    return StreamBroken(redact(f"The answer broke off: {sentence(why)} {_AGAIN}"))


def filtered(who: str = "The provider") -> BadRequest:
    """Return the error for an answer that a content filter stopped; the user may have seen the first half."""
    return BadRequest(f"{who} withheld the answer: its content filter stopped it. Word the request differently.")


def sentence(words: str) -> str:
    """Return words of a server or a library as one quoted line with a full stop."""
    words = quoted(words) or "it gave no reason."
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
