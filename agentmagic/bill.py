"""What models cost: the ledger of paid requests, and reports on it.

The ledger is one file a month in the user's state folder. All kernels of the user append to it, one line for each
request that cost something, whether the session is saved or not. Budgets and cost reports are computed from it.
"""

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from agentmagic import settings
from agentmagic.classroom import class_settings, own_folder, own_notebook, windows_folder
from agentmagic.errors import UsageError, describe
from agentmagic.history.journal import append
from agentmagic.log import logger
from agentmagic.messages import Usage
from agentmagic.plain_files import FileLock, open_number, open_plain

Period = Literal["day", "month"]
DAILY, MONTHLY = "AGENTMAGIC_DAILY_BUDGET", "AGENTMAGIC_MONTHLY_BUDGET"
"""Environment variables: budgets in US dollars for all sessions of a folder."""
PATIENCE = 1.0
"""Seconds to wait while another kernel locks the ledger. Writing a line takes less than a millisecond."""
PIECE = 2**20
"""Bytes of a too long line that are read at a time."""
MOST_FILES = 120
"""Ledgers that are read of a user, the newest first: those of ten years."""
MOST_BYTES = 64 * 2**20
"""Bytes that are read of a user's ledgers. A request takes about 250 bytes."""
LARGEST_COST = 1_000_000.0
"""US dollars. A line with a larger cost was not written by agentmagic, and is skipped."""
LONGEST_LINE = 4_000
"""Bytes. agentmagic never writes a longer line to the ledger, so a longer line is skipped."""
MOST_TOKENS = 10**12
"""Tokens of a request. No model takes as many, so a larger number in the ledger is not counted."""
LONGEST_NAME = 900
"""Bytes of JSON of the name of a folder, notebook, session or model in the ledger: four of them fit into a line."""
_LEDGER = re.compile(r"ledger-[0-9]{4}-[0-9]{2}\.jsonl")
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT
_OWNER_ONLY = 0o600
STATE_FOLDER = Path("Library/Application Support" if sys.platform == "darwin" else ".local/state") / "agentmagic"
"""The state folder of a user, in the home folder, unless environment variables name another. Not for Windows."""


@dataclass(frozen=True, slots=True)
class Spending:
    """What requests have used: tokens of input and output, of these from the provider's cache, and cost in US dollars.

    `failures` counts turns that ended in an error or ran out of time, `unpriced` requests of unknown price.
    """

    requests: int = 0
    tokens: int = 0
    cached: int = 0
    cost: float = 0.0
    failures: int = 0
    unpriced: int = 0

    def __add__(self, other: "Spending") -> "Spending":
        """Return the sum, field by field."""
        return Spending(
            self.requests + other.requests,
            self.tokens + other.tokens,
            self.cached + other.cached,
            self.cost + other.cost,
            self.failures + other.failures,
            self.unpriced + other.unpriced,
        )


@dataclass(frozen=True, slots=True)
class Account:
    """The session to which the ledger charges requests: its name, or that of its file, and its conversation's id.

    `name` is the name of the agent that sends the requests, for traces. Lines of the ledger have `session`.
    """

    name: str = ""
    conversation: str = ""
    session: str = ""

    def pay(self, model: str, usage: Usage) -> None:
        """Record the cost of one model request in the ledger, charged to this session."""
        if usage.cost == 0:
            ledger().pay_nothing(usage)
        else:
            ledger().pay(work_folder(), self.session, model, usage, own_notebook())

    def fail(self, model: str) -> None:
        """Record in the ledger that a turn of this session failed."""
        ledger().fail(work_folder(), self.session, model, own_notebook())


class PaidRequests:
    """The ledger: what all kernels of the user have paid this month, and what this process has used, replays left out.

    For each paid request, one line is appended to a file. Before a sum is computed, the lines that other kernels have
    appended in the meantime are read. A line that a crash cut off, or that has another format, is skipped.
    """

    def __init__(self) -> None:
        self.here = Usage()
        """The usage of this process, free requests included."""
        self.shown_warnings: set[tuple[str, str]] = set()
        """The budgets about which the user was warned, each with the day or month of the warning."""
        self.problem = ""
        """Why the ledger could not be written or read, or "" if it could."""
        self._guard = threading.RLock()
        self._path: Path | None = None
        self._locked: tuple[Path, FileLock] | None = None
        self._read_to = 0
        self._sums: dict[tuple[str, str], Spending] = {}
        self._unwritten: list[bytes] = []

    @staticmethod
    def path() -> Path:
        """Return the path of this month's ledger file.

        If an administrator sets a budget, the path does not depend on environment variables.
        """
        from platformdirs import user_state_path

        folder = own_state_folder() if _has_policy_budget() else user_state_path("agentmagic", appauthor=False)
        return folder / f"ledger-{today()[:7]}.jsonl"

    def pay(self, folder: str, session: str, model: str, usage: Usage, notebook: str = "") -> None:
        """Count one sent request, and write it to the ledger file before returning.

        If the file cannot be written, the attribute `problem` says why. The next call of `pay` or `costs` tries again.
        """
        counts = {"tokens_in": usage.input_tokens, "cached": usage.cached_tokens, "tokens_out": usage.output_tokens}
        with self._guard:
            self.here += usage
            self._add(folder, notebook, session, model, {**counts, "cost": usage.cost})

    def pay_nothing(self, usage: Usage) -> None:
        """Count one sent request that was free. It has no line in the ledger file."""
        with self._guard:
            self.here += usage

    def fail(self, folder: str, session: str, model: str, notebook: str = "") -> None:
        """Write to the ledger file that a turn failed. Its requests have lines of their own."""
        with self._guard:
            self._add(folder, notebook, session, model, {"failed": True, "cost": 0})

    def _add(self, folder: str, notebook: str, session: str, model: str, figures: Mapping[str, Any]) -> None:
        names = {"folder": folder, "notebook": notebook, "session": session, "model": model}
        line = {"time": int(time.time()), **{key: ledger_name(name) for key, name in names.items()}, **figures}
        self._unwritten.append(json.dumps(line).encode() + b"\n")
        self._write()

    def costs(self, period: Period, folder: str | None = None) -> Spending:
        """Return today's or this month's costs of the requests from one folder, or from all folders if it is None."""
        day, name = today(), None if folder is None else ledger_name(folder)
        with self._guard:
            self._write()
            self._catch_up()
            costs = (
                cost
                for (when, where), cost in self._sums.items()
                if (period == "month" or when == day) and name in (None, where)
            )
            return sum(costs, Spending())

    def _write(self) -> None:
        if not self._unwritten:
            return
        path = self.path()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock(path):
                number = open_number(path, _FLAGS, _OWNER_ONLY)
                try:
                    if (size := os.fstat(number).st_size) and _last_byte(number, size) != b"\n":
                        append(number, b"\n")  # ends a line that a crash has cut off
                    append(number, b"".join(self._unwritten))
                finally:
                    os.close(number)
        except OSError as error:  # also raised if the lock is not free in time
            if not self.problem:
                logger.warning("the ledger %s cannot be written: %s", path, error.strerror or describe(error))
            self.problem = f"The ledger {path} cannot be written ({error.strerror or 'another kernel holds it'})"
        else:
            self._unwritten.clear()
            self.problem = ""

    def _lock(self, path: Path) -> FileLock:
        """Return the lock of a ledger file. It is created only once, since to create it is as slow as to acquire it."""
        if self._locked is None or self._locked[0] != path:
            self._locked = path, FileLock(path, PATIENCE)
        return self._locked[1]

    def _catch_up(self) -> None:
        """Add the costs in new lines of the ledger file to the sums. Start from zero with a new month's file."""
        path = self.path()
        try:
            size = path.stat().st_size
        except OSError:
            size = 0
        if path != self._path or size < self._read_to:
            self._path, self._read_to, self._sums = path, 0, {}
        if size == self._read_to:
            return
        try:
            with open_plain(path, None) as file:
                file.seek(self._read_to)
                for length, line in read_lines(file, size - self._read_to):
                    self._read_to += length
                    if line is not None:
                        key = line.day, line.folder
                        self._sums[key] = self._sums.get(key, Spending()) + line.spending
        except OSError as error:
            self.problem = f"The ledger {path} cannot be read ({error.strerror})"


def _has_policy_budget() -> bool:
    """Return whether the administrator sets a budget.

    If so, the ledger's path and its days must not depend on environment variables, which a notebook could set.
    """
    policy = class_settings().policy
    return policy is not None and (policy.daily_budget or policy.monthly_budget) is not None


@cache
def own_state_folder() -> Path:
    """Return the user's state folder from the system's user database or registry, not from environment variables.

    A user who is not in the database, as in some containers, gets a folder named after the user's id number.
    """
    if sys.platform == "win32":
        return cast("Path", windows_folder("HKEY_CURRENT_USER", "Local AppData")) / "agentmagic"
    from pwd import getpwuid

    try:
        home = Path(getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path(f"/var/tmp/agentmagic-{os.getuid()}")  # noqa: S108  (another user's folder is not written to)
    return home / STATE_FOLDER


def today() -> str:
    """Return today's local date, or the date in UTC if the administrator sets a budget."""
    return _day(time.time())


def _day(seconds: float) -> str:
    clock = time.gmtime if _has_policy_budget() else time.localtime
    return time.strftime("%Y-%m-%d", clock(seconds))


def _last_byte(number: int, size: int) -> bytes:
    os.lseek(number, size - 1, os.SEEK_SET)
    return os.read(number, 1)


def ledger_name(name: str) -> str:
    """Return a name as the lines of the ledger have it. A long one is shortened; a digest tells it from others."""
    if len(json.dumps(name)) <= LONGEST_NAME:
        return name
    beginning = name[: (LONGEST_NAME - 50) // 12]  # in JSON, a character takes at most 12 bytes
    return f"{beginning}...{sha256(json.dumps(name).encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """A paid request in the ledger, or a failed turn. `folder` is that of the notebook or script."""

    day: str
    folder: str
    notebook: str
    session: str
    model: str
    spending: Spending


def read_lines(file: BinaryIO, most: int) -> Iterator[tuple[int, LedgerLine | None]]:
    """Yield the size of each whole line of an open ledger, with its content, or None if it has another format.

    Reading stops after `most` bytes. A last line without an end is left out: it may still be written.
    """
    read = 0
    while read < most and (data := file.readline(LONGEST_LINE + 1)):
        size, is_whole = len(data), data.endswith(b"\n")
        while size > LONGEST_LINE and not is_whole and read + size < most:
            size += len(tail := file.readline(PIECE))
            is_whole = tail.endswith(b"\n") or not tail
        if size <= LONGEST_LINE and not is_whole:
            return
        read += size
        yield size, parse_line(data)


def parse_line(line: bytes) -> LedgerLine | None:
    """Return the paid request in a line of the ledger, or None if the line has another format."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        match entry := json.loads(line):
            case {"time": int() as seconds, "folder": str() as folder, "cost": int() | float() | None as cost} if (
                cost is None or 0 <= cost <= LARGEST_COST
            ):
                words = (entry.get(name) for name in ("notebook", "session", "model"))
                notebook, session, model = (word if isinstance(word, str) else "" for word in words)
                return LedgerLine(_day(seconds), folder, notebook, session, model, _spending(entry, cost))
            case _:
                return None
    except (ValueError, OverflowError, OSError, RecursionError):
        return None


def _spending(entry: Mapping[str, Any], cost: float | None) -> Spending:
    failed = entry.get("failed") is True
    counts = (entry.get(name) for name in ("tokens_in", "tokens_out", "cached"))
    given, said, cached = (count if isinstance(count, int) and 0 <= count < MOST_TOKENS else 0 for count in counts)
    return Spending(int(not failed), given + said, cached, float(cost or 0.0), int(failed), int(cost is None))


@dataclass(slots=True)
class Ledgers:
    """Reads the ledgers in a state folder, and counts the lines and files that were not read.

    `bad_lines` have another format, `refused` files may not be read, and `left_out` files are beyond the bounds.
    """

    bad_lines: int = 0
    refused: int = 0
    left_out: int = 0

    def lines(self, names: Iterable[str], open_ledger: Callable[[str], BinaryIO]) -> Iterator[LedgerLine]:
        """Yield the lines of the ledgers among files, the newest ledger first. `open_ledger` opens one, or OSError."""
        files, left = sorted(filter(_LEDGER.fullmatch, names), reverse=True), MOST_BYTES
        for position, name in enumerate(files):
            if left <= 0 or position >= MOST_FILES:
                self.left_out += len(files) - position
                return
            try:
                with open_ledger(name) as file:
                    for size, line in read_lines(file, left):
                        left -= size
                        self.bad_lines += line is None
                        if line is not None:
                            yield line
            except OSError:
                self.refused += 1
        self.left_out += left <= 0


@cache
def ledger() -> PaidRequests:
    """Return this process's ledger, the record of paid requests."""
    return PaidRequests()


def work_folder() -> str:
    """Return the notebook's folder, or the folder where the script began. All sessions in it share a budget."""
    return str(own_folder() or "")


def dollars(variable: str) -> float | None:
    """Return the limit of cost in an environment variable, or None. Raises UsageError if it is not a number above 0."""
    if (text := settings.variable(variable)) is None:
        return None
    try:
        limit = float(text)
    except ValueError:
        limit = 0.0
    if not 0 < limit < float("inf"):
        raise UsageError(f"{variable} is {text!r:.80}. Set it to a number of US dollars above 0, or unset it.")
    return limit


# -- the bill of a folder --------------------------------------------------------------------------

GROUPS = ("day", "notebook", "session", "model")
COLUMNS = (*GROUPS, "requests", "tokens", "cached", "cost", "failures")


@dataclass(frozen=True, slots=True)
class FolderBill:
    """The cost report on a folder, computed from the ledger. `spendings` are by day, notebook, session and model.

    `damaged` counts the lines of the ledger that could not be read, and `left_out` the months that were skipped because
    there were too many files or bytes.
    """

    spendings: Mapping[tuple[str, ...], Spending]
    damaged: int
    left_out: int

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The report's rows. `cost` is in US dollars, or None if the price of a request is unknown."""
        return [
            dict(zip(COLUMNS, (*key, one.requests, one.tokens, one.cached, cost, one.failures), strict=True))
            for key, one in sorted(self.spendings.items())
            for cost in [None if one.unpriced else one.cost]
        ]

    @property
    def frame(self) -> Any:
        """The report's rows as a pandas data frame, or as a list of dicts if pandas is not installed."""
        try:
            pd: Any = import_module("pandas")
        except ImportError:
            return self.rows
        frame = pd.DataFrame(self.rows, columns=list(COLUMNS))
        frame.attrs |= {"damaged": self.damaged, "left_out": self.left_out}
        return frame

    def sums(self, *names: str) -> dict[tuple[str, ...], Spending]:
        """Group the rows by the named columns. Return the spending of each group, sorted by the groups' values."""
        totals: dict[tuple[str, ...], Spending] = {}
        for values, spending in self.spendings.items():
            key = tuple(values[GROUPS.index(name)] for name in names)
            totals[key] = totals.get(key, Spending()) + spending
        return dict(sorted(totals.items()))


def usage(folder: str | os.PathLike[str] | None = None) -> Any:
    """Return what the sessions of a folder have paid for, as a data frame, or as a list of dicts without pandas.

    `folder` is by default the notebook's folder, or the folder where the script began. The figures are read from your
    ledger on this machine; nothing is written. There is a row for each day, notebook, session and model, with
    `requests`, `tokens`, `cached`, `cost` (US dollars, missing if a price is unknown) and `failures`. Requests that
    cost nothing are left out, and so are replayed turns.

    Raises UsageError if the folder does not exist.
    """
    bill = folder_bill(folder)
    if bill.damaged:
        logger.warning("%s lines of the ledger could not be read, and are left out", bill.damaged)
    return bill.frame


def folder_bill(folder: str | os.PathLike[str] | None = None) -> FolderBill:
    """Return the cost report on a folder, with how many lines were damaged, and how many months left out."""
    place = own_folder() if folder is None else settings.path_of(folder)
    if place is None or not place.is_dir():
        raise UsageError(f"There is no folder {place or ''}, so there is no bill of it. Name one: usage(FOLDER).")
    here = {ledger_name(str(path)) for path in (place.absolute(), place.resolve())}
    state, reading, spendings = PaidRequests.path().parent, Ledgers(), dict[tuple[str, ...], Spending]()
    names = [file.name for file in state.iterdir()] if state.is_dir() else []
    for line in reading.lines(names, lambda name: open_plain(state / name, None)):
        if line.folder in here:
            key = line.day, line.notebook, line.session, line.model
            spendings[key] = spendings.get(key, Spending()) + line.spending
    return FolderBill(spendings, reading.bad_lines, reading.left_out + reading.refused)
