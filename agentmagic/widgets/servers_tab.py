"""The servers tab of a panel: what it shows of MCP servers, and what is done there."""

from collections.abc import Iterable, Sequence
from glob import escape

from agentmagic.display.words import shown
from agentmagic.errors import UsageError
from agentmagic.session import Session
from agentmagic.tools.mcp import McpServers, ServerState
from agentmagic.widgets.commands import Connect, Disconnect, EnableTool
from agentmagic.widgets.sync import ServerRow

MOST_TOOLS = 500
"""Tools of a server that are listed."""


def groups_of(session: Session) -> list[McpServers]:
    """Return the servers of a session's next turn, in their groups."""
    return [source for source in session.toolsets() if isinstance(source, McpServers)]


def rows(groups: Iterable[McpServers]) -> list[ServerRow]:
    """Return the rows of the tab; of two servers of one name, which the next turn would tell apart, the first."""
    states = (state for group in groups for state in group.servers)
    found: dict[str, ServerRow] = {}
    for state in states:
        found.setdefault(state.name, _row(state))
    return list(found.values())


async def carry_out(action: Connect | Disconnect | EnableTool, groups: Sequence[McpServers]) -> None:
    """Do what was clicked in the tab; on the engine. Raises UsageError and ServerError."""
    group = _holding(groups, action.server)
    match action:
        case Connect():
            await group.restart(action.server)
        case Disconnect():
            await group.disconnect(action.server)
        case EnableTool():
            change = group.enable if action.enabled else group.disable
            change(action.server, (escape(action.name),))


def _holding(groups: Sequence[McpServers], name: str) -> McpServers:
    for group in groups:
        if any(state.name == name for state in group.servers):
            return group
    message = f"There is no server {name!r} any more."
    raise UsageError(message)


def _row(state: ServerState) -> ServerRow:
    tools = [*((name, True) for name in state.offered), *((name, False) for name in state.disabled)]
    return {
        "name": state.name,
        "state": state.state,
        "error": shown(state.error),
        "stderr": shown(state.stderr),
        "tools": sorted(tools)[:MOST_TOOLS],
    }
