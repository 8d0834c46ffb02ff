"""One server's entry: from a command, a URL, an entry of `mcpServers` or a server object to how it is reached."""

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, cast
from urllib.parse import unquote_plus, urlsplit

from agentmagic.errors import ConfigError
from agentmagic.secrets import learn
from agentmagic.tools.base import TIMEOUT

Entry = str | Mapping[str, Any] | object
"""One server: a command, a URL, an entry of `mcpServers`, or a server object of the mcp library."""

CONNECT_TIMEOUT = 20.0
"""Seconds a server may take from its start to its answer."""

DOWNLOAD_TIMEOUT = 60.0
"""The same for the runners of `_DOWNLOADERS`, which fetch the server first."""

_DOWNLOADERS = frozenset({"npx", "uvx", "bunx", "pnpx", "pipx", "docker", "podman"})
_SSE = "sse"
_HTTP_TYPES = frozenset({"", "http", "streamable-http", "streamableHttp"})
_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")


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
class Sse:
    """A server that speaks HTTP with server-sent events, as the protocol of 2024 had it."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, slots=True)
class InProcess:
    """A server object of this process, or anything else that the mcp library's `Client` takes."""

    server: Any


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry of a file that cannot be read, and why; the other entries of the file do not suffer from it.

    `again` reads the entry once more, as it was written, with the variables that are set by then.
    """

    problem: str
    again: "Callable[[], ServerConfig]" = field(compare=False, repr=False)


Transport = Stdio | Http | Sse | InProcess | Unreadable


@dataclass(frozen=True, slots=True)
class Origin:
    """The file an entry was read from, and a hash of all of the entry: what a person trusts, or not yet."""

    file: Path
    digest: str


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How to reach one server and how far to trust it.

    `allow` holds names or `fnmatch` patterns of tools that run without asking; `timeout` is the seconds a
    call may take, `connect_timeout` those until the server has answered for the first time. `roots` are
    folders the server is told to work in. An entry with an `origin` needs a person's leave to start.
    """

    transport: Transport
    allow: tuple[str, ...] = ()
    timeout: float = TIMEOUT
    connect_timeout: float = CONNECT_TIMEOUT
    roots: tuple[Path, ...] = ()
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry stands, for messages and for the placeholders in it."""

    where: str
    workspace: Path
    input_value: Callable[[str], str | None] = lambda _: None

    def wrong(self, problem: str) -> ConfigError:
        """Return the error that says what is wrong here."""
        return ConfigError(f"In {self.where}, {problem}")

    def fill(self, text: str) -> str:
        """Put values in the place of `${...}`."""
        return _PLACEHOLDER.sub(lambda match: self._value(match[1]), text)

    def _value(self, placeholder: str) -> str:
        if placeholder == "workspaceFolder":
            return str(self.workspace)
        if placeholder.startswith("input:"):
            if (given := self.input_value(placeholder.removeprefix("input:"))) is not None:
                return given
            raise self.wrong(f"${{{placeholder}}} asks for a value that nobody gave. Use a variable: ${{NAME}}.")
        name, has_default, default = placeholder.removeprefix("env:").partition(":-")
        value = os.environ.get(name)
        if has_default:
            value = value or default
        if value is None:
            raise self.wrong(
                f"${{{name}}} is used, but the variable {name} is not set. Set it, or write ${{{name}:-default}}."
            )
        learn(name, value)
        return value

    def text(self, entry: Mapping[str, Any], key: str) -> str:
        """Return a text of the entry, filled in."""
        value = entry.get(key, "")
        if not isinstance(value, str):
            raise self.wrong(f'"{key}" should be a text, not {value!r}.')
        return self.fill(value)

    def texts(self, entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
        """Return a list of texts of the entry, filled in."""
        value = entry.get(key) or ()
        if isinstance(value, list | tuple):
            items = cast("Sequence[object]", value)
            if all(isinstance(item, str | int | float) for item in items):
                return tuple(self.fill(str(item)) for item in items)
        raise self.wrong(f'"{key}" should be a list of texts: ["...", "..."].')

    def pairs(self, entry: Mapping[str, Any], key: str) -> dict[str, str]:
        """Return texts of the entry by name, filled in."""
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
        learn(name, filled)
        return filled

    def seconds(self, entry: Mapping[str, Any], key: str, default: float) -> float:
        """Return a number of seconds of the entry."""
        value = entry.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise self.wrong(f'"{key}" should be a number of seconds above 0, not {value!r}.')
        return float(value)


def _learn_arguments(args: Sequence[str]) -> None:
    """Blank from now on what stands behind `--api-key`, `--token` and the like, and passwords in addresses."""
    for argument, following in zip(args, (*args, "")[1:], strict=True):
        option, has_value, value = argument.partition("=")
        given = value if has_value else following
        learn(option if option.startswith("-") and not given.startswith("-") else "", given)
        learn("", argument)


def _learn_address(url: str) -> None:
    """Blank from now on a password in an address, and what its query calls a key, a token or the like."""
    learn("", url)
    for pair in url.partition("#")[0].partition("?")[2].split("&"):
        name, _, value = pair.partition("=")
        learn(name, value)
        learn(name, unquote_plus(value))


def parse_entry(entry: Entry, place: Place) -> ServerConfig:
    """Read a single entry. Raises ConfigError."""
    match entry:
        case str() if entry.strip().lower().startswith(("http://", "https://")):
            return ServerConfig(_http({"url": entry.strip()}, place))
        case str():
            return _with_patience(_command_line(entry, place))
        case Mapping():
            return _parse_mapping(cast("Mapping[str, Any]", entry), place)
        case _:
            return _with_patience(_from_object(entry, place))


def _parse_mapping(entry: Mapping[str, Any], place: Place) -> ServerConfig:
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
    config = _with_patience(transport, place.texts(entry, "allow"), place.seconds(entry, "timeout", TIMEOUT))
    roots = tuple((place.workspace / Path(one).expanduser()).absolute() for one in place.texts(entry, "roots"))
    return replace(config, roots=roots)


def _with_patience(transport: Transport, allow: tuple[str, ...] = (), timeout: float = TIMEOUT) -> ServerConfig:
    downloads = isinstance(transport, Stdio) and PurePath(transport.command).stem in _DOWNLOADERS
    return ServerConfig(transport, allow, timeout, DOWNLOAD_TIMEOUT if downloads else CONNECT_TIMEOUT)


def _command_line(line: str, place: Place) -> Stdio:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise place.wrong(f"the command {line!r} cannot be read ({error}). Close its quotes.") from None
    if not words:
        raise place.wrong("the command is empty. Write it as in a terminal, or give a URL.")
    command, *args = (place.fill(word) for word in words)
    _learn_arguments(args)
    return Stdio(command, tuple(args))


def _stdio(entry: Mapping[str, Any], place: Place) -> Stdio:
    command = place.text(entry, "command")
    if not command.strip():
        raise place.wrong('"command" is empty. Name the program to start.')
    cwd = place.text(entry, "cwd")
    folder = place.workspace / Path(cwd).expanduser() if cwd else None
    args = place.texts(entry, "args")
    _learn_arguments(args)
    return Stdio(command, args, place.pairs(entry, "env"), folder)


def _http(entry: Mapping[str, Any], place: Place) -> Http | Sse:
    kind = entry.get("type", "")
    if kind not in _HTTP_TYPES and kind != _SSE:
        raise place.wrong(f'"type" is {kind!r}. Write "http" (its URL often ends in /mcp), or "sse" for an old server.')
    url = place.text(entry, "url")
    if not url.lower().startswith(("http://", "https://")):
        raise place.wrong(f"{url!r} is no web address. It should begin with http:// or https://.")
    if not _has_host(url):
        raise place.wrong(f"{url!r} is no web address: its host or port cannot be read. Correct it.")
    _learn_address(url)
    headers = place.pairs(entry, "headers")
    return Sse(url, headers) if kind == _SSE else Http(url, headers)


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _from_object(entry: object, place: Place) -> Stdio | InProcess:
    known = any(kind.__module__.partition(".")[0] == "mcp" for kind in type(entry).__mro__)
    if known and hasattr(entry, "command"):  # StdioServerParameters: started by our own transport, like any command
        given = cast("Any", entry)
        return Stdio(given.command, tuple(given.args), dict(given.env or {}), Path(given.cwd) if given.cwd else None)
    if known or hasattr(entry, "__aenter__"):
        return InProcess(entry)
    raise place.wrong(f"{entry!r:.80} is no server. Give a command, a URL, an entry of mcpServers or a server object.")
