"""The engine: one daemon thread with its own event loop, and the queue of work for the main thread.

Everything slow lives on the engine's loop: model streams, MCP connections, runs. A cell that blocks
does not stall it, and what another library does to the kernel's loop does not touch it. What only the
main thread may do (synchronous functions of the notebook, typed questions) is queued in `MainThread`
and done by whoever holds that thread: a blocking cell, or the kernel's loop.
"""

import asyncio
import atexit
import contextvars
import os
import signal
import sys
import threading
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

POOL_THREADS = 32
"""How many synchronous tools may run at once; LOOP-6 asks for 16 at least."""

TICK = 0.25
"""Seconds after which a blocked main thread looks for signals: lock waits on Windows cannot be interrupted."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The event loop of the code that started a run, for tools that are bound to it."""

    loop: asyncio.AbstractEventLoop
    in_main_thread: bool


caller: contextvars.ContextVar[Caller | None] = contextvars.ContextVar("agentmagic_caller", default=None)
"""Who started the run that a coroutine of the engine belongs to; None for code without an event loop."""

_Base: type[BaseEventLoop] = asyncio.ProactorEventLoop if sys.platform == "win32" else asyncio.SelectorEventLoop


class _EngineLoop(_Base):  # type: ignore[misc, valid-type]
    """An event loop that stays itself: nest_asyncio patches the *class* of the kernel's loop, in place."""

    run_forever = _Base.run_forever
    run_until_complete = _Base.run_until_complete
    _run_once = BaseEventLoop._run_once  # type: ignore[attr-defined]  # noqa: SLF001
    _check_running = BaseEventLoop._check_running  # type: ignore[attr-defined]  # noqa: SLF001
    _nest_patched = True


class _Job:
    """A function for the main thread, and the future of what it returns."""

    def __init__(self, function: Callable[[], Any], on_start: Callable[[], None] | None) -> None:
        self.function = function
        self.on_start = on_start
        self.future: Future[Any] = Future()
        self.interruptible = False
        self.given_up = False

    def run(self) -> None:
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
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._current: _Job | None = None
        self._target: _Job | None = None
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
        job = _Job(function, on_start)
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

    def _post(self, job: _Job) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()
            wake = None if self.serving else self._wake
        if wake is not None:
            wake(self.drain)

    def _interrupt(self, job: _Job) -> None:
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

    def _catch_interrupts(self) -> Callable[[], None]:
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        before = signal.signal(signal.SIGINT, self._on_interrupt)
        return lambda: void(signal.signal(signal.SIGINT, before))

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


class Engine:
    """The thread that runs agents; get the process's one with `engine()`."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = _EngineLoop()
        self.main = MainThread()
        self._pool = asyncio.Semaphore(POOL_THREADS)
        self._closers: list[Callable[[], Awaitable[None]]] = []
        ready = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(ready,), name="agentmagic-engine", daemon=True)
        self.thread.start()
        ready.wait()
        atexit.register(self.close)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(ready.set)
        self.loop.run_forever()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine on the engine, in a copy of the caller's context: its output stays with the cell."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def submit_from_here(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine on the engine for the caller, whose event loop `@tool(loop="caller")` is bound to."""
        token = caller.set(this_caller())
        try:
            return self.submit(coroutine)
        finally:
            caller.reset(token)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine and wait for it; an interrupt cancels it."""
        future = self.submit(coroutine)
        self.wait(future, lambda: void(future.cancel()))
        return future.result()

    def wait(self, future: "Future[Any]", on_interrupt: Callable[[], None]) -> None:
        """Wait for a future from any thread but the engine's; the main thread does its jobs meanwhile."""
        self.refuse_own_thread()
        if threading.current_thread() is threading.main_thread():
            self.main.serve(future, on_interrupt)
        else:
            future.exception()

    def refuse_own_thread(self) -> None:
        """Raise RuntimeError in the engine's own thread, which must never block."""
        if threading.current_thread() is self.thread:
            message = "This would block the engine's own thread; await it instead."
            raise RuntimeError(message)

    async def in_pool(self, function: Callable[[], T], on_start: Callable[[], None] | None = None) -> T:
        """Call a function in a daemon thread; cancelling leaves the thread behind, it cannot be stopped.

        `on_start` is called on the engine when a thread is free for the function.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            job = _Job(lambda: context.run(function), None)
            job.run()
            loop.call_soon_threadsafe(_pass_on, job.future, answer)

        async with self._pool:
            if on_start is not None:
                on_start()
            threading.Thread(target=work, name="agentmagic-tool", daemon=True).start()
            return await answer

    async def run_user(self, function: Callable[[], T]) -> T:
        """Run a synchronous function of the user's where such functions run: in the main thread of a kernel."""
        if self.main.takes_tools:
            return await self.main.run(function)
        return await self.in_pool(function)

    def at_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Have a coroutine function called on the engine before the process ends."""
        self._closers.append(close)

    def forget(self, close: Callable[[], Awaitable[None]]) -> None:
        """Take an `at_close` back."""
        if close in self._closers:
            self._closers.remove(close)

    def close(self, timeout: float = 6.0) -> None:
        """Close what runs on the engine and stop it, within about `timeout` seconds."""
        if os.getpid() != self.pid or not self.thread.is_alive():
            return
        closing = self.submit(self._close(timeout))
        try:
            closing.result(timeout + 0.5)
        except (TimeoutError, RuntimeError):
            closing.cancel()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(1.0)

    async def _close(self, seconds: float) -> None:
        tasks = [asyncio.ensure_future(close()) for close in self._closers]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


def void(_value: object) -> None:
    """Make a statement of an expression."""


def this_caller() -> Caller | None:
    """Return this thread as a caller, or None where it runs no event loop."""
    loop = running_loop()
    return None if loop is None else Caller(loop, threading.current_thread() is threading.main_thread())


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _pass_on(source: "Future[T]", target: "asyncio.Future[T]") -> None:
    if target.done():
        return
    error = source.exception()
    if error is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())


_engine: Engine | None = None
_lock = threading.Lock()


def engine() -> Engine:
    """Return the process's engine, starting it at the first call and anew in a forked child."""
    global _engine  # noqa: PLW0603  (one engine per process is the point)
    if (running := _engine) is not None and running.pid == os.getpid() and running.thread.is_alive():
        return running  # without the lock: a signal handler may have interrupted its holder
    with _lock:
        if _engine is None or _engine.pid != os.getpid() or not _engine.thread.is_alive():
            _engine = Engine()
        return _engine
