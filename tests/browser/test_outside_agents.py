"""An outside agent answers a cell and the panel: its thought, checklist and cards, and Stop by a click."""

import sys

import pytest
from playwright.sync_api import expect

from tests.acp.sessions import AGENT, known
from tests.browser.cells import Cell
from tests.jupyter.conftest import subshells

pytest.importorskip("acp")
pytest.importorskip("fastmcp")
pytestmark = pytest.mark.browser

MODEL = f"acp:{sys.executable} {AGENT}"
DOES = '!think hm\n!plan completed pending\n!edit notes.txt\n!plan completed completed\n!call order {"what": "tea"}'
ANSWER = "Both are done."


@subshells
def test_an_agent_thinks_shows_its_checklist_asks_with_cards_and_answers(open_notebook, tmp_path):
    model = known(tmp_path)  # an agent whose program marks the calls of our tools: one card for each
    asks = f'%%agent -m "{model}"\n{DOES}\n!say {ANSWER}'
    cell = Cell(open_notebook("open('notes.txt', 'w').write('old text\\n')", asks, run=1), 2)
    cell.notebook.start(2)
    edit = cell.card("edit")
    edit.get_by_role("button", name="Approve").wait_for()
    cell.says("Thought")
    cell.says("1 of 2 done")
    expect(edit.locator(".hljs-deletion")).to_have_text("-old text")
    expect(edit.locator(".hljs-addition")).to_have_text("+new text")
    expect(cell.button("Edit")).to_have_count(0)
    notes = cell.notebook.path.parent / "notes.txt"
    assert notes.read_text() == "old text\n"
    cell.click("Approve")
    order = cell.card("order")
    order.get_by_role("button", name="Edit").wait_for()
    cell.click("Approve")
    cell.finish(ANSWER, "2 of 2 done", "Edit notes.txt", "ordered tea", "notes.txt.")
    assert notes.read_text() == "new text\n"
    expect(order).to_have_count(1)
    shown = cell.notebook.text(2)
    assert "acp:…/claude-agent-acp" in shown.rpartition(ANSWER)[2]
    assert str(tmp_path) not in shown


def test_stop_ends_a_turn_of_the_panel_and_the_next_is_answered(open_notebook):
    made = f"agent = Session(Agent({MODEL!r}))"
    panel = Cell(open_notebook(made, "%agent chat", run=2), 2)
    for last in ("!wait", "!hang"):  # tests/acp measures the half second
        panel.message.click()
        panel.page.keyboard.type("!say Hello")
        panel.press("Shift+Enter")
        panel.page.keyboard.type(last)
        panel.press("Enter")
        panel.answers.last.get_by_text("Hello").wait_for()
        turns = panel.footers.count()
        panel.root.locator(".am-composer").get_by_role("button", name="Stop").click()
        panel.turns(turns + 1)
        panel.answers.last.get_by_text("Hello").wait_for()
    panel.send("!say Once more")
    panel.says("Once more")
