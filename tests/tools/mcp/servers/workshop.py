"""A server made with the mcp library: over stdio when run, over HTTP and in memory when imported."""

import asyncio
import base64
import socket
import threading
from contextlib import contextmanager

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def make(**settings):
    server = MCPServer("workshop", **settings)
    stopped = asyncio.Event()

    @server.tool()
    def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.tool()
    def add(a: int, b: int) -> dict[str, int]:
        """Add two numbers."""
        return {"sum": a + b}

    @server.tool()
    def picture() -> Image:
        """Draw one pixel."""
        return Image(data=PIXEL, format="png")

    @server.tool()
    async def count(to: int, ctx: Context) -> str:
        """Count, and tell how far it has come."""
        for number in range(1, to + 1):
            await ctx.report_progress(number, to, f"at {number}")
        return "counted"

    @server.tool()
    async def work(ctx: Context) -> str:
        """Work until it is cancelled."""
        await ctx.report_progress(0, None, "working")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    @server.tool()
    async def wait_until_cancelled() -> str:
        """Return once `work` was cancelled."""
        await stopped.wait()
        return "it was"

    @server.tool()
    async def learn(ctx: Context) -> str:
        """Get one more tool, and say so."""

        def trick() -> str:
            """Do a trick."""
            return "ta-da"

        server.add_tool(trick)
        await ctx.notify_tools_changed()
        return "learned"

    return server


class Gate:
    """An app before another: with a `status` it answers each request of a `method` by that and a page of HTML."""

    def __init__(self, app, method="POST"):
        self._app = app
        self._method = method
        self.status: int | None = None

    async def __call__(self, scope, receive, send):
        if self.status is None or scope.get("method") != self._method:
            await self._app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/html"), (b"location", b"http://elsewhere.example/in?key=1")]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"<h1>No</h1>"})


@contextmanager
def serving(make_app):
    """Serve an app, which is made for its origin, on loopback; yield the origin."""
    # The socket listens before the server runs, so that a client need not wait for it.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        origin = f"http://127.0.0.1:{listening.getsockname()[1]}"
        settings = uvicorn.Config(
            make_app(origin), log_config=None, log_level="critical", ws="none", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield origin
        finally:
            server.should_exit = True
            thread.join()


if __name__ == "__main__":
    make().run()
