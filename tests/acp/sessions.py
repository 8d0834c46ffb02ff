"""Sessions with the outside agent of the tests, and a user who answers."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentmagic import Agent, Session
from agentmagic.acp.agents import KNOWN
from agentmagic.events import ApprovalAsked, Approve, Deny, Event, fold, without_deltas
from agentmagic.run import Run

AGENT = Path(__file__).parent / "agent.py"
PLAIN = Path(__file__).parent / "plain.py"
ROOT = Path(__file__).parents[2]


def command(*options: str, program: Path = AGENT) -> str:
    return " ".join(("acp:" + sys.executable, str(program), *options))


def known(folder: Path, *options: str, name: str = "claude-agent-acp") -> str:
    """Return the model of the outside agent of the tests under the name of a known agent's program."""
    program = folder / name
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {AGENT} {' '.join(options)}\n")
    program.chmod(0o755)
    return f"acp:{program}"


class Fake:
    """A fake of an agent (a name of tests/acp/fake_agents.py), which plays a script, in a folder of its own.

    `model` names it in the way in which a user would name the real program. It runs on POSIX only.
    """

    def __init__(self, name: str, folder: Path, script: Mapping[str, Sequence[Any]] | None = None) -> None:
        self.script = folder / "script.json"
        self.play(script or {})
        row = KNOWN.get(name)
        self.program = folder / (row.command if row else name)
        words = shlex.join([sys.executable, "-S", "-m", "tests.acp.fakes", name, str(self.script)])
        self.program.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {words} "$@"\n', encoding="utf-8")
        self.program.chmod(0o700)
        self.model = f"acp:{shlex.quote(str(self.program))}"

    def play(self, script: Mapping[str, Sequence[Any]]) -> None:
        """Replace the script."""
        self.script.write_text(json.dumps(script), encoding="utf-8")

    def heard(self, key: str = "") -> list[Any]:
        """Return what the fake noted, in order; with a key, only those values."""
        file = self.script.with_suffix(".heard")
        notes = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
        return [note[key] for note in notes if key in note] if key else notes

    def forget(self) -> None:
        """Drop what the fake noted."""
        self.script.with_suffix(".heard").unlink(missing_ok=True)


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


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a value of JSON."""
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from texts_in(inner)


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
    "Fake",
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
    "texts_in",
]
