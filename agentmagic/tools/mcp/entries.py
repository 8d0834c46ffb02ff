"""Reads configuration files of MCP servers as other programs write them, and gives their entries our keys.

Claude Code and Claude Desktop (`mcpServers`), VS Code (`servers`, or `mcp` around it), Cursor, Windsurf (`serverUrl`),
Zed (`context_servers`), Cline and Roo (`disabled`, `disabledTools`, `alwaysAllow`), Gemini CLI (`httpUrl`,
`includeTools`, milliseconds), opencode (`mcp`, a command as a list, `environment`, `enabled`) and Codex (TOML,
`mcp_servers`, `enabled_tools`, `bearer_token_env_var`), as documented in November 2026.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from agentmagic.text import join_names, single_line

_TABLES = ("mcpServers", "servers", "context_servers", "mcp", "mcp_servers")
_OTHER_NAMES = {
    "serverUrl": "url",
    "httpUrl": "url",
    "environment": "env",
    "workingDirectory": "cwd",
    "clientId": "client_id",
    "includeTools": "only",
    "enabled_tools": "only",
    "excludeTools": "disable",
    "disabledTools": "disable",
    "disabled_tools": "disable",
    "startup_timeout_sec": "connect_timeout",
    "tool_timeout_sec": "timeout",
    "http_headers": "headers",
}
_TYPES = {"stdio": None, "local": None, "remote": None, "http": "http", "streamable_http": "http", "sse": "sse"}
"""The types of other programs, and ours; None for a type that the other keys show already."""

_SILENT = frozenset({"$schema", "description", "name", "title", "icon", "version", "source", "disabled", "enabled"})
"""Keys without a meaning for us that need not be named."""

_LONGEST_SECONDS = 3_600
"""A larger time limit is in milliseconds: the other programs that count in seconds allow an hour at most."""

# Each pattern reads a text once: an end that is missing is the end of the text, and nothing is tried twice.
_STRING = r'"[^"\\]*(?:\\.?[^"\\]*)*(?:"|\Z)'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*[^*]*(?:\*(?!/)[^*]*)*(?:\*/|\Z)", re.DOTALL)
_COMMA = re.compile(rf"{_STRING}|[\[{{,]\s*,|,(?=\s*[}}\]])", re.DOTALL)
"""A string, a comma without a value before it (which stays an error), or a comma before a closing bracket."""


def load(text: str, *, is_toml: bool = False) -> Any:
    """Return the value of JSON that can have comments and commas at the ends of lists, as in VS Code, or of TOML.

    Raises json.JSONDecodeError, with the place in the text as it was written, RecursionError, and ValueError for TOML.
    """
    if is_toml:
        import tomllib

        table = tomllib.loads(text).get("mcp_servers")
        return {"mcp_servers": table} if isinstance(table, dict) else None
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        bare = _COMMENT.sub(lambda match: _blank(match[0]), text)
        return json.loads(_COMMA.sub(lambda match: " " if match[0] == "," else match[0], bare))


def _blank(text: str) -> str:
    """Return a string as it is, and blanks in place of a comment, so that all places stay the same."""
    return text if text.startswith('"') else re.sub(r"[^\n]", " ", text)


def table_of(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the servers' entries by name from a mapping, or None if the mapping is itself an entry."""
    for key in _TABLES:
        table = data.get(key)
        if isinstance(table, Mapping):
            inner = cast("Mapping[str, Any]", table)
            if _is_entry(inner):  # a server whose name is that of a table
                return data
            return cast("Mapping[str, Any]", inner["servers"]) if isinstance(inner.get("servers"), Mapping) else inner
    return None if _is_entry(data) else data


def _is_entry(data: Mapping[str, Any]) -> bool:
    return any(isinstance(data.get(key), str | list) for key in ("command", "url", "serverUrl", "httpUrl"))


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
    _take_variables(fields)
    for key in ("timeout", "connect_timeout"):
        seconds = fields.get(key)
        if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > _LONGEST_SECONDS:
            fields[key] = seconds / 1_000
    return fields


def _take_variables(fields: dict[str, Any]) -> None:
    """Write Codex's keys that name environment variables as `${NAME}` in `env` and `headers`, where all values are."""
    names: Any = fields.pop("env_vars", None) or ()
    variables = {name: f"${{{name}:-}}" for name in names if isinstance(name, str)}
    headers = {key: f"${{{name}}}" for key, name in _fields(fields.pop("env_http_headers", None)).items()}
    if token := fields.pop("bearer_token_env_var", None):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    for key, more in (("env", variables), ("headers", headers)):
        if more:
            fields[key] = {**more, **_fields(fields.get(key))}


def unread_keys(entry: Any, known: frozenset[str]) -> str:
    """Return the keys of a translated entry that are not read, for a notice: "" if there are none, at most 300 letters.

    A key of another program that lets tools run without asking is among them, because a file is not the user's yes.
    """
    fields = _fields(entry)
    keys = [single_line(str(key), 40) for key in fields if key not in known | _SILENT]
    return single_line(join_names(keys, 10), 300) if keys else ""
