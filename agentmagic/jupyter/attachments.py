"""`@server:uri` in a cell: a resource of an MCP server that goes along with the prompt."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentmagic.errors import UsageError
from agentmagic.messages import Content
from agentmagic.runtime.engine import engine
from agentmagic.tools.base import Toolset

if TYPE_CHECKING:
    from agentmagic.tools.mcp import McpServers

MOST = 20
"""Resources that one cell may attach."""

_REFERENCE = re.compile(r"(?<![\w@])@([A-Za-z0-9_.-]+):([^\s\"'<>`]+)")
_AFTER = ".,;:!?)]}"
"""What ends a sentence rather than a URI."""


def attached(body: str, sources: Sequence[Toolset]) -> list[Content]:
    """Read the resources that a cell's body names, as it was typed; what names no server is text like any other.

    Raises UsageError where there are too many, and ServerError where a server cannot give one.
    """
    written = list(dict.fromkeys(_REFERENCE.findall(body)))
    if not written:
        return []
    known = _by_name(sources)
    found = [(known[server], server, uri) for server, uri in written if server in known]
    if len(found) > MOST:
        message = f"The cell attaches {len(found)} resources; {MOST} are the most. Ask in several cells."
        raise UsageError(message)
    return [part for servers, server, uri in found for part in engine().call(servers.read(server, uri.rstrip(_AFTER)))]


def _by_name(sources: Sequence[Toolset]) -> "dict[str, McpServers]":
    from agentmagic.tools.mcp import McpServers

    groups = [source for source in reversed(sources) if isinstance(source, McpServers)]
    return {state.name: servers for servers in groups for state in servers.servers}
