"""The run that is handed in: what is in it, secrets, damage, and the list of a class."""

import csv
import subprocess
import sys
import threading

import pytest

from agentmagic.__main__ import main
from agentmagic.errors import UsageError
from agentmagic.run_log import COLUMNS, MOST_EXERCISES, RunLog, _digest, _with_digests, hand_in
from agentmagic.secrets import register_secret
from agentmagic.testing import CHECKS, EXERCISES, check, exercise, expect, run
from tests.turns import calls, scripted

FAILED = threading.Event()
SECRET = "correct-horse-battery-staple"


def clock(zone: str) -> str:
    """Tell the time in a zone."""
    if zone == "nowhere":
        FAILED.set()
        raise ValueError(zone)
    FAILED.wait(10)  # calls run side by side, and this one, which begins first, ends last
    return f"noon in {zone}\n---\ndigest: 0"


@pytest.fixture
def file(tmp_path):
    """A run with two sessions, a call that failed, and checks of both kinds."""
    CHECKS.clear()
    EXERCISES.clear()
    FAILED.clear()
    register_secret(SECRET)
    session = scripted(
        calls(("clock", {"zone": "UTC"}), ("clock", {"zone": "nowhere"})), "It is noon.", "Yes.", tools=[clock]
    )
    run(session, f"What time is it? {SECRET}")
    run(session, "Sure?")
    other = scripted("Hello.")
    run(other, "Hi.")
    check(session).answered("Yes").steps(max=1)
    with pytest.raises(AssertionError):
        check(session).called("clock")
    target = tmp_path / "work" / "run.yaml"
    tests = {name: exercise(name)(lambda right: expect(right, "It is wrong.")) for name in ("1", "2\x1b[31m", "3")}
    tries = [("1", False), ("1", False), ("1", True), ("1", True), ("2\x1b[31m", False)]
    for name, right in tries:
        tests[name](right)
    said = hand_in(target, {"agent": session, "other": other}, "lesson.ipynb", "Anna Berg")
    assert said == "3 turns, 2 calls, 2 checks passed, 1 failed."
    yield target
    CHECKS.clear()
    EXERCISES.clear()


def test_a_run_has_turns_calls_results_and_checks_without_secrets_and_passes_with_other_ends_of_lines(file, capsys):
    log = RunLog.read(file)
    assert log.problem == ""
    head, first, _, third, *rest, end = log.documents
    checks = [one for one in rest if "check" in one]
    assert (head["agentmagic run"], head["notebook"], head["student"]) == (1, "lesson.ipynb", "Anna Berg")
    assert [(one["name"], one["status"]) for one in first["calls"]] == [("clock", "ok"), ("clock", "error")]
    assert first["calls"][0]["result"] == "noon in UTC\n---\ndigest: 0"
    assert first["calls"][0]["arguments"] == {"zone": "UTC"}
    assert (first["stopped"], first["steps"], first["answer"]) == ("answer", 2, "It is noon.")
    assert third["session"] == "other"
    assert [one["passed"] for one in checks] == [True, True, False]
    assert end["turns"] == 3
    assert SECRET not in file.read_text(encoding="utf-8")
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    capsys.readouterr()
    assert main(["handed-in", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{file}: Anna Berg, lesson.ipynb: 3 turns, 2 calls, 2 checks passed, 1 failed.",
        "  exercise 1: passed, 3 tries",
        "  exercise 2\\x1b[31m: not passed, 1 try",
        "  exercise 3: not tried",
    ]


@pytest.mark.parametrize(
    ("damage", "where"),
    [
        (lambda text: text.replace("It is noon.", "It is one."), "document 2 of 11 was changed"),
        (lambda text: "\n---\n".join(text.split("\n---\n")[:-1]) + "\n", "its end is missing"),
        (lambda text: text[: len(text) // 2], "was changed, or one before it is missing"),
        (lambda text: "\n---\n".join(text.split("\n---\n")[:2] + text.split("\n---\n")[3:]), "document 3 of 10"),
    ],
)
def test_damage_is_found_and_placed(file, capsys, damage, where):
    text = file.read_text(encoding="utf-8")
    file.write_text(damage(text), encoding="utf-8")
    assert where in RunLog.read(file).problem
    assert main(["handed-in", str(file)]) == 1
    assert f"{file}: damaged: " in capsys.readouterr().out


def test_nothing_is_handed_in_before_the_first_turn(tmp_path):
    with pytest.raises(UsageError, match="There are no turns to hand in"):
        hand_in(tmp_path / "y.yaml", {"agent": scripted("x")}, "")


def run_file(path, *documents, student="Ben", **head):
    """A file with right digests, as a student can write one."""
    first = {"agentmagic run": 1, "student": student, "notebook": "lesson.ipynb", **head}
    text = "".join(_with_digests(iter([first, *documents, {"end": "the run"}])))
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def listed(capsys, *arguments):
    capsys.readouterr()
    status = main(["handed-in", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert err == ""
    return status, out


BAD_FILES = {
    "note.yaml": (b"note: forgot\n", "not read: it is not a run that %agent hand-in wrote"),
    "picture.yaml": (bytes(range(128, 256)) * 20, "not read: it is not text"),
    "empty.yaml": (b"", "not read: it is not a run that %agent hand-in wrote"),
    "sums.yaml": (
        b"---\nagentmagic run: 1\ndigest: 0\n",
        "damaged: document 1 of 1 was changed, or one before it is missing",
    ),
}


def test_a_list_names_every_bad_file_and_still_has_every_student(file, tmp_path, capsys):
    files = [run_file(tmp_path / "a.yaml")]
    for name, (content, _) in BAD_FILES.items():
        files.append(tmp_path / name)
        files[-1].write_bytes(content)
    files += [tmp_path, tmp_path / "missing.yaml", file]
    with (tmp_path / "huge.yaml").open("wb") as huge:
        huge.truncate(2**40)  # a file with holes, which takes no place
        files.append(tmp_path / "huge.yaml")
    status, out = listed(capsys, *files)
    assert status == 1
    for name, (_, problem) in BAD_FILES.items():
        assert f"{tmp_path / name}: {problem}.\n" in out
    for path, problem in ((tmp_path, "Is a directory"), (files[6], "No such file"), (files[-1], "it has more than")):
        assert f"{path}: not read: {problem}" in out
    assert f"{files[0]}: Ben, lesson.ipynb: 0 turns, " in out
    table = out.split("\n\n")[1].splitlines()
    assert table[0].split() == ["student", "notebook", "file", "exercises", "checks", "problem"]
    assert [line.split("  ")[0] for line in table[1:]] == ["Ben", *[""] * 6, "Anna Berg", ""]
    assert table[-2].split()[-7:] == ["1", "of", "3", "2", "passed,", "1", "failed"]
    assert listed(capsys, files[0], file)[0] == 0


AS_NOBODY = """
import os, sys
from pathlib import Path
from agentmagic.__main__ import main
from agentmagic.run_log import RunLog
RunLog.read(Path("a.yaml"))  # imports what the other user may not read
os.getuid() or os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of files")
def test_a_file_that_may_not_be_read_is_named(tmp_path):
    run_file(tmp_path / "a.yaml").chmod(0o644)
    run_file(tmp_path / "b.yaml", student="Mia").chmod(0)
    tmp_path.chmod(0o755)
    command = [sys.executable, "-c", AS_NOBODY, "handed-in", "a.yaml", "b.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert "b.yaml: not read: Permission denied." in done.stdout
    assert "a.yaml: Ben, " in done.stdout


def test_a_student_who_hands_in_twice_has_two_lines_and_a_note(tmp_path, capsys):
    files = [
        run_file(tmp_path / f"{name}.yaml", student=student)
        for name, student in zip("abc", ["Ben", "Mia", "Ben"], strict=True)
    ]
    status, out = listed(capsys, *files)
    assert (status, out.count("Ben, lesson.ipynb:")) == (0, 2)
    assert out.splitlines()[-1] == f"Ben handed in lesson.ipynb 2 times: {files[0]}, {files[2]}."


@pytest.mark.parametrize("name", ["|=1", "|+1", "|-1", "|@SUM(1)", "x;|=1", "x,| =1", "x||=1", "|＝1", "|＠1"])  # noqa: RUF001
def test_no_name_of_a_student_is_a_formula_in_the_table(tmp_path, capsys, monkeypatch, name):
    before, _, behind = name.rpartition("|")
    exercise = {"exercise": before + behind, "passed": True, "tries": 1}
    file = run_file(tmp_path / "=1+1.yaml", exercise, student=before + behind, notebook=before + behind)
    monkeypatch.chdir(tmp_path)
    status, out = listed(capsys, "--csv", file.name)
    header, line = csv.reader(out.splitlines())
    assert status == 0
    assert line[:3] == ["'=1+1.yaml", *[f"{before}'{behind}"] * 2]
    assert header[-1] == (f"exercise {before}'{behind}" if before else f"exercise {behind}")


def test_the_table_for_a_spreadsheet_has_a_column_for_each_exercise_and_the_bad_files(file, tmp_path, capsys):
    note = tmp_path / "note.yaml"
    note.write_text("note: forgot")
    crowd = ({"exercise": f"made up {number}", "passed": True, "tries": 10**4000} for number in range(200))
    files = [run_file(tmp_path / "crowd.yaml", *crowd), note, file, run_file(tmp_path / "b.yaml", {"exercise": "1"})]
    status, out = listed(capsys, "--csv", *files)
    header, *lines = csv.reader(out.splitlines())
    assert (status, len(lines), tuple(header[: len(COLUMNS)])) == (1, 4, COLUMNS)
    assert len(header) == len(COLUMNS) + MOST_EXERCISES
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    assert [row["student"] for row in rows] == ["Ben", "", "Anna Berg", "Ben"]
    assert [row.get("exercise 1") for row in rows] == ["", "", "passed", "not tried"]
    assert rows[1]["problem"] == "not read: it is not a run that %agent hand-in wrote"
    assert [rows[2][name] for name in ("turns", "calls", "checks passed", "exercises passed")] == ["3", "2", "2", "1"]
    assert rows[2]["written"][:2] == "20"


def test_content_with_right_digests_that_nobody_handed_in_stops_no_list(tmp_path, capsys):
    odd = [
        run_file(tmp_path / "a.yaml", {"turn": 1, "calls": 3}, {"exercise": [1], "tries": "x"}, student=["no name"]),
        run_file(
            tmp_path / "b.yaml",
            {"exercise": "1\x1b[2J\n2\u202e", "tries": True, "passed": "yes"},
            student="A\nB\x1b[2J",
        ),
        run_file(tmp_path / "c.yaml", student="n" * 10**6),
        tmp_path / "d.yaml",
    ]
    head = "---\nagentmagic run: 1\nstudent: !!python/name:os.system x\n"
    odd[-1].write_text(f"{head}digest: {_digest('', head)}\n")
    status, out = listed(capsys, *odd)
    assert status == 1
    assert f"{odd[3]}: damaged: document 1 of 1 is not one that %agent hand-in wrote." in out
    assert "A B\\x1b[2J, lesson.ipynb: " in out
    assert "\x1b" not in out
    assert "no student, lesson.ipynb: 1 turn, 0 calls" in out
    assert max(map(len, out.splitlines())) < 1_000


def test_a_pattern_that_the_shell_left_alone_is_expanded(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        run_file(tmp_path / f"{name}.yaml")
    status, out = listed(capsys, "*.yaml")
    assert (status, out.splitlines()[0][:6], out.splitlines()[1][:6]) == (0, "a.yaml", "b.yaml")
    assert listed(capsys, "*.yml") == (1, "*.yml: not read: No such file or directory.\n")


def test_without_a_name_the_student_is_who_is_logged_in(tmp_path, monkeypatch, capsys):
    session = scripted("Hello.")
    run(session, "Hi.")
    monkeypatch.setenv("JUPYTERHUB_USER", "ben")
    hand_in(tmp_path / "a.yaml", {"agent": session}, "")
    assert main(["handed-in", str(tmp_path / "a.yaml")]) == 0
    assert "a.yaml: ben, no notebook: 1 turn" in capsys.readouterr().out
