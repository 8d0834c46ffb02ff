"""A served notebook: a client in another process calls, and the person answers on the cards of its calls."""

import os

import pytest
from playwright.sync_api import expect

from tests.browser.cells import Cell, Seen, run_by_palette, save_with
from tests.browser.lab import retype
from tests.serve.outside import Outside

pytestmark = pytest.mark.browser
pytest.importorskip("fastmcp")

REASON = "Reason, which the model is told"
COUNT = "list(range(n))"


@pytest.fixture
def join(lab):
    """Has a client of a name join the kernel that was served last."""
    joined = []

    def start(name):
        env = {**os.environ, "XDG_STATE_HOME": str(lab.folder.parent / "state"), "NO_PROXY": "127.0.0.1"}
        joined.append(Outside(name, lab.folder, env))
        return joined[-1]

    yield start
    for client in joined:
        client.leave()


@pytest.fixture
def serve(open_notebook):
    """Serves a notebook in its third cell, in which `n` is 3; other cells may follow."""

    def open_(*cells):
        cell = Cell(open_notebook("n = 3", "%agent serve", *cells, run=1), 2)
        cell.notebook.run(2, "No client has called yet.")
        return cell

    return open_


def test_a_clients_program_is_edited_approved_and_undone_and_the_saved_notebook_shows_all_of_it(lab, serve, join):
    cell = serve("%agent undo", "print(n)")
    cell.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copy = cell.output.get_by_role("button", name="Copy line")
    expect(copy).to_have_count(6)
    copy.first.press("Enter")
    expect(copy.first).to_have_text("Copied")
    assert cell.page.evaluate("() => navigator.clipboard.readText()").startswith("claude mcp add notebook -- ")
    claude = join("claude-code")
    claude.start("run_python", code="n = 4")
    cell.notebook.wait_for_text(2, "Called by claude-code.")
    claude.hears("The person at the notebook is asked.")
    heading, card = cell.output.get_by_text("is served over MCP."), cell.card("claude-code")
    above = "(one, other) => one.getBoundingClientRect().top < other.getBoundingClientRect().top"
    assert heading.evaluate(above, card.element_handle())  # at once: the page may be scrolling to the card
    cell.click("Edit")
    retype(cell.box("code"), "n = 5")
    cell.click("Approve as edited")
    is_error, text = claude.result()
    assert not is_error
    assert "n = 5" in text
    cell.says("~ n: int")
    assert cell.notebook.printed(4) == "5"
    cell.notebook.run(3)
    assert cell.notebook.printed(4) == "3"
    save_with(cell.notebook, 2, "~ n: int")
    cell.notebook.shut_down_kernel()
    cell.notebook.close_tab()
    again = lab.open(cell.notebook.path, "drawn")
    for words in ("Called by claude-code.", "claude mcp add", "run_python", "edited", "~ n: int"):
        again.wait_for_text(2, words)


def test_keys_answer_two_clients_and_always_holds_for_the_one_that_it_was_said_to(serve, join):
    cell = serve()
    claude, codex = join("claude-code"), join("codex")
    claude.start("run_python", code=COUNT)
    cell.root.locator(".am-approval:focus:not(.am-fresh)").wait_for()
    codex.start("run_python", code=COUNT)
    codex.hears("Another call is under way.")
    cell.press("a")
    assert claude.result() == (False, "[0, 1, 2]")
    asked = cell.card("codex")
    asked.locator(".am-approval:focus:not(.am-fresh)").wait_for()
    expect(asked.get_by_text("claude-code")).to_have_count(0)
    cell.press("n")
    cell.keys.type("not you")
    cell.press("Enter")
    is_error, text = codex.result()
    assert is_error
    assert "the user denied it and said: not you" in text
    assert claude.call("run_python", code=COUNT) == (False, "[0, 1, 2]")
    codex.start("run_python", code=COUNT)
    cell.card("codex").last.locator(".am-approval:focus:not(.am-fresh)").wait_for()
    cell.click("Stop")
    assert codex.result() == (True, "The call was stopped by the person at the notebook.")


def test_a_card_waits_for_one_who_comes_back_and_a_call_is_denied_while_the_notebook_is_closed(lab, serve, join):
    cell = serve()
    claude = join("claude-code")
    claude.start("run_python", code="n")
    cell.button("Approve").wait_for()
    save_with(cell.notebook, 2, "waits for you")
    cell.notebook.close_tab()
    again = Cell(lab.open(cell.notebook.path), 2)
    again.click("Approve")
    assert claude.result() == (False, "3")
    again.notebook.close_tab()
    is_error, text = claude.call("run_python", code="n + 1")
    assert is_error
    assert "no one is there to give it" in text
    assert 'Rule("allow", "run_python")' in text
    assert "open the notebook" in text


def test_an_agent_cell_and_a_message_of_the_panel_wait_for_a_call_that_is_answered_meanwhile(serve, join, closed_dock):
    cell = serve("play('It is four.', 'Yes.')\n%agent serve", "%%agent\nHow much is n?")
    notebook = cell.notebook
    notebook.run(3)
    run_by_palette(notebook, "Agent Panel")
    dock = Seen(notebook, cell.page.locator(".agentmagic-dock"))
    dock.message.wait_for()
    claude = join("claude-code")
    claude.start("run_python", code="n = 4")
    dock.button("Approve").wait_for()
    notebook.start(4)
    notebook.wait_for_text(4, "waits for your answer on its card")
    dock.message.click()
    retype(dock.message, "Is that all?")
    dock.press("Enter")
    dock.says("waits for the turn under way")
    dock.click("Approve")
    assert claude.result()[0] is False
    notebook.finish(4, "It is four.")
    dock.says("Yes.")
