"""Where agents run: on event loops in threads, or, if the platform has no threads, on the caller's own event loop.

`HOME` is the home of this process. It is chosen once, by the platform.
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
        """Wake all that wait."""

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until the predicate holds, at most `timeout` seconds. Return whether it holds."""
        ...


class Home(Protocol):
    """Starts event loops and work, and knows how synchronous code waits for them."""

    threads: bool
    """Whether work runs beside the code that starts it."""

    def start(self, run: Callable[[asyncio.AbstractEventLoop], None], name: str) -> "RunningLoop":
        """Return a loop that runs. `run` runs it until it is stopped, in a thread of this name."""
        ...

    def in_thread(self, function: Callable[[], object], name: str) -> threading.Thread:
        """Call a function in a thread, in a copy of the caller's context: its output stays with the cell."""
        ...

    def condition(self) -> Condition:
        """Return the condition on which the main thread waits for jobs."""
        ...

    def refuse_to_block(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Raise if synchronous code may not wait here; `loop` is the event loop that runs here, if one does."""


RunningLoop = tuple[asyncio.AbstractEventLoop, threading.Thread]
"""An event loop, and the thread in which it runs."""


# -- Threads ---------------------------------------------------------------------------------------------

_Base: type[BaseEventLoop] = asyncio.ProactorEventLoop if sys.platform == "win32" else asyncio.SelectorEventLoop


class EngineLoop(_Base):  # type: ignore[misc, valid-type]
    """An event loop that nest_asyncio cannot patch: it patches the *class* of the kernel's loop, in place."""

    # From the base class, which nest_asyncio leaves alone: it may have patched SelectorEventLoop before this line runs.
    # On Windows, the class has a `run_forever` of its own.
    run_forever = (_Base if sys.platform == "win32" else BaseEventLoop).run_forever
    run_until_complete = BaseEventLoop.run_until_complete
    _run_once = BaseEventLoop._run_once  # type: ignore[attr-defined]  # noqa: SLF001
    _nest_patched = True  # nest_asyncio leaves a loop alone that has this mark

    def _check_running(self) -> None:
        if self.is_running():
            raise RuntimeError(NESTED)
        BaseEventLoop._check_running(self)  # type: ignore[attr-defined]  # noqa: SLF001


NESTED = (
    "asyncio.run() and run_until_complete() cannot run here, because this coroutine runs on the same event loop. Await "
    "the inner coroutine instead, or declare the tool with `def` instead of `async def`."
)
"""The error of a nested run. Only nest_asyncio lets `asyncio.run` come this far."""


class Threads:
    """Runs each event loop, and each piece of work, in a daemon thread of its own."""

    threads = True

    def start(self, run: Callable[[asyncio.AbstractEventLoop], None], name: str) -> RunningLoop:
        """Start a loop in a new thread. Both have an empty context: they would hold that of the first cell for good."""
        empty = contextvars.Context()
        loop = empty.run(EngineLoop)
        return loop, self._started(lambda: empty.run(run, loop), name)

    def in_thread(self, function: Callable[[], object], name: str) -> threading.Thread:
        """Call a function in a new thread."""
        return self._started(partial(contextvars.copy_context().run, function), name)

    def _started(self, work: Callable[[], object], name: str) -> threading.Thread:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def condition(self) -> Condition:
        """Return a condition for threads."""
        return threading.Condition()

    def refuse_to_block(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Raise RuntimeError on the engine's loop and on those of async tools."""
        if isinstance(loop, EngineLoop):
            message = "This would block the event loop it is called on; await it instead."
            raise RuntimeError(message)  # noqa: TRY004  (the caller's place is wrong, not a type)


# -- One thread ------------------------------------------------------------------------------------------


class Inline:
    """Runs everything on the event loop of the one thread there is, as Pyodide has it in a browser.

    Work that would have a thread of its own runs at once. Synchronous code waits by JavaScript Promise Integration
    (JSPI), which sets its stack aside while the event loop goes on.
    """

    threads = False

    def start(self, run: Callable[[asyncio.AbstractEventLoop], None], name: str) -> RunningLoop:  # noqa: ARG002
        """Return the loop of the page, which runs always."""
        return asyncio.get_event_loop(), threading.main_thread()

    def in_thread(self, function: Callable[[], object], name: str) -> threading.Thread:  # noqa: ARG002
        """Call a function at once."""
        contextvars.copy_context().run(function)
        return threading.current_thread()

    def condition(self) -> Condition:
        """Return a condition that lets the event loop go on."""
        return _LoopCondition()

    def refuse_to_block(self, loop: asyncio.AbstractEventLoop | None) -> None:  # noqa: ARG002
        """Raise UsageError if the browser cannot set a stack aside."""
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
        """Do nothing: there is no lock to give back."""

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
