"""What a person is shown of a conversation, as values that know nothing of HTML or terminals."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from agentmagic.events import (
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
from agentmagic.plan import SETTLED_TASK, TaskProgress

State = Literal["pending", "waiting", "running", "done", "failed", "denied", "interrupted"]
"""Of a call: being written or queued, waiting for a person, being carried out; then how it ended."""

SETTLED: frozenset[State] = frozenset({"done", "failed", "denied", "interrupted"})


LONGEST_HEAD = 2_000
"""Characters in which the table of a frame begins: pandas puts a style sheet before it."""


class Pieces:
    """Text that grows: appending takes constant time, reading joins what came since the last time."""

    __slots__ = ("_pieces",)

    def __init__(self, text: str = "") -> None:
        self._pieces = [text]

    def append(self, text: str) -> None:
        """Add to the end."""
        self._pieces.append(text)

    @property
    def text(self) -> str:
        """The whole so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pieces) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]  (it changes)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The blocks of a transcript as they were at one moment, which no event changes.

    `running` is the footer of the turn under way, None if there is none.
    """

    blocks: "list[Block]"
    running: "FooterBlock | None"


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Renderer(Protocol[T_co]):
    """Makes something of blocks, with one method per kind of block.

    Renderers do not inherit from this class. So the type checker reports a renderer without one of the methods
    at each call of `Block.render`.
    """

    def prompt(self, block: "PromptBlock", /) -> T_co:
        """Render what the user asked."""
        ...

    def values(self, block: "ValuesBlock", /) -> T_co:
        """Render what the values in a prompt became."""
        ...

    def text(self, block: "TextBlock", /) -> T_co:
        """Render what the model wrote."""
        ...

    def reasoning(self, block: "ReasoningBlock", /) -> T_co:
        """Render what the model thought."""
        ...

    def card(self, card: "ToolCard", /) -> T_co:
        """Render a tool call."""
        ...

    def checklist(self, block: "ChecklistBlock", /) -> T_co:
        """Render the tasks of a plan."""
        ...

    def question(self, block: "QuestionBlock", /) -> T_co:
        """Render a tool's question."""
        ...

    def proposal(self, block: "ProposalBlock", /) -> T_co:
        """Render a proposed cell."""
        ...

    def notice(self, block: "NoticeBlock", /) -> T_co:
        """Render a notice."""
        ...

    def retry(self, block: "RetryBlock", /) -> T_co:
        """Render a request that is sent again."""
        ...

    def progress(self, block: "ProgressBlock", /) -> T_co:
        """Render how far a map has come."""
        ...

    def footer(self, block: "FooterBlock", /) -> T_co:
        """Render the figures of a turn."""
        ...


@dataclass(slots=True)
class Block(ABC):
    """One thing on the screen.

    `version` grows with every change, so that a renderer can keep what it made of a block; `open` says
    that more changes are expected. `key` tells the blocks of a transcript apart, grows in
    their order, and stays the same in copies.
    """

    key: int = field(default=0, init=False, compare=False)
    version: int = field(default=0, init=False, compare=False)
    open: bool = field(default=False, kw_only=True)

    @abstractmethod
    def render(self, renderer: Renderer[T]) -> T:
        """Return what the renderer's method for this kind of block returns."""


@dataclass(slots=True)
class PromptBlock(Block):
    """What the person asked; `turn` is the number of the turn that it begins, from 0, or None if it begins none.

    `values` are those that it names; a ValuesBlock tells what they became. The prompt of a call that a `client` of the
    served notebook makes is not shown where its card is, which names the client.
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
    """What the values that a prompt names became; `prompt` has the images."""

    values: tuple[PromptValue, ...]
    prompt: Message

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.values`."""
        return renderer.values(self)


@dataclass(slots=True)
class GrowingBlock(Block):
    """Markdown that the model writes."""

    pieces: Pieces = field(default_factory=Pieces)

    @property
    def text(self) -> str:
        """The text so far."""
        return self.pieces.text


@dataclass(slots=True)
class TextBlock(GrowingBlock):
    """What the model wrote.

    `is_value` says that it is JSON, and was checked against the type that was asked for; `wrapped_in` is the property
    that holds the value, if that type is no object. `citations` come when the text is whole, with their
    pages: the numbers of `sources` hold for all texts of a turn.
    """

    is_value: bool = False
    wrapped_in: str = ""
    citations: tuple[Citation, ...] = ()
    sources: tuple[Source, ...] = ()

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.text`."""
        return renderer.text(self)


class ReasoningBlock(GrowingBlock):
    """What the model thought aloud; the text may be empty."""

    __slots__ = ()

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.reasoning`."""
        return renderer.reasoning(self)


@dataclass(slots=True)
class ToolCard(Block):
    """A tool call, from its first letter to its result.

    `call` is None while the arguments are still being written; `raw` is their JSON text so far. `reason`
    is why the call was denied, `seconds` how long it ran, `traceback` that of a function that raised, `rich` the HTML
    of the parts of the result. `ask` is the id to answer the approval with, while the card waits for one; with `step`
    the turn is only paused before the call. `effects` says line by line what the call does, if that was told.
    `optional` are the schemas of the arguments that the model left out, `written` the arguments that it wrote if the
    user changed them. The arguments of a `fixed` call cannot be changed. A call that a running tool makes is `inner`:
    it stands below the card of the tool. `agent` is the name of the agent that the call asks, and `inside` has the
    blocks of its turn, without the prompt, which is an argument. `client` is the program that makes the call in a
    served notebook, or the agent of an inner turn while it asks for the approval, "" if the model of the turn makes it.
    A `hosted` call is carried out by the provider, which `server` names; if it `is_question`, the card is none of its
    calls, and asks whether it may make them.
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
    hosted: bool = False
    is_question: bool = False
    agent: str = ""
    inside: Snapshot | None = None

    @property
    def waits(self) -> bool:
        """Whether the user is asked something: about the call, or by the agent that it asks."""
        inside = self.inside.blocks if self.inside else ()
        return self.state == "waiting" or any(
            block.waits if isinstance(block, ToolCard) else isinstance(block, QuestionBlock) and block.open
            for block in inside
        )

    @property
    def stands_alone(self) -> bool:
        """Whether it does not fold into a group with other calls: it has pictures, or the turn of an agent."""
        return self.has_pictures or self.inside is not None

    @property
    def shows_result(self) -> bool:
        """Whether the result is shown: the answer of an agent stands at the end of its turn."""
        return self.result is not None and not self.refused and (self.inside is None or self.state != "done")

    @property
    def raw(self) -> str:
        """The JSON text of the arguments, as far as it was written; empty once `call` is there."""
        return self.pieces.text

    @property
    def refused(self) -> bool:
        """Whether the user denied the call: the result holds words for the model alone."""
        parts = self.result.content if self.result else ()
        return self.state in ("denied", "failed") and bool(parts) and all(map(_for_model, parts))

    @property
    def has_pictures(self) -> bool:
        """Whether the result has images or frames, which stand open."""
        parts = self.result.content if self.result else ()
        images = (isinstance(part, Media) and part.media_type.startswith("image/") for part in parts)
        return any(images) or any(map(is_frame, self.rich))

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.card`."""
        return renderer.card(self)


def is_frame(html: str) -> bool:
    """Return whether HTML is the table of a data frame, as pandas and polars write it."""
    return 'class="dataframe"' in html[:LONGEST_HEAD]


def _for_model(part: Content) -> bool:
    return isinstance(part, Text) and part.audience == "assistant"


@dataclass(slots=True)
class ChecklistBlock(Block):
    """The tasks of a plan; while it is `open`, tasks go on."""

    rows: list[TaskProgress] = field(default_factory=list[TaskProgress])

    @property
    def over(self) -> int:
        """How many tasks are done, failed or skipped."""
        return sum(row.state in SETTLED_TASK for row in self.rows)

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.checklist`."""
        return renderer.checklist(self)


@dataclass(slots=True)
class QuestionBlock(Block):
    """A question to the person; `answer` is None until it is answered, `ask` the id to answer with.

    `suggested` is an answer that the person may send as it is, or change. With `step` it is a request before which the
    turn is paused, and `suggested` the prompt in it. `choices`, `plan` and `files` are those of `QuestionAsked`.
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
    """A proposed cell, and what became of it; `settled` is None until the user decides."""

    proposed: CellProposed
    settled: ProposalSettled | None = None

    @property
    def folded(self) -> bool:
        """Whether it is shown in one line that opens: it is decided, or stands in the notebook itself."""
        return self.settled is not None or self.proposed.place == "staged"

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.proposal`."""
        return renderer.proposal(self)


@dataclass(slots=True)
class NoticeBlock(Block):
    """Something the person should know."""

    level: Level
    text: str

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.notice`."""
        return renderer.notice(self)


@dataclass(slots=True)
class RetryBlock(Block):
    """A request failed and is sent again after `delay` seconds; `attempt` counts the tries that failed."""

    attempt: int
    delay: float
    error: str
    tries: int

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.retry`."""
        return renderer.retry(self)


@dataclass(slots=True)
class ProgressBlock(Block):
    """How far a map has come; it is `open` while the map runs."""

    progress: MapProgress

    def render(self, renderer: Renderer[T]) -> T:
        """Call `renderer.progress`."""
        return renderer.progress(self)


@dataclass(slots=True)
class FooterBlock(Block):
    """What the turn took; `stop_reason` is None while it is under way.

    `price_told` says that the footer of an earlier turn has said that the price is unknown. `phase` is what a turn
    under way does while no block is open. `unsent` is the number of the turn, from 0, if it ended without any answer
    and later requests leave it out, else None. `trace` is the id of its trace, if it has one. `agent` is the name of
    the agent of the turn, if there are several.
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
