"""How fast a server may talk: what comes faster is held back, and costs it the time that it would cost us."""

import asyncio
import time
from collections.abc import Callable

RATE = 20.0
"""Messages of one kind, as the progress of one call, that go on in a second."""

MOST_KINDS = 256
"""Kinds that are told apart; one that is not asked about for long is forgotten."""

BREATHER = 0.05
"""Seconds of rest after each `BREATH` messages that were too many, so that a flood costs little work."""

BREATH = 500


class Pace:
    """How many more of each kind may pass now; `burst` is how many of one kind may pass at once."""

    def __init__(self, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._burst = burst
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, kind: str) -> bool:
        """Whether one more may pass."""
        left, now = self._refilled(kind)
        self._left[kind] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > MOST_KINDS:
            self._left.pop(next(iter(self._left)))
        return left >= 1

    def wait(self, kind: str) -> float:
        """Seconds until one more may pass."""
        left, _ = self._refilled(kind)
        return max(0.0, (1 - left) / RATE)

    def _refilled(self, kind: str) -> tuple[float, float]:
        now = self._clock()
        left, then = self._left.get(kind, (self._burst, now))
        return min(self._burst, left + (now - then) * RATE), now


class Rest:
    """Makes a reader rest now and then over messages that are of no use; meanwhile the server has to wait."""

    def __init__(self) -> None:
        self._dropped = 0

    async def over(self) -> None:
        """Take note of one more."""
        self._dropped += 1
        if self._dropped % BREATH == 0:
            await asyncio.sleep(BREATHER)
