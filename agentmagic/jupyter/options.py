"""What is written behind the magics, as a value: `%%agent` here, the line magics in `subcommands`.

The parsers, the help and the completion are all made from these dataclasses.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from agentmagic.errors import UsageError
from agentmagic.jupyter.option_parser import HELP, Help, Parser, option, switch, words_of
from agentmagic.jupyter.subcommands import ABOUT, DEFAULT_SESSION, SESSION_FLAGS, SUBCOMMANDS, check_name
from agentmagic.settings import PERMISSIONS, Permission


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
    max_cost: float | None = option(
        "--max-cost", metavar="DOLLARS", type=float, help="what the turn may cost; no further request is sent beyond"
    )
    permission: Permission | None = option(  # noqa: RUF009  (it returns a field)
        "--permission", choices=PERMISSIONS, help="what becomes of calls that no rule speaks about"
    )
    new: bool = switch("--new", help="forget the session's conversation first")
    keep_going: bool = switch("--keep-going", help="a turn that fails does not fail the cell")
    bg: bool = switch("--bg", help="return at once, and go on streaming into this cell's output")

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.no_tools and self.tools is not None:
            message = "--tools and --no-tools contradict each other. Keep the one that is meant."
            raise UsageError(message)


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
    if HELP.intersection(words[:1]):
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
    head = f"%{magic} [SUBCOMMAND] [--help]\n\n{ABOUT[table]}\n\nSubcommands ({first} where none is named):\n"
    return head + "\n".join(lines) + "\n"


def help_page(magic: str = "agent") -> dict[str, str]:
    """Return every help text by what it is the help of, for the page of the magics."""
    page = {f"%%{magic}": ask_parser(magic).format_help()}
    for table in SUBCOMMANDS:
        page[f"%{table}"] = overview(table, table)
        page |= {f"%{table} {word}": subparser(table, table, word).format_help() for word in SUBCOMMANDS[table]}
    return page


def _about(kind: type[Any]) -> str:
    return (kind.__doc__ or "").splitlines()[0]


def _no_subcommand(word: str, table: str, magic: str) -> str:
    known = SUBCOMMANDS[table]
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    hint = f" Did you mean {close[0]}?" if close else ""
    if word == "help":
        hint = f" %{magic} --help tells the subcommands, and %{magic} {next(iter(known))} --help one of them."
    ask = f" To ask the agent, write %%{magic} and the prompt below it." if table == "agent" else ""
    return f"%{magic} has no subcommand {word!r}.{hint} There are {', '.join(known)}.{ask}"
