"""The codes of the failures that OpenAI and compatible servers report.

https://developers.openai.com/api/docs/guides/error-codes; the codes that come in a chunk are those of
`ResponseError` in the SDK.
"""

import re
from dataclasses import replace

from agentmagic.errors import BadRequest, ContextTooLong, ProviderError
from agentmagic.providers import failures
from agentmagic.providers.failures import Fault, Vendor
from agentmagic.providers.openai import BASE_URL, KEY

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
_PAYMENT_REQUIRED = 402
_TOO_LONG = frozenset({"context_length_exceeded", "string_above_max_length", "exceed_context_size_error"})
_TOO_LONG_WORDS = re.compile(r"context (length|window|size)|prompt is too long|too many tokens", re.IGNORECASE)


def error_for(fault: Fault, *, who: str = "The provider", model: str = "the model") -> ProviderError:
    """Return the error for a reported failure, with what to do."""
    status = _status(fault)
    # Compatible servers report a prompt over the window as a plain refusal.
    too_long = fault.code in _TOO_LONG or (status in (None, 400, 422) and _TOO_LONG_WORDS.search(fault.message))
    fault = replace(
        fault,
        status=status,
        kind=ContextTooLong if too_long else None,
        used_up=fault.code in _QUOTA or status == _PAYMENT_REQUIRED,
    )
    hint = " Some servers know openai-chat: only, not openai:."
    return failures.error_for(fault, Vendor(who, model, (KEY,), BASE_URL, hint))


def _status(fault: Fault) -> int | None:
    if fault.status:
        return fault.status
    if re.fullmatch(r"[45]\d\d", fault.code):  # compatible servers give an HTTP status as the code
        return int(fault.code)
    if fault.code.startswith(("invalid_image", "invalid_base64", "image_")):
        return 400
    return _STATUS_OF.get(fault.code)


def filtered() -> BadRequest:
    """Return the error for an answer that a content filter stopped; the user may have seen the first half."""
    return BadRequest("The provider withheld the answer: its content filter stopped it. Word the request differently.")
