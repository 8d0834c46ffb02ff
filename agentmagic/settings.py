"""Settings from environment variables, `.env`, `pyproject.toml` and the keyring: model, permission, keys, secrets.

Nothing is read when the module is imported. A variable that is set but empty counts as unset.
"""

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, Literal, cast

from agentmagic import secrets
from agentmagic.classroom import MODES, Replay, class_settings
from agentmagic.errors import AuthenticationMissing, UsageError
from agentmagic.plain_files import read_plain_text
from agentmagic.text import cut_middle

MODEL = "AGENTMAGIC_MODEL"
PERMISSION = "AGENTMAGIC_PERMISSION"
SECRETS = "AGENTMAGIC_SECRETS"
CASSETTE = "AGENTMAGIC_CASSETTE"
REPLAY = "AGENTMAGIC_REPLAY"
VIEW = "AGENTMAGIC_VIEW"
SCHEMA_ONLY = "AGENTMAGIC_SCHEMA_ONLY"
HINTS = "AGENTMAGIC_HINTS"
KEYRING_SERVICE = "agentmagic"

Permission = Literal["allow", "ask", "deny"]
PERMISSIONS: tuple[Permission, ...] = ("allow", "ask", "deny")

_typed_keys: dict[str, str] = {}


def variable(name: str) -> str | None:
    """Return the value of an environment variable, or None if it is unset or empty."""
    return os.environ.get(name) or None


def _is_off(name: str) -> bool:
    return (variable(name) or "").lower() == "off"


def model_override() -> str | None:
    """Return the model in `AGENTMAGIC_MODEL`, which replaces every other choice, or None."""
    return variable(MODEL)


def hints() -> bool:
    """Return whether to suggest `%agent fix` below an error of a cell: True unless `AGENTMAGIC_HINTS` is "off"."""
    return not _is_off(HINTS)


def permission_override() -> Permission | None:
    """Return the value of `AGENTMAGIC_PERMISSION`.

    Raises UsageError if the value is not allow, ask or deny.
    """
    value = variable(PERMISSION)
    if value is None:
        return None
    if value not in PERMISSIONS:
        raise UsageError(f"{PERMISSION} is {value!r}. Set it to allow, ask or deny.")
    return value


def replay_override() -> Replay | None:
    """Return the replay mode from `AGENTMAGIC_REPLAY` or the classroom settings, which overrides all others, or None.

    Raises UsageError if the variable is not a mode, or not the mode that the classroom settings require.
    """
    bounds = class_settings()
    value = variable(REPLAY)
    if value is None:
        return bounds.replay
    if value not in MODES:
        raise UsageError(f"{REPLAY} is {value!r}. Set it to one of {', '.join(MODES)}.")
    bounds.check_mode(value, REPLAY)
    return value


def shows_runs() -> bool:
    """Return whether to show runs that a cell's code starts without a magic: True unless `AGENTMAGIC_VIEW` is "off"."""
    return not _is_off(VIEW)


def schema_only() -> bool:
    """Return whether prompts send only the names and types of values, not the values.

    Classroom settings, the variable `AGENTMAGIC_SCHEMA_ONLY` and `pyproject.toml` can set this, in that order.
    """
    if class_settings().schema_only:
        return True
    if (value := variable(SCHEMA_ONLY)) is not None:
        return value.lower() not in ("0", "false", "no", "off")
    return _project().get("schema-only") is True


def override_notes(model: str | None, chosen: str, replay: Replay | None = None) -> list[str]:
    """Return a sentence for each environment variable that overrides a choice of the cell or of the code.

    `model` is the name of the turn's model; if it is None, the sentence about the model is left out. It is left out too
    if `chosen`, the model that the cell or the code names, is that model or "". `replay` is the mode that the turn
    chooses: "live" is never overridden. Raises UsageError if a variable has an invalid value.
    """
    sentences: list[str] = []
    if model is not None and (override := model_override()) and chosen not in ("", model, override):
        sentences.append(f"{MODEL} is set: {model} is asked in each turn.")
    bounds = class_settings()
    if (permission := permission_override()) == "allow" and bounds.permission:
        whose, words = bounds.scope("permission"), bounds.setting_with_file("permission")
        sentences.append(f"{PERMISSION}=allow is set, and {whose} does not allow it: {words}.")
    elif permission:
        sentences.append(f"{PERMISSION}={permission} is set, and holds for each turn.")
    mode = replay_override() if variable(REPLAY) and replay != "live" else None
    if mode not in (None, "replay"):  # no sentence in a replay, whose output must be as recorded
        sentences.append(f"{REPLAY}={mode} is set, and holds for each turn.")
    return sentences


def _read(path: Path, reader: Callable[[Path], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return what `reader` reads from a file, or {} if it cannot. The result is cached until the file changes."""
    try:
        return _parse_cached(path, reader, path.stat().st_mtime_ns)
    except (OSError, ValueError):  # a missing file, not text, or invalid TOML
        return {}


@lru_cache(maxsize=8)
def _parse_cached(path: Path, reader: Callable[[Path], Mapping[str, Any]], _time: int) -> Mapping[str, Any]:
    return reader(path)


def _dotenv() -> Mapping[str, str | None]:
    return _read(Path.cwd() / ".env", _dotenv_values)


def _dotenv_values(path: Path) -> Mapping[str, str | None]:
    from dotenv import dotenv_values

    return dotenv_values(stream=StringIO(read_plain_text(path)))


def _project() -> Mapping[str, Any]:
    """Return the table `tool.agentmagic` of the nearest `pyproject.toml`, in the working directory or above it."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (path := folder / "pyproject.toml").is_file():
            return _read(path, _project_table)
    return {}


def _project_table(path: Path) -> Mapping[str, Any]:
    match tomllib.loads(read_plain_text(path)):
        case {"tool": {"agentmagic": {**table}}}:
            return cast("Mapping[str, Any]", table)
        case _:
            return {}


def _secret_names() -> Iterator[str]:
    """Yield the names of environment variables that `AGENTMAGIC_SECRETS` or `pyproject.toml` declare as secret."""
    yield from (variable(SECRETS) or "").replace(",", " ").split()
    names: Any = _project().get("secrets", ())
    if isinstance(names, list):
        yield from (name for name in cast("list[Any]", names) if isinstance(name, str))


def learn_secrets() -> None:
    """Register all secrets in the environment, in `.env` and in typed keys, since a tool may print any of them."""
    secrets.register_names(_secret_names())
    for place in (os.environ, _typed_keys, _dotenv()):
        for name, value in place.items():
            secrets.learn(name, value or "")


def keyring_library() -> Any:
    """Return the package keyring. Raises UsageError if a teacher or administrator forbids it, or ImportError."""
    class_settings().check_switch("keyring", "The system keyring is not used")
    return import_module("keyring")


def _from_keyring(name: str) -> str | None:
    try:
        return keyring_library().get_password(KEYRING_SERVICE, name)
    except Exception:  # noqa: BLE001  (no keyring allowed or installed, or no backend that works: then there is no key in it)
        return None


def find_key_with_place(names: Sequence[str], *, keyring: bool = True) -> tuple[str, str] | None:
    """Return an API key and the place where it was found, or None.

    `names` are the variables that may hold the key. The places are the environment, the keys that the user typed,
    `.env` and the system keyring, in this order. All names are looked up in one place before the next place is tried.
    The keyring may ask the user for a password. The key is registered as a secret, so that agentmagic never shows or
    saves it.
    """
    secrets.register_names(names)
    places: dict[str, Callable[[str], str | None]] = {
        "the environment": variable,
        "this kernel's memory": _typed_keys.get,
        ".env": lambda name: _dotenv().get(name),
    }
    if keyring:
        places["the system keyring"] = _from_keyring
    for where, place in places.items():
        for name in names:
            if key := place(name):
                secrets.learn(name, key)
                return key, where
    return None


def find_key(names: Sequence[str], *, keyring: bool = True) -> str | None:
    """Return the first API key that is set under one of the names, in the order of `find_key_with_place`, or None."""
    key = find_key_with_place(names, keyring=keyring)
    return key and key[0]


def type_key(name: str, key: str) -> None:
    """Store an API key that the user typed, in memory only, until the process ends."""
    _typed_keys[name] = key.strip()


def keyring_problem() -> str:
    """Return why API keys cannot be stored in the system keyring, or "" if they can."""
    try:
        backend: object = keyring_library().get_keyring()
    except UsageError as forbidden:
        return str(forbidden)
    except ImportError:
        return "The package keyring is not installed."
    except Exception as error:  # noqa: BLE001  (a backend that is named in the settings and cannot be loaded)
        return f"The system keyring cannot be used ({type(error).__name__})."
    if type(backend).__module__ in ("keyring.backends.fail", "keyring.backends.null"):
        return "This machine has no system keyring."
    return ""


def keep_key(name: str, key: str) -> None:
    """Store an API key in the system keyring, where `find_key` finds it. Raises UsageError if that fails."""
    class_settings().check_switch("keyring", "The key is not kept")
    try:
        keyring_library().set_password(KEYRING_SERVICE, name, key)
    except Exception as error:  # noqa: BLE001  (backends raise their own errors, whose words may hold the key)
        raise UsageError(
            f"The system keyring did not take the key ({type(error).__name__}). "
            f"Use the key in this kernel only, or set {name} in the environment or a .env file."
        ) from None


def require_key(provider: str, names: Sequence[str]) -> str:
    """Return the API key of a provider. Raises AuthenticationMissing, which says how to set a key, if none is set."""
    if key := find_key(names):
        return key
    message = (
        f"{provider} needs a key, and none was found. Set {' or '.join(names)} in the environment, "
        "a .env file or the system keyring; the model local: works without a key."
    )
    raise AuthenticationMissing(message, names)


def path_of(text: str | os.PathLike[str]) -> Path:
    """Return a path that a user wrote, with `~` replaced by the home folder; the file need not exist.

    Raises UsageError for an empty path, and for a path that the system cannot look up: the name is too long or
    contains a NUL, the user after `~` is unknown, or there is no permission to enter a folder.
    """
    if not os.fspath(text):
        raise UsageError("The name of the file is empty. Write its name, or its path.")
    try:
        path = Path(text).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
    except (OSError, RuntimeError, ValueError) as error:  # look-up failed, unknown user, NUL in the name
        why = error.strerror if isinstance(error, OSError) else error
        name = cut_middle(repr(os.fspath(text)), 80, lambda _start, _end: "…")
        raise UsageError(f"{name} cannot be used as a path: {str(why).rstrip('.')}. Write another one.") from error
    return path


def file_of(text: str | os.PathLike[str]) -> Path:
    """Return the path of a file to write. Raises UsageError as `path_of` does, and for a path that is a folder."""
    path = path_of(text)
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Name a file, in that folder or elsewhere.")
    return path
