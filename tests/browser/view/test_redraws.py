"""What a person has open, focused, half typed or half clicked stays in hand while something else changes."""

from contextlib import contextmanager

import pytest
from playwright.sync_api import expect

from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    PartDelta,
    PartStarted,
    QuestionAsked,
    ToolFinished,
    ToolStarted,
)
from agentmagic.messages import Text, ToolCall, ToolResult
from agentmagic.widgets.sync import Feed
from tests.browser.view import scenes
from tests.browser.view.stage import ALL_ACTIONS
from tests.display.logs import asked_for, one_call, one_text, started, step_over, text

pytestmark = pytest.mark.browser

CALL = ToolCall("c1", "order", {"what": "tea", "cups": 2})
OTHER = ToolCall("c2", "order", {"what": "milk", "cups": 1})
RUNNING = [*started(), *asked_for(CALL), *step_over(), ToolStarted(CALL, "shop")]
NESTED = '{"deep": {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8, "i": 9}, "why": "x"}'
SHOP, WEB = scenes.SERVERS
FEWER, ALL = sorted(ALL_ACTIONS - {"connect"}), sorted(ALL_ACTIONS)


def tell_all(stage, feed):
    """Show all there is once more, as a view is told that has missed a frame."""
    (*_, snapshot) = feed.hello("view", -1)
    name = stage.page.evaluate("() => stage.models.panel.sent.find(({ type }) => type === 'hello').view")
    stage.receive({**snapshot, "view": name})


@contextmanager
def pressed(stage, target):
    """Press the button of the mouse on an element, and let go at the end, at the same place."""
    box = target.bounding_box()
    stage.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    stage.page.mouse.down()
    yield
    stage.page.mouse.up()


def test_open_menus_and_lists_keep_their_place_and_focus_when_what_is_around_them_changes(stage):
    feed = Feed(one_text("a"))
    chats = [{"name": "agent", "about": "1 turn", "saved": False}, {"name": "old", "about": "2 turns", "saved": True}]
    models = ["openai:x", "gemini:y"]
    stage.show(feed, cost="", actions=sorted(ALL_ACTIONS - {"back"}), chats=chats, model=models[0], models=models)
    stage.page.locator("summary[aria-label=More]").press("Enter")
    stage.press("Tab")
    choice = stage.page.get_by_label("Model", exact=True)
    choice.evaluate("models => { models.lastElementChild.mark = 'open' }")
    stage.play(feed, cost="$0.02", actions=ALL)
    expect(stage.page.get_by_text("$0.02", exact=True)).to_be_visible()
    expect(stage.button("Undo")).to_be_visible()
    expect(stage.button("Search")).to_be_focused()
    assert choice.evaluate("models => models.lastElementChild.mark") == "open"
    stage.press("Escape")
    stage.page.locator(".am-chats summary").press("Enter")
    stage.press("Tab")
    stage.play(feed, chats=[{**chats[0], "about": "2 turns"}, {**chats[0], "name": "fork"}, chats[1]])
    stage.press("Tab")
    expect(stage.button("fork 1 turn")).to_be_focused()
    with pressed(stage, stage.button("old 2 turns")):
        stage.play(feed, chats=[{**chats[1], "about": "3 turns"}, {**chats[0], "name": "fork"}, chats[0]])
    assert stage.sent()[-1] == {"type": "open", "name": "old", "saved": True}


@pytest.mark.parametrize(
    ("asked", "open_it", "label"),
    [(QuestionAsked("q1", "Which tea?"), None, "Your answer"), (ApprovalAsked("a1", CALL, "shop"), "Edit", "what")],
    ids=["a question", "an edit"],
)
def test_an_answer_that_is_half_typed_outlasts_a_kernel_that_was_silent_for_a_while(stage, asked, open_it, label):
    feed = Feed([*started(), *asked_for(CALL), *step_over(), asked])
    stage.show(feed)
    if open_it:
        stage.button(open_it).click()
    box = stage.page.get_by_label(label, exact=True)
    box.press("End")
    stage.page.keyboard.type(" Earl")
    typed = box.input_value()
    stage.play(feed, actions=[])
    expect(box).to_be_hidden()
    stage.play(feed, actions=ALL)
    tell_all(stage, feed)
    expect(box).to_have_value(typed)
    box.press("End")
    stage.page.keyboard.type(" Grey")
    expect(box).to_have_value(f"{typed} Grey")


def test_the_focus_stays_in_the_view_when_what_held_it_can_no_longer_be_answered(stage):
    feed = Feed([*RUNNING[:-1], ApprovalAsked("a1", CALL, "shop")])
    stage.show(feed)
    stage.button("Approve").focus()
    given = ApprovalGiven("a1", approved=True), ToolStarted(CALL, "shop"), QuestionAsked("q1", "Which tea?")
    stage.play(feed, *given, actions=[])
    expect(stage.page.locator(".am-card summary")).to_be_focused()
    assert not stage.page.locator(".am-card details").first.evaluate("details => details.open")
    stage.play(feed, actions=ALL)
    stage.page.get_by_label("Your answer").focus()
    stage.play(feed, actions=[])
    expect(stage.page.get_by_role("group", name="Question")).to_be_focused()


SAVED = {"name": "agent", "about": "2 turns, just now", "saved": True}
SETUP = {"why": "No key.", "local": "", "install": "", "providers": [], "keyring": "", "servers": [], "fixed": False}


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("Take back", {"note": "“hello” waits."}, {"note": ""}),
        ("Undo", {"cleared": 2}, {"cleared": 0}),
        ("Resume", {"left": "2 open tasks"}, {"left": ""}),
        ("Go on with it", {"offered": SAVED}, {"offered": None}),
        ("Start anew", {"earlier": "The conversation goes on: 2 turns, just now."}, {"earlier": ""}),
        ("Not now", {"setup": SETUP}, {"setup": None}),
        ("Remove @x", {"attached": [("@x", "3 lines")]}, {"attached": []}),
    ],
)
@pytest.mark.parametrize("how", ["pressed", "offered no more"])
def test_a_button_of_the_panel_that_goes_away_leaves_the_keys_in_the_box(stage, name, before, after, how):
    feed = Feed(one_text("a"))
    stage.show(feed, **before)
    button = stage.page.locator("#panel").get_by_role("button", name=name, exact=True).filter(visible=True)
    button.focus()
    if how == "pressed":
        stage.press("Enter")
    stage.play(feed, **after)
    expect(button).to_have_count(0)
    stage.page.keyboard.type("dd")
    expect(stage.page.get_by_label("Message", exact=True)).to_have_value("dd")


def test_an_item_of_a_menu_leaves_the_keys_in_the_box_and_what_was_left_before_a_button_goes_is_not_fetched(stage):
    feed = Feed(one_text("a"))
    stage.show(feed, note="“hello” waits.")
    box = stage.page.get_by_label("Message", exact=True)
    stage.page.locator("summary[aria-label=More]").press("Enter")
    stage.page.locator(".am-menu").get_by_role("button", name="Undo", exact=True).press("Enter")
    expect(box).to_be_focused()
    stage.button("Take back").focus()
    stage.page.mouse.click(3, 3)  # beside the view, where nothing can have the focus
    stage.play(feed, note="")
    assert stage.page.evaluate("() => document.activeElement === document.body")


def test_what_is_open_in_a_result_stays_open_when_the_turn_ends_or_all_is_told_again(stage):
    feed = Feed(one_call(CALL, Text(NESTED)))
    stage.show(feed)
    stage.page.locator(".am-card summary").first.press("Enter")
    stage.page.locator(".am-tree summary").last.press("Enter")
    leaf = stage.page.locator(".am-leaf", has_text="9")
    expect(leaf).to_be_visible()
    stage.play(feed, actions=[])
    expect(leaf).to_be_visible()
    tell_all(stage, feed)
    expect(leaf).to_be_visible()
    expect(stage.page.locator(".am-tree summary").last).to_be_focused()


def test_buttons_are_pressed_during_a_click_in_which_what_is_around_them_changes(stage):
    feed = Feed(one_text("a"))
    stage.show(feed, note="“hello” waits for the turn under way.")
    stage.page.locator(".am-prompt").hover()
    with pressed(stage, stage.button("Run again")):
        stage.play(feed, actions=FEWER)
        tell_all(stage, feed)
    with pressed(stage, stage.button("Take back")):
        stage.play(feed, note="2 prompts wait for the turn under way.")
    assert stage.sent() == [{"type": "retry", "turn": 0}, {"type": "withdraw"}]
    stage.page.locator(".am-prompt").hover()
    stage.play(feed, actions=sorted(ALL_ACTIONS - {"fork"}))
    expect(stage.button("Run again")).to_be_visible()
    expect(stage.button("Fork from here")).to_have_count(0)


def test_a_card_opens_by_a_click_during_which_its_call_ends_or_an_answer_below_it_grows(stage):
    feed = Feed(RUNNING)
    stage.show(feed)
    with pressed(stage, stage.page.locator(".am-card .am-state")):
        stage.play(feed, ToolFinished(ToolResult("c1", "order", (Text("a cup of tea"),)), 0.5))
    expect(stage.page.get_by_text("a cup of tea")).to_be_visible()
    feed = Feed([*one_call(CALL, Text("a cup of tea")), *text("word\n\n" * 40), *started("On")])
    stage.show(feed)
    stage.play(feed, *asked_for(OTHER), *step_over(), ToolStarted(OTHER, "shop"), PartStarted(0, "text"))
    with pressed(stage, stage.page.locator(".am-card").last.locator("summary")):
        stage.play(feed, PartDelta(0, "word\n\n" * 4))
    expect(stage.page.locator(".am-card").last.get_by_text("milk", exact=True)).to_be_visible()
    stage.page.wait_for_function(
        "() => (log => log.scrollHeight - log.scrollTop - log.clientHeight < 2)(document.querySelector('.am-scroller'))"
    )


def test_a_click_that_began_on_another_call_approves_nothing(stage):
    feed = Feed([*started(), *text("word\n\n" * 60)])
    stage.show(feed, "panel")
    stage.page.locator(".am-scroller").hover()
    stage.page.mouse.wheel(0, -100_000)
    stage.button("Go to the end").wait_for()
    stage.play(feed, *asked_for(CALL, 1), *asked_for(OTHER, 2), *step_over(), ApprovalAsked("a1", CALL, "shop"))
    with pressed(stage, stage.button("Approve order")):
        stage.play(feed, ApprovalGiven("a1", approved=True), ApprovalAsked("a2", OTHER, "shop"))
        expect(stage.page.get_by_text("what: milk, cups: 1").filter(visible=True)).to_be_visible()
    assert stage.sent() == []
    stage.button("Approve order").click()
    assert stage.sent() == [{"type": "approve", "id": "a2"}]


def test_what_is_typed_or_half_clicked_among_the_servers_stays_when_one_of_them_changes(stage):
    feed = Feed()
    stage.show(feed, servers=scenes.SERVERS)
    stage.page.get_by_role("tab", name="Servers").click()
    stage.page.get_by_text("3 tools").click()
    with pressed(stage, stage.button("Always allow run_query")):
        stage.play(feed, servers=[SHOP, {**WEB, "state": "starting"}])
    assert stage.sent()[-1] == {"type": "allow", "server": "shop", "name": "run_query"}
    stage.page.get_by_label("Name of the server").focus()
    stage.page.keyboard.type("clo")
    stage.play(feed, servers=[{**SHOP, "stderr": "one more line"}, WEB])
    stage.page.keyboard.type("ck")
    expect(stage.page.get_by_label("Name of the server")).to_have_value("clock")
    stage.button("Disconnect shop").press("Enter")
    stage.play(feed, servers=[{**SHOP, "state": "disconnected"}, WEB])
    expect(stage.button("Connect shop")).to_be_focused()


def test_a_request_that_is_read_in_the_inspector_stays_when_another_turn_ends(stage):
    feed = Feed(one_text("a"))
    stage.show(feed, servers=scenes.SERVERS)
    stage.page.get_by_role("tab", name="Inspector").click()
    stage.receive({"inspection": scenes.INSPECTION})
    step = stage.page.locator(".am-exchange > summary", has_text="Step 1")
    step.press("Enter")
    stage.play(feed, *one_text("b"))
    assert stage.sent()[-1] == {"type": "inspect", "turn": 2}
    stage.receive({"inspection": {**scenes.INSPECTION, "turns": 3}})
    expect(step).to_be_focused()
    expect(stage.page.locator(".am-exchange[open]")).to_have_count(1)
    stage.button("Later turn").click()
    assert stage.sent()[-1] == {"type": "inspect", "turn": 3}
