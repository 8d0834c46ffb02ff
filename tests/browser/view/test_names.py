"""Whatever a screen reader announces by a name has one, in the accessibility tree of the panel and of a cell."""

import pytest

from agentmagic.events import QuestionAsked
from agentmagic.widgets.sync import Feed
from tests.browser.axe import unnamed
from tests.browser.view import scenes
from tests.browser.view.test_same_marks import ALL
from tests.display.logs import started

pytestmark = pytest.mark.browser

OPEN = """async () => {
  for (let more; (more = document.querySelectorAll('details:not([open])')).length; await stage.drawn()) {
    for (const one of more) one.open = true
  }
}"""
ASKED = {
    "a question": QuestionAsked("q", "Which folder?", "data"),
    "a question with choices": QuestionAsked("q", "Which folder?", choices=("here", "there")),
    "a plan to send": QuestionAsked("q", "Run this plan?", "t1 find", plan="new"),
    "files to approve": QuestionAsked("q", "Use these files?", choices=("yes", "no"), files="Be brief."),
}
LOGS = ALL | {name: [*started(), event] for name, event in ASKED.items()}
SETUP = {
    "why": "No key was found.",
    "local": "It runs here.",
    "install": "pip install x",
    "providers": [("openai", "OpenAI", "OPENAI_API_KEY", "sk-")],
    "keyring": "",
    "servers": [("ollama", ["qwen"])],
    "fixed": False,
}
AROUND = {
    "models": ["a:b"],
    "model": "a:b",
    "context": 40,
    "window": 100,
    "servers": scenes.SERVERS,
    "levels": ["ask", "reads"],
    "level": "ask",
    "setup": SETUP,
    "chats": [{"name": "old", "about": "2 turns", "saved": True}],
}


@pytest.mark.parametrize("home", ["panel", "cell"])
def test_each_block_has_names(stage, home):
    found = {}
    for name, log in LOGS.items():
        stage.show(Feed(log), home)
        stage.page.evaluate(OPEN)
        found[name] = unnamed(stage.page)
    assert {name: one for name, one in found.items() if one} == {}


def test_what_stands_around_the_conversation_has_names_in_each_tab_and_while_one_searches(stage):
    stage.show(Feed(LOGS["a question"]), **AROUND)
    for name in ("Chat", "Servers", "Inspector"):
        stage.page.get_by_role("tab", name=name).press("Enter")
        if name == "Inspector":
            stage.receive({"inspection": scenes.INSPECTION})
        stage.page.evaluate(OPEN)
        assert unnamed(stage.page) == []
    stage.page.get_by_role("tab", name="Chat").press("Enter")
    stage.press("Control+f")
    assert unnamed(stage.page) == []


def test_an_approval_has_names_while_it_is_edited_and_while_it_is_denied(stage):
    stage.show(Feed(LOGS["a call that waits and left arguments out"]))
    for way in ("Edit", "Deny…"):
        stage.button(way).click()
        assert unnamed(stage.page) == []
        stage.button("Back").click()


def test_an_element_without_a_name_is_found(stage):
    stage.show(Feed(LOGS["a call that waits"]))
    stage.page.locator(".am-approval").evaluate("one => one.removeAttribute('aria-label')")
    (found,) = unnamed(stage.page)
    assert found.startswith('group: <div class="am-approval"')
