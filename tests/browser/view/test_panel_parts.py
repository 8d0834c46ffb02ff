"""What stands around the conversation in the panel: head, gauge, search, files; and what stays in view."""

import base64

import pytest
from playwright.sync_api import expect

from agentmagic.events import ApprovalAsked, PartDelta, PartFinished, PartStarted
from agentmagic.messages import Text, ToolCall
from agentmagic.widgets.sync import Feed
from tests.display.logs import answered, asked_for, one_text, over, started, step_over, text

pytestmark = pytest.mark.browser

LONG_NAME = "anthropic:claude-sonnet-4-5-20250929"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGP8z8DAwMDAxMDAwMDAAAANHQEDasKb6QAAAABJRU5ErkJggg=="
)


def message(stage):
    return stage.page.get_by_label("Message", exact=True)


def narrow(stage, width):
    """Give the panel a width."""
    stage.page.add_style_tag(
        content=f"#panel {{ position: fixed; inset: 0 auto auto 0; width: {width}px; padding: 0 }}"
    )


# -- the head --------------------------------------------------------------------------------------

CUT = """head => [...head.querySelectorAll(':scope *:not(.am-heard, .am-items *, option, svg, path)')].filter(one =>
  one.getClientRects().length &&
  (one.getBoundingClientRect().right > head.getBoundingClientRect().right || one.scrollWidth > one.clientWidth + 1)
).map(one => one.className)"""
"""What in the head is cut off, or beyond its edge."""

HINT = """box => {
  const style = getComputedStyle(box), canvas = document.createElement('canvas').getContext('2d')
  canvas.font = style.font
  return box.clientWidth - 2 * parseFloat(style.paddingLeft) - canvas.measureText(box.placeholder).width
}"""
"""Pixels that are left beside the hint of the box."""


@pytest.mark.parametrize("model", ["openai:gpt-5", LONG_NAME])
@pytest.mark.parametrize("width", [330, 420, 700])
def test_the_head_is_one_line_in_which_nothing_is_cut_and_the_hint_fits(stage, width, model):
    narrow(stage, width)
    feed = Feed(one_text("a"))
    stage.show(feed, model=model, models=[model], cost="123,456 tokens, $0.0213", context=48_640, window=128_000)
    head = stage.page.locator(".am-head")
    assert head.bounding_box()["height"] < 46
    assert head.evaluate(CUT) == []
    assert message(stage).evaluate(HINT) >= 0
    stage.page.locator("summary[aria-label=More]").click()
    for part in (stage.page.get_by_label("Model", exact=True), stage.page.get_by_text("123,456 tokens, $0.0213")):
        expect(part).to_be_visible()
        assert part.evaluate("one => one.scrollWidth <= one.clientWidth + 1")
    stage.press("Escape")
    stage.play(feed, cost="9,123,456 tokens, $210.0213", title="a_session_with_a_long_name")
    assert head.evaluate("head => [...head.children].at(-1).getBoundingClientRect().right") <= width
    assert head.bounding_box()["height"] < 46


def test_the_buttons_of_an_approval_stand_in_one_row_at_the_width_of_the_docked_panel(stage):
    narrow(stage, 420)
    call = ToolCall("c1", "run_python", {"code": "import shutil\nshutil.rmtree(folder)\n" * 40})
    asked = ApprovalAsked("a1", call, "notebook", effects=("Risk: deletes files",))
    stage.show(Feed([*started(), *asked_for(call), *step_over(), asked]))
    expect(stage.page.locator(".am-extent")).to_contain_text("lines in view")
    buttons = [stage.button(name) for name in ("Approve", "Always this program", "Edit", "Deny…")]
    boxes = [button.bounding_box() for button in buttons]
    assert len({box["y"] for box in boxes}) == 1
    assert max(box["height"] for box in boxes) < 34
    edge = stage.page.locator(".am-approval").bounding_box()
    assert boxes[-1]["x"] + boxes[-1]["width"] <= edge["x"] + edge["width"]


# -- the gauge -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "window", "seen", "heard"),
    [
        (48_640, 128_000, "38 %", "context 38 % of 128k tokens"),
        (950_000, 1_000_000, "95 %", "context 95 % of 1M tokens"),
        (48_640, 0, "context 49k", "context 49k tokens, window unknown"),
        (812, 0, "context 812", "context 812 tokens, window unknown"),
    ],
)
def test_the_gauge_says_how_full_the_window_is_to_eyes_and_ears(stage, context, window, seen, heard):
    stage.show(Feed(one_text("a")), context=context, window=window)
    gauge = stage.page.locator(".am-gauge summary")
    expect(gauge).to_have_attribute("aria-label", heard)
    expect(gauge).to_have_text(seen)
    assert stage.axe() == []


def test_a_conversation_is_compacted_by_keys_but_not_while_a_turn_runs(stage):
    feed = Feed(one_text("a"))
    stage.show(feed, context=48_640, window=128_000)
    stage.page.locator(".am-gauge summary").press("Enter")
    stage.press("Tab", "Enter")
    assert stage.sent() == [{"type": "compact"}]
    stage.play(feed, *started())
    stage.page.locator(".am-gauge summary").press("Enter")
    expect(stage.button("Compact now")).to_be_disabled()
    stage.play(feed, *over(), context=0)
    expect(stage.page.locator(".am-gauge")).to_be_hidden()


# -- search ----------------------------------------------------------------------------------------


def conversation(turns):
    """A long conversation, with a call in each tenth turn, and one turn of many calls, which fold."""
    events = []
    for number in range(turns):
        call = ToolCall(f"c{number}", "look", {"page": number})
        many = [ToolCall(f"m{number}.{one}", "count", {"what": f"sheep {one}"}) for one in range(6)]
        calls = [call] if number % 10 == 0 else many if number == turns // 2 + 5 else []
        events += started(f"Question {number}")
        for index, one in enumerate(calls):
            events += asked_for(one, index)
        events += step_over()
        for one in calls:
            events += answered(one, Text(f"A **teapot** on shelf {number}." if one is call else "one more sheep"))
        words = f"Answer {number}.\n\n" + "\n\n".join(f"Some **plain** words, line {line}." for line in range(8))
        events += [*text(words, 90), *over()]
    return events


SEEN = """() => {
  const [range] = CSS.highlights.get('am-found-now')
  const seen = document.querySelector('.am-scroller').getBoundingClientRect()
  const place = range.getBoundingClientRect()
  return [range.toString(), place.height > 0 && place.top >= seen.top && place.bottom <= seen.bottom]
}"""
"""What the marked place says, and whether it is in sight."""


def find(stage, words):
    stage.press("Control+f")
    expect(stage.page.get_by_label("Search the conversation")).to_be_focused()
    stage.page.keyboard.press("Control+a")
    stage.page.keyboard.type(words)


def counts(stage, says):
    expect(stage.page.get_by_role("search").get_by_role("status")).to_have_text(says)


def sees(stage, words):
    stage.page.wait_for_function(f"words => ({SEEN})().join() === `${{words}},true`", arg=words)


def test_words_are_found_in_sixty_turns_and_in_closed_cards_which_open_and_escape_gives_the_focus_back(stage):
    stage.show(Feed(conversation(60)))
    message(stage).click()
    find(stage, "TEAPOT")
    counts(stage, "6 of 6")
    sees(stage, "teapot")
    assert stage.axe() == []
    for key, says, page in [("Enter", "1 of 6", 0), ("Enter", "2 of 6", 10), ("Shift+Enter", "1 of 6", 0)]:
        stage.press(key)
        counts(stage, says)
        sees(stage, "teapot")
        card = stage.page.locator(".am-card", has_text=f"page: {page}").filter(has_text="shelf").first
        expect(card.locator("details").first).to_have_attribute("open", "")
    opened = stage.page.locator(".am-card > details[open]").count()
    assert opened <= 3
    find(stage, "plain words, line 3")  # across an element of its own
    counts(stage, "60 of 60")
    stage.press("Enter")
    sees(stage, "plain words, line 3")
    find(stage, "sheep 4")
    counts(stage, "1 of 1")
    sees(stage, "sheep 4")
    find(stage, "unicorn")
    counts(stage, "Not found")
    stage.press("Escape")
    expect(message(stage)).to_be_focused()
    expect(stage.page.get_by_role("search")).to_be_hidden()
    assert (
        stage.page.evaluate("() => CSS.highlights.get('am-found').size + CSS.highlights.get('am-found-now').size") == 0
    )


def test_a_search_counts_what_comes_while_it_is_open_and_other_keys_stay_the_browsers(stage):
    feed = Feed(one_text("one word"))
    stage.show(feed)
    message(stage).click()
    find(stage, "word")
    counts(stage, "1 of 1")
    stage.play(feed, *started(), PartStarted(0, "text"), PartDelta(0, "a word and a word"))
    counts(stage, "1 of 3")
    stage.page.evaluate(
        "() => addEventListener('keydown', event => { window.last = [event.key, event.defaultPrevented] })"
    )
    stage.page.locator("body").click(position={"x": 5, "y": 5})
    stage.press("Control+f")
    assert stage.page.evaluate("() => window.last") == ["f", False]


# -- files -----------------------------------------------------------------------------------------

COPY = """async bytes => {
  const blob = new Blob([new Uint8Array(bytes)], { type: 'image/png' })
  await navigator.clipboard.write([new ClipboardItem({ 'image/png': blob })])
}"""
DROP = """([place, files]) => {
  const data = new DataTransfer()
  for (const [name, size] of files) data.items.add(new File([new Uint8Array(size)], name))
  for (const type of ['dragover', 'drop']) {
    place.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }))
  }
}"""


def test_an_image_is_pasted_with_a_preview_and_the_message_waits_until_it_is_attached(stage):
    feed = Feed()
    stage.show(feed)
    stage.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    stage.page.evaluate(COPY, list(PNG))
    message(stage).click()
    stage.press("Control+v")
    chips = stage.page.get_by_role("list", name="Attached").get_by_role("listitem")
    expect(chips).to_have_text(["pasted image.pngon its way"])
    stage.page.keyboard.type("what is it?")
    stage.press("Enter")
    assert stage.wait_for(lambda: [one["type"] for one in stage.sent()] == ["file"])
    assert base64.b64decode(stage.sent()[0]["data"])[1:4] == b"PNG"
    expect(message(stage)).to_have_value("what is it?")
    stage.play(feed, attached=[("pasted image.png", "image/png, 80 bytes")])
    assert stage.wait_for(lambda: len(stage.sent()) == 2)
    assert stage.sent()[1] == {"type": "send", "text": "what is it?", "attached": ["pasted image.png"]}
    assert chips.locator("img").evaluate("async one => (await one.decode(), one.naturalWidth > 0)")
    stage.button("Remove pasted image.png").press("Enter")
    assert stage.sent()[2] == {"type": "detach", "name": "pasted image.png"}
    stage.play(feed, attached=[])
    expect(chips).to_have_count(0)
    expect(message(stage)).to_be_focused()


def test_files_are_dropped_or_chosen_under_names_of_their_own_and_one_that_is_too_large_is_told_and_not_sent(stage):
    feed = Feed()
    stage.show(feed, attached=[("a.txt", "1 byte")])
    place = stage.page.locator(".am-composer").element_handle()
    stage.page.evaluate(DROP, [place, [("large.png", 6_000_001), ("a.txt", 3)]])
    assert stage.wait_for(lambda: [one["name"] for one in stage.sent()] == ["a 2.txt"])
    said = "large.png is not attached: it has 6,000,001 bytes, and 6,000,000 is the most."
    expect(stage.page.get_by_role("alert").get_by_text(said)).to_be_visible()
    with stage.page.expect_file_chooser() as chooser:
        stage.button("Attach a file").press("Enter")
    chooser.value.set_files({"name": "b.csv", "mimeType": "text/csv", "buffer": b"x"})
    assert stage.wait_for(lambda: [one["name"] for one in stage.sent()] == ["a 2.txt", "b.csv"])
    expect(message(stage)).to_be_focused()
    stage.receive({"problem": "b.csv is not attached: it is no text, and no image."})
    chips = stage.page.get_by_role("list", name="Attached").get_by_role("listitem")
    expect(chips).to_have_text(["a.txt1 byte"])


# -- what stays in view ----------------------------------------------------------------------------

TOP = """() => {
  const [answer] = [...document.querySelectorAll('.am-text')].slice(-1)
  return answer.getBoundingClientRect().top - document.querySelector('.am-scroller').getBoundingClientRect().top
}"""
AT_END = "() => (log => log.scrollHeight - log.scrollTop - log.clientHeight)(document.querySelector('.am-scroller'))"


def grow(stage, feed, words, times, seen):
    """Have an answer grow frame by frame; return what was seen after each."""
    found = []
    for number in range(times):
        stage.play(feed, PartDelta(0, f"{words} {number}.\n\n"))
        found.append(stage.page.evaluate(seen))
    return found


def test_an_answer_is_followed_until_its_first_line_is_at_the_top_and_then_stays(stage):
    feed = Feed([*one_text("Before. " * 300), *started(), PartStarted(0, "text")])
    stage.show(feed)
    tops = grow(stage, feed, "A line", 40, TOP)
    assert tops == sorted(tops, reverse=True)
    assert 0 <= tops[-1] <= 20
    assert len(set(tops[-15:])) == 1
    end = stage.button("Go to the end")
    end.click()
    assert all(at < 3 for at in grow(stage, feed, "Another line", 10, AT_END))
    stage.play(feed, PartFinished(0, Text("")), *step_over(), *over())
    stage.play(feed, *started("Next"), PartStarted(0, "text"))
    tops = grow(stage, feed, "New line", 40, TOP)
    assert 0 <= tops[-1] <= 20


def test_what_a_person_has_scrolled_to_stays_and_who_goes_to_the_end_follows_it(stage):
    feed = Feed([*one_text("Before. " * 300), *started(), PartStarted(0, "text")])
    stage.show(feed)
    grow(stage, feed, "A line", 40, TOP)
    stage.page.locator(".am-scroller").hover()
    stage.page.mouse.wheel(0, -150)
    stage.page.wait_for_function(f"() => ({TOP})() > 100")
    before = stage.page.evaluate(TOP)
    assert set(grow(stage, feed, "A line", 5, TOP)) == {before}
    stage.page.mouse.wheel(0, 100_000)
    stage.page.wait_for_function(f"() => ({AT_END})() < 3")
    assert all(at < 3 for at in grow(stage, feed, "A line", 10, AT_END))


def test_calls_are_followed_to_the_end_and_the_answer_behind_them_is_held(stage):
    feed = Feed([*started(), *text("I look.")])
    stage.show(feed)
    for number in range(20):
        call = ToolCall(f"c{number}", "look", {"page": number})
        stage.play(feed, *asked_for(call, number + 1))
        assert stage.page.evaluate(AT_END) < 3
    stage.play(feed, PartStarted(99, "text"), PartDelta(99, "So.\n\n"))
    for number in range(40):
        stage.play(feed, PartDelta(99, f"A line {number}.\n\n"))
    assert 0 <= stage.page.evaluate(TOP) <= 20
