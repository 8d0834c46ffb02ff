"""A server of the protocol of 2024 at a URL: one stream of events from it, and a POST for each message to it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from agentmagic.tools.mcp.config import Sse
from agentmagic.tools.mcp.streamable_http import CONNECT, make_client

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams


@asynccontextmanager
async def connect(
    server: Sse, on_status: Callable[[int], None], auth: "httpx2.Auth | None" = None
) -> AsyncGenerator["TransportStreams"]:
    """Yield the streams of messages from and to the server."""
    from mcp.client.sse import sse_client

    # The library enters the client itself, and would give it settings of its own.
    def factory(*_: Any, **__: Any) -> "httpx2.AsyncClient":
        return make_client(server, on_status, auth)

    async with sse_client(server.url, timeout=CONNECT, httpx_client_factory=factory) as streams:
        yield streams
