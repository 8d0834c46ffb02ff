"""A loopback provider with a rate limit and storms of refusals: `python -m tests.benchmarks.limited LIMIT`.

It speaks Chat Completions. A prompt that says "Row 17." is answered with a call of the tool `note` if there is one, and
that tool's result with a label. It counts by row, and what the answers have cost, those included whose client is gone.
The first line that it prints is its port; GET /counts returns what it has counted, and GET /log when it accepted and
refused requests. `--tells` says what it tells of its limit: "headers", only how long to "wait", or "nothing".
"""

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

INPUT_PRICE, OUTPUT_PRICE = 2.0, 8.0
"""US dollars for a million tokens."""
LATENCY = (0.2, 0.8)
"""Seconds that an answer takes at least and at most."""
STORMS = (30.0, 5.0, 0.3)
"""Seconds from storm to storm, seconds of one, and the share of requests that it refuses."""
BURST = 1.0
"""Seconds of the rate that may be sent at once, and at least one request."""
LABEL = "The customer likes the product and would buy it again. "


@dataclass
class Provider:
    """What the provider allows, a minute, and what it has counted."""

    limit: int
    latency: tuple[float, float] = LATENCY
    tells: str = "headers"
    storms: tuple[float, float, float] = STORMS
    burst: float = BURST
    begun: Counter[int] = field(default_factory=Counter[int])
    answered: Counter[int] = field(default_factory=Counter[int])
    accepted: list[float] = field(default_factory=list[float])
    refused: list[float] = field(default_factory=list[float])
    cost: float = 0.0
    dearest: float = 0.0
    last: float = 0.0

    def __post_init__(self) -> None:
        self._chance = random.Random(34)  # noqa: S311  (a storm, not a secret)
        self._most = max(self.burst * self.limit / 60, 1.0)
        self._left = self._most
        self._seen = self._began = time.monotonic()

    def refuses(self) -> dict[str, str] | None:
        """Return the headers of a refusal, or None for a request that is accepted."""
        now = time.monotonic()
        rate = self.limit / 60
        self._left = min(self._left + (now - self._seen) * rate, self._most)
        self._seen = now
        every, lasts, share = self.storms
        is_stormy = lasts and (now - self._began) % every > every - lasts
        if is_stormy and self._chance.random() < share:
            self.refused.append(now)
            return self._told({"retry-after": "1"})
        if self._left < 1:
            self.refused.append(now)
            return self._told({"retry-after-ms": str(round((1 - self._left) / rate * 1000) + 1)})
        self._left -= 1
        self.accepted.append(now)
        self.last = now
        return None

    def _told(self, wait: dict[str, str]) -> dict[str, str]:
        return {} if self.tells == "nothing" else wait

    @property
    def headers(self) -> dict[str, str]:
        """What OpenAI's API says of the limit with each response."""
        if self.tells != "headers":
            return {}
        return {
            "x-ratelimit-limit-requests": str(self.limit),
            "x-ratelimit-remaining-requests": str(int(self._left)),
            "x-ratelimit-reset-requests": f"{(self._most - self._left) * 60 / self.limit:.3f}s",
        }

    async def answer(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """Take the time of an answer, count it, and return its chunks."""
        prompt = next(message for message in reversed(body["messages"]) if message["role"] == "user")
        number = int(re.findall(r"Row (\d+)\.", str(prompt["content"]))[-1])
        is_last = body["messages"][-1]["role"] == "tool" or not body.get("tools")
        if not is_last:
            self.begun[number] += 1
        await asyncio.sleep(self._chance.uniform(*self.latency))
        read, written = len(str(body["messages"])) // 4, 20 + number % 30
        cost = (read * INPUT_PRICE + written * OUTPUT_PRICE) / 1e6
        self.cost += cost
        self.dearest = max(self.dearest, cost)
        if is_last:
            self.answered[number] += 1
        return list(chunks(number, read, written, is_last=is_last))

    def counts(self) -> dict[str, Any]:
        """Return what was counted, as JSON."""
        return {
            "begun": self.begun,
            "answered": self.answered,
            "accepted": len(self.accepted),
            "refused": len(self.refused),
            "cost": self.cost,
            "dearest": self.dearest,
            "last": self.last,
            "now": time.monotonic(),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, request after request, until its client is gone."""
        try:
            while head := await reader.readline():
                length = 0
                while (line := await reader.readline()).strip():
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                body = json.loads(await reader.readexactly(length)) if length else None
                writer.write(await self.response(head.decode().split()[1], body))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def response(self, path: str, body: dict[str, Any] | None) -> bytes:
        """Return the response to a request."""
        if path == "/counts":
            return response("200 OK", json.dumps(self.counts()).encode(), {"content-type": "application/json"})
        if path == "/log":
            log = {"accepted": self.accepted, "refused": self.refused, "now": time.monotonic()}
            return response("200 OK", json.dumps(log).encode(), {"content-type": "application/json"})
        assert body is not None
        if (wait := self.refuses()) is not None:
            error = {"error": {"message": "Rate limit reached.", "type": "requests", "code": "rate_limit_exceeded"}}
            headers = {"content-type": "application/json", **self.headers, **wait}
            return response("429 Too Many Requests", json.dumps(error).encode(), headers)
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in await self.answer(body)]
        whole = "".join([*lines, "data: [DONE]\n\n"]).encode()
        return response("200 OK", whole, {"content-type": "text/event-stream", **self.headers})


def chunks(number: int, read: int, written: int, *, is_last: bool) -> Any:
    """Yield the chunks of an answer: a call of `note`, or the label."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "rows"}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return head | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    if is_last:
        yield chunk({"content": LABEL})
        yield chunk({}, "stop")
    else:
        call = {"index": 0, "id": f"call_{number}", "type": "function"}
        yield chunk({"tool_calls": [call | {"function": {"name": "note", "arguments": f'{{"number": {number}}}'}}]})
        yield chunk({}, "tool_calls")
    usage = {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    yield head | {"choices": [], "usage": usage}


def response(status: str, body: bytes, headers: dict[str, str]) -> bytes:
    """Write a response of HTTP."""
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


async def main() -> None:
    """Serve on a free port until standard input is closed."""
    reader = argparse.ArgumentParser(prog="python -m tests.benchmarks.limited")
    reader.add_argument("limit", type=int)
    reader.add_argument("latency", type=float, nargs="*", default=LATENCY)
    reader.add_argument("--tells", default="headers", choices=("headers", "wait", "nothing"))
    reader.add_argument("--storms", type=float, nargs=3, default=STORMS)
    reader.add_argument("--burst", type=float, default=BURST)
    options = reader.parse_args()
    provider = Provider(options.limit, tuple(options.latency), options.tells, tuple(options.storms), options.burst)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0, limit=2**26, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
