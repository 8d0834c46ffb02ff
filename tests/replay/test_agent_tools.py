"""Agents as tools on tape: their requests are recorded and compared, and played without a model, a tool or a user."""

import re

import pytest

from agentmagic import Agent, Policy, Rule, Session, Text, ToolResult, register_secret
from agentmagic.errors import ReplayMismatch
from agentmagic.events import InnerEvent, PartFinished, PartStarted, innermost, without_deltas
from agentmagic.host import begin_cell
from agentmagic.messages import ToolCall, Usage
from agentmagic.providers.base import ModelFinished
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.replay.cassette import Cassette
from agentmagic.replay.report import describe, problems, scrub
from tests.loop.test_agent_calls import StallsAfter, inside
from tests.replay.test_replay import NoModel, path
from tests.turns import approve, calls, texts

__all__ = ["path"]
TASK = {"prompt": "Find the answer."}


class Answering:
    """A model that answers by what it reads: it makes its call once, and then answers with the result."""

    def __init__(self, name, arguments, says="{}", label="scripted:script"):
        self.name = label
        self.call = name, arguments
        self.says = says
        self.requests = []

    async def stream(self, request):
        self.requests.append(request)
        results = [part for part in request.messages[-1].parts if isinstance(part, ToolResult)]
        part = Text(self.says.format(results[0].text)) if results else ToolCall("call_1", *self.call)
        yield PartStarted(0, part.type)
        yield PartFinished(0, part)
        yield ModelFinished(Usage(3, 0, 2), "stop")

    async def aclose(self):
        pass


class Shop:
    """A tool that counts its calls."""

    def __init__(self, text="3 rows"):
        self.calls = 0
        self.text = text

    @property
    def tool(self):
        def look(what: str) -> str:
            """Look."""
            self.calls += 1
            return self.text

        return look


def agent(shop=None, *, inner=None, outer=None, instructions="", **options):
    """An agent that asks a scout, which looks into the shop."""
    inner = inner or Answering("look", {"what": "tea"}, "Found: {}.")
    outer = outer or Answering("scout", TASK, "Told: {}")
    scout = Agent(inner, tools=[(shop or Shop()).tool], instructions=instructions, **options)
    return Agent(outer, tools=[scout.as_tool("scout", "Finds things.")])


def played(path, made, mode, prompt="Go.", **options):
    begin_cell()
    session = Session(made, cassette=path, replay=mode)
    try:
        return session.start(prompt, **options).wait(), session
    finally:
        session.close()


def told(result):
    """The events of a turn, without those that come while a call runs."""
    left_out = ("part_started", "part_delta", "tool_progress", "working")
    return [event for event in result.events if innermost(event).type not in left_out]


def frozen(shop):
    """The same agent, whose models must not be asked."""
    return agent(shop, inner=NoModel(), outer=NoModel())


@pytest.mark.parametrize("mode", ["replay", "auto"])
def test_a_replay_asks_no_model_and_no_tool_and_tells_all_of_both_turns_as_it_was(path, mode):
    recorded, _ = played(path, agent(), "record")
    shop = Shop("something else")
    result, session = played(path, frozen(shop), mode)
    assert told(result) == told(recorded)
    assert (shop.calls, result.usage) == (0, recorded.usage)
    assert [verdict.cause for verdict in session.deck.verdicts] == ["same"] * 4


def test_the_recording_is_inside_that_of_the_turn_and_is_told_and_checked_with_it(path):
    played(path, agent(), "record")
    lines = [line.strip() for line in describe(Cassette.at(path))]
    assert lines[2:6] == [
        "scout asked: Find the answer.",
        "scout 1. tool call: look({'what': 'tea'})",
        "scout look returned: 3 rows",
        "scout 2. text: Found: 3 rows.",
    ]
    assert list(problems(Cassette.at(path))) == []


def test_a_request_of_the_agent_that_is_not_as_recorded_is_a_mismatch_with_its_cause(path):
    played(path, agent(), "record")
    words = r"In the turn of the agent scout: .*instructions is not as recorded .*Recorded: ''; now: 'Be brief.'"
    with pytest.raises(ReplayMismatch, match=words):
        played(path, agent(instructions="Be brief."), "replay")


def test_auto_goes_on_live_from_a_request_of_the_agent_that_differs_and_records_both_turns_anew(path):
    played(path, agent(), "record")
    outer, inner = Answering("scout", TASK, "New: {}"), Answering("look", {"what": "tea"}, "Anew: {}.")
    result, session = played(path, agent(outer=outer, inner=inner, instructions="Be brief."), "auto")
    assert result.final_text == "New: Anew: 3 rows."
    assert [verdict.cause for verdict in session.deck.verdicts] == ["same", "instructions"]
    assert (len(outer.requests), len(inner.requests)) == (1, 2)
    assert list(problems(Cassette.at(path))) == []
    result, _ = played(path, agent(outer=NoModel(), inner=NoModel(), instructions="Be brief."), "replay")
    assert result.final_text == "New: Anew: 3 rows."


def test_the_agents_models_are_played_with_real_tools_or_its_tools_with_real_models_around_it(path):
    played(path, agent(), "record")
    shop = Shop()
    result, _ = played(path, frozen(shop), "replay-model")
    assert (shop.calls, result.final_text) == (1, "Told: Found: 3 rows.")
    outer = Answering("scout", TASK, "Real: {}")
    result, _ = played(path, agent(shop, inner=NoModel(), outer=outer), "replay-tools")
    assert (shop.calls, result.final_text) == (1, "Real: Found: 3 rows.")


def test_what_the_user_answered_to_the_agent_is_played(path):
    def asking():
        return agent(permission=Policy([Rule("ask", "look")]))

    begin_cell()
    session = Session(asking(), cassette=path, replay="record")
    under_way = session.start("Go.", attended=True)
    asks = "approval_asked"
    under_way.listen(lambda one: under_way.send(approve(innermost(one))) if innermost(one).type == asks else None)
    recorded = under_way.wait()
    session.close()
    result, _ = played(path, asking(), "replay")
    kinds = [event.type for event in without_deltas(inside(recorded))]
    assert [event.type for event in without_deltas(inside(result))] == kinds
    assert "approval_given" in kinds


def test_calls_of_one_agent_at_one_time_each_have_their_own_turn_on_tape(path):
    steps = [calls(("scout", {"prompt": "One."}), ("scout", {"prompt": "Two."})), "Both."]

    def made(*answers):
        scout = Agent(ScriptedModel(answers)).as_tool("scout", "Finds.")
        return Agent(ScriptedModel(steps if answers else []), tools=[scout])

    recorded, _ = played(path, made("First.", "Second."), "record")
    result, _ = played(path, made(), "replay")
    assert texts(result) == texts(recorded) == ["First.", "Second."]
    assert sorted(map(str, told(result))) == sorted(map(str, told(recorded)))


def test_agents_within_agents_are_inside_the_recordings_of_each_other(path):
    def made(model):
        scout = Agent(model("look", {"what": "tea"}), tools=[Shop().tool]).as_tool("scout", "Finds.")
        middle = Agent(model("scout", TASK), tools=[scout]).as_tool("middle", "Asks.")
        return Agent(model("middle", TASK), tools=[middle])

    recorded, _ = played(path, made(Answering), "record")
    result, session = played(path, made(lambda *_: NoModel()), "replay")
    assert told(result) == told(recorded)
    assert {event.path for event in result.events if isinstance(event, InnerEvent)} == {
        ("call_1",),
        ("call_1", "call_1"),
    }
    assert [verdict.cause for verdict in session.deck.verdicts] == ["same"] * 6


def test_a_turn_that_was_stopped_inside_the_agent_is_stopped_there_again(path):
    def stop():
        session.running.cancel()

    begin_cell()
    session = Session(agent(inner=StallsAfter(tell=stop)), cassette=path, replay="record")
    recorded = session.ask("Go.")
    session.close()
    result, _ = played(path, agent(inner=NoModel("testing:stalled"), outer=NoModel()), "replay")
    assert result.stop_reason == recorded.stop_reason == "cancelled"
    assert told(result) == told(recorded)


@pytest.mark.parametrize(("what", "fails"), [("Found: 3 rows.", False), ("  text: 3 rows", True)])
def test_an_edit_of_the_agents_answer_is_told_and_one_of_a_result_is_a_mismatch(path, what, fails):
    played(path, agent(), "record")
    text = path.read_text()
    path.write_text(text.replace(what, what.replace("3", "4"), 1))
    if fails:
        with pytest.raises(ReplayMismatch, match="edited"):
            played(path, frozen(Shop()), "replay")
    else:
        result, _ = played(path, frozen(Shop()), "replay")
        assert "is not as recorded" in " ".join(one.text for one in told(result) if one.type == "notice")


def test_a_secret_is_scrubbed_inside_too(path):
    played(path, agent(Shop("the key is hushhush-4711")), "record")
    register_secret("hushhush-4711")
    assert any("it holds a secret" in line for line in problems(Cassette.at(path)))
    scrub(Cassette.at(path))
    assert "hushhush" not in path.read_text()
    assert list(problems(Cassette.at(path))) == []
    result, session = played(path, frozen(Shop()), "replay")
    assert [verdict.cause for verdict in session.deck.verdicts] == ["same"] * 4
    assert "[redacted]" in texts(result)[0] or "hushhush" not in texts(result)[0]


def test_a_damaged_recording_of_an_agent_is_told(path):
    played(path, agent(), "record")
    text = path.read_text()
    path.write_text(
        re.sub(r"---\nagent: scout\nstep: 1\ncall: 0\ndocument:\n  answer:.*\n(.*\n)+?(?=---)", "", text, count=1)
    )
    with pytest.raises(Exception, match=r"lacks a document|was lost|has no answer"):
        played(path, frozen(Shop()), "replay")
