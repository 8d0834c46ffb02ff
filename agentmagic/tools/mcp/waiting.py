"""Who waits for a server, and what is asked of a person meanwhile on its behalf.

Nobody is asked for a server that nobody waits for, and no time passes for those who wait while somebody is.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

from agentmagic.tools.mcp.host import Host, Page


class Clock(Protocol):
    """A limit of time that can be made to stand still."""

    def pause(self) -> None:
        """Let no time pass from here on."""
        ...

    def resume(self) -> None:
        """Let time pass again."""
        ...


class Timer:
    """Calls a function once, when its seconds have passed; to be made on the event loop."""

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self._call = call
        self._left = seconds
        self._handle: asyncio.TimerHandle | None = None
        self.resume()

    def pause(self) -> None:
        """Let no time pass from here on."""
        if self._handle is not None:
            self._left = self._handle.when() - asyncio.get_running_loop().time()
        self.cancel()

    def resume(self) -> None:
        """Let time pass again."""
        self._handle = asyncio.get_running_loop().call_later(max(0.0, self._left), self._call)

    def cancel(self) -> None:
        """Call nothing any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class Waiting:
    """Those who wait for one server: its connection, its listings and its calls."""

    def __init__(self, server: str, host: Host) -> None:
        self._server = server
        self._host = host
        self._callers = 0
        self._clocks: list[Clock] = []
        self._asked: asyncio.Task[str] | None = None

    @contextmanager
    def caller(self, clock: Clock | None = None) -> Generator[None]:
        """Count somebody who waits; what is being asked of a person is withdrawn when the last of them leaves."""
        self._callers += 1
        try:
            with self.clock(clock):
                yield
        finally:
            self._callers -= 1
            if not self._callers and self._asked is not None:
                self._asked.cancel()

    @contextmanager
    def clock(self, clock: Clock | None) -> Generator[None]:
        """Have a clock stand still whenever a person is asked inside the block."""
        if clock is None:
            yield
            return
        self._clocks.append(clock)
        if self._asked is not None:
            clock.pause()
        try:
            yield
        finally:
            self._clocks.remove(clock)
            if self._asked is not None:
                clock.resume()

    async def attended(self) -> bool:
        """Whether somebody waits, and can be asked."""
        return self._callers > 0 and await self._host.attended()

    async def authorize(self, url: str, note: str) -> str:
        """Have a person authorize us; return what they pasted. Cancelled where nobody waits any more."""
        if not self._callers:
            raise asyncio.CancelledError
        self._asked = asyncio.ensure_future(self._host.authorize(Page(self._server, url, note)))
        for clock in self._clocks:
            clock.pause()
        try:
            return await self._asked
        finally:
            self._asked.cancel()
            self._asked = None
            for clock in self._clocks:
                clock.resume()
