"""An outside agent in plain JSON lines: it starts in no time, and what it sends is in the order of its script.

A prompt is a JSON list of steps, which are played in order, also after the response to the prompt:

["say", text, message id?]  ["think", text]  ["update", {...}]  ["end", stop reason]  ["error", {...}]
["wait", file] (until it exists)  ["stopped"] (waits until the prompt is cancelled)  ["sleep", seconds]  ["pid"]

The words on its command line are requests that it does not answer, such as session/new; "--opening SECONDS" is the time
that it takes to answer session/new.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

WORDS = sys.argv[1:]
OPENING = float(WORDS[WORDS.index("--opening") + 1]) if "--opening" in WORDS else 0.0
CHUNKS = {"say": "agent_message_chunk", "think": "agent_thought_chunk"}
stopped = threading.Event()
lock = threading.Lock()


def write(**message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def update(**fields):
    write(method="session/update", params={"sessionId": "s1", "update": fields})


def chunk(kind, text, message=None):
    named = {"messageId": message} if message else {}
    update(sessionUpdate=kind, content={"type": "text", "text": text}, **named)


def play(number, steps):
    for name, *rest in steps:
        match name:
            case "say" | "think":
                chunk(CHUNKS[name], *rest)
            case "update":
                update(**rest[0])
            case "end":
                write(id=number, result={"stopReason": rest[0]})
            case "error":
                write(id=number, error=rest[0])
            case "wait":
                while not Path(rest[0]).exists():
                    time.sleep(0.01)
            case "stopped":
                stopped.wait()
            case "sleep":
                time.sleep(rest[0])
            case _:
                chunk(CHUNKS["say"], str(os.getpid()))


def main():
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message.get("method")
        if method in WORDS:
            continue
        if method == "initialize":
            write(id=number, result={"protocolVersion": 1, "agentCapabilities": {}})
        elif method == "session/new":
            time.sleep(OPENING)
            write(id=number, result={"sessionId": "s1"})
        elif method == "session/prompt":
            stopped.clear()
            steps = json.loads(message["params"]["prompt"][-1]["text"])
            threading.Thread(target=play, args=(number, steps), daemon=True).start()
        elif method == "session/cancel":
            stopped.set()


main()
