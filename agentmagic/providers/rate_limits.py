"""What servers say of their limits: the headers with the rates that they allow, read as untrusted input."""

import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentmagic.messages import Usage

if TYPE_CHECKING:
    import httpx2


def _all_tokens(usage: Usage) -> int:
    return usage.input_tokens + usage.output_tokens


def _new_tokens(usage: Usage) -> int:
    return usage.input_tokens - usage.cached_tokens


HEADERS: Mapping[str, Callable[[Usage], int]] = {
    "x-ratelimit-{}-requests": lambda _: 1,
    "x-ratelimit-{}-tokens": _all_tokens,
    "anthropic-ratelimit-requests-{}": lambda _: 1,
    "anthropic-ratelimit-tokens-{}": lambda usage: _new_tokens(usage) + usage.output_tokens,
    "anthropic-ratelimit-input-tokens-{}": _new_tokens,
    "anthropic-ratelimit-output-tokens-{}": lambda usage: usage.output_tokens,
}
"""The headers with a limit, each with what counts against it. In the place of {} stands limit or remaining.

The time of a reset is not read: for some servers it is when all is renewed, for others when the next may come.

https://developers.openai.com/api/docs/guides/rate-limits (many compatible servers send the same) and
https://platform.claude.com/docs/en/api/rate-limits, where tokens that are read from the cache do not count.
"""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A limit a minute, and what remains of it, None if that is not said."""

    limit: float
    remaining: float | None = None


def read_limits(headers: Mapping[str, str]) -> dict[str, RateLimit]:
    """Return the limits that a response names, by the names of their headers; one that cannot be read is left out."""
    found: dict[str, RateLimit] = {}
    for name in HEADERS:
        limit = _count(headers.get(name.format("limit"), ""))
        if limit:
            found[name] = RateLimit(limit, _count(headers.get(name.format("remaining"), "")))
    return found


def _count(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text) else None


hear: ContextVar[Callable[[int, Mapping[str, str]], None] | None] = ContextVar("hear_limits", default=None)
"""Takes the status and the headers of the responses to the request that this task sends, if anything does."""


async def note_limits(response: "httpx2.Response") -> None:
    """Pass on what a response says of limits; a hook of an HTTP client."""
    if (listener := hear.get()) is not None:
        listener(response.status_code, response.headers)
