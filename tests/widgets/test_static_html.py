"""The HTML of outputs: rendered in threads of their own, one at a time, in the context of their cell."""

import contextvars
import threading

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


async def _ask(session):
    return await session.start("hello", attended=False)


def requested(updates):
    async def call():
        updates.update()

    engine().submit(call()).result(PATIENCE)


def test_requests_during_an_update_are_answered_by_one_more_and_other_sessions_do_not_wait():
    held = Held()
    updates = OutputUpdates(held.show)
    context = contextvars.copy_context()
    context.run(CELL.set, "third")
    context.run(requested, updates)
    assert held.begun.acquire(timeout=PATIENCE)
    engine().submit(_ask(Session(Agent(ScriptedModel(["words"]))))).result(PATIENCE)
    for _ in range(3):
        requested(updates)
    held.release.release(2)
    assert held.begun.acquire(timeout=PATIENCE)
    assert not held.begun.acquire(timeout=0.1)
    assert held.calls[0] == "third"
    assert len(held.calls) == 2


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
