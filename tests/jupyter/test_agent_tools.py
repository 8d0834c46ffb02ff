"""Two agents of a notebook, one of which asks the other: cards, footers, approvals, undo, Stop, replay."""

import pytest

from tests.jupyter.conftest import ACT

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
