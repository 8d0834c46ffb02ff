"""HTTP connections of uvicorn. Their number and time are limited, because programs without a token can connect."""

import asyncio
from functools import cache

from agentmagic.serve import limits

_WORDS = b"There are too many connections to the notebook. Try again when some are closed."
TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_WORDS),
    _WORDS,
)


@cache
def connection_class() -> type[asyncio.Protocol]:
    """Return the connection class for uvicorn. Raises ImportError without uvicorn, which `mcp` installs."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class HttpConnection(H11Protocol):
        """A connection that closes itself if a request is not complete in time; uvicorn itself would wait for ever."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """Start the timeout for the first request, or refuse the connection if there are too many."""
            super().connection_made(transport)
            self.access_log = False  # disabled here, not in uvicorn's logger, which the user's own server may share
            if len(self.connections) > limits.CONNECTIONS:
                transport.write(TOO_MANY)
                transport.close()
            else:
                self._deadline = self.loop.call_later(limits.REQUEST_SECONDS, transport.abort)

        def data_received(self, data: bytes) -> None:
            """Process received data. The timeout of a request starts with its first byte."""
            super().data_received(data)
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._stop_waiting()
            elif self._deadline is None:
                self._deadline = self.loop.call_later(limits.REQUEST_SECONDS, self.transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            """Stop the timeout of the request, because the connection is closed."""
            self._stop_waiting()
            super().connection_lost(exc)

        def _stop_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return HttpConnection
