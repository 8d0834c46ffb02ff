"""The tasks of a plan and the progress of each, computed from the events of a turn with a plan.

The agent loop uses the `Checklist` to run a plan and to resume one that was cut off. The display shows it to the user.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from agentmagic.errors import UsageError
from agentmagic.events import (
    Event,
    Planned,
    StepStarted,
    Task,
    TaskFinished,
    TaskJudged,
    TaskStarted,
    TaskState,
    ToolFinished,
)
from agentmagic.messages import ToolResult
from agentmagic.text import json_line, plural

Judging = Literal["all", "odd", "off"]
JUDGING: tuple[Judging, ...] = ("all", "odd", "off")
RESUME_PROMPT = "Go on with the plan."
"""The prompt of a turn that resumes a plan."""
NOT_RUN = "The plan was not run:"
"""The beginning of the answer of a turn whose plan the user did not confirm. The plan follows."""
_HEAD = re.compile(r"([\w-]+)\s+(\S+)\s+(?=\{)")
_TAIL = re.compile(r"(?:\s+after\s+([\w, -]+?))?(?:\s+#\s*(.*))?\s*")
FINISHED_STATES: frozenset[TaskState] = frozenset({"done", "failed", "skipped"})


@dataclass(slots=True)
class TaskProgress:
    """The progress of a task of a plan; `parameters` are the parameters of its last or next attempt."""

    task: Task
    parameters: Mapping[str, Any]
    state: TaskState = "pending"
    attempt: int = 0
    call_id: str = ""
    result: ToolResult | None = None
    judgements: list[TaskJudged] = field(default_factory=list[TaskJudged])
    summary: str = ""

    @property
    def has_result(self) -> bool:
        """Whether the tool call of the task's last attempt ended with a result."""
        return self.result is not None and self.result.status != "interrupted"

    @property
    def result_text(self) -> str:
        """The text that later tasks get as the result of this task."""
        judged_text = self.judgements[-1].result if self.judgements else ""
        return judged_text or (self.result.text if self.result else self.summary)


class Checklist:
    """The last plan in a log of events; `rows` has the progress of each task by its id, in the order of the plan."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.rows: dict[str, TaskProgress] = {}
        for event in events:
            self.feed(event)

    def feed(self, event: Event) -> bool:
        """Update the checklist from the next event. Return whether the event changed the checklist."""
        match event:
            case Planned():
                self._begin(event)
                return True
            case TaskStarted() | TaskJudged() | TaskFinished():
                row = self.rows.get(event.id)
            case ToolFinished():
                row = next((row for row in self.rows.values() if row.call_id == event.result.call_id), None)
            case _:
                return False
        if row is not None:
            _change(row, event)
        return row is not None

    def _begin(self, plan: Planned) -> None:
        before = self.rows if plan.resumed else {}
        self.rows = {task.id: before.get(task.id) or TaskProgress(task, task.parameters) for task in plan.tasks}
        for row in self.rows.values():
            if row.state == "running" and not row.has_result:
                row.state = "pending"
        for event in plan.finished:
            if event.id in self.rows and event.id not in before:  # the log lacks the turn that finished the task
                _change(self.rows[event.id], event)

    def resume_event(self) -> Planned:
        """Return the `Planned` event of a turn that resumes this plan, with the outcomes of the tasks that are over."""
        rows = (row for row in self.rows.values() if row.state in FINISHED_STATES)
        finished_tasks = tuple(TaskFinished(row.task.id, row.state, row.summary) for row in rows)
        return Planned(tuple(row.task for row in self.rows.values()), finished=finished_tasks, resumed=True)

    @property
    def open(self) -> bool:
        """Whether the plan has a task that is not yet over (neither done nor failed nor skipped)."""
        return any(row.state not in FINISHED_STATES for row in self.rows.values())

    @property
    def open_tasks(self) -> str:
        """The number of tasks that are not over, as text: "2 open tasks"."""
        return plural(sum(row.state not in FINISHED_STATES for row in self.rows.values()), "open task")

    @property
    def open_plan_message(self) -> str:
        """The error message for a turn that cannot start because it neither resumes nor drops the unfinished plan."""
        return (
            f"The last turn left a plan with {self.open_tasks}. Go on with it by %agent resume (resume=True in code), "
            "or drop it with %%agent --drop (drop=True)."
        )

    def ready(self) -> list[TaskProgress]:
        """Return the tasks that have not run and can run now, because all tasks that they name in `after` are done."""
        return [
            row
            for row in self.rows.values()
            if row.state == "pending" and all(self.rows[name].state == "done" for name in row.task.after)
        ]

    def stuck_tasks(self) -> list[tuple[TaskProgress, TaskProgress]]:
        """Return the pending tasks that can never run, each with the failed or skipped task that it depends on."""
        stuck_rows: list[tuple[TaskProgress, TaskProgress]] = []
        for row in self.rows.values():
            before = (self.rows[name] for name in row.task.after)
            cause = next((one for one in before if one.state in ("failed", "skipped")), None)
            if row.state == "pending" and cause is not None:
                stuck_rows.append((row, cause))
        return stuck_rows


def _change(row: TaskProgress, event: TaskStarted | TaskJudged | TaskFinished | ToolFinished) -> None:
    match event:
        case TaskStarted():
            row.state, row.attempt, row.call_id = "running", event.attempt, event.call_id
            row.parameters, row.result = event.parameters, None
        case TaskJudged():
            row.judgements.append(event)
            if event.retry:
                row.state = "pending"
                row.parameters = row.parameters if event.parameters is None else event.parameters
        case TaskFinished():
            row.state, row.summary = event.state, event.summary
        case ToolFinished():
            row.result = event.result


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of a turn with a plan.

    `judge` says which task results the model checks: all, those that look wrong ("odd"), or none. With `confirm`, the
    user sees the plan and can change it before it runs. `open_plan` is the plan that the last turn left unfinished.
    With `resume`, the turn continues this plan; otherwise the user is asked whether to continue it. `new` says that
    the turn makes a new plan instead.
    """

    judge: Judging
    confirm: bool
    open_plan: Checklist | None
    resume: bool
    new: bool

    def __post_init__(self) -> None:
        if self.judge not in JUDGING:
            raise UsageError(f"judge is {self.judge!r}. Choose one of {', '.join(JUDGING)}.")


def open_plan(turns: Sequence[Sequence[Event]]) -> Checklist | None:
    """Return the plan that the last turn left unfinished, or None. `turns` are the events of each turn."""
    # Turns that ended before their first step are skipped, such as a turn that was refused because of an open plan.
    started_turns = (
        turn for turn in reversed(turns) if any(isinstance(event, Planned | StepStarted) for event in turn)
    )
    if not any(isinstance(event, Planned) for event in next(started_turns, ())):
        return None
    # All turns are read, because earlier turns may have begun the plan and done some of its tasks.
    checklist = Checklist(event for turn in turns for event in turn)
    is_ours = all(row.task.tool for row in checklist.rows.values())  # an outside agent's tasks name no tool
    return checklist if checklist.open and is_ours else None


def plan_text(checklist: Checklist) -> str:
    """Return a plan as text that a person can edit, a line for each task: `t1 tool {...} after t0 # why`."""
    lines: list[str] = []
    for row in checklist.rows.values():
        task = row.task
        after = f" after {', '.join(task.after)}" if task.after else ""
        why = f" # {' '.join(task.description.split())}" if task.description else ""
        lines.append(f"{task.id} {task.tool} {json_line(task.parameters)}{after}{why}")
    return "\n".join(lines)


def read_plan(text: str) -> list[dict[str, Any]]:
    """Parse a plan in the form of `plan_text`, which the user may have edited.

    Raises ValueError for a line that is not a task, and for a text without tasks.
    """
    tasks = [_read_line(line.strip()) for line in text.splitlines() if line.strip()]
    if not tasks:
        raise ValueError("It has no tasks.")
    return tasks


def _read_line(line: str) -> dict[str, Any]:
    message = f"This line is no task: {line[:100]!r}. Write: t1 tool {{...}} after t0 # why."
    head = _HEAD.match(line)
    if head is None:
        raise ValueError(message)
    try:
        parameters, end = json.JSONDecoder().raw_decode(line, head.end())
    except ValueError:
        raise ValueError(message) from None
    tail = _TAIL.fullmatch(line, end)
    if tail is None:
        raise ValueError(message)
    after = [name.strip() for name in (tail[1] or "").split(",") if name.strip()]
    return {
        "id": head[1],
        "tool": head[2],
        "parameters": parameters,
        "depends_on": after,
        "description": tail[2] or "",
    }
