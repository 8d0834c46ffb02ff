"""Events to the messages that views follow."""

import json
import time
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmagic import secrets
from agentmagic.display.block_json import LONGEST_ARGUMENTS, JsonRenderer
from agentmagic.display.blocks import ToolCard
from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    PartDelta,
    PartFinished,
    PartStarted,
    QuestionAnswered,
    QuestionAsked,
    StepStarted,
    ToolStarted,
    TurnStarted,
    Working,
)
from agentmagic.messages import Media, Reasoning, Text, ToolCall, ToolResult
from agentmagic.widgets.page_messages import read
from agentmagic.widgets.sync import Feed, pieces
from tests.display.logs import MODEL, asked_for, carried_out, logs, one_call, one_text, over, started, step_over
from tests.widgets.reader import Reader

CALL = ToolCall("c1", "run_query", {"sql": "SELECT 1"})


def clock():
    return 1000.0


def snapshot(feed, view="view") -> Any:
    return feed.hello(view, -1)[-1]


def opened(feed):
    """A view that has been answered."""
    reader = Reader()
    reader.take(snapshot(feed))
    return reader


def shown_anew(events):
    return opened(Feed(events, clock)).shown()


def told(feed, *events) -> Any:
    """The frame of some events, empty where they change nothing."""
    for event in events:
        feed.feed(event)
    return feed.frame() or {}


@given(logs(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_following_frames_shows_what_a_snapshot_shows(events, random):
    feed = Feed(clock=clock)
    reader = opened(feed)
    for event in events:
        feed.feed(event)
        if random.random() < 0.5 and (frame := feed.frame()):
            reader.take(frame)
    reader.take(told(feed) or {"n": 0, "ops": []})
    assert not reader.behind
    assert reader.shown() == shown_anew(events)
    assert reader.shown() == opened(feed).shown()


@given(logs(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_a_view_heals_when_messages_are_lost_doubled_and_late(events, random):
    feed = Feed(clock=clock)
    reader = Reader()
    wire = []
    for event in events:
        feed.feed(event)
        wire += filter(None, [feed.frame()])
        if reader.behind and random.random() < 0.3:
            wire += feed.hello(reader.name, reader.number)
        random.shuffle(wire)
        while wire and random.random() < 0.6:
            message = wire.pop()
            for _ in range(random.choice([0, 1, 1, 2])):
                reader.take(message)
    for message in [*wire, *feed.hello(reader.name, reader.number)]:
        reader.take(message)
    if reader.behind:
        reader.take(snapshot(feed))
    assert reader.shown() == shown_anew(events)


TEXT = [*started(), PartStarted(0, "text"), PartDelta(0, "one sk-")]
CARD = [*started(), *asked_for(CALL), *step_over()]
CHANGES = {
    "open text by what it grew": (TEXT, PartDelta(0, "x three "), [(2, "sk-x three ")]),
    "a text that ends without the text": (TEXT, PartFinished(0, Text("one sk-")), [(2, {"open": False}), (2, "sk-")]),
    "a text that ended otherwise than it grew": (
        [*started(), PartStarted(0, "reasoning"), PartDelta(0, "one two ")],
        PartFinished(0, Reasoning("other")),
        [(2, {"open": False, "text": "other"})],
    ),
    "the fields of a card that changed": (
        CARD,
        ToolStarted(CALL, "shop"),
        [(2, {"server": "shop", "state": "running", "word": "running", "since": 1000.0})],
    ),
}


@pytest.mark.parametrize(("before", "event", "ops"), CHANGES.values(), ids=CHANGES)
def test_what_changed_alone_is_sent(before, event, ops):
    feed = Feed(before, clock)
    feed.frame()
    assert told(feed, event)["ops"] == ops
    assert feed.frame() is None


def test_a_key_that_comes_in_pieces_is_never_sent():
    key = "sk-" + "abcdefgh" * 5
    feed = Feed([*started(), PartStarted(0, "text")], clock)
    whole = f"The key {key} is it"
    sent = [feed.frame(), *(told(feed, PartDelta(0, letter)) for letter in whole)]
    sent.append(told(feed, PartFinished(0, Text(whole))))
    reader = Reader()
    reader.take({"n": 0, "view": "view", "blocks": [], "state": {}})
    for frame in filter(None, sent):
        reader.take(frame)
        assert "sk-" not in str(reader.shown())
    assert reader.shown()[-1]["text"] == f"The key {secrets.BLANK} is it"


def test_what_waits_says_how_to_answer_and_what_can_be_edited():
    feed = Feed(CARD, clock)
    feed.frame()
    ((_, change),) = told(feed, ApprovalAsked("a1", CALL, "shop"))["ops"]
    assert (change["ask"], change["state"], change["edit"]) == ("a1", "waiting", [("sql", "SELECT 1", True)])
    ((_, change),) = told(feed, ApprovalGiven("a1", approved=True))["ops"]
    assert (change["ask"], change["edit"]) == ("", [])
    ((_, asked),) = told(feed, QuestionAsked("q1", "Which?"))["ops"]
    about = {
        "kind": "question",
        "label": "Question:",
        "text": "Which?",
        "answer": None,
        "ask": "q1",
        "suggested": "",
        "step": False,
    }
    about |= {"choices": [], "plan": "", "files": ""}
    assert asked == about


def test_a_turn_under_way_says_what_it_does_and_since_when():
    times = iter(range(100))
    feed = Feed([started()[0]], lambda: next(times))
    other = ToolCall("c2", "clock", {})
    steps = {
        "loading the model": [Working("loading the model")],
        "waiting for the model": [StepStarted(1, MODEL)],
        "thinking": [PartStarted(0, "reasoning")],
        "writing": [PartFinished(0, Reasoning("so")), PartStarted(1, "text")],
        "choosing a tool": [PartFinished(1, Text("I look.")), PartStarted(2, "tool_call", "run_query")],
        "waiting for run_query": [*asked_for(CALL, 2), *step_over(), ToolStarted(CALL, "shop")],
        "waiting for run_query, clock": [ToolStarted(other, "time")],
        "": [ApprovalAsked("a1", ToolCall("c3", "fetch", {}), "web")],
    }
    seen = [told(feed, *events)["state"]["running"]["doing"] for events in steps.values()]
    assert [words for words, _ in seen] == list(steps)
    assert told(feed, *over())["state"] == {"running": None}
    assert [since for _, since in seen] == sorted({since for _, since in seen})


APPROVED = ApprovalGiven("a1", approved=True)
ASKED = [StepStarted(1, MODEL), *asked_for(CALL), *step_over()]
WRITING = [StepStarted(1, MODEL), PartStarted(0, "text"), PartDelta(0, "so")]


@pytest.mark.parametrize(
    ("timed", "since", "doing"),
    [
        ([(0, [started()[0]]), (3, WRITING)], 0, ("writing", 3)),
        ([(0, one_text("a")), (60, [started()[0]]), (61, WRITING)], 60, ("writing", 61)),
        ([(0, [started()[0], *ASKED]), (10, [ApprovalAsked("a1", CALL, "shop")]), (40, [APPROVED])], 30, None),
        (
            [
                (0, [started()[0], *ASKED, ApprovalAsked("a1", CALL, "shop")]),
                (10, [QuestionAsked("q1", "Which?")]),
                (20, [APPROVED]),
                (30, [QuestionAnswered("q1", "this")]),
                (35, [ToolStarted(CALL, "shop")]),
            ],
            30,
            ("waiting for run_query", 35),
        ),
    ],
    ids=["its own begin", "not that of an earlier turn", "less what it waited", "less two waits at once"],
)
def test_the_clock_counts_the_turn_under_way_in_each_view_without_what_it_waited_for_the_user(timed, since, doing):
    times = [(event, 1000.0 + at) for at, events in timed for event in events]
    now = iter(float(second) for second in range(5000, 6000))
    feed, later = Feed((), lambda: next(now)), Feed((), lambda: next(now))
    for event, at in times:
        feed.feed(event, at)
        feed.frame()  # a frame after each event, and one after all of them
    begun = max(place for place, (event, _) in enumerate(times) if isinstance(event, TurnStarted))
    later.replace([event for event, _ in times[:begun]], times[begun:])
    for one in (feed, later):
        shown = snapshot(one)
        running = shown["state"]["running"]
        assert running["since"] == 1000.0 + since
        assert doing is None or running["doing"] == (doing[0], 1000.0 + doing[1])
        assert [fields["since"] for _, fields in shown["blocks"] if fields.get("since")] in ([], [1035.0])


def test_a_further_view_gets_a_snapshot_behind_a_frame_and_one_that_missed_nothing_none():
    feed = Feed(one_text("a"), clock)
    assert [message.get("view") for message in feed.hello("first", -1)] == ["first"]
    for event in one_text("b"):
        feed.feed(event)
    frame, behind = cast("list[Any]", feed.hello("second", -1))
    assert (frame.get("view"), behind.get("view")) == (None, "second")
    assert [block["turn"] for _, block in behind["blocks"] if block["kind"] == "prompt"] == [0, 1]
    assert feed.hello("first", frame["n"]) == [{"n": frame["n"], "view": "first"}]


def test_what_is_told_of_the_session_is_sent_once():
    feed = Feed(clock=clock)
    feed.tell({"model": "openai:x", "models": ["openai:x"]})
    assert told(feed)["state"] == {"running": None, "model": "openai:x", "models": ["openai:x"]}
    feed.tell({"model": "openai:x"})
    assert feed.frame() is None


def test_everything_is_plain_json_whatever_a_tool_says():
    odd = ToolCall("c", "f", {"n": float("nan"), "big": 2**80, "__proto__": {"x": 1}, "s": "\ud800"})
    result = ToolResult("c", "f", (Text("[1e999, NaN]"), Media("image/png", b"x"), Media("audio/wav", b"x")))
    feed = Feed([*started(), *asked_for(odd), *step_over(), *carried_out(odd, result), *over()], clock)
    assert json.loads(json.dumps(snapshot(feed), allow_nan=False).encode())
    (card,) = (block for block in opened(feed).shown() if block["kind"] == "card")
    assert card["arguments"] == [["n", "NaN"], ["big", str(2**80)], ["__proto__", '{"x": 1}'], ["s", r"\ud800"]]


def test_a_long_message_goes_in_pieces_below_the_limit_and_comes_out_whole():
    image = ToolResult("c1", "run_query", (Media("image/png", bytes(3_000_000)),))
    feed = Feed([*started(), *asked_for(CALL), *step_over(), *carried_out(CALL, image)], clock)
    message = snapshot(feed)
    parts = list(pieces(message, 1))
    parts.reverse()
    assert len(parts) == 11
    assert max(len(json.dumps(part)) for part in parts) < 1_000_000
    reader = Reader()
    for part in parts:
        reader.take(part)
    assert reader.shown() == opened(feed).shown()


def test_a_frame_costs_the_same_in_a_long_session():
    def seconds(calls):
        feed = Feed(clock=clock)
        for number in range(calls):
            for event in one_call(CALL, Text(str(number))):
                feed.feed(event)
        feed.frame()
        for event in [*started(), PartStarted(0, "text")]:
            feed.feed(event)
        feed.frame()
        began = time.process_time()
        for _ in range(1_000):
            feed.feed(PartDelta(0, "word "))
            feed.frame()
        return time.process_time() - began

    few, many = (min(seconds(calls) for _ in range(3)) for calls in (1, 2_000))  # what a busy machine adds is left out
    assert many < 20 * max(few, 0.01)


def test_what_a_person_approves_is_sent_with_hidden_characters_as_escapes():
    hidden = "\u202e\u200b\U000e0041\x1b"
    escape = hidden.encode("unicode_escape").decode()
    call = ToolCall("c1", "run", {"path": f"a{hidden}b", f"k{hidden}": {"deep": [hidden]}})
    feed = Feed([*started(), *asked_for(call), ApprovalAsked("a1", call, "shop")])
    card = snapshot(feed)["blocks"][-1][1]
    assert not any(letter in str(card["arguments"]) + str(card["edit"]) for letter in hidden)
    assert card["arguments"][0] == ("path", f"a{escape}b")
    assert card["edit"][0] == ("path", f"a{escape}b", True)
    same = json.dumps({name: text if plain else json.loads(text) for name, text, plain in card["edit"]})
    assert (
        read({"type": "edit", "id": "a1", "arguments": same}, feed.transcript.approval_requests.get).arguments
        == call.arguments
    )


def test_a_note_tells_of_cut_arguments_only_if_some_are_cut():
    def note(length):
        return JsonRenderer().card(ToolCard("write", ToolCall("c1", "write", {"text": "a" * length})))["note"]

    assert note(LONGEST_ARGUMENTS) == ""
    assert note(LONGEST_ARGUMENTS + 1) == "Only the first 100,000 characters of the arguments are shown."
