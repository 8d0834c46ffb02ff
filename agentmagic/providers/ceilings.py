"""Finds by trial at which rate a server accepts requests, and how many it accepts at the same time."""

import math

FEW = 10
"""The least number of requests for which the share of refusals is meaningful."""
FIRST_WINDOW = 10
"""Requests under way at first: few enough for any server. Seven doublings lead to the largest window."""
LARGEST_WINDOW = 1000
"""The most requests under way at once: enough for 5,000 a minute if each takes 12 seconds."""
OTHER_FILES = 128
"""Open files that are reserved for the rest of the process. Each request takes a socket, which is an open file too."""
EPOCH, LONGEST_EPOCH = 1.0, 8.0
"""The shortest and longest epoch in seconds. An epoch is the time over which the share of refusals is measured.

Refusals arrive much sooner than an epoch ends.
"""
CLOSE = 0.04
"""The search between an accepted rate and a refused one ends when they differ by less than this share."""
TOLERATED_SHARE = 0.05
"""A share of refusals up to this one is ignored: a rate that is slightly too high costs no throughput."""
MOST_SHARE = 0.5
"""With this share of refusals or more, a cut of the rate is not reverted: its effect would be too small to measure."""
PATIENCE, LONGEST_PATIENCE = 2, 40
"""Epochs until a refused rate is tried again, at first and at most; doubled each time the rate is refused again."""
HOLD_SECONDS = 15.0
"""Seconds without a further cut after a cut that did not help: the refusals do not depend on the rate then."""
FIRST_STEP, LARGEST_STEP, MEASURED_STEP, GUESSED_STEP = 0.02, 0.1, 0.25, 1.0
"""The share by which a rate grows in an epoch without refusals: the first step, doubled up to the largest one.

The third value is the step after the rate was set to a measured one, which is often too low. The fourth is the step
after it was set to a guess from a few requests: the rate then doubles until requests are refused.
"""
GUESSED_FEW = 2
"""The least number of requests in an epoch while the rate is a guess and none was refused, in place of FEW."""
GAIN = 1.25
"""The window keeps growing only if a round brings this many times the answers per second of the best round."""
FASTEST, CAREFUL = 2.0, 1.5
"""The factor by which the window can grow in one round: at first, and after a window has proved too large."""
SLOWER = 1.5
"""The window grows only while answers take at most this many times as long as in the best round."""
FADES = 0.9
"""The factor by which the best rate and latency are relaxed before the window grows again: rows can become longer."""
STALE, ROUNDS = 2, 6
"""Rounds without a gain until the window shrinks back, and rounds after that until a larger window is tried again."""


class Ceiling:
    """An upper limit that is found by trial, for the rate of requests or for the number of unanswered requests.

    `value` is the limit now. It can change after each epoch. An epoch is a time of some seconds over which the share of
    refused requests is measured. Each request is counted in the epoch in which it was sent, so this share does not
    depend on how long answers take. `lag` is the time in seconds to wait for the last refusals of an epoch.
    """

    def __init__(self, value: float, least: float) -> None:
        self.value: float = value
        self.least = least
        self.limit = math.inf  # the limit that the server names in its responses: `value` never exceeds it
        self.binding = False  # whether a request had to wait for the limit `value` after the last `restart`
        self._step = FIRST_STEP
        self._accepted_value = 0.0  # the last `value` at which no requests were refused
        self._wait = 0
        self._refused_value = math.inf
        self._patience = PATIENCE
        # facts about the last cut of `value`: its old value, the rate of sent requests, and the share of refusals
        self._last_cut: tuple[float, float, float] | None = None
        self._hold_until = 0.0
        self._pool: tuple[int, int] = (0, 0)
        self._epoch = 0
        self.restart(0.0)

    def restart(self, now: float) -> None:
        """Begin a new epoch, the time over which the share of refused requests is measured."""
        self._epoch += 1
        self._since, self._until = now, math.inf
        self._request_count = self._refusal_count = 0
        self.binding = False

    def send(self, now: float) -> int:
        """Count a request that is sent now, and return the number of the current epoch.

        An epoch is the time over which the share of refusals is measured. Returns 0, and does not count the
        request, if the epoch only waits for its last refusals.
        """
        if self._until < math.inf:
            return 0
        self._since = self._since if self._request_count else now
        self._request_count += 1
        span = now - self._since
        few = GUESSED_FEW if self._step == GUESSED_STEP and not self._refusal_count else FEW
        if self._last_cut is not None and self._request_count < 2 * FEW:
            pass
        elif (self._request_count >= few and span >= EPOCH) or span >= LONGEST_EPOCH:
            self._until = now
        return self._epoch

    def refuse(self, epoch: int) -> None:
        """Count a refusal if its request was sent in the current epoch. `epoch` is what `send` returned for it."""
        self._refusal_count += epoch == self._epoch

    def settle(self, now: float, lag: float) -> None:
        """If this epoch (a time of measurement) ended over `lag` seconds ago, adjust `value` and begin a new one."""
        if now < self._until + lag:
            return
        span = self._until - self._since
        share = self._refusal_count / max(self._request_count, FEW)
        if share > TOLERATED_SHARE and self._refusal_count > 1:
            refusals, requests = self._pool
            self._pool = refusals + self._refusal_count, requests + max(self._request_count, FEW)
            value = self.value
            self._shrink(self._pool[0] / self._pool[1], max(self._request_count - 1, 1) / span)
            if value != self.value:
                self._pool = 0, 0
        else:
            self._last_cut = None
            if self._until >= self._hold_until:
                self._pool = 0, 0
            if self._until >= self._hold_until and self.binding and self.value < math.inf:
                self._grow()
        self.restart(now)

    def _shrink(self, share: float, sent_rate: float) -> None:
        sent_rate = min(self.value, sent_rate)
        self._step = FIRST_STEP
        if 0 < self._accepted_value < self.value:  # the last increase of `value` was too large
            self.value, self._accepted_value, self._refused_value = (
                self._accepted_value * (1 - CLOSE / 2),
                0.0,
                self.value,
            )
            return
        if self._last_cut is not None:
            value, rate, before = self._last_cut
            # If the server still accepts as many requests as before `value` was reduced, this is the share of refusals
            # to expect now.
            limited_share = 1 - rate * (1 - before) / sent_rate
            if before < MOST_SHARE and (before + 2 * limited_share) / 3 < share < before + 0.2:
                self.value, self._hold_until, self._refused_value, self._last_cut = (
                    value,
                    self._until + HOLD_SECONDS,
                    math.inf,
                    None,
                )
                return
        if self._until < self._hold_until:
            return
        self._last_cut = (self.value, sent_rate, share)
        self._refused_value = self.value if self._refused_value == math.inf else max(self._refused_value, self.value)
        self.value = max(sent_rate * max(0.5, 1 - share + 1 / max(self._request_count, FEW)), self.least)

    def _grow(self) -> None:
        self._accepted_value = self.value
        if self.value * (1 + CLOSE) < self._refused_value < math.inf:
            self.value = min((self.value + self._refused_value) / 2, self.value * 1.5)
        elif self._refused_value < math.inf and self._wait < self._patience:
            self._wait += 1
        else:
            if self._refused_value < math.inf:
                self._patience = min(self._patience * 2, LONGEST_PATIENCE)
            self._refused_value, self._wait = math.inf, 0
            further = (self.value + self.limit) / 2 if self.limit < math.inf else 0.0
            self.value = min(max(self.value * (1 + self._step), further), self.limit)
            self._step = max(self._step, min(self._step * 2, LARGEST_STEP))
            if self._step > 2 * FIRST_STEP:
                self._patience = PATIENCE

    def set_measured(self, value: float, requests: int) -> None:
        """Set the limit to `value`, which was measured with so many requests, and forget what was learned by trial."""
        self.value, self._accepted_value, self._wait, self._refused_value = max(value, self.least), 0.0, 0, math.inf
        self._last_cut, self._hold_until = None, 0.0
        self._step = MEASURED_STEP if requests >= FEW else GUESSED_STEP


class Window(Ceiling):
    """The limit for the number of requests that have no answer yet.

    It grows as long as a larger limit brings more answers per second. These are measured over a time called a round,
    which is about as long as one answer takes.
    """

    def __init__(self) -> None:
        super().__init__(FIRST_WINDOW, 1)
        self._growing = True
        self._full = False  # whether a request waited in this round because of this limit
        self._round: tuple[float, int] = (0.0, 0)  # the time at which this round began, and its answers so far
        # the most answers per second in a round, and the `value` in that round
        self._best_round: tuple[float, float] = (0.0, float(FIRST_WINDOW))
        self._first: float = self.value  # `value` at the beginning of this round
        self._best_latency = math.inf  # the lowest seconds per answer in the rounds so far
        self._times = FASTEST  # the largest factor by which `value` can grow in one round
        self._largest = _most_sockets()
        self._rounds = 0

    def full(self) -> None:
        """Record that a row of a map waits, because too many requests have no answer yet."""
        self._full = self.binding = True

    def _grow(self) -> None:
        pass

    def _shrink(self, share: float, sent_rate: float) -> None:  # noqa: ARG002
        super()._shrink(share, self.value)  # the requests under way, and not those sent in a second

    def answer(self, now: float, latency: float) -> None:
        """Count an answer that came at the time `now`, and begin a new round if the current one has ended.

        A round is a time of measurement. It lasts at least `latency`, the usual time in seconds until an answer ends.
        """
        began, answers = self._round
        self._round = began, answers + 1
        if self._growing and self._full and latency <= self._best_latency * SLOWER:
            self.value = max(self.value, min(self.value + 1, self._first * self._times, self._largest))
        if now - began < max(latency, EPOCH) or answers < FEW:
            return
        if self._full and now >= self._hold_until:
            self._best_latency = min(self._best_latency, latency)
            self._judge(answers / (now - began), latency)
        self._round, self._full, self._first = (now, 0), False, self.value

    def _judge(self, rate: float, latency: float) -> None:
        best, window = self._best_round
        if rate > best * GAIN:
            self._best_round, self._growing, self._rounds = (rate, self._first), True, 0
            return
        self._rounds += 1
        if self._growing and self._rounds >= STALE:
            self.value, self._growing, self._rounds = max(window, self.least), False, 0
            self._times = CAREFUL
        elif not self._growing and self._rounds >= ROUNDS:
            self._growing, self._rounds = True, 0
            self._best_round = max(rate, best * FADES), self.value
            self._best_latency = min(latency, self._best_latency / FADES)


def _most_sockets() -> int:
    """Return how many requests this process can have open at the same time. Each needs a socket, an open file."""
    try:
        from resource import RLIMIT_NOFILE, getrlimit
    except ImportError:  # Windows has no `resource`, and its sockets are not files; in JupyterLite `resource` is empty
        return LARGEST_WINDOW
    file_limit = getrlimit(RLIMIT_NOFILE)[0]
    return max(FIRST_WINDOW, min(LARGEST_WINDOW, file_limit - OTHER_FILES)) if file_limit > 0 else LARGEST_WINDOW
