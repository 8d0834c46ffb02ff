"""Turns of an outside agent, which is a real process: what it does, told as any turn, and what it may not do."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from agentmagic import Agent, Policy, Rule, Session, tool
from agentmagic.acp import bounds
from agentmagic.classroom import class_settings
from agentmagic.errors import InvalidOutput, ProviderError, TurnTimeout, UsageError
from agentmagic.events import (
    ApprovalAsked,
    ApprovalGiven,
    Approve,
    InnerCall,
    PartDelta,
    Planned,
    StepStarted,
    TaskFinished,
    TaskStarted,
    ToolFinished,
    ToolStarted,
    VariablesChanged,
)
from agentmagic.host import ScriptHost
from agentmagic.messages import Media, Reasoning, Text
from agentmagic.providers.scripted import ScriptedModel
from tests.acp.sessions import AGENT, always, asked, choosing, command, known, no, of_kind, session_of, started
from tests.turns import hosted


def double(n: int) -> int:
    """Double a number."""
    return 2 * n


@tool(ask=True)
def pay(n: int) -> str:
    """Pay."""
    return f"paid {n}"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """One session for what leaves the agent running: to start it takes a second."""
    session = session_of(tools=[double, pay])
    yield session
    session.close()


@pytest.fixture(scope="module")
def claude(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """The same with an agent whose program is known, and marks the calls of our tools."""
    session = Session(Agent(known(tmp_path_factory.mktemp("claude")), tools=[double, pay]))
    yield session
    session.close()


def result_of(run: Any) -> Any:
    return run.settled.result().result


def failure_of(run: Any) -> Any:
    return run.settled.result().error


def test_text_and_thought_stream(session: Session) -> None:
    run = asked(session, "!think I wonder\n!say Hello there")
    assert [part for message in result_of(run).history_delta[1:] for part in message.parts] == [
        Reasoning("I wonder", part_data(run)),
        Text("Hello there "),
    ]
    assert len(of_kind(run, PartDelta)) == 3
    assert result_of(run).usage.output_tokens == 20


def part_data(run: Any) -> Any:
    return result_of(run).history_delta[1].parts[0].provider_data


def test_calls_in_parallel_are_one_step(session: Session) -> None:
    run = asked(session, "!both a b c\n!say done")
    step, results, answer = result_of(run).history_delta[1:]
    assert [call.arguments["path"] for call in step.calls] == ["a", "b", "c"]
    assert [part.text for part in results.parts] == ["a", "b", "c"]
    assert answer.text == "done "


def test_a_call_within_a_call_is_shown_inside_it(session: Session) -> None:
    run = asked(session, "!inside x\n!say done")
    (inner,) = of_kind(run, InnerCall)
    outer = of_kind(run, ToolStarted)[0]
    assert inner.parent == outer.call.id
    assert inner.call.arguments["path"] == "x"
    assert [event.result.text for event in of_kind(run, ToolFinished)] == ["the text of x", "helped"]


def test_a_plan_is_a_checklist_and_is_not_resumed(session: Session) -> None:
    run = asked(session, "!plan pending pending\n!read a\n!plan completed in_progress\n!say so far")
    (planned,) = of_kind(run, Planned)
    assert [task.description for task in planned.tasks] == ["step 1", "step 2"]
    assert [(event.id, event.state) for event in of_kind(run, TaskFinished)] == [("t1", "done"), ("t2", "skipped")]
    assert [event.id for event in of_kind(run, TaskStarted)] == ["t2"]
    assert session.open_plan is None


@pytest.mark.parametrize(
    ("answer", "written", "chosen", "status"),
    [
        (None, True, "yes", "ok"),
        (always, True, "yes", "ok"),  # what is remembered is remembered here, and the agent is told of this call only
        (choosing("always"), True, "always", "ok"),
        (no, False, "no", "denied"),
    ],
)
def test_a_permission_is_asked_with_a_card(
    tmp_path: Path, answer: Any, written: bool, chosen: str, status: str
) -> None:
    with_file = session_of()
    file = tmp_path / "notes.txt"
    file.write_text("old text\n")
    run = asked(with_file, f"!edit {file}", answer)
    (question,) = of_kind(run, ApprovalAsked)
    assert question.fixed
    assert "-old text\n+new text" in question.call.arguments["changes"]
    assert file.read_text() == ("new text\n" if written else "old text\n")
    assert result_of(run).final_text == f"answered {chosen}. "
    assert [event.result.status for event in of_kind(run, ToolFinished)] == [status]
    told = [event.files for event in of_kind(run, VariablesChanged)]
    assert told == ([(str(file),)] if written else [])
    with_file.close()


def test_our_policy_is_asked_first(tmp_path: Path) -> None:
    rules = Policy([Rule("allow", "execute"), Rule("deny", "edit", when={"title": "*other.txt"})])
    session = session_of(permission=rules)
    run = asked(session, f"!edit {tmp_path / 'new.txt'}", no)
    assert not of_kind(run, ApprovalAsked)
    assert (tmp_path / "new.txt").exists()
    denied = asked(session, f"!edit {tmp_path / 'other.txt'}")
    assert not of_kind(denied, ApprovalAsked)
    assert result_of(denied).final_text == "answered no. "
    assert not (tmp_path / "other.txt").exists()
    session.close()


@pytest.mark.parametrize("permission", ["deny", Policy([Rule("deny", "execute")]), Policy([Rule("deny")], "allow")])
def test_an_agent_that_may_run_commands_unasked_is_not_started_where_code_is_forbidden(permission: Any) -> None:
    session = session_of(permission=permission)
    run = asked(session, "!say Hello")
    assert isinstance(failure_of(run), UsageError)
    assert "can run commands without asking, so it is not started" in str(failure_of(run))
    session.close()


@pytest.mark.slow
def test_with_nobody_there_a_call_is_denied_and_the_sentence_says_what_allows_it(tmp_path: Path) -> None:
    session = session_of()
    (denied,) = [event for event in session.ask(f"!edit {tmp_path / 'x'}").events if isinstance(event, ToolFinished)]
    assert denied.result.text.startswith("execute was not run: it needs a person's approval")
    assert 'Rule("allow", "execute", server="acp:agent.py")' in denied.result.text
    assert "%mcp" not in denied.result.text
    assert denied.result.server == ""
    session.close()


def test_other_arguments_are_refused(session: Session, tmp_path: Path) -> None:
    def change(question: ApprovalAsked) -> Approve:
        return Approve(question.id, arguments={"title": "Edit another file"})

    run = asked(session, f"!edit {tmp_path / 'x.txt'}", change)
    assert not (tmp_path / "x.txt").exists()
    assert "takes no other arguments" in of_kind(run, ApprovalGiven)[0].reason


@pytest.mark.posix
@pytest.mark.parametrize("way", ["call", "quietly"])
def test_our_tools_are_called_over_mcp_once_each(claude: Session, way: str) -> None:
    run = asked(claude, f'!{way} double {{"n": 4}}\n!{way} pay {{"n": 3}}')
    assert [(event.call.name, dict(event.call.arguments)) for event in of_kind(run, ToolStarted)] == [
        ("double", {"n": 4}),
        ("pay", {"n": 3}),
    ]
    assert [event.call.name for event in of_kind(run, ApprovalAsked)] == ["pay"]
    assert result_of(run).final_text == "got paid 3 "
    calls = [call.name for message in result_of(run).history_delta for call in message.calls]
    assert calls == ["double", "pay"]


@pytest.mark.parametrize(("quiet", "beside"), [(60, True), (0, False)])
def test_a_report_without_a_mark_stands_beside_the_call_of_our_tool_or_around_it_if_that_comes_later(
    session: Session, monkeypatch: pytest.MonkeyPatch, quiet: float, beside: bool
) -> None:
    monkeypatch.setattr(bounds, "QUIET", quiet)
    run = asked(session, '!call pay {"n": 3}')
    assert [(event.call.name, event.server) for event in of_kind(run, ApprovalAsked)] == [("pay", "notebook")]
    calls = [(call.name, dict(call.arguments)) for message in result_of(run).history_delta for call in message.calls]
    inside = [(event.call.name, dict(event.call.arguments)) for event in of_kind(run, InnerCall)]
    reported, ours = ("other", {"title": "Call pay", "n": 3}), ("pay", {"n": 3})
    assert (calls, inside) == (([reported, ours], []) if beside else ([reported], [ours]))
    assert result_of(run).final_text == "got paid 3 "


@pytest.mark.posix
def test_our_tools_are_denied_too(claude: Session) -> None:
    run = asked(claude, '!call pay {"n": 3}', no)
    assert "denied it" in result_of(run).final_text
    assert [event.result.status for event in of_kind(run, ToolFinished)] == ["denied"]


def test_an_edit_of_our_tool_is_what_runs(session: Session) -> None:
    run = asked(session, '!call pay {"n": 3}', lambda question: Approve(question.id, arguments={"n": 30}))
    assert "paid 30" in result_of(run).final_text


def test_rubbish_is_survived_and_nothing_is_lent(session: Session, tmp_path: Path) -> None:
    run = asked(session, f"!rubbish\n!say alive\n!borrow {tmp_path}")
    assert result_of(run).final_text == "alive agentmagic does not lend fs/read_text_file. "


@pytest.mark.slow
def test_a_flood_ends_the_turn_and_not_the_engine() -> None:
    session = session_of(timeout=60)
    run = started(session, "!flood 8000")
    slowest = 0.0
    while not run.done:
        began, ticked = time.monotonic(), threading.Event()
        from agentmagic.runtime.engine import engine

        engine().loop.call_soon_threadsafe(ticked.set)
        ticked.wait(10)
        slowest = max(slowest, time.monotonic() - began)
        run_done = threading.Event()
        run.settled.add_done_callback(lambda _, done=run_done: done.set())
        run_done.wait(0.05)
    assert "characters for one prompt and was stopped" in str(failure_of(run))
    assert slowest < 0.5
    session.close()


@pytest.mark.slow
def test_an_agent_that_dies_is_named_and_started_again() -> None:
    session = session_of()
    run = asked(session, "!say Hello\n!die out of luck")
    assert isinstance(failure_of(run), ProviderError)
    assert "ended with exit status 3: out of luck" in str(failure_of(run))
    assert "Hello" in result_of(asked(session, "!heard")).final_text  # the conversation went over as text
    session.close()


@pytest.mark.slow
def test_a_missing_login_is_named() -> None:
    session = session_of("--login")
    assert "is not logged in" in str(failure_of(asked(session, "!say Hello")))
    session.close()


@pytest.mark.posix
@pytest.mark.slow
def test_a_known_agent_is_put_into_the_mode_in_which_it_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known(tmp_path, "--modes")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    session = Session(Agent("acp:claude"))
    assert result_of(asked(session, "!heard")).final_text == "mode default / heard "
    session.close()


# -- the end of a turn -----------------------------------------------------------------------------


PHASES = {
    "!wait": StepStarted,
    "!hang": StepStarted,
    "!say Hello\n!wait": PartDelta,
    "!start a\n!hang": ToolStarted,
    "!edit /nowhere/x": ApprovalAsked,
    "!both a b\n!wait": ToolFinished,
    "!plan in_progress\n!say so\n!hang": PartDelta,
}
"""What an agent is asked to do, and the event by which it has begun to."""


@pytest.mark.parametrize(
    "prompt", ["!wait", *(pytest.param(one, marks=pytest.mark.slow) for one in PHASES if one != "!wait")]
)
def test_stop_ends_every_phase_within_half_a_second(prompt: str) -> None:
    session = session_of()
    begun = threading.Event()
    remove = session.listen(lambda event: begun.set() if isinstance(event, PHASES[prompt]) else None)
    run = session.start(prompt, attended=True)
    assert begun.wait(20)
    began = time.monotonic()
    run.cancel()
    result = run.settled.result(5).result
    assert time.monotonic() - began < 0.5
    assert result.stop_reason == "cancelled"
    remove()
    assert "again" in result_of(asked(session, "!say again")).final_text
    session.close()


def test_stop_while_the_agent_starts() -> None:
    session = session_of()
    run = session.start("!say Hello", attended=True)
    run.cancel()
    assert run.settled.result(5).result.stop_reason == "cancelled"
    session.close()


@pytest.mark.slow
def test_a_call_of_our_tool_ends_with_the_turn() -> None:
    entered = threading.Event()

    async def slow() -> str:
        """Wait."""
        entered.set()
        await asyncio.sleep(60)
        return "late"

    session = session_of(tools=[slow])
    run = started(session, "!call slow {}")
    assert entered.wait(20)
    run.cancel()
    assert run.settled.result(5).result.stop_reason == "cancelled"
    session.close()


@pytest.mark.slow
@pytest.mark.posix
def test_a_call_that_the_agent_gives_up_is_cancelled(tmp_path: Path) -> None:
    cancelled = threading.Event()

    async def slow() -> str:
        """Wait."""
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()
        return "late"

    session = Session(Agent(known(tmp_path), tools=[slow]))
    run = asked(session, "!giveup slow {}")
    assert cancelled.is_set()
    assert result_of(run).final_text == "gave up "
    assert of_kind(run, ToolFinished)[-1].result.text.endswith("no longer waits for it.")
    session.close()


@pytest.mark.slow
def test_a_program_that_is_no_agent_fails_each_time_it_is_asked() -> None:
    session = Session(Agent(f"acp:{sys.executable} -c 'print(1)'"))
    for _ in range(2):
        assert "ended with exit status 0" in str(failure_of(asked(session, "Hello")))
    session.close()


@pytest.mark.slow
def test_the_time_limit_holds() -> None:
    session = session_of()
    asked(session, "!say warm")  # a timeout that a user sets includes the start of the agent
    run = asked(session, "!say Hello\n!hang", agent=Agent(command(), timeout=1.0))
    assert isinstance(failure_of(run), TurnTimeout)
    assert result_of(run).final_text == "Hello "
    session.close()


@pytest.mark.slow
def test_no_process_is_left_when_the_session_is_closed() -> None:
    before = agents()
    session = session_of()
    asked(session, "!say Hello")
    (mine,) = agents() - before
    session.close()
    mine.wait(5)


def agents() -> set[psutil.Process]:
    children = psutil.Process(os.getpid()).children()
    return {one for one in children if one.status() != psutil.STATUS_ZOMBIE and str(AGENT) in one.cmdline()}


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_value_is_validated_and_asked_again() -> None:
    session = session_of()
    run = asked(session, "!say 7", output=int)
    assert result_of(run).value == 7
    wrong = asked(session, "!say many", output=int)
    assert isinstance(failure_of(wrong), InvalidOutput)
    session.close()


@pytest.mark.slow
def test_the_hook_sends_the_agent_on() -> None:
    prompts = ["!say more"]
    session = session_of(before_finish=lambda _: prompts.pop() if prompts else None)
    assert result_of(asked(session, "!say first")).final_text == "more "
    session.close()


@pytest.mark.slow
def test_a_budget_ends_the_turn_when_its_cost_is_reported() -> None:
    session = session_of(max_cost=0.5)
    first = result_of(asked(session, "!cost 0.2\n!say cheap"))
    assert (first.stop_reason, first.usage.cost) == ("answer", pytest.approx(0.2))
    second = result_of(asked(session, "!cost 0.9\n!wait"))
    assert second.stop_reason == "budget"
    session.close()


@pytest.mark.slow
def test_what_other_sessions_of_a_class_have_spent_counts_while_a_prompt_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "class.toml"
    file.write_text("[tool.agentmagic.class]\nsession-max-cost = 1.0\n")
    monkeypatch.setenv("AGENTMAGIC_CLASS", str(file))
    class_settings.cache_clear()
    first, second = session_of(), session_of()
    try:
        assert result_of(asked(first, "!cost 0.9\n!say cheap")).stop_reason == "answer"
        result = result_of(asked(second, "!cost 0.5\n!wait"))
        assert (result.stop_reason, "The kernel has cost $1.4" in result.error) == ("budget", True)
    finally:
        first.close()
        second.close()
        class_settings.cache_clear()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"plan": True}, "makes its own plans"),
        ({"agent": Agent(command(), tool_choice="none")}, "chooses its tools itself"),
        ({"step": True}, "cannot be paused"),
    ],
)
def test_what_an_outside_agent_cannot_do_is_refused(session: Session, options: Any, words: str) -> None:
    run = asked(session, "!say Hello", **options)
    assert isinstance(failure_of(run), UsageError)
    assert words in str(failure_of(run))


def test_a_map_is_refused(session: Session) -> None:
    with pytest.raises(UsageError, match="no map"):
        session.map([{"a": 1}], "{a}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "heard"),
    [((), "[image]"), (("--no-images",), "[image/png plot, 3 bytes]")],
)
def test_images_go_as_far_as_the_agent_takes_them(options: tuple[str, ...], heard: str) -> None:
    session = session_of(*options)
    run = session.start([Media("image/png", b"png", "plot"), "!heard"])
    assert heard in run.wait().final_text
    session.close()


# -- conversations ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_brains_share_a_conversation() -> None:
    session = session_of()
    asked(session, "!say one")
    model = ScriptedModel(["two"])
    assert session.ask("And then?", agent=Agent(model)).final_text == "two"
    assert [message.text for message in model.requests[0].messages][1] == "one "
    told = result_of(asked(session, "!heard")).final_text
    assert "User: And then?" in told
    assert "Assistant: two" in told
    assert told.count("say one") == 1  # its own turn is not told again
    session.close()


@pytest.mark.slow
def test_undo_opens_a_new_session_of_the_agent() -> None:
    session = session_of()
    asked(session, "!say one")
    asked(session, "!say two")
    session.undo()
    told = result_of(asked(session, "!heard")).final_text
    assert "Assistant: one" in told
    assert "two" not in told
    session.close()


@pytest.mark.slow
@pytest.mark.parametrize(("options", "resumes"), [((), True), (("--no-load",), False)])
def test_a_restarted_kernel_resumes_the_agents_session(tmp_path: Path, options: tuple[str, ...], resumes: bool) -> None:
    (tmp_path / "kept").mkdir()
    options = (*options, "--sessions", str(tmp_path / "kept"))
    first = session_of(*options, path=tmp_path / "talk.jsonl")
    asked(first, "!say one")
    first.close()
    later = Session.load(tmp_path / "talk.jsonl", Agent(command(*options)))
    told = result_of(asked(later, "!heard")).final_text
    assert ("say one / heard" in told) is resumes
    assert ("Assistant: one" in told) is not resumes
    assert "(told again)" not in told
    later.close()


def test_an_agent_works_in_the_folder_of_the_notebook(tmp_path):
    class Notebook(ScriptHost):
        folder = tmp_path

    with hosted(Notebook()):
        session = session_of()
        assert session.ask("!where").final_text == str(tmp_path)
        session.close()
