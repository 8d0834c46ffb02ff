"""What waits for the person is seen: scrolled to or told by a bar, marked in the title, and never as work going on."""

import pytest
from playwright.sync_api import expect

from agentmagic.events import ApprovalAsked, ApprovalGiven, PartDelta, PartStarted, QuestionAsked, ToolStarted
from agentmagic.messages import ToolCall
from agentmagic.widgets.sync import Feed
from tests.browser.view import scenes
from tests.display.logs import asked_for, one_text, over, started, step_over, text

pytestmark = pytest.mark.browser

CALL = ToolCall("c1", "order", {"what": "tea", "cups": 2})
LONG = "word\n\n" * 60
ASKED = [*asked_for(CALL, 1), *step_over(), ApprovalAsked("a1", CALL, "shop")]
AT_THE_END = "() => scrollTo(0, document.documentElement.scrollHeight)"
HOMES = pytest.mark.parametrize("home", ["cell", "panel"])


def button(stage, name):
    return stage.page.get_by_role("button", name=name, exact=True)


def bar(stage):
    return stage.page.locator(".am-running").filter(visible=True)


def play(stage, feed, *events, home="cell"):
    for event in events:
        feed.feed(event)
    stage.receive(feed.frame(), home=home)


def asked(stage, home="cell", *, looking="at the beginning", calls=ASKED):
    """A long answer after which a call is asked about, while the reader looks somewhere."""
    feed = Feed([*started(), *text(LONG)])
    stage.show(feed, home)
    if home == "panel" and looking == "at the beginning":
        stage.page.locator(".am-scroller").hover()
        stage.page.mouse.wheel(0, -100_000)
        button(stage, "Go to the end").wait_for()
    elif home == "cell" and looking == "at the end":
        stage.page.evaluate(AT_THE_END)
    play(stage, feed, *calls, home=home)
    return feed


@HOMES
def test_an_approval_is_scrolled_into_sight_of_a_reader_who_is_at_the_end(stage, home):
    asked(stage, home, looking="at the end")
    for name in ("Approve", "Deny…"):
        expect(button(stage, name)).to_be_in_viewport(ratio=1)
    assert button(stage, "Approve order").count() == 0


def test_an_approval_is_scrolled_into_sight_of_a_reader_who_has_seen_nothing_of_its_cell_yet(stage):
    stage.page.evaluate("() => { document.querySelector('main').style.marginTop = `${innerHeight}px` }")
    asked(stage)
    expect(button(stage, "Approve")).to_be_in_viewport(ratio=1)


@HOMES
def test_an_approval_out_of_sight_is_told_and_given_in_a_bar_and_the_reader_stays(stage, home):
    asked(stage, home)
    expect(bar(stage)).to_contain_text("order waits for your approval")
    expect(bar(stage)).to_contain_text("what: tea, cups: 2")
    assert stage.page.evaluate("() => scrollY + (document.querySelector('.am-scroller')?.scrollTop ?? 0)") == 0
    for name in ("Show", "Approve order", "Stop"):
        expect(button(stage, name)).to_be_in_viewport(ratio=1)
    button(stage, "Approve order").click()
    assert stage.sent(home) == [{"type": "approve", "id": "a1"}]


@HOMES
def test_the_bar_goes_to_the_card_by_key_and_then_leaves_the_answer_to_it(stage, home):
    asked(stage, home)
    button(stage, "Show").press("Enter")
    expect(button(stage, "Approve")).to_be_in_viewport(ratio=1)
    expect(button(stage, "Approve order")).to_have_count(0)
    assert stage.page.evaluate("() => document.activeElement.tagName") == "SUMMARY"
    stage.page.keyboard.press("Tab")
    stage.page.keyboard.press("Enter")
    assert stage.sent(home) == [{"type": "approve", "id": "a1"}]


def test_arguments_that_the_bar_has_no_room_for_are_not_approved_there(stage):
    call = ToolCall("c1", "run", {"code": "print(1)\n" * 30})
    asked(stage, calls=[*asked_for(call, 1), *step_over(), ApprovalAsked("a1", call, "shop")])
    expect(bar(stage)).to_contain_text("run waits for your approval")
    assert button(stage, "Approve run").count() == 0
    button(stage, "Show").click()
    expect(button(stage, "Approve")).to_be_in_viewport(ratio=1)


def test_a_question_out_of_sight_is_told_in_the_bar(stage):
    asked(stage, calls=[QuestionAsked("q1", "Which tea?")])
    expect(bar(stage)).to_contain_text("A question waits for your answer")
    button(stage, "Show").click()
    stage.page.keyboard.type("Earl Grey")
    stage.page.keyboard.press("Enter")
    assert stage.sent("cell") == [{"type": "reply", "id": "q1", "text": "Earl Grey"}]


@HOMES
@pytest.mark.parametrize("step", [True, False])
def test_a_question_whose_beginning_alone_is_seen_is_told_in_the_bar(stage, home, step):
    """What must be seen is the part in which it is answered."""
    feed = Feed([*started(), *text("word\n\n" * 8)])
    stage.show(feed, home)
    if home == "panel":
        stage.page.locator(".am-scroller").hover()
    else:
        stage.page.set_viewport_size({"width": 1280, "height": 720})
    play(stage, feed, QuestionAsked("q1", "line\n" * 24, "hello" if step else "", step=step), home=home)
    stage.page.evaluate(
        "() => { scrollTo(0, 0); const log = document.querySelector('.am-scroller'); if (log) log.scrollTop = 0 }"
    )
    expect(bar(stage)).to_contain_text("Paused before a request" if step else "A question waits for your answer")
    button(stage, "Show").press("Enter")
    answered = button(stage, "Go on") if step else stage.page.get_by_label("Your answer")
    expect(answered).to_be_focused()
    expect(answered).to_be_in_viewport(ratio=0.9)
    if not step:
        stage.page.keyboard.type("tea")
    stage.page.keyboard.press("Enter")
    said = {"type": "approve", "id": "q1", "always": False} if step else {"type": "reply", "id": "q1", "text": "tea"}
    assert stage.sent(home) == [said]


def test_a_pause_before_a_call_is_left_by_the_key_that_goes_to_it(stage):
    asked(stage, calls=[*asked_for(CALL, 1), *step_over(), ApprovalAsked("a1", CALL, "shop", step=True)])
    expect(bar(stage)).to_contain_text("Paused before order")
    button(stage, "Show").press("Enter")
    expect(button(stage, "Go on")).to_be_focused()
    stage.page.keyboard.press("Enter")
    assert stage.sent("cell") == [{"type": "approve", "id": "a1", "always": False}]


def test_the_bar_says_how_many_more_wait(stage):
    other = ToolCall("c2", "order", {"what": "milk", "cups": 1})
    calls = [*asked_for(CALL, 1), *asked_for(other, 2), *step_over()]
    asked(stage, calls=[*calls, ApprovalAsked("a1", CALL, "shop"), ApprovalAsked("a2", other, "shop")])
    expect(bar(stage)).to_contain_text("order waits for your approval, and 1 more")


def test_the_line_of_the_turn_waits_with_the_person_and_spins_no_more(stage):
    feed = Feed([*started(), *ASKED])
    stage.show(feed, "cell")
    expect(bar(stage)).to_contain_text("waits for you")
    assert bar(stage).locator(".am-icon-running").count() == 0
    play(stage, feed, ApprovalGiven("a1", approved=True), ToolStarted(CALL, "shop"))
    assert "waits for you" not in bar(stage).inner_text()
    assert bar(stage).locator(".am-icon-running").is_visible()


def test_the_focus_stays_in_the_bar_when_its_buttons_have_gone(stage):
    feed = asked(stage)
    button(stage, "Approve order").focus()
    play(stage, feed, ApprovalGiven("a1", approved=True), ToolStarted(CALL, "shop"))
    assert stage.page.evaluate("() => document.activeElement.ariaLabel") == "Turn under way"
    stage.page.keyboard.press("Tab")
    assert stage.page.evaluate("() => document.activeElement.textContent") == "Stop"


@HOMES
def test_stop_is_in_sight_during_a_long_answer(stage, home):
    feed = Feed([*started(), PartStarted(0, "text"), PartDelta(0, LONG)])
    if home == "panel":
        stage.page.evaluate("() => { document.getElementById('panel').style.marginTop = '500px' }")
    stage.show(feed, home)
    expect(button(stage, "Stop").filter(visible=True).last).to_be_in_viewport(ratio=1)
    button(stage, "Stop").last.click()
    assert stage.sent(home) == [{"type": "stop"}]
    play(stage, feed, *over("", "cancelled"), home=home)
    assert not bar(stage).is_visible()


def test_the_title_is_marked_while_something_waits_even_when_it_changes(stage):
    feed = asked(stage)
    assert stage.page.title() == "(!) agentmagic: the view without Jupyter"
    stage.page.evaluate("() => { document.title = 'Untitled.ipynb' }")
    stage.page.wait_for_function("() => document.title === '(!) Untitled.ipynb'")
    play(stage, feed, ApprovalGiven("a1", approved=True), ToolStarted(CALL, "shop"))
    assert stage.page.title() == "Untitled.ipynb"


RECORD = """
() => {
  window.told = []
  window.Notification = class extends Notification {
    constructor(title, options) {
      super(title, options)
      told.push(options.body)
    }
  }
}
"""


@pytest.mark.parametrize(("permissions", "hidden", "told"), [(1, 1, 1), (1, 0, 0), (0, 1, 0)])
def test_a_notification_tells_a_person_who_has_allowed_them_and_looks_elsewhere(stage, permissions, hidden, told):
    stage.page.context.grant_permissions(["notifications"] if permissions else [])
    stage.page.evaluate(RECORD)
    if hidden:
        stage.page.evaluate("() => { Object.defineProperty(document, 'hidden', {value: true}) }")
    asked(stage)
    assert stage.page.evaluate("() => told") == ["order waits for your approval"] * told


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_wrong_with_the_bars(browser, dark):
    page = browser.open(dark=dark)
    asked(browser, "panel")
    asked(browser, "cell")
    expect(page.locator("#cell").get_by_role("button", name="Approve order")).to_be_in_viewport(ratio=1)
    assert browser.axe() == []
    page.close()


def test_a_conversation_in_which_nothing_waits_marks_nothing(stage):
    stage.show(Feed([*one_text("a"), *started()]), "cell")
    stage.show(Feed(scenes.streaming()))
    assert not stage.page.title().startswith("(!)")
    assert stage.page.get_by_text("waits for you").count() == 0
