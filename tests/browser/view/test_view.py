"""The view in a page: what it shows, what it sends, and that keys alone are enough."""

import json

import pytest
from playwright.sync_api import expect

from agentmagic.events import (
    AgentOption,
    ApprovalAsked,
    ApprovalGiven,
    MapProgress,
    PartDelta,
    PartFinished,
    PartStarted,
    Planned,
    QuestionAnswered,
    QuestionAsked,
    StepStarted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from agentmagic.messages import Text, ToolCall, ToolResult
from agentmagic.plan import Task
from agentmagic.widgets.sync import Feed
from tests.browser.lab import retype
from tests.browser.view import scenes
from tests.browser.view.attacks import Marked, everywhere
from tests.display.logs import answered, asked_for, one_call, one_text, over, reasoning, started, step_over, text

pytestmark = pytest.mark.browser

AT_END = "() => (log => log.scrollHeight - log.scrollTop - log.clientHeight)(document.querySelector('.am-scroller'))"
"""Pixels between what is seen and the end."""

CALL = ToolCall("c1", "order", {"what": "tea", "cups": 2})
WAITING = [*started(), *asked_for(CALL), *step_over(), ApprovalAsked("a1", CALL, "shop")]


def card(stage, name="order"):
    return stage.page.locator(".am-card", has_text=name)


def message(stage):
    return stage.page.get_by_label("Message", exact=True)


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


TABLE = "The sums:\n\n| Name | Sum |\n|:-----|----:|\n| Ada | 1 |\n| Max | 22 |\n"


def test_a_table_is_one_from_its_first_character_on_and_a_row_under_way_is_a_row(stage):
    feed = Feed([*started(), PartStarted(0, "text"), PartDelta(0, TABLE[:11])])
    stage.show(feed)
    answer = stage.page.locator(".am-text")
    seen = []
    for character in TABLE[11:]:
        feed.feed(PartDelta(0, character))
        stage.play_drawn([feed.frame()])
        seen.append((answer.inner_text(), answer.locator("th").all_inner_texts(), answer.locator("tr").count()))
    assert [text for text, _, _ in seen if "|" in text or "--" in text] == []
    assert ["Name"] in [head for _, head, _ in seen]
    assert seen[-1][1] == ["Name", "Sum"]
    assert [rows for _, _, rows in seen if rows] == sorted(rows for _, _, rows in seen if rows)
    assert seen[-1][2] == 3
    assert answer.locator("td").all_inner_texts() == ["Ada", "1", "Max", "22"]


def test_what_only_begins_like_a_table_is_not_one_when_it_goes_on(stage):
    feed = Feed([*started(), PartStarted(0, "text"), PartDelta(0, "```\n| a | b |\n")])
    stage.show(feed)
    answer = stage.page.locator(".am-text")
    assert answer.locator("pre").inner_text() == "| a | b |\n"
    stage.play(feed, PartDelta(0, "```\n\nTitle\n---\n\n|x| is never\nless than 0"))
    assert answer.locator("table").count() == 0
    assert answer.locator("h2").inner_text() == "Title"
    assert answer.locator("p").inner_text() == "|x| is never less than 0"


def test_an_answer_drawn_as_it_grows_leaves_settled_paragraphs_alone_and_ends_as_one_drawn_at_once(stage):
    words = f"one\n\n{scenes.MARKDOWN}\n[late]\n\n{scenes.MARKDOWN}\n[late]: https://late.example\n"
    stage.show(Feed(one_text(words)))
    whole = stage.page.locator(".am-text").inner_html()
    feed = Feed([*started(), PartStarted(0, "text"), PartDelta(0, words[:7])])
    stage.show(feed)
    stage.page.evaluate("() => { document.querySelector('.am-text p').mark = 'kept' }")
    frames = []
    for place in range(7, len(words), 7):
        feed.feed(PartDelta(0, words[place : place + 7]))
        frames.append(feed.frame())
    stage.play_drawn(frames)
    assert stage.page.evaluate("() => document.querySelector('.am-text p').mark") == "kept"
    stage.play(feed, PartFinished(0, Text(words)), *step_over(), *over(words))
    assert stage.page.locator(".am-text").inner_html() == whole


FRONT_END = """() => {
  window.put = []
  const note = how => (code, click) => window.put.push([how, code, click.isTrusted, click.composedPath().length > 9])
  const value = { insert: note("insert"), newCell: note("newCell") }
  Object.defineProperty(globalThis, Symbol.for("agentmagic.front-end"), { value })
}"""


def test_code_is_copied_by_its_button_and_goes_into_a_cell_where_the_front_end_can_do_that(stage):
    stage.show(Feed(one_text("```python\nx = 1\n\n```")))
    assert stage.page.locator(".am-code-head button").all_inner_texts() == ["Copy"]
    stage.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    stage.button("Copy code").click()
    stage.page.get_by_text("Copied").wait_for()
    assert stage.page.evaluate("() => navigator.clipboard.readText()") == "x = 1\n"
    stage.page.evaluate(FRONT_END)
    stage.show(Feed(one_text("```python\nx = 1\n\n```")))
    assert stage.page.locator(".am-code-head button").all_inner_texts() == ["Insert", "New cell", "Copy"]
    stage.button("Insert code at the cursor").click()
    stage.button("Insert code as a new cell").press("Enter")
    put = stage.page.evaluate("() => window.put")
    assert put == [["insert", "x = 1\n", True, True], ["newCell", "x = 1\n", True, True]]


# -- cards -----------------------------------------------------------------------------------------


def rounds(number, *, last=()):
    """A turn with calls one after another, something thought before each; `last` is in the place of the last result."""
    turn = started("Look at all of it")[:1]
    for place in range(number):
        call = ToolCall(f"c{place}", "look" if place else "list", {})
        end = [*answered(call, Text("ok"))] if place < number - 1 or not last else last
        turn += [StepStarted(place + 1, "m"), *reasoning("And now?"), *asked_for(call, 1), *step_over(place + 1), *end]
    return turn


def seen(stage):
    """How many cards are seen, and how many there are."""
    cards = [one.is_visible() for one in stage.page.locator(".am-card").all()]
    return sum(cards), len(cards)


def test_more_than_four_calls_in_a_row_fold_into_a_group_that_opens_by_key(stage):
    feed = Feed(rounds(4))
    stage.show(feed)
    assert seen(stage) == (4, 4)
    call = ToolCall("c9", "look", {})
    stage.play(feed, StepStarted(5, "m"), *asked_for(call), *step_over(5), ToolStarted(call, "shop"))
    group = stage.page.get_by_role("button", name="5 calls")
    assert " ".join(group.inner_text().split()) == "5 calls list, look \N{MULTIPLICATION SIGN}4 4 done 1 running"
    assert seen(stage) == (0, 5)
    group.press("Enter")
    assert group.get_attribute("aria-expanded") == "true"
    assert seen(stage) == (5, 5)
    group.press("Space")
    assert seen(stage) == (0, 5)
    stage.play(feed, *one_text("Done.")[2:])
    assert group.count() == 1


def test_a_call_of_a_group_that_waits_is_seen_and_leaves_its_focus_to_the_group(stage):
    call = ToolCall("c5", "look", {})
    feed = Feed(rounds(6, last=[ApprovalAsked("a1", call, "shop")]))
    stage.show(feed)
    assert [one.is_visible() for one in stage.page.locator(".am-card").all()] == [False] * 5 + [True]
    stage.button("Approve").press("Enter")
    stage.play(feed, ApprovalGiven("a1", approved=True), ToolStarted(call, "shop"))
    assert not card(stage, "look").last.is_visible()
    assert stage.page.evaluate("() => document.activeElement.className").startswith("am-group")


def test_a_traceback_a_tree_and_the_whole_of_a_long_result_open_by_key(stage):
    failed = ToolResult("c1", "order", (Text("ValueError: no tea"),), "error")
    stage.show(Feed([*started(), *asked_for(CALL), ToolFinished(failed, 0.5, "File 'shop.py', line 3")]))
    card(stage).locator("summary").first.press("Enter")
    card(stage).get_by_text("Traceback").wait_for()  # the body of a card is drawn once it is open
    assert not card(stage).get_by_text("line 3").is_visible()
    stage.press("Tab", "Enter")
    card(stage).get_by_text("line 3").wait_for()

    tree = '{"deep": {"id": 12345678901234567890}, "why": "long enough to need several lines of a card in the page"}'
    stage.show(Feed(one_call(CALL, Text(tree))))
    card(stage).locator("summary").first.press("Enter")
    expect(card(stage).locator(".am-tree")).to_contain_text("12345678901234567890")

    feed = Feed(one_call(CALL, Text("z" * 30_000)))
    stage.show(feed)
    card(stage).locator("summary").first.press("Enter")
    card(stage).get_by_role("button", name="Show all").press("Enter")
    (asked,) = stage.sent()
    assert asked["type"] == "whole"
    feed.show_whole(asked["key"])
    stage.play(feed)
    assert len(card(stage).locator("pre").last.inner_text()) == 30_000
    assert card(stage).get_by_role("button", name="Show all").count() == 0


def test_a_waiting_card_can_be_answered_with_keys_alone(stage):
    stage.show(Feed(WAITING), "cell")
    card(stage).locator("summary").focus()
    stage.press("Tab", "Tab", "Tab", "Tab", "Enter")
    stage.page.keyboard.type("too hot")
    stage.press("Enter")
    assert stage.sent("cell") == [{"type": "deny", "id": "a1", "reason": "too hot"}]


RISKY = ApprovalAsked("a1", CALL, "shop", effects=("Removes: old", "Risk: starts a program"))


@pytest.mark.parametrize(
    ("keys", "sent"),
    [
        ("y", {"type": "approve", "id": "a1"}),
        ("a", {"type": "approve", "id": "a1", "always": True}),
        (("n", "N", "o", "Enter"), {"type": "deny", "id": "a1", "reason": "No"}),
        (
            ("e", "End", "s", "ControlOrMeta+Enter"),
            {"type": "edit", "id": "a1", "arguments": '{"what": "teas","cups": 2}'},
        ),
    ],
    ids=["approve", "always", "deny", "edit"],
)
@pytest.mark.parametrize("home", ["cell", "panel"])
def test_one_letter_answers_a_card_that_has_the_keys_and_is_shown_on_its_button(stage, home, keys, sent):
    stage.show(Feed([*WAITING[:-1], RISKY]), home)
    stage.page.get_by_role("group", name="Approval of order").focus()
    shortcuts = card(stage).locator("[aria-keyshortcuts]")
    assert [one.get_attribute("aria-keyshortcuts") for one in shortcuts.all()] == ["y", "a", "e", "n"]
    assert "am-risky" in stage.button("Approve").get_attribute("class")
    stage.press("Shift+Y", "ControlOrMeta+y", "x")
    assert stage.sent(home) == []
    stage.press(*keys)
    assert stage.sent(home) == [sent]


PLAN = (
    AgentOption("all", "Yes, and never ask again", "allow_always"),
    AgentOption("once", "Yes, and ask me for each edit", "allow_once"),
    AgentOption("no", "No, keep planning", "reject_once"),
    AgentOption("never", "No, and stop", "reject_always"),
)


@pytest.mark.parametrize(
    ("options", "once", "buttons", "pressed", "sent"),
    [
        (
            PLAN,
            False,
            ["Approve", "Always exactly this"],
            "Yes, and never ask again",
            {"type": "approve", "option": "all"},
        ),
        (PLAN, True, ["Approve"], "No, and stop", {"type": "deny", "option": "never"}),
        (PLAN[:1], False, [], "Yes, and never ask again", {"type": "approve", "option": "all"}),
    ],
    ids=["more than once", "what does not say what runs", "no plain yes"],
)
def test_the_options_of_an_outside_agent_have_their_own_names(stage, options, once, buttons, pressed, sent):
    asked = ApprovalAsked("a1", CALL, "acp:claude", "It is so.", fixed=True, options=options, once=once)
    stage.show(Feed([*WAITING[:-1], asked]), "cell")
    own = [one.name for one in asked.own_options]
    assert card(stage).get_by_text(asked.reason).count() == 1
    shown = card(stage).locator(".am-approval button")
    assert [one.inner_text().strip() for one in shown.all()] == [*buttons, "Deny…", *own]
    shown.filter(has_text=pressed).focus()
    stage.press("Enter")
    assert stage.sent("cell") == [{**sent, "id": "a1"}]


def test_an_argument_that_was_left_out_is_added_by_keys_and_only_if_it_is_asked_for(stage):
    optional = {"sugar": {"type": "boolean", "default": False}, "note": {"type": "string"}}
    stage.show(Feed([*WAITING[:-1], ApprovalAsked("a1", CALL, "shop", optional=optional)]), "cell")
    stage.page.get_by_role("group", name="Approval of order").focus()
    stage.press("e", "Tab", "Tab")
    assert stage.focused() == "Add sugar"
    stage.press("Enter", "ControlOrMeta+a")
    stage.page.keyboard.type("true")
    stage.press("ControlOrMeta+Enter")
    (edit,) = stage.sent("cell")
    assert json.loads(edit["arguments"]) == {**CALL.arguments, "sugar": True}


def test_a_closed_card_says_that_it_was_edited_or_why_it_was_denied_and_not_what_the_model_is_told(stage):
    told = Text("The user …", audience="assistant")
    coffee = ToolCall("c1", "order", {"what": "coffee", "cups": 2})
    edited = ApprovalGiven("a1", approved=True, arguments=coffee.arguments)
    stage.show(Feed([*WAITING, edited, *answered(coffee, told, Text("It comes."), server="shop")]), "cell")
    head = card(stage).locator("summary").first
    assert "edited" in head.inner_text()
    head.click()
    expect(card(stage).get_by_text("It comes.")).to_be_visible()
    words = card(stage).inner_text()
    assert ("- what  tea" in words, "+ what  coffee" in words, "It comes." in words) == (True, True, True)
    assert "The user" not in words
    denied = [
        ApprovalGiven("a1", approved=False, reason="too dear"),
        ToolFinished(ToolResult("c1", "order", (told,), "denied")),
    ]
    stage.show(Feed([*WAITING, *denied]), "cell")
    assert "denied: too dear" in head.inner_text()
    assert "The user" not in card(stage).inner_text()


def test_the_last_lines_of_a_running_call_show_in_it_and_its_frame_stands_open_below_it(stage):
    feed = Feed(
        [
            *started(),
            *asked_for(CALL),
            *step_over(),
            ToolStarted(CALL, "shop"),
            ToolProgress("c1", 0, None, "step 4\nstep 5"),
        ]
    )
    stage.show(feed, "cell")
    head = card(stage).locator("summary").first
    assert "step 5" in head.inner_text()
    head.click()
    expect(card(stage).get_by_text("step 4")).to_be_visible()
    assert card(stage).locator("pre").last.inner_text() == "step 4\nstep 5"
    head.click()
    rows = "".join(f"<tr><td>{row}</td></tr>" for row in range(42))
    frame = f'<table class="dataframe"><thead><tr><th>a</th></tr></thead><tbody>{rows}</tbody></table>'
    stage.play(feed, ToolFinished(ToolResult("c1", "order", (Text("a"),)), 0.1, rich=(frame,)), home="cell")
    below = card(stage).locator(".am-pictures")
    expect(below.locator("tbody tr")).to_have_count(5)
    assert "The first 5 of 42 rows; all 42 rows are in the card." in below.inner_text()
    assert below.is_visible()
    head.click()
    expect(card(stage).locator(".am-body tbody tr")).to_have_count(42)


def test_keys_write_in_the_boxes_of_an_edit_leave_it_and_send_it_once_it_is_json(stage):
    stage.show(Feed(WAITING), "cell")
    stage.button("Edit").press("Enter")
    what, cups = card(stage).get_by_label("what"), card(stage).get_by_label("cups, as JSON")
    stage.press("End", "Enter")
    stage.page.keyboard.type('"hot"')
    stage.press("Tab", "Backspace")
    stage.page.keyboard.type("3,")
    stage.press("Shift+Tab", "ControlOrMeta+a", "Delete", "ControlOrMeta+z")
    assert [what.input_value(), cups.input_value()] == ['tea\n"hot"', "3,"]
    expect(card(stage).locator(".am-arguments")).to_be_hidden()  # the boxes have them
    expect(card(stage).get_by_text("Arguments", exact=True)).to_be_hidden()
    stage.button("Approve as edited").click()
    assert "cups is not JSON yet" in card(stage).get_by_role("alert").inner_text()
    assert stage.sent("cell") == []
    cups.press("Backspace")
    stage.button("Approve as edited").click()
    assert stage.sent("cell") == [{"type": "edit", "id": "a1", "arguments": '{"what": "tea\\n\\"hot\\"","cups": 3}'}]
    stage.show(Feed(WAITING), "cell")
    stage.button("Edit").press("Enter")
    stage.press("Tab", "Escape")
    assert what.count() == 0
    expect(card(stage).locator(".am-arguments")).to_be_visible()
    assert stage.focused() == "Edit"
    assert stage.sent("cell") == []


def test_the_tasks_of_a_plan_stand_in_its_box_while_it_can_be_changed_and_then_in_the_checklist(stage):
    task = Task("t1", "find", {"word": "two"}, "find the number")
    asked = QuestionAsked("q1", "Run this plan?", "t1 find(word: two)", plan="new")
    feed = Feed([*started(), Planned((task,)), asked])
    stage.show(feed, "cell")
    tasks = stage.page.locator(".am-plan")
    expect(stage.button("Run the plan")).to_be_visible()
    expect(tasks).to_be_hidden()
    stage.play(feed, QuestionAnswered("q1", "t1 find(word: two)"), home="cell")
    expect(tasks).to_be_visible()
    expect(stage.page.locator(".am-answer")).to_have_text("Answer: Run as it is.")


def test_a_map_with_failed_rows_names_them_and_asks_them_again_by_a_key_or_says_how(stage):
    rows = {"errors": (("It is too long.", 2),), "examples": ((("r1", "A lamp"), ("r2", "")),), "ended": "done"}
    stage.show(Feed([MapProgress("m", 9, 7, 2, **rows)]), "cell", actions=["ask-rows"])
    shown = stage.page.locator(".am-map")
    expect(shown).to_have_attribute("data-state", "partly")
    expect(shown.locator(".am-icon-partly")).to_be_visible()
    assert "2 rows: It is too long. (r1 “A lamp”, r2)" in shown.inner_text()
    assert "No file keeps the answers" not in shown.inner_text()
    stage.button("Ask the 2 failed rows again").press("Enter")
    assert stage.sent("cell") == [{"type": "ask-rows"}]
    stage.show(Feed([MapProgress("m", 9, 7, 2, **rows)]), "cell", actions=[])
    expect(stage.button("Ask the 2 failed rows again")).to_be_hidden()
    assert "No file keeps the answers" in shown.inner_text()


# -- the panel -------------------------------------------------------------------------------------


def test_the_head_chooses_models_and_conversations_exports_and_clears_after_a_question(stage):
    chats = [{"name": "agent", "about": "1 turn", "saved": False}, {"name": "old", "about": "2 turns", "saved": True}]
    stage.show(Feed(one_text("a")), model="openai:x", models=["openai:x", "gemini:y"], chats=chats)
    stage.page.get_by_label("Model", exact=True).select_option("gemini:y")
    more = stage.page.locator("summary[aria-label=More]")
    more.press("Enter")
    stage.button("Export as Markdown").click()
    for keys in (["Escape"], ["Tab", "Enter"], ["Enter"]):  # no, no, and yes
        more.press("Enter")
        stage.button("Clear").press("Enter")
        expect(stage.button("Clear all")).to_be_focused()
        stage.press(*keys)
        expect(stage.page.get_by_role("group", name="Clear")).to_be_hidden()
    stage.page.locator(".am-chats summary").press("Enter")
    stage.page.wait_for_function("() => stage.models.panel.sent.some(({ type }) => type === 'chats')")
    stage.press("Tab", "Tab", "Enter")
    assert stage.sent() == [
        {"type": "model", "name": "gemini:y"},
        {"type": "export", "form": "markdown"},
        {"type": "clear"},
        {"type": "chats"},
        {"type": "open", "name": "old", "saved": True},
    ]


def test_the_inspector_asks_when_it_is_opened_and_a_search_filters_what_it_shows(stage):
    stage.show(Feed(), servers=scenes.SERVERS)
    stage.receive({"inspection": scenes.INSPECTION})
    assert stage.sent() == []
    assert stage.page.locator(".am-exchange").count() == 0  # nobody asked
    stage.page.get_by_role("tab", name="Chat").focus()
    stage.press("ArrowRight", "ArrowRight")
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


def test_how_a_turn_ends_is_heard_once_and_not_after_each_part(stage):
    feed = Feed([*started(), *text("I look at the sales first."), PartStarted(1, "text"), PartDelta(1, "Lamp ")])
    stage.show(feed)
    live = stage.page.locator("div.am-heard[role=status]")
    stage.play(feed, PartFinished(1, Text("Lamp ")))
    assert live.inner_text() == ""
    stage.play(feed, *step_over(), *over("Lamp "))
    assert live.inner_text() == "The answer is complete"


def test_what_the_kernel_refuses_gives_back_and_has_done_is_said(stage):
    stage.show(Feed(), actions=["send", "withdraw"], note="“hello” waits for the turn under way.")
    stage.receive({"said": "Wrote 1 turn to agent.md."})
    assert stage.page.locator(".am-told").inner_text() == "Wrote 1 turn to agent.md."
    stage.button("Take back").click()
    stage.receive({"unsent": "hello"})
    assert message(stage).input_value() == "hello"
    assert stage.button("Send").is_enabled()
    retype(message(stage), "another")
    stage.receive({"problem": "No model is chosen.", "unsent": "hello"})
    assert stage.page.get_by_role("alert").inner_text() == "No model is chosen."
    assert message(stage).input_value() == "hello\n\nanother"
    message(stage).press("Enter")
    assert not stage.page.locator(".am-told").is_visible()
    assert stage.sent() == [{"type": "withdraw"}, {"type": "send", "text": "hello\n\nanother"}]


def test_a_prompt_that_no_kernel_hears_comes_back_and_is_not_sent_again(stage):
    stage.show(Feed())
    stage.page.evaluate("() => { stage.models.panel.answer = null }")
    message(stage).press_sequentially("a prompt")
    message(stage).press("Enter")
    expect(message(stage)).to_have_value("")
    stage.page.get_by_role("alert").get_by_text("The kernel that held this conversation is gone.").wait_for()
    expect(message(stage)).to_have_value("a prompt")
    message(stage).press("End")
    stage.page.keyboard.type(", longer")
    message(stage).press("Enter")
    expect(message(stage)).to_have_value("a prompt, longer")
    assert [sent["type"] for sent in stage.sent()] == ["send"]


def test_the_end_stays_in_sight_unless_the_person_looks_elsewhere(stage):
    feed = Feed([event for number in range(30) for event in one_text(f"answer {number}")])
    stage.show(feed)
    assert stage.page.get_by_text("answer 29").is_visible()
    stage.play(feed, *one_text("one more"))
    assert stage.page.evaluate(AT_END) < 2
    stage.play(feed, note="“hello” waits for the turn under way.")  # a line that takes its room
    stage.page.get_by_text("waits for the turn").wait_for()
    stage.page.wait_for_function(f"() => ({AT_END})() < 2")
    stage.page.evaluate("() => { document.querySelector('.am-scroller').scrollTop = 0 }")
    stage.drawn()
    stage.play(feed, *one_text("and another"))
    assert stage.page.evaluate("() => document.querySelector('.am-scroller').scrollTop") == 0
    stage.button("Go to the end").click()
    assert stage.page.evaluate(AT_END) < 2


# -- looks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_wrong_and_with_reduced_motion_nothing_moves(browser, dark):
    page = browser.open(dark=dark)
    feed = Feed([*one_text(scenes.MARKDOWN), *everywhere(Marked("some words"))])
    browser.show(feed, model="openai:x", models=["openai:x"], servers=scenes.SERVERS, cost="$0.01")
    assert page.evaluate("() => document.getAnimations().filter(a => a.playState === 'running').length") == 0
    page.evaluate("() => { for (const card of document.querySelectorAll('.am-card > details')) card.open = true }")
    browser.drawn()
    assert browser.axe() == []
    page.get_by_role("button", name="Edit", exact=True).click()
    assert browser.axe() == []
    page.get_by_role("tab", name="Servers").click()
    assert browser.axe() == []
    page.get_by_role("tab", name="Inspector").click()
    browser.receive({"inspection": scenes.INSPECTION})
    page.evaluate("() => { for (const one of document.querySelectorAll('.am-inspector details')) one.open = true }")
    page.get_by_role("searchbox").press_sequentially("noon")
    assert browser.axe() == []
    browser.show(Feed(rounds(5)), "cell")
    page.evaluate(FRONT_END)
    chats = [{"name": "old", "about": "2 turns", "saved": True}]
    welcome = {"welcome": "openai:x answers.", "examples": ["What is in @sales?"], "names": [("sales", "list")]}
    browser.show(Feed(), **welcome, chats=chats, attached=[("@out[3]", "DataFrame 3 x 2")])
    page.locator(".am-chats summary").press("Enter")
    assert browser.axe() == []
    page.get_by_label("Message", exact=True).press_sequentially("@s")
    page.get_by_role("option", name="@sales").wait_for()
    assert browser.axe() == []
    feed = Feed([*started(), *text("word\n\n```python\nx = 1\n```\n\n" * 30)])
    browser.show(feed, "cell")
    browser.play(feed, *asked_for(CALL, 1), *step_over(), ApprovalAsked("a1", CALL, "shop"), home="cell")
    expect(page.locator("#cell").get_by_role("button", name="Approve order")).to_be_in_viewport(ratio=1)
    assert browser.axe() == []
    page.close()
