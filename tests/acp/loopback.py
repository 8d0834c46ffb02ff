"""A model on loopback for real outside agents: Messages, Chat Completions, Responses and Gemini on one port.

A line `!call NAME {...}` in a prompt is a tool call that the model makes, one after another; NAME can be the end of a
tool's name. Then the model answers with the line `!say WORDS`, or with "Done.". It remembers nothing: what is left to
do follows from the results in the request.
"""

import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

CALL = re.compile(r"!call (\S+) (\{.*\})")
ANSWER = "Done."
_numbers = count(1)


@dataclass(frozen=True)
class Reply:
    """What the model does next: a call of the tool `name` with the JSON text `arguments`, or the words `text`."""

    text: str = ANSWER
    name: str = ""
    arguments: str = ""
    namespace: str = ""
    id: str = field(default_factory=lambda: f"{next(_numbers):08}")

    @property
    def pieces(self) -> tuple[str, str]:
        """The arguments in two pieces, as a model streams them."""
        half = len(self.arguments) // 2
        return self.arguments[:half], self.arguments[half:]


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(block.get("text", "")) for block in content)
    return str(content or "")


def _items(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the user's texts and the tool results of a request, in order, as ("text" or "result", text)."""
    for message in body.get("messages", ()):  # Messages and Chat Completions
        content = message["content"]
        blocks = content if isinstance(content, list) else [{"text": content}]
        for block in blocks if message["role"] in ("user", "tool") else ():
            is_result = message["role"] == "tool" or block.get("type") == "tool_result"
            yield ("result" if is_result else "text"), str(block.get("text", ""))
    for item in body["input"] if isinstance(body.get("input"), list) else ():  # Responses
        if str(item.get("type", "")).endswith("call_output"):
            yield "result", ""
        elif item.get("role") == "user":
            yield "text", _text(item["content"])
    for content in body.get("contents", ()):  # Gemini
        for part in content["parts"]:
            if "functionResponse" in part:
                yield "result", ""
            elif content.get("role") == "user":
                yield "text", str(part.get("text", ""))


def _tools(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names of the offered tools, each with its namespace; "" for a tool without one."""
    found: list[tuple[str, str]] = []
    for tool in body.get("tools") or ():
        if tool.get("type") == "namespace":
            found += [(inner["name"], tool["name"]) for inner in tool["tools"]]
        elif "functionDeclarations" in tool:
            found += [(inner["name"], "") for inner in tool["functionDeclarations"]]
        else:
            found.append((str(tool.get("name") or tool.get("function", {}).get("name") or ""), ""))
    return found


def reply_to(body: Mapping[str, Any], raw: str) -> Reply:
    """Return what the model answers to a request, given as JSON and as text."""
    tools = _tools(body)
    if not tools:  # a request for a title
        return Reply("Title")
    items = list(_items(body))
    asked = max((number for number, (_, text) in enumerate(items) if "!" in text and _is_script(text)), default=-1)
    script = items[asked][1] if asked >= 0 else ""
    results = sum(kind == "result" for kind, _ in items[asked + 1 :])
    calls = CALL.findall(script)
    if results >= len(calls):
        said = re.findall(r"!say (.*)", script)
        return Reply(said[-1] if said else ANSWER)
    name, arguments = calls[results]
    named = [one for one in tools if one[0] == name or re.search(rf"[_.]{re.escape(name)}$", one[0])]
    hidden = re.findall(rf"mcp__[\w-]+__{re.escape(name)}\b", raw)  # behind a tool search, named in a text
    full, namespace = named[0] if named else (hidden[0] if hidden else name, "")
    return Reply(name=full, arguments=json.dumps(json.loads(arguments)), namespace=namespace)


def _is_script(text: str) -> bool:
    return bool(CALL.search(text)) or "!say " in text


# -- the four protocols -----------------------------------------------------------------------------------------------


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _data(fields: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def _messages(reply: Reply, model: str) -> Iterator[bytes]:
    usage = {"input_tokens": 5, "output_tokens": 1}
    head = {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "usage": usage,
    }
    yield _event("message_start", message=head | {"stop_reason": None, "stop_sequence": None})
    if reply.name:
        block = {"type": "tool_use", "id": f"toolu_{reply.id}", "name": reply.name, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in reply.pieces]
    else:
        block, deltas = {"type": "text", "text": ""}, [{"type": "text_delta", "text": reply.text}]
    yield _event("content_block_start", index=0, content_block=block)
    for delta in deltas:
        yield _event("content_block_delta", index=0, delta=delta)
    yield _event("content_block_stop", index=0)
    reason = "tool_use" if reply.name else "end_turn"
    yield _event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 5})
    yield _event("message_stop")


def _chat(reply: Reply, model: str) -> Iterator[bytes]:
    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _data({"id": reply.id, "object": "chat.completion.chunk", "model": model, "choices": [choice]})

    if reply.name:
        function = {"name": reply.name, "arguments": ""}
        call = {"index": 0, "id": f"call_{reply.id}", "type": "function", "function": function}
        yield chunk({"role": "assistant", "tool_calls": [call]})
        for piece in reply.pieces:
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
    else:
        yield chunk({"role": "assistant", "content": reply.text})
    yield chunk({}, "tool_calls" if reply.name else "stop")
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    yield _data({"id": reply.id, "object": "chat.completion.chunk", "model": model, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _responses(reply: Reply, model: str) -> Iterator[bytes]:
    item: dict[str, Any]
    if reply.name:
        item = {"type": "function_call", "id": f"fc_{reply.id}", "call_id": f"call_{reply.id}", "status": "completed"}
        item |= {"name": reply.name, "arguments": reply.arguments}
        item |= {"namespace": reply.namespace} if reply.namespace else {}
        begun = item | {"arguments": ""}
    else:
        words = {"type": "output_text", "text": reply.text, "annotations": list[Any]()}
        item = {
            "type": "message",
            "id": f"m_{reply.id}",
            "role": "assistant",
            "status": "completed",
            "content": [words],
        }
        begun = item | {"content": []}
    yield _event(
        "response.created", response={"id": f"r_{reply.id}", "model": model, "status": "in_progress", "output": []}
    )
    yield _event("response.output_item.added", output_index=0, item=begun)
    if not reply.name:
        yield _event(
            "response.output_text.delta", output_index=0, item_id=f"m_{reply.id}", content_index=0, delta=reply.text
        )
    yield _event("response.output_item.done", output_index=0, item=item)
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    yield _event(
        "response.completed", response={"id": f"r_{reply.id}", "status": "completed", "output": [item], "usage": usage}
    )


def _gemini(reply: Reply, model: str) -> Iterator[bytes]:
    call = {"name": reply.name, "args": json.loads(reply.arguments or "{}")}
    part = {"functionCall": call} if reply.name else {"text": reply.text}
    content = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    yield _data({"candidates": [content], "modelVersion": model, "usageMetadata": usage})


PROTOCOLS = {"/messages": _messages, "/chat/completions": _chat, "/responses": _responses, "": _gemini}


def _whole(path: str) -> Mapping[str, Any]:
    """Return the answer to a request that is not streamed: a title, or a count of tokens."""
    if "count" in path.lower():
        return {"input_tokens": 10, "totalTokens": 10}
    if "/messages" in path:
        usage = {"input_tokens": 1, "output_tokens": 1}
        content = [{"type": "text", "text": "Title"}]
        return {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content, "usage": usage}
    if "/chat/completions" in path:
        choice = {"index": 0, "message": {"role": "assistant", "content": "Title"}, "finish_reason": "stop"}
        return {"id": "c", "object": "chat.completion", "choices": [choice]}
    content = {"role": "model", "parts": [{"text": "{}"}]}
    return {"candidates": [{"content": content, "finishReason": "STOP"}]}


@dataclass
class Loopback:
    """The running model. `pause`: how long it waits after each piece of a call, in seconds; `asked`: it begins one."""

    pause: float = 0.0
    port: int = 0
    asked: threading.Event = field(default_factory=threading.Event)


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of agents."""

    def __init__(self, model: Loopback, *arguments: Any) -> None:
        self._model = model
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (named in the base class)
        """Write no log."""

    def do_GET(self) -> None:
        self._send([json.dumps({"data": [{"id": "m", "object": "model"}], "models": []}).encode()])

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.loads(raw or b"{}")
        if "count" in self.path.lower() or not (body.get("stream") or "stream" in self.path):
            self._send([json.dumps(_whole(self.path)).encode()])
            return
        reply = reply_to(body, raw.decode())
        protocol = next(answer for part, answer in PROTOCOLS.items() if part in self.path)
        pause = self._model.pause if reply.name else 0.0
        if reply.name:
            self._model.asked.set()
        self._send(protocol(reply, str(body.get("model", "m"))), "text/event-stream", pause)

    def _send(self, pieces: Iterable[bytes], kind: str = "application/json", pause: float = 0.0) -> None:
        try:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.end_headers()
            for piece in pieces:
                self.wfile.write(piece)
                self.wfile.flush()
                time.sleep(pause)
        except ConnectionError:  # the agent was stopped
            pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a connection that an agent has closed."""


@contextmanager
def loopback_model(port: int = 0) -> Iterator[Loopback]:
    """Serve the model at a port of this machine (0: any free one)."""
    model = Loopback()
    server = _Server(("127.0.0.1", port), partial(_Handler, model))
    model.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
