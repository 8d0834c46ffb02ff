"""What servers say of their limits: the headers with the rates that they allow, read as untrusted input."""

import math
import re
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from agentmagic.messages import Usage

if TYPE_CHECKING:
    import httpx2

LONGEST_RESET = 3600.0
"""Seconds; a longer time until a limit is renewed counts as this."""


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
"""The headers with a limit, each with what counts against it. In the place of {} stands limit, remaining or reset.

https://developers.openai.com/api/docs/guides/rate-limits (many compatible servers send the same) and
https://platform.claude.com/docs/en/api/rate-limits, where tokens that are read from the cache do not count.
"""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A limit a minute, what remains of it, None if that is not said, and the seconds until it is renewed."""

    limit: float
    remaining: float | None = None
    reset: float = 0.0


def read_limits(headers: Mapping[str, str]) -> dict[str, RateLimit]:
    """Return the limits that a response names, by the names of their headers; one that cannot be read is left out."""
    found: dict[str, RateLimit] = {}
    for name in HEADERS:
        limit = _count(headers.get(name.format("limit"), ""))
        if limit:
            remaining, reset = (headers.get(name.format(what), "") for what in ("remaining", "reset"))
            found[name] = RateLimit(limit, _count(remaining), _seconds(reset))
    return found


def _count(text: str) -> float | None:
    return float(text) if re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text) else None


_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
_DURATION = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s?)?(?:{_NUMBER}ms)?")


def _seconds(text: str) -> float:
    """Return the seconds of a time such as 6m0s, 1s, 20ms or 2026-11-27T10:00:00Z; 0 if it cannot be read."""
    if match := _DURATION.fullmatch(text):
        units = zip(match.groups(), (3600, 60, 1, 0.001), strict=True)
        return min(sum(float(number) * unit for number, unit in units if number), LONGEST_RESET)
    try:
        seconds = datetime.fromisoformat(text).timestamp() - time.time()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), LONGEST_RESET) if math.isfinite(seconds) else 0.0


hear: ContextVar[Callable[[int, Mapping[str, str]], None] | None] = ContextVar("hear_limits", default=None)
"""Takes the status and the headers of the responses to the request that this task sends, if anything does."""


async def note_limits(response: "httpx2.Response") -> None:
    """Pass on what a response says of limits; a hook of an HTTP client."""
    if (listener := hear.get()) is not None:
        listener(response.status_code, response.headers)
