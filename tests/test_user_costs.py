"""What each user of a machine has spent: the homes that are read, what is not followed, what is counted."""

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from agentmagic.__main__ import main
from agentmagic.bill import MOST_FILES, STATE_FOLDER, PaidRequests
from agentmagic.errors import UsageError
from agentmagic.messages import Usage
from agentmagic.user_costs import report

pytestmark = pytest.mark.posix

NOW = int(time.time())
LONG_AGO = 1_700_000_000


def paid(cost, when=NOW, folder="/home/secret/thesis"):
    return {"time": when, "folder": folder, "session": "agent", "model": "a:b", "tokens_in": 90, "cached": 0} | {
        "tokens_out": 10,
        "cost": cost,
    }


def month(when=NOW):
    return f"ledger-{time.strftime('%Y-%m', time.localtime(when))}.jsonl"


def write(home, *lines, when=NOW):
    """A ledger of a month in a home."""
    folder = home / STATE_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / month(when)
    file.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines), encoding="utf-8")
    file.chmod(0o600)
    return file


@pytest.fixture
def homes(tmp_path):
    """The folder of the homes of two users."""
    write(tmp_path / "homes" / "anna", paid(0.5), paid(0.25), paid(None))
    write(tmp_path / "homes" / "anna", paid(2.0, LONG_AGO), when=LONG_AGO)
    write(tmp_path / "homes" / "ben", paid(1.0))
    (tmp_path / "homes" / "cleo").mkdir()
    return tmp_path / "homes"


def rows(folder):
    """The rows of the table, by the names of the users, and the lines below it."""
    table, _, notes = report(folder).text.partition("\n\n")
    return {
        cells[0]: cells[1:] for cells in ([cell for cell in line.split("  ") if cell] for line in table.splitlines())
    }, notes


def test_each_user_has_a_row_and_all_have_a_sum_and_no_folder_is_shown(homes):
    before = {path: path.stat() for path in homes.rglob("*")}
    table, notes = rows(homes)
    unknown = " + unknown"
    assert {name: [cell.strip() for cell in cells] for name, cells in table.items()} == {
        "user": ["requests", "tokens", "today", "this month", "all"],
        "anna": ["4", "400", f"$0.7500{unknown}", f"$0.7500{unknown}", f"$2.75{unknown}"],
        "ben": ["1", "100", "$1.00", "$1.00", "$1.00"],
        "all": ["5", "500", f"$1.75{unknown}", f"$1.75{unknown}", f"$3.75{unknown}"],
    }
    assert (
        notes == "Counted are paid requests, also of sessions that were not saved. Users can change their own ledgers."
    )
    assert "thesis" not in report(homes).text
    after = {path: path.stat() for path in homes.rglob("*")}
    changed = ("st_mtime_ns", "st_ctime_ns", "st_mode", "st_size")
    assert all(getattr(before[path], name) == getattr(after[path], name) for path in after for name in changed)
    assert before.keys() == after.keys()


def test_the_ledger_that_this_process_writes_may_be_read_by_its_user_alone(tmp_path, monkeypatch, capsys):
    import pwd

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(pwd, "getpwall", list)
    PaidRequests().pay("here", "agent", "a:b", Usage(input_tokens=5, output_tokens=2, requests=1, cost=1.5))
    assert main(["usage", "--all"]) == 0
    name = pwd.getpwuid(os.getuid()).pw_name
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:3]] == [
        [one, "1", "7", "$1.50", "$1.50", "$1.50"] for one in (name, "all")
    ]
    assert PaidRequests.path().stat().st_mode & 0o777 == 0o600


def test_the_homes_of_the_user_database_are_read_each_once(homes, tmp_path, monkeypatch):
    import pwd

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    owner = (homes / "anna").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    accounts = {"anna": "anna", "alias": "anna", "ben": "ben", "daemon": "../nowhere", "sync": "anna/.local/state/x"}
    entries = [SimpleNamespace(pw_name=name, pw_dir=str(homes / home), pw_uid=owner) for name, home in accounts.items()]
    monkeypatch.setattr(pwd, "getpwall", lambda: entries)
    assert list(rows(None)[0]) == ["user", "anna", "ben", "all"]


def as_link(home, other):
    (home / STATE_FOLDER).mkdir(parents=True)
    (home / STATE_FOLDER / month()).symlink_to(other / STATE_FOLDER / month())


def as_hard_link(home, other):
    (home / STATE_FOLDER).mkdir(parents=True)
    os.link(other / STATE_FOLDER / month(), home / STATE_FOLDER / month())
    if os.getuid() == 0:
        os.chown(home, 12345, -1)
    else:
        pytest.skip("only root can give a folder away")


def as_folder(home, other):
    (home / ".local").mkdir(parents=True)
    (home / ".local" / "state").symlink_to(other / ".local" / "state", target_is_directory=True)


def as_home(home, other):
    home.symlink_to(other, target_is_directory=True)


def as_pipe(home, _other):
    (home / STATE_FOLDER).mkdir(parents=True)
    os.mkfifo(home / STATE_FOLDER / month())


@pytest.mark.skipif(sys.platform != "linux", reason="the state folder of Linux")
@pytest.mark.parametrize("plant", [as_link, as_hard_link, as_folder, as_home, as_pipe])
def test_nothing_that_leads_elsewhere_is_followed(homes, plant):
    plant(homes / "mallory", homes / "anna")
    table, notes = rows(homes)
    assert "mallory" not in table
    assert table["all"][0].strip() == "5"
    assert ("1 home may not be read." in notes) == (plant is not as_home)  # which is a home of no one


def test_lines_that_are_none_of_ours_are_counted_and_what_is_too_much_is_said(homes, monkeypatch):
    bad = ["[" * 5_000, "{}", json.dumps(paid(1e300)), json.dumps(paid(-1)), "x" * 100_000, "\x00"]
    write(homes / "eve", *bad, paid(1.0) | {"tokens_in": 10**300}, '{"time": 17')
    for number in range(MOST_FILES + 5):
        (homes / "eve" / STATE_FOLDER / f"ledger-19{number % 90 + 10}-{number % 12:02}.jsonl").touch()
    table, notes = rows(homes)
    assert [cell.strip() for cell in table["eve"]] == ["1", "10", "$1.00", "$1.00", "$1.00"]
    assert "lines could not be read" in notes
    monkeypatch.setattr("agentmagic.bill.MOST_BYTES", 100)
    assert "homes had more ledgers than are read: the oldest are missing." in rows(homes)[1]


def test_a_name_is_shown_on_one_line_without_hidden_characters(homes):
    write(homes / "x\x1b[2J\ny\u202e", paid(1.0))
    assert "x\\x1b[2J y\\u202e" in report(homes).text


def test_a_folder_of_homes_that_is_none_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="Name a folder whose subfolders are the homes"):
        report(tmp_path / "missing")
    assert report(tmp_path).text == "No ledger that may be read has a paid request."


AS_NOBODY = """
import os, sys
from agentmagic import user_costs
from agentmagic.display.printout import Printout
user_costs.report(sys.argv[1])  # imports what the other user may not read
os.setuid(65534)
print(user_costs.report(sys.argv[1]).text)
"""


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can become another user")
def test_another_user_sees_how_many_homes_may_not_be_read(homes):
    for path in homes.iterdir():
        path.chmod(0o700)
    homes.chmod(0o755)
    command = [sys.executable, "-c", AS_NOBODY, "."]
    done = subprocess.run(command, cwd=homes, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "No ledger that may be read has a paid request.",
        "3 homes may not be read. An administrator runs: python -m agentmagic usage --all",
    ]
