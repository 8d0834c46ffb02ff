"""What the environment says: the model to use, permission, keys and base URLs.

Nothing is read at import. A variable that is set but empty counts as unset.
"""

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Literal

from agentmagic import redact
from agentmagic.errors import AuthenticationMissing, UsageError

MODEL = "AGENTMAGIC_MODEL"
PERMISSION = "AGENTMAGIC_PERMISSION"
KEYRING_SERVICE = "agentmagic"

Permission = Literal["allow", "ask", "deny"]
PERMISSIONS: tuple[Permission, ...] = ("allow", "ask", "deny")

_typed: dict[str, str] = {}


def variable(name: str) -> str | None:
    """Return an environment variable, or None where it is unset or empty."""
    return os.environ.get(name) or None


def model_override() -> str | None:
    """Return the model that `AGENTMAGIC_MODEL` puts in place of every other, if any."""
    return variable(MODEL)


def permission_override() -> Permission | None:
    """Return what `AGENTMAGIC_PERMISSION` says.

    Raises UsageError where it is none of allow, ask and deny.
    """
    value = variable(PERMISSION)
    if value is None:
        return None
    if value not in PERMISSIONS:
        message = f"{PERMISSION} is {value!r}. Set it to allow, ask or deny."
        raise UsageError(message)
    return value


def overrides(model: str) -> list[str]:
    """Say in a sentence each which variables stand in for what cell and code chose; `model` is the one asked.

    Raises UsageError where one of them cannot be.
    """
    said: list[str] = []
    if model_override():
        said.append(f"{MODEL} is set: {model} is asked in this turn.")
    if permission := permission_override():
        said.append(f"{PERMISSION}={permission} is set, and holds for this turn.")
    return said


@lru_cache(maxsize=8)
def _dotenv(path: Path, modified: float) -> dict[str, str | None]:
    from dotenv import dotenv_values

    return dotenv_values(path) if modified else {}


def _from_dotenv(name: str) -> str | None:
    path = Path.cwd() / ".env"
    try:
        modified = path.stat().st_mtime
        return _dotenv(path, modified).get(name) or None
    except (OSError, UnicodeDecodeError):  # there is none, or it is no text: then there is no key in it
        return None


def hide_keys(names: Iterable[str]) -> None:
    """Blank these keys from now on wherever they are set, used or not: a tool may print any of them."""
    for name in names:
        for place in (variable, _typed.get, _from_dotenv):
            if key := place(name):
                redact.remember(key)


def _from_keyring(name: str) -> str | None:
    try:
        keyring = import_module("keyring")
        return keyring.get_password(KEYRING_SERVICE, name) or None
    except Exception:  # noqa: BLE001  (no keyring installed, or no backend that works: then there is no key in it)
        return None


def find_key(names: Sequence[str]) -> str | None:
    """Look a key up in the environment, what was typed, `.env` and the OS keyring, in that order.

    Every place is asked for every name before the next place. A key that is found is never written
    by agentmagic again.
    """
    for place in (variable, _typed.get, _from_dotenv, _from_keyring):
        for name in names:
            if key := place(name):
                redact.remember(key)
                return key
    return None


def type_key(name: str, key: str) -> None:
    """Keep a key that a person typed, in memory, for as long as the process lives."""
    _typed[name] = key.strip()


def require_key(provider: str, names: Sequence[str]) -> str:
    """Return the key of a provider, or raise AuthenticationMissing with what to do."""
    if key := find_key(names):
        return key
    message = (
        f"{provider} needs a key, and none was found. Set {' or '.join(names)} in the environment, "
        "a .env file or the system keyring; the model local: works without a key."
    )
    raise AuthenticationMissing(message, names)
