"""The file that a student hands in. It shows a notebook's run: turns, tool calls, results, checks, exercises.

Like a cassette, the file is a series of YAML documents. Each document ends with a digest of its content and of the
digest of the document before. From the digests, the reader sees that a document was changed or is missing, or that the
file was cut off. They detect damage but not fraud, since anyone can compute new digests.
"""

import getpass
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentmagic.errors import UsageError
from agentmagic.events import StepFinished, TaskFinished, ToolFinished, ToolStarted, TurnStarted
from agentmagic.export import replace_file
from agentmagic.history.history import Turn
from agentmagic.plain_files import read_plain_text
from agentmagic.replay.documents import SEPARATOR, read, write
from agentmagic.replay.exchange import Json, blank_secrets, short_digest
from agentmagic.secrets import redact
from agentmagic.session import Session
from agentmagic.testing import CHECKS, EXERCISES
from agentmagic.text import cut, exact, plural, single_line

FORMAT = 1
TITLE = "agentmagic run"
_DIGEST = "digest: "
LONGEST_TEXT = 4_000
"""Characters of a prompt, an answer or a result that are written to the file."""
LONGEST_NAME = 80
"""Characters of a name in a file that are shown."""
LARGEST_FILE = 64 * 2**20
"""Bytes of a file that is read."""
MOST_EXERCISES = 100
"""Exercises of a file that are shown."""


def hand_in(target: Path, sessions: Mapping[str, Session], notebook: str, student: str = "") -> str:
    """Write the run of a notebook to a file, with secrets blanked, and return a summary in one sentence.

    By default, `student` is the user's name at JupyterHub or on this machine.

    Raises UsageError if there are no turns, and OSError if the file cannot be written.
    """
    if not any(session.turns for session in sessions.values()):
        raise UsageError("There are no turns to hand in. Run the cells of the notebook first.")
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, "".join(_with_digests(_documents(sessions, notebook, student or _user()))))
    return RunLog.read(target).summary


def _user() -> str:
    """Return the name with which the user is logged in, or "" if it is unknown."""
    with suppress(OSError, KeyError, ImportError):  # raised, depending on the Python version, for an unknown user
        return os.environ.get("JUPYTERHUB_USER") or getpass.getuser()
    return ""


@dataclass(frozen=True, slots=True)
class RunLog:
    """The content of a file that a student handed in. `damage` says how it is damaged, or is "" if it is complete."""

    documents: tuple[Json, ...]
    damage: str

    @classmethod
    def read(cls, path: Path) -> "RunLog":
        """Read a file that `hand_in` wrote. Raises UsageError for any other file, CassetteError for bad YAML."""
        try:
            # As text, because mail programs may have changed the line ends.
            text = read_plain_text(path, LARGEST_FILE)
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} cannot be read: {error}.") from error
        pieces = text.split(f"\n{SEPARATOR}")
        if not text.startswith(f"{SEPARATOR}{TITLE}: "):
            raise UsageError(f"{path} is no run that was handed in. %agent hand-in FILE writes one.")
        whole = [piece if number == 0 else f"{SEPARATOR}{piece}" for number, piece in enumerate(pieces)]
        damage, before, documents = "", "", list[Json]()
        for number, piece in enumerate(whole, 1):
            content, _, digest = piece.rstrip("\n").rpartition(_DIGEST)
            before = _digest(before, content)
            if digest != before:
                damage = f"document {number} of {len(whole)} was changed, or one before it is missing"
                break
            documents.append(read(content, f"{path}, document {number}:"))
        if not damage and "end" not in documents[-1]:
            damage = "its end is missing"
        return cls(tuple(documents), damage)

    @property
    def summary(self) -> str:
        """A sentence with the numbers of turns, tool calls and checks in the file."""
        turns = [one for one in self.documents if "turn" in one]
        checks = [one for one in self.documents if "check" in one]
        calls = sum(len(one["calls"]) for one in turns if isinstance(one.get("calls"), list))
        passes = sum(one.get("passed") is True for one in checks)
        counts = f"{plural(len(turns), 'turn')}, {plural(calls, 'call')}"
        return f"{counts}, {plural(passes, 'check')} passed, {len(checks) - passes} failed."

    @property
    def report(self) -> Iterator[str]:
        """Yield the lines of a report for a teacher: student, notebook, summary, then each exercise and its tries."""
        head = self.documents[0]
        whose, notebook = (_name(head.get(key)) or f"no {key}" for key in ("student", "notebook"))
        yield f"{whose}, {notebook}: {self.summary}"
        exercises = [one for one in self.documents if "exercise" in one]
        for one in exercises[:MOST_EXERCISES]:
            tries = one.get("tries")
            took = f"{tries:,} {'try' if tries == 1 else 'tries'}" if isinstance(tries, int) and tries else "not tried"
            state = "passed, " if one.get("passed") is True else "not passed, " if tries else ""
            yield f"  exercise {_name(one['exercise'])}: {state}{took}"
        if len(exercises) > MOST_EXERCISES:
            yield f"  and {len(exercises) - MOST_EXERCISES:,} more exercises"


def _name(value: object) -> str:
    """Return a name from a file, made safe to be shown on one line; "" if it is not text."""
    return single_line(exact(value), LONGEST_NAME) if isinstance(value, str) else ""


def _digest(before: str, content: str) -> str:
    return short_digest(f"{before}\n{content}")


def _with_digests(documents: Iterator[Json]) -> Iterator[str]:
    before = ""
    for document in documents:
        content = write(blank_secrets(document))
        before = _digest(before, content)
        yield f"{content}{_DIGEST}{before}\n"


def _documents(sessions: Mapping[str, Session], notebook: str, student: str) -> Iterator[Json]:
    yield {
        TITLE: FORMAT,
        "student": student,
        "notebook": notebook,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    turns = 0
    for name, session in sessions.items():
        for number, turn in enumerate(session.turns, 1):
            turns += 1
            yield {"turn": number, "session": name, **_turn(turn)}
    for one in CHECKS:
        yield {"check": one.description, "passed": one.passed, "prompt": _short(one.prompt)}
    for exercise in EXERCISES.values():
        yield {"exercise": exercise.name, "passed": exercise.passed, "tries": exercise.tries}
    yield {"end": "the run", "turns": turns}


def _turn(turn: Turn) -> Json:
    result, usage = turn.result, turn.usage
    steps = [event for event in turn.events if isinstance(event, StepFinished)]
    tasks = [f"{event.id}: {event.state}" for event in turn.events if isinstance(event, TaskFinished)]
    start = next(event for event in turn.events if isinstance(event, TurnStarted))
    document: Json = {
        "model": start.model,
        "prompt": _short(turn.prompt.text),
        "stopped": result.stop_reason if result else "",
        "steps": len(steps),
        "seconds": round(sum(step.seconds for step in steps), 3),
        "tokens": {"in": usage.input_tokens, "out": usage.output_tokens},
        "cost": usage.cost,
        "tasks": tasks,
        "calls": list(_calls(turn)),
        "answer": _short(turn.answer),
        "error": result.error if result else "",
    }
    return {name: value for name, value in document.items() if value not in ("", None, [])}


def _calls(turn: Turn) -> Iterator[dict[str, Any]]:
    """Yield a turn's tool calls in the order in which they began. Parallel calls may end in another order."""
    starts = {
        event.call.id: (place, event) for place, event in enumerate(turn.events) if isinstance(event, ToolStarted)
    }
    ends = [(place, event) for place, event in enumerate(turn.events) if isinstance(event, ToolFinished)]
    ends.sort(key=lambda one: starts.get(one[1].result.call_id, one)[0])
    for _, event in ends:
        result = event.result
        _, start = starts.get(result.call_id, (0, None))
        arguments = {"arguments": dict(start.call.arguments)} if start and start.call.arguments else {}
        seconds = {"seconds": round(event.seconds, 3)} if event.seconds else {}
        yield {"name": result.name, **arguments, "status": result.status, **seconds, "result": _short(result.text)}


def _short(text: str) -> str:
    return cut(redact(text), LONGEST_TEXT)  # secrets are blanked before the cut: a part of one is not recognized
