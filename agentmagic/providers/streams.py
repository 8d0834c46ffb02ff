"""Reads streamed responses: their lines, and the data of server-sent events.

One read from the network can bring several lines or events, which are yielded as one list. So the task that uses them
is resumed once for each read, and not for each of the thousands of pieces of an answer.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import httpx2

AFTER_END = 0.1
"""Seconds to wait for the end of a response after its last event."""

DONE = b"[DONE]"
"""The data with which many servers end a stream, as OpenAI does. `read_events` yields this very object for it."""

_ENDS = (DONE, b" [DONE]")
_OBJECT = (b" {", b"{")
"""The beginnings of data that is a JSON object."""

_BOM_DATA = b"\xef\xbb\xbfdata:"
"""The beginning of a first line of data that has a byte order mark before it."""

_NOTHING = re.compile(rb"\s*(?::.*|ping|keep-?alive|heartbeat)?\s*", re.IGNORECASE | re.DOTALL)
"""Data without content that only keeps a connection open: empty data, a comment, or a word such as "ping"."""

_KEEPS_ALIVE = frozenset({b"ping", b"keepalive", b"keep-alive", b"heartbeat"})
_NAMES = _KEEPS_ALIVE | {b"error"}
"""`_KEEPS_ALIVE`: names of events whose data is ignored. `_NAMES`: all names that matter to the reader. Lower case."""

SETTLE = 2.0
"""Seconds to wait for token counts after a complete answer."""

read_json = json.JSONDecoder().decode  # faster than json.loads, which checks options and encodings at each call


async def read_lines(response: "httpx2.Response") -> AsyncGenerator[list[bytes]]:
    """Yield the lines of a response, without their line ends.

    The HTTP client's own `aiter_lines` is not used, because it also splits at Unicode characters within lines.
    """
    rest = bytearray()
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            new = max(len(rest) - 1, 0)
            rest += chunk
            end = max(rest.rfind(b"\n", new), rest.rfind(b"\r", new, -1)) + 1  # a \r at the end can be half of a \r\n
            if end:
                lines = bytes(rest[:end]).splitlines()
                del rest[:end]
                yield lines
    if rest:
        yield bytes(rest).splitlines()


async def read_events(response: "httpx2.Response") -> AsyncGenerator[list[bytes]]:
    """Yield the data of server-sent events, which is JSON, up to `DONE`.

    Events that only keep the connection open are left out. JSON outside of events is yielded at the end, like the data
    of an event. It is an error of Gemini, or the whole answer of a server that does not stream. A last event without
    its closing empty line is yielded too, if its JSON is complete. The data of an event named "error" is yielded as an
    object with the key "error", even if the data is plain text.

    https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """
    cutter = _EventCutter()
    async with aclosing(read_lines(response)) as reads:
        async for lines in reads:
            yield cutter.feed(lines)
            if cutter.done:
                await _finish(reads)
                return
    if rest := cutter.close():
        yield rest


async def read_objects(response: "httpx2.Response") -> AsyncGenerator[list[bytes]]:
    """Yield the lines of a response that are not blank, each of which is JSON."""
    async with aclosing(read_lines(response)) as reads:
        async for lines in reads:
            yield [line for line in lines if line.strip()]


class _EventCutter:
    """Groups lines into server-sent events, and returns the data of each. `done` is True after the data `[DONE]`."""

    def __init__(self) -> None:
        self.done = False
        self._data: list[bytes] = []
        self._name = b""  # the name of the current event, if it changes how the event's data is read
        # The latest line "event: NAME" with a name that changes nothing. An equal line is not parsed again.
        self._skipped_line = b""
        self._loose_lines: list[bytes] = []  # lines of JSON that are not in an event

    def feed(self, lines: list[bytes]) -> list[bytes]:
        """Add lines of the response, and return the data of each event that is now complete."""
        data, events = self._data, list[bytes]()
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:])
            elif line:
                if line != self._skipped_line:
                    self._take(line)
            elif len(data) == 1 and not self._name and data[0].startswith(_OBJECT):  # true for nearly every event
                events.append(data.pop())
            else:
                events += self._end(b"\n".join(data))
                data.clear()
                self._name = b""
                if self.done:
                    break
        return events

    def close(self) -> list[bytes]:
        """Return the remaining data at the end of the response.

        This is a last event without its closing empty line, and JSON outside of events.
        """
        last = b"\n".join(self._data).strip()
        is_whole = last == DONE or (last.startswith(b"{") and _read(last) is not None)
        return [*(self._end(last) if is_whole else ()), *_loose_values(self._loose_lines)]

    def _take(self, line: bytes) -> None:
        if line.startswith(b"event:"):
            name = line[6:].strip().lower()
            self._name, self._skipped_line = (name, b"") if name in _NAMES else (b"", line)
        elif line.startswith(_BOM_DATA):
            self._data.append(line[len(_BOM_DATA) :])
        elif self._loose_lines or line.startswith((b"{", b"[")):
            self._loose_lines.append(line)

    def _end(self, text: bytes) -> list[bytes]:
        """Return a list with the data of an event, or an empty list if the event has no content."""
        if self._name in _KEEPS_ALIVE or _NOTHING.fullmatch(text):
            return []
        if text.startswith(_ENDS):
            self.done = True
            return [DONE]
        if self._name == b"error":
            value = _read(text)
            error = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            if "error" not in error and error.get("type") != "error":
                message = value if isinstance(value, str) else text.decode(errors="replace").strip()
                return [json.dumps({"type": "error", "error": error or {"message": message}}).encode()]
        return [text]


def _loose_values(lines: list[bytes]) -> Iterator[bytes]:
    """Yield each JSON value in lines that are not in an event.

    The lines have one value together, or a list of values, or one value in each line.
    """
    whole = b"\n".join(lines)
    match _read(whole):
        case None if lines and _read(lines[0]) is not None:
            yield from filter(bytes.strip, lines)
        case None:
            return
        case list() as values:  # pyright: ignore[reportUnknownVariableType]
            yield from (json.dumps(value).encode() for value in cast("list[Any]", values))
        case _:
            yield whole


def _read(text: bytes) -> Any:
    """Return the parsed JSON, or None for null and for text that is not JSON."""
    with suppress(ValueError, RecursionError):
        return read_json(text.decode())
    return None


async def _finish(reads: AsyncGenerator[object]) -> None:
    """Read a response to its end, so that the connection can be used again. Give up after `AFTER_END` seconds."""
    with suppress(Exception):  # a failure does not matter, because the answer is complete
        async with asyncio.timeout(AFTER_END):
            async for _ in reads:
                pass
