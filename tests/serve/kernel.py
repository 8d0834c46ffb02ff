"""A served kernel for the tests of the bridge: a server of the mcp library on loopback that wants a token.

`python -m tests.serve.kernel NOTEBOOK FOLDER [TOKEN]` writes the kernel's file and prints "ready". With TOKEN it takes
only that token, and not the one in its file.
"""

import asyncio
import os
import secrets
import signal
import socket
import sys
from pathlib import Path
from typing import Annotated

import uvicorn
from mcp.server import MCPServer
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel
from starlette.responses import PlainTextResponse

from agentmagic.serve import kernels
from agentmagic.serve.kernels import ServedKernel


class Trip(BaseModel):
    city: str


def ask_for_trip() -> Elicit[Trip]:
    return Elicit("Where to?", Trip)


def make(notes: Path) -> MCPServer:  # noqa: C901  (one function for each tool)
    server = MCPServer("kernel", instructions="Ask the notebook.")
    cancelled = asyncio.Event()

    @server.tool()
    def process() -> int:
        return os.getpid()

    @server.tool()
    async def steps(ctx: Context) -> str:
        for number in range(3):
            await ctx.report_progress(number, 3, f"step {number}")
        return "done"

    @server.tool()
    def book(trip: Annotated[ElicitationResult[Trip], Resolve(ask_for_trip)]) -> str:
        return f"{trip.action} {trip.data.city}"

    @server.tool()
    def big() -> str:
        return "é" * 2_500_000

    @server.tool()
    async def wait(ctx: Context) -> str:
        try:
            await ctx.report_progress(0, message="begun")
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    @server.tool()
    async def wait_for_cancel() -> str:
        await cancelled.wait()
        return "cancelled"

    @server.tool()
    def die() -> str:
        with notes.open("a") as file:
            file.write("dies\n")
        os.kill(os.getpid(), signal.SIGKILL)
        return "never"

    @server.tool()
    def forget() -> str:
        """Forget the sessions of all clients."""
        server.session_manager._server_instances.clear()
        return "forgotten"

    @server.resource("memo://one")
    def one() -> str:
        return "remember the milk"

    return server


def guarded(app, token):
    """The server, which refuses requests without the token."""

    async def guard(scope, receive, send):
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "http" and headers.get(b"authorization") != f"Bearer {token}".encode():
            await PlainTextResponse("no", 401)(scope, receive, send)
            return
        await app(scope, receive, send)

    return guard


def main(notebook: str, folder: str, wanted: str = "") -> None:
    token = secrets.token_urlsafe(32)
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    app = guarded(make(Path(folder, "notes")).streamable_http_app(), wanted or token)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))

    async def run() -> None:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        kernels.write(ServedKernel.here(url, token, notebook, folder))
        os.write(1, b"ready\n")
        await serving

    asyncio.run(run())


if __name__ == "__main__":
    main(*sys.argv[1:])
