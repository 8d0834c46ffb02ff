"""What a person reads in the page and in saved HTML is the same, for each kind of block and state of a call."""

from typing import get_args

import pytest

from agentmagic.display import blocks, html, map_words
from agentmagic.display.transcript import Transcript
from agentmagic.events import ApprovalAsked, ApprovalGiven, ToolFinished, ToolStarted
from agentmagic.messages import Text, ToolCall, ToolResult
from agentmagic.widgets.sync import Feed
from tests.display.logs import answered, asked_for, carried_out, reasoning, started, step_over, words_of
from tests.display.test_agent_turns import WHOLE
from tests.display.test_renderers import ROWS

pytestmark = pytest.mark.browser

READ = """async glyphs => {
  // Everything is opened, and icons are read as the signs that stand for them in saved HTML. Left out are what a person
  // uses (buttons, boxes, the head of a block of code), the seconds of a call that runs, and words for screen readers.
  const left = `button:not(.am-group, .am-cite), textarea, input, select, .am-code-head, .am-card summary .am-heard,
    [data-state="running"] > details > summary > .am-time`
  for (let more; (more = document.querySelectorAll('.am-log details:not([open])')).length; await stage.drawn()) {
    for (const one of more) one.open = true
  }
  const display = node => getComputedStyle(node).display
  const read = node => {
    if (node.nodeType === Node.TEXT_NODE) return node.data
    if (node.nodeType !== Node.ELEMENT_NODE || node.hidden || node.matches(left)) return ''
    const icon = /am-icon-(\\w+)/.exec(node.getAttribute('class') ?? '')?.[1]
    if (icon) return ` ${glyphs[icon] ?? ''} `
    const before = node.matches('.am-figures > span + span') ? '· ' : ''
    const inside = before + Array.from(node.childNodes, read).join('')
    return display(node) !== 'inline' || /flex|grid/.test(display(node.parentElement)) ? ` ${inside} ` : inside
  }
  return read(document.querySelector('.am-log')).replace(/\\s+/g, ' ').trim()
}"""
"""Returns what the log of the page says."""

LOOK = """saved => {
  const live = [...document.querySelectorAll('.am-log .am-card')].at(-1)
  const place = document.body.appendChild(document.createElement('div'))
  place.innerHTML = saved
  const glyph = [...place.querySelectorAll('summary > span > span:first-child')].at(-1)
  const colours = [live.querySelector('.am-state svg'), glyph].map(one => getComputedStyle(one).color)
  place.remove()
  return [live.dataset.state, ...colours]
}"""
"""Returns the state of the last card, and the colours of its signs in the page and in saved HTML."""

CALLS = [ToolCall(f"c{number}", "look" if number else "list", {"n": number}) for number in range(7)]
GROUPED = [
    *reasoning("Look."),
    *(event for number, call in enumerate(CALLS, 1) for event in asked_for(call, number)),
    *step_over(),
    *answered(CALLS[0], Text("0")),
    *carried_out(CALLS[1], ToolResult("c1", "look", (Text("ValueError: 1"),), "error")),
    ApprovalAsked("a", CALLS[2], "shop"),
    ApprovalGiven("a", approved=False, reason="no"),
    ToolFinished(ToolResult("c2", "look", (Text("no", audience="assistant"),), "denied")),
    ApprovalAsked("b", CALLS[3], "shop"),
    ToolStarted(CALLS[4], "shop"),
]
ALL = {name: [*started(), *log] for name, (_, log, *_) in ROWS.items()}
ALL |= {"a group of calls": [*started(), *GROUPED], "a call that asks an agent": WHOLE}
SAVED_ALONE = {
    "a call that is written": ' Arguments {"sql": "SEL',
    "a search whose words are still written": ' Arguments {"query": "py',
    "a map under way": f" {map_words.UNDER_WAY}",
}
"""The words of saved HTML alone: the page does not repeat the arguments while they are written, and moves on itself."""


def test_the_page_and_saved_html_say_the_same_of_each_block_in_each_state(stage):
    said = {}
    for name, log in ALL.items():
        stage.show(Feed(log, clock=lambda: 0.0))
        saved = words_of(html.render(Transcript(log), prompt=True)).replace(SAVED_ALONE.get(name, ""), "")
        live = stage.page.evaluate(READ, map_words.GLYPHS)
        said[name] = (live, saved)
    assert {name: live for name, (live, _) in said.items()} == {name: saved for name, (_, saved) in said.items()}


def test_a_state_has_the_same_colour_in_the_page_and_in_saved_html(stage):
    colours = {"font-color2": "#000002", "font-color3": "#000003"}
    names = [f"--jp-content-{name}: {colour}" for name, colour in colours.items()]
    names += [
        f"--jp-{name}-color1: #00000{number}" for number, name in enumerate(("warn", "error", "success", "brand"), 4)
    ]
    stage.page.add_style_tag(content=f":root, .agentmagic {{ {'; '.join(names)} }}")
    seen = {}
    for log in (log for name, log in ALL.items() if name in ROWS and ROWS[name][0] is blocks.ToolCard):
        stage.show(Feed(log))
        state, live, saved = stage.page.evaluate(LOOK, html.render(Transcript(log)))
        seen[state] = (live, saved)
    assert set(seen) == set(get_args(blocks.State))
    assert {state: live for state, (live, _) in seen.items()} == {state: saved for state, (_, saved) in seen.items()}
