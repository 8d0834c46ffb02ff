"""A server as a child process: MCP messages as lines of JSON on its standard input and output.

In place of the mcp library's own transport, because a server may do anything: print a banner, send a line
of 50 MB or bytes that are no UTF-8, flood its stderr, or refuse to end. Reading is linear in the size of a
line and bounded, the process has a session of its own (an interrupt of the kernel does not reach it), and
it is gone once the transport is left.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentmagic.redact import redact
from agentmagic.tools.mcp.config import Stdio
from agentmagic.tools.mcp.values import MOST_VALUES, Values

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

    Incoming = MemoryObjectSendStream[SessionMessage | Exception]
    Outgoing = MemoryObjectReceiveStream[SessionMessage]
    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

LONGEST_LINE = 32 * 1024 * 1024
"""Bytes of one message; a longer one is dropped, and its request answered with an error."""

EXIT_GRACE = 1.5
"""Seconds a server has to end after its input was closed."""

TERM_GRACE = 1.0
"""Seconds it has after SIGTERM, before SIGKILL."""

TOO_LONG = -32010
"""JSON-RPC error code of our own, from the range that is left to implementations."""

_CHUNK = 256 * 1024
_ENDS = 4096
_WAITING = 256
_ID = rb'"id"\s*:\s*(\d{1,15}|"[^"\\]{1,100}")'
_ID_AT_START = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_AT_END = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


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
            self._head = self._head or joined[:_ENDS]
            self._parts = [joined[-_ENDS:]]

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
        found = (_ID_AT_START.match(self._head) or _ID_AT_END.search(line)) if is_over else None
        self._parts, self._size, self._head, self._values = [], 0, b"", None
        if not is_over:
            return line.strip()
        if found is None:
            return TooLong(None)
        identifier = found[1].decode("utf-8", "replace")
        return TooLong(identifier[1:-1] if identifier.startswith('"') else int(identifier))


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
        """Return all that is kept, secrets blanked before a caller cuts one in two."""
        return redact(bytes(self._bytes).decode("utf-8", "replace").strip())

    def gist(self, lines: int = 3, most: int = 300) -> str:
        """Return the last lines that say something: of a traceback its last line, not its frames."""
        said = [line.strip() for line in self.text().splitlines() if line[:1].strip()]
        return " / ".join(line for line in said[-lines:] if not line.startswith("Traceback "))[-most:]


@asynccontextmanager
async def connect(program: Stdio, tail: Tail, on_end: Callable[[], None]) -> AsyncGenerator["Streams"]:
    """Start the program and yield the streams of its messages; it is gone when the block is left.

    `on_end` is called when its output ends. Raises OSError or ValueError where it cannot be started.
    """
    import anyio
    from mcp.shared.message import SessionMessage

    process = await _start(program)  # from here on nothing awaits until the process is looked after
    into, incoming = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    # A buffer, for a server that has stopped reading must not hold up the notice that cancels its call.
    outgoing, out = anyio.create_memory_object_stream[SessionMessage](_WAITING)
    try:
        async with asyncio.TaskGroup() as pumps:
            reader = pumps.create_task(_read(process, into, tail, on_end))
            errors = pumps.create_task(_drain(process, tail))
            writer = pumps.create_task(_write(process, out, into, on_end))
            try:
                yield incoming, outgoing
            finally:
                for stream in (incoming, outgoing):
                    stream.close()
                await _stop(process)
                await asyncio.wait((reader, errors), timeout=TERM_GRACE)
                for pump in (reader, errors, writer):
                    pump.cancel()
    finally:
        for stream in (into, incoming, outgoing, out):
            stream.close()
        await _ended(process, TERM_GRACE)


async def _start(program: Stdio) -> Process:
    from mcp.client.stdio import get_default_environment

    if program.cwd is not None and not program.cwd.is_dir():
        raise NotADirectoryError(f"its folder {program.cwd} does not exist")
    environment = get_default_environment() | dict(program.env)
    # Commands installed beside this Python are found too: a kernel's PATH often lacks its own environment.
    places = os.pathsep.join((environment.get("PATH", os.defpath), str(Path(sys.executable).parent)))
    return await asyncio.create_subprocess_exec(
        shutil.which(program.command, path=places) or program.command,
        *program.args,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        env=environment,
        cwd=program.cwd,
        start_new_session=True,
    )


async def _read(process: Process, into: "Incoming", tail: Tail, on_end: Callable[[], None]) -> None:
    """Hand on messages until the output ends; once nobody listens, only drain, so that the server can end."""
    import anyio

    lines = Lines()
    listening = True
    output = _pipe(process.stdout)
    while chunk := await output.read(_CHUNK):
        for line in lines.feed(chunk):
            message = _message(line, tail) if listening else None
            if message is None:
                continue
            try:
                await into.send(message)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                listening = False
    on_end()
    into.close()


def _message(line: bytes | TooLong, tail: Tail) -> "SessionMessage | None":
    from mcp import types
    from mcp.shared.message import SessionMessage

    if isinstance(line, TooLong):
        if line.request is None:
            return None
        problem = types.ErrorData(
            code=TOO_LONG, message=f"the answer is over {LONGEST_LINE} bytes or {MOST_VALUES} values and was dropped"
        )
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=line.request, error=problem))
    if not line:
        return None
    try:
        text = line.decode("utf-8", "replace")
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError:
        tail.write(line[:1000] + b"\n")
        return None


async def _drain(process: Process, tail: Tail) -> None:
    errors = _pipe(process.stderr)
    while chunk := await errors.read(_CHUNK):
        tail.write(chunk)


async def _write(process: Process, out: "Outgoing", into: "Incoming", on_end: Callable[[], None]) -> None:
    stdin = process.stdin
    if stdin is None:
        raise RuntimeError("the process was started without a pipe")
    try:
        async for item in out:
            stdin.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()
    except OSError:  # the server closed its input: no request will be answered any more
        on_end()
        into.close()


async def _stop(process: Process) -> None:
    """End the process: close its input, then SIGTERM, then SIGKILL, to it and to all it started."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        if not await _ended(process, EXIT_GRACE):
            _signal(process, kill=False)
            await _ended(process, TERM_GRACE)
    finally:
        _signal(process, kill=True)  # also where a cancel cut the grace short, and for what the server left behind


async def _ended(process: Process, grace: float) -> bool:
    try:
        await asyncio.wait_for(process.wait(), grace)
    except TimeoutError:
        return False
    return True


def _signal(process: Process, *, kill: bool) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.kill()
        else:  # the group has the number of its leader, which began the session
            os.killpg(process.pid, signal.SIGKILL if kill else signal.SIGTERM)


def _pipe(stream: asyncio.StreamReader | None) -> asyncio.StreamReader:
    if stream is None:
        raise RuntimeError("the process was started without a pipe")
    return stream
