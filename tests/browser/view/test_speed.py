"""How fast the view draws, and what it costs the kernel."""

import pytest

from agentmagic.events import PartDelta, PartFinished, PartStarted
from agentmagic.messages import Text, ToolCall
from agentmagic.widgets.sync import Feed
from agentmagic.widgets.view import FRAME
from tests.benchmarks.paced import TOKENS, tokens
from tests.display.logs import answered, asked_for, over, started, step_over, text

pytestmark = pytest.mark.browser

SECONDS = 4
"""Of the end of an answer, shown live."""

LONG_TASK = 100
"""Milliseconds that the page may be busy at a stretch."""

LAST_PAINT = 0.3
"""Seconds from the last token to the last paint."""

TRIES = 3
"""A machine that does other work stretches every figure, by what `slowness` tells; one good try is enough."""


def frames_of(feed, written, each):
    """The frames of an answer that grows by so many tokens a frame, and its end."""
    for place in range(0, len(written), each):
        for token in written[place : place + each]:
            feed.feed(PartDelta(0, token))
        if frame := feed.frame():
            yield frame


def finished(feed, written):
    whole = "".join(written)
    for event in [PartFinished(0, Text(whole)), *step_over(), *over(whole)]:
        feed.feed(event)
    return feed.frame()


def played(stage, frames, pace):
    """Play frames; returns the seconds from the last one to the last paint, and the longest task in milliseconds."""
    stage.page.evaluate("() => { stage.longTasks.length = 0 }")
    lag = stage.page.evaluate("([frames, pace]) => stage.models.panel.play(frames, pace)", [frames, pace])
    return lag / 1000, max(stage.page.evaluate("() => stage.longTasks"), default=0)


@pytest.mark.parametrize("rate", [200, 5_000])
def test_an_answer_of_ten_thousand_tokens_keeps_the_page_at_hand(stage, rate, record_property):
    for _ in range(TRIES):
        lag, longest = answered_live(stage, rate)
        slow = stage.page.evaluate("() => stage.slowness()")
        if longest <= LONG_TASK * slow["at_worst"] and lag <= LAST_PAINT * slow["usually"]:
            break
    record_property("slowness of this machine", round(slow["at_worst"], 1))
    record_property("seconds from the last token to the last paint", round(lag, 3))
    record_property("longest task, ms", round(longest))
    assert stage.page.locator(".am-text table").count() > 3
    assert longest <= LONG_TASK * slow["at_worst"]
    assert lag <= LAST_PAINT * slow["usually"]


def answered_live(stage, rate):
    """Show an answer of which all but the last seconds are there already, and those come at a rate."""
    written = tokens()
    shown = max(0, TOKENS - SECONDS * rate)
    feed = Feed([*started(), PartStarted(0, "text"), *(PartDelta(0, token) for token in written[:shown])])
    stage.show(feed)
    frames = [*frames_of(feed, written[shown:], round(FRAME * rate)), finished(feed, written)]
    return played(stage, frames, 1000 * FRAME)


def test_two_hundred_turns_with_four_hundred_cards_open_within_a_second(stage, record_property):
    events = []
    for number in range(200):
        calls = [ToolCall(f"c{place}", "run_query", {"sql": f"SELECT {number}"}) for place in range(2)]
        events += [*started(f"Question {number}"), *asked_for(calls[0], 0), *asked_for(calls[1], 1), *step_over()]
        events += [event for call in calls for event in answered(call, Text(f'[{{"n": {number}}}]'))]
        events += [*text(f"Answer **{number}**, with `code` and a\n\n- list\n- of two"), *over("two")]
    seconds = min(stage.show(Feed(events)) for _ in range(TRIES))
    record_property("seconds", round(seconds, 2))
    record_property("longest task, ms", round(max(stage.page.evaluate("() => stage.longTasks"), default=0)))
    assert stage.page.locator(".am-card").count() == 400
    assert stage.page.get_by_text("Answer 199").is_visible()
    assert seconds < 1 * stage.page.evaluate("() => stage.slowness()")["at_worst"]
