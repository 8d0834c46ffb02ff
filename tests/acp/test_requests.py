"""Permission requests of an outside agent: each gets its own answer, whatever else the agent does."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from agentmagic import Agent, Policy, Rule, Session
from agentmagic.acp.calls import always_scope
from agentmagic.events import ApprovalAsked, Deny
from agentmagic.run import Run
from tests.acp.sessions import Fake, asked, of_kind

pytestmark = pytest.mark.posix

PATIENCE = 20
"""How long a turn may take, in seconds; it takes about one."""
OPTIONS = [
    {"optionId": "yes", "kind": "allow_once", "name": "Allow"},
    {"optionId": "no", "kind": "reject_once", "name": "Reject"},
]


def request(call: str, **fields: Any) -> dict[str, Any]:
    """Return the step of a request that the fake does not wait for."""
    return {"ask": {"toolCallId": call, "kind": "execute", **fields}, "options": OPTIONS, "wait": False}


def update(call: str, **fields: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": "tool_call_update", "toolCallId": call, **fields}}


def played(folder: Path, steps: Sequence[Any], answer: Any = None, **options: Any) -> tuple[Fake, Run]:
    """Play a turn of an agent that follows the protocol. Return the agent and the run."""
    fake = Fake("protocol", folder, {"go": [*steps, {"say": "done"}]})
    session = Session(Agent(fake.model, timeout=PATIENCE, **options))
    try:
        return fake, asked(session, "go", answer)
    finally:
        session.close()


def test_many_requests_at_once_are_all_answered(tmp_path: Path) -> None:
    calls = [f"c{number}" for number in range(8)]
    ask = [request(call, title=call, rawInput={"command": call}) for call in calls]
    wait = [{"wait": number} for number in range(len(calls))]
    fake, run = played(tmp_path, [*ask, *wait, *(update(call, status="completed") for call in calls)])
    assert run.settled.result().result.stop_reason == "answer"
    assert fake.heard("answered") == ["allow_once"] * len(calls)
    assert [one.call.arguments["command"] for one in of_kind(run, ApprovalAsked)] == calls


@pytest.mark.slow
def test_calls_that_overlap_never_nest_too_deep(tmp_path: Path) -> None:
    calls = [f"c{number}" for number in range(9)]
    steps: list[Any] = [request(calls[0], title="c0", rawInput={"command": "c0"}), {"wait": 0}]
    for number, (before, call) in enumerate(pairwise(calls), 1):
        steps += [update(before, status="in_progress"), request(call, title=call, rawInput={"command": call})]
        steps += [{"wait": number}, update(before, status="completed")]
    fake, run = played(tmp_path, [*steps, update(calls[-1], status="completed")])
    assert run.settled.result().result.stop_reason == "answer"
    assert fake.heard("answered") == ["allow_once"] * len(calls)


def test_the_card_waits_for_an_input_that_follows_the_request(tmp_path: Path) -> None:
    late = [{"sleep": 0.05}, update("c", rawInput={"command": "ls"}), {"wait": 0}, update("c", status="completed")]
    _, run = played(tmp_path, [request("c", title="Terminal"), *late])
    (question,) = of_kind(run, ApprovalAsked)
    assert question.call.arguments["command"] == "ls"
    assert not question.once


def test_the_input_of_a_second_request_is_not_shown_for_the_first(tmp_path: Path) -> None:
    second = request("c", title="Terminal", rawInput={"command": "ls"})
    wait = [{"wait": 0}, {"wait": 1}, update("c", status="completed")]
    fake, run = played(tmp_path, [request("c", title="Terminal"), second, *wait])
    first, other = of_kind(run, ApprovalAsked)
    assert first.once
    assert "command" not in first.call.arguments
    assert other.call.arguments["command"] == "ls"
    assert len(fake.heard("answered")) == len((first, other))


@pytest.mark.slow
def test_a_request_beyond_the_bounds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentmagic.acp.bounds.CALLS", 1)
    announced = {"update": {"sessionUpdate": "tool_call", "toolCallId": "a", "title": "Read", "kind": "read"}}
    fake, run = played(tmp_path, [announced, request("b", title="b", rawInput={"command": "b"}), {"wait": 0}])
    assert "made over 1 calls" in str(run.settled.result().error)
    assert fake.heard("answered") == ["reject_once"]


@pytest.mark.parametrize("inside", [False, True])
def test_a_forbidden_act_without_a_question_ends_the_turn(tmp_path: Path, inside: bool) -> None:
    around = [request("a", title="a", rawInput={"command": "a"}), {"wait": 0}, update("a", status="in_progress")]
    act = {"sessionUpdate": "tool_call", "toolCallId": "b", "title": "b", "kind": "delete", "rawInput": {"path": "b"}}
    steps = [*(around if inside else []), {"update": act}, update("b", status="completed")]
    _, run = played(tmp_path, steps, permission=Policy([Rule("deny", "delete")]))
    outcome = run.settled.result()
    assert outcome.result.stop_reason == "error"
    assert "did this without asking: delete" in str(outcome.error)


def test_a_no_never_presses_an_option_that_allows(tmp_path: Path) -> None:
    ask = request("c", title="c", rawInput={"command": "c"})
    fake, _ = played(tmp_path, [ask, {"wait": 0}], lambda question: Deny(question.id, option="yes"))
    assert fake.heard("answered") == ["reject_once"]


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ({"path": "a", "content": "1"}, {"path": "a", "content": "2"}, True),
        ({"path": "a", "changes": "New: a\n+1"}, {"path": "a", "changes": "Changed: a\n-1\n+2"}, True),
        ({"path": "a", "changes": "New: a\n+1"}, {"path": "a", "changes": "New: b\n+1"}, False),
        ({"path": "a", "patchText": "*** Update File: a"}, {"path": "a", "patchText": "*** Update File: b"}, False),
        ({"path": "a", "edits": [{"file": "a"}]}, {"path": "a", "edits": [{"file": "b"}]}, False),
    ],
)
def test_always_for_a_file_holds_for_no_other_file(first: Any, second: Any, is_same: bool) -> None:
    assert (always_scope(first, code=False) == always_scope(second, code=False)) is is_same


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ({"command": "ls", "description": "Look"}, {"command": "ls", "title": "List"}, True),
        ({"command": "ls"}, {"command": "ls", "cwd": "/"}, False),
        ({"command": "ls", "path": "a"}, {"command": "rm", "path": "a"}, False),
        ({"title": "Ticket", "body": "x"}, {"title": "Other ticket", "body": "x"}, False),
        ({"title": "Ticket"}, {"title": "Ticket"}, None),
    ],
)
def test_always_for_code_holds_for_exactly_the_same_command_or_input(first: Any, second: Any, is_same: Any) -> None:
    scopes = always_scope(first, code=True), always_scope(second, code=True)
    assert scopes == (None, None) if is_same is None else (scopes[0] == scopes[1]) is is_same


@pytest.mark.slow
@pytest.mark.parametrize("has_input", [False, True])
def test_a_change_that_is_too_long_for_its_diff_is_shown_whole_or_is_unclear(tmp_path: Path, has_input: bool) -> None:
    text = "x\n" * 450 + "import evil\n"
    given = {"file_path": "a.py", "content": text} if has_input else {}
    ask = request("c", title="a.py", rawInput=given, content=[{"type": "diff", "path": "a.py", "newText": text}])
    ask["ask"]["kind"] = "edit"
    _, run = played(tmp_path, [ask, {"wait": 0}, update("c", status="completed")])
    (question,) = of_kind(run, ApprovalAsked)
    assert question.once is not has_input
    assert ("import evil" in str(question.call.arguments)) is has_input
