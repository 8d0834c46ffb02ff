"""Agents as tools: what is asked, who is asked about it, what it may spend, how it ends, what is left of it."""

import threading
import time
from dataclasses import replace

import pytest
from pydantic import BaseModel

from agentmagic import Agent, AgentTool, Policy, Rule, Session, ToolContext, classroom, tool
from agentmagic.classroom import class_settings
from agentmagic.errors import AuthenticationMissing, UsageError
from agentmagic.events import InnerEvent, ToolFinished, TurnFinished, VariablesChanged, innermost
from agentmagic.history.history import History
from agentmagic.history.journal import Journal
from agentmagic.messages import Text, ToolCall, Usage
from agentmagic.providers.base import ModelFinished
from agentmagic.providers.scripted import ScriptedModel
from agentmagic.testing import Faulty, invalid_history
from agentmagic.tools.output_cache import READER
from tests.approval.test_approvals import Files, answered, asked_of, reading
from tests.loop.test_limits import Said
from tests.turns import AT_ONCE, SOON, StallsAfter, always, approve, calls, kinds, notices, script, texts

TASK = {"prompt": "Find the answer."}
ASKS = calls(("scout", TASK))


def twice(number: int) -> int:
    """Double a number."""
    return 2 * number


def scout(*steps, name="scout", share=None, **options):
    """An agent tool whose model plays these steps."""
    model = steps[0] if len(steps) == 1 and not isinstance(steps[0], (str, dict)) else ScriptedModel(steps)
    return Agent(model, **options).as_tool(name, "Finds things.", **(share or {}))


def lead(*tools, steps=(ASKS, "Done."), **options):
    """A session of an agent that asks others."""
    return Session(Agent(ScriptedModel(steps), tools=tools, **options))


def inside(result, *path):
    """The events of the turn inside a call."""
    events = [event for event in result.events if isinstance(event, InnerEvent)]
    return [event.event for event in events if not path or event.path == path]


# -- what is asked, and what comes back ------------------------------------------------------------


def test_the_answer_of_an_agent_is_the_result_of_the_call_and_its_turn_stands_in_the_log():
    asked = scout(calls(("twice", {"number": 21})), "It is 42.", tools=[twice], instructions="Be exact.")
    session = lead(asked)
    result = session.ask("a prompt")
    assert (texts(result), result.final_text) == (["It is 42."], "Done.")
    steps = ["step_started", "step_finished"]
    whole = ["turn_started", *steps, "tool_started", "tool_finished", *steps, "turn_finished"]
    assert kinds(inside(result, "call_1")) == whole
    begun = inside(result)[0]
    assert (begun.agent, begun.prompt.text) == ("scout", TASK["prompt"])
    first, second = asked.agent.model.requests
    assert (first.instructions, [tool.name for tool in first.tools]) == ("Be exact.", ["twice"])
    assert [tool.name for tool in session.tools] == ["scout"]
    assert invalid_history(session.messages) is None
    assert invalid_history(second.messages) is None
    assert session.tool_calls == 2


def test_each_call_begins_a_conversation_of_its_own_so_that_calls_can_run_at_one_time():
    asked = scout("One.", "Two.", "Three.")
    session = lead(asked, steps=(calls(("scout", TASK), ("scout", {"prompt": "Again."})), ASKS, "Done."))
    assert texts(session.ask("a prompt")) == ["One.", "Two.", "Three."]
    assert [len(request.messages) for request in asked.agent.model.requests] == [1, 1, 1]


class City(BaseModel):
    name: str


def test_an_answer_with_a_form_is_json_with_its_value():
    result = lead(scout('{"name": "Rome"}', output=City)).ask("a prompt")
    (found,) = [event.result for event in result.events if isinstance(event, ToolFinished)]
    assert (found.structured, found.text) == ({"name": "Rome"}, '{"name": "Rome"}')


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (scout(Faulty("it is out")), "scout failed: "),
        (scout("", "", ""), "scout failed: "),
        (scout("no JSON", "no JSON", "no JSON", output=City), "scout failed: The answer does not have the form"),
        (scout(calls("nothing")), "scout failed: "),
        (scout(calls(("twice", {"number": 1})), tools=[twice], max_iterations=1, on_limit="stop"), "scout failed: "),
    ],
    ids=[
        "its model fails",
        "it says nothing",
        "its answer has no form",
        "it calls what it lacks",
        "it is at its limit",
    ],
)
def test_an_agent_that_fails_is_a_failed_result_and_no_exception(asked, words):
    result = lead(asked).ask("a prompt")
    (found,) = [event.result for event in result.events if isinstance(event, ToolFinished)]
    assert (found.status, result.final_text) == ("error", "Done.")
    assert found.text.startswith(words)
    assert isinstance(inside(result)[-1], TurnFinished)


def test_an_agent_whose_model_cannot_be_had_is_a_failed_result(monkeypatch):
    pytest.importorskip("openai")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(AuthenticationMissing):
        Session(Agent("openai:gpt-5.4")).ask("a prompt")
    (words,) = texts(lead(Agent("openai:gpt-5.4").as_tool("scout", "Finds.")).ask("a prompt"))
    assert "OPENAI_API_KEY" in words
    assert words.startswith("scout ")


def test_the_fourth_agent_within_agents_is_not_asked():
    asked = scout("Deep.", name="a4")
    for name, inner in (("a3", "a4"), ("a2", "a3"), ("a1", "a2")):
        asked = Agent(ScriptedModel([calls((inner, TASK)), f"{name} is done."]), tools=[asked]).as_tool(name, "Finds.")
    result = lead(asked, steps=(calls(("a1", TASK)), "Done.")).ask("a prompt")
    (refused,) = [one.result for one in inside(result, *["call_1"] * 3) if isinstance(one, ToolFinished)]
    assert refused.text.startswith("a4 was not asked: agents ask agents 3 deep at most")
    assert texts(result) == ["a1 is done."]


def test_an_agent_is_asked_in_a_turn_and_not_by_hand():
    assert "Ask the session" in lead(scout("One.")).call("scout", **TASK).text


AGENT = Agent(script())


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: AGENT.as_tool("two words", "Finds."), "'two words' cannot name an agent tool"),
        (lambda: AGENT.as_tool("", "Finds."), "cannot name"),
        (lambda: AGENT.as_tool(3, "Finds."), "cannot name"),
        (lambda: AGENT.as_tool(READER, "Finds."), "cannot name"),
        (lambda: AGENT.as_tool("scout", " "), "The agent tool scout has no description"),
        (lambda: AGENT.as_tool("scout", "Finds.", max_cost=0), "max_cost is 0"),
        (lambda: AGENT.as_tool("scout", "Finds.", max_tokens=-1), "max_tokens is -1"),
        (lambda: AgentTool("an agent", "scout", "Finds."), "agent is 'an agent'"),
        (lambda: Agent(script(), tools=[AGENT]), "needs a name and a description: agent.as_tool"),
        (lambda: Agent(script(), tools=AGENT.as_tool("scout", "Finds.")), "Put it into a list"),
    ],
)
def test_a_description_that_cannot_be_is_refused_where_it_is_made(made, words):
    with pytest.raises(UsageError, match=words):
        made()


# -- who is asked about it -------------------------------------------------------------------------


def reader(permission="ask", steps=None):
    return scout(*(steps or (reading("a.txt"), "Read.")), tools=[Files()], permission=permission)


def test_the_user_is_asked_about_the_calls_of_an_agent_and_not_about_the_call_that_asks_it():
    result = answered_inside(lead(reader()), approve)
    assert [event.call.name for event in asked_of_inside(result)] == ["read"]
    assert texts(result) == ["Read."]
    (found,) = [one.result for one in inside(result) if isinstance(one, ToolFinished)]
    assert found.text == "the text of a.txt"


def answered_inside(session, answer):
    """The result of a turn in which `answer` makes an intent of each question, also of the agents inside."""
    run = session.start("a prompt", attended=True)
    run.listen(lambda event: run.send(answer(innermost(event))) if innermost(event).type == "approval_asked" else None)
    return run.wait()


def asked_of_inside(result):
    return asked_of(replace(result, events=tuple(inside(result))))


def test_always_holds_for_the_agent_in_the_session_and_for_no_other():
    twins = reader(steps=(reading("a.txt"), "Read.", reading("b.txt"), "Read.")), reader()
    other = AgentTool(twins[1].agent, "other", "Finds.")
    steps = (calls(("scout", TASK)), "Done.", calls(("scout", TASK)), "Done.", calls(("other", TASK)), "Done.")
    session = lead(twins[0], other, steps=steps)
    assert [len(asked_of_inside(answered_inside(session, always))) for _ in range(3)] == [1, 0, 1]


def test_no_one_to_ask_means_denied():
    result = lead(reader()).ask("a prompt")
    (found,) = [one.result for one in inside(result) if isinstance(one, ToolFinished)]
    assert found.status == "denied"
    assert found.text.startswith("read was not run: it needs a person's approval, and no one is there")


DENIED = Policy([Rule("deny", "read", reason="No files.")])
ASKED = Policy([Rule("ask", "read")], default="allow")
LETS_ASK = Policy([Rule("allow", "scout")], default="deny")


@pytest.mark.parametrize(
    ("outer", "inner", "status"),
    [
        ("ask", "allow", "ok"),
        ("ask", "deny", "denied"),
        ("allow", "ask", "denied"),
        (DENIED, "allow", "denied"),
        (ASKED, "allow", "denied"),
        (LETS_ASK, "allow", "denied"),
        (LETS_ASK, Policy([Rule("allow", "read")]), "denied"),
        (lambda call, _tool: "deny" if call.name == "read" else None, "allow", "denied"),
    ],
    ids=[
        "its own",
        "its own deny",
        "its own ask",
        "a rule around it",
        "a rule that asks",
        "a default",
        "over a rule",
        "hook",
    ],
)
def test_the_agents_own_policy_decides_within_what_is_denied_around_it(outer, inner, status):
    result = lead(reader(inner), permission=outer).ask("a prompt")
    (found,) = [one.result for one in inside(result) if isinstance(one, ToolFinished)]
    assert found.status == status


def test_a_default_that_denies_holds_at_any_depth():
    middle = Agent(ScriptedModel([ASKS, "Asked."]), tools=[reader("allow")], permission="allow").as_tool(
        "middle", "Asks."
    )
    policy = Policy([Rule("allow", "middle"), Rule("allow", "scout")], default="deny")
    result = lead(middle, steps=(calls(("middle", TASK)), "Done."), permission=policy).ask("a prompt")
    (found,) = [one.result for one in inside(result, "call_1", "call_1") if isinstance(one, ToolFinished)]
    assert found.status == "denied"


def test_the_call_that_asks_an_agent_is_decided_as_any_other():
    assert texts(lead(scout("One."), permission="deny").ask("a prompt"))[0].startswith("scout was not run")
    result = answered(lead(scout("One.", share={"ask": True})), approve)
    assert [event.call.name for event in asked_of(result)] == ["scout"]
    assert texts(result) == ["One."]


# -- what it may spend, and how long ---------------------------------------------------------------


def said(*numbers):
    """A model that calls a tool in every request but the last, each of which takes so many tokens."""
    return Said(
        *[
            [*calls_of(place, len(numbers)), ModelFinished(Usage(number), "stop")]
            for place, number in enumerate(numbers)
        ]
    )


def calls_of(place, count):
    return [Text("Here.")] if place == count - 1 else [ToolCall(f"c{place}", "twice", {"number": place})]


def test_what_an_agent_spends_is_spent_by_the_turn_and_the_session():
    session = lead(Agent(said(100, 200), tools=[twice]).as_tool("scout", "Finds."), steps=(ASKS, "Done."))
    result = session.ask("a prompt")
    own = sum(event.usage.input_tokens for event in result.events if event.type == "step_finished")
    assert result.usage.input_tokens == session.usage.input_tokens == 300 + own
    assert result.usage.requests == 4


@pytest.mark.parametrize(
    ("share", "outer", "words"),
    [
        ({"max_tokens": 150}, {}, "The agent scout has taken 300 tokens; max_tokens is 150."),
        ({}, {"max_tokens": 150}, "The turn has taken"),
    ],
    ids=["its share", "the budget around it"],
)
def test_a_budget_ends_the_agent_before_its_next_request(share, outer, words):
    asked = Agent(said(300, 200), tools=[twice]).as_tool("scout", "Finds.", **share)
    result = lead(asked, **outer).ask("a prompt")
    (found,) = [event.result for event in result.events if isinstance(event, ToolFinished)]
    assert found.text.startswith(f"scout failed: {words}")
    assert len(asked.agent.model.requests) == 1
    assert result.stop_reason == ("answer" if share else "budget")


def test_the_cap_of_a_session_holds_inside_too():
    asked = Agent(said(300, 200), tools=[twice]).as_tool("scout", "Finds.")
    result = Session(Agent(ScriptedModel([ASKS, "Done."]), tools=[asked]), max_tokens=150).ask("a prompt")
    assert texts(result)[0].startswith("scout failed: The session has taken")
    assert result.stop_reason == "budget"


@pytest.mark.parametrize("outer", [SOON, 60])
def test_the_time_of_the_turn_around_it_and_its_own_end_the_agent(outer):
    asked = scout(StallsAfter(), timeout=60 if outer == SOON else SOON)
    began = time.monotonic()
    run = lead(asked, timeout=outer).start("a prompt")
    run.settled.result()
    assert time.monotonic() - began < SOON + AT_ONCE
    ended = [event for event in inside(run) if isinstance(event, TurnFinished)]
    assert [event.result.stop_reason for event in ended] == ["cancelled" if outer == SOON else "timeout"]
    assert [event.result.stop_reason for event in run.events if isinstance(event, TurnFinished)] == [
        "timeout" if outer == SOON else "answer"
    ]


# -- how it ends, and what is left of it -----------------------------------------------------------


@pytest.mark.parametrize("where", ["its model", "its tool", "a tool that goes on"])
def test_stop_ends_both_turns_at_once_and_leaves_a_valid_history(where):
    begun, over = threading.Event(), threading.Event()

    def stop():
        begun.wait()
        run.cancel()

    @tool(thread_safe=True)
    def wait(context: ToolContext) -> str:
        """Wait."""
        stop()
        while not (over.is_set() or (where == "its tool" and context.cancelled)):
            over.wait(0.01)
        return "waited"

    model = StallsAfter(tell=stop) if where == "its model" else ScriptedModel([calls("wait"), "Never."])
    session = lead(scout(model, tools=[wait]))
    run = session.start("a prompt")
    begun.set()
    began = time.monotonic()
    result = run.wait()
    over.set()
    assert time.monotonic() - began < AT_ONCE
    assert result.stop_reason == "cancelled"
    assert [event.result.stop_reason for event in inside(result) if isinstance(event, TurnFinished)] == ["cancelled"]
    (found,) = [event.result for event in result.events if isinstance(event, ToolFinished)]
    assert (found.status, found.text) == ("interrupted", "scout was stopped before it had an answer.")
    assert invalid_history(session.messages) is None


def test_what_the_tools_of_an_agent_change_is_in_the_receipt_of_the_turn_and_its_undo():
    names = {"rows": 1}

    def more() -> str:
        """Count one more."""
        names["rows"] += 1
        return "counted"

    asked = scout(calls("more"), "Counted.", tools=[more])
    session = Session(Agent(ScriptedModel([ASKS, "Done."]), tools=[asked]), namespace=names)
    result = session.ask("a prompt")
    assert [change.name for change in result.changes] == ["rows"]
    assert isinstance(result.events[-1], VariablesChanged)
    assert names == {"rows": 2}
    session.undo()
    assert names == {"rows": 1}
    assert session.messages == ()


def test_a_journal_keeps_the_turn_inside(tmp_path):
    path = tmp_path / "talk.jsonl"
    session = Session(Agent(ScriptedModel([ASKS, "Done."]), tools=[scout("One.")]), path=path)
    result = session.ask("a prompt")
    session.close()
    history = History.from_journal((journal := Journal(path, tell=pytest.fail)).resume(), journal)
    assert history.turns[0].events[:-1] == tuple(event for event in result.events if not is_part(event))
    assert history.usage == result.usage
    history.close()


def is_part(event):
    return innermost(event).type in ("part_started", "part_delta", "working", "tool_progress")


def test_a_tool_that_was_running_inside_when_the_kernel_was_killed_is_in_doubt(tmp_path):
    path = tmp_path / "talk.jsonl"

    @tool(thread_safe=True)
    def send() -> str:
        """Send it."""
        lines.extend(path.read_bytes().splitlines(keepends=True))
        return "sent"

    lines: list[bytes] = []
    session = Session(
        Agent(ScriptedModel([ASKS, "Done."]), tools=[scout(calls("send"), "Sent.", tools=[send])]), path=path
    )
    session.ask("a prompt")
    session.close()
    path.write_bytes(b"".join(lines))  # as the file was while the tool ran
    resumed = Session.load(path, Agent(script("Hello.")))
    assert resumed.in_doubt == {("notebook", "scout"), ("notebook", "send")}
    assert "The calls of scout, send were under way" in " ".join(notices(resumed.turns[0].result))
    resumed.close()


def test_the_agents_of_a_class_without_them_are_left_out(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.agentmagic.class]\nagents = false\n", encoding="utf-8")
    monkeypatch.setattr(classroom, "_FOLDER", tmp_path)
    class_settings.cache_clear()
    try:
        session = lead(scout("One."), twice)
        result = session.ask("a prompt")
        assert [tool.name for tool in session.agent.model.requests[0].tools] == ["twice"]
        assert "The agent scout is left out: this class has agents = False" in notices(result)[0]
    finally:
        class_settings.cache_clear()
