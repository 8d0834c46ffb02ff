"""Completes the lines of the magics, and the prompts below `%%agent`, when the user presses Tab."""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from IPython.core import completer
from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult

from agentmagic.jupyter.magics.options import LineMagic
from agentmagic.jupyter.magics.parser import Parser
from agentmagic.jupyter.magics.sources import CursorWord, resources, servers, sessions
from agentmagic.jupyter.notebook.namespace import Namespace

# Patterns for a word that begins with "{" or "@" and ends at the cursor. An "@" in an e-mail address does not match.
_BRACE = re.compile(r"\{(\w*)$")
_ATTRIBUTE = re.compile(r"\{[^{}]*?\b([^\W\d]\w*)\.(\w*)$")
_CELL = re.compile(r"(?<![\w@])@((out|In)\[\d*)$")
_SERVER = re.compile(r"(?<![\w@])@([\w.-]*)$")
_RESOURCE = re.compile(r"(?<![\w@])@([\w.-]+):([^\s\"'<>`]*)$")


def matcher(
    namespace: Namespace, cell_magic: Parser, line_magics: Sequence[LineMagic]
) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """Return the function that completes the lines of magics, to register in IPython's completer."""
    finder = _Candidates(namespace, cell_magic, {f"%{magic.name}": magic for magic in line_magics})

    @cast("Any", completer).context_matcher(identifier="agentmagic")  # pyright: ignore[reportUntypedFunctionDecorator]
    def complete(context: CompletionContext) -> SimpleMatcherResult:
        fragment, candidates = finder.at(context)
        completions = [SimpleCompletion(word, type="agentmagic") for word in candidates if word.startswith(fragment)]
        # "suppress" keeps IPython from adding Python names and files, which a magic's line does not accept.
        return {"completions": completions, "matched_fragment": fragment, "suppress": bool(completions)}

    return complete


class _Candidates:
    """Finds the candidates when the user presses Tab: the words that can stand at the cursor."""

    def __init__(self, namespace: Namespace, cell_magic: Parser, line_magics: Mapping[str, LineMagic]) -> None:
        self._namespace = namespace
        self._cell_magic = cell_magic
        self._line_magics = line_magics

    def at(self, context: CompletionContext) -> tuple[str, Sequence[str]]:
        """Return the typed part of the word at the cursor, and the candidates for the whole word."""
        until = context.text_until_cursor
        in_cell = context.full_text.split("\n", 1)[0].split()[:1] == [f"%{self._cell_magic.prog}"]
        if in_cell and context.cursor_line > 0:
            return self._in_prompt(until)
        # After a blank, the word at the cursor is a new, empty word.
        magic, *words = [*until.split(), *([""] if until[-1:].isspace() else [])] or [""]
        if not words:
            return "", ()
        if in_cell and words[-1].startswith("/") and not self._cell_magic.awaits_value(words[:-1]):
            return words[-1], [f"/{name}" for name in self._namespace.project_commands()]
        if in_cell:
            return words[-1], self._of_parser(self._cell_magic, words)
        line_magic = self._line_magics.get(magic)
        return (words[-1], self._of_line(line_magic, words)) if line_magic else ("", ())

    def _in_prompt(self, until: str) -> tuple[str, Sequence[str]]:
        """Return the typed part of a word in a prompt, and its candidates.

        After "{" these are variables, and after "@" the values and resources that a prompt can attach.
        """
        if brace := _BRACE.search(until):
            return brace[1], [name for name in tuple(self._namespace.variables) if not name.startswith("_")]
        if attribute := _ATTRIBUTE.search(until):
            value = self._namespace.variables.get(attribute[1])
            return attribute[2], [name for name in dir(value) if not name.startswith("_")] if value is not None else ()
        if cell := _CELL.search(until):
            return cell[1], self._cell_references(cell[2])
        if server := _SERVER.search(until):
            server_names = [f"{name}:" for name in servers(CursorWord(self._namespace, server[1]))]
            return server[1], [*server_names, *self._namespace.attachable_names(), "out[", "In[", "error"]
        if resource := _RESOURCE.search(until):
            return resource[2], resources(self._namespace, resource[1])
        return "", ()

    def _cell_references(self, name: str) -> Sequence[str]:
        """Return the cells that a prompt can name: `In[n]` for their code, or `out[n]` for those with a value."""
        cells: Any = self._namespace.variables.get("In" if name == "In" else "Out", {})
        return [f"{name}[{number}]" for number in (range(1, len(cells)) if name == "In" else cells)]

    def _of_line(self, magic: LineMagic, words: Sequence[str]) -> Sequence[str]:
        option, rest = magic.split(words)
        if len(option) == len(words):  # the cursor is in the session name after -s
            return sessions(CursorWord(self._namespace, words[-1]))
        if len(rest) == 1:
            return [*magic.commands, "--help"]
        return self._of_parser(magic.parser(rest[0]), rest[1:]) if rest[0] in magic.commands else ()

    def _of_parser(self, parser: Parser, line_words: Sequence[str]) -> Sequence[str]:
        flag, has_value, start = line_words[-1].partition("=")
        if has_value and (action := parser.flags.get(flag)) is not None and action.nargs != 0:
            return [f"{flag}={value}" for value in self._values(parser, action, start)]
        # If the option before the cursor takes a value, complete that value. A switch such as --new takes none.
        before = parser.flags.get(line_words[-2]) if len(line_words) > 1 else None
        if before is not None and before.nargs != 0:
            return self._values(parser, before, line_words[-1])
        words = parser.free_words(line_words[:-1])
        place = parser.positional(len(words))
        values = self._values(parser, place, line_words[-1], words) if place is not None else ()
        return [*(flag for flag in parser.flags if flag.startswith("--")), *values]

    def _values(self, parser: Parser, action: argparse.Action, start: str, before: Sequence[str] = ()) -> Sequence[str]:
        """Return the candidates for an argument's value; `before` are the positional words before the argument."""
        if action.choices:
            return [str(choice) for choice in action.choices]
        source = parser.arguments[action.dest].complete if action.dest in parser.arguments else None
        return source(CursorWord(self._namespace, start, before)) if source else ()
