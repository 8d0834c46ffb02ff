"""Limits for waiting: a short time for cancelled work to end, and a timeout that can be paused."""

import asyncio
from collections.abc import Collection, Coroutine, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


def is_cancelling() -> bool:
    """Return whether the current asyncio task is being cancelled, by `Task.cancel` or by a timeout."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


GRACE = 0.25
"""Seconds for cancelled work to clean up. After that, its turn is settled without it."""


async def await_with_grace(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine. If this call is cancelled, cancel the coroutine and wait a short time (GRACE) for its end."""
    task = asyncio.ensure_future(work)
    await await_all_with_grace([task])
    return task.result()


async def await_all_with_grace(tasks: Collection["asyncio.Task[Any]"], grace: float = GRACE) -> None:
    """Wait until all tasks have ended. If this call is cancelled, cancel the tasks and wait at most `grace` seconds."""
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=grace)  # do not wait longer for work that ignores the cancellation
        raise
    finally:
        for task in tasks:
            task.add_done_callback(retrieve_exception)


def retrieve_exception(future: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of a future that nobody awaits, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()


class Deadline:
    """A kind of `asyncio.timeout` that can be paused, for `async with`. Raises `TimeoutError` if the time has run out.

    If `seconds` is None, there is no limit. Pauses can be nested and can overlap. A pause also pauses the deadline
    `outer`.
    """

    def __init__(self, seconds: float | None, outer: "Deadline | None" = None) -> None:
        self._seconds = seconds
        self._outer = outer
        self._timeout = asyncio.Timeout(None)
        self._pauses = 0
        self._over = False
        self._remaining: float | None = None
        self._paused_at = 0.0
        self._paused_for = 0.0

    async def __aenter__(self) -> Self:
        self._timeout, self._over = asyncio.timeout(self._seconds), False
        await self._timeout.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._remaining = None  # forget the time, so that a late `resume` does not start the clock again
        self._over = True
        return await self._timeout.__aexit__(kind, error, trace)

    @property
    def expired(self) -> bool:
        """Whether the time has run out. False before the `async with` block begins."""
        return self._timeout.expired()

    @property
    def paused_for(self) -> float:
        """The total seconds of all pauses so far, including a current one.

        Only code on the deadline's event loop may read it.
        """
        return self._paused_for + (asyncio.get_running_loop().time() - self._paused_at if self._pauses else 0.0)

    def pause(self) -> None:
        """Stop the clock of the deadline. May be called on the deadline's event loop only."""
        if self._outer is not None:
            self._outer.pause()
        when = self._timeout.when()
        if self._pauses == 0:
            self._paused_at = asyncio.get_running_loop().time()
        if self._pauses == 0 and when is not None and not self.expired and not self._over:
            self._remaining = when - self._paused_at
            self._timeout.reschedule(None)
        self._pauses += 1

    def resume(self) -> None:
        """End one pause. The clock runs again when all pauses have ended."""
        if self._outer is not None:
            self._outer.resume()
        self._pauses -= 1
        if self._pauses == 0:
            self._paused_for += asyncio.get_running_loop().time() - self._paused_at
        if self._pauses == 0 and self._remaining is not None and not self.expired:
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._remaining)
            self._remaining = None

    def restart(self) -> None:
        """Start the full time `seconds` again, from now or, during a pause, from the end of the pause."""
        if self._seconds is None or self.expired or self._over:
            return
        if self._pauses:
            self._remaining = self._seconds
        else:
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)

    def hold(self) -> None:
        """Stop the clock until `restart`. In contrast to a pause, this time does not count in `paused_for`."""
        if self._pauses:
            self._remaining = None
        elif not self.expired and not self._over:
            self._timeout.reschedule(None)

    @contextmanager
    def pause_in_block(self) -> Generator[None]:
        """Pause the deadline while a `with` block runs."""
        self.pause()
        try:
            yield
        finally:
            self.resume()
