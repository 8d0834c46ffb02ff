"""The events of a turn, the user's answers (intents), and `Fold`, which turns events into messages.

The agent loop emits the events of a turn in this order:

1. `TurnStarted`, and `Working` while the model is loaded.
2. For each step: `StepStarted`; for each part `PartStarted`, `PartDelta`..., `PartFinished`; then `StepFinished`.
3. The tool calls of the step: `ApprovalAsked`, `ApprovalGiven`, `ToolStarted`, `ToolProgress`, `ToolFinished`. Every
   call has a result before the next `StepStarted`. If an outside agent changes its own call, a `CallChanged` comes
   before. While a tool runs, there may also be the calls that the tool makes itself (each after an `InnerCall`), the
   events of an agent that it asks (each inside an `InnerEvent`), and the cells that it proposes.
4. At the end, `VariablesChanged` if tools changed the notebook, and one `TurnFinished`.

`PromptAdded` and `Compacted` come between steps; `Compacted` also comes within a step if its request did not fit.
`ProposalSettled` comes when the user decides about a proposed cell, and `PageDecision` when the user decides about an
act of the chat panel's page. If that is between two turns, the event is put into the event log before the
`TurnFinished` of the earlier turn. `Fold` makes the same messages if the `PartDelta`s are missing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from agentmagic.text import single_line

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
"""Prefix of a turn's model name if a client of the served notebook makes the turn's call."""

TRIES = 5
"""The usual maximum of attempts at one model request, the first one included; an agent can set another."""


@value_class
class PromptValue:
    """A value that a prompt names with `{...}` or `@...`, and the text that the model gets for it, secrets blanked.

    `written` is the name as it stands in the prompt, `shown` a description of the value in one line, `tokens` an
    estimate of its size. `text` is the text for the model; it is "" for an image, which is a part of the prompt. If the
    prompt was made from a command file of the project, that file is a value of the kind "command".
    """

    type: ClassVar[str] = "prompt_value"
    written: str
    kind: ValueKind
    shown: str
    tokens: int
    text: str = ""

    @property
    def in_place(self) -> bool:
        """Whether the value's text stands in the prompt's own text, as for `{...}`, and not in a separate part."""
        return self.kind == "command" or (self.written.startswith("{") and bool(self.text))


@value_class
class TurnStarted:
    """A turn began with a prompt; `model` is the full name of the model.

    `values` says what each `{...}` and `@...` in the prompt became. `agent` is the agent's name if it can ask other
    agents or is asked by another agent: the name of its tool, or of the notebook variable.
    """

    type: ClassVar[str] = "turn_started"
    prompt: Message
    model: str
    values: tuple[PromptValue, ...] = ()
    agent: str = ""

    @property
    def client(self) -> str:
        """The name of the MCP client that calls a notebook's tool in this turn, or "" if a model answers a prompt."""
        return self.model.removeprefix(SERVED) if self.model.startswith(SERVED) else ""


@value_class
class Working:
    """The turn is busy with work that has no event of its own, until the next event; `text` describes the work."""

    type: ClassVar[str] = "working"
    text: str


@value_class
class StepStarted:
    """A model request is about to be sent, or a step begins without one, such as tool calls of a plan.

    Steps count from 1. `closing` marks the last request of a turn at its limit of steps: it asks for a closing answer.
    """

    type: ClassVar[str] = "step_started"
    step: int
    model: str
    closing: bool = False


@value_class
class PartStarted:
    """A part of the answer begins; `index` is unique within the step. `name` is the tool's name if it is a call."""

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
    """A part of the answer is complete; `part` is the whole part.

    A part that began as text may finish as reasoning, if the model sent the end mark of a thought without its start
    mark. The text is then withdrawn from the answer.
    """

    type: ClassVar[str] = "part_finished"
    index: int
    part: Part


@value_class
class StepFinished:
    """The model's response ended; `reason` is the provider's own word for why, `seconds` the duration.

    `interrupted` marks a response that was cut off: its parts are only what had arrived.
    """

    type: ClassVar[str] = "step_finished"
    step: int
    usage: Usage
    reason: str = ""
    seconds: float = 0.0
    interrupted: bool = False


@value_class
class StepRetried:
    """A model request failed and is sent again after `delay` seconds. The parts since `StepStarted` no longer count.

    `attempt` is the number of tries that have failed so far, and `tries` is the maximum.
    """

    type: ClassVar[str] = "step_retried"
    step: int
    attempt: int
    delay: float
    error: str
    tries: int = TRIES


ALLOW_ONCE = "allow_once"
"""The kind of option that allows one call, in the Agent Client Protocol (schema, PermissionOptionKind)."""
REJECT_ONCE = "reject_once"
"""The kind of option that refuses one call."""


@value_class
class AgentOption:
    """An answer that an outside agent offers to its permission request; `name` is the text that the user sees.

    `kind` is a word of the protocol, such as "allow_once", "allow_always" or "reject_once", or an unknown word.
    """

    type: ClassVar[str] = "agent_option"
    id: str
    name: str
    kind: str

    @property
    def refuses(self) -> bool:
        """Whether the option refuses the call."""
        return self.kind.startswith("reject")


@value_class
class ApprovalAsked:
    """A tool call waits for the user's approval; answer with `Approve` or `Deny` of the same `id`.

    `reason` says why the user is asked, unless the policy's rule for the tool is the cause. `step` marks a pause of
    step mode before a call that is already allowed. `effects` describes, line by line, what the call would do, such as
    the files that a program would write, if the tool can predict it. `optional` has the JSON Schemas of the arguments
    that the model left out, by name. If the call is `fixed`, its arguments cannot be changed. If `hosted` is true, the
    question is not about one call, but whether the provider may run the tool on its servers in this session.
    `options` are the answers that an outside agent offers to its request, in its own words; `Approve` and `Deny` can
    name one. If `once` is true, the call can only be approved once: it does not say what will run.
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
    options: tuple[AgentOption, ...] = ()
    once: bool = False

    @property
    def can_approve(self) -> bool:
        """Whether a plain `Approve` has a meaning: an outside agent may offer no option that allows a call once."""
        return not self.options or self.option_for(Approve(self.id)) is not None

    @property
    def own_options(self) -> tuple[AgentOption, ...]:
        """The options of an outside agent that neither a plain `Approve` nor a plain `Deny` chooses."""
        plain = (self.option_for(Approve(self.id)), self.option_for(Deny(self.id)))
        return tuple(one for one in self.options if one not in plain)

    def option_for(self, intent: "Intent | None") -> AgentOption | None:
        """Return the option that an answer to this request chooses, None without one."""
        return option_for(self.options, intent)


@value_class
class ApprovalGiven:
    """A call was approved or denied; `always` means that the user is not asked about later calls of the tool.

    `arguments` are the arguments that the call runs with if the user changed them, else None. `option` is the id of the
    option that an outside agent is sent as the answer.
    """

    type: ClassVar[str] = "approval_given"
    id: str
    approved: bool
    always: bool = False
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    option: str = ""


@value_class
class CallChanged:
    """An outside agent changed what its call does after it had reported the call; `call` is the call as it is now."""

    type: ClassVar[str] = "call_changed"
    call: ToolCall


@value_class
class QuestionAsked:
    """A tool or the model asks the user a question; answer with `Reply` of the same `id`.

    `suggested` is an answer that the user can send unchanged or edit. `step` marks a pause of step mode before a model
    request, which `text` shows: `Approve` continues, and a `Reply` replaces the prompt if `suggested` is the prompt.
    `choices` are the only possible answers; if it is empty, the answer can be any text. `plan` says that `suggested`
    is a plan, a line for each task: "new" for a plan of the model, "refused" for the user's own version, which cannot
    be run for the reason in `text`. `files` is the whole text of project files that the user has to approve; such a
    question is always put to the user, and never answered from a recording.
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
    """A running tool calls another tool; `parent` is the id of the running tool's own call.

    The events of the inner call follow, as for a call of the model. Its result goes back to the running tool and not to
    the model, so its `ToolFinished` may hold only the beginning of the result.
    """

    type: ClassVar[str] = "inner_call"
    parent: str
    call: ToolCall


@value_class
class ToolStarted:
    """A tool call has begun to run."""

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
    """A tool call has its result, from the tool or from the agent loop (for a denied, unknown or interrupted call).

    `traceback` is the traceback of an exception in the user's function. `rich` has, for each part of the content, the
    HTML that the user sees instead of the part, or "". Neither is sent to a model. The HTML is not yet sanitised; for
    an image it contains only the width of the displayed image.
    """

    type: ClassVar[str] = "tool_finished"
    result: ToolResult
    seconds: float = 0.0
    traceback: str = ""
    rich: tuple[str, ...] = ()


@value_class
class Sampled:
    """A tool or an MCP server sent its own request to the model, outside the conversation; `usage` is its cost."""

    type: ClassVar[str] = "sampled"
    call_id: str
    server: str
    usage: Usage


@value_class
class Routed:
    """The model decided how a turn with a plan begins: answer at once, ask the user, or plan the use of tools.

    `usage` is the cost of the model request that made this decision.
    """

    type: ClassVar[str] = "routed"
    route: Route
    usage: Usage


@value_class
class Clarified:
    """The user answered a question that the model asked before planning. Question and answer join the history."""

    type: ClassVar[str] = "clarified"
    question: str
    answer: str


@value_class
class Task:
    """One task of a plan: a tool call, and the reason for it.

    A string "$ID" in `parameters` stands for a value from the result of the task with that id. `after` has the ids of
    all tasks that must be done first.
    """

    type: ClassVar[str] = "task"
    id: str
    tool: str
    parameters: Mapping[str, Any]
    description: str = ""
    after: tuple[str, ...] = ()


@value_class
class TaskFinished:
    """A task of a plan is over: done, failed, or skipped; `summary` is its outcome, or why it failed."""

    type: ClassVar[str] = "task_finished"
    id: str
    state: TaskState
    summary: str = ""
    usage: Usage = Usage()


@value_class
class Planned:
    """The turn has a plan from now on; a second plan replaces the first. `usage` is the cost of making the plan.

    `resumed` marks a plan that an earlier turn left unfinished; `finished` has those of its tasks that are over.
    """

    type: ClassVar[str] = "planned"
    tasks: tuple[Task, ...]
    usage: Usage = Usage()
    finished: tuple[TaskFinished, ...] = ()
    resumed: bool = False


@value_class
class PlanRejected:
    """The model wrote a plan that cannot be run; `problem` is the explanation that is sent to the model."""

    type: ClassVar[str] = "plan_rejected"
    problem: str
    usage: Usage


@value_class
class TaskStarted:
    """A task of a plan is about to call its tool, with these parameters; attempts count from 1.

    `usage` is the cost of the model request that chose the parameters, if there was one.
    """

    type: ClassVar[str] = "task_started"
    id: str
    call_id: str
    parameters: Mapping[str, Any]
    attempt: int = 1
    usage: Usage = Usage()


@value_class
class TaskJudged:
    """The model checked the tool result of a task of a plan.

    With `retry`, the task is tried again, with new `parameters` unless they are None. Later tasks get `result` instead
    of the tool result, unless it is "". `summary` is a sentence for the user.
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
    """The turn continues with a further prompt, from the `before_finish` hook or to correct the answer's form."""

    type: ClassVar[str] = "prompt_added"
    prompt: Message


@value_class
class PromptEdited:
    """In step mode, which pauses before each request, the user changed the last prompt before it was sent."""

    type: ClassVar[str] = "prompt_edited"
    prompt: Message


@value_class
class Compacted:
    """Later requests send less of the history to the model; the history itself stays whole.

    The positions `covers`, `prompt` and `shrunk` are indexes into the messages of all turns. `summary` replaces the
    messages before `covers`. It is sent at the beginning of the message at `prompt`, which is the prompt of the turn
    that contains `covers`. An empty summary, with `covers` 0, replaces nothing. Tool results in messages before
    `shrunk` are sent as previews. `before` and `after` are the estimated tokens of the request without and with
    compaction; `usage` is the cost of making the summary.
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
    """One change of a notebook variable, or of the state of a package, such as "settings of matplotlib".

    `before` and `after` describe the value's type and size, or "" if the variable did not exist then. Both are "" for
    the state of a package.
    """

    type: ClassVar[str] = "variable_change"
    name: str
    change: Literal["made", "changed", "removed"]
    before: str = ""
    after: str = ""


@value_class
class VariablesChanged:
    """The changes that the turn's tools made in the notebook; emitted once, at the end of the turn.

    `files` are the files that a tool opened for writing. `unwatched` are variables whose changes cannot be detected,
    and which may therefore have changed.
    """

    type: ClassVar[str] = "variables_changed"
    changes: tuple[VariableChange, ...]
    files: tuple[str, ...] = ()
    unwatched: tuple[str, ...] = ()


@value_class
class CellProposed:
    """A tool proposed to insert, change or remove a notebook cell. The user decides; until then, nothing is run.

    `source` is the proposed text, `before` the present text of the cell to change or remove. `cell` and `number` are
    the id and number of that cell, or of the cell below which the new cell is inserted; "" and 0 if unknown. `place` is
    "staged" if the notebook shows the proposal with buttons, "below" if it is a new cell below the running cell, and
    "shown" if the text is only shown in the output, to be copied.
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
    """The user kept a proposed cell, kept it with changes, or discarded it; `id` is the id of the `CellProposed`.

    `source` is the text of the cell if the user changed it. `ran` says that the user ran the cell at once.
    """

    type: ClassVar[str] = "proposal_settled"
    id: str
    fate: ProposalFate
    source: str = ""
    ran: bool = False


@value_class
class PageDecision:
    """The user allowed or denied an act of the chat panel's page, such as `%mcp add`, on a card outside any turn.

    `line` is the command that does the same in a cell, `about` what it does in a sentence. `reason` says why it was
    not done if the user was not asked. If no turn is running, the event is put into the log of the last turn.
    """

    type: ClassVar[str] = "page_decision"
    line: str
    about: str
    approved: bool
    reason: str = ""


@value_class
class Notice:
    """A message of one or two sentences to the user."""

    type: ClassVar[str] = "notice"
    level: Level
    text: str


@value_class
class RunResult:
    """The result of a turn.

    `history_delta` has the messages that the turn added, the prompt first. `events` lacks only `TurnFinished`.
    `seconds` is wall time without the time that the user took to answer. `error` says in a sentence what failed, or is
    "", and `error_code` is the `code` of the error. `value` is the validated answer if the turn has an `output` type,
    else None. Providers accept only JSON objects as answers, so a value that is not an object, such as a list, is
    wrapped in an object with one property; `wrapped_in` is the property's name, else "". `trace` is the id of the
    OpenTelemetry trace, or "" if OpenTelemetry is not set up.
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
        """The notebook variables that the turn's tools created, changed or removed."""
        all_changes = (event.changes for event in self.events if isinstance(event, VariablesChanged))
        return tuple(change for changes in all_changes for change in changes)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The web pages that the answer cites, each once, in the order of their numbers."""
        texts = (part for message in self.history_delta for part in message.parts if isinstance(part, Text))
        return sources_of(citation for text in texts for citation in text.citations)

    @property
    def unsent(self) -> bool:
        """Whether the turn ended before the model finished any message. Later requests leave out its prompt."""
        alone = bool(self.history_delta) and all(message.role == "user" for message in self.history_delta)
        return alone and self.stop_reason != "answer"

    def __repr__(self) -> str:
        words = redact(self.error or self.final_text)
        calls = sum(isinstance(event, ToolFinished) for event in self.events)
        return (
            f"<RunResult {self.stop_reason}: {single_line(words, 80)!r}, {self.iterations_used} steps, {calls} calls>"
        )


@value_class
class TurnFinished:
    """The turn is over, with or without an error."""

    type: ClassVar[str] = "turn_finished"
    result: RunResult


@value_class
class HistoryCut:
    """The history was changed between turns: from now on, it has only the first `turns` turns of the session.

    If `step` is empty, the user edits a turn, and the next turn replaces the turns that were cut, or `cleared` says
    that all were cut. If `step` is set, the last change was undone or redone, so `turns` may be more than before.
    """

    type: ClassVar[str] = "history_cut"
    turns: int
    cleared: bool = False
    step: Literal["", "undo", "redo"] = ""


MapEnd = Literal["", "done", "stopped", "budget", "failed"]


@value_class
class MapProgress:
    """The progress of a map: one prompt over many rows, each row a turn of its own.

    `total` is the number of rows, or None while it is unknown. `answered`, `failed` and `running` count rows. `kept` is
    the number of answered rows whose answer is from an earlier run. `in_doubt` counts rows whose request was sent and
    perhaps charged, but whose answer was lost. `usage` is the cost of all rows so far, kept rows included; `projected`
    is the estimated cost of all rows in US dollars, or None if unknown. `rate` is in rows a minute, `seconds` the
    duration of this run so far, `left` the estimated remaining seconds, or None if unknown. `errors` has the first
    kinds of error, each with the number of its rows. `examples` has, for each of these kinds, its first rows: their
    labels, each with a short piece of the row. `ended` says why the map is over, or "" while it runs.
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
    examples: tuple[tuple[tuple[str, str], ...], ...] = ()

    @property
    def done(self) -> int:
        """The number of rows that are answered, failed or in doubt."""
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
    | CallChanged
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
    | PageDecision
    | Notice
    | TurnFinished
)
"""An event of a turn, in contrast to an `InnerEvent`, which reports an event of an inner turn."""


@value_class
class InnerEvent:
    """An event of an inner turn, which is the turn of an agent that was called as a tool.

    `path` has the ids of the tool calls in which the inner turn runs, the outermost first: an agent that is a tool can
    call another agent. The result in an inner `TurnFinished` lacks its events and messages, because the earlier inner
    events contain them.
    """

    type: ClassVar[str] = "inner_event"
    path: tuple[str, ...]
    event: TurnEvent

    @property
    def usage(self) -> Usage:
        """The tokens and the cost that the inner event reports. They count for the outer turn too."""
        return getattr(self.event, "usage", Usage())


Event = TurnEvent | InnerEvent


def innermost(event: Any) -> Any:
    """Return the event inside an `InnerEvent`; any other event is returned as it is."""
    return event.event if isinstance(event, InnerEvent) else event


def as_inner_event(call_id: str, event: Event) -> InnerEvent:
    """Wrap an event of an inner turn for the outer turn; `call_id` is the tool call that started the inner turn."""
    if isinstance(event, InnerEvent):
        return replace(event, path=(call_id, *event.path))
    if isinstance(event, TurnFinished):
        event = TurnFinished(replace(event.result, events=(), history_delta=()))
    return InnerEvent((call_id,), event)


@value_class
class Approve:
    """The user lets a tool call run; with `always`, the tool runs without asking for the rest of the session.

    In step mode, the turn continues to the next pause, or with `always` to its end. `arguments` replaces the model's
    arguments unless it is None. If they do not fit the tool, the user is asked again. `option` is the id of the option
    of an outside agent that the user chose; "" chooses the one that allows the call once.
    """

    id: str
    always: bool = False
    arguments: Mapping[str, Any] | None = None
    option: str = ""


@value_class
class Deny:
    """The user does not let a tool call run. The reason is sent to the model. `option`: as in `Approve`."""

    id: str
    reason: str = ""
    option: str = ""


def option_for(options: Sequence[AgentOption], intent: "Intent | None") -> AgentOption | None:
    """Return the option of an outside agent that an answer chooses, None without one.

    Only its id chooses an option that the agent remembers, or one of several that allow the call once: these do more
    than allow it. A refusal is the exception: if no option refuses the call once, one that refuses it always is chosen.
    A refusal never chooses an option that allows the call.
    """
    if isinstance(intent, Approve | Deny) and intent.option:
        named = next((one for one in options if one.id == intent.option), None)
        if isinstance(intent, Approve) or (named is not None and named.refuses):
            return named
    if isinstance(intent, Approve):
        once = [one for one in options if one.kind == ALLOW_ONCE]
        return once[0] if len(once) == 1 else None
    refusals = sorted((one for one in options if one.refuses), key=lambda one: one.kind != REJECT_ONCE)
    return next(iter(refusals), None)


@value_class
class Reply:
    """The user's answer to a `QuestionAsked`."""

    id: str
    text: str


@value_class
class Stop:
    """The user ends the run."""


Intent = Approve | Deny | Reply | Stop


def is_delta(event: object) -> bool:
    """Return whether an event only reports progress. If so, it can be dropped: later events have the full content."""
    return isinstance(innermost(event), (Working, PartStarted, PartDelta, ToolProgress))


def without_deltas(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return the events without `PartDelta`s and progress: the log for the history, the journal and the exports.

    A tuple without such events is returned itself, not as a copy, to save memory.
    """
    if isinstance(events, tuple) and not any(map(is_delta, events)):
        return events
    return tuple(event for event in events if not is_delta(event))


INTERRUPTED = "Interrupted before it finished. It may have run in part, or wholly."
NOT_RUN = "Interrupted before it was run."


class Fold:
    """A converter of events into messages: each call of `feed` with an event may add to `messages`.

    The agent loop uses it for a running turn, and the journal reader for a saved turn, with the same result.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._step: int | None = None
        self._open: dict[int, tuple[PartKind, list[str]]] = {}
        self._parts: dict[int, Part] = {}
        self._calls: tuple[ToolCall, ...] = ()
        self._results: dict[str, ToolResult] = {}
        self._started: set[str] = set()

    def feed(self, event: Event) -> None:  # noqa: C901, PLR0912  (one arm for each event, in one place)
        """Process the next event, and add to `messages` each message that it completes."""
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
            case CallChanged():
                self._change(event.call)
            case Clarified():
                self._settle()
                self.messages += (Message("assistant", (Text(event.question),)), user(event.answer))
            case TurnFinished():
                self.close()
            case _:
                pass

    @property
    def unanswered(self) -> tuple[ToolCall, ...]:
        """The calls in the last assistant message that have no result yet."""
        return tuple(call for call in self._calls if call.id not in self._results)

    def has_call(self, call_id: str) -> bool:
        """Return whether the running step already has a call with this id."""
        return any(isinstance(part, ToolCall) and part.id == call_id for part in self._parts.values())

    @property
    def free_index(self) -> int:
        """A part index that is unused in the running step."""
        return 1 + max((*self._open, *self._parts), default=-1)

    def closing(self) -> Iterator[Event]:
        """Yield, in order, the last events that a turn's event log lacks if it was cut off.

        An incomplete answer is kept and marked as interrupted. A call whose arguments are incomplete is dropped, since
        it must not run. Every other call without a result gets an "interrupted" result, which says whether the call
        had started.
        """
        calls = self.unanswered
        if self._step is not None:
            yield from self.closing_parts()
            calls = tuple(part for part in self._in_order() if isinstance(part, ToolCall))
            yield StepFinished(self._step, Usage(), reason="interrupted", interrupted=True)
        for call in calls:
            yield ToolFinished(_interrupted_result(call, INTERRUPTED if call.id in self._started else NOT_RUN))

    def closing_parts(self) -> Iterator[PartFinished]:
        """Yield a `PartFinished` for each part of text or reasoning that is incomplete. Other parts are dropped."""
        for index, (kind, pieces) in sorted(self._open.items()):
            text = "".join(pieces)
            if text and kind in ("text", "reasoning"):
                yield PartFinished(index, Text(text) if kind == "text" else Reasoning(text))

    def close(self) -> tuple[Event, ...]:
        """Feed the events of `closing`, which complete an event log that was cut off, and return them."""
        closing = tuple(self.closing())
        for event in closing:
            self.feed(event)
        return closing

    def _change(self, call: ToolCall) -> None:
        """Give an unanswered call of the last assistant message another name and other arguments."""

        def changed(part: Part) -> Part:
            is_it = isinstance(part, ToolCall) and part.id == call.id
            return replace(part, name=call.name, arguments=call.arguments) if is_it else part

        if any(one.id == call.id for one in self._calls):
            self.messages[-1] = replace(self.messages[-1], parts=tuple(map(changed, self.messages[-1].parts)))
            self._calls = tuple(part for part in self.messages[-1].parts if isinstance(part, ToolCall))

    def _settle(self) -> None:
        # A damaged event log may lack results of tool calls. Providers refuse a history with calls without results.
        for call in self.unanswered:
            self._results[call.id] = _interrupted_result(call, INTERRUPTED)
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


def _interrupted_result(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(text),), "interrupted")


def fold(events: Iterable[Event]) -> tuple[Message, ...]:
    """Return the messages that result from the events of a turn. If the last are missing, `Fold.closing` adds them."""
    state = Fold()
    for event in events:
        state.feed(event)
    state.close()
    return tuple(state.messages)
