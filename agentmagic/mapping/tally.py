"""Counts the progress of a map: rows, costs, rows per minute, and kinds of errors."""

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal
from uuid import uuid4

from agentmagic.events import MapEnd, MapProgress
from agentmagic.mapping.outcomes import MapRow
from agentmagic.messages import Usage

RECENT = 30.0
"""The rate of a map is measured over this number of seconds."""
KINDS_OF_ERROR = 3
"""Maximum number of different errors in a progress report."""
MOST_EXAMPLES = 5
"""Maximum number of rows that a progress report names for each of these errors."""

Origin = Literal["asked", "kept", "earlier"]
"""Where the outcome of a row comes from: this run, a stored outcome that is final, or one without an answer."""


@dataclass
class Tally:
    """The progress counts of a map.

    `kept_count` rows have an answer from an earlier run. `asked_count` and `run_usage` are from this run alone.
    """

    total: int | None = None
    kept_count: int = 0
    asked_count: int = 0
    usage: Usage = Usage()  # noqa: RUF009  (a frozen value)
    run_usage: Usage = Usage()  # noqa: RUF009
    statuses: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])
    examples: dict[str, list[MapRow]] = field(default_factory=dict[str, list[MapRow]])
    notices: list[str] = field(default_factory=list[str])
    end_reason: MapEnd = ""

    def __post_init__(self) -> None:
        self._id = uuid4().hex
        self._began = time.monotonic()
        self._over = 0.0
        self._recent: deque[float] = deque()
        self._figures: tuple[float, float] | None = None

    def end(self, why: MapEnd) -> None:
        """Store why the map ended, and stop measuring its time."""
        self.end_reason, self._over = why, time.monotonic()

    def settle(self, rows: Iterable[MapRow]) -> None:
        """Sum up costs and errors again, in input order. Rows end in a random order, which would change rounding."""
        self.usage, self.errors, self.examples = Usage(), Counter(), {}
        for row in rows:
            self._add(row)

    def fix(self, kept: int, rate: float, seconds: float) -> None:
        """Use recorded values in place of measured ones: the number of `kept` rows, rows per minute, and seconds."""
        self.asked_count += self.kept_count - kept
        self.kept_count, self._figures = kept, (rate, seconds)

    def note(self, row: MapRow, origin: Origin) -> None:
        """Count a row that has an outcome."""
        self._add(row)
        self.statuses[row.status] += 1
        if origin != "asked":
            self.kept_count += origin == "kept"
            return
        self.run_usage += row.usage
        self.asked_count += 1
        self._recent.append(time.monotonic())

    def _add(self, row: MapRow) -> None:
        self.usage += row.usage
        if row.error:
            self.errors[row.error] += 1
            examples = self.examples.setdefault(row.error, [])
            examples += [row] if len(examples) < MOST_EXAMPLES else []

    def progress(self, running: int, file: str, pieces: Mapping[int, str]) -> MapProgress:
        """Return the current progress of the map.

        `pieces` are short pieces of the failed rows, by the number of the row.
        """
        now = self._over or time.monotonic()
        while self._recent and self._recent[0] < now - RECENT:
            self._recent.popleft()
        seconds = now - self._began
        rate = 60 * len(self._recent) / max(min(seconds, RECENT), 0.001)
        rate, seconds = self._figures or (rate, seconds)
        count = self.statuses.total()
        remaining = None if self.total is None or not rate else 60 * (self.total - count) / rate
        cost = self.usage.cost
        kinds = list(islice(self.errors.items(), KINDS_OF_ERROR))
        rows = [self.examples[error] for error, _ in kinds]
        return MapProgress(
            id=self._id,
            total=self.total,
            answered=self.statuses["answered"],
            failed=self.statuses["failed"],
            kept=self.kept_count,
            running=running,
            usage=self.usage,
            projected=None if cost is None or self.total is None or not count else cost * self.total / count,
            rate=rate,
            seconds=seconds,
            left=remaining,
            errors=tuple(kinds),
            examples=tuple(tuple((str(row.index), pieces.get(row.place, "")) for row in one) for one in rows),
            notices=tuple(self.notices),
            ended=self.end_reason,
            file=file,
            in_doubt=self.statuses["in doubt"],
        )
