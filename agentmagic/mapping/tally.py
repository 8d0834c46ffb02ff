"""Counts how far a map has come: rows, costs, pace, and kinds of error."""

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import islice
from uuid import uuid4

from agentmagic.events import MapEnd, MapProgress
from agentmagic.mapping.outcomes import MapRow
from agentmagic.messages import Usage

RECENT = 30.0
"""Seconds over which the rate of a map is counted."""
KINDS_OF_ERROR = 3
"""Kinds of error that are told with their counts."""


@dataclass
class Tally:
    """The counts of a map; `kept` rows were answered before, `asked` rows in this run."""

    total: int | None = None
    kept: int = 0
    asked: int = 0
    usage: Usage = Usage()  # noqa: RUF009  (a frozen value)
    statuses: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    notices: list[str] = field(default_factory=list[str])
    ended: MapEnd = ""

    def __post_init__(self) -> None:
        self._id = uuid4().hex
        self._began = time.monotonic()
        self._over = 0.0
        self._recent: deque[float] = deque()

    def end(self, why: MapEnd) -> None:
        """Stop the clock."""
        self.ended, self._over = why, time.monotonic()

    def note(self, row: MapRow, *, kept: bool) -> None:
        """Count a row that has an outcome."""
        self.usage += row.usage
        self.statuses[row.status] += 1
        if row.error:
            self.errors[row.error] += 1
        if kept:
            self.kept += 1
            return
        self.asked += 1
        self._recent.append(time.monotonic())

    def progress(self, running: int, file: str) -> MapProgress:
        """Return how far the map has come."""
        now = self._over or time.monotonic()
        while self._recent and self._recent[0] < now - RECENT:
            self._recent.popleft()
        seconds = now - self._began
        rate = 60 * len(self._recent) / max(min(seconds, RECENT), 0.001)
        done = self.kept + self.asked
        left = None if self.total is None or not rate else 60 * (self.total - done) / rate
        cost = self.usage.cost
        return MapProgress(
            self._id,
            self.total,
            self.statuses["answered"],
            self.statuses["failed"],
            self.kept,
            running,
            self.usage,
            None if cost is None or self.total is None or not done else cost * self.total / done,
            rate,
            seconds,
            left,
            tuple(islice(self.errors.items(), KINDS_OF_ERROR)),
            tuple(self.notices),
            self.ended,
            file,
            self.statuses["in doubt"],
        )
