"""A server at a URL: streamable HTTP, through the mcp library's transport and a client of our own settings."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agentmagic.tools.mcp.config import Http
from agentmagic.tools.mcp.stdio import LONGEST_LINE

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams

CONNECT = 30.0
"""Seconds to connect and to write. Reading has no limit: a silent call would end the whole connection (mcp 2.3)."""


@asynccontextmanager
async def connect(server: Http, on_status: Callable[[int], None]) -> AsyncGenerator["TransportStreams"]:
    """Yield the streams of messages from and to the server.

    `on_status` is told the HTTP status of each answer, which the library keeps to itself.
    """
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async def note(response: "httpx2.Response") -> None:
        if response.request.method == "POST":  # that there is no stream to GET, or no session to DELETE, is no failure
            on_status(response.status_code)

    timeout = httpx2.Timeout(CONNECT, read=None)
    hooks = {"response": [note]}
    async with (
        httpx2.AsyncClient(headers=dict(server.headers), timeout=timeout, event_hooks=hooks) as client,
        streamable_http_client(server.url, http_client=client, max_sse_event_size=LONGEST_LINE) as streams,
    ):
        yield streams
