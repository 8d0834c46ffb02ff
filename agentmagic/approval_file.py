"""The user's approvals of project files (MCP servers, rules, skills), stored in one file in the user's data folder.

A project may come from a download, so its files are not trusted. If a project file starts a server or gives a text to a
model, the user sees the server or the text in full and must approve it. After each change, the user must approve it
again.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from agentmagic.plain_files import FileLock, read_plain
from agentmagic.platforms import move_over

FILE = "trusted-servers.json"
PATIENCE = 10.0  # seconds to wait while another process writes the approval file

Entry = Mapping[str, Any]
"""The text or server that was approved. A later entry with the same `server` and `file` replaces it."""


class ApprovalFile:
    """The file of approvals, in which each entry is stored under the hash of its approved content.

    `path` is a file to use instead of the usual file. A file that cannot be read counts as empty.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The path of the approval file."""
        from platformdirs import user_data_path

        return self._path or user_data_path("agentmagic", appauthor=False) / FILE

    def keep(self, entries: Mapping[str, Entry]) -> None:
        """Store approvals by their hashes. Each replaces the earlier approvals of the same server in the same file.

        Raises OSError if the file cannot be written.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path, PATIENCE):
            subjects = set(map(_subject, entries.values()))
            earlier = {digest: one for digest, one in self.read().items() if _subject(one) not in subjects}
            # The data is written to a second file, which is then renamed: a crash leaves the old or the whole new file.
            beside = self.path.with_suffix(".new")
            beside.write_text(json.dumps(earlier | dict(entries), indent=1), encoding="utf-8")
            move_over(beside, self.path)

    def entry_before(self, subject: Entry) -> Entry:
        """Return the stored approval for the server and file that `subject` names, or {} if none exists."""
        nothing: Entry = {}
        return next((one for one in self.read().values() if _subject(one) == _subject(subject)), nothing)

    def read(self) -> dict[str, Entry]:
        """Return all stored approvals by their hashes."""
        try:
            data = json.loads(read_plain(self.path))
        except (OSError, ValueError, RecursionError):
            return {}
        entries = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        return {digest: one for digest, one in entries.items() if isinstance(one, dict)}


def _subject(entry: Entry) -> tuple[str, str]:
    return str(entry.get("server", "")), str(entry.get("file", ""))
