"""The servers of configuration files that the user has let start; kept between sessions.

A project's file says what to run on this machine, and may come from a download. So each of its entries is shown in full
once, and again after any change.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from agentmagic.errors import ServerError
from agentmagic.secret_shapes import is_random
from agentmagic.secrets import BLANK, is_secret_name, redact
from agentmagic.text import reveal
from agentmagic.tools.mcp.config import (
    CONNECT_TIMEOUT,
    DOWNLOAD_TIMEOUT,
    TIMEOUT,
    Http,
    InProcess,
    Origin,
    ServerConfig,
    Stdio,
    Unreadable,
)

FILE = "trusted-servers.json"
PATIENCE = 10.0  # seconds that another process may write the file


class TrustStore:
    """Keeps approvals in a file of the user's data folder, by the hash of the whole entry.

    `path` names another file. A file that cannot be read approves nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The file of approvals."""
        from platformdirs import user_data_path

        return self._path or user_data_path("agentmagic", appauthor=False) / FILE

    def approved(self, origin: Origin) -> bool:
        """Return whether exactly this entry was approved."""
        return origin.digest in self._read()

    def approve(self, server: str, config: ServerConfig) -> None:
        """Store that the user let this entry start, in the place of an earlier entry of the same name.

        Raises ServerError if the file cannot be written.
        """
        from filelock import FileLock

        if (origin := config.origin) is None:
            return
        entry = {"server": server, "file": str(origin.file), "command": entry_of(config)}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock", timeout=PATIENCE):
                kept = {digest: one for digest, one in self._read().items() if not _same(one, entry)}
                # Written beside and renamed, so that a crash leaves the old file or the new one.
                beside = self.path.with_suffix(".new")
                beside.write_text(json.dumps(kept | {origin.digest: entry}, indent=1), encoding="utf-8")
                beside.replace(self.path)
        except OSError as error:  # a lock that stays taken raises one too
            why = error.strerror or str(error)
            raise ServerError(
                f"The approval cannot be kept in {self.path} ({why}), so {server} stays unapproved. Make it writable."
            ) from None

    def before(self, server: str, origin: Origin) -> str:
        """Return the entry that was approved before for this name in this file, or ""."""
        asked = {"server": server, "file": str(origin.file)}
        return next((str(one.get("command", "")) for one in self._read().values() if _same(one, asked)), "")

    def _read(self) -> dict[str, Mapping[str, Any]]:
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        entries = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        return {digest: one for digest, one in entries.items() if isinstance(one, dict)}


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return (one.get("server"), one.get("file")) == (other["server"], other["file"])


def describe(config: ServerConfig) -> str:
    """Return on one line what would be started or reached, secrets blanked."""
    match config.transport:
        case Stdio(command=command, args=args, env=env, cwd=cwd):
            settings = [f"{name}={_safe(name, value)}" for name, value in env.items()]
            text = shlex.join([*settings, command, *args]) + (f"  (in {cwd})" if cwd else "")
        case InProcess(server=server):
            text = f"a {type(server).__name__} of this process"
        case Unreadable():
            text = "an entry that cannot be read"
        case address:
            headers = ", ".join(f"{name}: {_safe(name, value)}" for name, value in address.headers.items())
            text = address.url + (f"  (with {headers})" if headers else "")
    return _line(text)


def _safe(name: str, value: str) -> str:
    """Return the value of a variable or header as it may be shown."""
    return BLANK if is_secret_name(name) or is_random(value) else redact(value, name=name)


def _line(text: str) -> str:
    """Return a text on one line, secrets blanked and nothing hidden."""
    return reveal(redact(text), strictly=True)


def question(server: str, config: ServerConfig, store: TrustStore) -> str:
    """Return what the user has to approve: the whole entry, the file that names it, and the entry before."""
    if (origin := config.origin) is None:
        return describe(config)
    before = store.before(server, origin)
    changed = f"\nIt has changed. Before it was: {before}" if before else ""
    return f"{entry_of(config)}\nThe file {reveal(str(origin.file), strictly=True)} names it.{changed}"


def entry_of(config: ServerConfig) -> str:
    """Return all that an entry asks for, a line each: what would be started or reached, and with what."""
    return "\n".join((describe(config), *map(_line, _terms(config))))


def _terms(config: ServerConfig) -> Iterator[str]:
    if isinstance(config.transport, Http):
        yield from _terms_of_address(config.transport)
    if config.variables:
        yield f"It is given the values of: {', '.join(config.variables)}"
    if config.roots:
        yield f"It is told to work in: {', '.join(map(str, config.roots))}"
    if config.timeout != TIMEOUT:
        yield f"A call may take: {config.timeout:g} s"
    if config.connect_timeout not in (CONNECT_TIMEOUT, DOWNLOAD_TIMEOUT):
        yield f"Its first answer may take: {config.connect_timeout:g} s"
    if config.trust:
        yield "It is trusted: its tools may run without asking you, at a level of permission that says so."
    if config.allow:
        yield f"Without asking you, it may run: {', '.join(config.allow)}"


def _terms_of_address(address: Http) -> Iterator[str]:
    if address.sse:
        yield "It is reached by server-sent events."
    if address.client_id or address.client_secret:
        secret = f", with the secret {BLANK}" if address.client_secret else ""
        yield f"It is authorized as the client {address.client_id}{secret}"
    if address.client_metadata_url:
        yield f"The client is described at: {address.client_metadata_url}"
    if address.callback_port:
        yield f"Its authorization comes back to the port: {address.callback_port}"
