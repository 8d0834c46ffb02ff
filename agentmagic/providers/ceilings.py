"""A rate of requests, or a number of requests under way, that is found by trial."""

import math

FEW = 10
"""Requests, at least, whose share of refusals says something."""
FIRST_WINDOW = 10
"""Requests under way at first: few enough for any server, and seven doublings from the largest window."""
LARGEST_WINDOW = 1000
"""Requests under way at most: 5,000 a minute at 12 s each."""
OTHER_FILES = 128
"""Files that the rest of the process may have open, of those that the system allows it: a request takes a socket."""
EPOCH, LONGEST_EPOCH = 1.0, 8.0
"""Seconds of sending, at least and at most, after which the share of refusals is looked at; they come much sooner."""
CLOSE = 0.04
"""The share by which a rate that was refused may lie above one that was not, before the search between them ends."""
TOLERATED = 0.05
"""The share of refusals that is not acted upon: a rate that is a little too high loses nothing."""
MOST = 0.5
"""The share of refusals from which on a cut is not taken back: a cut then helps too little to be told."""
PATIENCE, LONGEST_PATIENCE = 2, 40
"""Epochs until a rate that was refused is tried again; doubled each time that it is refused once more."""
HELD = 15.0
"""Seconds without a cut after one that did not help: the refusals go on whatever the rate."""
FIRST_STEP, LARGEST_STEP, MEASURED_STEP = 0.02, 0.1, 0.25
"""By which share a rate grows in an epoch without refusals: the first, doubled up to the second; the last after a
rate was measured, which is often too low."""
GAIN = 1.25
"""How many times as many answers a second a round has to bring for the window to grow on."""
FASTEST, CAREFUL = 2.0, 1.5
"""How many times as large the window may become in a round: at first, and once one was too large."""
SLOWER = 1.5
"""How many times as long answers may take as in the best round while the window grows."""
FADES = 0.9
"""What the best rate and the least latency keep of their weight then: rows may have become longer."""
STALE, ROUNDS = 2, 6
"""Rounds without a gain until the window goes back, and then until a larger one is tried again."""


class Ceiling:
    """A rate, or a number under way, that is found by trial.

    Requests are counted in epochs, by when they were sent: the share of them that is refused does not depend on how
    long the answers take. `lag` is the seconds to wait for the last refusals of an epoch.
    """

    def __init__(self, value: float, least: float) -> None:
        self.value: float = value
        self.least = least
        self.limit = math.inf  # that the server names
        self.binding = False  # whether requests waited for it in this epoch
        self._step = FIRST_STEP
        self._clean = 0.0  # the last value at which nothing was refused
        self._wait = 0
        self._bad = math.inf
        self._patience = PATIENCE
        self._before: tuple[float, float, float] | None = None  # before the last cut: the value, the rate, the share
        self._held = 0.0
        self._pool: tuple[int, int] = (0, 0)
        self._epoch = 0
        self.restart(0.0)

    def restart(self, now: float) -> None:
        """Begin a new epoch."""
        self._epoch += 1
        self._since, self._until = now, math.inf
        self._sent = self._refused = 0
        self.binding = False

    def send(self, now: float) -> int:
        """Count a request that is sent. Return its epoch, 0 if the sending of this one is over."""
        if self._until < math.inf:
            return 0
        self._since = self._since if self._sent else now
        self._sent += 1
        span = now - self._since
        if self._before is not None and self._sent < 2 * FEW:
            pass
        elif (self._sent >= FEW and span >= EPOCH) or span >= LONGEST_EPOCH:
            self._until = now
        return self._epoch

    def refuse(self, epoch: int) -> None:
        """Count the refusal of a request of an epoch."""
        self._refused += epoch == self._epoch

    def settle(self, now: float, lag: float) -> None:
        """Change the value at the end of an epoch."""
        if now < self._until + lag:
            return
        span = self._until - self._since
        share = self._refused / max(self._sent, FEW)
        if share > TOLERATED and self._refused > 1:
            refused, sent = self._pool
            self._pool = refused + self._refused, sent + max(self._sent, FEW)
            value = self.value
            self._shrink(self._pool[0] / self._pool[1], max(self._sent - 1, 1) / span)
            if value != self.value:
                self._pool = 0, 0
        else:
            self._before = None
            if self._until >= self._held:
                self._pool = 0, 0
            if self._until >= self._held and self.binding and self.value < math.inf:
                self._grow()
        self.restart(now)

    def _shrink(self, share: float, sent: float) -> None:
        sent = min(self.value, sent)
        self._step = FIRST_STEP
        if 0 < self._clean < self.value:  # the last step was too much
            self.value, self._clean, self._bad = self._clean * (1 - CLOSE / 2), 0.0, self.value
            return
        if self._before is not None:
            value, rate, before = self._before
            if_limited = 1 - rate * (1 - before) / sent  # as many are accepted as before
            if before < MOST and (before + 2 * if_limited) / 3 < share < before + 0.2:
                self.value, self._held, self._bad, self._before = value, self._until + HELD, math.inf, None
                return
        if self._until < self._held:
            return
        self._before = (self.value, sent, share)
        self._bad = self.value if self._bad == math.inf else max(self._bad, self.value)
        self.value = max(sent * max(0.5, 1 - share + 1 / max(self._sent, FEW)), self.least)

    def _grow(self) -> None:
        self._clean = self.value
        if self.value * (1 + CLOSE) < self._bad < math.inf:
            self.value = min((self.value + self._bad) / 2, self.value * 1.5)
        elif self._bad < math.inf and self._wait < self._patience:
            self._wait += 1
        else:
            if self._bad < math.inf:
                self._patience = min(self._patience * 2, LONGEST_PATIENCE)
            self._bad, self._wait = math.inf, 0
            further = (self.value + self.limit) / 2 if self.limit < math.inf else 0.0
            self.value = min(max(self.value * (1 + self._step), further), self.limit)
            self._step = max(self._step, min(self._step * 2, LARGEST_STEP))
            if self._step > 2 * FIRST_STEP:
                self._patience = PATIENCE

    def found(self, value: float) -> None:
        """Set the value to one that was measured."""
        self.value, self._clean, self._wait, self._bad = max(value, self.least), 0.0, 0, math.inf
        self._before, self._held, self._step = None, 0.0, MEASURED_STEP


class Window(Ceiling):
    """How many requests may be under way: grown as long as that brings more answers a second."""

    def __init__(self) -> None:
        super().__init__(FIRST_WINDOW, 1)
        self._growing = True
        self._full = False  # whether rows waited for it in this round
        self._round: tuple[float, int] = (0.0, 0)  # when this round began, and its answers so far
        self._most: tuple[float, float] = 0.0, float(FIRST_WINDOW)  # answers a second, and the window that brought them
        self._first: float = self.value  # at the beginning of the round
        self._usual = math.inf  # how long answers took in that round
        self._times = FASTEST  # by how much it may grow in a round
        self._largest = _most_sockets()
        self._rounds = 0

    def full(self) -> None:
        """Note that a row waits for it."""
        self._full = self.binding = True

    def _grow(self) -> None:
        pass

    def answer(self, now: float, latency: float) -> None:
        """Count an answer; `latency` is the usual one, which is the length of a round."""
        began, answers = self._round
        self._round = began, answers + 1
        if self._growing and self._full and latency <= self._usual * SLOWER:
            self.value = max(self.value, min(self.value + 1, self._first * self._times, self._largest))
        if now - began < max(latency, EPOCH) or answers < FEW:
            return
        if self._full and now >= self._held:
            self._usual = min(self._usual, latency)
            self._judge(answers / (now - began), latency)
        self._round, self._full, self._first = (now, 0), False, self.value

    def _judge(self, rate: float, latency: float) -> None:
        best, window = self._most
        if rate > best * GAIN:
            self._most, self._growing, self._rounds = (rate, self._first), True, 0
            return
        self._rounds += 1
        if self._growing and self._rounds >= STALE:
            self.value, self._growing, self._rounds = max(window, self.least), False, 0
            self._times = CAREFUL
        elif not self._growing and self._rounds >= ROUNDS:
            self._growing, self._rounds = True, 0
            self._most = max(rate, best * FADES), self.value
            self._usual = min(latency, self._usual / FADES)


def _most_sockets() -> int:
    """Return how many requests may be under way: each takes a socket, which counts as an open file."""
    try:
        from resource import RLIMIT_NOFILE, getrlimit
    except ImportError:  # on Windows, where sockets are no files; in JupyterLite the module is empty
        return LARGEST_WINDOW
    allowed = getrlimit(RLIMIT_NOFILE)[0]
    return max(FIRST_WINDOW, min(LARGEST_WINDOW, allowed - OTHER_FILES)) if allowed > 0 else LARGEST_WINDOW
