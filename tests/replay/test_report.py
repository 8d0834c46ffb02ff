"""`python -m agentmagic cassette`: what is printed of a cassette, and what is found in it."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentmagic import Agent, Session, register_secret
from agentmagic.__main__ import main
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.replay import report
from tests.replay.changes import DOCSTRING, NOTEBOOK, played
from tests.turns import calls

ROOT = Path(__file__).parent.parent.parent
SECRET = "hunter2hunter2"


def recorded(path, notebook):
    played(notebook, path, "record")
    return path


@pytest.fixture
def cassette(tmp_path):
    return recorded(tmp_path / "a.cassette.yaml", NOTEBOOK)


def told(capsys, *arguments):
    """The status and the output of a command."""
    status = main(["cassette", *map(str, arguments)])
    return status, capsys.readouterr().out


def test_show_prints_prompts_calls_results_and_answers(cassette, capsys):
    status, out = told(capsys, "show", cassette)
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("1, scripted:one: What of ")
    assert lines[1].strip() == "1. tool call: weather({'city': 'Oslo'})"
    assert lines[2].strip().startswith("weather returned: ")
    assert lines[3].strip() == "2. text: All is well in Oslo."


def test_a_whole_cassette_is_verified_with_advice_for_git_and_an_edited_or_cut_one_is_found(cassette, capsys):
    status, out = told(capsys, "verify", cassette)
    assert status == 0
    assert "a.cassette.yaml is whole: " in out
    assert "*.cassette.yaml text eol=lf -merge" in out
    text = cassette.read_text(encoding="utf-8")
    edited, cut = text.replace("Answer in one sentence.", "Answer in two words."), text[: text.rindex("---\nend")]
    for damaged, words in ((edited, "request 1 is not what was sent"), (cut, "the recording breaks off")):
        cassette.write_text(damaged, encoding="utf-8")
        status, out = told(capsys, "verify", cassette)
        assert status == 1
        assert words in out
        assert out.startswith(("Turn 1, 'What of ", "Turn 3, 'What is noted"))


def test_diff_names_the_cause_of_each_difference_and_the_turns_that_one_cassette_lacks(cassette, tmp_path, capsys):
    other = recorded(tmp_path / "b.cassette.yaml", DOCSTRING.notebook)
    status, out = told(capsys, "diff", cassette, other)
    assert status == 1
    assert f"request 1: {DOCSTRING.field} (tool schema): " in out
    assert told(capsys, "diff", cassette, cassette) == (0, "")
    fewer = recorded(tmp_path / "c.cassette.yaml", replace(NOTEBOOK, cells=NOTEBOOK.cells[:-1]))
    assert told(capsys, "diff", cassette, fewer)[1].startswith("- What is noted")


def test_scrub_blanks_a_secret_everywhere_and_the_cassette_still_plays(tmp_path, capsys):
    def lookup(key: str) -> str:
        """Look up."""
        return f"found {key}"

    def session(mode):
        steps = [calls(("lookup", {"key": SECRET})), f"The key is {SECRET}, as asked."]
        agent = Agent(ScriptedModel(steps), tools=[lookup], instructions=f"Use {SECRET}.")
        return Session(agent, cassette=path, replay=mode)

    path = tmp_path / "a.cassette.yaml"
    session("record").ask(f"Try {SECRET}")
    assert SECRET in path.read_text(encoding="utf-8")
    register_secret(SECRET)
    status, out = told(capsys, "verify", path)
    assert status == 1
    assert "it holds a secret. Run: python -m agentmagic cassette scrub" in out
    status, out = told(capsys, "scrub", path)
    assert (status, out) == (0, "Secrets were blanked in 5 documents of a.cassette.yaml.\n")
    assert SECRET not in path.read_text(encoding="utf-8")
    assert told(capsys, "verify", path)[0] == 0
    replayed = session("replay")
    assert replayed.ask(f"Try {SECRET}").final_text == "The key is [redacted], as asked."
    assert {one.cause for one in replayed.deck.verdicts} == {"same"}


def test_every_shipped_cassette_is_whole_and_one_that_is_missing_is_named(tmp_path, capsys):
    for file in (ROOT / "notebooks").glob("*.cassette.yaml"):
        assert told(capsys, "verify", file)[0] == 0, file
    assert main(["cassette", "show", str(tmp_path / "no.cassette.yaml")]) == 2
    assert "There is no cassette" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("at 2026-01-02 10:11:12", "at 2026-01-02 10:11:13", "a date or time"),
        ("took 1767348672.25", "took 1767348673.5", "a date or time"),
        ("in /tmp/abc1/x.csv", "in /tmp/xyz2/x.csv", "a temporary path"),
        ("{'a', 'b'}", "{'b', 'a'}", "the order of a set"),
        ("a 1\nb 2", "b 2\na 1", "rows without an order"),
        ("0.482 of 7", "0.913 of 7", "a random number"),
        ("sunny", "rainy", "another value"),
    ],
)
def test_what_differs_between_two_runs_has_a_cause(before, after, kind):
    assert report.why_different(before, after) == kind


def test_the_line_that_makes_a_value_and_a_tool_that_returns_other_than_recorded_are_found():
    cells = ["import random\n# random", "def roll():\n    return random.random()", "roll()"]
    assert report.source_of_change("a random number", cells) == (2, 2, "return random.random()")
    assert report.source_of_change("another value", cells) is None
    where = "Cell 'What day is it?', step 2: results.today is not as recorded (cause: tool result)."
    line = f"{where} Recorded: '2026-01-01'; now: '2026-02-02'. The recorded answers go on."
    assert list(report.changes(f"x\n{line}", f"x\n{line}")) == [(2, "'2026-01-01'", "'2026-02-02'")]


CELLS = """%load_ext agentmagic
import random
from agentmagic import Agent, Session, tool
from agentmagic.providers.scripted import ScriptedModel
---
@tool
def roll() -> float:
    "Roll."
    return random.random()

agent = Session(Agent(ScriptedModel([{"calls": [{"name": "roll", "arguments": {}}]}, "Rolled."])))
%agent cassette one.cassette.yaml
---
%%agent
Roll the dice.
---
print({"apple", "birch", "cedar", "delta", "ember", "fjord", "grove"})
---
6 * 7"""


def notebook_of(path, *cells):
    nbformat = pytest.importorskip("nbformat")
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path)
    return path


@pytest.mark.slow
def test_the_report_names_what_is_not_the_same_in_every_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    place = notebook_of(tmp_path / "one.ipynb", *CELLS.split("\n---\n"))
    monkeypatch.setenv("AGENTMAGIC_REPLAY", "record")
    assert main(["run", str(place), "-o", str(tmp_path / "out.ipynb")]) == 0
    monkeypatch.delenv("AGENTMAGIC_REPLAY")
    capsys.readouterr()
    status, out = told(capsys, "report", place, "--yes")
    assert status == 1
    assert "Cell 3, line" in out
    assert "a random number" in out
    assert "Cell 2, line 4 may make it: return random.random()" in out
    assert "Cell 4, line 1 of its output: the order of a set." in out
    assert "Cell 5" not in out


@pytest.mark.slow
def test_a_report_asks_before_the_tools_run(tmp_path, monkeypatch, capsys):
    place = notebook_of(tmp_path / "one.ipynb", "open('ran', 'w')")
    monkeypatch.setattr("builtins.input", lambda _: "")
    assert told(capsys, "report", place)[0] == 1
    assert not (tmp_path / "ran").exists()
