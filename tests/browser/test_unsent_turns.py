"""Turns that end without any answer: what a person sees of them, and does about them, in a cell and in the panel."""

import pytest
from playwright.sync_api import expect

from tests.browser.lab import retype

pytestmark = pytest.mark.browser

WRONG_KEY = """
from agentmagic.errors import AuthenticationFailed
from agentmagic.testing import Faulty
model = Faulty(AuthenticationFailed("The key is wrong. Set the right one."), answer="It is 42.")
agent = Session(Agent(model))
"""
SENT = "print([[message.text for message in request.messages] for request in model.requests], len(agent.turns))"


def test_retry_in_a_cell_replaces_the_failed_turn_and_its_error(open_notebook):
    notebook = open_notebook(WRONG_KEY, "%%agent -o answer\nhow much?", "print(answer)\n" + SENT)
    notebook.run(1)
    assert "the turn failed" in notebook.run(2)
    view = notebook.output(2).locator("agentmagic-view")
    expect(view.locator(".am-figures.am-block")).to_contain_text("no answer, not sent again")
    view.get_by_role("button", name="Retry", exact=True).press("Enter")
    notebook.wait_for_text(2, "It is 42.")
    expect(view.locator(".am-figures.am-block")).not_to_contain_text("not sent")
    notebook.page.wait_for_function(
        "index => JSON.stringify(harness.cell(index).model.outputs.toJSON()).includes('It is 42.')", arg=2
    )
    assert "error" not in [output["output_type"] for output in notebook.outputs(2)]
    assert "The key is wrong" not in notebook.text(2)
    assert notebook.run(3).splitlines() == ["It is 42.", "[['how much?'], ['how much?']] 1"]


def test_retry_in_the_panel_replaces_the_failed_turn_and_later_prompts_go_without_one(open_notebook):
    errors = "AuthenticationFailed('The key is wrong.'), AuthenticationFailed('The key is wrong still.')"
    notebook = open_notebook(WRONG_KEY + f"model._errors[:] = [{errors}]", "agent.chat()", SENT)
    notebook.run(1)
    notebook.run(2)
    panel = notebook.output(2).locator(".am-panel")
    message, footers = panel.get_by_label("Message", exact=True), panel.locator(".am-figures.am-block")
    message.wait_for()
    for number, prompt in enumerate(("first", "second")):
        retype(message, prompt)
        message.press("Enter")
        footers.nth(number).wait_for()
        expect(footers.nth(number)).to_contain_text("no answer, not sent again")
    footers.nth(1).get_by_role("button", name="Retry", exact=True).click()
    expect(panel.locator(".am-text")).to_have_text(["It is 42."])
    expect(panel.get_by_role("button", name="Retry", exact=True)).to_have_count(1)
    assert notebook.run(3) == "[['first'], ['second'], ['second']] 2\n"
