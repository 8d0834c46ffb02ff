"""What models cost: the ledger of paid requests, the budgets for a day or a month, and reports on saved sessions.

The ledger is one file a month in the user's state folder. All kernels of the user append to it, one line for each
request that cost something, whether the session is saved or not. A cost report (`FolderBill`) is computed from the
journals, the files of saved sessions, in a folder.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Self, cast

from agentmagic import settings
from agentmagic.classroom import class_settings, own_folder, windows_folder
from agentmagic.errors import UsageError, describe
from agentmagic.history.journal import FOLDER, append
from agentmagic.history.paid_turns import Journals, day_of
from agentmagic.log import logger
from agentmagic.messages import Usage
from agentmagic.plain_files import FileLock, open_number, open_plain, read_plain
from agentmagic.text import sanitize, single_line

Period = Literal["day", "month"]
DAILY, MONTHLY = "AGENTMAGIC_DAILY_BUDGET", "AGENTMAGIC_MONTHLY_BUDGET"
"""Environment variables: budgets in US dollars for all sessions of a folder."""
PATIENCE = 1.0
"""Seconds to wait while another kernel locks the ledger. Writing a line takes less than a millisecond."""
PIECE = 2**20
"""Bytes of the ledger that are read at a time, or most characters that are read of a notebook.json."""
LONGEST_LINE = 4_000
"""Bytes. The ledger never writes a longer line, so a longer line is skipped."""
MOST_TOKENS = 10**12
"""Tokens of a request. No model takes as many, so a larger number in the ledger is not counted."""
LONGEST_NAME = 500
"""Characters of the name of a folder, session or model in the ledger."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT
_OWNER_ONLY = 0o600
STATE_FOLDER = Path("Library/Application Support" if sys.platform == "darwin" else ".local/state") / "agentmagic"
"""The state folder of a user, in the home folder, unless environment variables name another. Not for Windows."""


@dataclass(frozen=True, slots=True)
class CostSum:
    """The cost of several requests in US dollars, and the number of requests whose price is unknown."""

    cost: float = 0.0
    unpriced: int = 0

    def __add__(self, other: "CostSum") -> "CostSum":
        """Return the sum of both costs and of both numbers."""
        return CostSum(self.cost + other.cost, self.unpriced + other.unpriced)


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
        self._sums: dict[tuple[str, str], CostSum] = {}
        self._unwritten: list[bytes] = []

    @staticmethod
    def path() -> Path:
        """Return the path of this month's ledger file.

        If an administrator sets a budget, the path does not depend on environment variables.
        """
        from platformdirs import user_state_path

        folder = own_state_folder() if _has_policy_budget() else user_state_path("agentmagic", appauthor=False)
        return folder / f"ledger-{today()[:7]}.jsonl"

    def pay(self, folder: str, session: str, model: str, usage: Usage) -> None:
        """Count one sent request, and write it to the ledger file before returning, unless the request was free.

        If the file cannot be written, the attribute `problem` says why. The next call of `pay` or `costs` tries again.
        """
        with self._guard:
            self.here += usage
            if usage.cost == 0:
                return
            line: dict[str, Any] = {"time": int(time.time()), "folder": folder, "session": session, "model": model}
            line = {key: value[:LONGEST_NAME] if isinstance(value, str) else value for key, value in line.items()}
            line |= {"tokens_in": usage.input_tokens, "cached": usage.cached_tokens, "tokens_out": usage.output_tokens}
            self._unwritten.append(json.dumps(line | {"cost": usage.cost}).encode() + b"\n")
            self._write()

    def costs(self, period: Period, folder: str | None = None) -> CostSum:
        """Return today's or this month's costs of the requests from one folder, or from all folders if it is None."""
        day = today()
        with self._guard:
            self._write()
            self._catch_up()
            costs = (
                cost
                for (when, where), cost in self._sums.items()
                if (period == "month" or when == day) and folder in (None, where)
            )
            return sum(costs, CostSum())

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
            with open_plain(path) as file:
                file.seek(self._read_to)
                while lines := _whole_lines(file.read(PIECE)):
                    self._read_to += len(lines)
                    for line in lines.splitlines():
                        self._add_line(line)
                    file.seek(self._read_to)
        except OSError as error:
            self.problem = f"The ledger {path} cannot be read ({error.strerror})"

    def _add_line(self, line: bytes) -> None:
        if (entry := parse_line(line)) is not None:
            place = entry.day, entry.folder
            self._sums[place] = self._sums.get(place, CostSum()) + entry.cost


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
    return time.strftime("%Y-%m-%d", time.gmtime(seconds)) if _has_policy_budget() else day_of(seconds)


def _last_byte(number: int, size: int) -> bytes:
    os.lseek(number, size - 1, os.SEEK_SET)
    return os.read(number, 1)


def _whole_lines(read: bytes) -> bytes:
    """Return the data up to its last line end. A whole piece (PIECE bytes) without a line end is returned as it is.

    A line of that length cannot be a ledger line, and the parser skips it later.
    """
    end = read.rfind(b"\n") + 1
    return read[:end] if end or len(read) < PIECE else read


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """A paid request in the ledger. `folder` is that of the notebook or script, `tokens` those of input and output."""

    day: str
    folder: str
    cost: CostSum
    tokens: int


def parse_line(line: bytes) -> LedgerLine | None:
    """Return the paid request in a line of the ledger, or None if the line has another format."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        match entry := json.loads(line):
            case {"time": int() as seconds, "folder": str() as folder, "cost": int() | float() as cost} if (
                0 <= cost < float("inf")
            ):
                return LedgerLine(_day(seconds), folder, CostSum(float(cost)), _tokens(entry))
            case {"time": int() as seconds, "folder": str() as folder, "cost": None}:
                return LedgerLine(_day(seconds), folder, CostSum(0.0, 1), _tokens(entry))
            case _:
                return None
    except (ValueError, OverflowError, OSError, RecursionError):
        return None


def _tokens(entry: Mapping[str, Any]) -> int:
    counts = (entry.get(name) for name in ("tokens_in", "tokens_out"))
    return sum(count for count in counts if isinstance(count, int) and 0 <= count < MOST_TOKENS)


@cache
def ledger() -> PaidRequests:
    """Return this process's ledger, the record of paid requests."""
    return PaidRequests()


# -- accounts --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Account:
    """The session to which the ledger (the record of costs) charges requests: its name and its conversation's id."""

    name: str = ""
    conversation: str = ""

    def pay(self, model: str, usage: Usage) -> None:
        """Record the cost of one model request in the ledger, charged to this session."""
        ledger().pay(work_folder(), self.name, model, usage)


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

COLUMNS = ("day", "notebook", "session", "model", "requests", "tokens", "cached", "cost", "failures")


@dataclass(frozen=True, slots=True)
class FolderBill:
    """The cost report on a folder's saved sessions. Each row is for one day, notebook, session and model.

    In a row, `cost` is in US dollars, or None if the price of a request is unknown; `failures` counts turns that ended
    in an error, ran out of time, or were cut off with their kernel. `files` counts the journals that were read,
    `damaged` the lines that could not be read, and `left_out` the journals that were skipped because there were too
    many files or bytes.
    """

    rows: tuple[Mapping[str, Any], ...]
    files: int
    damaged: int
    left_out: int

    @property
    def frame(self) -> Any:
        """The report's rows as a pandas data frame, or as a list of dicts if pandas is not installed."""
        try:
            pd: Any = import_module("pandas")
        except ImportError:
            return [dict(row) for row in self.rows]
        frame = pd.DataFrame(list(self.rows), columns=list(COLUMNS))
        frame.attrs |= {"files": self.files, "damaged": self.damaged, "left_out": self.left_out}
        return frame

    def sums(self, *names: str) -> dict[tuple[str, ...], "UsedTogether"]:
        """Group the rows by the named columns. Return the total usage of each group, sorted by the groups' values."""
        totals: dict[tuple[str, ...], UsedTogether] = {}
        for row in self.rows:
            key = tuple(str(row[name]) for name in names)
            totals[key] = totals.get(key, UsedTogether()) + UsedTogether.of(row)
        return dict(sorted(totals.items()))


@dataclass(frozen=True, slots=True)
class UsedTogether:
    """The total usage in several rows of a `FolderBill`. `unpriced` counts requests in rows whose `cost` is None."""

    requests: int = 0
    tokens: int = 0
    cached: int = 0
    cost: float = 0.0
    failures: int = 0
    unpriced: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return the usage in one row of a `FolderBill`."""
        figures = (row["requests"], row["tokens"], row["cached"], row["cost"] or 0.0, row["failures"])
        return cls(*figures, row["requests"] if row["cost"] is None else 0)

    def __add__(self, other: "UsedTogether") -> "UsedTogether":
        """Return the sum, field by field."""
        return UsedTogether(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


def usage(folder: str | os.PathLike[str] | None = None) -> Any:
    """Return the usage of all saved sessions of a folder as a data frame, or as a list of dicts without pandas.

    `folder` is by default the notebook's folder, or the folder where the script began. The usage is read from the
    journals in it and in its `.agentmagic` folder; nothing is written. There is a row for each day, notebook, session
    and model, with `requests`, `tokens`, `cached`, `cost` (US dollars, missing if a price is unknown) and `failures`.
    Replayed turns are left out. Sessions that are not saved have no journal and no row, although budgets count them.

    Raises UsageError if the folder does not exist.
    """
    bill = folder_bill(folder)
    if bill.damaged:
        logger.warning("%s lines of the journals could not be read, and are left out", bill.damaged)
    return bill.frame


def folder_bill(folder: str | os.PathLike[str] | None = None) -> FolderBill:
    """Return the cost report on the saved sessions of a folder, with how many files were read, damaged or left out."""
    place = own_folder() if folder is None else settings.path_of(folder)
    if place is None or not place.is_dir():
        raise UsageError(f"There is no folder {place or ''}, so there is no bill of it. Name one: usage(FOLDER).")
    journals = Journals()
    totals: dict[tuple[str, ...], tuple[Usage, int]] = {}
    names: dict[Path, str] = {}
    for path, turn in journals.turns(place):
        notebook = names.setdefault(path.parent, _notebook(place, path.parent))
        key = (turn.day, notebook, path.stem, turn.model)
        before, failures = totals.get(key, (Usage(), 0))
        totals[key] = before + turn.usage, failures + turn.failed
    rows = (_row(key, total, failures) for key, (total, failures) in sorted(totals.items()))
    filled_rows = tuple(row for row in rows if row["requests"] or row["failures"])
    return FolderBill(filled_rows, journals.files, journals.damaged_lines, journals.skipped_files)


def _row(key: tuple[str, ...], total: Usage, failures: int) -> Mapping[str, Any]:
    figures = (total.requests, total.input_tokens + total.output_tokens, total.cached_tokens, total.cost, failures)
    return dict(zip(COLUMNS, (*key, *figures), strict=True))


def _notebook(folder: Path, place: Path) -> str:
    """Return the name of the notebook whose saved conversations are in the folder `place`, or "" if none exists."""
    if place.parent.name != FOLDER or place == folder:
        return ""
    try:
        name = json.loads(read_plain(place / "notebook.json")).get("name")
    except (OSError, ValueError, AttributeError, RecursionError):
        name = None
    return single_line(sanitize(name), 100) if isinstance(name, str) and name else f"{place.name}.ipynb"
