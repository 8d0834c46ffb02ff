"""Configuration of MCP servers: read from code, from a command line, and from the `mcpServers` JSON of other programs.

The JSON has the format of `.mcp.json` (`mcpServers`) and `.vscode/mcp.json` (`servers`, `inputs`), with one entry per
server: `{command, args, env, cwd}` or `{url, headers, type}`. agentmagic adds the keys of `_ServerEntry`, and in
`_AddressEntry` the keys from `client_id` on; `entries` translates the keys of other programs. What is not read is named
when the user approves the server, which a server from a file needs.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar, Union, cast
from urllib.parse import unquote_plus, urlsplit

import pydantic
from pydantic import AfterValidator, BeforeValidator, ValidationInfo

from agentmagic.errors import ConfigError
from agentmagic.plain_files import read_plain_text
from agentmagic.platforms import split_command
from agentmagic.secrets import learn
from agentmagic.tools.base import TIMEOUT
from agentmagic.tools.mcp import entries, names

if TYPE_CHECKING:
    from mcp import StdioServerParameters
    from mcp.client import Transport as ClientTransport
    from mcp.server import MCPServer, Server


class FastMCP(Protocol):
    """A server object of the fastmcp library."""

    _mcp_server: Any


ServerObject = Union["MCPServer", "Server[Any]", "StdioServerParameters", "ClientTransport", FastMCP]
"""A server in this process, or another object that the mcp library's `Client` accepts."""
Entry = str | Path | Mapping[str, Any] | ServerObject
"""A command, a URL, a server object, an entry of `mcpServers`, or a table of entries or a file with one."""

CONNECT_TIMEOUT = 20.0  # Seconds from the start of a server to its first answer.
DOWNLOAD_TIMEOUT = 60.0  # For commands in `_DOWNLOADERS`, which download the server first.

_DOWNLOADERS = frozenset({"npx", "uvx", "bunx", "pnpx", "pipx", "docker", "podman"})
_CORRECTION = 'It should read {"mcpServers": {"name": {"command": "...", "args": ["..."]}}}.'
_PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")

_TEXT = '"{key}" should be a text, not {value!r}.'
_TEXTS = '"{key}" should be a list of texts: ["...", "..."].'
_PAIRS = '"{key}" should hold texts by name: {{"NAME": "value"}}.'  # The value is not quoted: it may be secret.
_NUMBER = '"{key}" should be a number of seconds above 0, not {value!r}.'
_PROBLEMS = {
    "command": _TEXT,
    "args": _TEXTS,
    "env": _PAIRS,
    "cwd": _TEXT,
    "url": _TEXT,
    "headers": _PAIRS,
    "type": '"type" is {value!r}. Write "http" (its URL often ends in /mcp), or "sse" for an old server.',
    "allow": _TEXTS,
    "trust": '"trust" should be true or false, not {value!r}.',
    "timeout": _NUMBER,
    "connect_timeout": _NUMBER,
    "client_id": _TEXT,
    "client_secret": '"{key}" should be a text.',
    "client_metadata_url": _TEXT,
    "callback_port": '"{key}" should be the number of a port, not {value!r}.',
    "roots": _TEXTS,
    "only": _TEXTS,
    "disable": _TEXTS,
}


@dataclass(frozen=True, slots=True)
class Stdio:
    """An MCP server that is a program. Messages go through its standard input and output.

    The program gets the environment variables in `env`, and only a few of this process's (HOME, PATH, proxy settings).
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: Path | None = None


@dataclass(frozen=True, slots=True)
class Http:
    """An MCP server at a URL. It uses streamable HTTP, or with `sse` the protocol of 2024 with server-sent events.

    The other fields are for OAuth. If agentmagic was registered at the authorization server, `client_id` and
    `client_secret` are from this registration. `callback_port` is the port of the registered redirect address, or 0 for
    any port. `client_metadata_url` is the URL of a document about the client, for clients whose id is this URL.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    sse: bool = False
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    client_metadata_url: str = ""
    callback_port: int = 0


@dataclass(frozen=True, slots=True)
class InProcess:
    """An MCP server that is an object in this process, or another object that the mcp library's `Client` accepts."""

    server: Any


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for an MCP server whose entry in a configuration file is invalid. `problem` is the reason.

    `again` parses the same entry once more, because an environment variable that was missing may be set now.
    """

    problem: str
    again: "Callable[[], ServerConfig]" = field(compare=False, repr=False)


Transport = Stdio | Http | InProcess | Unreadable


@dataclass(frozen=True, slots=True)
class Origin:
    """The file from which a server's entry was read, and a hash of the entry, under which its approval is stored."""

    file: Path
    digest: str


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How to reach one MCP server and how far to trust it.

    `allow` has names or `fnmatch` patterns of tools that run without asking the user. With `trust`, the user trusts the
    server: what it says about its tools is believed, and at some permission levels its tools run without asking.
    `timeout` is the time limit of a call in seconds, `connect_timeout` the limit for the server's first answer. `roots`
    are folders that the server is told to work in. If `only` is not empty, the server's other tools are not offered;
    those in `disable` never are. Both have names or patterns. `variables` names the variables and inputs whose values
    were filled into the server's entry, each with its source. A server whose `origin` is set needs the user's approval
    to start. `unread` names the keys of its entry in a file that have no meaning for us.
    """

    transport: Transport
    allow: tuple[str, ...] = ()
    timeout: float = TIMEOUT
    connect_timeout: float = CONNECT_TIMEOUT
    roots: tuple[Path, ...] = ()
    origin: Origin | None = None
    variables: tuple[str, ...] = ()
    trust: bool = False
    unread: str = ""
    only: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Input:
    """A value that `.vscode/mcp.json` lets the user type. If it has `options`, only these values are allowed."""

    id: str
    description: str = ""
    password: bool = False
    default: str | None = None
    options: tuple[str, ...] = ()


Ask = Callable[[Input], str]


def read(
    source: Entry | Sequence[Entry], *, workspace: Path | None = None, ask: Ask | None = None
) -> dict[str, ServerConfig]:
    """Read servers by name from a JSON file, a table of entries, a list of entries, or a single entry.

    A `Path`, or a string that ends in `.json` or `.toml`, is a file. Entries without a name get one from their command
    or URL ("npx -y server-files" becomes "files"). `${workspaceFolder}` and a relative `cwd` refer to `workspace`: by
    default the folder of the file, or the current folder without a file. `ask` is called once for each `${input:...}`
    of a file; without `ask`, the defaults are used. An invalid entry of a file becomes an `Unreadable` server, and the
    other entries stay usable. A server that its entry switches off is left out. Raises ConfigError for other invalid
    entries and for a file that is unreadable or has no table.
    """
    match source:
        case Path():
            return _read_file(source, workspace, ask)
        case str() if source.endswith((".json", ".toml")):
            return _read_file(Path(source), workspace, ask)
        case Mapping() if (table := entries.table_of(source)) is not None:
            folder = workspace or Path.cwd()
            return {
                name: _parse(entry, _EntrySource(f"the server {name!r}", folder))
                for name, entry in table.items()
                if not entries.is_off(entry)
            }
        case list() | tuple():
            configs: dict[str, ServerConfig] = {}
            for entry in cast("Sequence[Entry]", source):
                for name, config in read(entry, workspace=workspace, ask=ask).items():
                    configs[names.unused_name(name, configs)] = config
            return configs
        case _:
            single = cast("Entry", source)
            return {names.alias(single): parse(single, workspace=workspace)}


def parse(entry: Entry, *, workspace: Path | None = None) -> ServerConfig:
    """Read a single server: a command, a URL, an entry of `mcpServers`, or a server object.

    Raises ConfigError if the entry is invalid, or uses a variable that is not set.
    """
    return _parse(entry, _EntrySource("the MCP server", workspace or Path.cwd()))


def _read_file(path: Path, workspace: Path | None, ask: Ask | None) -> dict[str, ServerConfig]:
    path = path.expanduser()
    try:
        # Some Windows editors write a byte order mark.
        data = entries.load(read_plain_text(path), is_toml=path.suffix == ".toml")
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}. Check the path, or write the file. {_CORRECTION}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise ConfigError(f"{where}: this is not JSON ({error.msg}). Correct it there. {_CORRECTION}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read ({type(error).__name__}). {_CORRECTION}") from None
    top = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    table = entries.table_of(top) if top else None
    if table is None:
        raise ConfigError(f"{path} has no table of servers. {_CORRECTION}")
    path = path.absolute()
    folder = path.parent.parent if path.parent.name == ".vscode" else path.parent
    inputs = _Inputs(top.get("inputs"), ask)
    configs: dict[str, ServerConfig] = {}
    for name, entry in table.items():
        if entries.is_off(entry):
            continue
        place = _EntrySource(f"the server {name!r} in {path}", (workspace or folder).absolute(), inputs.value)
        # The hash of an entry covers the file's `inputs` too: their defaults are used if the user gives no value.
        raw_inputs = top.get("inputs") if "${input:" in json.dumps(entry) else None
        digest = _digest(path, name, entry, *([raw_inputs] if raw_inputs else []))
        possible = name
        try:
            names.check(name)
        except ConfigError:
            possible = names.unused_name("unnamed", {**table, **configs})
        configs[possible] = _parse_of_file(name, entry, place, Origin(path, digest))
    inputs.ask = None  # `Unreadable.again` reads an entry on the engine's thread, where the user cannot be asked.
    return configs


def _parse_of_file(name: str, entry: Any, place: "_EntrySource", origin: Origin) -> ServerConfig:
    """Read an entry of a file. For an invalid entry, return an `Unreadable` server with the reason."""
    translated = entries.translate(entry)
    try:
        names.check(name)
        return replace(_parse(translated, place), origin=origin, unread=entries.unread_keys(translated, _KEYS))
    except ConfigError as error:
        again = partial(_parse_of_file, name, entry, place, origin)
        return ServerConfig(Unreadable(str(error), again), origin=origin)


def _digest(path: Path, name: str, *parts: Any) -> str:
    """Return a hash of a server's entry as typed in the file, with `${NAME}` in place of the values of variables."""
    return hashlib.sha256(json.dumps([str(path), name, *parts], sort_keys=True).encode()).hexdigest()


class _Inputs:
    """The values of the `inputs` of a configuration file. The user is asked for each once, when it is first needed."""

    def __init__(self, raw: Any, ask: Ask | None) -> None:
        entries = cast("list[Any]", raw) if isinstance(raw, list) else []
        inputs = [_input(cast("Mapping[str, Any]", one)) for one in entries if isinstance(one, Mapping)]
        self._inputs = {one.id: one for one in inputs}
        self.ask = ask
        self._values: dict[str, str] = {}

    def value(self, name: str) -> str | None:
        """Return an input's value, or None. The first call asks the user. Without `ask`, the value is the default."""
        entry = self._inputs.get(name)
        if entry is None:
            return None
        if name not in self._values:
            if self.ask is None:
                return entry.default
            self._values[name] = self.ask(entry) or entry.default or ""
            if entry.password:
                learn(name, self._values[name], certain=True)
        return self._values[name]


def _input(entry: Mapping[str, Any]) -> Input:
    options = entry.get("options")
    choices = cast("list[Any]", options) if isinstance(options, list) else []
    default = entry.get("default")
    return Input(
        str(entry.get("id", "")),
        str(entry.get("description", "")),
        entry.get("password") is True,
        default if isinstance(default, str) else None,
        tuple(one for one in choices if isinstance(one, str)),
    )


@dataclass(frozen=True, slots=True)
class _EntrySource:
    """The place of a server's entry. It names the entry in error messages, and replaces its `${...}` placeholders."""

    where: str
    workspace: Path
    input_value: Callable[[str], str | None] = lambda _: None
    used_values: dict[str, None] = field(default_factory=dict[str, None])
    """The variables and inputs that were filled in, in order, each with its source."""

    def error(self, problem: str) -> ConfigError:
        """Return a ConfigError whose message names the server's entry and says what is wrong with it."""
        return ConfigError(f"In {self.where}, {problem}")

    def fill(self, text: str) -> str:
        """Return the text with each `${...}` replaced by its value. Raises ConfigError if a value is missing."""
        return _PLACEHOLDER.sub(lambda match: self._value(match[1]), text)

    def _value(self, placeholder: str) -> str:
        if placeholder == "workspaceFolder":
            return str(self.workspace)
        if placeholder.startswith("input:"):
            input_name = placeholder.removeprefix("input:")
            if (answer := self.input_value(input_name)) is not None:
                self.used_values[f"{input_name} (an input)"] = None
                return answer
            raise self.error(f"${{{placeholder}}} asks for a value that was not given. Use a variable: ${{NAME}}.")
        name, has_default, default = placeholder.removeprefix("env:").partition(":-")
        value = os.environ.get(name)
        if value is not None:
            self.used_values[f"{name} (your environment)"] = None
        if has_default:
            value = value or default
        if value is None:
            raise self.error(
                f"${{{name}}} is used, but the variable {name} is not set. Set it, or write ${{{name}:-default}}."
            )
        learn(name, value)
        return value

    def decode(self, model: "type[_E]", entry: Mapping[str, Any]) -> "_E":
        """Validate an entry and return it with its placeholders filled in. Raises ConfigError if it is invalid."""
        try:
            return model.model_validate(entry, context=self)
        except pydantic.ValidationError as error:
            first = error.errors(include_url=False)[0]
            # ConfigError is a ValueError, so pydantic wraps one that `fill` raises.
            if isinstance(cause := first.get("ctx", {}).get("error"), ConfigError):
                raise cause from None
            key = str(first["loc"][0])
            raise self.error(_PROBLEMS[key].format(key=key, value=entry.get(key))) from None


def _fill(text: str, info: ValidationInfo) -> str:
    return cast("_EntrySource", info.context).fill(text)


_Text = Annotated[str, AfterValidator(_fill)]
# Users often write ports and similar texts as numbers.
_NumberAsText = BeforeValidator(lambda value: str(value) if isinstance(value, int | float) else value)
_Item = Annotated[str, _NumberAsText, AfterValidator(_fill)]
# Other programs that read such files accept null, or [] in place of {}, as an empty value.
_Texts = Annotated[tuple[_Item, ...], BeforeValidator(lambda value: value or ())]
_Pairs = Annotated[dict[str, _Item], BeforeValidator(lambda value: value or {})]
_Seconds = Annotated[float, pydantic.Field(gt=0, strict=True, allow_inf_nan=False)]


class _ServerEntry(pydantic.BaseModel):
    """The keys that every server's entry can have. Pydantic replaces `${...}` in the values while it validates them."""

    allow: _Texts = ()
    trust: Annotated[bool, pydantic.Field(strict=True)] = False
    timeout: _Seconds | None = None
    connect_timeout: _Seconds | None = None
    roots: _Texts = ()
    only: _Texts = ()
    disable: _Texts = ()


class _ProgramEntry(_ServerEntry):
    command: _Text
    args: _Texts = ()
    env: _Pairs = {}
    cwd: _Text = ""


class _AddressEntry(_ServerEntry):
    url: _Text
    type: Literal["", "http", "streamable-http", "streamableHttp", "sse"] = ""
    headers: _Pairs = {}
    client_id: _Text = ""
    client_secret: _Text = ""
    client_metadata_url: _Text = ""
    callback_port: Annotated[int, pydantic.Field(ge=0, lt=2**16, strict=True)] = 0


_KEYS = frozenset(_ProgramEntry.model_fields.keys() | _AddressEntry.model_fields.keys())
"""The keys of an entry that are read."""

_E = TypeVar("_E", bound=_ServerEntry)


def _parse(entry: Entry, place: _EntrySource) -> ServerConfig:
    match entry:
        case str() if entry.strip().lower().startswith(("http://", "https://")):
            return _address({"url": entry.strip()}, place)
        case str():
            return _command_line(entry, place)
        case {"command": object(), "url": object()}:
            raise place.error('there are both "command" and "url". Keep the one that is meant.')
        case {"command": object()}:
            return _program(entry, place)
        case {"url": object()}:
            return _address(entry, place)
        case Mapping():
            advice = 'Write {"command": "...", "args": [...]} or {"url": "..."}.'
            raise place.error(f'there is neither "command" nor "url". {advice}')
        case _:
            return _config(_from_object(entry, place), _ServerEntry(), place)


def _config(transport: Transport, entry: _ServerEntry, place: _EntrySource) -> ServerConfig:
    downloads = isinstance(transport, Stdio) and PurePath(transport.command).stem in _DOWNLOADERS
    patience = entry.connect_timeout or (DOWNLOAD_TIMEOUT if downloads else CONNECT_TIMEOUT)
    roots = tuple((place.workspace / Path(one).expanduser()).absolute() for one in entry.roots)
    seconds = entry.timeout or TIMEOUT
    return ServerConfig(
        transport,
        entry.allow,
        seconds,
        patience,
        roots,
        variables=tuple(place.used_values),
        trust=entry.trust,
        only=entry.only,
        disable=entry.disable,
    )


def _command_line(text: str, place: _EntrySource) -> ServerConfig:
    try:
        words = split_command(text)
    except ValueError as error:
        raise place.error(f"the command {text!r} cannot be read ({error}). Close its quotes.") from None
    if not words:
        raise place.error("the command is empty. Write it as in a terminal, or give a URL.")
    return _program({"command": words[0], "args": words[1:]}, place)


def _program(raw: Mapping[str, Any], place: _EntrySource) -> ServerConfig:
    entry = place.decode(_ProgramEntry, raw)
    if not entry.command.strip():
        raise place.error('"command" is empty. Name the program to start.')
    if "://" in entry.command:
        raise place.error(f"{entry.command!r} is no web address. It should begin with http:// or https://.")
    _learn_arguments(entry.args)
    _check_pairs(entry.env, place)
    folder = place.workspace / Path(entry.cwd).expanduser() if entry.cwd else None
    return _config(Stdio(entry.command, entry.args, entry.env, folder), entry, place)


def _address(raw: Mapping[str, Any], place: _EntrySource) -> ServerConfig:
    entry = place.decode(_AddressEntry, raw)
    url = entry.url
    if not url.lower().startswith(("http://", "https://")):
        raise place.error(f"{url!r} is no web address. It should begin with http:// or https://.")
    try:
        parts = urlsplit(url)
        is_readable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_readable = False
    if not is_readable:
        raise place.error(f"{url!r} is no web address: its host or port cannot be read. Correct it.")
    _learn_address(url)
    _check_pairs(entry.headers, place)
    learn("client_secret", entry.client_secret, certain=True)
    client = (entry.client_id, entry.client_secret, entry.client_metadata_url, entry.callback_port)
    return _config(Http(url, entry.headers, entry.type == "sse", *client), entry, place)


def _from_object(entry: object, place: _EntrySource) -> Stdio | InProcess:
    is_of_library = any(kind.__module__.partition(".")[0] == "mcp" for kind in type(entry).__mro__)
    if is_of_library and hasattr(entry, "command"):  # It is a StdioServerParameters of the mcp library.
        stdio = cast("Any", entry)
        return Stdio(stdio.command, tuple(stdio.args), dict(stdio.env or {}), Path(stdio.cwd) if stdio.cwd else None)
    if is_of_library or hasattr(entry, "__aenter__"):
        return InProcess(entry)
    if (inner := getattr(entry, "_mcp_server", None)) is not None:  # A FastMCP server of the fastmcp library.
        return InProcess(inner)
    raise place.error(f"{entry!r:.80} is no server. Give a command, a URL, an entry of mcpServers or a server object.")


def _check_pairs(pairs: Mapping[str, str], place: _EntrySource) -> None:
    """Register the secrets in headers or variables. Raises ConfigError for a value with a line break or NUL."""
    for name, value in pairs.items():
        if set(value) & set("\r\n\0"):
            raise place.error(f"the value of {name} has a line break or a zero character in it. Remove it.")
        learn(name, value)


def _learn_arguments(args: Sequence[str]) -> None:
    """Register the values of options such as `--api-key` and `--token`, and the passwords in URLs, as secrets."""
    for argument, following in zip(args, (*args, "")[1:], strict=True):
        option, has_value, value = argument.partition("=")
        candidate = value if has_value else following
        learn(option if option.startswith("-") and not candidate.startswith("-") else "", candidate)
        learn("", argument)


def _learn_address(url: str) -> None:
    """Register as secrets the password in a URL, and the values of query parameters with names such as `token`."""
    learn("", url)
    for pair in url.partition("#")[0].partition("?")[2].split("&"):
        name, _, value = pair.partition("=")
        learn(name, value)
        learn(name, unquote_plus(value))
