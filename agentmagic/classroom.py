"""The bounds that a teacher sets for a class, which a notebook's options, magics and Agent arguments cannot widen.

They are the table `[tool.agentmagic.class]` of the nearest `pyproject.toml`, in the folder of the process or above it,
or of the TOML file that `AGENTMAGIC_CLASS` names. They are read once, at the first session of the process.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

from agentmagic.errors import UsageError

VARIABLE = "AGENTMAGIC_CLASS"
Replay = Literal["live", "record", "replay", "replay-model", "replay-tools", "auto"]
MODES: tuple[Replay, ...] = get_args(Replay)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassSettings:
    """The bounds of a class; None leaves a thing to the notebook.

    `models` are patterns of "provider:model", and `servers` patterns of an MCP server's command line or address.
    `max_cost` (US dollars), `max_tokens`, `max_iterations` (model requests) and `timeout` (seconds) bound each turn,
    `session_max_cost` and `session_max_tokens` each session.
    With `permission` "ask", no rule lets a server's tool, or one that asks, run unasked; "deny" lets none of them run.
    `code` is the same for programs. `replay` is the one mode of every cassette. `file` is the file that sets the
    bounds.
    """

    file: Path | None = None
    models: tuple[str, ...] | None = None
    servers: tuple[str, ...] | None = None
    max_cost: float | None = None
    max_tokens: int | None = None
    session_max_cost: float | None = None
    session_max_tokens: int | None = None
    max_iterations: int | None = None
    timeout: float | None = None
    permission: Literal["ask", "deny"] | None = None
    code: Literal["ask", "deny"] | None = None
    replay: Replay | None = None

    def check_model(self, name: str) -> None:
        """Raise UsageError for a model that is not among those of the class."""
        if self.models is not None and not any(fnmatchcase(name, pattern) for pattern in self.models):
            raise UsageError(f"The model {name} is not among those of this class: {self._words('models')}.")

    def server_problem(self, address: str) -> str:
        """Return why a server may not be started, "" if it may."""
        if self.servers is None or any(fnmatchcase(address, pattern) for pattern in self.servers):
            return ""
        return f"it is not among those of this class: {self._words('servers')}."

    def capped(self, name: str, asked: float | None, *, session: bool = False) -> float | None:
        """Return the cap that holds for a limit of a turn or a session. Raises UsageError if a notebook asks for more.

        `asked` is None if the notebook does not name the limit.
        """
        own = f"session_{name}" if session else name
        most = cast("float | None", getattr(self, own))
        if most is None or asked is None or asked <= most:
            return most if asked is None else asked
        raise UsageError(f"{name} is {asked:g}, which is more than this class allows: {self._words(own)}.")

    def limit(self, name: str, asked: float | None, usual: float) -> float | None:
        """Return the limit of a turn that holds for `max_iterations` or `timeout`; None is no limit.

        The usual limit counts as one that the notebook does not name. Raises UsageError if the notebook asks for more.
        """
        most = cast("float | None", getattr(self, name))
        if most is None or asked == usual:
            return asked if most is None else min(usual, most)
        return self.capped(name, float("inf") if asked is None else asked)

    def bound(self, *, asks: bool, code: bool) -> Literal["ask", "deny"] | None:
        """Return the mildest verdict that the class permits on a call, or None if the class sets no bound for it.

        `code` says that the call runs a program, `asks` that its tool asks by default.
        """
        if code:
            return "deny" if "deny" in (self.code, self.permission) else self.code or ("ask" if self.file else None)
        return self.permission if asks else None

    def denied(self, *, code: bool) -> str:
        """Return why a call is denied. The model reads it too, and is told no path."""
        name = "code" if code and self.code == "deny" else "permission"
        return f'The settings of this class have {name} = "deny".'

    def check_mode(self, mode: str) -> None:
        """Raise UsageError for a mode of replay that is not the one of the class."""
        if self.replay not in (None, mode):
            raise UsageError(f"The mode {mode} is not that of this class: {self._words('replay')}.")

    def _words(self, name: str) -> str:
        """Return a setting as the file has it, and the file."""
        value = getattr(self, name)
        written = list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value
        return f"{name.replace('_', '-')} = {written!r} in {self.file}"


@cache
def class_settings() -> ClassSettings:
    """Return the bounds of the class. Raises UsageError for a file that cannot be read, or has an unknown setting."""
    named = os.environ.get(VARIABLE)
    folders = [] if named else [Path.cwd(), *Path.cwd().parents]
    file = Path(named) if named else next((path for one in folders if (path := one / "pyproject.toml").is_file()), None)
    if file is None:
        return ClassSettings()
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if not named:
            return ClassSettings()  # the broken file of a project: the project's own tools report it
        raise UsageError(
            f"The class settings {file} cannot be read: {error}. Correct the file that {VARIABLE} names."
        ) from error
    match data:
        case {"tool": {"agentmagic": {"class": {**table}}}}:
            return _made(file.absolute(), cast("Mapping[str, Any]", table))
        case _ if named:
            raise UsageError(f"{file}, which {VARIABLE} names, has no table [tool.agentmagic.class]. Write one.")
        case _:
            return ClassSettings()


def _made(file: Path, table: Mapping[str, Any]) -> ClassSettings:
    known = {one.name.replace("_", "-"): one.name for one in fields(ClassSettings) if one.name != "file"}
    given: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            raise UsageError(f"{file}: {name!r} is no setting of a class. Write one of {', '.join(known)}.")
        if not _fits(name, value):
            raise UsageError(f"{file}: {name} = {value!r} cannot be. Write {_FORMS[_kind(name)]}.")
        given[known[name]] = tuple(cast("list[str]", value)) if isinstance(value, list) else value
    return ClassSettings(file=file, **given)


_FORMS = {
    "list": 'a list of patterns, as in ["local:*"]',
    "number": "a number above 0",
    "whole": "a whole number above 0",
    "permission": '"ask" or "deny"',
    "mode": f"one of {', '.join(MODES)}",
}


def _kind(name: str) -> str:
    if name in ("models", "servers"):
        return "list"
    if name in ("permission", "code"):
        return "permission"
    return {"replay": "mode", "max-iterations": "whole"}.get(name, "number")


def _fits(name: str, value: Any) -> bool:
    match _kind(name):
        case "list":
            return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[Any]", value))
        case "permission":
            return value in ("ask", "deny")
        case "mode":
            return value in MODES
        case "whole":
            return isinstance(value, int) and not isinstance(value, bool) and value > 0
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
