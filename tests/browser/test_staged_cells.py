"""Proposed cells in the notebook: kept, changed, discarded, refused, by real clicks and keys."""

import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious, unnamed
from tests.browser.cells import sources

pytestmark = pytest.mark.browser

PROPOSE = """
from agentmagic import NotebookTools
def propose(**arguments):
    return calls("propose_cell", why="Shows how.", **arguments)
def having(*steps):
    global agent
    model = ScriptedModel([*steps, "Done.", "Told.", "More."])
    agent = Session(Agent(model, tools=[NotebookTools()], max_iterations=99))
def fates():
    return [one.fate for one in agent.events if one.type == "proposal_settled"]
"""
INSERT, LATER = "propose(source='kept = 1')", "propose(source='late = 2')"
CHANGE = "propose(source='total = sum(range(10))\\nprint(total)', action='change', cell=4)"
REMOVE = "propose(action='remove', cell=5)"
ASK = "%%agent\nPropose."
CELLS = (ASK, "total = 45\nprint(total)", "old = True", "print(fates())\nprint(agent.turns[-1].prompt.parts[-1])")
"""Cells 3 to 6 of the notebook, the first cell being the setup; the last one tells what the agent knows."""


class Staging:
    """A notebook with proposed cells."""

    def __init__(self, open_notebook, *steps):
        self.notebook = open_notebook(f"{PROPOSE}having({', '.join(steps)})", *CELLS)
        self.page = self.notebook.page
        self.cards = self.page.locator(".agentmagic-staged")
        self.bar = self.page.get_by_role("region", name="Proposed cells", exact=True)
        self.notebook.save()
        self.notebook.run(1)
        self.notebook.run(2)
        expect(self.cards).to_have_count(len(steps))

    def press(self, name, place=0):
        self.cards.nth(place).get_by_role("button", name=name, exact=True).click()

    def press_all(self, name):
        self.bar.get_by_role("button", name=name, exact=True).click()

    def sources(self):
        return sources(self.notebook)

    def undo_to(self, before):
        self.page.locator(".jp-Notebook .jp-Cell .jp-InputPrompt").first.click()
        self.page.keyboard.press("z")
        same = "before => { const { cells } = harness.panel().content.model; return cells.length === before.length"
        same += " && before.every((source, index) => cells.get(index).sharedModel.getSource() === source) }"
        self.page.wait_for_function(same, arg=before)

    def told(self):
        """Ask again, and return what became of the proposals, as the agent knows it."""
        sources = self.sources()
        self.notebook.run(sources.index(ASK))
        return self.notebook.printed(len(sources) - 1)


def test_new_cells_stand_in_the_notebook_in_order_and_join_it_when_they_are_kept(open_notebook):
    staging = Staging(open_notebook, INSERT, LATER)
    before = staging.sources()
    expect(staging.bar).to_contain_text("2 proposals in this notebook")
    expect(staging.cards.first).to_contain_text("Shows how.")
    staging.press("Keep and run")
    expect(staging.cards).to_have_count(1)
    assert staging.sources() == [*before[:3], "kept = 1", *before[3:]]
    staging.cards.first.locator(".cm-content").click()
    staging.page.keyboard.press("End")
    staging.page.keyboard.type("0")
    staging.press("Keep")
    expect(staging.bar).to_be_hidden()
    assert staging.sources() == [*before[:3], "kept = 1", "late = 20", *before[3:]]
    told = staging.told()
    assert "['kept', 'changed']" in told
    assert "the user kept it, and ran it." in told
    assert "late = 20" in told


def test_a_change_is_a_diff_and_a_removal_is_marked_and_all_are_kept_in_one_step_of_undo(open_notebook):
    staging = Staging(open_notebook, CHANGE, REMOVE, INSERT)
    before = staging.sources()
    expect(staging.page.locator(".agentmagic-staged .cm-deletedChunk")).to_contain_text("total = 45")
    expect(staging.page.locator(".agentmagic-staged-removal")).to_have_count(1)
    assert serious(staging.page, ".agentmagic-staged") == []
    assert serious(staging.page, ".agentmagic-staged-bar") == []
    assert unnamed(staging.page) == []
    staging.press_all("Keep all")
    expect(staging.cards).to_have_count(0)
    changed = "total = sum(range(10))\nprint(total)"
    assert staging.sources() == [*before[:3], "kept = 1", changed, before[5]]
    staging.undo_to(before)
    assert "['kept', 'kept', 'kept']" in staging.told()


def test_a_proposal_for_a_cell_that_has_changed_or_is_gone_is_refused_and_says_so(open_notebook):
    other = "propose(source='another', action='change', cell=4)"
    staging = Staging(open_notebook, CHANGE, other, REMOVE)
    staging.press("Keep")
    expect(staging.cards).to_have_count(2)
    staging.press("Keep")
    problem = staging.cards.first.get_by_role("alert")
    expect(problem).to_contain_text("The cell has changed since this was proposed")
    staging.page.locator(".jp-Notebook .jp-Cell").nth(4).locator(".jp-InputPrompt").click()
    staging.page.keyboard.press("d")
    staging.page.keyboard.press("d")
    expect(staging.cards.last.get_by_role("alert")).to_contain_text("The cell is not there any more.")
    staging.press_all("Keep all")
    expect(staging.cards).to_have_count(2)
    staging.press_all("Discard all")
    expect(staging.bar).to_be_hidden()
    assert "['kept', 'discarded', 'discarded']" in staging.told()


def test_staged_cells_are_back_after_a_reload_neither_saved_nor_run_and_are_kept_by_keys_alone(open_notebook, lab):
    staging = Staging(open_notebook, INSERT, REMOVE)
    notebook = staging.notebook
    notebook.run_all()
    notebook.save()
    assert "kept = 1" not in notebook.path.read_text().replace("source='kept = 1'", "").split('"outputs"')[0]
    lab.reload()
    again = lab.open(notebook.path)
    expect(staging.cards).to_have_count(2)
    assert again.page.evaluate("() => harness.panel().content.model.cells.length") == len(CELLS) + 2
    staging.cards.first.get_by_role("button", name="Keep", exact=True).press("Enter")
    expect(staging.cards).to_have_count(1)
    assert staging.sources().count("kept = 1") == 1
    staging.press_all("Discard all")
    expect(staging.cards).to_have_count(0)
