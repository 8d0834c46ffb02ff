"""The card that asks about an act of the page: seen whichever tab is open, answered by keys and clicks."""

import pytest
from playwright.sync_api import expect

from agentmagic.widgets.sync import Feed
from tests.browser.view.test_extent import told

pytestmark = pytest.mark.browser

ASKED = {"ask": "q1", "about": "Lets tools run without asking you.", "line": "%mcp allow shop", "target": "npx shop"}


def card(stage):
    return stage.page.locator(".am-page-question")


def asked(stage, **changes):
    feed = Feed()
    stage.show(feed)
    stage.button("New chat").focus()
    stage.play(feed, asked=ASKED | changes)
    return feed


@pytest.mark.parametrize(("key", "sent"), [("y", {"type": "approve"}), ("n", {"type": "deny", "reason": ""})])
def test_a_letter_answers_the_card_of_the_page_and_the_focus_goes_back(stage, key, sent):
    feed = asked(stage)
    expect(card(stage)).to_be_focused()
    for words in ("Lets tools run without asking you.", "%mcp allow shop", "npx shop"):
        expect(card(stage)).to_contain_text(words)
    assert stage.page.title().startswith("(!) ")
    stage.press("x", "e", "a", "Enter", "Space")  # there is no "always" and nothing to edit
    assert stage.sent() == []
    stage.press(key)
    assert stage.sent() == [sent | {"id": "q1"}]
    stage.play(feed, asked=None)
    expect(card(stage)).to_be_hidden()
    expect(stage.button("New chat")).to_be_focused()
    assert not stage.page.title().startswith("(!) ")


@pytest.mark.parametrize(("name", "sent"), [("Approve", "approve"), ("Deny", "deny")])
@pytest.mark.parametrize("tab", ["Chat", "Servers", "Inspector"])
def test_the_card_is_in_view_and_clicked_whichever_tab_is_open(stage, tab, name, sent):
    feed = Feed()
    stage.show(feed, servers=[])
    stage.page.get_by_role("tab", name=tab).click()
    stage.play(feed, asked=ASKED)
    expect(card(stage)).to_be_in_viewport(ratio=1)
    assert stage.axe() == []
    card(stage).get_by_role("button", name=name).click()
    assert [message["type"] for message in stage.sent() if message["type"] != "inspect"] == [sent]


def test_a_long_command_says_how_much_of_it_is_in_view_and_hides_no_character(stage):
    line = "%mcp add evil python -c '" + "print(1); " * 400 + "\\u202e'"
    asked(stage, line=line)
    seen, whole = told(stage)
    assert seen < whole
    expect(card(stage).locator("pre").first).to_have_text(line)


def test_who_is_writing_keeps_the_focus_and_no_letter_answers_the_card(stage):
    feed = Feed()
    stage.show(feed)
    message = stage.page.get_by_label("Message", exact=True)
    message.fill("a draft")
    stage.play(feed, asked=ASKED)
    expect(card(stage)).to_be_visible()
    stage.page.keyboard.type("y")
    assert (message.input_value(), stage.sent()) == ("a drafty", [])


def test_a_second_question_takes_the_place_of_the_first_and_a_click_on_the_first_answers_neither(stage):
    feed = asked(stage)
    approve = card(stage).get_by_role("button", name="Approve")
    box = approve.bounding_box()
    stage.page.mouse.move(box["x"] + 5, box["y"] + 5)
    stage.page.mouse.down()
    stage.play(feed, asked=ASKED | {"ask": "q2", "line": "%mcp allow other"})
    stage.page.mouse.up()
    assert stage.sent() == []
    stage.press("y")  # a key that comes at once was meant for the first question
    assert stage.sent() == []
    stage.page.locator(".am-page-question:focus:not(.am-fresh)").wait_for()
    stage.press("y")
    assert stage.sent() == [{"type": "approve", "id": "q2"}]
