"""What a person is shown of a conversation, as values that know nothing of HTML or terminals."""

from dataclasses import dataclass, field
from typing import Literal

from agentmagic.events import Level, StopReason, ToolProgress
from agentmagic.messages import Message, ToolCall, ToolResult, Usage

State = Literal["pending", "waiting", "running", "done", "failed", "denied", "interrupted"]
"""Of a call: being written or queued, waiting for a person, being carried out; then how it ended."""

SETTLED: frozenset[State] = frozenset({"done", "failed", "denied", "interrupted"})


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


@dataclass(slots=True)
class Block:
    """One thing on the screen.

    `version` grows with every change, so that a renderer can keep what it made of a block; `open` says
    that more changes are expected.
    """

    version: int = field(default=0, init=False, compare=False)
    open: bool = field(default=False, kw_only=True)


@dataclass(slots=True)
class PromptBlock(Block):
    """What the person asked."""

    prompt: Message


@dataclass(slots=True)
class TextBlock(Block):
    """What the model wrote, as Markdown; `interrupted` says that more was to come."""

    pieces: Pieces = field(default_factory=Pieces)
    interrupted: bool = False

    @property
    def text(self) -> str:
        """The words so far."""
        return self.pieces.text


@dataclass(slots=True)
class ReasoningBlock(Block):
    """What the model thought aloud, as Markdown; the text may be empty."""

    pieces: Pieces = field(default_factory=Pieces)
    interrupted: bool = False

    @property
    def text(self) -> str:
        """The words so far."""
        return self.pieces.text


@dataclass(slots=True)
class ToolCard(Block):
    """A tool call, from its first letter to its result.

    `call` is None while the arguments are still being written; `raw` is their JSON text so far. `reason`
    is why the call was denied, `seconds` how long it ran.
    """

    name: str
    call: ToolCall | None = None
    server: str = ""
    state: State = "pending"
    pieces: Pieces = field(default_factory=Pieces)
    progress: ToolProgress | None = None
    result: ToolResult | None = None
    seconds: float = 0.0
    reason: str = ""

    @property
    def raw(self) -> str:
        """The JSON text of the arguments, as far as it was written; empty once `call` is there."""
        return self.pieces.text


@dataclass(slots=True)
class QuestionBlock(Block):
    """A tool's question to the person; `answer` is None until it is answered."""

    text: str
    answer: str | None = None


@dataclass(slots=True)
class NoticeBlock(Block):
    """Something the person should know."""

    level: Level
    text: str


@dataclass(slots=True)
class RetryBlock(Block):
    """A request failed and is sent again after `delay` seconds; `attempt` counts the tries that failed."""

    attempt: int
    delay: float
    error: str


@dataclass(slots=True)
class FooterBlock(Block):
    """What the turn took; `stop_reason` is None while it is under way."""

    model: str
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    stop_reason: StopReason | None = None
