"""The screens: what is published or printed of a turn, and when."""

import asyncio
import io
import json
import re
import threading

import pytest

from agentmagic import secrets
from agentmagic.agent import Agent
from agentmagic.display.transcript import Transcript
from agentmagic.events import (
    ApprovalAsked,
    Approve,
    MapProgress,
    PartDelta,
    PartFinished,
    PartStarted,
    StepStarted,
    ToolStarted,
)
from agentmagic.jupyter.cell import screens
from agentmagic.jupyter.cell.screens import FRAME, LiveHtml, LiveScreen, TerminalScreen
from agentmagic.messages import Reasoning
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.runtime.engine import engine
from agentmagic.session import Session
from agentmagic.widgets.page_messages import RetryTurn


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


CALL = {"text": "Let me see.", "calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]}


def events(*steps, **options):
    """The events of a turn, deltas and all."""
    run = Session(Agent(ScriptedModel(list(steps)), tools=[add])).start("hello", **options)
    run.wait()
    return run.events


class Cell:
    """Keeps what is published."""

    def __init__(self):
        self.published = []

    def publish(self, data, update):
        self.published.append((data, update))


class Html(LiveHtml):
    """The HTML of a transcript that is fed first, as a live screen does."""

    def __init__(self, publish, seen=lambda: False):
        self.transcript = Transcript()
        super().__init__(self.transcript, publish, lambda page: page, seen)

    def feed(self, event):
        self.transcript.feed(event)
        self.look(event)


@pytest.fixture(autouse=True, scope="module")
def running_engine():
    """Start the engine once, so that its thread is not counted to a test."""
    engine()


def finish_updates():
    """Wait until each update that was asked for has been published."""
    for thread in threading.enumerate():
        if thread.name == "agentmagic-html":
            thread.join()


async def _show(screen, happened):
    screen.begin(*([] if isinstance(screen, LiveHtml) else [lambda _: None]))
    for event in happened:
        screen.feed(event)
    await asyncio.sleep(0)
    screen.finish()


def test_a_live_screen_updates_at_most_once_a_frame():
    happened = events({"text": "word " * 2000})

    async def main():
        loop, times = asyncio.get_running_loop(), []
        screen = Html(lambda *_: times.append(loop.time()))
        screen.begin()
        for event in happened[:100]:
            screen.feed(event)
        while len(times) < 3:
            screen.look(happened[0])
            await asyncio.sleep(0)
        return times

    first, second, third = asyncio.run(main())
    assert second - first >= FRAME
    assert third - second >= FRAME * 0.9


def test_a_live_screen_begins_one_output_and_ends_it_with_the_static_form_of_the_last_attempt():
    cell = Cell()

    async def main():
        screen = Html(cell.publish)
        late = events("first")
        await _show(screen, late)
        assert [update for _, update in cell.published] == [False, True]
        screen.transcript.replace(())
        await _show(screen, events(CALL, "Three."))
        sent = len(cell.published)
        for event in late:  # after the end
            screen.feed(event)
        finish_updates()
        assert len(cell.published) == sent

    asyncio.run(main())
    shown = cell.published[-1][0]
    assert "Three." in shown["text/html"]
    assert "first" not in shown["text/html"]
    assert "✓ add (notebook)" in shown["text/plain"]
    assert [update for _, update in cell.published].count(False) == 2  # the output of the cell is cleared in between


@pytest.mark.parametrize(("every", "published"), [(0.0, 2), (60.0, 1)])
def test_the_html_of_a_map_is_fresh_enough_to_be_saved_while_a_page_shows_the_view(monkeypatch, every, published):
    monkeypatch.setattr(screens, "MAP_SECONDS", every)
    cell = Cell()

    async def main():
        screen = Html(cell.publish, lambda: True)
        screen.begin()
        screen.feed(MapProgress("m", 9, 4))
        await asyncio.sleep(0)
        await asyncio.to_thread(finish_updates)

    asyncio.run(main())
    assert len(cell.published) == published
    assert ("4 of 9 rows" in cell.published[-1][0]["text/html"]) == (published > 1)


def test_what_stands_aside_is_brought_up_to_date_only_when_the_turn_waits_for_the_user():
    cell = Cell()
    happened = events(CALL, "Three.")
    called = next(place for place, event in enumerate(happened) if isinstance(event, ToolStarted))

    async def main():
        screen = Html(cell.publish, lambda: True)
        screen.begin()
        waits = ApprovalAsked("a1", happened[called].call, "notebook")
        for part, sent in ((happened[:called], 1), ([waits], 2), (happened[called:], 2)):
            for event in part:
                screen.feed(event)
            finish_updates()
            assert len(cell.published) == sent

    asyncio.run(main())
    assert "Let me see." in cell.published[1][0]["text/html"]


def test_a_click_in_the_view_answers_the_turn_or_runs_it_again_if_that_is_offered():
    answered, retried = [], []

    async def main():
        screen = LiveScreen(lambda *_: None, Cell().publish, reachable=True)
        screen.begin(answered.append)
        screen.act(Approve("q"))
        screen.act(RetryTurn(turn=0))
        assert retried == []
        screen.offer_retry(retried.append)
        screen.act(RetryTurn(turn=0))
        assert retried == [screen._view]

    asyncio.run(main())
    assert answered == [Approve("q")]


def printed(*steps, **options):
    stream = io.StringIO()
    asyncio.run(_show(TerminalScreen(stream), events(*steps, **options)))
    return stream.getvalue()


def test_a_terminal_gets_words_as_they_come():
    stream = io.StringIO()
    seen = []

    async def main():
        screen = TerminalScreen(stream)
        for event in events("one two three"):
            screen.feed(event)
            seen.append(stream.getvalue())

    asyncio.run(main())
    assert "one " in seen
    assert "one two " in seen


def test_a_terminal_gets_a_value_as_a_table_and_not_as_json():
    lines = printed('{"value": [{"city": "Oslo", "people": 709}]}', output=list[dict[str, int | str]]).splitlines()
    assert lines[:2] == ["city  people", "Oslo     709"]
    assert printed('{"city": "Oslo"}').startswith('{"city": "Oslo"}')


def test_a_terminal_is_told_that_words_were_thinking():
    happened = events("Noon.")
    step = next(place for place, event in enumerate(happened) if isinstance(event, StepStarted)) + 1
    thought = [PartStarted(9, "text"), PartDelta(9, "Is it noon?"), PartFinished(9, Reasoning("Is it noon?"))]
    stream = io.StringIO()
    asyncio.run(_show(TerminalScreen(stream), [*happened[:step], *thought, *happened[step:]]))
    lines = stream.getvalue().splitlines()
    assert lines[:6] == ["Is it noon?", "", "Thought", "  Is it noon?", "", "Noon."]


def test_a_key_that_comes_in_pieces_does_not_reach_a_terminal():
    secrets.register_secret("a-key-that-no-pattern-knows")
    for step in ("It is a-key-that-no-pattern-knows here", "It is a-key-that-no-pattern-knows"):
        happened = [event for event in events(step) if not isinstance(event, PartDelta)]
        started = next(place for place, event in enumerate(happened) if isinstance(event, PartStarted))
        index = happened[started].index
        deltas = [PartDelta(index, step[i : i + 3]) for i in range(0, len(step), 3)]
        happened = [*happened[: started + 1], *deltas, *happened[started + 1 :]]
        stream = io.StringIO()
        asyncio.run(_show(TerminalScreen(stream), happened))
        assert stream.getvalue().startswith(step.replace("a-key-that-no-pattern-knows", secrets.BLANK))


def test_a_terminal_gets_a_line_for_each_task_that_ends_or_is_tried_again():
    judged = {"success": False, "retry": True, "reason": "Too few.", "parameters": {"a": 2, "b": 2}}
    tasks = [{"id": f"t{n}", "tool": "add", "parameters": {"a": n, "b": 1}, "description": f"sum {n}"} for n in (1, 2)]
    tasks[1]["depends_on"] = ["t1"]
    fine = {"success": True, "retry": False, "summary": "fine"}
    steps = map(json.dumps, ({"route": "tools"}, {"tasks": tasks}, judged, fine, fine))
    lines = printed(*steps, "Done.", plan=True, judge="all").splitlines()
    assert [line for line in lines if re.match(r"Plan:|  \S t\d", line)] == [
        "Plan: 0 of 2 done",
        "  ◌ t1 sum 1",
        "  ◌ t2 sum 2",
        "  ◌ t1 sum 1: Attempt 1: not what was needed (Too few). Tried again with other parameters.",
        "  ✓ t1 sum 1 [attempt 2]: fine",
        "  ✓ t2 sum 2: fine",
        "Plan: 2 of 2 done",
    ]
