"""The limits of a machine and of a classroom, which a notebook's options, magics and Agent arguments cannot widen.

An administrator sets the limits of a machine in `POLICY_FILE`. A teacher sets those of a classroom in the table
`[tool.agentmagic.class]` of each `pyproject.toml` in the notebook's folder and above it, and of the TOML file that
`AGENTMAGIC_CLASS` names. All these limits apply: a file can narrow what an outer file allows, but not widen it. The
administrator's file is the outermost. The files are read once in a process.
"""

import operator
import os
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, cast, get_args

from agentmagic.errors import UsageError
from agentmagic.patterns import EntryPattern, fits_pattern, is_address, is_at
from agentmagic.plain_files import UnfitFile, read_plain_text
from agentmagic.text import did_you_mean

VARIABLE = "AGENTMAGIC_CLASS"
SERVER_VARIABLE = "JPY_SESSION_NAME"
"""The environment variable that jupyter_server sets to the notebook's path, see `SessionManager.get_kernel_env`."""
VS_CODE_VARIABLE = "__vsc_ipynb_file__"
"""The Python variable that VS Code sets to the notebook's path."""

Replay = Literal["live", "record", "replay", "replay-model", "replay-tools", "auto"]
MODES: tuple[Replay, ...] = get_args(Replay)
OFFLINE_MODES: tuple[Replay, ...] = ("replay", "replay-model")
"""The modes in which no request is sent to a model."""


def windows_folder(hive: Literal["HKEY_LOCAL_MACHINE", "HKEY_CURRENT_USER"], name: str) -> Path | None:
    """Return a folder that the Windows registry names (not an environment variable), or None on another system."""
    if sys.platform != "win32":
        return None
    import winreg

    where = r"SOFTWARE\Microsoft\Windows\CurrentVersion\Explorer\Shell Folders"
    with winreg.OpenKey(getattr(winreg, hive), where) as key:
        return Path(winreg.QueryValueEx(key, name)[0])


def _policy_file() -> Path:
    """Return the path of the administrator's policy file. It depends on no variable that a notebook could set."""
    folder = windows_folder("HKEY_LOCAL_MACHINE", "Common AppData")  # users can change the variable %PROGRAMDATA%
    return Path("/etc/agentmagic.toml") if folder is None else folder / "agentmagic" / "agentmagic.toml"


POLICY_FILE = _policy_file()
"""The administrator's file; its settings are at the top level of the file, not in a table."""

Prices = tuple[float, float, float]
"""Prices in US dollars for a million tokens of input, output and cached input."""

_TABLE = "agentmagic.class"
"""Marks invalid TOML as a settings file of a class: if a `pyproject.toml` contains this text, its errors are raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSettings:
    """The limits of a machine or a classroom. A setting that is None sets no limit.

    `models` are patterns of allowed "provider:model" names, `addresses` patterns of the allowed addresses of models,
    and `servers` the MCP servers that may be started or connected. `prices`, by pattern of model, override all other
    prices; only the administrator's file has them. `max_cost` (US dollars), `max_tokens`, `max_iterations` (model
    requests) and `timeout` (seconds) limit each turn; `session_max_cost` and `session_max_tokens` limit each session,
    and all sessions of a kernel together. `daily_budget` and `monthly_budget` (US dollars) limit the user's costs in a
    day and a month, in all folders. With `permission` "ask", a server's tool, or a tool that asks by default, never
    runs without asking the user; with "deny", it never runs. `code` does the same for tools that run programs, and
    `web` for web searches and pages, where one approval is enough for a session. `rules` says whether a project's files
    may be sent to the model, `agents` whether an agent may ask another, `serve` whether other programs may use the
    notebook, `save` whether conversations may be saved, and `keyring` whether the system's keyring may store keys. If
    `schema_only` is true, prompts send no values. `replay` is the only allowed mode of cassettes (recordings). `file`
    has the settings. If there are several files, `parts` has the settings of each, the outermost first, and the other
    fields are the strictest; `wider` has a sentence for each setting that an outer file does not allow.
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
        """The settings of the administrator's policy file alone, or None if there is no such file."""
        return next((one for one in self._parts if one.file == POLICY_FILE), None)

    @property
    def classes(self) -> "tuple[ClassSettings, ...]":
        """The settings of each classroom file, the file of the outermost folder first, without the administrator's."""
        return tuple(one for one in self._parts if one.file not in (None, POLICY_FILE))

    @property
    def names(self) -> list[str]:
        """The names of the settings that are not None, spelled as in a settings file: "max-cost"."""
        return list(map(_file_spelling, self.settings))

    @property
    def settings(self) -> list[str]:
        """The names of the settings that are not None, spelled as the fields: "max_cost"."""
        return [name for name in _SETTINGS if getattr(self, name) is not None]

    @property
    def bounds_costs(self) -> bool:
        """Whether there is a limit on costs. If so, a notebook cannot change a model's known price."""
        costs = (self.max_cost, self.session_max_cost, self.daily_budget, self.monthly_budget)
        return any(cost is not None for cost in costs)

    @property
    def fixes_prices(self) -> bool:
        """Whether prices that a notebook sets are ignored, because the administrator limits costs."""
        return self.policy is not None and self.policy.bounds_costs

    def first_set(self, names: Iterable[str], value: str | None = None) -> str | None:
        """Return the first of these settings that is set (if `value` is given: to this value), or None."""
        for name in names:
            if (own := getattr(self, name)) is not None and value in (None, own):
                return name
        return None

    def check_model(self, name: str, chosen_by: str = "") -> None:
        """Raise UsageError if a model is not allowed here; `chosen_by` is the setting that chose it, if known."""
        if one := self._without("models", partial(fits_pattern, name)):
            by = f", which {chosen_by} names," if chosen_by else ""
            among = f"is not among those of {one.scope('models')}: {one.setting_with_file('models')}"
            raise UsageError(f"The model {name}{by} {among}.")

    def allows_model(self, name: str) -> bool:
        """Return whether these limits allow a model."""
        return self._without("models", partial(fits_pattern, name)) is None

    def check_address(self, name: str, address: str | None) -> None:
        """Raise UsageError if a model's address is not allowed here; None is an unknown address."""
        if one := self._without("addresses", partial(is_at, address)):
            place = f"at {address.partition('?')[0]}" if address else "at an address that is not known"
            among = f"is not among those of {one.scope('addresses')}: {one.setting_with_file('addresses')}"
            raise UsageError(f"The model {name} is asked {place}, which {among}.")

    def allows_address(self, address: str) -> bool:
        """Return whether these limits allow requests to models at an address."""
        return self._without("addresses", partial(is_at, address)) is None

    def server_problem(self, entry: EntryPattern) -> str:
        """Return the reason why these limits forbid an MCP server, or "" if they allow it."""
        if one := self._without("servers", lambda pattern: pattern.allows(entry)):
            return f"{entry} is not among those of {one.scope('servers')}: {one.setting_with_file('servers')}."
        return ""

    def _without(self, name: str, fits: Callable[[Any], bool]) -> "ClassSettings | None":
        """Return the settings of the first file whose list called `name` has no item that fits, or None."""
        for one in self._parts:
            if (items := getattr(one, name)) is not None and not any(map(fits, items)):
                return one
        return None

    def price(self, name: str) -> Prices | None:
        """Return the price that the administrator sets for a model, or None if none exists."""
        prices = (self.prices or {}).items()
        return next((price for pattern, price in prices if fits_pattern(name, pattern)), None)

    def check_switch(self, name: str, refusal: str) -> None:
        """Raise UsageError if the setting called `name` is false; `refusal` is the first half of the error message."""
        if getattr(self, name) is False:
            raise UsageError(f"{refusal}: {self.scope(name)} has {self.setting_with_file(name)}.")

    def cap(self, name: str, value: float | None, *, session: bool = False) -> float | None:
        """Return a notebook's limit `value`, or the settings' limit if None. Raises UsageError if `value` is higher."""
        own = f"session_{name}" if session else name
        most = cast("float | None", getattr(self, own))
        if most is None or value is None or value <= most:
            return most if value is None else value
        raise UsageError(
            f"{name} is {value:g}, which is more than {self.scope(own)} allows: {self.setting_with_file(own)}."
        )

    def limit(self, name: str, value: float | None, usual: float) -> float | None:
        """Return the `max_iterations` or `timeout` of a turn, None for no limit. Raises UsageError as `cap` does.

        `value` is the notebook's limit (None: no limit). If it equals the default value `usual`, it counts as not set.
        """
        most = cast("float | None", getattr(self, name))
        if most is None or value == usual:
            return value if most is None else min(usual, most)
        return self.cap(name, float("inf") if value is None else value)

    def verdict(self, *, asks: bool, code: bool, web: bool = False) -> tuple[Literal["ask", "deny"] | None, str]:
        """Return the mildest decision that is permitted for a tool call (None sets no limit), and its setting.

        `code` says that the call runs a program, `web` that it searches or reads the web, `asks` that its tool
        asks the user by default.
        """
        if not (asks or code or web):
            return None, ""
        own = "web" if web else "code" if code else "permission"
        verdict = getattr(self, own) or (self.permission if web else "ask" if code and self.classes else None)
        verdict = "deny" if self.permission == "deny" else verdict
        return verdict, "permission" if verdict == self.permission else own

    def check_mode(self, mode: str, chosen_by: str = "") -> None:
        """Raise UsageError if another replay mode is required here; `chosen_by` is the setting that chose `mode`."""
        if self.replay not in (None, mode):
            by = f", which {chosen_by} names," if chosen_by else ""
            raise UsageError(
                f"The mode {mode}{by} is not that of {self.scope('replay')}: {self.setting_with_file('replay')}."
            )

    def setting_with_file(self, name: str) -> str:
        """Return a setting as text for a message, with its file: "max-cost = 0.5 in FILE"."""
        return f"{self.setting_text(name)} in {self._source(name).file}"

    def setting_text(self, name: str) -> str:
        """Return a setting as text for a message: "max-cost = 0.5"."""
        value = getattr(self, name)
        text = [*map(str, cast("tuple[object, ...]", value))] if isinstance(value, tuple) else value
        return f"{_file_spelling(name)} = {text!r}"

    def scope(self, name: str) -> str:
        """Return in words who sets `name`, for a message: "this machine" (the administrator) or "this class"."""
        is_set = getattr(self, name) is not None  # `code` counts as "ask" in a class that does not set it
        return "this machine" if is_set and self._source(name).file == POLICY_FILE else "this class"

    def _source(self, name: str) -> "ClassSettings":
        """Return the settings of the file that set the value of the setting `name`."""
        value = getattr(self, name)
        return next((one for one in self._parts if getattr(one, name) == value), self)

    @property
    def _parts(self) -> "tuple[ClassSettings, ...]":
        return self.parts or (self,)


_SETTINGS = tuple(one.name for one in fields(ClassSettings) if one.name not in ("file", "parts", "wider"))


def _file_spelling(name: str) -> str:
    return name.replace("_", "-")


# -- finding the files -------------------------------------------------------------------------------


def _working_folder() -> Path | None:
    with suppress(OSError):  # raised if the working directory was deleted
        return Path.cwd()
    return None


_FOLDER = _working_folder()
"""The folder where a script began: the working directory when this module was imported."""


def notebook_of(variables: Mapping[str, Any]) -> Path | None:
    """Return the notebook's path according to the front end, or None. After a rename, the path may not exist."""
    files = [
        Path(one) for one in (variables.get(VS_CODE_VARIABLE), os.environ.get(SERVER_VARIABLE)) if isinstance(one, str)
    ]
    paths = [path for path in files if path.suffix == ".ipynb" and path.is_absolute()]
    return next((path for path in paths if path.is_file()), paths[0] if paths else None)


def _own_notebook() -> Path | None:
    shell = _shell()
    return notebook_of({} if shell is None else shell.user_ns)


def own_notebook() -> str:
    """Return the name of this kernel's notebook according to the front end, or "" if it says none."""
    notebook = _own_notebook()
    return "" if notebook is None else notebook.name


def _shell() -> Any:
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def _start_folders() -> Iterator[Path]:
    """Yield the folders where the search for settings files starts: the kernel's or script's, then the notebook's."""
    shell = _shell()
    began = _FOLDER if shell is None else Path(shell.starting_dir)
    if began is not None:
        yield began
    if (notebook := _own_notebook()) is not None:
        yield notebook.parent


def own_folder() -> Path | None:
    """Return the notebook's folder, else the folder where the kernel or script began, or None if that was deleted."""
    return next(reversed(list(_start_folders())), None)


def _settings_files() -> list[Path]:
    """Return the files that may set limits, from the outermost folder inwards, and last that of `AGENTMAGIC_CLASS`."""
    above = [folder for start in _start_folders() for folder in (start, *start.parents)]
    in_order = sorted(dict.fromkeys(above), key=lambda folder: len(folder.parts))
    class_file = os.environ.get(VARIABLE)
    projects = [folder / "pyproject.toml" for folder in in_order]
    return [POLICY_FILE, *projects, *([Path(class_file).absolute()] if class_file else [])]


@cache
def class_settings() -> ClassSettings:
    """Return the limits of this process. Raises UsageError for an unreadable file or an unknown setting in it."""
    parts = [settings for file in dict.fromkeys(_settings_files()) if (settings := _read(file)) is not None]
    return _combine(parts)


def _read_policy() -> ClassSettings | None:
    """Return the settings in the administrator's policy file, or None if there is no such file."""
    try:
        return _parse_table(POLICY_FILE, tomllib.loads(read_plain_text(POLICY_FILE)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UsageError(
            f"The administrator's policy {POLICY_FILE} cannot be read: {error}. Nothing runs until it can: ask the "
            "administrator to correct it."
        ) from error


def _read(file: Path) -> ClassSettings | None:
    """Return the limits that a file sets, or None if it sets none."""
    if file == POLICY_FILE:
        return _read_policy()
    is_class_file = file == Path(os.environ.get(VARIABLE) or os.devnull).absolute()
    text = ""
    try:
        text = read_plain_text(file)
        data = tomllib.loads(text)
    except (OSError, ValueError) as error:
        if not is_class_file and _TABLE not in text and not isinstance(error, UnfitFile):
            return None  # no such file, or an invalid pyproject.toml without limits: other tools report its error
        which = f"the file that {VARIABLE} names" if is_class_file else "it"
        raise UsageError(f"The class settings {file} cannot be read: {error}. Correct {which}.") from error
    match data:
        case {"tool": {"agentmagic": {"class": {**table}}}}:
            return _parse_table(file, cast("Mapping[str, Any]", table))
        case _ if is_class_file:
            raise UsageError(f"{file}, which {VARIABLE} names, has no table [tool.agentmagic.class]. Write one.")
        case _:
            return None


def _combine(parts: list[ClassSettings]) -> ClassSettings:
    """Return the strictest value of each setting in several files; `wider` tells which values an outer file forbids."""
    if len(parts) < 2:  # noqa: PLR2004
        return parts[0] if parts else ClassSettings()
    whole, wider = parts[0], list[str]()
    for place, part in enumerate(parts[1:], 1):
        for name in _SETTINGS:
            value, most = getattr(part, name), getattr(whole, name)
            if value is None:
                continue
            if most is None or _KINDS[name].is_within(value, most):
                whole = replace(whole, **{name: value})
            else:
                before = replace(whole, parts=tuple(parts[:place]))
                holds = f"{before.setting_with_file(name)} holds"
                if isinstance(value, tuple):
                    holds = f"both lists hold: what is not in {before.setting_with_file(name)} is refused"
                wider.append(
                    f"{part.setting_with_file(name)} asks for more than {before.scope(name)} allows, and {holds}."
                )
    return replace(whole, parts=tuple(parts), wider=tuple(wider))


# -- reading a file ----------------------------------------------------------------------------------


def _parse_table(file: Path, table: Mapping[str, Any]) -> ClassSettings:
    fields_by_name = {_file_spelling(name): name for name in _SETTINGS if name != "prices" or file == POLICY_FILE}
    whose = "policy" if file == POLICY_FILE else "class"
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in fields_by_name:
            raise UsageError(
                f"{file}: {name!r} is no setting of a {whose}.{did_you_mean(name, fields_by_name)} "
                f"Write one of {', '.join(fields_by_name)}."
            )
        if not (kind := _KINDS[fields_by_name[name]]).fits(value):
            raise UsageError(f"{file}: {name} = {value!r} cannot be. Write {kind.form}.")
        values[fields_by_name[name]] = tuple(cast("list[Any]", value)) if isinstance(value, list) else value
    if "servers" in values:
        values["servers"] = tuple(map(_server_entry, values["servers"]))
    if "prices" in values:
        values["prices"] = {pattern: _prices(**price) for pattern, price in values["prices"].items()}
    return ClassSettings(file=file, **values)


def _server_entry(item: str | Mapping[str, Any]) -> EntryPattern:
    if isinstance(item, str):
        return EntryPattern(address=item)
    pairs = item.get("env", item.get("headers", {}))
    return EntryPattern(address=item.get("command", item.get("url", "")), cwd=item.get("cwd", ""), pairs=pairs)


def _prices(*, input: float, output: float, cached: float | None = None) -> Prices:  # noqa: A002  (as the file has it)
    return input, output, input if cached is None else cached


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


# -- the kinds of settings ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SettingKind:
    """The values that a setting can have, described in `form` for a message, and which of two is at least as strict."""

    form: str
    fits: Callable[[Any], bool]
    is_within: Callable[[Any, Any], bool] = operator.le


def _list(form: str, is_item: Callable[[object], bool], fits: Callable[[Any, Any], bool]) -> _SettingKind:
    """Return the kind of a list of patterns. `fits` says whether one pattern allows no more than another."""
    return _SettingKind(
        form,
        lambda value: isinstance(value, list) and all(map(is_item, cast("list[object]", value))),
        lambda value, most: all(any(fits(one, pattern) for pattern in most) for one in value),
    )


def _words(form: str, *words: str) -> _SettingKind:
    """Return the kind of a setting that is one of these words, the strictest first."""
    return _SettingKind(form, words.__contains__, lambda value, most: words.index(value) <= words.index(most))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


_NUMBER = _SettingKind("a number above 0", _is_number)
_SWITCH = _SettingKind("true or false", lambda value: isinstance(value, bool))
_KINDS: Mapping[str, _SettingKind] = {
    **dict.fromkeys(_SETTINGS, _NUMBER),
    **dict.fromkeys(("rules", "agents", "serve", "save", "keyring"), _SWITCH),
    **dict.fromkeys(("permission", "code", "web"), _words('"ask" or "deny"', "deny", "ask")),
    "schema_only": replace(_SWITCH, is_within=operator.ge),
    "replay": _words(f"one of {', '.join(MODES)}", "replay", "replay-model", "replay-tools", "auto", "record", "live"),
    "max_iterations": _SettingKind(
        "a whole number above 0", lambda value: isinstance(value, int) and _is_number(value)
    ),
    "models": _list('a list of patterns, as in ["local:*"]', lambda item: isinstance(item, str), fits_pattern),
    "addresses": _list('a list of addresses, as in ["https://gateway.example.org/*"]', _is_address_pattern, is_address),
    "servers": _list(
        'a list of commands and addresses, or of tables {command="...", cwd="...", env={...}} and '
        '{url="...", headers={...}}',
        _is_server,
        lambda entry, pattern: pattern.allows(entry),
    ),
    "prices": _SettingKind(
        "for each model {input = 0.25, output = 2.0, cached = 0.03}, in US dollars for a million tokens",
        lambda value: isinstance(value, dict) and all(map(_is_price, cast("dict[str, Any]", value).values())),
    ),
}
