"""Wakes coroutines, on any event loop, that wait for new data."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress


class Waiters:
    """Coroutines that wait for new data. They can run on any event loop, and any thread can wake them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def wait(self, is_more: Callable[[], bool]) -> None:
        """Wait until the next `wake`. If there is new data already, so that `is_more()` is true, return at once."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        with self._lock:
            self._waiting.append((loop, waiter))
        # `is_more` is called after the waiter is registered: it finds earlier data, and later data wakes the waiter.
        if not is_more():
            await waiter

    def wake(self) -> None:
        """Wake all coroutines that wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for loop, waiter in waiting:
            with suppress(RuntimeError):  # raised if the waiter's event loop was closed
                loop.call_soon_threadsafe(_release, waiter)


def _release(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
