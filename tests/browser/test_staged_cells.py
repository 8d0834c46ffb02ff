"""Proposed cells in the notebook: kept, changed, discarded, refused; with real clicks and keys."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious
from tests.browser.cells import EVERYWHERE

pytestmark = pytest.mark.browser

PLAY = "from agentmagic import NotebookTools\ndef propose(*steps): global agent; agent = Session(Agent(ScriptedModel([*steps, 'Done.', 'Told.']), tools=[NotebookTools()]))\n"
INSERT = "calls('propose_cell', source='kept = 1', why='Sets a number.')"


def proposing(*steps):
    return f"{PLAY}propose({', '.join(steps)})"


def cards(notebook):
    return notebook.page.locator(".agentmagic-staged")


def press(place, name):
    place.get_by_role("button", name=name, exact=True).click()


def sources(notebook):
    return notebook.page.evaluate("() => [...harness.panel().content.model.cells].map(cell => cell.sharedModel.getSource())")


@EVERYWHERE
def test_a_new_cell_stands_below_its_cell_and_joins_the_notebook_when_it_is_kept(open_notebook, tmp_path):
    notebook = open_notebook(proposing(INSERT, INSERT.replace("kept", "late")), "%%agent\nPropose.", "print('last')")
    notebook.run(1)
    notebook.run(2)
    expect(cards(notebook)).to_have_count(2)
    before = sources(notebook)
    press(cards(notebook).first, "Keep and run")
    expect(cards(notebook)).to_have_count(1)
    assert sources(notebook) == [*before[:3], "kept = 1", *before[3:]]
    press(cards(notebook).first, "Discard")
    expect(cards(notebook)).to_have_count(0)
