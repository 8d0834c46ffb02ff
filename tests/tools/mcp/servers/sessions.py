"""A server of the handshake era over HTTP: it knows its clients by session, and can forget them."""

import json

from tests.providers.loopback import Exchange, Loopback

KEY = "Bearer let-me-in-please"


def reply(request, *, status=200, headers=(), **fields):
    body = json.dumps({"jsonrpc": "2.0", "id": request["id"], **fields})
    return Exchange(body, status, "application/json", dict(headers))


class SessionServer(Loopback):
    def __init__(self):
        super().__init__([])
        self.address = f"{self.url}/mcp"
        self.sessions: set[str] = set()
        self.opened = 0
        self.called = 0
        self.gone = False
        self.key: str | None = KEY
        self.forgetting: Exchange | tuple[int, int, str] = (404, -32600, "Session not found")
        self.keeps = True  # the sessions that it opens
        self.failing: Exchange | None = None  # the answer to every call

    def answer(self, received):  # noqa: PLR0911  (a table of answers)
        if self.gone:
            return Exchange("", dropped=True)
        if received.method == "GET":
            return Exchange("", 405)
        request, session = received.json, received.headers.get("mcp-session-id")
        if received.headers.get("authorization") != self.key:
            return Exchange("", 401)
        if "id" not in request:
            return Exchange("", 202)
        if request["method"] == "initialize":
            return self.initialize(request)
        if session not in self.sessions:
            if isinstance(self.forgetting, Exchange):
                return self.forgetting
            status, code, message = self.forgetting
            return reply(request, status=status, error={"code": code, "message": message})
        if request["method"] == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("visit", "flood")]
            return reply(request, result={"tools": tools})
        return self.call(request, session)

    def initialize(self, request):
        self.opened += 1
        session = f"session-{self.opened}"
        if self.keeps:
            self.sessions.add(session)
        result = {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "sessions", "version": "1"},
        }
        return reply(request, headers={"Mcp-Session-Id": session}, result=result)

    @property
    def sent(self):
        """How many calls reached the server."""
        return sum(one.method == "POST" and one.json["method"] == "tools/call" for one in self.requests)

    def call(self, request, session):
        if request["params"]["name"] == "flood":  # a body over every limit, in plain JSON or compressed
            compressed = request["params"]["arguments"].get("compressed")
            headers = {"Content-Encoding": "gzip"} if compressed else {}
            return Exchange("x" * 40_000_000, 200, "application/json", headers)
        if self.failing is not None:
            return self.failing
        self.called += 1
        return reply(request, result={"content": [{"type": "text", "text": session}]})
