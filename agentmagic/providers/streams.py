"""Reads streamed responses: their lines, and the data of server-sent events.

What one read of the network brings is yielded as one list. A task is resumed for each read then, and not for each of
the thousands of pieces of an answer.
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
"""Seconds that are left for the rest of a response behind its last event."""

DONE = b"[DONE]"
"""The data with which servers end a stream, after OpenAI's; it comes out of `read_events` as this very object."""

_ENDS = (DONE, b" [DONE]")
_OBJECT = (b" {", b"{")
"""The begin of data that is an object."""

_MARKED = b"\xef\xbb\xbfdata:"
"""The begin of the first line behind a byte order mark."""

_NOTHING = re.compile(rb"\s*(?::.*|ping|keep-?alive|heartbeat)?\s*", re.IGNORECASE | re.DOTALL)
"""Data without content, with which a server keeps a connection open: empty, a comment, or a word for it."""

_KEEPS_ALIVE = frozenset({b"ping", b"keepalive", b"keep-alive", b"heartbeat"})
_NAMES = _KEEPS_ALIVE | {b"error"}
"""The names of events whose data is not read, and those that change how it is read, in small letters."""

SETTLE = 2.0
"""Seconds that figures may take to come behind a complete answer."""

read_json = json.JSONDecoder().decode  # json.loads looks for options and encodings at each call


async def read_lines(response: "httpx2.Response") -> AsyncGenerator[list[bytes]]:
    """Yield the lines of a response, without their ends.

    The splitter of the HTTP client also splits at characters within lines.
    """
    rest = bytearray()
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            new = max(len(rest) - 1, 0)
            rest += chunk
            end = max(rest.rfind(b"\n", new), rest.rfind(b"\r", new, -1)) + 1  # a last \r may be half of an end
            if end:
                lines = bytes(rest[:end]).splitlines()
                del rest[:end]
                yield lines
    if rest:
        yield bytes(rest).splitlines()


async def read_events(response: "httpx2.Response") -> AsyncGenerator[list[bytes]]:
    """Yield the data of server-sent events, which is JSON, up to `DONE`.

    What keeps a connection open is left out. JSON that stands between the events is yielded at the end, as if it were
    data: an error of Gemini, or the whole answer of a server that does not stream. So is an event without its last
    line, if it is whole. An event of the name "error" becomes an object with "error", also if it is plain text.

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
    """Cuts lines into the data of server-sent events; `done` says that the data was `DONE`."""

    def __init__(self) -> None:
        self.done = False
        self._data: list[bytes] = []
        self._name = b""  # only if it changes how the data is read
        self._usual = b""  # the line with a name that does not
        self._plain: list[bytes] = []

    def feed(self, lines: list[bytes]) -> list[bytes]:
        """Return the data of the events that these lines end."""
        data, found = self._data, list[bytes]()
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:])
            elif line:
                if line != self._usual:
                    self._take(line)
            elif len(data) == 1 and not self._name and data[0].startswith(_OBJECT):  # nearly every event
                found.append(data.pop())
            else:
                found += self._end(b"\n".join(data))
                data.clear()
                self._name = b""
                if self.done:
                    break
        return found

    def close(self) -> list[bytes]:
        """Return what is whole behind the last event: an event without its last line, and JSON that is no event."""
        last = b"\n".join(self._data).strip()
        is_whole = last == DONE or (last.startswith(b"{") and _read(last) is not None)
        return [*(self._end(last) if is_whole else ()), *_plain(self._plain)]

    def _take(self, line: bytes) -> None:
        if line.startswith(b"event:"):
            name = line[6:].strip().lower()
            self._name, self._usual = (name, b"") if name in _NAMES else (b"", line)
        elif line.startswith(_MARKED):
            self._data.append(line[len(_MARKED) :])
        elif self._plain or line.startswith((b"{", b"[")):
            self._plain.append(line)

    def _end(self, text: bytes) -> list[bytes]:
        """Return the data of an event in a list, which is empty if the event has no content."""
        if self._name in _KEEPS_ALIVE or _NOTHING.fullmatch(text):
            return []
        if text.startswith(_ENDS):
            self.done = True
            return [DONE]
        if self._name == b"error":
            said = _read(text)
            error = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
            if "error" not in error and error.get("type") != "error":
                words = said if isinstance(said, str) else text.decode(errors="replace").strip()
                return [json.dumps({"type": "error", "error": error or {"message": words}}).encode()]
        return [text]


def _plain(lines: list[bytes]) -> Iterator[bytes]:
    """Yield the JSON of lines that are no events: one value, the values of one list, or one value in each line."""
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
    """Return JSON, None for null and for what is no JSON."""
    with suppress(ValueError, RecursionError):
        return read_json(text.decode())
    return None


async def _finish(reads: AsyncGenerator[object]) -> None:
    """Read a response to its end, if it comes at once: its connection can be used again then."""
    with suppress(Exception):  # the answer is complete
        async with asyncio.timeout(AFTER_END):
            async for _ in reads:
                pass
