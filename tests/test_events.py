"""The events, the fold into messages, and the table in the documentation, generated from the docstrings.

After a change, `python -m tests.test_events` writes the table anew.
"""

import inspect
from dataclasses import fields, is_dataclass
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

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
BEGIN, END = "<!-- the event table begins -->\n", "<!-- the event table ends -->"


def table():
    """The events of `agentmagic.events` as a Markdown table."""
    rows = [f"| `{kind.__name__}` | {_fields(kind)} | {_about(kind)} |" for kind in get_args(Event)]
    return "\n".join(["| event | fields | what happened |", "|---|---|---|", *rows]) + "\n"


def _fields(kind):
    return ", ".join(f"`{field.name}`" for field in fields(kind))


def _about(kind):
    return " ".join(inspect.getdoc(kind).split())


def test_the_table_in_the_documentation_is_that_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    assert page.split(BEGIN)[1].split(END)[0] == table()


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_every_event_is_a_frozen_value_with_a_type_of_its_own(kind):
    assert is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert [other for other in get_args(Event) if other.type == kind.type] == [kind]


def test_every_value_of_the_module_is_an_event_an_intent_or_a_result():
    values = {value for value in vars(events).values() if is_dataclass(value) and value.__module__ == events.__name__}
    others = {events.RunResult, events.HistoryCut, events.Task, events.PromptValue, events.VariableChange}
    assert values == {*get_args(Event), *get_args(Intent), *others}


# -- the fold into messages ---------------------------------------------------------------------------

OTHER = ToolCall("c2", "add", {"a": 3, "b": 4})
PROMPT = user("What is 1 + 2?")


def test_a_turn_folds_to_prompt_call_result_and_answer():
    assert fold(WHOLE) == (
        PROMPT,
        Message("assistant", (Text("Let me add."), CALL)),
        Message("tool", (RESULT,)),
        Message("assistant", (Text("It is 3."),)),
    )


def test_results_stand_in_the_order_of_the_calls():
    late = ToolResult("c2", "add", (Text("7"),))
    messages = fold([STARTED, *step(1, CALL, OTHER), ToolFinished(late), ToolFinished(RESULT)])
    assert messages[-1] == Message("tool", (RESULT, late))


def test_a_log_without_deltas_folds_to_the_same_messages():
    assert fold(event for event in WHOLE if not isinstance(event, (PartDelta, PartStarted))) == fold(WHOLE)


def test_a_part_that_began_as_text_is_what_it_ended_as():
    log = [STARTED, StepStarted(1, "m"), PartStarted(0, "text"), PartDelta(0, "Hm"), PartFinished(0, Reasoning("Hm."))]
    assert fold([*log, StepFinished(1, Usage())])[1].parts == (Reasoning("Hm."),)


def test_a_retry_withdraws_what_had_come():
    log = [STARTED, StepStarted(1, "m"), *told(0, Text("Wrong.")), PartStarted(1, "text"), PartDelta(1, "Half")]
    again = [StepRetried(1, 1, 0.5, "broken"), *step(1, Text("Right."))[1:]]
    assert fold([*log, *again]) == (PROMPT, Message("assistant", (Text("Right."),)))


def test_half_an_answer_is_kept_and_marked():
    log = [STARTED, StepStarted(1, "m"), *told(0, Reasoning("hm")), PartStarted(1, "text"), PartDelta(1, "Half an")]
    assert fold(log)[1:] == (Message("assistant", (Reasoning("hm"), Text("Half an")), interrupted=True),)


def test_a_call_whose_arguments_were_still_coming_is_dropped():
    log = [STARTED, StepStarted(1, "m"), PartStarted(0, "tool_call", "add"), PartDelta(0, '{"a": 1')]
    assert fold(log) == (PROMPT,)


def test_a_call_without_a_result_gets_an_interrupted_one():
    messages = fold([STARTED, *step(1, CALL, OTHER), ToolStarted(OTHER, "notebook"), ToolFinished(RESULT)])
    assert messages[-1].parts == (RESULT, ToolResult("c2", "add", (Text(INTERRUPTED),), "interrupted"))


def test_a_call_that_was_never_begun_is_said_to_be_so():
    messages = fold([STARTED, *step(1, CALL, OTHER), ToolFinished(RESULT)])
    assert messages[-1].parts[-1].text == NOT_RUN


@pytest.mark.parametrize("length", range(1, len(WHOLE) + 1))
def test_a_log_that_is_cut_off_anywhere_folds_to_a_valid_history(length):
    assert invalid_history(fold(WHOLE[:length])) is None


@pytest.mark.parametrize("length", range(1, len(WHOLE) + 1))
def test_the_closing_events_make_a_cut_off_log_whole(length):
    folded = Fold()
    for event in WHOLE[:length]:
        folded.feed(event)
    closing = tuple(folded.closing())
    assert fold([*WHOLE[:length], *closing]) == fold(WHOLE[:length])
    assert fold([*WHOLE[:length], *closing])[: len(folded.messages)] == tuple(folded.messages)


def test_an_answer_without_a_part_makes_no_message():
    assert fold([STARTED, StepStarted(1, "m"), StepFinished(1, Usage())]) == (PROMPT,)


def test_what_is_only_shown_changes_no_message():
    shown = [Notice("info", "words"), ApprovalAsked("1", CALL, "notebook"), ToolProgress("c1", 1.0)]
    log = [event for told_event in WHOLE for event in (told_event, *shown)]
    assert fold(log) == fold(WHOLE)


def test_parts_stand_in_the_order_of_their_indices():
    log = [
        STARTED,
        StepStarted(1, "m"),
        PartFinished(1, Text("b")),
        PartFinished(0, Text("a")),
        StepFinished(1, Usage()),
    ]
    assert fold(log)[-1].text == "ab"


if __name__ == "__main__":
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.split(END)[1], encoding="utf-8")
