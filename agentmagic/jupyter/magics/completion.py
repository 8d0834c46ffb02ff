"""Completes the magics with Tab.

A source is a function that returns what a word may be; `options.Arg` names the source of each argument.
"""

import argparse
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from glob import escape, glob
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from IPython.core import completer
from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult

from agentmagic.errors import AgentMagicError
from agentmagic.jupyter.notebook.file import SUFFIX, notebook_of
from agentmagic.jupyter.notebook.namespace import Namespace
from agentmagic.providers.base import SETTINGS, Effort
from agentmagic.providers.registry import providers
from agentmagic.runtime.engine import engine
from agentmagic.session import Session
from agentmagic.tools.functions import is_tool
from agentmagic.values.pictures import is_picture

if TYPE_CHECKING:
    from agentmagic.jupyter.magics.options import LineMagic, Parser
    from agentmagic.tools.mcp import McpServers
    from agentmagic.tools.mcp.content import Prompt

T = TypeVar("T")

LONGEST_WAIT = 0.5
"""Seconds that a server has to list its prompts or resources; Tab must not seem to hang."""

_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")

# A brace or an @ that is still open at the cursor; an @ behind a word belongs to an e-mail address.
_BRACE = re.compile(r"\{(\w*)$")
_ATTRIBUTE = re.compile(r"\{[^{}]*?\b([^\W\d]\w*)\.(\w*)$")
_NUMBERED = re.compile(r"(?<![\w@])@((out|In)\[\d*)$")
_SERVER = re.compile(r"(?<![\w@])@([\w.-]*)$")
_RESOURCE = re.compile(r"(?<![\w@])@([\w.-]+):([^\s\"'<>`]*)$")


@dataclass(frozen=True, slots=True)
class CursorWord:
    """The word at the cursor: the part that is `typed`, and the positional words `before` it."""

    namespace: Namespace
    typed: str
    before: Sequence[str] = ()


Source = Callable[[CursorWord], Sequence[str]]


# -- sources -------------------------------------------------------------------------------------


def models(word: CursorWord) -> Sequence[str]:
    """Return the default model of each provider, and those of the server of the provider that is typed."""
    row = providers().get(word.typed.partition(":")[0])
    own = [f"{row.name}:{name}" for name in row.installed()] if row and row.installed and ":" in word.typed else []
    return [*(f"{row.name}:{row.default}" for row in providers().values()), *own]


def model_settings(word: CursorWord) -> Sequence[str]:
    """Return the settings of models, each with its equals sign, and the values that one may have."""
    if word.typed.startswith("reasoning="):
        return [f"reasoning={effort}" for effort in get_args(Effort)]
    return [f"{name}." if name == "extra" else f"{name}=" for name in SETTINGS]


def sessions(word: CursorWord) -> Sequence[str]:
    """Return the names of the notebook's sessions."""
    return list(word.namespace.sessions())


def functions(word: CursorWord) -> Sequence[str]:
    """Return the notebook's tools, each behind the names that the word already lists."""
    listed = word.typed[: word.typed.rfind(",") + 1]
    return [listed + name for name, value in tuple(word.namespace.variables.items()) if is_tool(value)]


def variables(word: CursorWord) -> Sequence[str]:
    """Return the variables of the notebook that hold values: no sessions, modules, functions and types."""
    known = tuple(word.namespace.variables.items())
    held = [name for name, value in known if not (callable(value) or isinstance(value, ModuleType | Session))]
    return [name for name in held if not name.startswith("_")]


def types(word: CursorWord) -> Sequence[str]:
    """Return the types of answers that the notebook has defined, each also behind `list[`."""
    known = tuple(word.namespace.variables.items())
    names = [name for name, value in known if not name.startswith("_") and _is_form(value)]
    return [*names, *(f"list[{name}]" for name in names), "str", "int", "float", "bool"]


def _is_form(value: object) -> bool:
    """Return whether a value is a type with fields, or a JSON Schema."""
    if isinstance(value, dict):
        return not {"type", "properties", "$ref", "anyOf"}.isdisjoint(cast("dict[Any, Any]", value))
    marks = ("model_json_schema", "__dataclass_fields__", "__required_keys__")
    return isinstance(value, type) and any(hasattr(cast("object", value), mark) for mark in marks)


def images(word: CursorWord) -> Sequence[str]:
    """Return the variables that hold a figure or an image, and the paths of images in the notebook's folder."""
    held = [name for name, value in tuple(word.namespace.variables.items()) if is_picture(value)]
    notebook = notebook_of(word.namespace.variables)
    folder = notebook.parent if notebook is not None else Path()
    paths = _paths(word.typed, _IMAGES, folder, hidden=False)  # hidden files are not attached
    return [*(name for name in held if not name.startswith("_")), *paths]


def conversations(word: CursorWord) -> Sequence[str]:
    """Return the names of the saved conversations, and the paths of their files."""
    folder = word.namespace.notebook.folder
    names = sorted(path.stem for path in folder.glob(f"*{SUFFIX}")) if folder is not None else ()
    return [*names, *_paths(word.typed, SUFFIX)]


def folders(word: CursorWord) -> Sequence[str]:
    """Return the folders in which a new file may be written."""
    return _paths(word.typed, None)


def json_files(word: CursorWord) -> Sequence[str]:
    """Return the paths of JSON files."""
    return _paths(word.typed, ".json")


def servers(word: CursorWord) -> Sequence[str]:
    """Return the names of the servers."""
    groups = word.namespace.server_groups()
    return list(dict.fromkeys(state.name for group in groups for state in group.servers))


def server_tools(word: CursorWord) -> Sequence[str]:
    """Return the tools of the server before the word, by the server's own names."""
    group = word.namespace.group_of(word.before[0])
    return group.get(word.before[0]).names if group else ()


def server_prompts(word: CursorWord) -> Sequence[str]:
    """Return the prompts of the server before the word."""
    return [prompt.name for prompt in _prompts(word)]


def prompt_arguments(word: CursorWord) -> Sequence[str]:
    """Return the arguments of the prompt before the word, each with its equals sign."""
    chosen = [prompt for prompt in _prompts(word) if prompt.name == word.before[1]]
    return [f"{argument.name}=" for prompt in chosen for argument in prompt.arguments]


def _prompts(word: CursorWord) -> "Sequence[Prompt]":
    server = word.before[0]
    return _listed(word.namespace, server, lambda group: group.prompts(server))


def _resources(namespace: Namespace, server: str) -> Sequence[str]:
    """Return the URIs of a server's resources; the URI of a template ends before its first placeholder."""
    return [one.uri.partition("{")[0] for one in _listed(namespace, server, lambda group: group.resources(server))]


def _listed(
    namespace: Namespace, server: str, ask: "Callable[[McpServers], Coroutine[Any, Any, list[T]]]"
) -> "list[T]":
    """Return what a connected server lists, or nothing if it fails: Tab connects no server and shows no error."""
    group = namespace.group_of(server)
    if group is None or group.get(server).state != "ready":
        return []
    answer = engine().submit(ask(group))
    try:
        return answer.result(LONGEST_WAIT)
    except (TimeoutError, AgentMagicError):
        answer.cancel()  # otherwise the request would go on
        return []


def _paths(
    typed: str, suffix: str | tuple[str, ...] | None, folder: Path = Path(), *, hidden: bool = True
) -> list[str]:
    """Return the folders, and the files with a suffix if one is given, whose paths begin as typed."""
    paths = glob(f"{escape(typed)}*", root_dir=folder, include_hidden=hidden)  # noqa: PTH207  (takes absolute patterns)
    named = [f"{path}/" if (folder / path).is_dir() else path for path in paths]
    return [path for path in named if path.endswith("/") or (suffix is not None and path.endswith(suffix))]


# -- the matcher ---------------------------------------------------------------------------------


def matcher(
    namespace: Namespace, cell_magic: "Parser", line_magics: "Sequence[LineMagic]"
) -> Callable[[CompletionContext], SimpleMatcherResult]:
    """Return the matcher of the magics for IPython's completer."""
    words = _Candidates(namespace, cell_magic, {f"%{magic.name}": magic for magic in line_magics})

    @cast("Any", completer).context_matcher(identifier="agentmagic")  # pyright: ignore[reportUntypedFunctionDecorator]
    def complete(context: CompletionContext) -> SimpleMatcherResult:
        fragment, found = words.at(context)
        completions = [SimpleCompletion(word, type="agentmagic") for word in found if word.startswith(fragment)]
        # Without "suppress", IPython adds Python names and files, which the line of a magic does not take.
        return {"completions": completions, "matched_fragment": fragment, "suppress": bool(completions)}

    return complete


class _Candidates:
    """Finds the words that may stand at the cursor."""

    def __init__(self, namespace: Namespace, cell_magic: "Parser", line_magics: "Mapping[str, LineMagic]") -> None:
        self._namespace = namespace
        self._cell_magic = cell_magic
        self._line_magics = line_magics

    def at(self, context: CompletionContext) -> tuple[str, Sequence[str]]:
        """Return the part of a word that is typed, and the words that it may become."""
        until = context.text_until_cursor
        in_cell = context.full_text.split("\n", 1)[0].split()[:1] == [f"%{self._cell_magic.prog}"]
        if in_cell and context.cursor_line > 0:
            return self._in_prompt(until)
        # A blank before the cursor begins a new, empty word.
        magic, *typed = [*until.split(), *([""] if until[-1:].isspace() else [])] or [""]
        if not typed:
            return "", ()
        if in_cell:
            return typed[-1], self._of_parser(self._cell_magic, typed)
        line_magic = self._line_magics.get(magic)
        return (typed[-1], self._of_line(line_magic, typed)) if line_magic else ("", ())

    def _in_prompt(self, until: str) -> tuple[str, Sequence[str]]:
        """Return what may stand in a prompt: an expression behind a brace, a value or a resource behind an @."""
        if brace := _BRACE.search(until):
            return brace[1], [name for name in tuple(self._namespace.variables) if not name.startswith("_")]
        if attribute := _ATTRIBUTE.search(until):
            value = self._namespace.variables.get(attribute[1])
            return attribute[2], [name for name in dir(value) if not name.startswith("_")] if value is not None else ()
        if numbered := _NUMBERED.search(until):
            return numbered[1], self._numbered(numbered[2])
        if server := _SERVER.search(until):
            found = [f"{name}:" for name in servers(CursorWord(self._namespace, server[1]))]
            return server[1], [*found, *self._namespace.attachable_names(), "out[", "In[", "error"]
        if resource := _RESOURCE.search(until):
            return resource[2], _resources(self._namespace, resource[1])
        return "", ()

    def _numbered(self, name: str) -> Sequence[str]:
        """Return the cells whose value, or whose code, can be attached."""
        held: Any = self._namespace.variables.get("In" if name == "In" else "Out", {})
        return [f"{name}[{number}]" for number in (range(1, len(held)) if name == "In" else held)]

    def _of_line(self, magic: "LineMagic", typed: Sequence[str]) -> Sequence[str]:
        moved, rest = magic.split(typed)
        if len(moved) == len(typed):  # the cursor is in the name behind -s
            return sessions(CursorWord(self._namespace, typed[-1]))
        if len(rest) == 1:
            return [*magic.commands, "--help"]
        return self._of_parser(magic.parser(rest[0]), rest[1:]) if rest[0] in magic.commands else ()

    def _of_parser(self, parser: "Parser", typed: Sequence[str]) -> Sequence[str]:
        flag, has_value, start = typed[-1].partition("=")
        if has_value and (action := parser.flags.get(flag)) is not None and action.nargs != 0:
            return [f"{flag}={value}" for value in self._values(parser, action, start)]
        # An option without a value, such as --new, has no effect on the word behind it.
        before = parser.flags.get(typed[-2]) if len(typed) > 1 else None
        if before is not None and before.nargs != 0:
            return self._values(parser, before, typed[-1])
        words = parser.free_words(typed[:-1])
        place = parser.positional(len(words))
        values = self._values(parser, place, typed[-1], words) if place is not None else ()
        return [*(flag for flag in parser.flags if flag.startswith("--")), *values]

    def _values(
        self, parser: "Parser", action: argparse.Action, typed: str, before: Sequence[str] = ()
    ) -> Sequence[str]:
        """Return the values that an argument may have behind the positional words `before`."""
        if action.choices:
            return [str(choice) for choice in action.choices]
        source = parser.declared[action.dest].complete if action.dest in parser.declared else None
        return source(CursorWord(self._namespace, typed, before)) if source else ()
