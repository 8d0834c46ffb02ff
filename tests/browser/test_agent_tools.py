"""The card of an agent tool in a cell: it opens to the agent's turn, in which the person answers."""

import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious
from tests.browser.cells import Cell

pytestmark = pytest.mark.browser

AGENTS = """
scout = Agent(ScriptedModel([calls('order', what='tea'), 'Tea is ordered.']), tools=[order])
steps = [calls('researcher', prompt='Order something.'), 'It comes.']
writer = Session(Agent(ScriptedModel(steps), tools=[scout.as_tool('researcher', 'Orders things.')]))
"""


def test_the_card_of_an_agent_opens_to_its_turn_and_its_calls_are_approved_there(open_notebook):
    notebook = open_notebook(AGENTS, "%%agent writer\nGo.", run=1)
    notebook.start(2)
    cell = Cell(notebook, 2)
    outer, inside = cell.root.locator(".am-log > .am-card"), cell.root.locator(".am-inside")
    inside.locator(".am-approval:focus:not(.am-fresh)").wait_for()
    expect(inside.locator(".am-client")).to_have_text("researcher")
    cell.press("y")
    cell.finish("It comes.")
    expect(inside.locator(".am-text")).to_have_text("Tea is ordered.")
    expect(inside.locator(".am-figures")).to_contain_text("researcher")
    expect(cell.footers.last).to_contain_text("writer")
    assert inside.get_attribute("aria-label") == "What researcher does"
    outer.locator("summary").first.click()
    expect(inside).to_be_hidden()
    outer.locator("summary").first.press("Enter")
    expect(inside.get_by_text("Tea is ordered.")).to_be_visible()
    cell.keeps("researcher (agent)", "ordered tea", "Tea is ordered.", "It comes.")


def test_the_card_of_an_agent_that_waits_is_free_of_what_axe_finds(open_notebook):
    notebook = open_notebook(AGENTS, "%%agent writer\nGo.", run=1)
    notebook.start(2)
    cell = Cell(notebook, 2)
    cell.button("Approve").wait_for()
    assert serious(cell.page, "agentmagic-view") == []
    cell.click("Approve")
    cell.finish("It comes.")
    assert serious(cell.page, "agentmagic-view") == []
