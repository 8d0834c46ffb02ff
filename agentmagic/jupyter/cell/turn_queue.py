"""The queue of a chat panel's turns. They wait there while the session runs another turn, for example of a cell."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from agentmagic.errors import AgentMagicError, SessionBusy, with_code
from agentmagic.log import logger
from agentmagic.prompt.attachments import Attachment
from agentmagic.runtime.engine import engine
from agentmagic.session import Session
from agentmagic.text import sanitize, single_line

if TYPE_CHECKING:
    from agentmagic.widgets.view import View

SOON = 0.3
"""Seconds to wait for the main thread to begin a turn before the panel shows that a cell keeps the thread busy."""

LONGEST_SHOWN = 60
"""Characters of a prompt in the queue that the panel shows."""


@dataclass(frozen=True, slots=True, eq=False)
class QueuedTurn:
    """A turn in the queue. `begin` starts the turn, and is called in the thread in which synchronous tools run.

    If the turn does not begin, the user gets the text `unsent` and the `attachments` back.
    """

    begin: Callable[[], object]
    prompt: str
    unsent: str = ""
    attachments: tuple[Attachment, ...] = ()


class TurnQueue:
    """Begins turns in the order in which they were added, each when its session is free.

    The methods are called in the engine thread. `on_change` is called when `note` may have changed, and `on_failure`
    with a turn that did not begin and the error.
    """

    def __init__(
        self, session: Session, on_change: Callable[[], None], on_failure: Callable[[QueuedTurn, BaseException], None]
    ) -> None:
        self._session = session
        self._on_change = on_change
        self._on_failure = on_failure
        self._turns: list[QueuedTurn] = []
        self._beginning: QueuedTurn | None = None
        self._lock = threading.Lock()
        self._work: asyncio.Task[None] | None = None
        self._is_blocked = False

    @property
    def note(self) -> str:
        """A line that tells how many turns wait, and for what. It is "" if none waits for another turn or a cell."""
        number = len(self._turns)
        if not number or not (self._is_blocked or self._session.running):
            return ""
        first = single_line(self._turns[0].prompt, LONGEST_SHOWN)
        subject = f"{number} messages wait" if number > 1 else f"“{first}” waits" if first else "Your turn waits"
        return f"{subject} for {'the cell that runs' if self._is_blocked else 'the turn under way'}."

    @property
    def waits(self) -> bool:
        """Whether a turn in the queue has not begun yet, even if `note` is empty."""
        return bool(self._turns)

    def add(self, turn: QueuedTurn) -> None:
        """Add a turn at the end of the queue, and begin it as soon as possible."""
        self._turns.append(turn)
        self._on_change()
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._begin_all())

    def add_once(self, turn: QueuedTurn) -> None:
        """Add a turn, unless one waits already: a second click has no effect. Thread-safe."""
        if not self.waits:
            engine().loop.call_soon_threadsafe(self.add, turn)

    def withdraw(self) -> list[QueuedTurn]:
        """Remove the turns that have not begun, and return them."""
        with self._lock:
            turns = [turn for turn in self._turns if turn is not self._beginning]
            self._turns = [turn for turn in self._turns if turn is self._beginning]
        self._on_change()
        return turns

    async def _begin_all(self) -> None:
        while turn := await self._next():
            if await self._begin_or_report(turn):
                self._turns = [other for other in self._turns if other is not turn]
            self._beginning = None
            self._on_change()

    async def _next(self) -> QueuedTurn | None:
        """Wait until the session is free; return the turn that is then first in the queue, or None."""
        while self._turns and (run := self._session.running) is not None:
            # If this task is cancelled, wait() does not cancel the run's future; `await` on the future would.
            await asyncio.wait((asyncio.wrap_future(run.settled),))
        return self._turns[0] if self._turns else None

    def _begin(self, turn: QueuedTurn) -> None:
        """Begin a turn, in the main thread, unless the user has withdrawn it while it waited for the thread."""
        with self._lock:
            if turn not in self._turns:
                return
            self._beginning = turn
        turn.begin()

    async def _begin_or_report(self, turn: QueuedTurn) -> bool:
        """Begin a turn, or report why it cannot begin. Return False, to try again, if a cell began a turn first."""
        task = asyncio.ensure_future(engine().run_user(partial(self._begin, turn)))
        done, _ = await asyncio.wait((task,), timeout=SOON)
        if not done:
            self._is_blocked = True
            self._on_change()
            await asyncio.wait((task,))
            self._is_blocked = False
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if isinstance(error, SessionBusy):
            return False
        if error is not None:
            self._on_failure(turn, error)
        return True


def queue_of(session: Session, view: "View") -> TurnQueue:
    """Return a queue for the turns that the user begins by a button in the view of a finished cell."""

    def tell() -> None:
        view.tell({"note": queue.note})

    queue = TurnQueue(session, tell, lambda _turn, error: view.complain(failure_message(error)))
    return queue


def failure_message(error: BaseException) -> str:
    """Return the message for a turn that did not begin; log the traceback if the error is not agentmagic's own."""
    if isinstance(error, asyncio.CancelledError):  # the user interrupted the main thread
        return "Interrupted before the turn began."
    if not isinstance(error, AgentMagicError):
        logger.error("a turn of a panel did not begin", exc_info=error)
    return sanitize(with_code(error))
