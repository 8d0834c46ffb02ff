"""Each event in each consumer: transcript, messages, a line of a journal, an export, a run that is handed in."""

import json
from typing import Any, NamedTuple, get_args

import pytest

from agentmagic import events, run_log, serialization
from agentmagic.display import html
from agentmagic.display.transcript import Transcript
from agentmagic.events import Event, Fold, StepFinished, ToolStarted, fold, is_delta, without_deltas
from agentmagic.export import to_json
from agentmagic.messages import (
    Citation,
    HostedCall,
    HostedResult,
    Message,
    Resource,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    as_text,
    user,
)
from agentmagic.testing import invalid_history
from tests.display.logs import MODEL, asked_for, started, text, words_of
from tests.export.turns import turn

SPENT = Usage(7, 0, 1, 0, 1, 0.0)
FIGURES = " · no charge"
CALL, INNER = ToolCall("c1", "look", {"at": 1}), ToolCall("c2", "peek", {})
RESULT = ToolResult("c1", "look", (Text("3 rows"),))
ASKED = [*asked_for(CALL), StepFinished(1, Usage())]
RUNNING = [*ASKED, ToolStarted(CALL, "shop")]
APPROVAL = events.ApprovalAsked("a1", CALL, "shop", effects=("Reads: x",))
QUESTION, ANSWER = events.QuestionAsked("q1", "Where?"), events.QuestionAnswered("q1", "Here.")
PLAN = events.Planned((events.Task("t1", "look", {"at": 1}, "the rows"),))
BEGUN = [PLAN, events.TaskStarted("t1", "c1", {"at": 1})]
CELL = events.CellProposed("p1", "insert", "code", "x = 1", "Is short.", place="below")
HANDED_IN = {"name": "look", "arguments": {"at": 1}, "status": "ok", "seconds": 0.5, "result": "3 rows"}
CHANGED = events.VariablesChanged((events.VariableChange("x", "made", "", "int"),), ("a.csv",), ("con",))
CALLED = (("assistant", "look"),)
PAGE = "https://docs.python.org/"
SEARCH = HostedCall("h1", "web_search", {"query": "a JIT"}, "openai")
FOUND = HostedResult("h1", "web_search", (Resource(PAGE, "New", text="It has one."),))
CITED = Text("Half.", citations=(Citation(0, 4, PAGE, "New", "a JIT"),))
HALF = [events.PartStarted(0, "text"), events.PartDelta(0, "Half an")]


class Row(NamedTuple):
    """An event after others of its turn, and what the consumers make of it."""

    before: list[Event]
    event: Event
    shown: str  # while the turn runs, below the prompt and above the figures
    figures: str = ""
    messages: tuple[tuple[str, str], ...] = ()  # role and words, after the prompt
    handed_in: dict[str, Any] = {}  # noqa: RUF012  (what differs from the run without the event)


ROWS = [
    Row([], events.TurnStarted(user("Hello"), MODEL), "Listing the tools…"),
    Row([], events.Working("loading the model"), "Loading the model…"),
    Row([events.Working("loading")], events.StepStarted(1, MODEL), "Waiting for the model…"),
    Row([], events.PartStarted(0, "reasoning"), "Thinking…"),
    Row(HALF[:1], HALF[1], "Half an▌"),
    Row(HALF, events.PartFinished(0, Text("Whole.")), "Whole. Waiting for the model…"),
    Row(HALF, events.PartFinished(0, CITED), f"Half. 1 Sources New {PAGE} Quoted a JIT Waiting for the model…"),
    Row([], events.PartFinished(0, SEARCH), "◐ Searching the web openai a JIT running Arguments query a JIT"),
    Row(
        [events.PartFinished(0, SEARCH)],
        events.PartFinished(1, FOUND),
        f"✓ Searched the web openai a JIT 1 page Arguments query a JIT Result New {PAGE} It has one. "
        "Waiting for the model…",
    ),
    Row(
        [events.PartFinished(0, SEARCH), events.PartFinished(1, FOUND), events.PartFinished(2, CITED)],
        StepFinished(1, SPENT),
        f"✓ Searched the web openai a JIT 1 page Arguments query a JIT Result New {PAGE} It has one. "
        f"Half. 1 Sources New {PAGE} Quoted a JIT Waiting for the model…",
        FIGURES,
        (("assistant", f'[web_search {{"query": "a JIT"}}] [resource {PAGE}]\nIt has one. Half.'),),
        {"steps": 1},
    ),
    Row(
        text("Yes."),
        StepFinished(1, SPENT),
        "Yes. Waiting for the model…",
        FIGURES,
        (("assistant", "Yes."),),
        {"steps": 1},
    ),
    Row(
        text("Half an"),
        events.StepRetried(1, 1, 2.0, "Busy."),
        "Busy, trying again in 2 s (2 of 5)",
    ),
    Row(
        ASKED,
        APPROVAL,
        "‖ look shop waits for you Arguments at 1 What it does Reads: x",
        messages=CALLED,
    ),
    Row(
        [*ASKED, APPROVAL],
        events.ApprovalGiven("a1", approved=False, reason="no"),
        "⊘ look shop at: 1 denied: no Arguments at 1 What it does Reads: x Reason no Waiting for the model…",
        messages=CALLED,
    ),
    Row(
        ASKED,
        events.CallChanged(ToolCall("c1", "peek", {"at": 2})),
        "◌ peek at: 2 Arguments at 2",
        messages=(("assistant", "peek"),),
    ),
    Row([], QUESTION, "Question: Where?"),
    Row([QUESTION], ANSWER, "Question: Where? Answer: Here. Waiting for the model…"),
    Row(
        [QUESTION, ANSWER],
        events.Clarified("Where?", "Here."),
        "Question: Where? Answer: Here. Waiting for the model…",
        messages=(("assistant", "Where?"), ("user", "Here.")),
    ),
    Row(
        ASKED,
        ToolStarted(CALL, "shop"),
        "◐ look shop at: 1 running Arguments at 1",
        messages=CALLED,
    ),
    Row(
        RUNNING,
        events.InnerCall("c1", INNER),
        "◐ look shop at: 1 running Arguments at 1 ◌ peek",
        messages=CALLED,
    ),
    Row(
        RUNNING,
        events.InnerEvent(("c1",), events.TurnStarted(user("Where?"), MODEL, agent="scout")),
        f"◐ look agent at: 1 running Arguments at 1 Listing the tools… scout · {MODEL}",
        messages=CALLED,
    ),
    Row(
        RUNNING,
        events.ToolProgress("c1", 1, 2),
        "◐ look shop at: 1 running 1 of 2 Arguments at 1",
        messages=CALLED,
    ),
    Row(
        RUNNING,
        events.ToolFinished(RESULT, 0.5),
        "✓ look shop at: 1 500 ms Arguments at 1 Result 3 rows Waiting for the model…",
        messages=(*CALLED, ("tool", "3 rows")),
        handed_in={"calls": [HANDED_IN]},
    ),
    Row(
        RUNNING,
        events.Sampled("c1", "shop", SPENT),
        "◐ look shop at: 1 running Arguments at 1 shop had the model answer it, beside the conversation: 8 tokens.",
        FIGURES,
        CALLED,
    ),
    Row([], events.Routed("tools", SPENT), "Waiting for the model…", FIGURES),
    Row([], events.PlanRejected("No such tool.", SPENT), "Waiting for the model…", FIGURES),
    Row([], events.Planned(PLAN.tasks, SPENT), "Plan: 0 of 1 done ◌ the rows look Parameters at 1", FIGURES),
    Row(
        [PLAN],
        events.TaskStarted("t1", "c1", {"at": 2}, usage=SPENT),
        "Plan: 0 of 1 done, 1 running ◐ the rows running look Parameters at 2",
        FIGURES,
    ),
    Row(
        BEGUN,
        events.TaskJudged("t1", success=False, retry=True, reason="Too few.", usage=SPENT),
        "Plan: 0 of 1 done ◌ the rows look Parameters at 1 "
        "Attempts Attempt 1: not what was needed (Too few). Tried again.",
        FIGURES,
    ),
    Row(
        BEGUN,
        events.TaskFinished("t1", "done", "3 rows", SPENT),
        "Plan: 1 of 1 done ✓ the rows look Parameters at 1 Summary 3 rows Waiting for the model…",
        FIGURES,
        handed_in={"tasks": ["t1: done"]},
    ),
    Row(
        [*text("No."), StepFinished(1, Usage())],
        events.PromptAdded(user("Name\na source.")),
        "No. Sent back to the model: Name a source. Waiting for the model…",
        messages=(("assistant", "No."), ("user", "Name\na source.")),
    ),
    Row([], events.PromptEdited(user("Hello")), "The prompt was changed to: Hello Waiting for the model…"),
    Row(
        [],
        events.Compacted("short", 2, 2, 0, 900, 100, SPENT),
        "Older turns were summarised for the model: about 900 tokens became 100. "
        "The history stays whole. Waiting for the model…",
        FIGURES,
    ),
    Row(
        [],
        CHANGED,
        "Changed in the notebook: + x: int Files opened to write: a.csv. "
        "Not watched, and not put back by undo: con. Waiting for the model…",
    ),
    Row(
        [],
        CELL,
        "Proposed cell Is short. It was inserted below the cell that ran, and was not run. x = 1 "
        "Waiting for the model…",
    ),
    Row(
        [CELL],
        events.ProposalSettled("p1", "kept", ran=True),
        "Proposed cell kept, and run Is short. x = 1 Waiting for the model…",
    ),
    Row(
        [],
        events.PageDecision("%mcp allow clock", "Lets tools run without asking you.", approved=True),
        "You allowed in the panel: %mcp allow clock Waiting for the model…",
    ),
    Row([], events.Notice("warning", "Look."), "Warning: Look. Waiting for the model…"),
    Row(
        [*text("Yes."), StepFinished(1, Usage())],
        events.TurnFinished(events.RunResult("Yes.", (), (), 1, False, "answer", SPENT, 1.0)),
        "Yes.",
        f" · 1.0 s{FIGURES}",
        (("assistant", "Yes."),),
        {"answer": "Yes.", "stopped": "answer", "tokens": {"in": 7, "out": 1}},
    ),
]


def test_every_event_has_a_row():
    assert {type(row.event) for row in ROWS} == set(get_args(Event))


def words_in(message: Message) -> str:
    words = {ToolCall: lambda part: part.name, HostedCall: as_text}
    return " ".join(words.get(type(part), lambda part: part.text)(part) for part in message.parts)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.event.type)
def test_each_consumer_takes_each_event(row):
    before = [*([] if isinstance(row.event, events.TurnStarted) else started()), *row.before]
    log = [*before, row.event]
    transcript, folded = Transcript(log), Fold()
    for event in log:
        folded.feed(event)
    assert words_of(html.render(transcript, live=True, prompt=True)) == f"Hello {row.shown} {MODEL}{row.figures}"
    assert [(one.role, words_in(one)) for one in folded.messages] == [("user", "Hello"), *row.messages]
    assert invalid_history(fold(log)) is None

    assert serialization.decode(serialization.encode(row.event)) == row.event
    saved = serialization.decode_log(map(serialization.encode, without_deltas(log)))
    assert Transcript(saved).blocks == Transcript(without_deltas(log)).blocks
    exported = json.loads(to_json([turn(*log)]))["turns"][0]["events"]
    assert [event["type"] for event in exported] == [event.type for event in log if not is_delta(event)]
    if before:
        told, without = run_log._turn(turn(*log)), run_log._turn(turn(*before))
        assert {name: value for name, value in told.items() if without.get(name) != value} == row.handed_in
