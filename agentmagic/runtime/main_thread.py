"""The queue of work for the main thread: synchronous functions of the notebook, and questions to the user.

While a cell blocks the main thread, the cell runs the queued jobs. Between cells, the kernel's event loop runs them.
"""

import asyncio
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from agentmagic import traces
from agentmagic.host import Capture, current_host
from agentmagic.runtime.exits import CodeInterrupt, interruption, is_interruption
from agentmagic.runtime.home import HOME

T = TypeVar("T")

TICK = 0.25
"""Seconds between checks for signals while the main thread waits.

On Windows, waiting for a lock cannot be interrupted.
"""

REPEAT_INTERRUPT = 0.05
"""Seconds after which an interrupt is sent again, if the main thread has not reacted."""


in_nested_code: ContextVar[bool] = ContextVar("agentmagic_in_nested_code", default=False)
"""Whether the running code belongs to a coroutine for which a job runs the event loop again, or to a task of it."""


class Busy(Exception):
    """Raised when the main thread is busy with other work, which may be waiting for the caller."""


class Job:
    """A function to call in the main thread, and the future of its result."""

    def __init__(self, function: Callable[[], Any], on_start: Callable[[], None] | None) -> None:
        self.function = function
        self.on_start = on_start
        self.future: Future[Any] = Future()
        self.interruptible = False
        self.serves = False
        self.given_up = False
        self.interrupted = False
        """Whether the user has interrupted the job, or the end of its turn has."""
        self.stop_nested: Callable[[], None] | None = None
        """Cancels the coroutine for which the job runs the event loop again, None while it does not."""

    def interrupt(self) -> None:
        """Stop the function, in a signal handler. Raises KeyboardInterrupt, unless other code of the loop is running.

        While the job runs the event loop again, the loop's other callbacks run too, such as those of the kernel. An
        exception in their midst could leave the kernel without an answer to its messages for ever.
        """
        if self.stop_nested is None or in_nested_code.get():
            raise interruption()
        self.stop_nested()

    def run(self) -> None:
        """Call the function in the calling thread. An exception is stored in `future`, and is not raised here."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            if self.on_start is not None:
                self.on_start()  # within `try`: an exception must be stored, or the caller would wait for ever
            self.interruptible = True
            try:
                if self.given_up:  # the job was cancelled before it could be interrupted
                    raise interruption()
                value = self.function()
            finally:
                self.interruptible = False
        except (StopIteration, GeneratorExit) as error:  # an asyncio future cannot store these two
            self.future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))
        except BaseException as error:  # noqa: BLE001  (every exception is the answer, an interrupt too)
            self.future.set_exception(error)
        else:
            self.future.set_result(value)


class MainThread:
    """The queue of jobs for the main thread, which runs them one at a time, in order.

    The host (a Jupyter kernel or a Python script) decides which work runs in the main thread.
    """

    def __init__(self) -> None:
        self._capturing: Capture | None = None
        self._jobs: deque[Job] = deque()
        self._condition = HOME.condition()
        self._current: Job | None = None
        self._target: Job | None = None
        self._serve_depth = 0
        self._waiting = False
        """Whether `serve` has begun to wait. Before that, code inside `mark_busy` starts the work to wait for."""
        self._stopped = False
        """Whether an interrupt has come that no job and no waiting code has received yet."""
        self._interrupts: Callable[[], None] | None = None

    @property
    def serving(self) -> bool:
        """Whether the main thread is blocked in `serve`, which runs the queued jobs."""
        return self._serve_depth > 0

    @property
    def working(self) -> bool:
        """Whether the main thread is running a job, such as a tool."""
        return self._current is not None

    @property
    def nested(self) -> bool:
        """Whether a job runs the event loop again, so that other callbacks of the loop run meanwhile."""
        return self._current is not None and self._current.stop_nested is not None

    @property
    def reachable(self) -> bool:
        """Whether the main thread will ever run a job that is added to the queue now."""
        return self.serving or current_host().wake is not None

    @property
    def takes_tools(self) -> bool:
        """Whether synchronous tools run in the main thread, and can run there now."""
        return current_host().takes_tools and self.reachable

    def store_exception(self, error: BaseException) -> None:
        """Store an exception as the last one of the notebook, which `%tb` and `%debug` show."""
        if current_host().takes_tools:
            sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__

    async def run(
        self, function: Callable[[], T], on_start: Callable[[], None] | None = None, *, wait: bool = True
    ) -> T:
        """Call a function in the main thread.

        Cancelling this coroutine interrupts the function, like an interrupt by the user.

        `on_start` is called in the main thread just before the function. Raises `asyncio.CancelledError` if the
        function is interrupted, and CodeInterrupt if it raises KeyboardInterrupt itself. With `wait=False`, raises Busy
        if the main thread is not blocked in `serve` and has not started the function within a short time (TICK).
        """
        job = Job(traces.with_span(function), on_start)
        self._post(job)
        answer = asyncio.wrap_future(job.future)
        try:
            if not (wait or self.serving):
                await asyncio.wait([answer], timeout=TICK)
                if not self.serving and job.future.cancel():  # `cancel` returns False if the function runs already
                    raise Busy
            return await answer
        except asyncio.CancelledError:
            answer.cancel()
            self._interrupt(job)
            raise
        except KeyboardInterrupt as error:
            if not (job.interrupted or is_interruption(error)):
                raise CodeInterrupt(*error.args) from error  # raised by the function itself: it has failed
            # The user has interrupted the function: cancel this task, so that the turn ends too.
            if (task := asyncio.current_task()) is not None:
                task.cancel()
            raise asyncio.CancelledError from None

    def _post(self, job: Job) -> None:
        with self._condition:
            self._jobs.append(job)
            self._condition.notify_all()
            wake = None if self.serving else current_host().wake
        if wake is not None:
            wake(self.drain)

    def _interrupt(self, job: Job) -> None:
        with self._condition:
            job.given_up = job.interrupted = True
            self._condition.notify_all()
            if self._current is not job or job.serves:  # if the job is in `serve`, `serve` checks `given_up`
                return
            self._target = job
        self._send_interrupt(job, asyncio.get_running_loop())

    def _send_interrupt(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        """Interrupt the main thread, repeatedly, until the job has ended.

        One signal is not enough: if it comes just before a blocking call, such as `time.sleep`, Python handles it only
        after that call.
        """
        with self._condition:  # The job cannot end meanwhile: the signal would then stop whatever comes after it.
            if self._target is not job or self._current is not job:
                return
            main = threading.main_thread().ident
            if main is not None and hasattr(signal, "pthread_kill"):
                signal.pthread_kill(main, signal.SIGINT)
            else:
                signal.raise_signal(signal.SIGINT)
        loop.call_later(REPEAT_INTERRUPT, self._send_interrupt, job, loop)

    def drain(self) -> None:
        """Run the queued jobs. The main thread's event loop calls this when no cell blocks it."""
        restore = self._catch_interrupts()
        try:
            while self._step():
                pass
        finally:
            restore()

    def serve(self, future: "Future[Any]", on_interrupt: Callable[[], None]) -> None:
        """Block the main thread until the future is done. Run the queued jobs meanwhile.

        The user's first interrupt calls `on_interrupt` and stops the running job, if there is one. The second raises
        KeyboardInterrupt here. Calls can be nested, because a job can call `serve`.
        """
        future.add_done_callback(lambda _: self._notify())
        outer, self._interrupts = self._interrupts, on_interrupt
        try:
            with self.mark_busy(), self._suspend_capture():
                if self._current is None and self._stopped:  # the interrupt came before `serve`
                    self._stopped, self._interrupts = False, None
                    on_interrupt()
                self._serve(future)
        except KeyboardInterrupt:
            if self._interrupts is not None:  # `on_interrupt` was not called, so the work would continue
                on_interrupt()
            raise
        finally:
            self._interrupts = outer

    def _serve(self, future: "Future[Any]") -> None:
        """Run jobs until the future is done.

        An interrupt raises KeyboardInterrupt here, but never while a lock is acquired: the lock would stay locked, and
        the engine would wait for it for ever.
        """
        job, outer = self._current, (self._waiting, self._stopped)
        self._waiting, self._stopped = True, False
        if job is not None:
            job.serves = True
        try:
            while not future.done() and not self._is_over():
                if not self._step():
                    with self._condition:
                        self._condition.wait_for(
                            lambda: bool(self._jobs) or future.done() or self._is_over(), timeout=TICK
                        )
        finally:
            if job is not None:
                job.serves = False
            is_over = self._is_over()
            self._waiting, self._stopped = outer
        if is_over:
            raise interruption()

    def _is_over(self) -> bool:
        """Return whether `serve` must end: the user has interrupted it, or the job that called it was cancelled."""
        return self._stopped or (self._current is not None and self._current.given_up)

    @contextmanager
    def mark_busy(self) -> Generator[None]:
        """Mark the main thread as busy in a `with` block, so that jobs queued before `serve` begins are run by `serve`.

        This is for code that starts work and then waits for it in `serve`. The main thread's event loop is about to
        block then, so jobs must not be scheduled there. An interrupt that comes before `serve` is handled by `serve`,
        or is raised at the end of the `with` block; a second interrupt is raised at once. Does nothing in another
        thread.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        restore = self._catch_interrupts()
        self._serve_depth += 1
        try:
            yield
        finally:
            self._serve_depth -= 1
            restore()
            if interrupted := self._stopped and not self.serving:
                self._stopped = False
            if self._jobs and not self.serving and (wake := current_host().wake) is not None:
                wake(self.drain)
        if interrupted:
            raise interruption()

    @contextmanager
    def nest(self, stop: Callable[[], None]) -> Generator[Callable[[], bool]]:
        """Let an interrupt of the current job call `stop` while code in a `with` block runs the event loop again.

        Yield a function that returns whether an interrupt has come.
        """
        job = self._current or Job(lambda: None, None)
        outer, job.stop_nested = job.stop_nested, stop
        try:
            yield lambda: job.interrupted
        finally:
            job.stop_nested = outer

    @contextmanager
    def capture_output(self, on_lines: Callable[[Callable[[], str]], None]) -> Generator[Capture | None]:
        """Capture the text, displays and plots of a tool that runs in a `with` block.

        Yield None in another thread, or in a Python script.
        """
        in_main = threading.current_thread() is threading.main_thread()
        if not in_main or (capture := current_host().capture(on_lines)) is None:
            yield None
            return
        self._capturing = capture
        capture.start()
        try:
            yield capture
        finally:
            capture.stop()
            self._capturing = None
            capture.draw()

    @contextmanager
    def _suspend_capture(self) -> Generator[None]:
        """Suspend the capture of a tool's output in a `with` block, because the tool waits there for other work.

        The jobs that the main thread runs meanwhile do not belong to the tool.
        """
        outer, self._capturing = self._capturing, None
        if outer is not None:
            outer.stop()
        try:
            yield
        finally:
            if outer is not None:
                outer.start()
            self._capturing = outer

    def _notify(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def _step(self) -> bool:
        with self._condition:
            if not self._jobs:
                return False
            outer, self._current = self._current, self._jobs.popleft()
        try:
            with replace_callbacks():
                self._current.run()
        finally:
            with self._condition:
                self._current = outer
        return True

    def _catch_interrupts(self) -> Callable[[], object]:
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        before = signal.signal(signal.SIGINT, self._on_interrupt)
        return partial(signal.signal, signal.SIGINT, before)

    def _on_interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        target, self._target = self._target, None
        job = self._current
        in_job = job is not None and job.interruptible and not job.serves
        if target is not None:
            if job is not None and target is job and in_job:
                job.interrupt()
            return  # the signal was for a job that had ended before the signal came
        if job is not None:
            job.interrupted = True
        first, self._interrupts = self._interrupts, None
        if first is not None:
            first()
        is_again = self._stopped and not self._waiting
        if job is not None and in_job:
            job.interrupt()
            return
        if first is None and is_again:
            raise interruption()
        if first is None or (job is not None and job.serves):
            # Between the jobs of `drain`, nothing can be stopped, and an exception would end the kernel's loop.
            self._stopped = self.serving
            self._notify()


@contextmanager
def replace_callbacks() -> Generator[None]:
    """Keep the event loop of this thread able to continue if code in a `with` block runs the same loop again.

    asyncio's own `_run_once` counts the callbacks that are ready, then takes as many from a deque. A nested run takes
    callbacks from it too. If the deque is then too short, IndexError ends the loop, and a kernel with it. So callbacks
    that do nothing are added. nest_asyncio2 replaces `_run_once`, but not while a call of it is under way.
    """
    loop = running_loop()
    ready: deque[object] = getattr(loop, "_ready", deque())  # A loop that is not asyncio's own may have no such deque.
    waiting = len(ready)
    try:
        yield
    finally:
        while loop is not None and len(ready) < waiting:
            loop.call_soon(lambda: None)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
