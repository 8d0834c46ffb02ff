"""Sources in a page: numbers that open by click and by key, the list below, and the question for the web."""

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from agentmagic.display import html
from agentmagic.display.transcript import Transcript
from agentmagic.events import ApprovalAsked, ApprovalGiven, PartDelta, PartFinished, PartStarted, TurnFinished
from agentmagic.messages import Citation, HostedCall, HostedResult, Resource, Text, ToolCall
from agentmagic.widgets.sync import Feed
from tests.browser.view import scenes
from tests.display.logs import over, started, step_over

pytestmark = pytest.mark.browser

NEW, PEP = "https://docs.python.org/3.15/", "https://peps.python.org/pep-0810/"
WORDS = "It has a **JIT**. So it is fast.\n\n```python\nlazy import json\n```\n\nThe end."
CITED = Text(
    WORDS,
    citations=(
        Citation(0, 14, NEW, "What's new", "A JIT <b>now</b>."),
        Citation(18, 31, PEP, "PEP 810"),
        Citation(45, 60, PEP, "PEP 810", "lazy"),
    ),
)
WEB = ApprovalAsked("a1", ToolCall("w1", "web_search", {}), "notebook", effects=("Lets it search.",), hosted=True)


def answered(part):
    return [*started(), PartStarted(0, "text"), PartFinished(0, part), *step_over(), *over(part.text)]


def numbers(stage):
    return stage.page.locator(".am-cite")


def test_a_number_opens_its_source_by_key_and_by_click_and_the_list_has_them_all(stage):
    stage.show(Feed(answered(CITED)))
    assert numbers(stage).all_inner_texts() == ["1", "2", "2"]
    assert stage.page.locator(".am-text > p").all_inner_texts() == ["It has a JIT.1 So it is fast.2", "2", "The end."]
    first = stage.button("source 1: What's new").first
    first.focus()
    stage.press("Enter")
    card = stage.page.get_by_role("group", name="Source 1")
    assert card.inner_text().split("\n") == ["What's new", NEW, "A JIT <b>now</b>."]
    assert stage.focused() == "What's new"
    assert first.get_attribute("aria-expanded") == "true"
    link = card.get_by_role("link")
    assert (link.get_attribute("href"), link.get_attribute("target")) == (NEW, "_blank")
    assert link.get_attribute("rel") == "noopener noreferrer nofollow"
    stage.press("Escape")
    expect(card).to_have_count(0)
    assert stage.focused() == "source 1: What's new"
    stage.button("source 2: PEP 810").last.click()
    assert "lazy" in stage.page.get_by_role("group", name="Source 2").inner_text()
    stage.page.locator(".am-text > p").first.click(position={"x": 4, "y": 4})
    expect(stage.page.locator(".am-source")).to_have_count(0)
    entries = stage.page.get_by_role("listitem")
    assert entries.count() == 2
    assert stage.page.get_by_role("heading", name="Sources").count() == 1
    entries.nth(0).get_by_text("Quoted").click()
    assert entries.nth(0).locator("blockquote").inner_text() == "A JIT <b>now</b>."
    assert stage.complaints() == []
    assert stage.axe() == []


def test_numbers_come_with_the_finished_text_and_nothing_that_is_read_moves(stage):
    long = "\n\n".join(f"Paragraph {number} has a few words." for number in range(80))
    feed = Feed([*started(), PartStarted(0, "text"), PartDelta(0, long[:1_000])])
    stage.show(feed)
    top = "() => document.querySelector('.am-text > p').getBoundingClientRect().top"
    stage.play(feed, PartDelta(0, long[1_000:]))
    before = stage.page.evaluate(top)
    assert numbers(stage).count() == 0
    end = long.index("Paragraph 3 has") + 15
    stage.play(feed, PartFinished(0, Text(long, citations=(Citation(end - 9, end, NEW, "New"),))))
    expect(numbers(stage)).to_have_count(1)
    assert stage.page.evaluate(top) == before
    assert stage.page.locator(".am-text > p").count() == 80
    assert stage.page.locator(".am-text > p").nth(3).inner_text() == "Paragraph 3 has1 a few words."


def test_a_value_that_was_drawn_as_a_text_keeps_the_list_of_its_sources(stage):
    text = '{"value": 42}'
    part = Text(text, citations=(Citation(10, 12, NEW, "What's new"),))
    feed = Feed([*started(), PartStarted(0, "text"), PartFinished(0, part), *step_over()])
    stage.show(feed)
    expect(numbers(stage)).to_have_count(1)
    stage.play(feed, TurnFinished(replace(over(text)[-1].result, value=42, wrapped_in="value")))
    words = stage.page.locator(".am-words")
    expect(words).to_have_text(re.compile(r"^\s*42\s*Sources\s*What's new"))
    assert words.get_by_role("link", name="What's new").get_attribute("href") == NEW
    assert numbers(stage).count() == 0
    assert stage.axe() == []


def test_a_source_fits_on_a_phone(stage):
    stage.page.set_viewport_size({"width": 390, "height": 800})
    title = "A title of many words that says at length what the page is about, " * 2
    stage.show(Feed(answered(Text("So it is fast.", citations=(Citation(6, 14, NEW + "a" * 300, title, "b" * 500),)))))
    width = stage.page.evaluate("() => document.documentElement.scrollWidth")
    numbers(stage).click()
    frame = stage.page.locator(".am-source").bounding_box()
    assert frame["x"] >= 0
    assert frame["x"] + frame["width"] <= 390
    assert stage.page.evaluate("() => document.documentElement.scrollWidth") == width


def places(text):
    """The words before each number, and its number."""
    return [(before[-12:], number) for before, number in re.findall(r"(?s)(.*?)⟦(\d+)⟧", text)]


def test_the_page_and_the_saved_html_have_the_numbers_at_the_same_places(stage):
    words = scenes.MARKDOWN + "\nSee https://example.org/page and `code` 😀 here.\n"
    ends = [*range(7, len(words), 11), len(words)]
    found = tuple(Citation(max(end - 5, 0), end, f"https://x.org/{end}") for end in ends)
    log = answered(Text(words, citations=found))
    stage.show(Feed(log))
    marked = """e => {
      const copy = e.cloneNode(true)
      for (const one of copy.querySelectorAll(".am-code-head, .am-heard, annotation, math")) one.remove()
      for (const one of copy.querySelectorAll(".am-cite, sup")) one.textContent = `⟦${one.textContent}⟧`
      const text = copy.textContent.replace(/[☑☐]|\\[[x ]\\]|\\[image:|\\]/g, "").replace(/\\s+/g, "")
      return text.replace(/\\$\\$?[^$]*\\\\[^$]*\\$\\$?/g, "")  // maths, which the page typesets
    }"""
    page = stage.page.locator(".am-text").evaluate(marked)
    parsed = "([source]) => document.body.append(new DOMParser().parseFromString(source, 'text/html').body.firstChild)"
    stage.page.evaluate(parsed, [html.render(Transcript(log))])
    static = stage.page.locator(".mathjax_process").evaluate(marked)
    assert len(places(page)) >= len(ends)
    assert places(page) == places(static)


@pytest.mark.parametrize("key", ["y", "n"])
def test_the_question_for_the_web_has_one_yes_and_folds_to_a_line(stage, key):
    feed = Feed([*started(), WEB])
    stage.show(feed)
    card = stage.page.locator(".am-card")
    assert card.locator("summary").inner_text().split() == ["waiting:", "Search", "the", "web", "waits", "for", "you"]
    assert "Lets it search." in card.inner_text()
    assert [one.split("\n")[0] for one in card.get_by_role("button").all_inner_texts()] == [
        "Allow in this session",
        "Deny…",
    ]
    card.get_by_role("group", name="Approval of “Search the web”").focus()
    stage.press(key)
    if key == "n":
        stage.press("Enter")
    kind = {"y": "approve", "n": "deny"}[key]
    assert [(one["type"], one["id"], one.get("always")) for one in stage.sent()] == [(kind, "a1", None)]
    stage.play(feed, ApprovalGiven("a1", approved=key == "y"))
    assert card.locator("details").first.get_attribute("open") is None
    assert card.locator("summary").inner_text().split()[-1] == {"y": "allowed", "n": "denied"}[key]


def test_a_search_is_a_card_with_its_pages_and_many_of_them_fold(stage):
    pages = (Resource(NEW, "What's new", text="A <i>JIT</i>."), Resource("javascript:alert(1)", "Odd"))
    parts = [
        part
        for number in range(6)
        for part in (
            HostedCall(f"h{number}", "web_search", {"query": f"jit {number}"}, "anthropic"),
            HostedResult(f"h{number}", "web_search", pages),
        )
    ]
    feed = Feed([*started(), PartFinished(0, parts[0])])
    stage.show(feed)
    card = stage.page.locator(".am-card").first
    assert " ".join(card.inner_text().split()).startswith("running: Searching the web")
    stage.play(feed, PartFinished(1, parts[1]))
    words = " ".join(card.locator("summary").inner_text().split())
    assert words.replace("anthropic ", "") == "done: Searched the web jit 0 2 pages"
    card.locator("summary").click()
    items = card.get_by_role("listitem")
    expect(items).to_have_count(2)
    assert [" ".join(one.split()) for one in items.all_inner_texts()] == [
        f"What's new {NEW} A <i>JIT</i>.",
        "Odd javascript:alert(1)",
    ]
    assert [link.get_attribute("href") for link in card.get_by_role("link").all()] == [NEW]
    stage.play(feed, *[PartFinished(number, part) for number, part in enumerate(parts[2:], 2)])
    assert "Searched the web \u00d76" in stage.page.locator(".am-group").inner_text()
    assert stage.complaints() == []
