"""A server as a child process: MCP messages as lines of JSON on its standard input and output.

In place of the mcp library's own transport, because a server may do anything: print a banner, send a line
of 50 MB or bytes that are no UTF-8, flood its stderr, or refuse to end. Reading is linear in the size of a
line and bounded, the process has a session of its own (an interrupt of the kernel does not reach it), and
it is gone once the transport is left.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentmagic.secrets import redact
from agentmagic.tools.mcp import process, wire
from agentmagic.tools.mcp.config import Stdio
from agentmagic.tools.mcp.pace import Rest
from agentmagic.tools.mcp.values import MOST_VALUES, Values
from agentmagic.tools.mcp.words import clean

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp import types
    from mcp.shared.message import SessionMessage

    Incoming = MemoryObjectSendStream[SessionMessage | Exception]
    Outgoing = MemoryObjectReceiveStream[SessionMessage]
    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

LONGEST_LINE = 32 * 1024 * 1024
"""Bytes of one message; a longer one is dropped, and its request answered with an error."""

TOO_LONG = -32010
"""JSON-RPC error code of our own, from the range that is left to implementations."""

UNREADABLE = -32700
"""The code that JSON-RPC has for what is no JSON."""

LAST_OUTPUT = 0.5
"""Seconds that what a server left behind may still write, once the server itself has ended."""

_CHUNK = 256 * 1024
_WAITING = 256


@dataclass(frozen=True, slots=True)
class TooLong:
    """A line over a limit, of which only the request it answers is known, if that."""

    request: int | str | None


class Lines:
    """Cut a stream of bytes into lines, in linear time and bounded memory."""

    def __init__(self, longest: int = LONGEST_LINE) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._values: Values | None = None

    def feed(self, chunk: bytes) -> Iterator[bytes | TooLong]:
        """Yield the lines that this chunk completes."""
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._add(part)
            yield self._line()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        self._count(part)
        if self._is_over():
            joined = b"".join(self._parts)
            self._head = self._head or joined[: wire.ENDS]
            self._parts = [joined[-wire.ENDS :]]

    def _count(self, part: bytes) -> None:
        if self._values is not None:
            self._values.feed(part)
        elif self._size > MOST_VALUES:  # fewer bytes cannot hold too many
            self._values = Values()
            self._values.feed(b"".join(self._parts))

    def _is_over(self) -> bool:
        return self._size > self._longest or (self._values is not None and self._values.too_many)

    def _line(self) -> bytes | TooLong:
        line, is_over = b"".join(self._parts), self._is_over()
        found = wire.answered(self._head, line) if is_over else None
        self._parts, self._size, self._head, self._values = [], 0, b"", None
        return TooLong(found) if is_over else line.strip()


class Tail:
    """The last words of a server on stderr, and those on stdout that were no message."""

    def __init__(self, size: int = 64 * 1024) -> None:
        self._size = size
        self._bytes = bytearray()

    def write(self, data: bytes) -> None:
        """Add to the end and forget what is too old."""
        self._bytes += data[-self._size :]
        del self._bytes[: -self._size]

    def text(self) -> str:
        """Return all that is kept, fit to be shown, secrets blanked before a caller cuts one in two."""
        return redact(clean(bytes(self._bytes).decode("utf-8", "replace")).strip())

    def gist(self, lines: int = 3, most: int = 300) -> str:
        """Return the last lines that say something: of a traceback its last line, not its frames."""
        said = [line.strip() for line in self.text().splitlines() if line[:1].strip()]
        return " / ".join(line for line in said[-lines:] if not line.startswith("Traceback "))[-most:]


@asynccontextmanager
async def connect(program: Stdio, tail: Tail, on_end: Callable[[], None]) -> AsyncGenerator["Streams"]:
    """Start the program and yield the streams of its messages; it is gone when the block is left.

    `on_end` is called when it or its output ends. Raises OSError or ValueError where it cannot be started.
    """
    import anyio
    from mcp.shared.message import SessionMessage

    child = await process.start(program)  # from here on nothing awaits until the process is looked after
    into, incoming = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    # A buffer, for a server that has stopped reading must not hold up the notice that cancels its call.
    outgoing, out = anyio.create_memory_object_stream[SessionMessage](_WAITING)

    def end() -> None:
        on_end()
        into.close()

    try:
        async with asyncio.TaskGroup() as pumps:
            reader = pumps.create_task(_read(child, into, tail))
            errors = pumps.create_task(_drain(child, tail))
            others = (pumps.create_task(_write(child, out, end)), pumps.create_task(_watch(child, reader, end)))
            try:
                yield incoming, outgoing
            finally:
                for stream in (incoming, outgoing):
                    stream.close()
                await child.stop()
                await asyncio.wait((reader, errors), timeout=process.TERM_GRACE)
                for pump in (reader, errors, *others):
                    pump.cancel()
    finally:
        for stream in (into, incoming, outgoing, out):
            stream.close()
        await child.close()


async def _watch(child: process.Child, reader: "asyncio.Task[None]", end: Callable[[], None]) -> None:
    """Tell of the end of the output, or of the server where something it started holds its output open."""
    ended = asyncio.create_task(child.wait())
    try:
        await asyncio.wait((reader, ended), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((reader,), timeout=LAST_OUTPUT)
    finally:
        ended.cancel()
    end()


async def _read(child: process.Child, into: "Incoming", tail: Tail) -> None:
    """Hand on messages until the output ends, in a last line without its end too."""
    lines, rest = Lines(), Rest()
    while chunk := await child.stdout.read(_CHUNK):
        await _hand_on(lines.feed(chunk), into, tail, rest)
    await _hand_on(lines.feed(b"\n"), into, tail, rest)


async def _hand_on(lines: Iterator[bytes | TooLong], into: "Incoming", tail: Tail, rest: Rest) -> None:
    import anyio

    for line in lines:
        if not into.statistics().open_receive_streams:
            return  # nobody listens any more: what comes is only drained, so that the server can end
        if (message := _message(line, tail)) is None:
            await rest.over()
            continue
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await into.send(message)


def _message(line: bytes | TooLong, tail: Tail) -> "SessionMessage | None":
    from mcp.shared.message import SessionMessage

    if isinstance(line, TooLong):
        words = f"the answer is over {LONGEST_LINE} bytes or {MOST_VALUES} values and was dropped"
        return _dropped(line.request, TOO_LONG, words)
    if not line:
        return None
    try:
        return SessionMessage(_parsed(line))
    except ValueError:
        tail.write(line[:1000] + b"\n")
        request = wire.answered(line[: wire.ENDS], line[-wire.ENDS :])
        return _dropped(request, UNREADABLE, "the answer is in a form that cannot be read and was dropped")


def _parsed(line: bytes) -> "types.JSONRPCMessage":
    from mcp import types

    def parse(text: bytes) -> types.JSONRPCMessage:
        return types.jsonrpc_message_adapter.validate_json(text.decode("utf-8", "replace"), by_name=False)

    try:
        return parse(line)
    except ValueError:
        if (mended := wire.mend(line)) == line:
            raise
        return parse(mended)


def _dropped(request: int | str | None, code: int, words: str) -> "SessionMessage | None":
    """Say, in the server's place, that its answer to a request was dropped."""
    from mcp import types
    from mcp.shared.message import SessionMessage

    if request is None:
        return None
    problem = types.ErrorData(code=code, message=words)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request, error=problem))


async def _drain(child: process.Child, tail: Tail) -> None:
    while chunk := await child.stderr.read(_CHUNK):
        tail.write(chunk)


async def _write(child: process.Child, out: "Outgoing", end: Callable[[], None]) -> None:
    try:
        async for item in out:
            child.stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await child.stdin.drain()
    except OSError:  # the server closed its input: no request will be answered any more
        end()
