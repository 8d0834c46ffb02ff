"""Which servers there are: from code, from a command line and from the `mcpServers` JSON of other hosts.

The JSON form is the one of `.mcp.json` (`mcpServers`) and `.vscode/mcp.json` (`servers`): one entry per
server, `{command, args, env, cwd}` or `{url, headers, type}`. Two keys are ours: `allow`, names or patterns
of tools that run without asking, and `timeout`, the seconds a call may take. Other keys are ignored.
"""

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, cast

from agentmagic.errors import ConfigError
from agentmagic.redact import remember
from agentmagic.tools.base import TIMEOUT
from agentmagic.tools.mcp import names

Entry = str | Mapping[str, Any] | object
"""One server: a command, a URL, an entry of `mcpServers`, or a server object of the mcp library."""

CONNECT_TIMEOUT = 20.0
"""Seconds a server may take from its start to its answer."""

DOWNLOAD_TIMEOUT = 60.0
"""The same for the runners of `_DOWNLOADERS`, which fetch the server first."""

_DOWNLOADERS = frozenset({"npx", "uvx", "bunx", "pnpx", "pipx", "docker", "podman"})
_TABLES = ("mcpServers", "servers")
_HTTP_TYPES = frozenset({"", "http", "streamable-http", "streamableHttp"})
_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
_SECRET = re.compile(r"key|token|secret|passw|credential|authoriz|cookie", re.IGNORECASE)
_CORRECTION = 'It should read {"mcpServers": {"name": {"command": "...", "args": ["..."]}}}.'


@dataclass(frozen=True, slots=True)
class Stdio:
    """A program that speaks MCP on its standard input and output.

    It sees a few variables of the environment (HOME, PATH, ...) and those of `env`, no others.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: Path | None = None


@dataclass(frozen=True, slots=True)
class Http:
    """A server that speaks streamable HTTP at a URL."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class InProcess:
    """A server object of this process, or anything else that the mcp library's `Client` takes."""

    server: Any


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How to reach one server and how far to trust it.

    `allow` holds names or `fnmatch` patterns of tools that run without asking; `timeout` is the seconds a
    call may take, `connect_timeout` those until the server has answered for the first time.
    """

    transport: Stdio | Http | InProcess
    allow: tuple[str, ...] = ()
    timeout: float = TIMEOUT
    connect_timeout: float = CONNECT_TIMEOUT


def read(source: Entry | Sequence[Entry], *, workspace: Path | None = None) -> dict[str, ServerConfig]:
    """Read servers by name, from a JSON file, a table of entries, a list of them, or a single one.

    A string that ends in `.json`, and a `Path`, is a file. Entries without a name get one from their command
    or URL ("npx -y server-files" is "files"). `workspace` is what `${workspaceFolder}` and a relative `cwd`
    refer to: by default the folder of the file, else the current one. Raises ConfigError.
    """
    match source:
        case Path():
            return _read_file(source, workspace)
        case str() if source.endswith(".json"):
            return _read_file(Path(source), workspace)
        case Mapping() if (table := _table(cast("Mapping[str, Any]", source))) is not None:
            return _read_table(table, workspace or Path.cwd(), "")
        case list() | tuple():
            return _read_list(cast("Sequence[Entry]", source), workspace)
        case _:
            return {names.alias(source): parse(source, workspace=workspace)}


def parse(entry: Entry, *, workspace: Path | None = None) -> ServerConfig:
    """Read a single server: a command, a URL, an entry of `mcpServers`, or a server object.

    Raises ConfigError, which names a variable that is not set.
    """
    return _parse(entry, _Place("the MCP server", workspace or Path.cwd()))


def _read_file(path: Path, workspace: Path | None) -> dict[str, ServerConfig]:
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
    table = _table(cast("dict[str, Any]", data)) if isinstance(data, dict) else None
    if table is None:
        raise ConfigError(f"{path} has no table of servers. {_CORRECTION}")
    folder = path.parent.parent if path.parent.name == ".vscode" else path.parent
    return _read_table(table, (workspace or folder).absolute(), f" in {path}")


def _table(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the entries by name, or None where the mapping is itself an entry."""
    for key in _TABLES:
        if isinstance(data.get(key), Mapping):
            return data[key]
    is_entry = isinstance(data.get("command"), str) or isinstance(data.get("url"), str)
    return None if is_entry else data


def _read_table(table: Mapping[str, Any], workspace: Path, origin: str) -> dict[str, ServerConfig]:
    return {name: _parse(entry, _Place(f"the server {name!r}{origin}", workspace)) for name, entry in table.items()}


def _read_list(entries: Sequence[Entry], workspace: Path | None) -> dict[str, ServerConfig]:
    configs: dict[str, ServerConfig] = {}
    for entry in entries:
        for name, config in read(entry, workspace=workspace).items():
            configs[names.unused(name, configs)] = config
    return configs


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an entry stands, for messages and for the placeholders in it."""

    where: str
    workspace: Path

    def wrong(self, problem: str) -> ConfigError:
        return ConfigError(f"In {self.where}, {problem}")

    def fill(self, text: str) -> str:
        """Put values in the place of `${...}`."""
        return _PLACEHOLDER.sub(lambda match: self._value(match[1]), text)

    def _value(self, placeholder: str) -> str:
        if placeholder == "workspaceFolder":
            return str(self.workspace)
        if placeholder.startswith("input:"):
            raise self.wrong(f"${{{placeholder}}} asks for input, which only VS Code can. Use a variable: ${{NAME}}.")
        name, has_default, default = placeholder.removeprefix("env:").partition(":-")
        value = os.environ.get(name)
        if has_default:
            value = value or default
        if value is None:
            raise self.wrong(
                f"${{{name}}} is used, but the variable {name} is not set. Set it, or write ${{{name}:-default}}."
            )
        _keep_secret(name, value)
        return value

    def text(self, entry: Mapping[str, Any], key: str) -> str:
        value = entry.get(key, "")
        if not isinstance(value, str):
            raise self.wrong(f'"{key}" should be a text, not {value!r}.')
        return self.fill(value)

    def texts(self, entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = entry.get(key) or ()
        if isinstance(value, list | tuple):
            items = cast("Sequence[object]", value)
            if all(isinstance(item, str | int | float) for item in items):
                return tuple(self.fill(str(item)) for item in items)
        raise self.wrong(f'"{key}" should be a list of texts: ["...", "..."].')

    def pairs(self, entry: Mapping[str, Any], key: str) -> dict[str, str]:
        value: object = entry.get(key) or {}
        if isinstance(value, Mapping):
            items = cast("Mapping[object, object]", value)
            if all(isinstance(item, str | int | float) for item in items.values()):
                return {str(name): self._pair(str(name), str(item)) for name, item in items.items()}
        raise self.wrong(f'"{key}" should hold texts by name: {{"NAME": "value"}}.')

    def _pair(self, name: str, value: str) -> str:
        filled = self.fill(value)
        if set(filled) & set("\r\n\0"):
            raise self.wrong(f"the value of {name} has a line break or a zero character in it. Remove it.")
        _keep_secret(name, filled)
        return filled

    def seconds(self, entry: Mapping[str, Any], key: str, default: float) -> float:
        value = entry.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self.wrong(f'"{key}" should be a number of seconds above 0, not {value!r}.')
        return float(value)


def _keep_secret(name: str, value: str) -> None:
    if _SECRET.search(name):
        remember(value)
        remember(value.rpartition(" ")[2])  # "Bearer ..." is the scheme and the secret


def _parse(entry: Entry, place: _Place) -> ServerConfig:
    match entry:
        case str() if entry.strip().lower().startswith(("http://", "https://")):
            return ServerConfig(_http({"url": entry.strip()}, place))
        case str():
            return _with_patience(_command_line(entry, place))
        case Mapping():
            return _parse_mapping(cast("Mapping[str, Any]", entry), place)
        case _:
            return _with_patience(_from_object(entry, place))


def _parse_mapping(entry: Mapping[str, Any], place: _Place) -> ServerConfig:
    if "command" in entry and "url" in entry:
        raise place.wrong('there are both "command" and "url". Keep the one that is meant.')
    if "command" in entry:
        transport = _stdio(entry, place)
    elif "url" in entry:
        transport = _http(entry, place)
    else:
        raise place.wrong(
            'there is neither "command" nor "url". Write {"command": "...", "args": [...]} or {"url": "..."}.'
        )
    return _with_patience(transport, place.texts(entry, "allow"), place.seconds(entry, "timeout", TIMEOUT))


def _with_patience(
    transport: Stdio | Http | InProcess, allow: tuple[str, ...] = (), timeout: float = TIMEOUT
) -> ServerConfig:
    downloads = isinstance(transport, Stdio) and PurePath(transport.command).stem in _DOWNLOADERS
    return ServerConfig(transport, allow, timeout, DOWNLOAD_TIMEOUT if downloads else CONNECT_TIMEOUT)


def _command_line(line: str, place: _Place) -> Stdio:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise place.wrong(f"the command {line!r} cannot be read ({error}). Close its quotes.") from None
    if not words:
        raise place.wrong("the command is empty. Write it as in a terminal, or give a URL.")
    command, *args = (place.fill(word) for word in words)
    return Stdio(command, tuple(args))


def _stdio(entry: Mapping[str, Any], place: _Place) -> Stdio:
    command = place.text(entry, "command")
    if not command.strip():
        raise place.wrong('"command" is empty. Name the program to start.')
    cwd = place.text(entry, "cwd")
    folder = place.workspace / Path(cwd).expanduser() if cwd else None
    return Stdio(command, place.texts(entry, "args"), place.pairs(entry, "env"), folder)


def _http(entry: Mapping[str, Any], place: _Place) -> Http:
    kind = entry.get("type", "")
    if kind not in _HTTP_TYPES:
        raise place.wrong(
            f'"type" is {kind!r}. Only streamable HTTP is spoken: write "http" and its URL (often .../mcp).'
        )
    url = place.text(entry, "url")
    if not url.lower().startswith(("http://", "https://")):
        raise place.wrong(f"{url!r} is no web address. It should begin with http:// or https://.")
    return Http(url, place.pairs(entry, "headers"))


def _from_object(entry: object, place: _Place) -> Stdio | InProcess:
    known = any(kind.__module__.partition(".")[0] == "mcp" for kind in type(entry).__mro__)
    if known and hasattr(entry, "command"):  # StdioServerParameters: started by our own transport, like any command
        given = cast("Any", entry)
        return Stdio(given.command, tuple(given.args), dict(given.env or {}), Path(given.cwd) if given.cwd else None)
    if known or hasattr(entry, "__aenter__"):
        return InProcess(entry)
    raise place.wrong(f"{entry!r:.80} is no server. Give a command, a URL, an entry of mcpServers or a server object.")
