"""The run that is handed in: what is in it, secrets, damage."""

import threading

import pytest

from agentmagic.__main__ import main
from agentmagic.errors import UsageError
from agentmagic.run_log import RunLog, hand_in
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
    assert log.damage == ""
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
    assert where in RunLog.read(file).damage
    assert main(["handed-in", str(file)]) == 1
    assert f"{file}: damaged: " in capsys.readouterr().out


def test_another_file_is_no_run_and_nothing_is_handed_in_before_the_first_turn(tmp_path, capsys):
    other = tmp_path / "x.yaml"
    other.write_text("--- hello")
    assert main(["handed-in", str(other)]) == 2
    assert "is no run that was handed in" in capsys.readouterr().err
    with pytest.raises(UsageError, match="There are no turns to hand in"):
        hand_in(tmp_path / "y.yaml", {"agent": scripted("x")}, "")


def test_without_a_name_the_student_is_who_is_logged_in(tmp_path, monkeypatch, capsys):
    session = scripted("Hello.")
    run(session, "Hi.")
    monkeypatch.setenv("JUPYTERHUB_USER", "ben")
    hand_in(tmp_path / "a.yaml", {"agent": session}, "")
    assert main(["handed-in", str(tmp_path / "a.yaml")]) == 0
    assert "a.yaml: ben, no notebook: 1 turn" in capsys.readouterr().out
