"""What a person does in a view, from the page's message to a value; nothing the page says is taken on trust.

Approvals, answers and Stop are the intents of `agentmagic.events`. The others are the session's to carry out.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, cast

from agentmagic.display.words import restored
from agentmagic.errors import UsageError
from agentmagic.events import ApprovalAsked, Approve, Deny, Reply, Stop
from agentmagic.messages import LONGEST_PROMPT

LONGEST_NAME = 1_000
"""Characters of an id, of a name and of a reason."""

HIGHEST = 2**53 - 1
"""The largest whole number that a page can say."""


@dataclass(frozen=True, slots=True)
class Send:
    """Begin a turn with a prompt."""

    type: ClassVar[str] = "send"
    text: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take back the prompts that wait."""

    type: ClassVar[str] = "withdraw"


@dataclass(frozen=True, slots=True)
class Retry:
    """Run a turn again with its own prompt; it and what came after it make way. Turns count from 0."""

    type: ClassVar[str] = "retry"
    turn: int


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Run a turn again with another prompt; it and what came after it make way."""

    type: ClassVar[str] = "rewrite"
    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class Fork:
    """Make another session of the turns up to and with this one."""

    type: ClassVar[str] = "fork"
    turn: int


@dataclass(frozen=True, slots=True)
class Clear:
    """Forget the conversation."""

    type: ClassVar[str] = "clear"


@dataclass(frozen=True, slots=True)
class Export:
    """Write the conversation to a file."""

    type: ClassVar[str] = "export"
    form: Literal["markdown", "json", "notebook"]


@dataclass(frozen=True, slots=True)
class ChooseModel:
    """Use another model from the next turn on."""

    type: ClassVar[str] = "model"
    name: str


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect a server."""

    type: ClassVar[str] = "connect"
    server: str


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Disconnect a server."""

    type: ClassVar[str] = "disconnect"
    server: str


@dataclass(frozen=True, slots=True)
class EnableTool:
    """Offer a server's tool to the model, or no longer."""

    type: ClassVar[str] = "tool"
    server: str
    name: str
    enabled: bool


SessionAction = (
    Send | Withdraw | Retry | Rewrite | Fork | Clear | Export | ChooseModel | Connect | Disconnect | EnableTool
)
Action = Approve | Deny | Reply | Stop | SessionAction

EDIT = "edit"
"""The type of a message that approves a call with other arguments than the model gave."""

KINDS: dict[str, type[Any]] = {
    "approve": Approve,
    "deny": Deny,
    "reply": Reply,
    "stop": Stop,
    **{kind.type: kind for kind in SessionAction.__args__},
}
"""Every action, by the type of its message; approvals with edited arguments have a type of their own, `EDIT`."""

INTENTS = ("approve", EDIT, "deny", "reply", "stop")
"""The types of the actions that are answers to a turn."""

_FORMS = ("markdown", "json", "notebook")


def read(message: object, asked: Callable[[str], ApprovalAsked | None]) -> Action:
    """Return the action that a message of the page stands for.

    `asked` finds an approval by its id; edited arguments are read against those it asked about, so that what
    was blanked in the page and left alone goes on as it was. Raises UsageError for what is no action.
    """
    if not isinstance(message, dict):
        raise _refusal("it is no object")
    entries = dict(cast("dict[str, Any]", message))
    kind = entries.pop("type", None)
    if kind == EDIT:
        return _edited(entries, asked)
    if not isinstance(kind, str) or kind not in KINDS:
        raise _refusal("its type is not known")
    return _checked(KINDS[kind], entries)


def _checked(kind: type[Any], entries: Mapping[str, Any]) -> Action:
    names = {field.name: field.type for field in fields(kind)}
    if not set(entries) <= set(names):
        raise _refusal("it has a field too many")
    for name, value in entries.items():
        if not _fits(name, value):
            raise _refusal(f"{name} is not what it should be")
    try:
        return kind(**entries)
    except TypeError:
        raise _refusal("a field is missing") from None


def _fits(name: str, value: object) -> bool:
    match name:
        case "always" | "enabled":
            return isinstance(value, bool)
        case "turn":
            return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= HIGHEST
        case "form":
            return value in _FORMS
        case "text":
            return isinstance(value, str) and len(value) <= LONGEST_PROMPT
        case "arguments":
            return False  # those of an edited approval are read as JSON, elsewhere
        case _:
            return isinstance(value, str) and len(value) <= LONGEST_NAME


def _edited(entries: Mapping[str, Any], asked: Callable[[str], ApprovalAsked | None]) -> Approve:
    if set(entries) != {"id", "arguments"} or not _fits("id", entries["id"]) or not _fits("text", entries["arguments"]):
        raise _refusal("its fields are not an id and arguments")
    question = asked(entries["id"])
    if question is None:
        raise _refusal("nothing of that id was asked")
    try:
        arguments = json.loads(entries["arguments"])
    except (ValueError, RecursionError) as error:
        message = f"The edited arguments are not JSON: {error}. Mend them and approve again."
        raise UsageError(message) from None
    if not isinstance(arguments, dict):
        message = 'The edited arguments are not a JSON object. Write them as {"name": value} and approve again.'
        raise UsageError(message)
    return Approve(question.id, arguments=restored(arguments, question.call.arguments))


def _refusal(why: str) -> UsageError:
    return UsageError(f"The page sent a message that is no action: {why}. Reload the page and try again.")
