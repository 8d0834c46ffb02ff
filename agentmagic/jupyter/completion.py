"""Tab behind the magics: options, subcommands, sessions, models, servers and variables, from the same parsers."""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from glob import escape, glob
from pathlib import Path
from typing import Any, cast

from IPython.core import completer
from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult

from agentmagic.jupyter.namespace import Namespace
from agentmagic.jupyter.notebook_file import SUFFIX, folder_of
from agentmagic.jupyter.offered import Offered
from agentmagic.jupyter.option_parser import Parser
from agentmagic.jupyter.options import ask_parser, subparser
from agentmagic.jupyter.subcommands import SESSION_FLAGS, SUBCOMMANDS
from agentmagic.providers.registry import providers
from agentmagic.tools.functions import is_tool

_matches: Any = cast("Any", completer).context_matcher
_BRACE = re.compile(r"\{(\w*)$")
_SERVER = re.compile(r"(?<![\w@])@([\w.-]*)$")
_RESOURCE = re.compile(r"(?<![\w@])@([\w.-]+):([^\s\"'<>`]*)$")


def matcher(magic: str, namespace: Namespace) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """Return the matcher of `%%magic`, `%magic` and `%mcp` for IPython's completer."""
    words = _Candidates(magic, namespace)

    @_matches(identifier="agentmagic")
    def complete(context: CompletionContext) -> SimpleMatcherResult:
        fragment, found = words.at(context)
        completions = [SimpleCompletion(word, type="agentmagic") for word in found if word.startswith(fragment)]
        return {"completions": completions, "matched_fragment": fragment, "suppress": bool(completions)}

    return complete


class _Candidates:
    """The words that may stand where the cursor is."""

    def __init__(self, magic: str, namespace: Namespace) -> None:
        self._magic = magic
        self._namespace = namespace
        self._offered = Offered(namespace)

    def at(self, context: CompletionContext) -> tuple[str, Sequence[str]]:
        """Return what was typed of a word so far, and the words it may become."""
        first_line = context.full_text.split("\n", 1)[0]
        until = context.text_until_cursor
        in_cell = first_line.split()[:1] == [f"%%{self._magic}"]
        if in_cell and context.cursor_line > 0:
            return self._in_prompt(until)
        typed = until.split()[1:] + ([""] if until[-1:].isspace() else [])
        if not typed:
            return "", ()
        fragment = typed[-1]
        if in_cell:
            return fragment, self._of_parser(ask_parser(self._magic), typed)
        table = {f"%{self._magic}": "agent", "%mcp": "mcp"}.get(until.split()[0])
        return (fragment, self._of_line(table, typed)) if table else ("", ())

    def _in_prompt(self, until: str) -> tuple[str, Sequence[str]]:
        """Return what may stand in a prompt: a variable behind a brace, a server behind an @."""
        if brace := _BRACE.search(until):
            return brace[1], self._variables()
        if server := _SERVER.search(until):
            return server[1], [f"{name}:" for name in self._offered.servers()]
        if resource := _RESOURCE.search(until):
            return resource[2], self._offered.resources(resource[1])
        return "", ()

    def _of_line(self, table: str, typed: Sequence[str]) -> Sequence[str]:
        if typed[0] in SESSION_FLAGS and table == "agent":
            if len(typed) == 2:  # noqa: PLR2004  (the flag, and the name that is being typed)
                return list(self._namespace.sessions())
            typed = typed[2:]
        if len(typed) == 1:
            return [*SUBCOMMANDS[table], "--help"]
        if typed[0] not in SUBCOMMANDS[table]:
            return ()
        magic = self._magic if table == "agent" else table
        return self._of_parser(subparser(magic, table, typed[0]), typed[1:])

    def _of_parser(self, parser: Parser[Any], typed: Sequence[str]) -> Sequence[str]:
        flags: Mapping[str, argparse.Action] = parser.flags
        flag, has_value, _ = typed[-1].partition("=")
        if has_value and (action := flags.get(flag)) is not None and action.nargs != 0:
            return [f"{flag}={value}" for value in self._values(action, typed[-1])]
        before = flags.get(typed[-2]) if len(typed) > 1 else None
        if before is not None and before.nargs != 0:
            return self._values(before, typed[-1])
        words = parser.free_words(typed[:-1])
        place = parser.positional(len(words))
        values = self._values(place, typed[-1], words) if place is not None else ()
        return [*(flag for flag in flags if flag.startswith("--")), *values]

    def _values(  # noqa: PLR0911  (one arm for each kind)
        self, action: argparse.Action, typed: str, before: Sequence[str] = ()
    ) -> Sequence[str]:
        """Return the values an argument may have, of which a part is typed, behind the arguments `before`."""
        if action.choices:
            return [str(choice) for choice in action.choices]
        match action.metavar:
            case "PROVIDER:MODEL":
                return [f"{row.name}:{row.default}" for row in providers().values()]
            case "A,B":
                chosen = typed[typed.rfind("=") + 1 : typed.rfind(",") + 1]
                return [chosen + name for name, value in tuple(self._namespace.variables.items()) if is_tool(value)]
            case "FILE":
                return _paths(typed, ".json" if action.dest == "file" else None)
            case "NAME | FILE":
                return [*self._conversations(), *_paths(typed, SUFFIX)]
            case "SERVER":
                return self._offered.servers()
            case "NAME":
                return list(self._namespace.sessions())
            case kind:
                return self._offered.words(str(kind), before)

    def _conversations(self) -> Sequence[str]:
        folder = folder_of(self._namespace.variables)
        return sorted(path.stem for path in folder.glob(f"*{SUFFIX}")) if folder is not None else ()

    def _variables(self) -> Sequence[str]:
        return [name for name in tuple(self._namespace.variables) if not name.startswith("_")]


def _paths(typed: str, suffix: str | None) -> list[str]:
    """Return the folders whose paths begin so, and the files of a suffix if one is given; hidden ones too."""
    paths = glob(f"{escape(typed)}*", include_hidden=True)  # noqa: PTH207  (the path of a pattern that is typed may be absolute or not)
    named = [f"{path}/" if Path(path).is_dir() else path for path in paths]
    return [path for path in named if path.endswith("/") or (suffix is not None and path.endswith(suffix))]
