"""What waits for the person is seen: scrolled to or told by a bar, marked in the title, and never as work going on."""

import pytest
from playwright.sync_api import expect

from agentmagic.events import ApprovalAsked, ApprovalGiven, QuestionAsked, ToolStarted
from agentmagic.messages import ToolCall
from agentmagic.widgets.sync import Feed
from tests.display.logs import asked_for, started, step_over, text

pytestmark = pytest.mark.browser

CALL = ToolCall("c1", "order", {"what": "tea", "cups": 2})
OTHER = ToolCall("c2", "order", {"what": "milk", "cups": 1})
LONG = "word\n\n" * 60
ASKED = [*asked_for(CALL, 1), *step_over(), ApprovalAsked("a1", CALL, "shop")]
HOMES = ("cell", "panel")


def bar(stage):
    return stage.page.locator(".am-running").filter(visible=True)


def is_seen(stage, *names, ratio=1):
    for name in names:
        expect(stage.button(name).filter(visible=True).last).to_be_in_viewport(ratio=ratio)


def asked(stage, home="cell", *, looking="at the beginning", calls=ASKED):
    """In a page of its own: a long answer after which a call is asked about, while the reader looks somewhere."""
    stage.page.close()
    stage.open()
    if looking == "above it":
        stage.page.evaluate("() => { document.querySelector('main').style.marginTop = `${innerHeight}px` }")
    feed = Feed([*started(), *text(LONG)])
    stage.show(feed, home)
    if home == "panel" and looking == "at the beginning":
        stage.page.locator(".am-scroller").hover()
        stage.page.mouse.wheel(0, -100_000)
        stage.button("Go to the end").wait_for()
    elif home == "cell" and looking == "at the end":
        stage.page.evaluate("() => scrollTo(0, document.documentElement.scrollHeight)")
    stage.play(feed, *calls, home=home)
    return feed


def test_an_approval_is_scrolled_into_sight_of_a_reader_who_is_at_the_end_or_has_seen_nothing_yet(stage):
    for home in HOMES:
        asked(stage, home, looking="at the end")
        is_seen(stage, "Approve", "Deny…")
        assert stage.button("Approve order").count() == 0
    asked(stage, looking="above it")
    is_seen(stage, "Approve")


BUSY = """async outside => {
  const log = document.querySelector('#cell .am-log'), heights = { true: '5000px', false: '' }
  for (const is of [!outside, outside, !outside, outside]) {
    await new Promise(requestAnimationFrame)
    for (const begin = performance.now(); performance.now() - begin < 25; );
    log.style.minHeight = heights[is]
  }
}"""
"""Moves the end of the turn out of sight and back in frames that are late, and at last out of sight or not."""


def test_the_line_of_the_turn_is_pinned_where_its_end_is_also_if_the_page_is_busy(stage):
    stage.show(Feed([*started(), *text("word")]), "cell")
    line = stage.page.locator("#cell .am-running")
    for outside in [True, False] * 16:
        stage.page.evaluate(BUSY, outside)
        is_pinned = "outside => document.querySelector('#cell .am-running').matches('.am-pinned') === outside"
        stage.page.wait_for_function(is_pinned, arg=outside, timeout=5_000)
    expect(line).to_be_visible()


def test_an_approval_out_of_sight_is_told_and_given_in_a_bar_or_reached_from_there_by_key(stage):
    for home in HOMES:
        asked(stage, home)
        expect(bar(stage)).to_contain_text("order waits for your approval")
        expect(bar(stage)).to_contain_text("what: tea, cups: 2")
        assert stage.page.evaluate("() => scrollY + (document.querySelector('.am-scroller')?.scrollTop ?? 0)") == 0
        is_seen(stage, "Show", "Approve order", "Stop")
        stage.button("Approve order").click()
        stage.button("Show").press("Enter")
        is_seen(stage, "Approve")
        expect(stage.button("Approve order")).to_have_count(0)
        stage.press("Tab", "Enter")
        assert stage.sent(home) == [{"type": "approve", "id": "a1"}] * 2


def test_arguments_that_the_bar_has_no_room_for_are_not_approved_there_and_more_calls_are_counted(stage):
    call = ToolCall("c1", "run", {"code": "print(1)\n" * 30})
    both = [*asked_for(call, 1), *asked_for(OTHER, 2), *step_over()]
    asked(stage, calls=[*both, ApprovalAsked("a1", call, "shop"), ApprovalAsked("a2", OTHER, "shop")])
    expect(bar(stage)).to_contain_text("run waits for your approval, and 1 more")
    assert stage.button("Approve run").count() == 0
    stage.button("Show").click()
    expect(stage.button("Approve").first).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize(("home", "step"), [("cell", True), ("panel", False)], ids=["a pause", "a question"])
def test_what_must_be_seen_of_a_question_is_the_part_in_which_it_is_answered(stage, home, step):
    feed = Feed([*started(), *text("word\n\n" * 8)])
    stage.show(feed, home)
    if home == "panel":
        stage.page.locator(".am-scroller").hover()
    else:
        stage.page.set_viewport_size({"width": 1280, "height": 720})
    stage.play(feed, QuestionAsked("q1", "line\n" * 24, "hello" if step else "", step=step), home=home)
    stage.page.evaluate(
        "() => { scrollTo(0, 0); const log = document.querySelector('.am-scroller'); if (log) log.scrollTop = 0 }"
    )
    expect(bar(stage)).to_contain_text("Paused before a request" if step else "A question waits for your answer")
    stage.button("Show").press("Enter")
    answered = stage.button("Go on") if step else stage.page.get_by_label("Your answer")
    expect(answered).to_be_focused()
    expect(answered).to_be_in_viewport(ratio=0.9)
    if not step:
        stage.page.keyboard.type("tea")
    stage.press("Enter")
    said = {"type": "approve", "id": "q1", "always": False} if step else {"type": "reply", "id": "q1", "text": "tea"}
    assert stage.sent(home) == [said]


def test_the_line_of_the_turn_and_the_title_say_that_it_waits_and_the_focus_stays_when_it_is_answered(stage):
    feed = asked(stage)
    expect(bar(stage)).to_contain_text("waits for you")
    assert bar(stage).locator(".am-icon-running").count() == 0
    assert stage.page.title() == "(!) agentmagic: the view without Jupyter"
    stage.page.evaluate("() => { document.title = 'Untitled.ipynb' }")
    stage.page.wait_for_function("() => document.title === '(!) Untitled.ipynb'")
    stage.button("Approve order").focus()
    stage.play(feed, ApprovalGiven("a1", approved=True), ToolStarted(CALL, "shop"), home="cell")
    assert stage.page.title() == "Untitled.ipynb"
    assert "waits for you" not in bar(stage).inner_text()
    assert bar(stage).locator(".am-icon-running").is_visible()
    assert stage.focused() == "Turn under way"
    stage.press("Tab")
    assert stage.focused() == "Stop"


RECORD = """(hidden) => {
  window.told = []
  window.Notification = class extends Notification {
    constructor(title, options) {
      super(title, options)
      told.push(options.body)
    }
  }
  Object.defineProperty(document, 'hidden', {value: hidden})
}"""


@pytest.mark.parametrize(("permissions", "hidden", "told"), [(1, 1, 1), (1, 0, 0), (0, 1, 0)])
def test_a_notification_tells_a_person_who_has_allowed_them_and_looks_elsewhere(stage, permissions, hidden, told):
    stage.page.context.grant_permissions(["notifications"] if permissions else [])
    stage.page.evaluate(RECORD, bool(hidden))
    feed = Feed([*started(), *text(LONG)])
    stage.show(feed, "cell")
    stage.play(feed, *ASKED, home="cell")
    assert stage.page.evaluate("() => told") == ["order waits for your approval"] * told


# -- the keys --------------------------------------------------------------------------------------

RESTED = ".am-approval:focus:not(.am-fresh)"
"""A card that has the keys, and has rested since it took them."""


def written_to(stage, *typed):
    """The feed of a turn under way, and the box of its panel, which has the keys and this text."""
    feed = Feed(started())
    stage.show(feed)
    message = stage.page.get_by_label("Message", exact=True)
    message.click()
    for words in typed:
        stage.page.keyboard.type(words)
    return feed, message


def test_a_call_that_waits_takes_the_keys_from_an_empty_box_and_gives_them_back_once_it_is_answered(stage):
    feed, message = written_to(stage)
    stage.play(feed, *ASKED)
    stage.page.locator(RESTED).wait_for()
    stage.press("y")
    assert stage.sent() == [{"type": "approve", "id": "a1"}]
    stage.play(feed, ApprovalGiven("a1", approved=True))
    expect(message).to_be_focused()


def test_a_call_that_waits_takes_no_keys_from_a_text_and_a_key_that_was_on_its_way_answers_nothing(stage):
    feed, message = written_to(stage, "and ")
    stage.play(feed, *ASKED)
    is_seen(stage, "Approve")
    stage.page.keyboard.type("yes")
    assert message.input_value() == "and yes"
    stage.press("ControlOrMeta+a", "Delete")
    stage.play(feed, ApprovalGiven("a1", approved=False))
    stage.play(feed, ApprovalAsked("a2", CALL, "shop"))
    stage.page.locator(".am-approval.am-fresh:focus").wait_for()
    stage.press("y", "Enter", "y")
    assert stage.sent() == []
    stage.page.locator(RESTED).wait_for()
    stage.press("y")
    assert stage.sent() == [{"type": "approve", "id": "a2"}]


def test_of_two_calls_that_wait_the_second_takes_the_keys_when_the_first_is_answered(stage):
    feed, _ = written_to(stage)
    both = [*asked_for(CALL, 1), *asked_for(OTHER, 2), *step_over()]
    stage.play(feed, *both, ApprovalAsked("a1", CALL, "shop"), ApprovalAsked("a2", OTHER, "shop"))
    for number in (1, 2):
        stage.page.locator(RESTED).wait_for()
        stage.press("y")
        assert stage.sent()[-1] == {"type": "approve", "id": f"a{number}"}
        stage.play(feed, ApprovalGiven(f"a{number}", approved=True))


@pytest.mark.parametrize(("key", "sent"), [("y", "approve"), ("a", "approve"), ("n", "deny")])
def test_a_pause_of_step_mode_is_answered_by_the_same_keys(stage, key, sent):
    feed, _ = written_to(stage)
    stage.play(feed, *ASKED[:-1], ApprovalAsked("a1", CALL, "shop", step=True))
    stage.page.locator(".am-pause button:focus:not(.am-fresh)").wait_for()
    stage.press(key)
    (action,) = stage.sent()
    assert (action["type"], action.get("always", False)) == (sent, key == "a")


def test_a_risk_is_not_approved_where_it_is_not_shown(stage):
    asked(stage, calls=[*ASKED[:-1], ApprovalAsked("a1", CALL, "shop", effects=("Risk: starts a program",))])
    expect(bar(stage)).to_contain_text("order waits for your approval")
    expect(stage.button("Approve order")).to_have_count(0)
