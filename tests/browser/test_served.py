"""A served notebook: a client in another process calls, and the person answers on the cards of its calls."""

import os

import pytest
from playwright.sync_api import expect

from tests.browser.cells import Cell, run_by_palette, save_with
from tests.browser.lab import retype
from tests.serve.outside import Outside

pytestmark = pytest.mark.browser

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
    claude = join("claude-code")
    claude.start("run_python", code="n = 4")
    cell.notebook.wait_for_text(2, "Called by claude-code.")
    claude.hears("The person at the notebook is asked.")
    heading, card = cell.output.get_by_text("is served over MCP."), cell.card("claude-code")
    assert heading.bounding_box()["y"] < card.bounding_box()["y"]
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


def test_no_one_is_there_when_the_notebook_is_closed_and_one_who_comes_back_is_asked(lab, serve, join):
    cell = serve()
    claude = join("claude-code")
    claude.start("run_python", code="n")
    cell.click("Approve")
    assert claude.result() == (False, "3")
    save_with(cell.notebook, 2, "Called by")
    cell.notebook.close_tab()
    is_error, text = claude.call("run_python", code="n")
    assert is_error
    assert "no one is there to give it" in text
    assert 'Rule("allow", "run_python")' in text
    assert "open the notebook" in text
    again = Cell(lab.open(cell.notebook.path), 2)
    again.card("claude-code").first.wait_for()
    claude.start("run_python", code="n + 1")
    again.click("Approve")
    assert claude.result() == (False, "4")


def test_a_card_waits_for_a_person_who_closes_the_notebook_and_comes_back(lab, serve, join):
    cell = serve()
    claude = join("claude-code")
    claude.start("run_python", code="n")
    cell.button("Approve").wait_for()
    save_with(cell.notebook, 2, "waits for you")
    cell.notebook.close_tab()
    again = Cell(lab.open(cell.notebook.path), 2)
    again.click("Approve")
    assert claude.result() == (False, "3")


def test_an_agent_cell_and_a_panel_wait_for_a_call_whose_card_is_answered_meanwhile(serve, join, closed_dock):
    cell = serve("play('It is three.', 'Yes.')\n%agent serve", "%%agent\nHow much is n?")
    notebook = cell.notebook
    notebook.run(3)
    served = Cell(notebook, 3)
    claude = join("claude-code")
    claude.start("run_python", code="n = 4")
    served.button("Approve").wait_for()
    notebook.start(4)
    notebook.wait_for_text(4, "waits for your answer on its card")
    served.click("Approve")
    assert claude.result()[0] is False
    notebook.finish(4, "It is three.")


def test_the_docked_panel_has_the_cards_and_its_message_waits_for_the_call(serve, join, closed_dock):
    cell = serve("play('It is three.')\n%agent serve")
    cell.notebook.run(3)
    run_by_palette(cell.notebook, "Agent Panel")
    dock = type(cell)(cell.notebook, 3)
    dock.root = cell.page.locator(".agentmagic-dock")
    dock.message = dock.root.get_by_label("Message", exact=True)
    dock.message.wait_for()
    claude = join("claude-code")
    claude.start("run_python", code="n = 4")
    dock.button("Approve").wait_for()
    retype(dock.message, "How much is n?")
    dock.message.press("Enter")
    dock.says("waits for the turn under way")
    dock.click("Approve")
    assert claude.result()[0] is False
    dock.says("It is three.")


def test_a_call_waits_for_the_cell_that_runs_and_is_approved_meanwhile(serve, join):
    cell = serve("gate = os.path.abspath('gate')\nwhile not os.path.exists(gate): time.sleep(0.05)\nn = 7")
    claude = join("claude-code")
    cell.notebook.start(3)
    claude.start("run_python", code="n")
    cell.click("Approve")
    claude.hears("If a cell of the notebook is running, it waits for the end of that.")
    (cell.notebook.path.parent / "gate").touch()
    assert claude.result() == (False, "7")
    cell.notebook.finish(3)
    (cell.notebook.path.parent / "gate").unlink()
