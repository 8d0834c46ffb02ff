"""The engine: one daemon thread with its own event loop.

Model streams, MCP connections and runs live on the engine's loop. A cell that blocks does not stall it, and other
libraries that patch the kernel's loop do not touch it. Work for the main thread only is queued in `MainThread`.
"""

import asyncio
import atexit
import contextvars
import inspect
import os
import sys
import threading
from asyncio.base_events import BaseEventLoop
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from agentmagic.log import logger
from agentmagic.runtime.main_thread import Job, MainThread

T = TypeVar("T")

POOL_THREADS = 32
"""How many synchronous tools may run at once; LOOP-6 asks for 16 at least."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The event loop of the code that started a run, for tools that are bound to it."""

    loop: asyncio.AbstractEventLoop
    in_main_thread: bool


caller: contextvars.ContextVar[Caller | None] = contextvars.ContextVar("agentmagic_caller", default=None)
"""Who started the run that a coroutine of the engine belongs to; None for code without an event loop."""

_Base: type[BaseEventLoop] = asyncio.ProactorEventLoop if sys.platform == "win32" else asyncio.SelectorEventLoop


class _EngineLoop(_Base):  # type: ignore[misc, valid-type]
    """An event loop that nest_asyncio cannot patch: it patches the *class* of the kernel's loop, in place."""

    # Bound here, before nest_asyncio is applied, so that its replacements in the base class are not found.
    run_forever = _Base.run_forever
    run_until_complete = _Base.run_until_complete
    _run_once = BaseEventLoop._run_once  # type: ignore[attr-defined]  # noqa: SLF001
    _check_running = BaseEventLoop._check_running  # type: ignore[attr-defined]  # noqa: SLF001
    _nest_patched = True  # nest_asyncio leaves a loop alone that has this mark


class Engine:
    """The thread that runs agents. `engine()` returns the one of this process."""

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
        self.loop.call_soon(ready.set)  # set by the loop itself, so that it is known to run
        self.loop.run_forever()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the engine, in a copy of the caller's context, so that its output stays with the cell."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def submit_from_here(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the engine and note the caller's event loop, for tools with `@tool(loop="caller")`."""
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

    def wait(self, future: Future[Any], on_interrupt: Callable[[], None]) -> None:
        """Wait for a future, in any thread but the engine's. The main thread does its jobs meanwhile."""
        self.refuse_own_thread()
        if threading.current_thread() is threading.main_thread():
            self.main.serve(future, on_interrupt)
        else:
            future.exception()

    def refuse_own_thread(self) -> None:
        """Raise RuntimeError if this is the engine's own thread, which must never block."""
        if threading.current_thread() is self.thread:
            message = "This would block the engine's own thread; await it instead."
            raise RuntimeError(message)

    async def in_pool(self, function: Callable[[], T], on_start: Callable[[], None] | None = None) -> T:
        """Call a function in a daemon thread. Cancelling leaves the thread behind, since no thread can be stopped.

        `on_start` is called on the engine when a thread is free for the function.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            job = Job(function, None)
            job.run()
            # Through the loop: an asyncio future may be set in its own thread only.
            loop.call_soon_threadsafe(_pass_on, job.future, answer)

        async with self._pool:
            if on_start is not None:
                on_start()
            # No executor: its threads are joined at exit, and a tool that hangs would hang the interpreter.
            in_thread(work, "agentmagic-tool")
            return await answer

    async def run_user(self, function: Callable[[], T]) -> T:
        """Run a synchronous function of the user: in the main thread of a kernel, in a pool thread of a script."""
        if self.main.takes_tools:
            return await self.main.run(function)
        return await self.in_pool(function)

    async def call_user(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of the user, synchronous or not: a coroutine function here, any other as `run_user` does."""
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        value = await self.run_user(partial(function, *arguments))
        return await value if inspect.isawaitable(value) else value

    def at_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Register a coroutine function that is called on the engine before the process ends."""
        self._closers.append(close)

    def forget(self, close: Callable[[], Awaitable[None]]) -> None:
        """Undo `at_close`."""
        if close in self._closers:
            self._closers.remove(close)

    def close(self, timeout: float = 6.0) -> None:
        """Close what runs on the engine and stop it, within about `timeout` seconds."""
        if os.getpid() != self.pid or not self.thread.is_alive():  # a forked child has no engine thread
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
    """Ignore a value: it makes a statement of an expression, and is a listener that does nothing."""


def in_thread(function: Callable[[], object], name: str) -> None:
    """Call a function in a new daemon thread, in a copy of the caller's context: its output stays with the cell."""
    threading.Thread(target=contextvars.copy_context().run, args=(function,), name=name, daemon=True).start()


def this_caller() -> Caller | None:
    """Return this thread as a caller, or None if it runs no event loop."""
    loop = running_loop()
    return None if loop is None else Caller(loop, threading.current_thread() is threading.main_thread())


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _pass_on(source: Future[T], target: "asyncio.Future[T]") -> None:
    if target.done():  # cancelled, while the thread went on
        return
    error = source.exception()
    if error is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())


class Listeners(Generic[T]):
    """Functions that are called with every event, in order. The first error of each is logged, and it is kept."""

    def __init__(self) -> None:
        # The tuples are replaced and never changed, so that a listener may add and remove listeners.
        self._listeners: tuple[Callable[[T], None], ...] = ()
        self._failed: tuple[Callable[[T], None], ...] = ()

    def add(self, listener: Callable[[T], None]) -> Callable[[], None]:
        """Call a function with every event from now on. Returns a function that removes it."""
        self._listeners = (*self._listeners, listener)
        return lambda: self._remove(listener)

    def tell(self, event: T, only: Callable[[T], None] | None = None) -> list[Exception]:
        """Call the listeners with an event, or `only` one of them. Returns what they raised."""
        errors: list[Exception] = []
        for listener in self._listeners if only is None else (only,):
            if listener not in self._listeners:  # removed by the one before it
                continue
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001  (no listener may harm the turn)
                errors.append(error)
                if listener not in self._failed:
                    self._failed += (listener,)
                    logger.exception("a listener failed; it goes on with the next event")
        return errors

    def _remove(self, listener: Callable[[T], None]) -> None:
        self._listeners = tuple(other for other in self._listeners if other is not listener)
        self._failed = tuple(other for other in self._failed if other is not listener)


_engine: Engine | None = None
_lock = threading.Lock()


def engine() -> Engine:
    """Return the process's engine. It is started at the first call, and again in a forked child."""
    global _engine  # noqa: PLW0603  (one engine per process is the point)
    if (running := _engine) is not None and running.pid == os.getpid() and running.thread.is_alive():
        return running  # without the lock: a signal handler may have interrupted its holder
    with _lock:
        if _engine is None or _engine.pid != os.getpid() or not _engine.thread.is_alive():
            _engine = Engine()
        return _engine
