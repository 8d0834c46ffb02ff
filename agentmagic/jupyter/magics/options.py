"""Reads the lines of the magics. A `%%agent` line becomes an `Ask`, a `%agent` or `%mcp` line a `ParsedLine`.

Parsers, help and completion are all made from signatures: each parameter of a command and each field of `Ask` is
annotated with an `Arg`, and the docstring is the help.
"""

import ast
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any

from IPython.utils.process import arg_split  # type: ignore[attr-defined]  (each platform has its own)
from IPython.utils.text import DollarFormatter

from agentmagic.agent import Agent
from agentmagic.display.printout import PrintedLine, PrintedRows, Printout, printout
from agentmagic.error_codes import explain, find_code
from agentmagic.errors import UsageError
from agentmagic.jupyter.magics.parser import HELP_FLAGS, Arg, Help, Parser
from agentmagic.jupyter.magics.sources import (
    functions,
    images,
    map_files,
    model_settings,
    models,
    sessions,
    tables,
    types,
    variables,
)
from agentmagic.jupyter.notebook.namespace import DEFAULT_SESSION, check_name, check_variable
from agentmagic.loop.turn_options import TurnSettings
from agentmagic.mapping.options import MapSettings
from agentmagic.prompt.braces import shell_names
from agentmagic.providers.base import SETTINGS, ModelSettings
from agentmagic.runtime.exits import contained_exits
from agentmagic.text import did_you_mean, join_names

SESSION_FLAGS = ("-s", "--session")

_QUOTED_OR_NOT = re.compile(r"""("[^"]*"|'[^']*')|((?:\{[^{}]*\}|[^"'])+)""")
"""Matches a quoted piece of a line, or a piece outside quotes. Quotes within braces are part of an expression."""

_COMMAND = re.compile(r"(?<!\S)/(\S+)")

Command = Callable[..., Any]
"""A subcommand: a method whose keyword-only parameters are annotated with an `Arg`.

It returns what is printed: a `Printout`, or a `str` if that is a message of a sentence or two. Only `ask` returns a
value instead, the answer, which is never a plain `str`.
"""


@dataclass(frozen=True)
class ParsedLine:
    """The parsed line of a magic: the name of the subcommand, `word`, and its arguments."""

    word: str
    arguments: Mapping[str, Any]


SessionName = Annotated[
    str, Arg("-s, --session NAME", "the session meant (default: agent)", complete=sessions, check=check_name)
]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def read_settings(words: Sequence[str]) -> ModelSettings:
    """Return the model settings in "NAME=VALUE" words. A VALUE that is not JSON is taken as plain text.

    Raises UsageError for an unknown setting or an invalid value.
    """
    settings = ModelSettings()
    for word in words:
        path, equals, text = word.partition("=")
        name, *inner = path.split(".")
        if not equals or name not in SETTINGS or bool(inner) != (name == "extra"):
            names = ", ".join(one for one in SETTINGS if one != "extra")
            hint = did_you_mean(name, SETTINGS) if name not in SETTINGS else ""
            raise UsageError(
                f"--set {word} is no setting.{hint} Write NAME=VALUE with one of {names}, or extra.FIELD=VALUE."
            )
        value: Any = text
        with suppress(ValueError, RecursionError):
            value = json.loads(text)
        for key in reversed(inner):
            value = {key: value}
        setting: dict[str, Any] = {name: value}
        settings |= ModelSettings(**setting)
    return settings


AgentOption = Annotated[Any, Agent]
TurnOption = Annotated[Any, TurnSettings]
MapOption = Annotated[Any, MapSettings]
"""An option of `%%agent` that is a field of this class, which defines its type and default; None: it is not written."""


@dataclass(frozen=True)
class Ask:
    """Ask the agent; the cell's body is the prompt.

    {expression} puts a value of the notebook into the prompt, @name attaches a variable or a file.
    The options apply to this turn only. %agent models NAME chooses a model for the session.
    If the line ends in /COMMAND and words, the prompt is .agents/commands/COMMAND.md of the project, with the words and
    the cell's body filled in.
    """

    name: Annotated[
        str,
        Arg(
            "NAME",
            "the session, a variable of the notebook; created if it does not exist (default: agent)",
            complete=sessions,
            check=check_name,
        ),
    ] = DEFAULT_SESSION
    model: Annotated[
        AgentOption, Arg("-m, --model PROVIDER:MODEL", "the model to ask; see %%agent models", complete=models)
    ] = None
    settings: Annotated[
        tuple[str, ...],
        Arg(
            "--set NAME=VALUE",
            "a setting of the model: temperature, max_output_tokens, reasoning, seed, or extra.NAME for a field of its "
            "provider; may be repeated",
            complete=model_settings,
            check=read_settings,
            repeated=True,
        ),
    ] = ()
    instructions: Annotated[
        AgentOption, Arg("--instructions TEXT", "instructions for the model, before the conversation")
    ] = None
    tools: Annotated[
        tuple[str, ...] | None,
        Arg(
            "--tools A,B",
            "offer only these tools: functions of the notebook, marked @tool or not, or tools of servers",
            complete=functions,
            parse=_names,
        ),
    ] = None
    image: Annotated[
        tuple[str, ...],
        Arg(
            "--image NAME_OR_FILE",
            "attach a figure or an image: a variable, or a file in the notebook's folder; may be repeated",
            complete=images,
            repeated=True,
        ),
    ] = ()
    no_tools: Annotated[bool, Arg("--no-tools", "offer no tools at all")] = False
    notebook: Annotated[
        bool, Arg("--notebook", "offer tools that look at this notebook, and run code in it if you allow that")
    ] = False
    web: Annotated[
        bool, Arg("--web", "let the model search the web and read pages, where its provider can; you are asked once")
    ] = False
    max_iterations: Annotated[AgentOption, Arg("--max-iterations N", "model requests at most")] = None
    timeout: Annotated[
        AgentOption, Arg("--timeout SECONDS", "time for the whole turn; waiting for you does not count")
    ] = None
    max_cost: Annotated[
        AgentOption,
        Arg("--max-cost DOLLARS", "the most that the turn, or the map, may cost; then no further request is sent"),
    ] = None
    permission: Annotated[AgentOption, Arg("--permission", "what happens to calls that no rule decides")] = None
    out: Annotated[
        str | None,
        Arg(
            "-o, --out NAME",
            "the variable for the answer; without an answer it keeps its value",
            complete=variables,
            check=check_variable,
        ),
    ] = None
    as_type: Annotated[
        str | None,
        Arg(
            "--as TYPE",
            "the type of the answer: a pydantic model, dataclass, TypedDict, list[...] or JSON Schema of the notebook; "
            "a list of records becomes a data frame",
            complete=types,
        ),
    ] = None
    rows: Annotated[
        str | None,
        Arg(
            "--map NAME",
            "ask each row of a data frame or a list, a variable of the notebook: {column} in the prompt is the row's "
            "value, and -o takes a data frame",
            complete=tables,
        ),
    ] = None
    to: Annotated[
        MapOption,
        Arg(
            "--to FILE",
            "with --map, the file for the answers: if the cell runs again, it continues, and repeats no answered row",
            complete=map_files,
        ),
    ] = None
    sample: Annotated[
        MapOption, Arg("--sample N", "with --map, ask only N rows, and estimate the cost of all rows")
    ] = None
    again: Annotated[
        MapOption,
        Arg(
            "--again",
            "with --map, ask all rows again after a change of the prompt, the model or another part of the request",
        ),
    ] = None
    batch: Annotated[
        MapOption,
        Arg("--batch", "with --map, send the rows in the provider's batches, at half the price and within a day"),
    ] = None
    concurrency: Annotated[
        MapOption,
        Arg(
            "--concurrency N",
            "with --map, the number of rows asked at the same time; by default the pace is found automatically",
        ),
    ] = None
    on_error: Annotated[
        MapOption, Arg("--on-error", "with --map, whether a failed row ends the map (default: keep)")
    ] = None
    plan: Annotated[
        TurnOption, Arg("--plan", "plan the request as tasks, which are carried out, judged and repaired")
    ] = None
    judge: Annotated[TurnOption, Arg("--judge", "which results of a plan the model judges (default: odd)")] = None
    confirm: Annotated[TurnOption, Arg("--confirm", "show the plan, to be changed or run")] = None
    step: Annotated[
        TurnOption,
        Arg("--step", "pause before each request and each tool call, which you let go on, edit, skip or stop"),
    ] = None
    large: Annotated[bool, Arg("--large", "show the turn in large type, for a projector")] = False
    drop: Annotated[TurnOption, Arg("--drop", "drop the unfinished plan of the last turn")] = None
    replay: Annotated[TurnOption, Arg("--replay", "how this cell uses the cassette of the notebook")] = None
    show: Annotated[bool, Arg("--show", "show what would be sent, with tokens by part, and call nothing")] = False
    new: Annotated[bool, Arg("--new", "forget the session's conversation first")] = False
    keep_going: Annotated[bool, Arg("--keep-going", "a turn that fails does not fail the cell")] = False
    bg: Annotated[bool, Arg("--bg", "return at once, and go on streaming into this cell's output")] = False
    command: str = ""
    arguments: str = ""

    def __post_init__(self) -> None:
        for flag, is_used in {"tools": self.tools is not None, "notebook": self.notebook, "web": self.web}.items():
            if self.no_tools and is_used:
                raise UsageError(f"--{flag} and --no-tools contradict each other. Keep the one that is meant.")
        if self.step and self.bg:
            raise UsageError(
                "--step needs you at the cell, and --bg ends the cell at once. Keep the one that is meant."
            )
        if (self.judge or self.confirm) and not self.plan:
            raise UsageError("--judge and --confirm are about a plan. Add --plan.")
        self._check_map()

    def _check_map(self) -> None:
        """Raise UsageError if an option needs a missing `--map`, or is not allowed together with `--map`."""
        of_agent, of_turn, of_map = map(self.options_for, (Agent, TurnSettings, MapSettings))
        flags = _flags(name for name in of_map if name not in of_agent and name not in of_turn)
        if flags and self.rows is None:
            raise UsageError(f"{join_names(flags)} {'is' if len(flags) == 1 else 'are'} about a map. Add --map NAME.")
        refused_flags = _flags(name for name in of_turn if name not in of_map)
        refused_flags += [word for word, is_used in (("--bg", self.bg), ("/COMMAND", self.command)) if is_used]
        if refused_flags and self.rows is not None:
            bg = " In code, session.start_map(...) returns at once." if self.bg else ""
            raise UsageError(f"A map asks its rows without {join_names(refused_flags)}. Leave that out, or --map.{bg}")

    def options_for(self, kind: type[Agent] | type[TurnSettings] | type[MapSettings]) -> dict[str, Any]:
        """Return the line's options that are fields of `kind`, by field name; options that are not set are left out."""
        names = {field.name for field in fields(kind)} - {"settings", "tools"}  # `Runner` handles these two
        if self.rows is not None and kind is Agent:
            names.discard("max_cost")  # with --map, the limit is for the whole map, not for each turn
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name in names}
        return {name: value for name, value in values.items() if value is not None}


def _flags(names: Iterable[str]) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in names]


@cache
def ask_parser(magic: str = "agent") -> "Parser":
    """Return the parser for the lines of `%%agent`; `magic` is the name under which `%%agent` is loaded."""
    return Parser(f"%{magic}", Ask)


def parse_ask(line: str, magic: str = "agent") -> Ask | Help:
    """Return the options in the line of a `%%agent` cell, or Help. Raises UsageError for an invalid line."""
    line, command, arguments = _split_command(line, ask_parser(magic))
    read = ask_parser(magic).read(_split_words(line))
    return read if isinstance(read, Help) else Ask(**read, command=command, arguments=arguments)


def _split_command(line: str, parser: Parser) -> tuple[str, str, str]:
    """Return the part of a line before `/COMMAND`, the command's name, and the unchanged text after the command."""
    for match in _COMMAND.finditer(line):
        before = line[: match.start()]
        with suppress(UsageError):  # raised for an open quote: then the slash is within quotes
            if not parser.awaits_value(_split_words(before)):
                return before, match[1], line[match.end() :].strip()
    return line, "", ""


class LineMagic:
    """A line magic with subcommands. The first subcommand is used if the line names none.

    `redirect` ends the error message about an unknown subcommand, and says what to type instead. `note` returns the
    last part of the help.
    """

    def __init__(
        self,
        name: str,
        about: str,
        commands: Mapping[str, Command],
        *,
        redirect: str = "",
        note: Callable[[], str] = str,
    ) -> None:
        self.name = name
        self.commands = commands
        self._about = about
        self._note = note
        self._redirect = redirect
        self._parsers: dict[str, Parser] = {}

    def parser(self, word: str) -> "Parser":
        """Return the parser of a subcommand. Parsers are cached, because making a parser takes a millisecond."""
        if word not in self._parsers:
            self._parsers[word] = Parser(f"{self.name} {word}", self.commands[word])
        return self._parsers[word]

    def read(self, line: str) -> ParsedLine | Help:
        """Return the subcommand that a line names, with its arguments, or Help. Raises UsageError if it is invalid."""
        words = _split_words(line)
        if len(words) == 1 and words[0].endswith("?"):
            words = ["help", *filter(None, [words[0].rstrip("?")])]
        if words[:1] == ["help"] or HELP_FLAGS.intersection(words[:1]):
            if words[1:2] and words[1] not in self.commands and (code := find_code(words[1])):
                return Help(printout(explain(code)))
            words = [*words[1:2], "--help"]
        if words == ["--help"]:
            return Help(self.overview())
        session_option, rest = self.split(words)
        word, *rest = rest or [next(iter(self.commands))]
        if word not in self.commands:
            raise UsageError(self._no_subcommand(word, followed=bool(rest)))
        read = self.parser(word).read([*session_option, *rest])
        return read if isinstance(read, Help) else ParsedLine(word, read)

    def carry_out(self, commands: object, line: str) -> Any:
        """Call the method of `commands` that a line names. Return its value, or the help if the line asks for it.

        Raises AgentMagicError if the line is invalid or the method fails.
        """
        read = self.read(line)
        return read.printout if isinstance(read, Help) else self.commands[read.word](commands, **read.arguments)

    def summary(self) -> list[tuple[str, str]]:
        """Return the names of the subcommands, each with the first line of its help."""
        return [(word, (command.__doc__ or "").partition("\n")[0]) for word, command in self.commands.items()]

    @staticmethod
    def split(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
        """Split off a `-s NAME` that stands before the subcommand. Return its words, if any, and the other words."""
        cut = 2 if words and words[0] in SESSION_FLAGS else 0
        return words[:cut], words[cut:]

    def overview(self) -> Printout:
        """Return the help of the magic, with its subcommands, one in each row."""
        first = next(iter(self.commands))
        return printout(
            [PrintedLine(f"%{self.name} [SUBCOMMAND] [--help]", "code")],
            self._about,
            [
                PrintedLine(f"Subcommands ({first} where none is named):", "heading"),
                PrintedRows(self.summary(), "names", indent=2, gap=1),
            ],
            self._note(),
        )

    def _no_subcommand(self, word: str, *, followed: bool) -> str:
        hint = did_you_mean(word, self.commands, cutoff=0.8 if followed else 0.6)
        # If the user typed a whole prompt, leave out the list of subcommands, so that the redirect is easy to see.
        if not hint and not (followed and self._redirect):
            hint = f" There are {', '.join(self.commands)}."
        return f"%{self.name} has no subcommand {word!r}.{hint}{self._redirect}"


def fill_line(line: str, names: Mapping[str, Any]) -> str:
    """Replace `{x}` and `$x` in a line by values, as IPython does for every magic, but not within quotes."""

    def fill(text: str) -> str:
        try:
            with contained_exits():
                return _LineFormatter(names).vformat(text, [], names)
        except Exception:  # noqa: BLE001  (as in IPython, a text that cannot be filled in stays as it is)
            return text

    return _QUOTED_OR_NOT.sub(lambda piece: piece[1] or fill(piece[2]), line)


class _LineFormatter(DollarFormatter):
    """Fills values into the line of a magic. Like prompts, it refuses to evaluate names such as `exit`."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def parse(self, fmt_string: str) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Yield the `{x}` and `$x` fields of a line. Raises UsageError for a field that must not be evaluated."""
        for literal, field, spec, conversion in super().parse(fmt_string):
            source = f"{field}:{spec}" if spec else field
            if source and shell_names(ast.parse(source.strip(), mode="eval"), self._names):
                raise UsageError(f"{source} is not evaluated")
            yield literal, field, spec, conversion


def _split_words(line: str) -> list[str]:
    """Split a line as a shell does, and remove the quotes. Raises UsageError for an open quote."""
    try:
        return arg_split(line, posix=os.name == "posix")  # on Windows a backslash is part of a path
    except ValueError as error:
        raise UsageError(f"{line.strip()!r} cannot be read: {error}. Close its quotes.") from None
