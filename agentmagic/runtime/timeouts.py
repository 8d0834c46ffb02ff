"""Waiting with a limit: for cancelled work to end, and a timeout that can be paused."""

import asyncio
from collections.abc import Collection, Coroutine, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


def being_cancelled() -> bool:
    """Return whether the running task was asked to end, by a cancel or by a deadline."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


GRACE = 0.25
"""Seconds that cancelled work gets to clean up before its turn is settled without it."""


async def await_with_grace(work: Coroutine[Any, Any, T]) -> T:
    """Await work of the user or of a library. When cancelled, wait at most GRACE seconds for it to end."""
    task = asyncio.ensure_future(work)
    await await_all_with_grace([task])
    return task.result()


async def await_all_with_grace(tasks: Collection["asyncio.Task[Any]"], grace: float = GRACE) -> None:
    """Wait until tasks have ended. When cancelled, cancel them and wait at most `grace` seconds."""
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=grace)  # work that ignores its cancellation is left behind
        raise
    finally:
        for task in tasks:
            task.add_done_callback(look_at)


def look_at(future: "asyncio.Future[Any]") -> None:
    """Retrieve a future's exception, so that asyncio does not report one that was left behind."""
    if not future.cancelled():
        future.exception()


class Deadline:
    """An `asyncio.timeout` that can be paused. Leaving the block after the time ran out raises `TimeoutError`.

    `seconds` may be None for no limit. Pauses may nest and overlap; those of `outer`, if there is one, are the same.
    """

    def __init__(self, seconds: float | None, outer: "Deadline | None" = None) -> None:
        self._seconds = seconds
        self._outer = outer
        self._timeout = asyncio.Timeout(None)
        self._pauses = 0
        self._over = False
        self._left: float | None = None
        self._paused_at = 0.0
        self._paused_for = 0.0

    async def __aenter__(self) -> Self:
        self._timeout, self._over = asyncio.timeout(self._seconds), False
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._left = None  # so that a late `resume` reschedules nothing
        self._over = True
        return await self._timeout.__aexit__(kind, error, trace)

    @property
    def expired(self) -> bool:
        """Whether the time has run out; never before the block was entered."""
        return self._timeout.expired()

    @property
    def paused_for(self) -> float:
        """Seconds of all pauses so far, of one that goes on too. Read it on the deadline's own event loop."""
        return self._paused_for + (asyncio.get_running_loop().time() - self._paused_at if self._pauses else 0.0)

    def pause(self) -> None:
        """Stop the clock. Call it on the deadline's own event loop."""
        if self._outer is not None:
            self._outer.pause()
        when = self._timeout.when()
        if self._pauses == 0:
            self._paused_at = asyncio.get_running_loop().time()
        if self._pauses == 0 and when is not None and not self.expired and not self._over:
            self._left = when - self._paused_at
            self._timeout.reschedule(None)
        self._pauses += 1

    def resume(self) -> None:
        """End one pause. The clock runs again when the last one has ended."""
        if self._outer is not None:
            self._outer.resume()
        self._pauses -= 1
        if self._pauses == 0:
            self._paused_for += asyncio.get_running_loop().time() - self._paused_at
        if self._pauses == 0 and self._left is not None and not self.expired:
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)
            self._left = None

    def restart(self) -> None:
        """Give the work its whole time again, from now on, or from the end of the pause."""
        if self._seconds is None or self.expired:
            return
        if self._pauses:
            self._left = self._seconds
        else:
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Stop the clock inside the block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()
