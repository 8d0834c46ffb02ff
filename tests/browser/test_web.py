"""The web in JupyterLab: the question of a cell, the search, the numbers; and what the saved notebook keeps of them."""

import json

import pytest
from playwright.sync_api import expect

from tests.browser.axe import serious

pytestmark = pytest.mark.browser

FOUND = """{
    "searches": [{"query": "jit", "found": [{"url": "https://x.org/", "title": "X", "text": "It has a JIT."}]}],
    "text": "It has a JIT. So it is fast.",
    "citations": [{"of": "It has a JIT.", "url": "https://x.org/", "title": "X", "quote": "a JIT"}],
}"""


def test_a_cell_is_allowed_the_web_by_a_key_and_its_numbers_open_and_are_saved(begun):
    cell = begun(FOUND, line="%%agent --web")
    question = cell.root.locator(".am-approval:focus:not(.am-fresh)")
    expect(question).to_have_accessible_name("Approval of “Search the web”")
    expect(cell.root.locator(".am-card").last).to_contain_text("read pages of the web in this session")
    cell.page.keyboard.press("y")
    expect(cell.root.locator(".am-card", has_text="Search the web")).to_contain_text("allowed")
    number = cell.root.get_by_role("button", name="source 1: X")
    number.press("Enter")
    opened = cell.root.get_by_role("group", name="Source 1")
    expect(opened).to_contain_text("a JIT")
    expect(opened.get_by_role("link", name="X")).to_be_focused()
    cell.page.keyboard.press("Escape")
    expect(number).to_be_focused()
    expect(cell.root.locator(".am-card").last).to_contain_text("1 page")
    assert serious(cell.page, "agentmagic-view") == []
    cell.notebook.save()
    outputs = json.loads(cell.notebook.path.read_text(encoding="utf-8"))["cells"][2]["outputs"]
    saved = [output["data"] for output in outputs if "text/html" in output.get("data", {})][-1]
    assert "Sources" in "".join(saved["text/html"])
    assert "".join(saved["text/plain"]).count("https://x.org/") == 2
