"""What is written behind the magics, as values: one dataclass a command, one field an option.

The parsers, the help and the completion are all made from these dataclasses.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from keyword import iskeyword
from typing import Any

from agentmagic.errors import UsageError
from agentmagic.kernel.parser import Help, Parser, option, switch, words_of
from agentmagic.settings import PERMISSIONS, Permission

DEFAULT_SESSION = "agent"
"""The variable that holds the session of `%%agent` without a NAME."""

SESSION_FLAGS = ("-s", "--session")


def _names(written: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in written.split(",") if name.strip())


@dataclass(frozen=True)
class Ask:
    """Ask the agent; the cell's body is the prompt. {expression} puts a value of the notebook into it.

    The options hold for this turn. %agent models NAME chooses a model for the session.
    """

    name: str = option(
        default=DEFAULT_SESSION,
        nargs="?",
        metavar="NAME",
        help="the session, a variable of the notebook; made where there is none (default: agent)",
    )
    model: str | None = option("-m", "--model", metavar="PROVIDER:MODEL", help="the model to ask; see %%agent models")
    instructions: str | None = option("--instructions", metavar="TEXT", help="what the model is told before everything")
    tools: tuple[str, ...] | None = option(
        "--tools",
        metavar="A,B",
        type=_names,
        help="offer only these tools: functions of the notebook, marked @tool or not, or tools of servers",
    )
    no_tools: bool = switch("--no-tools", help="offer no tools at all")
    max_iterations: int | None = option("--max-iterations", metavar="N", type=int, help="model requests at most")
    timeout: float | None = option(
        "--timeout", metavar="SECONDS", type=float, help="time for the whole turn; waiting for you does not count"
    )
    permission: Permission | None = option(  # noqa: RUF009  (it returns a field)
        "--permission", choices=PERMISSIONS, help="what becomes of calls that no rule speaks about"
    )
    new: bool = switch("--new", help="forget the session's conversation first")
    keep_going: bool = switch("--keep-going", help="a turn that fails does not fail the cell")
    bg: bool = switch("--bg", help="return at once, and go on streaming into this cell's output")

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.no_tools and self.tools is not None:
            message = "--tools and --no-tools contradict each other. Keep the one that is meant."
            raise UsageError(message)


@dataclass(frozen=True)
class _OfSession:
    session: str = option(
        *SESSION_FLAGS, default=DEFAULT_SESSION, metavar="NAME", help="the session meant (default: agent)"
    )

    def __post_init__(self) -> None:
        _check_name(self.session)


@dataclass(frozen=True)
class Status(_OfSession):
    """Show the session: model, turns, tokens, cost, servers."""


@dataclass(frozen=True)
class ListHistory(_OfSession):
    """Show the turns of the session."""


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
class RemoveServer:
    """Disconnect a server and forget it."""

    name: str = option(default="", metavar="SERVER", help="its name here")


@dataclass(frozen=True)
class AllowTools:
    """Let tools of a server run without asking."""

    name: str = option(default="", metavar="SERVER", help="its name here")
    patterns: tuple[str, ...] = option(
        default=(), nargs="*", metavar="PATTERN", help="names or patterns of its tools (default: all)"
    )


@dataclass(frozen=True)
class ServerTools:
    """Show the tools of the servers, or of one."""

    name: str | None = option(nargs="?", metavar="SERVER", help="its name here")


@dataclass(frozen=True)
class LoadServers:
    """Connect the servers of a configuration file."""

    file: str = option(default="", metavar="FILE", help="a .mcp.json, or another file of the mcpServers form")


SUBCOMMANDS: Mapping[str, Mapping[str, type[Any]]] = {
    "agent": {
        "status": Status,
        "history": ListHistory,
        "tools": ListTools,
        "models": Models,
        "cost": Cost,
        "reset": Reset,
        "undo": Undo,
    },
    "mcp": {
        "list": ListServers,
        "add": AddServer,
        "remove": RemoveServer,
        "allow": AllowTools,
        "tools": ServerTools,
        "load": LoadServers,
    },
}
"""The subcommands of the line magics; the first one is meant where none is named."""

_ABOUT = {
    "agent": "Show and change sessions. To ask the agent, write %%agent with the prompt below it.",
    "mcp": "Connect MCP servers, whose tools every session of the notebook may use.",
}


@cache
def ask_parser(magic: str = "agent") -> Parser[Ask]:
    """Return the parser of `%%agent`, loaded under the name `magic`."""
    return Parser(f"%{magic}", Ask)


@cache
def subparser(magic: str, table: str, word: str) -> Parser[Any]:
    """Return the parser of one subcommand: `%magic word`."""
    return Parser(f"{magic} {word}", SUBCOMMANDS[table][word])


def parse_ask(line: str, magic: str = "agent") -> Ask | Help:
    """Read the line of a `%%agent` cell.

    Raises UsageError in a sentence or two.
    """
    return ask_parser(magic).read(words_of(line))


def parse_line(line: str, table: str, magic: str | None = None) -> Any:
    """Read the line of `%agent` or `%mcp`, `table` saying which; returns the subcommand's dataclass, or Help.

    `-s NAME` may stand before the subcommand too. Raises UsageError in a sentence or two.
    """
    magic = magic or table
    words = words_of(line)
    if words[:1] == ["--help"]:
        return Help(overview(table, magic))
    moved, rest = (words[:2], words[2:]) if words and words[0] in SESSION_FLAGS else ([], words)
    word, *rest = rest or [next(iter(SUBCOMMANDS[table]))]
    if word not in SUBCOMMANDS[table]:
        raise UsageError(_no_subcommand(word, table, magic))
    return subparser(magic, table, word).read([*moved, *rest])


def overview(table: str, magic: str) -> str:
    """Return the help of a line magic: its subcommands, one a line."""
    first = next(iter(SUBCOMMANDS[table]))
    lines = [f"  {word:<10}{_about(kind)}" for word, kind in SUBCOMMANDS[table].items()]
    head = f"%{magic} [SUBCOMMAND] [--help]\n\n{_ABOUT[table]}\n\nSubcommands ({first} where none is named):\n"
    return head + "\n".join(lines) + "\n"


def help_page(magic: str = "agent") -> dict[str, str]:
    """Return every help text by what it is the help of, for the page of the magics."""
    page = {f"%%{magic}": ask_parser(magic).format_help()}
    for table in SUBCOMMANDS:
        page[f"%{table}"] = overview(table, table)
        page |= {f"%{table} {word}": subparser(table, table, word).format_help() for word in SUBCOMMANDS[table]}
    return page


def _check_name(name: str) -> None:
    if not name.isidentifier() or iskeyword(name):
        message = f"{name!r} cannot name a session, which is a variable: use letters, digits and _, no digit first."
        raise UsageError(message)


def _about(kind: type[Any]) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def _no_subcommand(word: str, table: str, magic: str) -> str:
    known = SUBCOMMANDS[table]
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]}?" if close else ""
    ask = f" To ask the agent, write %%{magic} and the prompt below it." if table == "agent" else ""
    return f"%{magic} has no subcommand {word!r}.{hint} There are {', '.join(known)}.{ask}"
