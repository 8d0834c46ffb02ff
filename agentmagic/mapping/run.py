"""The object that stands for a running map (one prompt for many rows), for use in any thread and event loop."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from agentmagic import log
from agentmagic.display import map_words
from agentmagic.events import MapProgress
from agentmagic.mapping.driver import Driver
from agentmagic.mapping.ledger import Ledger
from agentmagic.mapping.outcomes import MapResult, MapRow
from agentmagic.mapping.sample import Estimate, total
from agentmagic.mapping.work import MapWork
from agentmagic.runtime.engine import Listeners, engine
from agentmagic.runtime.waiters import Waiters

if TYPE_CHECKING:
    from agentmagic.host import MapView

AT_BEST = 10
"""A map can be this many times as fast as its sample, because a sample of 20 rows does not reach the full pace."""


class MapRun:
    """A running map.

    The caller can await it, iterate over its rows as they end, stop it, or read `frame` with the rows so far. The map
    starts at once on the engine thread, in a copy of the caller's context variables. If no `view` shows the map to the
    user, an early end and the notices are logged as a warning.
    """

    def __init__(self, work: MapWork, view: "MapView | None" = None) -> None:
        self.settled: Future[None] = Future()
        self.view = view
        self._listeners = Listeners[MapProgress]()
        self._waiters = Waiters()
        self._ledger = Ledger(work, self._tell, self._waiters.wake)
        self._driver = Driver(self._ledger)
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        engine().submit_from_here(self._main())

    @property
    def done(self) -> bool:
        """Whether the map has ended: no more rows are asked."""
        return self.settled.done()

    @property
    def progress(self) -> MapProgress:
        """The current progress of the map."""
        return self._ledger.progress()

    @property
    def frame(self) -> Any:
        """The rows and their answers so far, as a data frame; see `MapResult.frame`."""
        return self.so_far().frame

    def stop(self) -> None:
        """Stop the map, from any thread. Cancel the running rows, and keep the answers."""
        self._stopped = True
        engine().loop.call_soon_threadsafe(self._cancel)

    def listen(self, listener: Callable[[MapProgress], None]) -> Callable[[], None]:
        """Call `listener` on the engine thread with the map's progress: now, up to ten times a second, and at the end.

        Return a function that removes the listener.
        """
        remove = self._listeners.add(listener)
        engine().loop.call_soon_threadsafe(lambda: self._listeners.tell(self.progress, listener))
        return remove

    def wait(self) -> MapResult:
        """Wait for the result in synchronous code. Meanwhile, the main thread runs synchronous tools of the rows.

        Raises the error that ended the map, or kept it from starting. The error's attribute `result` has the rows that
        were answered. Raises KeyboardInterrupt if the user interrupts; `so_far` returns the rows until then.
        """
        interruption = threading.Event()

        def interrupt() -> None:
            interruption.set()
            self.stop()

        try:
            engine().wait(self.settled, interrupt)
        finally:
            if self.view is not None and self.done:
                self.view.finish()
        if interruption.is_set():
            raise KeyboardInterrupt
        return self.result()

    def so_far(self) -> MapResult:
        """Return the result with the rows that have an outcome so far."""
        ledger = self._ledger
        rows = ledger.known_rows()
        work = ledger.work
        return MapResult(
            rows,
            ledger.progress(),
            tuple(sorted(ledger.doubtful, key=lambda row: row.place)),
            self._estimate(rows),
            work.rows,
            work.turn.agent.output_schema,
            ledger.file,
        )

    def work_again(self) -> MapWork | None:
        """Return the parts of a map that asks the rows without an answer again, or None if this is not possible.

        It is possible once this map has ended, if its rows can be read again, and if it is not on a cassette.
        """
        ledger = self._ledger
        work = ledger.work
        if not self.done or work.tape is not None or work.rows.total is None:
            return None
        return replace(work, kept=ledger.file if work.path is None else None)

    def result(self) -> MapResult:
        """Return the result of a map that has ended, or raise the error that ended it."""
        self.settled.result()  # raises an error if the map could not be run at all
        result = self.so_far()
        if (error := self._ledger.error) is not None:
            error.result = result
            raise error
        return result

    def __await__(self) -> Generator[Any, None, MapResult]:
        return self._join().__await__()

    async def __aiter__(self) -> AsyncIterator[MapRow]:
        rows, position = self._ledger.finished, 0
        while True:
            while position < len(rows):
                yield rows[position]
                position += 1
            if self.done:
                return
            await self._waiters.wait(partial(self._is_more, position))

    def __repr__(self) -> str:
        progress = self.progress
        of = "" if progress.total is None else f" of {progress.total:,}"
        return f"<MapRun: {progress.done:,}{of} rows, {progress.ended or 'running'}>"

    def _estimate(self, rows: tuple[MapRow, ...]) -> Estimate | None:
        """Return an estimate of the cost and time of all rows, or None if no sample was asked."""
        ledger = self._ledger
        sample = [row for row in rows if row.usage.requests]
        if ledger.work.settings.sample is None or not sample:
            return None
        sizes = self._driver.reader.sizes
        costs = total(sizes, {row.place: row.usage.cost or 0.0 for row in sample})
        tokens = total(sizes, {row.place: row.usage.input_tokens + row.usage.output_tokens for row in sample})
        mean = sum(row.seconds for row in sample) / len(sample)
        took = ledger.progress().seconds
        at_once = max(1.0, mean * len(sample) / max(took, 0.001))
        # The longest time assumes that as many rows are asked at a time as in the sample. The shortest time assumes as
        # many as `concurrency` allows or, if it is not set, AT_BEST (ten) times as many as in the sample.
        limit = ledger.work.settings.concurrency or at_once * AT_BEST
        slowest = mean * len(sizes) / at_once
        fastest = mean * max(1.0, len(sizes) / limit)
        return Estimate(len(sizes), len(sample), costs, tokens, (min(slowest, fastest), slowest))

    def _tell(self, progress: MapProgress) -> None:
        self._listeners.tell(progress)

    def _is_more(self, position: int) -> bool:
        return len(self._ledger.finished) > position or self.done

    async def _join(self) -> MapResult:
        try:
            await asyncio.shield(asyncio.wrap_future(self.settled))
        except asyncio.CancelledError:
            self.stop()
            await asyncio.shield(asyncio.wrap_future(self.settled))
            raise
        finally:
            if self.view is not None and self.done:
                self.view.finish()
        return self.result()

    async def _main(self) -> None:
        self._task = asyncio.current_task()
        if self._stopped:
            self._cancel()
        try:
            with engine().work(lambda: False):  # a row never asks the user
                await self._driver.run()
            self._log_end()
        except BaseException as error:
            # Callers wait for `settled`: without this, they would wait forever if the code above has a bug.
            self.settled.set_exception(error)
            raise
        else:
            self.settled.set_result(None)
        finally:
            self._waiters.wake()

    def _log_end(self) -> None:
        progress, error = self.progress, self._ledger.error
        text = map_words.ending(progress)
        is_unseen = self.view is None and text and error is None  # an error is raised to the caller
        text = " ".join(filter(None, (text or f"{map_words.heading(progress)}.", str(error or ""))))
        log.logger.log(logging.WARNING if is_unseen else logging.INFO, "map ended: %s", text)

    def _cancel(self) -> None:
        if self._task is not None and not self.done:
            self._task.cancel()
