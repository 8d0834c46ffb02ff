"""The bounds of a machine and of a class, which a notebook's options, magics and Agent arguments cannot widen.

An administrator sets those of a machine, in `POLICY_FILE`. A teacher sets those of a class, in the tables
`[tool.agentmagic.class]` of every `pyproject.toml` in the folder of the notebook and above it, and of the TOML file
that `AGENTMAGIC_CLASS` names. All of them hold: one file can narrow what another one allows, and not widen it; the
administrator's file is the outermost. They are read once in a process.
"""

import os
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

from agentmagic.errors import UsageError
from agentmagic.patterns import EntryPattern, fits_pattern, is_address, is_among
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


def windows_folder(hive: Literal["HKEY_LOCAL_MACHINE", "HKEY_CURRENT_USER"], name: str) -> Path | None:
    """Return a folder as the registry of Windows has it, whatever variables say; None on another system."""
    if sys.platform != "win32":
        return None
    import winreg

    where = r"SOFTWARE\Microsoft\Windows\CurrentVersion\Explorer\Shell Folders"
    with winreg.OpenKey(getattr(winreg, hive), where) as key:
        return Path(winreg.QueryValueEx(key, name)[0])


def _policy_file() -> Path:
    """Return the administrator's file. No environment variable moves it, because a notebook can set variables."""
    folder = windows_folder("HKEY_LOCAL_MACHINE", "Common AppData")  # what %PROGRAMDATA% is, before a user changes it
    return Path("/etc/agentmagic.toml") if folder is None else folder / "agentmagic" / "agentmagic.toml"


POLICY_FILE = _policy_file()
"""The administrator's file, whose settings stand in no table."""

Prices = tuple[float, float, float]
"""US dollars for a million tokens of input, output and cached input."""

_TABLE = "agentmagic.class"
"""What stands in a file that has settings of a class, if it cannot be read as TOML."""
_STRICTNESS: Mapping[str, tuple[str, ...]] = {
    "permission": ("deny", "ask"),
    "code": ("deny", "ask"),
    "web": ("deny", "ask"),
    "replay": ("replay", "replay-model", "replay-tools", "auto", "record", "live"),
}
"""The words of a setting, the strictest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSettings:
    """The bounds of a machine or a class; None leaves a thing to the notebook.

    `models` are patterns of "provider:model", `addresses` those of the addresses at which models are asked, and
    `servers` are the MCP servers that may be started or connected. `prices`, by pattern of model, come before all
    others; only the administrator's file has them.
    `max_cost` (US dollars), `max_tokens`, `max_iterations` (model requests) and `timeout` (seconds) bound each turn,
    `session_max_cost` and `session_max_tokens` each session, and all sessions of a kernel together. `daily_budget` and
    `monthly_budget` (US dollars) bound all that the user spends in a day and a month, in any folder.
    With `permission` "ask", no rule lets a server's tool, or one that asks, run unasked; "deny" lets none of them run.
    `code` is the same for programs, and `web` for searches and pages of the web, where a yes holds for the session.
    With `rules` false, the files of a project tell the model nothing. With `agents` false, no agent may ask another
    one. With `serve` false, no program outside may use the notebook, with `save` false no conversation is saved, and
    with `keyring` false no key is kept in the system's keyring. With `schema_only` true, prompts send no values.
    `replay` is the one mode of every cassette. `file` is the file that sets the bounds. If several files do, `parts`
    are the settings of each, the outermost first, and the others are the strictest of them. `wider` has a sentence for
    each setting that asks for more than a file further out allows.
    """

    file: Path | None = None
    models: tuple[str, ...] | None = None
    addresses: tuple[str, ...] | None = None
    prices: Mapping[str, Prices] | None = None
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
    serve: bool | None = None
    save: bool | None = None
    keyring: bool | None = None
    schema_only: bool | None = None
    replay: Replay | None = None
    parts: tuple["ClassSettings", ...] = ()
    wider: tuple[str, ...] = ()

    @property
    def policy(self) -> "ClassSettings | None":
        """What the administrator's file alone sets, None without one."""
        return next((one for one in self._parts if one.file == POLICY_FILE), None)

    @property
    def classes(self) -> "tuple[ClassSettings, ...]":
        """What each file of a class sets, the outermost first."""
        return tuple(one for one in self._parts if one.file not in (None, POLICY_FILE))

    @property
    def names(self) -> list[str]:
        """The settings that hold, as a file has them."""
        return list(map(_as_written, self.settings))

    @property
    def settings(self) -> list[str]:
        """The settings that hold, by their fields."""
        return [name for name in _SETTINGS if getattr(self, name) is not None]

    @property
    def bounds_costs(self) -> bool:
        """Whether a cost is bounded, so that a notebook may not set the price of a model that has one."""
        costs = (self.max_cost, self.session_max_cost, self.daily_budget, self.monthly_budget)
        return any(cost is not None for cost in costs)

    @property
    def fixes_prices(self) -> bool:
        """Whether no price of a notebook counts, because the administrator bounds costs."""
        return self.policy is not None and self.policy.bounds_costs

    @property
    def needs_person(self) -> bool:
        """Whether calls are to be approved by a person, and not by code of the notebook."""
        return "ask" in (self.permission, self.code, self.web)

    def check_model(self, name: str, asked_by: str = "") -> None:
        """Raise UsageError for a model that is not among those of the class; `asked_by` is what names it, if known."""
        for one in self._parts:
            if one.models is not None and not any(fits_pattern(name, pattern) for pattern in one.models):
                by = f", which {asked_by} names," if asked_by else ""
                among = f"is not among those of {one.whose('models')}: {one.words('models')}"
                raise UsageError(f"The model {name}{by} {among}.")

    def allows_model(self, name: str) -> bool:
        """Return whether a model is among those of the class."""
        return all(
            one.models is None or any(fits_pattern(name, pattern) for pattern in one.models) for one in self._parts
        )

    def check_address(self, name: str, address: str | None) -> None:
        """Raise UsageError for a model that is asked at an address that the class does not allow, None if unknown."""
        for one in self._parts:
            if not is_among(address, one.addresses):
                place = f"at {address}" if address else "at an address that is not known"
                among = f"is not among those of {one.whose('addresses')}: {one.words('addresses')}"
                raise UsageError(f"The model {name} is asked {place}, which {among}.")

    def allows_address(self, address: str) -> bool:
        """Return whether a server is among those of the class."""
        return all(is_among(address, one.addresses) for one in self._parts)

    def price(self, name: str) -> Prices | None:
        """Return the price that the administrator sets for a model, None without one."""
        prices = (self.prices or {}).items()
        return next((price for pattern, price in prices if fits_pattern(name, pattern)), None)

    def check_switch(self, name: str, refused: str) -> None:
        """Raise UsageError if a switch is off; `refused` is the first half of the sentence."""
        if getattr(self, name) is False:
            raise UsageError(f"{refused}: {self.whose(name)} has {self.words(name)}.")

    def server_problem(self, entry: EntryPattern) -> str:
        """Return why a server may not be started, "" if it may."""
        for one in self._parts:
            if one.servers is not None and not any(allowed.allows(entry) for allowed in one.servers):
                return f"{entry} is not among those of {one.whose('servers')}: {one.words('servers')}."
        return ""

    def capped(self, name: str, asked: float | None, *, session: bool = False) -> float | None:
        """Return the cap that holds for a limit of a turn or a session. Raises UsageError if a notebook asks for more.

        `asked` is None if the notebook does not name the limit.
        """
        own = f"session_{name}" if session else name
        most = cast("float | None", getattr(self, own))
        if most is None or asked is None or asked <= most:
            return most if asked is None else asked
        raise UsageError(f"{name} is {asked:g}, which is more than {self.whose(own)} allows: {self.words(own)}.")

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
            return "deny" if "deny" in (self.code, self.permission) else self.code or ("ask" if self.classes else None)
        return self.permission if asks else None

    def why_bound(self, verdict: Literal["ask", "deny"], *, code: bool, web: bool = False) -> str:
        """Return why a call is asked about or denied. The model reads it too, and is told no path."""
        name = "permission" if self.permission == verdict or not (code or web) else "code" if code else "web"
        return f'The settings of {self.whose(name)} have {name} = "{verdict}".'

    def check_mode(self, mode: str, asked_by: str = "") -> None:
        """Raise UsageError for a mode of replay that is not the one of the class; `asked_by` is what names it."""
        if self.replay not in (None, mode):
            by = f", which {asked_by} names," if asked_by else ""
            raise UsageError(f"The mode {mode}{by} is not that of {self.whose('replay')}: {self.words('replay')}.")

    def words(self, name: str) -> str:
        """Return a setting as a file has it, and the file."""
        return f"{self.written(name)} in {self._holding(name).file}"

    def written(self, name: str) -> str:
        """Return a setting as a file has it."""
        value = getattr(self, name)
        shown = [*map(str, cast("tuple[object, ...]", value))] if isinstance(value, tuple) else value
        return f"{_as_written(name)} = {shown!r}"

    def whose(self, name: str) -> str:
        """Return for what a setting holds, in words."""
        is_set = getattr(self, name) is not None  # else it is the "ask" for code, which every class has
        return "this machine" if is_set and self._holding(name).file == POLICY_FILE else "this class"

    def _holding(self, name: str) -> "ClassSettings":
        """Return the settings of the file that sets the bound that holds."""
        value = getattr(self, name)
        return next((one for one in self._parts if getattr(one, name) == value), self)

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
    projects = [folder / "pyproject.toml" for folder in in_order]
    return [POLICY_FILE, *projects, *([Path(named).absolute()] if named else [])]


@cache
def class_settings() -> ClassSettings:
    """Return the bounds that hold. Raises UsageError for a file that cannot be read, or has an unknown setting."""
    found = [settings for file in dict.fromkeys(_candidates()) if (settings := _read(file)) is not None]
    return _combined(found)


def _read_policy() -> ClassSettings | None:
    """Return the settings of the administrator's file, or None if there is no such file."""
    try:
        return _made(POLICY_FILE, tomllib.loads(POLICY_FILE.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UsageError(
            f"The administrator's policy {POLICY_FILE} cannot be read: {error}. Nothing runs until it can: ask the "
            "administrator to correct it."
        ) from error


def _read(file: Path) -> ClassSettings | None:
    """Return the settings of a file, or None if it has none."""
    if file == POLICY_FILE:
        return _read_policy()
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
                before = replace(whole, parts=tuple(parts[:place]))
                holds = f"{before.words(name)} holds"
                if isinstance(value, tuple):
                    holds = f"both lists hold: what is not in {before.words(name)} is refused"
                wider.append(f"{part.words(name)} asks for more than {before.whose(name)} allows, and {holds}.")
    return replace(whole, parts=tuple(parts), wider=tuple(wider))


def _is_within(name: str, value: Any, most: Any) -> bool:  # noqa: PLR0911  (one return for each kind)
    """Return whether a value of a setting allows no more than another one does."""
    if most is None:
        return True
    if name in _STRICTNESS:
        return _STRICTNESS[name].index(value) <= _STRICTNESS[name].index(most)
    if name == "models":
        return all(any(fits_pattern(one, pattern) for pattern in most) for one in value)
    if name == "addresses":
        return all(any(is_address(one, pattern) for pattern in most) for one in value)
    if name == "servers":
        return all(any(allowed.allows(one) for allowed in most) for one in value)
    if name == "schema_only":
        return value >= most
    return value <= most


# -- what a file says --------------------------------------------------------------------------------


def _made(file: Path, table: Mapping[str, Any]) -> ClassSettings:
    known = {_as_written(name): name for name in _SETTINGS if name != "prices" or file == POLICY_FILE}
    kind = "policy" if file == POLICY_FILE else "class"
    given: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            raise UsageError(
                f"{file}: {name!r} is no setting of a {kind}.{did_you_mean(name, known)} "
                f"Write one of {', '.join(known)}."
            )
        if not _fits(name, value):
            raise UsageError(f"{file}: {name} = {value!r} cannot be. Write {_FORMS[_kind(name)]}.")
        given[known[name]] = tuple(cast("list[Any]", value)) if isinstance(value, list) else value
    if "servers" in given:
        given["servers"] = tuple(map(_server_entry, given["servers"]))
    if "prices" in given:
        given["prices"] = {pattern: _prices(**price) for pattern, price in given["prices"].items()}
    return ClassSettings(file=file, **given)


def _server_entry(item: str | Mapping[str, Any]) -> EntryPattern:
    if isinstance(item, str):
        return EntryPattern(address=item)
    pairs = item.get("env", item.get("headers", {}))
    return EntryPattern(address=item.get("command", item.get("url", "")), cwd=item.get("cwd", ""), pairs=pairs)


def _prices(*, input: float, output: float, cached: float | None = None) -> Prices:  # noqa: A002  (as the file has it)
    return input, output, input if cached is None else cached


_FORMS = {
    "list": 'a list of patterns, as in ["local:*"]',
    "addresses": 'a list of addresses, as in ["https://gateway.example.org/*"]',
    "prices": "for each model {input = 0.25, output = 2.0, cached = 0.03}, in US dollars for a million tokens",
    "servers": 'a list of commands and addresses, or of tables {command="...", cwd="...", env={...}} and '
    '{url="...", headers={...}}',
    "number": "a number above 0",
    "whole": "a whole number above 0",
    "permission": '"ask" or "deny"',
    "switch": "true or false",
    "mode": f"one of {', '.join(MODES)}",
}


def _kind(name: str) -> str:
    own = {name: name for name in ("addresses", "prices", "servers")}
    kinds = {"models": "list", **own, **dict.fromkeys(("permission", "code", "web"), "permission")}
    switches = dict.fromkeys(("rules", "agents", "serve", "save", "keyring", "schema-only"), "switch")
    return {**kinds, **switches, "replay": "mode", "max-iterations": "whole"}.get(name, "number")


def _fits(name: str, value: Any) -> bool:  # noqa: PLR0911  (one return for each kind)
    match _kind(name):
        case "list":
            return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[Any]", value))
        case "addresses":
            return isinstance(value, list) and all(map(_is_address_pattern, cast("list[Any]", value)))
        case "prices":
            return isinstance(value, dict) and all(map(_is_price, cast("dict[str, Any]", value).values()))
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


def _is_address_pattern(item: object) -> bool:
    return isinstance(item, str) and (item == "*" or "://" in item)


def _is_price(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    table = cast("dict[str, Any]", item)
    return {"input", "output"} <= table.keys() <= {"input", "output", "cached"} and all(
        isinstance(price, int | float) and not isinstance(price, bool) and 0 <= price < float("inf")
        for price in table.values()
    )


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
