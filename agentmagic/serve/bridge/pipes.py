"""The standard input and output of the bridge: lines of MCP messages, read and written in threads.

Threads work with every kind of standard stream, on every system. They are daemon threads, so that a client that has
stopped reading cannot keep the process alive.
"""

import asyncio
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import suppress

from agentmagic.serve.bridge.envelope import LARGEST

_CHUNK = 64 * 1024
_WAITING = 64
"""How many lines are read ahead."""
_START = 4096
"""How many bytes are kept of a line that is too long; they may contain the request's id."""


class Splitter:
    """Splits bytes into lines, in linear time. Only the start of a line that is too long is kept."""

    def __init__(self, longest: int = LARGEST) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield each line that this chunk completes, and whether the line is whole (not too long)."""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            self._add(end)
            line, is_whole = b"".join(self._parts), self._size <= self._longest
            self._parts, self._size = [], 0
            yield line, is_whole
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        self._parts.append(part)
        if self._size > self._longest:
            self._parts = [b"".join(self._parts)[:_START]]


class Pipes:
    """Reads and writes lines on standard input and output. Once it exists, `print` writes to standard error."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue(_WAITING)
        self.ended = asyncio.Event()
        """Set when the client has closed its end of a pipe."""
        self._wire = os.dup(1)
        os.dup2(2, 1)  # printed text must not mix with the messages to the client
        self._unwritten: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        self._turn = asyncio.Lock()
        for work in (self._read, self._write):
            threading.Thread(target=work, name=f"agentmagic-bridge{work.__name__}", daemon=True).start()

    async def line(self) -> tuple[bytes, bool]:
        """Return the next line from the client, and whether the line is whole (not too long)."""
        return await self._lines.get()

    async def send(self, line: bytes) -> None:
        """Write a line, after earlier lines. Return when the pipe to the client has accepted the whole line."""
        async with self._turn:
            done: asyncio.Future[None] = self._loop.create_future()
            self._unwritten.put((line + b"\n", done))
            await done

    def _read(self) -> None:
        splitter = Splitter()
        with suppress(OSError, RuntimeError):  # RuntimeError: the event loop is closed
            while chunk := os.read(0, _CHUNK):
                for line in splitter.feed(chunk):
                    asyncio.run_coroutine_threadsafe(self._lines.put(line), self._loop).result()
        self._end()

    def _write(self) -> None:
        while True:
            line, done = self._unwritten.get()
            try:
                remaining = memoryview(line)
                while remaining:
                    remaining = remaining[os.write(self._wire, remaining) :]
            except OSError:  # the client has closed its end of the pipe
                self._end()
                return
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_finish, done)

    def _end(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.ended.set)


def _finish(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)
