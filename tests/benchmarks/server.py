"""A loopback server that speaks as much of the APIs as the benchmarks need: `python -m tests.benchmarks.server`.

It answers a request whose last message is a user's with one call of `echo`, and a tool's result with a short
text. A prompt of "stream N" is answered with N chunks of text. The first line it prints is its port.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

Chunks = Iterator[dict[str, Any]]


def chat(body: dict[str, Any]) -> Chunks:
    """Answer in the manner of Chat Completions."""
    last = body["messages"][-1]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench"}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return head | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    if last["role"] == "tool":
        yield from (chunk({"content": word}) for word in ("It ", "says ", "hello."))
        yield chunk({}, "stop")
    elif (count := stream_length(last["content"])) is not None:
        yield from (chunk({"content": "word "}) for _ in range(count))
        yield chunk({}, "stop")
    else:
        call = {"index": 0, "id": f"call_{len(body['messages'])}", "type": "function"}
        yield chunk({"tool_calls": [call | {"function": {"name": "echo", "arguments": ""}}]})
        yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"text": "hello"}'}}]})
        yield chunk({}, "tool_calls")
    yield head | {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}}


def responses(body: dict[str, Any]) -> Chunks:
    """Answer in the manner of Responses."""
    last = body["input"][-1]
    yield {"type": "response.created", "response": {"id": "r", "status": "in_progress"}}
    if last.get("type") == "function_call_output":
        yield from message(["It ", "says ", "hello."])
    elif (count := stream_length(last["content"])) is not None:
        yield from message(["word "] * count)
    else:
        name = f"call_{len(body['input'])}"
        item = {"type": "function_call", "id": f"fc_{name}", "call_id": name, "name": "echo", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": 0, "item": item}
        text = '{"text": "hello"}'
        place = {"output_index": 0, "item_id": item["id"]}
        yield {"type": "response.function_call_arguments.delta", "delta": text, **place}
        yield {"type": "response.function_call_arguments.done", "arguments": text, **place}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item | {"arguments": text}}
    usage = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}
    yield {"type": "response.completed", "response": {"id": "r", "status": "completed", "usage": usage}}


def message(words: list[str]) -> Chunks:
    """Stream one message item of Responses."""
    item: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "content": []}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    place = {"output_index": 0, "content_index": 0, "item_id": "m"}
    yield {"type": "response.content_part.added", "part": {"type": "output_text", "text": ""}, **place}
    for word in words:
        yield {"type": "response.output_text.delta", "delta": word, **place}
    part = {"type": "output_text", "text": "".join(words), "annotations": []}
    yield {"type": "response.output_text.done", "text": part["text"], **place}
    yield {"type": "response.content_part.done", "part": part, **place}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item | {"content": [part]}}


def gemini(body: dict[str, Any]) -> Chunks:
    """Answer in the manner of Gemini."""
    part = body["contents"][-1]["parts"][0]

    def chunk(part: dict[str, Any], **extra: Any) -> dict[str, Any]:
        usage = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
        candidate = {"content": {"role": "model", "parts": [part]}, "index": 0} | extra
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "bench"}

    if "functionResponse" in part:
        yield from (chunk({"text": word}) for word in ("It ", "says "))
        yield chunk({"text": "hello."}, finishReason="STOP")
    elif (count := stream_length(part.get("text", ""))) is not None:
        yield from (chunk({"text": "word "}) for _ in range(count - 1))
        yield chunk({"text": "word "}, finishReason="STOP")
    else:
        call = {"name": "echo", "args": {"text": "hello"}, "id": f"call_{len(body['contents'])}"}
        yield chunk({"functionCall": call}, finishReason="STOP")


def anthropic(body: dict[str, Any]) -> Chunks:
    """Answer in the manner of Anthropic's Messages."""
    content = body["messages"][-1]["content"]

    def block(empty: dict[str, Any], *deltas: dict[str, Any]) -> Chunks:
        yield {"type": "content_block_start", "index": 0, "content_block": empty}
        yield from ({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": 0}

    def text(words: list[str]) -> Chunks:
        return block({"type": "text", "text": ""}, *({"type": "text_delta", "text": word} for word in words))

    yield {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}}
    if content[0]["type"] == "tool_result":
        yield from text(["It ", "says ", "hello."])
    elif (count := stream_length(content)) is not None:
        yield from text(["word "] * count)
    else:
        call = {"type": "tool_use", "id": f"toolu_{len(body['messages'])}", "name": "echo", "input": {}}
        yield from block(call, {"type": "input_json_delta", "partial_json": '{"text": "hello"}'})
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}
    yield {"type": "message_stop"}


def ollama(body: dict[str, Any]) -> Chunks:
    """Answer in the manner of Ollama."""
    last = (body["messages"] or [{"role": "tool"}])[-1]  # without messages the model is loaded

    def line(**message: Any) -> dict[str, Any]:
        return {"model": "bench", "message": {"role": "assistant", "content": "", **message}, "done": False}

    if last["role"] == "tool":
        yield from (line(content=word) for word in ("It ", "says ", "hello."))
    elif (count := stream_length(last["content"])) is not None:
        yield from (line(content="word ") for _ in range(count))
    else:
        yield line(tool_calls=[{"function": {"name": "echo", "arguments": {"text": "hello"}}}])
    yield line() | {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 3}


def stream_length(content: Any) -> int | None:
    """Read N out of a prompt "stream N", whichever form the API gives it."""
    text = content if isinstance(content, str) else content[0].get("text", "")
    return int(text.split()[1]) if text.startswith("stream ") else None


def answer(path: str, body: dict[str, Any]) -> tuple[Chunks, bytes]:
    """Choose the API of a path; return its chunks and what ends its stream."""
    if "chat/completions" in path:
        return chat(body), b"data: [DONE]\n\n"
    if "responses" in path:
        return responses(body), b""
    if "messages" in path:
        return anthropic(body), b""
    if "api/chat" in path:
        return ollama(body), b""
    return gemini(body), b""


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection, request after request, until the client or the benchmark ends it."""
    with suppress(asyncio.CancelledError):
        await requests(reader, writer)
    writer.close()


async def requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of a connection."""
    while head := await reader.readline():
        length = 0
        while (line := await reader.readline()).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        path = head.decode().split()[1]
        chunks, end = answer(path, json.loads(await reader.readexactly(length)))
        lines = (json_line(chunk) if "api/chat" in path else event_line(chunk) for chunk in chunks)
        payload = b"".join(lines) + end
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(payload))
        writer.write(payload)
        await writer.drain()


def json_line(chunk: dict[str, Any]) -> bytes:
    """Write one line of JSON."""
    return json.dumps(chunk).encode() + b"\n"


def event_line(chunk: dict[str, Any]) -> bytes:
    """Write one server-sent event."""
    kind = f"event: {chunk['type']}\n" if "type" in chunk else ""
    return f"{kind}data: {json.dumps(chunk)}\n\n".encode()


async def main() -> None:
    """Serve on a free port until standard input is closed."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**26)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(input_closed)
    server.close()


def input_closed() -> None:
    """Return when nobody holds our standard input open any more."""
    import sys

    sys.stdin.read()


if __name__ == "__main__":
    asyncio.run(main())
