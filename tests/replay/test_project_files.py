"""The project's files on tape: a replay needs no approval, and names the file that has changed."""

import pytest

from agentmagic import Agent, ReplayMismatch, ScriptedModel, Session
from agentmagic.__main__ import main
from agentmagic.context.rules import commands_here
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.prompt.project_commands import command_prompt
from agentmagic.replay.cassette import Cassette
from tests.projects import SKILL, ask, clone
from tests.turns import notices, texts

__all__ = ["clone"]

READS = {"calls": [{"name": "read_skill", "arguments": {"skill": "stats"}}]}
STEPS = [READS, "Bonjour.", "Encore."]


@pytest.fixture
def recorded(clone, monkeypatch):
    """A clone with a recording of two turns, made by a user who has approved its files; here nobody has."""
    clone.write("AGENTS.md", "Answer in French.\n")
    clone.write("lessons/AGENTS.md", "Use polars.\n")
    clone.skill(run="print(1)")
    clone.write(".agents/commands/review.md", "Review $1.\n")
    clone.approve()
    play(clone, "record", *STEPS)
    monkeypatch.setenv("XDG_DATA_HOME", str(clone.root.parent / "another machine"))
    return clone


def play(clone, mode, *steps):
    """Play two turns, the second one a command; return both results."""
    agent = Agent(ScriptedModel(list(steps)), instructions="Be brief.")
    own = Session(agent, cassette=clone.folder / "x.cassette.yaml", replay=mode)
    first = own.ask("Hello.")
    prompt, value = command_prompt(commands_here()[0], "a.py")
    second = own.begin(prompt, TurnSettings(values=(value,))).wait()
    own.close()
    return first, second


def causes(clone):
    with pytest.raises(ReplayMismatch) as mismatch:
        play(clone, "replay")
    return [(one.cause, one.field) for one in mismatch.value.differences], str(mismatch.value)


@pytest.mark.parametrize("mode", ["replay", "replay-model"])
def test_a_replay_needs_no_approval_and_asks_nothing(recorded, mode):
    first, second = play(recorded, mode)
    assert (first.final_text, second.final_text) == ("Bonjour.", "Encore.")
    assert "Use scipy." in texts(first)[0]
    assert notices(first) + notices(second) == []


def test_a_copy_of_the_tree_without_its_repository_replays_the_same(clone):
    clone.write("AGENTS.md", "Answer in French.\n")
    clone.write("lessons/AGENTS.md", "Use polars.\n")
    clone.approve()

    def play(mode):
        own = Session(Agent(ScriptedModel(["Bonjour."])), cassette=clone.folder / "x.cassette.yaml", replay=mode)
        try:
            return own.ask("Hello.")
        finally:
            own.close()

    play("record")
    (clone.root / ".git").rmdir()
    assert play("replay").final_text == "Bonjour."
    clone.write("AGENTS.md", "Answer in German.\n")
    with pytest.raises(ReplayMismatch, match=r"\.\./AGENTS\.md is not as recorded"):
        play("replay")


def test_a_recording_has_the_text_of_each_file_once_and_no_path_of_a_machine(recorded):
    text = (recorded.folder / "x.cassette.yaml").read_text()
    assert text.count("Answer in French.") == 1
    assert text.count("Use polars.") == 1
    assert str(recorded.root.parent) not in text


CHANGES = {
    "a word of the rules": ("AGENTS.md", "Answer in German.\n", "rules", "../AGENTS.md"),
    "the nearer rules": ("lessons/AGENTS.md", "Use pandas.\n", "rules", "AGENTS.md"),
    "what a skill is for": (
        ".agents/skills/stats/SKILL.md",
        SKILL.format(name="stats", about="How to plot."),
        "rules",
        "../.agents/skills/stats/SKILL.md",
    ),
    "the text of a skill": (
        ".agents/skills/stats/SKILL.md",
        SKILL.format(name="stats", about="How to test means.") + "Use R.\n",
        "rules",
        "../.agents/skills/stats/SKILL.md",
    ),
    "a script of a skill": (".agents/skills/stats/run.py", "print(2)", "rules", "../.agents/skills/stats/SKILL.md"),
    "a command": (".agents/commands/review.md", "Delete $1.\n", "rules", "values./review"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_has_changed_is_named_as_the_cause(recorded, change):
    file, text, cause, field = CHANGES[change]
    recorded.write(file, text)
    found, _ = causes(recorded)
    assert found[0] == (cause, field)


def test_a_change_of_one_word_is_shown_with_both_words(recorded):
    recorded.write("AGENTS.md", "Answer in German.\n")
    found, words = causes(recorded)
    assert len(found) == 1
    assert "AGENTS.md is not as recorded" in words
    assert "(cause: rules). Recorded: 'Answer in French.'; now: 'Answer in German.'." in words


def test_a_file_that_is_gone_is_a_cause_and_white_space_is_none(recorded):
    recorded.write("lessons/AGENTS.md", "Use polars.  \r\n\r\n")
    play(recorded, "replay")
    (recorded.root / "AGENTS.md").unlink()
    assert causes(recorded)[0] == [("rules", "../AGENTS.md")]


def test_files_that_a_recording_did_not_use_do_not_matter_to_its_replay(clone):
    clone.write(".agents/commands/review.md", "Review $1.\n")
    clone.approve()
    play(clone, "record", "Hello.", "Reviewed.")
    before = (clone.folder / "x.cassette.yaml").read_bytes()
    assert b"project" not in before
    clone.write("AGENTS.md", "Answer in French.\n")
    clone.approve()
    assert play(clone, "replay")[0].final_text == "Hello."
    assert (clone.folder / "x.cassette.yaml").read_bytes() == before


def test_a_recording_without_approval_is_played_where_the_skills_are_approved(clone):
    clone.skill()
    path = clone.folder / "x.cassette.yaml"
    Session(Agent(ScriptedModel(["Hello."])), cassette=path, replay="record").ask("Hello.")
    clone.approve()
    again = Session(Agent(ScriptedModel([])), cassette=path, replay="replay").ask("Hello.")
    assert (again.final_text, notices(again)) == ("Hello.", [])


def test_auto_uses_what_is_approved_here_and_goes_on_live_if_that_is_less(recorded):
    agent = Agent(ScriptedModel(["Hello."]), instructions="Be brief.")
    own = Session(agent, cassette=recorded.folder / "x.cassette.yaml", replay="auto")
    first = own.ask("Hello.")
    assert first.final_text == "Hello."
    assert ("rules", "../AGENTS.md") in [(one.cause, one.field) for one in own.deck.verdicts[0].differences]


def test_an_answer_on_tape_approves_no_file(clone):
    clone.write("AGENTS.md", "Answer in French.\n")
    agent = Agent(ScriptedModel(["Hello.", "Hello."]))
    path = clone.folder / "x.cassette.yaml"
    ask(Session(agent, cassette=path, replay="record"), "no")
    assert "question" not in path.read_text()
    Cassette.at(path)
    again = Session(Agent(ScriptedModel(["Hello."])), cassette=path, replay="replay-tools").ask("Hello.")
    assert "is not used" in notices(again)[0]


def test_two_recordings_are_compared_file_by_file(recorded, tmp_path, capsys):
    old = recorded.folder / "x.cassette.yaml"
    new = old.with_name("y.cassette.yaml")
    old.rename(new)
    recorded.write("AGENTS.md", "Answer in German.\n")
    recorded.approve()
    play(recorded, "record", *STEPS)
    assert main(["cassette", "diff", str(new), str(old)]) == 1
    assert "AGENTS.md (rules): 'Answer in French.' became 'Answer in German.'" in capsys.readouterr().out


def test_an_agent_that_is_asked_inside_is_told_the_same_files_in_a_replay(clone, monkeypatch):
    clone.write("AGENTS.md", "Answer in French.\n")
    clone.skill()
    clone.approve()

    def play(mode):
        scout = Agent(ScriptedModel([READS, "Trouvé."])).as_tool("scout", "Finds things.")
        asks = {"calls": [{"name": "scout", "arguments": {"prompt": "Look."}}]}
        agent = Agent(ScriptedModel([asks, "Fait."]), tools=[scout])
        own = Session(agent, cassette=clone.folder / "x.cassette.yaml", replay=mode)
        try:
            return own.ask("Look.")
        finally:
            own.close()

    play("record")
    monkeypatch.setenv("XDG_DATA_HOME", str(clone.root.parent / "another machine"))
    assert texts(play("replay")) == ["Trouvé."]
    clone.write("AGENTS.md", "Answer in German.\n")
    with pytest.raises(ReplayMismatch, match=r"AGENTS\.md is not as recorded"):
        play("replay")
