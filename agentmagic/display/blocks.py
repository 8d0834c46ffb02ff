"""The blocks of which a shown conversation consists: plain values that do not depend on HTML or terminals."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from agentmagic.display.printout import Printout
from agentmagic.events import (
    AgentOption,
    CellProposed,
    Level,
    MapProgress,
    PlanState,
    PromptValue,
    ProposalSettled,
    StopReason,
    ToolProgress,
)
from agentmagic.messages import Citation, Content, Media, Message, Source, Text, ToolCall, ToolResult, Usage
from agentmagic.plan import FINISHED_STATES, TaskProgress

State = Literal["pending", "waiting", "running", "done", "failed", "denied", "interrupted"]
"""The state of a call: "pending" while the call is written or queued, "waiting" for the user, or "running".

The other states say how it ended.
"""

FINAL_STATES: frozenset[State] = frozenset({"done", "failed", "denied", "interrupted"})


LONGEST_HEAD = 2_000
"""Characters of HTML in which the table of a data frame must begin: pandas puts a style sheet before the table."""


class Pieces:
    """A text that grows. Appending is fast; reading joins the pieces that were appended since the last read."""

    __slots__ = ("_pieces",)

    def __init__(self, text: str = "") -> None:
        self._pieces = [text]

    def append(self, text: str) -> None:
        """Add text to the end."""
        self._pieces.append(text)

    @property
    def text(self) -> str:
        """The whole text so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pieces) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]  (it changes)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Copies of a transcript's blocks at one moment; later events do not change them.

    `running` is the footer of the turn under way, or None. There is one exception: `ToolCard.inside`, in a card that
    the transcript itself holds, is a snapshot of the agent's turn with the live blocks, not copies.
    """

    blocks: "list[Block]"
    running: "FooterBlock | None"


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Renderer(Protocol[T_co]):
    """Turns blocks into output, with one method for each kind of block.

    Renderers do not inherit from this class. So if a renderer lacks a method, the type checker reports an error
    wherever that renderer is passed to `Block.render`.
    """

    def prompt(self, block: "PromptBlock", /) -> T_co:
        """Render the user's prompt."""
        ...

    def values(self, block: "ValuesBlock", /) -> T_co:
        """Render the values that a prompt names, in the form in which the model gets them."""
        ...

    def text(self, block: "TextBlock", /) -> T_co:
        """Render a text of the model."""
        ...

    def reasoning(self, block: "ReasoningBlock", /) -> T_co:
        """Render the model's reasoning."""
        ...

    def card(self, card: "ToolCard", /) -> T_co:
        """Render a tool call."""
        ...

    def checklist(self, block: "ChecklistBlock", /) -> T_co:
        """Render the tasks of a plan."""
        ...

    def question(self, block: "QuestionBlock", /) -> T_co:
        """Render a question to the user."""
        ...

    def proposal(self, block: "ProposalBlock", /) -> T_co:
        """Render a proposed cell."""
        ...

    def notice(self, block: "NoticeBlock", /) -> T_co:
        """Render a notice."""
        ...

    def printout(self, block: "PrintoutBlock", /) -> T_co:
        """Render what a command of the chat panel has printed."""
        ...

    def retry(self, block: "RetryBlock", /) -> T_co:
        """Render a note that a failed request is sent again."""
        ...

    def progress(self, block: "ProgressBlock", /) -> T_co:
        """Render the progress of a map, which runs one prompt for many rows."""
        ...

    def footer(self, block: "FooterBlock", /) -> T_co:
        """Render the figures of a turn: its time, cost and others."""
        ...


@dataclass(slots=True)
class Block(ABC):
    """One item of a shown conversation: a prompt, a text, a tool call, a notice and so on.

    `version` grows with every change, so that a renderer can cache its output for a block. `open` says that more
    changes are expected. `key` identifies a block within its transcript: keys grow in the order of the blocks, and a
    copy of a block keeps the key.
    """

    key: int = field(default=0, init=False, compare=False)
    version: int = field(default=0, init=False, compare=False)
    open: bool = field(default=False, kw_only=True)

    @abstractmethod
    def render(self, renderer: Renderer[T]) -> T:
        """Call the renderer's method for this kind of block, and return its result."""


@dataclass(slots=True)
class PromptBlock(Block):
    """The user's prompt; `turn` is the number of the turn that it begins, from 0, or None if it begins no turn.

    `values` are the values that the prompt names; a ValuesBlock shows what the model gets for them. If an MCP client of
    the served notebook began the turn to make a tool call, `client` is the name of that program. Such a prompt is not
    shown where the card of the call is shown, because the card names the client too.
    """

    prompt: Message
    turn: int | None = field(default=None, compare=False)
    values: tuple[PromptValue, ...] = field(default=(), compare=False)
    client: str = ""

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.prompt`."""
        return renderer.prompt(self)


@dataclass(slots=True)
class ValuesBlock(Block):
    """The values that a prompt names, in the form in which the model gets them. Their images are in `prompt`."""

    values: tuple[PromptValue, ...]
    prompt: Message

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.values`."""
        return renderer.values(self)


@dataclass(slots=True)
class GrowingBlock(Block):
    """Markdown that the model is writing piece by piece."""

    pieces: Pieces = field(default_factory=Pieces)

    @property
    def text(self) -> str:
        """The text so far."""
        return self.pieces.text


@dataclass(slots=True)
class TextBlock(GrowingBlock):
    """A text that the model wrote.

    `is_value` says that the text is JSON that was checked against the requested output type. If that type is not a JSON
    object, the text wraps the value in an object; `wrapped_in` is the name of the property that holds the value.
    `citations` and their `sources` are set when the text is complete. The number of a source is the same in all texts
    of a turn.
    """

    is_value: bool = False
    wrapped_in: str = ""
    citations: tuple[Citation, ...] = ()
    sources: tuple[Source, ...] = ()

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.text`."""
        return renderer.text(self)


class ReasoningBlock(GrowingBlock):
    """The model's reasoning; the text may be empty."""

    __slots__ = ()

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.reasoning`."""
        return renderer.reasoning(self)


@dataclass(slots=True)
class ToolCard(Block):
    """A tool call, from the first characters of its arguments to its result.

    `call` is None while the model is still writing the arguments; `raw` is their JSON text so far. `reason` is why the
    user is asked about the call, or why it was denied, `seconds` how long it ran, `traceback` the traceback of a
    function that raised, `rich` the HTML of the result's parts. While the card waits for the user, `ask` is the id to
    answer with. If `step` is set too, the turn only pauses before the call, and the card asks for no approval.
    `effects` says line by line what the call does, if the tool reported it. `optional` are the schemas of the arguments
    that the model left out. `written` are the model's arguments if the user changed them. `fixed` says that the user
    cannot change the arguments. `inner` says that a running tool made the call; the card then stands below the card of
    that tool. `options` are answers that an outside agent offers in its own words. `can_approve` says whether the call
    can be approved without one of them, `once` that it can be approved only this time, and `exact` that an "always"
    holds for exactly this act of the agent.

    `agent` is the name of the agent that the call asks. `inside` has the blocks of that agent's turn, except its
    prompt, which is an argument of the call. `client` is the program that makes the call in a served notebook, or the
    agent of an inner turn while it asks for approval, or "" if the model of the turn makes the call. `hosted` says that
    the provider carries out the call; `server` then names the provider. If `is_question` is set, the card is not a
    call: it asks the user whether the provider may make such calls.
    """

    name: str
    call: ToolCall | None = None
    server: str = ""
    state: State = "pending"
    pieces: Pieces = field(default_factory=Pieces)
    progress: ToolProgress | None = None
    result: ToolResult | None = None
    seconds: float = 0.0
    traceback: str = ""
    rich: tuple[str, ...] = ()
    reason: str = ""
    ask: str = ""
    step: bool = False
    effects: tuple[str, ...] = ()
    optional: Mapping[str, Any] | None = None
    written: Mapping[str, Any] | None = None
    inner: bool = False
    client: str = ""
    fixed: bool = False
    options: tuple[AgentOption, ...] = ()
    can_approve: bool = True
    once: bool = False
    exact: bool = False
    hosted: bool = False
    is_question: bool = False
    agent: str = ""
    inside: Snapshot | None = None

    @property
    def waits(self) -> bool:
        """Whether the user must answer a question: about this call, or from the turn of the agent that it asks."""
        inside = self.inside.blocks if self.inside else ()
        return self.state == "waiting" or any(
            block.waits if isinstance(block, ToolCard) else isinstance(block, QuestionBlock) and block.open
            for block in inside
        )

    @property
    def stands_alone(self) -> bool:
        """Whether the card is never grouped with others: it holds images, data frames or an agent's turn."""
        return self.has_pictures or self.inside is not None

    @property
    def shows_result(self) -> bool:
        """Whether to show the result of the call.

        The result is hidden if it is only for the model, or if an agent's turn inside the card already shows it.
        """
        return self.result is not None and not self.is_for_model and (self.inside is None or self.state != "done")

    @property
    def raw(self) -> str:
        """The JSON text of the arguments so far; empty once `call` is set."""
        return self.pieces.text

    @property
    def is_for_model(self) -> bool:
        """Whether the result is only for the model, for example because the user denied the call."""
        parts = self.result.content if self.result else ()
        return self.state in ("denied", "failed") and bool(parts) and all(map(_for_model, parts))

    @property
    def has_pictures(self) -> bool:
        """Whether the user sees images or data frames of the result, which stay visible while the card is closed."""
        media = (part for part in (self.result.content if self.result else ()) if isinstance(part, Media))
        images = (part.media_type.startswith("image/") and part.audience != "assistant" for part in media)
        return any(images) or any(map(is_frame, self.rich))

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.card`."""
        return renderer.card(self)


def is_frame(html: str) -> bool:
    """Return whether some HTML is the table of a data frame, written as pandas and polars write it."""
    return 'class="dataframe"' in html[:LONGEST_HEAD]


def _for_model(part: Content) -> bool:
    return isinstance(part, Text) and part.audience == "assistant"


@dataclass(slots=True)
class ChecklistBlock(Block):
    """The tasks of a plan; the block is `open` while the plan runs."""

    rows: list[TaskProgress] = field(default_factory=list[TaskProgress])

    @property
    def over(self) -> int:
        """The number of tasks that are done, failed or skipped."""
        return sum(row.state in FINISHED_STATES for row in self.rows)

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.checklist`."""
        return renderer.checklist(self)


@dataclass(slots=True)
class QuestionBlock(Block):
    """A question to the user; `answer` is None until the user answers, and `ask` is the id to answer with.

    `suggested` is an answer that the user can send as it is, or change first. `step` says that the question is a pause
    before a request to the model; `suggested` is then the prompt in the request. The event `QuestionAsked` describes
    `choices`, `plan` and `files`.
    """

    text: str
    answer: str | None = None
    ask: str = field(default="", compare=False)
    suggested: str = ""
    step: bool = False
    choices: tuple[str, ...] = ()
    plan: PlanState = ""
    files: str = ""

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.question`."""
        return renderer.question(self)


@dataclass(slots=True)
class ProposalBlock(Block):
    """A notebook cell that a tool proposes; `settled` is the user's decision, or None before the decision."""

    proposed: CellProposed
    settled: ProposalSettled | None = None

    @property
    def folded(self) -> bool:
        """Whether the proposal is shown as one line that can be opened.

        That is so once the user has decided, or if the proposed cell already stands in the notebook.
        """
        return self.settled is not None or self.proposed.place == "staged"

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.proposal`."""
        return renderer.proposal(self)


@dataclass(slots=True)
class NoticeBlock(Block):
    """A notice to the user."""

    level: Level
    text: str

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.notice`."""
        return renderer.notice(self)


@dataclass(slots=True)
class PrintoutBlock(Block):
    """What a command of the chat panel has printed; `line` is the command if the user typed it, else "".

    It is no part of the session's events: the model does not get it, and no log stores it.
    """

    printout: Printout
    line: str = ""

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.printout`."""
        return renderer.printout(self)


@dataclass(slots=True)
class RetryBlock(Block):
    """A failed request that is sent again after `delay` seconds; `attempt` counts the failed tries.

    The block is `open` until the next try is answered, which makes it `answered`, or the turn ends.
    """

    attempt: int
    delay: float
    error: str
    tries: int
    answered: bool = False

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.retry`."""
        return renderer.retry(self)


@dataclass(slots=True)
class ProgressBlock(Block):
    """The progress of a map, which runs one prompt for many rows; the block is `open` while the map runs."""

    progress: MapProgress

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.progress`."""
        return renderer.progress(self)


@dataclass(slots=True)
class FooterBlock(Block):
    """The line below a turn with its figures (time, cost and others); `stop_reason` is None while the turn runs.

    `price_told` says that the footer of an earlier turn already showed that the price is unknown. `phase` is what a
    running turn does while no block is open. If the turn ended without an answer, and later requests therefore leave it
    out, `unsent` is its number, counted from 0; else None. `trace` is the id of the turn's OpenTelemetry trace, or "".
    `agent` is the name of the turn's agent if there are several agents.
    """

    model: str
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    stop_reason: StopReason | None = None
    price_told: bool = False
    phase: str = field(default="", compare=False)
    unsent: int | None = None
    steps: int = 0
    trace: str = ""
    agent: str = ""

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.footer`."""
        return renderer.footer(self)
