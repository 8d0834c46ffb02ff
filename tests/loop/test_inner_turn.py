"""Turns inside turns: what they have of the outer turn, and that their requests are those of the row they serve."""

import asyncio
from collections import deque
from dataclasses import MISSING, fields, replace

import pytest

from agentmagic import Agent, Session
from agentmagic.agent import Connections
from agentmagic.errors import RateLimited
from agentmagic.events import Notice, StepRetried, ToolFinished, innermost
from agentmagic.loop.agent_calls import inner_toolsets
from agentmagic.loop.budgets import Meter
from agentmagic.loop.inner_turn import ORIGINS, AgentTurnFields, RowFields, turn_of_agent_tool, turn_of_row
from agentmagic.loop.retry import RetrySettings
from agentmagic.loop.turn import Channel, run_turn
from agentmagic.loop.turn_context import OuterTurn, TurnContext
from agentmagic.messages import Text, ToolDef, ToolResult, Usage, user
from agentmagic.providers.base import ModelFinished, PartFinished, PartStarted
from agentmagic.providers.catalog import ModelInfo
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import Faulty
from agentmagic.tools.base import Tool
from tests.benchmarks.pace import in_virtual_time
from tests.turns import Free, calls

TASK = {"prompt": "Find the answer."}
ASKS = calls(("scout", TASK))
GONE = {"gone": {"command": "no-such-command"}}


# -- the fields ------------------------------------------------------------------------------------


class Mark:
    """A value that stands for that of one field, also where a part of it is read."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"<{self.name}>"


def marks(side):
    """A mark for each field of a turn."""
    return {field.name: Mark(f"{side} {field.name}") for field in fields(TurnContext)}


def test_for_each_field_of_a_turn_it_is_decided_what_an_inner_turn_has_of_it():
    decided = {name: set(origins) for name, origins in ORIGINS.items()}
    missing = "a new field of TurnContext needs a row in inner_turn.ORIGINS, one without a field has none"
    assert decided == {field.name: {"agent tool", "row"} for field in fields(TurnContext)}, missing


def outer_of(values):
    steps, account = values["step"], replace(TurnContext(*[None] * 4).account, name="outer")
    turn = TurnContext(**{**values, "account": account})
    return turn, OuterTurn(turn, None, print, None, print, (), steps=steps)


@pytest.mark.parametrize("kind", ["agent tool", "row"])
def test_an_inner_turn_has_of_each_field_what_was_decided(kind):
    outer, around = outer_of({**marks("outer"), "meters": (Meter("turn", 1.0),)})
    own = {name: mark for name, mark in marks("own").items() if ORIGINS[name][kind] == "own"}
    if kind == "row":
        turn = turn_of_row(outer, **own)
    else:
        turn = turn_of_agent_tool(around, **{**own, "facts": ModelInfo("m", None, (), priced=False)})
        own["facts"] = turn.facts
    for field in fields(TurnContext):
        value = getattr(turn, field.name)
        match ORIGINS[field.name][kind]:
            case "own":
                assert value is own[field.name], field.name
            case "outer":
                assert value is getattr(outer, field.name), field.name
            case "new":
                default = field.default if field.default_factory is MISSING else field.default_factory()
                assert value is default or type(value) is type(default), field.name
                assert value is not getattr(outer, field.name), field.name
    if kind == "row":
        assert [(meter.max_cost, meter is outer.meters[0]) for meter in turn.meters] == [(1.0, False)]
    else:
        assert (turn.step, turn.around, turn.account.name) == (around.steps, around, own["name"])


@pytest.mark.parametrize(("kind", "given"), [("agent tool", AgentTurnFields), ("row", RowFields)])
def test_a_caller_gives_exactly_what_belongs_to_the_agent_tool_or_the_row(kind, given):
    assert given.__required_keys__ == {name for name, origins in ORIGINS.items() if origins[kind] == "own"}


# -- what is told once -----------------------------------------------------------------------------


def told(result):
    """The notices of a turn and of the turns inside it."""
    return [one.text for one in map(innermost, result.events) if isinstance(one, Notice)]


def test_a_server_that_only_an_agent_tool_misses_is_told_once_by_the_session():
    scout = Agent(ScriptedModel(["1", "2", "3"]), mcp=GONE).as_tool("scout", "Finds.")
    session = Session(Agent(ScriptedModel([ASKS, "Done."] * 3), tools=[scout]))
    counts = [len(told(session.ask("a prompt"))) for _ in range(3)]
    assert counts == [1, 0, 0]


def test_a_server_that_the_session_misses_too_is_not_told_again_inside():
    scout = Agent(ScriptedModel(["1", "2"]), mcp=GONE).as_tool("scout", "Finds.")
    session = Session(Agent(ScriptedModel([ASKS, "Done."] * 2), tools=[scout], mcp=GONE))
    assert [len(told(session.ask("a prompt"))) for _ in range(2)] == [1, 0]


def test_agents_inside_agents_and_two_calls_at_a_time_tell_of_a_server_once():
    deep = Agent(ScriptedModel([*"123456"]), mcp=GONE).as_tool("deep", "Finds.")
    scout = Agent(ScriptedModel([calls(("deep", TASK), ("deep", TASK)), "Found."] * 2), tools=[deep])
    session = Session(Agent(ScriptedModel([ASKS, "Done."] * 2), tools=[scout.as_tool("scout", "Finds.")]))
    assert [len(told(session.ask("a prompt"))) for _ in range(2)] == [1, 0]


def test_in_the_rows_of_a_map_an_agent_tool_tells_of_a_server_once():
    scout = Agent(ScriptedModel([*"123"]), mcp=GONE).as_tool("scout", "Finds.")
    result = Session(Agent(ScriptedModel([ASKS, "Done."] * 3), tools=[scout])).map(["a", "b", "c"], "{row}")
    assert sum(len(told(result.run(place))) for place in range(3)) == 1


# -- the requests of a row -------------------------------------------------------------------------


class Limited:
    """A provider that accepts `rate` requests in a second of its loop's time; `refused` counts the others."""

    name = "testing:limited"

    def __init__(self, rate):
        self.rate, self.refused, self.times = rate, 0, deque()

    async def stream(self, request):
        now = asyncio.get_running_loop().time()
        while self.times and now - self.times[0] > 1:
            self.times.popleft()
        await asyncio.sleep(0.05)
        if len(self.times) >= self.rate:
            self.refused += 1
            raise RateLimited("Too many.", status=429)
        self.times.append(now)
        yield PartStarted(0, "text")
        yield PartFinished(0, Text("Found."))
        yield ModelFinished(Usage(10, 2), "stop")

    async def aclose(self):
        pass


RETRY = RetrySettings(tries=2, longest_wait=0)


def row_of(inner, tools=(), script=(ASKS, "Done."), timeout=5.0):
    """Run the turn of a row in virtual time. Its agent may ask `inner` by the tool `scout`. Return its events."""
    scout = Agent(inner, retry=RETRY, timeout=timeout).as_tool("scout", "Finds things.")
    agent = Agent(ScriptedModel(script), tools=[scout], retry=RETRY, timeout=timeout)
    sources = (*inner_toolsets(agent, Connections(), {}, set()), *tools)
    shared = TurnContext(agent, agent.model, sources, user("A row."))
    turn = turn_of_row(shared, model=agent.model, prompt=shared.prompt, values=(), row=Free())
    events = []
    return run_turn(turn, Channel(events, events.append)), events


def results_of(events):
    return [one.result for one in map(innermost, events) if isinstance(one, ToolFinished)]


def refusals(count=5):
    return [RateLimited("Too many.", status=429, retry_after=50.0) for _ in range(count)]


def test_the_request_of_an_agent_tool_waits_with_the_rows_whatever_its_tries_and_the_timeouts_of_both_turns():
    work, events = row_of(Faulty(*refusals()))
    outcome = in_virtual_time(work)
    assert outcome.result.stop_reason == "answer"
    assert [result.status for result in results_of(events)] == ["ok"]
    assert not [one for one in map(innermost, events) if isinstance(one, StepRetried)]


def test_the_request_of_an_agent_inside_an_agent_waits_with_the_rows():
    deep = Agent(Faulty(*refusals()), retry=RETRY, timeout=5.0).as_tool("deep", "Finds.")
    middle = Agent(ScriptedModel([calls(("deep", TASK)), "Found."]), tools=[deep], timeout=5.0)
    agent = Agent(ScriptedModel([ASKS, "Done."]), tools=[middle.as_tool("scout", "Finds.")], timeout=5.0)
    shared = TurnContext(agent, agent.model, inner_toolsets(agent, Connections(), {}, set()), user("A row."))
    turn = turn_of_row(shared, model=agent.model, prompt=shared.prompt, values=(), row=Free())
    events = []
    assert in_virtual_time(run_turn(turn, Channel(events, events.append))).result.stop_reason == "answer"
    assert [result.status for result in results_of(events)] == ["ok", "ok"]


class Asking:
    """A toolset with one tool, whose calls ask the model of the turn, in a time limit of 5 seconds."""

    async def tools(self):
        async def invoke(call, context):
            answer = await context.complete([user("And?")], max_tokens=10)
            return ToolResult(call.id, call.name, (Text(answer.text),))

        return [Tool(ToolDef("ponder", "Ponders.", {"type": "object", "properties": {}}), invoke, timeout=5.0)]

    async def aclose(self):
        pass


class Twofold(Faulty):
    """A model that calls `ponder`, then fails as told, then answers."""

    def __init__(self, *errors):
        super().__init__(*errors)
        self._first = True

    async def stream(self, request):
        if self._first:
            self._first = False
            async for event in ScriptedModel([calls("ponder")]).stream(request):
                yield event
            return
        async for event in super().stream(request):
            yield event


def test_the_request_of_a_tool_that_asks_the_model_waits_with_the_rows_whatever_the_time_limit_of_its_call():
    agent = Agent(Twofold(*refusals()), retry=RETRY, timeout=5.0)
    shared = TurnContext(agent, agent.model, (Asking(),), user("A row."))
    turn = turn_of_row(shared, model=agent.model, prompt=shared.prompt, values=(), row=Free())
    events = []
    assert in_virtual_time(run_turn(turn, Channel(events, events.append))).result.stop_reason == "answer"
    assert [(result.status, result.text) for result in results_of(events)] == [("ok", "Here is the answer.")]


def test_the_agent_tools_of_many_rows_are_seldom_refused_and_none_of_them_fails():
    inner, rows = Limited(4), 60

    async def main():
        works = [row_of(inner, timeout=20.0) for _ in range(rows)]
        await asyncio.gather(*(work for work, _ in works))
        return [result.status for _, events in works for result in results_of(events)]

    assert in_virtual_time(main()) == ["ok"] * rows
    assert inner.refused <= 0.6 * rows  # the first refusals teach the pace, as for the requests of plain rows


def test_the_requests_of_an_agent_tool_outside_a_map_use_up_their_tries():
    scout = Agent(Faulty(*[RateLimited("Too many.", status=429)] * 3), retry=RETRY).as_tool("scout", "Finds.")
    result = Session(Agent(ScriptedModel([ASKS, "Done."]), tools=[scout])).ask("a prompt")
    assert len([one for one in map(innermost, result.events) if isinstance(one, StepRetried)]) == 1
    assert [one.status for one in results_of(result.events)] == ["error"]
