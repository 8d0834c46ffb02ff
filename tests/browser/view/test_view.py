"""The view in a page: what it shows, what it sends, and that keys alone are enough."""

import pytest
from playwright.sync_api import expect

from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    PartDelta,
    PartFinished,
    PartStarted,
    StepRetried,
    StepStarted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from agentmagic.messages import Text, ToolCall, ToolResult
from agentmagic.widgets.sync import Feed
from tests.browser.lab import retype
from tests.browser.view import scenes
from tests.display.logs import answered, asked_for, one_call, one_text, over, reasoning, started, step_over, text

pytestmark = pytest.mark.browser

AT_END = "() => (log => log.scrollHeight - log.scrollTop - log.clientHeight)(document.querySelector('.am-scroller'))"
"""Pixels between what is seen and the end."""

CALL = ToolCall("c1", "order", {"what": "tea", "cups": 2})
WAITING = [*started(), *asked_for(CALL), *step_over(), ApprovalAsked("a1", CALL, "shop")]


def card(stage, name="order"):
    return stage.page.locator(".am-card", has_text=name)


def press(stage, *keys):
    for key in keys:
        stage.page.keyboard.press(key)


def play(stage, feed, *events, home="panel"):
    """Show what some events change."""
    for event in events:
        feed.feed(event)
    stage.receive(feed.frame(), home=home)


# -- what the model writes -------------------------------------------------------------------------


def test_markdown_is_drawn_as_jupyter_users_expect(stage):
    stage.show(Feed(one_text(scenes.MARKDOWN)))
    answer = stage.page.locator(".am-text")
    assert answer.locator("strong").first.inner_text() == "first"
    assert answer.locator("ol > li > ul > li").all_inner_texts() == ["in Paris", "in Rome"]
    assert answer.locator(".am-task").all_inner_texts() == ["☑", "☐"]
    assert answer.locator("table td").nth(1).inner_text() == "12,480"
    assert answer.locator("pre .hljs-keyword").first.inner_text() == "def"
    assert answer.locator("math").count() == 2
    assert "for $5 and $6 a piece" in answer.inner_text()
    link = answer.get_by_role("link", name="the docs")
    assert (link.get_attribute("rel"), link.get_attribute("target")) == ("noopener noreferrer", "_blank")
    assert answer.get_by_role("link", name="a picture").get_attribute("href") == "https://elsewhere.example/x.png"
    assert answer.locator("img").count() == 0


@pytest.mark.parametrize("step", [7, 50])
def test_an_answer_drawn_as_it_grows_ends_as_one_drawn_at_once(stage, step):
    words = f"{scenes.MARKDOWN}\n[late]\n\n{scenes.MARKDOWN}\n[late]: https://late.example\n"
    stage.show(Feed(one_text(words)))
    whole = stage.page.locator(".am-text").inner_html()
    feed = Feed([*started(), PartStarted(0, "text")])
    stage.show(feed)
    frames = []
    for place in range(0, len(words), step):
        feed.feed(PartDelta(0, words[place : place + step]))
        frames.append(feed.frame())
    for event in [PartFinished(0, Text(words)), *step_over(), *over(words)]:
        feed.feed(event)
    stage.page.evaluate(
        "async frames => { for (const frame of frames) { stage.models.panel.receive(frame); await stage.drawn() } }",
        [frame for frame in frames if frame],
    )
    stage.receive(feed.frame())
    assert stage.page.locator(".am-text").inner_html() == whole


def test_settled_paragraphs_are_left_alone_while_more_comes(stage):
    feed = Feed([*started(), PartStarted(0, "text"), PartDelta(0, "one\n\ntwo\n\nthree ")])
    stage.show(feed)
    stage.page.evaluate("() => { document.querySelector('.am-text p').mark = 'kept' }")
    play(stage, feed, PartDelta(0, "more\n\nfour "))
    assert stage.page.locator(".am-text p").all_inner_texts() == ["one", "two", "three more", "four"]
    assert stage.page.evaluate("() => document.querySelector('.am-text p').mark") == "kept"


def test_prose_has_about_eighty_characters_a_line_in_a_wide_cell_and_code_all_its_width(browser):
    page = browser.open(size={"width": 2400, "height": 900})
    words = "Lamp leads with twelve thousand, a third more. " * 9
    browser.show(Feed(one_text(f"{words}\n\n```\n{'x' * 200}\n```")), "cell")
    line = page.evaluate(
        """() => {
          const range = document.createRange()
          const words = document.querySelector('#cell .am-text > p').firstChild
          let end = 1
          do range.setEnd(words, end++), range.setStart(words, 0)
          while (range.getClientRects().length === 1)
          return end
        }"""
    )
    assert 60 < line < 95
    assert page.locator("#cell .am-code").bounding_box()["width"] > 1500
    page.close()


FRONT_END = """() => {
  window.put = []
  const note = how => (code, click) => window.put.push([how, code, click.isTrusted, click.composedPath().length > 9])
  const value = { insert: note("insert"), newCell: note("newCell") }
  Object.defineProperty(globalThis, Symbol.for("agentmagic.front-end"), { value })
}"""


def test_code_goes_into_a_cell_by_buttons_where_the_front_end_can_do_that(stage):
    stage.show(Feed(one_text("```python\nx = 1\n\n```")))
    assert stage.page.locator(".am-code-head button").all_inner_texts() == ["Copy"]
    stage.page.evaluate(FRONT_END)
    stage.show(Feed(one_text("```python\nx = 1\n\n```")))
    assert stage.page.locator(".am-code-head button").all_inner_texts() == ["Insert", "New cell", "Copy"]
    assert stage.axe() == []
    stage.page.get_by_role("button", name="Insert code at the cursor").click()
    stage.page.get_by_role("button", name="Insert code as a new cell").press("Enter")
    assert stage.page.evaluate("() => window.put") == [
        ["insert", "x = 1\n", True, True],
        ["newCell", "x = 1\n", True, True],
    ]


def test_code_is_copied_by_its_button(stage):
    stage.show(Feed(one_text("```python\nx = 1\n```")))
    stage.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    stage.page.get_by_role("button", name="Copy code").click()
    stage.page.get_by_text("Copied").wait_for()
    assert stage.page.evaluate("() => navigator.clipboard.readText()") == "x = 1"


def test_a_withdrawn_step_leaves_the_page(stage):
    feed = Feed([*started(), *text("half an answer")])
    stage.show(feed)
    play(stage, feed, StepRetried(1, 1, 2.0, "Rate limited."))
    assert stage.page.get_by_text("half an answer").count() == 0
    assert stage.page.get_by_text("Rate limited, trying again in 2 s (2 of 5)").is_visible()


# -- cards -----------------------------------------------------------------------------------------


def test_a_card_opens_by_key_and_stays_open_when_it_changes(stage):
    feed = Feed([*started(), *asked_for(CALL), *step_over()])
    stage.show(feed)
    card(stage).locator("summary").focus()
    press(stage, "Enter")
    play(stage, feed, ToolStarted(CALL, "shop"), ToolProgress("c1", 1, 4, "brewing"))
    assert "1 of 4 brewing" in card(stage).inner_text()
    play(stage, feed, ToolFinished(ToolResult("c1", "order", (Text("a cup of tea"),)), 0.5))
    assert card(stage).get_by_text("a cup of tea").is_visible()
    assert card(stage).get_attribute("data-state") == "done"
    assert "500 ms" in card(stage).inner_text()


def rounds(number, *, last=()):
    """A turn with calls one after another, something thought before each; `last` is in the place of the last result."""
    turn = started("Look at all of it")[:1]
    for place in range(number):
        call = ToolCall(f"c{place}", "look" if place else "list", {})
        end = [*answered(call, Text("ok"))] if place < number - 1 or not last else last
        turn += [StepStarted(place + 1, "m"), *reasoning("And now?"), *asked_for(call, 1), *step_over(place + 1), *end]
    return turn


def test_more_than_four_calls_in_a_row_fold_into_a_group_that_opens_by_key(stage):
    feed = Feed(rounds(4))
    stage.show(feed)
    cards = stage.page.locator(".am-card")
    assert all(one.is_visible() for one in cards.all())
    call = ToolCall("c9", "look", {})
    play(stage, feed, StepStarted(5, "m"), *asked_for(call), *step_over(5), ToolStarted(call, "shop"))
    group = stage.page.get_by_role("button", name="5 calls")
    assert " ".join(group.inner_text().split()) == "5 calls list, look \N{MULTIPLICATION SIGN}4 4 done 1 running"
    assert not any(one.is_visible() for one in cards.all())
    group.focus()
    press(stage, "Enter")
    assert group.get_attribute("aria-expanded") == "true"
    assert all(one.is_visible() for one in cards.all())
    press(stage, "Space")
    assert not any(one.is_visible() for one in cards.all())
    play(stage, feed, *one_text("Done.")[2:])
    assert group.count() == 1


def test_a_call_of_a_group_that_waits_is_seen_and_leaves_its_focus_to_the_group(stage):
    call = ToolCall("c5", "look", {})
    feed = Feed(rounds(6, last=[ApprovalAsked("a1", call, "shop")]))
    stage.show(feed)
    assert [one.is_visible() for one in stage.page.locator(".am-card").all()] == [False] * 5 + [True]
    stage.page.get_by_role("button", name="Approve", exact=True).focus()
    press(stage, "Enter")
    play(stage, feed, ApprovalGiven("a1", approved=True), ToolStarted(call, "shop"))
    assert not card(stage, "look").last.is_visible()
    assert stage.page.evaluate("() => document.activeElement.className").startswith("am-group")


def test_a_step_that_is_withdrawn_leaves_its_group(stage):
    feed = Feed([*rounds(4), StepStarted(5, "m")])
    stage.show(feed)
    calls = [asked_for(ToolCall(f"d{number}", "look", {}), number) for number in range(2)]
    play(stage, feed, *[event for call in calls for event in call])
    stage.page.get_by_role("button", name="6 calls").wait_for()
    play(stage, feed, StepRetried(1, 1, 2.0, "Rate limited."))
    assert stage.page.locator(".am-group").count() == 0
    assert [one.is_visible() for one in stage.page.locator(".am-card").all()] == [True] * 4


def test_the_traceback_of_a_failed_call_opens_by_key(stage):
    failed = ToolResult("c1", "order", (Text("ValueError: no tea"),), "error")
    stage.show(Feed([*started(), *asked_for(CALL), ToolFinished(failed, 0.5, "File 'shop.py', line 3")]))
    card(stage).locator("summary").first.focus()
    press(stage, "Enter")
    card(stage).get_by_text("Traceback").wait_for()  # the body of a card is drawn once it is open
    assert not card(stage).get_by_text("line 3").is_visible()
    press(stage, "Tab", "Enter")
    card(stage).get_by_text("line 3").wait_for()


def test_the_whole_of_a_long_result_comes_when_it_is_asked_for(stage):
    feed = Feed(one_call(CALL, Text("z" * 30_000)))
    stage.show(feed)
    card(stage).locator("summary").first.focus()
    press(stage, "Enter")
    card(stage).get_by_role("button", name="Show all").focus()
    press(stage, "Enter")
    (message,) = stage.sent()
    assert message["type"] == "whole"
    feed.show_whole(message["key"])
    play(stage, feed)
    assert len(card(stage).locator("pre").last.inner_text()) == 30_000
    assert card(stage).get_by_role("button", name="Show all").count() == 0


def test_a_nested_result_is_a_tree_that_keeps_long_numbers(stage):
    result = (
        '{"deep": {"id": 12345678901234567890, "__proto__": {"x": true}}, "why": "long enough to need several lines"}'
    )
    stage.show(Feed(one_call(CALL, Text(result))))
    card(stage).locator("summary").first.click()
    shown = card(stage).locator(".am-tree").inner_text()
    assert "12345678901234567890" in shown
    assert "__proto__" in shown


@pytest.mark.parametrize(
    ("buttons", "message"),
    [
        (["Approve"], {"type": "approve", "id": "a1"}),
        (["Always allow"], {"type": "approve", "id": "a1", "always": True}),
        (["Deny…", "Deny"], {"type": "deny", "id": "a1", "reason": ""}),
    ],
)
def test_the_buttons_of_a_waiting_card_answer_it(stage, buttons, message):
    stage.show(Feed(WAITING))
    for name in buttons:
        card(stage).get_by_role("button", name=name, exact=True).click()
    assert stage.sent() == [message]


def test_a_waiting_card_can_be_answered_with_keys_alone(stage):
    stage.show(Feed(WAITING), "cell")
    card(stage).locator("summary").focus()
    press(stage, "Tab", "Tab", "Tab", "Tab", "Enter")
    stage.page.keyboard.type("too hot")
    press(stage, "Enter")
    assert stage.sent("cell") == [{"type": "deny", "id": "a1", "reason": "too hot"}]


def test_edited_arguments_are_sent_as_json_once_they_are_json(stage):
    stage.show(Feed(WAITING))
    card(stage).get_by_role("button", name="Edit").click()
    retype(card(stage).get_by_label("what"), 'green "tea"\nhot')
    retype(card(stage).get_by_label("cups, as JSON"), "3,")
    card(stage).get_by_role("button", name="Approve as edited").click()
    assert "cups is not JSON yet" in card(stage).get_by_role("alert").inner_text()
    assert stage.sent() == []
    retype(card(stage).get_by_label("cups, as JSON"), "3")
    card(stage).get_by_role("button", name="Approve as edited").click()
    assert stage.sent() == [{"type": "edit", "id": "a1", "arguments": '{"what": "green \\"tea\\"\\nhot","cups": 3}'}]


def test_keys_write_in_the_boxes_of_an_edit_go_from_one_to_the_next_and_leave_it(stage):
    stage.show(Feed(WAITING), "cell")
    card(stage).get_by_role("button", name="Edit").press("Enter")
    what, cups = card(stage).get_by_label("what"), card(stage).get_by_label("cups, as JSON")
    press(stage, "End", "Enter")
    stage.page.keyboard.type("hot")
    press(stage, "Tab", "Backspace")
    stage.page.keyboard.type("12")
    assert [what.input_value(), cups.input_value()] == ["tea\nhot", "12"]
    press(stage, "Shift+Tab", "ControlOrMeta+a", "Delete", "ControlOrMeta+z")
    assert what.input_value() == "tea\nhot"
    press(stage, "Tab", "Tab", "Escape")
    assert what.count() == 0
    assert stage.page.evaluate("() => document.activeElement.textContent") == "Edit"
    assert stage.sent("cell") == []


def test_an_answered_card_closes_and_keeps_the_focus(stage):
    feed = Feed(WAITING)
    stage.show(feed)
    card(stage).get_by_role("button", name="Approve").focus()
    play(stage, feed, ApprovalGiven("a1", approved=True), ToolStarted(CALL, "shop"))
    assert not card(stage).locator("details").evaluate("details => details.open")
    assert stage.page.evaluate("() => document.activeElement.tagName") == "SUMMARY"


def test_what_is_not_wired_is_not_offered(stage):
    stage.show(Feed(WAITING), actions=[])
    assert stage.page.get_by_role("button", name="Approve").count() == 0
    assert not stage.page.get_by_label("Message", exact=True).is_visible()


# -- the panel -------------------------------------------------------------------------------------


def test_enter_sends_and_shift_enter_breaks_the_line(stage):
    stage.show(Feed())
    stage.page.get_by_label("Message", exact=True).focus()
    stage.page.keyboard.type("one")
    press(stage, "Shift+Enter")
    stage.page.keyboard.type("two")
    press(stage, "Enter", "Enter")
    assert stage.sent() == [{"type": "send", "text": "one\ntwo"}]
    assert stage.page.get_by_label("Message", exact=True).input_value() == ""


def test_a_question_is_answered_in_its_place(stage):
    stage.show(Feed(scenes.conversation()))
    retype(stage.page.get_by_label("Your answer"), "a bar")
    press(stage, "Enter")
    assert stage.sent() == [{"type": "reply", "id": "q1", "text": "a bar"}]


def test_a_prompt_can_be_run_again_edited_and_forked(stage):
    stage.show(Feed(one_text("a") + one_text("b")))
    prompt = stage.page.locator(".am-prompt").nth(1)
    prompt.focus()
    prompt.get_by_role("button", name="Run again", exact=True).click()
    prompt.get_by_role("button", name="Fork from here").click()
    prompt.get_by_role("button", name="Edit and run again").click()
    retype(stage.page.get_by_label("Edit your message"), "other")
    press(stage, "Enter")
    assert stage.sent() == [
        {"type": "retry", "turn": 1},
        {"type": "fork", "turn": 1},
        {"type": "rewrite", "turn": 1, "text": "other"},
    ]


def test_the_head_chooses_models_clears_and_exports(stage):
    stage.show(Feed(one_text("a")), model="openai:x", models=["openai:x", "gemini:y"])
    stage.page.get_by_label("Model", exact=True).select_option("gemini:y")
    for name in ("Export as Markdown", "Clear"):
        stage.page.locator("summary[aria-label=More]").click()
        stage.page.get_by_role("button", name=name).click()
    press(stage, "Enter")
    assert stage.sent() == [
        {"type": "model", "name": "gemini:y"},
        {"type": "export", "form": "markdown"},
        {"type": "clear"},
    ]


def test_clear_asks_first_and_takes_no_for_an_answer(stage):
    stage.show(Feed(one_text("a")))
    for key in ("Escape", "Enter"):
        stage.page.locator("summary[aria-label=More]").press("Enter")
        stage.page.get_by_role("button", name="Clear", exact=True).press("Enter")
        expect(stage.page.get_by_role("button", name="Clear all")).to_be_focused()
        press(stage, "Tab") if key == "Enter" else None
        press(stage, key)
        expect(stage.page.get_by_role("group", name="Clear")).to_be_hidden()
    assert stage.sent() == []


def test_a_turn_with_later_ones_runs_again_only_after_it_is_said_what_becomes_of_them(stage):
    stage.show(Feed(one_text("a") + one_text("b") + one_text("c")))
    prompt = stage.page.locator(".am-prompt").first
    prompt.focus()
    prompt.get_by_role("button", name="Run again", exact=True).press("Enter")
    prompt.get_by_text("2 later turns will go, and be kept as a fork.").wait_for()
    assert stage.sent() == []
    press(stage, "Enter")
    assert stage.sent() == [{"type": "retry", "turn": 0}]
    prompt.get_by_role("button", name="Edit and run again").press("Enter")
    prompt.get_by_text("2 later turns will go, and be kept as a fork.").wait_for()


def test_the_servers_tab_connects_disconnects_and_switches_tools(stage):
    stage.show(Feed(), servers=scenes.SERVERS)
    stage.page.get_by_role("tab", name="Chat").focus()
    press(stage, "ArrowRight")
    stage.page.get_by_role("button", name="Disconnect shop").click()
    stage.page.get_by_role("button", name="Connect web").click()
    stage.page.get_by_text("3 tools").click()
    stage.page.get_by_label("delete_rows", exact=True).check()
    assert "npx was not found" in stage.page.locator(".am-servers").inner_text()
    assert stage.sent() == [
        {"type": "disconnect", "server": "shop"},
        {"type": "connect", "server": "web"},
        {"type": "tool", "server": "shop", "name": "delete_rows", "enabled": True},
    ]


def test_the_inspector_asks_when_it_is_opened_and_a_search_filters_what_it_shows(stage):
    stage.show(Feed(), servers=scenes.SERVERS)
    stage.receive({"inspection": scenes.INSPECTION})
    assert stage.sent() == []
    assert stage.page.locator(".am-exchange").count() == 0  # nobody asked
    stage.page.get_by_role("tab", name="Chat").focus()
    press(stage, "ArrowRight", "ArrowRight")
    assert stage.sent() == [{"type": "inspect", "turn": 0}]
    stage.receive({"inspection": scenes.INSPECTION})
    inspector = stage.page.get_by_role("tabpanel", name="Inspector")
    assert inspector.get_by_role("list", name="Timeline").get_by_role("listitem").count() == 3
    inspector.locator("summary", has_text="Step 1").press("Enter")
    inspector.locator("summary", has_text="Request").first.press("Enter")
    inspector.get_by_text('"model": "gpt-5.4"').first.wait_for()
    inspector.get_by_role("searchbox").focus()
    stage.page.keyboard.type("NOON")
    inspector.get_by_text("1 request of 2 with NOON").wait_for()
    assert inspector.locator("mark").all_inner_texts() == ["noon", "noon"]
    inspector.get_by_role("button", name="Earlier turn").press("Enter")
    assert stage.sent()[-1] == {"type": "inspect", "turn": 1}
    stage.receive({"inspection": {**scenes.INSPECTION, "turn": 1}})
    assert inspector.get_by_role("button", name="Earlier turn").is_disabled()


def test_keys_allow_and_add_servers_and_the_list_of_conversations_opens_one(stage):
    chats = [{"name": "agent", "about": "1 turn", "saved": False}, {"name": "old", "about": "2 turns", "saved": True}]
    stage.show(Feed(), servers=scenes.SERVERS, chats=chats)
    stage.page.locator(".am-chats summary").focus()
    press(stage, "Enter")
    stage.page.wait_for_function("() => stage.models.panel.sent.some(({ type }) => type === 'chats')")
    press(stage, "Tab", "Tab", "Enter")
    stage.page.get_by_role("tab", name="Servers").click()
    stage.page.get_by_text("3 tools").click()
    stage.page.get_by_role("button", name="Always allow run_query").press("Enter")
    stage.page.get_by_label("Name of the server").focus()
    stage.page.keyboard.type("my clock")
    press(stage, "Tab")
    stage.page.keyboard.type("uvx mcp-server-time")
    press(stage, "Enter")
    assert stage.sent() == [
        {"type": "chats"},
        {"type": "open", "name": "old", "saved": True},
        {"type": "allow", "server": "shop", "name": "run_query"},
        {"type": "command", "magic": "mcp", "line": "add my-clock uvx mcp-server-time"},
    ]


def test_a_turn_under_way_is_stopped_by_its_button_and_ends_by_itself(stage):
    feed = Feed(started())
    stage.show(feed, "cell")
    stage.page.get_by_role("button", name="Stop").click()
    assert stage.sent("cell") == [{"type": "stop"}]
    play(stage, feed, *over("", "cancelled"), home="cell")
    assert stage.page.get_by_role("button", name="Stop").count() == 0
    assert "interrupted" in stage.page.locator(".am-figures.am-block").inner_text()


@pytest.mark.parametrize(("stop", "heard"), [("cancelled", "Stopped"), ("answer", "The answer is complete")])
@pytest.mark.parametrize("home", ["cell", "panel"])
def test_how_a_turn_ends_is_heard_once_and_not_after_each_part(stage, home, stop, heard):
    feed = Feed([*started(), *text("I look at the sales first."), PartStarted(1, "text"), PartDelta(1, "Lamp ")])
    stage.show(feed, home)
    live = stage.page.locator("div.am-heard[role=status]")
    play(stage, feed, PartFinished(1, Text("Lamp ")), home=home)
    assert live.inner_text() == ""
    play(stage, feed, *step_over(interrupted=stop == "cancelled"), *over("Lamp ", stop), home=home)
    assert live.inner_text() == heard


def test_what_the_kernel_refuses_is_said(stage):
    stage.show(Feed())
    stage.receive({"problem": "A turn is running. Wait for it."})
    assert stage.page.get_by_role("alert").inner_text() == "A turn is running. Wait for it."


def test_a_prompt_that_was_not_sent_comes_back_before_another_that_is_being_written(stage):
    stage.show(Feed())
    box = stage.page.get_by_label("Message", exact=True)
    stage.receive({"problem": "No model is chosen.", "unsent": "hello"})
    assert box.input_value() == "hello"
    assert stage.page.get_by_role("button", name="Send").is_enabled()
    retype(box, "another")
    stage.receive({"problem": "No model is chosen.", "unsent": "hello"})
    assert box.input_value() == "hello\n\nanother"


def test_a_prompt_that_no_kernel_hears_comes_back_and_is_not_sent_again(stage):
    stage.show(Feed())
    stage.page.evaluate("() => { stage.models.panel.answer = null }")
    box = stage.page.get_by_label("Message", exact=True)
    box.press_sequentially("a prompt")
    box.press("Enter")
    expect(box).to_have_value("")
    stage.page.get_by_role("alert").get_by_text("The kernel that held this conversation is gone.").wait_for()
    expect(box).to_have_value("a prompt")
    box.press("End")
    stage.page.keyboard.type(", longer")
    box.press("Enter")
    expect(box).to_have_value("a prompt, longer")
    assert [message["type"] for message in stage.sent()] == ["send"]


def test_the_end_stays_in_sight_when_a_line_below_it_takes_its_room(stage):
    feed = Feed(one_text("word\n\n" * 60))
    stage.show(feed)
    feed.tell({"note": "“hello” waits for the turn under way."})
    stage.receive(feed.frame())
    stage.page.get_by_text("waits for the turn").wait_for()
    stage.page.wait_for_function(f"() => ({AT_END})() < 2")


def test_what_goes_with_the_next_message_stands_above_it_until_it_is_removed_or_sent(stage):
    attached = [("@out[3]", "DataFrame 3 x 2"), ("figure [3]", "image/png, 18,211 bytes")]
    stage.show(Feed(), attached=attached)
    chips = stage.page.get_by_role("list", name="Attached").get_by_role("listitem")
    assert chips.all_inner_texts() == ["@out[3]\nDataFrame 3 x 2", "figure [3]\nimage/png, 18,211 bytes"]
    assert stage.axe() == []
    stage.page.get_by_role("button", name="Remove figure [3]").click()
    retype(stage.page.get_by_label("Message", exact=True), "What is it?")
    press(stage, "Enter")
    assert stage.sent() == [
        {"type": "detach", "name": "figure [3]"},
        {"type": "send", "text": "What is it?", "attached": ["@out[3]", "figure [3]"]},  # the kernel has the last word
    ]


def test_prompts_that_wait_are_taken_back(stage):
    stage.show(Feed(), actions=["send", "withdraw"], note="“hello” waits for the turn under way.")
    stage.page.get_by_role("button", name="Take back").click()
    assert stage.sent() == [{"type": "withdraw"}]
    stage.receive({"unsent": "hello"})
    assert stage.page.get_by_label("Message", exact=True).input_value() == "hello"


def test_what_was_done_is_said_until_the_next_thing_is(stage):
    stage.show(Feed())
    stage.receive({"said": "Wrote 1 turn to agent.md."})
    assert stage.page.locator(".am-told").inner_text() == "Wrote 1 turn to agent.md."
    retype(stage.page.get_by_label("Message", exact=True), "hello")
    press(stage, "Enter")
    assert not stage.page.locator(".am-told").is_visible()


def test_the_end_stays_in_sight_unless_the_person_looks_elsewhere(stage):
    feed = Feed([event for number in range(30) for event in one_text(f"answer {number}")])
    stage.show(feed)
    assert stage.page.get_by_text("answer 29").is_visible()
    play(stage, feed, *one_text("one more"))
    assert stage.page.evaluate(AT_END) < 2
    stage.page.evaluate("() => { document.querySelector('.am-scroller').scrollTop = 0 }")
    stage.drawn()
    play(stage, feed, *one_text("and another"))
    assert stage.page.evaluate("() => document.querySelector('.am-scroller').scrollTop") == 0
    stage.page.get_by_role("button", name="Go to the end").click()
    assert stage.page.evaluate(AT_END) < 2


# -- looks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_wrong(browser, dark):
    page = browser.open(dark=dark)
    browser.show(Feed(scenes.turn()), "cell")
    browser.show(
        Feed(scenes.conversation()), model="openai:x", models=["openai:x"], servers=scenes.SERVERS, cost="$0.01"
    )
    page.evaluate("() => { for (const card of document.querySelectorAll('.am-card > details')) card.open = true }")
    browser.drawn()
    assert browser.axe() == []
    page.get_by_role("tab", name="Servers").click()
    page.get_by_role("button", name="Edit", exact=True).click()
    assert browser.axe() == []
    page.get_by_role("tab", name="Inspector").click()
    browser.receive({"inspection": scenes.INSPECTION})
    page.evaluate("() => { for (const one of document.querySelectorAll('.am-inspector details')) one.open = true }")
    page.get_by_role("searchbox").press_sequentially("noon")
    assert browser.axe() == []
    browser.show(Feed(rounds(5)), "cell")
    chats = [{"name": "old", "about": "2 turns", "saved": True}]
    welcome = "openai:x answers."
    browser.show(Feed(), welcome=welcome, examples=["What is in @sales?"], names=[("sales", "list")], chats=chats)
    page.locator(".am-chats summary").press("Enter")
    assert browser.axe() == []
    page.get_by_label("Message", exact=True).press_sequentially("@s")
    page.get_by_role("option", name="@sales").wait_for()
    assert browser.axe() == []
    page.close()


def test_reduced_motion_moves_nothing(stage):
    stage.show(Feed(scenes.turn()), "cell")
    moving = "() => document.getAnimations().filter(a => a.playState === 'running').length"
    assert stage.page.evaluate(moving) == 0
