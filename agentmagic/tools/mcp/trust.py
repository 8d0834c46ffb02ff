"""The servers of configuration files that the user has let start; kept between sessions.

A project's file says what to run on this machine, and may come from a download. So each of its entries is shown in full
once, and again after any change.
"""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from agentmagic.errors import ServerError
from agentmagic.secrets import BLANK, is_secret_name, redact
from agentmagic.text import reveal
from agentmagic.tools.mcp.config import InProcess, Origin, ServerConfig, Stdio, Unreadable

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
        """Return the command that was approved before for this name in this file, or ""."""
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
    """Return in full what would be started or reached, secrets blanked."""
    match config.transport:
        case Stdio(command=command, args=args, env=env, cwd=cwd):
            settings = [f"{name}={BLANK if is_secret_name(name) else value}" for name, value in env.items()]
            text = shlex.join([*settings, command, *args]) + (f"  (in {cwd})" if cwd else "")
        case InProcess(server=server):
            text = f"a {type(server).__name__} of this process"
        case Unreadable():
            text = "an entry that cannot be read"
        case address:
            names = ", ".join(address.headers)
            text = address.url + (f"  (with {names})" if names else "")
    return reveal(redact(text), strictly=True)


def question(server: str, config: ServerConfig, store: TrustStore) -> str:
    """Return what the user has to approve: the command, the file that names it, and the command before."""
    if (origin := config.origin) is None:
        return describe(config)
    before = store.before(server, origin)
    changed = f"\nIt has changed. Before it was: {before}" if before else ""
    return f"{entry_of(config)}\nThe file {reveal(str(origin.file), strictly=True)} names it.{changed}"


def entry_of(config: ServerConfig) -> str:
    """Return what would be started or reached, and which tools would run without asking."""
    allowed = reveal(", ".join(config.allow), strictly=True)
    return f"{describe(config)}\nWithout asking you, it may run: {allowed}" if allowed else describe(config)
