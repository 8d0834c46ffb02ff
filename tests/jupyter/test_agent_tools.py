"""Two agents of a notebook, one of which asks the other: cards, footers, approvals, undo, Stop, replay."""

import pytest

from tests.jupyter.conftest import ACT
from tests.jupyter.harness import BATCH
from tests.turns import AT_ONCE

AGENTS = f"""{ACT}
from agentmagic import NotebookTools, Policy, Rule
def scout(*steps, **more):
    return Agent(ScriptedModel(list(steps)), **more)
def lead(inner, *steps):
    return Agent(ScriptedModel(list(steps)), tools=[inner.as_tool("researcher", "Finds things.")])
ASKS = calls("researcher", prompt="Find the answer.")
"""


@pytest.fixture
def notebook(kernel):
    assert kernel.run(AGENTS).ok
    return kernel


def test_two_agents_of_a_notebook_are_named_on_the_card_and_the_footers(notebook):
    notebook.run('writer = lead(scout(calls("act", what="tea"), "Found.", tools=[act]), ASKS, "Written.")')
    cell, asked = notebook.answer("%%agent writer\nWrite.", "y")
    assert ["researcher: Run act (notebook)?" in question for question in asked] == [True]
    assert cell.ok, cell.error
    assert "Found." in cell.displays[-1]["text/html"]
    shown = [line.partition(" [")[0] for line in cell.text.splitlines()]
    assert "✓ researcher (agent) prompt: Find the answer." in shown
    assert "  │ ✓ act (notebook) what: tea" in shown
    inner, outer = (line for line in shown if "scripted:script" in line)
    assert inner.startswith("  │ researcher · scripted:script")
    assert outer.startswith("writer · scripted:script")
    assert "4 requests" in notebook.run("%agent -s writer cost").stream


def test_what_the_agent_inside_does_to_the_notebook_is_told_and_undone(notebook):
    program = 'calls("run_python", code="total = 2")'
    allowed = 'Policy([Rule("allow", "run_python")])'
    notebook.run(f'inner = scout({program}, "Set.", tools=[NotebookTools()], permission={allowed})')
    cell = notebook.run('total = 1\nwriter = lead(inner, ASKS, "Written.")')
    cell = notebook.run("%%agent writer\nWrite.")
    assert cell.ok, cell.error
    assert cell.text.count("Changed in the notebook:") == 2  # in the card of the agent, and of the whole turn
    assert notebook.value("total") == "2"
    assert "Put back: total." in notebook.run("%agent -s writer undo").stream
    assert notebook.value("total") == "1"


@pytest.mark.parametrize(
    "inner",
    ["Agent(Stalled())", "scout(calls('nap'), 'Never.', tools=[nap])"],
    ids=["a model that stalls", "a function that sleeps"],
)
def test_an_interrupt_ends_both_turns_at_once_and_the_conversation_goes_on(notebook, inner):
    assert notebook.run('@tool\ndef nap() -> str:\n    "Sleep."\n    time.sleep(60)').ok
    assert notebook.run(f"agent = Session(lead({inner}, ASKS, 'second answer'))").ok
    sign = "half an" if "Stalled" in inner else "nap"
    cell = notebook.wait_for_text(notebook.send("%%agent\nWrite."), sign)
    assert notebook.interrupted(cell) < AT_ONCE
    assert not cell.ok
    assert cell.text.count("stopped") >= 2  # in both footers
    assert notebook.value("valid()") == "True"
    assert "second answer" in notebook.run("%%agent\nagain").text


def test_a_cell_with_two_agents_is_played_from_its_recording_alone(notebook, tmp_path):
    recorded = 'writer = lead(scout(calls("act", what="tea"), "Found.", tools=[act]), ASKS, "Written.")'
    notebook.run(f"%agent cassette {tmp_path}/two.cassette.yaml\n%agent record")
    notebook.run(recorded)
    cell, _ = notebook.answer("%%agent writer\nWrite.", "y")
    assert cell.ok, cell.error
    notebook.run("%agent replay\nwriter = lead(scout(tools=[act]))")
    played = notebook.run("%%agent writer\nWrite.", **BATCH)
    assert played.ok, played.error
    for words in ("researcher (agent)", "acted: tea", "Found.", "Written."):
        assert words in played.text
    notebook.run('writer = lead(scout(tools=[act], instructions="Be brief."))')
    failed = notebook.run("%%agent writer\nWrite.", **BATCH)
    assert not failed.ok
    assert "In the turn of the agent researcher" in failed.error + failed.text
    notebook.run("%agent live")
