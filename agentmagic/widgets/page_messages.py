"""Decode the messages of a page into actions of the user. The page is untrusted.

Approvals, answers and Stop become the intents of `agentmagic.events`; the chat panel carries out the other actions.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError

from agentmagic.approval.policy import Level
from agentmagic.display.words import restore_unchanged
from agentmagic.errors import UsageError
from agentmagic.events import ApprovalAsked, Approve, Deny, Intent, Reply, Stop
from agentmagic.messages import LONGEST_PROMPT
from agentmagic.secrets import register_secret
from agentmagic.text import sanitize, single_line
from agentmagic.widgets.commands import LONGEST_NAME, MOST_ATTACHED

LONGEST_FIELD = 60
"""Characters of a field's name that an error message shows."""

LONGEST_FILE = 8_000_000
"""Characters of a file in base64, about 6 MB of bytes.

js/src/files.js has the same number. Jupyter's server accepts messages of up to 10 MB.
"""

HIGHEST = 2**53 - 1
"""The largest whole number that JavaScript represents exactly."""


def at_most(limit: int) -> AfterValidator:
    """Return a validator of a text's length. pydantic's own `max_length` also refuses half of a surrogate pair."""

    def check(text: str) -> str:
        if len(text) > limit:
            raise ValueError(f"longer than {limit} characters")
        return text

    return AfterValidator(check)


Name = Annotated[str, at_most(LONGEST_NAME)]
TypedText = Annotated[str, at_most(LONGEST_PROMPT)]
TurnNumber = Annotated[int, Field(ge=0, le=HIGHEST)]


class PageMessage(BaseModel):
    """A message from the page."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)  # strict: refuses "1" for 1, and 1 for true


class ApproveCall(PageMessage):
    """Let a tool call run."""

    type: Literal["approve"] = "approve"
    id: Name
    always: bool = False


class EditCall(PageMessage):
    """Let a tool call run with arguments that the user changed, written as JSON."""

    type: Literal["edit"] = "edit"
    id: Name
    arguments: TypedText


class DenyCall(PageMessage):
    """Refuse a tool call."""

    type: Literal["deny"] = "deny"
    id: Name
    reason: Name = ""


class AnswerQuestion(PageMessage):
    """Answer a question of a tool."""

    type: Literal["reply"] = "reply"
    id: Name
    text: TypedText


class StopTurn(PageMessage):
    """Cancel the turn."""

    type: Literal["stop"] = "stop"


class StopMap(PageMessage):
    """End the running map; its answers are kept."""

    type: Literal["stop-map"] = "stop-map"


class UseLocal(PageMessage):
    """Use the local model, which needs no key."""

    type: Literal["local"] = "local"


class UseKey(PageMessage):
    """Use a provider with a key.

    With `keep` the key is stored in the system's keyring, else in this kernel's memory.
    """

    type: Literal["key"] = "key"
    provider: Name
    key: SecretStr = Field(strict=False)
    keep: bool


class UseServer(PageMessage):
    """Use a model of a model server that was found on this machine."""

    type: Literal["server"] = "server"
    server: Name
    model: Name


class LeaveSetup(PageMessage):
    """Choose no model now, and give up the turn that waits for a model."""

    type: Literal["leave"] = "leave"


class SendPrompt(PageMessage):
    """Begin a turn with a prompt; with `plan`, the turn is planned first.

    `attached` names the attachments in the input box to send with the prompt; unknown names are ignored.
    """

    type: Literal["send"] = "send"
    text: TypedText
    plan: bool = False
    attached: list[Name] = Field(default=[], max_length=MOST_ATTACHED)


class AttachFile(PageMessage):
    """Attach a pasted or dropped file to the next prompt; `data` is its content in base64.

    It replaces an attached file of the same name.
    """

    type: Literal["file"] = "file"
    name: Name
    data: Annotated[str, at_most(LONGEST_FILE)]


class DropAttachment(PageMessage):
    """Remove an attachment from the input box."""

    type: Literal["detach"] = "detach"
    name: Name


class ResumePlan(PageMessage):
    """Resume the plan that the last turn left unfinished."""

    type: Literal["resume"] = "resume"


class DropPlan(PageMessage):
    """Give up the plan that the last turn left unfinished."""

    type: Literal["drop"] = "drop"


class WithdrawPrompts(PageMessage):
    """Take back the prompts that have not been sent."""

    type: Literal["withdraw"] = "withdraw"


class RetryTurn(PageMessage):
    """Run a turn again with its own prompt; the turn and all later ones are forgotten. Turns count from 0."""

    type: Literal["retry"] = "retry"
    turn: TurnNumber


class RewriteTurn(PageMessage):
    """Run a turn again with another prompt; the turn and all later ones are forgotten."""

    type: Literal["rewrite"] = "rewrite"
    turn: TurnNumber
    text: TypedText


class ForkSession(PageMessage):
    """Make a new session from the turns up to this one, which is included."""

    type: Literal["fork"] = "fork"
    turn: TurnNumber


class ClearSession(PageMessage):
    """Forget the conversation."""

    type: Literal["clear"] = "clear"


class CompactSession(PageMessage):
    """Summarise older turns for the model."""

    type: Literal["compact"] = "compact"


class InspectTurn(PageMessage):
    """Send what a turn sent and received; turns count from 1 here, and 0 is the last turn."""

    type: Literal["inspect"] = "inspect"
    turn: TurnNumber


class UndoClear(PageMessage):
    """Restore the cleared conversation."""

    type: Literal["undo"] = "undo"


class UndoChange(PageMessage):
    """Undo the last turn, edit or clear."""

    type: Literal["back"] = "back"


class RedoChange(PageMessage):
    """Redo what was undone last."""

    type: Literal["redo"] = "redo"


class ExportSession(PageMessage):
    """Write the conversation to a file."""

    type: Literal["export"] = "export"
    form: Literal["markdown", "json", "notebook"]


class ChooseModel(PageMessage):
    """Use another model from the next turn on."""

    type: Literal["model"] = "model"
    name: Name


class ChooseLevel(PageMessage):
    """Change which tools run without asking, from the next turn on."""

    type: Literal["level"] = "level"
    level: Level


class RunCommand(PageMessage):
    """Run a line of `%agent` on the panel's session, or a line of `%mcp`."""

    type: Literal["command"] = "command"
    magic: Literal["agent", "mcp"] = "agent"
    line: TypedText


class NewChat(PageMessage):
    """Continue in a new session without turns."""

    type: Literal["new"] = "new"


class ListChats(PageMessage):
    """Send the list of the notebook's conversations."""

    type: Literal["chats"] = "chats"


class OpenChat(PageMessage):
    """Continue one of the listed conversations."""

    type: Literal["open"] = "open"
    name: Name
    saved: bool


class ConnectServer(PageMessage):
    """Connect a server."""

    type: Literal["connect"] = "connect"
    server: Name


class DisconnectServer(PageMessage):
    """Disconnect a server."""

    type: Literal["disconnect"] = "disconnect"
    server: Name


class EnableTool(PageMessage):
    """Offer a server's tool to the model, or stop offering it."""

    type: Literal["tool"] = "tool"
    server: Name
    name: Name
    enabled: bool


class AllowTools(PageMessage):
    """Let a server's tool run without asking, or all tools of the server if `name` is empty."""

    type: Literal["allow"] = "allow"
    server: Name
    name: Name = ""


SessionAction = (
    StopMap
    | SendPrompt
    | AttachFile
    | DropAttachment
    | ResumePlan
    | DropPlan
    | WithdrawPrompts
    | RetryTurn
    | RewriteTurn
    | ForkSession
    | ClearSession
    | CompactSession
    | InspectTurn
    | UndoClear
    | UndoChange
    | RedoChange
    | ExportSession
    | ChooseModel
    | ChooseLevel
    | RunCommand
    | NewChat
    | ListChats
    | OpenChat
    | ConnectServer
    | DisconnectServer
    | EnableTool
    | AllowTools
)
SetupAction = UseLocal | UseKey | UseServer | LeaveSetup
Action = Intent | SetupAction | SessionAction

SESSION_ACTIONS = {kind.model_fields["type"].default: kind for kind in SessionAction.__args__}
"""The actions that a chat panel carries out, by the type of their message."""

PageAction = ApproveCall | EditCall | DenyCall | AnswerQuestion | StopTurn | SetupAction | SessionAction
_DECODER: TypeAdapter[PageAction] = TypeAdapter(Annotated[PageAction, Field(discriminator="type")])


def read(message: object, find_request: Callable[[str], ApprovalAsked | None]) -> Action:
    """Return the action that a message of the page stands for. Raises UsageError for an invalid message.

    `find_request` returns the request for approval with an id. Edited arguments are compared with the call in that
    request, so that a secret that was blanked in the page, and that the user did not change, keeps its value.
    """
    try:
        action = _DECODER.validate_python(message)
    except ValidationError as error:
        # Report only the error's code and the field, because pydantic's text repeats what the page sent.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = single_line(sanitize(".".join(map(str, first["loc"]))), LONGEST_FIELD)
        raise _refusal(" ".join(filter(None, (where, first["type"])))) from None
    match action:
        case UseKey():
            # Register the key first, whatever happens next, so that no error, log or output shows it from now on.
            with suppress(UsageError):  # the text is too short for a key
                register_secret(action.key.get_secret_value().strip())
        case ApproveCall():
            return Approve(action.id, always=action.always)
        case EditCall():
            return _approve_edit(action, find_request(action.id))
        case DenyCall():
            return Deny(action.id, action.reason)
        case AnswerQuestion():
            return Reply(action.id, action.text)
        case StopTurn():
            return Stop()
        case _:
            pass
    return action


def _approve_edit(message: EditCall, question: ApprovalAsked | None) -> Approve:
    if question is None:
        raise _refusal("nothing of that id was asked")
    try:
        arguments = json.loads(message.arguments)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The edited arguments are not JSON: {error}. Mend them and approve again.") from None
    if not isinstance(arguments, dict):
        raise UsageError('The edited arguments are not a JSON object. Write them as {"name": value} and approve again.')
    return Approve(question.id, arguments=restore_unchanged(arguments, question.call.arguments))


def _refusal(why: str) -> UsageError:
    return UsageError(f"The page sent a message that is no action: {why}. Reload the page and try again.")
