"""Class settings: what a notebook cannot widen, and what is said of it."""

import asyncio
import re
import sys
from dataclasses import replace

import pytest

from agentmagic import Agent, Policy, Rule, Session, tool
from agentmagic.approval.approvals import Gate
from agentmagic.classroom import VARIABLE, class_settings
from agentmagic.errors import UsageError
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.messages import ToolCall, ToolDef
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import run
from agentmagic.tools.base import Tool
from tests.turns import calls, scripted, texts


@pytest.fixture
def bounds(tmp_path, monkeypatch):
    """Write the settings of a class into the project of the current folder."""

    def write(*lines: str) -> None:
        words = "\n".join(["[tool.agentmagic.class]", *lines])
        (tmp_path / "pyproject.toml").write_text(words, encoding="utf-8")
        class_settings.cache_clear()

    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    yield write
    class_settings.cache_clear()


@tool(ask=True)
def delete(name: str) -> str:
    """Delete a file."""
    return f"deleted {name}"


@tool
async def pause(forever: bool = False) -> str:
    """Wait."""
    if forever:
        await asyncio.Event().wait()
    return "waited"


DELETES = calls(("delete", {"name": "a"}))


def refused(session, **options):
    with pytest.raises(UsageError) as caught:
        run(session, "hello", **options)
    return str(caught.value)


def test_a_model_that_is_not_of_the_class_is_refused_and_the_setting_named(bounds, tmp_path, monkeypatch):
    bounds('models = ["local:*"]')
    said = refused(scripted("hi"))
    assert said.startswith("The model scripted:script is not among those of this class: models = ['local:*'] in ")
    assert str(tmp_path / "pyproject.toml") in said
    bounds('models = ["scripted:*"]')
    assert run(scripted("hi"), "hello").final_text == "hi"
    monkeypatch.setenv("AGENTMAGIC_MODEL", "openai:gpt-5.4")
    assert "The model openai:gpt-5.4 is not among" in refused(scripted("hi"))


def test_a_wider_cap_is_refused_leaves_no_notice_behind_and_a_narrower_one_holds(bounds):
    bounds("max-tokens = 8", "max-cost = 2")
    session = scripted("hi", max_cost=2.5)
    with pytest.raises(UsageError) as caught:
        session.begin("hello", TurnSettings(notices=["Look at this."]))
    assert str(caught.value) == (
        f"max_cost is 2.5, which is more than this class allows: max-cost = 2 in {class_settings().file}."
    )
    assert session.take_notices() == ()
    assert "max_tokens is 9, which is more than this class allows: max-tokens = 8" in refused(scripted(max_tokens=9))
    assert run(scripted("hi", max_tokens=4), "hello").final_text == "hi"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"max_iterations": 3}, "max_iterations is 3, which is more than this class allows: max-iterations = 2 in "),
        ({"timeout": None}, "timeout is inf, which is more than this class allows: timeout = 30 in "),
    ],
)
def test_a_wider_limit_of_steps_or_seconds_is_refused(bounds, asked, words):
    bounds("max-iterations = 2", "timeout = 30")
    assert words in refused(scripted("hi", **asked))
    session = scripted("hi")
    assert words in refused(session, agent=replace(session.agent, **asked))
    assert run(scripted("hi", max_iterations=1, timeout=9), "hello").final_text == "hi"


def test_the_usual_limits_of_a_turn_give_way_to_those_of_the_class_and_are_never_widened(bounds):
    bounds("max-iterations = 99")
    assert run(scripted(*[calls("pause")] * 11, "done", tools=[pause]), "go").iterations_used == 10
    bounds("max-iterations = 2", "timeout = 30")
    result = run(scripted(*[calls("pause")] * 3, "done", tools=[pause]), "go")
    assert (result.stop_reason, result.iterations_used) == ("limit", 2)
    bounds("timeout = 0.2")
    result = run(scripted(calls(("pause", {"forever": True})), "done", tools=[pause]), "go")
    assert "The turn took longer than 0.2 s" in result.error


def test_a_cap_holds_that_the_notebook_does_not_name_and_that_of_a_session_counts_all_turns(bounds):
    bounds("max-tokens = 8")
    result = run(scripted(DELETES, "done", tools=[delete], permission="allow"), "a prompt of several words")
    assert result.stop_reason == "budget"
    bounds("session-max-tokens = 4")
    session = scripted("one two three", "two")
    run(session, "hello there")
    assert run(session, "again").stop_reason == "budget"
    assert "max_tokens is 5" in refused(Session(Agent(ScriptedModel(["hi"])), max_tokens=5))


@pytest.mark.parametrize("permission", ["allow", Policy([Rule("allow", "delete")]), lambda _call, _tool: "allow"])
def test_nothing_of_a_notebook_lets_a_tool_run_that_the_class_denies_and_the_others_run_as_ever(bounds, permission):
    bounds('permission = "deny"')
    asked = calls(("delete", {"name": "a"}), "pause")
    result = run(scripted(asked, "done", tools=[delete, pause], permission=permission), "go")
    assert texts(result) == ['delete was not run: the settings of this class have permission = "deny".', "waited"]


def test_what_the_class_has_asked_is_asked_whatever_the_notebook_says(bounds, monkeypatch):
    bounds('permission = "ask"')
    monkeypatch.setenv("AGENTMAGIC_PERMISSION", "allow")
    result = run(scripted(DELETES, "done", tools=[delete], permission="allow"), "go")
    assert "deleted" not in texts(result)[0]


@pytest.mark.parametrize(("line", "verdict"), [("max-cost = 1", "ask"), ('code = "deny"', "deny")])
def test_no_rule_of_a_notebook_lets_code_run_unasked_in_a_class(bounds, line, verdict):
    bounds(line)
    gate = Gate(Policy([Rule("allow", "python")]))
    assert gate.decide(ToolDef("python", ""), {}, asks=True, code=True).verdict == verdict


def test_a_level_does_not_widen_what_the_class_has_asked(bounds):
    bounds('permission = "ask"')
    python = Tool(ToolDef("python", ""), None, ask=True, code=True, effects=lambda _arguments: ("It only reads.",))
    trusted = Tool(ToolDef("fetch", "", server="web"), None, ask=True, trusted=True)
    gate = Gate(Policy(level="trusted"))
    for one in (python, trusted):
        decide = asyncio.run(gate._decider(one, ToolCall("1", one.name, {})))
        assert decide().verdict == "ask"


def test_a_server_that_is_not_of_the_class_is_not_started(bounds):
    bounds('servers = ["https://example.org/*"]')
    session = scripted("hi", mcp={"clock": {"command": sys.executable, "args": ["-c", "1"]}})
    said = " ".join(event.text for event in run(session, "hello").events if event.type == "notice")
    session.close()
    assert "The MCP server 'clock' was not started: it is not among those of this class: servers = [" in said


def test_the_one_mode_of_replay_holds(bounds, tmp_path, monkeypatch):
    bounds('replay = "replay"')
    path = tmp_path / "x.cassette.yaml"
    with pytest.raises(UsageError, match="The mode record is not that of this class: replay = 'replay' in "):
        Session(Agent(ScriptedModel(["hi"])), cassette=path, replay="record")
    assert "The mode live is not that of this class" in refused(scripted("hi"), replay="live")
    assert "The mode replay needs a cassette" in refused(scripted("hi"))
    monkeypatch.setenv("AGENTMAGIC_REPLAY", "live")
    with pytest.raises(UsageError, match="The mode live is not that of this class"):
        run(scripted("hi"), "hello")


def test_a_file_that_the_variable_names_holds_for_the_whole_process(bounds, tmp_path, monkeypatch):
    file = tmp_path / "class.toml"
    file.write_text('[tool.agentmagic.class]\nmodels = ["local:*"]\n')
    monkeypatch.setenv(VARIABLE, str(file))
    assert "is not among" in refused(scripted("hi"))
    monkeypatch.delenv(VARIABLE)
    monkeypatch.chdir("/")
    assert "is not among" in refused(scripted("hi"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('modles = ["x"]', "'modles' is no setting of a class"),
        ('models = "x"', 'Write a list of patterns, as in ["local:*"].'),
        ("max-cost = 0", "Write a number above 0."),
        ("max-iterations = 2.5", "Write a whole number above 0."),
        ("max-iterations = 0", "Write a whole number above 0."),
        ('code = "allow"', 'Write "ask" or "deny".'),
    ],
)
def test_a_setting_that_cannot_be_is_said_and_not_ignored(bounds, line, words):
    bounds(line)
    with pytest.raises(UsageError, match=re.escape(words)):
        scripted("hi")
