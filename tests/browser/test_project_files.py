"""The question about a project's files, and its commands, as a person at a page sees them."""

import pytest

from tests.browser.cells import SETUP, Cell

pytestmark = pytest.mark.browser

FILES = r"""
import os, pathlib
os.environ["XDG_DATA_HOME"] = os.path.abspath("data")
def put(file, text):
    place = pathlib.Path(file)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
put("AGENTS.md", "Answer in French.\u200b\n<img src=x onerror='window.ran = 1'>\n")
put(".agents/commands/re-view.md", "---\ndescription: Review a file\n---\nReview $1.\n")
"""


def test_the_text_of_new_files_is_shown_whole_before_they_are_used_and_their_commands_are_completed(lab, closed_dock):
    (lab.folder / "project").mkdir()  # other notebooks have no rules
    notebook = lab.open(lab.write("project/rules.ipynb", [SETUP + FILES, "play(*['Bonjour.'] * 3)", "%%agent\nHello"]))
    notebook.run(0)
    notebook.run(1)
    cell = Cell(notebook, 2)
    notebook.start(2)
    use = cell.root.get_by_role("button", name="Use them", exact=True)
    use.wait_for()
    text = cell.root.locator("details.am-files pre")
    assert "| Answer in French.\\u200b\n| <img src=x" in text.inner_text()
    assert lab.page.evaluate("() => window.ran") is None
    use.click()
    notebook.finish(2)
    assert not text.is_visible()
    lab.page.keyboard.press("Alt+Shift+P")
    dock = lab.page.locator(".agentmagic-dock")
    box = dock.get_by_label("Message", exact=True)
    box.click()
    lab.page.keyboard.type("/re-")
    dock.get_by_text("Review a file", exact=True).wait_for()
    lab.page.keyboard.press("Tab")
    lab.page.keyboard.type(" stats.py")
    lab.page.keyboard.press("Enter")
    dock.get_by_text("Review stats.py.", exact=True).wait_for()
