"""A server of the handshake era over HTTP: it knows its clients by session, and forgets them when restarted."""

import json
import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "Bearer let-me-in-please"


class SessionServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.sessions: set[str] = set()
        self.opened = 0
        self.called = 0
        self.key: str | None = KEY
        self.forgetting = (404, -32600, "Session not found")
        self.failing: tuple[int, str, bytes] | None = None  # the status, type and body of every answer to a call

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/mcp"

    def leave(self):
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: SessionServer

    def log_message(self, *args):
        pass

    def reply(self, status, body=None, **headers):
        data = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.reply(405)

    def do_DELETE(self):
        self.server.sessions.discard(self.headers.get("Mcp-Session-Id", ""))
        self.reply(200)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers.get("Authorization") != self.server.key:
            self.reply(401)
        elif "id" not in request:
            self.reply(202)
        elif request["method"] == "initialize":
            self.initialize(request)
        elif self.headers.get("Mcp-Session-Id") not in self.server.sessions:
            self.refuse(request, *self.server.forgetting)
        else:
            self.serve(request)

    def initialize(self, request):
        self.server.opened += 1
        session = f"session-{self.server.opened}"
        self.server.sessions.add(session)
        result = {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "sessions", "version": "1"},
        }
        self.reply(200, {"jsonrpc": "2.0", "id": request["id"], "result": result}, Mcp_Session_Id=session)

    def fail(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, request, status, code, message):
        error = {"code": code, "message": message}
        self.reply(status, {"jsonrpc": "2.0", "id": request["id"], "error": error})

    def serve(self, request):
        if request["method"] == "tools/list":
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("visit", "flood")]}
        elif request["params"]["name"] == "flood":
            self.flood(request)
            return
        elif self.server.failing is not None:
            self.fail(*self.server.failing)
            return
        else:
            self.server.called += 1
            result = {"content": [{"type": "text", "text": self.headers["Mcp-Session-Id"]}]}
        self.reply(200, {"jsonrpc": "2.0", "id": request["id"], "result": result})

    def flood(self, request):
        """Answer with a body that never ends, in plain JSON or compressed."""
        compressed = request["params"]["arguments"].get("compressed")
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if compressed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(b"x" * 1_000_000)


@contextmanager
def serving():
    with SessionServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.leave()
            thread.join()
