"""Reads configuration files of MCP servers as other programs write them, and gives their entries our keys.

Claude Code and Claude Desktop (`mcpServers`), VS Code (`servers`, or `mcp` around it), Cursor, Windsurf (`serverUrl`),
Zed (`context_servers`), Cline and Roo (`disabled`, `alwaysAllow`), Gemini CLI (`httpUrl`, milliseconds) and opencode
(`mcp`, a command as a list, `environment`, `enabled`), as documented in November 2026.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from agentmagic.text import join_names, single_line

_TABLES = ("mcpServers", "servers", "context_servers", "mcp")
_OTHER_NAMES = {
    "serverUrl": "url",
    "httpUrl": "url",
    "environment": "env",
    "workingDirectory": "cwd",
    "clientId": "client_id",
}
_TYPES = {"stdio": None, "local": None, "remote": None, "http": "http", "streamable_http": "http", "sse": "sse"}
"""The types of other programs, and ours; None for a type that the other keys show already."""

_SILENT = frozenset({"$schema", "description", "name", "title", "icon", "version", "source", "disabled", "enabled"})
"""Keys without a meaning for us that need not be named."""

_LONGEST_SECONDS = 3_600
"""A larger time limit is in milliseconds: the other programs that count in seconds allow an hour at most."""

_COMMENT = r"//[^\n]*|/\*.*?\*/"
_NO_STRINGS = re.compile(
    rf'"(?:\\.|[^"\\])*"|{_COMMENT}|(?<=["}}\]\w])\s*,(?=\s*(?:(?:{_COMMENT})\s*)*[}}\]])', re.DOTALL
)
"""A string, a comment, or a comma between a value and a closing bracket."""


def load(text: str) -> Any:
    """Return the value of JSON that can have comments and commas at the ends of lists, as in VS Code.

    Raises json.JSONDecodeError, with the place in the text as it was written, and RecursionError.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return json.loads(_NO_STRINGS.sub(_blank, text))


def _blank(match: re.Match[str]) -> str:
    """Return a string as it is, and blanks in place of a comment or a comma, so that all places stay the same."""
    return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])


def table_of(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the servers' entries by name from a mapping, or None if the mapping is itself an entry."""
    for key in _TABLES:
        table = data.get(key)
        if isinstance(table, Mapping):
            inner = cast("Mapping[str, Any]", table)
            return cast("Mapping[str, Any]", inner["servers"]) if isinstance(inner.get("servers"), Mapping) else inner
    is_entry = any(isinstance(data.get(key), str) for key in ("command", "url", "serverUrl", "httpUrl"))
    return None if is_entry else data


def _fields(entry: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", entry) if isinstance(entry, Mapping) else dict[str, Any]()


def is_off(entry: Any) -> bool:
    """Return whether an entry is switched off in its file."""
    fields = _fields(entry)
    return fields.get("disabled") is True or fields.get("enabled") is False


def translate(entry: Any) -> Any:
    """Return an entry of a file with our keys; anything that is not an entry stays as it is, to be refused later."""
    if not isinstance(entry, Mapping):
        return entry
    fields = {_OTHER_NAMES.get(key, key): value for key, value in cast("Mapping[str, Any]", entry).items()}
    match fields.get("command"):
        case [str() as program, *arguments]:
            fields["command"], fields["args"] = program, [*arguments, *(fields.get("args") or ())]
        case {"path": str() as program, **more}:  # Zed
            fields |= {"command": program, **{key: more[key] for key in ("args", "env") if key in more}}
        case _:
            pass
    if isinstance(kind := fields.get("type"), str) and kind in _TYPES:
        fields.pop("type")
        fields |= {"type": _TYPES[kind]} if _TYPES[kind] and "url" in fields else {}
    for key in ("timeout", "connect_timeout"):
        seconds = fields.get(key)
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > _LONGEST_SECONDS:
            fields[key] = seconds / 1_000
    return fields


def unread_keys(entry: Any, known: frozenset[str]) -> str:
    """Return the keys of a translated entry that are not read, for a notice: "" if there are none, at most 300 letters.

    A key of another program that lets tools run without asking is among them, because a file is not the user's yes.
    """
    fields = _fields(entry)
    keys = [single_line(str(key), 40) for key in fields if key not in known | _SILENT]
    return single_line(join_names(keys, 10), 300) if keys else ""
