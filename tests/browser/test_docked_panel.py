"""The JupyterLab extension: the panel beside the notebook, and what tells that something waits."""

import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious
from tests.browser.cells import EVERYWHERE

pytestmark = pytest.mark.browser

PANEL = "ControlOrMeta+Shift+A"
GO = "ControlOrMeta+Shift+Y"


class Dock:
    """The panel beside a notebook."""

    def __init__(self, page):
        self.page = page
        self.box = page.locator(".agentmagic-dock")
        self.message = self.box.get_by_label("Message", exact=True)

    def open(self):
        self.page.keyboard.press(PANEL)
        self.message.wait_for()
        return self

    def button(self, name):
        return self.box.get_by_role("button", name=name, exact=True)

    def send(self, text):
        self.message.click()
        self.page.keyboard.type(text)
        self.page.keyboard.press("Enter")

    def turns(self, number):
        self.box.locator(".am-figures.am-block").nth(number - 1).wait_for()

    def answers(self):
        return self.box.locator(".am-text").all_inner_texts()


@EVERYWHERE
def test_keys_open_the_panel_ask_in_it_and_go_back_to_the_notebook(open_notebook):
    notebook = open_notebook("play('one', 'two')", "%%agent\nfrom a cell")
    notebook.run(1)
    dock = Dock(notebook.page).open()
    expect(dock.message).to_be_focused()
    notebook.page.keyboard.type("hello")
    notebook.page.keyboard.press("Enter")
    dock.turns(1)
    notebook.run(2)
    dock.turns(2)
    assert dock.answers() == ["one", "two"]
    assert serious(notebook.page, ".agentmagic-dock") == []
    dock.message.click()
    notebook.page.keyboard.press(PANEL)
    notebook.page.wait_for_function("() => harness.panel().node.contains(document.activeElement)")
