"""Sessions with the outside agent of the tests, and a user who answers."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentmagic import Agent, Session
from agentmagic.events import ApprovalAsked, Approve, Deny, Event, fold, without_deltas
from agentmagic.run import Run

AGENT = Path(__file__).parent / "agent.py"
PLAIN = Path(__file__).parent / "plain.py"


def command(*options: str, program: Path = AGENT) -> str:
    return " ".join(("acp:" + sys.executable, str(program), *options))


def known(folder: Path, *options: str, name: str = "claude-agent-acp") -> str:
    """Return the model of the outside agent of the tests under the name of a known agent's program."""
    program = folder / name
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {AGENT} {' '.join(options)}\n")
    program.chmod(0o755)
    return f"acp:{program}"


def started(session: Session, prompt: str, answer: Callable[[ApprovalAsked], Any] | None = None, **options: Any) -> Run:
    """Begin a turn whose approvals are answered by a function of the question; without one they are allowed."""

    def hear(event: Any) -> None:
        if isinstance(event, ApprovalAsked):
            run = session.running
            assert run is not None
            run.send(Approve(event.id) if answer is None else answer(event))

    remove = session.listen(hear)
    run = session.start(prompt, attended=True, **options)
    run.settled.add_done_callback(lambda _: remove())
    return run


def asked(session: Session, prompt: str, answer: Callable[[ApprovalAsked], Any] | None = None, **options: Any) -> Run:
    """Run a turn to its end; whether it fails or not, its log is whole."""
    run = started(session, prompt, answer, **options)
    run.settled.result()
    assert_whole(run)
    return run


def assert_whole(run: Run) -> None:
    """Check the properties of every log: it folds to the messages, and every call has a result."""
    outcome = run.settled.result()
    messages = outcome.result.history_delta
    assert fold(run.events) == messages
    assert fold(without_deltas(run.events)) == messages
    calls = [call.id for message in messages for call in message.calls]
    results = [part.call_id for message in messages if message.role == "tool" for part in message.parts]
    assert calls == results


def names(run: Run) -> list[str]:
    """Return the kinds of the events of a run, without those that only show progress."""
    return [event.type for event in without_deltas(run.events)]


def of_kind(run: Run, kind: type[Any]) -> list[Any]:
    return [event for event in run.events if isinstance(event, kind)]


def session_of(*options: str, program: Path = AGENT, **settings: Any) -> Session:
    return Session(
        Agent(
            command(*options, program=program), **{name: value for name, value in settings.items() if name in FIELDS}
        ),
        **{name: value for name, value in settings.items() if name not in FIELDS},
    )


FIELDS = ("tools", "timeout", "output", "before_finish", "permission", "max_cost", "max_tokens", "max_iterations")


def choosing(option: str) -> Callable[[ApprovalAsked], Approve]:
    """Return an answer that presses one of the agent's own options."""
    return lambda question: Approve(question.id, option=option)


def no(question: ApprovalAsked) -> Deny:
    return Deny(question.id, "not now")


def always(question: ApprovalAsked) -> Approve:
    return Approve(question.id, always=True)


__all__ = [
    "Event",
    "always",
    "asked",
    "choosing",
    "command",
    "known",
    "names",
    "no",
    "of_kind",
    "session_of",
    "started",
]
