"""The card of a user without a key: what is typed there goes on with the turn, and page and notebook keep no key."""

import pytest
from playwright.sync_api import expect

from tests.browser.cells import EVERYWHERE, Cell, editor, linked, save_with, see_mark
from tests.providers.strict.script import say
from tests.providers.strict.server import strict

pytestmark = pytest.mark.browser
pytest.importorskip("openai", reason="the openai extra is not installed")

KEY = "sk-ant-q8Zr2LmX4vB7nC1sKd9e"
SETTINGS = """
os.environ.update(OPENAI_BASE_URL={url!r}, PYTHON_KEYRING_BACKEND="keyring.backends.null.Keyring")
agent = Session(Agent())
"""


@pytest.fixture
def provider():
    with strict("openai", say("one"), say("two")) as running:
        yield running


@EVERYWHERE
def test_a_key_that_is_pasted_into_the_card_goes_on_with_the_turn_and_is_kept_nowhere(open_notebook, provider):
    notebook = open_notebook(SETTINGS.format(url=f"{provider.url}/v1"), "%%agent\nhello", run=1)
    notebook.start(2)
    cell = Cell(notebook, 2)
    cell.says("No model is chosen and no key is set.")
    cell.says("This machine has no system keyring. Or set OPENAI_API_KEY in the environment")
    expect(cell.button("Keep in the keyring")).to_have_count(0)
    cell.box("Key").click()
    cell.keys.type(KEY)
    expect(cell.box("Provider of the key")).to_have_value("anthropic")
    cell.box("Provider of the key").select_option("openai")
    cell.box("Key").press("Enter")
    cell.finish("one")
    expect(cell.box("Key")).to_be_hidden()
    assert KEY in str(provider.requests[0].headers)
    save_with(notebook, 2, "one")
    assert KEY not in notebook.path.read_text()
    assert KEY not in notebook.page.evaluate("() => harness.shown(document.body) + JSON.stringify({ ...localStorage })")


def test_the_card_waits_as_an_approval_does_and_keys_alone_answer_it(open_notebook, provider):
    notebook = open_notebook(SETTINGS.format(url=f"{provider.url}/v1"), "%%agent\nhello", "1 + 1", run=1)
    notebook.run(3)
    editor(notebook, 3).click()
    linked(notebook)
    notebook.start(2)
    cell = Cell(notebook, 2)
    card = cell.box("What can answer")
    cell.says("No model is chosen and no key is set.")
    see_mark(notebook)
    status = notebook.page.locator(".agentmagic-status")
    expect(status).to_have_text("no model yet: choose one on its card(!) waits for you")
    editor(notebook, 3).click()
    cell.press("Alt+Shift+G")
    expect(card).to_be_focused()
    cell.press("k")
    expect(cell.box("Key")).to_be_focused()
    expect(cell.box("Key")).to_have_value("")
    cell.press("Shift+Tab", "n")
    notebook.finish(2, "AuthenticationMissing: No model is chosen and no key is set.")
    expect(card).to_be_hidden()
    expect(status.get_by_role("button")).to_be_hidden()


def test_the_panel_shows_the_card_keeps_the_message_and_gives_it_back_or_sends_it(open_notebook, provider):
    notebook = open_notebook(f"{SETTINGS.format(url=f'{provider.url}/v1')}agent.chat()", run=1)
    panel = Cell(notebook, 1)
    panel.send("hello")
    panel.click("Not now")
    expect(panel.message).to_have_value("hello")
    expect(panel.box("Key")).to_be_hidden()
    panel.message.press("Enter")
    panel.box("Key").click()
    panel.keys.type(KEY.replace("-ant", ""))
    panel.click("Use in this kernel only")
    panel.turns(1)
    expect(panel.prompts).to_have_text(["hello"])
    expect(panel.answers).to_have_text(["one"])
