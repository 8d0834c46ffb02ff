"""The engine: one daemon thread with its own event loop, on which all agents run.

Model streams, MCP connections and runs use the engine's loop. A cell that blocks does not stop this loop, and libraries
that patch the kernel's loop do not change it. In a browser, which has no threads, the engine uses the event loop of the
page (see `home`). Work that must run in the main thread is queued in `MainThread`. Coroutine functions of the user run
on the `UserLoop` of their session.
"""

import asyncio
import atexit
import contextvars
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from agentmagic.errors import UsageError
from agentmagic.host import current_host
from agentmagic.log import logger
from agentmagic.runtime.exits import contained_exits
from agentmagic.runtime.home import HOME
from agentmagic.runtime.main_thread import Busy, Job, MainThread, running_loop
from agentmagic.runtime.timeouts import GRACE, retrieve_exception

T = TypeVar("T")

PULSE = 30.0
"""Seconds between two signs of activity while a turn runs. Servers end kernels that are idle for minutes or hours."""
POOL_THREADS = 32
"""Largest number of synchronous tools that run at the same time in threads of the pool."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The code that started a run: its event loop or None, and whether it ran in the main thread.

    Some tools must run on this event loop.
    """

    loop: asyncio.AbstractEventLoop | None = None
    in_main_thread: bool = True

    @classmethod
    def here(cls) -> Self:
        """Return a `Caller` for the code that calls this method."""
        return cls(running_loop(), threading.current_thread() is threading.main_thread())


caller: contextvars.ContextVar[Caller] = contextvars.ContextVar("agentmagic_caller", default=Caller())  # noqa: B039
"""The code that started the run to which a coroutine of the engine belongs."""

CANCEL_SECONDS = 0.15
"""Seconds that a cancelled coroutine of the user gets to end. Less than GRACE, after which its result is settled."""


class UserLoop:
    """An event loop in its own daemon thread, for coroutine functions of the user.

    The methods of this class run on the engine's loop. A user's function that blocks stops only the other functions on
    the user loop. The loop is started on first use. A loop that did not respond is replaced at the next use. But
    if it responds again by then, it is kept, so that HTTP clients and other objects that are bound to it still work.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._answer: asyncio.Future[None] | None = None
        self._names: dict[asyncio.Task[Any], str] = {}

    async def run(self, function: Callable[[], Awaitable[T]], name: str, on_unfinished: Callable[[str], object]) -> T:
        """Call a function and await its result on this loop, in a copy of the caller's context.

        `name` is the function's name. If the function does not end after it was cancelled, `on_unfinished` is called
        with a sentence that says so and gives the reason.
        """
        loop, here = await self._responsive(), asyncio.get_running_loop()
        value: asyncio.Future[T] = here.create_future()
        value.add_done_callback(retrieve_exception)
        tasks: list[asyncio.Task[Future[T]]] = []

        def start() -> None:
            task = loop.create_task(outcome(function))
            tasks.append(task)
            self._names[task] = name
            task.add_done_callback(finish)

        def finish(task: asyncio.Task[Future[T]]) -> None:
            del self._names[task]
            here.call_soon_threadsafe(_copy_result, task if task.cancelled() else task.result(), value)

        loop.call_soon_threadsafe(start)
        try:
            await asyncio.wait([value])
        except asyncio.CancelledError:
            answer = self._answer = self._cancel(loop, tasks)
            await asyncio.wait([value], timeout=CANCEL_SECONDS)
            if not value.done():
                working = asyncio.current_task(loop)
                blocker = name if working is None else self._names.get(working, name)
                on_unfinished(UNFINISHED if answer.done() else BLOCKS.format(blocker))
            value.cancel()
            raise
        return value.result()

    async def answers(self) -> bool:
        """Return whether the user loop responds within a short time (GRACE). A coroutine that blocks prevents this."""
        if self._loop is None:
            return True
        answer = self._cancel(self._loop, [])
        await asyncio.wait([answer], timeout=GRACE)
        return answer.done()

    def close(self) -> None:
        """Stop the loop. Its thread cancels the tasks on the loop, and ends. A later `run` starts a new loop."""
        loop, self._loop, self._answer = self._loop, None, None
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)

    def _cancel(
        self, loop: asyncio.AbstractEventLoop, tasks: "list[asyncio.Task[Future[T]]]"
    ) -> "asyncio.Future[None]":
        """Cancel tasks on `loop`. Return a future that is done when `loop` has processed the request."""
        here = asyncio.get_running_loop()
        answer: asyncio.Future[None] = here.create_future()

        def cancel() -> None:
            for task in tasks:
                task.cancel()
            here.call_soon_threadsafe(answer.set_result, None)

        loop.call_soon_threadsafe(cancel)
        return answer

    async def _responsive(self) -> asyncio.AbstractEventLoop:
        """Return the user loop. Start a new loop first if the old one is blocked or has ended."""
        answer = self._answer
        if answer is not None and not answer.done():
            await asyncio.wait([answer], timeout=GRACE)
            if self._answer is answer and not answer.done():  # it is blocked, and no other call has replaced it
                self.close()
        # The thread may have ended: a user's function can stop the loop, and a forked child process has no threads.
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            self._loop, self._thread = HOME.start(_run_forever, "agentmagic-user")
        return self._loop


UNFINISHED = "It was cancelled and did not end, and may still be running."
BLOCKS = (
    "{} blocks the event loop of its session and may still be running: declare it with `def` instead of `async def`, "
    "or put what blocks into `await asyncio.to_thread(...)`."
)


async def outcome(function: Callable[[], Awaitable[T]]) -> Future[T]:
    """Await the result of a function. Return a future with its value or exception.

    SystemExit is stored in the future too, because it would end the event loop if it were raised here.
    """
    future: Future[T] = Future()
    try:
        future.set_result(await function())
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001  (see above)
        future.set_exception(error)
    return future


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    """Run an event loop until it is stopped, then cancel the remaining tasks and close the loop."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        _run_through_exits(runner.get_loop())


def _run_engine(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    _run_through_exits(loop)


def _run_through_exits(loop: asyncio.AbstractEventLoop) -> None:
    """Run an event loop until it is stopped.

    A SystemExit or KeyboardInterrupt ends only the task that raises it, not the loop. Code that awaits the task gets
    the exception too.
    """
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            continue
        return


session_loop: contextvars.ContextVar[UserLoop | None] = contextvars.ContextVar("agentmagic_session_loop", default=None)
"""The loop for the user's coroutine functions, in the session to which a coroutine of the engine belongs."""


class Engine:
    """The thread with the event loop on which agents run. `engine()` returns the engine of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.main = MainThread()
        self._pool = asyncio.Semaphore(POOL_THREADS)
        self._user_loop = UserLoop()
        self._closers: list[Callable[[], Awaitable[None]]] = []
        self._work: dict[object, Callable[[], bool]] = {}
        """For each turn or map that runs, a function that returns whether it waits for the user."""
        self._pulse: asyncio.TimerHandle | None = None
        self.loop, self.thread = HOME.start(_run_engine, "agentmagic-engine")
        atexit.register(self.close)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the engine in a copy of the caller's context, so that its output goes to the same cell."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def submit_from_here(self, coroutine: Coroutine[Any, Any, T], started_by: Caller | None = None) -> Future[T]:
        """Run a coroutine on the engine. Store a `Caller`: tools with `@tool(loop="caller")` use its event loop.

        The stored `Caller` is `started_by` or, if that is None, the code that calls this method.
        """
        token = caller.set(started_by or Caller.here())
        try:
            return self.submit(coroutine)
        finally:
            caller.reset(token)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine and wait for its result. An interrupt cancels the coroutine.

        Raises RuntimeError if called on an event loop that must not block, and UsageError in a browser that cannot
        suspend synchronous code. In both cases, the coroutine is not run.
        """
        try:
            self.refuse_own_thread()
        except (RuntimeError, UsageError):
            coroutine.close()  # prevents the warning "coroutine was never awaited"
            raise
        future = self.submit(coroutine)
        self.wait(future, lambda: void(future.cancel()))
        return future.result()

    def wait(self, future: Future[Any], on_interrupt: Callable[[], None]) -> None:
        """Wait for a future, in any thread except the engine's. If this is the main thread, run its queued jobs."""
        self.refuse_own_thread()
        if threading.current_thread() is threading.main_thread():
            self.main.serve(future, on_interrupt)
        else:
            future.exception()

    def refuse_own_thread(self) -> None:
        """Raise RuntimeError on the event loop of the engine or of async tools, because these loops must not block.

        Without threads, raise UsageError if the browser cannot suspend synchronous code.
        """
        HOME.refuse_to_block(running_loop())

    async def in_pool(self, function: Callable[[], T], on_start: Callable[[], None] | None = None) -> T:
        """Call a function in a daemon thread.

        Cancelling does not stop the thread, because Python cannot stop threads.

        `on_start` is called in that thread just before the function.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            job = Job(function, on_start)
            job.run()
            # An asyncio future must be set in the thread of its event loop.
            loop.call_soon_threadsafe(_copy_result, job.future, answer)

        async with self._pool:
            # Do not use a ThreadPoolExecutor: at exit, Python waits for its threads, also for a tool that hangs.
            in_thread(work, "agentmagic-tool")
            return await answer

    async def run_user(self, function: Callable[[], T], on_start: Callable[[], None] | None = None) -> T:
        """Run a synchronous function of the user. A kernel runs it in the main thread, a script in a pool thread.

        A kernel also uses a pool thread if the run was started outside the main thread and the main thread is busy:
        the main thread may be waiting for the thread that started the run. `on_start` is called in the function's
        thread just before the function.
        """
        if self.main.takes_tools:
            with suppress(Busy):
                return await self.main.run(function, on_start, wait=caller.get().in_main_thread)
        return await self.in_pool(function, on_start)

    async def await_user(
        self, function: Callable[[], Awaitable[T]], name: str, on_unfinished: Callable[[str], object] = logger.warning
    ) -> T:
        """Await the result of a user's function on the event loop of its session. See `UserLoop.run`."""
        return await (session_loop.get() or self._user_loop).run(function, name, on_unfinished)

    async def call_user(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a user's function, `def` or `async def`, and return its value. Raises CodeExit if it calls `exit`."""
        name = getattr(function, "__name__", "the hook")

        def call() -> Any:
            with contained_exits():
                return function(*arguments)

        async def finish(value: Awaitable[Any]) -> Any:
            with contained_exits():
                return await value

        # An `async def` function can be called here, because the call only creates the coroutine.
        value = call() if inspect.iscoroutinefunction(function) else await self.run_user(call)
        return await self.await_user(lambda: finish(value), name) if inspect.isawaitable(value) else value

    @contextmanager
    def work(self, waits: Callable[[], bool]) -> Generator[None]:
        """Count the `with` block, which runs on the engine, as work: every PULSE seconds, the host shows activity.

        While `waits` returns True, the work waits for the user, who may never come back. This is no activity.
        """
        key = object()
        self._work[key] = waits
        if self._pulse is None:
            self._pulse = self.loop.call_later(PULSE, self._show_activity, context=contextvars.Context())
        try:
            yield
        finally:
            del self._work[key]
            if not self._work:
                self._pulse.cancel()
                self._pulse = None

    def _show_activity(self) -> None:
        self._pulse = self.loop.call_later(PULSE, self._show_activity)
        if not all(waits() for waits in self._work.values()):
            current_host().show_activity()

    def at_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Register a coroutine function that is called on the engine before the process ends."""
        self._closers.append(close)

    def forget(self, close: Callable[[], Awaitable[None]]) -> None:
        """Remove a function registered with `at_close`."""
        if close in self._closers:
            self._closers.remove(close)

    def close(self, timeout: float = 6.0) -> None:
        """Run the functions registered with `at_close` and stop the engine, within about `timeout` seconds."""
        if os.getpid() != self.pid or not self.thread.is_alive():  # a forked child process has no engine thread
            return
        closing = self.submit(self._close(timeout))
        try:
            closing.result(timeout + 0.5)
        except (TimeoutError, RuntimeError):
            closing.cancel()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(1.0)

    async def _close(self, seconds: float) -> None:
        self._user_loop.close()
        tasks = [asyncio.ensure_future(close()) for close in self._closers]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


def void(_value: object) -> None:
    """Ignore a value. Used to turn an expression into a statement, and as a listener that does nothing."""


def in_thread(function: Callable[[], object], name: str) -> threading.Thread:
    """Call a function in a new daemon thread.

    It runs in a copy of the caller's context, so that its output goes to the same cell. On a platform without threads,
    it is called at once.
    """
    return HOME.in_thread(function, name)


def _copy_result(source: "Future[T] | asyncio.Future[Any]", target: "asyncio.Future[T]") -> None:
    if target.done():  # the caller was cancelled while the function went on
        return
    if source.cancelled():
        target.cancel()
        return
    error = source.exception()
    if error is not None:
        target.set_exception(error)
    else:
        target.set_result(source.result())


class Listeners(Generic[T]):
    """Calls functions (listeners) with every event, in the order in which they were added.

    A listener that fails is kept; only its first error is logged.
    """

    def __init__(self) -> None:
        # The tuples are replaced and never changed, so that a listener can add and remove listeners.
        self._listeners: tuple[Callable[[T], None], ...] = ()
        self._failed: tuple[Callable[[T], None], ...] = ()

    def add(self, listener: Callable[[T], None]) -> Callable[[], None]:
        """Call `listener` with every later event. Return a function that removes `listener` again."""
        self._listeners = (*self._listeners, listener)
        return lambda: self._remove(listener)

    def tell(self, event: T, only: Callable[[T], None] | None = None) -> list[Exception]:
        """Call all listeners with an event, or only the listener `only`. Return the exceptions that they raised."""
        errors: list[Exception] = []
        for listener in self._listeners if only is None else (only,):
            if listener not in self._listeners:  # an earlier listener has removed it
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
    """Return the engine of this process. It is started by the first call, and once more in a forked child process."""
    global _engine  # noqa: PLW0603  (one engine per process is the point)
    if (running := _engine) is not None and running.pid == os.getpid() and running.thread.is_alive():
        return running  # the lock is not taken: a signal handler may call this while its thread has it
    with _lock:
        if _engine is None or _engine.pid != os.getpid() or not _engine.thread.is_alive():
            _engine = Engine()
        return _engine
