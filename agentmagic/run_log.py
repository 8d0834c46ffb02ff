"""The file that a student hands in. It shows a notebook's run: turns, tool calls, results, checks, exercises.

Like a cassette, the file is a series of YAML documents. Each document ends with a digest of its content and of the
digest of the document before. From the digests, the reader sees that a document was changed or is missing, or that the
file was cut off. They detect damage but not fraud, since anyone can compute new digests.
"""

import csv
import getpass
import io
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentmagic.display.printout import PrintedRows
from agentmagic.errors import CassetteError, UsageError
from agentmagic.events import StepFinished, TaskFinished, ToolFinished, ToolStarted, TurnStarted
from agentmagic.export import replace_file
from agentmagic.history.history import Turn
from agentmagic.plain_files import read_plain_text
from agentmagic.replay.documents import SEPARATOR, read, write
from agentmagic.replay.exchange import Json, blank_secrets, short_digest
from agentmagic.secrets import redact
from agentmagic.session import Session
from agentmagic.testing import CHECKS, EXERCISES
from agentmagic.text import cut, exact, plural, reveal, single_line

TableRow = dict[str, str | int]
"""What the table has of one file, by the names of its columns."""
COLUMNS = (
    *("file", "student", "notebook", "written", "problem"),
    *("turns", "calls", "checks passed", "checks failed", "exercises passed"),
)
"""The columns of the table before those of the exercises."""
_EXERCISE = "exercise "
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
"""Exercises of a file, and columns of exercises in a table, that are shown."""
MOST_TRIES = 1_000_000
"""The largest number of tries that is shown."""
_FORMULA = re.compile(r"(^|[,;|])(\s*[=+\-@＝＋－＠])")  # noqa: RUF001  (Excel reads the wide signs as formulas too)
"""A text that a spreadsheet may run as a formula, also after a character at which it may split a line."""


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
    """The content of a file that a student handed in.

    `problem` says why the file is not a whole run that was handed in, such as "damaged: its end is missing", or is "".
    `documents` are those before the damage, if there is any.
    """

    documents: tuple[Json, ...]
    problem: str

    @classmethod
    def read(cls, path: Path) -> "RunLog":
        """Read a file that `hand_in` wrote. For any other file, `problem` says what it is."""
        try:
            # As text, because mail programs may have changed the line ends.
            text = read_plain_text(path, LARGEST_FILE)
        except ValueError:
            problem = "it is not text"
        except OSError as error:
            problem = error.strerror or "the system cannot open it"
        else:
            if text.startswith(f"{SEPARATOR}{TITLE}: "):
                return cls._parse(text)
            problem = "it is not a run that %agent hand-in wrote"
        return cls((), f"not read: {problem}")

    @classmethod
    def _parse(cls, text: str) -> "RunLog":
        pieces = text.split(f"\n{SEPARATOR}")
        whole = [piece if number == 0 else f"{SEPARATOR}{piece}" for number, piece in enumerate(pieces)]
        before, documents = "", list[Json]()
        for number, piece in enumerate(whole, 1):
            content, _, digest = piece.rstrip("\n").rpartition(_DIGEST)
            before = _digest(before, content)
            where = f"damaged: document {number} of {len(whole)}"
            if digest != before:
                return cls(tuple(documents), f"{where} was changed, or one before it is missing")
            try:
                documents.append(read(content, where))
            except CassetteError:  # the digest is right, so someone computed it for this content
                return cls(tuple(documents), f"{where} is not one that %agent hand-in wrote")
        return cls(tuple(documents), "" if "end" in documents[-1] else "damaged: its end is missing")

    @property
    def names(self) -> dict[str, str]:
        """The student, the notebook and the time of the file, each "" if the file has none that can be read."""
        head = self.documents[0] if self.documents else {}
        return {key: _name(head.get(key)) for key in ("student", "notebook", "written")}

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of turns, tool calls, checks and passed exercises in the file."""
        turns = [one for one in self.documents if "turn" in one]
        checks = [one for one in self.documents if "check" in one]
        passed = sum(one.get("passed") is True for one in checks)
        return {
            "turns": len(turns),
            "calls": sum(len(one["calls"]) for one in turns if isinstance(one.get("calls"), list)),
            "checks passed": passed,
            "checks failed": len(checks) - passed,
            "exercises passed": sum(one.get("passed") is True for one in self.exercises),
        }

    @property
    def exercises(self) -> list[Json]:
        """The documents of the exercises, as many as are shown."""
        return [one for one in self.documents if "exercise" in one][:MOST_EXERCISES]

    @property
    def summary(self) -> str:
        """A sentence with the numbers of turns, tool calls and checks in the file."""
        turns, calls, passed, failed, _ = self.counts.values()
        return f"{plural(turns, 'turn')}, {plural(calls, 'call')}, {plural(passed, 'check')} passed, {failed} failed."

    @property
    def report(self) -> Iterator[str]:
        """Yield the lines of a report for a teacher: student, notebook, summary, then each exercise and its tries."""
        if self.problem:
            yield f"{self.problem}."
            return
        yield f"{self.names['student'] or 'no student'}, {self.names['notebook'] or 'no notebook'}: {self.summary}"
        for one in self.exercises:
            tries = _tries(one)
            took = f", {tries:,} {'try' if tries == 1 else 'tries'}" if tries else ""
            yield f"  exercise {_name(one['exercise'])}: {_state(one)}{took}"
        whole = sum("exercise" in one for one in self.documents)
        if whole > MOST_EXERCISES:
            yield f"  and {whole - MOST_EXERCISES:,} more exercises"


def list_runs(files: Sequence[Path]) -> Iterator[tuple[list[str], TableRow]]:
    """Yield the lines of the report on each file, and its row of the table. No file stops the list."""
    for file in files:
        log, name = RunLog.read(file), reveal(str(file), strictly=True)
        first, *others = log.report
        row: TableRow = {"file": name, **log.names, "problem": log.problem}
        if not log.problem:
            row |= log.counts | {f"{_EXERCISE}{_name(one['exercise'])}": _state(one) for one in log.exercises}
        yield [f"{name}: {first}", *others], row


def table_text(rows: Sequence[TableRow]) -> str:
    """Return the table as text, and below it a line for each student who handed in a notebook more than once."""
    shown = [
        (
            *(str(row[key]) for key in ("student", "notebook", "file")),
            "" if row["problem"] else f"{row['exercises passed']} of {sum(name.startswith(_EXERCISE) for name in row)}",
            "" if row["problem"] else f"{row['checks passed']} passed, {row['checks failed']} failed",
            str(row["problem"]),
        )
        for row in rows
    ]
    table = PrintedRows(shown, "table", ("student", "notebook", "file", "exercises", "checks", "problem")).text
    files: dict[tuple[str, str], list[str]] = {}
    for student, notebook, file, *_ in shown:
        files.setdefault((student, notebook), []).append(file)
    notes = [
        f"{student} handed in {notebook or 'a notebook without a name'} {len(names)} times: {', '.join(names)}."
        for (student, notebook), names in files.items()
        if student and len(names) > 1
    ]
    return "\n".join([table, *notes])


def table_csv(rows: Sequence[TableRow]) -> str:
    """Return the table as CSV, with a column for each exercise: the 100 (MOST_EXERCISES) that most files have.

    Students choose the names, so a text that a spreadsheet may run as a formula gets an apostrophe before it.
    """
    found = Counter(name for row in rows for name in row if name.startswith(_EXERCISE))
    common = {name for name, _ in found.most_common(MOST_EXERCISES)}
    columns = [*COLUMNS, *(name for name in found if name in common)]
    target = io.StringIO(newline="")
    lines = [columns, *([row.get(name, "") for name in columns] for row in rows)]
    safe = ([_FORMULA.sub(r"\1'\2", str(cell)) for cell in line] for line in lines)
    csv.writer(target, lineterminator="\n").writerows(safe)
    return target.getvalue()


def _name(value: object) -> str:
    """Return a name from a file, made safe to be shown on one line; "" if it is not text."""
    return single_line(exact(value[:LONGEST_TEXT]), LONGEST_NAME) if isinstance(value, str) else ""


def _tries(exercise: Json) -> int:
    tries = exercise.get("tries")
    return max(0, min(tries, MOST_TRIES)) if isinstance(tries, int) else 0


def _state(exercise: Json) -> str:
    return "passed" if exercise.get("passed") is True else "not passed" if _tries(exercise) else "not tried"


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
