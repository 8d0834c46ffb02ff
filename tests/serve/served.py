"""A desk as a double, served for real, and raw requests to it, as no client library would send them."""

import asyncio
import json
import queue
import socket
import threading
import time
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from agentmagic.messages import Media, Text, ToolDef, ToolResult
from agentmagic.runtime.engine import engine
from agentmagic.serve.desk import Page
from agentmagic.serve.server import Server

MODERN = "2026-07-28"
PATIENCE = 20
OPEN = {"type": "object", "properties": {}}


class Workshop:
    """Echoes, waits until it is told to go on, asks, reports progress, fails; remembers what clients called."""

    instructions = "A workshop."

    def __init__(self):
        async def read():
            return "# Notes"

        self.pages = [Page("test://notes", "Notes", "Notes.", "text/markdown", read)]
        self.called = []
        self.ended = queue.Queue()
        self.waiting = threading.Event()
        self.go_on = asyncio.Event()

    async def tools(self):
        return [ToolDef(name, f"{name}.", OPEN) for name in ("echo", "draw", "wait", "ask", "count", "fail")]

    async def call(self, exchange, name, arguments):
        self.called.append((exchange.client, name, dict(arguments)))
        try:
            return ToolResult("call", name, tuple([part async for part in self.work(exchange, name, arguments)]))
        finally:
            self.ended.put(name)

    async def work(self, exchange, name, arguments):
        match name:
            case "draw":
                yield Media("image/png", b"\x89PNG")
            case "wait":
                self.waiting.set()
                await self.go_on.wait()
                yield Text("waited")
            case "ask":
                self.waiting.set()
                yield Text(f"answer: {await exchange.ask('Which one?')}")
            case "count":
                for number in range(1, 4):
                    exchange.progress(number, 3, f"step {number}")
                    await asyncio.sleep(0.06)  # longer than the pause between two notices
                yield Text("counted")
            case "fail":
                raise ValueError("no")
            case _:
                yield Text(json.dumps(arguments)[:200])


class Served:
    """A workshop behind the server. `stalls` are the seconds that the engine's loop took for a turn."""

    def __init__(self, desk, server, token):
        self.desk, self.server, self.token = desk, server, token
        self.url = server.url
        self.address = urlsplit(self.url).hostname, urlsplit(self.url).port
        self.stalls = []

    async def tick(self):
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            self.stalls.append(time.monotonic() - began - 0.01)

    def head(self, body=b"", method="POST", path="/mcp", token=None, without=(), **more):
        """Return a request that is good but for what is given; `more` are headers, with _ for -."""
        headers = {
            "Host": "{}:{}".format(*self.address),
            "Authorization": f"Bearer {self.token if token is None else token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(body)),
            "Connection": "close",
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        lines = [f"{name}: {value}" for name, value in headers.items() if value is not None and name not in without]
        return "\r\n".join((f"{method} {path} HTTP/1.1", *lines, "", "")).encode("latin-1", "replace")

    def request(self, body=b"", **more):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.head(body, **more) + body

    def modern(self, method="tools/call", name="echo", arguments=None, client="raw", number=1, params=None, **more):
        """Return a request of a stateless client."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
            "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"},
        }
        named = {"name": name, "arguments": arguments or {}} if method == "tools/call" else {}
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": meta, **named, **(params or {})}}
        headers = {"MCP_Protocol_Version": MODERN, "Mcp_Method": method, **({"Mcp_Name": name} if named else {})}
        return self.request(body, **{**headers, **more})

    def legacy(self, body, **more):
        return self.request(body, **more)

    def send(self, data, patience=PATIENCE):
        """Send bytes, and return the status and the rest of what comes back until the end."""
        with socket.create_connection(self.address, timeout=patience) as line:
            return exchange(line, data)


def exchange(line, data):
    answer = b""
    with suppress(ConnectionError):  # of a server that has refused it meanwhile
        line.sendall(data)
    with suppress(ConnectionError):
        while piece := line.recv(65536):
            answer += piece
    status = answer.split(b" ", 2)[1] if answer.startswith(b"HTTP/1.1 ") else b"0"
    return int(status), answer.decode("utf-8", "replace")


@contextmanager
def serving(desk=None):
    """Serve a workshop, or another desk."""
    desk = desk or Workshop()
    server = Server()
    token = engine().call(server.open(desk))
    served = Served(desk, server, token)
    ticking = engine().submit(served.tick())
    try:
        yield served
    finally:
        ticking.cancel()
        engine().call(server.aclose())
