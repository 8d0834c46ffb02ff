"""What views are sent: the types of the messages that `sync` makes.

The page's own types are made from these: `python -m tests.widgets.page_types`.
"""

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from agentmagic.display.block_json import BlockFields


class ServerRow(TypedDict):
    """A row of the servers tab.

    A tool has its name, whether the model is offered it, whether it runs without asking, its description and its
    arguments.
    """

    name: str
    state: str
    error: str
    stderr: str
    tools: list[tuple[str, bool, bool, str, str]]


class ConversationRow(TypedDict):
    """A session of the notebook, or a conversation that is saved beside it."""

    name: str
    about: str
    saved: bool


class Running(TypedDict):
    """The turn under way: its figures, when it began, what it does and since when, in seconds since 1970."""

    figures: list[str]
    since: float
    doing: tuple[str, float]


class BarRow(TypedDict):
    """A step or a call on the timeline, in shares of the whole."""

    name: str
    depth: int
    start: float
    share: float
    time: str
    failed: bool


class RequestPage(TypedDict):
    """A request and its answer: estimated tokens by part, what the provider counted, and both as text."""

    title: str
    tokens: Mapping[str, int]
    counted: str
    sent: str
    sent_note: str
    received: str
    received_note: str


class InspectionPage(TypedDict):
    """What a turn sent and received; `turn` counts from 1 and is 0 if there is none."""

    turn: int
    turns: int
    heading: str
    meter: str
    share: float
    bars: list[BarRow]
    requests: list[RequestPage]
    note: str


class SetupCard(TypedDict):
    """What a user without a key can choose, and why it is asked.

    `local` is a sentence about the local model, and `install` the command that installs its package, "" if it is there.
    `providers` are those that take a key: name, what it is, the variable of the key, and how a key begins. `keyring`
    says why the system's keyring can keep no key, "" if it can. `servers` are those found on this machine with their
    models, None while they are looked for. `fixed` says that no other model can be chosen.
    """

    why: str
    local: str
    install: str
    providers: list[tuple[str, str, str, str]]
    keyring: str
    servers: list[tuple[str, list[str]]] | None
    fixed: bool


class State(TypedDict, total=False):
    """What a view shows around the blocks; what is not told is not shown.

    `actions` are the types of `agentmagic.widgets.page_messages` that are wired: a view offers no others. `note` says
    why something cannot be done by a click, `left` how many tasks of a plan can be resumed. `cleared` is how many turns
    can be brought back. `running` belongs to the feed. `welcome` and `examples` stand in a conversation without turns.
    `offered` is a saved conversation to go on with.
    `level` is what runs without asking, "" if the permission of the agent is none of the `levels`, each with its words.
    `names` complete `@`, `commands` and `prompts` complete `/`, each with what it is; `chats` are the
    conversations, once the page has asked for them. `setup` is the card that a turn without a key waits for.
    `attached` are the attachments of the next prompt, each with what it is. `large` is for a projector. `context`
    is about how many tokens the next request takes beside its prompt, `window` how many the model takes, 0 if that
    is unknown.
    """

    title: str
    actions: list[str]
    model: str
    models: list[str]
    level: str
    levels: list[tuple[str, str]]
    cost: str
    context: int
    window: int
    servers: list[ServerRow]
    note: str
    left: str
    cleared: int
    running: Running | None
    welcome: str
    examples: list[str]
    offered: ConversationRow | None
    names: list[tuple[str, str]]
    commands: list[tuple[str, str]]
    prompts: list[tuple[str, str]]
    chats: list[ConversationRow]
    attached: list[tuple[str, str]]
    setup: SetupCard | None
    large: bool


Change = str | Mapping[str, object] | None
"""Text that a block grew by, fields that changed, or None for a block that is gone."""


class Frame(TypedDict):
    """What changed since the frame before."""

    n: int
    ops: list[tuple[int, Change]]
    state: NotRequired[State]


class ViewSnapshot(TypedDict):
    """All that a view shows; `now` is the kernel's time, in seconds since 1970."""

    n: int
    view: str
    now: float
    blocks: list[tuple[int, BlockFields]]
    state: State


class UpToDate(TypedDict):
    """The answer to a view that has missed nothing."""

    n: int
    view: str


class MessagePiece(TypedDict):
    """A piece of a long message."""

    piece: int
    of: int
    id: int
    text: str


class Problem(TypedDict):
    """What could not be done, and the prompt that was not sent for it."""

    problem: str
    unsent: NotRequired[str]


class Unsent(TypedDict):
    """What was typed and is not sent after all."""

    unsent: str


class Said(TypedDict):
    """What was done, if nothing else shows it."""

    said: str


class Inspected(TypedDict):
    """What a turn sent and received."""

    inspection: InspectionPage


Message = Frame | ViewSnapshot | UpToDate | MessagePiece | Problem | Unsent | Said | Inspected
