"""A served session: what a client's call may do, what the person decides, and who waits for whom."""

import asyncio
import json
import logging
import re
import threading
from contextlib import suppress
from dataclasses import replace

import pytest

from agentmagic import Agent, Done, Policy, Rule, Session, ToolContext, ToolError, classroom, tool
from agentmagic.agent import MAX_RESULT
from agentmagic.classroom import class_settings
from agentmagic.errors import SessionBusy, UsageError
from agentmagic.events import ApprovalAsked, ApprovalGiven, Approve, Deny, Reply, ToolFinished
from agentmagic.messages import Media, Text, ToolCall, ToolDef, Usage, user
from agentmagic.providers.base import ModelFinished
from agentmagic.runtime.engine import engine
from agentmagic.runtime.main_thread import TICK
from agentmagic.serve import limits, serving, session_desk
from agentmagic.testing import PATIENCE, Faulty, Stalled, invalid_history
from agentmagic.tools.base import Tool, result
from tests.contracts.conversing import PIXEL
from tests.loop.test_limits import Said
from tests.serve.desks import Client, Office, gone, served
from tests.turns import always, approve, calls, deny, script, scripted

CODE = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}


class Programs:
    """A source with a tool that runs code, as that of a notebook does; `ran` are the programs."""

    is_local = True

    def __init__(self):
        self.ran = []

    async def tools(self):
        async def run(call, _context):
            self.ran.append(call.arguments["code"])
            return result(call, f"ran {call.arguments['code']}")

        return [Tool(ToolDef("run_program", "Run a program.", CODE), run, ask=True, code=True)]

    async def aclose(self):
        pass


def double(number: int) -> int:
    """Double a number."""
    return number * 2


@tool(ask=True)
def careful() -> str:
    """Do something that could hurt."""
    return "done"


def session_of(*tools, **options):
    return scripted("The answer.", tools=[double, careful, *tools], **options)


# -- permission --------------------------------------------------------------------------------------

ALLOWED = Policy([Rule("allow", "run_program")])
DENIED = Policy([Rule("deny", "careful")])
ALLOW, DENY = ({"AGENTMAGIC_PERMISSION": word} for word in ("allow", "deny"))
DECIDED = {
    # the tool, the environment, the person (None: not asked), the policy, whether someone is there, and what comes back
    "a plain function": ("double", {}, None, "ask", True, "4"),
    "what asks, approved": ("careful", {}, approve, "ask", True, "done"),
    "what asks, denied": ("careful", {}, deny, "ask", True, "the user denied it"),
    "what asks, and no one is there": ("careful", {}, ..., "ask", False, "(--permission allow in a cell)"),
    "code, and no one is there": ("run_program", {}, ..., "ask", False, 'Rule("allow", "run_program")'),
    "code by a rule": ("run_program", {}, None, ALLOWED, False, "ran x = 1"),
    "code by a yes": ("run_program", {}, approve, "ask", True, "ran x = 1"),
    "code, and the level allows": ("run_program", {}, deny, "allow", True, "the user denied it"),
    "code, and the variable allows": ("run_program", ALLOW, deny, "ask", True, "the user denied it"),
    "the variable denies": ("double", DENY, None, "ask", True, "denies every tool call"),
    "the variable allows": ("careful", ALLOW, None, "ask", False, "done"),
    "a rule denies": ("careful", {}, None, DENIED, True, "was not run"),
    "a hook denies": ("double", {}, None, Policy(hook=lambda _call, _tool: "deny"), True, "was not run"),
}
ARGUMENTS = {"double": {"number": 2}, "careful": {}, "run_program": {"code": "x = 1"}}
RUNS = ("4", "done", "ran x = 1")


@pytest.mark.parametrize(("name", "variables", "answer", "policy", "attended", "told"), DECIDED.values(), ids=DECIDED)
def test_a_call_is_decided_as_one_of_the_model(monkeypatch, name, variables, answer, policy, attended, told):
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    programs, person = Programs(), answer if callable(answer) else None
    with served(session_of(programs, permission=policy), Office(person, attended=attended)) as client:
        came = client.call(name, **ARGUMENTS[name])
        assert told in came.text
        assert came.is_error is (told not in RUNS)
        assert programs.ran == (["x = 1"] if told == "ran x = 1" else [])
        (turn,) = client.session.turns
        assert (turn.prompt.text, turn.result.stop_reason) == (f"fastmcp calls {name}", "done")
        assert any(isinstance(event, ApprovalAsked) for event in turn.events) is (answer is not None)


CLASS = {
    "it is asked about": ('permission = "ask"', "careful", {}, "the user denied it"),
    "code is denied": ('code = "deny"', "run_program", {"code": "1"}, 'code = "deny"'),
    "its time is bounded": ("timeout = 30", "double", {"number": 2}, "4"),
    "its steps are bounded": ("max-iterations = 3", "double", {"number": 2}, "4"),
    "its cost is bounded": ("max-cost = 0.01", "double", {"number": 2}, "4"),
}


@pytest.mark.parametrize(("setting", "name", "arguments", "told"), CLASS.values(), ids=CLASS)
def test_the_settings_of_a_class_hold_for_calls_of_clients(tmp_path, monkeypatch, setting, name, arguments, told):
    (tmp_path / "pyproject.toml").write_text(f"[tool.agentmagic.class]\n{setting}\n", encoding="utf-8")
    monkeypatch.setattr(classroom, "_FOLDER", tmp_path)
    class_settings.cache_clear()
    try:
        with served(session_of(Programs(), permission=Policy([Rule("allow", "*")])), Office(deny)) as client:
            assert told in client.call(name, **arguments).text
    finally:
        class_settings.cache_clear()


def test_always_holds_for_one_client_by_its_name_and_not_for_the_session_itself():
    asked = []

    def person(event):
        asked.append(event.call.name)
        return always(event) if len(asked) == 1 else Deny(event.id)

    session = scripted(calls("careful"), "Done.", tools=[careful])
    with served(session, Office(person)) as client:
        other = Client(client.desk, "claude-code")
        assert [client.call("careful").text, client.call("careful").text] == ["done", "done"]
        assert "denied" in other.call("careful").text
        assert [Client(client.desk, "fastmcp").call("careful").text, len(asked)] == ["done", 2]
        session.serving.stop()
        session.serve(tools=True)  # in the same kernel, the client asks for no second "always"
        again = Client(serving.shared_server().desk, "fastmcp")
        assert [again.call("careful").text, len(asked)] == ["done", 2]
        run = session.start("Be careful.", attended=True)
        run.listen(lambda event: run.send(Deny(event.id)) if event.type == "approval_asked" else None)
        assert [event.result.status for event in run.wait().events if isinstance(event, ToolFinished)] == ["denied"]


def test_the_arguments_of_a_card_are_those_that_run_and_a_client_is_told_of_edited_ones():
    given = {"code": "x = 1"}
    programs = Programs()

    def person(event):
        given["code"] = "import os"  # of the client, after the card is shown
        return Approve(event.id, arguments={"code": f"{event.call.arguments['code']} + 1"})

    with served(session_of(programs), Office(person)) as client:
        came = client.call("run_program", **given)
    assert programs.ran == ["x = 1 + 1"]
    assert came.text.startswith('The user changed the arguments of this call to {"code": "x = 1 + 1"}')


def test_a_client_is_not_asked_for_its_own_permission_and_is_asked_what_no_one_at_the_notebook_answers():
    @tool
    async def wonder(context: ToolContext) -> str:
        """Ask."""
        return await context.ask("Net or gross?")

    with served(session_of(wonder), Office(attended=False)) as client:
        client.answer = "yes"
        assert "was not run" in client.call("careful").text
        assert client.asked == []
        assert client.call("wonder").text == "yes"
        assert client.call("ask_user", question="Sure?").text == "yes"
        client.answer = None
        assert "No one is there" in client.call("ask_user", question="Sure?").text
    with served(session_of(), Office(lambda event: Reply(event.id, "net"))) as client:
        assert (client.call("ask_user", question="Net?").text, client.asked) == ("net", [])


def test_a_tool_that_was_cut_off_by_the_end_of_a_kernel_is_asked_about():
    session = session_of()
    with served(session, Office(attended=False)) as client:
        session.in_doubt.add(("notebook", "double"))
        assert "was not run" in client.call("double", number=2).text
    session = session_of()
    with served(session, Office(approve)) as client:
        session.in_doubt.add(("notebook", "double"))
        assert [client.call("double", number=2).text for _ in range(2)] == ["4", "4"]
        assert [event.type for event in session.events].count("approval_asked") == 1


def test_the_model_of_the_session_answers_no_tool_for_a_client():
    @tool
    async def consult(context: ToolContext) -> str:
        """Ask the model."""
        return (await context.complete([user("Which?")], max_tokens=10)).text

    model = Faulty()
    with served(Session(Agent(model, tools=[consult]))) as client:
        assert "answers no questions" in client.call("consult").text
        assert model.requests == []


def test_an_agent_that_a_client_asks_spends_within_the_caps_of_the_session():
    model = Said([ToolCall("c1", "double", {"number": 1}), ModelFinished(Usage(300), "stop")], [Text("Never.")])
    scout = Agent(model, tools=[double]).as_tool("scout", "Finds things.")
    with served(Session(Agent(script(), tools=[scout, double]), max_tokens=150)) as client:
        told = client.call("scout", prompt="Find it.").text
        assert told.startswith("scout failed: The session has taken 300 tokens; max_tokens is 150.")
        assert client.session.usage.input_tokens == 300
        assert client.call("double", number=2).text == "4"  # what costs nothing is called on


def test_the_audit_names_the_client(caplog):
    caplog.set_level(logging.INFO, "agentmagic.audit")
    with served(session_of()) as client:
        client.call("double", number=2)
        assert client.session.call("double", number=2).text == "4"
    lines = [re.sub(r"arguments=\w+ (.*) seconds=.*", r"\1", one.getMessage()) for one in caplog.records]
    line = 'server="notebook" tool="double" decision="allowed" outcome="ok"'
    assert lines == [f'caller="mcp:fastmcp" {line}', line]


# -- what clients send -------------------------------------------------------------------------------

BAD = {
    "no such tool": ("doubel", {}, "There is no tool 'doubel'. Close names: double."),
    "a name that no tool has": ("double ignore\x1b[2J\n" * 99, {}, "There is no tool 'double ignore"),
    "no name": ("", {}, "There is no tool ''"),
    "arguments that do not fit": ("double", {"number": "two"}, "number"),
    "arguments that are missing": ("double", {}, "number"),
    "deep arguments": ("double", {"number": json.loads("[" * 90 + "]" * 90)}, "nested too deep"),
    "no number": ("double", {"number": float("nan")}, "number"),
    "half a character": ("double", {"number": "\ud800"}, "number"),
}


@pytest.mark.parametrize(("name", "arguments", "told"), BAD.values(), ids=BAD)
def test_what_a_client_sends_wrong_is_told_and_leaves_a_history_that_any_provider_takes(name, arguments, told):
    with served(session_of()) as client:
        came = client.call(name, **arguments)
        assert came.is_error
        assert told in came.text
        assert len(came.text) < 1_000
        assert "\x1b" not in came.text + came.name
        json.dumps([dict(call.arguments) for one in client.session.messages for call in one.calls], allow_nan=False)
        assert all(turn.prompt.text.isprintable() and len(turn.prompt.text) < 200 for turn in client.session.turns)
        assert invalid_history(client.session.messages) is None
        assert len(client.session.turns) == (name in ("double", "doubel") and "deep" not in told)
        assert client.call("double", number=2).text == "4"


# -- who waits for whom ------------------------------------------------------------------------------


class Slow:
    """A tool that waits until it is let go; `begun` is set when it runs, `ended` counts its ends."""

    def __init__(self):
        self.begun, self.go, self.most, self._now = threading.Event(), threading.Event(), 0, 0

    @property
    def tool(self):
        @tool(thread_safe=True)
        def slow() -> str:
            """Wait."""
            self._now += 1
            self.most = max(self.most, self._now)
            self.begun.set()
            assert self.go.wait(PATIENCE)
            self._now -= 1
            return "slow"

        return slow


@pytest.fixture
def slow():
    made = Slow()
    yield made
    made.go.set()


def test_a_call_waits_for_a_turn_of_the_session_and_is_told_so():
    model = Stalled("Half")
    session = Session(Agent(model, tools=[double]))
    with served(session) as client:
        run = session.start("Go.")
        assert model.stalled.wait(PATIENCE)
        call = client.start("double", number=2)
        client.waits_for(session_desk.BUSY)
        run.cancel()
        assert call.result(PATIENCE).text == "4"
        assert [turn.prompt.text for turn in session.turns] == ["Go.", "fastmcp calls double"]


def test_a_call_waits_while_the_history_is_changed():
    session = session_of()
    with served(session) as client:
        with session._between_turns():
            call = client.start("double", number=2)
            client.waits_for(session_desk.BUSY)
        assert call.result(PATIENCE).text == "4"


def test_calls_of_two_clients_run_one_after_the_other_and_the_limits_of_both_are_told(monkeypatch):
    monkeypatch.setattr(limits, "WAITING", 4)
    monkeypatch.setattr(limits, "CLIENTS", 3)
    slow = Slow()
    with served(session_of(slow.tool)) as client:
        other = Client(client.desk, "claude-code")
        waiting = [one.start("slow") for one in (client, other) for _ in range(4)]
        assert slow.begun.wait(PATIENCE)
        other.waits_for(session_desk.QUEUED)
        assert client.call("slow").text == "4 calls of fastmcp wait already. Call again when they end."
        with pytest.raises(SessionBusy, match="A call of a client is under way"):
            client.session.clear()
        slow.go.set()
        assert [one.result(PATIENCE).text for one in waiting] == ["slow"] * 8
        assert slow.most == 1
        assert Client(client.desk, "third").call("double", number=1).text == "2"
        assert "takes no further one" in Client(client.desk, "fourth").call("double", number=1).text
        assert client.call("double", number=2).text == "4"
        assert client.session.serving.clients == ("fastmcp", "claude-code", "third")


def test_a_plan_that_is_left_open_stays_open_and_is_in_no_calls_way(slow):
    tasks = {"tasks": [{"id": "t1", "tool": "slow", "parameters": {}, "description": "one"}]}
    session = scripted("Never.", tools=[double])
    with served(session) as client:
        planned = Agent(script({"route": "tools"}, tasks, {"success": True}, "Never."), tools=[slow.tool])
        run = session.start("Plan.", plan=True, agent=planned)
        assert slow.begun.wait(PATIENCE)
        run.cancel()
        run.wait()
        assert session.open_plan is not None
        assert client.call("double", number=2).text == "4"
        assert session.open_plan is not None
        with pytest.raises(UsageError):
            session.ask("Something else?")  # the plan is still in the way of a prompt
        session.drop_plan()
        assert client.call("double", number=2).text == "4"
        assert session.open_plan is None


def test_a_call_is_carried_out_while_a_map_runs():
    model = Stalled()
    session = Session(Agent(model, tools=[double]))
    with served(session) as client:
        session.start_map(["a"], "{row}")
        assert model.stalled.wait(PATIENCE)
        assert client.call("double", number=2).text == "4"


# -- a client that goes away -------------------------------------------------------------------------


def statuses(session):
    return [event.result.status for event in session.turns[-1].events if isinstance(event, ToolFinished)]


def test_a_call_of_a_client_that_goes_away_while_it_is_queued_never_begins(slow):
    with served(session_of(slow.tool)) as client:
        first, second = client.start("slow"), Client(client.desk, "claude-code")
        assert slow.begun.wait(PATIENCE)
        queued = second.start("careful")
        second.waits_for(session_desk.QUEUED)
        queued.cancel()
        slow.go.set()
        assert first.result(PATIENCE).text == "slow"
        assert second.call("double", number=2).text == "4"
        assert [turn.prompt.text for turn in client.session.turns] == ["fastmcp calls slow", "claude-code calls double"]


def test_a_call_of_a_client_that_goes_away_while_its_turn_begins_does_not_run():
    session = session_of()
    with served(session, Office(always)) as client:
        begun, go = threading.Event(), threading.Event()
        known = session.serving._session

        def late(*given, **options):
            begun.set()
            assert go.wait(PATIENCE)
            turn = known.begin(*given, **options)
            for _ in range(50):
                engine().call(asyncio.sleep(0))  # the turn comes as far as it can before it can be cancelled
            return turn

        session.serving._session = replace(known, begin=late)
        call = client.start("double", number=1)
        assert begun.wait(PATIENCE)
        call.cancel()
        for _ in range(3):
            engine().call(asyncio.sleep(0))  # the loop has heard of it before the turn goes on
        go.set()
        session.serving._session = known
        assert client.call("double", number=2).text == "4"
        events = [event for turn in session.turns for event in turn.events]
        assert [event.result.text for event in events if isinstance(event, ToolFinished)] == ["4"]


def test_what_the_person_is_asked_is_denied_when_the_client_goes_away():
    with served(session_of()) as client:
        call = client.start("careful")
        client.waits_for(session_desk.WAITS)
        gone(call, client.session)
        assert statuses(client.session) == ["denied"]
        (given,) = [event for event in client.session.events if isinstance(event, ApprovalGiven)]
        assert (given.approved, given.reason) == (False, session_desk.GONE)
        assert client.call("double", number=2).text == "4"


def test_a_tool_that_runs_is_ended_when_the_client_goes_away(slow):
    with served(session_of(slow.tool)) as client:
        call = client.start("slow")
        assert slow.begun.wait(PATIENCE)
        gone(call, client.session)
        assert client.session.turns[-1].result.stop_reason == "cancelled"
        assert client.call("double", number=2).text == "4"


@pytest.mark.parametrize("answer", [None, "never"], ids=["at the notebook", "of the client"])
def test_a_question_does_not_outlive_the_client(answer):
    office = Office(attended=answer is None)
    with served(session_of(), office) as client:
        client.answer = answer
        call = client.start("ask_user", question="Sure?")
        office.view_of_calls.seen.wait_for("question_asked")
        gone(call, client.session)
        assert client.session.turns[-1].result.stop_reason == "cancelled"
        assert client.call("double", number=2).text == "4"


def test_a_call_within_a_call_is_denied_and_the_outer_one_ended_when_the_client_goes_away():
    went_on = []

    @tool
    async def outer(context: ToolContext) -> str:
        """Call another tool, twice."""
        for _ in range(2):
            with suppress(ToolError):
                went_on.append(await context.call_tool("careful", {}))
        return "went on"

    with served(session_of(outer)) as client:
        call = client.start("outer")
        client.waits_for(session_desk.WAITS)
        gone(call, client.session)
        assert "went on" not in str(client.session.messages)
        assert client.session.turns[-1].result.stop_reason == "cancelled"
        assert went_on == []
        assert client.call("double", number=2).text == "4"


# -- where tools run ---------------------------------------------------------------------------------


class KernelOffice(Office):
    """A kernel: synchronous tools run in the main thread, when no cell runs there."""

    takes_tools = True

    def __init__(self):
        super().__init__()
        self.woken = []
        self.wake = self.woken.append


def test_a_call_waits_while_a_cell_runs_and_its_tool_runs_in_the_main_thread():
    @tool
    def where() -> str:
        """Return the thread."""
        return str(threading.current_thread() is threading.main_thread())

    office = KernelOffice()
    with served(session_of(where), office) as client:
        call = client.start("where")
        client.waits_for(session_desk.RUNS)
        with pytest.raises(TimeoutError):  # this is the cell that runs on
            call.result(2 * TICK)
        engine().wait(call, call.cancel)
        assert call.result().text == "True"


# -- results -----------------------------------------------------------------------------------------


def test_what_a_tool_returns_reaches_the_client_as_it_would_a_model():
    @tool
    def long() -> str:
        """Write much."""
        return "begin " + "x" * 50_000 + " end"

    @tool
    def over() -> Done:
        """End the turn."""
        return Done("It is done.")

    @tool
    def picture() -> Media:
        """Draw."""
        return PIXEL

    @tool
    def wrong() -> str:
        """Fail."""
        raise ValueError("no luck")

    with served(session_of(long, over, picture, wrong)) as client:
        came = client.call("long")
        (handle,) = set(re.findall(r"call_\w+", came.text))
        assert len(came.text) <= MAX_RESULT
        client.call("double", number=1)
        assert client.call("read_result", id=handle, start=50_000).text.endswith("x end")
        assert "read_result" in client.tools()
        assert client.call("over").text == "It is done."
        assert [type(part) for part in client.call("picture").content] == [Media]
        failed = client.call("wrong")
        assert (failed.status, "no luck" in failed.text, "Traceback" in failed.text) == ("error", True, False)
        assert client.session.usage.cost == 0.0


@pytest.mark.parametrize("limit", [None, 1_000_000, 20_000, 500])
def test_a_long_result_is_read_on_by_its_handle_in_a_later_call_of_any_client(limit):
    def long() -> str:
        """Say much."""
        return "x" * 50_000 + " end"

    with served(session_of(long, max_result=limit)) as client:
        (handle,) = set(re.findall(r"call_\w+", client.call("long").text))
        for other in (client, Client(client.desk, "another")):
            assert other.call("read_result", id=handle, start=49_999).text.endswith("\nx end")


def test_the_history_tells_how_each_call_has_ended():
    pytest.importorskip("IPython")
    from agentmagic.jupyter.magics.formatting import history

    @tool(timeout=0.01)
    async def slow() -> str:
        """Take long."""
        await asyncio.Event().wait()
        return "late"

    def wrong() -> str:
        """Fail."""
        raise ValueError("no luck")

    with served(session_of(slow, wrong), Office(deny)) as client:
        for name in ("wrong", "careful", "slow"):
            assert client.call(name).is_error
        client.call("double", number=1)
        told = history(client.session).text
    assert [line.strip().partition("]")[0] for line in told.splitlines()[1::2]] == [
        "[failed",
        "[denied",
        "[timed out",
        "[done",
    ]
    assert "[failed] ValueError: no luck" in told
