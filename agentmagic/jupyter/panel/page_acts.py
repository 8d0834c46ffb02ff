"""Decides which messages and commands of a browser page open a question before they act.

`MESSAGE_RULES` and `COMMAND_RULES` are one table. Its key for a message is the message's class, and for a command the
magic and the subcommand. A message or command that is not in the table opens a question. A question is opened by what
starts a program, trusts a file, lets more run without asking, or writes outside the notebook's folder. An answer to an
open question, and what narrows, opens none.

The browser page is untrusted: what models, tools and files write must never act through it unseen. The user's click on
a card comes from the same page, but the card has shown the act before.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

from agentmagic.approval.policy import Level, policy_of
from agentmagic.errors import ProviderError
from agentmagic.jupyter.magics.mcp_commands import config_of_line
from agentmagic.jupyter.magics.options import ParsedLine
from agentmagic.jupyter.panel import lab_messages as lab
from agentmagic.jupyter.prompt.outputs import AskAboutOutput
from agentmagic.platforms import quote_word
from agentmagic.providers import ollama
from agentmagic.providers.base import Model
from agentmagic.providers.first_use import LOCAL
from agentmagic.providers.local import downloads
from agentmagic.providers.registry import providers
from agentmagic.runtime.engine import void
from agentmagic.session import Session
from agentmagic.settings import file_of
from agentmagic.tools.mcp import McpServers
from agentmagic.widgets import page_messages as page
from agentmagic.widgets.commands import Notebook

OF_FILES = frozenset({"scripted", "cassette"})
"""Providers whose models are files. A page must not choose such a model, as it could name any file to be read."""

WIDTHS = {"deny": 0, "ask": 1, "reads": 2, "trusted": 3, "allow": 4}
"""How much runs without asking, by a policy's default, or by its level if the default is "ask"."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The session, the notebook and the models of the chat panel whose page sends a message.

    `models` are the models that the panel offers, by name. Of those that the notebook's code has chosen, it has the
    objects.
    """

    session: Session
    notebook: Notebook
    models: Mapping[str, str | Model]

    def address(self, server: str) -> str:
        """Return the command line or URL of an MCP server, with secrets blanked, or "" if there is no such server."""
        groups = (source for source in self.session.toolsets() if isinstance(source, McpServers))
        return next((one.address for group in groups for one in group.servers if one.name == server), "")


@dataclass(frozen=True, slots=True)
class PageAct:
    """An act of the page that needs the user's yes.

    `name` is its name in the audit log, `line` the command that does the same in a cell, `about` what it does, and
    `target` the command line or URL of the MCP server in question, or "".
    """

    name: str
    line: str
    about: str
    target: str = ""


def _always(_around: Surroundings, _act: Any) -> bool:
    return True


def _never(_around: Surroundings, _act: Any) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class PageRule:
    """Whether a message or a command opens a question: what it does, and a function that decides.

    The function gets the message, or the arguments of the command by name. `line` returns the command that does the
    same as a message. `check` is called before the question. It refuses an act that could not be done, and registers
    the secrets in it, so that they are blanked on the card and in what is saved.
    """

    about: str
    asks: Callable[[Surroundings, Any], bool] = _always
    line: Callable[[Any], str] = str
    check: Callable[[Any], object] = void


# -- the functions that decide -----------------------------------------------------------------


def chooses_wider_level(session: Session, level: Level) -> bool:
    """Return whether at a permission level more would run without asking than now."""
    policy = policy_of(session.agent.permission)
    now = policy.level if policy.default == "ask" else policy.default
    return WIDTHS[level] > WIDTHS[now]


def _level_of_line(around: Surroundings, arguments: Mapping[str, Any]) -> bool:
    level, name = arguments["level"], arguments["session"]
    # A line can name another session, whose present level is not looked up here.
    is_own = name == around.notebook.name_of(around.session)
    return level is not None and (not is_own or chooses_wider_level(around.session, level))


def starts_or_reads(around: Surroundings, name: str) -> bool:
    """Return whether the choice of a model starts a program, fetches the local model, or reads a file as a model."""
    if not isinstance(around.models.get(name, name), str):
        return False  # code of the notebook has made this model
    provider, _, model = name.strip().partition(":")
    if name == LOCAL or (provider == LOCAL.partition(":")[0] and not model):
        return not _has_local_weights()
    row = providers().get(provider)
    # A name of an unknown provider is refused. A provider with a key, or Ollama, only answers requests.
    return row is not None and not row.keys and provider != ollama.PROVIDER


def _has_local_weights() -> bool:
    try:
        return downloads.find() is not None
    except ProviderError:
        return False


def _model_of_message(around: Surroundings, act: page.ChooseModel) -> bool:
    # The panel refuses a model that is a file, unless the notebook's code has chosen it before.
    return act.name.partition(":")[0] not in OF_FILES and starts_or_reads(around, act.name)


def _model_of_line(around: Surroundings, arguments: Mapping[str, Any]) -> bool:
    return arguments["model"] is not None and starts_or_reads(around, arguments["model"])


def is_new_in_folder(folder: Path, target: str) -> bool:
    """Return whether a file is a new one in the notebook's folder, and neither hidden nor in a hidden folder.

    Programs read hidden files, such as .mcp.json, as their settings.
    """
    file, folder = file_of(target).expanduser().resolve(), folder.resolve()
    if not file.is_relative_to(folder) or file.exists():
        return False
    return not any(part.startswith(".") for part in file.relative_to(folder).parts)


def _writes_elsewhere(around: Surroundings, arguments: Mapping[str, Any]) -> bool:
    return not is_new_in_folder(around.notebook.folder(), arguments["target"])


def _is_unlisted(around: Surroundings, act: page.OpenChat) -> bool:
    return act.saved and not any(one.saved and one.name == act.name for one in around.notebook.conversations())


def _gives(name: str) -> Callable[[Surroundings, Any], bool]:
    return lambda _around, arguments: arguments[name] not in (None, False, "")


def _server_and_tool(act: page.EnableTool | page.AllowTools) -> tuple[str, ...]:
    return tuple(map(quote_word, filter(None, (act.server, escape(act.name)))))


# -- the table ---------------------------------------------------------------------------------

HARMLESS = PageRule("", _never)
UNKNOWN = PageRule("It is not known what this does, so you are asked first.")

PROGRAM = "Starts an MCP server: a program with your rights, or a connection to an address."
UNASKED = "Lets tools run without asking you."
LEVEL = "Lets more calls run without asking you."
MODEL = "Starts a program, downloads the local model, or reads a file as the model of the next turn."
FILE = "Writes a file outside the notebook's folder, or replaces a file."
TAPE = "Changes whether cells are recorded to a file, or answered from it."
LOADED = "Continues a conversation that is not listed here, and writes its further turns to that file."

MESSAGE_RULES: Mapping[type[page.PageMessage], PageRule] = {
    # answers to open questions; the setup card is one, on which the user chooses a model or enters a key
    page.ApproveCall: HARMLESS,
    page.EditCall: HARMLESS,
    page.DenyCall: HARMLESS,
    page.AnswerQuestion: HARMLESS,
    page.UseLocal: HARMLESS,
    page.UseKey: HARMLESS,
    page.UseServer: HARMLESS,
    page.LeaveSetup: HARMLESS,
    # the conversation: the calls of a turn pass the gate, which asks about them
    page.StopTurn: HARMLESS,
    page.StopMap: HARMLESS,
    page.AskRows: HARMLESS,
    page.SendPrompt: HARMLESS,
    page.AttachFile: HARMLESS,
    page.DropAttachment: HARMLESS,
    page.ResumePlan: HARMLESS,
    page.DropPlan: HARMLESS,
    page.WithdrawPrompts: HARMLESS,
    page.RetryTurn: HARMLESS,
    page.RewriteTurn: HARMLESS,
    page.ForkSession: HARMLESS,
    page.ClearSession: HARMLESS,
    page.CompactSession: HARMLESS,
    page.InspectTurn: HARMLESS,
    page.UndoClear: HARMLESS,
    page.UndoChange: HARMLESS,
    page.RedoChange: HARMLESS,
    page.NewChat: HARMLESS,
    page.ListChats: HARMLESS,
    page.ExportSession: HARMLESS,  # always a new file in the notebook's folder
    page.OpenChat: PageRule(LOADED, _is_unlisted, lambda act: f"%agent load {quote_word(act.name)}"),
    # what can widen
    page.ChooseModel: PageRule(MODEL, _model_of_message, lambda act: f"%agent models {act.name}"),
    page.ChooseLevel: PageRule(
        LEVEL,
        lambda around, act: chooses_wider_level(around.session, act.level),
        lambda act: f"%agent permission {act.level}",
    ),
    page.RunCommand: UNKNOWN,  # replaced by the rule of its command
    page.ConnectServer: PageRule(PROGRAM, line=lambda act: f"%mcp restart {quote_word(act.server)}"),
    page.DisconnectServer: HARMLESS,
    page.EnableTool: PageRule(
        "Offers a tool to the model that it does not have now.",
        lambda _around, act: act.enabled,
        lambda act: " ".join(("%mcp enable", *_server_and_tool(act))),
    ),
    page.AllowTools: PageRule(UNASKED, line=lambda act: " ".join(("%mcp allow", *_server_and_tool(act)))),
    # messages of the JupyterLab extension
    lab.GreetKernel: HARMLESS,
    lab.DockPanel: HARMLESS,
    lab.SettleProposals: HARMLESS,
    AskAboutOutput: HARMLESS,
}

COMMAND_RULES: Mapping[tuple[str, str], PageRule] = {
    ("agent", "status"): HARMLESS,
    ("agent", "history"): HARMLESS,
    ("agent", "tools"): PageRule(
        "Offers the model tools that look at this notebook and run code in it.",
        lambda _around, arguments: arguments["source"] is not None and arguments["switch"] is None,
    ),
    ("agent", "models"): PageRule(MODEL, _model_of_line),
    ("agent", "permission"): PageRule(LEVEL, _level_of_line),
    ("agent", "rules"): PageRule(
        "Trusts the project's files, whose text is then sent to the model.", _gives("approve")
    ),
    ("agent", "cost"): HARMLESS,
    ("agent", "stats"): HARMLESS,
    ("agent", "usage"): HARMLESS,
    ("agent", "inspect"): HARMLESS,
    ("agent", "reset"): HARMLESS,
    ("agent", "compact"): HARMLESS,
    ("agent", "undo"): HARMLESS,
    ("agent", "redo"): HARMLESS,
    ("agent", "sessions"): HARMLESS,
    ("agent", "load"): PageRule(
        "Continues the conversation in a file, and writes its further turns there.", _gives("saved")
    ),
    ("agent", "save"): PageRule(FILE, _writes_elsewhere),
    ("agent", "fork"): HARMLESS,
    ("agent", "export"): PageRule(FILE, _writes_elsewhere),
    ("agent", "hand-in"): PageRule(FILE, _writes_elsewhere),
    ("agent", "cassette"): PageRule(
        "Names the file to which cells are recorded and from which they are answered.", _gives("target")
    ),
    ("agent", "record"): PageRule(TAPE),
    ("agent", "replay"): PageRule(TAPE, lambda _around, arguments: not arguments["report"]),
    ("agent", "live"): PageRule(TAPE),
    ("agent", "auto"): PageRule(TAPE),
    ("agent", "debug"): HARMLESS,
    # these work only in a cell, and the panel refuses them
    ("agent", "ask"): UNKNOWN,
    ("agent", "chat"): UNKNOWN,
    ("agent", "fix"): UNKNOWN,
    ("agent", "resume"): UNKNOWN,
    ("agent", "serve"): UNKNOWN,
    ("mcp", "list"): HARMLESS,
    ("mcp", "get"): HARMLESS,
    ("mcp", "add"): PageRule(PROGRAM, check=lambda arguments: config_of_line(**arguments)),
    ("mcp", "load"): PageRule("Starts the MCP servers of a file: programs with your rights."),
    ("mcp", "approve"): PageRule("Trusts a server of a configuration file, and starts it with your rights."),
    ("mcp", "restart"): PageRule(PROGRAM),
    ("mcp", "remove"): HARMLESS,
    ("mcp", "tools"): HARMLESS,
    ("mcp", "allow"): PageRule(UNASKED),
    ("mcp", "trust"): PageRule("Believes what a server says about its tools, which can then run without asking you."),
    ("mcp", "disable"): HARMLESS,
    ("mcp", "enable"): PageRule("Offers tools to the model that it does not have now."),
    ("mcp", "logs"): HARMLESS,
    ("mcp", "prompts"): HARMLESS,
    ("mcp", "prompt"): HARMLESS,
    ("mcp", "resources"): HARMLESS,
}


def act_to_ask(around: Surroundings, message: page.PageMessage) -> PageAct | None:
    """Return what the user must be asked about a message of the page, or None if it may act at once.

    Reads files, so it must be called in a pool thread. Raises UsageError for an invalid command line.
    """
    rule, name, act = rule_of(around, message)
    if not rule.asks(around, act):
        return None
    rule.check(act)
    if isinstance(message, page.RunCommand):
        line = f"%{message.magic} {message.line.strip()}"
        server = act.get("name") if message.magic == "mcp" else ""
    else:
        line, server = rule.line(message), getattr(message, "server", "")
    return PageAct(name, line, rule.about, around.address(str(server or "")))


def rule_of(around: Surroundings, message: page.PageMessage) -> tuple[PageRule, str, Any]:
    """Return the rule for a message, its name in the audit log, and what the rule's function gets.

    That is the message, or the arguments of a command by name. Raises UsageError for an invalid command line.
    """
    if not isinstance(message, page.RunCommand):
        kind = str(type(message).model_fields["type"].default)
        return MESSAGE_RULES.get(type(message), UNKNOWN), kind, message
    read = around.notebook.read_line(around.session, message.magic, message.line)
    if not isinstance(read, ParsedLine):
        return HARMLESS, "help", {}
    return COMMAND_RULES.get((message.magic, read.word), UNKNOWN), f"{message.magic} {read.word}", read.arguments
