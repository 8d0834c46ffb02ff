"""The types of the messages that `sync` sends to the views in browser pages.

The page's TypeScript types are generated from these types: `python -m tests.widgets.page_types`.
"""

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from agentmagic.display.block_json import BlockFields


class ServerRow(TypedDict):
    """An MCP server in the chat panel's tab of servers.

    Each of its `tools` has a name, whether it is offered to the model, whether it runs without asking, a description,
    and its arguments. `address` is its command line or URL if the name could be mistaken for one of ours, or "".
    """

    name: str
    address: str
    state: str
    error: str
    stderr: str
    tools: list[tuple[str, bool, bool, str, str]]


class ConversationRow(TypedDict):
    """A conversation to choose from: a session of the notebook, or one that is saved beside the notebook."""

    name: str
    about: str
    saved: bool


class Running(TypedDict):
    """The turn under way: its figures, when it began, what it does and since when. Times are in seconds since 1970."""

    figures: list[str]
    since: float
    doing: tuple[str, float]


class BarRow(TypedDict):
    """A step or a tool call on the timeline of a turn; `start` and `share` are fractions of the whole timeline."""

    name: str
    depth: int
    start: float
    share: float
    time: str
    failed: bool


class RequestPage(TypedDict):
    """A model request and its response: estimated tokens by part, the provider's count, and both contents as text."""

    title: str
    tokens: Mapping[str, int]
    counted: str
    sent: str
    sent_note: str
    received: str
    received_note: str


class InspectionPage(TypedDict):
    """What a turn sent to the model and received; `turn` counts from 1, and is 0 if the turn does not exist."""

    turn: int
    turns: int
    heading: str
    meter: str
    share: float
    bars: list[BarRow]
    requests: list[RequestPage]
    note: str


class SetupCard(TypedDict):
    """The choices shown to a user who has no API key; `why` says why the user is asked.

    `local` is a sentence about the local model, and `install` the command that installs its package, "" if it is
    installed. Each of the `providers` has a name, a description, the environment variable of its key, and how a key
    begins. `keyring` says why the system's keyring cannot store a key, or is "" if it can. `servers` are the model
    servers found on this machine, with their models; it is None while the search runs. `fixed` says that no other model
    can be chosen.
    """

    why: str
    local: str
    install: str
    providers: list[tuple[str, str, str, str]]
    keyring: str
    servers: list[tuple[str, list[str]]] | None
    fixed: bool


class PageQuestion(TypedDict):
    """A card that asks whether an act of the page may be done, outside any turn; `ask` is the id to answer with.

    `line` is the command that does the same in a cell, and `target` the command line or URL of its MCP server, or "".
    Hidden characters in both are escaped.
    """

    ask: str
    about: str
    line: str
    target: str


class State(TypedDict, total=False):
    """What a view shows around the blocks; a field that is missing is not shown.

    `actions` are the types of `agentmagic.widgets.page_messages` that work here; a view offers no others. `note` says
    why something cannot be done by a click. `left` says how many tasks of a plan can be resumed. `cleared` is how many
    cleared turns can be restored. `running` is set by `sync.Feed`. `welcome` and `examples` are shown in a conversation
    without turns, and `reads_notebook` is whether the model is offered the tools that look at the notebook. `earlier`
    says with which conversation of an earlier kernel the panel goes on. `offered` is a saved conversation that can be
    continued. `level` is the permission level, or "" if the agent's permission is none of the `levels`, each of which
    has a description. `names` complete a typed `@`, and `commands` and `prompts` a typed `/`, each with a description;
    `chats` are the conversations, once the page has asked for them. `setup` has the choices that a turn without an API
    key waits for. `attached` are the attachments of the next prompt, each with a description. `large` enlarges the type
    for a projector. `context` is about how many tokens the next request has without its prompt, and `window` how many
    tokens the model accepts, 0 if unknown. `web` says which tools the provider carries out.
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
    reads_notebook: bool
    earlier: str
    offered: ConversationRow | None
    names: list[tuple[str, str]]
    commands: list[tuple[str, str]]
    prompts: list[tuple[str, str]]
    chats: list[ConversationRow]
    attached: list[tuple[str, str]]
    setup: SetupCard | None
    asked: PageQuestion | None
    large: bool


Change = str | Mapping[str, object] | None
"""Text to append to a block, fields that changed, or None for a block that was removed."""


class Frame(TypedDict):
    """A message with what changed in a view since the previous frame."""

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
    """The answer to a view that has sent `hello` and has missed no message."""

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
    """A message to show until the user's next action."""

    said: str


class Inspected(TypedDict):
    """The inspection of a turn: what it sent to the model and received."""

    inspection: InspectionPage


Message = Frame | ViewSnapshot | UpToDate | MessagePiece | Problem | Unsent | Said | Inspected
