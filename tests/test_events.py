"""The events, the fold into messages, and the table in the documentation, generated from the docstrings.

After a change, `python -m tests.test_events` writes the table anew.
"""

import inspect
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import get_args

import pytest

from agentmagic import events
from agentmagic.events import (
    INTERRUPTED,
    NOT_RUN,
    ApprovalAsked,
    Event,
    Fold,
    Intent,
    Notice,
    PartDelta,
    PartFinished,
    PartStarted,
    StepFinished,
    StepRetried,
    StepStarted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    fold,
)
from agentmagic.messages import Message, Reasoning, Text, ToolCall, ToolResult, Usage, user
from agentmagic.testing import invalid_history
from tests.logs import CALL, RESULT, STARTED, WHOLE, step, told

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "events.md"
BEGIN, END = "<!-- the event table begins -->\n", "<!-- the event table ends -->"


def table():
    """The events of `agentmagic.events` as a Markdown table."""
    rows = [
        f"| `{kind.__name__}` | {', '.join(f'`{field.name}`' for field in fields(kind))} "
        f"| {' '.join(inspect.getdoc(kind).split())} |"
        for kind in get_args(Event)
    ]
    return "\n".join(["| event | fields | what happened |", "|---|---|---|", *rows]) + "\n"


def test_the_table_in_the_documentation_is_that_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0] == table()


def test_every_value_of_the_module_is_an_event_of_its_own_type_an_intent_or_a_result():
    assert len({kind.type for kind in get_args(Event)}) == len(get_args(Event))
    values = {value for value in vars(events).values() if is_dataclass(value) and value.__module__ == events.__name__}
    others = {events.RunResult, events.HistoryCut, events.MapProgress, events.Task, events.PromptValue}
    others |= {events.VariableChange, events.AgentOption}
    assert values == {*get_args(Event), *get_args(Intent), *others}


# -- the fold into messages ---------------------------------------------------------------------------

OTHER = ToolCall("c2", "add", {"a": 3, "b": 4})
PROMPT = user("What is 1 + 2?")
BOTH = [STARTED, *step(1, CALL, OTHER)]


def said(*parts):
    return Message("assistant", parts)


LATE = ToolResult("c2", "add", (Text("7"),))
BEGUN = [STARTED, StepStarted(1, "m")]
ENDED = StepFinished(1, Usage())
HALF = [PartStarted(1, "text"), PartDelta(1, "Half an")]


@pytest.mark.parametrize(
    ("log", "messages"),
    [
        ([*BEGUN, ENDED], ()),
        ([*BEGUN, PartFinished(1, Text("b")), PartFinished(0, Text("a")), ENDED], (said(Text("a"), Text("b")),)),
        (
            [*BEGUN, PartStarted(0, "text"), PartDelta(0, "Hm"), PartFinished(0, Reasoning("Hm.")), ENDED],
            (said(Reasoning("Hm.")),),
        ),
        (
            [*BEGUN, *told(0, Text("No.")), *HALF, StepRetried(1, 1, 0.5, "broken"), *step(1, Text("Yes."))[1:]],
            (said(Text("Yes.")),),
        ),
        (
            [*BEGUN, *told(0, Reasoning("hm")), *HALF],
            (replace(said(Reasoning("hm"), Text("Half an")), interrupted=True),),
        ),
        ([*BEGUN, PartStarted(0, "tool_call", "add"), PartDelta(0, '{"a": 1')], ()),
        ([*BOTH, ToolFinished(LATE), ToolFinished(RESULT)], (said(CALL, OTHER), Message("tool", (RESULT, LATE)))),
        (
            [*BOTH, ToolStarted(OTHER, "notebook"), ToolFinished(RESULT)],
            (
                said(CALL, OTHER),
                Message("tool", (RESULT, ToolResult("c2", "add", (Text(INTERRUPTED),), "interrupted"))),
            ),
        ),
        (
            [*BOTH, ToolFinished(RESULT)],
            (said(CALL, OTHER), Message("tool", (RESULT, ToolResult("c2", "add", (Text(NOT_RUN),), "interrupted")))),
        ),
    ],
    ids=[
        *("no part", "in the order of the indices", "a part that began as text", "a retry withdraws", "half an answer"),
        *("half a call", "results in the order of the calls", "a call that was begun", "a call that was never begun"),
    ],
)
def test_a_log_folds_to_the_messages_of_its_turn(log, messages):
    assert fold(log) == (PROMPT, *messages)


def test_a_turn_folds_to_prompt_call_result_and_answer_whatever_is_only_shown():
    said_first, said_last = said(Text("Let me add."), CALL), said(Text("It is 3."))
    assert fold(WHOLE) == (PROMPT, said_first, Message("tool", (RESULT,)), said_last)
    assert fold(event for event in WHOLE if not isinstance(event, (PartDelta, PartStarted))) == fold(WHOLE)
    shown = [Notice("info", "words"), ApprovalAsked("1", CALL, "notebook"), ToolProgress("c1", 1.0)]
    assert fold([event for told_event in WHOLE for event in (told_event, *shown)]) == fold(WHOLE)


@pytest.mark.parametrize("length", range(1, len(WHOLE) + 1))
def test_a_log_that_is_cut_off_anywhere_folds_to_a_valid_history_and_its_closing_events_make_it_whole(length):
    log = WHOLE[:length]
    assert invalid_history(fold(log)) is None
    folded = Fold()
    for event in log:
        folded.feed(event)
    closed = fold([*log, *folded.closing()])
    assert closed == fold(log)
    assert closed[: len(folded.messages)] == tuple(folded.messages)


if __name__ == "__main__":
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.split(END)[1], encoding="utf-8")
