"""The turn of an agent tool, inside the card of its call: in blocks, texts, HTML, exports, and what a page is sent."""

import pytest

from agentmagic.display import html, terminal
from agentmagic.display.blocks import FooterBlock, TextBlock, ToolCard
from agentmagic.display.transcript import Transcript
from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    CellProposed,
    InnerEvent,
    PartDelta,
    PartStarted,
    ProposalSettled,
    QuestionAsked,
    ToolFinished,
    ToolStarted,
    TurnStarted,
    without_deltas,
)
from agentmagic.export import to_markdown, to_notebook
from agentmagic.messages import Text, ToolCall, ToolResult, user
from agentmagic.widgets.sync import Feed
from tests.display.logs import MODEL, answered, asked_for, over, started, step_over, text, words_of
from tests.export.turns import turn
from tests.widgets.reader import Reader
from tests.widgets.test_sync import snapshot, told

CALL = ToolCall("c1", "scout", {"prompt": "Find it."})
LOOK = ToolCall("c1", "look", {"at": 1})
"""A call of the agent inside; its id is that of the call around it, since each model counts its own."""
BEGUN = [*started(), *asked_for(CALL), *step_over(), ToolStarted(CALL, "notebook")]
INSIDE = [TurnStarted(user("Find it."), MODEL, agent="scout"), *started()[1:]]
LOOKED = [*asked_for(LOOK), *step_over(), *answered(LOOK, Text("3 rows"))]
DONE = ToolFinished(ToolResult("c1", "scout", (Text("It is here."),)))


def inner(*events, path=("c1",)):
    return [InnerEvent(path, event) for event in events]


WHOLE = [
    *BEGUN,
    *inner(*INSIDE, *LOOKED, *text("It is here."), *step_over(2), *over("It is here.")),
    DONE,
    *text("Found."),
    *step_over(2),
    *over("Found."),
]


def card_of(transcript) -> ToolCard:
    return next(block for block in transcript.blocks if isinstance(block, ToolCard))


def flat(blocks):
    return [one for block in blocks for one in (block, *flat(getattr(getattr(block, "inside", None), "blocks", ())))]


def test_the_turn_stands_inside_the_card_and_not_among_the_blocks_around_it():
    transcript = Transcript(WHOLE)
    card = card_of(transcript)
    assert [type(block) for block in card.inside.blocks] == [ToolCard, TextBlock, FooterBlock]
    assert (card.agent, card.state, card.inside.running) == ("scout", "done", None)
    assert card.inside.blocks[-1].agent == "scout"
    keys = [block.key for block in flat(transcript.blocks)]
    assert len(set(keys)) == len(keys)
    assert not any(block.open for block in flat(transcript.blocks))
    assert transcript.blocks == Transcript(without_deltas(WHOLE)).blocks


def test_each_reader_finds_the_turn_once_and_the_answer_not_twice():
    transcript = Transcript(WHOLE)
    for shown in (
        terminal.render(transcript, times=False),
        words_of(html.render(transcript)),
        to_markdown([turn(*WHOLE)]),
    ):
        assert [shown.count(words) for words in ("3 rows", "It is here.", "Found.")] == [1, 1, 1]
        assert shown.index("scout") < shown.index("3 rows") < shown.index("It is here.") < shown.index("Found.")
    assert "  │ ✓ look (shop) at: 1" in terminal.render(transcript, times=False).splitlines()


def test_a_terminal_has_a_line_for_each_call_inside_too():
    lines = card_of(Transcript(WHOLE)).render(terminal.TextRenderer(times=False, brief=True)).splitlines()
    assert lines == [
        "✓ scout (agent) prompt: Find it.",
        "  │ ✓ look (shop) at: 1 → 3 rows",
        "  │ It is here.",
        f"  │ scout · {MODEL} · $0.0019",
    ]


def test_a_notebook_of_the_turn_makes_the_calls_of_the_agent_and_asks_no_agent():
    cells = ["".join(cell["source"]) for cell in to_notebook([turn(*WHOLE)])["cells"]]
    assert any("look" in cell for cell in cells)
    assert not any("scout" in cell for cell in cells)


ASKED = ApprovalAsked("a1", LOOK, "shop")


@pytest.mark.parametrize("question", [ASKED, QuestionAsked("q1", "Where?")])
def test_a_card_waits_while_the_agent_asks_the_user_and_shows_what(question):
    transcript = Transcript([*BEGUN, *inner(*INSIDE, *LOOKED[:3], question)])
    card = card_of(transcript)
    assert (card.state, card.waits) == ("running", True)
    assert "<details open" in html.render(transcript).partition("It is here")[0]


def test_the_card_of_an_approval_says_which_agent_asks_until_it_is_answered():
    transcript = Transcript([*BEGUN, *inner(*INSIDE, *LOOKED[:3], ASKED)])
    inside = card_of(transcript).inside.blocks[0]
    assert (inside.client, transcript.approval_requests["a1"]) == ("scout", ASKED)
    assert "scout: look" in terminal.render(transcript)
    transcript.feed(InnerEvent(("c1",), ApprovalGiven("a1", approved=True)))
    assert (inside.client, card_of(transcript).waits) == ("", False)


@pytest.mark.parametrize("end", [[DONE], over("", "cancelled")], ids=["of the call", "of the turn"])
def test_a_turn_that_was_left_behind_is_over_when_the_one_around_it_is(end):
    transcript = Transcript([*BEGUN, *inner(*INSIDE, *LOOKED[:3], ToolStarted(LOOK, "shop")), *end])
    card = card_of(transcript)
    assert card.inside.running is None
    assert not any(block.open for block in flat(transcript.blocks))
    assert card.inside.blocks[0].state == "interrupted"


def test_turns_within_turns_and_events_of_none_are_taken():
    again = inner(*INSIDE, *text("Deep."), *step_over(), *over("Deep."), path=("c1", "c1"))
    lost = inner(*INSIDE, path=("unknown",)) + inner(*INSIDE, path=("c1", "unknown"))
    deep = [*BEGUN, *inner(*INSIDE, *asked_for(CALL), *step_over(), ToolStarted(CALL, "notebook")), *again, *lost]
    transcript = Transcript(deep)
    (inside,) = card_of(transcript).inside.blocks
    assert inside.inside.blocks[0].text == "Deep."
    assert "  │   │ Deep." in terminal.render(transcript)


def test_a_cell_that_the_agent_has_proposed_is_settled_in_its_card():
    cell = CellProposed("p1", "insert", "code", "x = 1", "Is short.", place="below")
    transcript = Transcript([*BEGUN, *inner(*INSIDE, *LOOKED[:3], cell)])
    version = card_of(transcript).version
    transcript.feed(ProposalSettled("p1", "kept"))
    assert card_of(transcript).inside.blocks[-1].settled.fate == "kept"
    assert card_of(transcript).version > version


def test_a_snapshot_stays_as_it_was_and_what_has_not_changed_in_it_is_not_copied_again():
    transcript = Transcript([*BEGUN, *inner(*INSIDE, *LOOKED, PartStarted(0, "text"))])
    before = transcript.snapshot()
    transcript.feed(InnerEvent(("c1",), PartDelta(0, "more")))
    after = transcript.snapshot(before)
    old, new = (card_of(one).inside.blocks for one in (before, after))
    assert (old[-1].text, new[-1].text) == ("", "more")
    assert old[0] is new[0]


def test_what_the_agent_wrote_cannot_leave_its_card():
    evil = "</details></div><script>alert(1)</script>"
    log = [*BEGUN, *inner(*INSIDE, *text(evil), *step_over(), *over(evil)), DONE, *over("")]
    assert "<script" not in html.render(Transcript(log))
    named = [*BEGUN, InnerEvent(("c1",), TurnStarted(user("x"), MODEL, agent="<b>scout"))]
    assert "<b>scout" not in html.render(Transcript(named), live=True)


# -- what a page is sent ---------------------------------------------------------------------------


def test_a_page_is_sent_the_blocks_inside_each_once_with_the_card_that_they_are_within():
    feed, reader = Feed(), Reader()
    reader.take(feed.hello("view", -1)[-1])
    for event in WHOLE:
        feed.feed(event)
        if frame := feed.frame():
            reader.take(frame)
    late = Reader("other")
    late.take(feed.hello("other", -1)[-1])
    assert reader.shown() == late.shown()
    places = [(block["kind"], block.get("within")) for block in reader.shown()]
    card = next(key for key, block in reader.blocks.items() if block.get("agent"))
    assert places.count(("card", card)) == 1
    assert [kind for kind, within in places if within == card] == ["card", "text", "footer"]
    assert [kind for kind, within in places if within is None] == ["prompt", "card", "text", "footer"]


def test_text_inside_is_sent_piece_by_piece_and_nothing_else_again():
    feed = Feed([*BEGUN, *inner(*INSIDE, *LOOKED, PartStarted(0, "text"), PartDelta(0, "One "))])
    feed.hello("view", -1)
    feed.feed(InnerEvent(("c1",), PartDelta(0, "two ")))
    assert [change for _, change in told(feed)["ops"]] == ["two "]


def test_a_turn_that_is_over_is_sent_no_more_and_one_that_is_replaced_is_taken_back():
    feed, reader = Feed(WHOLE), Reader()
    reader.take(feed.hello("view", -1)[-1])
    assert feed.frame() is None
    for event in WHOLE:
        feed.feed(event)
    reader.take(feed.frame())
    assert len(reader.shown()) == 14
    feed.replace(WHOLE)
    reader.take(feed.frame())
    assert len(reader.shown()) == 7


def test_the_time_of_a_call_inside_is_its_own():
    now = [1000.0]
    feed = Feed(clock=lambda: now[0])
    for event in BEGUN:
        feed.feed(event)
    now[0] = 1005.0
    for event in inner(*INSIDE, *LOOKED[:3], ToolStarted(LOOK, "shop")):
        feed.feed(event)
    cards = [block for _, block in snapshot(feed)["blocks"] if block["kind"] == "card"]
    assert [card["since"] for card in cards] == [1000.0, 1005.0]
