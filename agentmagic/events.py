"""What happens in a turn, as the loop tells it, and what a person may say back.

The order within a turn: `TurnStarted`; for each step `StepStarted`, then per part `PartStarted`,
`PartDelta`..., `PartFinished`, then `StepFinished`; then the tools of the step (`ApprovalAsked`,
`ApprovalGiven`, `ToolStarted`, `ToolProgress`, `ToolFinished`), every one settled before the next
`StepStarted`; at the end one `TurnFinished`. `PromptAdded` and `Compacted` come between steps, the latter
also within one whose request did not fit. A log without its deltas rebuilds the same messages.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from agentmagic.messages import Message, Part, ToolCall, ToolResult, Usage, value_class

StopReason = Literal["answer", "done", "limit", "budget", "timeout", "cancelled", "no_tools", "error"]
PartKind = Literal["text", "reasoning", "tool_call"]
Level = Literal["info", "warning", "error"]

TRIES = 5
"""How often a model request is sent at most, the first try included (LOOP-15)."""


@value_class
class TurnStarted:
    """A turn began with a prompt; `model` is the full name of the model asked."""

    type: ClassVar[str] = "turn_started"
    prompt: Message
    model: str


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
    """More of a part: words, or the raw JSON text of a call's arguments."""

    type: ClassVar[str] = "part_delta"
    index: int
    text: str


@value_class
class PartFinished:
    """A part is complete; `part` carries the whole of it."""

    type: ClassVar[str] = "part_finished"
    index: int
    part: Part


@value_class
class StepFinished:
    """The model's response ended; `reason` is the provider's own word for why, `seconds` its duration.

    `interrupted` says that it was cut off, and that its parts are what had come until then.
    """

    type: ClassVar[str] = "step_finished"
    step: int
    usage: Usage
    reason: str = ""
    seconds: float = 0.0
    interrupted: bool = False


@value_class
class StepRetried:
    """The request failed and is sent again after `delay` seconds; withdraws every part since `StepStarted`."""

    type: ClassVar[str] = "step_retried"
    step: int
    attempt: int
    delay: float
    error: str


@value_class
class ApprovalAsked:
    """A call waits for a person; answer with `Approve` or `Deny` of the same `id`.

    `reason` says why it is asked about, where that is not the rule for its tool.
    """

    type: ClassVar[str] = "approval_asked"
    id: str
    call: ToolCall
    server: str
    reason: str = ""


@value_class
class ApprovalGiven:
    """A call was approved or denied; `always` says that the same tool is not asked about again.

    `arguments` are those the call runs with where the person changed them, else None.
    """

    type: ClassVar[str] = "approval_given"
    id: str
    approved: bool
    always: bool = False
    reason: str = ""
    arguments: Mapping[str, Any] | None = None


@value_class
class QuestionAsked:
    """A tool asks the person something; answer with `Reply` of the same `id`."""

    type: ClassVar[str] = "question_asked"
    id: str
    text: str


@value_class
class QuestionAnswered:
    """The person's answer to a question."""

    type: ClassVar[str] = "question_answered"
    id: str
    text: str


@value_class
class ToolStarted:
    """A call is being carried out."""

    type: ClassVar[str] = "tool_started"
    call: ToolCall
    server: str


@value_class
class ToolProgress:
    """How far a call has come; `total` is None where the tool does not know."""

    type: ClassVar[str] = "tool_progress"
    call_id: str
    progress: float
    total: float | None = None
    message: str = ""


@value_class
class ToolFinished:
    """A call is settled, by its tool or without it (denied, unknown, interrupted)."""

    type: ClassVar[str] = "tool_finished"
    result: ToolResult
    seconds: float = 0.0


@value_class
class Sampled:
    """A tool had the model answer something beside the conversation; `usage` is what that took."""

    type: ClassVar[str] = "sampled"
    call_id: str
    server: str
    usage: Usage


@value_class
class PromptAdded:
    """The turn goes on with another prompt, of the `before_finish` hook or to mend the form of the answer."""

    type: ClassVar[str] = "prompt_added"
    prompt: Message


@value_class
class Compacted:
    """From here on the model is sent less of the history; the history itself stays whole.

    All numbers count the messages of the session, from 0. `summary` stands for those before `covers`,
    and is sent at the head of message `prompt`, the prompt that the rest belongs to; an empty one, with
    `covers` 0, stands for nothing. The results of messages before `shrunk` are sent as previews. `before`
    and `after` are estimates, in tokens, of the request without and with this; `usage` is what writing
    the summary took.
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
class Notice:
    """Something the person should know, in a sentence or two."""

    type: ClassVar[str] = "notice"
    level: Level
    text: str


@value_class
class RunResult:
    """What came of a turn.

    `history_delta` holds the messages the turn added, the prompt first; `events` ends before
    `TurnFinished`; `seconds` is wall time; `error` says in a sentence what failed, else it is empty.
    `value` is the validated value of a turn that was asked for one, else None.
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


@value_class
class TurnFinished:
    """The turn is over, well or badly."""

    type: ClassVar[str] = "turn_finished"
    result: RunResult


@value_class
class HistoryCut:
    """Between turns: only the first `turns` turns of the session are its history from now on."""

    type: ClassVar[str] = "history_cut"
    turns: int


Event = (
    TurnStarted
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
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | Sampled
    | PromptAdded
    | Compacted
    | Notice
    | TurnFinished
)


@value_class
class Approve:
    """Let the call run, now or, with `always`, for the rest of the session.

    `arguments` stand in for those the model wrote; ones that do not fit are asked about again.
    """

    id: str
    always: bool = False
    arguments: Mapping[str, Any] | None = None


@value_class
class Deny:
    """Do not let the call run; the reason is told to the model."""

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
