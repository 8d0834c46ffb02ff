"""A server of the handshake era, written by hand: it starts in no time and misbehaves on request.

The words on its command line are what it does wrong: silent, stubborn, odd, spawn, daemon, held, portrait.
`hostile.py` speaks through it.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading

WRONG = set(sys.argv[1:])
EMPTY: dict = {"type": "object", "properties": {}}
TEXT: dict = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "size": {"type": "integer"}},
    "required": ["text"],
}
SIZE: dict = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}
SCHEMAS = {
    "echo": TEXT,
    "pid": EMPTY,
    "die": EMPTY,
    "wait": EMPTY,
    "cancelled": EMPTY,
    "large": SIZE,
    "grow": EMPTY,
    "refuse": EMPTY,
    "rubbish": EMPTY,
    "fail": EMPTY,
    "deaf": EMPTY,
    "environment": EMPTY,
}
ODD = {
    "bad_type": {"type": "object", "properties": {"x": {"type": "strange"}}},
    "far_reference": {"type": "object", "$ref": "https://example.org/schema.json"},
    "loose": {"type": "dict", "properties": {"x": {"type": "str", "required": True, "description": None}}},
    "go": {"type": "object", "properties": None, "required": None},
    "endless": {"type": "object", "allOf": [{"$ref": "#"}]},
    "scalar": {"type": "string"},
}
PORTRAIT = {"portrait": EMPTY}
cancelled = []
waiting = []
lock = threading.Lock()


def write(data, end=b"\n"):
    data += end
    if len(data) <= select.PIPE_BUF:  # such a piece is never torn, and no thread keeps another waiting
        os.write(1, data)
        return
    with lock:
        while data:
            data = data[os.write(1, data) :]


def send(message):
    write(json.dumps(message).encode())


def answer(request, result):
    send({"result": result, "jsonrpc": "2.0", "id": request["id"]})


def refuse(request, code, message):
    send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})


def notify(method, **params):
    send({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})


def text(request, words, *, wrong=False):
    answer(request, {"content": [{"type": "text", "text": words}], "isError": wrong})


def tell(request, words):
    token = request["params"]["_meta"]["progressToken"]
    notify("progress", progressToken=token, progress=1, total=2, message=words)


def list_tools(request):
    """Answer with a page of four tools."""
    start = int((request.get("params") or {}).get("cursor", 0))
    schemas = SCHEMAS | (ODD if "odd" in WRONG else {}) | (PORTRAIT if "portrait" in WRONG else {})
    listed = [{"name": name, "description": f"{name}.", "inputSchema": schema} for name, schema in schemas.items()]
    more = {"nextCursor": str(start + 4)} if start + 4 < len(listed) else {}
    answer(request, {"tools": listed[start : start + 4], **more})


def call(request):  # noqa: C901, PLR0912  (a table of tools)
    name, arguments = request["params"]["name"], request["params"].get("arguments") or {}
    match name:
        case "echo":
            text(request, arguments["text"])
        case "pid":
            text(request, str(os.getpid()))
        case "die":
            print("I was told to die", file=sys.stderr, flush=True)
            os._exit(3)
        case "wait":
            waiting.append(request["id"])
            tell(request, "waiting")
        case "deaf":
            tell(request, "not listening any more")
            signal.pause()
        case "environment":
            text(request, json.dumps(dict(os.environ)))
        case "cancelled":
            text(request, json.dumps([one in cancelled for one in waiting]))
        case "large":
            text(request, "x" * arguments["size"])
        case "grow":
            SCHEMAS["grown"] = EMPTY
            notify("tools/list_changed")
            text(request, "grown")
        case "refuse":
            refuse(request, -32000, "not today")
        case "rubbish":
            answer(request, {"content": "this is no list"})
        case "portrait":
            picture = {"type": "image", "data": "cG5n", "mimeType": "image/png", "annotations": {"audience": ["user"]}}
            answer(request, {"content": [picture]})
        case "fail":
            text(request, "it went wrong", wrong=True)
        case _:
            text(request, f"called {name}")


def greet(request, name, **more):
    version = request["params"]["protocolVersion"]
    capabilities = {"tools": {"listChanged": True}, **more}
    info = {"name": name, "version": "1"}
    answer(request, {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})


def serve(request):
    match request.get("method"):
        case "initialize":
            greet(request, "raw")
        case "tools/list":
            list_tools(request)
        case "tools/call":
            call(request)
        case "notifications/cancelled":
            cancelled.append(request["params"]["requestId"])
        case _ if "id" in request:
            refuse(request, -32601, "Method not found")


def main():
    if "stubborn" in WRONG:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "held" in WRONG:  # until it is sent a signal
        signal.signal(signal.SIGUSR1, lambda *_: None)
        print(os.getpid(), file=sys.stderr, flush=True)
        signal.pause()
    if "spawn" in WRONG:
        away = "daemon" in WRONG
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=away)
        print(f"child {child.pid}", file=sys.stderr, flush=True)
    for line in sys.stdin:
        if "silent" not in WRONG:
            serve(json.loads(line))
    if "stubborn" in WRONG:
        signal.pause()


if __name__ == "__main__":
    main()
