"""Reads streamed responses: their lines, and the data of server-sent events.

What one read of the network brings is yielded as one list. A task is resumed for each read then, and not for each of
the thousands of pieces of an answer.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

AFTER_END = 0.1
"""Seconds that are left for the rest of a response behind its last event."""

_ENDS = (b"[DONE]", b" [DONE]")

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
    """Yield the data of server-sent events, which is JSON, up to the `[DONE]` with which OpenAI ends it.

    Gemini may write an error between the events, as plain JSON: it is yielded as if it were the data of a last one.

    https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
    """
    data: list[bytes] = []
    plain: list[bytes] = []
    begun = False
    async with aclosing(read_lines(response)) as reads:
        async for lines in reads:
            found: list[bytes] = []
            for line in lines:
                if line.startswith(b"data:"):
                    data.append(line[5:])
                elif not line and data:
                    found.append(b"\n".join(data))
                    data, begun = [], True
                elif plain or (begun and line.startswith(b"{")):
                    plain.append(line)
            end = next((place for place, text in enumerate(found) if text.startswith(_ENDS)), None)
            yield found[:end]
            if end is not None:
                await _finish(reads)
                return
    if plain:
        yield [b"\n".join(plain)]


async def _finish(reads: AsyncGenerator[object]) -> None:
    """Read a response to its end, if it comes at once: its connection can be used again then."""
    with suppress(Exception):  # the answer is complete
        async with asyncio.timeout(AFTER_END):
            async for _ in reads:
                pass
