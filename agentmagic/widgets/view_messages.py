"""The types of the messages that `sync` sends to views.

The TypeScript types of the page are generated from them: `python -m tests.widgets.page_types`.
"""

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from agentmagic.display.block_json import BlockFields


class ServerRow(TypedDict):
    """A row of the servers tab.

    Each tool has its name, whether it is offered to the model, whether it runs without asking, its description, and its
    arguments.
    """

    name: str
    state: str
    error: str
    stderr: str
    tools: list[tuple[str, bool, bool, str, str]]


class ConversationRow(TypedDict):
    """A session of the notebook, or a conversation that is saved beside the notebook."""

    name: str
    about: str
    saved: bool


class Running(TypedDict):
    """The turn under way: its figures, when it began, what it does and since when. Times are in seconds since 1970."""

    figures: list[str]
    since: float
    doing: tuple[str, float]


class BarRow(TypedDict):
    """A step or a call on the timeline; `start` and `share` are fractions of the whole timeline."""

    name: str
    depth: int
    start: float
    share: float
    time: str
    failed: bool


class RequestPage(TypedDict):
    """A request and its response: estimated tokens by part, the provider's own count, and both bodies as text."""

    title: str
    tokens: Mapping[str, int]
    counted: str
    sent: str
    sent_note: str
    received: str
    received_note: str


class InspectionPage(TypedDict):
    """What a turn sent and received; `turn` counts from 1, and is 0 if the turn does not exist."""

    turn: int
    turns: int
    heading: str
    meter: str
    share: float
    bars: list[BarRow]
    requests: list[RequestPage]
    note: str


class SetupCard(TypedDict):
    """The choices of a user without an API key; `why` says why the user is asked.

    `local` is a sentence about the local model, and `install` the command that installs its package, "" if it is
    installed. `providers` are those that accept a key: name, description, the environment variable of the key, and how
    a key begins. `keyring` says why the system's keyring cannot store a key, "" if it can. `servers` are those found on
    this machine with their models, None while the search runs. `fixed` says that no other model can be chosen.
    """

    why: str
    local: str
    install: str
    providers: list[tuple[str, str, str, str]]
    keyring: str
    servers: list[tuple[str, list[str]]] | None
    fixed: bool


class State(TypedDict, total=False):
    """What a view shows around the blocks; a field that is missing is not shown.

    `actions` are the types of `agentmagic.widgets.page_messages` that work here; a view offers no others. `note` says
    why something cannot be done by a click. `left` says how many tasks of a plan can be resumed. `cleared` is how many
    turns can be restored. `running` is set by the feed. `welcome` and `examples` are shown in a conversation without
    turns. `offered` is a saved conversation that can be continued. `level` is the permission level, "" if the agent's
    permission is none of the `levels`, each of which has a description. `names` complete `@`, `commands` and `prompts`
    complete `/`, each with a description; `chats` are the conversations, once the page has asked for them. `setup` is
    the card that a turn without a key waits for. `attached` are the attachments of the next prompt, each with a
    description. `large` enlarges the type for a projector. `context` is about how many tokens the next request has
    without its prompt, and `window` how many tokens the model accepts, 0 if unknown. `web` says which tools the
    provider carries out.
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
    web: str
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
"""Text to append to a block, fields that changed, or None for a block that was removed."""


class Frame(TypedDict):
    """What changed since the previous frame."""

    n: int
    ops: list[tuple[int, Change]]
    state: NotRequired[State]


class ViewSnapshot(TypedDict):
    """Everything that a view shows; `now` is the kernel's time, in seconds since 1970."""

    n: int
    view: str
    now: float
    blocks: list[tuple[int, BlockFields]]
    state: State


class UpToDate(TypedDict):
    """The answer to a view that has missed no message."""

    n: int
    view: str


class MessagePiece(TypedDict):
    """A piece of a message that is too long to be sent at once."""

    piece: int
    of: int
    id: int
    text: str


class Problem(TypedDict):
    """A problem to show, and the prompt that was not sent because of it."""

    problem: str
    unsent: NotRequired[str]


class Unsent(TypedDict):
    """A typed text that was not sent, to be put back into the input box."""

    unsent: str


class Said(TypedDict):
    """A message about what was done, if nothing else shows it."""

    said: str


class Inspected(TypedDict):
    """The inspection of a turn: what it sent and received."""

    inspection: InspectionPage


Message = Frame | ViewSnapshot | UpToDate | MessagePiece | Problem | Unsent | Said | Inspected
