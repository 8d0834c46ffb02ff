"""A server of the handshake era, written by hand: it starts in no time and misbehaves on request.

The words on its command line are what it does wrong: silent, banner, stubborn, endless, odd, foreign, spawn,
daemon, held, portrait.
"""

import json
import os
import signal
import subprocess
import sys

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
FOREIGN = {"no_type": {}}
PORTRAIT = {"portrait": EMPTY}
cancelled = []
waiting = []


def send(message):
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


def answer(request, result):
    send({"result": result, "jsonrpc": "2.0", "id": request["id"]})


def refuse(request, code, message):
    send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})


def text(request, words, *, wrong=False):
    answer(request, {"content": [{"type": "text", "text": words}], "isError": wrong})


def tell(request, words):
    token = request["params"]["_meta"]["progressToken"]
    params = {"progressToken": token, "progress": 1, "total": 2, "message": words}
    send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})


def listed(names):
    schemas = SCHEMAS | ODD | FOREIGN | PORTRAIT
    return [{"name": name, "description": f"{name}.", "inputSchema": schemas[name]} for name in names]


def list_tools(request):
    cursor = int((request.get("params") or {}).get("cursor", 0))
    names = [*SCHEMAS, *(ODD if "odd" in WRONG else ()), *(FOREIGN if "foreign" in WRONG else ())]
    names += PORTRAIT if "portrait" in WRONG else ()
    page: dict = {"tools": listed(names[cursor * 4 : cursor * 4 + 4])}
    if "endless" in WRONG or cursor * 4 + 4 < len(names):
        page["nextCursor"] = str(cursor + 1)
    answer(request, page)


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
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
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


def serve(request):
    match request.get("method"):
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "raw", "version": "1"}
            version = request["params"]["protocolVersion"]
            answer(request, {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})
        case "tools/list":
            list_tools(request)
        case "tools/call":
            call(request)
        case "notifications/cancelled":
            cancelled.append(request["params"]["requestId"])
        case _ if "id" in request:
            refuse(request, -32601, "Method not found")


def main():
    if "banner" in WRONG:
        sys.stdout.buffer.write(b"Willkommen! \xff\xfe\xe4\n\n[not json}\n")
        sys.stdout.buffer.flush()
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


main()
