"""What models have cost: the ledger of paid requests, the budgets that it serves, and the bill of saved sessions.

The ledger is a file of the user's state folder for each month, which all kernels of the user append to, a line for each
request that cost something. A session needs no journal to be in it. The bill is read from the journals of a folder.
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
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from agentmagic import settings
from agentmagic.classroom import class_settings, own_folder, windows_folder
from agentmagic.errors import UsageError, said
from agentmagic.history.journal import FOLDER, append, file_lock
from agentmagic.history.paid_turns import Journals, day_of
from agentmagic.log import logger
from agentmagic.messages import Usage
from agentmagic.text import counted, one_line, shown

if TYPE_CHECKING:
    from filelock import BaseFileLock

Period = Literal["day", "month"]
DAILY, MONTHLY = "AGENTMAGIC_DAILY_BUDGET", "AGENTMAGIC_MONTHLY_BUDGET"
"""The variables of budgets in US dollars, for all sessions of a folder."""
_VARIABLES: tuple[tuple[str, Period], ...] = ((DAILY, "day"), (MONTHLY, "month"))
_SETTINGS: tuple[tuple[str, Period], ...] = (("daily_budget", "day"), ("monthly_budget", "month"))
"""The settings of a class that bound what is spent in a period."""
WARN_AT = 0.8
"""The share of a budget at which the user is warned."""
PATIENCE = 1.0
"""Seconds that another kernel may hold the ledger: writing a line takes less than a millisecond."""
PIECE = 2**20
"""Bytes of the ledger that are read at a time."""
LONGEST_LINE = 4_000
"""Bytes; a longer line is none of ours."""
LONGEST_NAME = 500
"""Characters of a folder, a session or a model in the ledger."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_OWNER_ONLY = 0o600


@dataclass(frozen=True, slots=True)
class Spent:
    """What requests have cost, in US dollars, and how many requests have a price that is unknown."""

    cost: float = 0.0
    unpriced: int = 0

    def __add__(self, other: "Spent") -> "Spent":
        """Add both."""
        return Spent(self.cost + other.cost, self.unpriced + other.unpriced)


class PaidRequests:
    """The ledger: what all kernels of the user have paid this month, and what this process has, replays apart.

    Each request costs one appended line, and what other kernels have appended since the last look is read. A line that
    was cut off by a crash, or is none of ours, is passed over.
    """

    def __init__(self) -> None:
        self.here = Usage()
        """What this process has used, whatever it cost."""
        self.warned: set[tuple[str, str]] = set()
        """The budgets that the user was warned of, each with its period."""
        self.problem = ""
        """Why the last line could not be written, "" if it was."""
        self._guard = threading.RLock()
        self._path: Path | None = None
        self._locked: tuple[Path, BaseFileLock] | None = None
        self._read_to = 0
        self._sums: dict[tuple[str, str], Spent] = {}
        self._unwritten: list[bytes] = []

    @staticmethod
    def path() -> Path:
        """Return the file of this month, in a place that no variable moves if an administrator bounds what is spent."""
        from platformdirs import user_state_path

        folder = own_state_folder() if _is_fixed() else user_state_path("agentmagic", appauthor=False)
        return folder / f"ledger-{today()[:7]}.jsonl"

    def pay(self, folder: str, session: str, model: str, usage: Usage) -> None:
        """Count one request that was sent; it is on disk before this returns, unless `problem` says why not."""
        with self._guard:
            self.here += usage
            if usage.cost == 0:
                return
            line: dict[str, Any] = {"time": int(time.time()), "folder": folder, "session": session, "model": model}
            line = {key: value[:LONGEST_NAME] if isinstance(value, str) else value for key, value in line.items()}
            line |= {"tokens_in": usage.input_tokens, "cached": usage.cached_tokens, "tokens_out": usage.output_tokens}
            self._unwritten.append(json.dumps(line | {"cost": usage.cost}).encode() + b"\n")
            self._write()

    def spent(self, period: Period, folder: str | None = None) -> Spent:
        """Return what was paid today or this month, in one folder or in all."""
        day = today()
        with self._guard:
            self._write()
            self._catch_up()
            found = (
                spent
                for (when, where), spent in self._sums.items()
                if (period == "month" or when == day) and folder in (None, where)
            )
            return sum(found, Spent())

    def _write(self) -> None:
        if not self._unwritten:
            return
        path = self.path()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock(path):
                number = os.open(path, _FLAGS, _OWNER_ONLY)
                try:
                    if (size := os.fstat(number).st_size) and _last_byte(number, size) != b"\n":
                        append(number, b"\n")  # behind a line that a crash has cut off
                    append(number, b"".join(self._unwritten))
                finally:
                    os.close(number)
        except OSError as error:  # a lock that stays taken raises one too
            if not self.problem:
                logger.warning("the ledger %s cannot be written: %s", path, error.strerror or said(error))
            self.problem = f"The ledger {path} cannot be written ({error.strerror or 'another kernel holds it'})"
        else:
            self._unwritten.clear()
            self.problem = ""

    def _lock(self, path: Path) -> "BaseFileLock":
        """Return the lock of the file: the same object each time, since making one takes as long as taking it."""
        if self._locked is None or self._locked[0] != path:
            self._locked = path, file_lock(path, PATIENCE)
        return self._locked[1]

    def _catch_up(self) -> None:
        """Read the whole lines that were appended since the last look, of a new file or month all of them."""
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
            with path.open("rb") as file:
                file.seek(self._read_to)
                while lines := _whole_lines(file.read(PIECE)):
                    self._read_to += len(lines)
                    for line in lines.splitlines():
                        self._take(line)
                    file.seek(self._read_to)
        except OSError as error:
            self.problem = f"The ledger {path} cannot be read ({error.strerror})"

    def _take(self, line: bytes) -> None:
        if (paid := _paid(line)) is not None:
            place, spent = paid
            self._sums[place] = self._sums.get(place, Spent()) + spent


def _is_fixed() -> bool:
    """Whether no variable of a notebook moves the ledger and its days, because the administrator has a budget."""
    policy = class_settings().policy
    return policy is not None and (policy.daily_budget or policy.monthly_budget) is not None


@cache
def own_state_folder() -> Path:
    """Return the user's state folder by what the system knows of the user, whatever variables say.

    A user who is not in the system's list, as in some containers, has a folder by number.
    """
    if sys.platform == "win32":
        return cast("Path", windows_folder("HKEY_CURRENT_USER", "Local AppData")) / "agentmagic"
    from pwd import getpwuid

    try:
        home = Path(getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path(f"/var/tmp/agentmagic-{os.getuid()}")  # noqa: S108  (another user's folder is not written to)
    return home / ("Library/Application Support" if sys.platform == "darwin" else ".local/state") / "agentmagic"


def today() -> str:
    """Return the date of this place, or that of UTC if the administrator has a budget."""
    return _day(time.time())


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(seconds)) if _is_fixed() else day_of(seconds)


def _last_byte(number: int, size: int) -> bytes:
    os.lseek(number, size - 1, os.SEEK_SET)
    return os.read(number, 1)


def _whole_lines(read: bytes) -> bytes:
    """Return what was read up to its last line end; all of it if it is longer than a line of ours can be."""
    end = read.rfind(b"\n") + 1
    return read[:end] if end or len(read) < PIECE else read


def _paid(line: bytes) -> tuple[tuple[str, str], Spent] | None:
    """Return the day and the folder of a line, and what it says was spent; None if it is none of ours."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        match json.loads(line):
            case {"time": int() as seconds, "folder": str() as folder, "cost": int() | float() as cost} if (
                0 <= cost < float("inf")
            ):
                return (_day(seconds), folder), Spent(float(cost))
            case {"time": int() as seconds, "folder": str() as folder, "cost": None}:
                return (_day(seconds), folder), Spent(0.0, 1)
            case _:
                return None
    except (ValueError, OverflowError, OSError, RecursionError):
        return None


@cache
def ledger() -> PaidRequests:
    """Return the ledger of this process."""
    return PaidRequests()


# -- who pays, and the budgets ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Account:
    """Who pays: a session, by its name and the id of its conversation."""

    name: str = ""
    conversation: str = ""

    def pay(self, model: str, usage: Usage) -> None:
        """Count a request that was sent to a model."""
        ledger().pay(work_folder(), self.name, model, usage)


def work_folder() -> str:
    """Return the folder whose sessions share a budget: the notebook's, or that in which the script began."""
    return str(own_folder() or "")


@dataclass(frozen=True, slots=True)
class PeriodCap:
    """A budget of a day or a month: its limit in US dollars, the setting that names it, and the folder it is for.

    `bound` is the setting of a class with its file, "" for a variable; a budget of a class is for all folders.
    """

    period: Period
    limit: float
    setting: str
    folder: str | None = None
    bound: str = ""

    @property
    def when(self) -> str:
        """The period in words."""
        return "today" if self.period == "day" else "this month"

    def spent(self) -> Spent:
        """Return what was paid in the period."""
        return ledger().spent(self.period, self.folder)

    def problem(self) -> str:
        """Return why the budget cannot be kept, "" if it can."""
        if not (why := ledger().problem):
            return ""
        return f"{why}, so {self.setting} cannot be kept and no request was sent. Make the file writable and try again."

    def warning(self) -> str:
        """Return a sentence once in the period, when the share WARN_AT is spent, else ""."""
        spent, key = self.spent(), (f"{self.setting} {self.limit}", today()[: 10 if self.period == "day" else 7])
        if spent.cost < WARN_AT * self.limit or key in ledger().warned:
            return ""
        ledger().warned.add(key)
        return (
            f"${spent.cost:.2f} of the ${self.limit:.2f} of {self.bound or self.setting} are spent {self.when}"
            f"{_unknown(spent)}. At 100 % no further request is sent."
        )

    def __str__(self) -> str:
        spent = self.spent()
        left = max(0.0, self.limit - spent.cost)
        return f"${left:.2f} of ${self.limit:.2f} are left {self.when} ({self.setting}){_unknown(spent)}"


def _unknown(spent: Spent) -> str:
    return f"; not in it: {counted(spent.unpriced, 'request')} of unknown price" if spent.unpriced else ""


def period_caps() -> list[PeriodCap]:
    """Return the budgets of days and months that hold. Raises UsageError for a variable that is not a number."""
    bounds, caps = class_settings(), list[PeriodCap]()
    for variable, period in _VARIABLES:
        if (limit := _dollars(variable)) is not None:
            caps.append(PeriodCap(period, limit, variable, work_folder()))
    for name, period in _SETTINGS:
        if (limit := cast("float | None", getattr(bounds, name))) is not None:
            caps.append(PeriodCap(period, limit, name.replace("_", "-"), bound=bounds.words(name)))
    return caps


def _dollars(variable: str) -> float | None:
    if (written := settings.variable(variable)) is None:
        return None
    try:
        limit = float(written)
    except ValueError:
        limit = 0.0
    if not 0 < limit < float("inf"):
        raise UsageError(f"{variable} is {written!r:.80}. Set it to a number of US dollars above 0, or unset it.")
    return limit


# -- the bill of a folder --------------------------------------------------------------------------

COLUMNS = ("day", "notebook", "session", "model", "requests", "tokens", "cached", "cost", "failures")


@dataclass(frozen=True, slots=True)
class FolderBill:
    """What the saved sessions of a folder have used: a row for each day, notebook, session and model.

    `cost` is in US dollars, None if the price of a request in it is unknown. `failures` are turns that ended in an
    error, ran out of time, or were cut off with their kernel. `files` counts the journals that were read, `damaged` the
    lines that could not be, and `left_out` the journals beyond the bounds.
    """

    rows: tuple[Mapping[str, Any], ...]
    files: int
    damaged: int
    left_out: int

    @property
    def frame(self) -> Any:
        """The rows as a data frame of pandas, or as a list of dicts if pandas is not installed."""
        try:
            pd: Any = import_module("pandas")
        except ImportError:
            return [dict(row) for row in self.rows]
        frame = pd.DataFrame(list(self.rows), columns=list(COLUMNS))
        frame.attrs |= {"files": self.files, "damaged": self.damaged, "left_out": self.left_out}
        return frame

    def sums(self, *names: str) -> dict[tuple[str, ...], "UsedTogether"]:
        """Return what the rows that agree in some columns have used together, in the order of those columns."""
        found: dict[tuple[str, ...], UsedTogether] = {}
        for row in self.rows:
            key = tuple(str(row[name]) for name in names)
            found[key] = found.get(key, UsedTogether()) + UsedTogether.of(row)
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class UsedTogether:
    """What several rows have used; `unpriced` counts the requests in rows whose cost is unknown."""

    requests: int = 0
    tokens: int = 0
    cached: int = 0
    cost: float = 0.0
    failures: int = 0
    unpriced: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Return what one row has used."""
        figures = (row["requests"], row["tokens"], row["cached"], row["cost"] or 0.0, row["failures"])
        return cls(*figures, row["requests"] if row["cost"] is None else 0)

    def __add__(self, other: "UsedTogether") -> "UsedTogether":
        """Add figure by figure."""
        return UsedTogether(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


def usage(folder: str | os.PathLike[str] | None = None) -> Any:
    """Return what all saved sessions of a folder have used, from their journals, as a data frame.

    The folder is the notebook's, or that in which the script began, unless it is named. Journals lie in it, and in its
    `.agentmagic` folder; nothing is written. There is a row for each day, notebook, session and model, with `requests`,
    `tokens`, `cached`, `cost` (US dollars, missing if a price is unknown) and `failures`. Turns of a replay are left
    out. Without pandas it is a list of dicts. Sessions that are not saved are in no journal; budgets count them too.

    Raises UsageError if there is no such folder.
    """
    found = folder_bill(folder)
    if found.damaged:
        logger.warning("%s lines of the journals could not be read, and are left out", found.damaged)
    return found.frame


def folder_bill(folder: str | os.PathLike[str] | None = None) -> FolderBill:
    """Return what all saved sessions of a folder have used, with the figures of what was read."""
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
    rows = (_row(key, used, failures) for key, (used, failures) in sorted(totals.items()))
    used_rows = tuple(row for row in rows if row["requests"] or row["failures"])
    return FolderBill(used_rows, journals.files, journals.damaged, journals.left_out)


def _row(key: tuple[str, ...], used: Usage, failures: int) -> Mapping[str, Any]:
    figures = (used.requests, used.input_tokens + used.output_tokens, used.cached_tokens, used.cost, failures)
    return dict(zip(COLUMNS, (*key, *figures), strict=True))


def _notebook(folder: Path, place: Path) -> str:
    """Return the name of the notebook whose conversations lie in a place, "" if they are of none."""
    if place.parent.name != FOLDER or place == folder:
        return ""
    try:
        with (place / "notebook.json").open(encoding="utf-8") as file:
            name = json.loads(file.read(PIECE)).get("name")
    except (OSError, ValueError, AttributeError, RecursionError):
        name = None
    return one_line(shown(name), 100) if isinstance(name, str) and name else f"{place.name}.ipynb"
