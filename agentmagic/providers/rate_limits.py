"""Reads the rate limits in the headers of responses, which are untrusted input."""

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
"""The headers with a rate limit, each with a function that returns what a request counts against the limit.

In a header, {} is replaced by "limit" or "remaining". The time of a reset is not read: some servers give the time when
the whole limit is renewed, others the time when the next request is allowed.

https://developers.openai.com/api/docs/guides/rate-limits (many compatible servers send these headers too) and
https://platform.claude.com/docs/en/api/rate-limits, where tokens that are read from the cache do not count.
"""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A server's limit per minute on requests or tokens. `remaining` is how much is left now, or None if unknown."""

    limit: float
    remaining: float | None = None


def read_limits(headers: Mapping[str, str]) -> dict[str, RateLimit]:
    """Return the rate limits in the headers of a response; a limit that cannot be read is left out.

    The keys are those of `HEADERS`.
    """
    limits: dict[str, RateLimit] = {}
    for name in HEADERS:
        limit = _count(headers.get(name.format("limit"), ""))
        if limit:
            limits[name] = RateLimit(limit, _count(headers.get(name.format("remaining"), "")))
    return limits


def _count(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text) else None


on_response: ContextVar[Callable[[int, Mapping[str, str]], None] | None] = ContextVar("on_response", default=None)
"""The function that gets the status and the headers of each response to this task's request; None for no function."""

on_request: ContextVar[Callable[[], None] | None] = ContextVar("on_request", default=None)
"""The function that is called when this task's request is really sent, after the client is loaded; None for none."""


async def note_sent(_request: "httpx2.Request") -> None:
    """Call `on_request`. This is an event hook of the HTTP clients."""
    if (listener := on_request.get()) is not None:
        listener()


async def note_limits(response: "httpx2.Response") -> None:
    """Pass the status and headers of a response to `on_response`. This is an event hook of the HTTP clients."""
    if (listener := on_response.get()) is not None:
        listener(response.status_code, response.headers)
