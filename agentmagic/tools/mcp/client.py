"""The mcp library's client for one connection: by which transport, with which callbacks, and what it listens to."""

import logging
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentmagic.errors import ConfigError, MissingExtra
from agentmagic.tools.mcp import sse, stdio, streamable_http
from agentmagic.tools.mcp.asking import Asking
from agentmagic.tools.mcp.config import Http, InProcess, ServerConfig, Sse, Stdio, Unreadable
from agentmagic.tools.mcp.oauth import Authorization, as_auth
from agentmagic.tools.mcp.screen import Screen, screened

if TYPE_CHECKING:
    from mcp import Client, types

LOG_LEVEL = "info"
"""The least important lines of its log that a server is asked for."""

MODE = "auto"
"""How a client settles on a protocol: by what the server speaks."""


def warm() -> None:
    """Import the mcp library, which takes a second; a thread may do it before it is needed.

    Raises MissingExtra where it is not installed.
    """
    try:
        import_module("mcp.client.streamable_http")
    except ImportError as error:
        raise MissingExtra("MCP servers", "mcp") from error
    for name in ("mcp", "client"):
        # The library logs what servers send wrong, with tracebacks; without a handler Python prints that into the cell.
        logging.getLogger(name).addHandler(logging.NullHandler())


def make(  # noqa: PLR0913  (what a client is made of)
    config: ServerConfig,
    asking: Asking,
    screen: Screen,
    *,
    tail: stdio.Tail,
    on_end: Callable[[], None],
    on_status: Callable[[int], None],
    on_changed: Callable[[], None],
    authorization: Authorization | None = None,
) -> "Client":
    """Make a client, to be entered once.

    `on_end` is called when a program's output ends, `on_status` with the HTTP status of each answer,
    `on_changed` when the server says that its tools changed. `authorization` signs what goes over HTTP.
    """
    from mcp import Client, types

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            on_changed()

    auth = as_auth(authorization) if authorization else None
    match config.transport:
        case Stdio() as program:
            server: Any = screened(stdio.connect(program, tail, on_end), screen)
        case Http() as address:
            server = screened(streamable_http.connect(address, on_status, auth), screen)
        case Sse() as address:
            server = screened(sse.connect(address, on_status, auth), screen)
        case InProcess(server=server):
            pass
        case Unreadable(problem=problem):
            raise ConfigError(problem)
    return Client(server, mode=MODE, cache=None, log_level=LOG_LEVEL, message_handler=on_message, **asking.callbacks())


async def watch_tools(client: "Client", on_changed: Callable[[], None]) -> bool:
    """Listen for changed tools where the protocol (2026-07-28) sends them only to those who listen.

    Returns whether nobody will tell of changes any more: then they are to be listed each time.
    """
    offered = client.server_capabilities.tools
    if offered is None or not offered.list_changed or not _is_modern(client):
        return False
    with suppress(Exception):  # refused, or lost midway
        async with client.listen(tools_list_changed=True) as changes:
            async for _ in changes:
                on_changed()
    return True


async def ask_for_log(client: "Client") -> None:
    """Ask a server of the handshake era for its log; later ones are asked with each request."""
    from mcp import types

    if client.server_capabilities.logging is None or _is_modern(client):
        return
    request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=LOG_LEVEL))
    with suppress(Exception):  # a server that refuses keeps its log to itself
        await client.session.send_request(request, types.EmptyResult)


async def accept(name: str, result: "types.CallToolResult") -> None:
    """Stand in for the library's check of a result's schema: a server's pattern could hold the GIL for seconds."""


def _is_modern(client: "Client") -> bool:
    from mcp.types.version import MODERN_PROTOCOL_VERSIONS

    return client.protocol_version in MODERN_PROTOCOL_VERSIONS
