import errno
import gc
import queue
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentmagic.errors import JournalError
from agentmagic.events import (
    HistoryCut,
    Notice,
    PartDelta,
    PartStarted,
    ToolFinished,
    ToolProgress,
    TurnFinished,
)
from agentmagic.history import journal as module
from agentmagic.history.journal import Journal, in_use
from agentmagic.history.journal_reader import read
from agentmagic.messages import Media, Text, ToolResult
from agentmagic.serialization import encode_record, header
from tests.logs import CALL, RESULT, STARTED
from tests.saving import ADDED, PAID, PAYING, answered, journal, written

MEMORY = "What is said from here on is kept in memory only; session.save(FILE) or %agent save FILE saves all of it."
PATIENCE = 30
"""Seconds after which a test that waits for another thread has failed."""
NO_FOLDER = pytest.mark.linux  # /proc is a folder that not even root may write to


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".agentmagic" / "analysis" / "agent.jsonl"


def lines(path):
    return path.read_bytes().splitlines(keepends=True)


def files(path):
    return {found.name: found.read_bytes() for found in path.parent.iterdir() if found.suffix != ".lock"}


def write(made, *events):
    for event in events:
        made.write(event)


def test_the_first_event_makes_the_file_and_deltas_are_left_out(path):
    made = journal(path)
    assert not path.parent.parent.exists()
    write(made, STARTED, PartStarted(0, "text"), PartDelta(0, "x"), ToolProgress("c1", 0.5), Notice("info", "hm"))
    assert lines(path)[0] == header()
    assert [line.split(b'"')[3] for line in lines(path)[1:]] == [b"turn_started", b"notice"]
    made.close()


@pytest.mark.posix
@pytest.mark.parametrize("folder_is_there", [False, True])
def test_what_was_said_is_for_its_owner_and_not_for_version_control_unless_the_folder_is_the_user_s(
    path, folder_is_there
):
    if folder_is_there:
        path.parent.parent.mkdir()
    written(path, STARTED)
    assert path.stat().st_mode & 0o777 == 0o600
    ignored = path.parent.parent / ".gitignore"
    assert (ignored.read_text() if ignored.exists() else "") == ("" if folder_is_there else "*\n")


def test_turns_and_tools_are_kept_by_the_disk_soon_after(path, monkeypatch):
    synced = queue.SimpleQueue()
    monkeypatch.setattr(module.os, "fsync", lambda file: synced.put(lines(path)[-1].split(b'"')[3].decode()))
    made = journal(path)
    seen = []
    for event in (*ADDED, HistoryCut(0)):
        made.write(event)
        if isinstance(event, module._BOUNDARIES):
            seen.append(synced.get(timeout=PATIENCE))
    made.close()
    assert seen == ["turn_started", "tool_started", "tool_finished", "turn_finished", "history_cut"]
    assert synced.empty()


def test_nobody_waits_for_a_slow_disk_and_closing_a_short_while_only(path, monkeypatch):
    monkeypatch.setattr(module, "_LONGEST_SYNC", 0.01)
    asked, let = queue.SimpleQueue(), threading.Event()
    monkeypatch.setattr(module.os, "fsync", lambda file: (asked.put(file), let.wait(PATIENCE)))
    made = journal(path)
    made.write(STARTED)
    asked.get(timeout=PATIENCE)
    write(made, *ADDED[1:])
    assert read(path).turns == (ADDED,)  # every line is the system's at once
    made.close()
    assert not let.is_set()
    again = journal(path)  # the lock is free
    again.resume()
    assert not again.problem
    let.set()
    again.close()
    asked.get(timeout=PATIENCE)  # once for all that were written meanwhile
    assert asked.empty()


def test_a_disk_that_keeps_nothing_is_said_once_and_ends_the_writing(path, monkeypatch):
    def fsync(file):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(module.os, "fsync", fsync)
    told = queue.SimpleQueue()
    made = Journal(path, tell=told.put)
    made.write(STARTED)
    words = told.get(timeout=PATIENCE)
    assert "your share of the disk is full. Make room on it." in words
    assert (made.problem, made.taken) == (words, False)
    made.write(STARTED)
    made.close()
    assert told.empty()
    assert len(lines(path)) == 2


def test_a_file_follows_its_path_when_the_working_folder_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = journal(Path("agent.jsonl"))
    monkeypatch.chdir("/")
    made.write(STARTED)
    made.close()
    assert (tmp_path / "agent.jsonl").exists()


@pytest.mark.parametrize("content", [(Text("x" * 20_000_000),), (Media("image/png", b"x" * 20_000_000),)])
def test_what_is_too_large_is_said_once_and_a_result_keeps_its_place_so_that_its_tool_is_not_in_doubt(path, content):
    deep = value = []
    for _ in range(500):
        value.append(value := [])
    told = []
    made = journal(path, told)
    result = ToolFinished(ToolResult(CALL.id, CALL.name, content, structured=deep))
    write(made, *ADDED[: ADDED.index(ToolFinished(RESULT, 0.1))], result, Notice("info", "still here"))
    made.close()
    assert len(told) == 1
    assert told[0].startswith("A part of this conversation is too large to be saved in agent.jsonl: ")
    saved = read(path)
    assert saved.in_doubt == frozenset()
    assert next(event.text for event in saved.turns[0] if isinstance(event, Notice)) == "still here"
    (kept,) = saved.turns[0][-1].result.history_delta[-1].parts
    assert kept.status == "ok"


# a file that is there already


def test_an_older_conversation_is_kept_under_a_free_name(path):
    for prompt in ("first", "second", "third"):
        written(path, *answered(prompt, "yes"))
    prompts = {name: read(path.with_name(name)).turns[0][0].prompt.text for name in files(path)}
    assert prompts == {"agent.1.jsonl": "first", "agent.2.jsonl": "second", "agent.jsonl": "third"}


@pytest.mark.parametrize(("content", "aside"), [(b"", {}), (header(), {}), (header()[:9], {"agent.1.jsonl"})])
def test_a_file_without_a_conversation_is_gone_on_with_or_kept_aside_if_its_header_was_cut_off(path, content, aside):
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    resumed = journal(path)
    assert resumed.resume().turns == ()
    write(resumed, *ADDED)
    resumed.close()
    assert read(path).turns == (ADDED,)
    assert files(path).keys() == {"agent.jsonl", *aside}


@pytest.mark.parametrize("content", [b"my,data\n1,2\n", b'{"type":"journal","version":99}\n{"type":"new"}\n'])
def test_a_file_of_somebody_else_is_never_touched_and_let_go_of(path, content):
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    told = []
    made = journal(path, told)
    write(made, *ADDED)
    assert files(path) == {"agent.jsonl": content}
    assert told == [made.problem]
    assert "was left as it is" in made.problem
    assert made.problem.endswith(MEMORY)
    refused = journal(path)
    with pytest.raises(JournalError, match="was left as it is"):
        refused.resume()
    assert [found.name for found in path.parent.iterdir()] == ["agent.jsonl"]
    path.unlink()
    written(path, *ADDED)


# two writers


def test_a_journal_is_not_in_use_because_others_ask_whether_it_is(path):
    written(path, *ADDED)
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(in_use, [path] * 200)) == {False}


def test_a_turn_begins_while_another_asks_whether_its_journal_is_in_use(path):
    written(path, *ADDED)
    over = threading.Event()
    asking = threading.Thread(target=lambda: [in_use(path) for _ in iter(over.is_set, True)])
    asking.start()
    problems = set()
    for _ in range(20):
        made = journal(path)
        made.resume()
        write(made, *ADDED)
        problems.add(made.problem)
        made.close()
    over.set()
    asking.join(PATIENCE)
    assert problems == {""}
    first = journal(path)
    first.resume()
    assert in_use(path)
    first.close()


@pytest.mark.posix
@pytest.mark.parametrize("number", ["ENOLCK", "EOPNOTSUPP", "EIO", "EINVAL"])
def test_where_a_network_folder_refuses_locks_a_file_stands_for_the_lock(path, monkeypatch, number):
    import fcntl

    def refuse(*_):
        raise OSError(getattr(errno, number), "refused")

    monkeypatch.setattr(fcntl, "flock", refuse)
    first = journal(path)
    write(first, *ADDED)
    assert (first.problem, in_use(path)) == ("", True)
    second = journal(path)
    second.resume()
    assert (second.taken, "is being written by another kernel or session" in second.problem) == (True, True)
    first.close()
    assert not in_use(path)
    again = journal(path)
    again.resume()
    write(again, *ADDED)
    assert again.problem == ""
    again.close()


def test_a_second_session_is_told_and_writes_nothing_but_can_read(path):
    first = journal(path)
    write(first, *ADDED)
    before = path.read_bytes()
    told = []
    second = journal(path, told)
    assert second.resume().turns == (ADDED,)
    write(second, STARTED, Notice("info", "x"))
    why = f"{path} is being written by another kernel or session; load it again when that one is closed."
    assert told == [f"{why} {MEMORY}"]
    assert second.taken
    assert files(path) == {"agent.jsonl": before}
    first.close()


def test_a_closed_journal_that_another_went_on_with_is_left_alone(path):
    told = []
    first = journal(path, told)
    write(first, *ADDED)
    first.close()
    other = journal(path)
    other.resume()
    write(other, *answered("And now?", "4"))
    other.close()
    before = files(path)
    first.write(STARTED)
    assert files(path) == before
    assert told == [f"Another kernel or session went on with {path}. Load it again to go on from there. {MEMORY}"]


def test_a_journal_that_nobody_holds_lets_go_of_its_file(path):
    made = journal(path)
    made.write(STARTED)
    del made
    gc.collect()
    made = journal(path)
    made.resume()
    made.close()
    assert not made.problem


# a file that cannot be written


@pytest.mark.parametrize(
    ("place", "why"),
    [
        pytest.param(Path("/proc/self/.agentmagic/agent.jsonl"), "No such file", marks=NO_FOLDER),
        pytest.param(Path("/proc/agent.jsonl"), "no file can be made beside it|No such file", marks=NO_FOLDER),
        (Path("mine/.agentmagic/agent.jsonl"), "Not a directory"),
    ],
    ids=["a folder that is read only", "a folder where no lock can be made", "a file in the place of the folder"],
)
def test_a_folder_that_cannot_be_written_to_is_said_and_the_conversation_goes_on(place, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text("mine")
    told = []
    made = journal(place, told)
    write(made, *ADDED)
    made.close()
    assert len(told) == 1
    assert told[0].startswith(f"The conversation cannot be saved in {place.absolute()}: ")
    assert re.search(why, told[0])
    assert told[0].endswith(f"Use a session with a path that can be written. {MEMORY}")
    assert Path("mine").read_text() == "mine"


@pytest.mark.posix
def test_a_full_disk_ends_the_writing_and_what_was_written_stays(path):
    """The limit of a file's size stands in for the disk's: it ends a write midway, too."""
    import resource

    told = []
    made = journal(path, told)
    write(made, *ADDED)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, limits[1]))
    try:
        write(made, *answered("And now?", "4"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    made.write(STARTED)
    after = path.read_bytes()
    assert after.startswith(before)
    assert len(after) == len(before) + 100
    assert len(told) == 1
    assert "the disk is full. Make room on it." in told[0]
    assert read(path).turns == (ADDED,)
    assert read(path).problems == ("1 line of the file could not be read; what stood there is missing.",)


def test_a_file_that_vanished_is_said_and_its_lock_is_free(path):
    told = []
    made = journal(path, told)
    write(made, *PAYING)
    path.unlink()
    made.write(PAID)
    made.close()
    assert "the file was deleted or moved" in told[0]
    made.write(STARTED)
    assert len(told) == 1
    assert not path.exists()
    written(path, *ADDED)
    assert read(path).turns == (ADDED,)


# going on after a crash


@pytest.mark.parametrize("kept", [0, 1, -1])
def test_a_conversation_is_gone_on_with_where_it_stood_and_a_torn_last_line_loses_only_itself(path, kept):
    written(path, *ADDED)
    before = path.read_bytes()
    written_last = encode_record(STARTED)[:kept]
    path.write_bytes(before + written_last)
    made = journal(path)
    assert made.resume().turns[0] == ADDED
    assert path.read_bytes().startswith(before)
    second = answered("And now?", "4")
    write(made, *second)
    made.close()
    turns = read(path).turns
    assert (turns[0], turns[-1]) == (ADDED, second)
    assert len(turns) == 2 or kept == -1
    assert list(files(path)) == ["agent.jsonl"]


def test_a_turn_that_was_cut_off_is_ended_in_the_file_once(path):
    written(path, *ADDED, STARTED, *PAYING)
    made = journal(path)
    saved = made.resume()
    made.close()
    assert saved.closing
    assert saved.in_doubt == {("bank", "pay")}
    under_way = "The call of pay was under way and may have run in part, or wholly; look before it is repeated."
    assert saved.problems == (f"This turn was cut off when its kernel ended. {under_way}",)
    again = read(path)
    assert again.turns == saved.turns
    assert (again.closing, again.problems) == ((), ())
    assert again.in_doubt == saved.in_doubt
    assert isinstance(again.turns[1][-1], TurnFinished)
    before = path.read_bytes()
    made = journal(path)
    made.resume()
    made.close()
    assert path.read_bytes() == before


# a whole conversation at once


@pytest.mark.posix
def test_a_whole_conversation_is_begun_without_a_lock_gone_on_with_and_never_begun_over_a_file(path):
    made = journal(path)
    made.begin((*ADDED, ToolProgress("c1", 0.5)))
    assert [found.name for found in path.parent.iterdir()] == ["agent.jsonl"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert read(path).turns == (ADDED,)
    second = answered("And now?", "4")
    for event in second:
        made.write(event)
        made.close()
        made.close()
    assert read(path).turns == (ADDED, second)
    assert (read(path).problems, made.problem) == ((), "")
    with pytest.raises(JournalError, match=r"is there already, and was left as it is\. Choose another file\."):
        journal(path).begin(ADDED)
    assert read(path).turns == (ADDED, second)


def test_a_conversation_that_cannot_be_begun_leaves_nothing(path, monkeypatch):
    def fsync(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", fsync)
    told = []
    made = journal(path, told)
    with pytest.raises(JournalError, match=r"cannot be written: the disk is full\. Make room on it\.") as why:
        made.begin(ADDED)
    assert "memory" not in str(why.value)
    assert (told, made.begun, list(path.parent.iterdir())) == ([], False, [])


@pytest.mark.posix
def test_a_forked_child_leaves_the_file_to_its_parent(tmp_path):
    code = """
import os, warnings
warnings.simplefilter("ignore")
from agentmagic import Agent, ScriptedModel, Session
session = Session(Agent(ScriptedModel(["one", "two"])), path="talk.jsonl")
session.ask("of the parent")
child = os.fork()
if child == 0:
    told = [event.text for event in session.ask("of the child").events if event.type == "notice"]
    session.close()
    os._exit(0 if "kept in memory only" in told[0] and "was forked from" in told[0] else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
session.ask("of the parent again")
session.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "0\n"
    assert [turn[0].prompt.text for turn in read(tmp_path / "talk.jsonl").turns] == [
        "of the parent",
        "of the parent again",
    ]
