"""Cassettes of older formats: they are replayed as they stand, and written in the present format."""

import re
import shutil
from pathlib import Path
from random import Random

import pytest

from agentmagic import Agent, ReplayMismatch, Session, tool
from agentmagic.__main__ import main
from agentmagic.errors import CassetteError
from agentmagic.host import begin_cell
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.replay import report
from agentmagic.replay.cassette import HEAD, Cassette
from tests.replay.generated import SCENE, damaged, play
from tests.replay.test_agent_tools import Shop, frozen
from tests.replay.test_replay import PROMPT, Counting, NoModel

TAPES = Path(__file__).parent / "old_tapes"


@tool
def celsius(fahrenheit: float) -> float:
    """Convert degrees Fahrenheit to degrees Celsius.

    Example: How warm is 50 degrees Fahrenheit in Celsius? -> {"fahrenheit": 50}
    """
    raise AssertionError(fahrenheit)


def asked(path, agent, *prompts, mode="replay"):
    """The events of the turns, without the ids that are made anew."""
    begin_cell()
    session = Session(agent, cassette=path, replay=mode)
    results = [session.ask(prompt) for prompt in prompts]
    session.close()
    return re.sub(r"[0-9a-f]{32}", "", repr([result.events for result in results]))


def stopped(path):
    begin_cell()
    failed = asked(path, Agent(NoModel()), "Say it.")
    session = Session(Agent(NoModel("testing:stalled")), cassette=path, replay="replay")
    session.deck.name = "session 2"
    result = session.start("Say more.").wait()
    assert (result.stop_reason, result.final_text) == ("cancelled", "Half an ans")
    return failed


LESSON = "How many degrees Celsius are 86 degrees Fahrenheit?"
PLAYS = {
    "first": lambda path: asked(path, Agent(NoModel(), tools=[Counting().tool]), PROMPT),
    "lesson": lambda path: asked(path, Agent(NoModel("local:qwen2.5-coder-1.5b"), tools=[celsius]), LESSON),
    "scene": lambda path: repr(play(SCENE, path, "replay")),
    "stopped": stopped,
    "agents": lambda path: asked(path, frozen(Shop()), "Go."),
}
"""How each cassette is replayed: one of format 1, and four of format 2 as they were written until version 3."""


@pytest.fixture(params=PLAYS)
def name(request):
    return request.param


@pytest.fixture
def path(tmp_path, name):
    return Path(shutil.copy(TAPES / f"{name}.cassette.yaml", tmp_path))


def test_an_old_cassette_is_replayed_as_it_stands_and_the_same_when_it_is_upgraded(path, name, capsys):
    old = path.read_bytes()
    shown = list(report.describe(Cassette.at(path)))
    played = PLAYS[name](path)
    assert "ReplayMismatch" not in played
    assert path.read_bytes() == old
    assert not list(report.problems(Cassette.at(path)))
    for words in ("was written in", "has"):
        assert main(["cassette", "upgrade", str(path)]) == 0
        assert capsys.readouterr().out == f"{path.name} {words} the present format.\n"
    new = path.read_text(encoding="utf-8")
    assert new.startswith(HEAD)
    assert not re.search(r"^\s*(digest|ms|chunks|call: get|sources: same)", new, re.MULTILINE)
    assert not list(report.problems(Cassette.at(path)))
    assert list(report.describe(Cassette.at(path))) == shown
    assert PLAYS[name](path) == played


def test_what_is_recorded_on_an_old_cassette_makes_it_a_new_one(path, name):
    turns = list(report.describe(Cassette.at(path)))
    asked(path, Agent(ScriptedModel(["Hello."])), "Hi.", mode="record")
    assert path.read_text(encoding="utf-8").startswith(HEAD)
    shown = [line.lstrip("0123456789") for line in report.describe(Cassette.at(path))]
    assert {line.lstrip("0123456789") for line in turns} < set(shown)
    assert "Hello." in asked(path, Agent(NoModel()), "Hi.")


@pytest.mark.parametrize("name", ["scene"])
def test_what_was_edited_on_an_old_cassette_is_still_named_when_it_is_upgraded(path, capsys):
    text = path.read_text(encoding="utf-8")
    text = text.replace("text: removed\n", "text: kept\n").replace("answer: It is painted.", "answer: It is blue.")
    path.write_text(text, encoding="utf-8")
    problems = list(report.problems(Cassette.at(path)))
    assert ["results.remove" in problems[0], "answer was edited to It is blue." in problems[1]] == [True, True]
    assert main(["cassette", "upgrade", str(path)]) == 0
    assert list(report.problems(Cassette.at(path))) == problems


@pytest.mark.parametrize("name", ["lesson"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("- call: ", "- cal: "), "'answer' is missing"),
        (lambda text: text.replace("\nend: [15.289", "\nend: [x"), "'seconds' is missing"),
        (lambda text: text.replace("---\nend: ", "---\nstop: true\n---\nend: "), "lacks a document, or has one more"),
        (lambda text: text.replace("result: ", "result: ["), "cannot be read as YAML"),
        (lambda text: text[: text.index("ms: 182")], "request 1|breaks off"),
    ],
)
def test_a_damaged_old_cassette_is_refused(path, change, words):
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises((CassetteError, ReplayMismatch), match=words):
        PLAYS["lesson"](path)


@pytest.mark.parametrize("name", ["scene"])
def test_a_damaged_old_cassette_is_played_as_it_was_or_what_is_wrong_is_named_and_the_file_stays(path):
    random = Random(7)  # noqa: S311  (a seed is the point)
    expected, text, damaged_path = play(SCENE, path, "replay"), path.read_text(encoding="utf-8"), path.with_name("x")
    for number in range(40):
        about, data = damaged(random, number, text)
        damaged_path.write_bytes(data)
        cells = play(SCENE, damaged_path, "replay")
        told = [words for cell in cells for words in cell.told]
        assert told or [cell.seen for cell in cells] == [cell.seen for cell in expected], about
        assert not [words for words in told if words.startswith("AgentMagicError")], (about, told)
        assert damaged_path.read_bytes() == data, about
