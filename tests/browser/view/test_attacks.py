"""Whatever others write, nothing of it runs, loads or changes the page; and it would, were it not for the walls."""

import shutil
import subprocess
from contextlib import suppress
from typing import Any, cast

import pytest
from playwright.sync_api import Error

from agentmagic.events import PartDelta, PartStarted
from agentmagic.messages import Text, ToolCall
from agentmagic.widgets.sync import Feed
from tests.browser.lab import ROOT
from tests.browser.view.attacks import (
    ENCODED,
    POLLUTION,
    TECHNIQUES,
    Marked,
    around,
    everywhere,
    printed_everywhere,
    rich_result,
)
from tests.display.logs import one_call, one_text, started
from tests.display.test_html_attacks import PAYLOADS

pytestmark = pytest.mark.browser

TRAP = """() => {
  window.hits = []
  window.fired = name => hits.push(decodeURIComponent(name))
  addEventListener('message', event => fired(event.data))
}"""

AUDIT = """() => {
  const wrong = []
  const own = new Set(['svg', 'path'])
  const never = 'script,style,iframe,object,embed,form,link,base,meta,video,audio,foreignObject,animate,use,image'
  for (const element of document.querySelectorAll('.agentmagic *')) {
    const name = element.localName
    if (element.matches(never) || (own.has(name) && !element.closest('.am-icon'))) wrong.push(`<${name}>`)
    for (const { name: attribute, value } of element.attributes) {
      if (attribute.startsWith('on') || attribute === 'srcdoc' || attribute === 'srcset') wrong.push(attribute)
      if (attribute === 'href' && !/^(https?:\\/\\/|mailto:)/.test(value)) wrong.push(value)
      if (attribute === 'src' && !/^data:image\\/(png|jpeg|gif|webp);base64,/.test(value)) wrong.push(value)
      if (attribute === 'style' && /url|@|\\\\/.test(value)) wrong.push(value)
    }
    if (element.localName === 'a' && !element.rel.startsWith('noopener noreferrer')) wrong.push('a link without rel')
  }
  return wrong
}"""

OPEN_ALL = """async () => {
  for (let round = 0; round < 3; round++) {
    for (const details of document.querySelectorAll('details')) details.open = true
    await stage.drawn()
  }
}"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory, browser):
    """The view built without its walls."""
    if not shutil.which("node") or not (ROOT / "js" / "node_modules").is_dir():
        pytest.skip("the view cannot be built: it needs Node.js and npm ci in js/")
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run(["node", "build.js", str(folder), "--unsafe"], cwd=ROOT / "js", check=True, timeout=60)
    built, browser.built = browser.built, folder
    yield browser
    browser.built = built


def opened(stage):
    stage.open(motion=True).evaluate(TRAP)
    return stage


def show_everywhere(stage, payload):
    """Show a payload in every place, with everything opened."""
    at = Marked(payload)
    feed = Feed(everywhere(at))
    feed.show(printed_everywhere(at), at["command"])
    stage.show(feed, "panel", **around(at))
    answer = cast("Any", feed.hello("another", -1)[-1])
    key, result = next((key, block["result"]) for key, block in answer["blocks"] if block.get("result"))
    stage.receive({"n": answer["n"] + 1, "ops": [[key, {"result": rich_result(at, result)}]]})
    stage.receive({"problem": at["problem"]})
    stage.page.evaluate(OPEN_ALL)
    stage.page.get_by_role("tab", name="Servers").dispatch_event("click")
    stage.drawn()
    return at


def write_slowly(stage, words, step=6):
    """Show an answer as it is being written, a few letters at a time."""
    feed = Feed([*started(), PartStarted(0, "text")])
    stage.show(feed)
    frames = []
    for place in range(0, len(words), step):
        feed.feed(PartDelta(0, words[place : place + step]))
        frames.append(feed.frame())
    stage.play_drawn(frames)


def hits(stage):
    """What has run; a page that was led away, or is on its way, has lost count."""
    try:
        return stage.page.evaluate("() => window.hits ?? []")
    except Error:
        return []


def test_no_attack_works_in_any_place_at_once_or_while_it_is_being_written(browser):
    stage = opened(browser)
    for technique in TECHNIQUES.values():
        show_everywhere(stage, technique)
        assert stage.page.evaluate(AUDIT) == [], technique
    stage.show(Feed([event for payload in PAYLOADS for event in one_text(payload)]))
    assert stage.page.evaluate(AUDIT) == []
    write_slowly(stage, "\n\n".join(TECHNIQUES.values()))
    assert stage.page.evaluate(AUDIT) == []
    assert hits(stage) == []
    assert [line for line in stage.complaints() if "evil.test" in line] == []
    stage.page.close()


def test_names_of_prototypes_are_shown_and_pollute_nothing(stage):
    call = ToolCall("c1", "f", {"__proto__": {"polluted": True}, "constructor": "x", "toString": "y"})
    stage.show(Feed(one_call(call, Text(POLLUTION[:-1] + ', "more": "so that it is a tree of several lines"}'))))
    stage.page.evaluate(OPEN_ALL)
    stage.receive({"n": 2, "ops": [[1, {"__proto__": {"polluted": True}}]], "state": {"__proto__": {"polluted": True}}})
    assert stage.page.evaluate("() => ({}).polluted") is None
    assert "polluted" in stage.page.locator(".am-tree").inner_text()


def test_without_the_walls_every_technique_works_and_in_every_place(bare):
    """The tests above could fail."""
    stage = opened(bare)
    at = show_everywhere(stage, "<img src=x onerror=fired(/PLACE/.source)>")
    places = set(at) - ENCODED
    stage.page.wait_for_function("count => new Set(hits).size >= count", arg=len(places))
    assert set(hits(stage)) == places
    for technique, payload in TECHNIQUES.items():
        stage.page.close()
        stage = opened(bare)
        with suppress(Error):  # a refresh takes the page away while it is drawn
            stage.show(Feed(one_text(payload)))
        if "press" in payload:
            stage.page.locator(".am-text :text('press')").click(no_wait_after=True)
        address = technique.replace(", ", "-").replace(" ", "-")
        assert stage.wait_for(lambda: stage.has_loaded(address) or technique in hits(stage)), technique  # noqa: B023
    stage.complaints()
    stage.page.close()
