"""The queue of work for the main thread: synchronous functions of the notebook, typed questions.

It is done by whoever holds that thread: a blocking cell, or the kernel's loop.
"""

import asyncio
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

TICK = 0.25
"""Seconds after which a blocked main thread looks for signals: lock waits on Windows cannot be interrupted."""


class Job:
    """A function for the main thread, and the future of what it returns."""

    def __init__(self, function: Callable[[], Any], on_start: Callable[[], None] | None) -> None:
        self.function = function
        self.on_start = on_start
        self.future: Future[Any] = Future()
        self.interruptible = False
        self.given_up = False

    def run(self) -> None:
        """Call the function, in the thread that this is called in; nothing is raised here."""
        if not self.future.set_running_or_notify_cancel():
            return
        if self.on_start is not None:
            self.on_start()
        try:
            self.interruptible = True
            try:
                if self.given_up:  # before a signal could have stopped the function
                    raise KeyboardInterrupt
                value = self.function()
            finally:
                self.interruptible = False
        except StopIteration as error:  # which no asyncio future can carry
            self.future.set_exception(RuntimeError(f"StopIteration: {error}"))
        except BaseException as error:  # noqa: BLE001  (whatever it raises is the answer, an interrupt too)
            self.future.set_exception(error)
        else:
            self.future.set_result(value)


class Person(Protocol):
    """Whoever sits before the notebook; called in the main thread."""

    def attended(self) -> bool:
        """Whether somebody can type in the cell under way."""
        ...

    def ask(self, question: str) -> str:
        """Have an answer typed that is not to be seen or kept, "" for none."""
        ...


class MainThread:
    """The queue of work for the main thread: one job at a time, in order.

    `holds_tools` says that synchronous tools belong here, as in a kernel; a script leaves it False.
    `person` is asked what no run asks; a script has none.
    """

    def __init__(self) -> None:
        self.holds_tools = False
        self.person: Person | None = None
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._current: Job | None = None
        self._target: Job | None = None
        self._servers = 0
        self._wake: Callable[[Callable[[], None]], object] | None = None
        self._interrupts: Callable[[], None] | None = None

    @property
    def serving(self) -> bool:
        """Whether the main thread is blocked in `serve` and does the jobs there."""
        return self._servers > 0

    @property
    def reachable(self) -> bool:
        """Whether a job posted now will be done at all."""
        return self.serving or self._wake is not None

    @property
    def takes_tools(self) -> bool:
        """Whether synchronous tools run here, and can now."""
        return self.holds_tools and self.reachable

    def attach(self, wake: Callable[[Callable[[], None]], object] | None) -> None:
        """Say how the main thread's loop is asked to call a function when nobody serves."""
        self._wake = wake

    async def run(self, function: Callable[[], T], on_start: Callable[[], None] | None = None) -> T:
        """Have the main thread call a function; cancelling interrupts it as a person would.

        `on_start` is called in the main thread when the function's turn has come. A function that was
        interrupted raises KeyboardInterrupt here as `asyncio.CancelledError`.
        """
        job = Job(function, on_start)
        self._post(job)
        try:
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            self._interrupt(job)
            raise
        except KeyboardInterrupt:
            if (task := asyncio.current_task()) is not None:
                task.cancel()
            raise asyncio.CancelledError from None

    def _post(self, job: Job) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()
            wake = None if self.serving else self._wake
        if wake is not None:
            wake(self.drain)

    def _interrupt(self, job: Job) -> None:
        with self._changed:
            job.given_up = True  # a job that serves another one now is interrupted when that is over
            if self._current is not job:
                return
            self._target = job
        main = threading.main_thread().ident
        if main is not None and hasattr(signal, "pthread_kill"):
            signal.pthread_kill(main, signal.SIGINT)
        else:
            signal.raise_signal(signal.SIGINT)

    def drain(self) -> None:
        """Do the jobs that wait; for the main thread's own loop, when no cell blocks it."""
        restore = self._catch_interrupts()
        try:
            while self._step():
                pass
        finally:
            restore()

    def serve(self, done: "Future[Any]", on_interrupt: Callable[[], None]) -> None:
        """Block the main thread until `done`, doing its jobs meanwhile.

        The first interrupt calls `on_interrupt`, and stops the job under way if there is one. The second
        raises KeyboardInterrupt here. May be nested: a job may serve.
        """
        done.add_done_callback(self._notice)
        outer, self._interrupts = self._interrupts, on_interrupt
        restore = self._catch_interrupts()
        try:
            with self.held():
                while not done.done():
                    if not self._step():
                        with self._changed:
                            self._changed.wait_for(lambda: bool(self._jobs) or done.done(), timeout=TICK)
        except KeyboardInterrupt:
            if self._interrupts is not None:  # not told yet: what was waited for here ends with the waiting
                on_interrupt()
            raise
        finally:
            self._interrupts = outer
            restore()

    @contextmanager
    def held(self) -> Generator[None]:
        """Count the main thread as serving, also before it does.

        For code that begins something and then waits for it: what needs the main thread meanwhile must not
        count on its event loop, which is about to stand still. Does nothing in another thread.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._servers += 1
        try:
            yield
        finally:
            self._servers -= 1
            if self._jobs and self._wake is not None and not self.serving:
                self._wake(self.drain)

    def _notice(self, _done: "Future[Any]") -> None:
        with self._changed:
            self._changed.notify_all()

    def _step(self) -> bool:
        with self._changed:
            if not self._jobs:
                return False
            outer, self._current = self._current, self._jobs.popleft()
        try:
            self._current.run()
        finally:
            self._current = outer
        if outer is not None and outer.given_up:
            raise KeyboardInterrupt
        return True

    def _catch_interrupts(self) -> Callable[[], object]:
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        before = signal.signal(signal.SIGINT, self._on_interrupt)
        return partial(signal.signal, signal.SIGINT, before)

    def _on_interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        target, self._target = self._target, None
        in_job = self._current is not None and self._current.interruptible
        if target is not None:
            if target is self._current and in_job:
                raise KeyboardInterrupt
            return  # the job was over before the signal came
        first, self._interrupts = self._interrupts, None
        if first is not None:
            first()
        if first is None or in_job:
            raise KeyboardInterrupt
