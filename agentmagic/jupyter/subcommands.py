"""The subcommands of `%agent` and `%mcp` as values: one dataclass a subcommand, one field an option."""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any, Literal

from agentmagic.errors import UsageError
from agentmagic.jupyter.option_parser import option, switch

DEFAULT_SESSION = "agent"
"""The variable that holds the session of `%%agent` without a NAME."""

SESSION_FLAGS = ("-s", "--session")

Switch = Literal["on", "off"]


def check_name(name: str) -> None:
    """Raise UsageError for a name that no session can have."""
    if not name.isidentifier() or iskeyword(name):
        message = f"{name!r} cannot name a session, which is a variable: use letters, digits and _, no digit first."
        raise UsageError(message)


@dataclass(frozen=True)
class _OfSession:
    session: str = option(
        *SESSION_FLAGS, default=DEFAULT_SESSION, metavar="NAME", help="the session meant (default: agent)"
    )

    def __post_init__(self) -> None:
        check_name(self.session)


@dataclass(frozen=True)
class Status(_OfSession):
    """Show the session: model, turns, tokens, cost, where it is saved, servers."""


@dataclass(frozen=True)
class ListHistory(_OfSession):
    """Show the turns of the session, or where words occur in them."""

    search: tuple[str, ...] = option(
        "--search", default=(), nargs="+", metavar="WORDS", help="show only where these words stand together"
    )


@dataclass(frozen=True)
class ListTools(_OfSession):
    """Show the tools the next turn would have, connecting servers where need be."""


@dataclass(frozen=True)
class Models(_OfSession):
    """Show the providers, or choose the model of the session."""

    model: str | None = option(nargs="?", metavar="PROVIDER:MODEL", help="the session's model from now on")


@dataclass(frozen=True)
class Cost(_OfSession):
    """Show requests, tokens and cost of the session."""


@dataclass(frozen=True)
class Reset(_OfSession):
    """Forget the conversation; model, servers and approvals stay."""


@dataclass(frozen=True)
class Undo(_OfSession):
    """Forget the last turn, and show its prompt."""


@dataclass(frozen=True)
class ListSessions:
    """Show the sessions of the notebook, and the conversations saved for it."""


@dataclass(frozen=True)
class Load(_OfSession):
    """Go on with a saved conversation: the session's own, or another one."""

    saved: str | None = option(
        nargs="?", metavar="NAME | FILE", help="its name in %%agent sessions, or its file (default: the session's own)"
    )


@dataclass(frozen=True)
class OpenChat(_OfSession):
    """Show the chat panel of a session, which is made where there is none."""

    name: str | None = option(nargs="?", metavar="NAME", help="the session, as of %%%%agent (default: agent)")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.name or self.session)


@dataclass(frozen=True)
class Save(_OfSession):
    """Save the conversation to a file of its own."""

    target: str = option(default="", metavar="FILE", help="a file that is not there yet; .jsonl by custom")


@dataclass(frozen=True)
class Fork(_OfSession):
    """Begin another session with the turns of this one."""

    name: str = option(default="", metavar="NEW", help="the variable of the new session, which must be free")
    turns: int | None = option("--turns", metavar="N", type=int, help="take the first N turns only")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.name)
        if self.turns is not None and self.turns < 0:
            message = f"--turns is {self.turns}. Give how many of the first turns to take."
            raise UsageError(message)


@dataclass(frozen=True)
class Export(_OfSession):
    """Write the conversation for others to read, send or run, in the form that the file's name asks for."""

    target: str = option(
        default="", metavar="FILE", help="ends in .md, .ipynb, .json, .openai.json, .responses.json or .gemini.json"
    )
    overwrite: bool = switch("--overwrite", help="replace the file if it is there")


@dataclass(frozen=True)
class Debug:
    """Show the last log records, or choose how much is kept of them."""

    detail: Switch | None = option(  # noqa: RUF009  (it returns a field)
        nargs="?", choices=("on", "off"), metavar="on | off", help="keep every event of a turn, and the SDKs' records"
    )


@dataclass(frozen=True)
class AddServer:
    """Connect an MCP server for all sessions."""

    name: str = option(default="", metavar="SERVER", help="what it is to be called here")
    command: tuple[str, ...] = option(
        default=(), nargs=argparse.REMAINDER, metavar="COMMAND... | URL", help="its command line, or its web address"
    )

    def __post_init__(self) -> None:
        if not self.command:
            message = (
                f"%mcp add {self.name} lacks the server: write its command line or its web address behind the name."
            )
            raise UsageError(message)


@dataclass(frozen=True)
class ListServers:
    """Show the servers and how they are doing."""


@dataclass(frozen=True)
class _OfServer:
    name: str = option(default="", metavar="SERVER", help="its name here")


@dataclass(frozen=True)
class _OfServers:
    name: str | None = option(nargs="?", metavar="SERVER", help="its name here")


@dataclass(frozen=True)
class GetServer(_OfServer):
    """Show all there is to know of a server: address, state, tools, last error, last words."""


@dataclass(frozen=True)
class RemoveServer(_OfServer):
    """Disconnect a server and forget it."""


@dataclass(frozen=True)
class RestartServer(_OfServer):
    """Disconnect a server and connect it anew."""


@dataclass(frozen=True)
class ApproveServer(_OfServer):
    """Let a server start that a configuration file names, as it is written there now."""


@dataclass(frozen=True)
class AllowTools(_OfServer):
    """Let tools of a server run without asking."""

    patterns: tuple[str, ...] = option(
        default=(), nargs="*", metavar="PATTERN", help="names or patterns of its tools (default: all)"
    )


@dataclass(frozen=True)
class DisableTools(_OfServer):
    """Take tools of a server away from the model."""

    patterns: tuple[str, ...] = option(
        default=(), nargs="+", metavar="PATTERN", help="names or patterns of its tools; * for all"
    )


@dataclass(frozen=True)
class EnableTools(_OfServer):
    """Give the model tools back that were disabled."""

    patterns: tuple[str, ...] = option(
        default=(), nargs="*", metavar="PATTERN", help="names or patterns of its tools (default: all)"
    )


@dataclass(frozen=True)
class ServerTools(_OfServers):
    """Show the tools of the servers, or of one."""


@dataclass(frozen=True)
class ServerLog(_OfServer):
    """Show what a server logged, and its last words on stderr."""


@dataclass(frozen=True)
class ListPrompts(_OfServers):
    """Show the prompts that the servers offer, or one of them."""


@dataclass(frozen=True)
class ListResources(_OfServers):
    """Show what can be attached to a cell as @SERVER:URI."""


@dataclass(frozen=True)
class UsePrompt(_OfSession):
    """Show a prompt of a server, filled in, or ask it."""

    name: str = option(default="", metavar="SERVER", help="its name here")
    prompt: str = option(default="", metavar="PROMPT", help="the name of the prompt")
    arguments: tuple[str, ...] = option(
        default=(), nargs="*", metavar="NAME=VALUE", help="what the prompt is to be filled in with"
    )
    ask: bool = switch("--ask", help="ask the session, instead of showing the prompt")


@dataclass(frozen=True)
class LoadServers:
    """Connect the servers of a configuration file."""

    file: str = option(default="", metavar="FILE", help="a .mcp.json, or another file of the mcpServers form")


SUBCOMMANDS: Mapping[str, Mapping[str, type[Any]]] = {
    "agent": {
        "status": Status,
        "history": ListHistory,
        "chat": OpenChat,
        "tools": ListTools,
        "models": Models,
        "cost": Cost,
        "reset": Reset,
        "undo": Undo,
        "sessions": ListSessions,
        "load": Load,
        "save": Save,
        "fork": Fork,
        "export": Export,
        "debug": Debug,
    },
    "mcp": {
        "list": ListServers,
        "get": GetServer,
        "add": AddServer,
        "load": LoadServers,
        "approve": ApproveServer,
        "restart": RestartServer,
        "remove": RemoveServer,
        "tools": ServerTools,
        "allow": AllowTools,
        "disable": DisableTools,
        "enable": EnableTools,
        "logs": ServerLog,
        "prompts": ListPrompts,
        "prompt": UsePrompt,
        "resources": ListResources,
    },
}
"""The subcommands of the line magics; the first one is meant where none is named."""

ABOUT = {
    "agent": "Show and change sessions. To ask the agent, write %%agent with the prompt below it.",
    "mcp": "Connect MCP servers, whose tools every session of the notebook may use.",
}
