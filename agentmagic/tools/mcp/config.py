"""Which servers there are: from code, from a command line and from the `mcpServers` JSON of other hosts.

The JSON form is the one of `.mcp.json` (`mcpServers`) and `.vscode/mcp.json` (`servers`, `inputs`): one entry
per server, `{command, args, env, cwd}` or `{url, headers, type}`. Three keys are ours: `allow`, names or
patterns of tools that run without asking, `timeout`, the seconds a call may take, and `roots`, folders the
server is told to work in. Other keys are ignored. What a file names needs a person's leave to start.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from agentmagic.errors import ConfigError
from agentmagic.secrets import learn
from agentmagic.tools.mcp import names
from agentmagic.tools.mcp.entries import (
    Entry,
    Http,
    InProcess,
    Origin,
    Place,
    ServerConfig,
    Sse,
    Stdio,
    Transport,
    Unreadable,
    parse_entry,
)

__all__ = [
    "Entry",
    "Http",
    "InProcess",
    "Input",
    "Origin",
    "ServerConfig",
    "Sse",
    "Stdio",
    "Transport",
    "Unreadable",
    "parse",
    "read",
]

_TABLES = ("mcpServers", "servers")
_CORRECTION = 'It should read {"mcpServers": {"name": {"command": "...", "args": ["..."]}}}.'


@dataclass(frozen=True, slots=True)
class Input:
    """A value that a file of VS Code asks a person for; `options` are the only ones there are, if any."""

    id: str
    description: str = ""
    password: bool = False
    default: str | None = None
    options: tuple[str, ...] = ()


Ask = Callable[[Input], str]


def read(
    source: Entry | Sequence[Entry], *, workspace: Path | None = None, ask: Ask | None = None
) -> dict[str, ServerConfig]:
    """Read servers by name, from a JSON file, a table of entries, a list of them, or a single one.

    A string that ends in `.json`, and a `Path`, is a file. Entries without a name get one from their command
    or URL ("npx -y server-files" is "files"). `workspace` is what `${workspaceFolder}` and a relative `cwd`
    refer to: by default the folder of the file, else the current one. `ask` is asked once for each
    `${input:...}` of a file; without it their defaults stand. An entry of a file that cannot be read becomes an
    `Unreadable` server and leaves the others alone. Raises ConfigError for any other entry, and for a file without
    a table.
    """
    match source:
        case Path():
            return _read_file(source, workspace, ask)
        case str() if source.endswith(".json"):
            return _read_file(Path(source), workspace, ask)
        case Mapping() if (table := _table(cast("Mapping[str, Any]", source))) is not None:
            return _read_table(table, workspace or Path.cwd())
        case list() | tuple():
            return _read_list(cast("Sequence[Entry]", source), workspace, ask)
        case _:
            return {names.alias(source): parse(source, workspace=workspace)}


def parse(entry: Entry, *, workspace: Path | None = None) -> ServerConfig:
    """Read a single server: a command, a URL, an entry of `mcpServers`, or a server object.

    Raises ConfigError, which names a variable that is not set.
    """
    return parse_entry(entry, Place("the MCP server", workspace or Path.cwd()))


def _read_file(path: Path, workspace: Path | None, ask: Ask | None) -> dict[str, ServerConfig]:
    path = path.expanduser()
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}. Check the path, or write the file. {_CORRECTION}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{where}: this is not JSON ({error.msg}). Correct it there. {_CORRECTION}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON ({type(error).__name__}). {_CORRECTION}") from None
    top = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    table = _table(top) if top else None
    if table is None:
        raise ConfigError(f"{path} has no table of servers. {_CORRECTION}")
    path = path.absolute()
    folder = path.parent.parent if path.parent.name == ".vscode" else path.parent
    inputs = _Inputs(top.get("inputs"), ask)
    configs: dict[str, ServerConfig] = {}
    for name, entry in table.items():
        place = Place(f"the server {name!r} in {path}", (workspace or folder).absolute(), inputs.value)
        asked = top.get("inputs") if "${input:" in json.dumps(entry) else None
        digest = _digest(path, name, entry, *([asked] if asked else []))
        fit = _fit(name, {**table, **configs})
        configs[fit] = _entry(name, entry, place, Origin(path, digest))
    inputs.ask = None  # an entry that is read again, later and on the engine, asks no person
    return configs


def _fit(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name of an entry, or one that a server can be called if it is none."""
    try:
        names.check(name)
    except ConfigError:
        return names.unused("unnamed", taken)
    return name


def _entry(name: str, entry: Any, place: Place, origin: Origin) -> ServerConfig:
    """Read an entry of a file; one that cannot be read becomes a server that says why it cannot be used."""
    try:
        names.check(name)
        return replace(parse_entry(entry, place), origin=origin)
    except ConfigError as error:
        return ServerConfig(Unreadable(str(error), partial(_entry, name, entry, place, origin)), origin=origin)


def _digest(path: Path, name: str, *written: Any) -> str:
    """Hash an entry as it is written, so that any change of it shows, and no secret of the environment is kept.

    What it asks a person for is part of it: the file says there what stands in where nobody answers.
    """
    return hashlib.sha256(json.dumps([str(path), name, *written], sort_keys=True).encode()).hexdigest()


class _Inputs:
    """The values of the `inputs` of a file, each asked for once, when it is first needed."""

    def __init__(self, given: Any, ask: Ask | None) -> None:
        entries = cast("list[Any]", given) if isinstance(given, list) else []
        inputs = [_input(cast("Mapping[str, Any]", one)) for one in entries if isinstance(one, Mapping)]
        self._inputs = {one.id: one for one in inputs}
        self.ask = ask
        self._values: dict[str, str] = {}

    def value(self, name: str) -> str | None:
        """Return the value of an input, or None where there is none to be had."""
        one = self._inputs.get(name)
        if one is None:
            return None
        if name not in self._values:
            if self.ask is None:
                return one.default
            self._values[name] = self.ask(one) or one.default or ""
            if one.password:
                learn(name, self._values[name], certain=True)
        return self._values[name]


def _input(given: Mapping[str, Any]) -> Input:
    options = given.get("options")
    listed = cast("list[Any]", options) if isinstance(options, list) else []
    default = given.get("default")
    return Input(
        str(given.get("id", "")),
        str(given.get("description", "")),
        given.get("password") is True,
        default if isinstance(default, str) else None,
        tuple(one for one in listed if isinstance(one, str)),
    )


def _table(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the entries by name, or None where the mapping is itself an entry."""
    for key in _TABLES:
        if isinstance(data.get(key), Mapping):
            return data[key]
    is_entry = isinstance(data.get("command"), str) or isinstance(data.get("url"), str)
    return None if is_entry else data


def _read_table(table: Mapping[str, Any], workspace: Path) -> dict[str, ServerConfig]:
    return {name: parse_entry(entry, Place(f"the server {name!r}", workspace)) for name, entry in table.items()}


def _read_list(entries: Sequence[Entry], workspace: Path | None, ask: Ask | None) -> dict[str, ServerConfig]:
    configs: dict[str, ServerConfig] = {}
    for entry in entries:
        for name, config in read(entry, workspace=workspace, ask=ask).items():
            configs[names.unused(name, configs)] = config
    return configs
