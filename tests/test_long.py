"""Long conversations: compaction keeps the requests under the window, and the log whole."""

import json
from itertools import pairwise

import pytest

from agentmagic import Agent, Session, tool
from agentmagic.errors import ContextTooLong, Unavailable
from agentmagic.events import Compacted, PartFinished, PartStarted, fold
from agentmagic.messages import Text, ToolCall, Usage
from agentmagic.providers.base import ModelFinished
from agentmagic.providers.registry import register_model
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.serialization import to_json
from agentmagic.testing import invalid_history
from agentmagic.tools.output_cache import READER
from tests.turns import calls

WINDOW = 2_000
"""Tokens of the small model's window."""
SMALL = "testing:small"
UNKNOWN = "testing:unlisted"
"""A model whose window nobody registered, and which is smaller than anybody guesses."""


@pytest.fixture(autouse=True)
def a_small_window():
    register_model(SMALL, window=WINDOW)


PAGE = "The page tells of a river, a mill and a bridge, and of who built them. " * 12


class Small:
    """A model with a small window that looks one page up each turn, and refuses what does not fit, as real ones do."""

    def __init__(self, name=SMALL, summaries=True):
        self.name = name
        self.sizes = []
        self.requests = []
        self.summaries = 0
        self._summaries = summaries

    async def stream(self, request):
        size = self._size(request)
        if size > WINDOW:
            message = f"{size} tokens do not fit a window of {WINDOW}"
            raise ContextTooLong(message)
        self.sizes.append(size)
        self.requests.append(request)
        for index, part in enumerate(self._parts(request)):
            yield PartStarted(index, part.type)
            yield PartFinished(index, part)
        yield ModelFinished(Usage(size, 0, 20), "stop")

    def _parts(self, request):
        if not request.tools:
            self.summaries += 1
            if not self._summaries:
                message = "no summaries today"
                raise Unavailable(message, retry_after=1e6)
            return [Text(f"Summary {self.summaries}: pages were looked up.")]
        last = request.messages[-1]
        if last.role == "tool":
            return [Text(f"Noted what {last.parts[0].call_id} says.")]
        number = last.text.split()[-1]
        return [ToolCall(f"look-{number}", "look", {"page": number})]

    def _size(self, request):
        said = json.dumps([to_json(message) for message in request.messages], ensure_ascii=False)
        return (len(said) + len(request.instructions)) // 4

    async def aclose(self):
        pass


def look(page: str) -> str:
    """Look a page up."""
    return f"Page {page}. {PAGE}"


def converse(session, turns=30):
    for number in range(turns):
        session.ask(f"Look up page number {number}")


def compactions(session):
    return [event for event in session.events if isinstance(event, Compacted)]


def test_thirty_turns_stay_under_a_small_window_with_all_pairs_intact_and_the_log_whole():
    model = Small()
    session = Session(Agent(model, tools=[look]))
    converse(session)
    assert max(model.sizes) <= WINDOW
    assert model.summaries >= 2
    assert all(event.after < event.before for event in compactions(session))
    asked = [request.messages for request in model.requests if request.tools]
    kept = [later[: len(one)] == one for one, later in pairwise(asked)]  # a request begins as the one before
    assert kept.count(False) == len(compactions(session))
    assert all(invalid_history(request.messages) is None for request in model.requests)
    assert len(session.messages) == 30 * 4
    assert fold(session.events) == session.messages
    assert [turn.prompt.text for turn in session.turns] == [f"Look up page number {number}" for number in range(30)]
    assert all(PAGE.strip() in result.text for turn in session.turns for result in turn.messages[2].parts)


def test_what_was_compacted_is_compacted_again_after_loading(tmp_path):
    session = Session(Agent(Small(), tools=[look]), path=tmp_path / "long.jsonl")
    converse(session, 8)
    session.close()
    model = Small()
    again = Session.load(tmp_path / "long.jsonl", Agent(model, tools=[look]))
    assert again.messages == session.messages
    again.ask("Look up page number 99")
    assert "Summary" in model.requests[0].messages[0].text
    assert max(model.sizes) <= WINDOW
    again.close()


def test_undoing_the_turn_of_a_compaction_undoes_the_compaction():
    model = Small()
    session = Session(Agent(model, tools=[look]))
    while not compactions(session):
        converse(session, 1)
    session.undo()
    assert session.history.compacted is None
    converse(session, 1)
    assert max(model.sizes) <= WINDOW


def test_a_model_that_refuses_a_window_nobody_knew_is_asked_again_with_less():
    model = Small(UNKNOWN)
    session = Session(Agent(model, tools=[look]))
    converse(session, 12)
    assert max(model.sizes) <= WINDOW
    assert compactions(session)
    assert any("do not fit" in event.error for event in session.events if event.type == "step_retried")


def test_a_summary_that_cannot_be_had_is_stood_in_for_and_a_prompt_that_fits_no_window_refused():
    model = Small(summaries=False)
    session = Session(Agent(model, tools=[look]))
    converse(session, 12)
    assert max(model.sizes) <= WINDOW
    assert compactions(session)
    with pytest.raises(ContextTooLong, match="do not fit a window"):
        session.ask("word " * 4 * WINDOW)
    assert session.ask("Look up page number 1").stop_reason == "answer"


def test_with_compaction_off_the_refusal_is_told_and_nothing_is_lost():
    session = Session(Agent(Small(), tools=[look], compact_at=None))
    with pytest.raises(ContextTooLong, match="do not fit a window"):
        converse(session)
    assert not compactions(session)
    assert invalid_history(session.messages) is None


# -- the output cache ------------------------------------------------------------------------------


def test_a_long_result_is_sent_as_a_preview_and_can_be_searched():
    whole = "hay " * 20_000 + "the needle " + "hay " * 20_000
    reading = {"calls": [{"name": READER, "arguments": {"id": "call_1", "search": "needle"}}]}
    model = ScriptedModel([calls("log"), reading, "Found."])
    session = Session(Agent(model, tools=[tool(name="log")(lambda: whole)], max_result=2_000))
    result = session.ask("Find it.")
    first, second, third = model.requests
    assert [tool.name for tool in first.tools] == ["log"]
    assert [tool.name for tool in second.tools] == ["log", READER]
    assert third.tools == second.tools
    assert len(second.messages[-1].parts[0].text) <= 2_000
    assert "the needle" in third.messages[-1].parts[0].text
    assert result.history_delta[2].parts[0].text == whole  # the log and the card show all of it
