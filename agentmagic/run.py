"""The `Run` class: a turn that has been started. It can be used from any thread and any event loop."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from agentmagic.classroom import class_settings
from agentmagic.errors import UsageError
from agentmagic.events import (
    ApprovalAsked,
    Approve,
    Deny,
    Event,
    Intent,
    PartDelta,
    QuestionAsked,
    Reply,
    RunResult,
    Stop,
    TurnFinished,
    innermost,
)
from agentmagic.loop.retry import error_text
from agentmagic.loop.turn import Channel, Outcome
from agentmagic.loop.turn_options import AbortEvent
from agentmagic.runtime.engine import Caller, Listeners, engine
from agentmagic.runtime.waiters import Waiters

if TYPE_CHECKING:
    from agentmagic.host import RunView

ABORT_POLL = 0.05
"""Seconds between two checks of an abort event."""

TOGETHER = 0.002
"""Seconds for which an event may wait, to wake iterators once for several events.

To wake an event loop in another thread takes longer than to process many events.
"""

Play = Callable[[Channel], Awaitable[Outcome]]
"""Plays the turn through a channel and returns its outcome. It never raises."""


class Run:
    """A turn that has been started. Callers can await it, iterate over its events, cancel it and answer its questions.

    The turn starts at once on the engine's thread (agentmagic's own), in a copy of the caller's context variables. Any
    number of tasks can iterate over the run, and each gets all events, even if it starts late. `session_listeners` are
    called after the run's own listeners. If a listener raises an exception at an approval or a question, the run denies
    it. Tools are bound to the thread and event loop of the calling code, or of `started_by`.
    """

    def __init__(
        self,
        play: Play,
        session_listeners: "Listeners[Any] | None" = None,
        *,
        attended: bool = False,
        abort: AbortEvent | None = None,
        started_by: Caller | None = None,
    ) -> None:
        self.settled: Future[Outcome] = Future()
        self.view: RunView | None = None
        self._attended = attended
        self._session_listeners = session_listeners or Listeners()
        self._events: list[Event] = []
        self._times: list[float] = []
        self._listeners = Listeners[Event]()
        self._waiters = Waiters()
        self._alarm: asyncio.Handle | None = None
        self._open: dict[str, asyncio.Future[Intent]] = {}
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        engine().submit_from_here(self._main(play, abort), started_by)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that the turn has emitted so far."""
        return tuple(self._events)

    @property
    def timed_events(self) -> tuple[tuple[Event, float], ...]:
        """The events so far, each with the time at which it was emitted, in seconds since 1970."""
        return tuple(zip(self._events, self._times, strict=False))

    @property
    def done(self) -> bool:
        """Whether the turn is over."""
        return self.settled.done()

    @property
    def waits(self) -> bool:
        """Whether an approval or a question waits for the user."""
        return bool(self._open)

    def cancel(self) -> None:
        """Cancel the turn. The finished part is kept, and the result has stop_reason "cancelled". Thread-safe."""
        self._cancelled = True
        engine().loop.call_soon_threadsafe(self._cancel_task)

    def send(self, intent: Intent) -> None:
        """Answer an approval or a question of this run, or stop the run. Thread-safe.

        Raises UsageError for an `Approve` of a tool call (not of a pause in step mode) if the settings of a teacher or
        an administrator require that a person approves, and not code.
        """
        bounds = class_settings()
        setting = bounds.first_set(("permission", "code", "web"), "ask")
        if setting and isinstance(intent, Approve) and self._asks_permission(intent.id):
            where = "In this class" if bounds.scope(setting) == "this class" else "On this machine"
            raise UsageError(
                f"{where} a person approves, and no code: {bounds.setting_with_file(setting)}. Click Approve in the "
                "notebook."
            )
        self.pass_on(intent)

    def _asks_permission(self, question: str) -> bool:
        """Return whether the question with this id asks to approve a tool call, and is not a pause of step mode."""
        inner_events = map(innermost, self.events)
        approvals = (event for event in inner_events if isinstance(event, ApprovalAsked) and event.id == question)
        return any(not event.step for event in approvals)

    def pass_on(self, intent: Intent) -> None:
        """Pass on an answer that a person gave in a front end, without the check of `send`, which is for code."""
        if isinstance(intent, Stop):
            self.cancel()
        else:
            engine().loop.call_soon_threadsafe(self._answer, intent)

    @property
    def over(self) -> bool:
        """Whether the turn has emitted its last event. Shortly afterwards, it is `done`."""
        return bool(self._events) and isinstance(self._events[-1], TurnFinished)

    def add(self, event: Event) -> None:
        """Emit an event from outside the turn, before its end. Call this on the engine's (background) thread."""
        self._emit(event)

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Arrange that the engine's (background) thread calls `listener` with every event, earlier events included."""
        engine().loop.call_soon_threadsafe(self._listen, listener)

    def wait(self) -> RunResult:
        """Wait for the turn in synchronous code, and return its result.

        If called in the main thread, it runs the turn's synchronous tools while it waits. Raises TurnTimeout or the
        error that ended the turn, each with the partial result as `.result`, and KeyboardInterrupt if the user
        interrupted.
        """
        interrupted = threading.Event()

        def interrupt() -> None:
            interrupted.set()
            self.cancel()

        try:
            engine().wait(self.settled, interrupt)
        finally:
            self._finish_view()
        if interrupted.is_set():
            raise KeyboardInterrupt
        return self.result()

    def result(self) -> RunResult:
        """Return the result of a turn that is over, or raise the error that ended it."""
        if not self.done:
            raise UsageError("The turn is not over. Await the run first.")
        outcome = self.settled.result()  # raises if the turn failed because of a bug in agentmagic
        if outcome.error is not None:
            raise outcome.error
        return outcome.result

    def __await__(self) -> Generator[Any, None, RunResult]:
        return self._join().__await__()

    async def __aiter__(self) -> AsyncIterator[Event]:
        position = 0
        while True:
            while position < len(self._events):
                yield self._events[position]
                position += 1
            if self.done:
                return
            await self._waiters.wait(partial(self._is_more, position))

    def __repr__(self) -> str:
        return f"<Run: {'over' if self.done else 'running'}, {len(self._events)} events>"

    # -- on the caller's side ------------------------------------------------------------------

    def _finish_view(self) -> None:
        if self.view is not None and self.done:
            self.view.finish()

    async def _join(self) -> RunResult:
        try:
            await asyncio.shield(asyncio.wrap_future(self.settled))
        except asyncio.CancelledError:
            self.cancel()
            # Wait until the cancelled turn has ended, so that the caller finds a complete history.
            await asyncio.shield(asyncio.wrap_future(self.settled))
            raise
        finally:
            self._finish_view()
        return self.result()

    def _is_more(self, position: int) -> bool:
        return len(self._events) > position or self.done

    # -- on the engine -------------------------------------------------------------------------

    async def _main(self, play: Play, abort: AbortEvent | None) -> None:
        self._task = asyncio.current_task()
        watcher = asyncio.create_task(self._watch(abort)) if abort is not None else None
        if self._cancelled or (abort is not None and abort.is_set()):
            self._cancel_task()
        try:
            with engine().work(lambda: self.waits):
                outcome = await play(Channel(self._events, self._emit, self._ask))
            self.settled.set_result(outcome)
        except BaseException as error:  # caused by a bug in agentmagic; if not set below, callers would wait forever
            self.settled.set_exception(error)
            raise
        finally:
            if watcher is not None:
                watcher.cancel()
            for question in self._open.values():  # still unanswered: a tool in a thread may wait for the answer
                question.cancel()
            self._wake()

    async def _watch(self, abort: AbortEvent) -> None:
        while not abort.is_set():  # noqa: ASYNC110  (it may be a threading event, or one of another loop)
            await asyncio.sleep(ABORT_POLL)
        self.cancel()

    def _cancel_task(self) -> None:
        if self._task is not None and not self.done:
            self._task.cancel()

    def _emit(self, event: Event) -> None:
        self._times.append(time.time())
        self._events.append(event)
        self._deny_unshown(event, self._listeners.tell(event) + self._session_listeners.tell(event))
        if self._waiters:
            self._wake_for(event)

    def _wake_for(self, event: Event) -> None:
        """Wake the tasks that iterate over the run: in 2 ms, or for a `PartDelta` at the event loop's next pass."""
        at_once, alarm = isinstance(innermost(event), PartDelta), self._alarm
        if alarm is not None and not (at_once and isinstance(alarm, asyncio.TimerHandle)):
            return
        if alarm is not None:
            alarm.cancel()
        loop = engine().loop
        self._alarm = loop.call_soon(self._wake) if at_once else loop.call_later(TOGETHER, self._wake)

    def _wake(self) -> None:
        """Wake the tasks that iterate over the run, since there are new events."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._waiters.wake()

    def _listen(self, listener: Callable[[Event], None]) -> None:
        self._listeners.add(listener)
        for event in self._events:
            self._deny_unshown(event, self._listeners.tell(event, only=listener))

    def _deny_unshown(self, event: Event, errors: Sequence[Exception]) -> None:
        """Deny an approval or question that made a listener raise an exception: the user may never have seen it."""
        if errors and isinstance(question := innermost(event), ApprovalAsked | QuestionAsked):
            self.send(Deny(question.id, f"it could not be shown: {error_text(errors[0])}"))

    async def _ask(self, question: ApprovalAsked | QuestionAsked) -> Intent | None:
        if not self._attended or self.done:
            return None
        answer: asyncio.Future[Intent] = asyncio.get_running_loop().create_future()
        self._open[question.id] = answer
        try:
            return await answer
        finally:
            del self._open[question.id]

    def _answer(self, intent: "Approve | Deny | Reply") -> None:
        waiting = self._open.get(intent.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(intent)
