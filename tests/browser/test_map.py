"""A map of 300 rows in JupyterLab: watched, stopped, gone on with, looked into."""

import json

import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious
from tests.browser.cells import Cell, editor, save_with

pytestmark = pytest.mark.browser

ROWS = """
import asyncio
import pandas as pd
from agentmagic import ModelFinished, PartFinished, PartStarted, Text, Usage
from agentmagic.errors import BadRequest

class Rows:
    "Answers with its prompt in capitals; row 40 is refused, and rows from `held` on wait."
    name = "anthropic:claude-haiku-4-5"
    held = 120
    asked = 0
    async def stream(self, request):
        self.asked += 1
        words = request.messages[-1].text
        number = int(words.split()[-1])
        await asyncio.sleep(0.01)
        if self.held is not None and number >= self.held:
            await asyncio.Event().wait()
        if number == 40:
            raise BadRequest("<img src=x onerror=document.title='attacked'>")
        yield PartStarted(0, "text")
        yield PartFinished(0, Text(words.upper()))
        yield ModelFinished(Usage(10, 0, 5, 0, 1), "stop")
    async def aclose(self):
        pass

model = Rows()
agent = Session(Agent(model))
reviews = pd.DataFrame({"review": [f"row {n}" for n in range(300)]})
"""
ASK = "%%agent -o labels --map reviews --to labels.jsonl --concurrency 8\nSay {review}"
CODE = "labels = agent.map(reviews, 'Say {review}', to='coded.jsonl', concurrency=8)"


@pytest.mark.parametrize("ask", [ASK, CODE], ids=["magic", "code"])
def test_a_map_is_watched_stopped_by_a_click_gone_on_with_and_looked_into(open_notebook, ask):
    again = "model.held, model.asked = None, 0"
    notebook = open_notebook(
        ROWS, ask, again, "print(model.asked, len(labels))", "agent.last_map.run(17)", "agent.last_map", run=1
    )
    notebook.start(2)
    cell = Cell(notebook, 2)
    cell.root.get_by_text("120 of 300 rows").wait_for()
    cell.says("8 under way")
    cell.says("rows a minute")
    cell.says("1 row: <img src=x")
    expect(cell.root.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "40")
    assert serious(cell.page, "agentmagic-view") == []
    cell.click("Stop")
    cell.finish("Stopped: 120 of 300 rows", "The answers are kept in")
    expect(cell.button("Stop")).to_have_count(0)
    notebook.run(3)
    notebook.scroll_to(2)
    editor(notebook, 2).click()
    cell.press("Shift+Enter")
    notebook.finish(2, "300 rows", "119 answered before", "1 failed")
    notebook.run(4)
    assert notebook.printed(4).split() == ["181", "300"]  # those held, those not asked, and the refused one
    notebook.run(5, "Say row 17", "SAY ROW 17")
    notebook.run(6, "The first 10 of 300 rows.")
    expect(notebook.output(6).locator("tbody tr")).to_have_count(10)
    assert "attacked" not in cell.page.title()
    save_with(notebook, 2, "300 rows")
    assert len(json.dumps(notebook.outputs(2))) < 6_000


def test_a_panel_shows_the_map_of_its_session_and_a_restart_leaves_no_bar_that_seems_to_run(open_notebook):
    notebook = open_notebook(ROWS, "agent.chat()", ASK.replace("labels.jsonl", "restarted.jsonl"), run=2)
    panel = Cell(notebook, 2)
    panel.message.wait_for()
    notebook.start(3)
    for shown in (panel, Cell(notebook, 3)):
        shown.root.get_by_text("120 of 300 rows").wait_for()
        shown.button("Stop").wait_for()
    notebook.restart_kernel()
    cell = Cell(notebook, 3)
    cell.says("The kernel is gone, and the map ended with it.")
    for shown in (panel, cell):
        expect(shown.button("Stop")).to_have_count(0)
        expect(shown.root.locator(".am-map")).to_have_attribute("data-state", "interrupted")
