"""Sources of completions: each function returns the candidates for an argument of a magic when the user presses Tab.

The function for an argument is the field `complete` of the argument's `Arg` (in the module `parser`).
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from glob import escape, glob
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from agentmagic.acp.agents import KNOWN
from agentmagic.classroom import notebook_of
from agentmagic.errors import AgentMagicError
from agentmagic.jupyter.notebook.file import SUFFIX
from agentmagic.jupyter.notebook.namespace import Namespace
from agentmagic.providers.base import SETTINGS, Effort
from agentmagic.providers.registry import providers
from agentmagic.runtime.engine import engine
from agentmagic.session import Session
from agentmagic.tools.functions import is_tool
from agentmagic.values.frames import is_frame
from agentmagic.values.pictures import is_picture

if TYPE_CHECKING:
    from agentmagic.tools.mcp import McpServers
    from agentmagic.tools.mcp.content import Prompt

T = TypeVar("T")

LONGEST_WAIT = 0.5
"""Seconds to wait for a server's list of prompts or resources, so that Tab does not seem to hang."""

_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


@dataclass(frozen=True, slots=True)
class CursorWord:
    """The word to complete: its part before the cursor, and the positional words `before` it in the line."""

    namespace: Namespace
    start: str
    before: Sequence[str] = ()


Source = Callable[[CursorWord], Sequence[str]]


def models(word: CursorWord) -> Sequence[str]:
    """Return each provider's default model, the installed models of the typed provider, and known agent programs."""
    row = providers().get(word.start.partition(":")[0])
    own = [f"{row.name}:{name}" for name in row.installed()] if row and row.installed and ":" in word.start else []
    return [
        *(f"{row.name}:{row.default}" for row in providers().values()),
        *own,
        *(row.model for row in KNOWN.values()),
    ]


def model_settings(word: CursorWord) -> Sequence[str]:
    """Return the names of model settings, each with "="; after "reasoning=", the values of this setting."""
    if word.start.startswith("reasoning="):
        return [f"reasoning={effort}" for effort in get_args(Effort)]
    return [f"{name}." if name == "extra" else f"{name}=" for name in SETTINGS]


def sessions(word: CursorWord) -> Sequence[str]:
    """Return the names of the notebook's sessions."""
    return list(word.namespace.sessions())


def functions(word: CursorWord) -> Sequence[str]:
    """Return the notebook's tools. In a list of names such as "a,b", complete the name after the last comma."""
    prefix = word.start[: word.start.rfind(",") + 1]
    return [prefix + name for name, value in tuple(word.namespace.variables.items()) if is_tool(value)]


def variables(word: CursorWord) -> Sequence[str]:
    """Return the variables of the notebook that have data as values: not sessions, modules, functions or types."""
    items = tuple(word.namespace.variables.items())
    names = [name for name, value in items if not (callable(value) or isinstance(value, ModuleType | Session))]
    return [name for name in names if not name.startswith("_")]


def tables(word: CursorWord) -> Sequence[str]:
    """Return the variables of the notebook that have rows: data frames, lists and tuples."""
    items = tuple(word.namespace.variables.items())
    names = [name for name, value in items if isinstance(value, list | tuple) or is_frame(value)]
    return [name for name in names if not name.startswith("_") and name != "In"]


def map_files(word: CursorWord) -> Sequence[str]:
    """Return the paths of files in which the answers of a map may be saved."""
    return _paths(word.start, ".jsonl")


def types(word: CursorWord) -> Sequence[str]:
    """Return types that an answer can have: the notebook's types, each also as `list[NAME]`, and builtin types."""
    items = tuple(word.namespace.variables.items())
    names = [name for name, value in items if not name.startswith("_") and _is_form(value)]
    return [*names, *(f"list[{name}]" for name in names), "str", "int", "float", "bool"]


def _is_form(value: object) -> bool:
    """Return whether a value describes an answer: it is a type with fields, or a JSON Schema."""
    if isinstance(value, dict):
        return not {"type", "properties", "$ref", "anyOf"}.isdisjoint(cast("dict[Any, Any]", value))
    marks = ("model_json_schema", "__dataclass_fields__", "__required_keys__")
    return isinstance(value, type) and any(hasattr(cast("object", value), mark) for mark in marks)


def images(word: CursorWord) -> Sequence[str]:
    """Return the variables that have a figure or an image, and the paths of images in the notebook's folder."""
    names = [name for name, value in tuple(word.namespace.variables.items()) if is_picture(value)]
    notebook = notebook_of(word.namespace.variables)
    folder = notebook.parent if notebook is not None else Path()
    paths = _paths(word.start, _IMAGES, folder, hidden=False)  # prompts refuse to attach hidden files
    return [*(name for name in names if not name.startswith("_")), *paths]


def conversations(word: CursorWord) -> Sequence[str]:
    """Return the names of the saved conversations, and the paths of their files."""
    folder = word.namespace.notebook.folder
    names = sorted(path.stem for path in folder.glob(f"*{SUFFIX}")) if folder is not None else ()
    return [*names, *_paths(word.start, SUFFIX)]


def folders(word: CursorWord) -> Sequence[str]:
    """Return the folders whose paths begin with the word, to complete the path of a new file."""
    return _paths(word.start, None)


def json_files(word: CursorWord) -> Sequence[str]:
    """Return the paths of JSON files."""
    return _paths(word.start, ".json")


def servers(word: CursorWord) -> Sequence[str]:
    """Return the names of the MCP servers."""
    groups = word.namespace.server_groups()
    return list(dict.fromkeys(state.name for group in groups for state in group.servers))


def server_tools(word: CursorWord) -> Sequence[str]:
    """Return the names of the tools of the MCP server that the line names before the word."""
    group = word.namespace.group_of(word.before[0])
    return group.get(word.before[0]).names if group else ()


def server_prompts(word: CursorWord) -> Sequence[str]:
    """Return the names of the prompts of the MCP server that the line names before the word."""
    return [prompt.name for prompt in _prompts(word)]


def prompt_arguments(word: CursorWord) -> Sequence[str]:
    """Return the arguments of the MCP prompt that the line names before the word, each with "="."""
    prompts = [prompt for prompt in _prompts(word) if prompt.name == word.before[1]]
    return [f"{argument.name}=" for prompt in prompts for argument in prompt.arguments]


def _prompts(word: CursorWord) -> "Sequence[Prompt]":
    server = word.before[0]
    return _entries(word.namespace, server, lambda group: group.prompts(server))


def resources(namespace: Namespace, server: str) -> Sequence[str]:
    """Return the URIs of an MCP server's resources; a URI template is cut before its first placeholder."""
    return [one.uri.partition("{")[0] for one in _entries(namespace, server, lambda group: group.resources(server))]


def _entries(
    namespace: Namespace, server: str, ask: "Callable[[McpServers], Coroutine[Any, Any, list[T]]]"
) -> "list[T]":
    """Return the prompts or resources that `ask` gets from a server; [] if the server is not connected or fails.

    Completion must not connect a server or show an error.
    """
    group = namespace.group_of(server)
    if group is None or group.get(server).state != "ready":
        return []
    answer = engine().submit(ask(group))
    try:
        return answer.result(LONGEST_WAIT)
    except (TimeoutError, AgentMagicError):
        answer.cancel()  # otherwise the request to the server would continue
        return []


def _paths(
    start: str, suffix: str | tuple[str, ...] | None, folder: Path = Path(), *, hidden: bool = True
) -> list[str]:
    """Return the folders, and the files with one of the suffixes, whose paths begin with `start`."""
    paths = glob(f"{escape(start)}*", root_dir=folder, include_hidden=hidden)  # noqa: PTH207  (takes absolute patterns)
    names = [f"{path}/" if (folder / path).is_dir() else path for path in paths]
    return [path for path in names if path.endswith("/") or (suffix is not None and path.endswith(suffix))]
