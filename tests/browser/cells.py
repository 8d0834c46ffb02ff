"""Where cells are tested, what their notebooks begin with, and what a person does in a view of theirs."""

import re
from collections.abc import Sequence

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import ROOT, Notebook, retype

NOTEBOOK_7 = pytest.mark.parametrize("lab", ["notebook"], indirect=True)
EVERYWHERE = pytest.mark.parametrize("lab", ["lab", "notebook"], indirect=True)
"""Runs a test in JupyterLab and in Notebook 7: where our code or the page differs."""

SERVER = ROOT / "tests" / "tools" / "mcp" / "servers" / "raw.py"
"""A server of MCP; `CONNECT` makes it one of the notebook's."""

SETUP = """
%load_ext agentmagic
import os, sys, time
year = 2026
from agentmagic import Agent, Session, ToolContext, tool
from agentmagic.errors import RateLimited
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import Stalled, invalid_history

def calls(name, **arguments):
    return {"calls": [{"name": name, "arguments": arguments}]}

def play(*steps):
    global agent
    agent = Session(Agent(ScriptedModel(list(steps))))

@tool(ask=True)
def order(what: str) -> str:
    "Order."
    return "ordered " + what

@tool
async def choose(ctx: ToolContext) -> str:
    "Have the person choose."
    return "chosen: " + await ctx.ask("Which tea?")

@tool
def nap() -> str:
    "Sleep as a function does."
    time.sleep(60)
"""

CONNECT = f"%mcp add raw {{sys.executable}} {SERVER}\n"

PLANNED = """
import json
@tool
def find(word: str) -> str:
    "Find a word."
    if word != "two":
        raise ValueError(f"there is no word {word!r}")
    return "2"
@tool(ask=True)
def add(a: int, b: int) -> int:
    "Add."
    return a + b
STEPS = [json.dumps(step) for step in (
    {"route": "ask", "question": "Which word?"},
    {"route": "tools"},
    {"tasks": [
        {"id": "t1", "tool": "find", "parameters": {"word": "too"}, "description": "find the number"},
        {"id": "t2", "tool": "add", "parameters": {"a": 1, "b": 2}, "depends_on": ["t1"], "description": "add to it"},
    ]},
    {"success": False, "retry": True, "reason": "It is spelt two.", "parameters": {"word": "two"}},
)]
"""
"""A plan, which begins with a question to the user; its second task asks for an approval."""


class Seen:
    """A view of ours in a page: in a cell, as a panel, or docked beside the notebook."""

    def __init__(self, notebook: Notebook, root: Locator) -> None:
        self.notebook = notebook
        self.page = notebook.page
        self.keys = notebook.page.keyboard
        self.root = root
        self.message = root.get_by_label("Message", exact=True)
        self.prompts = root.locator(".am-said")
        self.answers = root.locator(".am-text")
        self.footers = root.locator(".am-figures.am-block")

    def button(self, name: str) -> Locator:
        return self.root.get_by_role("button", name=name, exact=True)

    def click(self, *names: str) -> None:
        for name in names:
            self.button(name).click()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.keys.press(key)

    def box(self, label: str) -> Locator:
        return self.root.get_by_label(label, exact=True)

    def card(self, name: str) -> Locator:
        return self.root.locator(".am-card", has_text=name)

    def says(self, text: str) -> None:
        """Wait until it says something."""
        self.root.get_by_text(text).first.wait_for()

    def warns(self, text: str) -> None:
        self.root.get_by_role("alert").get_by_text(text).wait_for()

    def allow(self, line: str) -> None:
        """Answer the card about an act of the panel with a key, once the card has the focus and shows this command."""
        card = self.root.locator(".am-page-question")
        expect(card).to_contain_text(line)
        expect(card).to_be_focused()
        expect(card).not_to_have_class(re.compile("am-fresh"))
        self.keys.press("y")
        expect(card).to_be_hidden()

    def send(self, *texts: str) -> None:
        """Send messages, each once the turn before is over."""
        for text in texts:
            turns = self.footers.count()
            self.message.click()
            retype(self.message, text)
            self.keys.press("Enter")
            if len(texts) > 1:
                self.turns(turns + 1)

    def turns(self, number: int) -> None:
        """Wait until so many turns are over."""
        self.footers.nth(number - 1).wait_for()

    def focused(self) -> str:
        """Return what the keys go to, within our own elements too: its label, or its words."""
        script = """() => {
          let element = document.activeElement
          while (element.shadowRoot?.activeElement) element = element.shadowRoot.activeElement
          return element.getAttribute('aria-label') ?? element.innerText
        }"""
        return self.page.evaluate(script)


class Cell(Seen):
    """The view in the output of a cell."""

    def __init__(self, notebook: Notebook, index: int) -> None:
        super().__init__(notebook, notebook.output(index).locator("agentmagic-view"))
        self.index = index
        self.output = notebook.output(index)

    def finish(self, *signs: str) -> None:
        """Wait for the end of the cell, and until what is drawn a moment later says all of this."""
        self.notebook.finish(self.index, *signs)

    def keeps(self, *words: str) -> None:
        """Wait until the notebook keeps these words of the conversation as text."""
        script = """([index, words]) => {
          const kept = harness.cell(index).model.outputs.toJSON()[1]?.data?.['text/plain'] ?? ''
          return words.every(word => kept.includes(word))
        }"""
        self.page.wait_for_function(script, arg=[self.index, words])


def sources(notebook: Notebook) -> Sequence[str]:
    """Return what the cells of a notebook hold."""
    return notebook.page.evaluate(
        "() => harness.panel().content.widgets.map(cell => cell.model.sharedModel.getSource())"
    )


def save_with(notebook: Notebook, index: int, sign: str) -> None:
    """Save a notebook once the outputs of a cell say something, which is a moment after its view shows it."""
    said = "([index, sign]) => JSON.stringify(harness.cell(index).model.outputs.toJSON()).includes(sign)"
    notebook.page.wait_for_function(said, arg=[index, sign])
    notebook.save()


def editor(notebook: Notebook, index: int) -> Locator:
    return notebook.page.locator(".jp-Notebook .jp-Cell").nth(index).locator(".cm-content")


def linked(notebook: Notebook) -> None:
    """Wait until the page knows that the kernel has agentmagic; the active cell has an output."""
    notebook.page.wait_for_function("() => jupyterapp.commands.isVisible('agentmagic:ask-output')")


def see_mark(notebook: Notebook) -> None:
    """See the mark that something waits: from then on a key goes there."""
    notebook.page.locator(".jp-Toolbar .agentmagic-waits").filter(visible=True).wait_for()


def run_by_palette(notebook: Notebook, label: str) -> None:
    """Choose a command of the palette by its keys."""
    keys = notebook.page.keyboard
    keys.press("ControlOrMeta+Shift+C")
    # Until the palette has the focus, keys are the notebook's, and until it lists its commands, it drops them.
    expect(notebook.page.locator(".lm-CommandPalette-input").filter(visible=True)).to_be_focused()
    notebook.page.locator(".lm-CommandPalette-item").first.wait_for()
    keys.type(label)
    notebook.page.locator(".lm-CommandPalette-item.lm-mod-active", has_text=label).wait_for()
    keys.press("Enter")
