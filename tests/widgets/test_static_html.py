"""The HTML of outputs: rendered in threads of their own, one at a time, in the context of their cell."""

import contextvars
import threading
import time
from itertools import pairwise

import pytest

from agentmagic.agent import Agent
from agentmagic.display.transcript import Transcript
from agentmagic.events import PartDelta, PartFinished, PartStarted, ToolFinished
from agentmagic.messages import Text, ToolCall, ToolResult
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.runtime.engine import engine
from agentmagic.session import Session
from agentmagic.widgets.static_html import WHOLE_TURNS, OutputUpdates, SessionHtml
from tests.display.logs import one_text, started

PATIENCE = 20
LONG = "*some* words with `code` and [links](https://example.org) \n" * 4000
CELL = contextvars.ContextVar("cell", default="none")


class Held:
    """A `show` that holds each call until it is released; `calls` has the cell of each."""

    def __init__(self):
        self.calls = []
        self.begun = threading.Semaphore(0)
        self.release = threading.Semaphore(0)
        self.at_once = threading.Lock()

    def show(self):
        assert self.at_once.acquire(blocking=False), "two updates at a time"
        self.calls.append(CELL.get())
        self.begun.release()
        assert self.release.acquire(timeout=PATIENCE)
        self.at_once.release()
        return 1


async def _ask(session, times):
    run = session.start("hello", attended=False)
    run.listen(lambda _: times.append(time.perf_counter()))
    return await run


def turn_of_another_session():
    """The times of the events of a turn."""
    times = []
    engine().submit(_ask(Session(Agent(ScriptedModel(["word " * 2000]))), times)).result(PATIENCE)
    return times


def requested(updates):
    async def call():
        updates.update()

    engine().submit(call()).result(PATIENCE)


def test_requests_during_an_update_are_answered_by_one_more_and_other_sessions_do_not_wait():
    held = Held()
    updates = OutputUpdates(held.show)
    requested(updates)
    assert held.begun.acquire(timeout=PATIENCE)
    assert turn_of_another_session()
    for _ in range(3):
        requested(updates)
    held.release.release(2)
    assert held.begun.acquire(timeout=PATIENCE)
    assert not held.begun.acquire(timeout=0.1)
    assert len(held.calls) == 2


def test_an_output_is_updated_in_the_context_of_its_cell():
    held = Held()
    held.release.release()
    context = contextvars.copy_context()
    context.run(CELL.set, "third")
    context.run(requested, OutputUpdates(held.show))
    assert held.begun.acquire(timeout=PATIENCE)
    assert held.calls == ["third"]


def test_an_update_that_fails_is_logged_and_does_not_end_the_later_ones(caplog):
    outcomes = [OSError("the socket is closed"), 1]
    shown = threading.Semaphore(0)

    def show():
        shown.release()
        if isinstance(outcome := outcomes.pop(0), OSError):
            raise outcome
        return outcome

    updates = OutputUpdates(show)
    while outcomes:
        requested(updates)
        assert shown.acquire(timeout=PATIENCE)
    assert "an output could not be updated" in caplog.text


def test_a_long_html_does_not_delay_the_events_of_other_sessions():
    """The engine shares the interpreter with the rendering thread, but never waits for a whole page."""
    transcript = Transcript(one_text(LONG))
    published = threading.Semaphore(0)
    pages = []

    def publish(data, update):
        pages.append(data["text/html"])
        published.release()

    def render():
        html = SessionHtml(transcript, lambda page: page, publish)
        begun = time.perf_counter()
        requested(html)
        times = [begun, *turn_of_another_session()]
        assert published.acquire(timeout=PATIENCE)
        return max(later - earlier for earlier, later in pairwise(times)), time.perf_counter() - begun

    turn_of_another_session()  # imports what a first turn imports
    # A machine under load may stop all threads for a while, so the best of three counts.
    shares = [gap / seconds for gap, seconds in (render() for _ in range(3))]
    assert len(pages[-1]) > 200_000
    assert min(shares) < 0.5


def test_finished_turns_are_shown_and_the_calls_of_early_ones_become_a_line_when_a_conversation_grows_long():
    def page(turns):
        call = ToolCall("c1", "query", {"sql": "SELECT 1"})
        finished = ToolFinished(ToolResult("c1", "query", (Text("[1]"),)), 0.1)
        turn = [*started(), PartFinished(0, call), finished, *one_text("fine")[1:]]
        under_way = [*started(), PartStarted(0, "text"), PartDelta(0, "half")]
        pages = []
        html = SessionHtml(
            Transcript(turn * turns + under_way), lambda page: page, lambda data, update: pages.append(data)
        )
        html.show()
        return pages[0]["text/html"]

    assert page(WHOLE_TURNS).count("Arguments") == WHOLE_TURNS
    assert "half" not in page(WHOLE_TURNS)
    longer = page(WHOLE_TURNS + 2)
    assert longer.count("Arguments") == WHOLE_TURNS
    assert longer.count("<samp>✓ query sql: SELECT 1 [100 ms] → [1]</samp>") == 2
    assert "Each call of the first 2 turns is one line here." in longer


@pytest.fixture(autouse=True, scope="module")
def running_engine():
    """Start the engine once, so that its thread is not counted to a test."""
    engine()
