"""What the user has approved of a project's own files, kept between sessions in one file of the user's data folder.

A project may come from a download. So what its files start, or tell a model, is shown in full once, and again after
any change.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from agentmagic.platforms import move_over

FILE = "trusted-servers.json"
PATIENCE = 10.0  # seconds that another process may write the file

Entry = Mapping[str, Any]
"""What was approved. An entry of the same `server` and `file` takes its place."""


class ApprovalFile:
    """Keeps approvals by a hash of what was approved.

    `path` names another file. A file that cannot be read approves nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The file of approvals."""
        from platformdirs import user_data_path

        return self._path or user_data_path("agentmagic", appauthor=False) / FILE

    def keep(self, entries: Mapping[str, Entry]) -> None:
        """Store entries by their hashes, in the place of earlier ones. Raises OSError if the file cannot be written."""
        from filelock import FileLock

        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.path}.lock", timeout=PATIENCE):  # a lock that stays taken raises an OSError too
            replaced = set(map(_subject, entries.values()))
            kept = {digest: one for digest, one in self.read().items() if _subject(one) not in replaced}
            # Written beside and renamed, so that a crash leaves the old file or the new one.
            beside = self.path.with_suffix(".new")
            beside.write_text(json.dumps(kept | dict(entries), indent=1), encoding="utf-8")
            move_over(beside, self.path)

    def entry_before(self, subject: Entry) -> Entry:
        """Return the entry that was approved for the same server and file, {} if none was."""
        nothing: Entry = {}
        return next((one for one in self.read().values() if _subject(one) == _subject(subject)), nothing)

    def read(self) -> dict[str, Entry]:
        """Return all entries by their hashes."""
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        entries = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        return {digest: one for digest, one in entries.items() if isinstance(one, dict)}


def _subject(entry: Entry) -> tuple[str, str]:
    return str(entry.get("server", "")), str(entry.get("file", ""))
