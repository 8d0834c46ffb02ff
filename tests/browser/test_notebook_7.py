"""A walk through Notebook 7, whose page has neither tabs nor a status bar: what the extension does is there, too."""

import pytest
from playwright.sync_api import expect

from tests.browser.cells import NOTEBOOK_7, Cell, Seen, editor, see_mark, sources

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("closed_dock")]

BEGIN = r"""
from agentmagic import NotebookTools
code = "Run this:\n\n```python\nx = 1\n```\n"
proposed = calls("propose_cell", why="Shows how.", source="y = 2")
model = ScriptedModel([code, calls("order", what="tea"), "Well then.", proposed, "Done."])
agent = Session(Agent(model, tools=[NotebookTools(), order]))
"""


@NOTEBOOK_7
def test_a_person_inserts_code_approves_by_keys_asks_beside_the_notebook_and_keeps_a_cell(open_notebook):
    notebook = open_notebook(BEGIN, "%%agent\nHow?", "# last", "%%agent\ntea", run=2)
    page, keys = notebook.page, notebook.page.keyboard
    code = Cell(notebook, 2)
    editor(notebook, 3).click()
    code.click("Insert code at the cursor", "Insert code as a new cell")
    expect(editor(notebook, 3)).to_be_focused()
    assert "x = 1" in sources(notebook)[3:5]

    tea = Cell(notebook, 5)
    notebook.start(5)
    tea.button("Approve").wait_for()
    see_mark(notebook)
    page.wait_for_function("() => document.title.startsWith('(!) ')")
    editor(notebook, 0).click()
    keys.press("Alt+Shift+G")
    expect(tea.root.get_by_role("group", name="Approval of order")).to_be_focused()
    keys.press("y")
    tea.finish("Well then.")

    keys.press("Alt+Shift+P")
    dock = Seen(notebook, page.locator(".agentmagic-dock"))
    dock.message.wait_for()
    expect(dock.message).to_be_focused()
    keys.type("Propose.")
    keys.press("Enter")
    dock.turns(3)
    page.locator(".agentmagic-staged").get_by_role("button", name="Keep", exact=True).click()
    expect(page.locator(".agentmagic-staged")).to_have_count(0)
    assert "y = 2" in sources(notebook)
