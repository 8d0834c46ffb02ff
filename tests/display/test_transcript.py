"""Events to blocks."""

import json
from dataclasses import dataclass, replace

import pytest
import typing_extensions
from hypothesis import given, settings

from agentmagic import Agent, ScriptedModel, Session
from agentmagic.display import html, terminal, words
from agentmagic.display.block_json import JsonRenderer
from agentmagic.display.blocks import (
    ChecklistBlock,
    FooterBlock,
    NoticeBlock,
    PromptBlock,
    QuestionBlock,
    ReasoningBlock,
    RetryBlock,
    TextBlock,
    ToolCard,
)
from agentmagic.display.transcript import Transcript
from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Notice,
    PartDelta,
    PartStarted,
    Planned,
    PromptAdded,
    PromptEdited,
    QuestionAnswered,
    QuestionAsked,
    RunResult,
    StepRetried,
    StepStarted,
    Task,
    TaskFinished,
    TaskJudged,
    TaskStarted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from agentmagic.messages import Text, ToolCall, ToolResult, Usage, user
from tests.display.logs import (
    MODEL,
    USAGE,
    answered,
    asked_for,
    logs,
    one_call,
    one_text,
    over,
    reasoning,
    started,
    step_over,
    text,
    withdrawn,
    without_deltas,
)

CALL = ToolCall("c1", "run_query", {"sql": "SELECT 1"})


def kinds(transcript):
    return [type(block) for block in transcript.blocks]


def card_of(transcript):
    return next(block for block in transcript.blocks if isinstance(block, ToolCard))


@given(logs())
@settings(deadline=None)
def test_a_log_without_its_deltas_makes_the_same_blocks(events):
    assert Transcript(events).blocks == Transcript(without_deltas(events)).blocks


@given(logs())
@settings(deadline=None)
def test_nothing_stays_open_when_the_turn_is_over(events):
    assert not any(block.open for block in Transcript(events).blocks)


def test_a_turn_shows_prompt_reasoning_text_card_and_footer_in_order():
    events = [*started(), *reasoning("hm", 0), *text("I look.", 1), *asked_for(CALL, 2), *step_over()]
    events += [*answered(CALL, Text("1")), *over("I look.")]
    assert kinds(Transcript(events)) == [PromptBlock, ReasoningBlock, TextBlock, ToolCard, FooterBlock]


def test_twenty_thousand_deltas_make_one_text():
    transcript = Transcript([*started(), PartStarted(0, "text")])
    for _ in range(20_000):
        transcript.feed(PartDelta(0, "ab"))
    block = transcript.blocks[-1]
    assert isinstance(block, TextBlock)
    assert block.text == "ab" * 20_000
    assert block.version == 20_000


def test_a_delta_changes_the_version_of_its_own_block_alone():
    transcript = Transcript([*started(), *text("done", 0), PartStarted(1, "text")])
    before = [block.version for block in transcript.blocks]
    transcript.feed(PartDelta(1, "more"))
    assert [block.version for block in transcript.blocks] == [*before[:-1], before[-1] + 1]


def test_a_card_exists_while_its_arguments_are_still_coming():
    transcript = Transcript([*started(), PartStarted(0, "tool_call", "run_query"), PartDelta(0, '{"sql": "SEL')])
    card = card_of(transcript)
    assert (card.name, card.call, card.raw, card.state) == ("run_query", None, '{"sql": "SEL', "pending")


def test_a_card_goes_from_pending_to_waiting_to_running_to_done():
    transcript = Transcript([*started(), *asked_for(CALL), *step_over()])
    card = card_of(transcript)
    states = [card.state]
    for event in (
        ApprovalAsked("a", CALL, "shop"),
        ApprovalGiven("a", approved=True),
        ToolStarted(CALL, "shop"),
        ToolProgress("c1", 1, 2),
        ToolFinished(ToolResult("c1", "run_query", (Text("1"),)), 0.1),
    ):
        transcript.feed(event)
        states.append(card.state)
    assert states == ["pending", "waiting", "pending", "running", "running", "done"]
    assert (card.server, card.seconds, card.progress, card.open) == ("shop", 0.1, None, False)


def test_a_denied_call_keeps_the_reason():
    events = [*started(), *asked_for(CALL), *step_over(), ApprovalAsked("a", CALL, "shop")]
    card = card_of(Transcript([*events, ApprovalGiven("a", approved=False, reason="not now")]))
    assert (card.state, card.reason) == ("denied", "not now")


def test_an_edited_call_is_shown_with_the_arguments_that_ran():
    edited = replace(CALL, arguments={"sql": "SELECT 2"})
    card = card_of(Transcript([*started(), *asked_for(CALL), *step_over(), *answered(edited, Text("2"))]))
    assert card.call == edited


def test_a_result_without_a_card_makes_one():
    card = card_of(Transcript([*started(), ToolFinished(ToolResult("x", "lost", (), "interrupted"))]))
    assert (card.name, card.state) == ("lost", "interrupted")


def test_the_same_call_id_in_a_later_step_is_another_card():
    events = [*started(), *asked_for(CALL), *step_over(), *answered(CALL, Text("1")), StepStarted(2, MODEL)]
    events += [*asked_for(CALL), *step_over(2), *answered(CALL, Text("2"))]
    results = [block.result.text for block in Transcript(events).blocks if isinstance(block, ToolCard) and block.result]
    assert results == ["1", "2"]


def test_a_retry_withdraws_the_step_and_keeps_notices():
    events = [*started(), *text("half", 0), Notice("info", "kept"), StepRetried(1, 1, 2.0, "Rate limited.")]
    assert kinds(Transcript(events)) == [PromptBlock, NoticeBlock, RetryBlock]


def test_a_text_that_proves_to_be_reasoning_is_shown_as_reasoning_alone():
    log = [*started(), *withdrawn("Is it noon?"), *text("Noon.", 1), *step_over(), *over("Noon.")]
    transcript = Transcript(log)
    assert kinds(transcript) == [PromptBlock, ReasoningBlock, TextBlock, FooterBlock]
    assert [block.text for block in transcript.blocks[1:3]] == ["Is it noon?", "Noon."]
    assert len({block.key for block in transcript.blocks}) == 4


def test_a_second_retry_takes_the_place_of_the_first():
    events = [*started(), StepRetried(1, 1, 1.0, "Down."), StepRetried(1, 2, 2.0, "Down."), *text("answer")]
    blocks = Transcript(events).blocks
    assert [block.attempt for block in blocks if isinstance(block, RetryBlock)] == [2]
    assert isinstance(blocks[-1], TextBlock)


def test_a_retry_leaves_the_steps_before_it_alone():
    events = [*started(), *text("first"), *step_over(), StepStarted(2, MODEL), *text("second")]
    transcript = Transcript([*events, StepRetried(2, 1, 1.0, "Down.")])
    assert [block.text for block in transcript.blocks if isinstance(block, TextBlock)] == ["first"]


def test_that_a_price_is_unknown_is_said_once():
    usage = Usage(10, 0, 5, 0, 1, cost=None)
    turn = [*started(), *text("Yes."), *step_over(), TurnFinished(RunResult("Yes.", (), (), 1, False, "answer", usage))]
    footers = [block for block in Transcript(turn * 3).blocks if isinstance(block, FooterBlock)]
    assert ["price unknown" in words.footer(footer, times=False) for footer in footers] == [True, False, False]


def test_a_card_whose_arguments_never_came_is_interrupted():
    events = [*started(), PartStarted(0, "tool_call", "run_query"), PartDelta(0, "{"), *step_over(interrupted=True)]
    card = card_of(Transcript(events))
    assert (card.state, card.raw, card.open) == ("interrupted", "", False)


def test_a_question_is_closed_by_its_answer():
    question = QuestionAsked("q", "Which folder?")
    block = Transcript([*started(), question, QuestionAnswered("q", "data")]).blocks[-1]
    assert block == QuestionBlock("Which folder?", "data")


def test_the_running_footer_counts_steps_and_joins_the_blocks_at_the_end():
    transcript = Transcript([*started(), *text("a"), *step_over()])
    assert transcript.running
    assert transcript.running.usage.requests == 1
    transcript = Transcript(one_text("a"))
    assert transcript.running is None
    assert transcript.blocks[-1] == FooterBlock(MODEL, USAGE, 7.3, "answer")


def test_the_message_of_a_tool_that_ends_the_turn_is_shown_as_text():
    events = [*started(), *asked_for(CALL), *step_over(), *answered(CALL, Text("ok")), *over("All done.", "done")]
    texts = [block.text for block in Transcript(events).blocks if isinstance(block, TextBlock)]
    assert texts == ["All done."]


def test_a_final_text_of_several_parts_is_not_shown_twice():
    events = [*started(), *text("One. ", 0), *text("Two.", 1), *step_over(), *over("One. Two.")]
    assert len([block for block in Transcript(events).blocks if isinstance(block, TextBlock)]) == 2


def test_a_failed_turn_says_why_before_its_footer():
    events = [*started(), *over("", "error", "The key was refused. Check OPENAI_API_KEY.")]
    notice = Transcript(events).blocks[-2]
    assert notice == NoticeBlock("error", "The key was refused. Check OPENAI_API_KEY.")


def test_one_transcript_takes_several_turns():
    transcript = Transcript([*one_text("first"), *one_call(CALL, Text("1"))])
    assert kinds(transcript) == [PromptBlock, TextBlock, FooterBlock, PromptBlock, ToolCard, FooterBlock]


PLAN = (
    Task("t1", "find", {"word": "too"}, "the number"),
    Task("t2", "add", {"a": 1, "b": "$t1"}, "the sum", ("t1",)),
)
RETRIED = (
    Planned(PLAN),
    TaskStarted("t1", "call_1", {"word": "too"}),
    TaskJudged("t1", success=False, retry=True, reason="It is spelt two.", parameters={"word": "two"}),
    TaskStarted("t1", "call_2", {"word": "two"}, 2),
    TaskFinished("t1", "done", "2"),
    TaskStarted("t2", "call_3", {"a": 1, "b": 2}),
)


def test_a_plan_is_one_checklist_that_changes():
    transcript = Transcript((TurnStarted(user("the sum"), "scripted:x"), *RETRIED))
    (block,) = (block for block in transcript.blocks if isinstance(block, ChecklistBlock))
    assert [(row.state, row.attempt) for row in block.rows] == [("done", 2), ("running", 1)]
    assert block.open
    assert terminal.render(transcript) == (
        "Plan: 1 of 2 done, 1 running\n  ✓ t1 the number [attempt 2]: 2\n  ◐ t2 the sum [running]"
    )


def test_a_snapshot_of_a_checklist_does_not_change():
    transcript = Transcript((TurnStarted(user("the sum"), "scripted:x"), *RETRIED))
    before = transcript.snapshot()
    transcript.feed(TaskFinished("t2", "failed", "no sum"))
    assert "1 of 2 done, 1 running" in terminal.render(before)
    assert "✗ t2 the sum [failed]: no sum" in terminal.render(transcript)


def test_the_saved_html_of_a_task_opens_to_its_parameters_and_attempts():
    written = html.render(Transcript((TurnStarted(user("the sum"), "scripted:x"), *RETRIED)))
    for part in ("Plan: 1 of 2 done", "word  two", "Attempt 1: not what was needed (It is spelt two)", "<details"):
        assert part in written


def test_a_plan_that_was_cut_off_says_so():
    written = terminal.render(Transcript((TurnStarted(user("the sum"), "scripted:x"), *RETRIED, *over())))
    assert "Plan: 1 of 2 done, interrupted" in written


RECORDS = '{"value": [{"city": "Oslo", "people": 709}, {"city": "Rome", "people": 2755}]}'


class City(typing_extensions.TypedDict):
    city: str
    people: int


@dataclass
class Answer:
    value: int


def value_turn(words, output):
    result = Session(Agent(ScriptedModel([words]), output=output)).ask("Answer.")
    return Transcript([*result.events, TurnFinished(result)])


@pytest.mark.parametrize(
    ("output", "words", "lines"),
    [
        (list[City], RECORDS, ["city  people", "Oslo     709", "Rome    2755"]),
        (list[City], f"```json\n{RECORDS}\n```", ["city  people", "Oslo     709", "Rome    2755"]),
        (City, '{"city": "Oslo", "people": 709}', ["field   value", "city    Oslo", "people  709"]),
        (int, '{"value": 42}', ["42"]),
        (Answer, '{"value": 42}', ["field  value", "value  42"]),
        (str, '{"value": "a text"}', ["a text"]),
    ],
)
def test_an_answer_that_is_a_value_is_shown_as_one(output, words, lines):
    transcript = value_turn(words, output)
    assert terminal.render(transcript).splitlines()[: len(lines)] == lines
    (block,) = [block for block in transcript.blocks if isinstance(block, TextBlock)]
    assert block.text == words  # which is what an export has
    assert block.render(JsonRenderer())["form"]["form"] == ("table" if len(lines) > 1 else "text")
    assert ("<table>" in html.render(transcript)) == (len(lines) > 1)


def test_a_value_of_several_levels_is_a_tree():
    tree = {"city": "Oslo", "parts": [{"name": "Frogner", "streets": ["a", "b"]}] * 3}
    page = html.render(value_turn(json.dumps(tree), {"type": "object"}))
    assert "<details" in page
    assert "Frogner" in page


def test_json_that_was_not_asked_for_stays_as_it_was_written():
    assert "<table>" not in html.render(value_turn(RECORDS, None))


def test_a_prompt_that_is_sent_back_is_a_line_in_a_cell():
    log = [*started(), *text("no"), *step_over(), PromptAdded(user("Name\na source.")), *text("yes"), *step_over(2)]
    transcript = Transcript([*log, *over("yes")])
    assert "Sent back to the model: Name a source." in terminal.render(transcript)
    assert "Sent back to the model: Name a source." in html.render(transcript)


def test_an_edit_of_a_prompt_that_was_sent_back_leaves_the_users_own_as_it_was():
    transcript = Transcript([*started(), PromptAdded(user("Again.")), PromptEdited(user("Again, please."))])
    assert [block.prompt.text for block in transcript.blocks if isinstance(block, PromptBlock)] == [
        started()[0].prompt.text
    ]
