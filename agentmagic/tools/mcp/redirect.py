"""The way back from an authorization page: a browser's one request to 127.0.0.1, or an address that a person pastes."""

import asyncio
import secrets
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

from agentmagic.secrets import redact
from agentmagic.tools.mcp.words import line

PATH = "/callback"
LONGEST_REQUEST = 16 * 1024
"""Bytes of a request, its headers included."""

PATIENCE = 5.0
"""Seconds a browser has for its request."""

_PAGE = b"HTTP/1.1 %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
_THANKS = b"agentmagic has the answer. You can close this page and go back to your notebook."
_NOTHING = b"Nothing is waited for here."


@dataclass(frozen=True, slots=True)
class Answer:
    """What an authorization page answered: a code, or the error it ended in (RFC 6749, 4.1.2; RFC 9207)."""

    state: str
    code: str = ""
    issuer: str | None = None
    error: str = ""

    def belongs_to(self, state: str) -> bool:
        """Whether this answers the request of that state."""
        return secrets.compare_digest(self.state.encode(), state.encode())


def read(address: str) -> Answer:
    """Read the address at which a browser ended up. Raises ValueError, in a sentence, where it holds no answer."""
    try:
        given = parse_qs(urlsplit(address.strip()).query, max_num_fields=20)
    except ValueError:
        raise ValueError("That address cannot be read.") from None
    values = {name: found[0] for name, found in given.items()}
    error = line(redact(f"{values.get('error', '')} {values.get('error_description', '')}"), 300)
    if "state" not in values or not (error or "code" in values):
        raise ValueError("That address holds no answer: it should have code=... and state=... in it.")
    return Answer(values["state"], values.get("code", ""), values.get("iss"), error)


class Redirect:
    """Listens on a free port of 127.0.0.1 from `__aenter__` to `__aexit__`.

    `answer` is the first that belongs to the state expected; other requests are turned away and change nothing.
    """

    def __init__(self) -> None:
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.address = ""
        self.state = ""
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LONGEST_REQUEST)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{PATH}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()
        self.answer.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            async with asyncio.timeout(PATIENCE):
                request = await reader.readuntil(b"\r\n\r\n")
                answer = self._answer_in(request)
                page = (b"200 OK", _THANKS) if answer else (b"404 Not Found", _NOTHING)
                writer.write(_PAGE % (page[0], len(page[1]), page[1]))
                await writer.drain()
            if answer and not self.answer.done():
                self.answer.set_result(answer)
        except (OSError, EOFError, asyncio.LimitOverrunError):  # TimeoutError is an OSError
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    def _answer_in(self, request: bytes) -> Answer | None:
        method, _, target = request.partition(b"\r\n")[0].decode("ascii", "replace").partition(" ")
        target = target.partition(" ")[0]
        try:
            answer = read(target)
        except ValueError:
            return None
        fits = method == "GET" and target.startswith(f"{PATH}?") and self.state and answer.belongs_to(self.state)
        return answer if fits else None
