"""Starts the event loops on which agents run: in threads or, if the platform has none, on the only event loop.

`HOME` is the implementation for this process. It is chosen once, by the platform.
"""

import asyncio
import contextvars
import sys
import threading
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol, Self

from agentmagic.errors import UsageError


class Condition(Protocol):
    """The part of `threading.Condition` that the queue of the main thread uses."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def notify_all(self) -> None:
        """Wake all threads that wait."""

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until the predicate is true, for at most `timeout` seconds. Return whether it is true."""
        ...


class Home(Protocol):
    """Operations that differ between platforms with and without threads: start loops and functions, and wait."""

    threads: bool
    """Whether new work runs at the same time as the code that starts it."""

    def start(self, run: Callable[[asyncio.AbstractEventLoop], None], name: str) -> "RunningLoop":
        """Return a running event loop. `run` runs the loop until it is stopped, in a thread with this name."""
        ...

    def in_thread(self, function: Callable[[], object], name: str) -> threading.Thread:
        """Call a function in a new thread, or at once if the platform has no threads. Return its thread.

        The function runs in a copy of the caller's context, so that its output goes to the same cell.
        """
        ...

    def condition(self) -> Condition:
        """Return the condition on which the main thread waits for jobs."""
        ...

    def refuse_to_block(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Raise if synchronous code in this thread must not wait. `loop` is the event loop of this thread, or None."""


RunningLoop = tuple[asyncio.AbstractEventLoop, threading.Thread]
"""An event loop, and the thread in which it runs."""


# -- Threads ---------------------------------------------------------------------------------------------

_Base: type[BaseEventLoop] = asyncio.ProactorEventLoop if sys.platform == "win32" else asyncio.SelectorEventLoop


class EngineLoop(_Base):  # type: ignore[misc, valid-type]
    """An event loop that nest_asyncio cannot patch. nest_asyncio patches the class of the kernel's loop in place."""

    # Use methods of BaseEventLoop: nest_asyncio may already have patched SelectorEventLoop when this line runs.
    # On Windows, ProactorEventLoop has its own `run_forever`.
    run_forever = (_Base if sys.platform == "win32" else BaseEventLoop).run_forever
    run_until_complete = BaseEventLoop.run_until_complete
    _run_once = BaseEventLoop._run_once  # type: ignore[attr-defined]  # noqa: SLF001
    _nest_patched = True  # nest_asyncio does not patch a loop with this attribute

    def _check_running(self) -> None:
        if self.is_running():
            raise RuntimeError(NESTED)
        BaseEventLoop._check_running(self)  # type: ignore[attr-defined]  # noqa: SLF001


NESTED = (
    "asyncio.run() and run_until_complete() cannot run here, because this coroutine runs on the same event loop. Await "
    "the inner coroutine instead, or declare the tool with `def` instead of `async def`."
)
"""The error message for a nested run. `asyncio.run` comes this far only if nest_asyncio is active."""


class Threads:
    """Runs each event loop, and each function, in its own daemon thread."""

    threads = True

    def start(self, run: Callable[[asyncio.AbstractEventLoop], None], name: str) -> RunningLoop:
        """Start an event loop in a new thread.

        Loop and thread get an empty `contextvars` context. Otherwise they would keep the first cell's context alive.
        """
        empty = contextvars.Context()
        loop = empty.run(EngineLoop)
        return loop, self._start_thread(lambda: empty.run(run, loop), name)

    def in_thread(self, function: Callable[[], object], name: str) -> threading.Thread:
        """Call a function in a new thread."""
        return self._start_thread(partial(contextvars.copy_context().run, function), name)

    def _start_thread(self, work: Callable[[], object], name: str) -> threading.Thread:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def condition(self) -> Condition:
        """Return a condition that works between threads."""
        return threading.Condition()

    def refuse_to_block(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Raise RuntimeError if `loop` belongs to the engine or to async tools, because it must not block."""
        if isinstance(loop, EngineLoop):
            message = "This would block the event loop it is called on; await it instead."
            raise RuntimeError(message)  # noqa: TRY004  (the caller's place is wrong, not a type)


# -- One thread ------------------------------------------------------------------------------------------


class Inline:
    """Runs everything on the event loop of the only thread, as in Pyodide, which runs Python in a browser.

    A function that gets its own thread on other platforms is called at once. Synchronous code waits through JavaScript
    Promise Integration (JSPI), which suspends the code while the event loop continues.
    """

    threads = False

    def start(self, run: Callable[[asyncio.AbstractEventLoop], None], name: str) -> RunningLoop:  # noqa: ARG002
        """Return the event loop of the browser page, which is always running."""
        return asyncio.get_event_loop(), threading.main_thread()

    def in_thread(self, function: Callable[[], object], name: str) -> threading.Thread:  # noqa: ARG002
        """Call a function at once."""
        contextvars.copy_context().run(function)
        return threading.current_thread()

    def condition(self) -> Condition:
        """Return a condition whose `wait_for` lets the event loop continue."""
        return _LoopCondition()

    def refuse_to_block(self, loop: asyncio.AbstractEventLoop | None) -> None:  # noqa: ARG002
        """Raise UsageError if the browser cannot pause a cell's code while the event loop continues."""
        if not import_module("pyodide.ffi").can_run_sync():
            raise UsageError(NO_JSPI)


NO_JSPI = (
    "This browser cannot wait inside a cell, because it lacks JavaScript Promise Integration (JSPI). Open the page in "
    "Chrome or Edge, or await the turn: result = await session.start(prompt)."
)


class _LoopCondition:
    """A condition for code that shares one thread with the event loop; it needs no lock."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        """Do nothing, because there is no lock to release."""

    def notify_all(self) -> None:
        self._event.set()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        self._event.clear()
        if not predicate():
            import_module("pyodide.ffi").run_sync(self._wait(timeout))
        return predicate()

    async def _wait(self, timeout: float | None) -> None:  # noqa: ASYNC109  (of threading.Condition)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout)


HOME: Home = Inline() if sys.platform == "emscripten" else Threads()
