"""Decode the messages of a browser page into actions of the user. The page is untrusted.

Approvals, answers and Stop become intents, which are defined in `agentmagic.events`. The chat panel carries out the
other actions. Of these, the view in a cell carries out only those of the setup card, and the end of a map.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError

from agentmagic.approval.policy import Level
from agentmagic.display.edited_values import restore_unchanged
from agentmagic.errors import UsageError
from agentmagic.events import ApprovalAsked, Approve, Deny, Intent, Reply, Stop
from agentmagic.messages import LONGEST_PROMPT
from agentmagic.secrets import register_secret
from agentmagic.text import sanitize, single_line
from agentmagic.widgets.commands import LONGEST_NAME, MOST_ATTACHED

PAGE = "page"
"""The name of a browser page in the audit log, where a call has the name of its server."""

LONGEST_FIELD = 60
"""Characters of a field's name that an error message shows."""

LONGEST_FILE = 8_000_000
"""Characters of a file in base64, about 6 MB of bytes.

js/src/files.js has the same number. Jupyter's server accepts messages of up to 10 MB.
"""

HIGHEST = 2**53 - 1
"""The largest whole number that JavaScript represents exactly."""


def at_most(limit: int) -> AfterValidator:
    """Return a validator of a text's length. pydantic's `max_length` is not used: it refuses lone surrogates, too."""

    def check(text: str) -> str:
        if len(text) > limit:
            raise ValueError(f"longer than {limit} characters")
        return text

    return AfterValidator(check)


Name = Annotated[str, at_most(LONGEST_NAME)]
TypedText = Annotated[str, at_most(LONGEST_PROMPT)]
TurnNumber = Annotated[int, Field(ge=0, le=HIGHEST)]


class PageMessage(BaseModel):
    """A message from a browser page. Each subclass is one action of the user."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)  # strict: "1" is not an int, 1 not a bool


class ApproveCall(PageMessage):
    """The user lets a tool call run."""

    type: Literal["approve"] = "approve"
    id: Name
    always: bool = False
    option: Name = ""


class EditCall(PageMessage):
    """The user lets a tool call run with changed arguments, written as JSON."""

    type: Literal["edit"] = "edit"
    id: Name
    arguments: TypedText


class DenyCall(PageMessage):
    """The user refuses a tool call."""

    type: Literal["deny"] = "deny"
    id: Name
    reason: Name = ""
    option: Name = ""


class AnswerQuestion(PageMessage):
    """The user answers a question, for example of a tool."""

    type: Literal["reply"] = "reply"
    id: Name
    text: TypedText


class StopTurn(PageMessage):
    """The user stops the running turn."""

    type: Literal["stop"] = "stop"


class StopMap(PageMessage):
    """The user ends the running map; the answers so far are kept."""

    type: Literal["stop-map"] = "stop-map"


class AskRows(PageMessage):
    """The user has the failed rows of a map asked again."""

    type: Literal["ask-rows"] = "ask-rows"


class UseLocal(PageMessage):
    """The user chooses the local model, which needs no API key."""

    type: Literal["local"] = "local"


class UseKey(PageMessage):
    """The user chooses a provider and enters an API key for it.

    If `keep` is true, the key is stored in the system's keyring, else in this kernel's memory.
    """

    type: Literal["key"] = "key"
    provider: Name
    key: SecretStr = Field(strict=False)
    keep: bool


class UseServer(PageMessage):
    """The user chooses a model of a model server that was found on this machine."""

    type: Literal["server"] = "server"
    server: Name
    model: Name


class LeaveSetup(PageMessage):
    """The user chooses no model now, which ends the turn that waits for a model."""

    type: Literal["leave"] = "leave"


class SendPrompt(PageMessage):
    """The user sends a prompt, which begins a turn; with `plan`, the turn is planned first.

    `attached` names those attachments in the input box that are sent with the prompt; unknown names are ignored.
    """

    type: Literal["send"] = "send"
    text: TypedText
    plan: bool = False
    attached: list[Name] = Field(default=[], max_length=MOST_ATTACHED)


class AttachFile(PageMessage):
    """The user attaches a pasted or dropped file to the next prompt; `data` is its content in base64.

    The file replaces an attached file of the same name.
    """

    type: Literal["file"] = "file"
    name: Name
    data: Annotated[str, at_most(LONGEST_FILE)]


class DropAttachment(PageMessage):
    """The user removes an attachment from the input box."""

    type: Literal["detach"] = "detach"
    name: Name


class ResumePlan(PageMessage):
    """The user resumes the plan that the last turn left unfinished."""

    type: Literal["resume"] = "resume"


class DropPlan(PageMessage):
    """The user gives up the plan that the last turn left unfinished."""

    type: Literal["drop"] = "drop"


class WithdrawPrompts(PageMessage):
    """The user takes back the prompts that have not been sent to the model yet."""

    type: Literal["withdraw"] = "withdraw"


class RetryTurn(PageMessage):
    """The user runs a turn again with its own prompt; this turn and all later ones are removed. Turns count from 0."""

    type: Literal["retry"] = "retry"
    turn: TurnNumber


class RewriteTurn(PageMessage):
    """The user runs a turn again with another prompt; this turn and all later ones are removed."""

    type: Literal["rewrite"] = "rewrite"
    turn: TurnNumber
    text: TypedText


class ForkSession(PageMessage):
    """The user makes a new session from the turns up to and including this turn."""

    type: Literal["fork"] = "fork"
    turn: TurnNumber


class ClearSession(PageMessage):
    """The user clears the conversation."""

    type: Literal["clear"] = "clear"


class CompactSession(PageMessage):
    """The user wants older turns to be summarised for the model."""

    type: Literal["compact"] = "compact"


class InspectTurn(PageMessage):
    """The user wants to see what a turn sent and received. Here turns count from 1, and 0 stands for the last turn."""

    type: Literal["inspect"] = "inspect"
    turn: TurnNumber


class UndoClear(PageMessage):
    """The user restores the conversation that was just cleared."""

    type: Literal["undo"] = "undo"


class UndoChange(PageMessage):
    """The user undoes the last turn, edit or clearing of the conversation."""

    type: Literal["back"] = "back"


class RedoChange(PageMessage):
    """The user redoes what was undone last."""

    type: Literal["redo"] = "redo"


class ExportSession(PageMessage):
    """The user exports the conversation to a file."""

    type: Literal["export"] = "export"
    form: Literal["markdown", "html", "json", "notebook"]


class ChooseModel(PageMessage):
    """The user chooses another model from the next turn on."""

    type: Literal["model"] = "model"
    name: Name


class ChooseLevel(PageMessage):
    """The user chooses which tools run without asking, from the next turn on."""

    type: Literal["level"] = "level"
    level: Level


class RunCommand(PageMessage):
    """The user runs a line of `%agent` on the panel's session, or a line of `%mcp`."""

    type: Literal["command"] = "command"
    magic: Literal["agent", "mcp"] = "agent"
    line: TypedText


class NewChat(PageMessage):
    """The user continues in a new session, which has no turns."""

    type: Literal["new"] = "new"


class ListChats(PageMessage):
    """The browser page asks for the list of the notebook's conversations."""

    type: Literal["chats"] = "chats"


class OpenChat(PageMessage):
    """The user continues one of the listed conversations."""

    type: Literal["open"] = "open"
    name: Name
    saved: bool


class ConnectServer(PageMessage):
    """The user connects an MCP server."""

    type: Literal["connect"] = "connect"
    server: Name


class DisconnectServer(PageMessage):
    """The user disconnects an MCP server."""

    type: Literal["disconnect"] = "disconnect"
    server: Name


class EnableTool(PageMessage):
    """The user offers a tool of an MCP server to the model, or no longer offers it."""

    type: Literal["tool"] = "tool"
    server: Name
    name: Name
    enabled: bool


class AllowTools(PageMessage):
    """The user lets a tool of an MCP server run without asking, or all its tools if `name` is empty."""

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
CellAction = AskRows
"""An action that only the view in a cell carries out."""
Action = Intent | SetupAction | SessionAction | CellAction

SESSION_ACTIONS = {kind.model_fields["type"].default: kind for kind in SessionAction.__args__}
"""The actions that a chat panel carries out, by the type of their message."""

PageAction = ApproveCall | EditCall | DenyCall | AnswerQuestion | StopTurn | SetupAction | SessionAction | CellAction
_DECODER: TypeAdapter[PageAction] = TypeAdapter(Annotated[PageAction, Field(discriminator="type")])


def read(message: object, find_request: Callable[[str], ApprovalAsked | None]) -> Action:
    """Return the action that a message of a browser page stands for. Raises UsageError for an invalid message.

    `find_request` returns the request for approval with an id. Edited arguments are compared with the call in that
    request: a secret that the page shows blanked keeps its value, unless the user changed it.
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
            with suppress(UsageError):  # raised if the text is too short for a secret
                register_secret(action.key.get_secret_value().strip())
        case ApproveCall():
            return Approve(action.id, always=action.always, option=action.option)
        case EditCall():
            return _approve_edit(action, find_request(action.id))
        case DenyCall():
            return Deny(action.id, action.reason, action.option)
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
