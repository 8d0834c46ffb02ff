"""Makes the rows of the tab in the chat panel that lists MCP servers."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from agentmagic.text import cut, sanitize
from agentmagic.tools.mcp import McpServers, ServerState
from agentmagic.tools.server_names import address_to_show
from agentmagic.widgets.view_messages import ServerRow

MOST_TOOLS = 500
"""The most tools of a server that the tab lists."""

LONGEST_ABOUT = 400
"""Characters of a tool's description, and of its arguments, that the tab shows."""


def server_rows(groups: Iterable[McpServers]) -> list[ServerRow]:
    """Return a row for each MCP server, for a tab of the chat panel. Of two with one name, only the first has a row."""
    rows: dict[str, ServerRow] = {}
    for group in groups:
        for state in group.servers:
            rows.setdefault(state.name, _server_row(state, group.describe_tools(state.name)))
    return list(rows.values())


def _server_row(state: ServerState, descriptions: Mapping[str, tuple[str, str]]) -> ServerRow:
    def row(name: str) -> tuple[str, bool, bool, str, str]:
        about, arguments = (cut(sanitize(text), LONGEST_ABOUT, "…") for text in descriptions.get(name, ("", "")))
        is_allowed = any(fnmatchcase(name, pattern) for pattern in state.allow)
        return name, name in state.offered, is_allowed, about, arguments

    return {
        "name": state.name,
        "address": address_to_show(state.name, state.address),
        "state": state.state,
        "error": sanitize(state.error),
        "stderr": sanitize(state.stderr),
        "tools": [row(name) for name in sorted((*state.offered, *state.disabled))[:MOST_TOOLS]],
    }
