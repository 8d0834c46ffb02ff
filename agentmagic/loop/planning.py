"""Planned mode: let the model plan a prompt as a list of tasks, run them, judge their results, and repair failed ones.

A planned turn is an ordinary turn whose tool calls come from a list of tasks. Each round of tasks is one step in the
history: calls and their results. The model's other decisions do not join the history: the route (whether to use tools
at all), the plan, the parameters of tasks, and whether a result is good.
"""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from agentmagic.errors import UsageError
from agentmagic.events import (
    Clarified,
    Event,
    Fold,
    Notice,
    Planned,
    PlanRejected,
    PlanState,
    QuestionAsked,
    Route,
    Routed,
    Task,
    TaskFinished,
    TaskJudged,
    TaskStarted,
)
from agentmagic.json_schema import misfit
from agentmagic.loop.step import Steps
from agentmagic.loop.tool_calls import ToolExecutor
from agentmagic.messages import Text, ToolCall, ToolResult, Usage
from agentmagic.plan import FINISHED_STATES, NOT_RUN, Checklist, PlanOptions, TaskProgress, plan_text, read_plan
from agentmagic.providers.base import OutputSchema, PlanQuestion
from agentmagic.runtime.timeouts import Deadline
from agentmagic.secrets import redact
from agentmagic.text import clip, close_names, json_line
from agentmagic.tools.calling import check_arguments

T = TypeVar("T")

TRIES = 3
"""How often the model may try to write a valid plan, or valid parameters of a task."""
RETRIES = 3
"""How often a failed task is tried again, with the same or with corrected parameters."""
MOST_TASKS = 30
MOST_QUESTIONS = 3
"""How often in a turn the model may ask the user a question about the request."""
LAST_RESULTS = 5
"""Latest results in a request for parameters or a judgement, in addition to those that the task depends on."""
LONGEST_RESULT = 4_000
"""Characters of one result in a request for parameters or a judgement."""
LONGEST_SUMMARY = 200
"""Characters of a result that become the summary of a task that was not judged."""

RESUME, DROP = "resume", "drop"
"""The possible answers to the question about a plan that the last turn left unfinished."""

_REFERENCE = re.compile(r"\$([A-Za-z0-9_-]+)")
_EMPTY = re.compile(r"[\s\[\](){}\"']*|null|none|nan", re.IGNORECASE)
_ODD = re.compile(r"\s*(error|traceback|exception|failed)\b", re.IGNORECASE)

ROUTE = """Decide how the user's last request is dealt with. Choose one route:
- "answer": the conversation and general knowledge are enough.
- "tools": tools are needed.
- "ask": something is missing that only the user knows. Write one short question into "question".
The tools: {tools}."""
WEB = "\nWhile you answer, the web can be looked at, and no task is needed for it: {tools}."
"""Added to a request for a route if the model's provider runs tools itself."""
PLAN = """Plan the user's last request as a list of tasks, each one call of a tool, as few as possible.
- "id": t1, t2 and so on. "tool": one of {tools}. "description": why the call is made, in a few words.
- "parameters": the arguments of the call. Write the string "$t1" for a value that only the result of t1 tells.
- "depends_on": the ids of the tasks that must be done before; tasks that do not depend on each other run at once."""
SETTLE = """The user's request: {request}

Write the arguments of a call of the tool {tool}, as one JSON object.
What the call is for: {description}
The arguments as planned, in which "$ID" stands for a value from the result of the task ID:
{parameters}

Results so far:
{results}"""
JUDGE = """The user's request: {request}

Judge the result of one task. What it is for: {description}
The call: {tool} with {parameters} (attempt {attempt}; planned were {planned})
Its result ({status}):
{result}

Earlier results:
{results}

- "success": whether the result serves its purpose. "retry": whether other parameters may help.
- "reason": what is wrong, in a sentence, else "". "parameters": all parameters for the next attempt, else null.
- "result": what later tasks need of the result. "summary": what came of it, in one short sentence."""
FAILURES = "Answer the request from the results above, and say plainly that this was not done:"

_TEXT = {"type": "string"}


def _object(required: Sequence[str], **properties: Any) -> dict[str, Any]:
    """Return the JSON Schema of an object with these properties."""
    return {"type": "object", "properties": properties, "required": required}


_TASK = _object(
    ["id", "tool", "parameters"],
    id={**_TEXT, "pattern": "^[A-Za-z0-9_-]{1,20}$"},
    tool=_TEXT,
    parameters={"type": "object"},
    description=_TEXT,
    depends_on={"type": "array", "items": _TEXT},
)
_TASKS = {"type": "array", "minItems": 1, "maxItems": MOST_TASKS, "items": _TASK}
_JUDGEMENT = _object(
    ["success", "retry"],
    success={"type": "boolean"},
    retry={"type": "boolean"},
    reason=_TEXT,
    parameters={"type": ["object", "null"]},
    result=_TEXT,
    summary=_TEXT,
)
_ROUTE = _object(["route"], route={"enum": ["answer", "ask", "tools"], **_TEXT}, question=_TEXT)
ROUTE_FORM = OutputSchema("route", _ROUTE)
PLAN_FORM = OutputSchema("plan", _object(["tasks"], tasks=_TASKS))
JUDGE_FORM = OutputSchema("judgement", _JUDGEMENT)


@dataclass(slots=True)
class Planner:
    """Runs the planned part of a turn. Afterwards, the model answers as in any turn.

    If `renew` is set, `deadline` starts again with each round of tasks. Three fields are read after `run`. If a tool
    ended the turn, `final` is its message. `asked` says that the turn ends with a question to the user. `choice` is the
    tool choice for the answer: "none" if the model must not use tools, None if the turn continues without a plan.
    """

    request: str
    options: PlanOptions
    steps: Steps
    executor: ToolExecutor
    fold: Fold
    deadline: Deadline
    most_rounds: int
    renew: bool = False
    checklist: Checklist = field(default_factory=Checklist)
    final: str | None = None
    asked: bool = False
    choice: str | None = "none"

    async def run(self) -> None:
        """Make or resume a plan, and run it. Raises ProviderError, BudgetExhausted, ServerError and UsageError."""
        old_plan = self.options.open_plan
        if old_plan is not None and await self._resumes(old_plan):
            self.checklist = old_plan
            self._emit(old_plan.resume_event())
            for row in old_plan.rows.values():
                if row.state == "running" and row.result is not None:  # its result is not judged yet
                    await self._judge(row, row.result)
        elif not self.options.new:
            self.choice = None
            return
        elif not (await self._use_tools() and await self._make_plan() and await self._confirm()):
            return
        while self.final is None and (ready := self.checklist.ready()):
            self._restart_clock()
            await self._round(ready)
            self._skip_stuck()
        if self.final is not None:
            for row in self.checklist.rows.values():
                if row.state not in FINISHED_STATES:
                    self._emit(TaskFinished(row.task.id, "skipped", "A tool ended the turn."))
        self._restart_clock()

    @property
    def closing(self) -> str:
        """A message for the model before it answers: which tasks of the plan were not done; "" if all were done."""
        rows = self.checklist.rows.values()
        failures = [f"- {row.task.description or row.task.tool}: {row.summary}" for row in rows if row.state != "done"]
        return "\n".join((FAILURES, *failures)) if failures else ""

    def _emit(self, event: Event) -> None:
        self.checklist.feed(event)
        self.executor.emit(event)

    def _restart_clock(self) -> None:
        if self.renew:
            self.deadline.restart()

    async def _resumes(self, old_plan: Checklist) -> bool:
        """Return whether to resume the last turn's plan. Raises UsageError if neither options nor user tell."""
        if self.options.resume:
            return True
        question = f"The last turn left a plan with {old_plan.open_tasks}. Resume it, or drop it?"
        answer = await self.executor.ask_question(
            QuestionAsked(uuid.uuid4().hex, question, RESUME, choices=(RESUME, DROP))
        )
        if answer is None:
            raise UsageError(old_plan.open_plan_message)
        return answer.strip().lower().startswith(RESUME)

    # -- route ---------------------------------------------------------------------------------

    async def _use_tools(self) -> bool:
        """Let the model decide: answer directly, ask the user, or use tools. Return whether to use tools."""
        prompt = ROUTE.format(tools=", ".join(self.executor.tools) or "none")
        if web := ", ".join(tool.name for tool in self.steps.hosted):
            prompt += WEB.format(tools=web)
        for _ in range(MOST_QUESTIONS):
            text, usage = await self.steps.decide(prompt, ROUTE_FORM, PlanQuestion("route", self.request))
            try:
                decision = ROUTE_FORM.read(text)
            except ValueError:
                decision = {"route": "tools"}  # the answer was not valid JSON: go on to the plan
            question = str(decision.get("question", "")).strip()
            route = cast("Route", decision["route"] if question or decision["route"] != "ask" else "tools")
            self._emit(Routed(route, usage))
            if route != "ask":
                return route == "tools" and bool(self.executor.tools)
            if not await self._ask_back(question):
                return False
        return bool(self.executor.tools)

    async def _ask_back(self, question: str) -> bool:
        """Put the model's question about the prompt to the user, and return whether the user answered.

        Without an answer, the turn ends with the question as its text.
        """
        answer = await self.executor.ask_user(question)
        if answer is None:
            self.steps.write(Text(question))
            self.asked = True
            return False
        self._emit(Clarified(question, answer))
        self.request += f"\n(You asked: {question} The user answered: {answer})"
        return True

    # -- plan ----------------------------------------------------------------------------------

    async def _make_plan(self) -> bool:
        """Let the model write the tasks of a plan.

        Return False if the model writes no valid plan; the turn then continues without one.
        """
        prompt = PLAN.format(tools=", ".join(self.executor.tools))
        question = PlanQuestion("plan", self.request)
        tasks, usage, problem = await self._decide(
            prompt,
            PLAN_FORM,
            question,
            lambda plan: self._tasks(plan["tasks"]),
            on_reject=lambda problem, usage: self._emit(PlanRejected(problem, usage)),
        )
        if tasks is None:
            why = problem.rstrip(".")
            message = f"The model wrote no valid plan in {TRIES} tries ({why}), so the turn goes on without one."
            self._emit(Notice("warning", message))
            self.choice = None
            return False
        self._emit(Planned(tasks, usage))
        return True

    def _tasks(self, entries: Sequence[Mapping[str, Any]]) -> tuple[Task, ...]:
        """Return a plan's entries as tasks, in an order in which they can run. Raises ValueError for a bad plan."""
        ids = {str(one["id"]) for one in entries}
        if len(ids) < len(entries):
            raise ValueError("Two tasks have the same id.")
        tasks = [self._task(one, ids) for one in entries]
        order: list[Task] = []
        while tasks:
            earlier_ids = {task.id for task in order}
            free = [task for task in tasks if earlier_ids.issuperset(task.after)]
            if not free:
                raise ValueError(f"The tasks {', '.join(task.id for task in tasks)} wait for each other.")
            order += free
            tasks = [task for task in tasks if task not in free]
        return tuple(order)

    def _task(self, entry: Mapping[str, Any], ids: set[str]) -> Task:
        name, parameters = str(entry["tool"]), cast("Mapping[str, Any]", entry["parameters"])
        references = _references(parameters) & ids
        after = dict.fromkeys((*map(str, entry.get("depends_on", ())), *sorted(references)))
        task = Task(str(entry["id"]), name, parameters, str(entry.get("description", "")), tuple(after))
        if unknown := [name for name in after if name not in ids]:
            raise ValueError(f"Task {task.id} depends on {unknown[0]}, and there is no such task.")
        tool = self.executor.tools.get(name)
        if tool is None:
            close = close_names(name, self.executor.tools, n=3, cutoff=0.5) or list(self.executor.tools)[:10]
            raise ValueError(f"Task {task.id} calls {name}, and there is no such tool. Tools: {', '.join(close)}.")
        if not references and (problem := check_arguments(tool.definition, parameters)):
            raise ValueError(f"Task {task.id}: {problem}")
        return task

    async def _confirm(self) -> bool:
        """Show the plan to the user, who can change it. Return whether to run it."""
        if not self.options.confirm:
            return True
        question, suggestion = "Run this plan? Change, remove or reorder its lines first.", plan_text(self.checklist)
        state: PlanState = "new"
        for _ in range(TRIES):
            answer = await self.executor.ask_question(QuestionAsked(uuid.uuid4().hex, question, suggestion, plan=state))
            if answer is None:
                break
            if not answer.strip() or answer.strip() == suggestion.strip():
                return True
            try:
                self._emit(Planned(self._tasks(read_plan(answer))))
            except ValueError as error:
                question, suggestion, state = f"The plan cannot be run: {error} Change it.", answer, "refused"
            else:
                return True
        self.steps.write(Text(f"{NOT_RUN}\n\n```\n{suggestion}\n```"))
        self.asked = True
        return False

    # -- tasks ---------------------------------------------------------------------------------

    async def _round(self, ready: Sequence[TaskProgress]) -> None:
        """Run the calls of the tasks that are ready, in parallel, and judge their results."""
        if self.steps.number >= self.most_rounds:
            for row in ready:
                self._emit(TaskFinished(row.task.id, "skipped", "The limit of steps was reached (max_iterations)."))
            return
        calls: list[ToolCall] = []
        for row in ready:
            if row.task.tool not in self.executor.tools:  # possible in a resumed plan: the tools may have changed
                self._emit(TaskFinished(row.task.id, "failed", f"There is no tool {row.task.tool!r} any more."))
                continue
            parameters, usage = await self._settle_parameters(row)
            if parameters is None:
                continue
            call = ToolCall(f"call_{uuid.uuid4().hex}", row.task.tool, parameters)
            self._emit(TaskStarted(row.task.id, call.id, parameters, row.attempt + 1, usage))
            calls.append(call)
        if not calls:
            return
        self.steps.write(*calls)
        self.final = await self.executor.carry_out(self.fold.unanswered)
        results = {part.call_id: part for part in self.fold.messages[-1].parts if isinstance(part, ToolResult)}
        for row in ready:
            if row.call_id in results and row.state == "running":
                row.result = results[row.call_id]
                await self._judge(row, row.result)

    async def _settle_parameters(self, row: TaskProgress) -> tuple[Mapping[str, Any] | None, Usage]:
        """Return the parameters of a task's next attempt (None if the model wrote no valid ones), and the usage.

        The model is asked only if the task's parameters so far refer to the results of other tasks.
        """
        if not _references(row.parameters) & set(self.checklist.rows):
            return row.parameters, Usage()
        tool = self.executor.tools[row.task.tool].definition
        prompt = SETTLE.format(
            request=self.request,
            tool=f"{tool.name} ({tool.description.strip()})",
            description=row.task.description,
            parameters=json_line(row.parameters),
            results=self._results(row),
        )
        question = PlanQuestion("parameters", self.request, tool, self._calls_so_far(row))
        form = OutputSchema("arguments", tool.parameters)
        parameters, usage, problem = await self._decide(prompt, form, question, dict[str, Any])
        if parameters is None:
            reason = f"No fitting parameters were found in {TRIES} tries: {problem}"
            self._emit(TaskFinished(row.task.id, "failed", reason, usage))
        return parameters, usage

    async def _judge(self, row: TaskProgress, result: ToolResult) -> None:
        """Decide, from a task's result, whether the task is done, has failed, or is tried again."""
        over = self.final is not None or result.status in ("denied", "interrupted")
        has_tool = row.task.tool in self.executor.tools  # can be false: the tools of a resumed plan may have changed
        judging = self.options.judge == "all" or (self.options.judge == "odd" and is_odd(result))
        judgement = await self._judgement(row, result) if judging and has_tool and not over else None
        if judgement is None:
            state, summary = "failed" if result.is_error else "done", clip(result.text.strip(), LONGEST_SUMMARY, "...")
        else:
            state, summary = "done" if judgement.success else "failed", judgement.summary or judgement.reason
            self._emit(judgement)
            if judgement.retry:
                return
        self._emit(TaskFinished(row.task.id, state, summary))

    async def _judgement(self, row: TaskProgress, result: ToolResult) -> TaskJudged | None:
        """Let the model judge the result of a task. Return None if the model's answer cannot be used."""
        prompt = JUDGE.format(
            request=self.request,
            description=row.task.description,
            tool=row.task.tool,
            parameters=json_line(row.parameters),
            attempt=row.attempt,
            planned=json_line(row.task.parameters),
            status=result.status,
            result=clip(result.text, LONGEST_RESULT, "...") or "(empty)",
            results=self._results(row),
        )
        tool = self.executor.tools[row.task.tool].definition
        call = ToolCall(row.call_id, tool.name, row.parameters)
        question = PlanQuestion("judgement", self.request, tool, (*self._calls_so_far(row), (call, result)))
        judgement, usage, problem = await self._decide(
            prompt, JUDGE_FORM, question, lambda answer: self._read_judgement(row, answer)
        )
        if judgement is None:
            self._emit(Notice("info", f"The judgement of {row.task.id} could not be used: {problem}"))
            return None
        return replace(judgement, usage=usage)

    def _read_judgement(self, row: TaskProgress, answer: Mapping[str, Any]) -> TaskJudged:
        """Return the model's judgement of a task's result, read from the JSON `answer`.

        Raises ValueError if the model proposed new parameters that do not fit the tool.
        """
        success, parameters = bool(answer["success"]), answer.get("parameters")
        retry = not success and bool(answer["retry"]) and row.attempt <= RETRIES
        if retry and parameters is not None:
            problem = misfit(self.executor.tools[row.task.tool].definition.parameters, parameters)
            if problem:
                raise ValueError(problem)
        # Retry with the same parameters as last time or with new ones, but not with those of an earlier attempt.
        earlier = [row.task.parameters, *(one.parameters for one in row.judgements)]
        retry = retry and (parameters is None or parameters == row.parameters or parameters not in earlier)
        correction = cast("Mapping[str, Any] | None", parameters) if retry else None
        reason, digest, summary = (str(answer.get(name, "")) for name in ("reason", "result", "summary"))
        return TaskJudged(row.task.id, success, retry, reason, correction, digest, summary)

    async def _decide(
        self,
        prompt: str,
        form: OutputSchema,
        question: PlanQuestion,
        read: Callable[[Any], T],
        *,
        on_reject: Callable[[str, Usage], None] | None = None,
    ) -> tuple[T | None, Usage, str]:
        """Ask the model for a decision until `read` accepts its answer; after a rejected answer, say what was wrong.

        Return what `read` returned, or None if it accepted none of TRIES answers; then the usage that was not passed to
        `on_reject`; and then what was wrong with the last answer.
        """
        total, problem = Usage(), ""
        for _ in range(TRIES):
            wrong = f"\n\nYour last answer could not be used: {problem} Write all of it again." if problem else ""
            text, usage = await self.steps.decide(prompt + wrong, form, question)
            try:
                return read(form.read(text)), total + usage, ""
            except ValueError as error:
                problem = redact(str(error))
            if on_reject is None:
                total += usage
            else:
                on_reject(problem, usage)
        return None, total, problem

    def _skip_stuck(self) -> None:
        """Skip the tasks that depend on a failed task, directly or through other tasks."""
        while pairs := self.checklist.stuck_tasks():
            for row, cause in pairs:
                reason = f"Skipped, because {cause.task.id} {cause.state}: {cause.summary}"
                self._emit(TaskFinished(row.task.id, "skipped", clip(reason, 300, "...")))

    def _results(self, row: TaskProgress) -> str:
        """Return the results of other tasks as paragraphs, for a request to the model about the task `row`."""
        lines = (
            f"{one.task.id} ({one.task.tool}): {clip(one.result_text, LONGEST_RESULT, '...')}"
            for one in self._related_rows(row)
        )
        return "\n".join(lines) or "(none)"

    def _calls_so_far(self, row: TaskProgress) -> tuple[tuple[ToolCall, ToolResult], ...]:
        """Return the calls and results of other tasks, for a request to the model about the task `row`."""
        return tuple(
            (ToolCall(one.call_id, one.task.tool, one.parameters), one.result)
            for one in self._related_rows(row)
            if one.result is not None
        )

    def _related_rows(self, row: TaskProgress) -> list[TaskProgress]:
        """Return the finished tasks to show to the model for the task `row`: the last few, and those it needs."""
        done_rows = [other for other in self.checklist.rows.values() if other.state == "done" and other is not row]
        return [other for other in done_rows if other in done_rows[-LAST_RESULTS:] or other.task.id in row.task.after]


def is_odd(result: ToolResult) -> bool:
    """Return whether the model should judge a task's result: it is an error, is empty, or begins like an error."""
    nothing = result.structured in ([], {}, "") or (not result.structured and _EMPTY.fullmatch(result.text))
    return result.is_error or bool(nothing) or _ODD.match(result.text) is not None


def _references(parameters: Any) -> set[str]:
    """Return every name that follows a "$" in parameters. A name that is a task's id stands for the task's result."""
    match parameters:
        case str():
            return set(cast("list[str]", _REFERENCE.findall(parameters)))
        case Mapping():
            inner = list(cast("Mapping[str, Any]", parameters).values())
        case list():
            inner = cast("list[Any]", parameters)
        case _:
            inner = []
    return {name for one in inner for name in _references(one)}
