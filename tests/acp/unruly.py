"""An outside agent written by hand, with Python alone: it starts in no time, and misbehaves on request.

The words on its command line are what it does: silent, stubborn, deaf, babbles, prints, spawn, dies; with "tape FILE"
it answers as an agent did whose traffic was recorded in tests/acp/wire.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

WORDS = sys.argv[1:]
LINES = (b"\xff\xfe rubbish", b"[]", b"5", b"null", b'{"id": [1]}', b'{"id": {}}', b'{"id": true}', b'{"method": 7}')
ERRORS = (b'{"error": [], "id": 0}', b'{"id": 0, "error": "no"}')
RUBBISH = (*LINES, *ERRORS, b"[" * 100_000, b"{" + b" " * 1000)
CHILD = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"


def write(data):
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def stubborn():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def spawn():
    """Start a child that leaves the group and holds the output open."""
    say("child", subprocess.Popen([sys.executable, "-S", "-c", CHILD], start_new_session=True).pid)


def dies():
    say("starting\nError: no such model sk-ant-api03-0123456789abcdefghij")
    sys.exit(3)


def babbles():
    for number in range(20_000):
        say("babble", number, "x" * 100)


def deaf():
    signal.pause()


def prints():
    for line in RUBBISH * 200:
        write(line)
    write(b'{"jsonrpc": "2.0", "method": "large", "params": {"x": "' + b"x" * 40_000_000 + b'"}}')


def tape():
    """Return what was received after each request, by its method."""
    found, received = {}, []
    for entry in map(json.loads, Path(WORDS[-1]).read_text(encoding="utf-8").splitlines()):
        if "sent" in entry:
            received = found.setdefault(entry["sent"]["method"], [])
        else:
            received.append(entry["received"])
    return found


def answer(request, recorded):
    if request["method"] == "environment":
        return [{"id": 0, "result": [dict(os.environ), str(Path.cwd())]}]
    return recorded.get(request["method"], [{"id": 0, "result": {"protocolVersion": 1}}])


def main():
    for wrong in (stubborn, spawn, dies, deaf, babbles, prints):
        if wrong.__name__ in WORDS:
            wrong()
    recorded = tape() if "tape" in WORDS else {}
    for line in sys.stdin:
        request = json.loads(line)
        for message in () if "silent" in WORDS else answer(request, recorded):
            write(json.dumps(message | ({"id": request["id"]} if "id" in message else {})).encode())
    while "stubborn" in WORDS:
        signal.pause()


main()
