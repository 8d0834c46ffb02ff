"""The bounds that a teacher sets for a class, which a notebook's options, magics and Agent arguments cannot widen.

They are the tables `[tool.agentmagic.class]` of every `pyproject.toml` in the folder of the notebook and above it, and
of the TOML file that `AGENTMAGIC_CLASS` names. All of them hold: one file can narrow what another one allows, and not
widen it. They are read once in a process.
"""

import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args
from urllib.parse import unquote

from agentmagic.errors import UsageError
from agentmagic.text import did_you_mean

VARIABLE = "AGENTMAGIC_CLASS"
SERVER_SAYS = "JPY_SESSION_NAME"
"""The environment variable in which jupyter_server names the notebook, see its `SessionManager.get_kernel_env`."""
VS_CODE_SAYS = "__vsc_ipynb_file__"
"""The variable of the notebook in which VS Code names it."""

Replay = Literal["live", "record", "replay", "replay-model", "replay-tools", "auto"]
MODES: tuple[Replay, ...] = get_args(Replay)
PLAYED: tuple[Replay, ...] = ("replay", "replay-model")
"""The modes in which no model is asked."""

IN_PROCESS = "in-process"
"""What stands in `servers` for a server object of this process, which has neither a command nor an address."""

_TABLE = "agentmagic.class"
"""What stands in a file that has settings of a class, if it cannot be read as TOML."""
_STRICTNESS: Mapping[str, tuple[str, ...]] = {
    "permission": ("deny", "ask"),
    "code": ("deny", "ask"),
    "web": ("deny", "ask"),
    "replay": ("replay", "replay-model", "replay-tools", "auto", "record", "live"),
}
"""The words of a setting, the strictest first."""
_URL = re.compile(r"(https?://[^/?#@\\\s]+)([/?#][^\\\s]*)?", re.IGNORECASE)
"""A URL whose host every client reads alike: it has no user and no backslash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPattern:
    """The entry of an MCP server, or the pattern of the entries that a class allows.

    `address` is the command line or the URL, `cwd` the folder in which the program starts, "" for the kernel's.
    `pairs` are the variables of a program, or the headers of requests, by name.
    """

    address: str
    cwd: str = ""
    pairs: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def allows(self, entry: "EntryPattern") -> bool:
        """Return whether the whole of an entry fits this one."""
        return (
            _is_address(entry.address, self.address)
            and _fits_pattern(entry.cwd, self.cwd)
            and all(name in self.pairs and _fits_pattern(text, self.pairs[name]) for name, text in entry.pairs.items())
        )

    def __str__(self) -> str:
        # Without the values of variables and headers, which may be secrets.
        return ", ".join([self.address, *([f"cwd {self.cwd}"] if self.cwd else []), *self.pairs])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSettings:
    """The bounds of a class; None leaves a thing to the notebook.

    `models` are patterns of "provider:model", and `servers` are the MCP servers that may be started or connected.
    `max_cost` (US dollars), `max_tokens`, `max_iterations` (model requests) and `timeout` (seconds) bound each turn,
    `session_max_cost` and `session_max_tokens` each session, and all sessions of a kernel together. `daily_budget` and
    `monthly_budget` (US dollars) bound all that the user spends in a day and a month, in any folder.
    With `permission` "ask", no rule lets a server's tool, or one that asks, run unasked; "deny" lets none of them run.
    `code` is the same for programs, and `web` for searches and pages of the web, where a yes holds for the session.
    With `rules` false, the files of a project tell the model nothing. With `agents` false, no agent may ask another
    one. `replay` is the one mode of every cassette. `file` is the file that sets the bounds. If several files do,
    `parts` are the settings of each, the outermost first, and the others are the strictest of them. `wider` has a
    sentence for each setting that asks for more than a file further out allows.
    """

    file: Path | None = None
    models: tuple[str, ...] | None = None
    servers: tuple[EntryPattern, ...] | None = None
    max_cost: float | None = None
    max_tokens: int | None = None
    session_max_cost: float | None = None
    session_max_tokens: int | None = None
    daily_budget: float | None = None
    monthly_budget: float | None = None
    max_iterations: int | None = None
    timeout: float | None = None
    permission: Literal["ask", "deny"] | None = None
    code: Literal["ask", "deny"] | None = None
    web: Literal["ask", "deny"] | None = None
    rules: bool | None = None
    agents: bool | None = None
    replay: Replay | None = None
    parts: tuple["ClassSettings", ...] = ()
    wider: tuple[str, ...] = ()

    @property
    def files(self) -> list[Path]:
        """The files that set the bounds, the outermost first."""
        return [one.file for one in self._parts if one.file is not None]

    @property
    def names(self) -> list[str]:
        """The settings that hold, as a file has them."""
        return [_as_written(name) for name in _SETTINGS if getattr(self, name) is not None]

    @property
    def bounds_costs(self) -> bool:
        """Whether a cost is bounded, so that a notebook may not set the price of a model that has one."""
        costs = (self.max_cost, self.session_max_cost, self.daily_budget, self.monthly_budget)
        return any(cost is not None for cost in costs)

    @property
    def needs_person(self) -> bool:
        """Whether calls are to be approved by a person, and not by code of the notebook."""
        return "ask" in (self.permission, self.code, self.web)

    def check_model(self, name: str, asked_by: str = "") -> None:
        """Raise UsageError for a model that is not among those of the class; `asked_by` is what names it, if known."""
        for one in self._parts:
            if one.models is not None and not any(_fits_pattern(name, pattern) for pattern in one.models):
                by = f", which {asked_by} names," if asked_by else ""
                raise UsageError(f"The model {name}{by} is not among those of this class: {one.words('models')}.")

    def check_agents(self, name: str) -> None:
        """Raise UsageError for an agent tool of that name, if no agent may ask another one."""
        if self.agents is False:
            raise UsageError(f"The agent {name} is left out: this class has {self.words('agents')}.")

    def server_problem(self, entry: EntryPattern) -> str:
        """Return why a server may not be started, "" if it may."""
        for one in self._parts:
            if one.servers is not None and not any(allowed.allows(entry) for allowed in one.servers):
                return f"{entry} is not among those of this class: {one.words('servers')}."
        return ""

    def capped(self, name: str, asked: float | None, *, session: bool = False) -> float | None:
        """Return the cap that holds for a limit of a turn or a session. Raises UsageError if a notebook asks for more.

        `asked` is None if the notebook does not name the limit.
        """
        own = f"session_{name}" if session else name
        most = cast("float | None", getattr(self, own))
        if most is None or asked is None or asked <= most:
            return most if asked is None else asked
        raise UsageError(f"{name} is {asked:g}, which is more than this class allows: {self.words(own)}.")

    def limit(self, name: str, asked: float | None, usual: float) -> float | None:
        """Return the limit of a turn that holds for `max_iterations` or `timeout`; None is no limit.

        The usual limit counts as one that the notebook does not name. Raises UsageError if the notebook asks for more.
        """
        most = cast("float | None", getattr(self, name))
        if most is None or asked == usual:
            return asked if most is None else min(usual, most)
        return self.capped(name, float("inf") if asked is None else asked)

    def bound(self, *, asks: bool, code: bool, web: bool = False) -> Literal["ask", "deny"] | None:
        """Return the mildest verdict that the class permits on a call, or None if the class sets no bound for it.

        `code` says that the call runs a program, `web` that the provider searches or reads the web, `asks` that its
        tool asks by default.
        """
        if web:
            return "deny" if "deny" in (self.web, self.permission) else self.web or self.permission
        if code:
            return "deny" if "deny" in (self.code, self.permission) else self.code or ("ask" if self.file else None)
        return self.permission if asks else None

    def why_bound(self, verdict: Literal["ask", "deny"], *, code: bool, web: bool = False) -> str:
        """Return why a call is asked about or denied. The model reads it too, and is told no path."""
        name = "permission" if self.permission == verdict or not (code or web) else "code" if code else "web"
        return f'The settings of this class have {name} = "{verdict}".'

    def check_mode(self, mode: str, asked_by: str = "") -> None:
        """Raise UsageError for a mode of replay that is not the one of the class; `asked_by` is what names it."""
        if self.replay not in (None, mode):
            by = f", which {asked_by} names," if asked_by else ""
            raise UsageError(f"The mode {mode}{by} is not that of this class: {self.words('replay')}.")

    def words(self, name: str) -> str:
        """Return a setting as a file has it, and the file."""
        value = getattr(self, name)
        holding = next((one for one in self._parts if getattr(one, name) == value), self)
        written = [*map(str, cast("tuple[object, ...]", value))] if isinstance(value, tuple) else value
        return f"{_as_written(name)} = {written!r} in {holding.file}"

    @property
    def _parts(self) -> "tuple[ClassSettings, ...]":
        return self.parts or (self,)


_SETTINGS = tuple(one.name for one in fields(ClassSettings) if one.name not in ("file", "parts", "wider"))


def _as_written(name: str) -> str:
    return name.replace("_", "-")


# -- where they are ----------------------------------------------------------------------------------


def _working_folder() -> Path | None:
    with suppress(OSError):  # the folder was deleted
        return Path.cwd()
    return None


_FOLDER = _working_folder()
"""Where a script began: the working directory when this module was imported."""


def notebook_of(variables: Mapping[str, Any]) -> Path | None:
    """Return the file of the notebook as the front end named it, or None; it may be gone if it was renamed."""
    said = [Path(one) for one in (variables.get(VS_CODE_SAYS), os.environ.get(SERVER_SAYS)) if isinstance(one, str)]
    named = [path for path in said if path.suffix == ".ipynb" and path.is_absolute()]
    return next((path for path in named if path.is_file()), named[0] if named else None)


def _starts() -> Iterator[Path]:
    """Yield the folders to begin at: where the kernel or the script began, not where it is now, and the notebook's."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    began = _FOLDER if shell is None else Path(shell.starting_dir)
    if began is not None:
        yield began
    if (notebook := notebook_of({} if shell is None else shell.user_ns)) is not None:
        yield notebook.parent


def own_folder() -> Path | None:
    """Return the folder whose sessions belong together: the notebook's, or that in which the kernel or script began."""
    return next(reversed(list(_starts())), None)


def _candidates() -> list[Path]:
    """Return the files that may have settings, the outermost first and the one that the variable names last."""
    above = [folder for start in _starts() for folder in (start, *start.parents)]
    in_order = sorted(dict.fromkeys(above), key=lambda folder: len(folder.parts))
    named = os.environ.get(VARIABLE)
    return [folder / "pyproject.toml" for folder in in_order] + ([Path(named).absolute()] if named else [])


@cache
def class_settings() -> ClassSettings:
    """Return the bounds of the class. Raises UsageError for a file that cannot be read, or has an unknown setting."""
    found = [settings for file in dict.fromkeys(_candidates()) if (settings := _read(file)) is not None]
    return _combined(found)


def _read(file: Path) -> ClassSettings | None:
    """Return the settings of a file, or None if it has none."""
    named = file == Path(os.environ.get(VARIABLE) or os.devnull).absolute()
    text = ""
    try:
        text = file.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except (OSError, ValueError) as error:
        if not named and _TABLE not in text:
            return None  # no such file, or the broken file of a project: the project's own tools report it
        which = f"the file that {VARIABLE} names" if named else "it"
        raise UsageError(f"The class settings {file} cannot be read: {error}. Correct {which}.") from error
    match data:
        case {"tool": {"agentmagic": {"class": {**table}}}}:
            return _made(file, cast("Mapping[str, Any]", table))
        case _ if named:
            raise UsageError(f"{file}, which {VARIABLE} names, has no table [tool.agentmagic.class]. Write one.")
        case _:
            return None


def _combined(parts: list[ClassSettings]) -> ClassSettings:
    """Return the strictest of several settings, and name each that asks for more than one before it allows."""
    if len(parts) < 2:  # noqa: PLR2004
        return parts[0] if parts else ClassSettings()
    whole, wider = parts[0], list[str]()
    for place, part in enumerate(parts[1:], 1):
        for name in _SETTINGS:
            value, most = getattr(part, name), getattr(whole, name)
            if value is None:
                continue
            if _is_within(name, value, most):
                whole = replace(whole, **{name: value})
            else:
                holding = replace(whole, parts=tuple(parts[:place])).words(name)
                wider.append(f"{part.words(name)} asks for more than this class allows, and {holding} holds.")
    return replace(whole, parts=tuple(parts), wider=tuple(wider))


def _is_within(name: str, value: Any, most: Any) -> bool:
    """Return whether a value of a setting allows no more than another one does."""
    if most is None:
        return True
    if name in _STRICTNESS:
        return _STRICTNESS[name].index(value) <= _STRICTNESS[name].index(most)
    if name == "models":
        return all(any(_fits_pattern(one, pattern) for pattern in most) for one in value)
    if name == "servers":
        return all(any(allowed.allows(one) for allowed in most) for one in value)
    return value <= most


# -- what a file says --------------------------------------------------------------------------------


def _fits_pattern(text: str, pattern: str) -> bool:
    """Return whether a text as a whole is what a pattern says, in which `*` stands for any characters."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def _is_address(address: str, pattern: str) -> bool:
    """Return whether a command line or a URL is what a pattern says; its `*` in a host stays within the host.

    `*` alone is any of them.
    """
    if pattern == "*":
        return True
    if "://" not in pattern:
        return _fits_pattern(address, pattern) and "://" not in address.partition(" ")[0]
    url = _URL.fullmatch(address)
    if url is None or ".." in unquote(url[2] or ""):
        return False
    host, slash, path = pattern.partition("://")[2].partition("/")
    scheme = pattern.partition("://")[0]
    return _fits_pattern(url[1].lower(), f"{scheme}://{host}".lower()) and _fits_pattern(
        (url[2] or "/").removeprefix("/"), path if slash else ""
    )


def _made(file: Path, table: Mapping[str, Any]) -> ClassSettings:
    known = {_as_written(name): name for name in _SETTINGS}
    given: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            raise UsageError(
                f"{file}: {name!r} is no setting of a class.{did_you_mean(name, known)} "
                f"Write one of {', '.join(known)}."
            )
        if not _fits(name, value):
            raise UsageError(f"{file}: {name} = {value!r} cannot be. Write {_FORMS[_kind(name)]}.")
        given[known[name]] = tuple(cast("list[Any]", value)) if isinstance(value, list) else value
    if "servers" in given:
        given["servers"] = tuple(map(_server_entry, given["servers"]))
    return ClassSettings(file=file, **given)


def _server_entry(item: str | Mapping[str, Any]) -> EntryPattern:
    if isinstance(item, str):
        return EntryPattern(address=item)
    pairs = item.get("env", item.get("headers", {}))
    return EntryPattern(address=item.get("command", item.get("url", "")), cwd=item.get("cwd", ""), pairs=pairs)


_FORMS = {
    "list": 'a list of patterns, as in ["local:*"]',
    "servers": 'a list of commands and addresses, or of tables {command="...", cwd="...", env={...}} and '
    '{url="...", headers={...}}',
    "number": "a number above 0",
    "whole": "a whole number above 0",
    "permission": '"ask" or "deny"',
    "switch": "true or false",
    "mode": f"one of {', '.join(MODES)}",
}


def _kind(name: str) -> str:
    kinds = {"models": "list", "servers": "servers", **dict.fromkeys(("permission", "code", "web"), "permission")}
    switches = dict.fromkeys(("rules", "agents"), "switch")
    return {**kinds, **switches, "replay": "mode", "max-iterations": "whole"}.get(name, "number")


def _fits(name: str, value: Any) -> bool:  # noqa: PLR0911  (one return for each kind)
    match _kind(name):
        case "list":
            return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[Any]", value))
        case "servers":
            return isinstance(value, list) and all(map(_is_server, cast("list[Any]", value)))
        case "permission":
            return value in ("ask", "deny")
        case "switch":
            return isinstance(value, bool)
        case "mode":
            return value in MODES
        case "whole":
            return isinstance(value, int) and not isinstance(value, bool) and value > 0
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def _is_server(item: object) -> bool:
    if not isinstance(item, dict):
        return isinstance(item, str)
    table = cast("dict[str, Any]", item)
    kinds = {"command": str, "cwd": str, "env": dict} if "command" in table else {"url": str, "headers": dict}
    pairs = (cast("dict[str, Any]", value) for value in table.values() if isinstance(value, dict))
    return (
        not table.keys().isdisjoint(("command", "url"))
        and all(isinstance(value, kinds.get(name, ())) for name, value in table.items())
        and all(isinstance(text, str) for one in pairs for text in one.values())
    )
