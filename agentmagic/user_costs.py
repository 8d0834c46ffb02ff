"""What each user of a machine has spent: the ledgers in the users' home folders, added up for an administrator.

Users can put anything into their home folders, and root may read everything. So a ledger is read only if no link leads
to it, and if it is a regular file that belongs to the user. Nothing is written.
"""

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from agentmagic.bill import STATE_FOLDER, LedgerLine, Ledgers, PaidRequests, Spending, today
from agentmagic.display import words
from agentmagic.display.printout import PrintedLine, PrintedRows, Printout, note, printout
from agentmagic.errors import UsageError
from agentmagic.plain_files import open_plain
from agentmagic.text import exact, plural, single_line

LONGEST_NAME = 40
"""Characters of a user's name that are shown."""
COUNTED = "Counted are paid requests, also of sessions that were not saved. Users can change their own ledgers."
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)


@dataclass(slots=True)
class UserCosts:
    """What one user has spent, or all, in three periods."""

    today: Spending = field(default_factory=Spending)
    month: Spending = field(default_factory=Spending)
    whole: Spending = field(default_factory=Spending)

    def add(self, line: LedgerLine, day: str) -> None:
        """Add a line of a ledger. `day` is today."""
        self.whole += line.spending
        if line.day[:7] == day[:7]:
            self.month += line.spending
        if line.day == day:
            self.today += line.spending

    @property
    def cells(self) -> tuple[str, ...]:
        """The figures, as the table shows them."""
        costs = (words.costs(one.cost, one.unpriced) for one in (self.today, self.month, self.whole))
        return (f"{self.whole.requests:,}", f"{self.whole.tokens:,}", *costs)


@dataclass(slots=True)
class HomeLedgers:
    """What is found in the homes on a `day`.

    `bad_lines` are lines of ledgers, `cut_homes` homes with too many files or bytes.
    """

    day: str = field(default_factory=today)
    users: dict[str, UserCosts] = field(default_factory=dict[str, UserCosts])
    total: UserCosts = field(default_factory=UserCosts)
    refused_homes: int = 0
    cut_homes: int = 0
    bad_lines: int = 0

    def read_home(self, name: str, home: Path, owner: int) -> None:
        """Read the ledgers in a home folder. A home without ledgers is left out, one that may not be read is counted.

        A folder on the way that is a link counts as one that may not be read.
        """
        try:
            number = os.open(home, _FOLDER)
        except (FileNotFoundError, NotADirectoryError):  # many accounts of a system have no home
            return
        except OSError:
            self.refused_homes += 1
            return
        try:
            for part in STATE_FOLDER.parts:
                above, number = number, os.open(part, _FOLDER | _NO_LINK, dir_fd=number)
                os.close(above)
            self.read_folder(name, number, owner)
        except FileNotFoundError:
            return
        except OSError:
            self.refused_homes += 1
        finally:
            os.close(number)

    def read_folder(self, name: str, number: int, owner: int) -> None:
        """Read the ledgers in an open folder, of which `number` is the descriptor. Raises OSError for the folder."""
        reading = Ledgers()
        for line in reading.lines(os.listdir(number), partial(_open_own, number, owner)):
            for costs in (self.users.setdefault(name, UserCosts()), self.total):
                costs.add(line, self.day)
        self.refused_homes += reading.refused > 0
        self.cut_homes += reading.left_out > 0
        self.bad_lines += reading.bad_lines


def _open_own(folder: int, owner: int, name: str) -> BinaryIO:
    """Open a ledger of its owner. Raises OSError for another file: a hard link can lead to a file of another user."""
    file = open_plain(name, None, follow=False, folder=folder)
    if os.fstat(file.fileno()).st_uid != owner:
        file.close()
        raise PermissionError(errno.EACCES, "it belongs to another user", name)
    return file


def report(homes: str | os.PathLike[str] | None = None) -> Printout:
    """Return a table of what each user has spent whose home may be read, with the sum of all users.

    By default, the homes are those of the system's user database, and the ledger of the calling user is that of this
    process. `homes` names a folder whose subfolders are homes instead. Raises UsageError on Windows, and if the folder
    cannot be read.
    """
    if sys.platform == "win32":
        raise UsageError(
            "Windows has no list of homes that can be read. %agent usage shows what this folder has spent."
        )
    reading = HomeLedgers()
    own = os.geteuid() if homes is None else -1
    if homes is None:
        _read_own(reading, own)
    for name, home, owner in _homes(homes):
        if owner != own:
            reading.read_home(name, home, owner)
    notes = list(_notes(reading))
    if not reading.users:
        return note("\n".join(["No ledger that may be read has a paid request.", *notes]))
    rows = [(name, *costs.cells) for name, costs in sorted(reading.users.items())]
    head = ("user", "requests", "tokens", "today", "this month", "all")
    table = PrintedRows([*rows, ("all", *reading.total.cells)], "table", head, left=1)
    return printout([table], [PrintedLine(line, "quiet") for line in (COUNTED, *notes)])


def _notes(reading: HomeLedgers) -> Iterator[str]:
    if reading.refused_homes:
        help_words = "" if os.geteuid() == 0 else " An administrator runs: python -m agentmagic usage --all"
        yield f"{plural(reading.refused_homes, 'home')} may not be read.{help_words}"
    if reading.bad_lines:
        yield f"{plural(reading.bad_lines, 'line')} could not be read, and what stood there is missing."
    if reading.cut_homes:
        yield f"{plural(reading.cut_homes, 'home')} had more ledgers than are read: the oldest are missing."


def _read_own(reading: HomeLedgers, own: int) -> None:
    """Read the ledgers to which this process writes; environment variables may have moved them."""
    import pwd

    try:
        name = _name(pwd.getpwuid(own).pw_name)
    except KeyError:  # as in some containers
        name = str(own)
    try:
        number = os.open(PaidRequests.path().parent, _FOLDER)
    except OSError:  # nothing was paid yet
        return
    try:
        reading.read_folder(name, number, own)
    except OSError:
        reading.refused_homes += 1
    finally:
        os.close(number)


def _homes(folder: str | os.PathLike[str] | None) -> Sequence[tuple[str, Path, int]]:
    """Return the user's name, the folder and the owner of each home."""
    if folder is None:
        import pwd

        # Several accounts can share a home; the first counts.
        entries = {entry.pw_dir: entry for entry in reversed(pwd.getpwall())}
        return [(_name(entry.pw_name), Path(home), entry.pw_uid) for home, entry in entries.items()]
    try:
        with os.scandir(folder) as found:
            entries = [one for one in found if one.is_dir(follow_symlinks=False)]
            return [(_name(one.name), Path(one.path), one.stat(follow_symlinks=False).st_uid) for one in entries]
    except OSError as error:
        message = f"{folder} cannot be read ({error.strerror}). Name a folder whose subfolders are the homes of users."
        raise UsageError(message) from error


def _name(text: str) -> str:
    return single_line(exact(text), LONGEST_NAME)
