"""Parsers for the lines of magics, each made from the parameters of a function or the fields of a dataclass."""

import argparse
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from inspect import cleandoc
from typing import Any, Literal, Never, cast, get_args, get_origin

from IPython.core.magic_arguments import MagicArgumentParser, MagicHelpFormatter

from agentmagic.display.printout import PrintedLine, PrintedRows, Printout
from agentmagic.errors import UsageError
from agentmagic.jupyter.magics.sources import Source
from agentmagic.text import did_you_mean

HELP_FLAGS = frozenset({"--help", "-h"})

_TABLES = (("Arguments", False), ("Options", True))
"""The tables of a help: the title, and whether the table has the arguments that begin with a dash."""


@dataclass(frozen=True)
class Arg:
    """Describes an argument of a magic: how it is written, explained, completed, converted and checked.

    An `Arg` annotates a parameter. `usage` has its flags, if any, and its placeholder: "-m, --model PROVIDER:MODEL".
    The parameter's type and default decide whether the argument is a switch, a number, a choice, a list of words, or
    optional. If a dataclass stands before the `Arg` in the annotation, the type is that of its field. `check` raises
    UsageError for an invalid value. With `rest`, the argument is all words that follow, unchanged. A `repeated` option
    can be written several times, and its values become a tuple.
    """

    usage: str
    help: str
    complete: Source | None = None
    parse: Callable[[str], Any] | None = None
    check: Callable[[Any], object] | None = None
    rest: bool = False
    repeated: bool = False

    def declare(self, parser: "Parser", parameter: inspect.Parameter) -> None:
        """Add the argument that this object and `parameter` describe to a parser."""
        flags = re.findall(r"(?<!\S)--?[a-z-]+", self.usage)
        placeholder = self.usage.removeprefix(", ".join(flags)).strip()
        kind = parameter.annotation.__origin__
        for owner in parameter.annotation.__metadata__[:-1]:
            kind = next(field.type for field in fields(owner) if field.name == parameter.name)
        optional = {} if parameter.default is parameter.empty else {"default": parameter.default}
        keywords: dict[str, Any] = {"help": self.help, **optional, **({"dest": parameter.name} if flags else {})}
        if kind is bool:
            parser.add_argument(*flags, **keywords, action="store_true")
            return
        if self.rest:
            keywords["nargs"] = argparse.REMAINDER
        elif self.repeated:
            keywords |= {"action": "append", "default": []}
        elif get_origin(kind) is tuple:
            keywords["nargs"] = "*" if optional and not flags else "+"
        elif optional and not flags:
            keywords["nargs"] = "?"
        kinds = (kind, *get_args(kind))  # for `X | None`, look at X too
        keywords["choices"] = next((get_args(one) for one in kinds if get_origin(one) is Literal), None)
        keywords["type"] = self.parse or next((one for one in kinds if one in (int, float)), None)
        parser.add_argument(*(flags or [parameter.name]), metavar=placeholder or None, **keywords)


@dataclass(frozen=True)
class Help:
    """The help: the result of parsing a line that asks for help."""

    printout: Printout

    @property
    def text(self) -> str:
        """The help as plain text."""
        return f"{self.printout.text}\n"


class _Formatter(MagicHelpFormatter):
    """Formats help like IPython's magics, but without the markup for IPython's documentation."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=100)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = "%") -> None:
        """Begin the help with the name of the magic."""
        super().add_usage(usage, actions, groups, prefix or "%")


class Parser(MagicArgumentParser):
    """A parser made from one function or dataclass, with error messages that say what to do next."""

    def __init__(self, prog: str, function: Callable[..., Any]) -> None:
        start = cast("Any", super()).__init__  # cast, because IPython's class has no annotations
        start(prog, description=function.__doc__, formatter_class=_Formatter)
        self.allow_abbrev = False  # an abbreviation could mean another option in a later version
        self.arguments: dict[str, Arg] = {}
        """The arguments, by the names of their parameters."""
        for parameter in inspect.signature(function).parameters.values():
            for arg in getattr(parameter.annotation, "__metadata__", ())[-1:]:  # `self` has no annotation
                self.arguments[parameter.name] = arg
                arg.declare(self, parameter)
        self.add_argument("--help", action="store_true", help="show this")

    def error(self, message: str) -> Never:
        """Raise UsageError with argparse's message and a hint on how to see the options."""
        raise UsageError(f"{message[:1].upper()}{message[1:]}. {self._hint}")

    def read(self, words: Sequence[str]) -> dict[str, Any] | Help:
        """Return the arguments in the words of a line, or Help if they ask for help.

        Raises UsageError for invalid arguments.
        """
        # With a `rest` argument, such as the command line of a server, later words can be options of that command,
        # so --help counts only as the first word.
        takes_rest = any(arg.rest for arg in self.arguments.values())
        if HELP_FLAGS.intersection(words[:1] if takes_rest else words):
            return Help(self.help())
        if takes_rest:
            words = self._options_first(words)
        values, unknown = self.parse_known_args(list(words))
        if unknown:
            raise UsageError(self._unknown(unknown[0]))
        arguments = {name: _frozen(value) for name, value in vars(values).items() if name != "help"}
        for name, arg in self.arguments.items():
            if arg.check is not None:
                arg.check(arguments[name])
        return arguments

    def help(self) -> Printout:
        """Return the help: how the line is written, what it does, its arguments and its options."""
        rows: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
        for arg in self.arguments.values():
            rows[arg.usage.startswith("-")].append((arg.usage, arg.help.replace("%%", "%")))
        tables = (
            (PrintedLine(title, "heading"), PrintedRows(rows[is_option], "names")) for title, is_option in _TABLES
        )
        groups = [
            [PrintedLine(" ".join(self.format_usage().split()), "code")],
            [PrintedLine(cleandoc((self.description or "").replace("%%", "%")))],
            *(table for table in tables if table[1].rows),
        ]
        return Printout(groups, plain=self.format_help().rstrip("\n"))

    def _options_first(self, words: Sequence[str]) -> list[str]:
        """Return the words, but with the options that stand before the second positional word moved to the front.

        Without this, argparse would take options after the first positional word as part of the `rest` argument.
        """
        options: list[str] = []
        free: list[str] = []
        remaining = list(words)
        while remaining and len(free) < 2:  # noqa: PLR2004  (the name and the first word of the rest)
            word = remaining.pop(0)
            if (action := self.flags.get(word.partition("=")[0])) is None:
                free += [word] if word != "--" else []
            else:
                takes = 0 if action.nargs == 0 or "=" in word else 1
                options += [word, *remaining[:takes]]
                del remaining[:takes]
        return [*options, *free, *remaining]

    @property
    def flags(self) -> dict[str, argparse.Action]:
        """The options by their flags, such as "-m" and "--model"."""
        return dict(self._option_string_actions)

    def free_words(self, words: Sequence[str]) -> list[str]:
        """Return the positional words: the words that are neither options nor values of options."""
        free: list[str] = []
        before: argparse.Action | None = None
        for word in words:
            if before is None and not word.startswith("-"):
                free.append(word)
            action = None if before is not None else self.flags.get(word)
            before = action if action is not None and action.nargs != 0 else None
        return free

    def awaits_value(self, words: Sequence[str]) -> bool:
        """Return whether the last word is an option with a value, so that the next word must be this value."""
        before: argparse.Action | None = None
        for word in words:
            before = None if before is not None else self.flags.get(word)
            before = before if before is not None and before.nargs != 0 else None
        return before is not None

    def positional(self, place: int) -> argparse.Action | None:
        """Return the positional argument at the index `place`, or None.

        If the last argument accepts many words, it is returned for every higher index too.
        """
        positionals = [action for action in self._actions if not action.option_strings]
        if place < len(positionals):
            return positionals[place]
        return positionals[-1] if positionals and positionals[-1].nargs in ("*", "+") else None

    def _unknown(self, word: str) -> str:
        flags = [flag for flag in self.flags if flag not in HELP_FLAGS]
        hint = did_you_mean(word.partition("=")[0], flags, cutoff=0.75)
        if word.startswith("-"):
            return f"%{self.prog} has no option {word!r}.{hint} {self._hint}"
        below = " The prompt stands below this line." if self.prog.startswith("%") else ""
        return f"%{self.prog} cannot place the word {word!r}.{below} {self._hint}"

    @property
    def _hint(self) -> str:
        # For a cell magic the hint is `%%agent?`, not `--help`: IPython does not run a cell magic without a body.
        ask = "?" if self.prog.startswith("%") else " --help"
        return f"%{self.prog}{ask} tells the options."


def _frozen(value: Any) -> Any:
    return tuple(cast("list[str]", value)) if isinstance(value, list) else value
