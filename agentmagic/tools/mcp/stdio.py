"""Runs an MCP server as a child process. Messages are lines of JSON on its standard input and output.

The process and its children are started and ended as in the mcp library. This module reads the pipes itself, because a
server can do anything: print a banner, send a line of 50 MB (for which the library needs 79 s), send bytes that are not
UTF-8, flood its stderr, or refuse to end. The time to read a line is linear in its size, and the memory is limited.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
import sysconfig
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from subprocess import PIPE
from typing import TYPE_CHECKING, Any, cast

from agentmagic.secrets import redact
from agentmagic.text import clean
from agentmagic.tools.mcp import limits
from agentmagic.tools.mcp.config import Stdio
from agentmagic.tools.mcp.guardian import MARK, guardian, kill_marked

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream, ByteSendStream, Process
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp import types
    from mcp.shared.message import SessionMessage

    Incoming = MemoryObjectSendStream[SessionMessage | Exception]
    Outgoing = MemoryObjectReceiveStream[SessionMessage]
    Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

# JSON-RPC error codes. TOO_LONG is our own, in the range for implementations. UNREADABLE is the standard parse error.
TOO_LONG = -32010
UNREADABLE = -32700

# Environment variables that a server needs in a network with a proxy or with its own certificate authority.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
NETWORK = (*_PROXIES, *map(str.lower, _PROXIES), *_CERTIFICATES)

_UNSENT = 256  # How many messages are buffered for a server that has stopped reading.

# Matches, in JSON, an escaped backslash, or a surrogate pair in \u escapes, or half of such a pair.
_SURROGATES = re.compile(
    rb"\\\\|\\u[dD](?:[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[89a-fA-F][0-9a-fA-F]{2})"
)
_HALF = len(r"\ud83d")
_ID = rb'"id"\s*:\s*(\d{1,15}|"[^"\\]{1,100}")'
_VERSION = rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?'
_ANSWER = rb'"(?:result|error)"\s*:'
_ID_AT_START = re.compile(rb"\s*\{\s*" + _VERSION + _ID + rb"\s*,\s*" + _VERSION + _ANSWER)
_ANSWER_AT_START = re.compile(rb"\s*\{\s*" + _VERSION + _ANSWER)
_ID_AT_END = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')


def repair(text: bytes) -> bytes:
    r"""Return JSON with each half of a surrogate pair ("\ud83d") replaced by U+FFFD.

    A program that cuts a text inside an emoji writes such halves, and the JSON parser then refuses the whole text. A
    text over `REPAIRED_BYTES` is returned unchanged.
    """
    if len(text) > limits.REPAIRED_BYTES or not (rb"\ud" in text or rb"\uD" in text):
        return text
    return _SURROGATES.sub(lambda match: rb"\ufffd" if len(match[0]) == _HALF else match[0], text)


def answered_request(head: bytes, tail: bytes) -> int | str | None:
    """Return the id of the request that a long message answers, or None if the message is not an answer.

    `head` and `tail` are the two ends of the message. The id is expected in one of them.
    """
    match = _ID_AT_START.match(head) or (_ANSWER_AT_START.match(head) and _ID_AT_END.search(tail))
    if not match:
        return None
    identifier = match[1].decode("utf-8", "replace")
    return identifier[1:-1] if identifier.startswith('"') else int(identifier)


@dataclass(frozen=True, slots=True)
class TooLong:
    """Stands for a line of a server's output that exceeds a limit and was dropped.

    `request` is the id of the request that the line answers, or None if the id was not found.
    """

    request: int | str | None


class Lines:
    """Splits the bytes from a server into lines, in linear time and with limited memory."""

    def __init__(self, longest: int | None = None) -> None:
        self._longest = longest or limits.MESSAGE_BYTES
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._values: limits.ValueCounter | None = None

    def feed(self, chunk: bytes) -> Iterator[bytes | TooLong]:
        """Add the next bytes, and yield the lines that are then complete."""
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            self._add(part)
            yield self._line()
        self._add(rest)

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._values is not None:
            self._values.feed(part)
        elif self._size > limits.MESSAGE_VALUES:  # A shorter line cannot contain too many values.
            self._values = limits.ValueCounter()
            self._values.feed(b"".join(self._parts))
        if self._is_over():  # The two ends of the line are kept: one may have the id of the request.
            data = b"".join(self._parts)
            self._head = self._head or data[: limits.MESSAGE_ENDS]
            self._parts = [data[-limits.MESSAGE_ENDS :]]

    def _is_over(self) -> bool:
        return self._size > self._longest or (self._values is not None and self._values.too_many)

    def _line(self) -> bytes | TooLong:
        line, is_over = b"".join(self._parts), self._is_over()
        request = answered_request(self._head, line) if is_over else None
        self._parts, self._size, self._head, self._values = [], 0, b"", None
        return TooLong(request) if is_over else line.strip()


class Tail:
    """Keeps the last bytes of a server's stderr, and of the lines on its stdout that are not messages."""

    def __init__(self, size: int = limits.STDERR_BYTES) -> None:
        self._size = size
        self._bytes = bytearray()

    def write(self, data: bytes) -> None:
        """Append bytes, and remove the oldest bytes over the limit."""
        self._bytes += data[-self._size :]
        del self._bytes[: -self._size]

    def text(self) -> str:
        """Return the kept output as safe text. Secrets are blanked in the whole text, before a caller shortens it."""
        return redact(clean(bytes(self._bytes).decode("utf-8", "replace")).strip())

    def gist(self, lines: int = 3, most: int = 300) -> str:
        """Return the last lines of the output that are not indented. In a traceback, that is the line of the error."""
        texts = [line.strip() for line in self.text().splitlines() if line[:1].strip()]
        return " / ".join(line for line in texts[-lines:] if not line.startswith("Traceback "))[-most:]


@asynccontextmanager
async def connect(program: Stdio, tail: Tail, on_end: Callable[[], None]) -> AsyncGenerator["Streams"]:
    """Start a server's program and yield two streams of messages: from the program and to it.

    The program is ended after the `async with` block. `on_end` is called when the program or its output ends. Raises
    OSError or ValueError if the program cannot start.
    """
    import anyio
    from mcp.shared.message import SessionMessage

    # Between this start and the task group below, there must be no await: a cancellation there would leave the
    # process running.
    process, mark = await start(program)
    into, incoming = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
    # With this buffer, a call can be cancelled although the server has stopped reading: the cancellation is buffered
    # and does not block.
    outgoing, out = anyio.create_memory_object_stream[SessionMessage](_UNSENT)

    def end() -> None:
        on_end()
        into.close()

    try:
        async with asyncio.TaskGroup() as pumps:
            reader = pumps.create_task(_read(process, into, tail))
            errors = pumps.create_task(drain(process, tail))
            others = (pumps.create_task(_write(process, out, end)), pumps.create_task(_watch(process, reader, end)))
            try:
                yield incoming, outgoing
            finally:
                for stream in (incoming, outgoing):
                    stream.close()
                await stop(process, mark)
                await asyncio.wait((reader, errors), timeout=limits.TERM_SECONDS)
                for pump in (reader, errors, *others):
                    pump.cancel()
    finally:
        for stream in (into, incoming, outgoing, out):
            stream.close()
        await process.aclose()


def locate(command: str, path: str | None = None) -> str | None:
    """Return the path of a program, or None if it is not found.

    `path` is the value of a PATH variable, by default that of this process.

    The folders of this Python environment are searched too, because a kernel's PATH often lacks them. With conda on
    Windows, the scripts are in a separate folder.
    """
    path = os.environ.get("PATH", os.defpath) if path is None else path
    folders = (path, str(Path(sys.executable).parent), sysconfig.get_path("scripts"))
    return shutil.which(command, path=os.pathsep.join(folders))


def environment_of(program: Stdio) -> dict[str, str]:
    """Return a program's environment variables: its entry's, and this process's for proxies and certificates."""
    network = {name: os.environ[name] for name in NETWORK if name in os.environ}
    # On Windows, `Path` and `PATH` are the same variable. If a program got both, either could be used.
    if sys.platform == "win32":
        return {name.upper(): value for name, value in (network | dict(program.env)).items()}
    return network | dict(program.env)


async def start(program: Stdio) -> "tuple[Process, str]":
    """Start a program in its own process session, or on Windows in a Job Object. Return the process and a mark.

    The mark is a random text in the program's environment, by which the program's child processes are found later.
    Raises OSError or ValueError if the program cannot be started.
    """
    import anyio
    from mcp.client.stdio import get_default_environment

    if program.cwd is not None and not program.cwd.is_dir():
        raise NotADirectoryError(f"its folder {program.cwd} does not exist")
    mark = token_hex(8)
    environment = get_default_environment() | environment_of(program) | {MARK: mark}
    command = locate(program.command, environment.get("PATH", os.defpath)) or program.command
    if sys.platform == "win32":
        from mcp.os.win32 import utilities

        windows: Any = utilities.create_windows_process  # Its argument `errlog` accepts PIPE too.
        return await windows(command, list(program.args), environment, PIPE, program.cwd), mark
    # `start_new_session` keeps the signal of a kernel interrupt away from the server.
    process = await anyio.open_process(
        [command, *program.args], env=environment, cwd=program.cwd, stderr=PIPE, start_new_session=True
    )
    guardian.watch(process.pid, mark)
    return process, mark


async def stop(process: "Process", mark: str) -> None:
    """Close the input of a process, then end the process and all processes that it started."""
    from mcp.os.posix.utilities import terminate_posix_process_tree
    from mcp.os.win32.utilities import close_process_job, terminate_windows_process_tree

    try:
        await cast("ByteSendStream", process.stdin).aclose()
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.EXIT_SECONDS):
                await process.wait()
        if process.returncode is None and sys.platform == "win32":
            await terminate_windows_process_tree(process)
        elif process.returncode is None:
            await terminate_posix_process_tree(process, limits.TERM_SECONDS)
    finally:  # A server that ended in time can leave child processes.
        if sys.platform == "win32":
            close_process_job(process)
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # The process id is also its group's id.
            kill_marked(mark)
            guardian.release(process.pid)


async def _watch(process: "Process", reader: "asyncio.Task[None]", end: Callable[[], None]) -> None:
    """Call `end` when a server's output ends, or soon after the server ends. Its children may keep the output open."""
    ending = asyncio.create_task(process.wait())
    try:
        await asyncio.wait((reader, ending), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait((reader,), timeout=limits.LAST_OUTPUT_SECONDS)
    finally:
        ending.cancel()
    end()


async def _read(process: "Process", into: "Incoming", tail: Tail) -> None:
    """Read messages from a server's output and send them to `into`, until the output ends.

    A last line without a line end is a message too.
    """
    lines, brake = Lines(), limits.Brake()
    async for chunk in cast("ByteReceiveStream", process.stdout):
        await _pass_on(lines.feed(chunk), into, tail, brake)
    await _pass_on(lines.feed(b"\n"), into, tail, brake)


async def _pass_on(lines: Iterator[bytes | TooLong], into: "Incoming", tail: Tail, brake: limits.Brake) -> None:
    import anyio

    for line in lines:
        if not into.statistics().open_receive_streams:
            return  # The connection is being closed. Output is still read, so that the server can end.
        if (message := _message(line, tail)) is None:
            await brake.count_dropped_message()
            continue
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await into.send(message)


def _message(line: bytes | TooLong, tail: Tail) -> "SessionMessage | None":
    """Return the message in a line of a server's output, or None if it has none.

    An answer that is too long or invalid is replaced by a JSON-RPC error for its request.
    """
    from mcp.shared.message import SessionMessage

    if isinstance(line, TooLong):
        sizes = f"{limits.MESSAGE_BYTES} bytes or {limits.MESSAGE_VALUES} values"
        return _error(line.request, TOO_LONG, f"the answer is over {sizes} and was dropped")
    if not line:
        return None
    try:
        return SessionMessage(_parse(line))
    except ValueError:
        tail.write(line[:1000] + b"\n")
        request = answered_request(line[: limits.MESSAGE_ENDS], line[-limits.MESSAGE_ENDS :])
        return _error(request, UNREADABLE, "the answer is in a form that cannot be read and was dropped")


def _parse(line: bytes) -> "types.JSONRPCMessage":
    from mcp import types

    def parse(text: bytes) -> types.JSONRPCMessage:
        return types.jsonrpc_message_adapter.validate_json(text.decode("utf-8", "replace"), by_name=False)

    try:
        return parse(line)
    except ValueError:
        if (repair_result := repair(line)) == line:
            raise
        return parse(repair_result)


def _error(request: int | str | None, code: int, message: str) -> "SessionMessage | None":
    from mcp import types
    from mcp.shared.message import SessionMessage

    if request is None:
        return None
    problem = types.ErrorData(code=code, message=message)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request, error=problem))


async def drain(process: "Process", tail: Tail) -> None:
    """Read the stderr of a process until it is closed, and keep the last bytes in `tail`."""
    async for chunk in cast("ByteReceiveStream", process.stderr):
        tail.write(chunk)


async def _write(process: "Process", out: "Outgoing", end: Callable[[], None]) -> None:
    import anyio

    stdin = cast("ByteSendStream", process.stdin)
    try:
        async for item in out:
            await stdin.send(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        end()  # The server has closed its input, so it cannot answer further requests.
