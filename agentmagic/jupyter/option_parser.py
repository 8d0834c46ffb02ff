"""Parsers of magics: made from dataclasses, one field an option, on IPython's own argument parser."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Generic, Never, TypeVar, cast

from IPython.core.magic_arguments import MagicArgumentParser, MagicHelpFormatter
from IPython.utils.process import arg_split  # type: ignore[attr-defined]  (it comes with the system's own)

from agentmagic.errors import UsageError

C = TypeVar("C")


HELP = frozenset({"--help", "-h"})


@dataclass(frozen=True)
class Help:
    """The help that was asked for."""

    text: str


def option(*flags: str, default: Any = None, **argument: Any) -> Any:
    """Declare a field that is an option, or a positional argument where it has no flags."""
    return field(default=default, metadata={"flags": flags, "argument": argument})


def switch(*flags: str, **argument: Any) -> Any:
    """Declare a field that is an option without a value."""
    return option(*flags, default=False, action="store_true", **argument)


def words_of(line: str) -> list[str]:
    """Split a line as a shell does, quotes taken off.

    Raises UsageError for quotes that are not closed.
    """
    try:
        return arg_split(line, posix=os.name == "posix")
    except ValueError as error:
        message = f"{line.strip()!r} cannot be read: {error}. Close its quotes."
        raise UsageError(message) from None


class _Formatter(MagicHelpFormatter):
    """IPython's help of magics, without the markup of its manual."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=100)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = "%") -> None:
        """Begin with the magic itself."""
        super().add_usage(usage, actions, groups, prefix or "%")


class Parser(MagicArgumentParser, Generic[C]):
    """IPython's parser of magics, with errors that say what to do."""

    def __init__(self, prog: str, kind: type[C]) -> None:
        start = cast("Any", super()).__init__
        start(prog, description=kind.__doc__, formatter_class=_Formatter)
        self.allow_abbrev = False
        self.kind = kind
        self._fields = fields(cast("Any", kind))
        for declared in self._fields:
            _add(self, declared)
        self.add_argument("--help", action="store_true", help="show this")

    def error(self, message: str) -> Never:
        """Raise UsageError with argparse's words."""
        text = f"{message[:1].upper()}{message[1:]}. {self._hint}"
        raise UsageError(text)

    def read(self, words: Sequence[str]) -> C | Help:
        """Return the command that the words mean, or Help."""
        if HELP.intersection(words[:1] if self.takes_rest else words):
            return Help(self.format_help())
        values, unknown = self.parse_known_args(list(words))
        if unknown:
            raise UsageError(self._unknown(unknown[0]))
        return self.kind(**{one.name: _frozen(getattr(values, one.name)) for one in self._fields})

    @property
    def takes_rest(self) -> bool:
        """Whether everything behind the first words is taken as it is."""
        return any(action.nargs == argparse.REMAINDER for action in self._actions)

    @property
    def flags(self) -> dict[str, argparse.Action]:
        """The options by how they are written."""
        return dict(self._option_string_actions)

    @property
    def positionals(self) -> list[argparse.Action]:
        """The arguments that are known by their place."""
        return [action for action in self._actions if not action.option_strings]

    def free_words(self, words: Sequence[str]) -> list[str]:
        """Return the words that are no options, nor their values: those that stand for positional arguments."""
        free: list[str] = []
        before: argparse.Action | None = None
        for word in words:
            if before is None and not word.startswith("-"):
                free.append(word)
            action = None if before is not None else self.flags.get(word)
            before = action if action is not None and action.nargs != 0 else None
        return free

    def positional(self, place: int) -> argparse.Action | None:
        """Return the positional argument that stands at a place, counted from 0, or None where there is none."""
        known = self.positionals
        if place < len(known):
            return known[place]
        return known[-1] if known and known[-1].nargs in ("*", "+") else None

    def _unknown(self, word: str) -> str:
        flags = [flag for flag in self.flags if flag not in HELP]
        close = get_close_matches(word.partition("=")[0], flags, n=1, cutoff=0.75)
        hint = f" Did you mean {close[0]}?" if close else ""
        what = f"has no option {word!r}" if word.startswith("-") else f"cannot place the word {word!r}"
        return f"%{self.prog} {what}.{hint} {self._hint}"

    @property
    def _hint(self) -> str:
        """Say where the options are told; IPython runs no cell magic without a body, not for its help either."""
        ask = "?" if self.prog.startswith("%") else " --help"
        return f"%{self.prog}{ask} tells the options."


def _frozen(value: Any) -> Any:
    return tuple(cast("list[str]", value)) if isinstance(value, list) else value


def _add(parser: argparse.ArgumentParser, declared: Field[Any]) -> None:
    argument: dict[str, Any] = {"default": declared.default, **declared.metadata["argument"]}
    flags: tuple[str, ...] = declared.metadata["flags"]
    if argument.get("nargs") == argparse.REMAINDER:
        del argument["default"]
    parser.add_argument(*(flags or [declared.name]), **({"dest": declared.name} if flags else {}), **argument)
