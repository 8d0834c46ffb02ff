"""The events of a turn in the order in which the loop emits them, the user's answers, and the fold into messages.

The order within a turn: `TurnStarted`, and `Working` while the model is loaded; for each step `StepStarted`, then for
each part `PartStarted`, `PartDelta`..., `PartFinished`, then `StepFinished`; then the tools of the step
(`ApprovalAsked`, `ApprovalGiven`, `ToolStarted`, `ToolProgress`, `ToolFinished`), all of them settled before the next
`StepStarted`, and within them the calls that a tool makes itself, each after an `InnerCall`, the turn of an agent that
it asks, each of whose events is told as an `InnerEvent`, and the cells that it proposes; at the end `VariablesChanged`,
if tools changed the notebook, and one `TurnFinished`. `PromptAdded` and `Compacted` come between steps. `Compacted`
also comes within a step, if its request did not fit. `ProposalSettled` comes when the user decides: listeners may hear
it between two turns, and the log has it before the `TurnFinished` of the last turn then. A log without its deltas folds
to the same messages.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from agentmagic.messages import (
    Message,
    Part,
    Reasoning,
    Source,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    sources_of,
    user,
    value_class,
)
from agentmagic.secrets import redact
from agentmagic.text import one_line

StopReason = Literal["answer", "done", "limit", "budget", "timeout", "cancelled", "no_tools", "error"]
PartKind = Literal["text", "reasoning", "tool_call", "hosted_call", "hosted_result"]
Level = Literal["info", "warning", "error"]
Route = Literal["answer", "ask", "tools"]
ValueKind = Literal["table", "image", "text", "code", "file", "error", "schema", "command"]
PlanState = Literal["", "new", "refused"]
TaskState = Literal["pending", "running", "done", "failed", "skipped"]
CellKind = Literal["code", "markdown"]
CellAction = Literal["insert", "change", "remove"]
CellPlace = Literal["staged", "below", "shown"]
ProposalFate = Literal["kept", "changed", "discarded"]

SERVED = "mcp:"
"""How the name of the model of a turn begins if a client of the served notebook makes its call."""

TRIES = 5
"""Most attempts at one model request, the first one included, unless an agent says otherwise (LOOP-15)."""


@value_class
class PromptValue:
    """What the prompt holds for a value that it names; `written` is how the prompt names it. Secrets are blanked.

    `shown` is one line, `tokens` an estimate, `text` what the model gets, "" for an image, which the prompt holds. A
    value of the kind "command" is a file of the project that the prompt was made of.
    """

    type: ClassVar[str] = "prompt_value"
    written: str
    kind: ValueKind
    shown: str
    tokens: int
    text: str = ""

    @property
    def in_place(self) -> bool:
        """Whether its text stands in the prompt, for `{...}` or a command; other values have parts of their own."""
        return self.kind == "command" or (self.written.startswith("{") and bool(self.text))


@value_class
class TurnStarted:
    """A turn began with a prompt; `model` is the full name of the model.

    `values` tell what `{...}` and `@...` in the prompt became. `agent` is the name of the agent, if it asks other
    agents or is asked by one: that of its tool, or of the notebook's variable.
    """

    type: ClassVar[str] = "turn_started"
    prompt: Message
    model: str
    values: tuple[PromptValue, ...] = ()
    agent: str = ""

    @property
    def client(self) -> str:
        """The client of the served notebook that makes the call of the turn, "" if a model answers a prompt."""
        return self.model.removeprefix(SERVED) if self.model.startswith(SERVED) else ""


@value_class
class Working:
    """The turn does something that no other event tells, until the next event: `text` says what."""

    type: ClassVar[str] = "working"
    text: str


@value_class
class StepStarted:
    """A model request is about to be sent; steps count from 1. `closing` marks the summary at the limit."""

    type: ClassVar[str] = "step_started"
    step: int
    model: str
    closing: bool = False


@value_class
class PartStarted:
    """A part of the answer begins; `index` is unique within the step, `name` is a tool call's tool."""

    type: ClassVar[str] = "part_started"
    index: int
    kind: PartKind
    name: str = ""


@value_class
class PartDelta:
    """More text of a part; for a tool call, more of the raw JSON of its arguments."""

    type: ClassVar[str] = "part_delta"
    index: int
    text: str


@value_class
class PartFinished:
    """A part is complete; `part` holds all of it.

    A part that began as text may be finished as reasoning, which withdraws the text from the answer: the model has
    closed a thought that it had not opened.
    """

    type: ClassVar[str] = "part_finished"
    index: int
    part: Part


@value_class
class StepFinished:
    """The model's response ended; `reason` is the provider's own word for why, `seconds` its duration.

    `interrupted` marks a response that was cut off: its parts are what had arrived.
    """

    type: ClassVar[str] = "step_finished"
    step: int
    usage: Usage
    reason: str = ""
    seconds: float = 0.0
    interrupted: bool = False


@value_class
class StepRetried:
    """The request failed and is sent again after `delay` seconds; the parts since `StepStarted` are withdrawn.

    `attempt` counts the tries that failed, of at most `tries`.
    """

    type: ClassVar[str] = "step_retried"
    step: int
    attempt: int
    delay: float
    error: str
    tries: int = TRIES


@value_class
class ApprovalAsked:
    """A call waits for the user; answer with `Approve` or `Deny` of the same `id`.

    `reason` says why the user is asked, if it is not the rule for the tool. `step` says that the call may run, and that
    the turn is paused before it in step mode. `effects` says, line by line, what the call would do, if the tool can
    tell: what a program would read and write, for example. `optional` are the JSON Schemas of the arguments that the
    model left out, by name. The arguments of a `fixed` call cannot be changed. A `hosted` call is none: it asks whether
    the provider may carry out the tool in this session.
    """

    type: ClassVar[str] = "approval_asked"
    id: str
    call: ToolCall
    server: str
    reason: str = ""
    step: bool = False
    effects: tuple[str, ...] = ()
    optional: Mapping[str, Any] | None = None
    fixed: bool = False
    hosted: bool = False


@value_class
class ApprovalGiven:
    """A call was approved or denied; `always` means that later calls of the tool are not asked about.

    `arguments` are what the call runs with if the user changed them, else None.
    """

    type: ClassVar[str] = "approval_given"
    id: str
    approved: bool
    always: bool = False
    reason: str = ""
    arguments: Mapping[str, Any] | None = None


@value_class
class QuestionAsked:
    """A tool or the model asks the user something; answer with `Reply` of the same `id`.

    `suggested` is an answer that the user may send as it is, or change. `step` says that the turn is paused before a
    request, which `text` shows: `Approve` goes on, and a `Reply` replaces the prompt if `suggested` holds it.
    `choices` are the answers that can be given, if there are no others. `plan` says that `suggested` is the lines of a
    plan: a "new" one, or one as the user changed it that was "refused", as `text` says. `files` is all
    of the text of files of the project that are to be approved: today's user answers that, and no recording.
    """

    type: ClassVar[str] = "question_asked"
    id: str
    text: str
    suggested: str = ""
    step: bool = False
    choices: tuple[str, ...] = ()
    plan: PlanState = ""
    files: str = ""


@value_class
class QuestionAnswered:
    """The user's answer to a question."""

    type: ClassVar[str] = "question_answered"
    id: str
    text: str


@value_class
class InnerCall:
    """A running tool has made a call itself; `parent` is the id of the tool's own call.

    The events of the call follow, as for a call of the model. Its result goes back to the tool and not to the model,
    so its `ToolFinished` may hold only the beginning of it.
    """

    type: ClassVar[str] = "inner_call"
    parent: str
    call: ToolCall


@value_class
class ToolStarted:
    """A call has begun to run."""

    type: ClassVar[str] = "tool_started"
    call: ToolCall
    server: str


@value_class
class ToolProgress:
    """The progress of a running call; `total` is None if the tool does not know it."""

    type: ClassVar[str] = "tool_progress"
    call_id: str
    progress: float
    total: float | None = None
    message: str = ""


@value_class
class ToolFinished:
    """A call has its result, from the tool or instead of it (denied, unknown, interrupted).

    `traceback` is that of an exception of the user's function, and `rich` the HTML of each part of the content, "" for
    none, that is shown in its place: both are for the user, no model reads them. The HTML is not yet sanitised; that of
    an image has nothing but the width at which it is shown.
    """

    type: ClassVar[str] = "tool_finished"
    result: ToolResult
    seconds: float = 0.0
    traceback: str = ""
    rich: tuple[str, ...] = ()


@value_class
class Sampled:
    """A tool asked the model something outside the conversation; `usage` is the cost of the answer."""

    type: ClassVar[str] = "sampled"
    call_id: str
    server: str
    usage: Usage


@value_class
class Routed:
    """A planned turn goes one way: answer at once, ask the user back, or use tools; `usage` is the request's."""

    type: ClassVar[str] = "routed"
    route: Route
    usage: Usage


@value_class
class Clarified:
    """The user answered a question that the model asked back before it planned. Both join the history."""

    type: ClassVar[str] = "clarified"
    question: str
    answer: str


@value_class
class Task:
    """One task of a plan: a call of a tool, and why it is made.

    A string "$ID" in `parameters` stands for a value from the result of the task of that id. `after` are the ids of
    all tasks that must be done before.
    """

    type: ClassVar[str] = "task"
    id: str
    tool: str
    parameters: Mapping[str, Any]
    description: str = ""
    after: tuple[str, ...] = ()


@value_class
class TaskFinished:
    """A task is over: done, failed, or skipped; `summary` says what came of it, or why it failed."""

    type: ClassVar[str] = "task_finished"
    id: str
    state: TaskState
    summary: str = ""
    usage: Usage = Usage()


@value_class
class Planned:
    """The turn has a plan from now on; a second plan replaces the first. `usage` is the cost of making it.

    A plan that is `resumed` goes on where it was cut off; `finished` are its tasks that are over.
    """

    type: ClassVar[str] = "planned"
    tasks: tuple[Task, ...]
    usage: Usage = Usage()
    finished: tuple[TaskFinished, ...] = ()
    resumed: bool = False


@value_class
class PlanRejected:
    """The model wrote a plan that cannot be run; `problem` is what the model is told."""

    type: ClassVar[str] = "plan_rejected"
    problem: str
    usage: Usage


@value_class
class TaskStarted:
    """A task is about to make its call, with these parameters; attempts count from 1.

    `usage` is the cost of settling the parameters.
    """

    type: ClassVar[str] = "task_started"
    id: str
    call_id: str
    parameters: Mapping[str, Any]
    attempt: int = 1
    usage: Usage = Usage()


@value_class
class TaskJudged:
    """The model judged the result of a task.

    With `retry` the task is tried again, with `parameters` if they are given. `result` is what later tasks are told
    of the result, `summary` what the user is told.
    """

    type: ClassVar[str] = "task_judged"
    id: str
    success: bool
    retry: bool = False
    reason: str = ""
    parameters: Mapping[str, Any] | None = None
    result: str = ""
    summary: str = ""
    usage: Usage = Usage()


@value_class
class PromptAdded:
    """The turn goes on with another prompt: from the `before_finish` hook, or to correct the form of the answer."""

    type: ClassVar[str] = "prompt_added"
    prompt: Message


@value_class
class PromptEdited:
    """The user changed the last prompt in step mode, before it was sent."""

    type: ClassVar[str] = "prompt_edited"
    prompt: Message


@value_class
class Compacted:
    """From now on the model is sent less of the history; the history itself stays whole.

    All positions count the messages of all turns from 0. `summary` replaces the messages before `covers`
    and is sent at the head of message `prompt`, the prompt that the rest belongs to; an empty summary, with
    `covers` 0, replaces nothing. The results of messages before `shrunk` are sent as previews. `before`
    and `after` are estimates, in tokens, of the request without and with compaction; `usage` is the cost of
    the summary.
    """

    type: ClassVar[str] = "compacted"
    summary: str
    covers: int
    prompt: int
    shrunk: int
    before: int
    after: int
    usage: Usage


@value_class
class VariableChange:
    """One change of a variable of the notebook; `before` and `after` are its type and size, "" if it was not there."""

    type: ClassVar[str] = "variable_change"
    name: str
    change: Literal["made", "changed", "removed"]
    before: str = ""
    after: str = ""


@value_class
class VariablesChanged:
    """What the tools of the turn have changed in the notebook, once at the end of the turn.

    `files` are those that a tool opened to write, `unwatched` variables of which is not known whether they changed.
    """

    type: ClassVar[str] = "variables_changed"
    changes: tuple[VariableChange, ...]
    files: tuple[str, ...] = ()
    unwatched: tuple[str, ...] = ()


@value_class
class CellProposed:
    """A tool proposed to insert a cell, to change or to remove one; it is not run, and the user decides.

    `source` is the proposed text, `before` that of the cell which would be changed or removed. `cell` and `number` are
    the id and the number of that cell, or of the cell below which one is inserted; "" and 0 if it is not known. The
    proposal is `staged` in the notebook with buttons, a cell `below` the one that runs, or only `shown`, to be copied.
    """

    type: ClassVar[str] = "cell_proposed"
    id: str
    action: CellAction
    kind: CellKind
    source: str
    why: str
    cell: str = ""
    number: int = 0
    before: str = ""
    place: CellPlace = "shown"


@value_class
class ProposalSettled:
    """The user kept a proposed cell, kept it with changes, or discarded it; `id` is that of the proposal.

    `source` is the text of the cell if the user changed it, `ran` says that it was run at once.
    """

    type: ClassVar[str] = "proposal_settled"
    id: str
    fate: ProposalFate
    source: str = ""
    ran: bool = False


@value_class
class Notice:
    """Something the user should know, in a sentence or two."""

    type: ClassVar[str] = "notice"
    level: Level
    text: str


@value_class
class RunResult:
    """The result of a turn.

    `history_delta` holds the messages that the turn added, the prompt first; `events` ends before
    `TurnFinished`; `seconds` is wall time without the time that the user took to answer; `error` says in a sentence
    what failed, else it is empty. `value` is the validated value if the turn was asked for one, else None; `wrapped_in`
    is the one property of the answer's JSON that holds it, if its type is no object. `trace` is the id of its trace, ""
    if OpenTelemetry is not set up. `error_code` is the `code` of the error.
    """

    type: ClassVar[str] = "run_result"
    final_text: str
    history_delta: tuple[Message, ...]
    events: tuple["Event", ...]
    iterations_used: int
    timed_out: bool
    stop_reason: StopReason
    usage: Usage
    seconds: float = 0.0
    error: str = ""
    value: Any = None
    wrapped_in: str = ""
    trace: str = ""
    error_code: str = ""

    @property
    def changes(self) -> tuple[VariableChange, ...]:
        """The variables of the notebook that the turn's tools made, changed or removed."""
        found = (event.changes for event in self.events if isinstance(event, VariablesChanged))
        return tuple(change for changes in found for change in changes)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The pages that the answer cites, in the order of their numbers; each once."""
        texts = (part for message in self.history_delta for part in message.parts if isinstance(part, Text))
        return sources_of(citation for text in texts for citation in text.citations)

    @property
    def unsent(self) -> bool:
        """Whether the turn ended before the model had finished anything: later requests leave its prompt out."""
        alone = bool(self.history_delta) and all(message.role == "user" for message in self.history_delta)
        return alone and self.stop_reason != "answer"

    def __repr__(self) -> str:
        words = redact(self.error or self.final_text)
        calls = sum(isinstance(event, ToolFinished) for event in self.events)
        return f"<RunResult {self.stop_reason}: {one_line(words, 80)!r}, {self.iterations_used} steps, {calls} calls>"


@value_class
class TurnFinished:
    """The turn is over, with or without an error."""

    type: ClassVar[str] = "turn_finished"
    result: RunResult


@value_class
class HistoryCut:
    """Stands between turns: from now on the history is only the first `turns` turns of the session.

    Without `step`, the turn that comes next replaces the others. With `cleared`, none are left. With a `step`, the last
    change of the conversation is undone, or done again, and `turns` are there then, which may be more than before.
    """

    type: ClassVar[str] = "history_cut"
    turns: int
    cleared: bool = False
    step: Literal["", "undo", "redo"] = ""


MapEnd = Literal["", "done", "stopped", "budget", "failed"]


@value_class
class MapProgress:
    """How far a map has come: one prompt over many rows, each a turn of its own.

    `total` is None while it is not known. `answered` and `failed` count rows, `kept` those of them that were answered
    before this run and are not asked again; `running` rows are being asked. `usage` is what the rows have cost so far,
    the kept ones included, `projected` what all of them may cost in US dollars, None if that is not known. `rate` is in
    rows a minute, `seconds` the time of this run so far, and `left` the seconds that may be left, None if that is not
    known. `in_doubt` rows were asked and have no answer, which may have been paid all the same. `errors` are the first
    kinds of error, each with the number of its rows. `ended` says why the map is over, "" while it runs.
    """

    type: ClassVar[str] = "map_progress"
    id: str
    total: int | None
    answered: int = 0
    failed: int = 0
    kept: int = 0
    running: int = 0
    usage: Usage = Usage()
    projected: float | None = None
    rate: float = 0.0
    seconds: float = 0.0
    left: float | None = None
    errors: tuple[tuple[str, int], ...] = ()
    notices: tuple[str, ...] = ()
    ended: MapEnd = ""
    file: str = ""
    in_doubt: int = 0

    @property
    def done(self) -> int:
        """How many rows have an outcome."""
        return self.answered + self.failed + self.in_doubt


TurnEvent = (
    TurnStarted
    | Working
    | StepStarted
    | PartStarted
    | PartDelta
    | PartFinished
    | StepFinished
    | StepRetried
    | ApprovalAsked
    | ApprovalGiven
    | QuestionAsked
    | QuestionAnswered
    | InnerCall
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | Sampled
    | Routed
    | Clarified
    | Planned
    | PlanRejected
    | TaskStarted
    | TaskJudged
    | TaskFinished
    | PromptAdded
    | PromptEdited
    | Compacted
    | VariablesChanged
    | CellProposed
    | ProposalSettled
    | Notice
    | TurnFinished
)
"""An event of a turn itself."""


@value_class
class InnerEvent:
    """An event of the turn that an agent tool has begun; it is no event of the turn around it.

    `path` has the ids of the calls that the inner turn is made within, the outermost first: a tool of an agent may be
    an agent too. The result of the inner `TurnFinished` has no events and messages: they stand before it.
    """

    type: ClassVar[str] = "inner_event"
    path: tuple[str, ...]
    event: TurnEvent

    @property
    def usage(self) -> Usage:
        """What the event says that was spent, which the turn around it has spent too."""
        return getattr(self.event, "usage", Usage())


Event = TurnEvent | InnerEvent


def innermost(event: Any) -> Any:
    """Return the event of the turn itself that an event tells of: that of an inner turn without its path."""
    return event.event if isinstance(event, InnerEvent) else event


def within(call_id: str, event: Event) -> InnerEvent:
    """Return an event of the turn that a call has begun, as the turn of the call tells it."""
    if isinstance(event, InnerEvent):
        return replace(event, path=(call_id, *event.path))
    if isinstance(event, TurnFinished):
        event = TurnFinished(replace(event.result, events=(), history_delta=()))
    return InnerEvent((call_id,), event)


@value_class
class Approve:
    """Let the call run; with `always`, later calls of the tool run too for the rest of the session.

    In step mode it lets the turn go on, with `always` to its end.
    `arguments` replace the arguments of the model. If they do not fit the tool, the user is asked again.
    """

    id: str
    always: bool = False
    arguments: Mapping[str, Any] | None = None


@value_class
class Deny:
    """Do not let the call run; the model is told the reason."""

    id: str
    reason: str = ""


@value_class
class Reply:
    """Answer a question."""

    id: str
    text: str


@value_class
class Stop:
    """End the run."""


Intent = Approve | Deny | Reply | Stop


def is_delta(event: object) -> bool:
    """Return whether an event only shows progress: the finishing event that follows it carries the whole."""
    return isinstance(innermost(event), (Working, PartStarted, PartDelta, ToolProgress))


def without_deltas(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return the log of a turn: what the history, the journal and the exports hold of its events.

    A tuple without deltas is returned itself, so that a log is held once, not copied by each reader.
    """
    if isinstance(events, tuple) and not any(map(is_delta, events)):
        return events
    return tuple(event for event in events if not is_delta(event))


INTERRUPTED = "Interrupted before it finished. It may have run in part, or wholly."
NOT_RUN = "Interrupted before it was run."


class Fold:
    """Turns events into messages, event by event; `messages` grows as events are fed.

    The loop feeds its events while it runs, and a reader of a journal feeds a saved log: both get the same messages.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._step: int | None = None
        self._open: dict[int, tuple[PartKind, list[str]]] = {}
        self._parts: dict[int, Part] = {}
        self._calls: tuple[ToolCall, ...] = ()
        self._results: dict[str, ToolResult] = {}
        self._started: set[str] = set()

    def feed(self, event: Event) -> None:  # noqa: C901  (one arm for each event, in one place)
        """Take one event in."""
        match event:
            case PartDelta():
                self._open[event.index][1].append(event.text)
            case PartStarted():
                self._open[event.index] = (event.kind, [])
            case PartFinished():
                self._open.pop(event.index, None)
                self._parts[event.index] = event.part
            case StepStarted() | StepRetried():  # a retry withdraws the parts of the failed request
                self._settle()
                self._begin(event.step)
            case StepFinished():
                self._finish_step(interrupted=event.interrupted)
            case ToolStarted():
                self._started.add(event.call.id)
            case ToolFinished():
                self._results[event.result.call_id] = event.result
                self._finish_tools()
            case TurnStarted() | PromptAdded():
                self._settle()
                self.messages.append(event.prompt)
            case PromptEdited() if self.messages and self.messages[-1].role == "user":
                self.messages[-1] = event.prompt
            case Clarified():
                self._settle()
                self.messages += (Message("assistant", (Text(event.question),)), user(event.answer))
            case TurnFinished():
                self.close()
            case _:
                pass

    @property
    def unanswered(self) -> tuple[ToolCall, ...]:
        """The calls of the last message that have no result yet."""
        return tuple(call for call in self._calls if call.id not in self._results)

    def has_call(self, call_id: str) -> bool:
        """Return whether the open step already has a call of that id."""
        return any(isinstance(part, ToolCall) and part.id == call_id for part in self._parts.values())

    @property
    def free_index(self) -> int:
        """An index that no part of the open step has."""
        return 1 + max((*self._open, *self._parts), default=-1)

    def closing(self) -> Iterator[Event]:
        """Yield, in order, the events that complete a log that was cut off here.

        Half an answer is kept and marked as interrupted. A call is dropped if its arguments were still
        coming, since nothing may run from half of them. Every other call without a result gets an
        "interrupted" result, which tells whether the call was begun.
        """
        calls = self.unanswered
        if self._step is not None:
            yield from self.closing_parts()
            calls = tuple(part for part in self._in_order() if isinstance(part, ToolCall))
            yield StepFinished(self._step, Usage(), reason="interrupted", interrupted=True)
        for call in calls:
            yield ToolFinished(_interrupted(call, INTERRUPTED if call.id in self._started else NOT_RUN))

    def closing_parts(self) -> Iterator[PartFinished]:
        """Yield the events that finish the open parts that are worth keeping."""
        for index, (kind, pieces) in sorted(self._open.items()):
            text = "".join(pieces)
            if text and kind in ("text", "reasoning"):
                yield PartFinished(index, Text(text) if kind == "text" else Reasoning(text))

    def close(self) -> tuple[Event, ...]:
        """Feed the events of `closing`, and return them."""
        closing = tuple(self.closing())
        for event in closing:
            self.feed(event)
        return closing

    def _settle(self) -> None:
        # A damaged log can go on without the results of its calls; providers refuse such a history.
        for call in self.unanswered:
            self._results[call.id] = _interrupted(call, INTERRUPTED)
        self._finish_tools()

    def _in_order(self) -> tuple[Part, ...]:
        return tuple(part for _, part in sorted(self._parts.items()))

    def _begin(self, step: int | None) -> None:
        self._step = step
        self._open = {}
        self._parts = {}

    def _finish_step(self, *, interrupted: bool) -> None:
        parts = self._in_order()
        if parts:
            self.messages.append(Message("assistant", parts, interrupted))
        self._calls = tuple(part for part in parts if isinstance(part, ToolCall))
        self._results = {}
        self._started = set()
        self._begin(None)

    def _finish_tools(self) -> None:
        if self._calls and not self.unanswered:
            self.messages.append(Message("tool", tuple(self._results[call.id] for call in self._calls)))
            self._calls = ()


def _interrupted(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(text),), "interrupted")


def fold(events: Iterable[Event]) -> tuple[Message, ...]:
    """Return the messages of a log; a log that was cut off is completed first."""
    folded = Fold()
    for event in events:
        folded.feed(event)
    folded.close()
    return tuple(folded.messages)
