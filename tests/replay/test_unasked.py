"""Recorded turns that were not asked for are told at the end: of a session, a script, and the kernel of a notebook."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentmagic.errors import ReplayMismatch
from agentmagic.jupyter.magics import formatting
from agentmagic.replay import unasked
from tests.replay.test_replay import begun

ROOT = Path(__file__).parent.parent.parent
PROMPTS = ("First?", "Second?", "Third?")
SCRIPT = """
import sys
from agentmagic import Agent, ScriptedModel, Session

path, *prompts = sys.argv[1:]
session = Session(Agent(ScriptedModel([])), cassette=path, replay="replay")
for prompt in prompts:
    session.ask(prompt)
"""


@pytest.fixture
def path(tmp_path):
    """A cassette with three turns."""
    session = begun(path := tmp_path / "x.cassette.yaml", "record", *PROMPTS)
    for prompt in PROMPTS:
        session.ask(prompt)
    session.close()
    return path


def asked(path, *prompts, mode="replay", model=()):
    session = begun(path, mode, *model)
    for prompt in prompts:
        session.ask(prompt)
    session.close()
    return formatting.verdicts({"agent": session}).text


def test_the_report_names_the_turns_that_were_not_asked_for(path):
    assert "not asked" not in asked(path, *PROMPTS[:2], mode="live", model=PROMPTS)
    assert asked(path, *PROMPTS[:2]).splitlines()[-1].split() == ["Third?", "not", "asked"]
    assert "x.cassette.yaml: 1 recorded turn not asked for: 'Third?'. Restore" in unasked.summary(path)
    assert "not asked" not in asked(path, *PROMPTS)
    assert not unasked.summary(path)


def test_a_turn_that_is_recorded_anew_after_others_were_played_was_asked_for(path):
    session = begun(path, "replay", "Deux.", "Trois.")
    session.ask(PROMPTS[0])
    session.deck.choose("record")
    for prompt in ("Second, please?", "Third, please?"):
        session.ask(prompt)
    session.close()
    assert not unasked.summary(path)


def test_after_a_turn_that_was_not_as_recorded_nothing_is_told_to_other_processes(path, tmp_path, monkeypatch):
    (folder := tmp_path / "unasked").mkdir()
    monkeypatch.setenv(unasked.UNASKED, str(folder))
    monkeypatch.setattr("os.getpid", lambda: 1)
    session = begun(path, "replay")
    session.ask(PROMPTS[0])
    with pytest.raises(ReplayMismatch):
        session.ask("Something else?")
    kept = (folder / "1.txt").read_text(encoding="utf-8")
    session.ask(PROMPTS[1])
    monkeypatch.setattr("os.getpid", lambda: 2)
    assert (kept, [line.partition(". ")[0] for line in unasked.collect(folder)]) == (
        "",
        ["x.cassette.yaml: 1 recorded turn not asked for: 'Third?'"],
    )
    assert not list(folder.iterdir())


def test_a_script_tells_on_stderr_when_it_ends(path):
    command = [sys.executable, "-c", SCRIPT, str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    left, whole = (
        subprocess.run([*command, *prompts], env=environment, capture_output=True, text=True, timeout=60, check=True)
        for prompts in (PROMPTS[:1], PROMPTS)
    )
    assert left.stderr.startswith("x.cassette.yaml: 2 recorded turns not asked for: 'Second?', 'Third?'. ")
    assert whole.stderr == ""
