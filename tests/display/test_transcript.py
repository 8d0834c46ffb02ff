"""Events to blocks. What each event shows is in contracts/test_events_everywhere."""

import json

import pytest
from hypothesis import given, settings

from agentmagic import Agent, ScriptedModel, Session
from agentmagic.display import call_words, html, terminal, words
from agentmagic.display.block_json import JsonRenderer
from agentmagic.display.blocks import FooterBlock, ReasoningBlock, RetryBlock, TextBlock, ToolCard
from agentmagic.display.transcript import Transcript
from agentmagic.events import (
    Notice,
    PartDelta,
    PartFinished,
    PartStarted,
    PromptAdded,
    PromptEdited,
    RunResult,
    StepRetried,
    StepStarted,
    ToolFinished,
    TurnFinished,
    without_deltas,
)
from agentmagic.messages import Reasoning, Text, ToolCall, ToolResult, Usage, user
from tests.display.logs import (
    MODEL,
    answered,
    asked_for,
    logs,
    over,
    started,
    step_over,
    text,
)

CALL = ToolCall("c1", "run_query", {"sql": "SELECT 1"})
EDITED = ToolCall("c1", "run_query", {"sql": "SELECT 2"})
LOST = ToolFinished(ToolResult("x", "lost", (), "interrupted"))
ASKED = [*asked_for(CALL), *step_over()]


@given(logs())
@settings(deadline=None)
def test_a_log_without_its_deltas_makes_the_same_blocks_and_nothing_stays_open_at_its_end(events):
    blocks = Transcript(events).blocks
    assert blocks == Transcript(without_deltas(events)).blocks
    assert not any(block.open for block in blocks)
    assert len({block.key for block in blocks}) == len(blocks)


def test_twenty_thousand_deltas_make_one_text_and_change_the_version_of_their_own_block_alone():
    transcript = Transcript([*started(), *text("done", 0), PartStarted(1, "text")])
    before = [block.version for block in transcript.blocks]
    for _ in range(20_000):
        transcript.feed(PartDelta(1, "ab"))
    assert [block.version for block in transcript.blocks] == [*before[:-1], before[-1] + 20_000]
    assert transcript.blocks[-1].text == "ab" * 20_000


def looks(block):
    """What tells a block from others of its kind."""
    match block:
        case ToolCard():
            return f"{block.name} {block.state} {dict(block.call.arguments) if block.call else ''}"
        case ReasoningBlock():
            return f"thought: {block.text}"
        case RetryBlock():
            return f"try {block.attempt + 1}"
        case FooterBlock():
            return "figures"
        case _:
            return block.text


@pytest.mark.parametrize(
    ("log", "blocks"),
    [
        ([*text("half"), Notice("info", "kept"), StepRetried(1, 1, 2.0, "Busy.")], ["kept", "try 2"]),
        (
            [StepRetried(1, 1, 1.0, "Down."), StepRetried(1, 2, 2.0, "Down."), *text("answer")],
            ["try 3", "answer"],
        ),
        (
            [*text("1"), *step_over(), StepStarted(2, MODEL), *text("2"), StepRetried(2, 1, 1.0, "Down.")],
            ["1", "try 2"],
        ),
        ([PartStarted(0, "text"), PartFinished(0, Reasoning("Noon?")), *text("Noon.", 1)], ["thought: Noon?", "Noon."]),
        ([*ASKED, *answered(EDITED, Text("2"))], ["run_query done {'sql': 'SELECT 2'}"]),
        ([LOST], ["lost interrupted {}"]),
        (
            [*ASKED, *answered(CALL), StepStarted(2, MODEL), *asked_for(EDITED), *step_over(2)],
            ["run_query done {'sql': 'SELECT 1'}", "run_query pending {'sql': 'SELECT 2'}"],
        ),
        (
            [PartStarted(0, "tool_call", "run_query"), PartDelta(0, "{"), *step_over(interrupted=True)],
            ["run_query interrupted "],
        ),
        (
            [*ASKED, *answered(CALL), *over("All done.", "done")],
            ["run_query done {'sql': 'SELECT 1'}", "All done.", "figures"],
        ),
    ],
    ids=[
        *["a retry keeps notices", "a second retry takes the place of the first", "a retry leaves earlier steps alone"],
        *["a text that proves to be reasoning", "a call that the user edited", "a result without a card"],
        *["a call of the same id in a later step", "a call whose arguments never came"],
        "the message of a tool that ends the turn",
    ],
)
def test_what_came_is_shown_once_where_it_belongs(log, blocks):
    _, *rest = Transcript([*started(), *log]).blocks
    assert [looks(block) for block in rest] == blocks


def test_that_a_price_is_unknown_is_said_once():
    usage = Usage(10, 0, 5, 0, 1, cost=None)
    turn = [*started(), *text("Yes."), *step_over(), TurnFinished(RunResult("Yes.", (), (), 1, False, "answer", usage))]
    footers = [block for block in Transcript(turn * 3).blocks if isinstance(block, FooterBlock)]
    assert ["price unknown" in words.footer(footer, times=False) for footer in footers] == [True, False, False]


def test_an_outside_agent_says_itself_what_its_call_does_and_has_no_price_to_be_known():
    call = ToolCall("1", "edit", {"title": "Edit notes.txt", "changes": "Changed: notes.txt"})
    card = ToolCard("edit", call, "acp:claude", "done")
    assert call_words.short_arguments(card) == "Edit notes.txt"
    footer = FooterBlock("acp:claude", usage=Usage(10, 0, 5, 0, 1, cost=None), stop_reason="answer")
    assert list(words.footer(footer, times=False)) == ["acp:claude"]


RECORDS = '{"value": [{"city": "Oslo", "people": 709}, {"city": "Rome", "people": 2755}]}'


LIST = {"type": "array", "items": {"type": "object"}}


def value_turn(words, output):
    result = Session(Agent(ScriptedModel([words]), output=output)).ask("Answer.")
    return Transcript([*result.events, TurnFinished(result)])


@pytest.mark.parametrize(
    ("output", "words", "lines"),
    [
        (LIST, f"```json\n{RECORDS}\n```", ["city  people", "Oslo     709", "Rome    2755"]),
        ({"type": "object"}, '{"value": 42}', ["field  value", "value  42"]),
    ],
)
def test_an_answer_that_is_a_value_is_shown_as_one(output, words, lines):
    transcript = value_turn(words, output)
    assert terminal.render(transcript).splitlines()[: len(lines)] == lines
    (block,) = [block for block in transcript.blocks if isinstance(block, TextBlock)]
    assert block.text == words  # which is what an export has
    assert block.render(JsonRenderer()).get("form", {}).get("form") == "table"
    assert "<table>" in html.render(transcript)


def test_a_value_of_several_levels_is_a_tree_and_json_that_was_not_asked_for_is_text():
    tree = json.dumps({"city": "Oslo", "parts": [{"name": "Frogner", "streets": ["a", "b"]}] * 3})
    assert "<b>name</b>: Frogner" in html.render(value_turn(tree, {"type": "object"}))
    assert "<b>name</b>" not in html.render(value_turn(tree, None))


def test_an_edit_of_a_prompt_that_was_sent_back_leaves_the_users_own_as_it_was():
    transcript = Transcript([*started(), PromptAdded(user("Again.")), PromptEdited(user("Again, please."))])
    assert transcript.blocks[0].prompt == started()[0].prompt
